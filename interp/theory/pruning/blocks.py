"""Pruning random matrices to the building blocks of Theorem 3: a linear map, a two-layer MLP, an attention module."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from hooks import Transformer
from hooks.model.layers import Linear
from hooks.model.stack import make_context
from interp.core.randomness import derived_generator
from interp.theory.pruning.layers import mask_attention, nothing_kept
from interp.theory.pruning.network import apply_masks, layout_of, random_layers, random_network, widened
from interp.theory.pruning.result import PruningResult, pruning_result, within_tolerance
from interp.theory.pruning.search import norm_1_2, worst_on_ball
from interp.theory.pruning.subset_sum import Between, mask_pair, rows_needed
from interp.theory.pruning.target import check_target, in_float64, layer_maps, scale_for, spectral_norm

N_STARTS, POSITIONS = 32, 8


def prune_to_linear(
    weight: Float[Tensor, "output input"],
    *,
    candidates: int = 28,
    rescale: bool = False,
    tolerance: float | None = None,
    seed: int = 0,
) -> PruningResult:
    """Prune y = W_2 relu(W_1 x), with two random matrices, to y = W x.

    Args:
        weight: The target map, of spectral norm 1 at most.
        candidates: Random numbers to choose from, for each weight of the target and each sign of the input.
        rescale: Accept a larger norm, and scale the random weights by it.
        tolerance: Largest error accepted; if None, any.
        seed: Seed of the random matrices and the inputs.

    Raises:
        ValueError: a map outside the theorem's ball, no candidates, or too few for the tolerance (with a number that
            is enough).

    Source: Pensia et al. 2020 (arXiv:2006.07990) Lemma 1; see `mask_pair`.
    """
    what = f"linear map {_shape(weight)}"
    return _prune_matrices(what, [weight], candidates=candidates, rescale=rescale, tolerance=tolerance, seed=seed)


def prune_to_mlp(
    w_in: Float[Tensor, "hidden input"],
    w_out: Float[Tensor, "output hidden"],
    *,
    candidates: int = 28,
    rescale: bool = False,
    tolerance: float | None = None,
    seed: int = 0,
) -> PruningResult:
    """Prune a ReLU network of four random matrices to y = W_out relu(W_in x).

    Both target matrices have a spectral norm of 1 at most. The options are those of `prune_to_linear`.

    Raises:
        ValueError: matrices whose shapes do not fit, or as `prune_to_linear`.
    """
    if w_out.shape[1] != len(w_in):
        raise ValueError(f"w_out is {_shape(w_out)} and w_in {_shape(w_in)}; w_out needs {len(w_in)} columns.")
    what = f"MLP {w_in.shape[1]}-{len(w_in)}-{len(w_out)}"
    return _prune_matrices(what, [w_in, w_out], candidates=candidates, rescale=rescale, tolerance=tolerance, seed=seed)


@torch.no_grad()
def prune_to_attention(
    target: Transformer,
    layer: int = 0,
    *,
    candidates: int = 28,
    rescale: bool = False,
    tolerance: float | None = None,
    seed: int = 0,
) -> PruningResult:
    """Prune the attention of one random layer to that of a trained layer: scores, softmax and what heads write.

    The target is as in `prune_to_transformer`, the options as in `prune_to_linear`. The weights approximated are the
    entries of W_K^T W_Q and of W_O W_V.

    Raises:
        ValueError: as `prune_to_transformer`, or no such layer.
    """
    check_target(target)
    maps, exact = layer_maps(target, layer), in_float64(target)
    norms = {f"layer {layer} {name}": norm for name, norm in maps.norms().items() if name[:5] in ("score", "write")}
    scale = scale_for(norms, rescale=rescale)
    what, shape = f"attention of width {target.cfg.d_model}", (min(POSITIONS, target.cfg.n_ctx), target.cfg.d_model)

    def make(n: int) -> PruningResult:
        network = random_network(target.cfg, candidates=n, n_layers=1, scale=scale, seed=seed)
        layout, (block,) = layout_of(target.cfg, n), random_layers(network)
        masks = nothing_kept(block)
        score_error, write_error = mask_attention(block, maps.score, maps.write, layout, masks)
        masks = {f"attention.{name}": masks[f"attention.{name}"] for name in "qkvo"}
        apply_masks(block, masks)
        network.double()

        def difference(stream: Tensor) -> Tensor:
            found = _attention(network, 0, widened(network, stream))[..., layout.normed]
            return norm_1_2(found - _attention(exact, layer, stream))

        wide = 2**0.5  # norm of an input with its coordinate that is 1
        bound = write_error * wide + max(map(spectral_norm, maps.write)) * score_error * wide**3
        return _searched(what, difference, shape, masks, network, bound=bound, candidates=n, scale=scale, seed=seed)

    return within_tolerance(make, attrgetter("error"), candidates=candidates, tolerance=tolerance)


def _attention(
    model: Transformer, layer: int, stream: Float[Tensor, "batch pos width"]
) -> Float[Tensor, "batch pos width"]:
    """Output of a layer's attention for this input."""
    context = make_context(model.cfg, None, None, stream.shape[1], stream.device)
    return model.block(layer).attention(stream, context, model.blocks[layer].attn)


