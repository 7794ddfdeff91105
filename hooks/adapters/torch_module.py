"""Plain torch modules as models with canonical hook names: the names of their layers and attention suffice."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from copy import copy
from dataclasses import fields, is_dataclass, replace
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.HookedRootModule import HookedRootModule

from hooks.adapters.bridge import BridgeModel, from_bridge
from hooks.adapters.bridge.adapter import Foreign
from hooks.adapters.bridge.capabilities import REFUSALS
from hooks.adapters.torch_attention import AttentionCalls, HookedAttention, LinearAttention, MultiheadAttention
from hooks.adapters.torch_names import attention_part, layers_of
from hooks.adapters.torch_parts import RecordedPass, added_parts
from hooks.checks import check_number
from hooks.model.layers import HookPoint, check_mask, check_not_compiled, check_weights_usable, has_hooks
from hooks.randomness import usable_seed
from hooks.state import restores_state
from hooks.typed import checks_types


@checks_types
@restores_state
def from_module(
    module: nn.Module,
    *,
    layers: str,
    attention: str | Mapping[str, str],
    d_vocab: int,
    n_ctx: int,
    n_heads: int | None = None,
    untrained: Callable[[], nn.Module] | None = None,
    forward: Callable[..., Tensor] | None = None,
) -> BridgeModel:
    """Wrap a torch module under canonical hook names, after testing what can be read and edited in it.

    Hook points are `hook_resid_pre` and `hook_resid_post` (input and output of each layer), `hook_attn_out` and
    `hook_mlp_out` (what attention and MLP add: outputs of parts of a layer that, with its input, add up to its output;
    they are found by trying), and `hook_q`, `hook_k`, `hook_v`, `hook_z`, `hook_pattern` of attention. They are
    attached to the module's parts only during a forward pass of the wrapped model.

    >>> import hooks
    >>> from torch import nn
    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> module = nn.Sequential(nn.Embedding(5, 8), nn.TransformerEncoder(layer, 2), nn.Linear(8, 5))
    >>> hooks.from_module(module, layers="1.layers", attention="self_attn", d_vocab=5, n_ctx=9).cfg.n_heads
    2

    Args:
        module: `module(tokens)` gives logits (batch, pos, d_vocab_out), perhaps in a tuple or dict with other values.
            For padded tasks it must accept `attention_mask` (batch, pos), True for real tokens, as well. It is not
            changed.
        layers: Name of the `ModuleList` of layers, such as `encoder.layers`. Each gets the residual stream (batch, pos,
            d_model) as its first argument, runs once, and returns it: a tensor, or the first one of this shape in a
            tuple, list, dict or dataclass.
        attention: Name of the attention in each layer, relative to the layer, such as `attn`: a
            `torch.nn.MultiheadAttention` with `batch_first=True`, or one whose `Linear` maps have usual names
            (`c_attn`, `q_proj`, `to_out`). Or the name of each map, relative to the layer as well: `q`, `k`, `v` (or
            `qkv` for one map to all three) and `o`; and, if the pattern comes neither from a softmax nor from
            `scaled_dot_product_attention`, `pattern`: a module that it passes through (Dropout, Identity).
        d_vocab: Number of token ids.
        n_ctx: Largest number of positions.
        n_heads: Heads per layer; if None, the attention's own number (`num_heads`, `n_head`).
        untrained: Makes the module with random weights, for the verbs that compare with an untrained model; often its
            class. What it prints is not shown.
        forward: `forward(module, tokens)` gives the logits, of a module whose own output does not have them at every
            position: `lambda gpt, tokens: gpt(tokens, tokens)[0]` passes targets as well. Further arguments as above.

    Raises:
        ValueError: another object, names or widths that do not fit the module, another number of heads, a layer that
            does not run once, or a module whose output has no logits, or several tensors that may be logits.
    """
    wrapped = TorchModule(module, layers, attention, d_vocab, n_ctx, n_heads, untrained, forward)
    wrapped.find_parts()
    return from_bridge(wrapped)


class HookedLayer(nn.Module):
    """Hook points of one layer."""

    def __init__(self, attn: nn.Module):
        super().__init__()
        self.attn = attn
        self.hook_resid_pre = HookPoint()  # (batch, pos, d_model)
        self.hook_attn_out = HookPoint()
        self.hook_resid_post = HookPoint()

    @property
    def output_point(self) -> HookPoint:
        """The hook point of the output of W_O: `hook_attn_out`, unless a later part gives what is added."""
        attn: Any = self.attn
        return attn.o.hook_out if hasattr(attn, "o") else self.hook_attn_out


class OutputMap(nn.Module):
    """The hook point of the output of W_O, where a norm or a scale comes after it."""

    def __init__(self):
        super().__init__()
        self.hook_out = HookPoint()  # (batch, pos, d_model)


class TorchModule(HookedRootModule):
    """A torch module whose forward pass runs hook points. See `from_module` for the arguments."""

    def __init__(
        self,
        module: nn.Module,
        layers: str,
        attention: str | Mapping[str, str],
        d_vocab: int,
        n_ctx: int,
        n_heads: int | None = None,
        untrained: Callable[[], nn.Module] | None = None,
        forward: Callable[..., Tensor] | None = None,
    ):
        super().__init__()
        if not isinstance(module, nn.Module) or isinstance(module, Foreign):
            raise ValueError(
                f"module is a {type(module).__name__}; from_module wraps a torch.nn.Module. A bridge or "
                f"HookedRootModule is passed to verbs as it is."
            )
        check_number("d_vocab", d_vocab, integer=True, low=1)
        check_number("n_ctx", n_ctx, integer=True, low=1)
        # What `untrained` needs to wrap another module in the same way
        self._names: Any = (layers, attention, d_vocab, n_ctx, n_heads)
        self._untrained, self._forward_of = untrained, forward
        check_weights_usable("module", module)
        self.module = module
        # Hook points for each layer and its attention
        module_layers = layers_of(module, layers)
        self._layers = (module_layers,)  # in a tuple, so that they are registered only once
        attns = []
        for index, layer in enumerate(module_layers):
            attns.append(_hooked_attention(layer, attention, n_heads, f"{layers}.{index}"))
        output_maps = [attn.output_map for attn in attns]
        if len(set(map(id, output_maps))) < len(output_maps):
            raise ValueError(
                f"attention names one module in several layers of {layers!r}: hook points would not know which layer "
                f"runs. Use a copy for each layer, or hooks.Transformer with tied=True."
            )
        self.blocks = nn.ModuleList(map(HookedLayer, attns))
        self._parts: dict[int, dict[str, str]] = {}
        """Modules of each layer by the hook point that their output passes: what attention and MLP add."""
        first = attns[0]
        self.cfg = SimpleNamespace(
            architecture=type(module).__name__,
            n_layers=len(self.blocks),
            n_heads=first.n_heads,
            n_key_value_heads=first.n_key_value_heads,
            d_head=first.d_head,
            d_model=first.d_model,
            d_vocab=d_vocab,
            n_ctx=n_ctx,
        )
        self.setup()

    def _add_parts(self, parts: Mapping[int, Mapping[str, str]]) -> None:
        """Give layers hook points of what attention and MLP add, at the outputs of these modules."""
        self._parts = {layer: dict(names) for layer, names in parts.items()}
        blocks: Any = self.blocks
        for layer, names in self._parts.items():
            if "hook_mlp_out" in names:
                blocks[layer].hook_mlp_out = HookPoint()
            if "hook_attn_out" in names:
                blocks[layer].attn.o = OutputMap()
        self.setup()

    def find_parts(self) -> None:
        """Find the parts of each layer whose outputs attention and MLP add to the stream.

        A layer that is no such sum has the output of W_O, and no MLP. A module that cannot run is left to the tests.

        Raises:
            ValueError: a layer that does not run, or runs several times.
        """
        pos = min(4, self.cfg.n_ctx)
        device = next(iter(self.module.parameters())).device
        tokens = torch.arange(2 * pos, device=device).view(2, pos) % self.cfg.d_vocab
        try:
            clean = RecordedPass(self, self._layers[0], tokens)
        except REFUSALS:
            return
        for layer, n_runs in enumerate(clean.n_runs):
            if n_runs != 1:
                often = f"runs {n_runs} times" if n_runs else "does not run"
                raise ValueError(
                    f"layers is {self._names[0]!r}, whose layer {layer} {often} in a forward pass of the "
                    f"{type(self.module).__name__}; each must run once. Pass a module without unused layers, and with "
                    f"a copy for each run."
                )
        # Where one map gives queries, keys and values, the order of heads in it is that with which pattern @ v is z
        blocks: Any = self.blocks
        for layer, sites in enumerate(blocks):
            if sites.attn.is_fused and not clean.mixes_values(layer):
                sites.attn.qkv_axis = -2
        clean = RecordedPass(self, self._layers[0], tokens)
        # Another z in every layer, and the input of every layer as it was
        edits = {name: value for name, value in clean.points.items() if name.endswith("hook_resid_pre")}
        edits |= {name: 1 - 2 * value for name, value in clean.points.items() if name.endswith("hook_z")}
        edited = RecordedPass(self, self._layers[0], tokens, edits)
        self._add_parts({layer: added_parts(clean, edited, layer) for layer in range(self.cfg.n_layers)})

    def setup(self) -> None:
        """Name the hook points; the module's own parts are not renamed."""
        self.mod_dict = dict(self.blocks.named_modules(prefix="blocks"))
        self.hook_dict = {name: module for name, module in self.mod_dict.items() if isinstance(module, HookPoint)}
        for name, point in self.hook_dict.items():
            point.name = name

    def forward(self, tokens: Int[Tensor, "batch pos"], **inputs: Any) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits of the module, with hook points on the way."""
        check_mask(inputs.get("attention_mask"))
        is_hooked = any(map(has_hooks, self.hook_dict.values()))
        # Without hooks the pass is the module's own, whose parts may be computed again for gradients
        with self._attached() if is_hooked else nullcontext():
            if self._forward_of is not None:
                output = self._forward_of(self.module, tokens, **inputs)
            else:
                output = self.module(tokens, **inputs)
        return logits_in(output, tokens, type(self.module).__name__)

    @contextmanager
    def _attached(self) -> Iterator[None]:
        check_not_compiled(*self.module.modules())
        # torch's fused layers would skip their attention module
        fused_before = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with ExitStack() as stack:
                blocks: Any = self.blocks
                calls = AttentionCalls()
                for layer, sites in zip(self._layers[0], blocks, strict=True):
                    stack.callback(layer.register_forward_pre_hook(_input_hook(sites.hook_resid_pre)).remove)
                    stack.callback(layer.register_forward_hook(_stream_hook(sites.hook_resid_post)).remove)
                    stack.enter_context(sites.attn.attached(sites.output_point, calls))
                if any(sites.attn.follows_calls for sites in blocks):
                    stack.enter_context(calls)
                for index, names in self._parts.items():
                    for site, name in names.items():
                        module = self._layers[0][index].get_submodule(name)
                        hook = _output_hook(getattr(blocks[index], site))
                        stack.callback(module.register_forward_hook(hook).remove)
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused_before)

    @property
    def lacks_untrained(self) -> str:
        """Why no module with random weights can be made, in words; empty if one can."""
        if self._untrained is not None:
            return ""
        return (
            f"no untrained {type(self.module).__name__} can be made: pass from_module(..., untrained=), a function "
            f"without arguments that makes the module with random weights, such as its class."
        )

    def untrained(self, seed: int) -> "TorchModule":
        """The same wrapper around a module with random weights; torch's generator is set to `seed` for it.

        Raises:
            ValueError: no function that makes the module.
        """
        if self._untrained is None:
            raise ValueError(self.lacks_untrained)
        torch.manual_seed(usable_seed(seed))
        # Many modules print their size when they are made, here once for every copy
        with redirect_stdout(StringIO()):
            fresh = self._untrained()
        layers, attention, d_vocab, n_ctx, n_heads = self._names
        wrapped = TorchModule(
            fresh, layers, attention, d_vocab, n_ctx, n_heads, untrained=self._untrained, forward=self._forward_of
        )
        wrapped._add_parts(self._parts)
        blocks, fresh_blocks = cast("Any", self.blocks), cast("Any", wrapped.blocks)
        for sites, fresh_sites in zip(blocks, fresh_blocks, strict=True):
            fresh_sites.attn.qkv_axis = sites.attn.qkv_axis
        return wrapped


def _input_hook(point: HookPoint) -> Callable[..., tuple]:
    def hook(module: nn.Module, inputs: tuple) -> tuple:
        if not inputs:
            raise ValueError(f"{point.name}: the layer gets its input by keyword; pass it as the first argument.")
        return (point(inputs[0]), *inputs[1:])

    return hook


def _output_hook(point: HookPoint) -> Callable[..., Any]:
    return lambda module, inputs, output: point(output)


def _stream_hook(point: HookPoint) -> Callable[..., Any]:
    def hook(module: nn.Module, inputs: tuple, output: Any) -> Any:
        if isinstance(output, Tensor):
            return point(output)
        # The first tensor of the stream's shape in a container, which is copied with another one
        if isinstance(output, Mapping):
            entries: dict[Any, Any] = dict(output)
        elif is_dataclass(output):
            entries = {field.name: getattr(output, field.name) for field in fields(output)}
        else:
            entries = dict(enumerate(output)) if isinstance(output, tuple | list) else {}
        for key, value in entries.items():
            if isinstance(value, Tensor) and value.shape == inputs[0].shape:
                return _with_entry(output, key, point(value))
        held = ", ".join(f"{key}: {type(value).__name__}" for key, value in entries.items())
        raise ValueError(
            f"{point.name}: the layer returns a {type(output).__name__} ({held or 'nothing'}); needed is the residual "
            f"stream {tuple(inputs[0].shape)}, as a tensor or in a tuple, list, dict or dataclass."
        )

    return hook


def _with_entry(output: Any, key: Any, value: Tensor) -> Any:
    """A copy of a container with another value for one entry."""
    if isinstance(output, tuple):
        make = getattr(type(output), "_make", type(output))  # a named tuple takes its values one by one
        return make([*output[:key], value, *output[key + 1 :]])
    if is_dataclass(output) and not isinstance(output, Mapping):
        return replace(output, **{key: value})  # pyright: ignore[reportArgumentType]
    edited: Any = copy(output)
    edited[key] = value
    return edited


def _hooked_attention(
    layer: nn.Module, attention: str | Mapping[str, str], n_heads: int | None, layer_name: str
) -> HookedAttention:
    """Hook points for the attention of a layer."""
    if isinstance(attention, str):
        torch_attn = attention_part(layer, attention, layer_name)
        if isinstance(torch_attn, nn.MultiheadAttention):
            return MultiheadAttention(layer, attention, n_heads, layer_name)
    return LinearAttention(layer, attention, n_heads, layer_name)


def logits_in(output: Any, tokens: Int[Tensor, "batch pos"], name: str) -> Float[Tensor, "batch pos d_vocab_out"]:
    """The logits in the output of a module: the output itself, its `logits`, or its only tensor (batch, pos, width).

    Args:
        output: What the module returned.
        tokens: Its input.
        name: Class of the module, for error texts.

    Raises:
        ValueError: no logits at every position, or several tensors that may be logits.
    """
    # The tensors that may be logits
    candidates = [output]
    if isinstance(output, Mapping):
        candidates = [output["logits"]] if "logits" in output else list(output.values())
    elif not isinstance(output, Tensor) and isinstance(getattr(output, "logits", None), Tensor):
        candidates = [output.logits]
    elif isinstance(output, tuple | list):
        candidates = list(output)
    tensors = [value for value in candidates if isinstance(value, Tensor) and value.ndim == 3]
    logits = [value for value in tensors if value.shape[:2] == tokens.shape and value.is_floating_point()]
    if len(logits) == 1:
        return logits[0]
    # What it is instead
    shapes = ", ".join(f"{tuple(v.shape)}" if isinstance(v, Tensor) else type(v).__name__ for v in candidates)
    problem = f"{name} returns {shapes} for tokens {tuple(tokens.shape)}"
    if logits:
        example = "lambda module, tokens: module(tokens)[0]"
        raise ValueError(f"{problem}: {len(logits)} may be logits. Say which: forward={example}.")
    advice = "If another call gives them, pass it: forward=lambda module, tokens: ..."
    if any(value.shape[1] == 1 for value in tensors):
        advice = (
            "It gives them at the last position only; a module that gets targets often gives all: "
            "forward=lambda module, tokens: module(tokens, tokens)[0]"
        )
    raise ValueError(f"{problem}; needed are logits (batch, pos, vocabulary) at every position. {advice}.")
