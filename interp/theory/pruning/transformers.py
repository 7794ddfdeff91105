"""Pruning random transformers to a trained layer, or to a trained transformer of a quarter of the depth."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import Transformer
from interp.core.randomness import derived_generator
from interp.tasks.base import Task
from interp.theory.pruning.layers import (
    Growth,
    LayerMasks,
    grow,
    mask_attention_layer,
    mask_identity_layer,
    mask_projection_layer,
)
from interp.theory.pruning.network import (
    LAYERS_PER_LAYER,
    Layout,
    apply_masks,
    check_network,
    copy_embeddings,
    layout_of,
    random_layers,
    random_network,
    scale_of,
    trimmed,
)
from interp.theory.pruning.result import PruningResult, pruning_result, within_tolerance
from interp.theory.pruning.search import Worst, largest_distances, stream_distances, worst_tokens
from interp.theory.pruning.target import LayerMaps, check_target, in_float64, layer_maps, norms_of, scale_for

N_STARTS = 64
"""Number of sequences whose streams are compared."""
EXCHANGES = 24
"""Exchanges of one token that are tried on a sequence."""


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """A pruned network with the masks of each of its layers."""

    network: Transformer
    masks: dict[str, Tensor]
    """By module name of each matrix."""
    layers: tuple[LayerMasks, ...]
    names: tuple[str, ...]
    """What each layer was pruned to."""
    stages: tuple[str, ...]
    """The target's hook point that its output approximates."""

    @cached_property
    def small(self) -> Transformer:
        """The trimmed copy in float64 on which errors are measured."""
        return trimmed(self.network)


def prune_to_transformer(
    target: Transformer,
    task: Task | None = None,
    *,
    candidates: int = 28,
    rescale: bool = False,
    tolerance: float | None = None,
    network: Transformer | None = None,
    n: int = 256,
    seed: int = 0,
) -> PruningResult:
    """Prune a random transformer of 4 L layers to a trained one of L layers, and search for the largest difference.

    Random layers 2l and 2l + 1 become layer l: one its attention and norm, the other its MLP. The rest become the
    identity. Embeddings and unembedding are copied from the target, as in the theorem.

    Args:
        target: A transformer with layers of Eq. 6 (`block="dyck"`) and ReLU; not changed.
        task: Task to sample half of the sequences from, the others being random tokens; if None, all are random.
        candidates: Random numbers to choose from, for each weight of the target.
        rescale: Accept a target outside the theorem's ball, and scale the random weights that are drawn by its largest
            norm.
        tolerance: Largest error of any logit accepted, over the sampled sequences; if None, any.
        network: Random network to prune, not changed, at its own scale; if None, one is drawn from `seed`.
        n: Number of sequences.
        seed: Seed of the random network and the inputs.

    Raises:
        ValueError: a target that Theorem 3 does not cover or outside its ball, a random network that is too small,
            fewer than two sequences, or too few candidates for the tolerance (with a number that is enough).

    Source: bounded Dyck (arXiv:2312.01429) Theorem 3. Differs: sizes follow from the candidates per weight, subsets are
    the best ones, and the error is the largest found, a lower bound on the true one.
    """
    check_target(target)
    scale = scale_for(norms_of({"the target": target}), rescale=rescale)
    exact, tokens = in_float64(target), sequences(target, task, n, seed)

    def make(count: int) -> Pruned:
        drawn = random_network(target.cfg, candidates=count, scale=scale, seed=seed) if network is None else network
        return prune_network(drawn, target, count)

    def sampled_error(pruned: Pruned) -> float:
        return float(logit_errors(exact, pruned.small, tokens).max())

    pruned = within_tolerance(
        make, sampled_error, candidates=candidates, tolerance=tolerance, fixed=network is not None
    )
    used = scale if network is None else scale_of(network)
    return _result(exact, pruned, tokens, candidates=candidates, scale=used, seed=seed)


def prune_to_layer(
    target: Transformer,
    layer: int = 0,
    *,
    candidates: int = 28,
    rescale: bool = False,
    tolerance: float | None = None,
    n: int = 256,
    seed: int = 0,
) -> PruningResult:
    """Prune two random layers to one trained layer, and search for the largest difference of the residual stream.

    Target and options are as in `prune_to_transformer`. Sequences are random; the streams that enter the layer are the
    first inputs, and the tolerance is for the stream.

    Raises:
        ValueError: as `prune_to_transformer`, or no such layer.
    """
    check_target(target)
    maps = layer_maps(target, layer)
    scale = scale_for(norms_of({"the target": target}), rescale=rescale)
    exact = in_float64(target)
    starts = entering(exact, sequences(target, None, n, seed), layer)

    def make(count: int) -> PruningResult:
        source = random_network(target.cfg, candidates=count, n_layers=2, scale=scale, seed=seed)
        pruned = _pruned(source, target, layout_of(target.cfg, count), [maps], first=0, layers=[layer])
        worst, fields = _stream_errors(exact, pruned, starts, layer=layer)
        return pruning_result(
            f"layer {layer} of width {target.cfg.d_model}",
            worst,
            pruned.masks,
            pruned.network,
            domain=f"streams entering the layer, then any within ||X||_1,2 <= {fields['radius']:.3g}",
            candidates=count,
            scale=scale,
            seed=seed,
            **fields,
        )

    return within_tolerance(make, attrgetter("error"), candidates=candidates, tolerance=tolerance)


