"""What a bridge can do, found out on a few random tokens and remembered for as long as it lives."""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Int
from torch import Tensor

from hooks.adapters.bridge.capabilities import Capabilities, Cell
from hooks.adapters.bridge.editing import Edits
from hooks.adapters.bridge.reading import Trial, scale_of
from hooks.adapters.bridge.sites import Tolerance, run

BATCH, POS = 3, 6
STRETCH = 2
"""Positions are tried this far apart."""
_FOUND: WeakKeyDictionary[Any, tuple[Any, Capabilities]] = WeakKeyDictionary()


def capabilities_of(bridge: Any, tokens: Int[Tensor, "batch pos"] | None = None) -> Capabilities:
    """What can be read and edited in a bridge. It runs some thirty times on a few tokens, and is not changed.

    Args:
        bridge: A `TransformerBridge`.
        tokens: What to try it on: three sequences or more; random ones from a fixed seed when left out.

    Raises:
        ValueError: tokens that do not fit, or a model whose output is not logits at every position.
    """
    state = (bool(getattr(bridge, "compatibility_mode", False)), _attention_of(bridge))
    if tokens is None and bridge in _FOUND and _FOUND[bridge][0] == state:
        return _FOUND[bridge][1]
    generator = torch.Generator().manual_seed(0)
    trained = bridge.training
    bridge.eval()
    try:
        found = _find(bridge, _tokens(bridge, tokens, generator), generator)
    finally:
        bridge.train(trained)
    _FOUND[bridge] = (state, found)
    return found


def _attention_of(bridge: Any) -> Any:
    return getattr(getattr(bridge.original_model, "config", None), "_attn_implementation", None)


def _tokens(bridge: Any, given: Tensor | None, generator: torch.Generator) -> Int[Tensor, "batch pos"]:
    if given is not None:
        if given.ndim != 2 or given.shape[0] < BATCH or given.shape[1] < 4:
            raise ValueError(
                f"tokens is {tuple(given.shape)}; to try a model on, give (batch, pos) of at least ({BATCH}, 4)."
            )
        tokens = given[:BATCH].clone()
    else:
        if bridge.cfg.n_ctx < 4:
            raise ValueError(f"the model has n_ctx {bridge.cfg.n_ctx}; to be tried it must read at least 4 tokens.")
        special = getattr(getattr(bridge.original_model, "config", None), "pad_token_id", None)
        usable = torch.tensor([token for token in range(min(bridge.cfg.d_vocab, 1000)) if token != special])
        drawn = torch.randint(len(usable), (BATCH, min(POS, bridge.cfg.n_ctx)), generator=generator)
        drawn[1:, 0] = (drawn[0, 0] + torch.arange(1, BATCH)) % len(usable)  # sequences that differ from the start
        tokens = usable[drawn]
    tokens[:, 3] = tokens[:, 0]
    return tokens.to(next(iter(bridge.parameters())).device)


@torch.no_grad()
def _find(bridge: Any, tokens: Int[Tensor, "batch pos"], generator: torch.Generator) -> Capabilities:
    logits = bridge(tokens)
    if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != tokens.shape:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"the bridge's output is {found}; needed are logits (batch, pos, vocabulary), as of a language model or a "
            f"masked one. Build the bridge around such a head."
        )
    same = Tolerance(logits.dtype)
    ends = tokens.clone()
    ends[:, -1] = tokens[:, -1].roll(1)
    causal = not same.changed(bridge(ends)[:, :-1], logits[:, :-1])
    trial = Trial(bridge, tokens, causal=causal)
    edits = Edits(trial, generator)
    cells: dict[Any, Cell] = {(name, "read"): cell for name, cell in edits.read().items()}
    cells |= {(name, "edit"): cell for name, cell in edits.cells.items()}
    positions, offset = _positions(bridge, tokens, logits, same)
    return Capabilities(
        cells=cells,
        attention="causal" if causal else "bidirectional",
        attn_scale=scale_of(bridge.cfg),
        attention_mask=_mask(bridge, tokens, same),
        position_ids=positions,
        token_type_ids=_types(bridge, tokens, logits, same),
        position_offset=offset,
        positions_in_layers=positions.ok and _asked_in_layers(trial, edits, offset),
        pattern_before_z=_pattern_first(trial),
        d_vocab_out=logits.shape[-1],
    )


def _pattern_first(trial: Trial) -> bool:
    """In every layer, as they fired."""
    order = {name: index for index, name in enumerate(trial.seen)}
    for layer in range(trial.cfg.n_layers):
        z, pattern = (trial.points[f"blocks.{layer}.attn.hook_{name}"] for name in ("z", "pattern"))
        if z and pattern and order[pattern[0]] > order[z[0]]:
            return False
    return True


def _mask(bridge: Any, tokens: Tensor, same: Tolerance) -> Cell:
    """Is padding hidden, at either end?"""
    for end in (0, -1):
        mask, other = torch.ones_like(tokens), tokens.clone()
        mask[:, end], other[:, end] = 0, tokens[:, end].roll(1)
        try:
            one, two = (bridge(each, attention_mask=mask)[mask.bool()] for each in (tokens, other))
        except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
            return Cell("missing", why=f"the bridge refuses it: {str(error)[:80]}")
        if same.changed(one, two):
            return Cell("ignored", why="real tokens see padding")
    return Cell("works")


def _positions(bridge: Any, tokens: Tensor, logits: Tensor, same: Tolerance) -> tuple[Cell, int]:
    """Can positions be given, and what is the first one called?"""
    count = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    try:
        for offset in range(4):
            if not same.equal(bridge(tokens, position_ids=count + offset), logits):
                continue
            far = bridge(tokens, position_ids=STRETCH * count + offset)
            return (Cell("works") if same.changed(far, logits) else Cell("ignored")), offset
    except (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError) as error:
        return Cell("missing", why=f"the bridge refuses them: {str(error)[:80]}"), 0
    return Cell("misleading", why="positions 0, 1, 2 ... do not give what no positions give"), 0


def _types(bridge: Any, tokens: Tensor, logits: Tensor, same: Tolerance) -> Cell:
    """Does the kind of a token matter?"""
    kinds = torch.zeros_like(tokens)
    kinds[:, 1:] = 1
    try:
        other = bridge(tokens, token_type_ids=kinds)
    except (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError) as error:
        return Cell("missing", why=f"the bridge refuses them: {str(error)[:80]}")
    return Cell("works") if same.changed(other, logits) else Cell("ignored")


def _asked_in_layers(trial: Trial, edits: Edits, offset: int) -> bool:
    """Do positions matter when what enters every layer is held?"""
    count = torch.arange(trial.tokens.shape[1], device=trial.tokens.device).expand_as(trial.tokens)
    logits, _ = run(trial.bridge, trial.tokens, edits.held, position_ids=STRETCH * count + offset)
    return trial.same.changed(logits, trial.logits)
