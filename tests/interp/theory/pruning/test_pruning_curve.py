"""Pruning curves: kept weights against a plain sort, accuracy against hooks and zeroed weights, the model unchanged."""

import copy
from dataclasses import dataclass
from typing import ClassVar, get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from planted import Padded
from scoring import per_input
from torch.nn.utils import prune

import interp
from hooks import FullyConnected, FullyConnectedConfig, HeadPattern, Transformer, TransformerConfig
from hooks.interventions.replacements import Zero
from hooks.model.layers import Linear
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.core.statistics import pooled_interval, proportion_interval
from interp.evaluation.evaluate import score_batch
from interp.tasks.base import Batch, Score, Task
from interp.tasks.vocab import Vocab
from interp.theory.pruning import curve
from interp.theory.pruning.curve import By, PruningCurve, pruning_curve

N = 16
FRACTIONS = (1, 0.6, 0.25, 0)
KINDS = ("W_Q", "W_K", "W_V", "W_O", "W_in", "W_out")
V = 6


@dataclass(frozen=True)
class Successor(Task):
    """One token of six; the answer is the next one, scored `times` times. Outcomes are even and odd tokens."""

    times: tuple[int, ...] = (3, 1, 1, 2, 1, 1)
    outcomes: tuple[str, ...] = ("even", "odd")

    vocab: ClassVar = Vocab(tuple("abcdef"))
    targets: ClassVar = ("next",)
    n_ctx: ClassVar = 1

    def sample(self, n, *, generator, split="train"):
        tokens = torch.randint(V, (n, 1), generator=generator)
        where, supervised = torch.zeros(n, 1, dtype=torch.long), torch.ones(1, dtype=torch.bool)
        return Batch(tokens=tokens, target_positions=where, labels=(tokens + 1) % V, supervised=supervised)

    def score(self, target_logits, batch):
        total = F.one_hot(batch.tokens[:, 0] % 2, 2) * torch.tensor(self.times)[batch.tokens].float()
        right = (self.answers(target_logits) == batch.labels).float()
        loss = F.cross_entropy(target_logits[:, 0], batch.labels[:, 0], reduction="none")
        return Score(right=right * total, loss=loss[:, None] * total, total=total)


TASK = Successor()
STRENGTH = (0.2, 0.0, 0.1, 0.05, 3.0, 0.02)
"""Scale of the answer that each head of the planted model writes: one is sufficient, the others together are not."""


def planted():
    """One layer of six heads, no MLP. At the token, the normed stream is 5 ** 0.5 and the stream 2."""
    cfg = TransformerConfig(
        d_vocab=V, d_model=V, n_heads=6, d_head=V, d_mlp=0, n_layers=1, n_ctx=1, positions="none", attn_bias=False
    )
    model = Transformer(cfg)
    attention = model.block(0).attention
    with torch.no_grad():
        model.embed.weight.copy_(2 * torch.eye(V))
        model.unembed.weight.copy_(torch.eye(V))
        attention.v.weight.copy_(torch.eye(V).repeat(6, 1))
        step = torch.eye(V).roll(1, 0)  # row i + 1 has its one in column i
        attention.o.weight.copy_(torch.cat([strength * step for strength in STRENGTH], 1))
    return model


def toy(seed=0, **sizes):
    """A random model for the task, with biases and MLPs."""
    given = {"d_vocab": V, "d_model": 8, "n_heads": 2, "d_mlp": 10, "n_layers": 2, "n_ctx": 1}
    model = Transformer(TransformerConfig(**{**given, **sizes}), seed=seed)
    with torch.no_grad():
        for name, parameter in model.weights.named_parameters():
            if name.endswith("bias"):
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
    return model


def examples(n=N, seed=0):
    return TASK.sample(n, generator=derived_generator(seed, "pruning curve"), split="test")


def accuracy_and_loss(model, batch=None, **hooks):
    batch = examples() if batch is None else batch
    with torch.no_grad():
        logits = model.run_with_hooks(batch.tokens, **hooks)
    score = TASK.score(logits, batch)
    return float(score.right.sum() / score.total.sum()), float(score.loss.sum() / score.total.sum())


def matrices(model):
    return [module for module in model.weights.modules() if isinstance(module, Linear)]


