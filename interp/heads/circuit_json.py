"""The JSON of circuits that EAP-IG writes and the circuit track of MIB reads.

Nodes are `input`, `a0.h1` (a head), `m0` (an MLP) and `logits`; an edge is `a0.h1->m0`, or `a0.h1->a1.h0<q>` into the
queries, keys or values of a head. Each has whether it is in the circuit, and each edge a score.

Source: hannamw/EAP-IG, `Graph.to_json`; Mueller et al. 2025 (arXiv:2504.13151), the circuit localization track.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hooks.checks import check_class, check_number, shown
from hooks.files import Unreadable, read_json, reading
from hooks.interventions.edge_engine import edge_name
from hooks.typed import checks_types
from interp.heads.part_names import check_edges, named_part

EdgeScore = tuple[str, str, float, bool]
"""Sender, receiver, score, and whether the edge is in the circuit."""
CIRCUIT_FILE = "a circuit in the JSON of EAP-IG"
_NODE = re.compile(r"a(?P<layer>\w+)\.h(?P<head>\w+?)(?:<(?P<letter>[qkv])>)?|m(?P<mlp>\w+)|(?P<end>input|logits)")
_ENDS = {"input": "embedding", "logits": "read-out"}


def circuit_json(edges: Sequence[EdgeScore], *, shape: tuple[int, int, int]) -> dict[str, Any]:
    """A circuit as plain values, ready for JSON.

    Args:
        edges: Every edge of the model.
        shape: Number of layers, of heads per layer, and width of the stream.
    """
    n_layers, n_heads, d_model = shape
    nodes = {"input": {"in_graph": False}}
    entries = {}
    for sender, receiver, score, is_member in edges:
        sender_node, (receiver_node, letter) = _node(sender), _input(receiver)
        for node in (sender_node, receiver_node):
            nodes.setdefault(node, {"in_graph": False})
            nodes[node]["in_graph"] |= bool(is_member)
        suffix = f"<{letter}>" if letter else ""
        entries[f"{sender_node}->{receiver_node}{suffix}"] = {"score": float(score), "in_graph": bool(is_member)}
    cfg = {"n_layers": n_layers, "n_heads": n_heads, "parallel_attn_mlp": False, "d_model": d_model}
    return {"cfg": cfg, "nodes": nodes, "edges": entries}


@checks_types
def read_circuit(path: str | Path) -> list[EdgeScore]:
    """The edges of a circuit that `CircuitResult.save_circuit` or EAP-IG wrote, under the names of `interp.edges`.

    Args:
        path: The JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not JSON, no edges, an edge with a score or membership that cannot be read, or one that no model
            of this shape has; an edge in the circuit whose sender is not.

    Example:
        >>> from interp.heads import read_circuit
        >>> _ = Path("circuit.json").write_text('{"edges": {"a0.h1->a1.h0<k>": {"score": 0.5, "in_graph": true}}}')
        >>> read_circuit("circuit.json")
        [('0.1', '1.0 k', 0.5, True)]
    """
    content = read_json(path, CIRCUIT_FILE)
    with reading(path, CIRCUIT_FILE):
        entries = content["edges"]
        check_class("edges", entries, dict)
        edges, shape = [], _shape(content.get("cfg"))
        for name, entry in entries.items():
            sender, arrow, receiver = name.partition("->")
            if not arrow:
                raise Unreadable(f"{path} has the edge {shown(name)}; it must be sender->receiver.")
            check_class(f"edges[{shown(name)}]", entry, Mapping)
            if missing := [key for key in ("score", "in_graph") if key not in entry]:
                raise Unreadable(f"{path} has the edge {shown(name)} without {missing[0]}.")
            check_class(f"in_graph of {shown(name)}", entry["in_graph"], bool)
            check_number(f"score of {shown(name)}", entry["score"])
            try:
                nodes = _our_name(sender), _our_name(receiver)
                check_edges(nodes[:1], nodes[1:], shape)
            except ValueError as error:
                raise Unreadable(f"{path} has the edge {shown(name)}: {error}") from None
            edges.append((*nodes, float(entry["score"]), entry["in_graph"]))
        _check_nodes(content.get("nodes", {}), edges, shape)
        return edges


def _shape(cfg: Any) -> tuple[int, int] | None:
    """Number of layers and of heads per layer, if the file has them."""
    if cfg is None:
        return None
    check_class("cfg", cfg, Mapping)
    sizes = cfg.get("n_layers"), cfg.get("n_heads")
    for name, size in zip(("n_layers", "n_heads"), sizes, strict=True):
        check_number(f"cfg.{name}", size, integer=True, low=1)
    return sizes  # pyright: ignore[reportReturnType]


def _check_nodes(nodes: Any, edges: Sequence[EdgeScore], shape: tuple[int, int] | None) -> None:
    """Check that the nodes of a file are parts, and that the sender of an edge in the circuit is in it.

    A receiver may be in no circuit: EAP-IG keeps edges that lead to no answer unless it is told to prune them.
    """
    check_class("nodes", nodes, Mapping)
    in_graph = {}
    for node, entry in nodes.items():
        try:
            name = _our_name(node)
            named_part(name, shape)
        except ValueError as error:
            raise ValueError(f"nodes has {shown(node)}: {error}") from None
        check_class(f"nodes[{shown(node)}]", entry, Mapping)
        in_graph[name] = entry.get("in_graph", True)
        check_class(f"in_graph of {shown(node)}", in_graph[name], bool)
    for sender, receiver, _, is_member in edges:
        if is_member and not in_graph.get(sender, True):
            raise ValueError(f"the edge {edge_name(sender, receiver)} is in the circuit, but the node {sender} is not.")


def _node(sender: str) -> str:
    """`embedding`, `0.1`, `0 MLP` as `input`, `a0.h1`, `m0`."""
    if sender == "embedding":
        return "input"
    if sender.endswith(" MLP"):
        return f"m{sender.removesuffix(' MLP')}"
    layer, _, head = sender.partition(".")
    return f"a{layer}.h{head}"


def _input(receiver: str) -> tuple[str, str]:
    """`1.0 q` as `a1.h0` and `q`; `1 MLP` and `read-out` as `m1` and `logits`, without a letter."""
    if receiver == "read-out":
        return "logits", ""
    if receiver.endswith(" MLP"):
        return _node(receiver), ""
    head, _, letter = receiver.partition(" ")
    return _node(head), letter


def _our_name(node: str) -> str:
    """A node of the file under our name; whether there is such a part is checked afterwards.

    >>> _our_name("a1.h0<k>"), _our_name("m0"), _our_name("logits")
    ('1.0 k', '0 MLP', 'read-out')
    """
    match = _NODE.fullmatch(node)
    if match is None:
        raise ValueError(f"{shown(node)} is no node; nodes are input, m0, a0.h1 or a0.h1<q>, and logits.")
    if match["end"]:
        return _ENDS[match["end"]]
    if match["mlp"]:
        return f"{match['mlp']} MLP"
    letter = f" {match['letter']}" if match["letter"] else ""
    return f"{match['layer']}.{match['head']}{letter}"
