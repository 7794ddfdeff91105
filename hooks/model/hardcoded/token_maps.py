"""Attention maps of hard-coded heads from token ids: as matrices, or as groups of tokens found by one sort."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.model.attention import Context, allowed_keys
from hooks.model.hardcoded.head_patterns import HeadPattern, Pathways
from hooks.model.layers import check_ids, check_tokens
from hooks.typed import checks_types


@dataclass(frozen=True, kw_only=True)
class TokenMaps(Context):
    """The maps of hard-coded heads for one batch, computed on first use and shared by all layers."""

    tokens: Int[Tensor, "batch pos"]
    _scores: dict[HeadPattern, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def query_positions(self) -> Int[Tensor, "#batch query"]:
        """Positions of the queries, 0, 1, 2 ... if these are all positions."""
        if self.queries is not None:
            return self.queries
        return torch.arange(self.tokens.shape[1], device=self.tokens.device)[None]

    def dense(self, pattern: HeadPattern) -> Float[Tensor, "batch query key"]:
        """The row-normalised attention map of a hard-coded head.

        Args:
            pattern: Any kind but `learned` and `convolution`, whose maps depend on weights.

        Raises:
            ValueError: a kind without a map.
        """
        # Weights before masks and normalisation
        batch, pos = self.tokens.shape
        queries = self.query_positions.expand(batch, -1)
        if pattern.kind == "association":
            weight = (self.tokens.gather(1, queries)[:, :, None] == self.tokens[:, None, :]).float()
        elif pattern.kind == "broadcast":
            weight = (self.tokens == pattern.token).float()[:, None, :]
        elif pattern.kind == "local":
            weight = local_band(pos, pattern.kernel).to(self.tokens.device)[queries]
        elif pattern.kind == "uniform":
            weight = torch.ones(1, 1, pos, device=self.tokens.device)
        else:
            raise ValueError(f"pattern is {pattern.kind!r}; only a hard-coded pattern has a map.")
        visible = torch.ones_like(weight[:1, :1]) if self.allowed is None else self.allowed.float()
        weight = (weight * visible).expand(batch, queries.shape[1], pos)
        # A query without any such key, as of an absent token, attends to all visible keys
        weight = torch.where(weight.sum(-1, keepdim=True) > 0, weight, visible)
        return weight / weight.sum(-1, keepdim=True)

    def scores(self, pattern: HeadPattern) -> Float[Tensor, "batch query key"]:
        """Log of the map of a hard-coded head: softmax gives the map back."""
        if pattern not in self._scores:
            self._scores[pattern] = self.dense(pattern).log()
        return self._scores[pattern]


def local_band(pos: int, kernel: tuple[float, ...]) -> Float[Tensor, "query key"]:
    """A band matrix: row q holds `kernel` centred on q, cut off at the ends of the sequence, not normalised."""
    weights = torch.tensor(kernel, dtype=torch.float32)
    offset = torch.arange(pos)[None, :] - torch.arange(pos)[:, None] + len(kernel) // 2
    inside = (offset >= 0) & (offset < len(kernel))
    return weights[offset.clamp(0, len(kernel) - 1)] * inside


@dataclass(frozen=True)
class Segments:
    """Groups of rows of a matrix, none empty."""

    rows: Int[Tensor, " member"]
    """The rows of the first group, then those of the second, and so on."""
    starts: Int[Tensor, " segment"]
    """The index in `rows` at which each group begins."""

    def mean(self, values: Float[Tensor, "row width"]) -> Float[Tensor, "segment width"]:
        """Mean of each group's rows."""
        return F.embedding_bag(self.rows, values, self.starts, mode="mean")


