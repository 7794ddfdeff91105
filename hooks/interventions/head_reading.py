"""What a head reads of the residual stream, as an affine map that is measured: the same for every kind of model.

A norm divides the stream by one scale for each position, so that queries and keys are W s / scale(s) + b. Streams of
zero and of every basis vector give b and, up to one factor, W: all basis vectors have the same scale. At each position
of a batch the scale is then that by which the map gives the queries and keys of the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from hooks.interventions.ablation_engine import Head
from hooks.interventions.clean_pass import TOKENS_PER_PASS, Net
from hooks.model.checked_hooks import storing_hooks


@dataclass(frozen=True, kw_only=True)
class HeadReading:
    """Queries and keys of one head, and with a I their input, side by side: an affine map of the stream before the
    layer, up to the scale of its norm."""

    model: Net
    head: Head
    points: Sequence[str]
    """Hook points of queries and keys, and of their input where the scores have a term a I."""
    weight: Float[Tensor, "d_model width"]
    bias: Float[Tensor, " width"]

    @staticmethod
    @torch.no_grad()
    def of(model: Net, head: Head) -> "HeadReading":
        """Measure the map, in passes of 1 + d_model tokens together; hooks of the layer are part of it."""
        layer, _ = head
        points = [f"blocks.{layer}.attn.hook_q", f"blocks.{layer}.attn.hook_k"]
        if model.cfg.qk_identity:
            normed = f"blocks.{layer}.ln1.hook_normalized"
            points.append(normed if normed in model.hook_dict else f"blocks.{layer}.hook_resid_pre")
        like = next(iter(model.parameters()))
        basis = torch.eye(model.cfg.d_model, dtype=like.dtype, device=like.device)
        rows = []
        for streams in torch.cat([torch.zeros_like(basis[:1]), basis]).split(TOKENS_PER_PASS):
            activations: dict[str, Tensor] = {}
            tokens = torch.zeros(len(streams), 1, dtype=torch.long, device=like.device)
            with model.hooks(storing_hooks(points, activations)):
                model.resume(streams[:, None], layer, tokens=tokens)
            rows.append(_side_by_side(activations, points, head)[:, 0])
        of_zero, of_basis = torch.cat(rows).split([1, len(basis)])
        return HeadReading(model=model, head=head, points=points, weight=of_basis - of_zero, bias=of_zero[0])

    def inputs(
        self,
        parts: Float[Tensor, "part batch pos d_model"],
        constant: Float[Tensor, " d_model"],
        activations: Mapping[str, Tensor],
    ) -> tuple[Float[Tensor, "parts_and_biases batch pos width"], ...]:
        """Queries and keys, and with a I their input, as sums over parts; the last part is that of all biases.

        Args:
            parts: What each part wrote to the stream.
            constant: Further terms of the stream.
            activations: Those of the model at `points`, which give the scale of each position.
        """
        written = torch.cat([parts, constant.expand_as(parts[:1])]) @ self.weight
        total = written.sum(0)
        of_model = _side_by_side(activations, self.points, self.head) - self.bias
        # The nearest multiple; a head that reads nothing has any
        size = total.square().sum(-1, keepdim=True).clamp_min(torch.finfo(total.dtype).tiny)
        written = written * ((of_model * total).sum(-1, keepdim=True) / size)
        written[-1] += self.bias
        d_head = self.model.cfg.d_head
        return written.split([d_head, d_head, written.shape[-1] - 2 * d_head], -1)


def _side_by_side(
    activations: Mapping[str, Tensor], points: Sequence[str], head: Head
) -> Float[Tensor, "batch pos width"]:
    """Activations of a head at all points, in double precision."""
    values = [activations[point].double() for point in points]
    return torch.cat([value[:, :, head[1]] if value.ndim == 4 else value for value in values], -1)
