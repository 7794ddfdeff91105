"""From evidence to verdict: the rules, and nothing else. They stand in words in docs/audit.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from interp.core.statistics import drop_tests, holm

Verdict = Literal["faithful", "misleading", "hidden", "idle", "redundant", "undecided"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
JUDGED = ("mean", "uniform", "ideal", "read_part")
"""The interventions that verdicts depend on; the others are shown beside them."""
SHARE = 0.2
"""A head is needed if taking it out costs more than this share of what the model knows of some outcome: of its
accuracy above chance."""


@dataclass(frozen=True)
class Tested:
    """p values of one family, corrected for all of it (Holm)."""

    matters: Mapping[str, Float[np.ndarray, " head"]]
    """By intervention: how likely are so many losses on some outcome, if the cost of each is below the threshold?"""
    harmless: Mapping[str, Float[np.ndarray, " head"]]
    """By intervention: how likely are so few losses on every outcome, if the cost of one is above the threshold?"""


def tested(
    drop: Mapping[str, Float[np.ndarray, "sample head outcome"]],
    asked: Float[np.ndarray, "sample outcome"],
    threshold: Float[np.ndarray, " outcome"],
) -> Tested:
    """Test every head and set under every intervention, on the outcomes given.

    A head matters if it does on some outcome, so p is the least over outcomes times their number; it is harmless if it
    is on every outcome, so p is the largest. Both kinds of p are one family for Holm's correction.
    """
    raw: dict[tuple[str, str], np.ndarray] = {}
    for name, values in drop.items():
        matters, harmless = drop_tests(np.nan_to_num(values), asked[:, None], threshold)
        known = np.isfinite(values).all((0, 2))
        raw["matters", name] = np.where(known, np.minimum(matters.min(-1) * len(threshold), 1), np.nan)
        raw["harmless", name] = np.where(known, harmless.max(-1), np.nan)
    family = np.concatenate(list(raw.values()))
    corrected = np.full(family.shape, np.nan)
    corrected[np.isfinite(family)] = holm(family[np.isfinite(family)])
    parts = np.split(corrected, np.cumsum([len(values) for values in raw.values()])[:-1])
    by_key = dict(zip(raw, parts, strict=True))
    return Tested(*({name: by_key[kind, name] for name in drop} for kind in ("matters", "harmless")))


@dataclass(frozen=True)
class Judged:
    """A verdict and what led to it."""

    verdict: Verdict
    because: str
    """A key of `interp.auditing.sentences.BECAUSE`."""
    partners: tuple[Head, ...] = ()
    """Heads that do the same work, or that this one cancels with."""


def judge(
    heads: Sequence[Head],
    readable: Sequence[bool],
    found: Tested,
    *,
    redundant: Mapping[Head, tuple[Head, ...]],
    cancelled: Mapping[Head, tuple[Head, ...]],
    alpha: float,
    knows: bool = True,
) -> list[Judged]:
    """The verdict on every head.

    Args:
        heads: Their names.
        readable: Whether each looks like a kind.
        found: Corrected p values, heads in that order.
        redundant: Partners in sets that are fatal together, proven on other sequences than those they were found on.
        cancelled: Partners with which a head that is needed alone is not.
        alpha: Level.
        knows: Whether the model knows anything that could be lost; if not, no head is harmless.
    """
    judged = []
    for index, head in enumerate(heads):

        def matters(name: str, index=index) -> bool:
            return bool(found.matters[name][index] <= alpha)

        def harmless(name: str, index=index) -> bool:
            return bool(found.harmless[name][index] <= alpha)

        looks = readable[index]
        if head in redundant:
            judged.append(Judged("redundant", "together", redundant[head]))
        elif head in cancelled:
            judged.append(Judged("misleading" if looks else "idle", "cancelled", cancelled[head]))
        elif not knows and not matters("mean"):
            judged.append(Judged("undecided", "nothing to lose"))
        elif harmless("mean"):
            judged.append(Judged("misleading" if looks else "idle", "not needed"))
        elif not matters("mean"):
            judged.append(Judged("undecided", "too close"))
        elif not looks:
            judged.append(Judged("hidden", "needed"))
        elif harmless("uniform"):
            judged.append(Judged("misleading", "not through its pattern"))
        elif not matters("uniform"):
            judged.append(Judged("undecided", "pattern too close"))
        elif harmless("ideal") or harmless("read_part"):
            judged.append(Judged("faithful", "through its pattern"))
        elif matters("ideal") and matters("read_part"):
            judged.append(Judged("misleading", "through something else"))
        else:
            judged.append(Judged("undecided", "reading too close"))
    return judged


def sequences_needed(n_tests: int, alpha: float, threshold: float) -> int:
    """How many sequences of one answer it takes to call any head harmless, when not a single answer is lost."""
    return int(np.ceil(np.log(alpha / n_tests) / np.log1p(-threshold)))
