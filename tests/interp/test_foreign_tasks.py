"""Tasks of a user go through every verb: fixed and variable length, causal and bidirectional."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from foreign_tasks import AddMod, CountOnes, Echo, RunningMax

import interp
from hooks import Transformer
from interp.tasks import Score, register, registry
from interp.training import TrainingRun

TASKS = {"add": AddMod(), "max": RunningMax(n_ctx=4), "count": CountOnes(), "echo": Echo()}
SETTINGS = interp.TrainSettings(steps=40, batch_size=64, warmup_steps=4, learning_rate=8e-3, eval_every=20, n_eval=100)
NAMES = pytest.mark.parametrize("name", TASKS)
N = 64


@pytest.fixture(scope="module")
def registered():
    """The classes, known by name for as long as the module's tests run."""
    for task in TASKS.values():
        register(type(task))
    yield
    for task in TASKS.values():
        del registry._REGISTERED[task.task_name]


@pytest.fixture(scope="module")
def runs(registered, tmp_path_factory):
    """A model of each task, trained for a moment, in its folder. Do not change the weights."""
    torch.set_num_threads(1)
    folder, found = tmp_path_factory.mktemp("runs"), {}
    for name, task in TASKS.items():
        model = Transformer(interp.config_for(task, n_layers=2, d_model=16, n_heads=2))
        found[name] = folder / name, interp.train(model, task, SETTINGS, folder=folder / name)
    return found


@pytest.fixture
def at_hand(runs, name):
    """Model and task."""
    return runs[name][1].model, TASKS[name]


def fractions(values, *, some_missing=False):
    """Whether values are fractions, all there unless said."""
    values = np.asarray(values)
    there = values[np.isfinite(values)] if some_missing else values
    return there.size > 0 and bool(((there >= 0) & (there <= 1)).all())


@NAMES
def test_training_lowers_the_loss_and_is_loaded_again(runs, name):
    folder, run = runs[name]
    task = TASKS[name]
    assert run.history[-1]["loss"] < run.history[0]["loss"]
    assert np.isfinite(run.history[-1]["validation_loss"]).all()
    assert run.task is task
    again = TrainingRun.load(folder)
    assert type(again.task) is type(task)
    assert again.task.describe() == task.describe() == again.manifest["task"]
    assert again.manifest["task_class"] == f"foreign_tasks:{type(task).__name__}"
    batch = task.sample(8, generator=torch.Generator().manual_seed(5), split="test")
    with torch.no_grad():
        ours, theirs = (one.model(batch.tokens, **batch.model_inputs()) for one in (run, again))
    assert torch.equal(ours, theirs)
    resumed = interp.train(Transformer(run.model.cfg), task, SETTINGS, folder=folder)
    assert resumed.history == run.history


@NAMES
def test_attention_and_sizes_of_the_model_are_those_of_the_task(at_hand):
    model, task = at_hand
    sizes = ("n_ctx", "d_vocab", "d_vocab_out", "attention")
    assert [getattr(model.cfg, size) for size in sizes] == [getattr(task, size) for size in sizes]


@NAMES
def test_evaluate(at_hand):
    model, task = at_hand
    result = interp.evaluate(model, task, n=200)
    assert result.targets == task.outcomes
    assert fractions([result.accuracy.value, result.accuracy.low, result.accuracy.high])
    batch = task.sample(64, generator=torch.Generator().manual_seed(0))
    score = task.score(torch.nn.functional.one_hot(batch.labels, task.d_vocab_out).float(), batch)
    assert torch.equal(score.right, score.total)  # the right answers


@NAMES
@pytest.mark.parametrize("solver", ["ridge", "logistic"])
def test_probe(at_hand, solver):
    model, task = at_hand
    result = interp.probe(model, task, n_train=200, n_test=N, solver=solver, verify=solver == "ridge")
    assert result.accuracy.shape == (3, len(task.targets))
    accuracy = result.accuracy
    assert fractions([accuracy.value, accuracy.low, accuracy.high, result.control, result.untrained])
    n = result.to_dataframe()["n"]
    assert 1 <= n.min() <= n.max() == N
    assert (n.min() < N) == (task == TASKS["echo"])  # the only one with missing targets
    if solver == "ridge":
        assert fractions(result.causal["follows"], some_missing=True)
        assert result.causal["n"].max() > 0


