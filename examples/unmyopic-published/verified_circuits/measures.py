"""Measures of the claims: decisions and margins, probes, attention of block 0, interchanges, false mechanisms."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.packs import WeightFiles
from interp.auditing import AuditResult
from interp.auditing.audit import audit
from verified_circuits import readings
from verified_circuits.handwritten import handwritten_circuit
from verified_circuits.interchanges import (
    BRACKET,
    DEPTH,
    FLAG,
    TOTAL,
    VIOLATIONS,
    Directions,
    Edit,
    Site,
    Subject,
    fit_directions,
    pooled_variables,
    position_variables,
    read_subject,
    states_at,
    whole,
)
from verified_circuits.probes import separable, squared_correlation
from verified_circuits.readings import FALSE_MECHANISMS, RIVALS, Reading
from verified_circuits.scores import BAR, PAIRS_BY_LENGTH, Score, readings_of, score_reading
from verified_circuits.strings import BALANCED, Balanced, Strings

Interchanged = Literal["literal", "charitable", "directions", "probes"]
"""What is interchanged and predicted: whole states in one of two readings, components along directions, or what probes
read of the pooled vector."""
Statement = Literal["circuit", "flags", "total", "pooled total", "pooled violations", "pooled both"]
READINGS: Mapping[tuple[str, str], Callable[[Strings], Reading]] = {
    ("circuit", "literal"): readings.circuit_literal,
    ("circuit", "charitable"): readings.circuit_charitable,
    ("circuit", "directions"): readings.circuit_charitable,
    ("flags", "literal"): readings.flags_literal,
    ("flags", "charitable"): readings.flags_charitable,
    ("flags", "directions"): readings.flags_along_direction,
    ("total", "literal"): readings.total_literal,
    ("total", "charitable"): readings.total_charitable,
    ("total", "directions"): readings.total_along_direction,
    ("pooled total", "directions"): readings.pooled_total,
    ("pooled violations", "directions"): readings.pooled_violations,
    ("pooled both", "directions"): readings.pooled_both,
}
POSSIBLE: Mapping[str, tuple[bool, bool]] = {
    "total": (True, False),
    "violations": (False, True),
    "both": (True, True),
}
"""What moves in the pooled vector: the final depth, the number of violations, or both."""
MOVED: Mapping[str, tuple[int, ...]] = {
    "circuit": (FLAG, BRACKET, DEPTH),
    "flags": (FLAG,),
    "total": (BRACKET,),
    "pooled total": (TOTAL,),
    "pooled violations": (VIOLATIONS,),
    "pooled both": (TOTAL, VIOLATIONS),
}
"""Variables that an interchange along directions moves."""
MECHANISM_SITES: tuple[Site, ...] = ("block 0", "block 1")
MECHANISM_PAIRS = 1024
"""Pairs of each kind for a false mechanism, at a site: an interval of at most 0.03 on both sides."""
MECHANISM_STRINGS = 8192
"""Strings that the directions of a mechanism are fitted to, if there are more."""
COUNTED = 10
"""Most tokens of which every string is read for the attention; of longer ones it is a sample."""
STRINGS_SAMPLED = 8192
WRONG, MARGIN, R2, SEPARABLE, DISTANCE = "wrong decisions", "smallest margin", "R2", "separable positions", "distance"
NEEDED, REFUSED, WRONG_VERDICTS = "needed heads", "refused", "wrong verdicts"
"""Columns of the judged numbers."""
AGGREGATE, STRINGS, BOTH, VERDICTS = "aggregate", "strings", "pairs of both sums", "verdicts"
"""Columns of what a row is of, and of the number of its units."""
SEEDS = 10
"""Seeds of the false mechanisms and of their pairs."""


# What is certified: decisions and margins


def measure_errors(evidence: Evidence, *, files: WeightFiles, n: int) -> pd.DataFrame:
    """Number of strings with a wrong decision, in double precision."""
    subject = read_subject(files, n)
    balanced = subject.strings.balanced
    wrong = (subject.logits().argmax(-1) == BALANCED) != balanced
    counts = {WRONG: int(wrong.sum()), STRINGS: len(balanced), "balanced strings": int(balanced.sum())}
    return pd.DataFrame([counts])


def measure_margin(evidence: Evidence, *, files: WeightFiles, n: int) -> pd.DataFrame:
    """Smallest logit of the right answer less that of the wrong one, in double precision, by the right answer."""
    subject = read_subject(files, n)
    is_balanced = subject.strings.balanced
    logits = subject.logits()
    difference = logits[:, BALANCED] - logits[:, 1 - BALANCED]
    margins = torch.where(is_balanced, difference, -difference)
    smallest = [float(margins[is_balanced].min()), float(margins[~is_balanced].min())]
    return pd.DataFrame({"right answer": ["balanced", "not balanced"], MARGIN: smallest, STRINGS: len(margins)})


# What can be read


def measure_depth(evidence: Evidence, *, files: WeightFiles, n: int, site: Site) -> pd.DataFrame:
    """Squared correlation of the running depth with a linear map of the states, one row a position."""
    subject = read_subject(files, n)
    states = states_at(subject, site)
    by_position = [
        squared_correlation(states[:, position], subject.strings.depth[:, position]) for position in range(n)
    ]
    return pd.DataFrame({"position": range(1, n + 1), R2: by_position, STRINGS: 2**n})


def measure_flags(evidence: Evidence, *, files: WeightFiles, n: int, site: Site) -> pd.DataFrame:
    """Number of positions at which a hyperplane separates the states with a flag from the others."""
    subject = read_subject(files, n)
    states = states_at(subject, site)
    results = []
    for position in range(n):
        # Strings with the same tokens so far have the same state
        rows = torch.arange(0, 2**n, 2 ** (n - 1 - position))
        results.append(separable(states[rows, position], subject.strings.flags[rows, position].bool()))
    without = ", ".join(str(index + 1) for index, result in enumerate(results) if not result)
    return pd.DataFrame([{SEPARABLE: sum(results), STRINGS: 2**n, "not separable": without or "none"}])


def measure_aggregates(evidence: Evidence, *, files: WeightFiles, n: int) -> pd.DataFrame:
    """Squared correlation of an aggregate with a linear map of the pooled vector, one row each; most are shown only."""
    subject = read_subject(files, n)
    states, strings = states_at(subject, "pooled"), subject.strings
    lowest = strings.depth.amin(1).clamp_max(0)
    variables = {
        "final depth": strings.total,
        "number of violations": strings.violations,
        "any violation": (strings.violations > 0).long(),
        "sum of the depths below zero": strings.depth.clamp_max(0).sum(1),
        "lowest depth, at most zero": lowest,
        "falls below zero": readings.falls_below_zero(strings).sums[:, 1],
        "matched pairs": readings.matched_pairs(strings).sums[:, 0],
    }
    shares = {name: squared_correlation(states, variable) for name, variable in variables.items()}
    return pd.DataFrame({AGGREGATE: list(shares), R2: list(shares.values()), STRINGS: 2**n})


# Running depth as a prefix sum by causal attention


def measure_attention(
    evidence: Evidence, *, files: WeightFiles, n: int, reference: Literal["uniform", "mean"]
) -> pd.DataFrame:
    """Distance of the attention of block 0 from a uniform one, or from its mean over strings, one row a head.

    Total variation distance, mean over strings and over queries but the first, which has one key.
    """
    subject = read_subject(files, n)
    # A query has seen a prefix only, and a sample of strings bounds the memory
    draw = np.random.default_rng([evidence.seed, n])
    rows = np.arange(2**n) if n <= COUNTED else draw.choice(2**n, size=STRINGS_SAMPLED, replace=False)
    name = "blocks.0.attn.hook_pattern"
    with torch.no_grad():
        _, cache = subject.model.run_with_cache(subject.strings.tokens[rows], names_filter=name)
    pattern = cache[name].double()
    visible = torch.ones(n, n, dtype=torch.float64).tril()
    target = visible / visible.sum(1, keepdim=True) if reference == "uniform" else pattern.mean(0)
    distances = (pattern - target).abs().sum(-1)[:, :, 1:] / 2
    of_heads = []
    for head, distance in enumerate(distances.mean((0, 2)).tolist()):
        row = {"head": f"0.{head}", DISTANCE: distance}
        if n > COUNTED:
            deviation = float(distances[:, head].mean(1).numpy().std(ddof=1))
            half = max(1.96 * deviation / len(rows) ** 0.5, 1e-9)
            row |= {"low": distance - half, "high": distance + half}
        of_heads.append({**row, STRINGS: len(rows)})
    return pd.DataFrame(of_heads)


# Which wiring is causal: interchanges


def measure_interchange(
    evidence: Evidence, *, files: WeightFiles, n: int, statement: str, interchanged: str, site: Site
) -> Readings:
    """Score of a reading of a statement at a site: the lower of its shares of flips and of placebos that stay."""
    subject = read_subject(files, n)
    score = score_statement(subject, statement, interchanged, site, limit=PAIRS_BY_LENGTH[n], seed=evidence.seed)
    return readings_of([score])


def score_statement(
    subject: Subject, statement: str, interchanged: str, site: Site, *, limit: int | None, seed: int
) -> Score:
    """Score of a reading of a statement at a site; arguments as in `measure_interchange` and `score_reading`."""
    strings = subject.strings
    states = states_at(subject, site)
    key = (statement, "directions" if interchanged == "probes" else interchanged)
    edit: Edit = whole
    if interchanged in ("directions", "probes"):
        directions = _directions(subject, site, states)
        moved = MOVED[statement]
        edit = directions.move(moved) if interchanged == "directions" else directions.move_probes(moved)
    return score_reading(subject, READINGS[key](strings), site, edit, states, limit=limit, seed=seed)


def _directions(subject: Subject, site: Site, states: Float[Tensor, "string *pos d_model"]) -> Directions:
    """Directions of the stated circuit's variables at a site."""
    variables = pooled_variables(subject.strings) if site == "pooled" else position_variables(subject.strings)
    return fit_directions(states, variables)


