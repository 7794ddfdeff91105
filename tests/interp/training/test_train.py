"""The training loop: it learns, it resumes to the same bits, and it does what its settings say."""

import dataclasses
import json

import pytest
import torch
from short_runs import SHORT, Stopped, interrupted, new_model, same_weights, spied, stop_at, without_seconds
from texts import corpus

import interp
from hooks import HeadPattern, Transformer
from hooks.model.checkpoint import read_tensors
from interp import TrainSettings
from interp.tasks import Dyck, Lego, Template, Text


def test_a_tiny_model_learns_the_task(trained, tiny):
    result = interp.evaluate(trained.model, tiny, n=2000)
    assert result.accuracy.low.min() > 0.99
    first = interp.evaluate(Transformer(trained.model.cfg), tiny, n=2000)
    assert first.accuracy.high.max() < 0.9  # there was something to learn
    assert not trained.model.training


def test_weights_depend_on_both_seeds(whole, tiny):
    def weights(model_seed, seed):
        return interp.train(new_model(tiny, seed=model_seed), tiny, SHORT, seed=seed).model

    assert same_weights(whole.model, weights(0, 0))  # also without a folder
    assert not same_weights(whole.model, weights(0, 1))
    assert not same_weights(whole.model, weights(1, 0))


def test_gradients_are_clipped_to_their_norm(tiny):
    """Adam divides by the size of a gradient plus 1e-8: gradients far below that hardly move the weights."""
    settings = dataclasses.replace(SHORT, association="none", weight_decay=0.0)
    moved = []
    for clip_norm in (settings.clip_norm, 1e-12):
        run = interp.train(new_model(tiny), tiny, dataclasses.replace(settings, clip_norm=clip_norm))
        pairs = zip(run.model.parameters(), new_model(tiny).parameters(), strict=True)
        moved.append(max(float((after - before).detach().abs().max()) for after, before in pairs))
    assert moved[0] > 1e-3
    assert moved[1] < 1e-6


def test_training_does_not_use_the_global_generator(tiny):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    interp.train(new_model(tiny), tiny, SHORT)
    assert torch.equal(torch.get_rng_state(), before)


def test_gradients_of_an_earlier_use_of_the_model_do_not_count(tiny):
    plain, used = new_model(tiny), new_model(tiny)
    for parameter in used.parameters():
        parameter.grad = torch.full_like(parameter, 10.0)
    for model in (plain, used):
        interp.train(model, tiny, SHORT)
    for one, other in zip(plain.parameters(), used.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """A run that was not interrupted, in a folder."""
    return interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path_factory.mktemp("whole"))


# records are made after steps 4, 8, 12 and 16, states after every third. 4 stops in the mimicking phase; 8 after it,
# with a state from before its end; 12 between a record and the state of the same step
@pytest.mark.parametrize("step", [4, 8, 12, 16])
def test_an_interrupted_run_ends_with_the_same_bits(whole, tiny, tmp_path, step):
    with pytest.raises(Stopped):
        interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path, on_record=stop_at(step))
    stored = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(stored[-1])["steps_done"] == step

    records = []
    resumed = interp.train(new_model(tiny), tiny, SHORT, folder=tmp_path, on_record=records.append)
    assert same_weights(whole.model, resumed.model)
    assert without_seconds(whole.history) == without_seconds(resumed.history)
    lines, expected_lines = ((folder / "metrics.jsonl").read_text().splitlines() for folder in (tmp_path, whole.folder))
    assert without_seconds(map(json.loads, lines)) == without_seconds(map(json.loads, expected_lines))
    # it resumed from the last state
    state = (step - 1) // 3 * 3
    assert [record["steps_done"] for record in records] == [n for n in (4, 8, 12, 16, 19) if n > state]
    seconds = [record["seconds"] for record in resumed.history]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("settings", [{"n_train": 40}, {"association": "query_key"}], ids=str)
def test_runs_with_a_fixed_set_or_query_key_resume_to_the_same_bits(tiny, tmp_path, settings):
    chosen = dataclasses.replace(SHORT, **{"association": "none", **settings})
    whole = interp.train(new_model(tiny), tiny, chosen)
    with pytest.raises(Stopped):
        interp.train(new_model(tiny), tiny, chosen, folder=tmp_path, on_record=stop_at(8))
    assert same_weights(whole.model, interp.train(new_model(tiny), tiny, chosen, folder=tmp_path).model)


def test_the_optimizer_is_reset_after_mimicking(tiny, tmp_path):
    for at, state, steps in ((8, 6, 6), (12, 9, 2)):  # seven steps of mimicking come first
        interrupted(tiny, tmp_path / str(at), at=at)
        tensors, description = read_tensors(tmp_path / str(at) / "state.safetensors", kind="training state")
        assert description["steps_done"] == state
        assert float(tensors["optimizer/0/step"]) == steps


