"""Plain torch modules as models with canonical hook names: the names of their layers and attention suffice."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.HookedRootModule import HookedRootModule

from hooks.adapters.bridge import BridgeModel, from_bridge
from hooks.adapters.bridge.adapter import Foreign
from hooks.adapters.torch_attention import LinearAttention, MultiheadAttention
from hooks.checks import checks_types
from hooks.model.layers import HookPoint


@checks_types
def from_module(
    module: nn.Module,
    *,
    layers: str,
    attention: str | Mapping[str, str],
    d_vocab: int,
    n_ctx: int,
    n_heads: int | None = None,
    untrained: Callable[[], nn.Module] | None = None,
) -> BridgeModel:
    """Wrap a torch module under canonical hook names, after testing what can be read and edited in it.

    Hook points are `hook_resid_pre` and `hook_resid_post` (input and output of each layer), `hook_attn_out`, and
    `hook_q`, `hook_k`, `hook_v`, `hook_z`, `hook_pattern` of attention. They are attached to the module's parts only
    during a forward pass of the wrapped model.

    Args:
        module: `module(tokens)` gives logits (batch, pos, d_vocab_out). For padded tasks it must accept
            `attention_mask` (batch, pos), True for real tokens, as well. It is not changed.
        layers: Name of the `ModuleList` of layers, such as `encoder.layers`. Each gets the residual stream (batch, pos,
            d_model) as its first argument, and returns it, or a tuple that starts with it.
        attention: In each layer, the name of a `torch.nn.MultiheadAttention` with `batch_first=True`; or the names of
            the `Linear` maps of another attention: `q`, `k`, `v` (or `qkv` for one map to all three) and `o`, and, for
            verbs that read patterns, `pattern`: a module that the pattern passes through (Softmax, Dropout, Identity).
        d_vocab: Number of token ids.
        n_ctx: Largest number of positions.
        n_heads: Heads per layer; a `torch.nn.MultiheadAttention` knows it.
        untrained: Makes the module with random weights, for the verbs that compare with an untrained model; often its
            class.

    Raises:
        ValueError: another object, names or widths that do not fit the module, or a module whose output is not logits.
    """
    return from_bridge(TorchModule(module, layers, attention, d_vocab, n_ctx, n_heads, untrained))


class Layer(nn.Module):
    """Hook points of one layer."""

    def __init__(self, attn: nn.Module):
        super().__init__()
        self.attn = attn
        self.hook_resid_pre, self.hook_attn_out, self.hook_resid_post = HookPoint(), HookPoint(), HookPoint()


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
    ):
        super().__init__()
        if not isinstance(module, nn.Module) or isinstance(module, Foreign):
            raise ValueError(
                f"module is a {type(module).__name__}; from_module wraps a torch.nn.Module. A bridge or "
                f"HookedRootModule is passed to verbs as it is."
            )
        for name, size in {"d_vocab": d_vocab, "n_ctx": n_ctx}.items():
            if size < 1:
                raise ValueError(f"{name} is {size}; it must be at least 1.")
        self._names: Any = (layers, attention, d_vocab, n_ctx, n_heads)
        self._untrained = untrained
        self.module = module
        self._layers = (_layers_of(module, layers),)  # in a tuple, so that they are registered only once
        make: Any = MultiheadAttention if isinstance(attention, str) else LinearAttention
        attns = [make(layer, attention, n_heads, f"{layers}.{i}") for i, layer in enumerate(self._layers[0])]
        self.blocks, first = nn.ModuleList(map(Layer, attns)), attns[0]
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

    def setup(self) -> None:
        """Name the hook points; the module's own parts are not renamed."""
        self.mod_dict = dict(self.blocks.named_modules(prefix="blocks"))
        self.hook_dict = {name: part for name, part in self.mod_dict.items() if isinstance(part, HookPoint)}
        for name, point in self.hook_dict.items():
            point.name = name

    def forward(self, tokens: Int[Tensor, "batch pos"], **inputs: Any) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits of the module, with hook points on the way."""
        with self._attached():
            return self.module(tokens, **inputs)

    @contextmanager
    def _attached(self) -> Iterator[None]:
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # torch's fused layers would skip their attention module
        try:
            with ExitStack() as stack:
                blocks: Any = self.blocks
                for layer, at in zip(self._layers[0], blocks, strict=True):
                    stack.callback(layer.register_forward_pre_hook(_at_input(at.hook_resid_pre)).remove)
                    stack.callback(layer.register_forward_hook(_at_output(at.hook_resid_post)).remove)
                    stack.enter_context(at.attn.attached(at.hook_attn_out))
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)

    def untrained(self, seed: int) -> "TorchModule":
        """The same wrapper around a module with random weights; torch's generator is set to `seed` for it.

        Raises:
            ValueError: no function that makes the module.
        """
        if self._untrained is None:
            raise ValueError(
                f"no untrained {type(self.module).__name__} can be made: pass from_module(..., untrained=), a function "
                f"without arguments that makes the module with random weights, such as its class."
            )
        torch.manual_seed(seed)
        layers, attention, d_vocab, n_ctx, n_heads = self._names
        return TorchModule(self._untrained(), layers, attention, d_vocab, n_ctx, n_heads, self._untrained)


def _at_input(point: HookPoint) -> Callable[..., tuple]:
    def hook(module: nn.Module, inputs: tuple) -> tuple:
        if not inputs:
            raise ValueError(f"{point.name}: the layer gets its input by keyword; pass it as the first argument.")
        return (point(inputs[0]), *inputs[1:])

    return hook


def _at_output(point: HookPoint) -> Callable[..., Any]:
    def hook(module: nn.Module, inputs: tuple, output: Any) -> Any:
        return (point(output[0]), *output[1:]) if isinstance(output, tuple) else point(output)

    return hook


def _layers_of(module: nn.Module, name: str) -> list[nn.Module]:
    known = [path for path, part in module.named_modules() if isinstance(part, nn.ModuleList | nn.Sequential) and path]
    found = dict(module.named_modules()).get(name)
    if not isinstance(found, nn.ModuleList | nn.Sequential) or not len(found):
        what = (
            "is not there" if found is None else f"is a {type(found).__name__} of {len(list(found.children()))} parts"
        )
        raise ValueError(
            f"layers is {name!r}, which {what} in the {type(module).__name__}; it must name a ModuleList of layers. "
            f"Found: {', '.join(known) or 'none'}."
        )
    layers = list(found)
    if len(set(map(id, layers))) < len(layers):
        raise ValueError(
            f"layers is {name!r}, in which several layers are one module: hook points would not know which one runs. "
            f"Use a copy for each layer, or hooks.Transformer with tied=True."
        )
    return layers
