"""The language: every word can happen, with the right probability; everything else is refused."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import interp
from interp.tasks import Dyck, task_from
from interp.tasks.base import Task
from interp.tasks.dyck.brackets import END, FIRST_BRACKET, PAD, START, first_fault, nesting


def weight_of(tokens, task):
    """Eq. 3, written out: the probability of a row of brackets as a prefix, by a stack; 0 outside the language."""
    stack, chance = [], 1.0
    for token in tokens:
        kind, closes = divmod(token - FIRST_BRACKET, 2)
        opens = 1.0 if not stack else 0.0 if len(stack) == task.max_depth else task.q
        if closes:
            if not stack or stack.pop() != kind:
                return 0.0
            chance *= 1 - opens
        else:
            stack.append(kind)
            chance *= opens / task.n_types
    return chance


def every_row(task, length):
    return product(range(FIRST_BRACKET, FIRST_BRACKET + 2 * task.n_types), repeat=length)


def chi_square(counts, expected, n):
    """p of Pearson's test; rare cells are put together so that each expects at least 5."""
    cells = [(counts.get(row, 0), n * p) for row, p in expected.items() if n * p >= 5]
    n_observed, n_expected = sum(c for c, _ in cells), sum(e for _, e in cells)
    if n - n_expected > 1e-6:
        cells.append((n - n_observed, n - n_expected))
    statistic = sum((c - e) ** 2 / e for c, e in cells)
    return stats.chi2.sf(statistic, len(cells) - 1)


@pytest.mark.parametrize("task", [Dyck(length=6, q=0.3, max_depth=3), Dyck(length=5, q=0.7, n_types=3, max_depth=2)])
def test_prefixes_come_up_as_often_as_they_should(task, generator):
    n = 40_000
    rows = task.sample(n, generator=generator).tokens
    counts = Counter(tuple(row) for row in rows[:, 1:].tolist())
    expected = {row: weight for row in every_row(task, task.length) if (weight := weight_of(row, task))}
    assert sum(expected.values()) == pytest.approx(1)
    assert set(counts) <= set(expected)
    assert chi_square(counts, expected, n) > 1e-4


@pytest.mark.parametrize(
    "task",
    [
        Dyck(words="complete", length=6, max_depth=2, q=0.4),
        Dyck(words="complete", length=6, min_length=6, max_depth=3, q=0.6),
        Dyck(words="complete", length=8, min_length=4, max_depth=2, n_types=1, q=0.5),
    ],
)
def test_complete_words_come_up_as_often_as_they_should(task, generator):
    n = 40_000
    batch = task.sample(n, generator=generator)
    words = [tuple(token for token in row[1:] if token != PAD) for row in batch.tokens.tolist()]
    expected = {}
    for length in range(task.min_length, task.length + 1, 2):
        for row in every_row(task, length):
            depth = torch.tensor([1 - 2 * ((token - FIRST_BRACKET) % 2) for token in row]).cumsum(0)
            if depth[-1] == 0 and (weight := weight_of(row, task)):
                # a chance to end wherever nothing is open and enough was read
                chances = int((depth[task.min_length - 1 :] == 0).sum())
                expected[row] = weight * 0.5**chances
    total = sum(expected.values())
    expected = {row: weight / total for row, weight in expected.items()}
    counts = Counter(words)
    assert set(counts) <= set(expected)
    assert chi_square(counts, expected, n) > 1e-4


def test_a_wrong_distribution_would_be_noticed(generator):
    task = Dyck(length=6, max_depth=3)
    rows = task.sample(40_000, generator=generator).tokens[:, 1:].tolist()
    variant = replace(task, q=0.53)
    expected = {row: weight for row in every_row(task, 6) if (weight := weight_of(row, variant))}
    assert chi_square(Counter(map(tuple, rows)), expected, 40_000) < 1e-6