def test_a_fixed_set_is_the_only_training_data(tiny, monkeypatch):
    interp.check_task(tiny)  # its samples are not counted
    drawn = spied(monkeypatch, Lego, "sample")
    seen = spied(monkeypatch, Transformer, "forward")
    settings = dataclasses.replace(SHORT, association="none", n_train=40, eval_every=100)
    interp.train(new_model(tiny), tiny, settings)
    sizes = [args[0] for args, _, _ in drawn]
    assert sizes == [50, 40]  # the validation examples, and the fixed set once
    assert [kwargs.get("split", "train") for _, kwargs, _ in drawn] == ["validation", "train"]
    known = {tuple(tokens) for tokens in drawn[1][2].tokens.tolist()}
    batches = [args[0] for args, _, _ in seen][:12]
    assert all(len(batch) == 16 for batch in batches)
    used = [tuple(tokens) for batch in batches for tokens in batch.tolist()]
    assert set(used) <= known
    # two batches of 16 make an epoch; none of the 40 comes twice in one, and epochs differ
    for start in range(0, 12, 2):
        epoch = [tuple(tokens) for batch in batches[start : start + 2] for tokens in batch.tolist()]
        counts = {tokens: drawn[1][2].tokens.tolist().count(list(tokens)) for tokens in epoch}
        assert all(epoch.count(tokens) <= counts[tokens] for tokens in epoch)
    assert used[:32] != used[32:64]


def test_fresh_examples_are_new_at_every_step_and_never_held_out(tiny, monkeypatch):
    interp.check_task(tiny)  # its samples are not counted
    drawn = spied(monkeypatch, Lego, "sample")
    interp.train(new_model(tiny), tiny, dataclasses.replace(SHORT, association="none"))
    assert [kwargs.get("split", "train") for _, kwargs, _ in drawn] == ["validation"] + ["train"] * 12
    texts = [batch.tokens.flatten().tolist() for _, _, batch in drawn]
    assert all(one != other for index, one in enumerate(texts) for other in texts[:index])


def test_batches_of_a_curriculum_have_the_lengths_of_their_stage(monkeypatch):
    task = Lego(n_vars=4, sentence_format="compact")
    settings = TrainSettings(
        curriculum=((2, 10), (4, 100)), current_share=0.6, tokens_per_step=120, eval_every=1000, n_eval=10
    )
    assert settings.steps == 110
    interp.check_task(task)  # its samples are not counted
    drawn = spied(monkeypatch, Lego, "sample")
    interp.train(new_model(task, n_layers=1, d_model=8), task, settings)
    lengths = [kwargs["n_vars"] for _, kwargs, _ in drawn[1:]]
    assert lengths[:10] == [2] * 10
    late = lengths[10:]
    assert set(late) == {2, 3, 4}
    share = late.count(4) / len(late)
    assert abs(share - 0.6) < 5 * (0.6 * 0.4 / len(late)) ** 0.5
    sizes = {args[0] * kwargs["n_vars"] * 3 for args, kwargs, _ in drawn[1:]}
    assert max(sizes) <= 120 < min(sizes) + 12  # about the same number of tokens per step for every length


