"""Multi-head attention with hard-coded heads next to learned ones."""

from collections.abc import Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from hooks.model.attention import FUSED_FROM, Attention, pattern_is_hooked
from hooks.model.hardcoded.head_patterns import HeadPattern, Pathways, check_patterns
from hooks.model.hardcoded.token_maps import PathwayMaps, TokenMaps
from hooks.model.layers import HookPoint, take
from hooks.randomness import seeded_generator


class HardcodedAttention(Attention):
    """Attention whose hard-coded heads mix values by maps of the token ids (`hooks.token_maps`).

    The hook points of an applied layer carry its `patterns`, one per head, so that layers that share weights may differ
    in their hard-coded heads. Each of these is applied as a matrix.

    With `Pathways` the hard-coded heads are computed in time and memory linear in the length: class means by segment
    sums and a gather, one mean per sequence for [CLS] and [SEP], a depthwise convolution. Learned heads come first and
    are the only ones with queries and keys. Scores (for a hard-coded head the log of its map) and patterns are computed
    only if they are hooked, which leaves the output as it is; if a hook changes a row of a pattern, the head mixes
    values by the new row. A convolution has one kernel per coordinate and so no single pattern: the one that is shown
    is the mean over its coordinates of the absolute weights.

    Args:
        cfg: Sizes and terms, under the names of `hooks.TransformerConfig`.
        pathways: The mixture of heads; None if the hook points' patterns are applied as matrices.
        learned: Whether any head has queries and keys, if there are no pathways; then all have weights for them.

    Raises:
        ValueError: pathways that do not add up to the width of all heads, or are not whole numbers of heads.
    """

    def __init__(self, cfg: Any, pathways: Pathways | None = None, *, learned: bool = True):
        n_query_heads = cfg.n_heads if learned else 0
        if pathways is not None:
            n_query_heads = pathways.heads(cfg.d_head, cfg.n_heads * cfg.d_head)["learned"]
        super().__init__(cfg, n_query_heads=n_query_heads)
        self.pathways, self.kernel = pathways, None
        if pathways is not None and pathways.convolution:
            self.kernel = nn.Parameter(torch.empty(pathways.convolution, pathways.kernel_width))

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Float[Tensor, "batch pos d_model"], maps: TokenMaps, sites: Any
    ) -> Float[Tensor, "batch query d_model"]:
        """The output of attention, before it is added to the residual stream.

        Args:
            x: What attention reads.
            maps: The maps of this batch.
            sites: Hook points of the applied layer.

        Raises:
            ValueError: maps of another batch, or that lack a token that is broadcast.
        """
        if x.shape[:2] != maps.tokens.shape:
            raise ValueError(f"maps are of tokens {tuple(maps.tokens.shape)}; x is {tuple(x.shape)}.")
        if self.pathways is None or not isinstance(maps, PathwayMaps):
            return super().forward(x, maps, sites)
        # Learned heads come first, then those with a map
        v = self._values(x, sites)
        v_learned = v[:, :, : self.n_query_heads]
        v_fixed = v[:, :, self.n_query_heads :]
        z_fixed = self._z_fixed(v_fixed.flatten(2), maps, sites)
        # Scores and patterns are computed only for hooks
        if pattern_is_hooked(sites):
            z = self._z_with_patterns(x, v, z_fixed, maps, sites)
        elif self.learned:
            z_learned = self._z_learned(x, v_learned, maps, sites)
            z = torch.cat([z_learned.flatten(2), z_fixed], -1)
        else:
            z = z_fixed
        return self.o(sites.hook_z(z.unflatten(-1, (self.n_heads, self.d_head))).flatten(2))

    def _can_fuse(self, x: Tensor, sites: Any) -> bool:
        return not sites.patterns and super()._can_fuse(x, sites)

    def _scores(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Tensor, maps: TokenMaps, sites: Any
    ) -> Float[Tensor, "batch head query key"]:
        """Scores of every head; of a hard-coded one the log of its map."""
        if not sites.patterns:
            return super()._scores(x, maps, sites)
        has_learned_heads = any(pattern.learned for pattern in sites.patterns)
        learned_scores = super()._scores(x, maps, sites).unbind(1) if has_learned_heads else ()
        bands = iter(()) if self.kernel is None else iter(self._bands(maps).unbind(1))
        # Collect them in the order of the heads
        scores = []
        for head, pattern in enumerate(sites.patterns):
            if pattern.learned:
                scores.append(learned_scores[head])
            elif pattern.kind == "convolution":
                scores.append(next(bands))
            else:
                scores.append(maps.scores(pattern).to(x.dtype))
        return torch.stack(scores, 1)

    def _z_fixed(
        self, v: Float[Tensor, "batch pos width"], maps: PathwayMaps, sites: Any
    ) -> Float[Tensor, "batch query width"]:
        """z of all hard-coded heads, side by side."""
        # Neighbouring heads with one pattern are computed together
        runs = [(pattern, len(list(heads))) for pattern, heads in groupby(sites.patterns) if not pattern.learned]
        widths = [n_heads * self.d_head for _, n_heads in runs]
        outputs = []
        for (pattern, _), values in zip(runs, v.split(widths, -1), strict=True):
            if pattern.kind == "association":
                outputs.append(maps.associated(values))
            elif pattern.kind == "broadcast":
                outputs.append(maps.broadcast(values, pattern.token))
            else:
                outputs.append(self._convolved(values, maps))
        if not outputs:  # every head is learned: a tensor of width 0, at the query positions
            return v[:, : maps.classes.shape[1]]
        return torch.cat(outputs, -1)

    def _convolved(self, v: Float[Tensor, "batch pos width"], maps: PathwayMaps) -> Float[Tensor, "batch query width"]:
        """Each coordinate convolved with its kernel; the ends and padding count as zeros."""
        assert self.kernel is not None
        # (batch, width, pos, 1) in memory as (batch, pos, width): no copy, and the fast kernel on a CPU
        image = maps.without_padding(v).contiguous().mT[..., None]
        kernel = self.kernel[:, None, :, None].to(v.dtype)
        out = F.conv2d(image, kernel, padding=(kernel.shape[2] // 2, 0), groups=len(kernel))[..., 0].mT
        return out if maps.queries is None else take(out, maps.queries)

    def _z_learned(
        self, x: Tensor, v: Float[Tensor, "batch pos head d_head"], maps: PathwayMaps, sites: Any
    ) -> Float[Tensor, "batch query head d_head"]:
        """z of the learned heads."""
        if x.shape[1] >= FUSED_FROM:
            return self._fused_z(x, v, maps, sites)
        pattern = super()._scores(x, maps, sites).softmax(-1)
        return (pattern @ v.transpose(1, 2)).transpose(1, 2)

    def _z_with_patterns(
        self,
        x: Tensor,
        v: Float[Tensor, "batch pos head d_head"],
        z_fixed: Float[Tensor, "batch query fixed_width"],
        maps: PathwayMaps,
        sites: Any,
    ) -> Float[Tensor, "batch query width"]:
        """z of all heads, with scores and patterns passed through their hook points."""
        clean_scores = self._scores(x, maps, sites)
        # Of a copy: a hook may change it in place, and that is an edit, with the gradient of an edit
        pattern = sites.hook_pattern(sites.hook_attn_scores(clean_scores.clone()).softmax(-1))
        n_learned = self.n_query_heads
        values = v.transpose(1, 2)
        z_learned = pattern[:, :n_learned] @ values[:, :n_learned]
        # Rows of a hard-coded pattern that no hook changed keep their z; the change, zero there, adds a gradient
        fixed_pattern = pattern[:, n_learned:]
        fixed_values = values[:, n_learned:]
        change = fixed_pattern - clean_scores[:, n_learned:].softmax(-1)
        row_changed = (change != 0).any(-1, keepdim=True)
        z_edited = fixed_pattern @ fixed_values
        z_unedited = z_fixed.unflatten(-1, (-1, self.d_head)).transpose(1, 2) + change @ fixed_values
        z = torch.cat([z_learned, torch.where(row_changed, z_edited, z_unedited)], 1)
        return z.transpose(1, 2).flatten(2)

    def _bands(self, maps: TokenMaps) -> Float[Tensor, "batch head query key"]:
        """Scores of each convolution head: logs of the mean of its coordinates' absolute weights."""
        assert self.kernel is not None and isinstance(maps, PathwayMaps)  # noqa: PT018
        # One kernel for each head
        width = self.kernel.shape[1]
        weight = self.kernel.abs().unflatten(0, (-1, self.d_head)).mean(1)
        weight = weight.clamp_min(torch.finfo(weight.dtype).tiny)  # a kernel of zeros is shown as uniform
        # The entry of the kernel for each query and key
        batch, pos = maps.tokens.shape
        queries = maps.query_positions.expand(batch, -1)
        offset = torch.arange(pos, device=weight.device) - queries[..., None] + width // 2
        inside = (offset >= 0) & (offset < width)
        if maps.real is not None:  # padded queries see padding
            inside = inside & (maps.real[:, None] | ~maps.real.gather(1, queries)[..., None])
        band = weight.log()[:, offset.clamp(0, width - 1)].transpose(0, 1)
        # Not the log of a normalised map, since the log of 0 has no gradient
        return band.masked_fill(~inside[:, None], -torch.inf).log_softmax(-1)


class LegoAttention(HardcodedAttention):
    """Attention with hard-coded heads as a module for other models, with its own hook points.

    Every head is hooked: `hook_v` and `hook_z` (batch, pos, head, d_head), `hook_attn_scores` and `hook_pattern`
    (batch, head, query, key), and `hook_q` and `hook_k` of the heads that have queries and keys.

        attention = LegoAttention(768, Pathways(learned=384, association=64, cls=64, sep=64, convolution=192,
                                                cls_token=101, sep_token=102))
        maps = token_maps(ids, mask, heads=attention.heads, d_vocab=30522)  # once per batch
        out = attention(x, maps)  # in every layer

    Args:
        d_model: Width of the residual stream.
        heads: `Pathways`, whose sizes must add up to `width`, or a pattern for each head.
        d_head: Width of a head.
        width: Width of all heads together; if None, that of the patterns, or `d_model` for `Pathways`.
        scale: Scores of learned heads are divided by it; sqrt(d_head) if None.
        bias: Biases on queries, keys, values and output.
        seed: Decides the initial weights, N(0, 1/fan_in), without torch's global generator; if None, the weights are
            uninitialised.

    Raises:
        ValueError: heads that do not fill the width, or a convolution outside `Pathways`.

    Source: LEGO (arXiv:2206.04301) Section 5. Differs: heads and their numbers, a depthwise convolution, whose values
    are projected as those of the other pathways; the paper leaves both open.
    """

    hook_result = None  # only z is hooked

    def __init__(
        self,
        d_model: int,
        heads: Pathways | Sequence[HeadPattern],
        *,
        d_head: int = 64,
        width: int | None = None,
        scale: float | None = None,
        bias: bool = True,
        seed: int | None = 0,
    ):
        # Both kinds of description give a pattern for each head
        if isinstance(heads, Pathways):
            pathways = heads
            width = d_model if width is None else width
            patterns = heads.patterns(d_head, width)
        else:
            pathways = None
            patterns = tuple(heads)
            check_patterns(patterns)
            if width not in (None, len(heads) * d_head):
                raise ValueError(f"width is {width}; {len(heads)} heads of d_head {d_head} are {len(heads) * d_head}.")
            width = len(heads) * d_head
        learned = any(pattern.learned for pattern in patterns)
        # The fields of a TransformerConfig that attention reads
        cfg = SimpleNamespace(
            d_model=d_model,
            n_heads=width // d_head,
            d_head=d_head,
            attn_scale=d_head**0.5 if scale is None else scale,
            attn_bias=bias,
            output_projection=True,
            qk_identity=False,
            vo_identity=False,
        )
        super().__init__(cfg, pathways, learned=learned)
        self.heads = heads
        self.patterns = () if all(pattern.learned for pattern in patterns) else patterns
        if learned:
            self.hook_q, self.hook_k = HookPoint(), HookPoint()
        self.hook_v, self.hook_z = HookPoint(), HookPoint()
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()
        if seed is not None:
            generator = seeded_generator(seed)
            for parameter in self.parameters():
                if parameter.ndim == 2:
                    nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5, generator=generator)

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], maps: TokenMaps, sites: Any = None
    ) -> Float[Tensor, "batch query d_model"]:
        """The output of attention, with this module's hook points, or others."""
        return super().forward(x, maps, self if sites is None else sites)
