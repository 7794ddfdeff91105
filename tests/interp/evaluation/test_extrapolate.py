import dataclasses
import json

import numpy as np
import pytest
import torch
from bridges import bridge_of
from counting import Counting, Junk
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import hooks
import interp
from hooks import EncoderConfig, FullyConnected, FullyConnectedConfig, HeadPattern, TransformerConfig
from hooks.model.architectures import make_model
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.evaluation.extrapolate import ExtrapolationResult, right_by_depth
from interp.known_answers import lego_loop
from interp.tasks import S3, Dyck, Lego
from interp.tasks.base import logits_at_targets

TASK = Lego(n_vars=3, n_supervised=1)
ALL = Lego(n_vars=3)
KINDS = ("pre_ln", "post_ln", "encoder")


def model_of(task, kind="pre_ln", *, tied=True, n_layers=2, seed=0, **options):
    """Random weights, large enough that every layer changes answers."""
    sizes = {"d_vocab": task.d_vocab, "n_ctx": task.n_ctx, "d_model": 16, "n_heads": 2, "init": "fan_in", **options}
    given_cfg = {"n_layers": n_layers, "tied": tied, "d_vocab_out": task.d_vocab_out, **sizes}
    if kind == "encoder":
        cfg = EncoderConfig(**given_cfg, head="linear", n_token_types=2, d_embedding=8)
    else:
        cfg = TransformerConfig(**given_cfg, block=kind)
    return make_model(cfg, seed=seed)


@pytest.fixture(scope="module")
def loop():
    """A hand-written model with three layers; variable i is predicted from depth 2 i + 1."""
    return lego_loop(TASK, n_layers=3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [True, False])
def test_accuracy_at_each_depth_is_that_of_the_model_at_that_depth(kind, tied):
    task = Lego(n_vars=3, n_supervised=1, group=S3)
    model = model_of(task, kind, tied=tied, n_layers=2 if tied else 4)
    result = interp.extrapolate(model, task, n=300, seed=4)
    assert result.depths == ((1, 2, 3, 4, 5, 6) if tied else (1, 2, 3, 4))
    for depth, row, low, high in zip(
        result.depths, result.accuracy.value, result.accuracy.low, result.accuracy.high, strict=True
    ):
        evaluation = interp.evaluate(model.at_depth(depth), task, n=300, seed=4)
        assert np.array_equal(row, evaluation.accuracy)
        assert np.allclose((low, high), (evaluation.accuracy.low, evaluation.accuracy.high))
    assert len(np.unique(result.accuracy, axis=0)) == len(result.depths)  # every layer did something


@pytest.mark.parametrize("kind", KINDS)
def test_right_by_depth_matches_the_answers_of_the_model_at_that_depth(kind):
    model, depths = model_of(ALL, kind), [5, 1, 2]  # all supervised, and in no order
    batch = ALL.sample(600, generator=derived_generator(1, "x"))  # more than one chunk
    right = right_by_depth(model, ALL, batch, depths)
    assert right.shape == (3, 600, 3)
    for depth, right_at_depth in zip(depths, right, strict=True):
        with torch.no_grad():
            answers = logits_at_targets(model.at_depth(depth)(batch.tokens), batch).argmax(-1)
        assert torch.equal(right_at_depth, answers == batch.labels)


def test_one_pass_covers_all_depths_and_stops_at_the_greatest():
    model = model_of(TASK, n_layers=4)
    layers, embeddings = [], []
    model.embed.register_forward_hook(lambda *_: embeddings.append(1))
    model.block(0).register_forward_hook(lambda *_: layers.append(1))
    interp.extrapolate(model, TASK, n=20)
    assert (len(embeddings), len(layers)) == (1, 12)
    interp.extrapolate(model, TASK, n=20, depths=[2, 1])
    assert (len(embeddings), len(layers)) == (2, 12 + 2)


