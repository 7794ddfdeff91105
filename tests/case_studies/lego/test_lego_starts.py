"""How fast models learn from each start, and shortcuts that must make a difference of some size."""

from types import SimpleNamespace

import pytest
from lego_curves import curve, evidence_of
from toys import measured

from case_studies.frame.evidence import Evidence
from case_studies.lego import starts
from case_studies.lego.models import FURTHER, groups
from case_studies.lego.study import STUDY
from case_studies.recipes.seeds import more_seeds

CLAIMS = {claim.id: claim for claim in STUDY.claims}


def test_the_faster_start_has_the_higher_accuracy_over_training(monkeypatch):
    found = {name: [curve([[1, 1, 1]], [1] * 3, depths=(2,))] * 3 for name in (starts.COPIED, "untaught-random")}
    evidence = evidence_of(monkeypatch, found, starts)
    for specs in evidence.groups.values():
        for spec in specs:
            spec.settings = SimpleNamespace(n_eval=1000)  # type: ignore[misc]
    both_learn = {
        starts.COPIED: [[1, 0.6, 0.5], [0, 1, 1], [0, 1, 1]],  # the root is not counted
        "untaught-random": [[1, 0.5, 0.5], [1, 0.6, 0.5], [1, 1, 1]],
    }

    def history(self, spec):
        steps = enumerate(both_learn[spec.name], start=1)
        return [{"accuracy": accuracy, "steps_done": 100 * step} for step, accuracy in steps]

    monkeypatch.setattr(Evidence, "history", history)
    said = CLAIMS["start.copy"].measurement(evidence)
    assert said.value == pytest.approx((0.1 + 0.9) / 6)
    assert said.n == 3
    assert said.high - said.low == pytest.approx(2 / 1000, rel=0.5)  # equal seeds: the resolution of the evaluation
    assert said.numbers["first step above 95 % everywhere, untaught-random"] == "300 300 300"
    assert CLAIMS["start.copy"].verdict(said) == "reproduced"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.003, 0.008, "not reproduced"), (0.06, 0.1, "reproduced"), (0.04, 0.06, "inconclusive")],
)
@pytest.mark.parametrize("name", ["shortcut.mimic", "shortcut.pretrained"])
def test_a_difference_that_the_sentences_alone_can_give_is_none(name, low, high, verdict):
    assert CLAIMS[name].verdict(measured((low + high) / 2, low, high, 6)) == verdict


@pytest.mark.parametrize("size", ["quick", "standard"])
def test_groups_with_more_seeds_begin_with_the_ordinary_models(size):
    found = groups(size)
    for name, seeds in FURTHER.items():
        more = [spec.key for spec in found[more_seeds(name)]]
        few = [spec.key for spec in found.get(name, ())]
        assert more[: len(few)] == few
        assert len(set(more)) == (seeds if size == "standard" else len(more))
    assert len(found["untaught-random"]) == len(found[starts.COPIED])
