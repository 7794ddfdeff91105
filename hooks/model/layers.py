"""Layers that every model is built from: hook points, affine maps, LayerNorm; rows of tables; checks of token ids."""

from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules
from torch.nn.utils.prune import BasePruningMethod
from transformer_lens import hook_points

from hooks.model.recomputation import check_attached_inside, n_checkpoint_frames

GLOBAL_HOOKS = (
    torch_modules._global_forward_hooks,
    torch_modules._global_forward_pre_hooks,
    torch_modules._global_backward_hooks,
    torch_modules._global_backward_pre_hooks,
)
"""torch's tables of hooks on all modules."""


class Module(nn.Module):
    """A torch module whose submodules are also plain attributes, which are faster to read.

    Replace a submodule by assignment; after a change of torch's `_modules` alone the old one would stay in use.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self._modules:
            self.__dict__[name] = self._modules[name]


class Layer(Module):
    """A module that is called in one step while no hook of torch's is attached to it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # has_hooks(self), without the cost of a call; then hooks of all modules, and compiled modules
        if self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks:
            return super().__call__(*args, **kwargs)
        if any(GLOBAL_HOOKS) or self._compiled_call_impl is not None:
            return super().__call__(*args, **kwargs)
        return self.forward(*args, **kwargs)


class HookPoint(hook_points.HookPoint):
    """TransformerLens's hook point, skipped in one step while no hook is attached.

    Hooks get a copy of the activation. The same tensor may have been stored by a hook before, as `resid_post` of the
    layer below, and an edit in place changes only what comes after it.
    """

    record: dict[str, Tensor] | None = None
    """Where a pass with a cache stores the activation after the hooks, under the name of the point."""
    attached_in: int = 0
    """How many functions of `torch.utils.checkpoint` the hooks were attached in: those run again attach them again."""

    def add_hook(self, *args: Any, **kwargs: Any) -> hook_points.LensHandle:
        """TransformerLens's `add_hook`."""
        n_frames = n_checkpoint_frames()
        # A hook from outside is gone when the pass is computed again, whatever is attached next to it
        self.__dict__["attached_in"] = min(self.attached_in, n_frames) if has_hooks(self) else n_frames
        return super().add_hook(*args, **kwargs)

    def __call__(self, x: Tensor) -> Tensor:
        if self._forward_hooks or self._forward_pre_hooks:
            x = self.run_hooks(x.clone())
        # has_hooks(self), without the cost of a call
        elif self._backward_hooks or self._backward_pre_hooks:
            check_attached_inside(self.attached_in)
            x = super().__call__(x)
        if self.record is not None:
            self.record[self.name] = x.detach()  # pyright: ignore[reportArgumentType]
        return x

    def run_hooks(self, x: Tensor) -> Tensor:
        """The activation after the hooks, which may edit it in place.

        Raises:
            ValueError: a pass that is computed again for gradients, when the hooks are no longer attached.
        """
        check_attached_inside(self.attached_in)
        return super().__call__(x)


def check_not_compiled(*modules: nn.Module) -> None:
    """Check that modules are not compiled: what is compiled runs without the hooks that are attached to it.

    Raises:
        ValueError: a compiled module.
    """
    for module in modules:
        # What torch.compile returns has the module as _orig_mod; its class is not imported here, which takes seconds
        if module._compiled_call_impl is not None or "_orig_mod" in module._modules:
            raise ValueError(
                f"the {type(module).__name__} is compiled, and would run without hooks. Use the model as it was before "
                f"compile(): a copy, its weights in a new one, or _orig_mod of what torch.compile returned."
            )


def check_unhooked(module: nn.Module) -> None:
    """Check that no hook is attached to a module whose forward pass runs compiled.

    Raises:
        ValueError: a hook on the module or a part of it.
    """
    if is_hooked(module):
        raise ValueError(
            f"hooks are attached to this {type(module).__name__}, whose pass is compiled and would run without them. "
            f"Call the model itself, not what torch.compile returned, or detach the hooks."
        )


