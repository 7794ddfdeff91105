"""Names of the parts of a model and of their inputs: `embedding`, `0.1`, `0 MLP`, `layer 0`, `1.0 q`, `read-out`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hooks.checks import shown
from hooks.interventions.edge_engine import LETTERS, edge_name

PartKind = Literal["embedding", "head", "query", "key", "value", "MLP", "layer", "read-out"]
SENDERS: tuple[PartKind, ...] = ("embedding", "head", "MLP", "layer")
RECEIVERS: tuple[PartKind, ...] = ("query", "key", "value", "MLP", "layer", "read-out")
NUMBER = "0|[1-9][0-9]{0,8}"
_OF_LAYER = rf"(?P<layer>{NUMBER})(?: MLP|\.(?P<head>{NUMBER})(?: (?P<letter>[qkv]))?)"
_NAME = re.compile(rf"{_OF_LAYER}|layer (?P<whole>{NUMBER})")
_INPUTS: dict[str, Any] = {letter: kind for kind, letter in LETTERS.items()}


@dataclass(frozen=True)
class Part:
    """A part that writes to the residual stream, or an input that reads it.

    >>> named_part("1.0 q")
    Part(kind='query', layer=1, head=0)
    """

    kind: PartKind
    layer: int | None = None
    """Its layer; None for the embedding and the read-out."""
    head: int | None = None

    @property
    def step(self) -> float:
        """When it reads or writes: a part reaches the inputs of later steps."""
        if self.layer is None:
            return -1.0 if self.kind == "embedding" else float("inf")
        return 3.0 * self.layer + {"head": 1, "MLP": 2}.get(self.kind, 0)


def named_part(name: str, shape: Sequence[int] | None = None) -> Part:
    """The part with a name.

    Args:
        name: The name.
        shape: Number of layers and of heads per layer of the model; if None, any layer and head may be.

    Raises:
        ValueError: no name of a part, or one that the model does not have.
    """
    if name in ("embedding", "read-out"):
        return Part("embedding" if name == "embedding" else "read-out")
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{shown(name)} is no part of a model; parts are embedding, 0.1, 0 MLP, 1.0 q and read-out.")
    if match["whole"]:
        named = Part("layer", int(match["whole"]))
    elif match["head"]:
        named = Part(_INPUTS.get(match["letter"], "head"), int(match["layer"]), int(match["head"]))
    else:
        named = Part("MLP", int(match["layer"]))
    if shape is not None and ((named.layer or 0) >= shape[0] or (named.head or 0) >= shape[1]):
        raise ValueError(f"{shown(name)} is in no model with {shape[0]} layers of {shape[1]} heads.")
    return named


def check_edges(senders: Sequence[str], receivers: Sequence[str], shape: Sequence[int] | None = None) -> None:
    """Check that edges are each there once, and lead from a part that writes to an input that is computed later.

    Raises:
        ValueError: a name, or two of an edge, that no model of this shape has; an edge that is there twice.
    """
    parts = {}
    for field, names, kinds in (("senders", senders, SENDERS), ("receivers", receivers, RECEIVERS)):
        for name in dict.fromkeys(names):
            try:
                parts[field, name] = named_part(name, shape)
            except ValueError as error:
                raise ValueError(f"{field} has {shown(name)}: {error}") from None
            if parts[field, name].kind not in kinds:
                verb = "write" if field == "senders" else "read"
                raise ValueError(f"{field} has {shown(name)}, which does not {verb}; {field} are {', '.join(kinds)}.")
    edges: set[tuple[str, str]] = set()
    for edge in zip(senders, receivers, strict=True):
        sender, receiver = parts["senders", edge[0]], parts["receivers", edge[1]]
        of_layers = {sender.kind, receiver.kind} - {"embedding", "read-out"}
        if sender.step >= receiver.step or ("layer" in of_layers and len(of_layers) > 1):
            raise ValueError(f"senders and receivers have {edge_name(*edge)}, which leads to no later input.")
        if edge in edges:
            raise ValueError(f"senders and receivers have {edge_name(*edge)} twice; each edge is there once.")
        edges.add(edge)