def test_the_loop_predicts_each_variable_from_its_known_depth(loop):
    result = interp.extrapolate(loop, TASK, n=200)
    assert result.depths == tuple(range(1, 10))
    assert result.trained_depth == 3
    assert result.depth_reaching().tolist() == [1, 3, 5]
    predicted = np.arange(1, 10)[:, None] >= [1, 3, 5]
    assert (result.accuracy.value[predicted] == 1).all()
    band = 5 * (0.25 / 200) ** 0.5
    assert (abs(result.accuracy.value[~predicted] - 0.5) < band).all()
    assert np.array_equal(result.unsupervised_accuracy, result.accuracy.value[:, 1:])
    assert result.supervised == (True, False, False)
    hits = round(result.accuracy.value[0, 2] * 200)
    interval = stats.binomtest(hits, 200).proportion_ci(0.95, method="exact")
    assert (result.accuracy.low[0, 2], result.accuracy.high[0, 2]) == pytest.approx(
        (interval.low, interval.high), abs=1e-8
    )


def test_depths_are_sorted_and_unresolved_variables_are_nan(loop):
    result = interp.extrapolate(loop, TASK, n=100, depths=[4, 2])
    assert result.depths == (2, 4)
    assert result.depth_reaching()[:2].tolist() == [2, 4]
    assert np.isnan(result.depth_reaching()[2])


def test_the_task_determines_the_unsupervised_targets(loop):
    between = Lego(n_vars=3, supervised=(0, 2))
    result = interp.extrapolate(loop, between, n=50, depths=[3, 5])
    assert result.unsupervised_accuracy[:, 0].tolist() == [1, 1]
    assert result.unsupervised_accuracy.shape == (2, 1)
    assert str(result).startswith("depth     #0    #1*     #2\n")


def test_an_untrained_model_is_at_chance_at_every_depth():
    task = Lego(n_vars=3, n_supervised=1, group=S3)
    result = interp.extrapolate(model_of(task, "post_ln"), task, n=1000)
    assert result.chance == 1 / 6
    assert (abs(result.accuracy.value - 1 / 6) < 5 * (1 / 6 * 5 / 6 / 1000) ** 0.5).all()


def made_up(accuracy, depths):
    accuracy = np.array(accuracy, float)
    targets = accuracy.shape[1]
    return ExtrapolationResult(
        depths=tuple(depths),
        targets=tuple(f"#{i}" for i in range(targets)),
        supervised=tuple(i == 0 for i in range(targets)),
        accuracy=Interval(value=accuracy, low=np.clip(accuracy - 0.1, 0, 1), high=np.clip(accuracy + 0.1, 0, 1), n=10),
        chance=0.5,
        n=10,
        n_scored=np.full(targets, 10),
        split="test",
        trained_depth=2,
    )


@given(
    st.lists(st.lists(st.integers(0, 10), min_size=2, max_size=2), min_size=1, max_size=6),
    st.integers(1, 10),
)
def test_resolved_requires_the_level_at_all_greater_depths(rows, level):
    depths = [3 * index + 2 for index in range(len(rows))]
    reached = made_up(np.array(rows) / 10, depths).depth_reaching(level / 10)
    for target in range(2):
        expected = float("nan")
        for depth, row in reversed(list(zip(depths, rows, strict=True))):
            if row[target] < level:
                break
            expected = depth
        assert reached[target] == expected or (np.isnan(reached[target]) and np.isnan(expected))


def test_a_level_outside_0_to_1_is_refused():
    for level in (0.0, 1.5):
        with pytest.raises(ValueError, match=rf"level is {level}; it must be above 0 and at most 1"):
            made_up([[1, 1]], [1]).depth_reaching(level)


