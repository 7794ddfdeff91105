"""Experiments in processes: the same numbers, whatever their number; and errors."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from own_models import own_model

import interp
from hooks import Transformer
from hooks.interventions.clean_pass import TOKENS_PER_PASS
from interp.auditing import parallel_experiments
from interp.auditing.experiments import HeadExperiments
from interp.auditing.interventions import LABEL_TESTS, ON_ALL_HEADS
from interp.auditing.parallel_experiments import ParallelExperiments
from interp.core.sample import Sample
from interp.known_answers import known_answer
from interp.tasks import Lego

SEED = 3
LABELS = {(0, 0): "association", (1, 1): "manipulation", (2, 0): "association"}


@pytest.fixture(scope="module")
def experiments():
    """An untrained model of three layers, with large weights."""
    torch.set_num_threads(1)
    task = Lego(n_vars=2, sentence_format="compact")
    model = Transformer(interp.config_for(task, n_layers=3, d_model=16, n_heads=2)).double().eval()
    with torch.no_grad():
        for block in model.stored_blocks:
            block.attention.o.weight.mul_(8)
    batch = task.sample(60, generator=torch.Generator().manual_seed(1), split="test")
    return HeadExperiments(model, Sample(task, batch, SEED))


@pytest.fixture
def calls(monkeypatch):
    """Arguments of the calls, which are made in this process."""
    calls = []

    def in_this_process(calls_of_method, *, n_jobs):
        calls.append([arguments[3] for _, arguments in calls_of_method])
        return [function(*arguments) for function, arguments in reversed(calls_of_method)]

    monkeypatch.setattr(parallel_experiments, "in_processes", in_this_process)
    return calls


@pytest.mark.parametrize("n_jobs", [2, 3, 5])
def test_effects_are_those_of_a_single_process(experiments, calls, n_jobs):
    assert 2 * experiments.batch.tokens.numel() <= TOKENS_PER_PASS  # several heads of a layer per pass
    names = [*ON_ALL_HEADS, *LABEL_TESTS]
    effects = ParallelExperiments(experiments, n_jobs).effects(names, LABELS)
    expected = experiments.effects(names, LABELS)
    np.testing.assert_array_equal(effects.total, expected.total)
    assert effects.drop.keys() == expected.drop.keys()
    for name, drop in expected.drop.items():
        np.testing.assert_array_equal(effects.drop[name], drop)
    # All heads of a layer are in one process, and every head is in some
    heads = [head for _, _, part in calls[0] for head in part]
    assert sorted(heads) == experiments.heads
    assert len(calls[0]) == min(n_jobs, 3)
    layers = [{layer for layer, _ in part} for _, _, part in calls[0]]
    assert sum(map(len, layers)) == 3


def test_effects_on_some_heads_leave_the_others_untried(experiments, calls):
    effects = ParallelExperiments(experiments, 2).effects(["mean"], {}, heads=[(0, 1), (2, 0)])
    tried = np.isfinite(effects.drop["mean"]).all((0, 2))
    assert tried.tolist() == [False, True, False, False, True, False]
    assert not np.isfinite(ParallelExperiments(experiments, 2).effects(["mean"], {}, heads=[]).drop["mean"]).any()


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_sets_are_removed_as_in_a_single_process(experiments, calls, monkeypatch, n_jobs):
    monkeypatch.setattr(parallel_experiments, "FEW_SETS", 0)
    pairs = [(first, second) for first in experiments.heads for second in experiments.heads]
    sets = [*pairs, (), ((2, 1), (0, 0), (1, 0))]
    drop = ParallelExperiments(experiments, n_jobs).removed(sets)
    np.testing.assert_array_equal(drop, experiments.removed(sets))
    assert np.ptp(drop.sum(0)) > 0
    first_layers = [{min(heads, default=(0, 0))[0] for heads in part} for (part,) in calls[0]]
    assert sum(map(len, first_layers)) == 3


def test_sets_of_a_layer_are_shared_where_a_pass_has_a_single_edit(experiments, calls, monkeypatch):
    monkeypatch.setattr(parallel_experiments, "FEW_SETS", 0)
    batch = experiments.task.sample(100, generator=torch.Generator().manual_seed(2), split="test")
    many = replace(experiments, sample=replace(experiments.sample, batch=batch))
    assert 2 * batch.tokens.numel() > TOKENS_PER_PASS
    sets = [((0, 0),), ((0, 1),), ((0, 0), (0, 1)), ((0, 0), (1, 1)), ((0, 0), (1, 0), (2, 1)), ((0, 1), (2, 0))]
    drop = ParallelExperiments(many, 2).removed(sets)
    np.testing.assert_array_equal(drop, many.removed(sets))
    assert [len(part) for (part,) in calls[0]] == [3, 3]
    # Those that continue from the same edit are in one process
    assert {(0, 0)} in [{heads[0] for heads in part if heads != sets[2]} for (part,) in calls[0]]
    effects = ParallelExperiments(many, 4).effects(ON_ALL_HEADS, LABELS)
    for name, values in many.effects(ON_ALL_HEADS, LABELS).drop.items():
        np.testing.assert_array_equal(effects.drop[name], values)
    assert len(calls[1]) == 4


def test_few_sets_are_removed_in_this_process(experiments, calls):
    ParallelExperiments(experiments, 2).removed([((0, 0),), ((1, 0),)])
    assert calls == []


def test_a_process_stores_the_clean_runs_of_experiments(experiments, calls):
    parallel = ParallelExperiments(experiments, 2)
    first, second = (parallel_experiments.SentExperiments(parallel.key, experiments) for _ in range(2))
    assert parallel_experiments._stored_experiments(first) is parallel_experiments._stored_experiments(second)
    assert ParallelExperiments(experiments, 2).key != parallel.key


@pytest.mark.slow
def test_an_audit_is_the_same_in_processes():
    known = known_answer("template copy, three cancel", seed=0)
    audits = [interp.audit(known.model, known.task, n=128, seed=1, n_jobs=n_jobs) for n_jobs in (1, 2)]
    saved = [json.dumps(audit.to_dict(), sort_keys=True) for audit in audits]
    assert saved[0] == saved[1]


def test_errors():
    task = Lego(n_vars=2)
    model = Transformer(interp.config_for(task, n_layers=1, d_model=8, n_heads=1))
    with pytest.raises(ValueError, match="n_jobs is 0"):
        interp.audit(model, task, n_jobs=0)
    message = "n_jobs is 2, but a wrapped model cannot be sent to other processes; use n_jobs=1."
    with pytest.raises(ValueError, match=re.escape(message)):
        interp.audit(own_model(model), task, n_jobs=2)
