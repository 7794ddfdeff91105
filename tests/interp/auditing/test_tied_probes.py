"""Audits of labels that are tied: what nothing reads is not used; what is read is used, or cannot be told apart."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from test_probes import WithParity, column, with_a_copy_of_the_operation
from tied import SIGNS, Tied, linear, tied_models, truly_read

import interp
from interp.auditing import ProbeAudit
from interp.auditing.significance import used_p_values
from interp.known_answers import lego_loop
from interp.probing import ProbeResult
from interp.probing.directions import Directions, Pairs, edited_answers

FEW = ("cosine 0.9", "3 and 3 classes", "and")


def cells(audit, layers=None):
    return [verdict for row in audit.verdict[:layers] for verdict in row]


def wrong_verdicts(tie, names, seed=0):
    """Verdicts that are wrong, as text, and the share of the labels that are read of which that is found."""
    wrong, found = [], []
    for name, (task, model) in tied_models(tie).items():
        if name not in names:
            continue
        nuisance = cells(interp.audit_probe(model, task, label="nuisance", seed=seed))
        if not set(nuisance) <= {"unused", "cannot be told apart"}:
            wrong.append(f"{name}: the nuisance is {nuisance}")
        for label in truly_read(name, task):
            # Where a layer computes the answer, nothing reads the label behind it
            layers = 1 if task.rule != "first" else None
            read = cells(interp.audit_probe(model, task, label=label, seed=seed), layers)
            found += read
            if not set(read) <= {"used", "cannot be told apart"}:
                wrong.append(f"{name}: {label} is {read}")
    return wrong, found.count("used") / len(found)


@pytest.mark.parametrize("tie", [0.5, 0.9])
def test_a_nuisance_that_is_tied_to_what_is_read_is_not_used(tie):
    wrong, _ = wrong_verdicts(tie, FEW)
    assert not wrong, "\n".join(wrong)


TIES = [
    *(pytest.param(tie, marks=pytest.mark.slow) for tie in (0.0, 0.8)),
    *(pytest.param(tie, marks=pytest.mark.long) for tie in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.9)),
]


@pytest.mark.parametrize("tie", TIES)
def test_no_tie_makes_a_nuisance_used(tie):
    names = tuple(tied_models(tie))
    assert len(names) == 20
    wrong, share_used = wrong_verdicts(tie, names)
    assert not wrong, "\n".join(wrong)
    assert share_used > (0.85 if tie <= 0.5 else 0.7)


def test_without_holding_labels_fixed_the_nuisance_would_be_used(monkeypatch):
    """The plants test something: without the other labels of the task, a tie of a half is enough."""
    task = Tied(tie=0.5)
    model = linear(task, SIGNS, SIGNS)
    held = interp.audit_probe(model, task, label="nuisance")
    labels_of = Tied.probe_labels
    monkeypatch.setattr(Tied, "probe_labels", lambda self, batch: {"nuisance": labels_of(self, batch)["nuisance"]})
    alone = interp.audit_probe(model, task, label="nuisance")
    assert cells(held) == ["unused", "unused"]
    assert cells(alone) == ["used", "used"]
    assert (alone.interchange > 0.3).all()
    assert not alone.held
    assert held.held == {"last": ("read 1",)}


def test_the_number_of_pairs_is_that_of_the_intervals():
    task = Tied(tie=0.5)
    audit = interp.audit_probe(linear(task, SIGNS, SIGNS), task)
    # at most the examples outside of the larger class, twice, in both groups: half of the examples are tied
    assert 512 * 0.4 < audit.interchange.n[0] < 512 * 0.7
    assert np.array_equal(audit.interchange.n, audit.erasure.n)
    assert (audit.to_dataframe()["n"] == 512).all()
    assert (audit.interchange == 1).all()


def test_labels_that_cannot_be_told_apart_are_named(tmp_path):
    task = Tied(tie=0.9)
    audit = interp.audit_probe(linear(task, SIGNS, SIGNS), task, n_train=200, n_test=100)
    assert cells(audit) == ["cannot be told apart"] * 2
    assert audit.confounders == {"last": ("nuisance",)}
    assert np.isnan(audit.interchange).all()
    text = str(audit)
    assert "read 1: 2 cannot be told apart; 100" in text
    assert text.endswith("; cannot be told apart from nuisance (at last)")
    assert len({len(row) for row in text.split("\n")[:-1]}) == 1  # columns are aligned
    audit.save(tmp_path / "audit.json")
    loaded = ProbeAudit.load(tmp_path / "audit.json")
    assert (loaded.confounders, loaded.held) == (audit.confounders, audit.held)
    assert "cannot be told apart" in interp.report([audit], tmp_path / "page.html", title="Probes").read_text()
    # More examples decide
    more = interp.audit_probe(linear(task, SIGNS, SIGNS), task)
    assert cells(more) == ["used"] * 2
    assert str(more).endswith("; held fixed nuisance (at last)")


def test_a_label_without_an_effect_of_its_own_cannot_be_told_apart():
    """Nothing writes the nuisance; it is read from the label that it is tied to."""
    task = Tied(tie=0.8)
    audit = interp.audit_probe(linear(task, SIGNS, 0 * SIGNS), task, label="nuisance")
    assert cells(audit) == ["cannot be told apart"] * 2
    assert audit.held == audit.confounders == {"last": ("read 1",)}


def test_the_erased_component_is_the_mean_of_the_group():
    """One group is erased to the code of the first answer, the other to that of the second."""
    task = Tied()
    model = linear(task, SIGNS, SIGNS)
    batch = task.sample(40, generator=torch.Generator().manual_seed(0))
    codes = model.codes["read 1"]
    cell = Directions(means=codes, weights=codes, centre=codes)
    rows = torch.arange(40)
    pairs = {0: Pairs(bases=rows, sources=rows.roll(1), groups=rows % 2)}
    (edited,) = edited_answers(model.eval(), task, batch, pairs, {(0, 0): cell}, edits=["erasure"], seed=0)
    assert edited.after["erasure"][:, 0].tolist() == [0, 1] * 20


def test_examples_without_a_partner_count_as_if_they_were_used():
    """Of 90 examples none changes. With a tenth more that were not edited, at most 10 of 100 may change: 0.1 / 0.9."""
    changes = np.stack([np.zeros((90, 1, 1)), np.ones((90, 1, 1)), np.zeros((90, 1, 1))], -1)
    for uncovered, bar in ((0.0, 0.2), (0.1, 0.1 / 0.9), (0.5, 0.2)):
        p_used, p_unused = used_p_values([changes, changes], 0.2, np.array([90]), np.array([uncovered]))
        assert p_unused[0, 0] == pytest.approx((1 - bar) ** 90, rel=1e-3, abs=1e-11)
        assert p_used[0, 0] > 0.99


def verified(task, *, read="read 1"):
    """Probes of the answer of a model that reads it from the register of this label."""
    model = linear(task, SIGNS, SIGNS)
    if read == "nuisance":
        codes = model.codes
        model.codes = codes | {"read 1": codes["nuisance"], "nuisance": codes["read 1"]}
    return interp.probe(model, task, label="read 1", n_train=400, n_test=400, verify=True)


def test_an_answer_that_follows_through_another_label():
    """The register of the answer is not read; the model answers from a label that is tied to it."""
    for read, follows in (("nuisance", 0.0), ("read 1", 1.0)):
        result = verified(Tied(tie=0.8), read=read)
        assert result.tied == {"last": ("nuisance",)}
        assert (result.causal["follows"] > 0.6).all()
        assert (result.causal["alone"] == follows).all()
        assert (result.causal["alone_n"] > 30).all()
        assert (result.causal["alone_low"] <= follows).all()
        assert (result.causal["alone_high"] >= follows).all()
        end = f"; answers are tied to nuisance at last (held fixed: at most {follows:.3f} follow)"
        assert str(result).endswith(end)
        assert "interchange_alone" in result.to_dataframe()


def test_answers_that_are_tied_to_nothing_or_cannot_be_told_apart(tmp_path):
    independent = verified(Tied())
    assert independent.tied == {}
    assert "alone" not in independent.causal
    assert "tied" not in str(independent)
    close = verified(Tied(tie=0.98))
    assert np.isnan(close.causal["alone"]).all()
    assert str(close).endswith("; answers are tied to nuisance at last (held fixed: cannot be told apart)")
    close.save(tmp_path / "probes.json")
    assert ProbeResult.load(tmp_path / "probes.json").tied == close.tied
    saved = close.to_dict()
    del saved["values"]["tied"]
    (tmp_path / "earlier.json").write_text(json.dumps(saved))
    assert ProbeResult.load(tmp_path / "earlier.json").tied == {}


@dataclass(frozen=True, kw_only=True)
class TiedLego(WithParity):
    """Chains whose first value is the neutral one more often, so that the second operation is tied to its value."""

    tie: float = 0.0

    def sample(self, n, *, generator, split="train"):
        batch = super().sample(4 * n, generator=generator, split=split)
        is_neutral = batch.labels[:, 0] == 0
        keep = is_neutral | (torch.rand(4 * n, generator=generator) > self.tie)
        return batch.select(keep.nonzero()[:n, 0])


def test_a_copy_of_the_operation_that_is_tied_to_the_value_is_not_used():
    """In a hand-written loop the answer is read from the value of a variable, and nothing reads the copy."""
    task = TiedLego(n_vars=2, tie=0.5)
    sizes = {"n_train": 400, "n_test": 200}
    model = with_a_copy_of_the_operation(lego_loop(task), task)
    operation = interp.audit_probe(model, task, label="operation", **sizes)
    assert "value" in operation.held["#1"]
    verdicts = column(operation, "#1")
    assert verdicts[0] == "not readable"
    assert verdicts[3] == "unused"
    assert set(verdicts[1:]) <= {"unused", "undecided"}  # placebos change up to half of the answers
    assert column(interp.audit_probe(model, task, label="value", **sizes), "#1")[3] == "used"
