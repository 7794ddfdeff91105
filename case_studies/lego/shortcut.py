"""Claims about the shortcut: predicting the last variable by counting minus signs, without following the chain."""

from functools import partial

import numpy as np
from jaxtyping import Float

from case_studies.frame.claims import (
    Claim,
    ClaimVerdict,
    Measurement,
    above,
    difference_interval,
    rule_text,
    t_interval,
)
from case_studies.frame.evidence import Evidence
from case_studies.lego.curves import accuracy_rows, depth_curves, learning_chart
from case_studies.lego.generalisation import LARGE
from case_studies.lego.starts import NO_TIME
from interp.theory.signs import sign_counting

LEAST = 0.1
"""Smallest accuracy above chance on the last variable at which sign counting is measured."""
BROKEN = 2000
"""Number of sentences with a broken chain."""
SECTION = "LEGO, Section 4.3 and Appendix A"


def _last_and_middle(
    evidence: Evidence, group: str
) -> tuple[Float[np.ndarray, " seed"], Float[np.ndarray, "seed target"]]:
    """Accuracy of the last variable and of the untrained ones, for each seed."""
    curves = depth_curves(evidence, group)
    accuracy = np.stack([curve.accuracy[-1] for curve in curves])
    return accuracy[:, -1], accuracy[:, ~np.array(curves[0].supervised)]


def measure_lead(evidence: Evidence, *, group: str) -> Measurement:
    """Accuracy of the last variable minus mean accuracy of the middle ones."""
    last, middle = _last_and_middle(evidence, group)
    mean, low, high = t_interval(last - middle.mean(1))
    return Measurement(
        value=mean, low=low, high=high, n=len(last), unit="seeds",
        numbers={"last variable": float(last.mean()), "middle": float(middle.mean())},
        tables=[("Accuracy of every variable (* not trained)", accuracy_rows(evidence, group))],
        charts=[learning_chart(evidence, group)],
        note=f"t interval over seeds; {depth_curves(evidence, group)[0].n} held-out sentences per model; chance is "
        "0.5.",
    )  # fmt: skip


def measure_parity(evidence: Evidence, *, group: str) -> Measurement:
    """Share of the accuracy above chance on the last variable that remains when the chain is broken."""
    rows: list[list] = [["seed", "accuracy, last variable", "answer is the parity of signs, chain broken",
                         "changes with one sign flipped", "changes with two"]]  # fmt: skip
    shares = []
    for spec, curve in zip(evidence.specs(group), depth_curves(evidence, group), strict=True):
        whole = float(curve.accuracy[-1][-1])
        found = sign_counting(evidence.run(spec).model, spec.task, n=BROKEN, seed=evidence.seed)
        row = found.measures.index("broken")
        broken, low, high = (float(part[row, -1]) for part in (found.share, found.low, found.high))
        flips = [f"{found.of(measure)[-1]:.3f}" for measure in ("one flip", "two flips")]
        rows.append([spec.seed, f"{whole:.3f}", f"{broken:.3f} [{low:.3f}, {high:.3f}]", *flips])
        if whole >= 0.5 + LEAST:
            shares.append((broken - 0.5) / (whole - 0.5))
    mean, low, high = t_interval(np.array(shares)) if len(shares) > 1 else (float(np.mean(shares or [0.0])), -1.0, 1.0)
    return Measurement(
        value=mean, low=low, high=high, n=max(1, len(shares)), unit="seeds",
        numbers={"seeds that know the last variable": len(shares), "seeds": len(evidence.specs(group))},
        tables=[("Sign counting on the last variable, every seed", rows)],
        note="In a broken chain one clause names a letter that is not defined: no path leads from the root to the "
        "last variable, but the signs can still be counted. 1: all accuracy above chance comes from counting; 0: "
        f"none. Seeds with accuracy below {0.5 + LEAST:.0%} are excluded.",
    )  # fmt: skip


def judge_parity(m: Measurement) -> ClaimVerdict:
    """Above one half, with at least two seeds that learned the last variable."""
    return above(m, 0.5) if m.numbers["seeds that know the last variable"] >= 2 else "inconclusive"


def measure_middle(evidence: Evidence, *, ours: str, other: str) -> Measurement:
    """Accuracy on the middle variables, of one start minus another."""
    values = {}
    rows = [["start", "seed", "middle variables", "last variable"]]
    for group in (ours, other):
        lasts, accuracy = _last_and_middle(evidence, group)
        values[group] = accuracy.mean(1)
        rows += [[group, spec.seed, f"{middle:.3f}", f"{last:.3f}"] for spec, middle, last in zip(
            evidence.specs(group), values[group], lasts, strict=True)]  # fmt: skip
    mean, low, high = difference_interval(values[ours], values[other])
    return Measurement(
        value=mean, low=low, high=high, n=min(map(len, values.values())), unit="seeds an arm",
        tables=[("Variables between the trained first ones and the last", rows)],
        charts=[learning_chart(evidence, group) for group in (ours, other)],
        note="Welch t interval over seeds; the middle variables are never trained on.",
    )  # fmt: skip


def _middle(name: str, statement: str, **more) -> Claim:
    ours = f"shortcut-{name}"
    start = {"mimic": "mimicking"}.get(name, name)
    return Claim(
        id=f"shortcut.{name}", source=SECTION, statement=statement,
        rule=f"Mean accuracy of the middle variables, {start} start minus random start: {rule_text('above')}",
        quantity="difference in accuracy", measure=partial(measure_middle, ours=ours, other="shortcut-random"),
        judge=partial(above, bar=0.0), needs=(ours, "shortcut-random"), **more,
    )  # fmt: skip


CLAIMS = (
    Claim(
        id="shortcut.last-first", source=SECTION,
        statement="From a random start the last variable is learned although those before it are not.",
        rule="Accuracy of the last variable, which is trained, minus mean accuracy of the middle ones, which are "
        f"not: {rule_text('above')}",
        quantity="lead of the last variable", measure=partial(measure_lead, group="shortcut-random"),
        judge=partial(above, bar=0.0), needs=("shortcut-random",),
    ),
    Claim(
        id="shortcut.parity", source=SECTION + ": the parity of minus signs is the mechanism",
        statement="From a random start the last variable is predicted from the parity of all signs, not along the "
        "chain.",
        rule="Share of the accuracy above chance that remains on sentences with a broken chain, scored against the "
        f"parity of all signs, over seeds that learned the last variable ({0.5 + LEAST:.0%}): "
        f"{rule_text('above', 'one half')} Inconclusive with fewer than two such seeds.",
        quantity="share of accuracy above chance", measure=partial(measure_parity, group="shortcut-random"),
        judge=judge_parity, needs=("shortcut-random",),
    ),
    _middle("mimic", "Mimicking attention before training prevents the shortcut: the model learns the middle "
            "variables."),
    Claim(
        id="shortcut.mimic-parity", source=SECTION,
        statement="Mimicking does not prevent counting: the last variable is still predicted from the parity.",
        rule=f"As shortcut.parity, for the mimicking start: {rule_text('above', 'one half')}",
        quantity="share of accuracy above chance", measure=partial(measure_parity, group="shortcut-mimic"),
        judge=judge_parity, needs=("shortcut-mimic",),
    ),
    _middle("pretrained", "A pretrained start prevents the shortcut: the model learns the middle variables.",
            sizes=LARGE, why_not=NO_TIME),
)  # fmt: skip