def measure_one_kind(
    evidence: Evidence, *, files: WeightFiles, n: int, flags: str, interchanged: str, site: Site
) -> Readings:
    """Scores of the two sums of the fourth reading, each alone: flags at one kind of bracket, and brackets."""
    subject = read_subject(files, n)
    scores = score_one_kind(subject, flags, interchanged, site, limit=PAIRS_BY_LENGTH[n], seed=evidence.seed)
    found = readings_of(sorted(scores, key=lambda score: score.lowest))
    return replace(found, frame=found.frame.assign(**{BOTH: sum(score.n for score in scores)}))


def score_one_kind(
    subject: Subject, flags: str, interchanged: str, site: Site, *, limit: int | None, seed: int
) -> list[Score]:
    """Scores of both sums of the fourth reading; arguments as in `score_statement`."""
    states = states_at(subject, site)
    reading = readings.ONE_KIND[flags](subject.strings)
    variables = torch.cat([reading.contributions, subject.strings.depth[..., None]], 2)
    directions = fit_directions(states, variables)
    scores = []
    for index, alone in enumerate(readings.parts(reading)):
        edit = directions.move([index]) if interchanged == "directions" else whole
        scores.append(score_reading(subject, alone, site, edit, states, limit=limit, seed=seed))
    return scores


