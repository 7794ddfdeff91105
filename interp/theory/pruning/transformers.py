"""A trained transformer out of a random one of four times its depth, by leaving weights away."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import Transformer
from interp.core.randomness import derived_generator
from interp.tasks.base import Task
from interp.theory.pruning.bound import Growth, grow
from interp.theory.pruning.layers import LayerMasks, mask_attention_layer, mask_identity_layer, mask_projection_layer
from interp.theory.pruning.network import (
    LAYERS_PER_LAYER,
    Layout,
    apply_masks,
    check_network,
    put_outside,
    random_layers,
    random_network,
    trimmed,
)
from interp.theory.pruning.result import PruningResult
from interp.theory.pruning.search import worst_tokens
from interp.theory.pruning.streams import largest_distances, stages, stream_distances
from interp.theory.pruning.target import LayerMaps, check_target, layer_maps, scale_of
from interp.theory.pruning.tolerance import check_tolerance

N_STARTS = 64
"""Sequences whose streams are compared."""
EXCHANGES = 24
"""Tokens exchanged, one after the other, to make a sequence worse."""


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """A pruned network with what was kept of each of its layers."""

    network: Transformer
    masks: dict[str, Tensor]
    """By the name of each matrix's module."""
    layers: tuple[LayerMasks, ...]
    maps: tuple[LayerMaps | None, ...]
    """The attention that each layer makes; None where there is none."""
    names: tuple[str, ...]
    """What each layer was pruned to."""
    stages: tuple[str, ...]
    """The target's hook point that it leads to."""

    @cached_property
    def small(self) -> Transformer:
        """The network as errors are measured on it."""
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
    """Prune a random transformer of 4 L layers to a trained one of L layers, and search where the two differ most.

    Random layers 2l and 2l + 1 become layer l: attention and norm in one, the MLP in the other. The rest become the
    identity. Embeddings and read-out are the target's, as in the theorem.

    Args:
        target: Layers of Eq. 6 (`block="dyck"`), ReLU; not changed.
        task: Where sequences come from; half are its own, half random tokens. All are random when left out.
        candidates: Random numbers to choose among for each weight of the target.
        rescale: Allow a target outside the theorem's ball, with random weights as much larger.
        tolerance: Largest error of any logit, on the sequences sampled, that is accepted.
        network: A random network to prune, instead of one of `seed`; it is not changed.
        n: Sequences.
        seed: Decides the random network and the inputs.

    Raises:
        ValueError: a target that Theorem 3 is not about or outside its ball, a random network that is too small,
            fewer than two sequences, or too few candidates for the tolerance (with a number that would do).

    Source: bounded Dyck (arXiv:2312.01429) Theorem 3. Differs: sizes follow from the candidates per weight, subsets are
    the best there are, and what is shown is the largest error found, which the true one may exceed.
    """
    if n < 2:
        raise ValueError(f"n is {n}; at least 2 sequences are needed.")
    check_target(target)
    scale = scale_of({"the target": target}, rescale=rescale)
    source = (
        network if network is not None else random_network(target.cfg, candidates=candidates, scale=scale, seed=seed)
    )
    pruned, target = prune_network(source, target, candidates), in_float64(target)
    tokens = sequences(target, task, n, seed)

    def error_with(more: int) -> float:
        wider = random_network(target.cfg, candidates=more, scale=scale, seed=seed)
        return float(logit_errors(target, prune_network(wider, target, more).small, tokens).max())

    if tolerance is not None:
        sampled = float(logit_errors(target, pruned.small, tokens).max())
        check_tolerance(sampled, tolerance, candidates, None if network is not None else error_with)
    return _result(target, pruned, tokens, candidates=candidates, scale=scale, seed=seed)


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
    """Prune two random layers to one trained layer, and search where the two differ most.

    Args:
        target: Where the layer is.
        layer: Which.
        candidates: Random numbers to choose among for each of its weights.
        rescale: Allow a layer outside the theorem's ball.
        tolerance: Largest error that is accepted.
        n: Random sequences, whose streams entering the layer are tried.
        seed: Decides the random layers and the sequences.

    Raises:
        ValueError: a layer that is not there, or what `prune_to_transformer` refuses.
    """
    check_target(target)
    maps = layer_maps(target, layer)
    scale = scale_of({"the target": target}, rescale=rescale)
    source = random_network(target.cfg, candidates=candidates, n_layers=2, scale=scale, seed=seed)
    layout = check_network(source, target.cfg, candidates, 2)
    pruned, target = _pruned(source, target, layout, [maps], first=0, layers=[layer]), in_float64(target)
    tokens = sequences(target, None, n, seed)
    starts = entering(target, tokens, layer)
    growth, worst, radius, bound = _streams(target, pruned, starts, layer=layer)
    check_tolerance(
        worst.found,
        tolerance,
        candidates,
        lambda more: prune_to_layer(target, layer, candidates=more, rescale=rescale, n=n, seed=seed).error,
    )
    return PruningResult(
        target=f"layer {layer} of width {target.cfg.d_model}",
        candidates=candidates,
        scale=scale,
        seed=seed,
        error=worst.found,
        sampled_error=worst.sampled,
        domain=f"streams entering the layer, then any within ||X||_1,2 <= {radius:.3g}",
        n=worst.n,
        order_kept=None,
        layers=pruned.names,
        growth=growth.numpy(),
        bound=bound,
        radius=radius,
        **what_is_kept(pruned.masks),
        network=pruned.network,
    )