def test_depths_that_cannot_be_run_are_refused(as_a_user):
    tied, untied = model_of(TASK), model_of(TASK, tied=False)
    for depths, text in (
        ([], "depths is empty; give at least one number of layers"),
        ([2, 0, -1], "depths has -1; a model applies at least 1 layer"),
        ([1, 2.5], r"depths(\[1\] is| has) 2\.5; it must"),
        ([1, 2, 1], "depths has 1 more than once"),
    ):
        with pytest.raises(ValueError, match=text):
            interp.extrapolate(tied, TASK, depths=depths, n=5)
        with pytest.raises(ValueError, match=text):
            right_by_depth(tied, TASK, TASK.sample(3, generator=derived_generator(0, "x")), depths)
    text = r"depths has 3, but this model has 2 layers: an untied model .* Give depths up to 2, or a tied model"
    with pytest.raises(ValueError, match=text):
        interp.extrapolate(untied, TASK, depths=[1, 3], n=5)
    learned, uniform = HeadPattern(), HeadPattern(kind="uniform")
    by_layer = model_of(TASK, head_patterns=((learned, uniform), (uniform, learned)))
    with pytest.raises(ValueError, match=r"depths has 4, but .* its head_patterns are given layer by layer"):
        interp.extrapolate(by_layer, TASK, depths=[4], n=5)
    assert interp.extrapolate(by_layer, TASK, n=5).depths == (1, 2)
    everywhere = model_of(TASK, head_patterns=((learned, uniform),))
    assert interp.extrapolate(everywhere, TASK, n=5).depths[-1] == 6


def test_invalid_arguments_of_extrapolate_are_refused(as_a_user):
    model = model_of(TASK)
    with pytest.raises(ValueError, match="n is 0; it must be at least 1"):
        interp.extrapolate(model, TASK, n=0)
    with pytest.raises(ValueError, match="split is 'dev'; choose one of train"):
        interp.extrapolate(model, TASK, n=5, split="dev")
    text = "all 3 targets of this task are supervised, which leaves nothing to extrapolate to; give a task that"
    with pytest.raises(ValueError, match=text):
        interp.extrapolate(model, ALL, n=5)
    dyck = Dyck(n_types=2, max_depth=3, length=4)
    with pytest.raises(ValueError, match="nothing to extrapolate to; give a task that supervises some of its targets"):
        interp.extrapolate(model_of(dyck), dyck, n=5)
    bridge = bridge_of("native", d_vocab=TASK.d_vocab)
    for foreign in (bridge, hooks.from_bridge(bridge)):
        with pytest.raises(ValueError, match="extrapolate does not accept a TransformerLens bridge: it reads"):
            interp.extrapolate(foreign, TASK, n=5)
    assert "extrapolate" in interp.supported_verbs(bridge).obstacles
    flat = FullyConnected(FullyConnectedConfig(d_vocab=TASK.d_vocab, d_vocab_out=2, n_ctx=TASK.n_ctx))
    with pytest.raises(ValueError, match="fully connected network: it has no attention heads and no residual"):
        interp.extrapolate(flat, TASK, n=5)


def test_a_residual_stream_that_is_not_finite_raises():
    model = model_of(TASK, n_layers=1)
    with torch.no_grad():
        model.block(0).mlp.w_out.weight.mul_(1e38)
    with pytest.raises(ValueError, match=r"not finite after \d layers\. Did training diverge, or does its norm grow"):
        interp.extrapolate(model, TASK, n=5, depths=range(1, 10))


def test_text_table_chart_and_file_of_a_result(loop, tmp_path):
    result = interp.extrapolate(loop, TASK, n=100, depths=[1, 3, 5], split="validation")
    lines = str(result).splitlines()
    assert lines[0] == "depth     #0    #1*    #2*"
    assert lines[2] == f"    3  1.000  1.000  {result.accuracy.value[1, 2]:.3f}  <- n_layers"
    assert lines[1].endswith(f"{result.accuracy.value[0, 2]:.3f}")
    words = f"accuracy on 100 validation examples ({max(result.accuracy.n)} distinct, which intervals count)"
    assert lines[-1].startswith(f"{words} (95 % within 0.1")
    assert lines[-1].endswith("chance 0.50; * not supervised")
    table = result.to_dataframe()
    assert list(table.columns) == ["depth", "target", "supervised", "accuracy", "low", "high", "n"]
    assert table["depth"].tolist() == [1, 1, 1, 3, 3, 3, 5, 5, 5]
    assert table["supervised"].tolist() == [True, False, False] * 3
    row = table[(table["depth"] == 3) & (table["target"] == "#2")]
    assert row["accuracy"].item() == result.accuracy.value[1, 2]
    assert row["high"].item() == result.accuracy.high[1, 2]
    spec = json.dumps(result.plot().to_dict())
    assert '"datum": 0.5' in spec  # chance
    assert '"datum": 3' in spec  # n_layers
    assert '"strokeDash"' in spec
    assert "n_layers = 3" in result._repr_html_()
    assert "<svg" in interp.extrapolate(loop, TASK, n=20, depths=[2])._repr_html_()
    result.save(tmp_path / "result.json")
    again = ExtrapolationResult.load(tmp_path / "result.json")
    assert (again.depths, again.targets, again.supervised) == (result.depths, result.targets, result.supervised)
    assert np.array_equal(again.accuracy, result.accuracy)
    assert np.array_equal(again.depth_reaching(), result.depth_reaching(), equal_nan=True)
    assert str(again) == str(result)


