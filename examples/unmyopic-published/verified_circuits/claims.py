"""The claims: what is certified, what the authors' probes read, and each statement of the circuit in its readings."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from case_studies.frame.claims import BEFORE_ANY_MODEL, SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, SIZES
from case_studies.frame.packs import WeightFiles
from case_studies.frame.rules import AtLeast, AtMost, Below, Between, Equal, Value
from case_studies.recipes.judges import Extreme, Row, Share
from verified_circuits import measures
from verified_circuits.files import LENGTHS, REPOSITORY, weight_files
from verified_circuits.interchanges import Site
from verified_circuits.scores import BAR, PAIRS, PAIRS_BY_LENGTH, VALUE

CERTIFICATE = f"{REPOSITORY}, certificates"
CIRCUIT = f"{REPOSITORY}, stated circuit"
PROBES = f"{REPOSITORY}, probes"
OURS = "ours"
KNOWN = (
    "of the model of n = 10 the decisions, the smallest margin 6.3957, and a first test of single states after block 1 "
    "on 20,000 random pairs a position: with the final depth in the last state the answer became balanced in 0 to 0.09 "
    "and unbalanced in 0.47 to 1.00 of the pairs, with the sum of brackets as the final depth in 0.71 to 1.00 and 0.64 "
    "to 1.00"
)
AFTER_FIRST_TEST = Preregistration("after a result", f"{KNOWN}; the rule and the kinds of pairs are new.")
AFTER_FIRST_MODEL = Preregistration("after first models", f"{KNOWN}. Of this claim nothing had been measured.")
AFTER_RUN = Preregistration("after a result", "the number itself: it was computed when the weights were first read.")
AFTER_RUN_OF_OTHERS = Preregistration(
    "after first models", f"{KNOWN}; the interchanges of this study. No head had been removed."
)
MARGINS = {10: 6.3957, 16: 8.0950}
"""The authors' smallest margins, to four decimals."""
LARGEST_DIFFERENCE = 1e-4
"""Largest difference of a margin from the printed one, which may be rounded or cut."""
PRINTED_DEPTH, PRINTED_TOTAL, PRINTED_VIOLATIONS = 0.999, 0.99999, 0.991
"""The authors' squared correlations."""
HALF_UNITS = {PRINTED_DEPTH: 0.0005, PRINTED_TOTAL: 0.000005, PRINTED_VIOLATIONS: 0.0005}
"""Half a unit of the last printed digit."""
FAR = 1 - BAR
"""Largest distance of attention from what a statement says: as much of it is elsewhere as answers may be."""
LAYERS: Mapping[str, Site] = {"block-0": "block 0", "block-1": "block 1"}
LAYER_WORDS = {
    "attention-0": "at the output of attention in block 0",
    "block-0": "after block 0",
    "block-1": "after block 1",
}
PAIRS_METHOD = (
    "The lower of two means of shares: of pairs in which the answer becomes balanced, and becomes unbalanced, as "
    "predicted; and of placebo pairs of balanced and of unbalanced bases, whose answers stay"
)
PAIRS_COUNTED = {
    10: "every pair of strings, positions counting equally; no sampling error",
    16: "8,192 random pairs of each kind, their positions uniform, with the interval of a mean of two exact ones",
}
CIRCUIT_STATEMENTS = {
    "literal": "The state of a position {at} is its flag, and that of the last position the final depth too: "
    "interchanged, it moves these and nothing else.",
    "charitable": "The state of a position {at} is its flag and its bracket, whose sum over positions is the final "
    "depth: interchanged, it moves these and nothing else.",
    "directions": "Flag, bracket and running depth of a position {at} have directions of their own, the same at all "
    "positions: interchanged along them, flag and bracket move and nothing else.",
}
FLAG_STATEMENTS = {
    "literal": "The state of a position {at} is the flag [d_i < 0], whatever its bracket: interchanged, it moves the "
    "number of violations and nothing else.",
    "charitable": "Among states with the same bracket {at}, that of a position is the flag [d_i < 0]: interchanged, it "
    "moves the number of violations and nothing else.",
    "directions": "The flag [d_i < 0] has a direction {at}, the same at all positions: interchanged along it, the flag "
    "moves and nothing else.",
}
TOTAL_STATEMENTS = {
    "literal": "The state of the last position {at} is the final depth (and its flag): interchanged, it moves these.",
    "charitable": "Among states with the same flag {at}, that of a position is its bracket, whose sum over positions "
    "is the final depth: interchanged, it moves the final depth by 2 and nothing else.",
    "directions": "The bracket has a direction {at}, the same at all positions, and the sum along it is the final "
    "depth: interchanged along it, it moves the final depth by 2 and nothing else.",
}
POOLED_STATEMENTS = {
    "pooled total": "The sum over positions has the final depth: interchanged {along}, it moves and the number of "
    "violations stays.",
    "pooled violations": "The sum over positions has the number of violations: interchanged {along}, it moves and the "
    "final depth stays.",
    "pooled both": "A string is balanced if and only if final depth and number of violations in the sum over positions "
    "are zero: both interchanged {along}, the answer is the source's.",
}
ALONG = {"probes": "as linear probes read it", "directions": "along its mean effect"}
AFTER_LOOK = "after the other readings, the contributions of states to the pooled vector of the model of n = 10"
AFTER_LOOK_AT_10 = Preregistration(
    "after a result",
    f"{KNOWN}; {AFTER_LOOK}, and this reading without the strings that begin with closing brackets only.",
)
AFTER_LOOK_FOR_16 = Preregistration(
    "after first models", f"{KNOWN}; {AFTER_LOOK}, from which this reading was made; nothing of the model of n = 16."
)
AFTER_TWO_NOT_REFUSED = (
    "with all pairs of a mechanism together, 78 of 80 were refused on the model of n = 10: two with flags of earlier "
    "positions were not, as most pairs differ in the bracket. Each sum is tested alone now"
)
AFTER_LOOK_AT_BOTH = Preregistration(
    "after a result",
    f"{KNOWN}; flags at opening brackets, which the model of n = 10 has and that of n = 16 has not; then the "
    "contributions of states to the pooled vector of the model of n = 16, from which this reading was made, and a "
    "first run of it.",
)
AFTER_BOTH = Preregistration(
    "after a result",
    f"{KNOWN}; the same without the restriction. No string ends below zero without a violation, and a check of the one "
    "alone makes the other unnecessary.",
)
ONE_KIND_STATES = (
    "interchanged among states that differ in this alone, the flag moves; among states that differ in the bracket "
    "alone, the final depth moves by 2."
)
ONE_KIND_DIRECTIONS = (
    "such flags and brackets have directions of their own, the same at all positions: interchanged along one, it moves "
    "and nothing else."
)
ONE_KIND_PLACES = {
    "openers": "flags are not at all positions below zero but at the opening brackets that do not rise above zero (and "
    "where only closing brackets have been)",
    "closers": "flags are not at all positions below zero but at the closing brackets below zero",
}
FLAG_WORDS = {
    "positions": "number of violations",
    "openers": "number of flags at opening brackets",
    "closers": "number of flags at closing brackets",
}
POSSIBLE_STATEMENTS = {
    "total": "the final depth moves and the {violations} stays",
    "violations": "the {violations} moves and the final depth stays",
    "both": "both move, and the answer is the source's",
}
RIVAL_STATEMENTS = {
    "falls-below-zero": "States do not just flag where the depth falls below zero, in place of every position below.",
    "matched-pairs": "States do not count matched pairs, of which balanced strings have n / 2.",
}


