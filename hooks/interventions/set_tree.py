"""Tree of sets of heads, in which sets that agree in their first layers share a branch."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class SetTree:
    """Sets of heads that agree in their first layers, by their heads in the following layers."""

    is_set: bool = False
    """Whether the set without further heads is one of them."""
    layers: dict[int, dict[tuple[int, ...], "SetTree"]] = field(default_factory=dict)
    """By layer, and by heads of that layer: the sets whose next heads are these."""

    def add(self, heads: Iterable[tuple[int, int]]) -> None:
        """Add a set of (layer, head)."""
        heads_by_layer: dict[int, list[int]] = {}
        for layer, head in sorted(set(heads)):
            heads_by_layer.setdefault(layer, []).append(head)
        # Follow the branches of its layers, and grow those that are missing
        branch = self
        for layer, heads_of_layer in heads_by_layer.items():
            branches = branch.layers.setdefault(layer, {})
            branch = branches.setdefault(tuple(heads_of_layer), SetTree())
        branch.is_set = True

    def all_layers(self) -> set[int]:
        """Every layer in which some set has further heads."""
        branches = [branch for edits in self.layers.values() for branch in edits.values()]
        return set(self.layers).union(*(branch.all_layers() for branch in branches))

    def only(self) -> dict[int, tuple[int, ...]] | None:
        """Further heads by layer if there is only one set and it has some, else None."""
        heads_by_layer: dict[int, tuple[int, ...]] = {}
        branch = self
        while branch.layers and not branch.is_set:
            edits = [(layer, heads) for layer in branch.layers for heads in branch.layers[layer]]
            if len(edits) > 1:
                return None
            layer, heads = edits[0]
            heads_by_layer[layer] = heads
            branch = branch.layers[layer][heads]
        # The walk ends at a set; if that has branches, it is not the only one
        return None if branch.layers or not heads_by_layer else heads_by_layer