@torch.no_grad()
def _prune_matrices(
    what: str, targets: Sequence[Tensor], *, candidates: int, rescale: bool, tolerance: float | None, seed: int
) -> PruningResult:
    """Prune two random matrices to each target matrix, with a ReLU between all of them."""
    norms = [spectral_norm(target.double()) for target in targets]
    scale = scale_for({f"the {what}": max(norms)}, rescale=rescale)
    wanted = [partial(F.linear, weight=target.double()) for target in targets]

    def make(n: int) -> PruningResult:
        generator = derived_generator(seed, "random matrices")
        modules: list[nn.Module] = []
        masks: dict[str, Tensor] = {}
        bound, reach = 0.0, 1.0  # on the error, and on the norm of what enters the next matrix
        for index, target in enumerate(targets):
            between: Between = "relu, inputs not negative" if index else "relu"
            rows = rows_needed(target.shape[1] * (1 if index else 2), n)
            shapes = (rows, target.shape[1]), (len(target), rows)
            first, second = (_random(shape, scale, generator) for shape in shapes)
            pair = mask_pair(first.weight, second.weight, target, candidates=n, between=between)
            place = len(modules) + bool(modules)
            masks |= {f"{place}": pair.first, f"{place + 2}": pair.second}
            modules += [*([nn.ReLU()] if modules else []), first, nn.ReLU(), second]
            bound = norms[index] * bound + pair.error(target) * (reach + bound)
            reach *= norms[index]
        network = nn.Sequential(*modules)
        apply_masks(network, masks)
        network.double()

        def difference(x: Tensor) -> Tensor:
            y = x
            for index, one in enumerate(wanted):
                y = one(y.relu() if index else y)
            return (network(x) - y).norm(dim=-1)

        shape = (targets[0].shape[1],)
        return _searched(what, difference, shape, masks, network, bound=bound, candidates=n, scale=scale, seed=seed)

    return within_tolerance(make, attrgetter("error"), candidates=candidates, tolerance=tolerance)


def _searched(
    what: str,
    difference: Callable[[Tensor], Float[Tensor, " batch"]],
    shape: tuple[int, ...],
    masks: dict[str, Tensor],
    network: nn.Module,
    *,
    bound: float,
    seed: int,
    **settings,
) -> PruningResult:
    """The result of a search for the largest difference, from random inputs of norm 1."""
    starts = torch.randn(N_STARTS, *shape, generator=derived_generator(seed, "starts"), dtype=torch.float64)
    with torch.enable_grad():
        worst = worst_on_ball(difference, starts / starts.norm(dim=-1, keepdim=True), radius=1.0)
    return pruning_result(
        what,
        worst,
        masks,
        network,
        domain="vectors of length at most 1, at every position",
        layers=(what,),
        growth=np.array([worst.found]),
        bound=np.array([bound]),
        radius=1.0,
        seed=seed,
        **settings,
    )


def _random(shape: tuple[int, int], scale: float, generator: torch.Generator) -> Linear:
    linear = Linear(shape[1], shape[0], bias=False)
    linear.weight.copy_((2 * torch.rand(shape, generator=generator) - 1) * scale**0.5)
    return linear.requires_grad_(False)


def _shape(weight: Tensor) -> str:
    return " x ".join(map(str, weight.shape))
