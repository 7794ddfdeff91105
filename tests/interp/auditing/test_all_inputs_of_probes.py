"""Probes of every input of a task: exact accuracies and effects, and nothing depends on the seed."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from tied import N_NOISE, SIGNS, Tied, linear

import interp
from interp.auditing import ProbeAudit
from interp.auditing import probes as auditing
from interp.auditing.significance import readable_p_values, used_p_values
from interp.core.inputs import inputs_or_sample
from interp.probing import ProbeResult
from interp.probing.directions import Pairs
from interp.tasks.base import Batch

ALL = {"n_train": "all", "n_test": "all"}


@dataclass(frozen=True, kw_only=True)
class Listed(Tied):
    """All inputs; of those in which the nuisance differs from the label that is read, only some."""

    n_different: int = 2**N_NOISE
    """Number of sequences of noise with which the two may differ."""

    def every_input(self, split="test"):
        digits = 2 ** torch.arange(self.n_ctx)
        tokens = (torch.arange(2**self.n_ctx)[:, None] // digits) % 2
        values = self.values(tokens)
        noise = (tokens[:, -N_NOISE:] * 2 ** torch.arange(N_NOISE)).sum(1)
        tokens = tokens[(values["read 1"] == values["nuisance"]) | (noise < self.n_different)]
        return Batch(
            tokens=tokens,
            target_positions=torch.full((len(tokens), 1), self.n_ctx - 1),
            labels=self.answer(self.values(tokens))[:, None],
            supervised=torch.ones(1, dtype=torch.bool),
        )


@pytest.mark.parametrize(("n_different", "n_inputs"), [pytest.param(16, 256, marks=pytest.mark.slow), (6, 176)])
def test_an_audit_of_every_input(n_different, n_inputs, tmp_path):
    task = Listed(n_different=n_different)
    model = linear(task, SIGNS, SIGNS, cosine=0.5, width=96)
    for label, verdict in (("read 1", "used"), ("nuisance", "unused")):
        audit = interp.audit_probe(model, task, label=label, **ALL)
        assert audit.verdict == ((verdict,),) * 2
        assert set(np.unique(audit.p)) == {0, 1}
        assert audit.n == n_inputs
        for interval in (audit.accuracy, audit.interchange, audit.erasure):
            assert interval.exact
            assert np.array_equal(interval.low, interval.value)
            assert interval.n.tolist() == [n_inputs]  # each is edited
        other_label = {"read 1": "nuisance", "nuisance": "read 1"}[label]
        held = "" if n_different == 16 else f"; held fixed {other_label} (at last)"
        assert str(audit).endswith(f"{label}: 2 {verdict}; all {n_inputs} inputs, exact{held}")
        audit.save(tmp_path / "audit.json")
        assert ProbeAudit.load(tmp_path / "audit.json").to_dict() == audit.to_dict()
    # The seed has no effect
    again = interp.audit_probe(model, task, label="nuisance", **ALL, seed=5)
    assert again.to_dict() == audit.to_dict()
    assert (audit.interchange == 0).all()
    assert "exact" in str(audit.plot().to_dict())


def test_placebos_do_not_depend_on_the_seed():
    """A placebo of a large nuisance changes answers, in some directions more than in others."""
    task = Listed(n_different=6)
    model = linear(task, SIGNS, SIGNS, scale=5.0, width=8)
    first, second = (interp.audit_probe(model, task, label="nuisance", **ALL, seed=seed) for seed in (0, 1))
    assert len(set(first.interchange.value.ravel())) == 2
    assert (first.interchange < 0).any()
    assert first.to_dict() == second.to_dict()


def test_every_pair_counts(monkeypatch):
    """Without labels to hold fixed, 256 inputs have four partners each; half of the pairs differ in the label."""
    changes_of_edits = []

    def spied(changes, *arguments, **options):
        changes_of_edits.extend(changes)
        return used_p_values(changes_of_edits, *arguments, **options)

    monkeypatch.setattr(auditing, "used_p_values", spied)
    task = Listed()
    interp.audit_probe(linear(task, SIGNS, SIGNS, width=96), task, **ALL)
    interchange, erasure = (changes[:, 0, 0] for changes in changes_of_edits)
    assert (erasure[:, 1] == 4).all()
    order = inputs_or_sample(task, "all", generator=torch.Generator())
    pairs = Pairs.all_of(torch.arange(256))
    is_different = order.labels[pairs.bases, 0] != order.labels[pairs.sources, 0]
    counts = torch.zeros(256, dtype=torch.float64).index_add_(0, pairs.bases, is_different.double())
    assert interchange[:, 1].tolist() == interchange[:, 2].tolist() == counts.tolist()


def test_probes_of_every_input(tmp_path):
    task = Listed(n_different=6)
    model = linear(task, SIGNS, SIGNS, width=96)
    result = interp.probe(model, task, **ALL, verify=True)
    assert (result.n_train, result.n_test) == (176, 176)
    assert result.accuracy.exact
    assert (result.accuracy == 1).all()
    assert "probes for read 1, all 176 inputs, exact; control" in str(result)
    # The answer follows wherever pairs agree in the nuisance; each of 176 inputs has several partners
    causal = result.causal
    assert (causal["alone"] == 1).all()
    for name in ("", "alone_"):
        share = causal["alone" if name else "follows"]
        assert np.array_equal(causal[f"{name}low"], share)
        assert np.array_equal(causal[f"{name}high"], share)
        assert (causal[f"{name}n"] > 176).all()
    labels = inputs_or_sample(task, "all", generator=torch.Generator()).labels[:, 0]
    pairs = Pairs.all_of(torch.arange(176))
    assert (causal["n"] == int((labels[pairs.bases] != labels[pairs.sources]).sum())).all()
    again = interp.probe(model, task, **ALL, verify=True, seed=3)
    assert again.to_dict() == result.to_dict()
    result.save(tmp_path / "probes.json")
    assert ProbeResult.load(tmp_path / "probes.json").accuracy.exact
    assert "exact" in str(result.plot().to_dict())


def test_a_sample_to_fit_on_depends_on_the_seed():
    task = Listed()
    model = linear(task, SIGNS, SIGNS, noise=3.0)
    results = [interp.probe(model, task, n_train=30, n_test="all", seed=seed) for seed in (0, 1)]
    assert results[0].accuracy.exact
    assert (results[0].n_train, results[0].n_test) == (30, 256)
    assert not np.array_equal(results[0].shuffled, results[1].shuffled)


def test_partners_of_every_example():
    """Each of 40 examples with 26 others: 1,024 pairs or a few more."""
    rows = torch.arange(0, 80, 2)
    pairs = Pairs.all_of(rows)
    assert torch.equal(pairs.bases, rows.repeat_interleave(26))
    assert (pairs.bases != pairs.sources).all()
    assert len({*zip(pairs.bases.tolist(), pairs.sources.tolist(), strict=True)}) == 40 * 26
    assert torch.equal(pairs.sources.bincount(minlength=80)[rows], torch.full((40,), 26))
    assert len(Pairs.all_of(rows[:1]).bases) == len(Pairs.all_of(rows[:0]).bases) == 0


def test_exact_p_values_of_probes():
    n_correct = np.array([[8.0, 9, 10]])
    for bar, readable in ((0.8, [0, 1, 1]), (0.9, [0, 0, 1]), (1.0, [0, 0, 0])):
        p = readable_p_values(n_correct, np.full((1, 3), bar), np.array([10, 10, 10]), every_input=True)
        assert p[0].tolist() == [[1.0 - value for value in readable]]
        assert p[1].tolist() == [[float(value) for value in readable]]
    # Of 10 inputs an edit changes 5 and its placebo 0, 3 or 5; or it changes 2
    changes = np.zeros((10, 1, 4, 3))
    changes[..., 1] = 1
    for column, (n_edit, n_placebo) in enumerate([(5, 0), (5, 3), (5, 5), (2, 0)]):
        changes[:n_edit, 0, column, 0] += 1
        changes[:n_placebo, 0, column, 0] -= 1
        changes[:n_edit, 0, column, 2] = 1
    used, unused = used_p_values([changes, 0 * changes + changes], 0.2, np.full(4, 10), np.zeros(4), every_input=True)
    assert used.tolist() == [[0, 1, 1, 1]]
    assert unused.tolist() == [[1, 1, 1, 0]]  # where the placebo changes as much, neither is shown


def test_numbers_of_examples_are_checked():
    model, task = linear(Tied(), SIGNS, SIGNS), Tied()
    for verb in (interp.probe, interp.audit_probe):
        with pytest.raises(ValueError, match=r"n_test is 'some'; .* 'all'"):
            verb(model, task, n_test="some")
        with pytest.raises(ValueError, match="Tied cannot list its inputs: define every_input"):
            verb(model, task, n_test="all")
        with pytest.raises(ValueError, match="n_train is 0"):
            verb(model, task, n_train=0)
