"""LEGO sentences: what they say, recomputed from their text by plain Python, and how they are drawn."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from interp.tasks import S3, Z2, Lego, Vocab, cyclic
from interp.tasks.base import logits_at_targets

ALPHA = 1e-6
FORMATS = ("paper", "compact")
every_format = pytest.mark.parametrize("sentence_format", FORMATS)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def clauses_of(task, text):
    """(variable, operation, what it acts on) of each clause, read from text by position."""
    if task.sentence_format == "paper":
        assert text.startswith("[BOS]")
        assert text.endswith(";[EOS]")
        clauses = [clause.replace("=", "", 1) for clause in text[len("[BOS]") : -len(";[EOS]")].split(";")]
    else:
        step = len(text) // task.n_vars
        if task.group is S3:  # operations have several characters: cut before each letter that opens a clause
            clauses, remainder = [], text
            while remainder:
                end = remainder.rindex("(")
                clauses.insert(0, remainder[end - 1 :])
                remainder = remainder[: end - 1]
        else:
            clauses = [text[start : start + step] for start in range(0, len(text), step)]
    return [(clause[0], clause[1:-1], clause[-1]) for clause in clauses]


def values_of(task, text):
    """Every variable's value in chain order, followed from the root by name."""
    clauses = {right: (variable, operation) for variable, operation, right in clauses_of(task, text)}
    letter, value, values = task.group.root_token, task.group.points[task.group.root], []
    while letter in clauses:
        letter, operation = clauses[letter]
        value = apply(operation, value)
        values.append((letter, value))
    return values


def apply(operation, value):
    """Signs multiply; permutations in cycle notation compose, the operation acting last."""
    if operation in "+-":
        sign = {"+": 1, "-": -1}[operation] * int(value)
        return f"{sign:+d}"
    products = {letter: moved(operation, moved(value, letter)) for letter in "123"}
    return cycles(products)


def moved(permutation, letter):
    cycle = permutation.strip("()")
    return cycle[(cycle.index(letter) + 1) % len(cycle)] if letter in cycle else letter


def cycles(mapping):
    fixed = [letter for letter in "123" if mapping[letter] == letter]
    if len(fixed) == 3:
        return "()"
    start = next(letter for letter in "123" if letter not in fixed)
    text = start
    while mapping[text[-1]] != start:
        text += mapping[text[-1]]
    return f"({text})"


def test_a_sentence_worked_by_hand_in_the_paper_format():
    task = Lego(n_vars=3)
    # chain: c = -1, then a = +c, then b = -a, written in the order b, c, a
    content = torch.tensor([[[2, 1, 1], [0, 0, 2], [1, 1, 0]]])
    batch = task.from_content(content)
    assert task.vocab.decode(batch.tokens[0]) == "[BOS]b=-a;c=-1;a=+c;[EOS]"
    assert [task.group.points[value] for value in batch.labels[0]] == ["-1", "-1", "+1"]
    assert batch.target_positions.tolist() == [[6, 11, 1]]
    assert task.n_ctx == batch.tokens.shape[1] == 17
    assert task.targets == ("#0", "#1", "#2")


def test_a_sentence_worked_by_hand_in_the_compact_format():
    task = Lego(n_vars=2, group=S3, sentence_format="compact")
    swap, turn = S3.elements.index("(12)"), S3.elements.index("(123)")
    batch = task.from_content(torch.tensor([[[25, turn, 1], [0, swap, 0]]]))
    assert task.vocab.decode(batch.tokens[0]) == "a(12)zz(123)1"
    # the root is the identity; turn, then swap: 1 -> 2 -> 1, 2 -> 3, 3 -> 1 -> 2
    assert [task.group.points[value] for value in batch.labels[0]] == ["(123)", "(23)"]
    assert batch.target_positions.tolist() == [[3, 0]]
    assert task.n_ctx == batch.tokens.shape[1] == 6