@NAMES
def test_heads(at_hand):
    model, task = at_hand
    patterns = interp.classify_heads(model, task, n=N)
    assert patterns.score.shape == (2, 2, len(patterns.kinds))
    relations = task.relations(task.sample(2, generator=torch.Generator().manual_seed(0)))
    assert ("association" in patterns.kinds) == ("same_token" in relations)
    for method in ("zero", "mean", "resample"):
        result = interp.ablate_heads(model, task, method=method, n=N)
        assert np.isfinite(result.drop).all()
        assert fractions(result.clean)
        assert result.drop.shape[-1] == len(task.outcomes)


@NAMES
def test_audits(at_hand):
    model, task = at_hand
    result = interp.audit(model, task, n=N, at_chance=True)
    assert [head.place for head in result.heads] == [(layer, head) for layer in (0, 1) for head in (0, 1)]
    assert set(result.outcomes) <= set(task.outcomes)
    assert all(np.isfinite(cost.drop).all() for head in result.heads for cost in head.costs.values())
    assert "verdict" in result.to_dataframe()
    probes = interp.audit_probe(model, task, n_train=200, n_test=N)
    assert len(probes.to_dataframe()) > 0


@NAMES
def test_reports_and_comparisons(at_hand, runs, name, tmp_path):
    model, task = at_hand
    assert "canvas" in interp.show_attention(model, task).html
    variation = interp.attention_variation([model, Transformer(model.cfg, seed=3)], task)
    assert np.isfinite(variation.variation).all()
    assert np.isfinite(interp.diagonals(model).cosine).all()
    refused = {verb for verb, obstacle in interp.supported_verbs(model, task).obstacles.items() if obstacle}
    assert refused == {"balance_violation", "indistinguishable"}
    path, tested = interp.report_run(runs[name][1], task, tmp_path / "run.html", n_test=N)
    page = path.read_text(encoding="utf-8")
    assert task.title in page
    assert all(target in page for target in task.outcomes)
    assert fractions(tested["model"].accuracy)


@pytest.mark.parametrize("name", ["echo"])
def test_a_page_of_results(at_hand, tmp_path):
    model, task = at_hand
    results = [interp.show_attention(model, task), interp.classify_heads(model, task, n=N)]
    page = interp.report(results, tmp_path / "page.html", title="Mine").read_text(encoding="utf-8")
    assert "Mine" in page


@pytest.mark.parametrize("name", ["max", "echo"])
def test_extrapolate_to_targets_that_are_not_supervised(at_hand):
    model, task = at_hand
    result = interp.extrapolate(model, task, n=N, depths=[1, 2])
    assert result.accuracy.shape == (2, len(task.targets))
    assert fractions(result.accuracy)
    table = result.to_dataframe()
    assert (table["n"] >= 1).all()


@pytest.mark.parametrize("name", ["add", "count"])
def test_there_is_nothing_to_extrapolate_to_if_all_targets_are_supervised(at_hand):
    with pytest.raises(ValueError, match="all 1 targets of this task are supervised"):
        interp.extrapolate(*at_hand, n=N)


@pytest.mark.parametrize(
    "verb",
    [interp.evaluate, interp.probe, interp.audit_probe, interp.classify_heads, interp.ablate_heads, interp.audit],
)  # fmt: skip
def test_a_model_of_another_task_is_refused_by_every_verb(runs, verb, as_a_user):
    small = Transformer(interp.config_for(TASKS["add"], n_layers=1, d_model=8, n_heads=2, d_vocab=5))
    with pytest.raises(ValueError, match=r"d_vocab 9, the model 5: it cannot read such sequences\. Use the task"):
        verb(small, TASKS["add"])
    with pytest.raises(ValueError, match="the task has n_ctx 7, the model 4: it cannot read such sequences"):
        verb(runs["max"][1].model, TASKS["count"])
    with pytest.raises(ValueError, match=r"task is \{\}; it must be a Task"):
        verb(small, {})


@pytest.mark.parametrize(
    "verb",
    [
        interp.evaluate, interp.probe, interp.audit_probe, interp.classify_heads, interp.ablate_heads, interp.audit,
        interp.show_attention, lambda model, task: interp.attention_variation([model, model], task),
    ],
)  # fmt: skip
def test_a_model_of_a_larger_vocabulary_is_refused_by_every_verb(verb):
    cfg = interp.config_for(TASKS["add"], n_layers=1, d_model=8, n_heads=2, d_vocab=12)
    with pytest.raises(ValueError, match="the task has d_vocab 9, the model 12: its vocabulary is another one, in"):
        verb(Transformer(cfg), TASKS["add"])