@pytest.fixture
def masks(monkeypatch):
    """Masks of every model that is scored, by weight name, in order."""
    seen = []

    def watch(model, task, batch):
        seen.append({name.removesuffix("_mask"): mask.clone() for name, mask in model.weights.named_buffers()})
        return score_batch(model, task, batch)

    monkeypatch.setattr(curve, "score_batch", watch)
    return seen


def largest(values, fraction):
    """Mask of the largest values, by a plain sort."""
    mask = np.ones(values.size)
    mask[np.argsort(values.ravel())[: values.size - round(fraction * values.size)]] = 0
    return mask.reshape(values.shape)


def strengths(model, endings):
    named = {name: np.abs(value.detach().numpy()) for name, value in model.weights.named_parameters()}
    return {name: value for name, value in named.items() if name.endswith(endings) and value.ndim == 2}


ENDINGS = {
    "magnitude": ".weight",
    **{f"W_{name.upper()}": f"n.{name}.weight" for name in "qkvo"},
    **{f"W_{name}": f"w_{name}.weight" for name in ("in", "out")},
}


@pytest.mark.parametrize("by", ["magnitude", *KINDS])
def test_the_largest_weights_of_all_matrices_are_kept(masks, by):
    model = toy()
    result = pruning_curve(model, TASK, by=by, fractions=FRACTIONS, n=N)
    values = strengths(model, ENDINGS[by])
    assert len(values) == (12 if by == "magnitude" else 2)
    together = np.concatenate([value.ravel() for value in values.values()])
    assert masks[0] == {}  # the whole model
    for point, fraction in enumerate(FRACTIONS):
        found = masks[1 + point]
        assert set(found) == set(values)
        kept = np.concatenate([found[name].numpy().ravel() for name in values]).astype(int)
        assert np.array_equal(kept, largest(together, fraction))
        assert result.kept[0, point] == kept.sum() / together.size
    assert result.size.tolist() == [together.size]
    np.testing.assert_allclose(result.kept[0], FRACTIONS, atol=0.5 / together.size)


def test_the_largest_weights_of_each_matrix_are_kept(masks):
    model = toy()
    pruning_curve(model, TASK, by=("magnitude, each matrix",), fractions=FRACTIONS, n=N)
    for fraction, found in zip(FRACTIONS, masks[1:], strict=True):
        for name, value in strengths(model, ".weight").items():
            assert np.array_equal(found[name].numpy(), largest(value, fraction)), name


def test_hidden_units_are_pruned_from_the_smallest_norm_over_all_layers(masks):
    model = toy()
    with torch.no_grad():
        model.block(0).mlp.w_in.weight.mul_(0.5)  # so that the number pruned differs between layers
    result = pruning_curve(model, TASK, by="structured", fractions=FRACTIONS, n=N)
    norms = np.stack([np.linalg.norm(block.mlp.w_in.weight.detach().numpy(), axis=1) for block in model.stored_blocks])
    for fraction, found in zip(FRACTIONS, masks[1:], strict=True):
        kept = largest(norms, fraction)
        assert len(found) == 6
        for layer, row in enumerate(kept):
            assert np.array_equal(found[f"{layer}.mlp.w_in.weight"], np.repeat(row[:, None], 8, 1))
            assert np.array_equal(found[f"{layer}.mlp.w_in.bias"], row)
            assert np.array_equal(found[f"{layer}.mlp.w_out.weight"], np.repeat(row[None], 8, 0))
    assert result.size.tolist() == [20]
    assert result.kept[0].tolist() == [1, 0.6, 0.25, 0]
    silent = [(f"blocks.{layer}.mlp.hook_post", Zero().hook()) for layer in range(2)]
    accuracy, loss = accuracy_and_loss(model, fwd_hooks=silent)
    assert (result.accuracy[0, -1], result.loss[0, -1]) == pytest.approx((accuracy, loss), abs=1e-6)


def test_hidden_units_of_four_matrix_mlps():
    model = toy(block="extended", attn_bias=False)
    result = pruning_curve(model, TASK, by="structured", fractions=(0.5,), n=N)
    first = [block.mlp.w_in.weight for block in model.stored_blocks]
    kept = largest(np.stack([np.linalg.norm(weight.detach().numpy(), axis=1) for weight in first]), 0.5)
    assert 0 < kept[0].sum() < 10
    for weight, row in zip(first, kept, strict=True):
        weight.data *= torch.from_numpy(row[:, None]).float()
    assert result.loss[0, 0] == pytest.approx(accuracy_and_loss(model)[1], abs=1e-6)