def prune_network(
    network: Transformer, target: Transformer, candidates: int, *, last: bool = False, idle_heads: bool = False
) -> Pruned:
    """A copy of a random network of 4 L layers: the first (or last) 2 L pruned to the target, the others to identities.

    `idle_heads` keeps heads in identity layers; see `mask_identity_layer`.

    Raises:
        ValueError: the network is too small.
    """
    n_layers = target.cfg.n_layers
    layout = check_network(network, target.cfg, candidates, LAYERS_PER_LAYER * n_layers)
    maps = [layer_maps(target, layer) for layer in range(n_layers)]
    first = (LAYERS_PER_LAYER - 2) * n_layers if last else 0
    return _pruned(network, target, layout, maps, first=first, layers=range(n_layers), idle_heads=idle_heads)


@torch.no_grad()
def _pruned(
    network: Transformer,
    target: Transformer,
    layout: Layout,
    maps: Sequence[LayerMaps],
    *,
    first: int,
    layers: Sequence[int],
    idle_heads: bool = False,
) -> Pruned:
    network = copy.deepcopy(network)
    copy_embeddings(network, target)
    mid = "hook_resid_post" if target.cfg.attn_only else "hook_resid_mid"  # after attention and norm
    points = [f"blocks.{layer}.{name}" for layer in layers for name in (mid, "hook_resid_post")]
    blocks = random_layers(network)
    last = first + len(points)
    halves = [(mask, one) for one in maps for mask in (mask_attention_layer, mask_projection_layer)]
    kept = [mask_identity_layer(block, layout, idle_heads=idle_heads) for block in (*blocks[:first], *blocks[last:])]
    kept[first:first] = [
        mask(block, one, layout) for block, (mask, one) in zip(blocks[first:last], halves, strict=True)
    ]
    names = [f"{half} of layer {layer}" for layer in layers for half in ("attention", "MLP")]
    after = len(blocks) - last
    masks = {f"weights.{index}.{name}": mask for index, one in enumerate(kept) for name, mask in one.masks.items()}
    apply_masks(network, masks)
    return Pruned(
        network=network,
        masks=masks,
        layers=tuple(kept),
        names=("identity",) * first + tuple(names) + ("identity",) * after,
        stages=(f"blocks.{layers[0]}.hook_resid_pre",) * first + tuple(points) + tuple(points[-1:]) * after,
    )


def _result(
    target: Transformer, pruned: Pruned, tokens: Int[Tensor, "batch pos"], *, seed: int, **settings
) -> PruningResult:
    small = pruned.small
    worst = worst_tokens(
        lambda tried: logit_errors(target, small, tried),
        tokens,
        d_vocab=target.cfg.d_vocab,
        generator=derived_generator(seed, "worse tokens"),
        steps=EXCHANGES,
    )
    with torch.no_grad():
        starts = entering(target, tokens)
        same = target(tokens).argsort(-1) == small(tokens).argsort(-1)
    on_ball, fields = _stream_errors(target, pruned, starts)
    depth, radius = f"{target.cfg.n_layers} layer{'s' * (target.cfg.n_layers > 1)}", fields["radius"]
    return pruning_result(
        f"transformer of {depth}, width {target.cfg.d_model}",
        replace(worst, n=worst.n + on_ball.n),
        pruned.masks,
        pruned.network,
        domain=f"sequences of {tokens.shape[1]} tokens, sampled, then made worse; streams of ||X||_1,2 <= {radius:.3g}",
        order_kept=float(same.all(-1).double().mean()),
        seed=seed,
        **settings,
        **fields,
    )


def _stream_errors(target: Transformer, pruned: Pruned, starts: Tensor, *, layer: int = 0) -> tuple[Worst, dict]:
    """The largest error of the stream, and the fields of the result about it: its growth and bound, layer by layer."""
    radius = float(starts.norm(dim=-1).max())
    small = pruned.small
    distances = stream_distances(target, small, pruned.stages, layer=layer)
    spread = torch.linspace(0, len(starts) - 1, min(N_STARTS, len(starts))).long()
    growth, worst = largest_distances(distances, starts[spread], radius=radius)
    at, bound = Growth(radius=(radius**2 + 1) ** 0.5, error=0.0), []
    for kept in pruned.layers:
        at = grow(at, kept, d_model=small.cfg.d_model, eps=small.cfg.layer_norm_eps)
        bound.append(at.error)
    bounds = torch.tensor(bound).numpy()
    return worst, {"layers": pruned.names, "growth": growth.numpy(), "bound": bounds, "radius": radius}


@torch.no_grad()
def logit_errors(
    target: Transformer, network: Transformer, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, " batch"]:
    """Largest difference of any logit, for each sequence."""
    return (target(tokens) - network(tokens)).abs().flatten(1).amax(1)


def sequences(target: Transformer, task: Task | None, n: int, seed: int) -> Int[Tensor, "n pos"]:
    """Sequences of which half are the task's and half random tokens; all random without a task.

    Raises:
        ValueError: fewer than two sequences.
    """
    if n < 2:
        raise ValueError(f"n is {n}; at least 2 sequences are needed.")
    generator = derived_generator(seed, "random tokens")
    if task is None:
        return target.embed.example(n, min(target.cfg.n_ctx, 32), generator)
    own = task.sample(n // 2, generator=derived_generator(seed, "sequences"), split="test").tokens
    return torch.cat([own, target.embed.example(n - len(own), own.shape[1], generator)])


@torch.no_grad()
def entering(
    target: Transformer, tokens: Int[Tensor, "batch pos"], layer: int = 0
) -> Float[Tensor, "batch pos d_model"]:
    """The residual streams that enter a layer."""
    name = f"blocks.{layer}.hook_resid_pre"
    return target.run_with_cache(tokens, names_filter=name)[1][name]
