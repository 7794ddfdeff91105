"""Seeds: any integer is one, also those that torch and numpy refuse."""

import hashlib
from operator import index

import torch

from hooks.checks import check_number

MOST = 2**63
"""Seeds below this are used as they are, so that their random numbers are those of torch and numpy."""


def derived_seed(seed: int, *names: str | int) -> int:
    """The 63-bit seed of a named stream, the same on every machine."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def usable_seed(seed: int) -> int:
    """A seed that torch and numpy accept: the seed itself, or one derived from it if it is negative or too large.

    >>> from hooks.randomness import usable_seed
    >>> usable_seed(3), usable_seed(-1)
    (3, 997184231609768190)

    Raises:
        ValueError: not an integer.
    """
    check_number("seed", seed, integer=True)
    seed = index(seed)
    return seed if 0 <= seed < MOST else derived_seed(seed)


def seeded_generator(seed: int) -> torch.Generator:
    """A CPU generator of a seed, which may be any integer.

    Raises:
        ValueError: not an integer.
    """
    return torch.Generator().manual_seed(usable_seed(seed))