def measure_pooled_possible(evidence: Evidence, *, files: WeightFiles, n: int, moved: str, flags: str) -> Readings:
    """Score of an interchange along directions in the pooled vector, to sums that some string has."""
    subject = read_subject(files, n)
    strings, states = subject.strings, states_at(subject, "pooled")
    violations = readings.FLAGS[flags](strings).sum(1)
    name = f"pooled {moved}, flags at {flags}, possible sums"
    reading = readings.pooled_possible(strings, violations, moved=POSSIBLE[moved], name=name)
    directions = fit_directions(states, torch.stack([strings.total, violations], 1))
    edit = directions.move([index for index, moves in enumerate(POSSIBLE[moved]) if moves])
    score = score_reading(subject, reading, "pooled", edit, states, limit=PAIRS_BY_LENGTH[n], seed=evidence.seed)
    return readings_of([score])


def measure_possible(evidence: Evidence, *, files: WeightFiles, n: int, statement: str, site: Site) -> Readings:
    """Score of the charitable reading of a statement, of flips those to sums that some string has."""
    subject = read_subject(files, n)
    reading = READINGS[statement, "charitable"](subject.strings)
    possible = replace(reading, name=f"{reading.name}, possible sums", only_possible=True)
    states = states_at(subject, site)
    score = score_reading(subject, possible, site, whole, states, limit=PAIRS_BY_LENGTH[n], seed=evidence.seed)
    return readings_of([score])


