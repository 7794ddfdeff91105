"""Claims about what LEGO models learn and how far they extrapolate: Figures 3a, 3b and 5."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import Float

from case_studies.frame.claims import (
    Claim,
    Measurement,
    above,
    at_least,
    difference_interval,
    rule_text,
    t_interval,
)
from case_studies.frame.evidence import SIZES, Evidence, Size
from case_studies.lego.curves import accuracy_at, accuracy_rows, depth_chart, depth_curves, worst_untrained
from case_studies.lego.models import ARMS
from interp.core.statistics import proportion_interval

SOLVED = 0.99
"""Accuracy at which a variable counts as solved."""
LARGE: tuple[Size, ...] = ("standard", "paper")
LONGER = "Learning five or six group elements takes longer than this size allows."
TOO_SHORT = "Chains of four leave one variable to extrapolate to, which luck can predict: measured at larger sizes."


def measure_solved(evidence: Evidence, *, group: str) -> Measurement:
    """Accuracy of the worst variable of the worst seed, at the trained depth."""
    found = depth_curves(evidence, group)
    last = np.array([accuracy_at(curve, curve.trained_depth) for curve in found])
    seed, variable = np.unravel_index(last.argmin(), last.shape)
    hits, n = round(last[seed, variable] * found[0].n), found[0].n
    low, high = proportion_interval(np.array([hits]), n, confidence=1 - 0.05 / last.size)
    return Measurement(
        value=float(last[seed, variable]), low=float(low[0]), high=float(high[0]), n=len(found), unit="seeds",
        numbers={"sentences per model": n, "worst seed": int(seed), "worst variable": f"#{variable}",
                 "seeds that solve every variable": int((last >= SOLVED).all(1).sum())},
        tables=[("Accuracy of every variable", accuracy_rows(evidence, group))],
        charts=[depth_chart(found, "accuracy by number of layers applied")],
        note="Exact interval over sentences for the worst of all variables and seeds (Bonferroni).",
    )  # fmt: skip


def plain_depth(evidence: Evidence, group: str) -> int:
    """Number of layers of the fixed-depth arm that a group belongs to or is compared with."""
    return ARMS[evidence.size][group.split("-")[0]].layers


def beyond(evidence: Evidence, group: str, times: float) -> Float[np.ndarray, " seed"]:
    """Accuracy of the worst untrained variable, for each seed, at a multiple of the plain depth."""
    depth = round(times * plain_depth(evidence, group))
    return np.array([worst_untrained(curve, depth) for curve in depth_curves(evidence, group)])


def measure_contrast(evidence: Evidence, *, ours: tuple[str, float], other: tuple[str, float]) -> Measurement:
    """Accuracy of the worst untrained variable of one arm minus another's, each at its own test depth."""
    names = (ours[0], other[0])
    depths = [round(plain_depth(evidence, name) * times) for name, times in (ours, other)]
    a, b = beyond(evidence, *ours), beyond(evidence, *other)
    paired = names[0] == names[1]
    mean, low, high = t_interval(a - b) if paired else difference_interval(a, b)
    charts, tables = [], []
    for name in dict.fromkeys(names):
        charts.append(depth_chart(depth_curves(evidence, name), name))
        tables.append((f"Accuracy at the trained depth, {name} (* not trained)", accuracy_rows(evidence, name)))
    rows = [["arm", "layers at test", "accuracy of the worst untrained variable, by seed"]]
    for name, depth, values in zip(names, depths, (a, b), strict=True):
        rows.append([name, str(depth), ", ".join(f"{value:.3f}" for value in values)])
    return Measurement(
        value=mean, low=low, high=high, n=min(len(a), len(b)), unit="seeds an arm",
        numbers={f"{name}, {depth} layers": float(values.mean())
                 for name, depth, values in zip(names, depths, (a, b), strict=True)},
        tables=[("The worst untrained variable, every seed", rows), *tables], charts=charts,
        note=f"{'Paired by seed, t interval' if paired else 'Welch t interval over seeds'}; chance is 0.5. The worst "
        "variable is judged because sign counting can predict the last one without following the chain.",
    )  # fmt: skip


def measure_robust(evidence: Evidence, *, ours: str, other: str) -> Measurement:
    """Lowest accuracy on trained variables, from the plain depth to twice that: one arm minus another."""

    def least(group: str) -> Float[np.ndarray, " seed"]:
        values, depth = [], plain_depth(evidence, group)
        for curve in depth_curves(evidence, group):
            chosen = [row for row, applied in enumerate(curve.depths) if depth <= applied <= 2 * depth]
            values.append(curve.accuracy[chosen][:, np.array(curve.supervised)].min())
        return np.array(values)

    a, b = least(ours), least(other)
    mean, low, high = difference_interval(a, b)
    rows: list[list] = [["arm", "lowest accuracy on a trained variable, by seed"]]
    rows += [[name, ", ".join(f"{value:.3f}" for value in values)] for name, values in ((ours, a), (other, b))]
    return Measurement(
        value=mean, low=low, high=high, n=min(len(a), len(b)), unit="seeds an arm",
        numbers={ours: float(a.mean()), other: float(b.mean())},
        tables=[("Trained variables, at every depth from the plain depth to twice that", rows)],
        note="Welch t interval over seeds.",
    )  # fmt: skip


