"""The task of looking letters up: statements such as `c=2`, then queries such as `c?`.

Axes: `statement` statements of a sequence, `slot` queries at its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.checks import check_choice
from hooks.typed import check_field_types
from interp.tasks.base import AttentionKind, Batch, Score, Split, Task
from interp.tasks.vocab import Vocab, vocab_of

Asks = Literal["value", "theme"]
"""What a query asks for: the value of a letter, or the theme of its statement."""
Hint = Literal["random", "right"]
"""The value that a query token hints at."""
BOS = 0


@dataclass(frozen=True, kw_only=True)
class LookupBatch(Batch):
    """Sequences of statements and queries."""

    letter: Int[Tensor, "batch statement"]
    """Letter of each statement."""
    named: Int[Tensor, "batch slot"]
    """Letter that each query names."""
    asked: Int[Tensor, "batch slot"]
    """Letter that each query asks for."""


@dataclass(frozen=True, kw_only=True)
class Lookup(Task):
    """Sequences `[BOS] c=2 a=0 f=1 ... c?`: a statement about each of several letters, and queries about some of them.

    A statement is one token: a letter, its value and a theme. A query is one token too: the letter that it names, a
    value that it hints at, and a level, which a model may read as the strength of the hint. Splits are independent
    draws.

    Raises:
        ValueError: more statements than letters, fewer than queries, or options that do not fit together.

    >>> import torch
    >>> from interp.known_answers.lookup.task import Lookup
    >>> task = Lookup(letters=3, values=2, statements=2)
    >>> batch = task.sample(1, generator=torch.Generator().manual_seed(0))
    >>> task.vocab.words(batch.tokens[0]), batch.labels.tolist()
    (['[BOS]', 'b=0', 'c=0', 'c?'], [[0]])
    """

    letters: int = 10
    """Size of the alphabet."""
    values: int = 4
    statements: int = 6
    asks: tuple[Asks, ...] = ("value",)
    """What each query asks for."""
    shift: int = 0
    """A query that names a letter asks for the letter that comes this many places later in the alphabet."""
    levels: tuple[tuple[float, ...], ...] = ((1.0,),)
    """Probabilities of the levels of each query; a single row is for all of them."""
    hint: Hint = "random"
    themes: int = 1
    """Number of themes. Every statement of a sequence has the same, but see `active`."""
    active: int = 0
    """If positive, queries ask for one of the first so many statements, and the others have the next theme."""
    balanced: bool = False
    """Whether every value is stated the same number of times."""
    rare_letters: int = 0
    """Number of letters, the last ones of the alphabet, that are asked for with the probability `share`."""
    share: float = 0.0
    named_stratum: bool = False
    """Whether the accuracy on queries for rare letters is an outcome."""

    disjoint_splits: ClassVar[bool] = False  # type: ignore[assignment]

    def __post_init__(self):
        check_field_types(self)
        check_choice("hint", self.hint, Hint)
        for question in self.asks:
            check_choice("asks", question, Asks)
        if not len(self.asks) <= self.statements <= self.letters:
            raise ValueError(
                f"statements is {self.statements}; it must be from {len(self.asks)}, the number of queries, to "
                f"{self.letters}, the number of letters."
            )
        if self.balanced and self.statements % self.values:
            raise ValueError(
                f"statements is {self.statements}, no multiple of values {self.values}; set balanced=False."
            )
        if len(self.levels) not in (1, len(self.asks)):
            raise ValueError(
                f"levels has {len(self.levels)} rows; give one, or one for each of {len(self.asks)} queries."
            )
        if self.active and (self.active > self.statements or len(self.asks) > 1):
            raise ValueError(f"active is {self.active}; it needs so many statements, and a single query.")
        if self.named_stratum and (not self.rare_letters or len(self.asks) > 1):
            raise ValueError("named_stratum needs rare letters and a single query.")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of letters."""
        return tuple(chr(ord("a") + index) for index in range(self.letters))

    @property
    def n_levels(self) -> int:
        """Number of levels of a query."""
        return max(map(len, self.levels))

    @property
    def first_query(self) -> int:
        """Token id of the first query."""
        return 1 + self.letters * self.values * self.themes

    @property
    def vocab(self) -> Vocab:
        """[BOS], statements by letter, value and theme, then queries by slot, letter, hint and level."""
        statements = [
            f"{letter}={value}" + (f"/{theme}" if self.themes > 1 else "")
            for letter in self.names
            for value in range(self.values)
            for theme in range(self.themes)
        ]
        queries = [
            f"{letter}{'?' * (slot + 1)}" + (f"{value}~{level}" if self.n_hints > 1 else "")
            for slot in range(len(self.asks))
            for letter in self.names
            for value in range(self.n_hints)
            for level in range(self.n_levels)
        ]
        return vocab_of(("[BOS]", *statements, *queries))

    @property
    def n_hints(self) -> int:
        """Number of values that a query can hint at: 1 if there are no hints."""
        return self.values if self.n_levels > 1 or self.hint == "right" else 1

    @property
    def d_vocab_out(self) -> int:
        """Values, then themes if there are several."""
        return self.values + (self.themes if self.themes > 1 else 0)

    @property
    def answer_names(self) -> tuple[str, ...]:
        """Values and themes."""
        values = tuple(f"value {value}" for value in range(self.values))
        return values + tuple(f"theme {theme}" for theme in range(self.d_vocab_out - self.values))

    @property
    def n_ctx(self) -> int:
        """[BOS], statements and queries."""
        return 1 + self.statements + len(self.asks)

    @property
    def attention(self) -> AttentionKind:
        """Causal."""
        return "causal"

    @property
    def targets(self) -> tuple[str, ...]:
        """An answer for each query."""
        if len(self.asks) == 1:
            return ("answer",)
        return tuple(f"answer {slot + 1}" for slot in range(len(self.asks)))

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The answers, and the answers to queries for rare letters if they are named."""
        return (*self.targets, "answer for rare letters") if self.named_stratum else self.targets

    @property
    def chances(self) -> tuple[float, ...]:
        """Uniform guessing among values, or among themes."""
        by_slot = tuple(1 / self.values if question == "value" else 1 / self.themes for question in self.asks)
        return by_slot * 2 if self.named_stratum else by_slot

    @property
    def title(self) -> str:
        return "looking letters up"

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> LookupBatch:
        """Draw n sequences; all splits are the same."""
        asked = self._draw_asked(n, generator)
        letter = self._draw_letters(asked, generator)
        # Values and themes of the statements
        if self.balanced:
            value = torch.rand(n, self.statements, generator=generator, dtype=torch.float32).argsort(1) % self.values
        else:
            value = torch.randint(self.values, (n, self.statements), generator=generator)
        theme = torch.randint(self.themes, (n, 1), generator=generator).expand(-1, self.statements)
        if self.active:
            is_passive = torch.arange(self.statements) >= self.active
            theme = (theme + is_passive) % self.themes
        # Labels: what is stated of the letters that are asked for
        place = (letter[:, None] == asked[..., None]).int().argmax(-1)
        right_value = value.gather(1, place)
        asks_for_theme = torch.tensor([question == "theme" for question in self.asks])
        labels = torch.where(asks_for_theme, self.values + theme.gather(1, place), right_value)
        # Tokens
        named = (asked - self.shift) % self.letters
        statements = 1 + (letter * self.values + value) * self.themes + theme
        tokens = [torch.full((n, 1), BOS), statements, self._draw_queries(named, right_value, generator)]
        positions = torch.arange(1 + self.statements, self.n_ctx)
        return LookupBatch(
            tokens=torch.cat(tokens, 1),
            target_positions=positions.expand(n, -1).clone(),
            labels=labels,
            supervised=torch.ones(len(self.asks), dtype=torch.bool),
            letter=letter,
            named=named,
            asked=asked,
        )

    def _draw_asked(self, n: int, generator: torch.Generator) -> Int[Tensor, "batch slot"]:
        """Different letters to ask for."""
        weights = torch.ones(n, self.letters, dtype=torch.float64)
        if self.rare_letters:
            n_common = self.letters - self.rare_letters
            weights[:, :n_common] = (1 - self.share) / n_common
            weights[:, n_common:] = self.share / self.rare_letters
        return torch.multinomial(weights, len(self.asks), generator=generator)

    def _draw_letters(self, asked: Int[Tensor, "batch slot"], generator: torch.Generator) -> Tensor:
        """Different letters of the statements, in random order, those that are asked for among them."""
        priority = torch.rand(len(asked), self.letters, generator=generator, dtype=torch.float32).scatter(1, asked, 2.0)
        letter = priority.topk(self.statements).indices
        order = torch.rand(len(asked), self.statements, generator=generator, dtype=torch.float32).argsort(1)
        letter = letter.gather(1, order)
        if self.active:
            # Exchange the letter that is asked for with an active one
            goal = torch.randint(self.active, (len(asked), 1), generator=generator)
            place = (letter == asked).int().argmax(1, keepdim=True)
            exchanged = letter.scatter(1, place, letter.gather(1, goal))
            letter = exchanged.scatter(1, goal, asked)
        return letter

    def _draw_queries(
        self, named: Int[Tensor, "batch slot"], value: Int[Tensor, "batch slot"], generator: torch.Generator
    ) -> Int[Tensor, "batch slot"]:
        """Tokens of the queries."""
        n, n_slots = named.shape
        hint = value if self.hint == "right" else torch.randint(self.n_hints, (n, n_slots), generator=generator)
        rows = self.levels * n_slots if len(self.levels) == 1 else self.levels
        level = torch.stack(
            [torch.multinomial(torch.tensor(row).double(), n, replacement=True, generator=generator) for row in rows], 1
        )
        return self.first_query + self.query_index(torch.arange(n_slots), named, hint, level)

    def query_index(self, slot: Tensor, letter: Tensor, hint: Tensor, level: Tensor) -> Tensor:
        """Index of a query token among the queries."""
        return ((slot * self.letters + letter) * self.n_hints + hint) * self.n_levels + level

    def score(self, target_logits: Float[Tensor, "batch target d_vocab_out"], batch: LookupBatch) -> Score:
        """Right answers; with `named_stratum` also those for rare letters alone."""
        score = super().score(target_logits, batch)
        if not self.named_stratum:
            return score
        is_rare = (batch.asked >= self.letters - self.rare_letters).to(score.right)
        counted = torch.cat([torch.ones_like(is_rare), is_rare], 1)
        return Score(right=score.right * counted, loss=score.loss * counted, total=counted)

    def relations(self, batch: LookupBatch) -> dict[str, Bool[Tensor, "batch query key"]]:
        """`same_token`: for each query, the statement about the letter that it names."""
        n, pos = batch.tokens.shape
        related = torch.zeros(n, pos, pos, dtype=torch.bool)
        statements = slice(1, 1 + self.statements)
        related[:, 1 + self.statements :, statements] = batch.named[..., None] == batch.letter[:, None]
        return {"same_token": related}


def level_rows(*rows: Sequence[float]) -> tuple[tuple[float, ...], ...]:
    """Rows of probabilities of the same length, with levels that do not occur at the end of shorter ones."""
    size = max(map(len, rows))
    return tuple((*row, *[0.0] * (size - len(row))) for row in rows)
