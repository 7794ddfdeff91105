"""Does an edit at a hook point do what an edit of that quantity must? Each is tried, in all layers in one pass.

What enters every layer is held at its clean value, so that what a layer leaves tells of that layer's edit alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from hooks.adapters.bridge.capabilities import Cell
from hooks.adapters.bridge.reading import Trial
from hooks.adapters.bridge.sites import run

Values = dict[int, Tensor]
"""By layer."""
Seen = Mapping[str, Tensor]
ALONE = "it cannot be tried layer by layer: hook_resid_pre cannot be set"


class Edits:
    """Every edit of a trial's bridge.

    Args:
        trial: What was read.
        generator: Decides what is put where.
    """

    def __init__(self, trial: Trial, generator: torch.Generator):
        self.trial, self.generator, self.same = trial, generator, trial.same
        self.layers = range(trial.cfg.n_layers)
        self.cells: dict[str, Cell] = {}
        self.held: dict[str, Tensor] = {}
        self._ends()
        self._streams()
        streams = [[f"blocks.{i}.hook_resid_{end}" for i in self.layers] for end in ("pre", "post")]
        if not all(self.cells[name].ok for names in streams for name in names):
            self.cells = {name: self.cells.get(name, Cell("misleading", why=ALONE)) for name in trial.points}
            return
        self.held = {self.cells[name].point: trial.value[name] for name in streams[0]}
        self._attention()
        self._mlp()

    def read(self) -> dict[str, Cell]:
        """How each place is read: where it is edited, if it can be."""
        return {
            name: replace(cell, state=self.cells[name].state, point=self.cells[name].point)
            if cell.ok and name in self.cells and self.cells[name].ok
            else cell
            for name, cell in self.trial.read.items()
        }

    def _ends(self) -> None:
        """Embeddings, and what the read-out reads."""
        trial = self.trial

        def follows(point: str) -> str:
            logits, _ = run(trial.bridge, trial.tokens, {point: trial.seen[point].roll(1, 0)})
            wanted = trial.logits.roll(1, 0)
            return self._fault(logits, wanted, trial.logits)

        def adds(point: str) -> str:
            embed = trial.points["hook_embed"]
            if not embed:
                return "there is no token embedding to compare with"
            extra = self._random(trial.seen[embed[0]]) - trial.seen[embed[0]]
            logits, _ = run(trial.bridge, trial.tokens, {point: trial.seen[point] + extra})
            wanted, _ = run(trial.bridge, trial.tokens, {embed[0]: trial.seen[embed[0]] + extra})
            return self._fault(logits, wanted, trial.logits)

        for name, judge in {
            "hook_embed": follows,
            "hook_pos_embed": adds,
            "ln_final.hook_normalized": follows,
        }.items():
            faults = {}
            for point in self.trial.points[name]:
                faults[point] = judge(point)
                if not faults[point]:
                    break
            self._note(name, faults)

    def _streams(self) -> None:
        """The stream between layers: with another sequence's values, all that follows is that sequence's."""
        last = self.layers[-1]

        def rolled(layer: int, value: Tensor) -> Tensor:
            return value.roll(1 + layer % 2, 0)  # neighbouring layers get different ones

        for site in ("hook_resid_pre", "hook_resid_post"):
            points = {layer: self.trial.points[f"blocks.{layer}.{site}"] for layer in self.layers}
            edits = {one[0]: rolled(layer, self.trial.seen[one[0]]) for layer, one in points.items() if one}
            logits, seen = run(self.trial.bridge, self.trial.tokens, edits, self.trial.names)
            for layer, one in points.items():
                told = layer if site == "hook_resid_pre" else layer + 1
                follow = [f"blocks.{told}.{name}" for name in ("hook_resid_post", "attn.hook_z", "hook_resid_pre")]
                follow = [self.trial.points[name][0] for name in follow if self.trial.points.get(name)]
                pairs = [(seen[name], self.trial.seen[name]) for name in follow if name not in edits]
                pairs += [(logits, self.trial.logits)] if layer == last else []
                faults = [self._fault(found, rolled(layer, clean), clean) for found, clean in pairs]
                self._note(f"blocks.{layer}.{site}", {one[0]: next(filter(None, faults), "")} if one else {})

    def _attention(self) -> None:
        """From what attention writes backwards to queries and keys."""
        trial = self.trial
        write = self._values("hook_attn_out", self._random)
        self._attempt("hook_attn_out", write, judge=self._adds)
        z = self._values("attn.hook_z", self._random)
        written = {layer: trial.weights[layer].written(value) for layer, value in z.items()}
        self._attempt("attn.hook_z", z, self._after("hook_attn_out", written))

        def rows(pattern: Tensor) -> Tensor:
            drawn = self._random(pattern).abs()
            return drawn / drawn.sum(-1, keepdim=True)

        pattern = self._values("attn.hook_pattern", rows)
        self._attempt("attn.hook_pattern", pattern, self._mixing(pattern))
        scores = self._values("attn.hook_attn_scores", self._other_scores)
        self._attempt("attn.hook_attn_scores", scores, self._mixing({i: s.softmax(-1) for i, s in scores.items()}))
        self._queries_keys_values()

    def _mixing(self, pattern: Values) -> Values:
        """What layers leave when their heads mix by these patterns."""
        return self._after(
            "attn.hook_z", {layer: self.trial.layers[layer].mixed(one) for layer, one in pattern.items()}
        )

    def _queries_keys_values(self) -> None:
        """All three of another sequence: then so is z. Which of them is at fault shows when each is changed alone."""
        sites = ("attn.hook_q", "attn.hook_k", "attn.hook_v")
        values = {site: self._values(site, lambda one: one.roll(1, 0)) for site in sites}
        whole = [layer for layer in self.layers if all(layer in values[site] for site in sites)]
        put = {self._first(layer, site): values[site][layer] for layer in whole for site in sites}
        wanted = self._after("attn.hook_z", self._values("attn.hook_z", lambda one: one.roll(1, 0)))
        _, seen = self._run(put)
        for site in sites:
            _, alone = self._run({self._first(i, site): self._random(one) for i, one in values[site].items()})
            for layer in self.layers:
                name = f"blocks.{layer}.{site}"
                if layer not in values[site]:
                    self._note(name, {})
                    continue
                if torch.equal(self._end(alone, layer), self._clean_end(layer)):
                    fault = "ignored"
                elif layer not in whole or layer not in wanted:
                    fault = "it cannot be checked without queries, keys, values and z"
                else:
                    fault = self._fault(self._end(seen, layer), wanted[layer], self._clean_end(layer))
                self._note(name, {self._first(layer, site): fault})

    def _mlp(self) -> None:
        trial = self.trial

        def rolled(one: Tensor) -> Tensor:
            return one.roll(1, 0)

        ends = {
            layer: rolled(trial.value[f"blocks.{layer}.hook_resid_post"]) for layer in self._having("hook_resid_post")
        }

        def middle(layer: int, put: Tensor, seen: Seen) -> str:
            clean, found = self._clean_end(layer), self._end(seen, layer)
            fault = self._fault(found, ends[layer], clean)
            out = trial.points[f"blocks.{layer}.hook_mlp_out"]
            if fault and out and self._fault(found, clean + seen[out[0]] - trial.seen[out[0]], clean) == "":
                return "an edit reaches the MLP, but not the stream that goes on"
            return fault

        self._attempt("hook_resid_mid", self._values("hook_resid_mid", rolled), judge=middle)
        out = self._values("hook_mlp_out", self._random)
        self._attempt("hook_mlp_out", out, self._summed(out))
        post = self._values("mlp.hook_post", rolled)
        self._attempt("mlp.hook_post", post, self._after("hook_mlp_out", self._values("hook_mlp_out", rolled)))
        pre = self._values("mlp.hook_pre", rolled)
        gates = [f"blocks.{layer}.mlp.hook_pre_linear" for layer in pre]
        also = {name: rolled(trial.seen[name]) for name in gates if name in trial.seen}
        self._attempt("mlp.hook_pre", pre, self._after("mlp.hook_post", post), also=also)

    def _summed(self, out: Values) -> Values:
        """What layers leave when the MLP writes these."""
        wanted, normed = {}, {}
        for layer, value in out.items():
            name = f"blocks.{layer}."
            extra = value - self.trial.value[name + "hook_mlp_out"]
            sums, end = self.trial.seen.get(name + "ln2.hook_in"), self.trial.value[name + "hook_resid_post"]
            if sums is not None and self.same.equal(self.trial.seen.get(name + "ln2.hook_out"), end):
                normed[layer] = (name + "ln2.hook_in", sums + extra)
            else:
                wanted[layer] = end + extra
        if normed:
            _, seen = self._run(dict(normed.values()))
            wanted |= {layer: self._end(seen, layer) for layer in normed}
        return wanted

    def _values(self, site: str, make: Callable[[Tensor], Tensor]) -> Values:
        return {layer: make(self.trial.value[f"blocks.{layer}.{site}"]) for layer in self._having(site)}

    def _having(self, site: str) -> list[int]:
        return [layer for layer in self.layers if f"blocks.{layer}.{site}" in self.trial.value]

    def _first(self, layer: int, site: str) -> str:
        return self.trial.points[f"blocks.{layer}.{site}"][0]

    def _run(self, edits: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return run(self.trial.bridge, self.trial.tokens, {**self.held, **edits}, self.trial.names)

    def _end(self, seen: Seen, layer: int) -> Tensor:
        return seen[self._first(layer, "hook_resid_post")]

    def _clean_end(self, layer: int) -> Tensor:
        return self.trial.value[f"blocks.{layer}.hook_resid_post"]

    def _after(self, site: str, values: Values) -> Values:
        """What layers leave when a site has these values; only where setting it is known to work."""
        cells = {layer: self.cells[f"blocks.{layer}.{site}"] for layer in values}
        values = {layer: value for layer, value in values.items() if cells[layer].ok}
        _, seen = self._run({cells[layer].point: value for layer, value in values.items()})
        return {layer: self._end(seen, layer) for layer in values}

    def _attempt(
        self,
        site: str,
        put: Values,
        wanted: Values | None = None,
        *,
        judge: Callable[[int, Tensor, Seen], str] | None = None,
        also: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Put values at a site of every layer, at its hook points in turn, until layers leave what they must."""
        faults: dict[int, dict[str, str]] = {layer: {} for layer in self.layers}
        points = {layer: self.trial.points[f"blocks.{layer}.{site}"] for layer in put}
        for turn in range(max(map(len, points.values()), default=0)):
            left = [i for i, one in points.items() if turn < len(one) and "" not in faults[i].values()]
            _, seen = self._run({**(also or {}), **{points[layer][turn]: put[layer] for layer in left}})
            for layer in left:
                found, clean = self._end(seen, layer), self._clean_end(layer)
                if judge is not None:
                    fault = judge(layer, put[layer], seen)
                elif wanted is None or layer not in wanted:
                    fault = "it cannot be checked, as what it makes cannot be set"
                else:
                    fault = self._fault(found, wanted[layer], clean)
                faults[layer][points[layer][turn]] = fault
        for layer in self.layers:
            self._note(f"blocks.{layer}.{site}", faults[layer])

    def _adds(self, layer: int, written: Tensor, seen: Seen) -> str:
        """Does the stream take up what attention writes?"""
        name, end = f"blocks.{layer}.", self._clean_end(layer)
        if torch.equal(self._end(seen, layer), end):
            return "ignored"
        total = self.trial.value[name + "hook_resid_pre"] + written
        middles = [*self.trial.points[name + "hook_resid_mid"], name + "ln1.hook_in"]
        sums = [seen[point] for point in middles if point in seen]
        if name + "hook_mlp_out" in self.trial.value:  # side by side
            sums.append(self._end(seen, layer) - self.trial.value[name + "hook_mlp_out"])
        return "" if any(self.same.equal(one, total) for one in sums) else "it is not added to the stream as it is"

    def _fault(self, found: Tensor, wanted: Tensor, clean: Tensor) -> str:
        if self.same.same_change(found, wanted, clean):
            return ""
        return "ignored" if torch.equal(found, clean) else "what follows is not what it must be"

    def _note(self, name: str, faults: Mapping[str, str]) -> None:
        """Keep the hook point that acts as it must, or else what is wrong with the first."""
        read = self.trial.read[name]
        right = [point for point, fault in faults.items() if not fault]
        if right:
            self.cells[name] = Cell("works" if right[0] == name else "through", right[0], read.why)
        elif faults:
            fault = next(iter(faults.values()))
            self.cells[name] = Cell("ignored") if fault == "ignored" else Cell("misleading", why=fault)
        elif name in self.trial.seen and self._is_ignored(name):
            self.cells[name] = Cell("ignored")
        else:
            self.cells[name] = Cell(read.state, why=read.why)

    def _is_ignored(self, name: str) -> bool:
        logits, _ = run(self.trial.bridge, self.trial.tokens, {name: self._random(self.trial.seen[name])})
        return torch.equal(logits, self.trial.logits)

    def _random(self, like: Tensor) -> Tensor:
        drawn = torch.randn(like.shape, generator=self.generator).to(like)
        size = like[like.isfinite()].std().clamp_min(1e-3)
        return torch.where(like.isfinite(), like + drawn * size, like)

    def _other_scores(self, scores: Tensor) -> Tensor:
        """What is masked stays so."""
        drawn = torch.randn(scores.shape, generator=self.generator).to(scores)
        return torch.where(scores > torch.finfo(scores.dtype).min / 2, drawn, scores)
