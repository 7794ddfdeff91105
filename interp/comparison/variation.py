"""How far apart do models look that were trained alike? Attention patterns compared pair by pair."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import BridgeModel
from hooks.interventions.ablation_engine import Net
from interp.comparison.baselines import NAMES, same_for_every_layer, shuffled_distance
from interp.comparison.distances import bootstrap_pairs, mean_over_pairs, pair_distances
from interp.core.activations import patterns_on
from interp.core.randomness import derived_generator, derived_seed
from interp.core.results import Result
from interp.core.statistics import bootstrap_mean
from interp.core.verbs import AnyModel, prepare_model, visible_keys
from interp.tasks import Dyck, Lego
from interp.tasks.base import Batch, Task
from interp.tasks.dyck.brackets import START
from interp.tasks.lego.chain import read_sentence
from interp.training.run import TrainingRun

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


SHOWN = ("flat simplex", "own rows, keys shuffled", "one-hot rows")
"""The baselines in print; a table has all of them."""


@dataclass(frozen=True, kw_only=True)
class VariationResult(Result):
    """Mean squared distance between the attention patterns of models, per layer. Intervals are 95 %, over models."""

    prefixes: tuple[str, ...]
    """What the models were shown."""
    n_tokens: Int[np.ndarray, " prefix"]
    """Tokens of each, with what the task puts before it."""
    variation: Float[np.ndarray, " layer"]
    """Mean over pairs of the squared Frobenius distance, then over heads and prefixes: 0 to 2 per row."""
    low: Float[np.ndarray, " layer"]
    high: Float[np.ndarray, " layer"]
    """Ends of the interval; not a number with two models, whose one pair has none."""
    by_prefix: Float[np.ndarray, "prefix layer"]
    by_head: Float[np.ndarray, "layer head"]
    distance: Float[np.ndarray, "layer model model"]
    """The distance of every two models, mean over heads and prefixes: what to cluster."""
    entropy: Float[np.ndarray, " layer"]
    """Mean row entropy in nats, over models, heads, prefixes and the queries with a choice of keys."""
    entropy_low: Float[np.ndarray, " layer"]
    entropy_high: Float[np.ndarray, " layer"]
    relative_entropy: Float[np.ndarray, " layer"]
    """The same, each row as a fraction of the largest possible: 0 on one key, 1 uniform."""
    relative_low: Float[np.ndarray, " layer"]
    relative_high: Float[np.ndarray, " layer"]
    relative_of_model: Float[np.ndarray, "model layer"]
    """The relative entropy of each model."""
    baselines: tuple[str, ...]
    """What random patterns are like; `interp.comparison.baselines.NAMES` says more."""
    baseline: Float[np.ndarray, "baseline layer"]
    """Expected distance of two random patterns, mean over prefixes."""
    baseline_error: Float[np.ndarray, "baseline layer"]
    """Its standard error where it was simulated; 0 in closed form."""
    baseline_by_prefix: Float[np.ndarray, "baseline prefix layer"]
    resamples: int
    """Resamples of the models behind the intervals."""
    n: int
    """Models: the independent units."""
    n_pairs: int

    def ratio_to(self, baseline: str = "flat simplex") -> Float[np.ndarray, " layer"]:
        """Variation over a baseline: 1 for patterns as far apart as random ones of that kind.

        Raises:
            ValueError: a baseline that there is not.
        """
        if baseline not in self.baselines:
            raise ValueError(f"baseline is {baseline!r}; choose one of: {'; '.join(self.baselines)}.")
        return self.variation / self.baseline[self.baselines.index(baseline)]

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per layer."""
        names = ("variation", "low", "high", "entropy", "entropy_low", "entropy_high")
        names += ("relative_entropy", "relative_low", "relative_high")
        baselines = dict(zip(self.baselines, self.baseline, strict=True))
        more = {"ratio": self.ratio_to(), **baselines, "n": self.n, "n_pairs": self.n_pairs}
        return self._table({"layer": range(len(self.variation))}, *names, **more)

    def plot(self) -> "alt.TopLevelMixin":
        """A point and an interval per layer, beside the models' own rows shuffled, over the flat simplex as a line."""
        import pandas as pd

        from interp.view.charts import dots

        layers = np.arange(len(self.variation))
        flat, own = (self.baseline[self.baselines.index(name)] for name in ("flat simplex", "own rows, keys shuffled"))
        low, high = (np.where(np.isnan(end), self.variation, end) for end in (self.low, self.high))
        found = {"layer": layers, "variation": self.variation, "low": low, "high": high, "what": "models"}
        shuffled = {"layer": layers, "variation": own, "low": own, "high": own, "what": "own rows, keys shuffled"}
        points = pd.concat([pd.DataFrame(found), pd.DataFrame(shuffled)])
        return dots(
            points,
            x="layer",
            y="variation",
            series="what",
            rule=float(flat[0]),
            domain=(0.0, 1.05 * float(max(flat[0], high.max(), own.max()))),
            title=f"squared distance of patterns, {self.n} models, {self.n_pairs} pairs; dashed: flat simplex",
        )

    def __str__(self) -> str:
        lines = [f"{'layer':<6}{'variation':>10}  {'95 % over models':<18}{'ratio':>7}{'entropy':>10}"]
        for layer, value in enumerate(self.variation):
            ends = "no interval" if np.isnan(self.low[layer]) else f"[{self.low[layer]:.3f}, {self.high[layer]:.3f}]"
            ratio, entropy = self.ratio_to()[layer], self.relative_entropy[layer]
            lines.append(f"{layer:<6}{value:>10.3f}  {ends:<18}{ratio:>7.2f}{entropy:>10.2f}")
        for name, row in zip(self.baselines, self.baseline, strict=True):
            if name in SHOWN:
                spread = f"{row[0]:.3f}" if np.ptp(row) == 0 else " ".join(f"{value:.3f}" for value in row)
                lines.append(f"{name}: {spread}")
        shown = "1 prefix" if len(self.prefixes) == 1 else f"{len(self.prefixes)} prefixes"
        tokens = "-".join(str(length) for length in sorted({int(self.n_tokens.min()), int(self.n_tokens.max())}))
        foot = f"{self.n} models, {self.n_pairs} pairs, {shown} of {tokens} tokens; ratio is to the flat simplex"
        return "\n".join([*lines, foot])


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
    """Mean over pairs of models of the squared Frobenius distance between their attention patterns, layer by layer.

    The models are the independent units, not the pairs, which share models: the 95 % interval resamples models. It
    is for differences between seeds, so that a figure says nothing of what other prefixes would have given.

    Heads are compared by index and averaged, not summed; with one head, as in the paper, that is the same. A distance
    grows with the prefix, up to 2 for every row, so prefixes of different lengths weigh by their length; the
    baselines are averaged in the same way, so that the ratio to one can be compared across lengths.

    Args:
        models: Two or more, alike in layers, heads and attention. They are not changed, and left in evaluation mode.
        task: Reads or samples what the models are shown.
        prefixes: Text, or several. Left out: the sampled ones if any are asked for, else the task's probe prefix
            (Dyck's `staircase`, every type and depth once), else one sampled example.
        n_sampled: Held-out examples to draw from the task, beside the prefixes.
        n_baseline: Most pairs of random patterns behind a simulated baseline; long prefixes get fewer, and the
            result tells the standard error.
        resamples: Bootstrap resamples of the models.
        seed: Decides the sampled examples, the simulated baselines and the resamples.

    Raises:
        ValueError: fewer than two models, the same model twice, models of different shapes or of another vocabulary,
            a pattern that is not finite, no prefix, one that the task cannot read or that leaves no choice of keys,
            a negative `n_sampled`, or fewer than 2 baseline pairs or resamples.

    Source: bounded Dyck (arXiv:2312.01429) Section 4.1, with its probe prefix. Differs: an interval, several prefixes,
    several heads, and more baselines than its random one; the paper says that rows are drawn uniformly from the
    simplex, and does not print whether the causal mask holds for them.
    """
    if min(n_baseline, resamples) < 2 or n_sampled < 0:
        raise ValueError(
            f"n_sampled is {n_sampled}, n_baseline {n_baseline} and resamples {resamples}; choose n_sampled 0 or more "
            "and 2 or more of the others."
        )
    nets = _checked(models, task)
    readings = [reading for batch in _batches(task, prefixes, n_sampled, seed) for reading in _read(nets, task, batch)]
    distance = np.stack([reading.distance for reading in readings])
    together = distance.mean((0, 2))
    variation, low, high = bootstrap_pairs(together, seed=derived_seed(seed, "models"), resamples=resamples)
    entropy = np.mean([reading.entropy for reading in readings], axis=0)
    middle, bottom, top = bootstrap_mean(entropy, seed=derived_seed(seed, "models"), resamples=resamples)
    if len(nets) == 2:
        bottom, top = np.full((2, *middle.shape), np.nan)
    baseline, error = _baselines(readings, n_baseline, seed)
    return VariationResult(
        prefixes=tuple(reading.text for reading in readings),
        n_tokens=np.array([(reading.n_keys > 0).sum() for reading in readings]),
        variation=variation,
        low=low,
        high=high,
        by_prefix=mean_over_pairs(distance.mean(2)),
        by_head=mean_over_pairs(distance.mean(0)),
        distance=together,
        entropy=middle[:, 0],
        entropy_low=bottom[:, 0],
        entropy_high=top[:, 0],
        relative_entropy=middle[:, 1],
        relative_low=bottom[:, 1],
        relative_high=top[:, 1],
        relative_of_model=entropy[:, :, 1],
        baselines=NAMES,
        baseline=baseline.mean(1),
        baseline_error=error,
        baseline_by_prefix=baseline,
        resamples=resamples,
        n=len(nets),
        n_pairs=len(nets) * (len(nets) - 1) // 2,
    )


