"""Tests of what each hook point of a bridge is, by the activations recorded there in one pass."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.adapters.bridge.sites import (
    ATTENTION_INPUTS,
    CANDIDATES,
    GLOBAL_SITES,
    WEIGHTS,
    Cell,
    Tolerance,
    recorded_points,
    run,
)
from hooks.adapters.bridge.weights import HeadWeights, attention_scale, head_width, layer_part

Test = Callable[[Tensor], str]
"""What is wrong with an activation that should be a given quantity; empty if nothing is."""


class ReadTests:
    """One pass of a bridge on a few tokens, and the hook points that have the quantity of each canonical name.

    Args:
        bridge: The bridge to test, in evaluation mode.
        tokens: A few sequences; in each, the token at position 3 is the first token again.
        causal: Whether later tokens have no effect on the logits. Attribute `causal`: whether they are masked, which is
            not so if a pattern has later keys, but nothing reads its head.
    """

    def __init__(self, bridge: Any, tokens: Int[Tensor, "batch pos"], *, causal: bool):
        self.bridge, self.tokens, self.causal = bridge, tokens, causal
        self.cfg = bridge.cfg
        # The passes whose activations all tests compare
        self.names = recorded_points(bridge)
        self.logits, self.activations = run(bridge, tokens, record=self.names)
        self.tolerance = Tolerance(self.logits.dtype)
        self.activations_of_random_values = self._run_with_random_values()
        self.cells: dict[str, Cell] = {}
        self.points: dict[str, list[str]] = {}
        """All hook points that passed the test of a name, in the order of the tests."""
        self.values: dict[str, Tensor] = {}
        """The activation of each name that can be read."""
        self.weights = [HeadWeights(bridge, layer) for layer in range(self.cfg.n_layers)]
        # Embeddings and read-out, then layer by layer
        self.check("hook_embed", self._embed)
        self.check("hook_pos_embed", self._pos_embed)
        self.check("ln_final.hook_normalized", self._normalized)
        self.layers = [LayerReadTests(self, layer) for layer in range(self.cfg.n_layers)]

    def _run_with_random_values(self) -> dict[str, Tensor]:
        """Activations with random values at every position, which show any pattern, also if the model's are zero."""
        generator = torch.Generator().manual_seed(1)
        random_values = {}
        for layer in range(self.cfg.n_layers):
            for site in CANDIDATES["attn.hook_v"]:
                v = self.activations.get(f"blocks.{layer}.{site}")
                if v is not None:
                    random_values[f"blocks.{layer}.{site}"] = torch.randn(
                        v.shape, generator=generator, dtype=torch.float32
                    ).to(v)
        return run(self.bridge, self.tokens, random_values, self.names)[1]

    def first_points(self, site: str) -> list[str]:
        """The hook points that serve a site of layers."""
        points = [self.points[f"blocks.{layer}.{site}"] for layer in range(self.cfg.n_layers)]
        return [candidates[0] for candidates in points if candidates]

    @cached_property
    def layer_sums(self) -> Cell:
        """Whether the output of every layer is the sum of its input, its attention output and its MLP output."""
        for layer in range(self.cfg.n_layers):
            values = [self.values.get(f"blocks.{layer}.{site}") for site in ("hook_resid_pre", "hook_attn_out")]
            mlp_out = self.values.get(f"blocks.{layer}.hook_mlp_out")
            written = [value for value in (*values, mlp_out) if value is not None]
            total = torch.stack(written).sum(0) if written else None
            if not self.tolerance.equal(self.values.get(f"blocks.{layer}.hook_resid_post"), total):
                parts = "attention and MLP" if mlp_out is not None else "attention (no MLP output could be read)"
                reason = f"the output of layer {layer} is not the sum of its input and the outputs of its {parts}"
                return Cell("missing", reason=reason)
        return Cell("works")

    @cached_property
    def sums(self) -> Cell:
        """Whether that is so, and the attention output of every layer is the sum of what its heads write."""
        for layer in range(self.cfg.n_layers):
            z, attn_out = (self.values.get(f"blocks.{layer}.{site}") for site in ("attn.hook_z", "hook_attn_out"))
            of_heads = attn_out if z is None else self.weights[layer].output(z)
            if attn_out is not None and not self.tolerance.equal(attn_out, of_heads):
                reason = f"in layer {layer} a norm or a scale is between the heads' z W_O and what is added"
                return Cell("missing", reason=f"{reason}, which is no sum over heads")
        return self.layer_sums

    def changed_by(
        self, edits: Mapping[str, Tensor] | None = None, *, sites: Iterable[str] = CANDIDATES, **inputs: Any
    ) -> bool:
        """Whether further inputs of the bridge change logits or an activation.

        Args:
            edits: Activations to set, by hook point.
            sites: The sites whose activations are compared.
            inputs: Passed to the bridge.
        """
        logits, activations = run(self.bridge, self.tokens, edits, self.names, **inputs)
        names = [name for name in self.values if name in sites or name.split(".", 2)[-1] in sites]
        points = [self.points[name][0] for name in names]
        pairs = [(logits, self.logits)]
        pairs += [(activations[point], self.activations[point]) for point in points]
        return any(edited.shape != clean.shape or self.tolerance.changed(edited, clean) for edited, clean in pairs)

    def check(self, name: str, test: Test) -> None:
        """Test the candidate hook points of a canonical name, and record the result."""
        site = name if name in GLOBAL_SITES else name.split(".", 2)[2]
        prefix = name.removesuffix(site)
        # All candidates are tested; the first that passes serves the name
        candidates = [prefix + candidate for candidate in CANDIDATES[site]]
        faults = {point: test(self.activations[point]) for point in candidates if point in self.activations}
        self.points[name] = [point for point, fault in faults.items() if not fault]
        if self.points[name]:
            first = self.points[name][0]
            self.values[name] = self.activations[first]
            self.cells[name] = Cell("works" if first == name else "through", first)
        elif faults:
            self.cells[name] = Cell("wrong copy" if name in faults else "missing", reason=next(iter(faults.values())))
        else:
            self.cells[name] = self._missing(name)

    def _missing(self, name: str) -> Cell:
        """The result for a name none of whose candidates was recorded."""
        kernel = getattr(hugging_face_config(self.bridge), "_attn_implementation", None)
        if name.endswith("pattern") and kernel not in (None, "eager"):
            return Cell("missing", reason=f"attention is {kernel}; load the model with attn_implementation='eager'")
        if name in self.bridge.hook_dict:
            advice = getattr(self.bridge.hook_dict[name], "advice", "")
            return Cell("missing", reason=advice or "it never fires")
        return Cell("missing", reason="the model has no such place")

    def _embed(self, x: Tensor) -> str:
        if x.shape != (*self.tokens.shape, self.cfg.d_model):
            return f"its shape is {tuple(x.shape)}"
        # The token at position 3 is the first token again
        if self.tolerance.equal(x[:, 3], x[:, 0]):
            return ""
        return "it is not the token's vector alone: one token differs between positions"

    def _pos_embed(self, x: Tensor) -> str:
        if x.shape[1:] != (self.tokens.shape[1], self.cfg.d_model):
            return f"its shape is {tuple(x.shape)}"
        if not self.tolerance.equal(x, x[:1].expand_as(x)):
            return "it depends on tokens"
        return "" if self.tolerance.changed(x[:, 1], x[:, 0]) else "it is the same at all positions"

    def _normalized(self, x: Tensor) -> str:
        read_out_input = self.activations.get("unembed.hook_in")
        if read_out_input is None or self.tolerance.equal(x, read_out_input):
            return ""
        return "it is not what the read-out reads (before gain and bias?)"