@pytest.mark.parametrize("objective", ["next_token", "masked"])
def test_windows_of_a_text_curriculum_have_the_length_of_their_stage(monkeypatch, tmp_path, objective):
    monkeypatch.setenv("UNMYOPIC_CACHE", str(tmp_path / "cache"))
    task = Text(corpus=corpus(), objective=objective, n_ctx=40, vocab_size=300)
    settings = TrainSettings(curriculum=((16, 3), (32, 2)), tokens_per_step=96, eval_every=5, n_eval=10)
    interp.check_task(task)  # its samples are not counted
    drawn, seen = spied(monkeypatch, Text, "sample"), spied(monkeypatch, Transformer, "forward")
    run = interp.train(new_model(task, n_layers=1), task, settings)
    asked = [
        (args[0], kwargs["n_ctx"], tuple(batch.tokens.shape)) for args, kwargs, batch in drawn if "n_ctx" in kwargs
    ]
    assert asked == [(6, 16, (6, 16))] * 3 + [(3, 32, (3, 32))] * 2
    assert [tuple(args[0].shape) for args, _, _ in seen][:5] == [(6, 16)] * 3 + [(3, 32)] * 2
    assert drawn[0][2].tokens.shape == (10, 40)  # validation is as long as the task's
    assert run.history[-1]["stage"] == 32
    for lengths, words in (
        ((16, 41), "curriculum has the length 41; the lengths of this task go from"),
        ((1, 16), r"curriculum has the length 1; the lengths of this task go from [24] to 40\."),
    ):
        settings = TrainSettings(curriculum=tuple((length, 1) for length in lengths), n_eval=10)
        with pytest.raises(ValueError, match=words):
            interp.train(new_model(task, n_layers=1), task, settings, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_task_of_one_length_has_no_curriculum():
    task = Dyck(length=6, max_depth=2)
    with pytest.raises(ValueError, match="curriculum is a schedule of lengths; a Dyck task has only one"):
        interp.train(new_model(task), task, TrainSettings(curriculum=((2, 5),)))


def test_stages_are_recorded():
    settings = TrainSettings(curriculum=((2, 10), (4, 200)))
    assert [settings.stage_at(step) for step in (0, 9, 10, 209, 210)] == [2, 2, 4, 4, 4]
    assert TrainSettings().stage_at(0) is None


def test_depth_is_drawn_within_its_range(tiny, monkeypatch):
    seen = spied(monkeypatch, Transformer, "forward")
    settings = dataclasses.replace(SHORT, association="none", steps=60, depth_range=(2, 4), eval_every=1000)
    interp.train(new_model(tiny, n_layers=5, d_model=8), tiny, settings)
    depths = [kwargs["depth"] for _, kwargs, _ in seen if "depth" in kwargs]
    assert len(depths) == 60
    # 60 draws miss one of three depths with probability 3 (2/3)^60, one in ten billion
    assert set(depths) == {2, 3, 4}
    assert all("depth" not in kwargs for _, kwargs, _ in seen[60:])  # evaluation uses every layer


def test_without_a_depth_range_every_layer_is_applied(tiny, monkeypatch):
    seen = spied(monkeypatch, Transformer, "forward")
    interp.train(new_model(tiny), tiny, dataclasses.replace(SHORT, depth_range=None, association="none"))
    assert all(kwargs.get("depth") is None for _, kwargs, _ in seen)


@pytest.mark.parametrize(
    ("sizes", "settings", "words"),
    [
        (
            {"d_vocab": 40},
            {},
            r"the model has d_vocab 40 and d_vocab_out 2; the task needs 30 and 2\. interp\.config_for",
        ),
        ({"n_ctx": 5}, {}, "n_ctx of the model is 5; the task has sequences of 6"),
        ({}, {"depth_range": (1, 3)}, r"depth_range is \(1, 3\); give two depths from 1 to 2, in order"),
        ({}, {"depth_range": (0, 2)}, r"depth_range is \(0, 2\)"),
        ({}, {"depth_range": (2, 1)}, r"depth_range is \(2, 1\)"),
        ({"n_heads": 1}, {}, "'mimic' trains two heads per layer; the model has 1"),
        (
            {"head_patterns": ((HeadPattern(kind="uniform"), HeadPattern()),)},
            {},
            "association is 'mimic', but this model has hard-coded heads",
        ),
        ({}, {"curriculum": ((3, 5),), "steps": 5}, "curriculum has the length 3; the lengths of this task go"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(tiny, tmp_path, sizes, settings, words):
    model = new_model(tiny, **sizes)
    with pytest.raises(ValueError, match=words):
        interp.train(model, tiny, dataclasses.replace(SHORT, **settings), folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_bidirectional_model_is_refused_for_a_causal_task(tmp_path):
    task = Dyck(length=6, max_depth=2)
    model = Transformer(interp.config_for(task, d_model=8, n_layers=1, attention="bidirectional"))
    with pytest.raises(ValueError, match="bidirectional; it would see the answers of a causal task"):
        interp.train(model, task, SHORT, folder=tmp_path)


def test_a_causal_model_is_accepted_for_a_bidirectional_task():
    task = Template(train=8, validation=4, test=4)
    model = Transformer(interp.config_for(task, d_model=8, n_heads=2, d_head=4, n_layers=1, attention="causal"))
    run = interp.train(model, task, interp.TrainSettings(steps=2, batch_size=4, n_eval=8, eval_every=1))
    assert len(run.history) == 2


def test_a_loss_that_is_not_finite_stops_the_run(tiny):
    model = new_model(tiny)
    with torch.no_grad():
        model.unembed.weight *= 1e38
    with pytest.raises(ValueError, match=r"the loss is (nan|inf) at step 0; lower learning_rate or clip_norm"):
        interp.train(model, tiny, dataclasses.replace(SHORT, association="none"))


def test_the_stage_of_a_record_is_that_of_its_last_step():
    task = Lego(n_vars=3, sentence_format="compact")
    settings = TrainSettings(curriculum=((2, 2), (3, 2)), batch_size=8, eval_every=1, n_eval=10)
    run = interp.train(new_model(task, n_layers=1, d_model=8), task, settings)
    assert [(record["steps_done"], record["stage"]) for record in run.history] == [(1, 2), (2, 2), (3, 3), (4, 3)]


def test_the_shortest_length_has_no_shorter_one():
    task = Lego(n_vars=4, sentence_format="compact")
    assert [list(task.shorter_lengths(length)) for length in (2, 3, 4)] == [[], [2], [2, 3]]