def _checked(models: Sequence[AnyModel | TrainingRun], task: Task) -> list[Net]:
    """The models, if they can be compared on that task."""
    if isinstance(models, AnyModel | TrainingRun):
        raise ValueError("models is a single model; a variation is between models: pass a list of two or more.")
    given = [one.model if isinstance(one, TrainingRun) else one for one in models]
    if len(given) < 2:
        raise ValueError(f"models holds {len(given)}; a variation is between two or more. Train another seed.")
    first: dict[int, int] = {}
    nets: list[Net] = []
    for index, model in enumerate(given):
        if not isinstance(model, AnyModel):
            raise ValueError(
                f"models[{index}] is a {type(model).__name__}; pass a hooks.Transformer or a TrainingRun, or a "
                f"TransformerLens bridge."
            )
        net = prepare_model(model, "attention_variation")
        nets.append(net)
        one = id(net.bridge if isinstance(net, BridgeModel) else net)
        if first.setdefault(one, index) != index:
            raise ValueError(
                f"models[{index}] is models[{first[one]}] again; its distance to itself would count as agreement. "
                "Pass each model once."
            )
        shape, wanted = _shape(net), _shape(nets[0])
        if shape != wanted:
            raise ValueError(
                f"models[{index}] has {shape}, models[0] has {wanted}; their patterns cannot be laid over one another. "
                "Compare models alike in layers, heads and attention."
            )
        if net.cfg.d_vocab < task.d_vocab:
            raise ValueError(
                f"models[{index}] knows {net.cfg.d_vocab} tokens, the task has {task.d_vocab}; pass the task that the "
                "models learned."
            )
    return nets