def hugging_face_config(bridge: Any) -> Any:
    """The config of the Hugging Face model in a bridge; None if there is none."""
    return getattr(getattr(bridge, "original_model", None), "config", None)


class LayerReadTests:
    """The tests of one layer."""

    def __init__(self, model: ReadTests, layer: int):
        self.model, self.layer, self.tolerance = model, layer, model.tolerance
        self.prefix = f"blocks.{layer}."
        self.weights = model.weights[layer]
        self.batch, self.pos = model.tokens.shape
        self.n_heads, self.d_head = model.cfg.n_heads, head_width(model.cfg)
        self.tested_weights: set[str] = set()
        self.scores_fault = "queries, keys or pattern cannot be read"
        """Why the pattern is not the softmax of q k / scale; empty if it is."""
        self.output_point = ""
        """The hook point of z W_O + b_O, before a norm or scale of what attention adds; empty if there is none."""
        # The order matters: each test uses the results of those before it
        for site, test in {
            "hook_resid_pre": self._resid_pre,
            "hook_resid_post": self._stream,
            "attn.hook_z": self._z,
            "hook_attn_out": self._attn_out,
            "attn.hook_v": lambda x: self._projected(x, "V"),
            "attn.hook_pattern": self._pattern,
            "attn.hook_attn_scores": self._scores,
            "attn.hook_q": lambda x: self._projected(x, "Q"),
            "attn.hook_k": lambda x: self._projected(x, "K"),
            "hook_resid_mid": self._resid_mid,
            "hook_mlp_out": self._mlp_out,
            "mlp.hook_post": self._mlp_post,
            "mlp.hook_pre": self._mlp_pre,
        }.items():
            model.check(self.prefix + site, test)
        self._check_weights()
        self._note_scores()

    def activation(self, point: str) -> Tensor | None:
        return self.model.activations.get(self.prefix + point)

    def value(self, site: str) -> Tensor | None:
        return self.model.values.get(self.prefix + site)

    def _stream(self, x: Tensor) -> str:
        is_stream = x.shape == (self.batch, self.pos, self.model.cfg.d_model)
        return "" if is_stream else f"its shape is {tuple(x.shape)}"

    def _resid_pre(self, x: Tensor) -> str:
        if fault := self._stream(x):
            return fault
        before = self.model.values.get(f"blocks.{self.layer - 1}.hook_resid_post")
        if before is None or self.tolerance.equal(x, before):
            return ""
        return "it is not the previous layer's output"

    def _z(self, x: Tensor) -> str:
        if x.shape != (self.batch, self.pos, self.n_heads, self.d_head):
            return f"its shape is {tuple(x.shape)}"
        expected = self._none_if_impossible(lambda: self.weights.output(x))
        if expected is None:
            return "it cannot be checked without blocks[layer].attn.W_O (head, d_head, d_model)"
        self.tested_weights.add("W_O")
        for point in CANDIDATES["hook_attn_out"]:
            if self.tolerance.equal(self.activation(point), expected):
                self.output_point = self.prefix + point
                return ""
        return "z W_O + b_O is not the attention output"

    def _attn_out(self, x: Tensor) -> str:
        if fault := self._stream(x):
            return fault
        z = self.value("attn.hook_z")
        if z is not None and self.tolerance.equal(x, self.weights.output(z)):
            return ""
        # What is added is the attention output, also after a norm or scale of its own
        resid_pre, resid_post = self.value("hook_resid_pre"), self.value("hook_resid_post")
        mlp_outs = [self.activation(point) for point in CANDIDATES["hook_mlp_out"]]
        if resid_pre is not None and any(
            self.tolerance.equal(resid_post, resid_pre + x + mlp_out)
            for mlp_out in (torch.zeros_like(x), *mlp_outs)
            if mlp_out is not None
        ):
            return ""
        after_norm = self.tolerance.equal(x, self.activation("ln1.hook_out"))
        return "it is after the residual sum and LayerNorm" if after_norm else "it is not z W_O + b_O"

    def _projected(self, x: Tensor, name: str) -> str:
        if x.ndim != 4 or x.shape[:2] != (self.batch, self.pos) or self.n_heads % x.shape[2]:
            return f"its shape is {tuple(x.shape)}"
        # The input of the projection is known, or one of several activations
        known_input = self.activation(f"attn.{name.lower()}.hook_in")
        inputs = [known_input]
        if known_input is None:
            inputs = [self.activation(point) for point in ATTENTION_INPUTS]
        for projection_input in inputs:
            if projection_input is None:
                continue
            expected = self._none_if_impossible(lambda x=projection_input: self.weights.project(name, x))
            if self.tolerance.equal(self._per_head(x), expected):
                self.tested_weights.add(f"W_{name}")
                return ""
        # Values can also be checked by what the pattern makes of them
        pattern, z = self.activation("attn.hook_pattern"), self.value("attn.hook_z")
        if pattern is not None and pattern.shape != (self.batch, self.n_heads, self.pos, self.pos):
            pattern = None
        if known_input is None and name == "V" and z is not None and pattern is not None:
            mixed = self._none_if_impossible(lambda: self.mix_values(pattern, x))
            return "" if self.tolerance.equal(mixed, z) else "pattern @ v is not z"
        fault = f"it is not x W_{name} + b_{name}"
        if known_input is not None:
            return fault
        return f"{fault} for an x at {', '.join(ATTENTION_INPUTS[2:])} or {ATTENTION_INPUTS[0]}"

    def _pattern(self, x: Tensor) -> str:
        if x.shape != (self.batch, self.n_heads, self.pos, self.pos):
            return f"its shape is {tuple(x.shape)}"
        if (x < 0).any() or not self.tolerance.equal(x.sum(-1), torch.ones_like(x[..., 0])):
            return "its rows do not sum to one"
        z, v = self.value("attn.hook_z"), self.value("attn.hook_v")
        if z is None or v is None:
            return "it cannot be checked without z and v"
        if not self.tolerance.equal(self.mix_values(x, v), z):
            return "pattern @ v is not z"
        # A causal model may yet have a head that sees later keys, if nothing reads it
        if self.model.causal and x.triu(1).any():
            if not self._mixes_random_values():
                return "it attends to later keys, which the logits do not depend on"
            self.model.causal = False
        return ""

    def _mixes_random_values(self) -> bool:
        """Whether pattern @ v is z with random values in place of the model's."""
        points = [self.model.points[f"{self.prefix}attn.hook_{name}"][0] for name in ("v", "z")]
        pattern = self.model.activations_of_random_values.get(self.prefix + "attn.hook_pattern")
        v, z = map(self.model.activations_of_random_values.get, points)
        return pattern is not None and v is not None and self.tolerance.equal(self.mix_values(pattern, v), z)

    def _scores(self, x: Tensor) -> str:
        pattern = self.value("attn.hook_pattern")
        if pattern is None:
            return "it cannot be checked without a pattern"
        if x.shape == pattern.shape and self.tolerance.equal(x.softmax(-1), pattern):
            return ""
        return "it is a copy of the pattern" if self.tolerance.equal(x, pattern) else "its softmax is not the pattern"

    def _resid_mid(self, x: Tensor) -> str:
        resid_pre, attn_out = self.value("hook_resid_pre"), self.value("hook_attn_out")
        if resid_pre is None or attn_out is None:
            return "it cannot be checked without resid_pre and the attention output"
        # The sum of stream and attention output, or that sum after a LayerNorm
        total = resid_pre + attn_out
        norm_output = self.activation("ln1.hook_out")
        is_normed = self.tolerance.equal(self.activation("ln1.hook_in"), total)
        if self.tolerance.equal(x, total) or (is_normed and self.tolerance.equal(x, norm_output)):
            return ""
        # What else it may be, by the outputs of the MLP
        middle = norm_output if is_normed else total
        output = self.value("hook_resid_post")
        for point in CANDIDATES["hook_mlp_out"]:
            mlp_out = self.activation(point)
            if mlp_out is None:
                continue
            if self.tolerance.equal(output, total + mlp_out):
                return "attention and MLP are parallel"
            if middle is not None and self.tolerance.equal(x, middle + mlp_out):
                return "it already includes the MLP output"
        return "it is not the stream between attention and MLP"

    def _mlp_out(self, x: Tensor) -> str:
        if fault := self._stream(x):
            return fault
        # What the layer's output, or the input of its last LayerNorm, must be
        resid_pre = self.value("hook_resid_pre")
        resid_mid = self.value("hook_resid_mid")
        attn_out = self.value("hook_attn_out")
        sums = []
        if resid_mid is not None:
            sums.append(resid_mid + x)
        if resid_pre is not None and attn_out is not None:
            sums.append(resid_pre + attn_out + x)
        outputs = [self.value("hook_resid_post"), self.activation("ln2.hook_in")]
        if any(self.tolerance.equal(output, total) for output in outputs for total in sums):
            return ""
        return "it does not add to the stream"

    def _mlp_post(self, x: Tensor) -> str:
        mlp = layer_part(self.model.bridge, self.layer, "mlp")
        out = self.value("hook_mlp_out")
        weight, bias = getattr(mlp, "W_out", None), getattr(mlp, "b_out", None)
        if weight is None or out is None or x.shape[-1] != len(weight):
            return "it cannot be checked against the MLP output"
        expected = x @ weight if bias is None else x @ weight + bias
        return "" if self.tolerance.equal(expected, out) else "it is not the input of the MLP's last matrix"

    def _mlp_pre(self, x: Tensor) -> str:
        post = self.value("mlp.hook_post")
        if post is None or x.shape != post.shape:
            return "it cannot be checked against the activation after the non-linearity"
        return "it is after the non-linearity" if x.any() and self.tolerance.equal(x, post) else ""

    def _check_weights(self) -> None:
        """A matrix is right if the activation that it was tested with is."""
        for name, point in zip(WEIGHTS, ("hook_q", "hook_k", "hook_v", "hook_z"), strict=True):
            is_tested = name.removeprefix("attn.") in self.tested_weights
            is_right = is_tested and self.model.cells[f"{self.prefix}attn.{point}"].ok
            cell = Cell("works") if is_right else Cell("wrong copy", reason=f"{point} could not be tested with it")
            self.model.cells[self.prefix + name] = cell

    def _note_scores(self) -> None:
        """Note at queries and keys if their products, divided by the config's scale, do not give the pattern."""
        q, k, pattern = (self.value(f"attn.hook_{name}") for name in ("q", "k", "pattern"))
        if q is None or k is None or pattern is None:
            return
        scores = self._unrotated_scores(q, k)
        if self.tolerance.equal(scores.softmax(-1), pattern):
            self.scores_fault = ""
            return
        # The layer may have a scale of its own, as with inverse scaling; else positions or a bias enter later
        note = "before positions enter"
        if getattr(self.model.cfg, "positional_embedding_type", "rotary") != "rotary":
            note = "its products alone do not give the pattern"
        factor = _common_factor(scores, pattern)
        if self.tolerance.equal((scores * factor).softmax(-1), pattern):
            note = f"scores are q k / {attention_scale(self.model.cfg, self.d_head) / factor:.4g}"
        self.scores_fault = f"the pattern is not the softmax of hook_q hook_k / scale: {note}"
        for name in ("attn.hook_q", "attn.hook_k"):
            cell = self.model.cells[self.prefix + name]
            self.model.cells[self.prefix + name] = Cell(cell.state, cell.point, note)

    def _unrotated_scores(self, q: Tensor, k: Tensor) -> Float[Tensor, "batch head query key"]:
        """Scores q k / scale, with later keys masked in a causal model."""
        scale = attention_scale(self.model.cfg, self.d_head)
        scores = self._per_head(q).transpose(1, 2) @ self._per_head(k).permute(0, 2, 3, 1) / scale
        later = torch.ones(self.pos, self.pos, dtype=torch.bool, device=q.device).triu(1)
        return scores.masked_fill(later, -torch.inf) if self.model.causal else scores

    def mix_values(
        self, pattern: Float[Tensor, "batch head query key"], v: Float[Tensor, "batch pos some_heads d_head"]
    ) -> Float[Tensor, "batch query head d_head"]:
        """pattern @ v, in the dtype of v."""
        return (pattern.to(v.dtype) @ self._per_head(v).transpose(1, 2)).transpose(1, 2)

    def _per_head(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.n_heads // x.shape[2], 2)

    def _none_if_impossible(self, make: Callable[[], Tensor]) -> Tensor | None:
        """The tensor, or None if weights are missing or do not fit."""
        try:
            return make()
        except (ValueError, RuntimeError, AttributeError):
            return None


def _common_factor(
    scores: Float[Tensor, "batch head query key"], pattern: Float[Tensor, "batch head query key"]
) -> float:
    """The factor of the scores with which their softmax comes nearest to a pattern, by least squares of logarithms."""
    visible = pattern > 0
    kept_scores = scores.masked_fill(~visible, 0.0)
    logs = pattern.clamp_min(torch.finfo(pattern.dtype).tiny).log().masked_fill(~visible, 0.0)
    # Differences from the mean of each row, in which the normalisation of softmax cancels
    n_visible = visible.sum(-1, keepdim=True)
    x = (kept_scores - kept_scores.sum(-1, keepdim=True) / n_visible) * visible
    y = (logs - logs.sum(-1, keepdim=True) / n_visible) * visible
    return float((x * y).sum() / x.square().sum().clamp_min(1e-12))
