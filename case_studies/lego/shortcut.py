"""Claims about the shortcut: predicting the last variable by counting minus signs, without following the chain."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Float

from case_studies.frame.claims import DIFFERENCE, SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AtLeast, Below, Conditional, Number
from case_studies.lego.curves import SENTENCES, accuracy_at, accuracy_table, depth_curves, learning_chart
from case_studies.lego.models import FIRST_MODELS, later
from case_studies.lego.starts import NO_TIME, TEXT_PLATEAU
from case_studies.recipes.judges import NOTHING_KNOWN, ArmDifference, Mean, PairedDifference, Share
from case_studies.recipes.seeds import more_seeds
from interp.theory.signs import sign_counting

LEAST = 0.1
"""Smallest accuracy above chance on the last variable at which sign counting is measured."""
BROKEN = 2000
"""Number of sentences with a broken chain."""
KNOWING = "seeds that know the last variable"
KNOWN_BY, REMAINING = "knows the last variable", "share of accuracy above chance that remains"
LAST, BEFORE, MIDDLE = "last variable", "the one before it", "middle variables"
BETWEEN = "variables that neither arm trains"
COUNTS = 0.5
"""Share of the accuracy above chance that remains on broken chains, above which a model counts signs."""
REMAINS = (
    "Share of the accuracy above chance that remains on sentences with a broken chain, scored against the parity of "
    f"all signs, over seeds that learned the last variable ({0.5 + LEAST:.0%}), t interval"
)
KNOWN = Number(KNOWING, AtLeast(2))
COUNTED = Conditional(KNOWN, Above(0.5))
MARGIN = 0.05
"""Largest difference of accuracies that counts as none."""
CONTROL = "mean accuracy, first ones trained"
SHORTER = "Chains of eight take longer than this size allows."
SAME_SENTENCES = (
    "Six seeds of mimicking were fixed after 0.007 [-0.002, 0.016] over three, and a bar of 0.05 in place of 0, the "
    "margin of shortcut.control, after 0.006 [0.003, 0.008] over six: all seeds are tested on the same sentences, "
    "which alone can give a difference of that size. Pretrained, 0.003 [-0.006, 0.011] had been seen."
)
ALL_TRAINED = Preregistration(
    "after a result",
    "0.22 [0.18, 0.26] in models whose middle variables, unlike the last one, were not trained.",
    looks=1,
)
CONTROL_SEEN = Preregistration(
    "after a result",
    "three models of the control: 0.72 on their worst untrained variable; and shortcut.mimic-parity. No model of eight "
    "variables with the last one trained.",
)
DEGRADES_FIXED = Preregistration(
    "after first models",
    "that small models count signs from a random start and learn no chain, with or without the last variable; no model "
    "of the paper's size had been trained.",
)
NO_CHAINS = (
    "From random weights small models learn no chain that they could extrapolate, whichever variables are trained "
    "(one with W_K = W_Q and diverse lengths was at 0.65 on the fourth variable after 1,800 steps, 9 minutes). Eight "
    "models of the paper's size, 24,000 steps each: a GPU for a day."
)
MODES_SEEN = Preregistration(
    "after a result",
    "the mean share over five seeds, 0.34 [-0.16, 0.85]: one counts, one nearly does, three do not. A mean of two "
    "modes says little, so models are counted, and there are twelve.",
    looks=1,
)


def _last_and_middle(
    evidence: Evidence, group: str
) -> tuple[Float[np.ndarray, " seed"], Float[np.ndarray, "seed target"]]:
    """Accuracy of the last variable and of the untrained ones, for each seed."""
    curves = depth_curves(evidence, group)
    accuracy = np.stack([curve.accuracy.value[-1] for curve in curves])
    return accuracy[:, -1], accuracy[:, ~np.array(curves[0].supervised)]


def measure_lead(evidence: Evidence, *, group: str) -> Readings:
    """Accuracy of the last variable and of the one before it, mean over the evaluations of training; one row a seed."""
    specs = evidence.specs(group)
    # Mean over the evaluations of training, of every variable
    over_training = [np.mean([record["accuracy"] for record in evidence.history(spec)], axis=0) for spec in specs]
    frame = pd.DataFrame(
        {
            "seed": [spec.seed for spec in specs],
            LAST: [accuracy[-1] for accuracy in over_training],
            BEFORE: [accuracy[-2] for accuracy in over_training],
            "sentences": specs[0].settings.n_eval,
        }
    )
    return Readings(
        frame=frame,
        title="Mean accuracy over training",
        tables=[("Accuracy of every variable at the end of training", accuracy_table(evidence, group))],
        charts=[learning_chart(evidence, group)],
        note=f"Evaluated every {specs[0].settings.eval_every} steps on {specs[0].settings.n_eval} sentences; chance is "
        "0.5. Along the chain, no variable can be known before the one that it refers to.",
    )


def measure_parity(evidence: Evidence, *, group: str) -> Readings:
    """Share of the accuracy above chance on the last variable that remains when the chain is broken, one row a seed."""
    rows = []
    for spec, curve in zip(evidence.specs(group), depth_curves(evidence, group), strict=True):
        accuracy = float(curve.accuracy.value[-1][-1])
        counting = sign_counting(evidence.run(spec).model, spec.task, n=BROKEN, seed=evidence.seed)
        broken = counting.share[counting.measures.index("broken"), -1]
        # The share means nothing for a seed that has not learned the last variable
        known = accuracy >= 0.5 + LEAST
        rows.append(
            {
                "seed": spec.seed,
                "accuracy, last variable": accuracy,
                "answer is the parity of signs, chain broken": broken.text(),
                "changes with one sign flipped": counting.of("one flip")[-1],
                "changes with two": counting.of("two flips")[-1],
                KNOWN_BY: known,
                REMAINING: (float(broken) - 0.5) / (accuracy - 0.5) if known else None,
            }
        )
    return Readings(
        frame=pd.DataFrame(rows).astype({REMAINING: float}),
        title="Sign counting on the last variable, every seed",
        numbers={KNOWING: sum(row[KNOWN_BY] for row in rows), "seeds": len(rows)},
        note="In a broken chain one clause names a letter that is not defined: no path leads from the root to the "
        "last variable, but the signs can still be counted. 1: all accuracy above chance comes from counting; 0: "
        f"none. Seeds with accuracy below {0.5 + LEAST:.0%} are excluded.",
    )


def measure_modes(evidence: Evidence, *, group: str) -> Readings:
    """Whether a model counts signs: more than half of its accuracy above chance remains on broken chains."""
    parity = measure_parity(evidence, group=group)
    counts = parity.frame[REMAINING].to_numpy() > COUNTS
    return replace(
        parity,
        frame=parity.frame.assign(counts=counts),
        numbers={**parity.numbers, "models that count": int(counts.sum())},
        note=f"{parity.note} A model counts if more than {COUNTS:.0%} of it does. Exact interval over models.",
    )


def measure_control(evidence: Evidence, *, arm: str, reference: str) -> Readings:
    """Accuracy of the variables that neither arm trains, without the last one, mean of each model; one row a model."""
    # Variables that neither arm trains; the last one can be counted
    curves = {group: depth_curves(evidence, group) for group in (arm, reference)}
    trained = np.any([curves_of_group[0].supervised for curves_of_group in curves.values()], axis=0)
    between = np.flatnonzero(~trained[:-1])
    rows = [
        {"arm": group, "seed": spec.seed, BETWEEN: accuracy_at(curve, curve.trained_depth)[between].mean()}
        for group, curves_of_group in curves.items()
        for spec, curve in zip(evidence.specs(group), curves_of_group, strict=True)
    ]
    of_reference = [row[BETWEEN] for row in rows if row["arm"] == reference]
    return Readings(
        frame=pd.DataFrame(rows).assign(sentences=SENTENCES[evidence.size]),
        numbers={"variables": [f"#{place}" for place in between], CONTROL: float(np.mean(of_reference))},
        tables=[
            (f"Accuracy of every variable, {name} (* not trained)", accuracy_table(evidence, name)) for name in curves
        ],
        charts=[learning_chart(evidence, name) for name in curves],
        note="Welch t interval over seeds; chance is 0.5.",
    )


def measure_middle(evidence: Evidence, *, start: str, reference: str) -> Readings:
    """Accuracy on the middle variables, one row a model of either start."""
    rows = []
    for group in (start, reference):
        lasts, accuracy = _last_and_middle(evidence, group)
        for spec, middle, last in zip(evidence.specs(group), accuracy.mean(1), lasts, strict=True):
            rows.append({"start": group, "seed": spec.seed, MIDDLE: middle, "last variable": last})
    return Readings(
        frame=pd.DataFrame(rows).assign(sentences=SENTENCES[evidence.size]),
        title="Variables between the trained first ones and the last",
        charts=[learning_chart(evidence, group) for group in (start, reference)],
        note="Welch t interval over seeds; the middle variables are never trained on.",
    )


def _arms(column: str, name: str, groups: tuple[str, str]) -> ArmDifference:
    """The judge of two arms, given the column that names them."""
    return ArmDifference(column, arm=name, arms=groups, unit="seeds an arm", share_of="sentences")


def _middle(name: str, start: str, *, reference: str = "shortcut-random", **options) -> Claim:
    start_name = {"mimic": "mimicking"}.get(name, name)
    return Claim(
        id=f"shortcut.{name}",
        method=f"Mean accuracy of the middle variables, {start_name} start minus random start, t interval over seeds",
        rule=Above(MARGIN),
        preregistration=later(FIRST_MODELS, SAME_SENTENCES),
        quantity="difference in accuracy",
        value_range=DIFFERENCE,
        measure=partial(measure_middle, start=start, reference=reference),
        judged=_arms(MIDDLE, "start", (start, reference)),
        needs=(start, reference),
        **options,
    )


REMAINING_SHARE = Mean(
    REMAINING, unit="seeds", where={KNOWN_BY: True}, resolution=2 / BROKEN, without_rows=NOTHING_KNOWN
)
CLAIMS = (
    Claim(
        id="shortcut.last-first",
        method="Accuracy of the last variable minus that of the one before it, mean over the evaluations of training, "
        "t interval over seeds",
        rule=Above(0),
        preregistration=ALL_TRAINED,
        quantity="lead of the last variable",
        measure=partial(measure_lead, group="start-random"),
        judged=PairedDifference(LAST, BEFORE, unit="seeds", share_of="sentences"),
        needs=("start-random",),
    ),
    Claim(
        id="shortcut.parity",
        method=REMAINS,
        rule=COUNTED,
        preregistration=FIRST_MODELS,
        quantity="share of accuracy above chance",
        measure=partial(measure_parity, group="shortcut-random"),
        judged=REMAINING_SHARE,
        needs=("shortcut-random",),
    ),
    _middle("mimic", more_seeds("shortcut-mimic"), reference=more_seeds("shortcut-random")),
    Claim(
        id="shortcut.mimic-parity",
        method=REMAINS,
        rule=COUNTED,
        preregistration=FIRST_MODELS,
        quantity="share of accuracy above chance",
        measure=partial(measure_parity, group="shortcut-mimic"),
        judged=REMAINING_SHARE,
        needs=("shortcut-mimic",),
    ),
    _middle("pretrained", "shortcut-pretrained", sizes=LARGE_SIZES, sizes_reason=NO_TIME, remedy=TEXT_PLATEAU),
    Claim(
        id="shortcut.prevented",
        sizes=LARGE_SIZES,
        sizes_reason=SHORTER,
        method="Share of the models that count signs, among those that know the last variable "
        f"({0.5 + LEAST:.0%}); a model counts if more than half of its accuracy above chance remains on sentences with "
        "a broken chain, scored against the parity of all signs; exact interval over models",
        rule=Conditional(KNOWN, Below(0.5)),
        preregistration=MODES_SEEN,
        quantity="share of models that count",
        value_range=SHARE,
        measure=partial(measure_modes, group="mimic-last"),
        judged=Share(
            "counts",
            unit="models that know the last variable",
            where={KNOWN_BY: True},
            without_rows=(0.0, 0.0, 1.0),
        ),
        needs=("mimic-last",),
    ),
    Claim(
        id="shortcut.degrades",
        sizes=("paper",),
        sizes_reason=NO_CHAINS,
        method="Mean accuracy of the variables that neither arm trains, without the last one, first five and last "
        "trained (shortcut-random) minus first six trained (plain-untied), t interval over seeds",
        rule=Conditional(Number(CONTROL, AtLeast(0.5 + LEAST)), Below(0)),
        preregistration=DEGRADES_FIXED,
        quantity="difference in accuracy",
        value_range=DIFFERENCE,
        measure=partial(measure_control, arm="shortcut-random", reference="plain-untied"),
        judged=_arms(BETWEEN, "arm", ("shortcut-random", "plain-untied")),
        needs=("shortcut-random", "plain-untied"),
    ),
    Claim(
        id="shortcut.control",
        sizes=LARGE_SIZES,
        sizes_reason=SHORTER,
        method="Mean accuracy of the variables that neither arm trains, without the last one, first five and last "
        "trained minus first six trained, t interval over seeds",
        rule=Conditional(Number(CONTROL, AtLeast(0.5 + LEAST)), AtLeast(-MARGIN)),
        preregistration=CONTROL_SEEN,
        quantity="difference in accuracy",
        value_range=DIFFERENCE,
        measure=partial(measure_control, arm="mimic-last", reference="mimic-first"),
        judged=_arms(BETWEEN, "arm", ("mimic-last", "mimic-first")),
        needs=("mimic-last", "mimic-first"),
    ),
)
