"""Drawing claims that are measured again: those that have a number, and can be compared with it."""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from case_studies.frame.claims import Claim
from case_studies.frame.evidence import settings_of
from case_studies.frame.stored import StoredResults
from interp.sweeps.spec import ModelSpec

NUMBER_OF_MODELS = ("models", "seeds", "keys")
"""Settings of a group that say how many models it has, and which."""


def drawn_claims(
    claims: Sequence[Claim],
    n: int,
    *,
    stored: StoredResults,
    size: str,
    groups: Mapping[str, Sequence[ModelSpec]],
    at_most: float | None = None,
    seed: int = 0,
) -> tuple[Claim, ...]:
    """Random claims among those that can be measured again and compared with their stored number.

    Args:
        claims: Claims to draw from.
        n: How many; if there are fewer, all of them.
        stored: Stored numbers. At another size than theirs, a claim can be compared if its models differ in their
            number only.
        size: Size at which they are measured.
        groups: Models of the study at this size, by group.
        at_most: Most seconds that a claim may be expected to take, with the training of its models.
        seed: Determines the draw.

    Raises:
        ValueError: n is below 1, or no claim can be compared.
    """
    if n < 1:
        raise ValueError(f"again is {n}; give the number of claims to measure again, at least 1.")
    comparable = []
    for claim in claims:
        entry = stored.entry(claim)
        if entry is None or size not in claim.sizes or claim.missing_input:
            continue
        is_same = _same_models(entry, claim, stored, size, groups)
        if is_same and (at_most is None or _expected_seconds(entry, claim, stored, groups) <= at_most):
            comparable.append(claim)
    if not comparable:
        cost = "" if at_most is None else f" and is expected to take at most {at_most:g} s"
        raise ValueError(f"no chosen claim has a number that can be compared at size {size}{cost}.")
    drawn = random.Random(seed).sample(comparable, min(n, len(comparable)))
    return tuple(claim for claim in claims if claim in drawn)


def _same_models(
    entry: Mapping[str, Any],
    claim: Claim,
    stored: StoredResults,
    size: str,
    groups: Mapping[str, Sequence[ModelSpec]],
) -> bool:
    """Whether the models of a claim are those of its number; at another size but for their number."""
    if set(entry["groups"]) != set(claim.needs):
        return False
    ignored = () if size == stored.size else NUMBER_OF_MODELS
    for name in claim.needs:
        today = json.loads(json.dumps(settings_of(groups[name])))
        before = stored.details["groups"][entry["groups"][name]]
        names = (today.keys() | before.keys()) - set(ignored)
        if any(today.get(setting) != before.get(setting) for setting in names):
            return False
    return True


def _expected_seconds(
    entry: Mapping[str, Any], claim: Claim, stored: StoredResults, groups: Mapping[str, Sequence[ModelSpec]]
) -> float:
    """What measuring and training took before, in proportion to the number of models."""
    n_before = sum(len(stored.details["groups"][digest]["keys"]) for digest in entry["groups"].values())
    share = sum(len(groups[name]) for name in claim.needs) / n_before if n_before else 1.0
    training = (entry["made"].get("trained") or {}).get("seconds", 0.0)
    return share * (entry["cost"]["seconds"] + training)