@pytest.mark.parametrize(
    "task",
    [
        Dyck(length=7, q=0.3, max_depth=3, n_types=3),
        Dyck(words="complete", length=6, max_depth=2, q=0.4),
        Dyck(words="complete", length=10, min_length=10, max_depth=3, q=0.6),
    ],
)
def test_next_token_probabilities_are_those_of_the_sampler(task, generator):
    """Products of them are the probability of whole words, counted from samples of the same prefix."""
    n = 60_000
    batch = task.sample(n, generator=generator)
    exact = task.next_token_probabilities(batch)
    real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.attention_mask is None else batch.attention_mask
    assert torch.allclose(exact.sum(-1), real.double())
    assert (exact.gather(2, batch.labels[..., None])[..., 0][real] > 0).all()
    for position in (0, 2, 4):
        prefixes = batch.tokens[:, : position + 1]
        prefixes, prefix_of_row, sizes = prefixes.unique(dim=0, return_inverse=True, return_counts=True)
        commonest = int(torch.where(prefixes[:, position] == PAD, 0, sizes).argmax())
        rows = prefix_of_row == commonest
        counts = Counter(batch.labels[rows, position].tolist())
        probabilities = exact[rows, position]
        assert (probabilities == probabilities[0]).all()
        expected = {token: float(chance) for token, chance in enumerate(probabilities[0]) if chance}
        assert set(counts) <= set(expected), prefixes[commonest]
        if len(expected) > 1:
            assert chi_square(counts, expected, counts.total()) > 1e-4


def test_prefix_probabilities_by_hand():
    task = Dyck(q=0.3, max_depth=2)
    batch = task.read("([]")
    exact = task.next_token_probabilities(batch)[0]
    names = task.vocab.ids
    start, inside, deepest, after = exact
    assert start[names["("]] == start[names["["]] == 0.5
    assert inside[names["("]] == pytest.approx(0.15)
    assert inside[names[")"]] == pytest.approx(0.7)
    assert deepest[names["]"]] == 1
    assert after[names[")"]] == pytest.approx(0.7)
    assert after[names["]"]] == 0


def by_stack(tokens):
    """Depth, open positions and partner of every bracket, the slow way."""
    stack, depth, open_at, partner = [], [], [], {}
    for position, token in enumerate(tokens):
        if token >= FIRST_BRACKET:
            if (token - FIRST_BRACKET) % 2 == 0:
                stack.append(position)
            else:
                partner[position] = stack.pop()
        depth.append(len(stack))
        open_at.append(list(stack))
    return depth, open_at, partner


@pytest.mark.parametrize("task", [Dyck(length=21, n_types=3), Dyck(words="complete", length=12), Dyck(max_depth=1)])
def test_structure_against_a_stack(task, generator):
    batch = task.sample(40, generator=generator)
    nested, relations = nesting(batch.tokens, task.max_depth), task.relations(batch)
    for row in range(len(batch)):
        depth, open_at, partner = by_stack(batch.tokens[row].tolist())
        assert nested.depth[row].tolist() == depth
        for query, stack in enumerate(open_at):
            assert relations["unmatched_open"][row, query].nonzero().flatten().tolist() == stack
            assert relations["stack_top"][row, query].nonzero().flatten().tolist() == stack[-1:]
            if batch.tokens[row, query] not in (PAD, END):
                due = (int(batch.tokens[row, stack[-1]]) - FIRST_BRACKET) // 2 if stack else -1
                assert int(batch.due[row, query]) == due
        pairs = {tuple(sorted(pair)) for pair in relations["matching_bracket"][row].nonzero().tolist()}
        assert pairs == {(opener, closer) for closer, opener in partner.items()}
        assert (relations["matching_bracket"][row] == relations["matching_bracket"][row].T).all()
        assert relations["special"][row, 0].nonzero().flatten().tolist() == [0]