# The audit of the heads


@cache
def audit_of(files: WeightFiles, n: int) -> AuditResult:
    """The audit of the four heads on every string; it draws nothing."""
    return audit(read_subject(files, n).model, Balanced(n=n), n="all")


def measure_needed_heads(evidence: Evidence, *, files: WeightFiles, n: int, block: int) -> Readings:
    """Number of heads of a block that the model needs: replaced by their mean, they cost accuracy."""
    result = audit_of(files, n)
    needed = [head for head in result.heads if head.layer == block and head.needed["mean"]]
    verdicts = [
        {"head": f"{head.layer}.{head.head}", "verdict": head.verdict, "label": head.label} for head in result.heads
    ]
    sentences = pd.DataFrame({"every string counted once": list(result.sentences())})
    return Readings(
        frame=pd.DataFrame([{NEEDED: len(needed), STRINGS: 2**n}]),
        tables=[("Verdicts of the audit", pd.DataFrame(verdicts)), ("In sentences", sentences)],
    )


# Other mechanisms


def score_each_sum(
    subject: Subject, reading: Reading, *, limit: int | None, seed: int
) -> list[tuple[float, float, float]]:
    """Lowest score over a mechanism's sums, each alone, by states and along directions at each site."""
    sums_alone = readings.parts(reading)
    lowest = []
    for site in MECHANISM_SITES:
        states = states_at(subject, site)
        directions = _mechanism_directions(subject, reading, states)
        for along in (False, True):
            values = []
            for index, alone in enumerate(sums_alone):
                edit = directions.move([index]) if along else whole
                values.append(score_reading(subject, alone, site, edit, states, limit=limit, seed=seed).lowest)
            lowest.append(min(values))
    return lowest


def _mechanism_directions(
    subject: Subject, reading: Reading, states: Float[Tensor, "string pos d_model"]
) -> Directions:
    """Directions of a mechanism's contributions, next to that of the running depth; of many strings, from a sample."""
    variables = torch.cat([reading.contributions, subject.strings.depth[..., None]], 2)
    rows = np.random.default_rng(0).permutation(len(states))[:MECHANISM_STRINGS]
    return fit_directions(states[rows], variables[rows])


def score_mechanism(
    subject: Subject, reading: Reading, *, limit: int | None, seed: int, sites: tuple[Site, ...] = MECHANISM_SITES
) -> list[Score]:
    """Scores of another mechanism, by whole states and along its own directions, at each site.

    Its directions are fitted as those of the stated circuit are, with the running depth among the variables.
    """
    scores = []
    for site in sites:
        states = states_at(subject, site)
        scores.append(score_reading(subject, reading, site, whole, states, limit=limit, seed=seed))
        if reading.n_wrong:
            continue
        edit = _mechanism_directions(subject, reading, states).move(range(reading.contributions.shape[2]))
        label = f"{site}, directions"
        scores.append(score_reading(subject, reading, site, edit, states, limit=limit, seed=seed, label=label))
    return scores