@every_format
@pytest.mark.parametrize("clause_order", ["random", "chain"])
@pytest.mark.parametrize("group", [Z2, S3], ids=["Z2", "S3"])
def test_labels_and_targets_are_what_the_text_says(sentence_format, clause_order, group):
    task = Lego(n_vars=5, group=group, clause_order=clause_order, sentence_format=sentence_format)
    batch = task.sample(200, generator=seeded(0))
    shuffled = 0
    for row in range(len(batch)):
        text = task.vocab.decode(batch.tokens[row])
        values = values_of(task, text)
        assert [value for _, value in values] == [group.points[label] for label in batch.labels[row]]
        words = task.vocab.words(batch.tokens[row])
        assert [words[position] for position in batch.target_positions[row]] == [letter for letter, _ in values]
        assert len({letter for letter, _ in values}) == task.n_vars
        written = [variable for variable, _, _ in clauses_of(task, text)]
        shuffled += written != [letter for letter, _ in values]
        assert [written[clause] for clause in batch.clause_of[row]] == [letter for letter, _ in values]
    assert shuffled == 0 if clause_order == "chain" else shuffled > 150
    assert set(batch.labels.unique().tolist()) == set(range(len(group.points)))


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_values_letters_and_orders_are_uniform_and_operations_independent(split):
    task = Lego(n_vars=3, group=S3)
    batch = task.sample(12_000, generator=seeded(1), split=split)
    for target in range(task.n_vars):
        for values, kinds in ((batch.labels, 6), (batch.letters, 26), (batch.operations, 6), (batch.clause_of, 3)):
            counts = torch.bincount(values[:, target], minlength=kinds)
            assert stats.chisquare(counts).pvalue > ALPHA
    orders = torch.bincount(batch.clause_of @ torch.tensor([9, 3, 1]))
    assert (orders > 0).sum() == 6
    assert stats.chisquare(orders[orders > 0]).pvalue > ALPHA
    for first, second in ((0, 1), (1, 2), (0, 2)):
        table = torch.bincount(batch.operations[:, first] * 6 + batch.operations[:, second], minlength=36).view(6, 6)
        assert stats.chi2_contingency(table).pvalue > ALPHA


@pytest.mark.parametrize("n_vars", [2, 4])
def test_no_sentence_is_in_two_splits(n_vars):
    # a short alphabet, so that the whole language has a few thousand sentences and every split is seen often
    task = Lego(n_vars=4, alphabet="abcd", sentence_format="compact")
    texts = {
        split: {
            tuple(tokens)
            for tokens in task.sample(4000, generator=seeded(2), split=split, n_vars=n_vars).tokens.tolist()
        }
        for split in ("train", "validation", "test")
    }
    for first, second in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not texts[first] & texts[second]
    everything = set().union(*texts.values())
    n_sentences = {2: 4 * 3 * 2**2 * 2, 4: 24 * 2**4 * 24}[n_vars]
    assert len(everything) <= n_sentences
    if n_vars == 2:
        assert len(everything) == n_sentences


def test_splits_have_their_shares():
    task = Lego(n_vars=4, alphabet="abcd", sentence_format="compact")
    n_sentences = 24 * 2**4 * 24
    for split, share in (("train", 3 / 4), ("validation", 1 / 8), ("test", 1 / 8)):
        # 60,000 draws leave out one of the about 5184 training sentences with probability e^-11
        tokens = task.sample(60_000, generator=seeded(3), split=split).tokens
        n_distinct = len(tokens.unique(dim=0))
        assert abs(n_distinct - n_sentences * share) < 5 * (n_sentences * share * (1 - share)) ** 0.5