@pytest.mark.parametrize("sizes", [{"block": "dyck"}, {"block": "bare"}, {"qk_identity": True, "vo_identity": True}])
def test_accuracy_and_loss_equal_those_with_weights_set_to_zero(sizes):
    model = toy(**sizes)
    result = pruning_curve(model, TASK, by=("magnitude", "W_V"), fractions=(0.3, 0), n=N)
    for row, name in enumerate(result.by):
        for point, fraction in enumerate((0.3, 0)):
            zeroed = copy.deepcopy(model)
            values = strengths(model, ENDINGS[name])
            mask = largest(np.concatenate([value.ravel() for value in values.values()]), fraction)
            parts = np.split(mask, np.cumsum([value.size for value in values.values()])[:-1])
            weights = dict(zeroed.weights.named_parameters())
            for key, part in zip(values, parts, strict=True):
                weights[key].data *= torch.from_numpy(part.reshape(values[key].shape)).float()
            accuracy, loss = accuracy_and_loss(zeroed)
            assert (result.accuracy[row, point], result.loss[row, point]) == pytest.approx((accuracy, loss), abs=1e-6)


def test_endpoints_are_the_whole_model_and_one_without_the_matrices(tiny):
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=16, n_heads=2))
    result = pruning_curve(model, tiny, fractions=(0, 1), n=N)
    assert result.by == get_args(By)
    batch = tiny.sample(N, generator=derived_generator(0, "pruning curve"), split="test")
    score = score_batch(model, tiny, batch)
    assert result.clean == float(score.right.sum()) / (2 * N)  # two variables: both count
    assert result.clean_loss == pytest.approx(float(score.loss.sum()) / (2 * N))
    assert set(result.kept[:, 0]) == {1.0}  # sorted from the largest fraction
    assert set(result.accuracy.value[:, 0]) == {result.clean}
    np.testing.assert_array_equal(result.loss[:, 0], result.clean_loss)
    assert np.ptp(result.loss[:3, 1]) == 0  # all matrices zero, for every criterion
    for part, rows in (("q", [3]), ("k", [4]), ("v", [5])):
        zeroed = copy.deepcopy(model)
        for block in zeroed.stored_blocks:
            getattr(block.attention, part).weight.data.zero_()
        assert result.loss[rows, 1] == pytest.approx(float(score_batch(zeroed, tiny, batch).loss.sum()) / (2 * N))
    assert (
        (result.accuracy.low[:, 0] <= result.accuracy[:, 0]) & (result.accuracy[:, 0] <= result.accuracy.high[:, 0])
    ).all()
    assert result.accuracy.low[0, 0] < result.clean


def test_intervals_are_over_examples():
    once = Successor(times=(1,) * V)
    result = pruning_curve(toy(), once, by=("magnitude", "heads"), fractions=(0.5,), n=N)
    for accuracy, low, high in zip(
        result.accuracy[:, 0], result.accuracy.low[:, 0], result.accuracy.high[:, 0], strict=True
    ):
        right = round(accuracy * N)
        assert 0 < right < N
        assert low < float(proportion_interval(np.array(right), N)[0])  # there are six inputs: fewer than N answers
        assert high > float(proportion_interval(np.array(right), N)[1])
        assert 0 <= low < accuracy < high <= 1


def test_model_is_unchanged():
    model = toy().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    pruning_curve(model, TASK, fractions=(0.5, 0), n=8)
    assert torch.equal(torch.get_rng_state(), state)
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert not prune.is_pruned(model)
    assert model.training
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_heads_are_ablated_from_the_least_important_to_the_planted_one():
    result = pruning_curve(planted(), TASK, by=("heads", "heads, random order"), n=N)
    assert result.clean == 1
    assert result.order == ((0, 1), (0, 5), (0, 3), (0, 2), (0, 0), (0, 4))
    np.testing.assert_allclose(result.kept[0], np.linspace(1, 0, 7), atol=1e-12)
    assert result.accuracy.value[0].tolist() == [1] * 6 + [0]
    assert result.least_kept("heads") == pytest.approx(1 / 6)
    assert result.size.tolist() == [6, 6]
    assert result.kept[1].tolist() == result.kept[0].tolist()
    assert (result.accuracy[1, 1:-1] <= result.accuracy[0, 1:-1]).all()
    assert 0 < result.accuracy.value[1, 1:-1].mean() < 1
    assert result.accuracy[1, -1] == 0


