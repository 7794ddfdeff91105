"""Fine-tuning of real pretrained weights, on planted learning curves: no model is trained here."""

from pathlib import Path

import pytest

from case_studies.frame.evidence import Evidence
from case_studies.lego.real_models import ASSOCIATION, DOSES, MANIPULATION, SETTINGS, real_groups, without
from case_studies.lego.real_training import CLAIMS

BY_ID = {claim.id: claim for claim in CLAIMS}
GROUPS = {name: tuple(specs) for name, specs in real_groups("standard").items()}
N_EVALUATIONS = SETTINGS.steps // SETTINGS.eval_every
CHANCE = [0.5] * 6


def curve(*, solved_at=None, jitter=0.0, mimicked=0):
    """Records of a model at chance until an evaluation, from which every trained variable is solved."""
    records = [{"phase": "mimic", "accuracy": CHANCE} for _ in range(mimicked)]
    for index in range(N_EVALUATIONS):
        solved = solved_at is not None and index + 1 >= solved_at
        trained = 1.0 - jitter if solved else 0.5
        records.append({"phase": "task", "accuracy": [1.0, trained, trained, trained, 0.5, 0.6 if solved else 0.5]})
    return records


@pytest.fixture
def planted(monkeypatch):
    """Evidence whose models of these groups have these curves, by group; seeds differ in the last digits."""

    def evidence(**curves):
        by_group = {f"real-{name.replace('_', '-')}": options for name, options in curves.items()}
        by_key = {
            spec.key: curve(**options, jitter=0.001 * spec.seed)
            for name, options in by_group.items()
            for spec in GROUPS[name]
        }
        monkeypatch.setattr(Evidence, "history", lambda self, spec: by_key[spec.key])
        groups = {name: GROUPS[name] for name in by_group}
        return Evidence(size="standard", seed=0, groups=groups, folder=Path("nowhere"))

    return evidence


def test_the_mean_over_training_counts_trained_variables_of_the_task_alone(planted):
    evidence = planted(mimic={"solved_at": 16, "mimicked": 10}, random={})
    measured = BY_ID["real.mimic"].measurement(evidence)
    # Solved in the second half of the evaluations: half of (1 - chance), less the seeds' jitter
    assert measured.value == pytest.approx(0.25 - 0.5 * 0.002)
    assert measured.n == 5
    assert measured.low > 0.24
    assert measured.numbers["steps until every trained variable is at 0.99, real-mimic"] == "800 800 800 800 800"


def test_a_model_that_is_never_solved_counts_with_the_last_step(planted):
    evidence = planted(pretrained={"solved_at": 15}, random={})
    measured = BY_ID["real.solved-earlier"].measurement(evidence)
    assert measured.value == pytest.approx(0.5)


def test_untrained_variables_are_compared_where_both_starts_have_the_seed(planted):
    evidence = planted(pretrained={"solved_at": 1}, random_longer={})
    measured = BY_ID["real.lengths"].measurement(evidence)
    assert (measured.n, measured.value) == (3, pytest.approx(0.05))
    # the reference has not learned, so nothing is decided
    assert BY_ID["real.lengths"].rule.verdict(measured) == "inconclusive"


@pytest.mark.parametrize("dose", DOSES)
def test_drawn_heads_are_of_neither_kind_and_differ_between_seeds(dose):
    drawn = [spec.fresh_heads for spec in GROUPS[without("random", dose)]]
    for heads in drawn:
        assert len(set(heads)) == dose
        assert not set(heads) & {*ASSOCIATION, *MANIPULATION}
    assert len(set(drawn)) == len(drawn)


def test_every_claim_has_its_groups_and_none_is_trained_at_size_quick():
    for claim in CLAIMS:
        assert set(claim.needs) <= set(GROUPS), claim.id
        # paired: the same seeds in the same order
        first, second = (GROUPS[name] for name in claim.needs)
        assert all(a.seed == b.seed for a, b in zip(first, second, strict=False))
    assert not any(real_groups("quick").values())
