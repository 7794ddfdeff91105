"""Drawing claims that are measured again: those that have a number, and can be measured."""

import random
from collections.abc import Mapping, Sequence

from case_studies.frame.claims import Claim
from case_studies.frame.results import ClaimResult
from case_studies.frame.stored import StoredResults
from interp.sweeps.spec import ModelSpec


def drawn_claims(
    claims: Sequence[Claim],
    n: int,
    *,
    stored: StoredResults,
    groups: Mapping[str, Sequence[ModelSpec]],
    at_most: float | None = None,
    seed: int = 0,
) -> tuple[Claim, ...]:
    """Random claims among those that have a stored number and can be measured.

    Args:
        claims: Claims to draw from.
        n: How many; if there are fewer, all of them.
        stored: Stored numbers.
        groups: Models of the study at the size of these, by group.
        at_most: Most seconds that measuring a claim and training its models took before.
        seed: Determines the draw.

    Raises:
        ValueError: n is below 1, or no claim can be drawn.
    """
    if n < 1:
        raise ValueError(f"again is {n}; give the number of claims to measure again, at least 1.")
    results = [stored.claim(claim, groups) for claim in claims if not claim.missing_input]
    numbers = [result for result in results if result.measurement]
    affordable = [result.claim for result in numbers if at_most is None or _seconds(result) <= at_most]
    if not affordable:
        cost = "" if at_most is None else f" that took at most {at_most:g} s"
        raise ValueError(f"no chosen claim has a number{cost} that can be measured again.")
    drawn = random.Random(seed).sample(affordable, min(n, len(affordable)))
    return tuple(claim for claim in claims if claim in drawn)


def _seconds(result: ClaimResult) -> float:
    """What measuring a claim took, and the training of all its models."""
    assert result.cost is not None
    assert result.provenance is not None
    trained = result.provenance.get("trained") or {"seconds": 0.0}
    return result.cost["seconds"] + trained["seconds"]
