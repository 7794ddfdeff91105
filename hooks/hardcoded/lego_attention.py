"""Attention with pathways that are written down: equal tokens, [CLS], [SEP] and neighbours, beside learned heads."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from hooks.hardcoded.pathways import Pathways
from hooks.hardcoded.token_maps import TokenMaps
from hooks.modules import FUSED_FROM, HookPoint, Linear, Module, has_hooks, take


class LegoAttention(Module):
    """out = [z_1 ... z_H] W_O + b_O, where each head mixes values x W_V by the map of its pathway.

    Learned heads come first and are the only ones with queries and keys. The maps of the others come from token ids,
    once per batch (`hooks.token_maps`), and are applied in time and memory linear in the length: class means by segment
    sums and a gather, one mean per sequence for [CLS] and [SEP], and a depthwise convolution.

    Every pathway is hooked like heads: `hook_v` and `hook_z` (batch, pos, head, d_head), `hook_attn_scores` and
    `hook_pattern` (batch, head, query, key), of learned heads `hook_q` and `hook_k`. Scores (of a fixed map its log)
    and patterns are worked out only while somebody hooks them, and leave what is computed as it was. A row of a pattern
    that a hook changes mixes values as the hook says. A convolution has a kernel for each coordinate and so no one
    pattern: it shows the mean over its coordinates of their absolute weights.

        attention = LegoAttention(768, Pathways(learned=384, association=64, cls=64, sep=64, convolution=192,
                                                cls_token=101, sep_token=102))
        maps = token_maps(ids, mask, pathways=attention.pathways, d_vocab=30522)  # once per batch
        out = attention(x, maps)  # in every layer

    Args:
        d_model: Width of the stream that is read and written.
        pathways: What the heads are. Their sizes must add up to `width`.
        d_head: Width of a head.
        width: Of all heads together; `d_model` when left out.
        scale: Scores of learned heads are divided by it; sqrt(d_head) when left out.
        bias: Biases on queries, keys, values and output.
        seed: Decides the initial weights, N(0, 1/fan_in); torch's global generator is neither read nor moved. None
            leaves them unset, for whoever fills them.
        hooked: Has hook points of its own. Without them each call must bring some.

    Raises:
        ValueError: sizes that do not add up to the width, or that are no whole number of heads.

    Source: LEGO (arXiv:2206.04301) Section 5. Differs: heads and their numbers, a depthwise convolution, whose values
    are projected as those of the other pathways; the paper leaves both open.
    """

    def __init__(
        self,
        d_model: int,
        pathways: Pathways,
        *,
        d_head: int = 64,
        width: int | None = None,
        scale: float | None = None,
        bias: bool = True,
        seed: int | None = 0,
        hooked: bool = True,
    ):
        super().__init__()
        width = d_model if width is None else width
        self.pathways, self.heads = pathways, pathways.heads(d_head, width)
        self.n_heads, self.d_head, self.scale = width // d_head, d_head, d_head**0.5 if scale is None else scale
        self.n_learned = self.heads["learned"]
        self.learned = self.n_learned > 0
        if self.learned:
            self.q = Linear(d_model, pathways.learned, bias=bias)
            self.k = Linear(d_model, pathways.learned, bias=bias)
        self.v = Linear(d_model, width, bias=bias)
        self.o = Linear(width, d_model, bias=bias)
        self.kernel = (
            nn.Parameter(torch.empty(pathways.convolution, pathways.kernel_width)) if pathways.convolution else None
        )
        if hooked:
            if self.learned:
                self.hook_q, self.hook_k = HookPoint(), HookPoint()
            self.hook_v, self.hook_z = HookPoint(), HookPoint()
            self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
            for parameter in self.parameters():
                if parameter.ndim == 2:
                    nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5, generator=generator)

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], maps: TokenMaps, at: Any = None
    ) -> Float[Tensor, "batch query d_model"]:
        """What attention writes.

        Args:
            x: What attention reads.
            maps: Those of this batch's tokens.
            at: Hook points to pass, instead of the module's own.

        Raises:
            ValueError: maps of another batch, or that lack a marker that is broadcast.
        """
        if x.shape[:2] != maps.tokens.shape:
            raise ValueError(f"maps are of tokens {tuple(maps.tokens.shape)}; x is {tuple(x.shape)}.")
        at = self if at is None else at
        v = at.hook_v(self.v(x).unflatten(-1, (self.n_heads, self.d_head)))
        fixed = self._fixed(v[:, :, self.n_learned :].flatten(2), maps)
        if has_hooks(at.hook_attn_scores) or has_hooks(at.hook_pattern):
            z = self._shown(x, v, fixed, maps, at)
        elif self.learned:
            z = torch.cat([self._attended(x, v[:, :, : self.n_learned], maps, at), fixed], -1)
        else:
            z = fixed
        return self.o(at.hook_z(z.unflatten(-1, (self.n_heads, self.d_head))).flatten(2))

    def _fixed(self, v: Float[Tensor, "batch pos width"], maps: TokenMaps) -> Float[Tensor, "batch query width"]:
        """What all pathways but the learned one hand on, side by side."""
        sizes = {name: size for name, size in self.pathways.sizes.items() if name != "learned" and size}
        parts = []
        for name, part in zip(sizes, v.split(list(sizes.values()), -1), strict=True):
            if name == "association":
                parts.append(maps.associated(part))
            elif name == "convolution":
                parts.append(self._convolved(part, maps))
            else:
                parts.append(maps.broadcast(part, name))
        return torch.cat(parts, -1) if parts else v[:, : maps.classes.shape[1]]

    def _convolved(self, v: Float[Tensor, "batch pos width"], maps: TokenMaps) -> Float[Tensor, "batch query width"]:
        """Each coordinate with its own kernel, nothing beyond the ends and no padding seen."""
        assert self.kernel is not None
        # (batch, width, pos, 1) in memory as (batch, pos, width): no copy, and the fast kernel on a CPU
        image = maps.without_padding(v).contiguous().mT[..., None]
        kernel = self.kernel[:, None, :, None].to(v.dtype)
        out = F.conv2d(image, kernel, padding=(self.pathways.kernel_width // 2, 0), groups=len(kernel))[..., 0].mT
        return out if maps.queries is None else take(out, maps.queries)

    def _attended(
        self, x: Tensor, v: Float[Tensor, "batch pos head d_head"], maps: TokenMaps, at: Any
    ) -> Float[Tensor, "batch query width"]:
        """What learned heads hand on."""
        if self.training and x.shape[1] >= FUSED_FROM:
            q, k = self._query_key(x, maps, at)
            seen = None if maps.real is None else maps.visible[:, None, None, :]
            z = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), seen, scale=1 / self.scale
            )
        else:
            z = self._scores(x, maps, at).softmax(-1) @ v.transpose(1, 2)
        return z.transpose(1, 2).flatten(2)

    def _query_key(self, x: Tensor, maps: TokenMaps, at: Any) -> tuple[Tensor, Tensor]:
        asking = x if maps.queries is None else take(x, maps.queries)
        q = at.hook_q(self.q(asking).unflatten(-1, (self.n_learned, self.d_head)))
        return q, at.hook_k(self.k(x).unflatten(-1, (self.n_learned, self.d_head)))

    def _scores(self, x: Tensor, maps: TokenMaps, at: Any) -> Float[Tensor, "batch head query key"]:
        q, k = self._query_key(x, maps, at)
        scores = (q / self.scale).transpose(1, 2) @ k.permute(0, 2, 3, 1)
        return scores if maps.real is None else scores.masked_fill(~maps.visible[:, None, None, :], -torch.inf)

    def _shown(
        self,
        x: Tensor,
        v: Float[Tensor, "batch pos head d_head"],
        fixed: Float[Tensor, "batch query fixed_width"],
        maps: TokenMaps,
        at: Any,
    ) -> Float[Tensor, "batch query width"]:
        """What all heads hand on, while scores and patterns pass their hook points."""
        scores = [self._scores(x, maps, at)] if self.learned else []
        if self.n_learned < self.n_heads:
            scores.append(self._fixed_scores(maps).to(x.dtype))
        before = torch.cat(scores, 1)
        # of a copy: what a hook does to it, in place too, is an edit, and its gradient that of an edit
        pattern = at.hook_pattern(at.hook_attn_scores(before.clone()).softmax(-1))
        (learned, other), (v_learned, v) = (
            both.split([self.n_learned, self.n_heads - self.n_learned], 1) for both in (pattern, v.transpose(1, 2))
        )
        change = other - before[:, self.n_learned :].softmax(-1)
        changed = (change != 0).any(-1, keepdim=True)
        as_it_was = fixed.unflatten(-1, (-1, self.d_head)).transpose(1, 2) + change @ v  # adds nothing but a gradient
        z = torch.cat([learned @ v_learned, torch.where(changed, other @ v, as_it_was)], 1)
        return z.transpose(1, 2).flatten(2)

    def _fixed_scores(self, maps: TokenMaps) -> Float[Tensor, "batch head query key"]:
        """Log of the map of every head that is not learned."""
        found = []
        for name, n in self.heads.items():
            if name == "convolution" and n:
                found.append(self._band(maps))
            elif name != "learned" and n:
                found.append(maps.dense(name).log()[:, None].expand(-1, n, -1, -1))
        return torch.cat(found, 1)

    def _band(self, maps: TokenMaps) -> Float[Tensor, "batch head query key"]:
        """Log of where each convolution head looks: the mean of its coordinates' absolute weights."""
        assert self.kernel is not None
        weight = self.kernel.abs().unflatten(0, (-1, self.d_head)).mean(1)
        weight = weight.clamp_min(torch.finfo(weight.dtype).tiny)  # a kernel of zeros looks at its neighbours all alike
        batch, pos = maps.tokens.shape
        at = torch.arange(pos, device=weight.device)
        asked = at.expand(batch, -1) if maps.queries is None else maps.queries
        offset = at - asked[..., None] + self.pathways.kernel_width // 2
        inside = (offset >= 0) & (offset < self.pathways.kernel_width)
        if maps.real is not None:  # padded queries see each other, as everywhere
            inside = inside & (maps.real[:, None] | ~maps.real.gather(1, asked)[..., None])
        band = weight.log()[:, offset.clamp(0, self.pathways.kernel_width - 1)].transpose(0, 1)
        return band.masked_fill(~inside[:, None], -torch.inf).log_softmax(-1)  # the log of a 0 would have no gradient