def check_weights_usable(name: str, model: nn.Module) -> None:
    """Check that the weights of a model have values, in a dtype that patterns and probabilities can have.

    Args:
        name: Name of the argument.
        model: The model.

    Raises:
        ValueError: weights on the meta device, of a lazy module that was not used yet, complex ones, NaN or infinity.
    """
    for weight_name, weight in model.named_parameters():
        fault = ""
        if nn.parameter.is_lazy(weight):
            fault = "which has no size yet. Run the module once, before you pass it on"
        elif weight.is_meta and type(weight.data) is Tensor:  # of a subclass, the values may be elsewhere
            fault = "on the meta device, where tensors have no values. Call model.to_empty, and load its weights"
        elif weight.is_complex():
            fault = f"of dtype {weight.dtype}. Models with complex weights are not supported"
        elif weight.layout == torch.strided and weight.is_floating_point() and not weight.isfinite().all():
            value = "NaN" if weight.isnan().any() else "infinity"
            fault = f"with {value}, as after a training that diverged; all that is computed from it is NaN"
        if fault:
            raise ValueError(f"{name} has the weight {weight_name}, {fault}.")


def hook_tables(module: nn.Module) -> tuple[dict[int, Any], ...]:
    """torch's tables of the hooks of a module, one per kind; TransformerLens's hooks are in them too."""
    return module._forward_hooks, module._backward_hooks, module._forward_pre_hooks, module._backward_pre_hooks


def has_hooks(module: nn.Module) -> bool:
    """True if any hook is attached: by TransformerLens or by torch's own methods, forward or backward."""
    return any(hook_tables(module))


def is_read(point: HookPoint) -> bool:
    """True if an activation is needed: a hook is attached, or it is recorded."""
    if point._forward_hooks or point._forward_pre_hooks or point._backward_hooks or point._backward_pre_hooks:
        return True
    return point.record is not None


def has_activation_hooks(module: nn.Module) -> bool:
    """True if any hook is attached but those of torch's pruning, which only recompute the weights."""
    return any(not isinstance(hook, BasePruningMethod) for table in hook_tables(module) for hook in table.values())


def is_hooked(module: nn.Module) -> bool:
    """True if a module or a part of it has any hook but those of torch's pruning."""
    if has_hooks(module) and has_activation_hooks(module):
        return True
    children = module._modules.values()  # without the set of visited modules that `modules()` keeps, which takes longer
    return any(child is not None and is_hooked(child) for child in children)


class NeverCalled(nn.Module):
    """A module that no forward pass calls, only its weights or hook points are used: it refuses torch's own hooks."""

    @property
    def instead(self) -> str:
        """The hook points to use instead."""
        raise NotImplementedError

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ValueError(
            f"a torch hook on this {type(self).__name__} would be ignored: no forward pass calls the module. "
            f"Attach it to a hook point instead: {self.instead}."
        )

    register_forward_hook = _refuse
    register_forward_pre_hook = _refuse
    register_backward_hook = _refuse
    register_full_backward_hook = _refuse
    register_full_backward_pre_hook = _refuse


class Sites(NeverCalled, Module):
    """Hook points under one name: of a layer, of attention, of an MLP or of a norm."""

    @property
    def instead(self) -> str:
        return ", ".join(point.name or name for name, point in self.named_children() if isinstance(point, HookPoint))

    def set_optional(self, names: tuple[str, ...], on: bool) -> None:
        """Add hook points, unless they exist, or remove them with their hooks."""
        for name in names:
            exists = getattr(self, name) is not None
            if exists != on:
                setattr(self, name, HookPoint() if on else None)


