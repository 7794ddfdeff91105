"""Parts of a torch module's layers whose outputs are added to the residual stream, found in two passes."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from jaxtyping import Int
from torch import Tensor, nn
from transformer_lens.HookedRootModule import HookedRootModule

from hooks.adapters.bridge.sites import Tolerance, run
from hooks.state import evaluation_mode

OUTPUT_MAP = ""
"""In place of the name of a part: the output of W_O. The layer itself, whose name is empty too, is no part."""
POINTS = ("hook_resid_pre", "attn.hook_v", "attn.hook_pattern", "attn.hook_z", "hook_resid_post")


class RecordedPass:
    """One pass of a wrapped module: activations of hook points, and what the parts of each layer give.

    Args:
        model: The wrapped module.
        layers: Its layers.
        tokens: Token ids.
        edits: Activations to set, by hook point.
    """

    def __init__(
        self,
        model: HookedRootModule,
        layers: Sequence[nn.Module],
        tokens: Int[Tensor, "batch pos"],
        edits: Mapping[str, Tensor] | None = None,
    ):
        self.n_runs = [0] * len(layers)
        """How often each layer ran."""
        self.outputs: list[dict[str, Tensor]] = [{} for _ in layers]
        """What the parts of each layer give, in the order they run; of a part that runs twice, the first time."""
        blocks: Any = model.blocks
        with ExitStack() as stack:
            stack.enter_context(evaluation_mode(model))
            for index, layer in enumerate(layers):
                stack.callback(layer.register_forward_pre_hook(partial(self._count, index)).remove)
                modules = {**dict(layer.named_modules()), OUTPUT_MAP: blocks[index].hook_attn_out}
                for name, module in modules.items():
                    stack.callback(module.register_forward_hook(partial(self._store, index, name)).remove)
            names = [f"blocks.{index}.{site}" for index in range(len(layers)) for site in POINTS]
            _, self.points = run(model, tokens, edits, names)

    def _count(self, index: int, module: nn.Module, inputs: Any) -> None:
        self.n_runs[index] += 1

    def _store(self, index: int, name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            self.outputs[index].setdefault(name, output.clone())

    def mixes_values(self, layer: int) -> bool:
        """Whether the pattern of a layer mixes its values to z; True if one of them was not computed."""
        pattern, v, z = (self.points.get(f"blocks.{layer}.attn.hook_{name}") for name in ("pattern", "v", "z"))
        if pattern is None or v is None or z is None:
            return True
        mixed = (pattern.to(v.dtype) @ v.transpose(1, 2)).transpose(1, 2)
        return Tolerance(z.dtype).equal(mixed, z)


def added_parts(clean: RecordedPass, edited: RecordedPass, layer: int) -> dict[str, str]:
    """Names of the parts of a layer whose outputs, with its input, add up to its output; by hook point.

    That of attention is the output of W_O, or of a part after it, such as a norm or a scale, that changes with z.
    That of the MLP is, of several such parts, as an MLP and the Dropout at its end, the last that runs.

    Args:
        clean: A pass without edits.
        edited: A pass with another z in every layer, and the input of every layer as it was.
        layer: The layer.

    Returns:
        `hook_attn_out` if it is no output of W_O, `hook_mlp_out` if attention alone does not give the output; empty if
        no two parts do.
    """
    clean_outputs, edited_outputs = clean.outputs[layer], edited.outputs[layer]
    if OUTPUT_MAP not in clean_outputs or OUTPUT_MAP not in edited_outputs:
        return {}
    tolerance = Tolerance(clean_outputs[OUTPUT_MAP].dtype)

    def add_up(*names: str) -> bool:
        for recorded, outputs in ((clean, clean_outputs), (edited, edited_outputs)):
            total = recorded.points[f"blocks.{layer}.hook_resid_pre"]
            for name in names:
                total = total + outputs[name]
            if not tolerance.equal(total, recorded.points[f"blocks.{layer}.hook_resid_post"]):
                return False
        return True

    def changes(name: str) -> bool:
        return tolerance.changed(edited_outputs[name], clean_outputs[name])

    # Only outputs with the shape of the stream can be added to it
    stream = clean.points[f"blocks.{layer}.hook_resid_pre"]
    names = [name for name, output in clean_outputs.items() if output.shape == stream.shape and name in edited_outputs]
    if OUTPUT_MAP not in names:
        return {}
    # What depends on z, unless the weights after it are zero
    candidates = names[names.index(OUTPUT_MAP) :]
    if changes(OUTPUT_MAP):
        candidates = [name for name in candidates if changes(name)]
    for attn_out in candidates:
        parts = {} if attn_out == OUTPUT_MAP else {"hook_attn_out": attn_out}
        if add_up(attn_out):
            return parts
        mlp_outs = [name for name in names if name != attn_out and add_up(attn_out, name)]
        if mlp_outs:
            return {**parts, "hook_mlp_out": mlp_outs[-1]}
    return {}
