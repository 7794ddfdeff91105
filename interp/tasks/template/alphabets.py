"""Alphabets of the splits: symbols that replace wildcards."""

from collections.abc import Collection, Mapping, Sequence

from interp.tasks.base import Split

Alphabet = int | tuple[str, ...]
"""Number of symbols, or their names."""
LETTER_OF = {"train": "t", "validation": "v", "test": "u"}


def size_of(alphabet: Alphabet) -> int:
    """Number of symbols."""
    return alphabet if isinstance(alphabet, int) else len(alphabet)


def names_of(alphabet: Alphabet, split: Split) -> Sequence[str]:
    """Names of the symbols; default: t0, t1, ... for training, v0, ... for validation, u0, ... for test."""
    if isinstance(alphabet, int):
        return [f"{LETTER_OF[split]}{index}" for index in range(alphabet)]
    return alphabet


def check_alphabets(alphabets: Mapping[Split, Alphabet], *, fixed: Collection[str], most: int) -> None:
    """Check that alphabets are large enough, disjoint, and free of fixed tokens.

    Args:
        alphabets: By split.
        fixed: Fixed tokens.
        most: Largest number of wildcards of a template.

    Raises:
        ValueError: an alphabet with fewer symbols than `most`, or a symbol in two alphabets or among the fixed tokens.
    """
    # what each token belongs to: one alphabet, or the fixed tokens
    owner_of: dict[str, str] = dict.fromkeys(fixed, "the fixed tokens")
    for split, alphabet in alphabets.items():
        if size_of(alphabet) < most:
            raise ValueError(
                f"the {split} alphabet has {size_of(alphabet)} symbols; a template has {most} different "
                f"wildcards: give at least {most}."
            )
        for name in names_of(alphabet, split):
            if name in owner_of:
                raise ValueError(
                    f"the symbol {name!r} of the {split} alphabet is also in {owner_of[name]}; it would not be "
                    f"unseen. Alphabets must be disjoint and contain no fixed token."
                )
            owner_of[name] = f"the {split} alphabet"
