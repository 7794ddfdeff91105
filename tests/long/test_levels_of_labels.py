"""Level of labels and verdicts: untrained models of every initialisation, which have nothing to find."""

import random
from functools import cache
from typing import get_args

import pytest
from foreign_tasks import AddMod
from scipy import stats

import interp
from hooks import make_model
from hooks.model.config import Initialisation
from interp.tasks import Dyck, Lego, Template

pytestmark = pytest.mark.long
INITS = get_args(Initialisation)
MODELS = 150
"""Models of each initialisation: of them 2 may have a false label at the level, and 7 alarm the test."""
LEVEL = 0.01
"""Probability of a false label, and of a false verdict, on any head of a model."""
FALSE_ALARM = 1e-3
"""Probability that a test fails although the level holds."""
N = 64
"""Sequences of each model."""
FINDINGS = ("label of a kind", "uniform", "verdict")
"""Verdicts are faithful and misleading. Hidden and redundant may be true: an untrained model can be right by chance."""
TASKS = (
    (Lego(n_vars=4), (None, "gpt")),
    (Lego(n_vars=3, sentence_format="compact"), (None,)),
    (Dyck(max_depth=3, length=20), (None, "dyck_gpt")),
    (Template(templates="aba_abb"), (None, "lego", "template")),
    (Template(templates="aabb_abab"), (None, "lego", "template")),
    (Template(templates="majority"), (None, "lego", "template")),
    (Template(templates=["abcabc -> +1", "abccba -> -1"]), (None, "lego", "template")),
    (Template(templates=["abab -> a", "abba -> b"], form="next_token"), (None, "lego")),
    (AddMod(), (None,)),
)
"""Tasks, each with the families of `config_for`."""


def random_model(init, index):
    """An untrained model of random size and family, and its task; tasks take turns."""
    task, families = TASKS[index % len(TASKS)]
    draw = random.Random(f"{init} {index}")
    n_layers, n_heads, d_model = draw.choice([1, 2, 3, 4]), draw.choice([2, 4, 8]), draw.choice([32, 64])
    sizes = {"n_layers": n_layers, "n_heads": n_heads, "d_model": d_model, "d_head": d_model // n_heads}
    config = interp.config_for(task, draw.choice(families), init=init, **sizes)
    return make_model(config, seed=10_000_000 + index).eval(), task


@cache
def findings_by_kind(init):
    """For each model, whether any head has a finding of each kind."""
    findings = {finding: [] for finding in FINDINGS}
    for index in range(MODELS):
        model, task = random_model(init, index)
        heads = interp.audit(model, task, n=N, alpha=LEVEL, at_chance=True, seed=index).heads
        labels = {head.label for head in heads}
        verdicts = {head.verdict for head in heads}
        findings["label of a kind"].append(bool(labels - {"uniform", "unclassified"}))
        findings["uniform"].append("uniform" in labels)
        findings["verdict"].append(bool(verdicts & {"faithful", "misleading"}))
    return findings


@pytest.mark.parametrize("finding", FINDINGS)
@pytest.mark.parametrize("init", INITS)
def test_models_with_a_false_finding_are_within_the_level(init, finding):
    models = findings_by_kind(init)[finding]
    assert sum(models) <= stats.binom.isf(FALSE_ALARM, len(models), LEVEL)


@pytest.mark.parametrize("finding", FINDINGS)
def test_of_all_initialisations_together_too(finding):
    models = [found for init in INITS for found in findings_by_kind(init)[finding]]
    assert sum(models) <= stats.binom.isf(FALSE_ALARM, len(models), LEVEL)
