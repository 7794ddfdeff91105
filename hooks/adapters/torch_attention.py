"""Hook points inside the attention of torch modules: `MultiheadAttention`, or attention made of `Linear` maps."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from hooks.model.layers import HookPoint

KEYS = ({"q", "k", "v", "o"}, {"qkv", "o"})
"""The maps that attention is described by; `pattern` is optional."""


class HookedAttention(nn.Module):
    """Hook points and weights of one layer's attention, under TransformerLens's names.

    W_Q, W_K, W_V are (head, d_model, d_head), W_O is (head, d_head, d_model); a missing bias is None.
    """

    n_heads: int
    d_head: int
    d_model: int
    hook_pattern: HookPoint
    hook_attn_scores: HookPoint

    def __init__(self):
        super().__init__()
        self.hook_in = HookPoint()  # (batch, pos, d_model), what queries, keys and values are computed from
        self.hook_q, self.hook_k, self.hook_v, self.hook_z = (HookPoint() for _ in range(4))

    @property
    def n_key_value_heads(self) -> int:
        """Key and value heads."""
        return len(self.W_K)

    def _maps(self) -> dict[str, Any]:
        """Weight (out, in) and bias of q, k, v and o."""
        raise NotImplementedError

    def _heads(self, name: str) -> Tensor:
        return self._maps()[name][0].unflatten(0, (-1, self.d_head)).mT

    def _bias(self, name: str) -> Tensor | None:
        return self._maps()[name][1]

    W_Q = property(lambda self: self._heads("q"))
    W_K = property(lambda self: self._heads("k"))
    W_V = property(lambda self: self._heads("v"))
    W_O = property(lambda self: self._maps()["o"][0].T.unflatten(0, (self.n_heads, -1)))
    b_Q = property(lambda self: self._bias("q"))
    b_K = property(lambda self: self._bias("k"))
    b_V = property(lambda self: self._bias("v"))
    b_O = property(lambda self: self._bias("o"))

    def attached(self, hook_attn_out: HookPoint) -> Any:
        """A context in which the layer's attention runs these hook points."""
        raise NotImplementedError

    def _split(self, x: Float[Tensor, "batch pos width"]) -> Float[Tensor, "batch pos head d_head"]:
        return x.unflatten(-1, (-1, self.d_head))