@dataclass(frozen=True, kw_only=True)
class PathwayMaps(TokenMaps):
    """The maps of `Pathways` as groups of tokens, so that no layer computes a matrix over pairs of positions.

    No real token attends to padding. Padded queries are associated with padding of the same id, so that their rows are
    distributions too; no real token reads them.
    """

    key_classes: Int[Tensor, "batch pos"]
    """Number of each key's equivalence class: the same for equal ids of one sequence."""
    members: Segments
    """The tokens of each class, counted through the batch, sequence after sequence."""
    markers: dict[int, Segments]
    """For each token id that is broadcast, where each sequence holds it."""
    real: Bool[Tensor, "batch pos"] | None
    """False for padding; None if there is none."""

    @property
    def classes(self) -> Int[Tensor, "batch query"]:
        """Number of each query's equivalence class."""
        return self.key_classes if self.queries is None else self.key_classes.gather(1, self.queries)

    def associated(self, values: Float[Tensor, "batch pos width"]) -> Float[Tensor, "batch query width"]:
        """For each query the mean of the values of all tokens with its id."""
        return F.embedding(self.classes, self.members.mean(values.flatten(0, 1)))

    def broadcast(self, values: Float[Tensor, "batch pos width"], token: int) -> Float[Tensor, "batch query width"]:
        """For every query the mean of the values at its sequence's positions of one token id."""
        return self._marker(token).mean(values.flatten(0, 1))[:, None].expand(-1, self.classes.shape[1], -1)

    def without_padding(self, values: Float[Tensor, "batch pos width"]) -> Float[Tensor, "batch pos width"]:
        """The values, zero at padding."""
        return values if self.real is None else values * self.real[..., None]

    def dense(self, pattern: HeadPattern) -> Float[Tensor, "batch query key"]:
        if pattern.kind == "association":
            weight = self.classes[:, :, None] == self.key_classes[:, None, :]
        elif pattern.kind == "broadcast" and pattern.token is not None:
            holds_token = torch.zeros_like(self.tokens, dtype=torch.bool).flatten()
            holds_token[self._marker(pattern.token).rows] = True
            weight = holds_token.view_as(self.tokens)[:, None].expand(-1, self.classes.shape[1], -1)
        else:
            return super().dense(pattern)
        return weight / weight.sum(-1, keepdim=True)

    def _marker(self, token: int) -> Segments:
        if token not in self.markers:
            raise ValueError(
                f"these maps lack token {token}: they were made for heads that do not broadcast it. Make them with the "
                f"heads of this attention."
            )
        return self.markers[token]


@checks_types
def token_maps(
    tokens: Int[Tensor, "batch pos"],
    attention_mask: Bool[Tensor, "batch pos"] | Int[Tensor, "batch pos"] | None = None,
    *,
    heads: Pathways | Sequence[HeadPattern],
    d_vocab: int,
    attention: str = "bidirectional",
) -> TokenMaps:
    """The attention maps of hard-coded heads for one batch.

    >>> import torch
    >>> from hooks import HeadPattern, token_maps
    >>> same_token = HeadPattern(kind="association")
    >>> maps = token_maps(torch.tensor([[4, 7, 4]]), heads=[same_token], d_vocab=10)
    >>> maps.dense(same_token)[0].tolist()
    [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]

    Args:
        tokens: Token ids.
        attention_mask: True or 1 for real tokens.
        heads: The heads of the attention that uses the maps.
        d_vocab: Size of the vocabulary.
        attention: "causal" if queries see no later keys; only for patterns, not for `Pathways`.

    Raises:
        ValueError: no batch axis, a mask of another shape, ids outside the vocabulary, or a sequence without a [CLS] or
            [SEP] that a pathway broadcasts.

    Source: LEGO (arXiv:2206.04301) Section 5: A_asso = 1[u_i = u_j], A_cls = 1[u_j = CLS], A_sep = 1[u_j = SEP], each
    row divided by its sum. Differs: for `Pathways` by one sort of all ids, not as matrices.
    """
    check_tokens(tokens, attention_mask)
    check_ids(tokens, d_vocab, "tokens", "d_vocab")
    real = None if attention_mask is None else attention_mask.bool()
    if not isinstance(heads, Pathways):
        return TokenMaps(tokens=tokens, allowed=allowed_keys(attention, real, tokens.shape[1], tokens.device))
    # Number every pair of a sequence and an id, with separate numbers for padding; equal numbers are one class
    group = torch.arange(len(tokens), device=tokens.device)[:, None]
    if real is not None:
        group = 2 * group + ~real
    sorted_numbers, rows = (group * d_vocab + tokens).flatten().sort(stable=True)
    # A class starts where the number changes
    starts_class = torch.ones_like(sorted_numbers, dtype=torch.bool)
    starts_class[1:] = sorted_numbers[1:] != sorted_numbers[:-1]
    classes = torch.empty_like(sorted_numbers)
    classes[rows] = starts_class.cumsum(0) - 1
    # Queries see real keys; in a sequence of padding alone they see all
    allowed = None
    if real is not None:
        allowed = (real | ~real.any(1, keepdim=True))[:, None]
    return PathwayMaps(
        tokens=tokens,
        allowed=allowed,
        key_classes=classes.view_as(tokens),
        members=Segments(rows, starts_class.nonzero()[:, 0]),
        markers={token: _find_marker(tokens, real, name, token) for name, token in heads.markers.items()},
        real=real,
    )


def _find_marker(tokens: Tensor, real: Tensor | None, name: str, token: int) -> Segments:
    """The positions of a token, one group for each sequence."""
    holds_token = tokens == token
    if real is not None:
        holds_token = holds_token & real
    counts = holds_token.sum(1)
    if (counts == 0).any():
        raise ValueError(
            f"sequence {int((counts == 0).nonzero()[0])} of tokens has no [{name.upper()}] (id {token}) to broadcast "
            f"from; every sequence needs one, outside its padding."
        )
    return Segments(holds_token.flatten().nonzero()[:, 0], counts.cumsum(0) - counts)
