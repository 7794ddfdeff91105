"""Models that have not learned their task: which they are, and that audits exclude and list them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from case_studies.frame.evidence import Evidence
from case_studies.recipes import audits, learned
from interp.tasks import Dyck, Lego

CHAINS = Lego(n_vars=3, supervised=(0, 1))


@pytest.fixture
def evidence(monkeypatch):
    """Evidence of models with given validation accuracies, by group."""

    def made(task, **groups):
        specs = {
            name: tuple(
                SimpleNamespace(task=task, seed=seed, key=f"{name} {seed}", accuracy=accuracy)
                for seed, accuracy in enumerate(accuracies)
            )
            for name, accuracies in groups.items()
        }
        return Evidence(size="quick", seed=0, groups=specs, folder=Path(str(groups)))  # type: ignore[arg-type]

    def run(self, spec):
        manifest = {"outcomes": list(spec.task.outcomes)}
        return SimpleNamespace(model=None, final_accuracy=spec.accuracy, manifest=manifest)

    monkeypatch.setattr(Evidence, "run", run)
    return made


def test_accuracy_of_the_worst_outcome_that_was_trained(evidence):
    chains = evidence(CHAINS, group=[(1.0, 0.95, 0.5), (0.9, 1.0, 0.5), (1.0, 0.899, 1.0)])
    assert [learned.lowest_accuracy(chains, spec) for spec in chains.specs("group")] == [0.95, 0.9, 0.899]
    assert [learned.has_learned(chains, spec) for spec in chains.specs("group")] == [True, True, False]
    dyck = evidence(Dyck(n_types=2, max_depth=3, length=8), group=[(0.99, 0.98, 0.2, 0.3)])
    assert learned.lowest_accuracy(dyck, dyck.specs("group")[0]) == 0.98


def test_models_that_have_not_learned_are_listed(evidence):
    found = evidence(CHAINS, good=[(1, 1, 0)], bad=[(1, 0.8, 1), (1, 1, 1), (0.6, 1, 1)])
    assert learned.excluded_models(found, ["good"]) == []
    ((title, rows),) = learned.excluded_models(found, ["good", "bad"])
    assert "2 models" in title
    assert rows[1:] == [["bad", 0, "0.800"], ["bad", 2, "0.600"]]


def test_audits_leave_them_out_and_ask_only_for_what_was_trained(evidence, monkeypatch):
    asked = []
    monkeypatch.setattr(audits, "audit", lambda model, task, **options: asked.append(options["outcomes"]))
    found = evidence(CHAINS, good=[(1, 1, 0)], bad=[(1, 0.8, 1), (1, 1, 1)])
    assert [(one.group, one.spec.seed) for one in audits.audit_models(found, ["good", "bad"])] == [
        ("good", 0),
        ("bad", 1),
    ]
    assert asked == [("#0", "#1")] * 2


def test_a_share_counts_and_lists_models_left_out(evidence, monkeypatch):
    monkeypatch.setattr(audits, "audit_models", lambda evidence, groups: iter(()))
    share = audits.measure_head_share(evidence(CHAINS, bad=[(1, 0.8, 1)] * 3), groups=["bad"], among="readable")
    assert share.numbers["models left out"] == 3
    assert len(share.tables[-1][1]) == 1 + 3
