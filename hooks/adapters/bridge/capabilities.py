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
from hooks.adapters.bridge.score_sums import score_sums_cell
from hooks.adapters.bridge.sites import GLOBAL_SITES, LAYER_SITES, WEIGHTS, Cell, Tolerance, run
from hooks.adapters.bridge.split_inputs import split_inputs_cell
from hooks.adapters.bridge.untrained import no_untrained
from hooks.adapters.bridge.weights import attention_scale, head_width
from hooks.adapters.verbs import verb_obstacles
from hooks.state import evaluation_mode

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
    layer_sums: Cell
    """Whether the output of every layer is the sum of its input, its attention output and its MLP output."""
    sums: Cell
    """Whether that is so, and the attention output of every layer is the sum of what its heads write."""
    score_sums: Cell
    """Whether that is so, and the scores of every head are sums over pairs of what was written to the stream."""
    split_inputs: Cell
    """Whether the inputs of each head's queries, keys and values, and of the MLP, can be edited alone."""
    pattern_before_z: bool
    """True when the pattern of every layer is computed before its z."""
    d_vocab_out: int
    """Logits per position."""
    no_untrained: str
    """Why no copy with random weights can be made; empty if one can."""

    def __post_init__(self):
        object.__setattr__(self, "cells", MappingProxyType(dict(self.cells)))

    def __deepcopy__(self, memo: dict) -> "Capabilities":
        return self  # nothing in it can be changed

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
        names = [name for name, use in self.cells if use == "read" and _without_layer(name) == site]
        return names or [site]

    def rows(self) -> list[dict[str, str]]:
        """One row per site with its results for reading and editing; layers with the same results share a row."""
        rows: list[dict[str, str]] = []
        for site in (*GLOBAL_SITES[:2], *LAYER_SITES, GLOBAL_SITES[2], *WEIGHTS):
            # Layers with the same results for reading and editing
            groups: dict[tuple[str, ...], list[str]] = {}
            for name in self._names(site):
                cells = [self.cells.get((name, use), "") for use in ("read", "edit")]
                results = tuple(_without_layer(str(cell)) for cell in cells)
                groups.setdefault(results, []).append(name)
            # One row for each group; the layers are named if they differ
            for (reading, editing), names in groups.items():
                layers = ""
                if len(groups) > 1:
                    plural = "" if len(names) == 1 else "s"
                    layers = f" of layer{plural} {', '.join(name.split('.')[1] for name in names)}"
                rows.append({"site": site + layers, "read": reading, "edit": editing})
        return rows

    def table(self) -> str:
        """The result for every site, as text; `rows` as a table."""
        rows = [{"site": "site", "read": "read", "edit": "edit"}, *self.rows()]
        widths = [max(len(row[name]) for row in rows) for name in ("site", "read")]
        lines = [f"{row['site']:<{widths[0]}}  {row['read']:<{widths[1]}}  {row['edit']}".rstrip() for row in rows]
        positions = f"attention_mask {self.attention_mask}, position_ids {self.position_ids}"
        return "\n".join([f"{self.attention} attention; {positions}", *lines])

    def __str__(self) -> str:
        """One line, then the reason for each verb that does not accept the model; without verbs, the table."""
        obstacles = verb_obstacles(self)
        if not obstacles:
            return self.table()
        reasons = {verb: reason for verb, reason in obstacles.items() if reason}
        n_working = len(obstacles) - len(reasons)
        if not self.attention_mask.ok:
            reasons["tasks with padding"] = f"attention_mask is {self.attention_mask}"
        summary = f"{self.attention} attention; {n_working} of {len(obstacles)} verbs accept this model"
        if reasons:
            summary += ", but not:"
        width = max(map(len, reasons), default=0)
        return "\n".join([summary, *(f"{verb:<{width}}  {reason}" for verb, reason in reasons.items())])


_CACHE: WeakKeyDictionary[Any, tuple[Any, Capabilities]] = WeakKeyDictionary()


def capabilities_of(bridge: Any, tokens: Int[Tensor, "batch pos"] | None = None) -> Capabilities:
    """Test what can be read and edited in a bridge, in about thirty passes on a few tokens. It is not changed.

    Args:
        bridge: A `TransformerBridge` or `HookedRootModule`.
        tokens: At least three sequences to test on; if None, random ones from a fixed seed.

    Raises:
        ValueError: tokens that do not fit, or a model whose output is not logits at every position.
    """
    # The results depend on two settings that can be changed later
    attention = getattr(hugging_face_config(bridge), "_attn_implementation", None)
    state = (bool(getattr(bridge, "compatibility_mode", False)), attention)
    if tokens is None and bridge in _CACHE:
        cached_state, cached = _CACHE[bridge]
        if cached_state == state:
            return cached
    generator = torch.Generator().manual_seed(0)
    with evaluation_mode(bridge):
        capabilities = _test(bridge, _test_tokens(bridge, tokens, generator), generator)
    _CACHE[bridge] = (state, capabilities)
    return capabilities