def measure_false_mechanisms(evidence: Evidence, *, files: WeightFiles, n: int, each_sum: bool = False) -> Readings:
    """Whether the planted false mechanisms are refused, one row a mechanism and seed; the table is by mechanism."""
    frame = false_mechanisms_refused(read_subject(files, n), seed=evidence.seed, each_sum=each_sum)
    by_mechanism = frame.groupby("mechanism", sort=False)
    table = by_mechanism.agg(
        **{
            REFUSED: (REFUSED, "sum"),
            "of seeds": (REFUSED, "size"),
            "highest value": ("highest value", "max"),
            "strings answered wrongly": ("strings answered wrongly", "max"),
        }
    )
    return Readings(frame=frame, table=table.reset_index(), title="Planted false mechanisms")


def false_mechanisms_refused(
    subject: Subject, *, seed: int, each_sum: bool = True, n_seeds: int = SEEDS
) -> pd.DataFrame:
    """Whether each planted false mechanism is refused: found at no site, neither by states nor by directions.

    Args:
        subject: The model.
        seed: Determines mechanisms and pairs.
        each_sum: Whether each sum of a mechanism must be found alone; else all its pairs count together.
        n_seeds: Number of seeds of each mechanism.
    """
    rows = []
    for name, make in FALSE_MECHANISMS.items():
        for mechanism_seed in range(n_seeds):
            draw = np.random.default_rng([seed, mechanism_seed])
            reading = make(subject.strings, draw)
            options: dict[str, Any] = {"limit": MECHANISM_PAIRS, "seed": seed + mechanism_seed}
            if reading.n_wrong:
                values = [(0.0, 0.0, 0.0)]
            elif each_sum:
                values = score_each_sum(subject, reading, **options)
            else:
                values = [score.lowest for score in score_mechanism(subject, reading, **options)]
            row = {"mechanism": name, "seed": mechanism_seed}
            row[REFUSED] = not any(high >= BAR for _, _, high in values)
            row["highest value"] = max(value for value, _, _ in values)
            rows.append({**row, "strings answered wrongly": reading.n_wrong})
    return pd.DataFrame(rows)


def measure_rival(evidence: Evidence, *, files: WeightFiles, n: int, rival: str) -> Readings:
    """Scores of another mechanism with right answers, at each site, by states and along directions."""
    subject = read_subject(files, n)
    scores = score_mechanism(subject, RIVALS[rival](subject.strings), limit=PAIRS_BY_LENGTH[n], seed=evidence.seed)
    return readings_of(sorted(scores, key=lambda score: score.lowest, reverse=True))


def measure_controls(evidence: Evidence) -> Readings:
    """Number of wrong verdicts on hand-written models, one for each reading, whose wiring is known."""
    rows = []
    n_wrong = n_tested = 0
    for wiring in ("literal", "charitable"):
        subject = Subject(handwritten_circuit(10, wiring, seed=evidence.seed), 10)
        model = {"hand-written model": wiring}
        for interchanged in ("literal", "charitable", "directions"):
            for site in MECHANISM_SITES:
                score = score_statement(
                    subject, "circuit", interchanged, site, limit=PAIRS_BY_LENGTH[10], seed=evidence.seed
                )
                is_true = (interchanged == "literal") == (wiring == "literal")
                tested = {**model, "reading": interchanged, "site": site, "value": score.lowest[0]}
                rows.append({**tested, "true of it": is_true, "found": score.found})
                n_wrong, n_tested = n_wrong + (score.found != is_true), n_tested + 1
        refused = false_mechanisms_refused(subject, seed=evidence.seed)[REFUSED].tolist()
        n_found = refused.count(False)
        tested = {**model, "reading": "planted false mechanisms", "site": "all", "value": n_found / len(refused)}
        rows.append({**tested, "true of it": False, "found": n_found > 0})
        n_wrong, n_tested = n_wrong + n_found, n_tested + len(refused)
    return Readings(
        frame=pd.DataFrame([{WRONG_VERDICTS: n_wrong, VERDICTS: n_tested}]),
        tables=[("Verdicts on hand-written models", pd.DataFrame(rows))],
    )
