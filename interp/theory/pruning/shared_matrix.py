"""Two different transformers out of one random network that share a matrix, bit by bit: what does it tell of either?"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import Transformer
from hooks.modules import Linear
from interp.tasks.base import Task
from interp.theory.pruning.network import LAYERS_PER_LAYER, random_network, trimmed
from interp.theory.pruning.shared_result import IndistinguishableResult
from interp.theory.pruning.target import check_target, scale_of
from interp.theory.pruning.transformers import in_float64, prune_network, sequences

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
"""The random network's matrices in each layer, and the modules that hold them."""
SINGULAR_VALUES = 36
"""The largest ones are reported."""


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
    """Prune one random network to two targets, so that the chosen matrix is the same in both, and compare the two.

    The half of the layers that holds the matrix becomes the identity in both, the other half the target. Identities
    keep heads, whose patterns can be read and which write nothing.

    Args:
        target_a: A transformer with layers of Eq. 6 (`block="dyck"`), ReLU; not changed.
        target_b: Another of the same shape, trained on whatever, or on nothing.
        task: Where half of the sequences come from; all are random tokens when left out.
        shared: A matrix of the random network, as `blocks.3.attn.W_Q` (W_K, W_V, W_O; `mlp.W_in`, `mlp.W_2`, `mlp.W_3`,
            `mlp.W_out`; `blocks.3.W_R` of the residual), several, or `every`.
        candidates: Random numbers to choose among for each weight of a target.
        rescale: Allow targets outside the theorem's ball, with random weights as much larger.
        n: Sequences.
        seed: Decides the random network and the sequences.

    Raises:
        ValueError: targets of different shapes, a matrix that does not exist, or what `prune_to_transformer` refuses.

    Source: bounded Dyck (arXiv:2312.01429) Theorem 3 and its corollary.
    """
    check_target(target_a)
    check_target(target_b)
    _check_alike(target_a, target_b)
    if n < 2:
        raise ValueError(f"n is {n}; at least 2 sequences are needed.")
    n_layers = LAYERS_PER_LAYER * target_a.cfg.n_layers
    names = _chosen(shared, n_layers)
    scale = scale_of({"target_a": target_a, "target_b": target_b}, rescale=rescale)
    source = random_network(target_a.cfg, candidates=candidates, scale=scale, seed=seed)
    tokens = sequences(target_a, task, n, seed)
    found: dict[str, dict] = {}
    for last in (False, True):
        here = [name for name in names if (_layer(name) < n_layers // 2) == last]
        if not here:
            continue
        pair = [
            prune_network(source, target, candidates, last=last, idle_heads=True).network
            for target in (target_a, target_b)
        ]
        outcome = _compare(pair, (in_float64(target_a), in_float64(target_b)), tokens)
        found |= {name: outcome | _readings(pair, name, outcome["patterns_of"][_layer(name)]) for name in here}
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
        tokens=_words(task, tokens[0]),
        same_matrices=tuple(tuple(row["same_matrices"]) for row in rows),
        n_matrices=n_layers * len(MATRICES),
        networks={name: found[name]["pair"] for name in names},
    )


def _words(task: Task | None, tokens: Int[Tensor, " pos"]) -> tuple[str, ...]:
    return tuple(map(str, tokens.tolist())) if task is None else tuple(task.vocab.words(tokens))


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


def _check_alike(target_a: Transformer, target_b: Transformer) -> None:
    a, b = target_a.cfg.to_dict(), target_b.cfg.to_dict()
    free = {"attn_scale", "init", "embedding_std", "qk_identity", "vo_identity", "tied", "attn_bias"}
    for name in a:
        if name not in free and a[name] != b[name]:
            raise ValueError(
                f"target_a has {name} {a[name]!r} and target_b {b[name]!r}; one random network can only be pruned to "
                f"targets of one shape."
            )


@torch.no_grad()
def _compare(pair: list[Transformer], targets: tuple[Transformer, Transformer], tokens: Int[Tensor, "n pos"]) -> dict:
    """Errors of both, and how far apart they are; which matrices are the same, throughout; patterns by layer."""
    small = [trimmed(network) for network in pair]
    seen = [one.run_with_cache(tokens, names_filter=lambda name: name.endswith("hook_pattern")) for one in small]
    top = [logits.argmax(-1) for logits, _ in seen]
    weights = [
        {f"blocks.{layer}.{matrix}": _module(network, layer, matrix).weight for layer, matrix in _every(network)}
        for network in pair
    ]
    return {
        "pair": tuple(pair),
        "error": [float((t(tokens) - logits).abs().max()) for t, (logits, _) in zip(targets, seen, strict=True)],
        "distance": float((seen[0][0] - seen[1][0]).abs().max()),
        "disagree": float((top[0] != top[1]).double().mean()),
        "same_matrices": [name for name, weight in weights[0].items() if torch.equal(weight, weights[1][name])],
        "patterns_of": [
            [cache[f"blocks.{layer}.attn.hook_pattern"] for _, cache in seen] for layer in range(pair[0].cfg.n_layers)
        ],
    }


@torch.no_grad()
def _readings(pair: list[Transformer], name: str, patterns: list[Float[Tensor, "n head query key"]]) -> dict:
    """What one would read off the shared matrix, in either network."""
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


def _every(network: Transformer) -> list[tuple[int, str]]:
    return [(layer, matrix) for layer in range(network.cfg.n_layers) for matrix in MATRICES]


def _module(network: Transformer, layer: int, matrix: str) -> Linear:
    return cast(Linear, network.block(layer).get_submodule(MATRICES[matrix]))


def _singular_values(weight: Float[Tensor, "row column"]) -> Float[np.ndarray, " value"]:
    alive = weight[weight.any(1)][:, weight.any(0)]
    values = torch.linalg.svdvals(alive) if alive.numel() else weight.new_zeros(1)
    return np.pad(values.numpy(), (0, SINGULAR_VALUES))[:SINGULAR_VALUES]
