"""What can be read and what can be edited in somebody else's model, place by place."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

State = Literal["works", "through", "ignored", "missing", "misleading"]
Use = Literal["read", "edit"]

GLOBAL_SITES = ("hook_embed", "hook_pos_embed", "ln_final.hook_normalized")
LAYER_SITES = (
    "hook_resid_pre",
    "attn.hook_q",
    "attn.hook_k",
    "attn.hook_v",
    "attn.hook_attn_scores",
    "attn.hook_pattern",
    "attn.hook_z",
    "hook_attn_out",
    "hook_resid_mid",
    "mlp.hook_pre",
    "mlp.hook_post",
    "hook_mlp_out",
    "hook_resid_post",
)
WEIGHTS = ("attn.W_Q", "attn.W_K", "attn.W_V", "attn.W_O")


@dataclass(frozen=True)
class Cell:
    """One place and one use of it."""

    state: State
    """`works`; works `through` another hook point; an edit is `ignored`; there is nothing (`missing`); or there is
    something else than the name says (`misleading`)."""
    point: str = ""
    """The model's own hook point that does the job."""
    why: str = ""
    """What is wrong, or what to know when nothing is."""

    @property
    def ok(self) -> bool:
        """True when this use of the place does what its name says."""
        return self.state in ("works", "through")

    def __str__(self) -> str:
        text = f"through {self.point}" if self.state == "through" else self.state
        return f"{text} ({self.why})" if self.why else text


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Everything that was found out about a model by trying."""

    cells: Mapping[tuple[str, Use], Cell]
    """By canonical name, such as `blocks.0.attn.hook_pattern`, and use. Weights (`blocks.0.attn.W_O`) are only read."""
    attention: Literal["causal", "bidirectional"]
    """Whether a later token changes what stands before it."""
    attn_scale: float
    """What scores are divided by."""
    attention_mask: Cell
    """Whether padding is hidden from all real tokens."""
    position_ids: Cell
    """Whether positions can be given."""
    token_type_ids: Cell = Cell("missing")
    """Whether a first text can be told from a second."""
    position_offset: int = 0
    """What the model calls the first position."""
    positions_in_layers: bool = False
    """True when attention itself looks at positions (rotary), so that going on from a layer needs them."""
    pattern_before_z: bool = True
    """True when a layer's pattern is seen before what its heads hand on."""
    d_vocab_out: int = 0
    """Logits per position."""

    def __post_init__(self):
        object.__setattr__(self, "cells", MappingProxyType(dict(self.cells)))

    def cell(self, name: str, use: Use) -> Cell:
        """What was found of one place and use.

        Raises:
            ValueError: a name that is not among those tried.
        """
        if (name, use) not in self.cells:
            raise ValueError(f"{name!r} was not tried for {use}; see capabilities.rows() for what was.")
        return self.cells[name, use]

    def lacks(self, needs: Mapping[str, tuple[Use, ...]]) -> str:
        """Why a use of some sites cannot be had, in words; empty when all can.

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
        found = [name for name, use in self.cells if use == "read" and _site(name) == site]
        return found or [site]

    def rows(self) -> list[dict[str, str]]:
        """One row per site, with what reading and editing it does; layers that are alike share one."""
        rows: list[dict[str, str]] = []
        for site in (*GLOBAL_SITES[:2], *LAYER_SITES, GLOBAL_SITES[2], *WEIGHTS):
            alike: dict[tuple[str, str], list[str]] = {}
            for name in self._names(site):
                read, edit = (self.cells.get((name, use)) for use in ("read", "edit"))
                alike.setdefault((_shown(read), _shown(edit)), []).append(name)
            rows += [
                {"site": _joined(site, names, len(alike)), "read": read, "edit": edit}
                for (read, edit), names in alike.items()
            ]
        return rows

    def __str__(self) -> str:
        rows = [{"site": "site", "read": "read", "edit": "edit"}, *self.rows()]
        wide = [max(len(row[name]) for row in rows) for name in ("site", "read")]
        lines = [f"{row['site']:<{wide[0]}}  {row['read']:<{wide[1]}}  {row['edit']}".rstrip() for row in rows]
        positions = f"attention_mask {self.attention_mask}, position_ids {self.position_ids}"
        return "\n".join([f"{self.attention} attention; {positions}", *lines])


def _site(name: str) -> str:
    return re.sub(r"^blocks\.\d+\.", "", name)


def _shown(cell: Cell | None) -> str:
    """As in any layer; nothing for a use that there is not."""
    return "" if cell is None else re.sub(r"blocks\.\d+\.", "", str(cell))


def _joined(site: str, names: list[str], n_kinds: int) -> str:
    """The site alone where all layers are alike, else with its layers."""
    if n_kinds == 1:
        return site
    layers = ", ".join(name.split(".")[1] for name in names)
    return f"{site} of {'layer' if len(names) == 1 else 'layers'} {layers}"