def prune_network(
    network: Transformer, target: Transformer, candidates: int, *, last: bool = False, idle_heads: bool = False
) -> Pruned:
    """A pruned copy of a random network of 4 L layers: the target in its first or its last 2 L, identities elsewhere.

    Args:
        network: The random network.
        target: What to prune it to.
        candidates: Random numbers to choose among for each weight.
        last: Use the last layers, not the first.
        idle_heads: Keep heads in identities; see `mask_identity_layer`.

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
    put_outside(network, target)
    points, blocks = stages(target.cfg, layers), random_layers(network)
    kept, made, names, reached = [], [], [], []
    for index in range(network.cfg.n_layers):
        block, step = blocks[index], index - first
        inside = 0 <= step < len(points)
        half = maps[step // 2] if inside else None
        if half is None:
            kept.append(mask_identity_layer(block, layout, idle_heads=idle_heads))
        else:
            kept.append((mask_projection_layer if step % 2 else mask_attention_layer)(block, half, layout))
        made.append(half if step % 2 == 0 else None)
        names.append(f"{'MLP' if step % 2 else 'attention'} of layer {layers[step // 2]}" if inside else "identity")
        reached.append(points[min(step, len(points) - 1)] if step >= 0 else f"blocks.{layers[0]}.hook_resid_pre")
    masks = {f"weights.{index}.{name}": mask for index, one in enumerate(kept) for name, mask in one.masks.items()}
    apply_masks(network, masks)
    return Pruned(
        network=network,
        masks=masks,
        layers=tuple(kept),
        maps=tuple(made),
        names=tuple(names),
        stages=tuple(reached),
    )


def _result(
    target: Transformer, pruned: Pruned, tokens: Int[Tensor, "batch pos"], *, candidates: int, scale: float, seed: int
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
    growth, on_ball, radius, bound = _streams(target, pruned, starts)
    depth = f"{target.cfg.n_layers} layer{'s' * (target.cfg.n_layers > 1)}"
    return PruningResult(
        target=f"transformer of {depth}, width {target.cfg.d_model}",
        candidates=candidates,
        scale=scale,
        seed=seed,
        error=worst.found,
        sampled_error=worst.sampled,
        domain=f"sequences of {tokens.shape[1]} tokens, sampled, then made worse; streams of ||X||_1,2 <= {radius:.3g}",
        n=worst.n + on_ball.n,
        order_kept=float(same.all(-1).double().mean()),
        layers=pruned.names,
        growth=growth.numpy(),
        bound=bound,
        radius=radius,
        **what_is_kept(pruned.masks),
        network=pruned.network,
    )


def _streams(target: Transformer, pruned: Pruned, starts: Tensor, *, layer: int = 0):
    """Growth of the error and its bound."""
    radius = float(starts.norm(dim=-1).max())
    small = pruned.small
    distances = stream_distances(target, small, pruned.stages, layer=layer)
    spread = torch.linspace(0, len(starts) - 1, min(N_STARTS, len(starts))).long()
    growth, worst = largest_distances(distances, starts[spread], radius=radius)
    at, bound = Growth(radius=(radius**2 + 1) ** 0.5, error=0.0), []
    for kept, maps in zip(pruned.layers, pruned.maps, strict=True):
        at = grow(at, kept, maps, d_model=small.cfg.d_model, eps=small.cfg.layer_norm_eps)
        bound.append(at.error)
    return growth, worst, radius, torch.tensor(bound).numpy()


def in_float64(target: Transformer) -> Transformer:
    """A copy that rounds as little as a pruned network does."""
    return copy.deepcopy(target).double().eval().requires_grad_(False)


def what_is_kept(masks: dict[str, Tensor]) -> dict:
    """Fields of a result: counts and places of the weights that are kept."""
    return {
        "weights": {name: (int(mask.sum()), mask.numel()) for name, mask in masks.items()},
        "kept": {name: mask.nonzero().numpy() for name, mask in masks.items()},
    }


@torch.no_grad()
def logit_errors(
    target: Transformer, network: Transformer, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, " batch"]:
    """Of each sequence, the largest difference of any logit."""
    return (target(tokens) - network(tokens)).abs().flatten(1).amax(1)


def sequences(target: Transformer, task: Task | None, n: int, seed: int) -> Int[Tensor, "n pos"]:
    """Half from a task, half of random tokens; all random without one."""
    generator = derived_generator(seed, "random tokens")
    if task is None:
        return target.embed.example(n, min(target.cfg.n_ctx, 32), generator)
    own = task.sample(n // 2, generator=derived_generator(seed, "sequences"), split="test").tokens
    return torch.cat([own, target.embed.example(n - len(own), own.shape[1], generator)])


@torch.no_grad()
def entering(
    target: Transformer, tokens: Int[Tensor, "batch pos"], layer: int = 0
) -> Float[Tensor, "batch pos d_model"]:
    """The streams that enter a layer."""
    name = f"blocks.{layer}.hook_resid_pre"
    return target.run_with_cache(tokens, names_filter=name)[1][name]
