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

EdgeScore = tuple[str, str, float, bool]
"""Sender, receiver, score, and whether the edge is in the circuit."""
CIRCUIT_FILE = "a circuit in the JSON of EAP-IG"
_HEAD = re.compile(r"a(\d+)\.h(\d+)(?:<([qkv])>)?")
_MLP = re.compile(r"m(\d+)")


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


def read_circuit(path: str | Path) -> list[EdgeScore]:
    """The edges of a circuit that `CircuitResult.save_circuit` or EAP-IG wrote, under the names of `interp.edges`.

    Args:
        path: The JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not JSON, no edges, or an edge with a name, score or membership that cannot be read.

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
        edges = []
        for name, entry in entries.items():
            sender, arrow, receiver = name.partition("->")
            if not arrow:
                raise Unreadable(f"{path} has the edge {shown(name)}; it must be sender->receiver.")
            check_class(f"edges[{shown(name)}]", entry, Mapping)
            if missing := [key for key in ("score", "in_graph") if key not in entry]:
                raise Unreadable(f"{path} has the edge {shown(name)} without {missing[0]}.")
            check_class(f"in_graph of {shown(name)}", entry["in_graph"], bool)
            check_number(f"score of {shown(name)}", entry["score"])
            nodes = _writing_node(sender, name, path), _reading_node(receiver, name, path)
            edges.append((*nodes, float(entry["score"]), entry["in_graph"]))
        return edges


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


def _writing_node(node: str, edge: str, path: str | Path) -> str:
    """A node of the file that writes, under our name."""
    if node == "input":
        return "embedding"
    if match := _MLP.fullmatch(node):
        return f"{match[1]} MLP"
    match = _HEAD.fullmatch(node)
    if match and not match[3]:
        return f"{match[1]}.{match[2]}"
    raise Unreadable(f"{path} has the node {shown(node)} in {shown(edge)}; input, m0 and a0.h1 are nodes that write.")


def _reading_node(node: str, edge: str, path: str | Path) -> str:
    """A node of the file that reads, under our name."""
    if node == "logits":
        return "read-out"
    if match := _MLP.fullmatch(node):
        return f"{match[1]} MLP"
    match = _HEAD.fullmatch(node)
    if match and match[3]:
        return f"{match[1]}.{match[2]} {match[3]}"
    raise Unreadable(
        f"{path} has the node {shown(node)} in {shown(edge)}; m0, logits and a0.h1<q>, <k> or <v> are nodes that read."
    )
