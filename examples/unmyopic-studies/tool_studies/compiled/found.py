"""Claim on how many of the heads that are faithful by construction the audit calls faithful."""

from functools import partial
from typing import Any

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.packs import Packs
from case_studies.frame.rules import AtLeast, Value
from case_studies.recipes.judges import Share
from tool_studies.compiled.heads import NO_HEADS, SOURCE, verdict_table

LEAST = 0.95
"""Share that must be found: the bar of this study's claims on the values that probes read and interchanges change."""


def measure_found(evidence: Evidence, *, packs: Packs) -> Readings:
    """Truth and verdict of every head, one row a head; shown are those that are faithful and not called so."""
    table: Any = verdict_table(evidence, packs)
    faithful = table[table["truth"] == "faithful"]
    is_found = faithful["verdict"] == "faithful"
    return Readings(
        frame=table,
        table=faithful.loc[~is_found, ["program", "head", "verdict", "finding"]],
        title="Faithful heads that are not found",
        numbers={"found": int(is_found.sum()), "faithful by construction": len(faithful)},
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
            judged=Share("verdict", "faithful", unit="heads", where={"truth": "faithful"}, without_rows=NO_HEADS),
        ),
    )