def _test_tokens(bridge: Any, tokens: Tensor | None, generator: torch.Generator) -> Int[Tensor, "batch pos"]:
    """Three sequences, each with its first token again at position 3."""
    if tokens is None:
        test_tokens = _random_tokens(bridge, generator)
    elif tokens.ndim != 2 or tokens.shape[0] < BATCH or tokens.shape[1] < 4:
        raise ValueError(f"tokens is {tuple(tokens.shape)}; give (batch, pos) of at least ({BATCH}, 4) to test on.")
    else:
        test_tokens = tokens[:BATCH].clone()
    test_tokens[:, 3] = test_tokens[:, 0]
    return test_tokens.to(next(iter(bridge.parameters())).device)


def _random_tokens(bridge: Any, generator: torch.Generator) -> Int[Tensor, "batch pos"]:
    """Random tokens but the padding token; the sequences differ from the first position on."""
    if bridge.cfg.n_ctx < 4:
        raise ValueError(f"the model has n_ctx {bridge.cfg.n_ctx}; it must be at least 4 to be tested.")
    padding = getattr(hugging_face_config(bridge), "pad_token_id", None)
    usable = torch.tensor([token for token in range(min(bridge.cfg.d_vocab, 1000)) if token != padding])
    index = torch.randint(len(usable), (BATCH, min(POS, bridge.cfg.n_ctx)), generator=generator)
    index[1:, 0] = (index[0, 0] + torch.arange(1, BATCH)) % len(usable)
    return usable[index]


@torch.no_grad()
def _test(bridge: Any, tokens: Int[Tensor, "batch pos"], generator: torch.Generator) -> Capabilities:
    logits = bridge(tokens)
    if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != tokens.shape:
        output = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"the model's output is {output}; needed are logits (batch, pos, vocabulary), as of a language model or a "
            f"masked one. Build a bridge around such a head."
        )
    _check_axes(bridge, tokens, logits)
    tolerance = Tolerance(logits.dtype)
    _check_deterministic(bridge, tokens, logits, tolerance)
    # With another last token, the earlier logits of a causal model stay the same
    other_tokens = tokens.clone()
    other_tokens[:, -1] = tokens[:, -1].roll(1)
    causal = not tolerance.changed(bridge(other_tokens)[:, :-1], logits[:, :-1])
    # Find what each hook point is, then edit it
    reads = ReadTests(bridge, tokens, causal=causal)
    edits = EditTests(reads, generator)
    cells: dict[Any, Cell] = {(name, "read"): cell for name, cell in edits.read_cells().items()}
    cells |= {(name, "edit"): cell for name, cell in edits.cells.items()}
    positions, offset = _test_positions(reads)
    return Capabilities(
        cells=cells,
        attention="causal" if reads.causal else "bidirectional",
        attn_scale=attention_scale(bridge.cfg, head_width(bridge.cfg)),
        attention_mask=_test_mask(reads),
        position_ids=positions,
        layer_sums=reads.layer_sums,
        sums=reads.sums,
        score_sums=score_sums_cell(reads, edits.fixed),
        split_inputs=split_inputs_cell(reads, edits.fixed),
        token_type_ids=_test_types(reads),
        position_offset=offset,
        positions_in_layers=positions.ok and _positions_in_layers(reads, edits, offset),
        pattern_before_z=_pattern_before_z(reads),
        d_vocab_out=logits.shape[-1],
        no_untrained=no_untrained(bridge),
    )


def _check_axes(bridge: Any, tokens: Tensor, logits: Tensor) -> None:
    """Check by a shorter pass which axis of the logits is the position, if the vocabulary is as long.

    Raises:
        ValueError: logits (batch, vocabulary, pos), or a model that does not run on another length.
    """
    pos, width = logits.shape[1:]
    if pos != width:
        return
    shapes = f"logits are {tuple(logits.shape)} for tokens {tuple(tokens.shape)}"
    try:
        shorter = bridge(tokens[:, :-1])
    except REFUSALS as error:
        raise ValueError(
            f"the model's {shapes}, and which axis is the position cannot be tested, as it does not give (batch, pos, "
            f"vocabulary) for {pos - 1} positions: {_first_line(error)}. Let it accept shorter sequences; of logits "
            f"(batch, vocabulary, pos) transpose the last two axes."
        ) from error
    if shorter.shape[1:] != (pos - 1, width):
        raise ValueError(
            f"the model's {shapes}, but {tuple(shorter.shape)} for {pos - 1} positions: the axes are not (batch, pos, "
            f"vocabulary). Transpose the last two."
        )