def claims(folder: Path | None = None) -> tuple[Claim, ...]:
    """The claims on both models; certified ones first, then what can be read, then which wiring is causal."""
    return (
        *(claim for n in LENGTHS for claim in _certified(n, weight_files(folder, n))),
        *(claim for n in LENGTHS for claim in _readable(n, weight_files(folder, n))),
        *(claim for n in LENGTHS for claim in _prefix_sum(n, weight_files(folder, n))),
        *(claim for n in LENGTHS for claim in _interchanges(n, weight_files(folder, n))),
        *(claim for n in LENGTHS for claim in _fourth_reading(n, weight_files(folder, n))),
        *_audited(min(LENGTHS), weight_files(folder, min(LENGTHS))),
        *(claim for n in LENGTHS for claim in _other_mechanisms(n, weight_files(folder, n))),
        Claim(
            id="control.hand-written",
            source=OURS,
            statement="Of hand-written models of the same architecture, whose wiring is known, every verdict is right.",
            method="Number of wrong verdicts on two models, one for each reading: on the reading that is true of it, "
            "the other one, directions, and planted false mechanisms",
            rule=Value(Equal(0)),
            preregistration=BEFORE_ANY_MODEL,
            quantity="wrong verdicts",
            measure=measures.measure_controls,
            judged=Row(measures.WRONG_VERDICTS, unit="verdicts", units=measures.VERDICTS, exact=True),
        ),
    )


