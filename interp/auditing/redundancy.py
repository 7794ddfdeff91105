"""Which heads can go one by one, but not together? The smallest sets whose removal is fatal, in few removals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hooks.ablation_engine import Head

Fatal = Callable[[frozenset[Head]], bool]
"""Does removing these heads together cost something? A larger set is taken to cost whatever a smaller one does."""


@dataclass(frozen=True)
class FatalSets:
    """What the search found."""

    sets: tuple[tuple[Head, ...], ...]
    """Sets that are fatal together; without any one of its heads a set was not."""
    complete: bool
    """False when the search ran out of removals: there may be more."""
    removals: int
    """Sets that were tried."""


class _OutOfRemovals(Exception):
    pass


def fatal_sets(heads: Sequence[Head], fatal: Fatal, *, most: int) -> FatalSets:
    """Minimal fatal sets among heads of which none is fatal by itself.

    Each is found by halving (QuickXplain), in about 2 k log2(heads / k) removals for k heads. Further ones are looked
    for with one head of each known set kept in place, in turn (a hitting-set tree), until nothing is fatal any more.

    Args:
        heads: The heads to search among.
        fatal: Told by an experiment.
        most: Experiments at most.

    Source: Junker 2004 (QuickXplain), Reiter 1987 (hitting-set tree).
    """
    tried: dict[frozenset[Head], bool] = {}

    def ask(chosen: frozenset[Head]) -> bool:
        if chosen not in tried:
            if len(tried) >= most:
                raise _OutOfRemovals
            tried[chosen] = fatal(chosen)
        return tried[chosen]

    found: list[tuple[Head, ...]] = []
    waiting: list[frozenset[Head]] = [frozenset()]
    seen = set(waiting)
    try:
        while waiting:
            kept = waiting.pop(0)
            rest = [head for head in heads if head not in kept]
            known = next((one for one in found if kept.isdisjoint(one)), None)
            if known is None:
                if len(rest) < 2 or not ask(frozenset(rest)):
                    continue
                known = tuple(sorted(_smallest(frozenset(), rest, ask, changed=False)))
                found.append(known)
            for head in known:
                if (further := kept | {head}) not in seen:
                    seen.add(further)
                    waiting.append(further)
    except _OutOfRemovals:
        return FatalSets(tuple(found), False, len(tried))
    return FatalSets(tuple(found), True, len(tried))


def _smallest(background: frozenset[Head], heads: Sequence[Head], ask: Fatal, *, changed: bool) -> list[Head]:
    """The heads that, with the background, are just enough to be fatal; all of them with it are."""
    if changed and ask(background):
        return []
    if len(heads) == 1:
        return list(heads)
    half = len(heads) // 2
    first, second = list(heads[:half]), list(heads[half:])
    from_second = _smallest(background | frozenset(first), second, ask, changed=True)
    from_first = _smallest(background | frozenset(from_second), first, ask, changed=bool(from_second))
    return from_first + from_second