def test_the_generator_decides_everything():
    task = Lego(n_vars=4)
    first, same, third = (task.sample(20, generator=seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(first.tokens, same.tokens)
    assert not torch.equal(first.tokens, third.tokens)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    task.sample(20, generator=seeded(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_one_generator_twice_gives_new_sentences(generator):
    task = Lego(n_vars=4)
    assert not torch.equal(task.sample(20, generator=generator).tokens, task.sample(20, generator=generator).tokens)


@every_format
def test_short_chains_stand_in_clause_slots_of_a_full_sentence(sentence_format, generator):
    task = Lego(n_vars=6, sentence_format=sentence_format)
    batch = task.sample(400, generator=generator, n_vars=2)
    ids, length = batch.position_ids, task.clause_length
    assert ids.shape == batch.tokens.shape
    assert batch.labels.shape == batch.target_positions.shape == (400, 2)
    assert ids.min() == 0
    assert ids.max() == task.n_ctx - 1
    assert (ids.diff(dim=1) > 0).all()
    mark = 1 if sentence_format == "paper" else 0
    if mark:
        assert (ids[:, 0] == 0).all()
        assert (ids[:, -1] == task.n_ctx - 1).all()
    inside = ids[:, mark : ids.shape[1] - mark].view(400, 2, length) - mark
    assert (inside[..., 0] % length == 0).all()
    assert torch.equal(inside - inside[..., :1], torch.arange(length).expand(400, 2, length))
    slots = inside[..., 0] // length
    assert {tuple(pair) for pair in slots.tolist()} == {(i, j) for i, j in product(range(6), repeat=2) if i < j}


def test_a_full_chain_needs_no_position_ids(generator):
    assert Lego(n_vars=3).sample(5, generator=generator, n_vars=3).position_ids is None


VOCABS = {
    "paper": Lego(n_vars=3, group=S3).vocab,
    "compact": Lego(n_vars=3, sentence_format="compact").vocab,
    "two digits": Lego(n_vars=3, group=cyclic(12)).vocab,
    "overlapping": Vocab(("a", "ab", "bc", "c", "b")),
}


@pytest.mark.parametrize("name", VOCABS)
@given(data=st.data())
def test_text_can_be_read_back(name, data):
    vocab = VOCABS[name]
    ids = data.draw(st.lists(st.integers(0, len(vocab) - 1), max_size=30))
    assert vocab.encode(vocab.decode(ids)) == ids


def test_white_space_is_ignored_and_unknown_tokens_are_named():
    vocab = Lego(n_vars=2).vocab
    assert vocab.encode(" a = + 1 ;\n") == vocab.encode("a=+1;")
    assert vocab.decode(vocab.encode(" a = + 1 ;\n")) == "a=+1;"
    with pytest.raises(ValueError, match=r"unknown token at character 5: 'B=-a;'\. Known tokens: \[PAD\] \[BOS\]"):
        vocab.encode("a=+1;B=-a;")
    with pytest.raises(ValueError, match=r"unknown token id 34 at position 1; ids go to 33"):
        vocab.decode([33, 34])
    with pytest.raises(ValueError, match=r"unknown token id -1 at position 0"):
        vocab.decode(torch.tensor([-1, 3]))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_vars": 0}, "n_vars is 0; it must be at least 1"),
        ({"n_vars": 27}, "n_vars is 27, more than the 26 letters of the alphabet; give a longer alphabet"),
        ({"n_vars": 3, "n_supervised": 4}, r"supervised variables are \(0, 1, 2, 3\); .* each from 0 to 2"),
        ({"n_vars": 3, "n_supervised": 0}, r"supervised variables are \(\); give at least one"),
        ({"n_vars": 3, "supervised": (0, 0)}, r"supervised variables are \(0, 0\); .* none twice"),
        ({"n_vars": 3, "supervised": (-1,)}, r"supervised variables are \(-1,\); .* each from 0 to 2"),
        ({"n_vars": 3, "supervised": (0,), "n_supervised": 1}, "n_supervised and supervised are both given"),
        ({"sentence_format": "long"}, "sentence_format is 'long'; choose one of paper, compact"),
        ({"clause_order": "sorted"}, "clause_order is 'sorted'; choose one of random, chain"),
        ({"n_vars": 2, "alphabet": "a1b"}, "the token '1' appears twice in the vocabulary; rename one"),
        ({"n_vars": 2, "alphabet": "aba"}, "the token 'a' appears twice in the vocabulary"),
        ({"n_vars": 2, "alphabet": ("a", "")}, "the token name '' is empty or contains white space"),
        ({"n_vars": 2, "alphabet": ("a", "b c")}, "the token name 'b c' is empty or contains white space"),
    ],
)
def test_settings_that_make_no_task_are_refused(settings, words, as_a_user):
    with pytest.raises(ValueError, match=words):
        Lego(**settings)


def test_requests_that_cannot_be_met_are_refused(as_a_user, generator):
    task = Lego(n_vars=3)
    with pytest.raises(ValueError, match="split is 'dev'; choose one of train, validation, test"):
        task.sample(5, generator=generator, split="dev")
    for length in (0, 4):
        with pytest.raises(ValueError, match=f"n_vars is {length}; this task has chains of 1 to 3"):
            task.sample(5, generator=generator, n_vars=length)
    # one variable, one letter: two sentences in the whole language, so some split has none
    small = Lego(n_vars=1, alphabet="a")
    empty = [split for split in ("train", "validation", "test") if not _holds_any(small, split)]
    assert empty
    with pytest.raises(
        ValueError, match=rf"split '{empty[0]}' of this task has too few examples \(0 found, 5 requested"
    ):
        small.sample(5, generator=generator, split=empty[0])


def _holds_any(task, split):
    try:
        return bool(len(task.sample(5, generator=seeded(0), split=split)))
    except ValueError:
        return False


def test_relations_of_a_sentence_worked_by_hand():
    task = Lego(n_vars=2)
    batch = task.from_content(torch.tensor([[[0, 0, 0], [1, 1, 1]]]))
    words = task.vocab.words(batch.tokens[0])
    assert "".join(words) == "[BOS]a=+1;b=-a;[EOS]"
    relations = {name: keys[0] for name, keys in task.relations(batch).items()}
    pairs = {tuple(pair) for pair in relations["same_token"].nonzero().tolist()}
    a, equals, stop = (1, 9), (2, 7), (5, 10)
    assert pairs == {pair for first, second in (a, equals, stop) for pair in ((first, second), (second, first))}
    assert relations["same_clause"].nonzero()[:, 1].tolist()[:1] == [0]
    for query in range(12):
        block = [0] if query == 0 else [11] if query == 11 else list(range(1, 6)) if query < 6 else list(range(6, 11))
        assert relations["same_clause"][query].nonzero().flatten().tolist() == block
        assert relations["special"][query].nonzero().flatten().tolist() == [0, 11]


@every_format
def test_relations_of_many_sentences(sentence_format, generator):
    task = Lego(n_vars=4, sentence_format=sentence_format)
    batch = task.sample(50, generator=generator)
    relations = task.relations(batch)
    same = relations["same_token"]
    assert torch.equal(same, same.transpose(1, 2))
    assert not same.diagonal(dim1=1, dim2=2).any()
    for row, query, key in product(range(3), range(task.n_ctx), range(task.n_ctx)):
        assert same[row, query, key] == (query != key and batch.tokens[row, query] == batch.tokens[row, key])
    inside = relations["same_clause"].sum(-1)
    assert (inside == task.clause_length).sum() == 50 * task.clause_length * 4
    assert relations["special"].any() == (sentence_format == "paper")


def test_only_supervised_variables_count_in_the_loss(generator):
    task = Lego(n_vars=4, supervised=(0, 2))
    batch = task.sample(30, generator=generator)
    assert batch.supervised.tolist() == [True, False, True, False]
    logits = torch.randn(30, task.n_ctx, 2, generator=generator)
    loss = task.loss(logits, batch)
    for variable in range(4):
        positions = batch.target_positions[:, variable]
        changed = logits.clone()
        changed[torch.arange(30), positions] = torch.randn(30, 2, generator=generator)
        assert (task.loss(changed, batch) == loss) == (variable in (1, 3))
    chosen = torch.stack([logits[row, batch.target_positions[row]] for row in range(30)])
    log_chance = chosen.log_softmax(-1)
    byhand = [-float(log_chance[row, i, batch.labels[row, i]]) for row in range(30) for i in (0, 2)]
    assert float(loss) == pytest.approx(sum(byhand) / len(byhand), rel=1e-5)


def test_supervision_can_be_given_as_a_number_and_short_chains_keep_theirs(generator):
    assert Lego(n_vars=4, n_supervised=2) == Lego(n_vars=4, supervised=(0, 1))
    assert Lego(n_vars=4, supervised=(3, 0)) == Lego(n_vars=4, supervised=(0, 3))
    assert Lego(n_vars=4).supervised == (0, 1, 2, 3)
    short = Lego(n_vars=4, supervised=(0, 3)).sample(5, generator=generator, n_vars=2)
    assert short.supervised.tolist() == [True, False]


def test_right_answers_are_found_at_every_variable(generator):
    task = Lego(n_vars=3, supervised=(0,))
    batch = task.sample(20, generator=generator)
    logits = torch.zeros(20, task.n_ctx, 2)
    for row in range(20):
        logits[row, batch.target_positions[row], batch.labels[row]] = 1.0
    logits[7, batch.target_positions[7, 2]] *= -1
    right = task.score(logits_at_targets(logits, batch), batch).right.bool()
    assert (~right).nonzero().tolist() == [[7, 2]]


@every_format
def test_control_types_are_equal_exactly_where_the_clause_reads_the_same(sentence_format):
    task = Lego(n_vars=3, alphabet="abcd", sentence_format=sentence_format)
    batch = task.sample(300, generator=seeded(4))
    clauses, types = [], []
    for row, kinds in enumerate(task.control_types(batch).tolist()):
        words = task.vocab.words(batch.tokens[row])
        for position, kind in zip(batch.target_positions[row].tolist(), kinds, strict=True):
            clauses.append("".join(words[position : position + task.clause_length]))
            types.append(kind)
    pairs = set(zip(clauses, types, strict=True))
    assert len(pairs) == len(set(clauses)) == len(set(types))
    assert len(set(clauses)) == 4 * 2 * 4  # letter, operation, another letter or the root: every one was seen


def test_probe_labels_are_values_and_operations(generator):
    task = Lego(n_vars=3, group=S3)
    batch = task.sample(5, generator=generator)
    labels = task.probe_labels(batch)
    assert set(labels) == {"value", "operation"}
    assert torch.equal(task.values(labels["operation"]), labels["value"])
    assert torch.equal(labels["value"], batch.labels)


def test_select_keeps_rows_together(generator):
    task = Lego(n_vars=4)
    batch = task.sample(10, generator=generator, n_vars=2)
    selected = batch.select(torch.tensor([7, 2]))
    assert len(selected) == 2
    for name in ("tokens", "labels", "letters", "operations", "clause_of", "target_positions", "position_ids"):
        assert torch.equal(getattr(selected, name), getattr(batch, name)[[7, 2]])
    assert torch.equal(selected.supervised, batch.supervised)
    assert set(selected.model_inputs()) == {"position_ids"}
    assert torch.equal(batch.select(slice(2, 4)).labels, batch.labels[2:4])
