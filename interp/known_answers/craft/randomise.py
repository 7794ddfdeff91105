"""The same known answer in other clothes: heads in another order, weights at another scale, the stream turned."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import torch

from hooks import Transformer
from interp.known_answers.answers import KnownAnswer
from interp.known_answers.craft.surgery import permute_heads, rescale
from interp.known_answers.craft.wiring import LINEAR_EPS, mean_keeping_rotation
from interp.known_answers.craft.wiring import rotate as rotate_stream


def randomise(known: KnownAnswer, generator: torch.Generator, *, rotate: bool) -> KnownAnswer:
    """A copy whose heads stand in random order, whose weights have other scales, and whose truth follows.

    Args:
        known: Any. It is not changed. Heads that are hard-coded or have no output matrix keep their places.
        generator: Decides everything.
        rotate: Turn the residual stream too, so that no coordinate is a register any more.

    Returns:
        The same function and the same truths, head by head.

    Raises:
        ValueError: a rotation of a model whose norms, positions or read-out do not allow it.
    """
    model, cfg = deepcopy(known.model), known.model.cfg
    if rotate:
        if not can_turn(model):
            raise ValueError(
                f"the stream of this model cannot be turned (block={cfg.block!r}, positions={cfg.positions!r}, "
                f"tied_embedding={cfg.tied_embedding}, output_projection={cfg.output_projection}); set rotate=False."
            )
        rotate_stream(model, mean_keeping_rotation(model.cfg.d_model, generator))
    orders = random_orders(model, generator)
    permute_heads(model, orders)
    rescale(model, generator)
    return replace(reordered(known, orders), name=f"{known.name}, randomised", model=model)


def random_orders(model: Transformer, generator: torch.Generator) -> list[list[int]]:
    """For each stored block a random order of its heads; the present one where heads cannot change places."""
    cfg = model.cfg
    if cfg.head_patterns or not cfg.output_projection:
        return [list(range(cfg.n_heads)) for _ in model.stored_blocks]
    return [torch.randperm(cfg.n_heads, generator=generator).tolist() for _ in model.stored_blocks]


def reordered(known: KnownAnswer, orders: Sequence[Sequence[int]]) -> KnownAnswer:
    """The known answer with its truths, and the partners in them, where `permute_heads` puts the heads.

    Args:
        known: Its model is kept as it is.
        orders: For each stored block, which of its heads comes first, second, ...
    """
    place = {
        (layer, head): (layer, orders[layer % len(orders)].index(head))
        for layer in range(known.model.cfg.n_layers)
        for head in range(known.model.cfg.n_heads)
    }
    heads = {
        place[head]: replace(truth, partners=tuple(place[other] for other in truth.partners))
        for head, truth in known.heads.items()
    }
    return replace(known, heads=dict(sorted(heads.items())))


def can_turn(model: Transformer) -> bool:
    """Whether the stream of a model can be turned: nothing in it stands on single coordinates."""
    cfg = model.cfg
    linear = cfg.block == "bare" or (cfg.block == "pre_ln" and cfg.layer_norm_eps >= LINEAR_EPS)
    return linear and cfg.positions in ("learned", "none") and not cfg.tied_embedding and cfg.output_projection
