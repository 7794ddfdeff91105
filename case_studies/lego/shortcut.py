"""Claims about the shortcut: the last variable is told by counting minus signs, without following the chain."""

from functools import partial

import numpy as np

from case_studies.frame.claims import Claim, ClaimVerdict, Measurement, above, difference_interval, t_interval
from case_studies.frame.evidence import Evidence
from case_studies.lego.curves import depth_curve, learning_chart
from case_studies.lego.generalisation import LARGE
from case_studies.lego.starts import NO_TIME
from interp.theory.sign_counting import sign_counting

LEAST = 0.1
"""A model must tell the last variable by so much above chance before it can be asked how."""
BROKEN = 2000
"""Sentences whose chain is broken."""
SECTION = "LEGO, Section 4.3 and Appendix A"


def _accuracy(evidence: Evidence, group: str) -> np.ndarray:
    """Accuracy of every variable, a row per seed."""
    return np.stack([depth_curve(evidence, spec).accuracy[-1] for spec in evidence.specs(group)])


def _lead(accuracy: np.ndarray, supervised: np.ndarray) -> np.ndarray:
    """Of each seed: accuracy of the last variable minus that of those between it and the trained first ones."""
    return accuracy[:, -1] - accuracy[:, ~supervised].mean(1)


def measure_lead(evidence: Evidence, *, group: str) -> Measurement:
    """How far the last variable is ahead of the middle ones."""
    specs = evidence.specs(group)
    found = [depth_curve(evidence, spec) for spec in specs]
    supervised = found[0].supervised
    accuracy = _accuracy(evidence, group)
    mean, low, high = t_interval(_lead(accuracy, supervised))
    names = [f"#{i}" + ("" if known else " not trained") for i, known in enumerate(supervised)]
    rows = [
        ["seed", *names],
        *([spec.seed, *(f"{v:.3f}" for v in row)] for spec, row in zip(specs, accuracy, strict=True)),
    ]
    return Measurement(
        value=mean, low=low, high=high, n=len(specs), unit="seeds",
        numbers={"last variable": float(accuracy[:, -1].mean()), "middle": float(accuracy[:, ~supervised].mean())},
        tables=[("Accuracy of every variable", rows)], charts=[learning_chart(evidence, group)],
        note=f"t interval over seeds; {found[0].n} held-out sentences per model; chance is 0.5.",
    )  # fmt: skip


def measure_parity(evidence: Evidence, *, group: str) -> Measurement:
    """Of what a model knows of the last variable, the share that is left when the chain is broken."""
    rows: list[list] = [["seed", "accuracy, last variable", "answer is the parity of signs, chain broken",
                         "changes with one sign flipped", "changes with two"]]  # fmt: skip
    shares = []
    for spec in evidence.specs(group):
        whole = float(depth_curve(evidence, spec).accuracy[-1][-1])
        found = sign_counting(evidence.run(spec).model, spec.task, n=BROKEN, seed=evidence.seed)
        row = found.measures.index("broken")
        broken, low, high = (float(part[row, -1]) for part in (found.share, found.low, found.high))
        flips = [f"{found.of(question)[-1]:.3f}" for question in ("one flip", "two flips")]
        rows.append([spec.seed, f"{whole:.3f}", f"{broken:.3f} [{low:.3f}, {high:.3f}]", *flips])
        if whole >= 0.5 + LEAST:
            shares.append((broken - 0.5) / (whole - 0.5))
    mean, low, high = t_interval(np.array(shares)) if len(shares) > 1 else (float(np.mean(shares or [0.0])), -1.0, 1.0)
    return Measurement(
        value=mean, low=low, high=high, n=max(1, len(shares)), unit="seeds",
        numbers={"seeds that know the last variable": len(shares), "seeds": len(evidence.specs(group))},
        tables=[("What does the answer follow? The last variable of every seed", rows)],
        note="On a broken chain one clause names a letter that stands nowhere else: no path leads from the root to "
        "the last variable, but the signs can still be counted. 1: all that is known comes from counting; 0: nothing "
        f"does. Seeds that are right in fewer than {0.5 + LEAST:.0%} of sentences are left out.",
    )  # fmt: skip


