"""Two different transformers pruned from one random network so that they share a weight matrix bit by bit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import Transformer
from hooks.checks import checks_types
from hooks.model.layers import Linear
from interp.core.results import NOT_SAVED, Result
from interp.tasks.base import Task
from interp.theory.pruning.network import LAYERS_PER_LAYER, random_network, trimmed
from interp.theory.pruning.target import check_target, in_float64, norms_of, scale_for
from interp.theory.pruning.transformers import prune_network, sequences

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

MATRICES = {
    "attn.W_Q": "attention.q",
    "attn.W_K": "attention.k",
    "attn.W_V": "attention.v",
    "attn.W_O": "attention.o",
    "W_R": "residual",
    "mlp.W_in": "mlp.w_in",
    "mlp.W_2": "mlp.w_2",
    "mlp.W_3": "mlp.w_3",
    "mlp.W_out": "mlp.w_out",
}
"""The matrices in each layer of the random network, and the modules that hold them."""
SINGULAR_VALUES = 36
"""Number of singular values that are reported, from the largest."""
FREE = {"attn_scale", "init", "embedding_std", "qk_identity", "vo_identity", "tied", "attn_bias", "mlp_bias"}
"""Config fields in which the two targets may differ."""


@dataclass(frozen=True, kw_only=True)
class IndistinguishableResult(Result):
    """For every shared matrix, two networks near different targets that the matrix does not distinguish.

    Axes: `shared` the shared matrices; `network` the two networks, a and b.
    """

    shared: tuple[str, ...]
    """Names of the matrices."""
    candidates: int
    """Random numbers to choose from, for each weight of a target."""
    scale: float
    """Bound on products of two random weights; 1 in the theorem."""
    seed: int
    n: int
    """Number of sequences, half of them random tokens."""
    difference: Float[np.ndarray, " shared"]
    """Largest difference of an entry of the matrix between the two networks."""
    masks_differ: Int[np.ndarray, " shared"]
    """Number of entries kept in only one of the networks."""
    error: Float[np.ndarray, "shared network"]
    """Largest difference of a logit from the network's target, over the sequences."""
    distance: Float[np.ndarray, " shared"]
    """Largest difference of a logit between the two networks."""
    disagree: Float[np.ndarray, " shared"]
    """Fraction of positions where their most likely classes differ."""
    norm: Float[np.ndarray, "shared network"]
    """Frobenius norm of the matrix."""
    pattern_distance: Float[np.ndarray, " shared"]
    """Total variation distance of the layer's attention patterns in the two networks, mean over heads, queries and
    sequences; NaN for matrices outside attention. Patterns differ because the residual streams do."""
    singular_values: dict[str, Float[np.ndarray, "network value"]]
    """The largest ones of each matrix."""
    patterns: dict[str, Float[np.ndarray, "network query key"]]
    """Pattern of head 0 in the layer of the first matrix, on one sequence; empty for a matrix outside attention."""
    tokens: tuple[str, ...]
    """Tokens of that sequence."""
    same_matrices: tuple[tuple[str, ...], ...]
    """For each shared matrix, all matrices of the two networks that are equal bit by bit."""
    n_matrices: int
    """Number of matrices in each network."""
    networks: Any = field(default=None, repr=False, metadata=NOT_SAVED)
    """By matrix, the two networks, with masks of `torch.nn.utils.prune`; errors are those of `.double()`."""

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per shared matrix."""
        return self._table(
            {"shared": self.shared},
            "difference",
            "masks_differ",
            error_a=self.error[:, 0],
            error_b=self.error[:, 1],
            distance=self.distance,
            disagree=self.disagree,
            norm_a=self.norm[:, 0],
            norm_b=self.norm[:, 1],
            pattern_distance=self.pattern_distance,
            same_matrices=[len(same) for same in self.same_matrices],
            n=self.n,
        )

    def plot(self) -> "alt.TopLevelMixin":
        """Errors and distance for every matrix; singular values and patterns of the first one in both networks."""
        from interp.view.pruning import shared_matrix

        return shared_matrix(
            {"a from its target": self.error[:, 0], "b from its target": self.error[:, 1], "a from b": self.distance},
            names=self.shared,
            singular_values=self.singular_values[self.shared[0]],
            patterns=self.patterns.get(self.shared[0]),
            tokens=self.tokens,
            title=f"largest difference of a logit, n = {self.n} sequences",
        )

    def __str__(self) -> str:
        wide = max(6, *(len(name) for name in self.shared))
        lines = [f"{'shared':<{wide}}{'differs by':>12}{'error a':>10}{'error b':>10}{'a from b':>10}{'disagree':>10}"]
        for index, name in enumerate(self.shared):
            a, b = self.error[index]
            lines.append(
                f"{name:<{wide}}{self.difference[index]:>12.2g}{a:>10.2g}{b:>10.2g}{self.distance[index]:>10.3g}"
                f"{self.disagree[index]:>10.1%}"
            )
        fewest = min(len(same) for same in self.same_matrices)
        tail = f"logits, largest of {self.n} sequences; {fewest} or more of {self.n_matrices} matrices the same in both"
        return "\n".join([*lines, tail])


@checks_types
def indistinguishable(
    target_a: Transformer,
    target_b: Transformer,
    task: Task | None = None,
    *,
    shared: str | Sequence[str] = "blocks.0.attn.W_Q",
    candidates: int = 28,
    rescale: bool = False,
    n: int = 256,
    seed: int = 0,
) -> IndistinguishableResult:
    """Prune one random network to two targets so that a chosen matrix is the same in both, and compare the networks.

    The half of the layers that contains the matrix is pruned to the identity in both networks, the other half to the
    targets. Identity layers keep heads, which have patterns but write zero.

    Args:
        target_a: A transformer with layers of Eq. 6 (`block="dyck"`) and ReLU; not changed.
        target_b: Another one of the same shape, trained on any task or untrained.
        task: Task to sample half of the sequences from, the others being random tokens; if None, all are random.
        shared: Name of a matrix of the random network, such as `blocks.3.attn.W_Q` (W_K, W_V, W_O; `mlp.W_in`,
            `mlp.W_2`, `mlp.W_3`, `mlp.W_out`; `blocks.3.W_R` of the residual), several names, or `every`.
        candidates: Random numbers to choose from, for each weight of a target.
        rescale: Accept targets outside the theorem's ball, and scale the random weights by their largest norm.
        n: Number of sequences.
        seed: Seed of the random network and the sequences.

    Raises:
        ValueError: targets of different shapes, an unknown matrix, or as `prune_to_transformer`.

    Source: bounded Dyck (arXiv:2312.01429) Theorem 3 and its corollary.
    """
    targets = {"target_a": target_a, "target_b": target_b}
    for target in targets.values():
        check_target(target)
    _check_same_shape(target_a, target_b)
    n_layers = LAYERS_PER_LAYER * target_a.cfg.n_layers
    names = _chosen(shared, n_layers)
    scale = scale_for(norms_of(targets), rescale=rescale)
    tokens = sequences(target_a, task, n, seed)
    source = random_network(target_a.cfg, candidates=candidates, scale=scale, seed=seed)
    found: dict[str, dict] = {}
    for last in (False, True):
        here = [name for name in names if (_layer(name) < n_layers // 2) == last]
        if not here:
            continue
        pair = [
            prune_network(source, target, candidates, last=last, idle_heads=True).network for target in targets.values()
        ]
        compared = _compare(pair, [in_float64(target) for target in targets.values()], tokens)
        found |= {name: compared | _readings(pair, name, compared["patterns_of"][_layer(name)]) for name in here}
    rows = [found[name] for name in names]
    return IndistinguishableResult(
        shared=tuple(names),
        candidates=candidates,
        scale=scale,
        seed=seed,
        n=n,
        **{
            field: np.array([row[field] for row in rows])
            for field in ("difference", "masks_differ", "error", "distance", "disagree", "norm", "pattern_distance")
        },
        singular_values={name: found[name]["singular_values"] for name in names},
        patterns={name: found[name]["patterns"] for name in names[:1] if found[name]["patterns"] is not None},
        tokens=tuple(map(str, tokens[0].tolist()) if task is None else task.vocab.words(tokens[0])),
        same_matrices=tuple(tuple(row["same_matrices"]) for row in rows),
        n_matrices=n_layers * len(MATRICES),
        networks={name: found[name]["pair"] for name in names},
    )


def _layer(name: str) -> int:
    return int(name.split(".")[1])


def _chosen(shared: str | Sequence[str], n_layers: int) -> list[str]:
    known = [f"blocks.{layer}.{matrix}" for layer in range(n_layers) for matrix in MATRICES]
    chosen = known if shared == "every" else [shared] if isinstance(shared, str) else list(shared)
    if not chosen:
        raise ValueError("shared is empty; name at least one matrix, or 'every'.")
    for name in chosen:
        if name not in known:
            near = get_close_matches(str(name), known, n=3, cutoff=0.5)
            hint = f" Nearest: {', '.join(near)}." if near else ""
            raise ValueError(
                f"shared is {name!r}; the random network has layers 0 to {n_layers - 1}, each with "
                f"{', '.join(MATRICES)}: write blocks.0.attn.W_Q.{hint}"
            )
    return list(dict.fromkeys(chosen))


def _check_same_shape(target_a: Transformer, target_b: Transformer) -> None:
    a, b = target_a.cfg.to_dict(), target_b.cfg.to_dict()
    for name in a:
        if name not in FREE and a[name] != b[name]:
            raise ValueError(
                f"target_a has {name} {a[name]!r} and target_b {b[name]!r}; one random network can only be pruned to "
                f"targets of one shape."
            )


@torch.no_grad()
def _compare(pair: list[Transformer], targets: list[Transformer], tokens: Int[Tensor, "n pos"]) -> dict:
    """Errors of both networks, their distance, the matrices that are equal, and the patterns of every layer."""
    small = [trimmed(network) for network in pair]
    seen = [one.run_with_cache(tokens, names_filter=lambda name: name.endswith("hook_pattern")) for one in small]
    top = [logits.argmax(-1) for logits, _ in seen]
    every = [(layer, matrix) for layer in range(pair[0].cfg.n_layers) for matrix in MATRICES]
    return {
        "pair": tuple(pair),
        "error": [float((t(tokens) - logits).abs().max()) for t, (logits, _) in zip(targets, seen, strict=True)],
        "distance": float((seen[0][0] - seen[1][0]).abs().max()),
        "disagree": float((top[0] != top[1]).double().mean()),
        "same_matrices": [
            f"blocks.{layer}.{matrix}"
            for layer, matrix in every
            if torch.equal(*(_module(network, layer, matrix).weight for network in pair))
        ],
        "patterns_of": [
            [cache[f"blocks.{layer}.attn.hook_pattern"] for _, cache in seen] for layer in range(pair[0].cfg.n_layers)
        ],
    }


@torch.no_grad()
def _readings(pair: list[Transformer], name: str, patterns: list[Float[Tensor, "n head query key"]]) -> dict:
    """What the shared matrix shows in each network: norm, singular values, and the patterns of its layer."""
    _, layer, matrix = name.split(".", 2)
    modules = [_module(network, int(layer), matrix) for network in pair]
    weights = [module.weight.double() for module in modules]
    masks = [module.get_buffer("weight_mask") for module in modules]
    in_attention, (a, b) = matrix.startswith("attn."), patterns
    return {
        "difference": float((weights[0] - weights[1]).abs().max()),
        "masks_differ": int((masks[0] != masks[1]).sum()),
        "norm": [float(weight.norm()) for weight in weights],
        "singular_values": np.stack([_singular_values(weight) for weight in weights]),
        "pattern_distance": float((a - b).abs().sum(-1).mean() / 2) if in_attention else float("nan"),
        "patterns": torch.stack([a[0, 0], b[0, 0]]).numpy() if in_attention else None,
    }


def _module(network: Transformer, layer: int, matrix: str) -> Linear:
    return cast(Linear, network.block(layer).get_submodule(MATRICES[matrix]))


def _singular_values(weight: Float[Tensor, "row column"]) -> Float[np.ndarray, " value"]:
    alive = weight[weight.any(1)][:, weight.any(0)]
    values = torch.linalg.svdvals(alive) if alive.numel() else weight.new_zeros(1)
    return np.pad(values.numpy(), (0, SINGULAR_VALUES))[:SINGULAR_VALUES]