class Linear(Layer):
    """y = x W^T + b, with W (output, input)."""

    def __init__(self, d_in: int, d_out: int, *, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Apply the map."""
        return F.linear(x, self.weight, self.bias)

    @property
    def bias_or_zero(self) -> Float[Tensor, " d_out"]:
        """The bias, or zeros where there is none."""
        return self.bias if self.bias is not None else self.weight.new_zeros(self.weight.shape[0])


class LinearWeights(NeverCalled, Linear):
    """A `Linear` whose weights are used without calling it; `instead` names the hook points of its output."""

    def __init__(self, d_in: int, d_out: int, *, bias: bool = True, instead: str):
        super().__init__(d_in, d_out, bias=bias)
        self._instead = instead

    @property
    def instead(self) -> str:
        return self._instead


class Identity(Layer):
    """y = x: takes the place of a `Linear`, with the identity matrix as its weight."""

    weight: Tensor

    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("weight", torch.eye(width), persistent=False)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Return x."""
        return x

    @property
    def bias_or_zero(self) -> Float[Tensor, " width"]:
        return self.weight.new_zeros(len(self.weight))


class TiedReadOut(Layer):
    """y = x W_E^T, with the rows of an embedding; it has no other weights."""

    def __init__(self, embedding: nn.Module):
        super().__init__()
        self._embedding = (embedding,)  # in a tuple, so that its parameters are not registered twice

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_vocab"]:
        """Dot products with the vector of every token."""
        return F.linear(x, self.weight)

    @property
    def weight(self) -> Float[Tensor, "d_vocab d_model"]:
        return self._embedding[0].weight  # type: ignore[return-value]

    @property
    def bias_or_zero(self) -> Float[Tensor, " d_vocab"]:
        return self.weight.new_zeros(len(self.weight))


class NormSites(Sites):
    """Hook points of one LayerNorm: its scale and its output."""

    def __init__(self, norm: Any):
        super().__init__()
        self._norm = (norm,)  # in a tuple, so that its parameters are not registered twice
        self.hook_scale = HookPoint()  # (batch, pos, 1), standard deviation
        self.hook_normalized = HookPoint()  # (batch, pos, d_model), after gain and bias

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Apply the norm outside a forward pass of the model (TransformerLens's logit lens does)."""
        return self._norm[0](x, self)

    @property
    def w(self):
        return self._norm[0].weight

    @property
    def b(self):
        return self._norm[0].bias


class LayerNorm(Layer):
    """y = (x - mean) / sqrt(var + eps) * w + b over the last axis."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"], sites: NormSites) -> Float[Tensor, "*batch d_model"]:
        """Normalise.

        The scale is computed only if it is hooked; an edit of it rescales the result. An unedited scale leaves every
        bit of the result as it is.
        """
        if not is_read(sites.hook_scale):
            y = torch.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)
            return sites.hook_normalized(y)
        # The kernel has 1 / scale, without a gradient
        y, _, inverse_scale = torch.native_layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)
        if has_hooks(sites.hook_scale) or torch.is_grad_enabled():
            scale = (x.var(-1, keepdim=True, unbiased=False) + self.eps).sqrt()
        else:
            scale = inverse_scale.reciprocal().to(x.dtype)
        # Rescale by the ratio of the scale before and after its hooks
        edited = sites.hook_scale(scale)
        if has_hooks(sites.hook_scale):
            y = y + (y - self.bias) * (scale / edited - 1)
        return sites.hook_normalized(y)


def activate(x: Float[Tensor, "*batch width"], activation: str) -> Float[Tensor, "*batch width"]:
    """The nonlinearity of a config's `activation`: `relu`, `gelu`, or its approximation `gelu_tanh`."""
    if activation == "relu":
        return F.relu(x)
    return F.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


def take(
    x: Shaped[Tensor, "batch pos width"], positions: Int[Tensor, "batch row"]
) -> Shaped[Tensor, "batch row width"]:
    """The rows of x at these positions, which may differ between examples.

    Raises:
        ValueError: a position outside x.
    """
    # As in `look_up`, checked only after torch has refused them
    try:
        return x.gather(1, positions[..., None].expand(-1, -1, x.shape[-1]))
    except RuntimeError:
        low, high = int(positions.min()), int(positions.max())
        if low < 0 or high >= x.shape[1]:
            raise ValueError(
                f"read_at has positions from {low} to {high}; these sequences have 0 to {x.shape[1] - 1}."
            ) from None
        raise


def look_up(table: Tensor, ids: Int[Tensor, "*batch pos"], name: str, limit: str) -> Float[Tensor, "*batch pos width"]:
    """Rows of an embedding table.

    Raises:
        ValueError: an id outside the table.
    """
    # The ids are checked only after torch has refused them, which costs nothing in the usual case
    try:
        return F.embedding(ids, table)
    except IndexError:
        check_ids(ids, len(table), name, limit)
        raise


def check_ids(ids: Int[Tensor, "*batch pos"], size: int, name: str, limit: str) -> None:
    """Check that ids are inside a table.

    Raises:
        ValueError: an id below 0, or not below the size.
    """
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < size:
        raise ValueError(
            f"{name} holds ids from {int(ids.min())} to {int(ids.max())}; {limit} of this model is {size}. "
            f"Was the model made for another task?"
        )


def check_token_type(tokens: Any) -> None:
    """Check that token ids are a tensor of integers that an embedding reads.

    Raises:
        ValueError: anything else.
    """
    if not isinstance(tokens, Tensor):
        raise ValueError(f"tokens is a {type(tokens).__name__}; it must be a tensor (batch, pos) of integer ids.")
    if tokens.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"tokens is {tokens.dtype}; it must hold integer ids, as tokens.long() does.")


def check_tokens(tokens: Tensor, attention_mask: Tensor | None, *, n_ctx: int | None = None) -> None:
    """Check token ids and their mask.

    Raises:
        ValueError: ids that are not a tensor of integers, no batch axis, more than `n_ctx` positions, or a mask of
            another shape or with other values than 0 and 1.
    """
    check_token_type(tokens)
    if tokens.ndim != 2:
        raise ValueError(f"tokens is {tuple(tokens.shape)}; it must be (batch, pos). One text? Pass tokens[None].")
    if n_ctx is not None and tokens.shape[1] > n_ctx:
        raise ValueError(f"tokens has {tokens.shape[1]} positions; n_ctx of this model is {n_ctx}.")
    if attention_mask is not None and attention_mask.shape != tokens.shape:
        raise ValueError(f"attention_mask is {tuple(attention_mask.shape)}; tokens is {tuple(tokens.shape)}.")
    check_mask(attention_mask)


def check_read_positions(read_at: Any, tokens: Tensor) -> None:
    """Check the type and shape of the positions that are read.

    Raises:
        ValueError: no tensor of integers, or another number of sequences than tokens.
    """
    if not isinstance(read_at, Tensor) or read_at.dtype != torch.int64:
        kind = read_at.dtype if isinstance(read_at, Tensor) else type(read_at).__name__
        raise ValueError(f"read_at is {kind}; it must be a torch.int64 tensor (batch, read) of positions.")
    if read_at.ndim != 2 or len(read_at) != len(tokens):
        raise ValueError(
            f"read_at is {tuple(read_at.shape)}; it must be (batch, read) with a row for each of {len(tokens)} "
            f"sequences."
        )


def check_mask(attention_mask: Any) -> None:
    """Check that a mask says which tokens are real, and is not one that is added to scores.

    Raises:
        ValueError: values other than 0 and 1.
    """
    if not isinstance(attention_mask, Tensor) or attention_mask.dtype == torch.bool:
        return
    is_other = (attention_mask != 0) & (attention_mask != 1)
    if is_other.any():
        value = attention_mask[is_other][0].item()
        raise ValueError(
            f"attention_mask has {value:g}; it must be True or 1 for real tokens and False or 0 for padding. Of a mask "
            f"that is added to scores, pass mask == 0."
        )
