"""Random symbols for the wildcards of templates."""

from itertools import chain, islice

import torch
from jaxtyping import Int
from torch import Tensor


def draw_distinct(n: int, out_of: int, count: int, generator: torch.Generator) -> Int[Tensor, "n count"]:
    """For each of n rows, `count` distinct numbers below `out_of`, in random order; time and memory O(n count^2).

    That of LEGO draws a number for each of the `out_of`: fast for letters, slow for a large alphabet.
    """
    numbers = torch.empty(n, 0, dtype=torch.long)
    for n_drawn in range(count):
        # its rank among the numbers that the row does not have yet; each of the others moves it up
        number = torch.randint(out_of - n_drawn, (n,), generator=generator)
        for earlier_number in numbers.sort(1).values.unbind(1):
            number = number + (number >= earlier_number)
        numbers = torch.cat([numbers, number[:, None]], 1)
    return numbers


def reorder_symbols(
    tokens: Int[Tensor, "batch pos"], n_fixed: int, alphabet: range, n: int, generator: torch.Generator
) -> Int[Tensor, "batch symbol"]:
    """The symbols of each string in random order, followed by further symbols of the alphabet, up to n in total.

    Args:
        tokens: The strings.
        n_fixed: Number of fixed tokens; larger ids are symbols.
        alphabet: Ids of the symbols.
        n: Symbols per string.
        generator: Determines the draws.
    """
    rows = torch.zeros(len(tokens), n, dtype=torch.long)
    for row, string in enumerate(tokens.tolist()):
        # the symbols of the string, shuffled
        symbols = sorted({token for token in string if token >= n_fixed})
        order = torch.randperm(len(symbols), generator=generator).tolist()
        shuffled_symbols = [symbols[index] for index in order]
        # then the next ones of the alphabet from a random start
        start = int(torch.randint(len(alphabet), (1,), generator=generator))
        rotated_alphabet = chain(alphabet[start:], alphabet[:start])
        further_symbols = (symbol for symbol in rotated_alphabet if symbol not in symbols)
        rows[row] = torch.tensor([*shuffled_symbols, *islice(further_symbols, n)][:n])
    return rows
