"""What can be read and edited in a bridge: tested on a few random tokens, and cached as long as the bridge exists."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Int
from torch import Tensor

from hooks.adapters.bridge.editing import EditTests
from hooks.adapters.bridge.reading import ReadTests, hugging_face_config
from hooks.adapters.bridge.sites import GLOBAL_SITES, LAYER_SITES, WEIGHTS, Cell, Tolerance, run
from hooks.adapters.bridge.weights import attention_scale, head_width

Use = Literal["read", "edit"]

BATCH, POS = 3, 6
REFUSALS = (TypeError, ValueError, RuntimeError, LookupError, AssertionError)
"""Errors of a bridge that does not accept an input."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What can be read and edited in a bridge."""

    cells: Mapping[tuple[str, Use], Cell]
    """By canonical name, such as `blocks.0.attn.hook_pattern`, and use. Weights (`blocks.0.attn.W_O`) are read only."""
    attention: Literal["causal", "bidirectional"]
    """`causal` if no token changes the logits at earlier positions."""
    attn_scale: float
    """Divisor of the attention scores."""
    attention_mask: Cell
    """Whether padding is hidden from all real tokens."""
    position_ids: Cell
    """Whether positions can be given."""
    token_type_ids: Cell
    """Whether token types (first or second text) can be given."""
    position_offset: int
    """The model's id of the first position."""
    positions_in_layers: bool
    """True when attention itself uses positions (rotary), so that resuming from a layer needs them."""
    pattern_before_z: bool
    """True when the pattern of every layer is computed before its z."""
    d_vocab_out: int
    """Logits per position."""

    def __post_init__(self):
        object.__setattr__(self, "cells", MappingProxyType(dict(self.cells)))

    def cell(self, name: str, use: Use) -> Cell:
        """The result for one name and use.

        Raises:
            ValueError: a name that was not tested.
        """
        if (name, use) not in self.cells:
            raise ValueError(f"{name!r} was not tested for {use}; see capabilities.rows() for what was.")
        return self.cells[name, use]

    def lacks(self, needs: Mapping[str, tuple[Use, ...]]) -> str:
        """The first need that is not met, in words; empty if all are.

        Args:
            needs: Uses by site; a site of layers (`attn.hook_z`) means all of them.
        """
        for site, uses in needs.items():
            for use in uses:
                for name in self._names(site):
                    cell = self.cells.get((name, use), Cell("missing"))
                    if not cell.ok:
                        return f"it has to {use} {name}, which is {cell}"
        return ""

    def _names(self, site: str) -> list[str]:
        found = [name for name, use in self.cells if use == "read" and _without_layer(name) == site]
        return found or [site]

    def rows(self) -> list[dict[str, str]]:
        """One row per site with its results for reading and editing; layers with the same results share a row."""
        rows: list[dict[str, str]] = []
        for site in (*GLOBAL_SITES[:2], *LAYER_SITES, GLOBAL_SITES[2], *WEIGHTS):
            groups: dict[tuple[str, ...], list[str]] = {}
            for name in self._names(site):
                cells = (self.cells.get((name, "read"), ""), self.cells.get((name, "edit"), ""))
                groups.setdefault(tuple(_without_layer(str(cell)) for cell in cells), []).append(name)
            for (read, edit), names in groups.items():
                layers = ", ".join(name.split(".")[1] for name in names) if len(groups) > 1 else ""
                of_layers = f" of {'layer' if len(names) == 1 else 'layers'} {layers}" if layers else ""
                rows.append({"site": site + of_layers, "read": read, "edit": edit})
        return rows

    def __str__(self) -> str:
        rows = [{"site": "site", "read": "read", "edit": "edit"}, *self.rows()]
        wide = [max(len(row[name]) for row in rows) for name in ("site", "read")]
        lines = [f"{row['site']:<{wide[0]}}  {row['read']:<{wide[1]}}  {row['edit']}".rstrip() for row in rows]
        positions = f"attention_mask {self.attention_mask}, position_ids {self.position_ids}"
        return "\n".join([f"{self.attention} attention; {positions}", *lines])


_CACHE: WeakKeyDictionary[Any, tuple[Any, Capabilities]] = WeakKeyDictionary()


def capabilities_of(bridge: Any, tokens: Int[Tensor, "batch pos"] | None = None) -> Capabilities:
    """Test what can be read and edited in a bridge, in about thirty passes on a few tokens. It is not changed.

    Args:
        bridge: A `TransformerBridge` or `HookedRootModule`.
        tokens: At least three sequences to test on; if None, random ones from a fixed seed.

    Raises:
        ValueError: tokens that do not fit, or a model whose output is not logits at every position.
    """
    attention = getattr(hugging_face_config(bridge), "_attn_implementation", None)
    state = (bool(getattr(bridge, "compatibility_mode", False)), attention)
    if tokens is None and bridge in _CACHE and _CACHE[bridge][0] == state:
        return _CACHE[bridge][1]
    generator = torch.Generator().manual_seed(0)
    training = bridge.training
    bridge.eval()
    try:
        found = _test(bridge, _tokens(bridge, tokens, generator), generator)
    finally:
        bridge.train(training)
    _CACHE[bridge] = (state, found)
    return found


