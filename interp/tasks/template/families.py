"""The template tasks of the template paper, by name."""

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations, product

import torch

from hooks.randomness import seeded_generator
from interp.tasks.template.language import LabelledTemplate, read_template, structure

Templates = tuple[LabelledTemplate, ...]
WILDCARDS = "abcdefghijklmnopqrstuvwxyz"


def _read(*texts: str) -> Templates:
    return tuple(read_template(text) for text in texts)


def same_different() -> Templates:
    """Same or different: are two symbols equal? (Section 1)"""
    return _read("aa -> +1", "ab -> -1")


def aba_abb() -> Templates:
    """Which of the first two symbols is repeated? (Section 5, Figure 3)"""
    return _read("aba -> +1", "abb -> -1")


def aabb_abab() -> Templates:
    """Two pairs, or alternation?"""
    return _read("aabb -> +1", "abab -> -1")


def majority(length: int = 4) -> Templates:
    """Does the first symbol make up at least half of the `length` that follow? 2^length templates of two symbols.

    Differs: the paper does not define ties; here a tie is +1.

    Raises:
        ValueError: a length below 1.
    """
    if length < 1:
        raise ValueError(f"length is {length}; give at least 1.")
    # the first token asks about wildcard a; the others are any string over a and b
    templates = []
    for symbols in product("ab", repeat=length):
        label = 1.0 if 2 * symbols.count("a") >= length else -1.0
        templates.append(LabelledTemplate(("a", *symbols), label))
    return tuple(templates)


def programs() -> Templates:
    """Programs that print one of two variables, 1 or -1. (Figure 1)"""
    start = "a = 1 ; b = -1 ; print ( {} )"
    return _read(f"{start.format('a')} -> +1", f"{start.format('b')} -> -1")


def symbolic_programs() -> Templates:
    """Programs that print one of two variables whose values are symbols. (Figure 2)"""
    start = 'a = " c " ; b = " d " ; print ( {} )'
    return _read(f"{start.format('a')} -> c", f"{start.format('b')} -> d")


def print_symbol() -> Templates:
    """Copy the symbol between the quotes."""
    return _read('print ( " a " ) -> a')


def copy() -> Templates:
    """Copy the symbol. (Section 6)"""
    return _read("a -> a")


def distribution_of_three() -> Templates:
    """Three symbols, two of the same three in another order, then four choices for the missing one.

    Six orders of the second row times 24 orders of the choices, one of which is a fourth symbol; the label is the
    number of the correct choice. (Appendix; Webb et al. 2021)
    """
    templates = []
    for second_row, choices in product(permutations("abc"), permutations("abcd")):
        correct = choices.index(second_row[2]) + 1
        templates.append(LabelledTemplate(("a", "b", "c", *second_row[:2], *choices), float(correct)))
    return tuple(templates)


def match_to_sample() -> Templates:
    """A sample pair, then an equal and an unequal pair: does the first (+1) or the second (-1) match the sample?

    The equal pair uses a symbol that is not in the sample; the unequal pair may share symbols with both. This reading
    gives the paper's count of 40 templates. (Appendix; Webb et al. 2021)
    """
    templates = []
    for sample in ("aa", "ab"):
        # the wildcard after those of the sample, twice; a sample of equal symbols matches it
        equal_pair = WILDCARDS[len(set(sample))] * 2
        matching_label = 1.0 if sample == "aa" else -1.0
        for unequal_pair in _unequal_pairs(sample + equal_pair):
            equal_first = tuple(sample + equal_pair + unequal_pair)
            equal_second = tuple(sample + unequal_pair + equal_pair)
            templates.append(LabelledTemplate(equal_first, matching_label))
            templates.append(LabelledTemplate(equal_second, -matching_label))
    return tuple(templates)


