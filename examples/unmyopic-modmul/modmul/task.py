"""The task `a b =`: predict a + b modulo p."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from interp.tasks import Batch, Task, Vocab


@dataclass(frozen=True, kw_only=True)
class ModularAddition(Task):
    """Sums of two numbers modulo p, predicted at `=`.

    A fixed permutation assigns each unordered pair to one split: three quarters to training, one eighth each to
    validation and test.

    Raises:
        ValueError: a modulus below 5, which leaves a split without pairs.
    """

    p: int = 31
    """The modulus."""
    task_name: ClassVar[str] = "modadd"

    def __post_init__(self):
        if self.p < 5:
            raise ValueError(f"p is {self.p}; the modulus must be at least 5, so that every split has pairs.")

    @property
    def vocab(self) -> Vocab:
        return Vocab([*map(str, range(self.p)), "="])

    @property
    def targets(self) -> tuple[str, ...]:
        return ("sum",)

    @property
    def title(self) -> str:
        return "modular addition"

    @property
    def d_vocab_out(self) -> int:
        """Number of possible sums."""
        return self.p

    def sample(self, n: int, *, generator: torch.Generator, split: str = "train") -> Batch:
        """Sample n sums of a split."""
        pairs = self._pairs(split)
        return self._batch(pairs[torch.randint(len(pairs), (n,), generator=generator)])

    def every_input(self, split: str = "test") -> Batch:
        """Every sum of a split once, for analyses with `n="all"`."""
        return self._batch(self._pairs(split))

    def _pairs(self, split: str) -> Int[Tensor, "pair 2"]:
        pairs = torch.combinations(torch.arange(self.p), with_replacement=True)
        part = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(0)) % 8
        return pairs[{"train": part > 1, "validation": part == 0, "test": part == 1}[split]]

    def read(self, text: str) -> Batch:
        """Parse one sum, such as `3 30 =`."""
        numbers = [token for token in self.vocab.encode(text) if token < self.p]
        if len(numbers) != 2:
            raise ValueError(f"the text {text!r} has {len(numbers)} numbers; give two and '=', such as '3 4 ='.")
        return self._batch(torch.tensor([numbers]))

    def _batch(self, pairs: Int[Tensor, "batch 2"]) -> Batch:
        n = len(pairs)
        return Batch(
            tokens=torch.cat([pairs, torch.full((n, 1), self.p)], 1),
            target_positions=torch.full((n, 1), 2),
            labels=pairs.sum(1, keepdim=True) % self.p,
            supervised=torch.ones(1, dtype=torch.bool),
        )

    @property
    def default_sizes(self) -> dict[str, Any]:
        """One layer without positions: the order of a and b does not matter."""
        return {"n_layers": 1, "positions": "none", "init": "normal"}

    def recipe(self) -> dict[str, Any]:
        """Weight decay, without which the model only memorises the training pairs."""
        return {"steps": 400, "batch_size": 256, "learning_rate": 1e-2, "weight_decay": 1.0}