def _tokens(bridge: Any, given: Tensor | None, generator: torch.Generator) -> Int[Tensor, "batch pos"]:
    """Three sequences, each with its first token again at position 3."""
    if given is not None:
        if given.ndim != 2 or given.shape[0] < BATCH or given.shape[1] < 4:
            raise ValueError(f"tokens is {tuple(given.shape)}; give (batch, pos) of at least ({BATCH}, 4) to test on.")
        tokens = given[:BATCH].clone()
    else:
        if bridge.cfg.n_ctx < 4:
            raise ValueError(f"the model has n_ctx {bridge.cfg.n_ctx}; it must be at least 4 to be tested.")
        special = getattr(hugging_face_config(bridge), "pad_token_id", None)
        usable = torch.tensor([token for token in range(min(bridge.cfg.d_vocab, 1000)) if token != special])
        drawn = torch.randint(len(usable), (BATCH, min(POS, bridge.cfg.n_ctx)), generator=generator)
        drawn[1:, 0] = (drawn[0, 0] + torch.arange(1, BATCH)) % len(usable)  # sequences that differ from the start
        tokens = usable[drawn]
    tokens[:, 3] = tokens[:, 0]
    return tokens.to(next(iter(bridge.parameters())).device)


@torch.no_grad()
def _test(bridge: Any, tokens: Int[Tensor, "batch pos"], generator: torch.Generator) -> Capabilities:
    logits = bridge(tokens)
    if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != tokens.shape:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"the model's output is {found}; needed are logits (batch, pos, vocabulary), as of a language model or a "
            f"masked one. Build a bridge around such a head."
        )
    same = Tolerance(logits.dtype)
    ends = tokens.clone()
    ends[:, -1] = tokens[:, -1].roll(1)
    causal = not same.changed(bridge(ends)[:, :-1], logits[:, :-1])
    reads = ReadTests(bridge, tokens, causal=causal)
    edits = EditTests(reads, generator)
    cells: dict[Any, Cell] = {(name, "read"): cell for name, cell in edits.read_cells().items()}
    cells |= {(name, "edit"): cell for name, cell in edits.cells.items()}
    positions, offset = _positions(reads)
    return Capabilities(
        cells=cells,
        attention="causal" if reads.causal else "bidirectional",
        attn_scale=attention_scale(bridge.cfg, head_width(bridge.cfg)),
        attention_mask=_mask(reads),
        position_ids=positions,
        token_type_ids=_types(reads),
        position_offset=offset,
        positions_in_layers=positions.ok and _positions_in_layers(reads, edits, offset),
        pattern_before_z=_pattern_before_z(reads),
        d_vocab_out=logits.shape[-1],
    )


def _pattern_before_z(reads: ReadTests) -> bool:
    """In every layer, by the order in which the hook points fired."""
    order = {name: index for index, name in enumerate(reads.seen)}
    for layer in range(reads.cfg.n_layers):
        z, pattern = (reads.points[f"blocks.{layer}.attn.hook_{name}"] for name in ("z", "pattern"))
        if z and pattern and order[pattern[0]] > order[z[0]]:
            return False
    return True


def _mask(reads: ReadTests) -> Cell:
    """Whether padding at either end is hidden from real tokens: in logits, patterns and head outputs."""
    tokens, same = reads.tokens, reads.same
    patterns, outputs = (reads.firsts(f"attn.hook_{name}") for name in ("pattern", "z"))
    for end in (0, -1):
        mask, other = torch.ones_like(tokens), tokens.clone()
        mask[:, end], other[:, end] = 0, tokens[:, end].roll(1)
        real = mask[0].bool()
        try:
            one, two = (run(reads.bridge, each, record=reads.names, attention_mask=mask) for each in (tokens, other))
        except REFUSALS as error:
            return Cell("missing", why=f"the model refuses it: {_first_line(error)}")
        pairs = [(one[0], two[0]), *((one[1][point], two[1][point]) for point in outputs)]
        seen = any(float(one[1][point][:, :, real, end].max()) > same.eps for point in patterns)
        if seen or any(same.changed(a[:, real], b[:, real]) for a, b in pairs):
            return Cell("ignored", why="real tokens see padding")
    return Cell("works")


def _positions(reads: ReadTests) -> tuple[Cell, int]:
    """Whether positions can be given, and the id of the first."""
    count = _count(reads.tokens)
    try:
        for offset in range(4):
            if reads.same.equal(reads.bridge(reads.tokens, position_ids=count + offset), reads.logits):
                changed = reads.changed_by(position_ids=count.roll(1, -1) + offset)
                return Cell("works" if changed else "ignored"), offset
    except REFUSALS as error:
        return Cell("missing", why=f"the model refuses them: {_first_line(error)}"), 0
    return Cell("misleading", why="positions 0, 1, 2 ... do not give the logits without positions"), 0


def _types(reads: ReadTests) -> Cell:
    """Whether token types have an effect."""
    kinds = torch.zeros_like(reads.tokens)
    kinds[:, 1:] = 1
    try:
        return Cell("works" if reads.changed_by(token_type_ids=kinds) else "ignored")
    except REFUSALS as error:
        return Cell("missing", why=f"the model refuses them: {_first_line(error)}")


def _positions_in_layers(reads: ReadTests, edits: EditTests, offset: int) -> bool:
    """Whether positions have an effect when the input of every layer is fixed."""
    positions = _count(reads.tokens).roll(1, -1) + offset
    return reads.changed_by(edits.fixed, sites=LAYER_SITES, position_ids=positions)


def _count(tokens: Tensor) -> Tensor:
    return torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)


def _first_line(error: Exception) -> str:
    return str(error)[:80] or type(error).__name__


def _without_layer(text: str) -> str:
    return re.sub(r"\bblocks\.\d+\.", "", text)
