"""Whether attention scores of a bridge are sums over pairs of what was written to the stream: tested at load time."""

from collections.abc import Mapping

import torch
from torch import Tensor

from hooks.adapters.bridge.reading import ReadTests
from hooks.adapters.bridge.sites import Cell, run

PROJECTIONS = ("attn.hook_q", "attn.hook_k")


def score_sums_cell(reads: ReadTests, fixed: Mapping[str, Tensor]) -> Cell:
    """Whether the pattern is the softmax of q k / scale, and q and k are sums over the stream, up to one scale.

    Args:
        reads: Results of the read tests.
        fixed: The clean input of every layer, by hook point, so that all layers are tested in one pass.
    """
    if not reads.sums.ok:
        return reads.sums
    if not fixed:
        return Cell("missing", reason="they cannot be tested layer by layer: hook_resid_pre cannot be set")
    for layer, tests in enumerate(reads.layers):
        if tests.scores_fault:
            return Cell("missing", reason=f"in layer {layer} {tests.scores_fault}")
    # In every layer the streams u, v, u + v and zero, at all positions
    generator = torch.Generator().manual_seed(2)
    streams = {}
    for point, clean in fixed.items():
        u, v = torch.randn(2, clean.shape[-1], generator=generator, dtype=torch.float32).to(clean) * clean.std()
        streams[point] = torch.stack([u, v, u + v, 0 * u])[:, None].expand(-1, clean.shape[1], -1)
    activations = run(reads.bridge, reads.tokens[[0, 1, 2, 0]], streams, reads.names)[1]
    for layer in range(reads.cfg.n_layers):
        points = [reads.points[f"blocks.{layer}.{site}"][0] for site in PROJECTIONS]
        read = torch.cat([activations[point].flatten(2) for point in points], -1).double()
        first, second, total = (read - read[3, 0])[:3]
        basis = torch.stack([first, second], -1)
        nearest = basis @ (torch.linalg.pinv(basis) @ total[..., None])
        if not reads.tolerance.equal(nearest[..., 0], total):
            reason = f"in layer {layer} queries and keys are no sums over the stream with the scale of a norm held"
            return Cell("missing", reason=reason)
    return Cell("works")
