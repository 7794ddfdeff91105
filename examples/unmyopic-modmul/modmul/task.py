"""The task `a b =`: predict a times b modulo p."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from interp.tasks import ModularAddition


@dataclass(frozen=True, kw_only=True)
class ModularMultiplication(ModularAddition):
    """Products of two numbers modulo p, predicted at the equals sign.

    Splits, sizes of models and recipe are those of modular addition.
    """

    @property
    def targets(self) -> tuple[str, ...]:
        return ("product",)

    @property
    def title(self) -> str:
        return "modular multiplication"

    def operation(self, a: Int[Tensor, " batch"], b: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """The product."""
        return (a * b) % self.p
