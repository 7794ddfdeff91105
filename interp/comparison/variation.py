"""Attention variation: distances between the attention patterns of models, with random baselines."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.interventions.clean_pass import Net
from hooks.model.attention import visible_keys
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, MAY_BE_MISSING, SHARE, SIZE, Axes, checks_types
from interp.comparison.baselines import FLAT, ONE_HOT, RANDOM_BASELINES, SHUFFLED, fixed_baselines, shuffled_distance
from interp.comparison.distances import bootstrap_pairs, mean_over_pairs, pair_distances
from interp.core.activations import chunks, patterns_on
from interp.core.consistency import check_same_numbers, check_that
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator, derived_seed
from interp.core.results import Result
from interp.core.statistics import bootstrap_mean
from interp.core.verbs import AnyModel, Needs, prepare_model
from interp.tasks.base import Batch, Task
from interp.tasks.splits import sample_split
from interp.training.run import TrainingRun

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


WEIGHTS_AT_ONCE = 2**24
"""Most attention weights of all models, layers and heads in memory at the same time, if there are several examples."""
PRINTED_BASELINES = (FLAT, SHUFFLED, ONE_HOT)
"""The baselines that are printed; the table has all of them."""


@dataclass(frozen=True, kw_only=True)
class VariationResult(Result):
    """Mean squared distance between the attention patterns of models, per layer, with 95 % intervals over models.

    Intervals of two models are NaN, as their single pair has none.
    """

    prefixes: Annotated[tuple[str, ...], Axes("prefix")]
    """The texts that the models were run on."""
    n_tokens: Annotated[Int[np.ndarray, " prefix"], COUNT]
    """Number of tokens of each, including those that the task adds."""
    variation: Annotated[Interval, Axes("layer"), SIZE, MAY_BE_MISSING]
    """Per layer: squared Frobenius distance, 0 to 2 per row, mean over pairs, heads and prefixes."""
    by_prefix: Annotated[Float[np.ndarray, "prefix layer"], SIZE, MAY_BE_MISSING]
    by_head: Annotated[Float[np.ndarray, "layer head"], SIZE, MAY_BE_MISSING]
    distance: Annotated[Float[np.ndarray, "layer model model"], SIZE, MAY_BE_MISSING]
    """Distance between every two models, mean over heads and prefixes; the matrix to cluster."""
    entropy: Annotated[Interval, Axes("layer"), SIZE, MAY_BE_MISSING]
    """Per layer: mean row entropy in nats, over models, heads, prefixes and the queries that see several keys."""
    relative_entropy: Annotated[Interval, Axes("layer"), SHARE, MAY_BE_MISSING]
    """Per layer: mean row entropy as a fraction of its maximum, 0 for a single key, 1 for uniform."""
    relative_of_model: Annotated[Float[np.ndarray, "model layer"], SHARE, MAY_BE_MISSING]
    """Relative entropy of each model."""
    baselines: Annotated[tuple[str, ...], Axes("baseline"), DISTINCT]
    """Names of the random baselines; see `interp.comparison.baselines.RANDOM_BASELINES`."""
    baseline: Annotated[Float[np.ndarray, "baseline layer"], SIZE, MAY_BE_MISSING]
    """Expected distance between two random patterns, mean over prefixes."""
    baseline_error: Annotated[Float[np.ndarray, "baseline layer"], SIZE, MAY_BE_MISSING]
    """Its standard error if simulated; 0 if in closed form."""
    baseline_by_prefix: Annotated[Float[np.ndarray, "baseline prefix layer"], SIZE, MAY_BE_MISSING]
    resamples: Annotated[int, COUNT]
    """Number of bootstrap resamples of the models."""
    n: Annotated[int, COUNT]
    """Number of models, the independent units."""
    n_pairs: Annotated[int, COUNT]
    """Number of pairs of models."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (FLAT, SHUFFLED):
            if name not in self.baselines:
                raise ValueError(
                    f"baselines has no {name!r}, to which charts and tables compare; it has {self.baselines}."
                )
        n_models, n_pairs = len(self.relative_of_model), self.n * (self.n - 1) // 2
        check_that(n_models == self.n, f"n is {self.n} models; relative_of_model has {n_models}.")
        check_that(self.n_pairs == n_pairs, f"n_pairs is {self.n_pairs}; {self.n} models have {n_pairs}.")
        check_same_numbers("distance", self.distance, self.distance.swapaxes(1, 2), "that of the same models, swapped,")
        for name, values in (("by_prefix", self.by_prefix.mean(0)), ("by_head", self.by_head.mean(1))):
            check_same_numbers("variation", self.variation.value, values, f"the mean of {name}")

    def ratio_to(self, baseline: str = FLAT) -> Float[np.ndarray, " layer"]:
        """Variation divided by a baseline: 1 if patterns are at the distance of random ones.

        Raises:
            ValueError: an unknown baseline.
        """
        if baseline not in self.baselines:
            raise ValueError(f"baseline is {baseline!r}; choose one of: {'; '.join(self.baselines)}.")
        return self.variation.value / self.baseline[self.baselines.index(baseline)]

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per layer."""
        columns = self.variation.columns("variation") | self.entropy.columns("entropy", "entropy_low", "entropy_high")
        columns |= self.relative_entropy.columns("relative_entropy", "relative_low", "relative_high")
        columns |= {"ratio": self.ratio_to(), **dict(zip(self.baselines, self.baseline, strict=True))}
        return self._table({"layer": range(len(self.variation))}, **columns, n=self.n, n_pairs=self.n_pairs)

    def plot(self) -> "alt.TopLevelMixin":
        """A point and an interval per layer, the shuffled-keys baseline as points, the flat simplex as a line."""
        from interp.view.charts import dots

        flat = self.baseline[self.baselines.index(FLAT)]
        shuffled = self.baseline[self.baselines.index(SHUFFLED)]
        # The models and the baseline, whose interval is a point.
        columns = {}
        for name, ends in self.variation.columns("variation").items():
            columns[name] = np.stack([np.where(np.isnan(ends), self.variation, ends), shuffled])
        table = self._table({"patterns": ("models", SHUFFLED), "layer": range(len(shuffled))}, **columns)
        return dots(
            table,
            x="layer",
            y="variation",
            series="patterns",
            rule=float(flat[0]),
            domain=(0.0, 1.05 * float(max(flat[0], columns["high"].max()))),
            title=f"squared distance between patterns, {self.n} models, {self.n_pairs} pairs; dashed: flat simplex",
        )

    def __str__(self) -> str:
        lines = [f"{'layer':<6}{'variation':>10}  {'95 % over models':<18}{'ratio':>7}{'entropy':>10}"]
        for layer, ratio in enumerate(self.ratio_to()):
            variation, entropy = self.variation[layer], self.relative_entropy[layer]
            ends = "no interval" if np.isnan(variation.low) else f"[{variation.low:.3f}, {variation.high:.3f}]"
            lines.append(f"{layer:<6}{variation:>10.3f}  {ends:<18}{ratio:>7.2f}{entropy:>10.2f}")
        for name, row in zip(self.baselines, self.baseline, strict=True):
            if name in PRINTED_BASELINES:
                spread = f"{row[0]:.3f}" if np.ptp(row) == 0 else " ".join(f"{value:.3f}" for value in row)
                lines.append(f"{name}: {spread}")
        prefixes = "1 prefix" if len(self.prefixes) == 1 else f"{len(self.prefixes)} prefixes"
        tokens = "-".join(str(length) for length in sorted({int(self.n_tokens.min()), int(self.n_tokens.max())}))
        foot = f"{self.n} models, {self.n_pairs} pairs, {prefixes} of {tokens} tokens; ratio to the flat simplex"
        return "\n".join([*lines, foot])


NEEDS = Needs("attention_variation", reads=["attn.hook_pattern"])


@checks_types
@restores_state
def attention_variation(
    models: Sequence[AnyModel | TrainingRun],
    task: Task,
    *,
    prefixes: str | Sequence[str] | None = None,
    n_sampled: int = 0,
    n_baseline: int = 1000,
    resamples: int = 2000,
    seed: int = 0,
) -> VariationResult:
    """Attention variation: squared Frobenius distance between the patterns of two models, mean over pairs, per layer.

    The models are the independent units, not the pairs, which share models: the 95 % interval resamples models. It
    covers differences between seeds, not between prefixes.

    Heads are compared by index and averaged, not summed; with one head, as in the paper, this is the same. A distance
    grows with the prefix, by up to 2 per row, so longer prefixes have a larger weight; the baselines are averaged in
    the same way, so that ratios to a baseline are comparable across lengths.

    Args:
        models: Two or more with the same numbers of layers and heads and the same kind of attention. They are not
            changed, except that they are put in evaluation mode.
        task: Task that parses the prefixes or samples examples.
        prefixes: One or several texts, default: none if `n_sampled` is positive, else the probe prefix of the task
            (Dyck's `staircase`, every type and depth once), else one sampled example.
        n_sampled: Number of held-out examples to sample in addition to the prefixes.
        n_baseline: Largest number of pairs of random patterns in a simulated baseline. Long prefixes get fewer; the
            result has the standard error.
        resamples: Number of bootstrap resamples of the models.
        seed: Determines the sampled examples, the simulated baselines and the resamples.

    Raises:
        ValueError: fewer than two models, the same model twice, models of different shapes or with a smaller
            vocabulary, a pattern that is not finite, no prefix, one that the task cannot parse or in which no query
            sees several keys, a negative `n_sampled`, or fewer than 2 baseline pairs or resamples.

    Example:
        >>> import interp
        >>> from hooks import Transformer
        >>> task = interp.tasks.Dyck()
        >>> config = interp.config_for(task, n_layers=1, n_heads=2, d_model=16)
        >>> models = [Transformer(config, seed=seed) for seed in range(3)]
        >>> (interp.attention_variation(models, task, n_baseline=8).ratio_to() < 1).tolist()
        [True]

    Source: bounded Dyck (arXiv:2312.01429) Section 4.1, with its probe prefix. Differs: an interval, several prefixes,
    several heads, and more baselines. The paper's are random square matrices (its footnote 14), `flat simplex,
    unmasked`; ratios are to causal rows, `flat simplex`, which are further apart.
    """
    if min(n_baseline, resamples) < 2 or n_sampled < 0:
        raise ValueError(
            f"n_sampled is {n_sampled}, n_baseline {n_baseline} and resamples {resamples}; choose n_sampled 0 or more "
            "and 2 or more of the others."
        )
    # Distances and entropies on each prefix.
    nets = _checked(models, task)
    n = len(nets)
    readings: list[_Reading] = []
    for batch in _batches(task, prefixes, n_sampled, seed):
        readings += _read(nets, task, batch)
    # Distances between models, and the entropy of each, with intervals from resampled models.
    distance = np.stack([reading.distance for reading in readings])
    mean_distance = distance.mean((0, 2))
    variation, low, high = bootstrap_pairs(mean_distance, seed=derived_seed(seed, "models"), resamples=resamples)
    entropy = np.mean([reading.entropy for reading in readings], axis=0)
    entropies, lows, highs = bootstrap_mean(entropy, seed=derived_seed(seed, "models"), resamples=resamples)
    if n == 2:
        lows, highs = np.full((2, *entropies.shape), np.nan)
    nats = Interval(value=entropies[:, 0], low=lows[:, 0], high=highs[:, 0], n=n)
    relative = Interval(value=entropies[:, 1], low=lows[:, 1], high=highs[:, 1], n=n)
    baseline, error = _baselines(readings, n_baseline, seed)
    return VariationResult(
        prefixes=tuple(reading.text for reading in readings),
        n_tokens=np.array([(reading.n_keys > 0).sum() for reading in readings]),
        variation=Interval(value=variation, low=low, high=high, n=n),
        by_prefix=mean_over_pairs(distance.mean(2)),
        by_head=mean_over_pairs(distance.mean(0)),
        distance=mean_distance,
        entropy=nats,
        relative_entropy=relative,
        relative_of_model=entropy[:, :, 1],
        baselines=RANDOM_BASELINES,
        baseline=baseline.mean(1),
        baseline_error=error,
        baseline_by_prefix=baseline,
        resamples=resamples,
        n=n,
        n_pairs=n * (n - 1) // 2,
    )


def _checked(models: Sequence[AnyModel | TrainingRun], task: Task) -> list[Net]:
    """The models in a form that can be read, if they can be compared on this task."""
    if len(models) < 2:
        raise ValueError(f"models has length {len(models)}; variation needs two or more models. Train another seed.")
    indices: dict[int, int] = {}
    nets: list[Net] = []
    for index, model in enumerate(models):
        if isinstance(model, TrainingRun):
            model = model.model
        net = prepare_model(model, NEEDS, task)
        nets.append(net)
        # Each model once, all of the same shape, and with the task's vocabulary.
        identity = id(net.owner)
        if indices.setdefault(identity, index) != index:
            raise ValueError(
                f"models[{index}] is models[{indices[identity]}] again; its distance from itself would count as "
                "agreement. Pass each model once."
            )
        shape, first_shape = _shape(net), _shape(nets[0])
        if shape != first_shape:
            raise ValueError(
                f"models[{index}] has {shape}, models[0] has {first_shape}; their patterns are not comparable. Compare "
                "models with the same layers, heads and attention."
            )
        if net.cfg.d_vocab < task.d_vocab:
            raise ValueError(
                f"models[{index}] has {net.cfg.d_vocab} tokens, the task has {task.d_vocab}; pass the task that the "
                "models were trained on."
            )
    return nets


def _shape(model: Net) -> str:
    return f"{model.cfg.n_layers} layers, {model.cfg.n_heads} heads, {model.cfg.attention} attention"


def _batches(task: Task, prefixes: str | Sequence[str] | None, n_sampled: int, seed: int) -> Iterator[Batch]:
    """Inputs of the models: a batch per text, since lengths differ, and one of all sampled examples."""
    if prefixes is None:
        prefixes = () if n_sampled else task.default_texts()
        n_sampled = n_sampled or int(not prefixes)
    texts = [prefixes] if isinstance(prefixes, str) else list(prefixes)
    if not texts and not n_sampled:
        raise ValueError("prefixes is empty and n_sampled is 0, so there is no input; pass one of them.")
    for text in texts:
        yield task.read(text)
    if n_sampled:
        yield sample_split(task, n_sampled, generator=derived_generator(seed, "variation"), split="test")


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """Distances and entropies on one prefix."""

    text: str
    n_keys: Int[np.ndarray, " query"]
    """Number of keys visible to each query; 0 for padding."""
    distance: Float[np.ndarray, "layer head model model"]
    entropy: Float[np.ndarray, "model layer 2"]
    """Mean over heads and rows with several keys: in nats, and as a fraction of the maximum."""
    shuffled: Float[np.ndarray, " layer"]
    """The baseline of shuffled keys, which depends on the models."""


@torch.no_grad()
def _read(models: list[Net], task: Task, batch: Batch) -> Iterator[_Reading]:
    """Compare the patterns of all models on each example."""
    cfg = models[0].cfg
    weights_of_example = len(models) * cfg.n_layers * cfg.n_heads * batch.tokens.shape[1] ** 2
    for chunk in chunks(batch, max(1, WEIGHTS_AT_ONCE // weights_of_example)):
        yield from _read_chunk(models, task, chunk)


def _read_chunk(models: list[Net], task: Task, batch: Batch) -> Iterator[_Reading]:
    # Patterns of all models, without the rows of padding.
    tokens, mask = batch.tokens, batch.attention_mask
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    n_keys = visible_keys(models[0].cfg, tokens, mask).sum(-1) * real
    patterns = patterns_on(models, batch)
    if mask is not None:
        patterns *= mask[:, None, :, None]
    for row, keys in enumerate(n_keys):
        layers = patterns[:, :, row]
        text = task.text(tokens[row][real[row]])
        if keys.max() < 2:
            raise ValueError(
                f"prefixes has {text!r}, which is a single token; give a prefix in which a query sees several keys."
            )
        yield _Reading(
            text=text,
            n_keys=keys.numpy(),
            distance=np.stack([pair_distances(layer) for layer in layers]),
            entropy=np.stack([_entropy(layer, keys) for layer in layers], axis=1),
            shuffled=np.array([shuffled_distance(layer, keys.numpy()).mean() for layer in layers]),
        )


def _entropy(
    patterns: Float[Tensor, "model head query key"], n_keys: Int[Tensor, " query"]
) -> Float[np.ndarray, "model 2"]:
    """Mean entropy over heads and the rows with several keys: in nats, and as a fraction of the maximum."""
    several = n_keys > 1
    entropy = torch.special.entr(patterns).sum(-1).double()[..., several]
    highest = n_keys[several].double().log()
    return torch.stack([entropy.mean((1, 2)), (entropy / highest).mean((1, 2))], 1).numpy()


def _baselines(
    readings: list[_Reading], n: int, seed: int
) -> tuple[Float[np.ndarray, "baseline prefix layer"], Float[np.ndarray, "baseline layer"]]:
    """Value per prefix and layer; standard error of the mean over prefixes, as if they shared their draws."""
    # Baselines that depend only on the numbers of visible keys: computed once for all prefixes that share them.
    by_n_keys: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}
    for reading in readings:
        key = reading.n_keys.tobytes()
        if key not in by_n_keys:
            by_n_keys[key] = fixed_baselines(reading.n_keys, n=n, seed=seed)
    fixed = [by_n_keys[reading.n_keys.tobytes()] for reading in readings]
    # They are the same for every layer.
    layers = np.ones(len(readings[0].shuffled))
    values = np.stack([prefix_values for prefix_values, _ in fixed], 1)[..., None] * layers
    errors = np.stack([prefix_errors for _, prefix_errors in fixed], 1)[..., None] * layers
    # The last baseline is that of the models' own rows, which has no error.
    shuffled = np.stack([reading.shuffled for reading in readings])[None]
    no_error = np.zeros((1, len(layers)))
    return np.concatenate([values, shuffled]), np.concatenate([errors.mean(1), no_error])
