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

Values = dict[int, Tensor]
"""One tensor per layer."""
Seen = Mapping[str, Tensor]
"""Recorded activations by hook point."""


def _rolled(x: Tensor) -> Tensor:
    """Another sequence's activation."""
    return x.roll(1, 0)


class EditTests:
    """Results for every edit, by canonical name, in `cells`.

    Args:
        reads: Results of the read tests.
        generator: Source of the random values that are set.
    """

    def __init__(self, reads: ReadTests, generator: torch.Generator):
        self.reads, self.generator, self.same = reads, generator, reads.same
        self.layers = range(reads.cfg.n_layers)
        self.cells: dict[str, Cell] = {}
        self.fixed: dict[str, Tensor] = {}
        self._test_streams()
        self._test_ends()
        streams = [[f"blocks.{i}.hook_resid_{end}" for i in self.layers] for end in ("pre", "post")]
        if not all(self.cells[name].ok for names in streams for name in names):
            other = Cell("misleading", why="it cannot be tested layer by layer: hook_resid_pre cannot be set")
            self.cells = {name: self.cells.get(name, other) for name in reads.points}
            return
        self.fixed = {self.cells[name].point: reads.value[name] for name in streams[0]}
        self._test_attention()
        self._test_queries_keys_values()
        self._test_mlp()

    def read_cells(self) -> dict[str, Cell]:
        """Results for reading: at the hook point where the site can be edited, if it can be."""
        return {
            name: replace(cell, state=self.cells[name].state, point=self.cells[name].point)
            if cell.ok and name in self.cells and self.cells[name].ok
            else cell
            for name, cell in self.reads.cells.items()
        }

    def _test_ends(self) -> None:
        """Embeddings, and the input of the unembedding."""
        reads = self.reads

        first = self._editable("blocks.0.hook_resid_pre")

        def after(point: str, value: Tensor, out: str | None) -> Tensor:
            logits, seen = run(reads.bridge, reads.tokens, {point: value}, [] if out is None else [out])
            return logits if out is None else seen[out]

        def swapped(point: str, out: str | None) -> str:
            value, clean = _rolled(reads.seen[point]), reads.logits if out is None else reads.seen[out]
            return self._fault(after(point, value, out), _rolled(clean), clean, {point: value}, out)

        def added(point: str, out: str | None) -> str:
            embed = reads.points["hook_embed"]
            if not embed:
                return "there is no token embedding to compare with"
            extra = self._random(reads.seen[embed[0]]) - reads.seen[embed[0]]
            value, clean = reads.seen[point] + extra, reads.logits if out is None else reads.seen[out]
            wanted = after(embed[0], reads.seen[embed[0]] + extra, out)
            return self._fault(after(point, value, out), wanted, clean, {point: value}, out)

        for name, test, out in (
            ("hook_embed", swapped, first),
            ("hook_pos_embed", added, first),
            ("ln_final.hook_normalized", swapped, None),
        ):
            faults = {}
            for point in reads.points[name]:
                faults[point] = test(point, out)
                if not faults[point]:
                    break
            self._record(name, faults)

    def _test_streams(self) -> None:
        """With another sequence's residual stream, everything after it is that sequence's."""
        last = self.layers[-1]

        def rolled(layer: int, value: Tensor) -> Tensor:
            return value.roll(1 + layer % 2, 0)  # neighbouring layers get different ones

        for site in ("hook_resid_pre", "hook_resid_post"):
            points = {layer: self.reads.points[f"blocks.{layer}.{site}"] for layer in self.layers}
            edits = {one[0]: rolled(layer, self.reads.seen[one[0]]) for layer, one in points.items() if one}
            logits, seen = run(self.reads.bridge, self.reads.tokens, edits, self.reads.names)
            for layer, one in points.items():
                reader = layer if site == "hook_resid_pre" else layer + 1
                after = [f"blocks.{reader}.{name}" for name in ("hook_resid_post", "attn.hook_z", "hook_resid_pre")]
                after = [self.reads.points[name][0] for name in after if self.reads.points.get(name)]
                pairs = [(name, seen[name], self.reads.seen[name]) for name in after if name not in edits]
                pairs += [(None, logits, self.reads.logits)] if layer == last else []
                edit = {name: edits[name] for name in one[:1]}
                faults = [self._fault(found, rolled(layer, clean), clean, edit, out) for out, found, clean in pairs]
                self._record(f"blocks.{layer}.{site}", {one[0]: next(filter(None, faults), "")} if one else {})

    def _test_attention(self) -> None:
        """Attention output, z, pattern and scores; each is compared with an edit of the one before it."""
        write = self._values("hook_attn_out", self._random)
        self._test("hook_attn_out", write, judge=self._added)
        z = self._values("attn.hook_z", self._random)
        written = {layer: self.reads.weights[layer].output(value) for layer, value in z.items()}
        self._test("attn.hook_z", z, ("hook_attn_out", written))

        def rows(pattern: Tensor) -> Tensor:
            drawn = self._random(pattern).abs()
            return drawn / drawn.sum(-1, keepdim=True)

        pattern = self._values("attn.hook_pattern", rows)
        self._test("attn.hook_pattern", pattern, ("attn.hook_z", self._mixed(pattern)))
        scores = self._values("attn.hook_attn_scores", self._other_scores)
        wanted = self._mixed({layer: one.softmax(-1) for layer, one in scores.items()})
        self._test("attn.hook_attn_scores", scores, ("attn.hook_z", wanted))

    def _mixed(self, patterns: Values) -> Values:
        """pattern @ v in each layer."""
        v = self._values("attn.hook_v", lambda value: value)
        return {layer: self.reads.layers[layer].mixed(one, v[layer]) for layer, one in patterns.items()}

    def _test_queries_keys_values(self) -> None:
        """With all three of another sequence, z is that sequence's. Each is also edited alone: is it ignored?"""
        sites = ("attn.hook_q", "attn.hook_k", "attn.hook_v")
        values = {site: self._values(site, _rolled) for site in sites}
        complete = [layer for layer in self.layers if all(layer in values[site] for site in sites)]
        together = self._run({self._first(layer, site): values[site][layer] for layer in complete for site in sites})
        for site in sites:
            drawn = self._values(site, self._random)
            alone = self._run({self._first(layer, site): one for layer, one in drawn.items()})
            for layer in self.layers:
                name, out = f"blocks.{layer}.{site}", self._editable(f"blocks.{layer}.attn.hook_z")
                if layer not in drawn:
                    self._record(name, {})
                    continue
                point, pattern = self._first(layer, site), self.reads.value.get(f"blocks.{layer}.attn.hook_pattern")
                edit, faults = {point: drawn[layer]}, []
                if out is not None:
                    clean = self.reads.seen[out]
                    faults += ["ignored"] if self._is_unread(alone[out], clean, edit, out) else []
                    if layer in complete:
                        faults.append(self._fault(together[out], _rolled(clean), clean, edit, out))
                    if site == "attn.hook_v" and pattern is not None:
                        mixed = self.reads.layers[layer].mixed(pattern, drawn[layer])
                        faults.append(self._fault(alone[out], mixed, clean, edit, out))
                fault = next(
                    filter(None, faults), "" if faults else "it cannot be checked without queries, keys, values and z"
                )
                self._record(name, {point: fault})

    def _test_mlp(self) -> None:
        reads = self.reads

        def middle(layer: int, point: str, value: Tensor, seen: Seen) -> str:
            clean, found, end = self._clean_output(layer), self._output(seen, layer), self._end(layer)
            fault = self._fault(found, _rolled(clean), clean, {point: value}, end)
            out = reads.points[f"blocks.{layer}.hook_mlp_out"]
            branch = clean + seen[out[0]] - reads.seen[out[0]] if out else clean
            if fault and self.same.visible(branch, clean) and self.same.same_change(found, branch, clean):
                return "an edit reaches the MLP, but not the residual stream"
            return fault

        self._test("hook_resid_mid", self._values("hook_resid_mid", _rolled), judge=middle)
        out = self._values("hook_mlp_out", self._random)
        self._test("hook_mlp_out", out, ("hook_resid_post", self._outputs_with_mlp_out(out)))
        post = self._values("mlp.hook_post", _rolled)
        self._test("mlp.hook_post", post, ("hook_mlp_out", self._values("hook_mlp_out", _rolled)))
        pre = self._values("mlp.hook_pre", _rolled)
        gates = [f"blocks.{layer}.mlp.hook_pre_linear" for layer in pre]
        also = {name: _rolled(reads.seen[name]) for name in gates if name in reads.seen}
        self._test("mlp.hook_pre", pre, ("mlp.hook_post", post), also=also)

    def _outputs_with_mlp_out(self, out: Values) -> Values:
        wanted, normed = {}, {}
        for layer, value in out.items():
            name = f"blocks.{layer}."
            extra = value - self.reads.value[name + "hook_mlp_out"]
            sums, end = self.reads.seen.get(name + "ln2.hook_in"), self.reads.value[name + "hook_resid_post"]
            if sums is not None and self.same.equal(self.reads.seen.get(name + "ln2.hook_out"), end):
                normed[layer] = (name + "ln2.hook_in", sums + extra)
            else:
                wanted[layer] = end + extra
        if normed:
            seen = self._run(dict(normed.values()))
            wanted |= {layer: self._output(seen, layer) for layer in normed}
        return wanted

    def _values(self, site: str, make: Callable[[Tensor], Tensor]) -> Values:
        """New values for a site, from its clean ones, in every layer that has it."""
        clean = {layer: self.reads.value.get(f"blocks.{layer}.{site}") for layer in self.layers}
        return {layer: make(value) for layer, value in clean.items() if value is not None}

    def _first(self, layer: int, site: str) -> str:
        return self.reads.points[f"blocks.{layer}.{site}"][0]

    def _run(self, edits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return run(self.reads.bridge, self.reads.tokens, {**self.fixed, **edits}, self.reads.names)[1]

    def _output(self, seen: Seen, layer: int) -> Tensor:
        return seen[self._first(layer, "hook_resid_post")]

    def _clean_output(self, layer: int) -> Tensor:
        return self.reads.value[f"blocks.{layer}.hook_resid_post"]

    def _end(self, layer: int) -> str:
        return self._first(layer, "hook_resid_post")

    def _editable(self, name: str) -> str | None:
        """The hook point where a name can be edited, so that what is seen there is what the model uses; else None."""
        cell = self.cells.get(name)
        return cell.point if cell is not None and cell.ok else None

    def _test(
        self,
        site: str,
        put: Values,
        wanted: tuple[str, Values] | None = None,
        *,
        judge: Callable[[int, str, Tensor, Seen], str] | None = None,
        also: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Set a site in every layer, at each of its hook points in turn, until the next site has what it must have.

        Args:
            site: The site to test.
            put: Values to set.
            wanted: The next site, and its values after a working edit; without `judge`.
            judge: What is wrong, from a layer, the hook point, its value and the recorded activations; empty if nothing
                is.
            also: Further activations to set, by hook point.
        """
        faults: dict[int, dict[str, str]] = {layer: {} for layer in self.layers}
        points = {layer: self.reads.points[f"blocks.{layer}.{site}"] for layer in put}
        after, values = wanted or ("", {})
        for turn in range(max(map(len, points.values()), default=0)):
            left = [i for i, one in points.items() if turn < len(one) and "" not in faults[i].values()]
            seen = self._run({**(also or {}), **{points[layer][turn]: put[layer] for layer in left}})
            for layer in left:
                point, out = points[layer][turn], self._editable(f"blocks.{layer}.{after}")
                if judge is not None:
                    fault = judge(layer, point, put[layer], seen)
                elif out is None or layer not in values:
                    fault = "it cannot be checked, as its result cannot be set"
                else:
                    fault = self._fault(seen[out], values[layer], self.reads.seen[out], {point: put[layer]}, out)
                faults[layer][point] = fault
        for layer in self.layers:
            self._record(f"blocks.{layer}.{site}", faults[layer])

    def _added(self, layer: int, point: str, written: Tensor, seen: Seen) -> str:
        """Whether an attention output is added to the residual stream."""
        name, end = f"blocks.{layer}.", self._clean_output(layer)
        if self._is_unread(self._output(seen, layer), end, {point: written}, self._end(layer)):
            return "ignored"
        total = self.reads.value[name + "hook_resid_pre"] + written
        middles = [*self.reads.points[name + "hook_resid_mid"], name + "ln1.hook_in"]
        sums = [seen[point] for point in middles if point in seen]
        if name + "hook_mlp_out" in self.reads.value:  # parallel attention and MLP
            sums.append(self._output(seen, layer) - self.reads.value[name + "hook_mlp_out"])
        if any(self.same.equal(one, total) for one in sums):
            return ""
        before, clean = self.cells[name + "hook_resid_pre"].point, self.reads.seen[point]
        moved = self._run({before: self.reads.seen[before] + written - clean, point: clean})
        same = self.same.same_change(self._output(moved, layer), self._output(seen, layer), end)
        return "" if same else "it is not added to the stream as it is"

    def _fault(self, found: Tensor, wanted: Tensor, clean: Tensor, edit: Mapping[str, Tensor], out: str | None) -> str:
        """What is wrong with an edit; empty if nothing is.

        Args:
            found: Activation at `out` after the edit.
            wanted: What a working edit gives.
            clean: Activation without an edit.
            edit: The activation that was set, by hook point.
            out: The hook point where the effect is looked for; if None, the logits.
        """
        if not self.same.visible(wanted, clean):
            if not self.same.same_change(found, wanted, clean):
                return "an edit has another effect than it must have"
            return "ignored" if self._is_unread(found, clean, edit, out) else ""
        if self.same.same_change(found, wanted, clean):
            return ""
        return "ignored" if torch.equal(found, clean) else "an edit has another effect than it must have"

    def _is_unread(self, found: Tensor, clean: Tensor, edit: Mapping[str, Tensor], out: str | None) -> bool:
        """An edit changed nothing, and not because the weights that read it are zero."""
        if not torch.equal(found, clean):
            return False
        (point,) = edit
        return not reaches(self.reads.bridge, self.reads.tokens, {**self.fixed, **edit}, point, out)

    def _record(self, name: str, faults: Mapping[str, str]) -> None:
        """Keep the hook point that passed, or else the fault of the first."""
        read = self.reads.cells[name]
        right = [point for point, fault in faults.items() if not fault]
        if right:
            self.cells[name] = Cell("works" if right[0] == name else "through", right[0], read.why)
        elif faults:
            fault = next(iter(faults.values()))
            self.cells[name] = Cell("ignored") if fault == "ignored" else Cell("misleading", why=fault)
        elif name in self.reads.seen and self._is_ignored(name):
            self.cells[name] = Cell("ignored")
        else:
            self.cells[name] = Cell(read.state, why=read.why)

    def _is_ignored(self, name: str) -> bool:
        logits, _ = run(self.reads.bridge, self.reads.tokens, {name: self._random(self.reads.seen[name])})
        return torch.equal(logits, self.reads.logits)

    def _random(self, like: Tensor) -> Tensor:
        drawn = torch.randn(like.shape, generator=self.generator).to(like)
        size = like[like.isfinite()].std().clamp_min(1e-3)
        return torch.where(like.isfinite(), like + drawn * size, like)

    def _other_scores(self, scores: Tensor) -> Tensor:
        """Random scores; masked ones stay masked."""
        drawn = torch.randn(scores.shape, generator=self.generator).to(scores)
        return torch.where(scores > torch.finfo(scores.dtype).min / 2, drawn, scores)
