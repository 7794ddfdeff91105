"""How far can an error grow? Layer by layer: what enters times the layer's Lipschitz constant, and the layer's own.

Everything is an upper bound on the whole ball of inputs, in ||.||_{1,2} of the stream with its coordinate that is one.
"""

from dataclasses import dataclass

from interp.theory.pruning.layers import LayerMasks
from interp.theory.pruning.target import LayerMaps, spectral_norm


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The largest stream and the largest error that may leave a layer."""

    radius: float
    error: float


def grow(before: Growth, kept: LayerMasks, maps: LayerMaps | None, *, d_model: int, eps: float) -> Growth:
    """Bounds after one random layer, given those before it.

    Args:
        before: What may enter.
        kept: The layer's masks, with the errors of its maps.
        maps: Whose attention the layer makes; None for a layer without.
        d_model: Width of the random network.
        eps: Of its norm.

    Source: the step of bounded Dyck's (arXiv:2312.01429) Theorem 3 from layer to layer, its Lemma 5. Differs: the
    constants are those of the masks as they are; a norm is only as smooth as 1 / sqrt(eps), which makes them large.
    """
    made, entering = kept.projection, before.radius + before.error
    normed = 0.0 if maps is None else (d_model / 2) ** 0.5
    normed_error = 0.0 if maps is None else _attention_error(before, kept, maps) / eps**0.5
    read = ((made.residual * entering) ** 2 + normed**2) ** 0.5 + normed_error
    own = made.second_norm * made.first_error + made.second_error * (made.first_norm + made.first_error)
    return Growth(
        radius=made.from_stream * before.radius + made.from_norm * normed,
        error=made.from_stream * before.error + made.from_norm * normed_error + own * read,
    )


def _attention_error(before: Growth, kept: LayerMasks, maps: LayerMaps) -> float:
    """Of what heads write, twice: once mirrored. A pattern's rows move by no more than the scores do."""
    entering = before.radius + before.error
    writes = [spectral_norm(write) for write in maps.centred]
    moved = sum(
        write * (before.error + entering * spectral_norm(score) * (before.radius + entering) * before.error)
        for write, score in zip(writes, maps.score, strict=True)
    )
    own = kept.write_error * entering + max(writes) * entering * kept.score_error * entering**2
    return 2**0.5 * moved + own * 2**0.5
