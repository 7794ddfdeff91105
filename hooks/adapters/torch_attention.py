"""Hook points inside the attention of torch modules: `MultiheadAttention`, or attention made of `Linear` maps."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hooks.adapters.torch_names import attention_part, n_heads_of, named_maps, weight_of
from hooks.model.layers import HookPoint

SOFTMAX = (F.softmax, torch.softmax, torch.special.softmax, Tensor.softmax)
"""Functions of torch that turn scores into a pattern."""
NO_PATTERN = (
    "no softmax over keys and no scaled_dot_product_attention runs between the maps of this attention; switch a fused "
    "kernel off, such as by flash=False, or name a module that the pattern passes through: 'pattern' of attention"
)


class PatternPoint(HookPoint):
    """Hook point of a pattern that is found among torch's functions."""

    advice = NO_PATTERN
    """What to do if it never fires."""


class HookedAttention(nn.Module):
    """Hook points and weights of one layer's attention, under TransformerLens's names.

    W_Q, W_K, W_V are (head, d_model, d_head), W_O is (head, d_head, d_model); a missing bias is None.
    """

    n_heads: int
    d_head: int
    d_model: int
    hook_pattern: HookPoint
    hook_attn_scores: HookPoint
    is_fused = False
    """Whether one map gives queries, keys and values in an order that has to be found."""
    qkv_axis = -3
    """Axis of queries, keys and values in the output of such a map: before that of heads, or -2 where each head has its
    three next to each other (GPT-NeoX)."""
    follows_calls = False
    """Whether torch's functions in the forward pass are followed, to find the pattern."""

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

    def attached(self, hook_attn_out: HookPoint, calls: "AttentionCalls") -> Any:
        """A context in which the layer's attention runs these hook points.

        Args:
            hook_attn_out: The hook point of the attention output.
            calls: Receives torch's functions of the forward pass.
        """
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
        torch_attn = attention_part(layer, name, layer_name)
        assert isinstance(torch_attn, nn.MultiheadAttention)
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
    def attached(self, hook_attn_out: HookPoint, calls: "AttentionCalls") -> Iterator[None]:
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
    """Hook points at the inputs and outputs of the `Linear` maps of an attention, and at its pattern.

    The pattern is the output of a named module, or else of the softmax that runs between the maps. If torch's
    `scaled_dot_product_attention` runs there, it is computed step by step.

    Args:
        layer: The layer.
        names: Name of the attention in it, or names of its maps; see `hooks.from_module`.
        n_heads: Query heads; if None, the attention's attribute, such as `n_head`.
        layer_name: The layer's name, for error texts.
    """

    def __init__(self, layer: nn.Module, names: str | Mapping[str, str], n_heads: int | None, layer_name: str):
        super().__init__()
        modules = named_maps(layer, names, layer_name)
        n_heads = n_heads_of(layer, modules, n_heads, layer_name)
        # The output map gives the width of the heads, which the other maps must have
        d_model, width = weight_of(modules["o"]).shape
        if width % n_heads:
            raise ValueError(
                f"o of attention, in {layer_name}, reads {width} values, no multiple of n_heads {n_heads}."
            )
        name, out_width = ("qkv", 3 * width) if "qkv" in modules else ("q", width)
        n_given = len(weight_of(modules[name]))
        if n_given != out_width:
            raise ValueError(
                f"{name} of attention, in {layer_name}, gives {n_given} values; with {n_heads} heads that "
                f"o reads, it must be {out_width}."
            )
        self.n_heads = n_heads
        self.d_head = width // n_heads
        self.d_model = d_model
        self._layer_name = layer_name
        self._modules_by_name = (modules,)  # in a tuple, so that their parameters are not registered twice
        self.follows_calls = "pattern" not in modules
        self.hook_pattern = PatternPoint() if self.follows_calls else HookPoint()
        if self.follows_calls:
            self.hook_attn_scores = HookPoint()  # (batch, head, query, key)
        # Of the forward pass that runs: its number of sequences, the dtype of its values, and whether the pattern was
        # computed
        self._batch, self._dtype, self._has_pattern = 1, torch.float32, False

    @property
    def output_map(self) -> nn.Module:
        return self._modules_by_name[0]["o"]

    @property
    def is_fused(self) -> bool:
        """Whether one map gives queries, keys and values."""
        return "qkv" in self._modules_by_name[0]

    def _maps(self) -> dict[str, Any]:
        modules = self._modules_by_name[0]
        maps = {name: (weight_of(modules[name]), modules[name].bias) for name in modules if name != "pattern"}
        if "qkv" not in maps:
            return maps
        weight, bias = maps.pop("qkv")
        weights = [heads.flatten(-2).T for heads in self._split_qkv(weight.T)]
        biases = [None] * 3 if bias is None else [heads.flatten(-2) for heads in self._split_qkv(bias)]
        return maps | dict(zip("qkv", zip(weights, biases, strict=True), strict=True))

    def _split_qkv(self, values: Float[Tensor, "*rows width"]) -> tuple[Float[Tensor, "*rows head d_head"], ...]:
        """Queries, keys and values in the outputs of one map."""
        sizes = [self.n_heads, self.d_head]
        sizes.insert(self.qkv_axis + 3, 3)
        return values.unflatten(-1, sizes).unbind(self.qkv_axis)

    @contextmanager
    def attached(self, hook_attn_out: HookPoint, calls: "AttentionCalls") -> Iterator[None]:
        """Hook the maps while the context is open."""
        modules = self._modules_by_name[0]
        points = {"q": self.hook_q, "k": self.hook_k, "v": self.hook_v}

        def heads_hook(*points: HookPoint) -> Any:
            """A hook that passes the heads in a map's output through a point, or through three."""

            def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
                self._dtype = output.dtype
                if len(points) == 1:
                    return points[0](self._split(output)).flatten(-2)
                hooked = [point(heads) for point, heads in zip(points, self._split_qkv(output), strict=True)]
                return torch.stack(hooked, self.qkv_axis).flatten(-3)

            return hook

        def input_hook(module: nn.Module, inputs: Any) -> tuple[Tensor]:
            # From here to the output map, functions of torch belong to this attention
            self._batch, self._has_pattern = len(inputs[0]), False
            calls.attention = self if self.follows_calls else None
            return (self.hook_in(inputs[0]),)

        def z_hook(module: nn.Module, inputs: Any) -> tuple[Tensor]:
            calls.attention = None
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
            handles.append(modules["pattern"].register_forward_hook(lambda module, inputs, out: self._hook(out)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def softmax(self, function: Callable[..., Tensor], scores: Tensor, *args: Any, **options: Any) -> Tensor:
        """A softmax that runs between the maps; if it is over keys, with hook points before and after it."""
        last = (-1, scores.ndim - 1)
        dim = options.get("dim", args[0] if args else None)
        is_pattern = scores.ndim in (3, 4) and scores.shape[-1] == scores.shape[-2] and dim in last
        if not is_pattern:
            return function(scores, *args, **options)
        self._check_first()
        scores = self._hook(scores, self.hook_attn_scores)
        return self._hook(function(scores, *args, **options))

    def dot_product(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float | int = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Float[Tensor, "*batch query d_head"]:
        """`torch.nn.functional.scaled_dot_product_attention`, computed step by step with hook points."""
        self._check_first()
        if enable_gqa:
            shared = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(shared, -3), value.repeat_interleave(shared, -3)
        scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~visible, -torch.inf)
        # Here a mask is True where a key is visible
        if attn_mask is not None:
            scores = _masked(scores, ~attn_mask if attn_mask.dtype == torch.bool else attn_mask)
        scores = self._hook(scores, self.hook_attn_scores)
        # torch gives zeros, not NaN, for a query that sees no key
        pattern = scores.softmax(-1).masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0.0)
        return F.dropout(self._hook(pattern), dropout_p) @ value

    def _check_first(self) -> None:
        """Check that the attention computes one pattern in a pass.

        Raises:
            ValueError: a second one.
        """
        if self._has_pattern:
            raise ValueError(
                f"the attention of {self._layer_name} computes several patterns between its maps; name a module that "
                f"the one to read passes through: attention={{..., 'pattern': ...}}."
            )
        self._has_pattern = True

    def _hook(self, values: Tensor, point: HookPoint | None = None) -> Tensor:
        """Pass patterns (batch, head, query, key), or scores, through a hook point.

        Raises:
            ValueError: patterns of another number of heads.
        """
        point = self.hook_pattern if point is None else point
        # One axis for sequences and heads is split
        per_head = values.unflatten(0, (self._batch, -1)) if values.ndim == 3 else values
        n_heads = per_head.shape[1]
        if n_heads != self.n_heads and values.shape[-1] == values.shape[-2]:
            raise ValueError(
                f"n_heads is {self.n_heads}, but the attention of {self._layer_name} has a pattern for each of "
                f"{n_heads} heads: it must be {n_heads}, not {self.n_heads}."
            )
        if point is not self.hook_pattern or values.dtype == self._dtype:
            return point(per_head).reshape(values.shape)
        # A softmax in float32 between half-precision maps: hooks see the pattern in the dtype of the values that it
        # mixes. What they leave as it is passes on unrounded, for a model that mixes in float32
        rounded = per_head.to(self._dtype)
        hooked = point(rounded)
        rounding = torch.where(hooked == rounded, per_head - rounded, 0.0).detach()
        return (hooked + rounding).reshape(values.shape)


class AttentionCalls(TorchFunctionMode):
    """Passes functions of torch that compute a pattern to the attention that runs."""

    def __init__(self):
        super().__init__()
        self.attention: LinearAttention | None = None
        """The attention between whose maps the forward pass is; None elsewhere."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch, with hook points if it computes a pattern."""
        options = kwargs or {}
        if self.attention is not None:
            if func == F.scaled_dot_product_attention:
                return self.attention.dot_product(*args, **options)
            if func in SOFTMAX and args:
                return self.attention.softmax(func, *args, **options)
        return func(*args, **options)


def _split_qkv(weight: Tensor, bias: Tensor | None) -> dict[str, Any]:
    """Weight and bias of q, k and v from one map to all three."""
    biases = [None] * 3 if bias is None else bias.chunk(3)
    return dict(zip("qkv", zip(weight.chunk(3), biases, strict=True), strict=True))


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores with a mask of torch: True where a key is hidden, or numbers to add."""
    return scores.masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
