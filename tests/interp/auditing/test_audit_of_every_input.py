"""Audits of every input of a task: exact costs, decided verdicts, and nothing that depends on a seed."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from few_inputs import Balanced, model_of_balanced
from foreign_tasks import AddMod

import interp
from hooks import Transformer
from hooks.interventions.ablation_engine import AblationEngine
from interp.auditing import AuditResult
from interp.auditing.experiments import Effects, HeadExperiments
from interp.auditing.interventions import CANCELLING, INTERVENTIONS, LABEL_TESTS, MOSTLY_SHARED, TESTED
from interp.auditing.outcomes import accuracy_of_constant_answers
from interp.auditing.significance import exact_p_values, uncorrected_p_values
from interp.core.inputs import inputs_or_sample, number_of_pairings, partners
from interp.core.sample import Sample
from interp.heads.interventions import References
from interp.heads.kinds import related_keys
from interp.known_answers import known_answer
from interp.reporting import sections
from interp.tasks import Dyck, Lego, Template

KNOWN = (
    "template same, cancelled decoys",  # misleading heads that cancel
    "template copy, redundant",
    pytest.param("loop constant gate, unreadable Z2", marks=pytest.mark.slow),  # a hidden head
)
GENERATOR = torch.Generator().manual_seed(0)


def audit_of_balanced(seed=0):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interp.core.inputs.MOST_PAIRS", 192)  # three pairings, which take less time
        return interp.audit(model_of_balanced(), Balanced(), n="all", seed=seed)


@cache
def audited(name):
    if name == "balanced":
        return audit_of_balanced()
    known = known_answer(name, 0)
    return interp.audit(known.model, known.task, n="all")


@cache
def few_inputs():
    """All inputs of LEGO chains of two letters out of three: few enough that all pairs of them are used."""
    task = Lego(n_vars=2, alphabet="abc")
    model = interp.known_answers.lego_loop(task)
    return model, task, inputs_or_sample(task, "all", generator=GENERATOR)


@pytest.mark.parametrize("name", KNOWN)
def test_the_planted_truth_is_found(name):
    truths = known_answer(name, 0).heads
    verdicts = {head.place: head.verdict for head in audited(name).heads}
    assert verdicts == {place: truth.truth for place, truth in truths.items()}


@pytest.mark.parametrize("name", ["balanced", KNOWN[1]])
def test_nothing_is_estimated(name):
    result = audited(name)
    task = Balanced() if name == "balanced" else known_answer(name, 0).task
    n = len(task.every_input())
    assert (result.every_input, result.n, result.n_distinct, result.n_looks) == (True, n, n, 1)
    assert result.of("undecided") == ()
    for head in result.heads:
        assert head.score_low == head.score == head.score_high
        assert head.n_to_decide is None
        for intervention, cost in head.costs.items():
            assert (cost.low, cost.high, cost.n, cost.exact) == (cost.drop, cost.drop, n, True)
            if intervention in TESTED:
                assert {cost.p_matters, cost.p_harmless} == {0.0, 1.0}
        cost = head.costs["mean"]
        is_more = any(drop > loss for drop, loss in zip(cost.drop, result.threshold, strict=True))
        assert is_more == (cost.p_matters == 0)
    for cost in result.strata:
        assert cost.low == cost.drop == cost.high
        assert (cost.p_matters == 0) == (cost.drop > cost.threshold)
    # what it says
    words = f"all {n:,} inputs, exact"
    assert all(sentence.endswith(f"({words}).") for sentence in result.sentences())
    assert words in str(result)
    assert "[" not in "".join(result.sentences())
    assert result.plot().to_dict()["vconcat"][0]["title"] == f"every head: {words}"
    assert f"All {n:,} inputs, exact; labels at level 0.01." in (sections.audit_section(result).text or "")


def test_the_seed_has_no_effect(monkeypatch):
    seeds = []

    def classify_heads(*arguments, **options):
        seeds.append(options["seed"])
        return interp.classify_heads(*arguments, **options)

    torch.manual_seed(11)
    monkeypatch.setattr("interp.auditing.audit.classify_heads", classify_heads)
    second = audit_of_balanced(seed=7)
    assert seeds == [0]  # of the untrained models that labels are compared with
    assert second.to_dict() == audited("balanced").to_dict()
    # the verdicts are about real effects: each head of the model is needed
    assert all(head.costs["mean"].p_matters == 0 for head in second.heads)
    assert {head.label in second.kinds for head in second.heads} == {True, False}


def test_a_loss_that_equals_the_threshold_does_not_count():
    # 10 inputs: one wrong answer is a loss of 0.1
    drop = np.zeros((10, 4, 1))
    drop[:2, 1], drop[:1, 2], drop[0, 3] = 1, 1, 0.1
    total = np.ones((10, 1, 1))
    larger, smaller = exact_p_values(drop, total, np.array([0.1]))
    assert larger[:, 0].tolist() == [1, 0, 1, 1]
    assert smaller[:, 0].tolist() == [0, 1, 0, 0]
    # nor is one that equals it but for rounding
    assert 0.1 + 0.2 > 0.3
    sums = np.array([[[0.1]], [[0.2]]])
    assert [p.item() for p in exact_p_values(sums, np.ones((2, 1, 1)), np.array([0.15]))] == [1, 0]
    # within a margin neither is shown
    larger, smaller = exact_p_values(drop, total, np.array([0.1]), margin=0.1)
    assert larger[:, 0].tolist() == [1, 0, 1, 1]
    assert smaller[:, 0].tolist() == [0, 1, 1, 0]
    # without answers nothing is shown
    assert [p.item() for p in exact_p_values(drop[:, :1], np.zeros((10, 1, 1)), np.array([0.1]))] == [1, 1]


def test_every_question_has_one_answer():
    rng = np.random.default_rng(0)
    names = ("mean", "uniform", MOSTLY_SHARED, CANCELLING)
    drop = {name: rng.integers(-1, 2, size=(16, 5, 2)).astype(float) for name in names}
    drop["uniform"][:, 0] = np.nan  # not tried
    drop["mean"][:, 0] = 0
    drop["mean"][:2, 0, 0], drop["mean"][:4, 0, 1] = 1, 1  # as much as counts
    p = uncorrected_p_values(Effects(np.ones((16, 2)), drop, every_input=True), np.array([0.125, 0.25]))
    assert (p.matters["mean"][0] + p.harmless["mean"][0]).tolist() == [2, 2]  # neither more nor less
    for name in names:
        tried = ~np.isnan(p.matters[name])
        loss = drop[name].mean(0)
        bar = 0 if name == MOSTLY_SHARED else np.array([0.125, 0.25])
        is_near = (np.abs(loss - bar) <= 0.1 * bar + 1e-12) & (name not in (CANCELLING, MOSTLY_SHARED))
        one_answer = (p.matters[name] + p.harmless[name] == 1) | is_near
        assert one_answer[tried].all()
        np.testing.assert_array_equal(p.matters[name][tried] == 0, ((loss > bar) & ~is_near)[tried])
        np.testing.assert_array_equal(p.more_than_little[name][tried] == 0, (loss > 0.25 * np.asarray(bar))[tried])
        np.testing.assert_array_equal(p.limited[name][tried] == 0, (loss <= 2 * np.asarray(bar))[tried])


@pytest.mark.parametrize("n_inputs", [2, 3, 7, 30, 700, 5000])
def test_pairings(n_inputs):
    n_pairings = number_of_pairings(n_inputs)
    every = torch.stack([partners(slice(None), n_inputs, pairing) for pairing in range(n_pairings)])
    inputs = torch.arange(n_inputs)
    assert (every != inputs).all()  # no input is its own partner
    assert all(row.sort().values.equal(inputs) for row in every)  # each is used once in a pairing
    assert (every.sort(0).values.diff(dim=0) > 0).all()  # an input has another partner in each pairing
    assert every.numel() >= min(1024, n_inputs * (n_inputs - 1))
    rows = slice(1, 3)
    assert partners(rows, n_inputs, 0).equal(every[0][rows])


def test_removals_against_all_pairs_of_inputs():
    model, task, inputs = few_inputs()
    n, n_heads = len(inputs), 6
    assert number_of_pairings(n) == n - 1  # so that every ordered pair is used
    result = interp.audit(model, task, n="all", at_chance=True)
    # the same by hooks: each input with the output of each other one, or with the mean output, in place of its own
    heads = [head.place for head in result.heads]
    assert len(heads) == n_heads
    _, clean_cache = model.run_with_cache(inputs.tokens)

    def accuracy(rows, layer, head, z):
        def edit(activation, hook):
            activation = activation.clone()
            activation[:, :, head] = z
            return activation

        hook_name = f"blocks.{layer}.attn.{'hook_result' if model.cfg.vo_identity else 'hook_z'}"
        batch = inputs.select(rows)
        logits = model.run_with_hooks(batch.tokens, fwd_hooks=[(hook_name, edit)])
        positions = batch.target_positions[..., None].expand(-1, -1, logits.shape[-1])
        return task.score(logits.gather(1, positions), batch).right.double().mean(0)

    first, second = torch.tensor([pair for pair in product(range(n), repeat=2) if pair[0] != pair[1]]).T
    everything = torch.arange(n)
    clean = torch.from_numpy(result.clean)
    indices = [task.outcomes.index(name) for name in result.outcomes]
    for (layer, head), verdict in zip(heads, result.heads, strict=True):
        z = clean_cache[f"blocks.{layer}.attn.{'hook_result' if model.cfg.vo_identity else 'hook_z'}"][:, :, head]
        resampled = clean - accuracy(first, layer, head, z[second])[indices]
        mean = clean - accuracy(everything, layer, head, z.mean(0, keepdim=True))[indices]
        assert verdict.costs["resample"].drop == pytest.approx(resampled.tolist())
        assert verdict.costs["mean"].drop == pytest.approx(mean.tolist())


@cache
def balanced_inputs():
    return inputs_or_sample(Balanced(), "all", generator=GENERATOR)


def test_partners_give_rows_and_values():
    """What replaces rows is from one other input in which other keys are related; values, from its related keys."""
    model, inputs, rows = model_of_balanced(), balanced_inputs(), slice(5, 17)
    experiments = HeadExperiments(model, Sample(Balanced(), inputs, 0, exact=True, every=inputs))
    chunk = inputs.select(rows)
    names = ("resampled_values", "resampled_pattern")
    interventions = experiments._interventions(names, {(0, 1): "closers"})
    references = experiments.experiment.references
    new = {name: interventions[name].replacement(references, rows, 2) for name in names}
    every = AblationEngine(model, inputs.tokens).heads(0)
    clean = AblationEngine(model, chunk.tokens).heads(0)
    related = related_keys(Balanced(), inputs, ["closers"])[:, 0]
    pattern = new["resampled_pattern"].rows(0, clean.pattern)
    z = new["resampled_values"](0, clean)
    for other_head in (0, 2):
        assert torch.equal(pattern[:, other_head], clean.pattern[:, other_head])
        assert torch.equal(z[:, :, other_head], clean.z[:, :, other_head])
    # rows of the first of the inputs from the third on in which no key is shared, if the query has related keys
    n_changed = 0
    for row, query in product(range(len(chunk)), range(7)):
        place = rows.start + row
        own = related[place, query]
        sources = [(place + distance) % 64 for distance in range(3, 3 + 32)]
        sources = [source for source in sources if not (related[source, query] & own).any()]
        if own.any() and sources:
            expected = every.pattern[sources[0], 1, query]
            n_changed += 1
        else:
            expected = clean.pattern[row, 1, query]
        torch.testing.assert_close(pattern[row, 1, query], expected, atol=1e-5, rtol=0)
    assert n_changed > len(chunk)
    # values of the third input among those with related keys, each from one of its related keys
    with_keys = related.any(2).any(1).nonzero()[:, 0].tolist()
    for row in range(len(chunk)):
        place = rows.start + row
        if place not in with_keys:  # the string of openers has none
            assert torch.equal(z[row, :, 1], clean.z[row, :, 1])
            continue
        source = with_keys[(with_keys.index(place) + 3) % len(with_keys)]
        choices = related[source].any(0).nonzero()[:, 0].tolist()
        own_keys = related[place].any(0).nonzero()[:, 0].tolist()
        # the first query after the first closer reads that closer only
        key = own_keys[0]
        weight = clean.pattern[row, 1, key, key]
        changes = [weight * (every.v[source, choice, 1] - clean.v[row, key, 1]) for choice in choices]
        change = z[row, key, 1] - clean.z[row, key, 1]
        assert any(torch.allclose(change, option, atol=1e-4) for option in changes)


def test_chunks_make_no_difference(monkeypatch):
    monkeypatch.setattr("interp.core.inputs.MOST_PAIRS", 192)  # three pairings

    def effects():
        inputs = balanced_inputs()
        experiments = HeadExperiments(model_of_balanced(), Sample(Balanced(), inputs, 0, exact=True, every=inputs))
        return experiments.effects(INTERVENTIONS, {(0, 0): "closers", (0, 2): "current"}).drop

    whole = effects()
    monkeypatch.setattr("interp.heads.experiment.TOKENS_PER_CHUNK", 30 * 7)
    for name, drop in effects().items():
        np.testing.assert_allclose(drop, whole[name], atol=1e-12)
    assert all(np.isfinite(whole[name][:, 0]).all() for name in LABEL_TESTS)


def test_means_are_those_of_all_inputs():
    model, task, inputs = few_inputs()
    whole = References(model, Sample(task, inputs, exact=True))
    experiments = HeadExperiments(model, Sample(task, inputs.select(slice(0, 3)), exact=True, every=inputs))
    for name, mean in experiments.experiment.references.means.items():
        torch.testing.assert_close(mean, whole.means[name])


def test_sets_are_searched_among_the_first_of_many_inputs(monkeypatch):
    monkeypatch.setattr("interp.auditing.steps.MOST_SEARCHED", 100)
    known = known_answer(KNOWN[1], 0)
    result = interp.audit(known.model, known.task, n="all")
    assert [head.verdict for head in result.heads] == [head.verdict for head in audited(KNOWN[1]).heads]
    assert all(cost.cost.n == result.n > 100 for cost in result.sets)


def test_only_the_test_split_is_needed(monkeypatch):
    monkeypatch.setattr("interp.core.inputs.MOST_PAIRS", 128)

    class OnlyTest(Balanced):
        def sample(self, n, *, generator, split="train"):
            if split != "test":
                raise ValueError(f"split {split!r} has no examples")
            return super().sample(n, generator=generator, split=split)

        every_input = Balanced.every_input

    assert interp.audit(model_of_balanced(), OnlyTest(), n="all").every_input


def test_an_audit_of_every_input_is_saved(tmp_path):
    result = audited("balanced")
    result.save(tmp_path / "audit.json")
    assert str(AuditResult.load(tmp_path / "audit.json")) == str(result)
    content = (tmp_path / "audit.json").read_text()
    assert content.count('"exact": true') > len(result.heads)


def test_constant_answers_are_no_success():
    # 59 of 64 strings are not balanced: a model that says no to all has nothing to lose
    assert audited("balanced").threshold == pytest.approx([0.2 * 5 / 64])

    def accuracy(task, batch, **outputs):
        logits = torch.zeros(len(batch), len(task.targets), task.d_vocab_out)
        return accuracy_of_constant_answers(task, batch, outputs.get("logits", logits)).max(0).tolist()

    # each variable of a chain has two values; another constant may be best for each
    lego = Lego(n_vars=2, alphabet="abcdef")
    chains = lego.every_input()
    by_hand = [chains.labels[:, index].bincount().max().item() / len(chains) for index in range(2)]
    assert accuracy(lego, chains) == pytest.approx(by_hand)
    # all positions with an open bracket, where one of two closers is due
    dyck = Dyck(n_types=2, max_depth=2, length=6)
    words = dyck.every_input()
    share = (words.due[words.due >= 0] == 0).double().mean().item()
    assert accuracy(dyck, words)[1] == pytest.approx(max(share, 1 - share))
    # numbers: 4 strings of one symbol, 12 of two; the model gives numbers near the right ones
    template = Template(templates=("aa -> +1", "ab -> -1"), test=4)
    strings = template.every_input()
    near = strings.values[..., None] * torch.linspace(0.6, 1.2, len(strings))[:, None, None]
    assert accuracy(template, strings, logits=near) == [0.75]


def test_a_model_that_guesses():
    task = Balanced()
    model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=8), seed=0).eval()
    with pytest.raises(ValueError, match=r"the model is not above chance \(0.92 by a constant answer\) on any outcome"):
        interp.audit(model, task, n="all")
    result = interp.audit(model, task, n="all", at_chance=True)
    assert {head.verdict for head in result.heads} <= {"undecided", "hidden", "misleading", "faithful"}


@pytest.mark.parametrize(
    ("task", "n", "words"),
    [
        (Balanced(), "every", "n is 'every'; .*'enough'.*'all'"),
        (AddMod(), "all", r"AddMod cannot list its inputs: define every_input\(split\)"),
        (Lego(n_vars=3), "all", "Lego has 748,800 inputs in all splits together; at most 131,072"),
    ],
)
def test_what_cannot_be_listed(task, n, words):
    model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=8), seed=0)
    with pytest.raises(ValueError, match=words):
        interp.audit(model, task, n=n)


def test_one_input_has_no_partner():
    class OneInput(Balanced):
        def every_input(self, split="test"):
            return super().every_input(split).select(slice(0, 1))

    with pytest.raises(ValueError, match="n is 'all', but the test split of OneInput has a single input"):
        inputs_or_sample(OneInput(), "all", generator=GENERATOR)


def test_too_few_inputs_with_related_keys_for_an_exchange():
    """If a single input has related keys, values of other inputs do not exist: that test of a label is left out."""

    class OneWithCloser(Balanced):
        def every_input(self, split="test"):
            return super().every_input(split).select(slice(0, 2))  # six openers; five and a closer

        def sample(self, n, *, generator, split="train"):
            rows = torch.randint(2, (n,), generator=generator)
            return self.every_input().select(rows)

    task, model = OneWithCloser(), model_of_balanced()
    inputs = inputs_or_sample(task, "all", generator=GENERATOR)
    experiments = HeadExperiments(model, Sample(task, inputs, 0, exact=True, every=inputs))
    drop = experiments.effects(LABEL_TESTS, {(0, 0): "closers"}, heads=[(0, 0)]).drop
    assert np.isnan(drop["resampled_values"]).all()
    assert np.isfinite(drop["ideal"][:, 0]).all()
    assert replace(Effects(np.ones((2, 1)), drop), every_input=True).on([0]).every_input