def test_heads_are_ranked_on_validation_and_curves_measured_on_test_examples():
    class Recorded(Successor):
        def sample(self, n, *, generator, split="train"):
            splits.append((split, n))
            return super().sample(n, generator=generator, split=split)

    splits = []
    pruning_curve(planted(), Recorded(), by="heads", n=12)
    assert sorted(splits) == [("test", 12), ("validation", 12)]


@pytest.mark.parametrize("sizes", [{"vo_identity": True}, {"tied": True}])
def test_points_equal_the_model_with_heads_hooked_to_zero(sizes, monkeypatch):
    monkeypatch.setattr(curve, "TOKENS_PER_CHUNK", 9)  # two parts
    model = toy(**sizes)
    point = "hook_result" if model.cfg.vo_identity else "hook_z"
    if model.cfg.vo_identity:
        model.block(0).attention.b.data.fill_(0.7)

    def without(heads, batch):
        hooks = [(f"blocks.{layer}.attn.{point}", Zero().hook(head=head)) for layer, head in heads]
        return accuracy_and_loss(model, batch, fwd_hooks=hooks)

    result = pruning_curve(model, TASK, by=("heads", "heads, random order"), n=N)
    for gone in range(len(result.order) + 1):
        assert (result.accuracy[0, gone], result.loss[0, gone]) == pytest.approx(
            without(result.order[:gone], examples()), abs=1e-6
        )
    hooks = [(f"blocks.{layer}.attn.{point}", Zero().hook(head=head)) for layer, head in result.order[:1]]
    score = TASK.score(model.run_with_hooks(examples().tokens, fwd_hooks=hooks), examples())
    interval = pooled_interval(*per_input(examples(), score.right.sum(1), score.total.sum(1)))
    assert (result.accuracy[0, 1], result.accuracy.low[0, 1], result.accuracy.high[0, 1]) == pytest.approx(
        tuple(map(float, interval))
    )
    generator = derived_generator(0, "pruning curve", "importance")
    validation = TASK.sample(N, generator=generator, split="validation")
    alone = [without([head], validation)[1] for head in result.order]
    assert len(set(alone)) == len(alone) == model.cfg.n_layers * 2
    assert alone == sorted(alone)
    generator = derived_generator(0, "pruning curve", "orders")
    orders = [torch.randperm(len(alone), generator=generator).tolist() for _ in range(5)]
    every = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(2)]
    by_hand = [without([every[index] for index in order[:1]], examples()) for order in orders]
    assert len({order[0] for order in orders}) > 1
    found = result.accuracy[1, 1], result.loss[1, 1]
    assert found == pytest.approx(tuple(np.mean(by_hand, 0)), abs=1e-6)


def test_padding_does_not_change_the_curves():
    """Padded sentences have the same curves as the sentences without padding."""
    model = Transformer(interp.config_for(Padded(n_vars=2), n_layers=1, d_model=8, n_heads=2, n_ctx=17))
    results = [
        pruning_curve(model, task, by=("magnitude", "heads"), fractions=(0.5,), n=N)
        for task in (Padded(n_vars=2, left=2, right=3), Padded(n_vars=2))
    ]
    np.testing.assert_allclose(results[0].loss, results[1].loss, atol=1e-6)
    np.testing.assert_array_equal(results[0].accuracy, results[1].accuracy)
    assert np.ptp(results[0].loss[1]) > 1e-3


def test_many_heads_are_ablated_several_at_a_time():
    result = pruning_curve(toy(n_heads=8, n_layers=4), TASK, by=("magnitude", "heads"), fractions=(1, 0), n=8)
    assert result.kept.shape == (2, 21)
    assert (result.kept[1, 0], result.kept[1, -1]) == (1, 0)
    assert np.all(np.diff(result.kept[1]) < 0)
    np.testing.assert_array_equal(result.kept[1] * 32, np.round(result.kept[1] * 32))
    assert np.isnan(result.kept[0, 2:]).all()
    assert np.isnan(result.accuracy[0, 2:]).all()
    assert len(result.to_dataframe()) == 2 + 21