def _solved(group: str, what: str, source: str, sizes: Sequence[Size] = SIZES, why_not: str = "") -> Claim:
    return Claim(
        id=f"solved.{group.removeprefix('classical-')}", source=source, sizes=tuple(sizes), why_not=why_not,
        statement=f"{what} learns every variable of its chains.",
        rule="Accuracy on held-out sentences of the worst variable of the worst seed: "
        + rule_text("at or above", SOLVED, interval="exact interval (Bonferroni over variables and seeds)"),
        quantity="lowest accuracy", measure=partial(measure_solved, group=group), judge=partial(at_least, bar=SOLVED),
        needs=(group,),
    )  # fmt: skip


def _contrast(
    name: str, statement: str, ours: tuple[str, float], other: tuple[str, float], *, source: str,
    paper: str | None = None,
) -> Claim:  # fmt: skip
    def words(arm: tuple[str, float]) -> str:
        return f"{arm[0]} at {arm[1]:g} times the plain depth" if arm[1] != 1 else f"{arm[0]} at the plain depth"

    return Claim(
        id=name, source=source, paper=paper, statement=statement, sizes=LARGE, why_not=TOO_SHORT,
        rule=f"Accuracy of the worst untrained variable, {words(ours)} minus {words(other)}: {rule_text('above')}",
        quantity="difference in accuracy", measure=partial(measure_contrast, ours=ours, other=other),
        judge=partial(above, bar=0.0), needs=tuple(dict.fromkeys((ours[0], other[0]))),
    )  # fmt: skip


FIGURE_3B = "LEGO, Section 4.1 and Figure 3b"
FIGURE_5 = "LEGO, Section 4.1 and Figure 5"
LOOP = "ours: a loop can be run longer"
PAPERS = "in words: trained on six, a tied model predicts two more, an untied model none"
LONG = ("long-stochastic", "long-tied")
CLAIMS = (
    _solved("classical-untied", "An untied model", "LEGO, Section 3 and Figure 3a: BERT"),
    _solved("classical-tied", "A tied model", "LEGO, Section 3 and Figure 3a: ALBERT"),
    _contrast(
        "beyond.tied", "Trained on the first variables of chains of one length, a tied model extrapolates further "
        "than an untied one.",
        ("plain-tied", 1), ("plain-untied", 1), source=FIGURE_3B, paper=PAPERS,
    ),
    _contrast(
        "beyond.tied-diverse", "Trained on diverse lengths (a curriculum), a tied model extrapolates further than an "
        "untied one.",
        ("long-tied", 1), ("long-untied", 1), source=FIGURE_3B,
    ),
    _contrast(
        "beyond.turns", "A tied model extrapolates further when run at twice its trained depth.",
        ("long-tied", 2), ("long-tied", 1), source=LOOP,
    ),
    _contrast(
        "beyond.turns-plain", "A tied model trained on one chain length also extrapolates further when run at twice "
        "its trained depth.",
        ("plain-tied", 2), ("plain-tied", 1), source=LOOP,
    ),
    _contrast(
        "beyond.loop-plain", "Trained on one chain length, a tied model run at twice its trained depth extrapolates "
        "further than an untied one.",
        ("plain-tied", 2), ("plain-untied", 1), source="ours, after Figure 3b",
    ),
    _contrast(
        "beyond.loop", "A tied model trained with stochastic depth and run at a greater depth extrapolates further "
        "than an untied one.",
        ("long-stochastic", 2), ("long-untied", 1), source="ours, after Figures 3b and 5",
    ),
    _contrast(
        "depth.stochastic", "Stochastic depth in training makes a tied model extrapolate further, for the same "
        "number of layers in training.",
        ("long-stochastic", 1.25), ("long-tied", 1.25), source=FIGURE_5,
    ),
    Claim(
        id="depth.robust", source=FIGURE_5, sizes=LARGE, why_not=TOO_SHORT,
        statement="With stochastic depth, what was learned is kept at every test depth.",
        rule="Lowest accuracy on any trained variable at any depth from the plain depth to twice that, stochastic "
        f"minus fixed depth: {rule_text('above')}",
        quantity="difference in accuracy", measure=partial(measure_robust, ours=LONG[0], other=LONG[1]),
        judge=partial(above, bar=0.0), needs=LONG,
    ),
    _solved("group-s3", "A model of Task 2, permutations of three letters,", "LEGO, Appendix: Task 2", LARGE, LONGER),
    _solved("group-z5", "A model of addition modulo five", "ours: a group that the paper did not use", LARGE, LONGER),
)  # fmt: skip
