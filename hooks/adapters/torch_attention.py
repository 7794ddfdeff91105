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
        self.hook_q = HookPoint()  # (batch, pos, head, d_head)
        self.hook_k = HookPoint()
        self.hook_v = HookPoint()
        self.hook_z = HookPoint()

    @property
    def n_key_value_heads(self) -> int:
        """Key and value heads."""
        return len(self.W_K)

    @property
    def output_map(self) -> nn.Module:
        """The module that computes the attention output."""
        raise NotImplementedError

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
        layer_name: The layer's name, for error texts.
    """

    def __init__(self, layer: nn.Module, name: str, n_heads: int | None, layer_name: str):
        super().__init__()
        torch_attn = _submodule(layer, name, layer_name)
        if not isinstance(torch_attn, nn.MultiheadAttention):
            raise ValueError(
                f"attention is {name!r}, in {layer_name} a {type(torch_attn).__name__}; one name is enough "
                f"for a torch.nn.MultiheadAttention only. Name the Linear maps of another one: {{'q': ..., 'k': ..., "
                f"'v': ..., 'o': ..., 'pattern': ...}}."
            )
        # A forward pass that `_forward` does not compute
        if "forward" in vars(torch_attn) or type(torch_attn).forward is not nn.MultiheadAttention.forward:
            raise ValueError(
                f"{layer_name}.{name} has a forward method of its own, in place of torch's, which from_module would "
                f"not run. Remove it, or name the Linear maps of an attention of your own."
            )
        # Options that `_forward` does not compute
        unsupported = {
            "batch_first=False": not torch_attn.batch_first,
            "kdim or vdim": not torch_attn._qkv_same_embed_dim,
            "add_bias_kv=True": torch_attn.bias_k is not None,
            "add_zero_attn=True": torch_attn.add_zero_attn,
        }
        for fault, is_present in unsupported.items():
            if is_present:
                raise ValueError(f"{layer_name}.{name} was made with {fault}, which from_module does not support.")
        self.n_heads = torch_attn.num_heads
        self.d_head = torch_attn.head_dim
        self.d_model = torch_attn.embed_dim
        if n_heads not in (None, self.n_heads):
            raise ValueError(f"n_heads is {n_heads}; {layer_name}.{name} has {self.n_heads}. Leave n_heads out.")
        self._attn = (torch_attn,)  # in a tuple, so that its parameters are not registered twice
        self.hook_attn_scores = HookPoint()  # (batch, head, query, key)
        self.hook_pattern = HookPoint()

    @property
    def output_map(self) -> nn.Module:
        return self._attn[0]

    def _maps(self) -> dict[str, Any]:
        attn: Any = self._attn[0]
        maps = _split_qkv(attn.in_proj_weight, attn.in_proj_bias)
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
        maps = self._maps()
        x = self.hook_in(x)
        q = self.hook_q(self._split(F.linear(x, *maps["q"])))
        k = self.hook_k(self._split(F.linear(x, *maps["k"])))
        v = self.hook_v(self._split(F.linear(x, *maps["v"])))
        scores = (q / self.d_head**0.5).transpose(1, 2) @ k.permute(0, 2, 3, 1)
        # A mask of three axes has one map for each sequence and head
        if attn_mask is not None and attn_mask.ndim == 3:
            attn_mask = attn_mask.view(-1, self.n_heads, *attn_mask.shape[1:])
        if attn_mask is not None:
            scores = _masked(scores, attn_mask)
        if key_padding_mask is not None:
            scores = _masked(scores, key_padding_mask[:, None, None])
        pattern = self.hook_pattern(self.hook_attn_scores(scores).softmax(-1))
        dropped = F.dropout(pattern, self._attn[0].dropout, self._attn[0].training)
        z = self.hook_z((dropped @ v.transpose(1, 2)).transpose(1, 2))
        out = hook_attn_out(F.linear(z.flatten(2), *maps["o"]))
        if not need_weights:
            return out, None
        return out, dropped.mean(1) if average_attn_weights else dropped


class LinearAttention(HookedAttention):
    """Hook points at the inputs and outputs of the `Linear` maps of an attention.

    Args:
        layer: The layer.
        names: Names of the maps in it; see `hooks.from_module`.
        n_heads: Query heads.
        layer_name: The layer's name, for error texts.
    """

    def __init__(self, layer: nn.Module, names: Mapping[str, str], n_heads: int | None, layer_name: str):
        super().__init__()
        if set(names) - {"pattern"} not in KEYS:
            raise ValueError(
                f"attention names {', '.join(map(repr, names)) or 'nothing'}; needed are 'q', 'k', 'v', 'o', or 'qkv', "
                f"'o'; and, for patterns, 'pattern'."
            )
        if n_heads is None or n_heads < 1:
            raise ValueError(f"n_heads is {n_heads}; with an attention made of Linear maps, give the number of heads.")
        # Find the maps
        modules = {name: _submodule(layer, path, layer_name) for name, path in names.items()}
        for name, module in modules.items():
            if name != "pattern" and not isinstance(module, nn.Linear):
                kind = f"{type(module).__module__}.{type(module).__name__}"
                raise ValueError(
                    f"{name} of attention is {names[name]!r}, in {layer_name} a {kind}, not a torch.nn.Linear."
                )
        # The output map gives the width of the heads, which the other maps must have
        width = modules["o"].in_features
        if width % n_heads:
            raise ValueError(
                f"o of attention, {layer_name}.{names['o']}, reads {width} values, no multiple of n_heads {n_heads}."
            )
        name, out_width = ("qkv", 3 * width) if "qkv" in modules else ("q", width)
        if modules[name].out_features != out_width:
            raise ValueError(
                f"{name} of attention, {layer_name}.{names[name]}, gives {modules[name].out_features} values; with "
                f"{n_heads} heads that o reads, it must be {out_width}."
            )
        self.n_heads = n_heads
        self.d_head = width // n_heads
        self.d_model = modules["o"].out_features
        self._modules_by_name = (modules,)  # in a tuple, so that their parameters are not registered twice
        if "pattern" in modules:
            self.hook_pattern = HookPoint()

    @property
    def output_map(self) -> nn.Module:
        return self._modules_by_name[0]["o"]

    def _maps(self) -> dict[str, Any]:
        modules = self._modules_by_name[0]
        if "qkv" not in modules:
            return {name: (modules[name].weight, modules[name].bias) for name in "qkvo"}
        maps = _split_qkv(modules["qkv"].weight, modules["qkv"].bias)
        return maps | {"o": (modules["o"].weight, modules["o"].bias)}

    @contextmanager
    def attached(self, hook_attn_out: HookPoint) -> Iterator[None]:
        """Hook the maps while the context is open."""
        modules = self._modules_by_name[0]
        points = {"q": self.hook_q, "k": self.hook_k, "v": self.hook_v}

        def heads_hook(*points: HookPoint) -> Any:
            """A hook that passes equal shares of a map's output through these points, head by head."""

            def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
                shares = output.chunk(len(points), -1)
                hooked = [point(self._split(share)) for point, share in zip(points, shares, strict=True)]
                return torch.cat([heads.flatten(-2) for heads in hooked], -1)

            return hook

        def input_hook(module: nn.Module, inputs: Any) -> tuple[Tensor]:
            return (self.hook_in(inputs[0]),)

        def z_hook(module: nn.Module, inputs: Any) -> tuple[Tensor]:
            return (self.hook_z(self._split(inputs[0])).flatten(-2),)

        # The input of attention, and z
        first = modules["qkv" if "qkv" in modules else "q"]
        handles = [first.register_forward_pre_hook(input_hook), modules["o"].register_forward_pre_hook(z_hook)]
        handles.append(modules["o"].register_forward_hook(lambda module, inputs, out: hook_attn_out(out)))
        # Queries, keys and values: three parts of one output, or three outputs
        if "qkv" in modules:
            handles.append(first.register_forward_hook(heads_hook(*points.values())))
        else:
            handles += [modules[name].register_forward_hook(heads_hook(point)) for name, point in points.items()]
        if "pattern" in modules:
            handles.append(modules["pattern"].register_forward_hook(lambda module, inputs, out: self.hook_pattern(out)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _split_qkv(weight: Tensor, bias: Tensor | None) -> dict[str, Any]:
    """Weight and bias of q, k and v from one map to all three."""
    biases = [None] * 3 if bias is None else bias.chunk(3)
    return dict(zip("qkv", zip(weight.chunk(3), biases, strict=True), strict=True))


def _submodule(layer: nn.Module, name: str, layer_name: str) -> Any:
    modules = dict(layer.named_modules())
    if name not in modules or not name:
        paths = ", ".join(path for path in modules if path) or "no parts"
        raise ValueError(
            f"attention names {name!r}, which {layer_name} (a {type(layer).__name__}) does not have; it has {paths}."
        )
    return modules[name]


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores with a mask of torch: True where a key is hidden, or numbers to add."""
    return scores.masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
