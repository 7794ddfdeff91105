"""Claim on how many of the heads that are faithful by construction the audit calls faithful."""

from functools import partial
from typing import Any

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.packs import Packs
from case_studies.frame.rules import AtLeast, Value
from case_studies.recipes.intervals import proportion
from tool_studies.compiled.heads import SOURCE, heads_of

LEAST = 0.95
"""Share that must be found: the bar of this study's claims on the values that probes read and interchanges change."""


def measure_found(evidence: Evidence, *, packs: Packs) -> Measurement:
    """Share of the heads that are faithful by construction that the audit calls faithful."""
    hits = []
    rows: list[list[Any]] = [["program", "head", "verdict", "finding"]]
    for answer, truth, head, sentence in heads_of(evidence, packs):
        if truth.truth != "faithful":
            continue
        hits.append(head.verdict == "faithful")
        if not hits[-1]:
            rows.append([answer.name, f"{head.layer}.{head.head}", head.verdict, sentence])
    return Measurement.from_interval(
        proportion(sum(hits), len(hits)),
        unit="heads",
        numbers={"found": sum(hits), "faithful by construction": len(hits)},
        tables=[("Faithful heads that are not found", rows)],
    )


def claims(packs: Packs) -> tuple[Claim, ...]:
    """The claim on these packs."""
    return (
        Claim(
            id="heads.found",
            source=SOURCE,
            statement="Heads that act through what they select by construction are called faithful.",
            method="Share of the heads whose true verdict is faithful that the audit calls faithful",
            rule=Value(AtLeast(LEAST)),
            preregistration=Preregistration(
                "after a result",
                "53 of 64 are found, as the table of heads.faithful showed before there was a rule about them: the "
                "rule of heads.faithful is met by an audit that calls no head faithful. The bar is that of values.read "
                "and values.used, which are older.",
            ),
            value_range=SHARE,
            quantity="share of faithful heads that are found",
            measure=partial(measure_found, packs=packs),
        ),
    )