def _unequal_pairs(string: str) -> Iterator[str]:
    """Pairs of different symbols after a string, each of them in the string or the next new one."""
    symbols = sorted(set(string))
    for first in [*symbols, WILDCARDS[len(symbols)]]:
        # the second may be a new symbol too
        earlier_symbols = sorted({*symbols, first})
        for second in [*earlier_symbols, WILDCARDS[len(earlier_symbols)]]:
            if first != second:
                yield first + second


def matrix_reasoning() -> Templates:
    """One dimension of a Raven matrix: three rows of three symbols, the last symbol missing.

    Either each row repeats one symbol, or all rows are permutations of the same three: 1 + 6 x 6 = 37 templates, the
    paper's count. (Appendix)
    """
    templates = [LabelledTemplate(tuple("aaabbbcc"), "c")]
    for second_row, third_row in product(permutations("abc"), permutations("abc")):
        templates.append(LabelledTemplate(("a", "b", "c", *second_row, *third_row[:2]), third_row[2]))
    return tuple(templates)


def random_templates(
    count: int = 4, *, length: int = 5, n_wildcards: int = 4, n_fixed: int = 0, seed: int = 0
) -> Templates:
    """Distinct random strings over wildcards and fixed tokens, with Gaussian labels of mean 0 and variance 1.

    Args:
        count: Number of templates.
        length: Tokens of each.
        n_wildcards: Number of wildcards to draw from.
        n_fixed: Number of fixed tokens to draw from.
        seed: Decides strings and labels.

    Raises:
        ValueError: sizes out of range, or more templates than exist.

    Source: template paper, random template experiments: labels are centred and scaled so that a constant prediction
    has squared error 1.
    """
    if count < 2 or length < 1 or not 1 <= n_wildcards <= len(WILDCARDS) or n_fixed < 0:
        raise ValueError(
            f"count, length, n_wildcards, n_fixed are {count}, {length}, {n_wildcards}, {n_fixed}; give at least 2, 1, "
            f"1 (at most {len(WILDCARDS)}) and 0."
        )
    generator = seeded_generator(seed)
    symbols = [*WILDCARDS[:n_wildcards], *(f"R{index}" for index in range(n_fixed))]
    # draw strings until enough are distinct; those that differ only in the names of wildcards are one template
    strings: dict[tuple[str | int, ...], tuple[str, ...]] = {}
    for _ in range(1000 * count):
        indices = torch.randint(len(symbols), (length,), generator=generator)
        string = tuple(symbols[index] for index in indices.tolist())
        strings.setdefault(structure(LabelledTemplate(string, 0.0)), string)
        if len(strings) == count:
            break
    else:
        raise ValueError(
            f"count is {count}, but there are hardly more than {len(strings)} templates of length {length} over "
            f"{n_wildcards} wildcards and {n_fixed} fixed tokens."
        )
    # labels of mean 0 and variance 1
    labels = torch.randn(count, generator=generator, dtype=torch.float64)
    labels = (labels - labels.mean()) / labels.std(correction=0)
    return tuple(map(LabelledTemplate, strings.values(), labels.tolist()))


FAMILIES: dict[str, Callable[..., Templates]] = {
    "same_different": same_different,
    "aba_abb": aba_abb,
    "aabb_abab": aabb_abab,
    "majority": majority,
    "random": random_templates,
    "programs": programs,
    "symbolic_programs": symbolic_programs,
    "print": print_symbol,
    "copy": copy,
    "distribution_of_three": distribution_of_three,
    "match_to_sample": match_to_sample,
    "matrix_reasoning": matrix_reasoning,
}
"""Ready-made templates by name."""


def ready_templates(name: str, **options: int) -> Sequence[LabelledTemplate]:
    """Return a family of templates by name.

    Raises:
        ValueError: an unknown name (the message lists the known ones), or invalid options of the family.
    """
    if name not in FAMILIES:
        raise ValueError(f"templates is {name!r}; choose one of {', '.join(FAMILIES)}, or give templates as text.")
    return FAMILIES[name](**options)