def test_random_masks_are_seeded_and_nested(masks):
    model = toy()
    ask = {"by": "random", "fractions": (0.8, 0.5, 0.1), "n": 8}
    for seed, noise in ((0, 1), (0, 2), (3, 1)):
        torch.manual_seed(noise)
        pruning_curve(model, TASK, seed=seed, **ask)
    flat = [torch.cat([mask.flatten() for mask in found.values()]) for found in masks if found]
    first, again, other = flat[:3], flat[3:6], flat[6:]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[1], other[1])
    assert [int(mask.sum()) for mask in first] == [round(part * len(first[0])) for part in (0.8, 0.5, 0.1)]
    assert (first[2] <= first[1]).all()
    assert (first[1] <= first[0]).all()
    strength = np.concatenate([value.ravel() for value in strengths(model, ".weight").values()])
    agreed = (first[1].numpy() == largest(strength, 0.5)).mean()
    assert abs(agreed - 0.5) < 5 * 0.5 / len(strength) ** 0.5  # agreement with magnitude is at chance


def test_curves_are_independent_of_each_other_and_of_their_order(tmp_path):
    model = toy()
    names = ("heads, random order", "structured", "W_O", "random", "heads")
    for index, by in enumerate((names, names[::-1])):
        pruning_curve(model, TASK, by=by, fractions=(0.5, 0.2)[:: 1 - 2 * index], n=N).save(tmp_path / f"{index}.json")
    together = PruningCurve.load(tmp_path / "0.json")
    assert together == PruningCurve.load(tmp_path / "1.json")
    assert together.by == ("random", "W_O", "structured", "heads", "heads, random order")
    for name in ("random", "heads, random order"):
        alone = pruning_curve(model, TASK, by=name, fractions=(0.5, 0.2), n=N)
        row = together.by.index(name)
        np.testing.assert_array_equal(alone.accuracy[0], together.accuracy[row, : alone.accuracy.shape[1]])
        assert alone.order == ()


def test_tied_block_counts_once():
    tied, one = toy(tied=True, n_layers=3), toy(n_layers=1)
    result = pruning_curve(tied, TASK, by=("magnitude", "structured", "heads"), fractions=FRACTIONS, n=N)
    assert result.size.tolist() == [sum(matrix.weight.numel() for matrix in matrices(one)), 10, 6]
    zeroed = copy.deepcopy(tied)
    prune.global_unstructured([(matrix, "weight") for matrix in matrices(zeroed)], prune.L1Unstructured, amount=0.75)
    assert result.loss[0, 2] == pytest.approx(accuracy_and_loss(zeroed)[1], abs=1e-6)
    deeper = pruning_curve(tied.at_depth(4), TASK, by=("magnitude", "heads"), fractions=(1, 0), n=8)
    assert deeper.size.tolist() == [result.size[0], 8]
    assert not prune.is_pruned(tied)


def test_curves_are_those_that_apply_to_the_model():
    uniform = ((HeadPattern(kind="uniform"),) * 2,)
    bare = toy(d_mlp=0, output_projection=False, head_patterns=uniform, attn_bias=False)
    rest = ("magnitude", "magnitude, each matrix", "random", "W_V", "heads", "heads, random order")
    result = pruning_curve(bare, TASK, fractions=(1, 0), n=8)
    assert result.by == rest
    assert result.size.tolist() == [128, 128, 128, 128, 4, 4]
    deep = pruning_curve(toy(block="extended", attn_bias=False), TASK, fractions=(0.5,), n=8)
    assert deep.by == get_args(By)
    assert deep.size[0] == 2 * (4 * 64 + 64 + 2 * 80 + 2 * 100)


def a_result(**changes):
    kept = np.array([[1, 0.5, 0.21, 0.1, 0.0], [1, 0, np.nan, np.nan, np.nan]])
    accuracy = np.array([[0.98, 0.97, 0.975, 0.6, 0.975], [0.98, 0.5, np.nan, np.nan, np.nan]])
    values = {
        "by": ("magnitude", "heads"),
        "size": np.array([1000, 1]),
        "kept": kept,
        "accuracy": Interval(value=accuracy, low=accuracy - 0.02, high=accuracy + 0.01, n=200),
        "loss": 1 - accuracy,
        "clean": 0.98,
        "clean_loss": 0.02,
        "chance": 0.5,
        "order": ((0, 0),),
        "n": 200,
    }
    return PruningCurve(**{**values, **changes})


def test_least_kept_is_the_first_drop(as_a_user):
    result = a_result()
    assert result.least_kept("magnitude") == 0.21  # the recovery at 0 does not count
    assert result.least_kept("magnitude", lost=0.001) == 1
    assert result.least_kept("magnitude", lost=1.0) == 0
    assert result.least_kept("heads", lost=1.0) == 0
    assert np.isnan(a_result(clean=1.0).least_kept("magnitude"))
    with pytest.raises(ValueError, match=r"by is 'random'; this result has 'magnitude', 'heads'. Choose one of them"):
        result.least_kept("random")


