"""What is each hook point of a bridge, by the values that stand there in one pass?"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.adapters.bridge.capabilities import GLOBAL_SITES, WEIGHTS, Cell
from hooks.adapters.bridge.sites import CANDIDATES, Tolerance, run, watched
from hooks.adapters.bridge.weights import HeadWeights

Meaning = Callable[[Tensor], str]
"""What is wrong with a value that should be some quantity; empty when it is that."""


class Trial:
    """One pass of a bridge on a few tokens, and what each hook point turned out to be.

    Args:
        bridge: What to try, in evaluation mode.
        tokens: A few sequences; in each, the first token stands once more at position 3.
        causal: Whether its queries are kept from later keys.
    """

    def __init__(self, bridge: Any, tokens: Int[Tensor, "batch pos"], *, causal: bool):
        self.bridge, self.tokens, self.causal = bridge, tokens, causal
        self.cfg, self.names = bridge.cfg, watched(bridge)
        self.logits, self.seen = run(bridge, tokens, watch=self.names)
        self.same = Tolerance(self.logits.dtype)
        self.read: dict[str, Cell] = {}
        self.points: dict[str, list[str]] = {}
        """All hook points that turned out to be the quantity of that name, in the order they were tried."""
        self.value: dict[str, Tensor] = {}
        self.weights = [HeadWeights(bridge, layer) for layer in range(self.cfg.n_layers)]
        for site in GLOBAL_SITES:
            self.pick(site, getattr(self, f"_is_{site.split('.')[-1].removeprefix('hook_')}"))
        self.layers = [LayerTrial(self, layer) for layer in range(self.cfg.n_layers)]
        for layer in self.layers:
            layer.read()

    def get(self, name: str) -> Tensor | None:
        """What was seen at a hook point of the bridge."""
        return self.seen.get(name)

    def pick(self, name: str, meaning: Meaning) -> Tensor | None:
        prefix = ".".join(name.split(".")[:2]) + "." if name.startswith("blocks.") else ""
        tried = [prefix + one for one in CANDIDATES[name.removeprefix(prefix)]]
        faults = {one: meaning(self.seen[one]) for one in tried if one in self.seen}
        right = [one for one, fault in faults.items() if not fault]
        self.points[name] = right
        if right:
            self.value[name] = self.seen[right[0]]
            self.read[name] = Cell("works" if right[0] == name else "through", right[0])
            return self.value[name]
        fault = next(iter(faults.values()), "")
        if name in faults:
            self.read[name] = Cell("misleading", why=fault)
        else:
            self.read[name] = Cell("missing", why=fault) if fault else self._missing(name)
        return None

    def _missing(self, name: str) -> Cell:
        hf = getattr(getattr(self.bridge.original_model, "config", None), "_attn_implementation", None)
        if name.endswith("pattern") and hf not in (None, "eager"):
            return Cell("missing", why=f"attention is {hf}; load the model with attn_implementation='eager'")
        return Cell("missing", why="it never fires" if name in self.bridge.hook_dict else "the model has no such place")

    def _is_embed(self, x: Tensor) -> str:
        if x.shape != (*self.tokens.shape, self.cfg.d_model):
            return f"its shape is {tuple(x.shape)}"
        alike = self.same.equal(x[:, 3], x[:, 0])
        return "" if alike else "it is not the token's vector alone: one token differs between positions"

    def _is_pos_embed(self, x: Tensor) -> str:
        if x.shape[1:] != (self.tokens.shape[1], self.cfg.d_model):
            return f"its shape is {tuple(x.shape)}"
        if not self.same.equal(x, x[:1].expand_as(x)):
            return "it depends on tokens"
        return "" if self.same.changed(x[:, 1], x[:, 0]) else "it is the same at all positions"

    def _is_normalized(self, x: Tensor) -> str:
        into = self.get("unembed.hook_in")
        if into is None or self.same.equal(x, into):
            return ""
        return "it is not what the read-out reads (before gain and bias?)"


class LayerTrial:
    """What stands where in one layer."""

    def __init__(self, trial: Trial, layer: int):
        self.trial, self.layer, self.same = trial, layer, trial.same
        self.at = f"blocks.{layer}."
        self.weights = trial.weights[layer]
        self.batch, self.pos = trial.tokens.shape
        self.n_heads, self.d_head = trial.cfg.n_heads, trial.cfg.d_head

    def seen(self, site: str) -> Tensor | None:
        return self.trial.get(self.at + site)

    def value(self, site: str) -> Tensor | None:
        return self.trial.value.get(self.at + site)

    def read(self) -> None:
        """Every site, those that others are told by first."""
        for site, meaning in {
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
            self.trial.pick(self.at + site, meaning)
        self._weights()
        self._note_positions()

    def _stream(self, x: Tensor) -> str:
        wanted = (self.batch, self.pos, self.trial.cfg.d_model)
        return "" if x.shape == wanted else f"its shape is {tuple(x.shape)}"

    def _resid_pre(self, x: Tensor) -> str:
        if fault := self._stream(x):
            return fault
        before = self.trial.value.get(f"blocks.{self.layer - 1}.hook_resid_post")
        return "" if before is None or self.same.equal(x, before) else "it is not what the layer before leaves"

    def _z(self, x: Tensor) -> str:
        if x.shape != (self.batch, self.pos, self.n_heads, self.d_head):
            return f"its shape is {tuple(x.shape)}"
        written = self._try(lambda: self.weights.written(x))
        outs = [self.seen(site) for site in CANDIDATES["hook_attn_out"]]
        return "" if any(self.same.equal(out, written) for out in outs) else "z W_O + b_O is not what attention writes"

    def _attn_out(self, x: Tensor) -> str:
        if fault := self._stream(x):
            return fault
        z = self.value("attn.hook_z")
        if z is not None and self.same.equal(x, self.weights.written(z)):
            return ""
        after = self.same.equal(x, self.seen("ln1.hook_out"))
        return "it stands after the residual sum and LayerNorm" if after else "it is not z W_O + b_O"

    def _projected(self, x: Tensor, name: str) -> str:
        if x.ndim != 4 or x.shape[:2] != (self.batch, self.pos) or self.n_heads % x.shape[2]:
            return f"its shape is {tuple(x.shape)}"
        into = self.seen(f"attn.{name.lower()}.hook_in")
        if into is None:
            return "what it is made of cannot be seen"
        made = self._try(lambda: self.weights.read_in(name, into))
        return "" if self.same.equal(self._each_head(x), made) else f"it is not x W_{name} + b_{name}"

    def _pattern(self, x: Tensor) -> str:
        if x.shape != (self.batch, self.n_heads, self.pos, self.pos):
            return f"its shape is {tuple(x.shape)}"
        if (x < 0).any() or not self.same.equal(x.sum(-1), torch.ones_like(x[..., 0])):
            return "its rows do not sum to one"
        if self.trial.causal and x.triu(1).any():
            return "it looks at later keys, which the logits do not depend on"
        z, v = self.value("attn.hook_z"), self.value("attn.hook_v")
        if z is None or v is None:
            return "it cannot be checked without z and v"
        return "" if self.same.equal(self.mixed(x), z) else "pattern @ v is not z"

    def _scores(self, x: Tensor) -> str:
        pattern = self.value("attn.hook_pattern")
        if pattern is None:
            return "it cannot be checked without a pattern"
        if x.shape == pattern.shape and self.same.equal(x.softmax(-1), pattern):
            return ""
        return "it is a copy of the pattern" if self.same.equal(x, pattern) else "its softmax is not the pattern"

    def _resid_mid(self, x: Tensor) -> str:
        before, written = self.value("hook_resid_pre"), self.value("hook_attn_out")
        if before is None or written is None:
            return "it cannot be checked without resid_pre and the attention write"
        normed = self.same.equal(self.seen("ln1.hook_in"), before + written)
        if self.same.equal(x, before + written) or (normed and self.same.equal(x, self.seen("ln1.hook_out"))):
            return ""
        after, end = self.seen("ln1.hook_out") if normed else before + written, self.value("hook_resid_post")
        for out in (self.seen(site) for site in CANDIDATES["hook_mlp_out"]):
            if out is not None and self.same.equal(end, before + written + out):
                return "attention and MLP write side by side"
            if out is not None and after is not None and self.same.equal(x, after + out):
                return "it already holds what the MLP writes"
        return "it is not the stream between attention and MLP"

    def _mlp_out(self, x: Tensor) -> str:
        if fault := self._stream(x):
            return fault
        before, middle, written = (self.value(f"hook_{name}") for name in ("resid_pre", "resid_mid", "attn_out"))
        after = self.value("hook_resid_post")
        sums = [] if middle is None else [middle + x]
        sums += [] if before is None or written is None else [before + written + x]
        ends = [after, self.seen("ln2.hook_in")]
        return "" if any(self.same.equal(end, one) for end in ends for one in sums) else "it does not add to the stream"

    def _mlp_post(self, x: Tensor) -> str:
        mlp, out = getattr(self.trial.bridge.blocks[self.layer], "mlp", None), self.value("hook_mlp_out")
        weight, bias = getattr(mlp, "W_out", None), getattr(mlp, "b_out", None)
        if weight is None or out is None or x.shape[-1] != len(weight):
            return "it cannot be checked against what the MLP writes"
        written = x @ weight if bias is None else x @ weight + bias
        return "" if self.same.equal(written, out) else "it is not what the MLP's last matrix reads"

    def _mlp_pre(self, x: Tensor) -> str:
        post = self.value("mlp.hook_post")
        if post is None or x.shape != post.shape:
            return "it cannot be checked against what follows the non-linearity"
        return "it already went through the non-linearity" if self.same.equal(x, post) else ""

    def _weights(self) -> None:
        of = {
            "attn.W_Q": "attn.hook_q",
            "attn.W_K": "attn.hook_k",
            "attn.W_V": "attn.hook_v",
            "attn.W_O": "attn.hook_z",
        }
        for name in WEIGHTS:
            right = self.trial.read[self.at + of[name]].ok
            fault = f"{of[name].split('.')[1]} could not be told by it"
            self.trial.read[self.at + name] = Cell("works") if right else Cell("misleading", why=fault)

    def _note_positions(self) -> None:
        """Say of queries and keys that they alone do not make the scores, where that is so."""
        q, k, pattern = (self.value(f"attn.hook_{name}") for name in ("q", "k", "pattern"))
        if q is None or k is None or pattern is None:
            return
        if not self.same.equal(self.products(q, k).softmax(-1), pattern):
            for name in ("attn.hook_q", "attn.hook_k"):
                cell = self.trial.read[self.at + name]
                self.trial.read[self.at + name] = Cell(cell.state, cell.point, "before positions enter")

    def products(self, q: Tensor, k: Tensor) -> Float[Tensor, "batch head query key"]:
        """q k / scale, with later keys hidden where they are."""
        scores = self._each_head(q).transpose(1, 2) @ self._each_head(k).permute(0, 2, 3, 1) / scale_of(self.trial.cfg)
        later = torch.ones(self.pos, self.pos, dtype=torch.bool, device=q.device).triu(1)
        return scores.masked_fill(later, -torch.inf) if self.trial.causal else scores

    def mixed(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch query head d_head"]:
        """pattern @ v."""
        v = self.value("attn.hook_v")
        assert v is not None
        return (pattern @ self._each_head(v).transpose(1, 2)).transpose(1, 2)

    def _each_head(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.n_heads // x.shape[2], 2)

    def _try(self, make: Callable[[], Tensor]) -> Tensor | None:
        """None where weights are missing or do not fit."""
        try:
            return make()
        except (ValueError, RuntimeError, AttributeError):
            return None


def scale_of(cfg: Any) -> float:
    """What scores are divided by. TransformerLens writes -1 for sqrt(d_head), and has a switch."""
    if not getattr(cfg, "use_attn_scale", True):
        return 1.0
    return float(cfg.attn_scale) if cfg.attn_scale > 0 else float(cfg.d_head**0.5)