def test_labels_are_the_next_tokens(generator):
    for task in (Dyck(length=9), Dyck(words="complete", length=8)):
        batch = task.sample(50, generator=generator)
        assert (batch.tokens[:, 0] == START).all()
        ahead, real = batch.tokens[:, 1:], batch.tokens[:, 1:] != PAD
        assert (batch.labels[:, :-1][real] == ahead[real]).all()
        if task.words == "complete":
            assert (batch.labels == END).sum() == 50
            assert ((batch.labels == END).nonzero()[:, 1] == real.sum(1)).all()


def logits_saying(probabilities):
    return probabilities.clamp_min(1e-12).log().float()


def test_the_exact_model_is_always_right_and_has_the_least_loss(generator):
    task = Dyck(length=30)
    batch = task.sample(200, generator=generator)
    exact = logits_saying(task.next_token_probabilities(batch))
    score = task.score(exact, batch)
    assert torch.equal(score.right, score.total)
    assert (score.total[:, 0] < score.total[:, 1]).all()
    assert score.loss[:, 0].abs().max() < 1e-5
    logits = torch.randn(exact.shape, generator=generator)
    assert task.loss(exact, batch) < task.loss(exact + 0.3 * logits, batch)


def test_outcomes_by_hand():
    """In `([]` the position after `]` is hard; the criterion 0.8 is stricter than the argmax."""
    task = Dyck()
    batch = task.read("([]")
    ids = task.vocab.ids
    probabilities = torch.full((1, 4, task.d_vocab), 1e-9)
    probabilities[0, 1, ids[")"]], probabilities[0, 1, ids["]"]] = 0.09, 0.01  # sure and right
    probabilities[0, 2, ids[")"]], probabilities[0, 2, ids["]"]] = 0.6, 0.4  # wrong
    probabilities[0, 3, ids[")"]], probabilities[0, 3, ids["]"]] = 0.3, 0.2  # right, not sure
    score = task.score(logits_saying(probabilities), batch)
    assert task.outcomes == ("hard", "all", "hard 0.8", "all 0.8")
    assert score.total.tolist() == [[1, 3, 1, 3]]
    assert score.right.tolist() == [[1, 2, 0, 1]]
    assert score.loss[0, 0] == pytest.approx(-torch.log(torch.tensor(0.6)).item(), abs=1e-5)
    late = replace(task, score_from=3)
    assert late.score(logits_saying(probabilities), batch).total.tolist() == [[1, 1, 1, 1]]


def test_after_an_opener_the_answer_is_trivial(generator):
    """Who repeats the bracket just read is at chance where it is hard, and near 0.8 on all."""
    task = Dyck(length=28)
    batch = task.sample(4000, generator=generator)
    closers = torch.where((batch.tokens - FIRST_BRACKET) % 2 == 0, batch.tokens + 1, batch.tokens)
    logits = torch.nn.functional.one_hot(closers.clamp_min(0), task.d_vocab).float() * 5
    score = task.score(logits, batch)
    hard, everything = (score.right.sum(0) / score.total.sum(0))[:2]
    assert abs(hard - 0.5) < 0.05
    assert 0.7 < everything < 0.9


def test_loss_on_closers_counts_only_those(generator):
    task = Dyck(loss_on="closers", length=11)
    batch = task.sample(64, generator=generator)
    logits = torch.randn(64, 12, task.d_vocab, generator=generator, requires_grad=True)
    task.loss(logits, batch).backward()
    moved = logits.grad.abs().sum(-1) > 0
    closers = (batch.labels >= FIRST_BRACKET) & ((batch.labels - FIRST_BRACKET) % 2 == 1)
    assert torch.equal(moved, closers)
    everything = replace(task, loss_on="all", words="complete", length=12)
    batch = everything.sample(64, generator=generator)
    logits = torch.randn(64, 13, task.d_vocab, generator=generator, requires_grad=True)
    everything.loss(logits, batch).backward()
    assert torch.equal(logits.grad.abs().sum(-1) > 0, batch.attention_mask | (batch.attention_mask is None))