def _claim(name: str, n: int, files: WeightFiles, **fields: Any) -> Claim:
    """A claim about the model of n tokens; that of 16 is not measured at size quick."""
    sizes = SIZES if n == min(LENGTHS) else LARGE_SIZES
    reason = "" if n == min(LENGTHS) else "65,536 strings take minutes."
    return Claim(id=f"n{n}.{name}", packs=files, sizes=sizes, sizes_reason=reason, **fields)


def _of_strings(column: str, *, exact: bool = True, **options: Any) -> Row:
    """The judge of a number of all strings, or of a sample of them."""
    return Row(column, unit="strings", units=measures.STRINGS, exact=exact, **options)


def _of_pairs(n: int, *, units: str = PAIRS, extreme: Extreme = "largest") -> Row:
    """The judge of scores of pairs, which are all there are or a sample."""
    return Row(VALUE, unit="pairs", units=units, extreme=extreme, exact=PAIRS_BY_LENGTH[n] is None)


def _after(n: int, *, tested: bool = False) -> Preregistration:
    """When a rule on interchanges was fixed; `tested`: the first test was of this claim."""
    return AFTER_FIRST_TEST if tested and n == 10 else AFTER_FIRST_MODEL


def _certified(n: int, files: WeightFiles) -> Iterator[Claim]:
    """Decisions and the smallest margin, which the authors' certificates are about."""
    yield _claim(
        "decisions",
        n,
        files,
        source=CERTIFICATE,
        statement=f"The decision on each of the {2**n:,} strings of {n} brackets is right.",
        method="Number of wrong decisions on all strings, in double precision",
        rule=Value(Equal(0)),
        preregistration=AFTER_RUN,
        quantity="wrong decisions",
        paper="0",
        measure=partial(measures.measure_errors, files=files, n=n),
        judged=_of_strings(measures.WRONG),
    )
    printed = MARGINS[n]
    yield _claim(
        "margin",
        n,
        files,
        source=CERTIFICATE,
        statement=f"The smallest margin between the two logits is {printed:.4f}.",
        method="Smallest logit of the right answer less that of the wrong one, over all strings, in double precision",
        rule=Value(Between(printed - LARGEST_DIFFERENCE, printed + LARGEST_DIFFERENCE)),
        preregistration=AFTER_RUN,
        quantity="smallest margin",
        paper=f"{printed:.4f}",
        measure=partial(measures.measure_margin, files=files, n=n),
        judged=_of_strings(measures.MARGIN, extreme="smallest"),
    )


