"""Two different transformers pruned from one random network so that they share a weight matrix bit by bit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import Transformer
from hooks.checks import shown
from hooks.model.layers import Linear
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, MAY_BE_MISSING, POSITIVE_COUNT, ROUNDING, SHARE, SIZE, Axes, checks_types
from interp.core.consistency import check_that
from interp.core.results import NOT_SAVED, Result, table_lines
from interp.tasks.base import Task
from interp.theory.pruning.network import LAYERS_PER_LAYER, random_network
from interp.theory.pruning.target import NEEDS_OF_TARGET, check_target, in_float64, norms_of, scale_for
from interp.theory.pruning.transformers import PrunedNetwork, prune_network, sequences

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
MAY_DIFFER = {"attn_scale", "init", "embedding_std", "qk_identity", "vo_identity", "tied", "attn_bias", "mlp_bias"}
"""Config fields in which the two targets may differ."""


@dataclass(frozen=True, kw_only=True)
class IndistinguishableResult(Result):
    """For every shared matrix, two networks near different targets that the matrix does not distinguish.

    Axes: `shared` the shared matrices; `network` the two networks, a and b.
    """

    shared: Annotated[tuple[str, ...], Axes("shared"), DISTINCT]
    """Names of the matrices."""
    candidates: Annotated[int, POSITIVE_COUNT]
    """Random numbers to choose from, for each weight of a target."""
    scale: Annotated[float, SIZE]
    """Bound on products of two random weights; 1 in the theorem."""
    seed: int
    n: Annotated[int, COUNT]
    """Number of sequences, half of them random tokens."""
    difference: Annotated[Float[np.ndarray, " shared"], SIZE]
    """Largest difference of an entry of the matrix between the two networks."""
    masks_differ: Annotated[Int[np.ndarray, " shared"], COUNT]
    """Number of entries kept in only one of the networks."""
    error: Annotated[Float[np.ndarray, "shared network"], SIZE]
    """Largest difference of a logit from the network's target, over the sequences."""
    distance: Annotated[Float[np.ndarray, " shared"], SIZE]
    """Largest difference of a logit between the two networks."""
    disagree: Annotated[Float[np.ndarray, " shared"], SHARE]
    """Fraction of positions where their most likely classes differ."""
    norm: Annotated[Float[np.ndarray, "shared network"], SIZE]
    """Frobenius norm of the matrix."""
    pattern_distance: Annotated[Float[np.ndarray, " shared"], SIZE, MAY_BE_MISSING]
    """Total variation distance of the layer's attention patterns in the two networks, mean over heads, queries and
    sequences; NaN for matrices outside attention. Patterns differ because the residual streams do."""
    singular_values: Annotated[dict[str, Float[np.ndarray, "network value"]], SIZE]
    """The largest ones of each matrix."""
    patterns: Annotated[dict[str, Float[np.ndarray, "network query key"]], SHARE]
    """Pattern of head 0 in the layer of the first matrix, on one sequence; empty for a matrix outside attention."""
    tokens: tuple[str, ...]
    """Tokens of that sequence."""
    same_matrices: Annotated[tuple[tuple[str, ...], ...], Axes("shared ...")]
    """For each shared matrix, all matrices of the two networks that are equal bit by bit."""
    n_matrices: Annotated[int, COUNT]
    """Number of matrices in each network."""
    networks: Any = field(default=None, repr=False, metadata=NOT_SAVED)
    """By matrix, the two networks, with masks of `torch.nn.utils.prune`; errors are those of `.double()`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("singular_values", "patterns"):
            names = set(getattr(self, name))
            if not names <= set(self.shared) or (name == "singular_values" and names != set(self.shared)):
                raise ValueError(f"{name} is of {shown(sorted(names))}; shared has {shown(sorted(self.shared))}.")
        for name, same in zip(self.shared, self.same_matrices, strict=True):
            text = f"same_matrices of {shown(name)} is {shown(same)}, of {self.n_matrices} matrices."
            check_that(len(set(same)) == len(same) <= self.n_matrices, text)
            values = self.singular_values[name]
            is_descending = (np.diff(values, axis=1) <= ROUNDING).all()
            check_that(is_descending, f"singular_values of {shown(name)} are not descending.")
            squares = np.square(values).sum(1)
            too_large = squares > np.square(self.norm[self.shared.index(name)]) * (1 + ROUNDING) + ROUNDING
            check_that(not too_large.any(), f"singular_values of {shown(name)} are larger than its norm.")

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
        rows = [["shared", "differs by", "error a", "error b", "a from b", "disagree"]]
        for index, name in enumerate(self.shared):
            numbers = [f"{value:.2g}" for value in (self.difference[index], *self.error[index])]
            rows.append([name, *numbers, f"{self.distance[index]:.3g}", f"{self.disagree[index]:.1%}"])
        lines = table_lines(rows)
        fewest = min(len(names) for names in self.same_matrices)
        lines.append(
            f"logits, largest of {self.n} sequences; {fewest} or more of {self.n_matrices} matrices the same in both"
        )
        return "\n".join(lines)


NEEDS = NEEDS_OF_TARGET


@checks_types
@restores_state
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

    Example:
        >>> import interp
        >>> from hooks import Transformer
        >>> cfg = interp.config_for(interp.tasks.Dyck(length=4), "dyck_eq6", n_layers=1, d_model=2, d_mlp=2)
        >>> a, b = Transformer(cfg, seed=0), Transformer(cfg, seed=1)
        >>> result = interp.indistinguishable(a, b, shared="blocks.0.attn.W_Q", candidates=6, rescale=True, n=2)
        >>> result.difference  # of the entries of W_Q in the two networks
        array([0.])

    Source: bounded Dyck (arXiv:2312.01429) Theorem 3 and its corollary.
    """
    targets = {"target_a": target_a, "target_b": target_b}
    for target in targets.values():
        check_target(target)
    _check_same_shape(target_a, target_b)
    n_layers = LAYERS_PER_LAYER * target_a.cfg.n_layers
    names = _shared_names(shared, n_layers)
    scale = scale_for(norms_of(targets), rescale=rescale)
    tokens = sequences(target_a, task, n, seed)
    network = random_network(target_a.cfg, candidates=candidates, scale=scale, seed=seed)

    # Prune the half of the layers without the matrix to the targets, and measure the two networks
    half = n_layers // 2
    identity_layers_by_n_before = {0: range(half, n_layers), half: range(half)}
    rows: dict[str, dict[str, Any]] = {}
    for n_identities_before, identity_layers in identity_layers_by_n_before.items():
        names_in_half = [name for name in names if _layer(name) in identity_layers]
        if not names_in_half:
            continue
        target_layers = range(target_a.cfg.n_layers)
        pair = []
        for target in (target_a, target_b):
            pruned = prune_network(
                network,
                target,
                candidates,
                target_layers=target_layers,
                n_identities_before=n_identities_before,
                idle_heads=True,
            )
            pair.append(pruned)
        comparison, patterns = _compare_networks(pair, (target_a, target_b), tokens)
        for name in names_in_half:
            rows[name] = comparison | _compare_matrices(pair, name) | _compare_patterns(name, patterns)

    # One row per matrix becomes one array per field
    columns = {column: [rows[name][column] for name in names] for column in rows[names[0]]}
    first_patterns = columns["patterns"][0]
    words = map(str, tokens[0].tolist()) if task is None else task.vocab.words(tokens[0])
    return IndistinguishableResult(
        shared=tuple(names),
        candidates=candidates,
        scale=scale,
        seed=seed,
        n=n,
        difference=np.array(columns["difference"]),
        masks_differ=np.array(columns["masks_differ"]),
        error=np.array(columns["error"]),
        distance=np.array(columns["distance"]),
        disagree=np.array(columns["disagree"]),
        norm=np.array(columns["norm"]),
        pattern_distance=np.array(columns["pattern_distance"]),
        singular_values=dict(zip(names, columns["singular_values"], strict=True)),
        patterns={} if first_patterns is None else {names[0]: first_patterns},
        tokens=tuple(words),
        same_matrices=tuple(columns["same_matrices"]),
        n_matrices=n_layers * len(MATRICES),
        networks=dict(zip(names, columns["networks"], strict=True)),
    )