def _shape(model: Net) -> str:
    return f"{model.cfg.n_layers} layers, {model.cfg.n_heads} heads, {model.cfg.attention} attention"


def _batches(task: Task, prefixes: str | Sequence[str] | None, n_sampled: int, seed: int) -> Iterator[Batch]:
    """What the models are shown: each text by itself, as lengths differ, and all sampled examples at once."""
    if prefixes is None:
        n_sampled = n_sampled or (0 if isinstance(task, Dyck) else 1)
        prefixes = [] if n_sampled or not isinstance(task, Dyck) else [task.staircase()]
    texts = [prefixes] if isinstance(prefixes, str) else list(prefixes)
    if not texts and not n_sampled:
        raise ValueError("prefixes is empty and n_sampled 0: there is nothing to show the models. Give one of them.")
    for text in texts:
        yield _read_text(task, text)
    if n_sampled:
        yield task.sample(n_sampled, generator=derived_generator(seed, "variation"), split="test")


def _read_text(task: Task, text: str) -> Batch:
    if isinstance(task, Lego):
        return read_sentence(task, text)
    read = getattr(task, "read", None)
    if read is None:
        raise ValueError(f"prefixes is given, but a {type(task).__name__} task reads no text; use n_sampled.")
    return read(text)


def _text(task: Task, tokens: Int[Tensor, " pos"]) -> str:
    """What `_read_text` reads back."""
    return task.vocab.decode(tokens[tokens != START] if isinstance(task, Dyck) else tokens)


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """What one prefix gave."""

    text: str
    n_keys: Int[np.ndarray, " query"]
    """Keys that each query may see; 0 for padding."""
    distance: Float[np.ndarray, "layer head model model"]
    entropy: Float[np.ndarray, "model layer 2"]
    """Mean over heads and over rows with a choice of keys: in nats, and as a fraction of the largest possible."""
    shuffled: Float[np.ndarray, " layer"]
    """The baseline that depends on the models."""


@torch.no_grad()
def _read(models: list[Net], task: Task, batch: Batch) -> Iterator[_Reading]:
    """The patterns of all models on each example, compared."""
    tokens, mask = batch.tokens, batch.attention_mask
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    n_keys = visible_keys(models[0], tokens, mask).sum(-1) * real
    patterns = patterns_on(models, batch)
    if mask is not None:
        patterns *= mask[:, None, :, None]
    for row, keys in enumerate(n_keys):
        layers, text = patterns[:, :, row], _text(task, tokens[row][real[row]])
        if keys.max() < 2:
            raise ValueError(f"prefixes holds {text!r}, a single token to the model, which has no choice of keys.")
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
    rows = torch.special.entr(patterns).sum(-1).double()[..., n_keys > 1]
    largest = n_keys[n_keys > 1].double().log()
    return torch.stack([rows.mean((1, 2)), (rows / largest).mean((1, 2))], 1).numpy()


def _baselines(
    readings: list[_Reading], n: int, seed: int
) -> tuple[Float[np.ndarray, "baseline prefix layer"], Float[np.ndarray, "baseline layer"]]:
    """Value per prefix and layer; standard error of the mean over prefixes, taking their draws as one and the same."""
    drawn = {reading.n_keys.tobytes(): reading.n_keys for reading in readings}
    found = {key: same_for_every_layer(n_keys, n=n, seed=seed) for key, n_keys in drawn.items()}
    pairs = [found[reading.n_keys.tobytes()] for reading in readings]
    layers = np.ones(len(readings[0].shuffled))
    fixed, error = (np.stack(part, 1)[..., None] * layers for part in zip(*pairs, strict=True))
    own = np.stack([reading.shuffled for reading in readings])[None]
    return np.concatenate([fixed, own]), np.concatenate([error.mean(1), np.zeros((1, len(layers)))])