def _check_deterministic(bridge: Any, tokens: Tensor, logits: Tensor, tolerance: Tolerance) -> None:
    """Check that the same tokens give the same logits again; more often if a pass draws random numbers.

    Raises:
        ValueError: other logits.
    """
    state = torch.get_rng_state()
    passes = [bridge(tokens)]
    if not torch.equal(torch.get_rng_state(), state):
        # Ten more passes: a draw of two equally likely values is then noticed but once in two thousand models
        passes += [bridge(tokens) for _ in range(10)]
    if not all(tolerance.equal(repeated, logits) for repeated in passes):
        raise ValueError(
            "the model gives other logits for the same tokens in evaluation mode, so that the effect of an edit cannot "
            "be told from chance. Does it apply dropout without training=self.training?"
        )


def _pattern_before_z(reads: ReadTests) -> bool:
    """In every layer, by the order in which the hook points fired."""
    order = {name: index for index, name in enumerate(reads.activations)}
    for layer in range(reads.cfg.n_layers):
        z, pattern = reads.points[f"blocks.{layer}.attn.hook_z"], reads.points[f"blocks.{layer}.attn.hook_pattern"]
        if z and pattern and order[pattern[0]] > order[z[0]]:
            return False
    return True


def _test_mask(reads: ReadTests) -> Cell:
    """Whether padding at either end is hidden from real tokens: in logits, patterns and head outputs."""
    tokens, tolerance = reads.tokens, reads.tolerance
    pattern_points = reads.first_points("attn.hook_pattern")
    z_points = reads.first_points("attn.hook_z")
    for padded in (0, -1):
        # One position is padding, with its token or with another sequence's
        mask = torch.ones_like(tokens)
        mask[:, padded] = 0
        other_tokens = tokens.clone()
        other_tokens[:, padded] = tokens[:, padded].roll(1)
        real = mask[0].bool()
        try:
            logits, activations = run(reads.bridge, tokens, record=reads.names, attention_mask=mask)
            other_logits, other_activations = run(reads.bridge, other_tokens, record=reads.names, attention_mask=mask)
        except REFUSALS as error:
            return Cell("missing", reason=f"the model refuses it: {_first_line(error)}")
        # Real tokens must not attend to padding, and must not change with it
        attended = any(float(activations[point][:, :, real, padded].max()) > tolerance.eps for point in pattern_points)
        pairs = [(logits, other_logits)]
        pairs += [(activations[point], other_activations[point]) for point in z_points]
        changed = any(tolerance.changed(first[:, real], second[:, real]) for first, second in pairs)
        if attended or changed:
            return Cell("ignored", reason="real tokens see padding")
    return Cell("works")


def _test_positions(reads: ReadTests) -> tuple[Cell, int]:
    """Whether positions can be given, and the id of the first."""
    positions = _position_ids(reads.tokens)
    try:
        # The first position is that which gives the logits of a pass without positions
        for offset in range(4):
            logits = reads.bridge(reads.tokens, position_ids=positions + offset)
            if reads.tolerance.equal(logits, reads.logits):
                changed = reads.changed_by(position_ids=positions.roll(1, -1) + offset)
                return Cell("works" if changed else "ignored"), offset
    except REFUSALS as error:
        return Cell("missing", reason=f"the model refuses them: {_first_line(error)}"), 0
    return Cell("wrong copy", reason="positions 0, 1, 2 ... do not give the logits without positions"), 0


def _test_types(reads: ReadTests) -> Cell:
    """Whether token types have an effect."""
    type_ids = torch.zeros_like(reads.tokens)
    type_ids[:, 1:] = 1
    try:
        return Cell("works" if reads.changed_by(token_type_ids=type_ids) else "ignored")
    except REFUSALS as error:
        return Cell("missing", reason=f"the model refuses them: {_first_line(error)}")


def _positions_in_layers(reads: ReadTests, edits: EditTests, offset: int) -> bool:
    """Whether positions have an effect when the input of every layer is fixed."""
    positions = _position_ids(reads.tokens).roll(1, -1) + offset
    return reads.changed_by(edits.fixed, sites=LAYER_SITES, position_ids=positions)


def _position_ids(tokens: Tensor) -> Tensor:
    return torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)


def _first_line(error: Exception) -> str:
    return str(error)[:80] or type(error).__name__


def _without_layer(text: str) -> str:
    return re.sub(r"\bblocks\.\d+\.", "", text)