@pytest.mark.parametrize("verb", [interp.evaluate, interp.ablate_heads, interp.audit, interp.audit_probe])
def test_answers_of_another_number_are_refused(runs, verb):
    with pytest.raises(ValueError, match="the task has d_vocab_out 9, the model 7: its answers cannot be scored"):
        verb(runs["max"][1].model, TASKS["add"])


def test_probes_read_models_with_other_answers(runs):
    result = interp.probe(runs["max"][1].model, TASKS["add"], n_train=200, n_test=N)
    assert fractions(result.accuracy)
    with pytest.raises(ValueError, match="the task has d_vocab_out 9, the model 7"):
        interp.probe(runs["max"][1].model, TASKS["add"], n_train=200, n_test=N, verify=True)


def test_defaults():
    """What each default gives, on the task that defines nothing else."""
    task = AddMod()
    batch = task.sample(8, generator=torch.Generator().manual_seed(0))
    assert (task.n_ctx, task.d_vocab, task.d_vocab_out, task.attention) == (3, 9, 9, "bidirectional")
    assert (task.task_name, task.title, task.description) == ("add_mod", "add mod", "add mod")
    assert task.answer_names == (*"0123456", "=", "_")
    assert task.outcomes == task.audited_outcomes == task.targets == ("sum",)
    assert task.chances == (task.chance,) == (1 / 9,)
    assert (task.default_family, task.default_sizes, task.recipe(), task.lengths) == ("lego", {}, {}, range(0))
    assert (task.disjoint_splits, task.is_language, task.answer_label) == (True, False, "label")
    assert torch.equal(task.probe_labels(batch)["label"], batch.labels)
    assert (task.relations(batch), task.default_texts()) == ({}, ())
    assert task.describe() == {"task": "add_mod"}
    assert AddMod.from_description(task.describe()) == task
    section = task.example(batch, batch.labels[:1])
    assert section.table[0] == ("target", "position", "correct", "answer")
    logits = torch.randn(8, 3, 9, generator=torch.Generator().manual_seed(1))
    by_hand = -logits[:, 2].log_softmax(-1).gather(1, batch.labels)
    torch.testing.assert_close(task.loss(logits, batch), by_hand.mean())
    score = task.score(logits[:, 2:], batch)
    assert isinstance(score, Score)
    torch.testing.assert_close(score.loss, by_hand)
    types = task.control_types(batch)
    assert len(types.unique()) == len(batch.tokens.unique(dim=0))  # the last four tokens are the whole example


def test_missing_targets_count_nowhere():
    task = TASKS["echo"]
    batch = task.sample(40, generator=torch.Generator().manual_seed(0))
    logits = torch.randn(40, 6, 9, generator=torch.Generator().manual_seed(1))
    log = logits.log_softmax(-1)
    losses = [
        -log[row, batch.target_positions[row, t], batch.labels[row, t]]
        for row in range(40)
        for t in range(2)  # the third is not supervised
        if batch.present[row, t]
    ]
    assert len(losses) < 80
    torch.testing.assert_close(task.loss(logits, batch), torch.stack(losses).mean())
    target_logits = logits.gather(1, batch.target_positions[..., None].expand(-1, -1, 9))
    score = task.score(target_logits, batch)
    assert torch.equal(score.total, batch.present.float())
    assert not score.loss[~batch.present].any()
    assert not score.right[~batch.present].any()


def test_fields_replace_defaults():
    assert (RunningMax(n_ctx=4).attention, RunningMax(n_ctx=5, attention="bidirectional").n_ctx) == ("causal", 5)
    assert RunningMax(n_ctx=6).targets[-1] == "max 5"
    assert (CountOnes().n_ctx, CountOnes(n_ctx=5).n_ctx, Echo().n_ctx) == (7, 5, 6)
    with pytest.raises(TypeError, match="n_ctx"):
        RunningMax()
    lengths = [
        int(CountOnes(n_ctx=n).sample(50, generator=torch.Generator()).target_positions.max()) for n in (4, 5, 6)
    ]
    assert all(one < other for one, other in pairwise(lengths))
