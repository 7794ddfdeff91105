"""Which tokens of a sequence are the same, and where are its markers? Found once per batch, shared by all layers."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.hardcoded.pathways import Pathways
from hooks.modules import check_ids


@dataclass(frozen=True)
class Segments:
    """Groups of rows of a matrix, none empty."""

    rows: Int[Tensor, " member"]
    """The rows of the first group, then those of the second, and so on."""
    starts: Int[Tensor, " segment"]
    """Where in `rows` each group begins."""

    def mean(self, values: Float[Tensor, "row width"]) -> Float[Tensor, "segment width"]:
        """Mean of each group's rows."""
        return F.embedding_bag(self.rows, values, self.starts, mode="mean")


@dataclass(frozen=True)
class TokenMaps:
    """The maps of `hooks.LegoAttention` for one batch: no dense map, and nothing that a layer adds to.

    Padding takes part in nothing that a real token sees. Padded queries go with padding of their own id, so that their
    rows are distributions too; nobody reads them.
    """

    tokens: Int[Tensor, "batch pos"]
    classes: Int[Tensor, "batch query"]
    """Number of each query's equivalence class: equal where id and sequence are."""
    key_classes: Int[Tensor, "batch pos"]
    """The same of every key."""
    members: Segments
    """The tokens of each class; tokens are counted through the batch, sequence after sequence."""
    cls: Segments | None
    """The [CLS] of each sequence, where some pathway broadcasts it."""
    sep: Segments | None
    """The [SEP] of each sequence."""
    real: Bool[Tensor, "batch pos"] | None
    """False for padding; None when there is none."""
    queries: Int[Tensor, "batch query"] | None = None
    """Positions that ask; None when all do."""

    @property
    def visible(self) -> Bool[Tensor, "batch pos"]:
        """Keys that learned heads may see: no padding, unless a sequence has nothing else; nobody reads that one."""
        if self.real is None:
            return torch.ones_like(self.tokens, dtype=torch.bool)
        return self.real | ~self.real.any(1, keepdim=True)

    def asked_at(self, queries: Int[Tensor, "batch query"]) -> "TokenMaps":
        """The same batch, with queries at these positions only."""
        return replace(self, classes=self.key_classes.gather(1, queries), queries=queries)

    def associated(self, values: Float[Tensor, "batch pos width"]) -> Float[Tensor, "batch query width"]:
        """For each query the mean of the values of all tokens with its id."""
        return F.embedding(self.classes, self.members.mean(values.flatten(0, 1)))

    def broadcast(self, values: Float[Tensor, "batch pos width"], marker: str) -> Float[Tensor, "batch query width"]:
        """For every query the mean of the values of its sequence's markers, `cls` or `sep`."""
        return self._of(marker).mean(values.flatten(0, 1))[:, None].expand(-1, self.classes.shape[1], -1)

    def without_padding(self, values: Float[Tensor, "batch pos width"]) -> Float[Tensor, "batch pos width"]:
        """The values, zero at padding."""
        return values if self.real is None else values * self.real[..., None]

    def dense(self, kind: str) -> Float[Tensor, "batch query key"]:
        """A map as a matrix, for those who want to look at it or edit it: `association`, `cls` or `sep`."""
        if kind == "association":
            same = self.classes[:, :, None] == self.key_classes[:, None, :]
        else:
            same = torch.zeros_like(self.tokens, dtype=torch.bool).flatten()
            same[self._of(kind).rows] = True
            same = same.view_as(self.tokens)[:, None].expand(-1, self.classes.shape[1], -1)
        return same / same.sum(-1, keepdim=True)

    def _of(self, marker: str) -> Segments:
        found: Segments | None = getattr(self, marker)
        if found is None:
            raise ValueError(
                f"these maps say nothing of [{marker.upper()}]: they were made for pathways that do not broadcast it. "
                f"Make them with the pathways of this attention."
            )
        return found


def token_maps(
    tokens: Int[Tensor, "batch pos"],
    attention_mask: Bool[Tensor, "batch pos"] | Int[Tensor, "batch pos"] | None = None,
    *,
    pathways: Pathways,
    d_vocab: int,
) -> TokenMaps:
    """Find equal tokens and markers, by one sort of all ids.

    Args:
        tokens: Token ids.
        attention_mask: True or 1 for real tokens.
        pathways: Which markers are wanted, and their ids.
        d_vocab: Number of tokens that there are.

    Raises:
        ValueError: no batch axis, a mask of another shape, ids outside the vocabulary, or a sequence without a [CLS] or
            [SEP] that a pathway broadcasts.

    Source: LEGO (arXiv:2206.04301) Section 5: A_asso = 1[u_i = u_j], A_cls = 1[u_j = CLS], A_sep = 1[u_j = SEP], each
    row divided by its sum. Differs: never as matrices.
    """
    if tokens.ndim != 2:
        raise ValueError(f"tokens is {tuple(tokens.shape)}; it must be (batch, pos). One text? Pass tokens[None].")
    if attention_mask is not None and attention_mask.shape != tokens.shape:
        raise ValueError(f"attention_mask is {tuple(attention_mask.shape)}; tokens is {tuple(tokens.shape)}.")
    check_ids(tokens, d_vocab, "tokens", "d_vocab")
    real = None if attention_mask is None else attention_mask.bool()
    row = torch.arange(len(tokens), device=tokens.device)[:, None]
    name = (row * d_vocab + tokens) if real is None else ((2 * row + ~real) * d_vocab + tokens)
    ordered, rows = name.flatten().sort(stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    classes = torch.empty_like(ordered)
    classes[rows] = first.cumsum(0) - 1
    classes = classes.view_as(tokens)
    markers = {
        name: _markers(tokens, real, name, getattr(pathways, f"{name}_token"))
        for name in ("cls", "sep")
        if getattr(pathways, name)
    }
    members = Segments(rows, first.nonzero()[:, 0])
    return TokenMaps(tokens, classes, classes, members, markers.get("cls"), markers.get("sep"), real)


def _markers(tokens: Tensor, real: Tensor | None, name: str, token: int) -> Segments:
    at = tokens == token if real is None else (tokens == token) & real
    counts = at.sum(1)
    if (counts == 0).any():
        raise ValueError(
            f"sequence {int((counts == 0).nonzero()[0])} of tokens has no [{name.upper()}] (id {token}) to broadcast "
            f"from; every sequence needs one, outside its padding."
        )
    return Segments(at.flatten().nonzero()[:, 0], counts.cumsum(0) - counts)
