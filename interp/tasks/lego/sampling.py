"""Random contents of LEGO sentences.

A content has three fields for each variable of a chain: the index of its letter, of its operation, and of the clause
that defines it.
"""

from itertools import permutations, product
from math import factorial, perm

import torch
from jaxtyping import Int
from torch import Tensor

from interp.tasks.contents import draw_distinct


def number_of_contents(n_vars: int, *, n_letters: int, n_operations: int, shuffled: bool) -> int:
    """Number of contents in all splits together."""
    return perm(n_letters, n_vars) * n_operations**n_vars * (factorial(n_vars) if shuffled else 1)


def every_content(
    n_vars: int, *, n_letters: int, n_operations: int, shuffled: bool
) -> Int[Tensor, "content target field"]:
    """Every content of any split once: those that `draw_content` can draw, in increasing order."""
    letters = torch.tensor(list(permutations(range(n_letters), n_vars)))
    operations = torch.tensor(list(product(range(n_operations), repeat=n_vars)))
    orders = torch.arange(n_vars)[None]
    if shuffled:
        orders = torch.tensor(list(permutations(range(n_vars))))
    # every combination of the three
    rows = torch.cartesian_prod(*(torch.arange(len(choices)) for choices in (letters, operations, orders)))
    return torch.stack([letters[rows[:, 0]], operations[rows[:, 1]], orders[rows[:, 2]]], -1)


def draw_content(
    n: int, n_vars: int, *, n_letters: int, n_operations: int, shuffled: bool, generator: torch.Generator
) -> Int[Tensor, "n target field"]:
    """Contents of any split: distinct letters, independent operations, and clauses in random order if shuffled."""
    letters = draw_distinct(n, n_letters, n_vars, generator)
    operations = torch.randint(n_operations, (n, n_vars), generator=generator)
    clauses = torch.arange(n_vars).expand(n, -1)
    if shuffled:
        clauses = draw_distinct(n, n_vars, n_vars, generator)
    return torch.stack([letters, operations, clauses], -1)
