"""Separate inputs of queries, keys, values and MLP in a bridge: switched on for a while, and tested at load time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from hooks.adapters.bridge.reading import ReadTests
from hooks.adapters.bridge.sites import Cell, run

FLAGS = ("use_split_qkv_input", "use_hook_mlp_in")
"""TransformerLens's settings; each has a method `set_...`."""
LETTERS = ("q", "k", "v")


def input_point(layer: int, letter: str) -> str:
    """The hook point with the input of each head's queries (`q`), keys or values: the stream before the norm."""
    return f"blocks.{layer}.attn.hook_{letter}_input"


def mlp_input_point(layer: int) -> str:
    """The hook point with the input of the MLP: the stream before the norm, read by the MLP only."""
    return f"blocks.{layer}.hook_mlp_in"


@contextmanager
def split_inputs(bridge: Any) -> Iterator[None]:
    """Separate inputs in every layer; afterwards the settings are those of before.

    Args:
        bridge: A bridge with split inputs.

    Raises:
        NotImplementedError, ValueError: TransformerLens refuses them for this bridge.
    """
    before = {flag: bool(getattr(bridge.cfg, flag, False)) for flag in FLAGS}
    changed = [flag for flag, is_on in before.items() if not is_on]
    try:
        for flag in changed:
            getattr(bridge, f"set_{flag}")(True)
        yield
    finally:
        for flag in changed:
            getattr(bridge, f"set_{flag}")(False)


def split_inputs_cell(reads: ReadTests, fixed: Mapping[str, Tensor]) -> Cell:
    """Whether each input can be edited alone, so that what is computed from it is that of the edited stream.

    Args:
        reads: Results of the read tests.
        fixed: The clean input of every layer, by hook point, so that all layers are tested in one pass.
    """
    if not all(hasattr(reads.bridge, f"set_{flag}") for flag in FLAGS):
        return Cell("missing", reason=f"the model has no {' and '.join(f'set_{flag}' for flag in FLAGS)}")
    if not fixed:
        return Cell("missing", reason="they cannot be tested layer by layer: hook_resid_pre cannot be set")
    if not reads.sums.ok:
        return reads.sums
    try:
        with split_inputs(reads.bridge):
            fault = _SplitInputTests(reads, fixed).fault()
    except (RuntimeError, ValueError, LookupError) as error:
        return Cell("missing", reason=f"the model refuses them: {str(error).split('. ')[0]}")
    return Cell("missing", reason=fault) if fault else Cell("works")


class _SplitInputTests:
    """Passes with other inputs of half of the heads, and of the MLPs."""

    def __init__(self, reads: ReadTests, fixed: Mapping[str, Tensor]):
        self.reads, self.fixed, self.tolerance = reads, fixed, reads.tolerance
        self.layers = range(reads.cfg.n_layers)
        self.inputs = [input_point(layer, letter) for layer in self.layers for letter in LETTERS]
        self.mlp_inputs = [mlp_input_point(layer) for layer in self.layers if self._name(layer, "hook_mlp_out")]
        self.clean = self._run({})

    def fault(self) -> str:
        """What is wrong; empty if nothing is."""
        if fault := self._fault_of_reading():
            return fault
        # The queries, keys or values of half of the heads, which nothing else may follow
        for edited in LETTERS:
            points = [input_point(layer, edited) for layer in self.layers]
            activations = self._run({point: _mixed(self.clean[point]) for point in points})
            for layer in self.layers:
                for letter in LETTERS:
                    name = self._name(layer, f"attn.hook_{letter}")
                    clean = self.clean[name]
                    expected = _mixed(clean) if letter == edited else clean
                    if not self.tolerance.same_change(activations[name], expected, clean):
                        return f"an edit of {input_point(layer, edited)} has another effect on hook_{letter}"
        return self._fault_of_outputs()

    def _fault_of_reading(self) -> str:
        """All inputs are the stream that they should read."""
        for layer in self.layers:
            stream = self._value(layer, "hook_resid_pre")
            if layer and not self.tolerance.equal(self._value(layer - 1, "hook_resid_post"), stream):
                return f"the input of layer {layer} is not the output of the layer before"
            for letter in LETTERS:
                point = input_point(layer, letter)
                if point not in self.clean:
                    return f"{point} never fires"
                if self.clean[point].shape[2:-1] != (self.reads.cfg.n_heads,):
                    return "several heads share keys and values"
                if not self.tolerance.equal(self.clean[point], stream[:, :, None].expand_as(self.clean[point])):
                    return f"{point} is not the input of the layer"
                if not self._name(layer, f"attn.hook_{letter}"):
                    return f"hook_{letter} of layer {layer} cannot be read"
        for point in self.mlp_inputs:
            layer = int(point.split(".")[1])
            if point not in self.clean:
                return f"{point} never fires"
            name = "hook_resid_mid" if self._name(layer, "hook_resid_mid") else "hook_resid_pre"
            if not self.tolerance.equal(self.clean[point], self._value(layer, name)):
                return f"{point} is not {name}"
        return ""

    def _fault_of_outputs(self) -> str:
        """With all inputs of half of the heads and those of the MLPs from another sequence, so is what they write."""
        edits = {point: _mixed(self.clean[point]) for point in self.inputs}
        activations = self._run({**edits, **{point: self.clean[point].roll(1, 0) for point in self.mlp_inputs}})
        for layer in self.layers:
            names = [self._name(layer, site) for site in ("hook_resid_pre", "hook_attn_out", "hook_mlp_out")]
            z, mlp_out, post = (self._name(layer, site) for site in ("attn.hook_z", "hook_mlp_out", "hook_resid_post"))
            if not self.tolerance.same_change(activations[z], _mixed(self.clean[z]), self.clean[z]):
                return f"edits of the inputs of layer {layer} have another effect on hook_z"
            if mlp_out and not self.tolerance.same_change(
                activations[mlp_out], self.clean[mlp_out].roll(1, 0), self.clean[mlp_out]
            ):
                return f"an edit of {mlp_input_point(layer)} has another effect on hook_mlp_out"
            written = torch.stack([activations[name] for name in names if name]).sum(0)
            if not self.tolerance.equal(activations[post], written):
                return f"edits of the inputs of layer {layer} have another effect on hook_resid_post"
        return ""

    def _run(self, edits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Activations with the input of every layer fixed, and these edits."""
        names = [*self.reads.names, *self.inputs, *self.mlp_inputs]
        return run(self.reads.bridge, self.reads.tokens, {**self.fixed, **edits}, list(dict.fromkeys(names)))[1]

    def _value(self, layer: int, site: str) -> Tensor:
        return self.reads.values[f"blocks.{layer}.{site}"]

    def _name(self, layer: int, site: str) -> str:
        """The hook point that serves a site; empty if none does."""
        points = self.reads.points[f"blocks.{layer}.{site}"]
        return points[0] if points else ""


def _mixed(clean: Tensor) -> Tensor:
    """Another sequence's activation at every second head (batch, pos, head, width)."""
    mixed = clean.clone()
    mixed[:, :, ::2] = clean.roll(1, 0)[:, :, ::2]
    return mixed
