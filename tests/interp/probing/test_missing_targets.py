"""Probes of targets that some examples do not have: the others are used, and n is that of each target."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from counting import Counter, Counting, Junk, binary_codes
from scipy import stats
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import interp
from hooks import Transformer
from interp.auditing import probes as auditing
from interp.auditing import significance
from interp.core import activations
from interp.core.activations import residuals_at_targets, same_examples
from interp.core.randomness import derived_generator
from interp.probing import probe as probing
from interp.probing.directions import EditedAnswers
from interp.probing.ridge import RIDGE
from interp.tasks import Dyck

WORDS = {"length": 6, "shortest": 2}
TASK = Counting(**WORDS)
SIZES = {"n_train": 300, "n_test": 200}


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    return Transformer(interp.config_for(TASK, n_layers=2, d_model=16, n_heads=2, init="fan_in"), seed=1).eval()


@pytest.fixture(scope="module")
def found(model):
    return interp.probe(model, TASK, **SIZES, verify=True)


def batches(task=TASK, seed=0, n_train=300, n_test=200):
    return (
        task.sample(n_train, generator=derived_generator(seed, "probe fit"), split="validation"),
        task.sample(n_test, generator=derived_generator(seed, "probe test"), split="test"),
    )


def test_targets_are_grouped_by_the_examples_that_have_them():
    present = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 1, 0]]).bool()
    other = torch.ones(2, 4, dtype=torch.bool)
    groups = {tuple(targets): rows for targets, rows in same_examples(present, other)}
    assert set(groups) == {(0, 2), (1,), (3,)}
    for targets, (rows, every) in groups.items():
        assert torch.equal(rows, present[:, targets[0]])
        assert every.all()
    assert len({tuple(targets) for targets, _ in same_examples(present[:, :2], other[:, :2] & False)}) == 2
    assert list(same_examples(other, other)) == [(slice(None), [slice(None)] * 2)]


def test_n_is_that_of_each_target(found):
    fitting, testing = batches()
    assert found.targets == TASK.targets[:5]
    assert found.omitted == {"after 6": "fewer than 70 examples to fit on"}
    assert int(fitting.present[:, 5].sum()) < 70 <= int(fitting.present[:, 4].sum())
    assert found.n_fitted.tolist() == fitting.present.sum(0).tolist()[:5]
    assert found.n_scored.tolist() == testing.present.sum(0).tolist()[:5]
    assert found.n_scored[0] == 200 > found.n_scored[4]
    assert (found.n_train, found.n_test) == (300, 200)
    assert found.to_dataframe()["n"].tolist() == found.n_scored.tolist() * 3
    rows = testing.tokens.numpy()
    there = testing.present.numpy()[:, :5]
    distinct = [len(np.unique(rows[exists], axis=0)) for exists in there.T]
    assert found.accuracy.n.tolist() == distinct
    for (layer, target), share in np.ndenumerate(found.accuracy):
        n = distinct[target]
        low = stats.beta.ppf(0.025, share * n, n - share * n + 1) if share else 0.0
        high = stats.beta.ppf(0.975, share * n + 1, n - share * n) if share < 1 else 1.0
        assert (found.accuracy.low[layer, target], found.accuracy.high[layer, target]) == pytest.approx(
            (low, high), abs=1e-8
        )
    least = found.n_scored.min()
    assert f"{least} to 200 held-out examples" in str(found)
    assert str(found).endswith("; omitted: after 6 (fewer than 70 examples to fit on)")
    assert f"n = {least} to 200" in str(found.plot().to_dict()["title"])


def test_accuracies_equal_scikit_learn_on_the_examples_with_the_target(model, found):
    logistic = interp.probe(model, TASK, **SIZES, solver="logistic")
    fitting, testing = batches()
    x_fit, x_test = (residuals_at_targets(model, batch).numpy() for batch in (fitting, testing))
    for layer in range(3):
        for target in range(5):
            here, there = fitting.present[:, target].numpy(), testing.present[:, target].numpy()
            alpha = RIDGE * here.sum() * x_fit[layer, target][here].var(0).mean()
            models = (
                (found, RidgeClassifier(alpha=alpha)),
                (logistic, make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))),
            )
            for ours, theirs in models:
                theirs.fit(x_fit[layer, target][here], fitting.labels[here, target])
                score = theirs.score(x_test[layer, target][there], testing.labels[there, target])
                assert ours.accuracy[layer, target] == pytest.approx(score, abs=1.5 / there.sum())


@pytest.mark.parametrize("settings", [{"verify": True}, {"solver": "logistic"}])
def test_what_absent_targets_contain_does_not_matter(model, settings):
    plain, junk = (interp.probe(model, task, **SIZES, **settings) for task in (TASK, Junk(**WORDS)))
    assert not torch.equal(*(task.sample(9, generator=torch.Generator()).labels for task in (TASK, Junk(**WORDS))))
    assert plain.to_dataframe().equals(junk.to_dataframe())
    assert str(plain) == str(junk)
    assert np.array_equal(plain.n_fitted, junk.n_fitted)


def test_only_the_planted_target_is_read(monkeypatch):
    """Noise at all targets, and where a word has no target; the count at one of them."""
    calls = []

    def noise(model, batch, first=0):
        generator = torch.Generator().manual_seed(len(calls))
        calls.append(batch)
        streams = torch.randn(2, 6, len(batch), 12, generator=generator)
        streams[:, ~batch.present.T] += 100  # would spoil every fit
        if len(calls) <= 2:  # the third and fourth call are for the untrained model
            streams[1, 3, torch.arange(len(batch)), batch.labels[:, 3] % 12] += 9.0
        return streams

    monkeypatch.setattr(activations, "residuals_at_targets", noise)
    task = Junk(**WORDS)
    found = interp.probe(Counter(binary_codes(7), n_ctx=6), task, n_train=900, n_test=900)
    _, testing = batches(n_train=900, n_test=900)
    for layer, target in np.ndindex(2, 6):
        here = testing.present[:, target]
        share = torch.bincount(testing.labels[here, target]).max() / here.sum()  # of the most frequent count
        high = float(share + 5 * (share * (1 - share) / here.sum()) ** 0.5)
        assert (found.accuracy[layer, target] > high) == ((layer, target) == (1, 3))
        for control in ("shuffled", "untrained"):
            assert getattr(found, control)[layer, target] < high
    assert found.accuracy[1, 3] > 0.99


def test_controls_use_the_same_examples(model, monkeypatch):
    seen, original = [], probing.score_ridge

    def score(inputs, labels, present, n_classes):
        seen.append((labels, present))
        return original(inputs, labels, present, n_classes)

    monkeypatch.setattr(probing, "score_ridge", score)
    found = interp.probe(model, TASK, **SIZES)
    ((true, shuffled, control), present), ((untrained,), again) = seen
    for side, n in enumerate((found.n_fitted, found.n_scored)):
        assert torch.equal(present[side], again[side])
        assert present[side].sum(0).tolist() == n.tolist()
        assert torch.equal(true[side], untrained[side])
        assert control[side].shape == shuffled[side].shape
        for right, mixed, here in zip(true[side], shuffled[side], present[side].T, strict=True):
            right, mixed = right[:, here].long(), mixed[:, here].long()  # the same labels in other orders
            assert torch.equal(mixed.sort(-1).values, right.sort(-1).values.expand_as(mixed))
            assert not torch.equal(mixed, right.expand_as(mixed)) or right.unique().numel() < 2


def test_pairs_are_examples_with_the_target():
    """A code of the count: the answer always follows. Pairs are counted by hand."""
    counter = Counter(torch.cat([binary_codes(7), torch.zeros(7, 30)], 1), n_ctx=6)
    found = interp.probe(counter, TASK, **SIZES, verify=True)
    _, testing = batches()
    for target in range(5):
        words = testing.labels[testing.present[:, target], target]
        words = words[: len(words) // 2 * 2].view(-1, 2)
        assert found.causal["n"][:, target].tolist() == [int((words[:, 0] != words[:, 1]).sum())] * 2
    assert found.causal["follows"].shape == (2, 5)
    assert (found.causal["follows"] == 1).all()
    assert (found.causal["low"] < 1).all()


def test_a_cell_without_pairs_is_nan(model):
    found = interp.probe(model, TASK, n_train=300, n_test=1, verify=True)
    assert (found.causal["n"] == 0).all()
    for name in ("follows", "weights", "placebo", "low", "high"):
        assert np.isnan(found.causal[name]).all()


def test_audit_uses_the_examples_with_the_target(model, monkeypatch):
    plain, junk = (interp.audit_probe(model, task, **SIZES) for task in (TASK, Junk(**WORDS)))
    assert plain.to_dataframe().equals(junk.to_dataframe())
    assert np.array_equal(plain.p, junk.p)
    read = interp.probe(model, TASK, **SIZES)
    assert plain.omitted == read.omitted
    for name in ("n_fitted", "n_scored"):
        assert np.array_equal(getattr(plain, name), getattr(read, name))
    assert np.array_equal(plain.accuracy.n, read.accuracy.n)
    assert plain.to_dataframe()["n"].tolist() == read.n_scored.tolist() * 3
    assert f"; {read.n_scored.min()} to 200 ({read.accuracy.n.max()} distinct) examples, level" in str(plain)
    assert str(plain).endswith("; omitted: after 6 (fewer than 70 examples to fit on)")


def test_effects_of_edits_are_shares_of_the_examples_with_the_target(monkeypatch):
    """With codes of the counts an edit at a target changes the answers of all examples whose count differs."""
    seen = {}
    original = significance.drop_tests

    def tests(drop, total, threshold, n):
        seen[len(seen)] = total, n
        return original(drop, total, threshold, n)

    monkeypatch.setattr(significance, "drop_tests", tests)
    width = torch.linalg.qr(torch.randn(120, 120, generator=torch.Generator().manual_seed(1))).Q
    counter = Counter(binary_codes(7) @ width[:6], n_ctx=6)
    found = interp.audit_probe(counter, TASK, **SIZES)
    _, testing = batches()
    # of each edit, whether more examples change than count, and whether fewer do
    (total, n), interchanged, _, erased, _ = seen.values()
    assert np.array_equal(np.broadcast_to(n, (2, 5)), np.broadcast_to(found.n_scored, (2, 5)))
    assert (total.sum(0) == found.n_scored).all()
    for _, of_edit in (interchanged, erased):
        assert np.array_equal(of_edit, found.n_scored)
    tested = np.isfinite(found.interchange)
    assert tested[:, 2:].any()
    for layer, target in np.argwhere(tested).tolist():
        rows = testing.present[:, target].nonzero()[:, 0]
        differs = testing.labels[rows, target] != testing.labels[rows.roll(-1), target]
        assert interchanged[0][:, layer, target].sum() == differs.sum()
        assert erased[0][:, layer, target].sum() == len(rows)
        assert not erased[0][~testing.present[:, target].numpy(), layer, target].any()
        assert found.interchange[layer, target] > 0.9


@pytest.mark.parametrize("label", ["stack_top", "depth"])
def test_complete_dyck_words_of_different_lengths(label):
    task = Dyck(words="complete", length=10)
    model = Transformer(interp.config_for(task, n_layers=1, d_model=16, n_heads=2, init="fan_in"), seed=1).eval()
    found = interp.probe(model, task, label=label, **SIZES)
    fitting, testing = batches(task)
    assert set(found.targets) | set(found.omitted) == set(task.targets)
    assert "0" in found.omitted
    n_classes = int(max(task.probe_labels(batch)[label][batch.present].max() for batch in (fitting, testing))) + 1
    for target, name in enumerate(task.targets):
        n = int(fitting.present[:, target].sum())
        assert (found.omitted.get(name) == f"fewer than {10 * n_classes} examples to fit on") == (n < 10 * n_classes)
        if name in found.targets:
            index, here, there = found.targets.index(name), fitting.present[:, target], testing.present[:, target]
            assert (found.n_fitted[index], found.n_scored[index]) == (n, int(there.sum()))
            x, x_test = (residuals_at_targets(model, batch)[1, target].numpy() for batch in (fitting, testing))
            y, y_test = (task.probe_labels(batch)[label][:, target].numpy() for batch in (fitting, testing))
            theirs = RidgeClassifier(alpha=RIDGE * n * x[here].var(0).mean()).fit(x[here], y[here])
            score = theirs.score(x_test[there], y_test[there])
            assert found.accuracy[1, index] == pytest.approx(score, abs=1.5 / int(there.sum()))


def test_a_target_that_no_test_example_has_is_omitted(model, monkeypatch):
    original = Counting.sample

    def sample(self, n, *, generator, split="train"):
        batch = original(self, n, generator=generator, split=split)
        keep = torch.arange(6) != 1
        return replace(batch, target_mask=batch.present & keep) if split == "test" else batch

    monkeypatch.setattr(Counting, "sample", sample)
    found = interp.probe(model, TASK, **SIZES, verify=True)
    assert found.targets == ("after 1", "after 3", "after 4", "after 5")
    assert found.omitted["after 2"] == "no examples to score on"
    assert str(found).endswith(
        "; omitted: after 2 (no examples to score on), after 6 (fewer than 70 examples to fit on)"
    )
    assert found.causal["follows"].shape == (3, 4)


def test_no_target_with_enough_examples_raises(model):
    with pytest.raises(
        ValueError,
        match=r"label 'label' can be probed at no target; omitted: after 1, .*after 6 \(fewer than 70 examples to fit "
        r"on\)\. Give more examples \(n_train, n_test\), or choose another label or task",
    ):
        interp.probe(model, Dropping(**WORDS), n_train=80, n_test=20)


class Dropping(Counting):
    """Half of the targets of each example are missing."""

    def sample(self, n, *, generator, split="train"):
        batch = super().sample(n, generator=generator, split=split)
        return replace(batch, target_mask=batch.present & (torch.rand(batch.labels.shape, generator=generator) < 0.5))


def test_targets_at_padding_without_a_mask_are_refused(model):
    class Padded(Counting):
        def sample(self, n, *, generator, split="train"):
            batch = super().sample(n, generator=generator, split=split)
            return replace(batch, target_mask=None, target_positions=torch.arange(6).expand(n, -1))

    with pytest.raises(ValueError, match=r"some targets of this task are at padding .* set target_mask of its batches"):
        interp.probe(model, Padded(**WORDS), **SIZES)


def test_answers_at_missing_targets_do_not_count(model, monkeypatch):
    """An edit after which only the answers at targets that an example does not have differ changes no answer."""
    batch = TASK.sample(20, generator=torch.Generator().manual_seed(0))
    rows = (~batch.present[:, 5]).nonzero()[:, 0]
    answers = torch.zeros(len(rows), 6, dtype=torch.long)
    other = (~batch.present[rows]).long()  # 1 where there is no target
    edits = ("interchange", "placebo", "erasure", "erasure placebo")

    for changed, share in ((other, 0), (1 - other, 1)):
        after = {edit: answers if "placebo" in edit else changed for edit in edits}
        one = EditedAnswers(0, 1, rows, rows.roll(1), answers, after)
        monkeypatch.setattr(auditing, "edited_answers", lambda *_, one=one, **__: iter([one]))
        found = auditing._changes(model, TASK, batch, batch.labels, {}, {}, list(range(6)), seed=0)
        assert (found["erasure"][rows, 0, 1, 0] == share).all()
        assert found["erasure"][:, 0, 1, 1].sum() == len(rows) > 0