def _layer(name: str) -> int:
    return int(name.split(".")[1])


def _shared_names(shared: str | Sequence[str], n_layers: int) -> list[str]:
    """Names of the matrices to share, each once."""
    every_name = [f"blocks.{layer}.{matrix}" for layer in range(n_layers) for matrix in MATRICES]
    if shared == "every":
        return every_name
    # The caller's names, checked
    names = [shared] if isinstance(shared, str) else list(dict.fromkeys(shared))
    if not names:
        raise ValueError("shared is empty; name at least one matrix, or 'every'.")
    for name in names:
        if name not in every_name:
            near = get_close_matches(str(name), every_name, n=3, cutoff=0.5)
            hint = f" Nearest: {', '.join(near)}." if near else ""
            raise ValueError(
                f"shared is {name!r}; the random network has layers 0 to {n_layers - 1}, each with "
                f"{', '.join(MATRICES)}: write blocks.0.attn.W_Q.{hint}"
            )
    return names


def _check_same_shape(target_a: Transformer, target_b: Transformer) -> None:
    a, b = target_a.cfg.to_dict(), target_b.cfg.to_dict()
    for name in a:
        if name not in MAY_DIFFER and a[name] != b[name]:
            raise ValueError(
                f"target_a has {name} {a[name]!r} and target_b {b[name]!r}; one random network can only be pruned to "
                f"targets of one shape."
            )


