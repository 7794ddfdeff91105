"""Circuits as graphs: layers from the bottom up, edges as wide as what they cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from interp.view.html import Entry, PageIdentity, render, resource, scrolling

COLUMN, ROW, WIDTH, HEIGHT, MARGIN = 116, 92, 84, 34, 24
"""Distance of nodes in a row and of rows; width and height of a node; margin of the picture, in pixels."""
BOW, FURTHER_BOW, WIDEST_BOW = 96, 16, 200
"""By how much an edge bends to the side if it passes a row, for each further row, and at most: nodes on its way would
cover it."""
THIN, THICK = 1.5, 8.0
"""Width of an edge that costs nothing, and of the most costly one."""
PORTS = {"q": -26, "k": 0, "v": 26}
"""Where the edges into queries, keys and values end, from the middle of a head."""
STYLE = resource("circuit.css")


@dataclass(frozen=True, kw_only=True)
class DrawnEdge:
    """An edge of a circuit."""

    sender: str
    """`embedding`, a head (`0.1`) or an MLP (`0 MLP`)."""
    receiver: str
    """`1.0 q`, `1.0 k`, `1.0 v`, `1 MLP`, or `read-out`."""
    cost: float
    text: str
    """Its numbers, shown when it is clicked."""

    @property
    def target(self) -> str:
        """The node that it ends in."""
        return self.receiver[:-2] if self.letter else self.receiver

    @property
    def letter(self) -> str:
        """q, k or v; empty for an MLP and the read-out."""
        return self.receiver[-1] if self.receiver[-2:] in (" q", " k", " v") else ""

    @property
    def name(self) -> str:
        """`0.1 > 1.0 q`."""
        return f"{self.sender} > {self.receiver}"


def circuit_svg(edges: Sequence[DrawnEdge], *, n_layers: int) -> Markup:
    """SVG of a circuit, readable on its own and on a dark page.

    Args:
        edges: The edges of the circuit.
        n_layers: Number of layers of the model.
    """
    rows = _rows(edges, n_layers)
    side = MARGIN + int(0.6 * _bow(len(rows)))
    n_columns = max(len(row) for row in rows) + 1
    width, height = 2 * side + COLUMN * n_columns, 2 * MARGIN + ROW * (len(rows) - 1) + HEIGHT
    # The embedding at the bottom; heads from the left, MLPs in a column on the right
    places = {}
    for index, row in enumerate(rows):
        y = height - MARGIN - HEIGHT / 2 - ROW * index
        for column, node in enumerate(row):
            if node in ("embedding", "read-out"):
                column = (n_columns - 1) / 2
            elif node.endswith("MLP"):
                column = n_columns - 1
            places[node] = (side + COLUMN * (column + 0.5), y)
    largest = max((abs(edge.cost) for edge in edges), default=0.0)
    words = f"Circuit of {len(edges)} edges: {'; '.join(edge.name for edge in edges)}"
    elements = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="circuit" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" style="min-width: {0.6 * width:g}px" role="group" '
        f'aria-label="{escape(words)}"><style>{STYLE}</style>'
    ]
    for edge in sorted(edges, key=lambda edge: abs(edge.cost)):
        elements.append(_edge(edge, places, largest))
    elements += [_node(node, *place) for node, place in places.items()]
    return Markup("".join(elements) + "</svg>")


def circuit_page(
    edges: Sequence[DrawnEdge],
    *,
    n_layers: int,
    title: str,
    sentences: Sequence[str],
    rows: Sequence[Sequence[str]],
    identity: PageIdentity | None = None,
) -> str:
    """HTML of a page with the graph, the numbers of the edge that is clicked, and tables of both.

    Args:
        edges: The edges of the circuit.
        n_layers: Number of layers of the model.
        title: Heading.
        sentences: What was found, a paragraph each.
        rows: Table of sets of edges; the first row is its header.
        identity: What the page is about and how it was made.
    """
    contents = [
        Entry(anchor="graph", name="Graph"),
        Entry(anchor="sets", name="Accuracy"),
        Entry(anchor="edges", name="Edges"),
    ]
    return render(
        "circuit.html.jinja",
        title=title,
        lead=sentences[0],
        identity=identity,
        contents=contents,
        graph=scrolling(circuit_svg(edges, n_layers=n_layers), label="Graph of the circuit"),
        sentences=sentences[1:],
        rows=rows,
        edges=sorted(edges, key=lambda edge: -edge.cost),
        script=resource("circuit.js"),
    )


def _rows(edges: Sequence[DrawnEdge], n_layers: int) -> list[list[str]]:
    """The nodes of each row from the bottom: embedding, heads and MLP of each layer, read-out, if they have edges."""
    nodes = {node for edge in edges for node in (edge.sender, edge.target)} | {"embedding", "read-out"}
    rows = [["embedding"]]
    for layer in range(n_layers):
        heads = [node for node in nodes if node.startswith(f"{layer}.")]
        rows.append(sorted(heads, key=lambda node: int(node.partition(".")[2])))
        rows.append([node for node in nodes if node == f"{layer} MLP"])
    return [row for row in [*rows, ["read-out"]] if row]


def _bow(n_passed: int) -> int:
    """By how much an edge that passes some rows bends to the side."""
    return min(WIDEST_BOW, BOW + FURTHER_BOW * (n_passed - 1)) if n_passed > 0 else 0


def _edge(edge: DrawnEdge, places: dict[str, tuple[float, float]], largest: float) -> str:
    """A curve from the top of a node to the bottom of another one, with its numbers."""
    (x, y), (target_x, target_y) = places[edge.sender], places[edge.target]
    start, end = y - HEIGHT / 2, target_y + HEIGHT / 2
    target_x += PORTS.get(edge.letter, 0)
    bend = (start - end) / 2
    # Edges past several rows bow to the side: those of MLPs to the right, others to the left
    n_passed = round((y - places[edge.target][1]) / ROW) - 1
    bow = _bow(n_passed)
    bow = bow if edge.target.endswith("MLP") or edge.sender.endswith("MLP") else -bow
    share = abs(edge.cost) / largest if largest else 0.0
    path = f"M{x:g} {start:g} C{x + bow:g} {start - bend:g} {target_x + bow:g} {end + bend:g} {target_x:g} {end:g}"
    label = escape(f"{edge.name}: {edge.text}")
    kind = edge.letter or "whole"
    return (
        f'<g class="edge {kind}" tabindex="0" role="button" data-name="{escape(edge.name)}" '
        f'data-text="{escape(edge.text)}" aria-label="{label}"><title>{label}</title><path class="reach" d="{path}"/>'
        f'<path d="{path}" stroke-width="{THIN + (THICK - THIN) * share:.2f}"/></g>'
    )


def _node(name: str, x: float, y: float) -> str:
    """A box with the name of a part; a head has places for its three inputs."""
    letters = ""
    if "." in name:
        letters = "".join(
            f'<text class="port" x="{x + offset:g}" y="{y + HEIGHT / 2 - 4:g}">{letter}</text>'
            for letter, offset in PORTS.items()
        )
    rise = 0 if letters else 5
    return (
        f'<rect class="node" x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>'
        f'<text class="name" x="{x:g}" y="{y + rise:g}">{escape(name)}</text>{letters}'
    )