def test_result_saves_prints_and_plots(tmp_path):
    result = a_result()
    result.save(tmp_path / "r.json")
    again = PruningCurve.load(tmp_path / "r.json")
    np.testing.assert_array_equal(again.accuracy, result.accuracy)
    assert (again.by, again.order, again.n) == (result.by, result.order, result.n)
    frame = again.to_dataframe()
    assert list(frame) == ["by", "size", "kept", "accuracy", "low", "high", "loss", "clean", "clean_loss", "n"]
    assert frame["by"].tolist() == ["magnitude"] * 5 + ["heads"] * 2
    assert frame["accuracy"].tolist() == [0.98, 0.97, 0.975, 0.6, 0.975, 0.98, 0.5]
    assert str(again).splitlines()[2].split() == ["magnitude", "1,000", "0.210", "0.970", "0.975", "0.600", "0.975"]
    assert str(again).splitlines()[3].split() == ["heads", "1", "1.000", "-", "-", "-", "0.500"]
    assert "200 test examples" in str(again)
    assert again.plot().to_dict()["resolve"] == {"scale": {"color": "independent"}}  # a legend per panel
    text = again.plot().to_json()
    assert all(words in text for words in ("all matrices", "hidden units and heads", "n = 200", "fraction kept"))
    assert "one kind of matrix" not in text
    assert "<svg" in again._repr_html_()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"by": "size"}, "by is 'size'; it must be 'all' or 'magnitude' or .* or 'heads, random order' or a list"),
        ({"by": ("random", "all")}, r"by\[1\] is 'all'; choose one of"),
        ({"by": ()}, "by is empty; choose among 'magnitude', .*, or omit it for all"),
        (
            {"by": ["magnitude", "W_O"]},
            "by has 'W_O', but this model has nothing of that kind; it has .*'W_V', 'heads'",
        ),
        ({"by": "structured"}, "by has 'structured', but this model has nothing of that kind"),
        ({"by": "W_in"}, "by has 'W_in', but this model has nothing"),
        ({"fractions": (1, 1.5)}, "fractions is 1.5; it is a share, 0 to 1"),
        ({"fractions": (-0.1,)}, "fractions is -0.1"),
        ({"fractions": (float("nan"),)}, r"fractions\[0\] is nan"),
        ({"fractions": ["a?"]}, r"fractions\[0\] is 'a\?'; it must be a finite number"),
        ({"fractions": ()}, "fractions is empty; give fractions of what to keep"),
        ({"n": 7}, "n is 7; it must be at least 8"),
    ],
)
def test_invalid_arguments_are_refused(as_a_user, settings, words):
    with pytest.raises(ValueError, match=words):
        pruning_curve(toy(d_mlp=0, output_projection=False), TASK, **settings)


def test_unsupported_models_are_refused(as_a_user):
    plain = FullyConnected(FullyConnectedConfig(d_vocab=V, n_ctx=1))
    with pytest.raises(ValueError, match="fully connected network"):
        pruning_curve(plain, TASK)
    model = toy()
    prune.l1_unstructured(model.block(0).attention.q, "weight", amount=0.5)
    with pytest.raises(ValueError, match=r"model is pruned already: .* Make them permanent with prune.remove"):
        pruning_curve(model, TASK)


def by_columns(values):
    return values.T.contiguous().T


def within_a_wider_matrix(values):
    return torch.cat([values, values], -1)[..., : values.shape[-1]]


def every_other_row(values):
    return values.repeat_interleave(2, 0)[::2]


@pytest.mark.parametrize("layout", [by_columns, within_a_wider_matrix, every_other_row])
def test_curves_do_not_depend_on_how_weights_are_stored(layout):
    model = toy()
    stored_otherwise = copy.deepcopy(model)
    for parameter in stored_otherwise.parameters():
        parameter.data = layout(parameter.data) if parameter.ndim == 2 else parameter.data
    strides = [parameter.stride() for parameter in stored_otherwise.parameters()]
    curves = [pruning_curve(each, TASK, n=8, fractions=(0.5, 0)) for each in (model, stored_otherwise)]
    assert str(curves[0]) == str(curves[1])
    assert [parameter.stride() for parameter in stored_otherwise.parameters()] == strides