@torch.no_grad()
def _compare_networks(
    pair: Sequence[PrunedNetwork], targets: Sequence[Transformer], tokens: Int[Tensor, "n pos"]
) -> tuple[dict[str, Any], list[dict[str, Tensor]]]:
    """Errors of both networks, their distance, and the matrices that are equal; the patterns of both networks."""
    # Logits and patterns of the pruned networks, and their distance from the logits of the targets
    logits, errors, patterns = [], [], []
    for pruned, target in zip(pair, targets, strict=True):
        pruned_logits, cache = pruned.trimmed.run_with_cache(
            tokens, names_filter=lambda name: name.endswith("hook_pattern")
        )
        logits.append(pruned_logits)
        errors.append(float((in_float64(target)(tokens) - pruned_logits).abs().max()))
        patterns.append(dict(cache))
    # Matrices that are equal bit by bit
    network_a, network_b = pair
    same_matrices = []
    for name in _shared_names("every", len(network_a.pruned_layers)):
        if torch.equal(_module(network_a, name).weight, _module(network_b, name).weight):
            same_matrices.append(name)
    comparison = {
        "networks": (network_a.network, network_b.network),
        "error": errors,
        "distance": float((logits[0] - logits[1]).abs().max()),
        "disagree": float((logits[0].argmax(-1) != logits[1].argmax(-1)).double().mean()),
        "same_matrices": tuple(same_matrices),
    }
    return comparison, patterns


@torch.no_grad()
def _compare_matrices(pair: Sequence[PrunedNetwork], name: str) -> dict[str, Any]:
    """Differences of the shared matrix between the two networks, and its norm and singular values in both."""
    modules = [_module(pruned, name) for pruned in pair]
    weights = [module.weight.double() for module in modules]
    masks = [module.get_buffer("weight_mask") for module in modules]
    return {
        "difference": float((weights[0] - weights[1]).abs().max()),
        "masks_differ": int((masks[0] != masks[1]).sum()),
        "norm": [float(weight.norm()) for weight in weights],
        "singular_values": np.stack([_singular_values(weight) for weight in weights]),
    }


def _compare_patterns(name: str, patterns: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
    """Distance of the attention patterns in the layer of a matrix, and the pattern of head 0 on one sequence."""
    if ".attn." not in name:
        return {"pattern_distance": float("nan"), "patterns": None}
    point = f"blocks.{_layer(name)}.attn.hook_pattern"
    a, b = [network_patterns[point] for network_patterns in patterns]
    return {
        "pattern_distance": float((a - b).abs().sum(-1).mean() / 2),
        "patterns": torch.stack([a[0, 0], b[0, 0]]).numpy(),
    }


def _module(pruned: PrunedNetwork, name: str) -> Linear:
    """The module of a matrix, such as `blocks.0.attn.W_Q`."""
    _, layer, matrix = name.split(".", 2)
    return cast(Linear, pruned.network.block(int(layer)).get_submodule(MATRICES[matrix]))


def _singular_values(weight: Float[Tensor, "row column"]) -> Float[np.ndarray, " value"]:
    """The largest singular values, padded with zeros."""
    live_weight = weight[weight.any(1)][:, weight.any(0)]
    values = torch.linalg.svdvals(live_weight) if live_weight.numel() else weight.new_zeros(1)
    return np.pad(values.numpy(), (0, SINGULAR_VALUES))[:SINGULAR_VALUES]