def _readable(n: int, files: WeightFiles) -> Iterator[Claim]:
    """What the authors' linear probes read, in sample over all strings."""
    bar = PRINTED_DEPTH - HALF_UNITS[PRINTED_DEPTH]
    for layer, site in LAYERS.items():
        at = LAYER_WORDS[layer]
        yield _claim(
            f"read.depth.{layer}",
            n,
            files,
            source=PROBES,
            statement=f"The running depth can be read linearly from the state of every position {at}.",
            method="Smallest R2 over positions, by least squares over all strings",
            rule=Value(AtLeast(bar)),
            preregistration=AFTER_FIRST_MODEL,
            quantity="smallest R2 of the running depth",
            value_range=SHARE,
            paper="0.999 to 1.000",
            measure=partial(measures.measure_depth, files=files, n=n, site=site),
            judged=_of_strings(measures.R2, extreme="smallest"),
        )
        yield _claim(
            f"read.flags.{layer}",
            n,
            files,
            source=PROBES,
            statement=f"A hyperplane separates the states with a flag from the others, at every position {at}.",
            method="Number of positions with such a hyperplane, by linear programs on all strings",
            rule=Value(Equal(n)),
            preregistration=AFTER_FIRST_MODEL,
            quantity="positions with separable flags",
            paper="all",
            measure=partial(measures.measure_flags, files=files, n=n, site=site),
            judged=_of_strings(measures.SEPARABLE),
        )
    aggregates = {
        "total": (PRINTED_TOTAL, "final depth"),
        "violations": (PRINTED_VIOLATIONS, "number of violations"),
    }
    for aggregate, (printed, words) in aggregates.items():
        yield _claim(
            f"read.{aggregate}",
            n,
            files,
            source=PROBES,
            statement=f"The {words} can be read linearly from the sum over positions.",
            method="R2 by least squares over all strings",
            rule=Value(AtLeast(printed - HALF_UNITS[printed])),
            preregistration=AFTER_FIRST_MODEL,
            quantity=f"R2 of the {words}",
            value_range=SHARE,
            paper=str(printed),
            measure=partial(measures.measure_aggregates, files=files, n=n),
            judged=_of_strings(measures.R2, where={measures.AGGREGATE: words}),
        )


def _prefix_sum(n: int, files: WeightFiles) -> Iterator[Claim]:
    """The running depth as a prefix sum by causal attention: uniform weights, fixed weights, or what can be read."""
    references: dict[Literal["uniform", "mean"], tuple[str, str, str]] = {
        "uniform": (
            "literal",
            "A head of block 0 attends to all earlier brackets equally, so that it sums them.",
            "a uniform one",
        ),
        "mean": (
            "charitable",
            "A head of block 0 attends by position alone, so that it adds brackets with fixed weights.",
            "its mean over strings",
        ),
    }
    for reference, (reading, statement, distance) in references.items():
        yield _claim(
            f"prefix-sum.{reading}",
            n,
            files,
            source=CIRCUIT,
            statement=f"{statement} ({reading} reading of a prefix sum by causal attention)",
            method=f"Total variation distance of the attention of a query from {distance}, mean over strings and "
            "queries but the first, of the closest head of block 0",
            rule=AtMost(FAR),
            preregistration=AFTER_FIRST_MODEL,
            quantity="distance of attention",
            value_range=SHARE,
            measure=partial(measures.measure_attention, files=files, n=n, reference=reference),
            judged=_of_strings(measures.DISTANCE, extreme="smallest", exact=n <= measures.COUNTED),
        )
    yield _claim(
        "prefix-sum.directions",
        n,
        files,
        source=CIRCUIT,
        statement="The running depth can be read linearly from the output of attention in block 0, at every position "
        "(third reading of a prefix sum by causal attention).",
        method="Smallest R2 over positions, by least squares over all strings",
        rule=Value(AtLeast(PRINTED_DEPTH - HALF_UNITS[PRINTED_DEPTH])),
        preregistration=AFTER_FIRST_MODEL,
        quantity="smallest R2 of the running depth",
        value_range=SHARE,
        measure=partial(measures.measure_depth, files=files, n=n, site="attention 0"),
        judged=_of_strings(measures.R2, extreme="smallest"),
    )


