"""The task of recalling earlier tokens: random letters with repeats by chance, and one answer at the last of them."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from hooks.checks import check_choice
from hooks.typed import check_field_types
from interp.tasks.base import AttentionKind, Batch, Split, Task
from interp.tasks.vocab import Vocab, vocab_of

Question = Literal["follows", "where", "first", "repeated"]
"""`follows`: which letter followed the earlier occurrence of the last one? `where`: in which quarter of the letters was
that occurrence? `first`: what is the first token? `repeated`: does the last letter occur earlier?"""
QUARTERS = 4


@dataclass(frozen=True, kw_only=True)
class Recall(Task):
    """Sequences of a mark and random letters, such as `[0] c a f a b c`, and a question at the last letter.

    Letters are independent, so that they repeat by chance, but the last one occurs earlier exactly once (question
    `repeated`: with a probability of one half, else not at all). Splits are independent draws.

    Raises:
        ValueError: fewer than two letters, fewer than eight of them in a sequence, or an unknown question.

    >>> import torch
    >>> from interp.known_answers.recall.task import Recall
    >>> task = Recall(question="follows", letters=5, length=8)
    >>> batch = task.sample(1, generator=torch.Generator().manual_seed(0))
    >>> task.vocab.decode(batch.tokens[0]), task.answer_names[batch.labels[0, 0]]
    ('[0]deadddde', 'a')
    """

    question: Question = "follows"
    letters: int = 20
    """Size of the alphabet."""
    length: int = 16
    """Number of letters of a sequence, the last one included."""
    marks: int = 1
    """Number of different first tokens."""

    disjoint_splits: ClassVar[bool] = False  # type: ignore[assignment]

    def __post_init__(self):
        check_field_types(self)
        check_choice("question", self.question, Question)
        if self.letters < 2:
            raise ValueError(f"letters is {self.letters}; two or more are needed.")
        if self.length < 2 * QUARTERS:
            raise ValueError(f"length is {self.length}; {2 * QUARTERS} or more letters are needed.")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the letters."""
        return tuple(chr(ord("a") + index) for index in range(self.letters))

    @property
    def vocab(self) -> Vocab:
        """Marks, then letters."""
        return vocab_of((*(f"[{mark}]" for mark in range(self.marks)), *self.names))

    @property
    def answer_names(self) -> tuple[str, ...]:
        """The possible answers to the question."""
        names_by_question = {
            "follows": self.names,
            "where": tuple(f"quarter {quarter}" for quarter in range(1, QUARTERS + 1)),
            "first": self.vocab.names[: self.marks],
            "repeated": ("no", "yes"),
        }
        return names_by_question[self.question]

    @property
    def d_vocab_out(self) -> int:
        """Number of answers."""
        return len(self.answer_names)

    @property
    def n_ctx(self) -> int:
        """The mark and the letters."""
        return 1 + self.length

    @property
    def attention(self) -> AttentionKind:
        """Causal."""
        return "causal"

    @property
    def targets(self) -> tuple[str, ...]:
        """The answer at the last letter."""
        return ("answer",)

    @property
    def title(self) -> str:
        return "recalling earlier tokens"

    def quarter(self, position: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        """Quarter of the letters before the last one that a position is in, from 0 on; [0] is in the first."""
        return ((position - 1).clamp_min(0) * QUARTERS // (self.length - 1)).clamp_max(QUARTERS - 1)

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> Batch:
        """Draw n sequences; all splits are the same."""
        n_before = self.length - 1
        last = torch.randint(self.letters, (n, 1), generator=generator)
        # Letters other than the last one, then its earlier occurrence, not next to it so that a letter is in between
        letters = (last + torch.randint(1, self.letters, (n, n_before), generator=generator)) % self.letters
        place = torch.randint(n_before - 1, (n, 1), generator=generator)
        occurs = torch.ones(n, 1, dtype=torch.bool)
        if self.question == "repeated":
            occurs = torch.randint(2, (n, 1), generator=generator).bool()
        letters = torch.where(occurs, letters.scatter(1, place, last), letters)
        mark = torch.randint(self.marks, (n, 1), generator=generator)
        labels = {
            "follows": letters.gather(1, place + 1),
            "where": self.quarter(1 + place),
            "first": mark,
            "repeated": occurs.long(),
        }
        return Batch(
            tokens=torch.cat([mark, self.marks + letters, self.marks + last], 1),
            target_positions=torch.full((n, 1), self.length),
            labels=labels[self.question],
            supervised=torch.ones(1, dtype=torch.bool),
        )
