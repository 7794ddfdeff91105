"""Abstract symbols: disjoint alphabets for training, validation and test, and draws without repetition."""

from collections.abc import Collection, Mapping, Sequence

import torch
from jaxtyping import Int

from interp.tasks.base import Split

Alphabet = int | tuple[str, ...]
"""How many symbols, or their names."""
_LETTER = {"train": "t", "validation": "v", "test": "u"}


def size_of(alphabet: Alphabet) -> int:
    """Number of symbols."""
    return alphabet if isinstance(alphabet, int) else len(alphabet)


def names_of(alphabet: Alphabet, split: Split) -> Sequence[str]:
    """Names of the symbols; t0, t1 ... for training, v0 ... for validation, u0 ... for test, where none are given."""
    return [f"{_LETTER[split]}{index}" for index in range(alphabet)] if isinstance(alphabet, int) else alphabet


def check_alphabets(alphabets: Mapping[Split, Alphabet], *, fixed: Collection[str], most: int) -> None:
    """Refuse alphabets on which a model could not be tested on unseen symbols.

    Args:
        alphabets: By split.
        fixed: Tokens that are no symbols.
        most: Wildcards of the template that has most.

    Raises:
        ValueError: an alphabet with fewer symbols than that, or a symbol in two of them or among the fixed tokens.
    """
    seen: dict[str, str] = dict.fromkeys(fixed, "the fixed tokens")
    for split, alphabet in alphabets.items():
        if size_of(alphabet) < most:
            raise ValueError(
                f"the {split} alphabet has {size_of(alphabet)} symbols; a template has {most} wildcards, which stand "
                f"for different ones: give at least {most}."
            )
        for name in names_of(alphabet, split):
            if name in seen:
                raise ValueError(
                    f"the symbol {name!r} of the {split} alphabet is also in {seen[name]}; nothing would be unseen "
                    f"then. Alphabets must be disjoint, and hold no fixed token."
                )
            seen[name] = f"the {split} alphabet"


def choose_distinct(n: int, out_of: int, count: int, generator: torch.Generator) -> Int[torch.Tensor, "n count"]:
    """For each of n rows, `count` different numbers below `out_of`, in random order: time and memory n count^2."""
    chosen = torch.empty(n, 0, dtype=torch.long)
    for done in range(count):
        new = torch.randint(out_of - done, (n,), generator=generator)
        for smaller in chosen.sort(1).values.unbind(1):  # the new-th of those not yet taken
            new = new + (new >= smaller)
        chosen = torch.cat([chosen, new[:, None]], 1)
    return chosen
