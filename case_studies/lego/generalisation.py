"""Claims about what is learned and how far it carries: Figures 3a, 3b and 5."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import Float

from case_studies.frame.claims import Claim, Measurement, above, at_least, difference_interval, t_interval
from case_studies.frame.evidence import SIZES, Evidence, ModelSpec, Size
from case_studies.lego.curves import DepthCurve, depth_chart, depth_curve
from case_studies.lego.models import ARMS
from interp.core.statistics import proportion_interval

SOLVED = 0.99
"""Accuracy at which a variable counts as solved."""
LARGE: tuple[Size, ...] = ("standard", "paper")
LONGER = "Six or five values take longer to learn than this size has."
TOO_SHORT = "Chains of four leave one variable to extrapolate to, by luck: the claim is about the sizes above."


def measure_solved(evidence: Evidence, *, group: str) -> Measurement:
    """The least accuracy of any variable of any seed, at the depth of training."""
    specs = evidence.specs(group)
    found = [depth_curve(evidence, spec) for spec in specs]
    last = np.array([curve.at(spec.config.n_layers) for curve, spec in zip(found, specs, strict=True)])
    seed, variable = np.unravel_index(last.argmin(), last.shape)
    hits, n = round(last[seed, variable] * found[0].n), found[0].n
    low, high = proportion_interval(np.array([hits]), n, confidence=1 - 0.05 / last.size)
    return Measurement(
        value=float(last[seed, variable]), low=float(low[0]), high=float(high[0]), n=len(specs), unit="seeds",
        numbers={"sentences per model": n, "worst seed": int(seed), "worst variable": f"#{variable}",
                 "seeds that solve every variable": int((last >= SOLVED).all(1).sum())},
        tables=[("Accuracy of every variable", accuracy_rows(specs, found))],
        charts=[depth_chart(found, "accuracy when the first so many layers alone are applied")],
        note="The interval is exact, over sentences, for the worst of all variables and seeds (Bonferroni).",
    )  # fmt: skip


def accuracy_rows(specs: Sequence[ModelSpec], found: Sequence[DepthCurve]) -> list[list]:
    """One row per model: accuracy of every variable at its training depth; a star marks those that were not trained."""
    names = [f"#{i}" + ("" if known else "*") for i, known in enumerate(found[0].supervised)]
    rows: list[list] = [["seed", "layers", *names]]
    for spec, curve in zip(specs, found, strict=True):
        rows.append([spec.seed, spec.config.n_layers, *(f"{v:.3f}" for v in curve.at(spec.config.n_layers))])
    return rows


def plain_depth(evidence: Evidence, group: str) -> int:
    """Layers of the arm trained at one depth that a group belongs to, or is compared with."""
    return ARMS[evidence.size][group.split("-")[0]].layers


def beyond(evidence: Evidence, group: str, times: float) -> Float[np.ndarray, " seed"]:
    """Accuracy of the worst untrained variable, of each seed, at so many times the plain depth."""
    depth = round(times * plain_depth(evidence, group))
    return np.array([depth_curve(evidence, spec).beyond(depth) for spec in evidence.specs(group)])


def measure_contrast(evidence: Evidence, *, ours: tuple[str, float], other: tuple[str, float]) -> Measurement:
    """Accuracy of the worst untrained variable of one arm minus that of another, each at its own test depth."""
    (group, times), (group_b, times_b) = ours, other
    a, b = beyond(evidence, group, times), beyond(evidence, group_b, times_b)
    paired = group == group_b
    mean, low, high = t_interval(a - b) if paired else difference_interval(a, b)
    charts, tables = [], []
    for name in dict.fromkeys((group, group_b)):
        specs = evidence.specs(name)
        found = [depth_curve(evidence, spec) for spec in specs]
        charts.append(depth_chart(found, name))
        tables.append((f"Accuracy at the depth of training, {name} (* not trained)", accuracy_rows(specs, found)))
    depths = [round(plain_depth(evidence, name) * each) for name, each in (ours, other)]
    rows = [["arm", "layers at test", "seeds: accuracy of the worst untrained variable"]]
    for name, depth, values in zip((group, group_b), depths, (a, b), strict=True):
        rows.append([name, str(depth), ", ".join(f"{value:.3f}" for value in values)])
    return Measurement(
        value=mean, low=low, high=high, n=min(len(a), len(b)), unit="seeds an arm",
        numbers={f"{name}, {depth} layers": float(values.mean())
                 for name, depth, values in zip((group, group_b), depths, (a, b), strict=True)},
        tables=[("The worst untrained variable, every seed", rows), *tables], charts=charts,
        note=f"{'Paired by seed, t interval' if paired else 'Welch t interval over seeds'}; chance is 0.5. The worst "
        "variable is asked, since the last may be told by counting signs, without any chain.",
    )  # fmt: skip


def measure_robust(evidence: Evidence, *, ours: str, other: str) -> Measurement:
    """Least accuracy on trained variables, from the plain depth to twice that: one arm minus another."""

    def least(group: str) -> Float[np.ndarray, " seed"]:
        values, depth = [], plain_depth(evidence, group)
        for spec in evidence.specs(group):
            curve = depth_curve(evidence, spec)
            chosen = [row for row, applied in enumerate(curve.depths) if depth <= applied <= 2 * depth]
            values.append(curve.accuracy[chosen][:, curve.supervised].min())
        return np.array(values)

    a, b = least(ours), least(other)
    mean, low, high = difference_interval(a, b)
    rows: list[list] = [["arm", "seeds: least accuracy on a trained variable"]]
    rows += [[name, ", ".join(f"{value:.3f}" for value in values)] for name, values in ((ours, a), (other, b))]
    return Measurement(
        value=mean, low=low, high=high, n=min(len(a), len(b)), unit="seeds an arm",
        numbers={ours: float(a.mean()), other: float(b.mean())},
        tables=[("Trained variables, at every depth from the plain one to twice that", rows)],
        note="Welch t interval over seeds.",
    )  # fmt: skip


def _solved(group: str, what: str, source: str, sizes: Sequence[Size] = SIZES, why_not: str = "") -> Claim:
    return Claim(
        id=f"solved.{group.removeprefix('classical-')}", source=source, sizes=tuple(sizes), why_not=why_not,
        statement=f"{what} learns every variable of its chains.",
        rule="Accuracy on held-out sentences of the worst variable of the worst seed: reproduced if its exact "
        f"interval (Bonferroni over variables and seeds) lies at {SOLVED} or above, not reproduced if below, else out "
        "of reach.",
        quantity="least accuracy", measure=partial(measure_solved, group=group), judge=partial(at_least, bar=SOLVED),
        needs=(group,),
    )  # fmt: skip


def _contrast(
    name: str,
    statement: str,
    ours: tuple[str, float],
    other: tuple[str, float],
    *,
    source: str,
    paper: str | None = None,
) -> Claim:
    def words(arm: tuple[str, float]) -> str:
        return f"{arm[0]} at {arm[1]:g} times the plain depth" if arm[1] != 1 else f"{arm[0]} at the plain depth"

    return Claim(
        id=name, source=source, paper=paper, statement=statement, sizes=LARGE, why_not=TOO_SHORT,
        rule=f"Accuracy of the worst variable that was not trained, {words(ours)} minus {words(other)}: reproduced if "
        "the t interval over seeds lies above 0, not reproduced if below, else inconclusive.",
        quantity="difference in accuracy", measure=partial(measure_contrast, ours=ours, other=other),
        judge=partial(above, bar=0.0), needs=tuple(dict.fromkeys((ours[0], other[0]))),
    )  # fmt: skip


FIGURE_3B = "LEGO, Section 4.1 and Figure 3b"
FIGURE_5 = "LEGO, Section 4.1 and Figure 5"
PAPERS = "in words: six trained; tied tells two more, untied none"
LONG = ("long-stochastic", "long-tied")
CLAIMS = (
    _solved("classical-untied", "An untied model", "LEGO, Section 3 and Figure 3a: BERT"),
    _solved("classical-tied", "A tied model", "LEGO, Section 3 and Figure 3a: ALBERT"),
    _contrast(
        "beyond.tied", "Trained on the first variables of chains of one length, a tied model carries further than an "
        "untied one.", ("plain-tied", 1), ("plain-untied", 1), source=FIGURE_3B, paper=PAPERS,
    ),
    _contrast(
        "beyond.tied-diverse", "Trained on diverse lengths (a curriculum), a tied model carries further than an "
        "untied one.",
        ("long-tied", 1), ("long-untied", 1), source=FIGURE_3B,
    ),
    _contrast(
        "beyond.turns", "A tied model carries further when it is run for twice as long as it was trained.",
        ("long-tied", 2), ("long-tied", 1), source="ours: a loop can be run longer",
    ),
    _contrast(
        "beyond.turns-plain", "Trained on one chain length too, a tied model carries further when it is run for "
        "twice as long.",
        ("plain-tied", 2), ("plain-tied", 1), source="ours: a loop can be run longer",
    ),
    _contrast(
        "beyond.loop-plain",
        "Trained on one chain length, a tied model run for twice as long carries further than an untied one.",
        ("plain-tied", 2), ("plain-untied", 1), source="ours, after Figure 3b",
    ),
    _contrast(
        "beyond.loop", "A tied model trained with stochastic depth and run for longer carries further than an untied "
        "one.",
        ("long-stochastic", 2), ("long-untied", 1), source="ours, after Figures 3b and 5",
    ),
    _contrast(
        "depth.stochastic", "Stochastic depth in training carries a tied model further, after as many layers in "
        "training.",
        ("long-stochastic", 1.25), ("long-tied", 1.25), source=FIGURE_5,
    ),
    Claim(
        id="depth.robust", source=FIGURE_5, sizes=LARGE, why_not=TOO_SHORT,
        statement="Stochastic depth keeps what was learned whatever the depth at test.",
        rule="Least accuracy on any trained variable at any depth from the plain one to twice that, stochastic minus "
        "fixed depth: reproduced if the t interval over seeds lies above 0, not reproduced if below, else out of "
        "reach.",
        quantity="difference in accuracy", measure=partial(measure_robust, ours=LONG[0], other=LONG[1]),
        judge=partial(above, bar=0.0), needs=LONG,
    ),
    _solved("group-s3", "A model of Task 2, permutations of three letters,", "LEGO, Appendix: Task 2", LARGE, LONGER),
    _solved("group-z5", "A model of addition modulo five", "ours: a group that the paper did not try", LARGE, LONGER),
)  # fmt: skip