def judge_parity(m: Measurement) -> ClaimVerdict:
    """More than half of it, over two seeds at least."""
    return above(m, 0.5) if m.numbers["seeds that know the last variable"] >= 2 else "inconclusive"


def measure_middle(evidence: Evidence, *, ours: str, other: str) -> Measurement:
    """Accuracy on the middle variables, of one start minus another."""
    values = {}
    rows = [["start", "seed", "middle variables", "last variable"]]
    for group in (ours, other):
        supervised = depth_curve(evidence, evidence.specs(group)[0]).supervised
        accuracy = _accuracy(evidence, group)
        values[group] = accuracy[:, ~supervised].mean(1)
        rows += [[group, spec.seed, f"{middle:.3f}", f"{last:.3f}"] for spec, middle, last in zip(
            evidence.specs(group), values[group], accuracy[:, -1], strict=True)]  # fmt: skip
    mean, low, high = difference_interval(values[ours], values[other])
    return Measurement(
        value=mean, low=low, high=high, n=min(map(len, values.values())), unit="seeds an arm",
        tables=[("Variables between the trained first ones and the last", rows)],
        charts=[learning_chart(evidence, group) for group in (ours, other)],
        note="Welch t interval over seeds; the middle variables are never trained on.",
    )  # fmt: skip


RULE = "reproduced if the t interval over seeds lies above {bar}, not reproduced if below, else inconclusive."
CLAIMS = (
    Claim(
        id="shortcut.last-first", source=SECTION,
        statement="From a random start the last variable is learned although those before it are not.",
        rule="Accuracy of the last variable, which is trained on, minus mean accuracy of the middle ones, which are "
        "not: "
        + RULE.format(bar=0),
        quantity="lead of the last variable", measure=partial(measure_lead, group="shortcut-random"),
        judge=partial(above, bar=0.0), needs=("shortcut-random",),
    ),
    Claim(
        id="shortcut.parity", source=SECTION + ": the parity of minus signs is the mechanism",
        statement="From a random start the last variable is told by the parity of all signs, not along the chain.",
        rule="Share of the accuracy above chance that is left on sentences whose chain is broken, against the parity "
        "of "
        f"all signs, over seeds that know the last variable ({0.5 + LEAST:.0%}): " + RULE.format(bar="one half")
        + " Out of reach with fewer than two such seeds.",
        quantity="share of the knowledge that survives", measure=partial(measure_parity, group="shortcut-random"),
        judge=judge_parity, needs=("shortcut-random",),
    ),
    Claim(
        id="shortcut.mimic", source=SECTION,
        statement="Mimicking attention before training keeps a model from the shortcut: it learns the middle "
        "variables.",
        rule="Mean accuracy of the middle variables, mimicking start minus random start: " + RULE.format(bar=0),
        quantity="difference in accuracy",
        measure=partial(measure_middle, ours="shortcut-mimic", other="shortcut-random"),
        judge=partial(above, bar=0.0), needs=("shortcut-mimic", "shortcut-random"),
    ),
    Claim(
        id="shortcut.mimic-parity", source=SECTION,
        statement="A mimicking start does not keep a model from counting: its last variable is told by parity too.",
        rule="As shortcut.parity, for the mimicking start: " + RULE.format(bar="one half"),
        quantity="share of the knowledge that survives", measure=partial(measure_parity, group="shortcut-mimic"),
        judge=judge_parity, needs=("shortcut-mimic",),
    ),
    Claim(
        id="shortcut.pretrained", source=SECTION,
        statement="A pretrained start keeps a model from the shortcut: it learns the middle variables.",
        rule="Mean accuracy of the middle variables, pretrained start minus random start: " + RULE.format(bar=0),
        quantity="difference in accuracy",
        measure=partial(measure_middle, ours="shortcut-pretrained", other="shortcut-random"),
        judge=partial(above, bar=0.0), needs=("shortcut-pretrained", "shortcut-random"),
        sizes=LARGE, why_not=NO_TIME,
    ),
)  # fmt: skip