def _interchanges(n: int, files: WeightFiles) -> Iterator[Claim]:
    """Each statement of the circuit, in each reading, at each layer."""
    sites = {"attention-0": "attention 0", **LAYERS}
    for statement, texts, layers in (
        ("circuit", CIRCUIT_STATEMENTS, LAYERS),
        ("flags", FLAG_STATEMENTS, sites),
        ("total", TOTAL_STATEMENTS, LAYERS),
    ):
        for interchanged, text in texts.items():
            for layer, site in layers.items():
                # Attention has no direction of a flag yet: it is made of the depth
                if layer == "attention-0" and interchanged == "directions":
                    continue
                tested = layer == "block-1" and interchanged != "directions"
                yield _interchange(
                    f"{statement}.{interchanged}.{layer}",
                    n,
                    files,
                    text.format(at=LAYER_WORDS[layer]),
                    _after(n, tested=tested),
                    statement=statement,
                    interchanged=interchanged,
                    site=site,
                )
    for statement, text in POOLED_STATEMENTS.items():
        for interchanged, along in ALONG.items():
            yield _interchange(
                f"{statement.replace(' ', '.')}.{interchanged}",
                n,
                files,
                text.format(along=along),
                _after(n),
                statement=statement,
                interchanged=interchanged,
                site="pooled",
            )


def _interchange(
    name: str, n: int, files: WeightFiles, text: str, preregistration: Preregistration, **options: str
) -> Claim:
    return _claim(
        name,
        n,
        files,
        source=CIRCUIT,
        statement=text,
        method=f"{PAIRS_METHOD} ({PAIRS_COUNTED[n]})",
        rule=AtLeast(BAR),
        preregistration=preregistration,
        quantity="answers as predicted",
        value_range=SHARE,
        measure=partial(measures.measure_interchange, files=files, n=n, **options),
        judged=_of_pairs(n),
    )


def _after_look(n: int, flags: str) -> Preregistration:
    if flags == "closers":
        return AFTER_LOOK_AT_BOTH
    return AFTER_LOOK_AT_10 if n == min(LENGTHS) else AFTER_LOOK_FOR_16


def _fourth_reading(n: int, files: WeightFiles) -> Iterator[Claim]:
    """Flags at one kind of bracket, and what is pooled where only sums that some string has are set."""
    for flags, place in ONE_KIND_PLACES.items():
        counted = "; of flips those to sums that some string has" if flags == "closers" else ""
        for interchanged in ("states", "directions"):
            moved = ONE_KIND_STATES if interchanged == "states" else ONE_KIND_DIRECTIONS
            for layer, site in LAYERS.items():
                at = LAYER_WORDS[layer]
                yield _claim(
                    f"{flags}.{interchanged}.{layer}",
                    n,
                    files,
                    source=OURS,
                    statement=f"(Fourth reading.) {at[0].upper()}{at[1:]}, {place}: {moved}",
                    method=f"The lower value of the two sums, each alone. {PAIRS_METHOD}{counted} ({PAIRS_COUNTED[n]})",
                    rule=AtLeast(BAR),
                    preregistration=_after_look(n, flags),
                    quantity="answers as predicted",
                    value_range=SHARE,
                    measure=partial(
                        measures.measure_one_kind, files=files, n=n, flags=flags, interchanged=interchanged, site=site
                    ),
                    judged=_of_pairs(n, extreme="smallest", units=measures.BOTH),
                )
    for statement, texts in (("flags", FLAG_STATEMENTS), ("total", TOTAL_STATEMENTS)):
        for layer, site in LAYERS.items():
            yield _claim(
                f"possible.charitable.{statement}.{layer}",
                n,
                files,
                source=CIRCUIT,
                statement=f"{texts['charitable'].format(at=LAYER_WORDS[layer])} As far as strings have such sums "
                "together.",
                method=f"{PAIRS_METHOD}; of the flips those to sums that some string has ({PAIRS_COUNTED[n]})",
                rule=AtLeast(BAR),
                preregistration=AFTER_BOTH,
                quantity="answers as predicted",
                value_range=SHARE,
                measure=partial(measures.measure_possible, files=files, n=n, statement=statement, site=site),
                judged=_of_pairs(n),
            )
    for flags, violations in FLAG_WORDS.items():
        for moved, text in POSSIBLE_STATEMENTS.items():
            words = text.format(violations=violations)
            yield _claim(
                f"possible.{flags}.{moved}",
                n,
                files,
                source=CIRCUIT if flags == "positions" else OURS,
                statement=f"The sum over positions has the final depth and the {violations}, as far as strings have "
                f"them together: interchanged along the mean effect, to sums that occur, {words}.",
                method=f"{PAIRS_METHOD}; of the flips those to sums that some string has ({PAIRS_COUNTED[n]})",
                rule=AtLeast(BAR),
                preregistration=_after_look(n, flags),
                quantity="answers as predicted",
                value_range=SHARE,
                measure=partial(measures.measure_pooled_possible, files=files, n=n, moved=moved, flags=flags),
                judged=_of_pairs(n),
            )


