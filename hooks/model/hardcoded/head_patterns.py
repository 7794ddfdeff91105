"""Hard-coded heads as values: what one head attends to (`HeadPattern`), and a mixture of kinds by size (`Pathways`).

A kind here sets what a head attends to; it is not a label that an analysis gives to a learned head
(`interp/heads/kinds.py`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from jaxtyping import Int
from torch import Tensor

from hooks.typed import check_field_types, restored

PatternKind = Literal["learned", "uniform", "association", "local", "broadcast", "convolution"]
ORDER = ("learned", "association", "cls", "sep", "convolution")
"""The order of the heads in a layer with `Pathways`."""


@dataclass(frozen=True, kw_only=True)
class HeadPattern:
    """What one head attends to.

    `learned` is ordinary query-key attention. The other kinds ignore queries and keys: `uniform` attends to every
    visible key, `association` to keys with the query's own token id (itself included), `local` to neighbours weighted
    by `kernel`, `broadcast` to the keys that hold `token`. `convolution` weights neighbours by learned kernels, one per
    coordinate; only `Pathways` can have it.

    Source: LEGO (arXiv:2206.04301) Section 5, maps row-normalised. Differs: a row with no key to attend to (a
    `broadcast` token that is absent) is uniform, so that every row sums to one.
    """

    kind: PatternKind = "learned"
    kernel: tuple[float, ...] = ()
    """`local` only: weights by offset, an odd number of them, with the query's own position in the middle."""
    token: int | None = None
    """`broadcast` only: the token id attended to."""

    def __post_init__(self):
        check_field_types(self)
        if (self.kind == "local") != bool(self.kernel):
            raise ValueError(f"kernel is {self.kernel!r} for kind {self.kind!r}; give it for 'local' and only there.")
        if self.kernel and (len(self.kernel) % 2 == 0 or min(self.kernel) < 0 or sum(self.kernel) <= 0):
            raise ValueError(f"kernel is {self.kernel}; give an odd number of weights, none negative, not all zero.")
        if (self.kind == "broadcast") != (self.token is not None):
            raise ValueError(f"token is {self.token!r} for kind {self.kind!r}; give it for 'broadcast' and only there.")

    @property
    def learned(self) -> bool:
        """True if queries and keys decide what this head attends to."""
        return self.kind == "learned"


@dataclass(frozen=True, kw_only=True)
class Pathways:
    """A mixture of learned and hard-coded heads, the same in every layer, by the width of each kind in coordinates.

    Heads are in the order of the fields. Each size must be a whole number of heads.

    Raises:
        ValueError: a negative size, no positive size, an even kernel width, or a broadcast pathway without its token.

    Source: LEGO (arXiv:2206.04301) Section 5. The paper gives neither the number of heads of each kind, nor whether
    its convolution is depthwise; `hooks.presets.hardcode` and `hybrid` are our choice.
    """

    learned: int = 0
    """Ordinary heads, with queries and keys."""
    association: int = 0
    """Uniform over the tokens with the query's own id, itself included."""
    cls: int = 0
    """All queries attend to [CLS]."""
    sep: int = 0
    """All queries attend to [SEP], uniformly if there are several."""
    convolution: int = 0
    """A depthwise convolution along the sequence, with one learned kernel per coordinate."""
    kernel_width: int = 21
    """Width of the kernels; the query's own position is in the middle."""
    cls_token: int | None = None
    """Id of [CLS]."""
    sep_token: int | None = None
    """Id of [SEP]."""

    def __post_init__(self):
        check_field_types(self)
        sizes = self.sizes
        if min(sizes.values()) < 0 or not any(sizes.values()):
            raise ValueError(f"pathways has the sizes {_listed(sizes)}; give none below 0, and one above.")
        if self.kernel_width < 1 or self.kernel_width % 2 == 0:
            raise ValueError(
                f"kernel_width is {self.kernel_width}; it must be odd, so that the query's own position is in the "
                f"middle."
            )
        for name in ("cls", "sep"):
            if sizes[name] and getattr(self, f"{name}_token") is None:
                raise ValueError(
                    f"pathways broadcasts from [{name.upper()}], but {name}_token is None; give that token's id."
                )

    @property
    def sizes(self) -> dict[str, int]:
        """Coordinates of each pathway, in the order of heads."""
        return {name: getattr(self, name) for name in ORDER}

    @property
    def markers(self) -> dict[str, int]:
        """Ids of the tokens that are broadcast, by name: `cls`, `sep`."""
        tokens = {"cls": self.cls_token, "sep": self.sep_token}
        return {name: token for name, token in tokens.items() if token is not None and getattr(self, name)}

    def heads(self, d_head: int, width: int) -> dict[str, int]:
        """Number of heads of each pathway, in their order.

        Args:
            d_head: Width of a head.
            width: Width of all heads together.

        Raises:
            ValueError: a pathway that is not a whole number of heads, or sizes that do not add up to the width.
        """
        total = sum(self.sizes.values())
        if total != width:
            remedy = f"remove {total - width}" if total > width else f"add {width - total}"
            raise ValueError(
                f"the pathways add up to {total}, not to the width {width} of all heads ({_listed(self.sizes)}); "
                f"{remedy}."
            )
        for name, size in self.sizes.items():
            if size % d_head:
                raise ValueError(f"pathway {name} is {size} wide, not a whole number of heads of d_head {d_head}.")
        return {name: size // d_head for name, size in self.sizes.items()}

    def patterns(self, d_head: int, width: int) -> tuple[HeadPattern, ...]:
        """The pattern of each head of a layer.

        Raises:
            ValueError: as `heads`.
        """
        patterns_by_name = {name: HeadPattern(kind=name) for name in ("learned", "association", "convolution")}
        for name, token in self.markers.items():
            patterns_by_name[name] = HeadPattern(kind="broadcast", token=token)
        patterns: list[HeadPattern] = []
        for name, n_heads in self.heads(d_head, width).items():
            if n_heads:
                patterns += [patterns_by_name[name]] * n_heads
        return tuple(patterns)

    def framed(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
        """The same tokens with [CLS] first and [SEP] last, if these are broadcast."""
        tokens = tokens.clone()
        positions = {"cls": 0, "sep": -1}
        for name, token in self.markers.items():
            tokens[:, positions[name]] = token
        return tokens

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Pathways":
        """Sizes from `to_dict`.

        Raises:
            ValueError: a field this version does not know.
        """
        return restored(cls, values, "pathways")


def has_learned(patterns: Sequence[HeadPattern]) -> bool:
    """True if any head of a layer is learned; a layer without patterns has learned heads only."""
    return not patterns or any(pattern.learned for pattern in patterns)


def check_patterns(patterns: Iterable[HeadPattern]) -> None:
    """Refuse what patterns cannot have.

    Raises:
        ValueError: a convolution.
    """
    if any(pattern.kind == "convolution" for pattern in patterns):
        raise ValueError("head_patterns has a convolution, whose kernels are learned; only Pathways have one.")


def _listed(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())