def test_any_length(generator):
    assert Dyck(length=500).sample(3, generator=generator).tokens.shape == (3, 501)
    word = Dyck(words="complete", length=600, min_length=600).sample(2, generator=generator)
    assert word.attention_mask is None
    assert (word.depth[:, -1] == 0).all()
    assert (word.labels[:, -1] == END).all()


@settings(max_examples=40, deadline=None)
@given(
    types=st.integers(1, 6), depth=st.integers(1, 6), q=st.floats(0.05, 0.95), length=st.integers(1, 30),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_every_sample_is_in_the_language(types, depth, q, length, seed):
    task = Dyck(n_types=types, max_depth=depth, q=q, length=length)
    generator = torch.Generator().manual_seed(seed)
    for row in task.sample(3, generator=generator).tokens[:, 1:]:
        assert first_fault(row, types, depth) is None
        text = task.vocab.decode(row)
        assert task.read(text).tokens[0, 1:].tolist() == row.tolist()
    if length > 1:
        complete = replace(task, words="complete", length=length // 2 * 2)
        for row in complete.sample(3, generator=generator).tokens[:, 1:]:
            assert first_fault(row[row != PAD], types, depth) is None


def test_a_task_is_a_task_and_survives_a_manifest():
    task = Dyck(n_types=3, max_depth=5, q=0.4, words="complete", length=10, min_length=4, loss_on="closers")
    assert isinstance(task, Task)
    assert task_from(task.describe()) == task


def test_same_seed_same_words():
    a, b = (Dyck().sample(5, generator=torch.Generator().manual_seed(3)).tokens for _ in range(2))
    assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("([)]", r"at bracket 2, '\)' where '\]' is expected.*\(\[\)\]"),
        ("(((((", r"at bracket 4, '\(' opens depth 5; max_depth is 4"),
        ("())", r"at bracket 2, '\)' closes nothing"),
        ("(x)", r"unknown token at character 1"),
        ("([PAD])", r"at bracket 1, token 0 is not a bracket"),
    ],
)
def test_words_outside_the_language_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Dyck().read(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_types": 0}, "n_types is 0; it must be at least 1"),
        ({"max_depth": 0}, "max_depth is 0"),
        ({"length": 0}, "length is 0"),
        ({"q": 0.0}, "q is 0.0; it must be strictly between"),
        ({"q": 1.0}, "q is 1.0"),
        ({"words": "complete", "length": 7}, "length is 7 and min_length 2; complete words have even lengths"),
        ({"words": "complete", "min_length": 3}, "min_length 3; complete words have even"),
        ({"words": "complete", "length": 4, "min_length": 6}, "min_length is 6; choose 2 to 4"),
        ({"words": "some"}, "words is 'some'; choose one of prefixes, complete"),
        ({"loss_on": "openers"}, "loss_on is 'openers'; choose one of all, closers"),
        ({"score_from": 29}, "score_from is 29; positions go from 0 to 28"),
    ],
)
@pytest.mark.usefixtures("as_a_user")
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Dyck(**settings)


@pytest.mark.usefixtures("as_a_user")
def test_an_unknown_split_is_refused(generator):
    with pytest.raises(ValueError, match="split is 'dev'"):
        Dyck().sample(1, generator=generator, split="dev")


def test_verbs_work_on_brackets(generator):
    from hooks import Transformer

    task = Dyck(length=10)
    model = Transformer(interp.config_for(task))
    result = interp.evaluate(model, task, n=50)
    assert result.targets == task.outcomes
    assert result.chance == 0.5
    labels = interp.classify_heads(model, task, n=16)
    assert {"stack_top", "unmatched_open", "matching_bracket", "broadcast"} <= set(labels.kinds)
    lost = interp.ablate_heads(model, task, n=20)
    assert lost.drop.shape == (2, 4)
    probes = interp.probe(model, task, label="depth", n_train=400, n_test=100)
    assert probes.accuracy.shape[0] == 3
