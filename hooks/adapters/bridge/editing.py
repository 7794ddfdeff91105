"""Tests of whether an edit at a hook point of a bridge has the effect that an edit of that quantity must have.

All layers are tested in one pass. The input of every layer is fixed at its clean value, so that the activations of a
layer depend on the edit in that layer alone. An edit is judged at the next hook point that it must change: an edit of
the pattern by z, one of z by the attention output. Where even that cannot change, as the weights between are zero,
torch's graph decides whether the next activation is computed from the edited one.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from hooks.adapters.bridge.reading import ReadTests
from hooks.adapters.bridge.sites import Cell, reaches, run

LayerValues = dict[int, Tensor]
"""One tensor per layer."""
Activations = Mapping[str, Tensor]
"""Recorded activations by hook point."""
WRONG_EFFECT = "an edit has another effect than it must have"
NOT_ADDED = "no test shows that it is added to the stream as it is"
UNTESTED_PROJECTION = "it cannot be checked without queries, keys, values and z"


def _roll(x: Tensor) -> Tensor:
    """Another sequence's activation."""
    return x.roll(1, 0)


def _roll_by_layer(x: Tensor, layer: int) -> Tensor:
    """Another sequence's activation, of different ones in neighbouring layers."""
    return x.roll(1 + layer % 2, 0)