class MultiheadAttention(HookedAttention):
    """Hook points of a `torch.nn.MultiheadAttention`, which is computed step by step with the same weights.

    Args:
        layer: The layer.
        name: Name of the attention in it.
        n_heads: Heads, to be checked; if None, the attention's own number.
        where: The layer's name, for error texts.
    """

    def __init__(self, layer: nn.Module, name: str, n_heads: int | None, where: str):
        super().__init__()
        torch_attn = _part(layer, name, where)
        if not isinstance(torch_attn, nn.MultiheadAttention):
            raise ValueError(
                f"attention is {name!r}, in {where} a {type(torch_attn).__name__}; one name is enough "
                f"for a torch.nn.MultiheadAttention only. Name the Linear maps of another one: {{'q': ..., 'k': ..., "
                f"'v': ..., 'o': ..., 'pattern': ...}}."
            )
        for fault, found in {
            "batch_first=False": not torch_attn.batch_first,
            "kdim or vdim": not torch_attn._qkv_same_embed_dim,
            "add_bias_kv=True": torch_attn.bias_k is not None,
            "add_zero_attn=True": torch_attn.add_zero_attn,
        }.items():
            if found:
                raise ValueError(f"{where}.{name} was made with {fault}, which from_module does not support.")
        self.n_heads, self.d_head, self.d_model = torch_attn.num_heads, torch_attn.head_dim, torch_attn.embed_dim
        if n_heads not in (None, self.n_heads):
            raise ValueError(f"n_heads is {n_heads}; {where}.{name} has {self.n_heads}. Leave n_heads out.")
        self._attn = (torch_attn,)  # in a tuple, so that its parameters are not registered twice
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()

    def _maps(self) -> dict[str, Any]:
        attn: Any = self._attn[0]
        biases = [None] * 3 if attn.in_proj_bias is None else attn.in_proj_bias.chunk(3)
        maps = dict(zip("qkv", zip(attn.in_proj_weight.chunk(3), biases, strict=True), strict=True))
        return maps | {"o": (attn.out_proj.weight, attn.out_proj.bias)}

    @contextmanager
    def attached(self, hook_attn_out: HookPoint) -> Iterator[None]:
        """Compute the attention here while the context is open."""

        def forward(query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> tuple[Tensor, Any]:
            if key is not query or value is not query:
                raise ValueError(
                    "attention reads keys or values other than its queries' input; wrap self-attention only."
                )
            return self._forward(query, hook_attn_out, *args, **options)

        attn: Any = self._attn[0]
        attn.forward = forward
        try:
            yield
        finally:
            del attn.forward

    def _forward(
        self,
        x: Tensor,
        hook_attn_out: HookPoint,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention from x to itself; `is_causal` only repeats what `attn_mask` says."""
        maps, x = self._maps(), self.hook_in(x)
        q, k, v = (
            point(self._split(F.linear(x, *maps[name])))
            for name, point in (("q", self.hook_q), ("k", self.hook_k), ("v", self.hook_v))
        )
        scores = (q / self.d_head**0.5).transpose(1, 2) @ k.permute(0, 2, 3, 1)
        if attn_mask is not None:
            mask = attn_mask.view(-1, self.n_heads, *attn_mask.shape[1:]) if attn_mask.ndim == 3 else attn_mask
            scores = _masked(scores, mask)
        if key_padding_mask is not None:
            scores = _masked(scores, key_padding_mask[:, None, None])
        pattern = self.hook_pattern(self.hook_attn_scores(scores).softmax(-1))
        dropped = F.dropout(pattern, self._attn[0].dropout, self._attn[0].training)
        z = self.hook_z((dropped @ v.transpose(1, 2)).transpose(1, 2))
        out = hook_attn_out(F.linear(z.flatten(2), *maps["o"]))
        weights = dropped.mean(1) if average_attn_weights else dropped
        return out, weights if need_weights else None


class LinearAttention(HookedAttention):
    """Hook points at the inputs and outputs of the `Linear` maps of an attention.

    Args:
        layer: The layer.
        names: Names of the maps in it; see `hooks.from_module`.
        n_heads: Query heads.
        where: The layer's name, for error texts.
    """

    def __init__(self, layer: nn.Module, names: Mapping[str, str], n_heads: int | None, where: str):
        super().__init__()
        if set(names) - {"pattern"} not in KEYS:
            raise ValueError(
                f"attention names {', '.join(map(repr, names)) or 'nothing'}; needed are 'q', 'k', 'v', 'o', or 'qkv', "
                f"'o'; and, for patterns, 'pattern'."
            )
        if n_heads is None or n_heads < 1:
            raise ValueError(f"n_heads is {n_heads}; with an attention made of Linear maps, give the number of heads.")
        parts = {name: _part(layer, path, where) for name, path in names.items()}
        for name, part in parts.items():
            if name != "pattern" and not isinstance(part, nn.Linear):
                raise ValueError(
                    f"{name} of attention is {names[name]!r}, in {where} a {type(part).__name__}, not a Linear."
                )
        width, self.d_model = parts["o"].in_features, parts["o"].out_features
        if width % n_heads:
            raise ValueError(
                f"o of attention, {where}.{names['o']}, reads {width} values, no multiple of n_heads {n_heads}."
            )
        self.n_heads, self.d_head = n_heads, width // n_heads
        outs = {"qkv": 3 * width} if "qkv" in parts else {"q": width}
        for name, out in outs.items():
            if parts[name].out_features != out:
                raise ValueError(
                    f"{name} of attention, {where}.{names[name]}, gives {parts[name].out_features} values; with "
                    f"{n_heads} heads that o reads, it must be {out}."
                )
        self._parts = (parts,)  # in a tuple, so that their parameters are not registered twice
        if "pattern" in parts:
            self.hook_pattern = HookPoint()

    def _maps(self) -> dict[str, Any]:
        parts = self._parts[0]
        if "qkv" not in parts:
            return {name: (parts[name].weight, parts[name].bias) for name in "qkvo"}
        biases = [None] * 3 if parts["qkv"].bias is None else parts["qkv"].bias.chunk(3)
        maps = dict(zip("qkv", zip(parts["qkv"].weight.chunk(3), biases, strict=True), strict=True))
        return maps | {"o": (parts["o"].weight, parts["o"].bias)}

    @contextmanager
    def attached(self, hook_attn_out: HookPoint) -> Iterator[None]:
        """Hook the maps while the context is open."""
        parts, points = self._parts[0], {"q": self.hook_q, "k": self.hook_k, "v": self.hook_v}

        def rows(*points: HookPoint) -> Any:
            def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
                shares = zip(points, output.chunk(len(points), -1), strict=True)
                return torch.cat([point(self._split(share)).flatten(-2) for point, share in shares], -1)

            return hook

        def read(module: nn.Module, inputs: Any) -> tuple[Tensor]:
            return (self.hook_in(inputs[0]),)

        def mix(module: nn.Module, inputs: Any) -> tuple[Tensor]:
            return (self.hook_z(self._split(inputs[0])).flatten(-2),)

        first = parts["qkv" if "qkv" in parts else "q"]
        handles = [first.register_forward_pre_hook(read), parts["o"].register_forward_pre_hook(mix)]
        handles.append(parts["o"].register_forward_hook(lambda module, inputs, out: hook_attn_out(out)))
        if "qkv" in parts:
            handles.append(first.register_forward_hook(rows(*points.values())))
        else:
            handles += [parts[name].register_forward_hook(rows(point)) for name, point in points.items()]
        if "pattern" in parts:
            handles.append(parts["pattern"].register_forward_hook(lambda module, inputs, out: self.hook_pattern(out)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _part(layer: nn.Module, name: str, where: str) -> Any:
    parts = dict(layer.named_modules())
    if name not in parts or not name:
        known = ", ".join(path for path in parts if path) or "no parts"
        raise ValueError(
            f"attention names {name!r}, which {where} (a {type(layer).__name__}) does not have; it has {known}."
        )
    return parts[name]


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores with a mask of torch: True where a key is hidden, or numbers to add."""
    return scores.masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
