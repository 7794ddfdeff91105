"""The building blocks of the theorem by themselves: a linear map, a two-layer MLP, an attention module."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from hooks import Transformer
from hooks.model.attention import make_context
from hooks.modules import Linear
from interp.core.randomness import derived_generator
from interp.theory.pruning.layers import mask_attention, nothing_kept
from interp.theory.pruning.network import apply_masks, check_network, random_layers, random_network, widened
from interp.theory.pruning.result import PruningResult
from interp.theory.pruning.search import Worst, norm_1_2, worst_on_ball
from interp.theory.pruning.selection import Between, mask_pair, rows_needed
from interp.theory.pruning.target import check_target, checked_scale, layer_maps, spectral_norm
from interp.theory.pruning.tolerance import check_tolerance
from interp.theory.pruning.transformers import in_float64, what_is_kept

N_STARTS, POSITIONS = 32, 8


def prune_to_linear(
    weight: Float[Tensor, "output input"],
    *,
    candidates: int = 28,
    rescale: bool = False,
    tolerance: float | None = None,
    seed: int = 0,
) -> PruningResult:
    """Prune y = W_2 relu(W_1 x), two random matrices, to y = W x.

    Args:
        weight: The map wanted, at most of spectral norm 1.
        candidates: Random numbers to choose among for each of its weights, and each sign of the input.
        rescale: Allow a larger norm, with random weights as much larger.
        tolerance: Largest error that is accepted.
        seed: Decides the random matrices and the inputs tried.

    Raises:
        ValueError: a map outside the theorem's ball, no candidates, or too few for the tolerance (with a number that
            would do).

    Source: Pensia et al. 2020 (arXiv:2006.07990) Lemma 1; see `mask_pair`.
    """
    what = f"linear map {_shape(weight)}"
    return _prune_matrices([weight], what, candidates, rescale=rescale, tolerance=tolerance, seed=seed)


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

    Args:
        w_in: First matrix wanted, at most of spectral norm 1.
        w_out: Second.
        candidates: Random numbers to choose among for each of their weights (and each sign of the input).
        rescale: Allow larger norms, with random weights as much larger.
        tolerance: Largest error that is accepted.
        seed: Decides the random matrices and the inputs tried.

    Raises:
        ValueError: matrices that do not fit, outside the theorem's ball, no candidates, or too few for the tolerance.
    """
    if w_out.shape[1] != len(w_in):
        raise ValueError(f"w_out is {_shape(w_out)} and w_in {_shape(w_in)}; w_out needs {len(w_in)} columns.")
    what = f"MLP {w_in.shape[1]}-{len(w_in)}-{len(w_out)}"
    return _prune_matrices([w_in, w_out], what, candidates, rescale=rescale, tolerance=tolerance, seed=seed)


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
    """Prune the attention of one random layer to that of a trained one: scores, softmax and what heads write.

    Args:
        target: Where the attention is.
        layer: In which layer.
        candidates: Random numbers to choose among for each entry of W_K^T W_Q and of W_O W_V.
        rescale: Allow a target outside the theorem's ball, with random weights as much larger.
        tolerance: Largest error that is accepted.
        seed: Decides the random layer and the inputs tried.

    Raises:
        ValueError: what `prune_to_transformer` refuses, or a layer that is not there.
    """
    check_target(target)
    maps = layer_maps(target, layer)
    norms = {name: size for name, size in maps.norms().items() if name.startswith(("score", "write"))}
    worst_norm = max(norms, key=lambda name: norms[name])
    scale = checked_scale(norms[worst_norm], f"layer {layer} {worst_norm}", rescale=rescale)
    network = random_network(target.cfg, candidates=candidates, n_layers=1, scale=scale, seed=seed)
    layout = check_network(network, target.cfg, candidates, 1)
    (block,) = random_layers(network)
    masks = nothing_kept(block)
    score_error, write_error = mask_attention(block, maps.score, maps.write, layout, masks)
    masks = {f"attention.{name}": masks[f"attention.{name}"] for name in "qkvo"}
    apply_masks(block, masks)
    network.double()
    exact = in_float64(target)

    def difference(stream: Tensor) -> Tensor:
        found = _attention(network, 0, widened(network, stream))[..., layout.normed]
        return norm_1_2(found - _attention(exact, layer, stream))

    worst = _climb(difference, (min(POSITIONS, target.cfg.n_ctx), target.cfg.d_model), seed)
    check_tolerance(
        worst.found,
        tolerance,
        candidates,
        lambda more: prune_to_attention(target, layer, candidates=more, rescale=rescale, seed=seed).error,
    )
    wide = 2**0.5  # length of an input with its coordinate that is one
    bound = write_error * wide + max(map(spectral_norm, maps.write)) * score_error * wide**3
    what = f"attention of width {target.cfg.d_model}"
    return _block_result(what, worst, bound, masks, network, candidates=candidates, scale=scale, seed=seed)


