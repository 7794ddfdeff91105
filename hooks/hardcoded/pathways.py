"""How much of the stream does each kind of head get, where some are written down? Sizes, checked when made."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from jaxtyping import Int
from torch import Tensor

from hooks.hardcoded.head_patterns import HeadPattern

ORDER = ("learned", "association", "cls", "sep", "convolution")
"""Heads of a layer stand in this order."""


@dataclass(frozen=True, kw_only=True)
class Pathways:
    """What `hooks.LegoAttention` is made of: how wide each pathway is, in coordinates; each is cut into heads.

    Raises:
        ValueError: a negative size or none at all, an even kernel width, or a broadcast pathway whose token is not
            named.

    Source: LEGO (arXiv:2206.04301) Section 5. The paper does not say how many heads of each kind there are, nor whether
    its convolution is depthwise; `hooks.model.presets.hardcode` and `hybrid` hold our choice.
    """

    learned: int = 0
    """Ordinary heads: queries and keys decide."""
    association: int = 0
    """Tokens with the query's own id, the query included, all alike."""
    cls: int = 0
    """[CLS], whatever the query."""
    sep: int = 0
    """[SEP], whatever the query; of several all alike."""
    convolution: int = 0
    """Neighbours: a depthwise convolution along the sequence, one learned kernel per coordinate."""
    kernel_width: int = 21
    """Of the convolution, the query's own place in the middle."""
    cls_token: int | None = None
    """Id of [CLS]."""
    sep_token: int | None = None
    """Id of [SEP]."""

    def __post_init__(self):
        sizes = self.sizes
        if min(sizes.values()) < 0 or not any(sizes.values()):
            raise ValueError(f"pathways has the sizes {_listed(sizes)}; give none below 0, and one above.")
        if self.kernel_width < 1 or self.kernel_width % 2 == 0:
            raise ValueError(
                f"kernel_width is {self.kernel_width}; it must be odd, so that the query's own place is in the middle."
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

    def heads(self, d_head: int, width: int) -> dict[str, int]:
        """Heads of each pathway, in their order.

        Args:
            d_head: Width of a head.
            width: What all heads together must fill.

        Raises:
            ValueError: a pathway that is no whole number of heads, or sizes that do not add up to the width.
        """
        if total := sum(self.sizes.values()) - width:
            raise ValueError(
                f"the pathways add up to {width + total}, not to the width {width} of all heads "
                f"({_listed(self.sizes)}); {'take away' if total > 0 else 'add'} {abs(total)}."
            )
        for name, size in self.sizes.items():
            if size % d_head:
                raise ValueError(f"pathway {name} is {size} wide, no whole number of heads of d_head {d_head}.")
        return {name: size // d_head for name, size in self.sizes.items()}

    def patterns(self, d_head: int, width: int) -> tuple[HeadPattern, ...]:
        """What each head of a layer looks at.

        Raises:
            ValueError: as `heads`.
        """
        kinds = {
            "learned": HeadPattern(),
            "association": HeadPattern(kind="association"),
            "cls": HeadPattern(kind="broadcast", token=self.cls_token) if self.cls else None,
            "sep": HeadPattern(kind="broadcast", token=self.sep_token) if self.sep else None,
            "convolution": HeadPattern(kind="convolution"),
        }
        return tuple(kinds[name] for name, n in self.heads(d_head, width).items() for _ in range(n))  # type: ignore[misc]

    def framed(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
        """The same tokens with [CLS] first and [SEP] last, where they are broadcast."""
        tokens = tokens.clone()
        if self.cls and self.cls_token is not None:
            tokens[:, 0] = self.cls_token
        if self.sep and self.sep_token is not None:
            tokens[:, -1] = self.sep_token
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
        if unknown := set(values) - {field.name for field in fields(cls)}:
            raise ValueError(f"pathways has unknown fields {sorted(unknown)}; was it written by a newer unmyopic?")
        return cls(**values)


def _listed(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())