class EditTests:
    """Results for every edit, by canonical name, in `cells`.

    Args:
        reads: Results of the read tests.
        generator: Source of the random values that are set.
    """

    def __init__(self, reads: ReadTests, generator: torch.Generator):
        self.reads, self.generator, self.tolerance = reads, generator, reads.tolerance
        self.layers = range(reads.cfg.n_layers)
        self.cells: dict[str, Cell] = {}
        self.fixed: dict[str, Tensor] = {}
        self._test_streams()
        self._test_embeddings_and_read_out()
        inputs = [f"blocks.{layer}.hook_resid_pre" for layer in self.layers]
        outputs = [f"blocks.{layer}.hook_resid_post" for layer in self.layers]
        if not all(self.cells[name].ok for name in (*inputs, *outputs)):
            untested = Cell("wrong copy", reason="it cannot be tested layer by layer: hook_resid_pre cannot be set")
            self.cells = {name: self.cells.get(name, untested) for name in reads.points}
            return
        # From here on every pass fixes the input of each layer
        self.fixed = {self.cells[name].point: reads.values[name] for name in inputs}
        self._test_attention()
        self._test_queries_keys_values()
        self._test_mlp()

    def read_cells(self) -> dict[str, Cell]:
        """Results for reading: at the hook point where the site can be edited, if it can be."""
        cells = dict(self.reads.cells)
        for name, edit_cell in self.cells.items():
            if cells[name].ok and edit_cell.ok:
                cells[name] = replace(cells[name], state=edit_cell.state, point=edit_cell.point)
            elif edit_cell.reason == NOT_ADDED:  # it is read as what is added, so it cannot be read either
                cells[name] = edit_cell
        return cells

    # The residual stream, embeddings, and the input of the unembedding

    def _test_streams(self) -> None:
        """With another sequence's residual stream, everything after it is that sequence's."""
        for site in ("hook_resid_pre", "hook_resid_post"):
            first_points, edits = {}, {}
            for layer in self.layers:
                points = self.reads.points[f"blocks.{layer}.{site}"]
                if points:
                    first_points[layer] = points[0]
                    edits[points[0]] = _roll_by_layer(self.reads.activations[points[0]], layer)
            # All layers are edited in one pass
            logits, activations = run(self.reads.bridge, self.reads.tokens, edits, self.reads.names)
            for layer in self.layers:
                faults = {}
                if layer in first_points:
                    point = first_points[layer]
                    faults[point] = self._stream_fault(layer, site, point, edits, activations, logits)
                self._record(f"blocks.{layer}.{site}", faults)

    def _stream_fault(
        self, layer: int, site: str, point: str, edits: Activations, activations: Activations, logits: Tensor
    ) -> str:
        """The first fault at an activation that is computed from a layer's input or output, or in the logits."""
        # An input is read in its layer, an output in the next one
        reader = layer if site == "hook_resid_pre" else layer + 1
        for reader_site in ("hook_resid_post", "attn.hook_z", "hook_resid_pre"):
            targets = self.reads.points.get(f"blocks.{reader}.{reader_site}")
            if targets and targets[0] not in edits:
                clean = self.reads.activations[targets[0]]
                expected = _roll_by_layer(clean, layer)
                edit = {point: edits[point]}
                if fault := self._fault(activations[targets[0]], expected, clean, edit, targets[0]):
                    return fault
        # After the last layer only the logits show an effect
        if layer != self.layers[-1]:
            return ""
        expected = _roll_by_layer(self.reads.logits, layer)
        return self._fault(logits, expected, self.reads.logits, {point: edits[point]}, None)

    def _test_embeddings_and_read_out(self) -> None:
        first = self._editable_point("blocks.0.hook_resid_pre")
        for name, test, target in (
            ("hook_embed", self._swap_fault, first),
            ("hook_pos_embed", self._sum_fault, first),
            ("ln_final.hook_normalized", self._swap_fault, None),
        ):
            faults = {}
            for point in self.reads.points[name]:
                faults[point] = test(point, target)
                if not faults[point]:
                    break
            self._record(name, faults)

    def _swap_fault(self, point: str, target: str | None) -> str:
        """The fault of setting another sequence's activation, which must give that sequence's result."""
        edit = {point: _roll(self.reads.activations[point])}
        clean = self._clean_at(target)
        return self._fault(self._edited_at(target, edit), _roll(clean), clean, edit, target)

    def _sum_fault(self, point: str, target: str | None) -> str:
        """The fault of adding to a position embedding, which must equal adding the same to the token embedding."""
        embed_points = self.reads.points["hook_embed"]
        if not embed_points:
            return "there is no token embedding to compare with"
        embed = self.reads.activations[embed_points[0]]
        addend = self._random(embed) - embed
        edit = {point: self.reads.activations[point] + addend}
        expected = self._edited_at(target, {embed_points[0]: embed + addend})
        return self._fault(self._edited_at(target, edit), expected, self._clean_at(target), edit, target)

    def _clean_at(self, target: str | None) -> Tensor:
        return self.reads.logits if target is None else self.reads.activations[target]

    def _edited_at(self, target: str | None, edit: Activations) -> Tensor:
        """The activation of a hook point, or the logits, under an edit."""
        logits, activations = run(self.reads.bridge, self.reads.tokens, edit, [] if target is None else [target])
        return logits if target is None else activations[target]

    # Attention

    def _test_attention(self) -> None:
        """Attention output, z, pattern and scores; pattern and scores are compared with an edit of z."""
        attn_out = self._new_values("hook_attn_out", self._random)
        self._test("hook_attn_out", attn_out, judge=self._attn_out_fault)
        z = self._new_values("attn.hook_z", self._random)
        self._test("attn.hook_z", z, judge=self._z_fault)
        pattern = self._new_values("attn.hook_pattern", self._random_pattern)
        self._test("attn.hook_pattern", pattern, ("attn.hook_z", self._mix_values(pattern)))
        scores = self._new_values("attn.hook_attn_scores", self._random_scores)
        expected = self._mix_values({layer: value.softmax(-1) for layer, value in scores.items()})
        self._test("attn.hook_attn_scores", scores, ("attn.hook_z", expected))

    def _mix_values(self, patterns: LayerValues) -> LayerValues:
        """pattern @ v in each layer."""
        v = self._new_values("attn.hook_v", lambda value: value)
        return {layer: self.reads.layers[layer].mix_values(value, v[layer]) for layer, value in patterns.items()}

    def _attn_out_fault(self, layer: int, point: str, attn_out: Tensor, activations: Activations) -> str:
        """The fault of setting an attention output, which must be added to the residual stream."""
        name = f"blocks.{layer}."
        clean_output = self._clean_output(layer)
        output = self._output(activations, layer)
        if self._is_unread(output, clean_output, {point: attn_out}, self._output_point(layer)):
            return "ignored"
        # The sum is right if it is in the middle of the layer, or before a LayerNorm there
        expected = self.reads.values[name + "hook_resid_pre"] + attn_out
        middle_points = [*self.reads.points[name + "hook_resid_mid"], name + "ln1.hook_in"]
        sums = [activations[middle] for middle in middle_points if middle in activations]
        if name + "hook_mlp_out" in self.reads.values:  # parallel attention and MLP
            sums.append(output - self.reads.values[name + "hook_mlp_out"])
        if any(self.tolerance.equal(total, expected) for total in sums):
            return ""
        # Otherwise the same change of the layer's input must have the same effect
        input_point = self.cells[name + "hook_resid_pre"].point
        clean = self.reads.activations[point]
        shifted_input = self.reads.activations[input_point] + attn_out - clean
        shifted = self._run({input_point: shifted_input, point: clean})
        if self.tolerance.same_change(self._output(shifted, layer), output, clean_output):
            return ""
        # Nothing else of the layer reads it where the MLP is parallel: the output changes by as much
        if self.tolerance.same_change(output, clean_output + attn_out - clean, clean_output):
            return ""
        return NOT_ADDED

    def _z_fault(self, layer: int, point: str, z: Tensor, activations: Activations) -> str:
        """The fault of setting z, which must give z W_O + b_O where that is, and change the output of the layer."""
        target = self.reads.layers[layer].output_point
        edit, clean_output = {point: z}, self._clean_output(layer)
        expected = self.reads.weights[layer].output(z)
        if fault := self._fault(activations[target], expected, self.reads.activations[target], edit, target):
            return fault
        is_unread = self._is_unread(self._output(activations, layer), clean_output, edit, self._output_point(layer))
        return "ignored" if is_unread else ""

    def _test_queries_keys_values(self) -> None:
        """With all three of another sequence, z is that sequence's. Each is also edited alone: is it ignored?"""
        sites = ("attn.hook_q", "attn.hook_k", "attn.hook_v")
        # Edit all three together, in the layers that have them
        swapped = {site: self._new_values(site, _roll) for site in sites}
        complete = [layer for layer in self.layers if all(layer in swapped[site] for site in sites)]
        edits = {self._first_point(layer, site): swapped[site][layer] for layer in complete for site in sites}
        all_three = self._run(edits)
        # Edit each alone
        for site in sites:
            random_values = self._new_values(site, self._random)
            one_alone = self._run({self._first_point(layer, site): value for layer, value in random_values.items()})
            for layer in self.layers:
                name = f"blocks.{layer}.{site}"
                if layer not in random_values:
                    self._record(name, {})
                    continue
                point = self._first_point(layer, site)
                edit = {point: random_values[layer]}
                together = all_three if layer in complete else None
                self._record(name, {point: self._projection_fault(layer, site, edit, one_alone, together)})

    def _projection_fault(
        self, layer: int, site: str, edit: Activations, one_alone: Activations, all_three: Activations | None
    ) -> str:
        """The fault of an edit of queries, keys or values, looked for at z."""
        target = self._editable_point(f"blocks.{layer}.attn.hook_z")
        if target is None:
            return UNTESTED_PROJECTION
        clean = self.reads.activations[target]
        if self._is_unread(one_alone[target], clean, edit, target):
            return "ignored"
        # Values have a second check, by the pattern that mixes them
        pattern = None
        if site == "attn.hook_v":
            pattern = self.reads.values.get(f"blocks.{layer}.attn.hook_pattern")
        if all_three is None and pattern is None:
            return UNTESTED_PROJECTION
        fault = ""
        if all_three is not None:
            fault = self._fault(all_three[target], _roll(clean), clean, edit, target)
        if pattern is not None and not fault:
            (values,) = edit.values()
            expected = self.reads.layers[layer].mix_values(pattern, values)
            fault = self._fault(one_alone[target], expected, clean, edit, target)
        return fault

    # The MLP

    def _test_mlp(self) -> None:
        self._test("hook_resid_mid", self._new_values("hook_resid_mid", _roll), judge=self._middle_fault)
        mlp_out = self._new_values("hook_mlp_out", self._random)
        self._test("hook_mlp_out", mlp_out, ("hook_resid_post", self._outputs_with(mlp_out)))
        post = self._new_values("mlp.hook_post", _roll)
        self._test("mlp.hook_post", post, ("hook_mlp_out", self._new_values("hook_mlp_out", _roll)))
        pre = self._new_values("mlp.hook_pre", _roll)
        # A gated MLP has a second input, which is set too
        gates = [f"blocks.{layer}.mlp.hook_pre_linear" for layer in pre]
        gate_values = {gate: _roll(self.reads.activations[gate]) for gate in gates if gate in self.reads.activations}
        self._test("mlp.hook_pre", pre, ("mlp.hook_post", post), further_edits=gate_values)

    def _middle_fault(self, layer: int, point: str, middle: Tensor, activations: Activations) -> str:
        """The fault of setting another sequence's stream between attention and MLP."""
        clean = self._clean_output(layer)
        output = self._output(activations, layer)
        fault = self._fault(output, _roll(clean), clean, {point: middle}, self._output_point(layer))
        mlp_points = self.reads.points[f"blocks.{layer}.hook_mlp_out"]
        if fault and mlp_points:
            through_mlp = clean + activations[mlp_points[0]] - self.reads.activations[mlp_points[0]]
            visible = self.tolerance.visible(through_mlp, clean)
            if visible and self.tolerance.same_change(output, through_mlp, clean):
                return "an edit reaches the MLP, but not the residual stream"
        return fault

    def _outputs_with(self, mlp_out: LayerValues) -> LayerValues:
        """The output of each layer with another output of its MLP."""
        outputs, edits_before_norm = {}, {}
        for layer, value in mlp_out.items():
            # The change is added to the output, or to the input of a LayerNorm that gives the output
            name = f"blocks.{layer}."
            change = value - self.reads.values[name + "hook_mlp_out"]
            norm_input = self.reads.activations.get(name + "ln2.hook_in")
            norm_output = self.reads.activations.get(name + "ln2.hook_out")
            output = self.reads.values[name + "hook_resid_post"]
            if norm_input is not None and self.tolerance.equal(norm_output, output):
                edits_before_norm[layer] = (name + "ln2.hook_in", norm_input + change)
            else:
                outputs[layer] = output + change
        # Where a LayerNorm follows the sum, the model computes it
        if edits_before_norm:
            activations = self._run(dict(edits_before_norm.values()))
            outputs |= {layer: self._output(activations, layer) for layer in edits_before_norm}
        return outputs

    # One test, and what all tests use

    def _test(
        self,
        site: str,
        new_values: LayerValues,
        expected: tuple[str, LayerValues] | None = None,
        *,
        judge: Callable[[int, str, Tensor, Activations], str] | None = None,
        further_edits: Activations | None = None,
    ) -> None:
        """Set a site in every layer, at each of its hook points in turn, until the next site has what it must have.

        Args:
            site: The site to test.
            new_values: Values to set.
            expected: The next site, and its values after a working edit; without `judge`.
            judge: The fault, from a layer, the hook point, its value and the recorded activations; empty if there is
                none.
            further_edits: Further activations to set, by hook point.
        """
        faults: dict[int, dict[str, str]] = {layer: {} for layer in self.layers}
        points = {layer: self.reads.points[f"blocks.{layer}.{site}"] for layer in new_values}
        next_site, expected_values = expected or ("", {})
        # In each turn, the next hook point of every layer in which none has passed yet
        for turn in range(max(map(len, points.values()), default=0)):
            untested = [layer for layer in points if turn < len(points[layer]) and "" not in faults[layer].values()]
            edits = {points[layer][turn]: new_values[layer] for layer in untested}
            activations = self._run({**(further_edits or {}), **edits})
            for layer in untested:
                point = points[layer][turn]
                target = self._editable_point(f"blocks.{layer}.{next_site}")
                if judge is not None:
                    fault = judge(layer, point, new_values[layer], activations)
                elif target is None or layer not in expected_values:
                    fault = "it cannot be checked, as its result cannot be set"
                else:
                    clean = self.reads.activations[target]
                    edit = {point: new_values[layer]}
                    fault = self._fault(activations[target], expected_values[layer], clean, edit, target)
                faults[layer][point] = fault
        for layer in self.layers:
            self._record(f"blocks.{layer}.{site}", faults[layer])

    def _fault(self, edited: Tensor, expected: Tensor, clean: Tensor, edit: Activations, target: str | None) -> str:
        """The fault of an edit; empty if there is none.

        Args:
            edited: Activation at `target` after the edit.
            expected: The same after a working edit.
            clean: The same without an edit.
            edit: The activation that was set, by hook point.
            target: The hook point where the effect is looked for; if None, the logits.
        """
        # A working edit may change nothing here, if the weights between are zero
        if not self.tolerance.visible(expected, clean):
            if not self.tolerance.same_change(edited, expected, clean):
                return WRONG_EFFECT
            return "ignored" if self._is_unread(edited, clean, edit, target) else ""
        if self.tolerance.same_change(edited, expected, clean):
            return ""
        return "ignored" if torch.equal(edited, clean) else WRONG_EFFECT

    def _is_unread(self, edited: Tensor, clean: Tensor, edit: Activations, target: str | None) -> bool:
        """An edit changed nothing, and not because the weights that read it are zero."""
        if not torch.equal(edited, clean):
            return False
        (point,) = edit
        return not reaches(self.reads.bridge, self.reads.tokens, {**self.fixed, **edit}, point, target)

    def _record(self, name: str, faults: Mapping[str, str]) -> None:
        """Record the hook point that passed, or else the fault of the first."""
        read_cell = self.reads.cells[name]
        passed = [point for point, fault in faults.items() if not fault]
        if passed:
            self.cells[name] = Cell("works" if passed[0] == name else "through", passed[0], read_cell.reason)
        elif faults:
            fault = next(iter(faults.values()))
            self.cells[name] = Cell("ignored") if fault == "ignored" else Cell("wrong copy", reason=fault)
        elif name in self.reads.activations and self._is_ignored(name):
            self.cells[name] = Cell("ignored")
        else:
            self.cells[name] = Cell(read_cell.state, reason=read_cell.reason)

    def _is_ignored(self, name: str) -> bool:
        logits, _ = run(self.reads.bridge, self.reads.tokens, {name: self._random(self.reads.activations[name])})
        return torch.equal(logits, self.reads.logits)

    def _run(self, edits: Activations) -> dict[str, Tensor]:
        """Activations with the input of every layer fixed, and these edits."""
        return run(self.reads.bridge, self.reads.tokens, {**self.fixed, **edits}, self.reads.names)[1]

    def _first_point(self, layer: int, site: str) -> str:
        return self.reads.points[f"blocks.{layer}.{site}"][0]

    def _output_point(self, layer: int) -> str:
        return self._first_point(layer, "hook_resid_post")

    def _output(self, activations: Activations, layer: int) -> Tensor:
        return activations[self._output_point(layer)]

    def _clean_output(self, layer: int) -> Tensor:
        return self.reads.values[f"blocks.{layer}.hook_resid_post"]

    def _editable_point(self, name: str) -> str | None:
        """The hook point where a name can be edited, so that the model uses what is recorded there; else None."""
        cell = self.cells.get(name)
        return cell.point if cell is not None and cell.ok else None

    # New values

    def _new_values(self, site: str, make: Callable[[Tensor], Tensor]) -> LayerValues:
        """New values for a site, from its clean ones, in every layer that has it."""
        clean = {layer: self.reads.values.get(f"blocks.{layer}.{site}") for layer in self.layers}
        return {layer: make(value) for layer, value in clean.items() if value is not None}

    def _random(self, clean: Tensor) -> Tensor:
        noise = torch.randn(clean.shape, generator=self.generator, dtype=torch.float32).to(clean)
        size = clean[clean.isfinite()].std().clamp_min(1e-3)
        return torch.where(clean.isfinite(), clean + noise * size, clean)

    def _random_pattern(self, pattern: Tensor) -> Tensor:
        weights = self._random(pattern).abs()
        return weights / weights.sum(-1, keepdim=True)

    def _random_scores(self, scores: Tensor) -> Tensor:
        """Random scores; masked ones stay masked."""
        noise = torch.randn(scores.shape, generator=self.generator, dtype=torch.float32).to(scores)
        return torch.where(scores > torch.finfo(scores.dtype).min / 2, noise, scores)