def test_weights_do_not_change_and_seeds_are_reproducible():
    model = model_of(TASK)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result, same, second_result = (interp.extrapolate(model, TASK, n=200, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(result.accuracy, same.accuracy)
    assert not np.array_equal(result.accuracy, second_result.accuracy)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


def test_accuracy_is_that_of_the_examples_with_the_target():
    words = {"length": 6, "shortest": 2, "n_unsupervised": 2}
    task, model = Counting(**words), model_of(Counting(**words), attention="causal")
    result, junk = (interp.extrapolate(model, one_task, n=300) for one_task in (task, Junk(**words)))
    batch = task.sample(300, generator=derived_generator(0, "evaluate", "test"), split="test")
    counts = batch.present.sum(0)
    assert result.n_scored.tolist() == counts.tolist()
    assert 300 == counts[1] > counts[2] > 0
    different = [
        {tuple(row) for row in batch.tokens[batch.present[:, target]].tolist()} for target in range(len(counts))
    ]
    assert result.accuracy.n.tolist() == [len(inputs) for inputs in different]
    for index, depth in enumerate(result.depths):
        with torch.no_grad():
            answers = model.at_depth(depth)(batch.tokens, attention_mask=batch.attention_mask).argmax(-1)
        right = ((answers == batch.labels) & batch.present).sum(0)
        assert result.accuracy.value[index].tolist() == pytest.approx((right / counts).tolist())
        share, n = (right / counts).double().numpy(), result.accuracy.n
        low = np.where(share > 0, stats.beta.ppf(0.025, share * n, (1 - share) * n + 1), 0.0)
        high = np.where(share < 1, stats.beta.ppf(0.975, share * n + 1, (1 - share) * n), 1.0)
        assert result.accuracy.low[index] == pytest.approx(low, abs=1e-6)
        assert result.accuracy.high[index] == pytest.approx(high, abs=1e-6)
    assert result.to_dataframe().equals(junk.to_dataframe())
    assert result.to_dataframe()["n"].tolist() == counts.tolist() * len(result.depths)
    assert f"accuracy on {min(counts)} to 300 test examples" in str(result)
    # a title of several lines is a list
    chart = json.dumps(result.plot().to_dict()).replace('", "', " ")
    assert f"n = {min(counts)} to 300 per point" in chart


def test_a_target_that_no_example_has_is_nan(tmp_path):
    task = Short(length=4, shortest=2, n_unsupervised=2)
    result = interp.extrapolate(model_of(task, attention="causal"), task, n=50, depths=[1, 2])
    assert result.n_scored.tolist()[-1] == 0
    for values in (result.accuracy.value, result.accuracy.low, result.accuracy.high):
        assert np.isnan(values[:, 3]).all()
        assert np.isfinite(values[:, :3]).all()
    assert np.isnan(result.depth_reaching()[3])
    assert "nan" not in str(result).splitlines()[-1]
    assert "<svg" in result._repr_html_()
    result.save(tmp_path / "found.json")
    assert str(ExtrapolationResult.load(tmp_path / "found.json")) == str(result)


class Short(Counting):
    """No word has the last target."""

    def sample(self, n, *, generator, split="train"):
        batch = super().sample(n, generator=generator, split=split)
        return dataclasses.replace(batch, target_mask=batch.present & (torch.arange(self.length) < self.length - 1))
