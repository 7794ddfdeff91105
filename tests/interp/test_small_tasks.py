"""In-context lookup, modular addition and indirect objects go through every verb, on tiny models."""

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp.sweeps import ModelSpec, Sweep
from interp.tasks import InContextLookup, IndirectObject, ModularAddition
from interp.tasks.registry import task_class_of
from interp.training import TrainingRun

TASKS = {
    "in_context_lookup": InContextLookup(n_pairs=2, n_keys=5, n_values=4),
    "modular_addition": ModularAddition(p=11),
    "indirect_object": IndirectObject(n_names=6, templates=("A met B and S spoke to",)),
}
OWN_KINDS = {
    "in_context_lookup": {"association", "induction"},
    "modular_addition": {"operands"},
    "indirect_object": {"duplicate", "subject", "indirect_object", "broadcast"},
}
"""Kinds of head that rest on the task's relations."""
SETTINGS = {"steps": 30, "batch_size": 64, "warmup_steps": 4, "learning_rate": 8e-3, "eval_every": 15, "n_eval": 60}
NAMES = pytest.mark.parametrize("name", TASKS)
N = 64


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A model of each task, trained for a moment, in its folder. Do not change the weights."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs")
    runs = {}
    for name, task in TASKS.items():
        model = Transformer(interp.config_for(task, n_layers=2, d_model=16, n_heads=2))
        runs[name] = interp.train(model, task, interp.TrainSettings(**SETTINGS), folder=folder / name)
    return folder, runs


@pytest.fixture
def model(runs, name):
    return runs[1][name].model


def are_shares(values):
    values = np.asarray(values)
    return bool(((values >= 0) & (values <= 1)).all())


@NAMES
def test_it_is_known_by_name_and_a_run_is_loaded_again(runs, name):
    folder, all_runs = runs
    assert task_class_of(name) is type(TASKS[name])
    assert all_runs[name].history[-1]["loss"] < all_runs[name].history[0]["loss"]
    loaded = TrainingRun.load(folder / name)
    assert loaded.task == TASKS[name]


@NAMES
def test_the_recipe_is_one_of_settings_and_of_a_model(name):
    task = TASKS[name]
    interp.TrainSettings(**task.recipe())
    cfg = interp.config_for(task)
    assert (cfg.attention, cfg.d_vocab, cfg.n_ctx) == (task.attention, task.d_vocab, task.n_ctx)


@NAMES
def test_evaluate_and_probe(model, name):
    task = TASKS[name]
    result = interp.evaluate(model, task, n=100)
    assert result.targets == task.outcomes
    assert are_shares(result.accuracy.value)
    probed = interp.probe(model, task, n_train=150, n_test=N, verify=True)
    assert probed.accuracy.shape == (3, len(task.targets))
    assert probed.causal is not None
    assert probed.causal["n"].max() > 0


@NAMES
def test_heads(model, name):
    task = TASKS[name]
    patterns = interp.classify_heads(model, task, n=N, untrained=19)
    assert {"previous", *OWN_KINDS[name]} <= set(patterns.kinds)
    for method in ("mean", sorted(OWN_KINDS[name])[0]):
        ablation = interp.ablate_heads(model, task, method=method, n=N)
        assert np.isfinite(ablation.drop).all()
    kept = interp.keep_heads(model, task, orders=["ablation"], n=N, n_random=2)
    assert len(kept.to_dataframe()) > 0
    assert "canvas" in interp.show_attention(model, task, patterns=patterns).html


@NAMES
def test_on_every_input(model, name):
    exact = interp.evaluate(model, TASKS[name], n="all")
    assert exact.accuracy.exact
    assert exact.accuracy.low.tolist() == exact.accuracy.high.tolist()


@NAMES
def test_audits(model, name):
    task = TASKS[name]
    result = interp.audit(model, task, n=N, at_chance=True)
    assert [head.place for head in result.heads] == [(layer, head) for layer in (0, 1) for head in (0, 1)]
    assert len(interp.audit_probe(model, task, n_train=150, n_test=N).to_dataframe()) > 0


@NAMES
def test_comparisons_and_reports(model, runs, name, tmp_path):
    task = TASKS[name]
    variation = interp.attention_variation([model, Transformer(model.cfg, seed=3)], task)
    assert np.isfinite(variation.variation).all()
    refused = {verb for verb, obstacle in interp.supported_verbs(model, task).obstacles.items() if obstacle}
    without_mlps = {"patch of MLPs", "ablate", "audit_parts"} if model.cfg.attn_only else set()
    assert refused == {"balance_violation", "indistinguishable"} | without_mlps
    path, tested = interp.report_run(runs[1][name], task, tmp_path / "run.html", n_test=N)
    assert task.title in path.read_text(encoding="utf-8")
    assert are_shares(tested["model"].accuracy.value)


@NAMES
def test_sweep(name, tmp_path):
    task = TASKS[name]
    settings = interp.TrainSettings(**(SETTINGS | {"steps": 2, "eval_every": 2}))
    config = interp.config_for(task, n_layers=1, d_model=16, n_heads=2)
    base = ModelSpec(task=task, config=config, settings=settings, seed=0)
    models = interp.sweep(Sweep(base, {"seed": [0, 1]}), tmp_path, n_jobs=1)
    assert len(models.apply(lambda model, task: interp.evaluate(model, task, n=50)).to_dataframe()) == 2 * len(
        task.outcomes
    )
