"""Symbol alphabets for training, validation and test, and sampling without replacement."""

from collections.abc import Collection, Mapping, Sequence

import torch
from jaxtyping import Int

from interp.tasks.base import Split

Alphabet = int | tuple[str, ...]
"""Number of symbols, or their names."""
_LETTER = {"train": "t", "validation": "v", "test": "u"}


def size_of(alphabet: Alphabet) -> int:
    """Number of symbols."""
    return alphabet if isinstance(alphabet, int) else len(alphabet)


def names_of(alphabet: Alphabet, split: Split) -> Sequence[str]:
    """Names of the symbols; default: t0, t1, ... for training, v0, ... for validation, u0, ... for test."""
    return [f"{_LETTER[split]}{index}" for index in range(alphabet)] if isinstance(alphabet, int) else alphabet


def check_alphabets(alphabets: Mapping[Split, Alphabet], *, fixed: Collection[str], most: int) -> None:
    """Check that alphabets are large enough, disjoint, and free of fixed tokens.

    Args:
        alphabets: By split.
        fixed: Fixed tokens.
        most: Largest number of wildcards of a template.

    Raises:
        ValueError: an alphabet with fewer symbols than `most`, or a symbol in two alphabets or among the fixed tokens.
    """
    seen: dict[str, str] = dict.fromkeys(fixed, "the fixed tokens")
    for split, alphabet in alphabets.items():
        if size_of(alphabet) < most:
            raise ValueError(
                f"the {split} alphabet has {size_of(alphabet)} symbols; a template has {most} different "
                f"wildcards: give at least {most}."
            )
        for name in names_of(alphabet, split):
            if name in seen:
                raise ValueError(
                    f"the symbol {name!r} of the {split} alphabet is also in {seen[name]}; it would not be "
                    f"unseen. Alphabets must be disjoint and contain no fixed token."
                )
            seen[name] = f"the {split} alphabet"


def choose_distinct(n: int, out_of: int, count: int, generator: torch.Generator) -> Int[torch.Tensor, "n count"]:
    """For each of n rows, `count` distinct numbers below `out_of`, in random order; time and memory O(n count^2)."""
    chosen = torch.empty(n, 0, dtype=torch.long)
    for done in range(count):
        new = torch.randint(out_of - done, (n,), generator=generator)
        for smaller in chosen.sort(1).values.unbind(1):  # the new-th number not yet chosen
            new = new + (new >= smaller)
        chosen = torch.cat([chosen, new[:, None]], 1)
    return chosen
