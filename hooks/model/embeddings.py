"""Token embeddings: a learned vector per token, or a frozen one for each bracket type and depth.

The frozen one replaces a *minimal first layer* (bounded-Dyck paper, Assumption 1), whose output at a bracket depends
only on the bracket's type and depth. A model with it has a single layer, whose terms have closed forms.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.checks import check_fields
from hooks.model.layers import Layer, Module, check_ids, look_up
from hooks.typed import check_field_types

Encoding = Literal["pair", "type_and_depth", "type_and_angle"]


@dataclass(frozen=True, kw_only=True)
class BracketStates:
    """Frozen embeddings of (bracket, depth). Every other token has a separate coordinate.

    Openers and closers alternate from id `first_bracket`, type by type. Depth is counted after the bracket: the opener
    of a pair has depth d, its closer d - 1.

    Source: bounded-Dyck paper (arXiv:2312.01429). `pair`: one-hot of (bracket, depth), Eq. 19. `type_and_depth`:
    one-hot of the bracket, one-hot of its pair's depth, Eq. 20. `type_and_angle`: one-hot of the bracket, and cosine
    and sine of arctan(depth / (max_depth + 2 - depth)), Eq. 21.

    Raises:
        ValueError: an unknown encoding, or fewer than one type, level or token before the brackets.
    """

    encoding: Encoding = "pair"
    n_types: int
    max_depth: int
    first_bracket: int = 3

    def __post_init__(self):
        check_field_types(self)
        check_fields(self, "n_types", "max_depth", "first_bracket", integer=True, low=1)

    @property
    def d_vocab(self) -> int:
        return self.first_bracket + 2 * self.n_types

    @property
    def width(self) -> int:
        """Number of coordinates used; the rest of the residual stream starts at zero."""
        bracket_widths = {
            "pair": 2 * self.n_types * self.max_depth,
            "type_and_depth": 2 * self.n_types + self.max_depth,
            "type_and_angle": 2 * self.n_types + 2,
        }
        return self.first_bracket + bracket_widths[self.encoding]

    def row(self, token: int | Tensor, depth: int | Tensor) -> Any:
        """The row of the table for a token at a depth."""
        return token * (self.max_depth + 1) + depth

    def table(self, d_model: int) -> Float[Tensor, "state d_model"]:
        """The vector of every token at every depth from 0 to `max_depth`; zero if a bracket cannot have that depth."""
        table = torch.zeros(self.d_vocab, self.max_depth + 1, d_model)
        # Tokens that are no brackets: one coordinate each, at every depth
        for token in range(self.first_bracket):
            table[token, :, token] = 1
        # Brackets, openers and closers in turn: depth is counted after the bracket
        for bracket in range(2 * self.n_types):
            token = self.first_bracket + bracket
            closes = bracket % 2
            for depth in range(1 - closes, self.max_depth + 1 - closes):
                pair_depth = depth + closes - 1  # from 0
                if self.encoding == "pair":
                    table[token, depth, self.first_bracket + bracket * self.max_depth + pair_depth] = 1
                    continue
                table[token, depth, token] = 1
                if self.encoding == "type_and_depth":
                    table[token, depth, self.d_vocab + pair_depth] = 1
                else:
                    angle = torch.atan(torch.tensor(depth / (self.max_depth + 2 - depth)))
                    table[token, depth, self.d_vocab] = angle.cos()
                    table[token, depth, self.d_vocab + 1] = angle.sin()
        return table.flatten(0, 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return dict(vars(self))


class TokenEmbedding(Layer):
    """One learned vector per token, token type or position.

    Args:
        d_vocab: Number of ids.
        d_model: Width of the vectors.
        ids: What error texts call the ids.
        limit: What error texts call the number of ids.
    """

    def __init__(self, d_vocab: int, d_model: int, *, ids: str = "tokens", limit: str = "d_vocab"):
        super().__init__()
        self.ids, self.limit = ids, limit
        self.weight = nn.Parameter(torch.empty(d_vocab, d_model))

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
        """The vectors of these ids."""
        return look_up(self.weight, tokens, self.ids, self.limit)

    def example(self, n: int, pos: int, generator: torch.Generator) -> Int[Tensor, "n pos"]:
        """Tokens that the model reads."""
        return torch.randint(len(self.weight), (n, pos), generator=generator)


class BracketEmbedding(Module):
    """The frozen vector of each bracket at its depth; depth is counted from the tokens."""

    weight: Tensor

    def __init__(self, states: BracketStates, d_model: int):
        super().__init__()
        self.states = states
        self.register_buffer("weight", states.table(d_model), persistent=False)

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
        """The vectors of these tokens at their depths.

        Raises:
            ValueError: tokens that are not a prefix of a word, or outside the vocabulary.
        """
        check_ids(tokens, self.states.d_vocab, "tokens", "d_vocab")
        # An opener adds one to the depth, a closer takes one away
        bracket = tokens - self.states.first_bracket
        depth = torch.where(bracket >= 0, 1 - 2 * (bracket % 2), 0).cumsum(1)
        if depth.numel() and not 0 <= int(depth.min()) <= int(depth.max()) <= self.states.max_depth:
            raise ValueError(
                f"tokens go from depth {int(depth.min())} to {int(depth.max())}; a minimal first layer has depths 0 "
                f"to {self.states.max_depth}. Is every row a prefix of a word of the language?"
            )
        return look_up(self.weight, self.states.row(tokens, depth), "tokens", "d_vocab")

    def example(self, n: int, pos: int, generator: torch.Generator) -> Int[Tensor, "n pos"]:
        """Valid tokens: pairs of brackets of random types, each closed right after it opens."""
        kinds = torch.randint(self.states.n_types, (n, (pos + 1) // 2), generator=generator).repeat_interleave(2, 1)
        return self.states.first_bracket + 2 * kinds[:, :pos] + torch.arange(pos) % 2
