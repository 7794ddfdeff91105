"""The modular addition task `a b =`: predict a + b modulo p."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from hooks.checks import check_choice, check_number
from hooks.typed import check_field_types, checks_types
from interp.tasks.base import Batch, Split, Task
from interp.tasks.relations import for_every_query
from interp.tasks.splits import check_few_inputs, rows_of_split
from interp.tasks.vocab import Vocab, vocab_of


@dataclass(frozen=True, kw_only=True)
class ModularAddition(Task):
    """Sums of two numbers modulo p, such as `3 30 =`, predicted at the equals sign.

    A fixed permutation assigns each unordered pair of numbers to one split: three quarters to training, one eighth each
    to validation and test. So a model that memorises the training sums is at chance on held-out ones, and one that
    computes sums is not.

    A subclass with another `operation` is another task on the same pairs.

    Source: Power et al. 2022 (arXiv:2201.02177); Nanda et al. 2023 (arXiv:2301.05217). Differs: p = 31 in place of 97
    and 113, so that it is learned in seconds; a pair and its mirror image are in one split.

    Raises:
        ValueError: a modulus below 5, which leaves a split with few pairs.

    >>> from interp.tasks import ModularAddition
    >>> task = ModularAddition(p=31)
    >>> batch = task.read("3 30 =")
    >>> batch.tokens.tolist(), batch.labels.tolist()
    ([[3, 30, 31]], [[2]])
    """

    p: int = 31
    """The modulus."""

    def __post_init__(self):
        check_field_types(self)
        check_number("p", self.p, integer=True, low=5)

    @property
    def vocab(self) -> Vocab:
        """The numbers, then the equals sign."""
        return vocab_of((*map(str, range(self.p)), "="))

    @property
    def targets(self) -> tuple[str, ...]:
        return ("sum",)

    @property
    def d_vocab_out(self) -> int:
        """Number of possible results."""
        return self.p

    @property
    def n_ctx(self) -> int:
        """Two numbers and the equals sign."""
        return 3

    def operation(self, a: Int[Tensor, " batch"], b: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """The result for two numbers, from 0 to p - 1: their sum. It must be the same if they are exchanged, or the
        mirror images of training pairs are held-out questions of another kind."""
        return (a + b) % self.p

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> Batch:
        """Sample n pairs of a split, each in a random order.

        Raises:
            ValueError: a negative n, or an unknown split.
        """
        check_number("n", n, integer=True, low=0)
        pairs = self._ordered_pairs(split)
        return self.from_pairs(pairs[torch.randint(len(pairs), (n,), generator=generator)])

    def every_input(self, split: Split = "test") -> Batch:
        """Every pair of a split in either order, each once.

        Raises:
            ValueError: an unknown split, or more than 131,072 pairs.
        """
        pairs = self._ordered_pairs(split)
        check_few_inputs(self, len(pairs))
        return self.from_pairs(pairs)

    def _ordered_pairs(self, split: Split) -> Int[Tensor, "pair 2"]:
        """The pairs of a split and their mirror images."""
        check_choice("split", split, Split)
        pairs = torch.combinations(torch.arange(self.p), with_replacement=True)
        pairs = pairs[rows_of_split(len(pairs), split)]
        is_double = pairs[:, 0] == pairs[:, 1]
        return torch.cat([pairs, pairs[~is_double].flip(1)])

    def from_pairs(self, pairs: Int[Tensor, "batch 2"]) -> Batch:
        """Build examples from pairs of numbers."""
        n = len(pairs)
        a, b = pairs.unbind(1)
        return Batch(
            tokens=torch.cat([pairs, torch.full((n, 1), self.p)], 1),
            target_positions=torch.full((n, 1), 2),
            labels=self.operation(a, b)[:, None],
            supervised=torch.ones(1, dtype=torch.bool),
        )

    @checks_types
    def read(self, text: str) -> Batch:
        """Parse one pair, such as `3 30 =`; the equals sign is optional.

        Raises:
            ValueError: an unknown token, or another number of numbers.
        """
        tokens = self.vocab.encode(text)
        numbers = [token for token in tokens if token < self.p]
        if len(numbers) != 2 or tokens[:2] != numbers:
            raise ValueError(f"the text {text!r} has {len(numbers)} numbers; give two and '=', such as '3 4 ='.")
        return self.from_pairs(torch.tensor([numbers]))

    def text(self, tokens: Int[Tensor, " pos"]) -> str:
        """Tokens with spaces between them: `3 30 =`."""
        return " ".join(self.vocab.words(tokens))

    def relations(self, batch: Batch) -> dict[str, Bool[Tensor, "batch query key"]]:
        """`operands`: both numbers, for every query."""
        return {"operands": for_every_query(batch.tokens < self.p)}

    @property
    def default_sizes(self) -> dict[str, Any]:
        """One layer without positions: the order of the numbers does not matter."""
        return {"n_layers": 1, "positions": "none", "init": "normal"}

    def recipe(self) -> dict[str, Any]:
        """Weight decay, without which a model only memorises the training pairs."""
        return {"steps": 800, "batch_size": 256, "learning_rate": 1e-2, "weight_decay": 1.0}