def _audited(n: int, files: WeightFiles) -> Iterator[Claim]:
    """Which heads are needed, with every string counted."""
    for block, statement, rule in (
        (0, "Attention of block 0 is needed.", AtLeast(1)),
        (1, "Attention of block 1 is not needed: all that is said to be there is there after block 0.", Equal(0)),
    ):
        yield _claim(
            f"audit.block-{block}",
            n,
            files,
            source=CIRCUIT if block == 0 else OURS,
            statement=statement,
            method=f"Number of heads of block {block} that cost more accuracy than the audit's threshold if they are "
            "replaced by their mean, on every string",
            rule=Value(rule),
            preregistration=AFTER_RUN_OF_OTHERS,
            quantity="heads that are needed",
            measure=partial(measures.measure_needed_heads, files=files, n=n, block=block),
            judged=_of_strings(measures.NEEDED),
        )


def _other_mechanisms(n: int, files: WeightFiles) -> Iterator[Claim]:
    """Mechanisms that are known to be false, and others with right answers."""
    yield _claim(
        "false.refused",
        n,
        files,
        source=OURS,
        statement="Planted false mechanisms are refused, for each of 10 seeds: flags of other positions, depth from "
        "the right, depth modulo a number, brackets of the first half, longest run.",
        method=f"Share of mechanisms and seeds that no site finds, neither by states nor along directions, with its "
        f"exact interval; 1,024 pairs of each kind, and a value whose interval reaches {BAR} is not refused",
        rule=Value(Equal(1)),
        preregistration=_after(n),
        quantity="false mechanisms refused",
        value_range=SHARE,
        measure=partial(measures.measure_false_mechanisms, files=files, n=n),
        judged=Share(measures.REFUSED, unit="mechanisms"),
    )
    yield _claim(
        "false.refused.each-sum",
        n,
        files,
        source=OURS,
        statement="The same planted false mechanisms are refused, for each of 10 seeds, where each sum of a "
        "mechanism must be found alone.",
        method="Share of mechanisms and seeds of which no site finds every sum alone, neither by states nor along "
        f"directions, with its exact interval; 1,024 pairs of each kind, and a value whose interval reaches {BAR} is "
        "not refused",
        rule=Value(Equal(1)),
        preregistration=Preregistration(
            "after a result" if n == min(LENGTHS) else "after first models", f"{KNOWN}; {AFTER_TWO_NOT_REFUSED}."
        ),
        quantity="false mechanisms refused",
        value_range=SHARE,
        measure=partial(measures.measure_false_mechanisms, files=files, n=n, each_sum=True),
        judged=Share(measures.REFUSED, unit="mechanisms"),
    )
    for rival, statement in RIVAL_STATEMENTS.items():
        yield _claim(
            f"rival.{rival}",
            n,
            files,
            source=OURS,
            statement=statement,
            method=f"Highest value over both layers, by states or along directions. {PAIRS_METHOD} "
            f"({PAIRS_COUNTED[n]})",
            rule=Below(BAR),
            preregistration=_after(n),
            quantity="answers as it predicts",
            value_range=SHARE,
            measure=partial(measures.measure_rival, files=files, n=n, rival=rival),
            judged=_of_pairs(n),
        )
