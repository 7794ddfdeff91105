"""An audit of chosen heads: the costs of these heads as in an audit of all, and what is not known of the rest."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import interp
from interp.auditing.experiments import HeadExperiments
from interp.auditing.result import AuditResult
from interp.core.sample import Sample
from interp.known_answers import known_answer

CHOSEN = [(0, 1), (0, 2)]
"""Two of the three heads of this answer, of which each does the work of the other."""


@pytest.fixture(scope="module")
def known():
    return known_answer("dyck stack, redundant", seed=0)


@pytest.fixture(scope="module")
def of_all(known):
    return interp.audit(known.model, known.task, n=128)


@pytest.fixture(scope="module")
def of_some(known):
    return interp.audit(known.model, known.task, heads=CHOSEN[::-1], n=128)


def test_costs_and_verdicts_are_those_of_an_audit_of_all(of_all, of_some):
    assert [head.place for head in of_some.heads] == CHOSEN
    of_all_by_place = {head.place: head for head in of_all.heads}
    for head in of_some.heads:
        expected = of_all_by_place[head.place]
        assert (head.label, head.verdict, head.score) == (expected.label, expected.verdict, expected.score)
        for name in ("mean", "zero", "resample", "uniform"):
            np.testing.assert_array_equal(head.costs[name].drop, expected.costs[name].drop)
    assert {head.verdict for head in of_some.heads} == {"redundant"}
    assert all(set(heads.heads) <= set(CHOSEN) for heads in of_some.sets)


def test_products_of_effects_are_those_of_the_chosen_heads(known):
    """By these, sets of more than ten heads are searched."""
    batch = known.task.sample(32, generator=torch.Generator().manual_seed(0), split="test")
    of_all = HeadExperiments(known.model, Sample(known.task, batch, 0)).effect_products()
    of_some = HeadExperiments(known.model, Sample(known.task, batch, 0), chosen=tuple(CHOSEN)).effect_products()
    np.testing.assert_allclose(of_some, of_all[1:, 1:])


def test_without_its_twin_a_redundant_head_is_misleading_and_a_warning_says_why(known, of_all):
    result = interp.audit(known.model, known.task, heads=CHOSEN[:1], n=128)
    assert [head.verdict for head in result.heads] == ["misleading"]
    assert f"1 of {len(of_all.heads)} heads were audited" in str(result)
    assert "heads were audited" not in str(of_all)


def test_it_is_saved_and_shown_with_these_heads(known, of_all, of_some, tmp_path):
    of_some.save(tmp_path / "audit.json")
    loaded = AuditResult.load(tmp_path / "audit.json")
    assert (loaded.n_heads, of_all.n_heads) == (len(of_all.heads), None)
    page = interp.auditing.show_heads(known.model, known.task, loaded)
    assert page.heads == ("0.1", "0.2")
    assert [finding.verdict for finding in page.findings] == [head.verdict for head in of_some.heads]
    with pytest.raises(ValueError, match=r"audit has 99 heads, the last of these 0\.2; the model has"):
        interp.auditing.show_heads(known.model, known.task, replace(loaded, n_heads=99))
    assert interp.report([loaded], tmp_path / "report.html", title="Two heads").exists()
    with pytest.raises(ValueError, match=r"audits\[0\] has"):
        of_all.with_other_seeds([of_some])


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([(9, 0)], r"heads has head \(9, 0\); this model has layers 0 to"),
        ([], r"heads is \[\]; give at least one head"),
        ([(0, 1), (0, 1)], "each only once"),
    ],
)
def test_heads_that_do_not_exist_are_refused(known, heads, message):
    with pytest.raises(ValueError, match=message):
        interp.audit(known.model, known.task, heads=heads, n=128)
