"""Which heads can go one by one, but not together? For each such head the fewest others that must stay with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hooks.interventions.ablation_engine import Head

Fatal = Callable[[frozenset[Head]], bool]
"""Does removing these heads together cost more than they do alone? A larger set is taken to if a smaller one does."""


@dataclass(frozen=True)
class FatalSets:
    """What the search found."""

    sets: tuple[tuple[Head, ...], ...]
    """Sets that are fatal together; without any one of its heads a set was not."""
    together: tuple[Head, ...]
    """Heads that can all go at once."""
    removals: int
    """Sets that were tried."""


def fatal_sets(heads: Sequence[Head], fatal: Fatal) -> FatalSets:
    """A largest set of heads that can all go at once, and for every other head a smallest set that it is fatal with.

    Heads join the set one by one, in the order given. One that would make it fatal stays out; the heads of the set that
    it cannot go with are found by halving (QuickXplain), in about 2 k log2(heads / k) removals for k of them.

    Args:
        heads: The heads to search among, none of them fatal by itself.
        fatal: Told by an experiment.

    Source: Junker 2004 (QuickXplain).
    """
    tried: dict[frozenset[Head], bool] = {}

    def ask(chosen: frozenset[Head]) -> bool:
        if chosen not in tried:
            tried[chosen] = fatal(chosen)
        return tried[chosen]

    if len(heads) < 2 or not ask(frozenset(heads)):
        return FatalSets((), tuple(heads), len(tried))
    together, sets = list(heads[:1]), []
    for head in heads[1:]:
        if ask(frozenset([*together, head])):
            sets.append(tuple(sorted([head, *_fewest(frozenset([head]), together, ask, changed=False)])))
        else:
            together.append(head)
    return FatalSets(tuple(sets), tuple(together), len(tried))


def _fewest(background: frozenset[Head], heads: Sequence[Head], ask: Fatal, *, changed: bool) -> list[Head]:
    """The heads that, with the background, are just enough to be fatal; all of them with it are."""
    if changed and ask(background):
        return []
    if len(heads) == 1:
        return list(heads)
    half = len(heads) // 2
    first, second = list(heads[:half]), list(heads[half:])
    from_second = _fewest(background | frozenset(first), second, ask, changed=True)
    from_first = _fewest(background | frozenset(from_second), first, ask, changed=bool(from_second))
    return from_first + from_second