def _attention(
    model: Transformer, layer: int, stream: Float[Tensor, "batch pos width"]
) -> Float[Tensor, "batch pos width"]:
    """What a layer's attention writes, given what it reads."""
    context = make_context(model.cfg, None, None, stream.shape[1], stream.device)
    return model.block(layer).attention(stream, model.blocks[layer].attn, (), context)


@torch.no_grad()
def _prune_matrices(
    targets: Sequence[Tensor], what: str, candidates: int, *, rescale: bool, tolerance: float | None, seed: int
) -> PruningResult:
    if candidates < 1:
        raise ValueError(f"candidates is {candidates}; each weight needs at least 1.")
    norms = [spectral_norm(target.double()) for target in targets]
    scale = checked_scale(max(norms), f"the {what}", rescale=rescale)
    generator = derived_generator(seed, "random matrices")
    modules: list[nn.Module] = []
    masks: dict[str, Tensor] = {}
    wanted: list[Callable[[Tensor], Tensor]] = []
    bound, reach = 0.0, 1.0  # of the error, and of what enters the next matrix
    for index, target in enumerate(targets):
        signed: Between = "relu, inputs not negative" if index else "relu"
        rows = rows_needed(target.shape[1] * (1 if index else 2), candidates)
        first, second = (_random(shape, scale, generator) for shape in ((rows, target.shape[1]), (len(target), rows)))
        pair = mask_pair(first.weight, second.weight, target, candidates=candidates, between=signed)
        place = len(modules) + bool(modules)
        masks |= {f"{place}": pair.first, f"{place + 2}": pair.second}
        modules += [*([nn.ReLU()] if modules else []), first, nn.ReLU(), second]
        bound = norms[index] * bound + pair.error(target) * (reach + bound)
        reach *= norms[index]
        wanted.append(partial(F.linear, weight=target.double()))
    network = nn.Sequential(*modules)
    apply_masks(network, masks)
    network.double()

    def difference(x: Tensor) -> Tensor:
        y = x
        for index, one in enumerate(wanted):
            y = one(y.relu() if index else y)
        return (network(x) - y).norm(dim=-1)

    def error_with(more: int) -> float:
        return _prune_matrices(targets, what, more, rescale=rescale, tolerance=None, seed=seed).error

    worst = _climb(difference, (targets[0].shape[1],), seed)
    check_tolerance(worst.found, tolerance, candidates, error_with)
    return _block_result(what, worst, bound, masks, network, candidates=candidates, scale=scale, seed=seed)


def _climb(difference: Callable[[Tensor], Float[Tensor, " batch"]], shape: tuple[int, ...], seed: int) -> Worst:
    """From random inputs of length one."""
    starts = torch.randn(N_STARTS, *shape, generator=derived_generator(seed, "starts"), dtype=torch.float64)
    with torch.enable_grad():
        return worst_on_ball(difference, starts / starts.norm(dim=-1, keepdim=True), radius=1.0)


def _block_result(
    what: str,
    worst: Worst,
    bound: float,
    masks: dict[str, Tensor],
    network: nn.Module,
    *,
    candidates: int,
    scale: float,
    seed: int,
) -> PruningResult:
    return PruningResult(
        target=what,
        candidates=candidates,
        scale=scale,
        seed=seed,
        error=worst.found,
        sampled_error=worst.sampled,
        domain="vectors of length at most 1, at every position",
        n=worst.n,
        order_kept=None,
        layers=(what,),
        growth=np.array([worst.found]),
        bound=np.array([bound]),
        radius=1.0,
        **what_is_kept(masks),
        network=network,
    )


def _random(shape: tuple[int, int], scale: float, generator: torch.Generator) -> Linear:
    linear = Linear(shape[1], shape[0], bias=False)
    linear.weight.copy_((2 * torch.rand(shape, generator=generator) - 1) * scale**0.5)
    return linear.requires_grad_(False)


def _shape(weight: Tensor) -> str:
    return " x ".join(map(str, weight.shape))
