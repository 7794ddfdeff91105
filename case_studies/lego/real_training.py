"""Claims about fine-tuning real pretrained weights on chains (Section 4.2, Figure 6), and about what the head start is.

A learning curve is judged by its mean over training, of the trained variables but the root. The rules were fixed after
a pilot, in which the settings were chosen on one model of each of three starts, and before any model that is judged.
"""

from collections.abc import Callable
from functools import partial

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float

from case_studies.frame.claims import DIFFERENCE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Judge, Readings
from case_studies.frame.rules import Above, AtLeast, Conditional, Number, Rule
from case_studies.lego.real_models import DOSES, SETTINGS, TASK, without
from case_studies.recipes.intervals import t_interval
from case_studies.recipes.judges import Mean, PairedDifference
from case_studies.recipes.learned import LEARNED
from case_studies.recipes.pretrained_weights import PretrainedWeights
from interp.view import charts

WEIGHTS = PretrainedWeights()
EARLIER = "difference in share of steps"
SOLVED = 0.99
"""Accuracy from which a variable counts as solved, on every trained variable."""
SAME = 0.05
"""Margin within which mean accuracies count as equal."""
TRAINED = [index for index in TASK.supervised or () if index > 0]
UNTRAINED = [index for index in range(TASK.n_vars) if index not in (TASK.supervised or ())]
NO_TIME = "Fine-tuning a real encoder takes longer than this size."
PILOT = Preregistration(
    "after first models",
    "one model of each start, seed 0, for at most 950 steps: pretrained weights had all four trained variables above "
    ".94 after 600 steps of batch 256, random ones only the first two; untrained variables were at chance. No model "
    "without some of its heads had been trained.",
)

REMAINS = Preregistration(
    "after a result",
    "0.92 over training for pretrained weights, 0.84 without their five strongest association heads and 0.64 for "
    "random weights, all of the judged seeds; the question was asked then.",
    looks=1,
)


def _curves(evidence: Evidence, group: str) -> Float[np.ndarray, "seed evaluation variable"]:
    """Accuracy of every variable at every evaluation on the task, for every seed."""
    histories = [evidence.history(spec) for spec in evidence.specs(group)]
    return np.array([[record["accuracy"] for record in history if record["phase"] == "task"] for history in histories])


def _over_training(evidence: Evidence, group: str) -> Float[np.ndarray, " seed"]:
    """Mean accuracy over training and the trained variables but the root."""
    return _curves(evidence, group)[:, :, TRAINED].mean((1, 2))


def _steps_to_solve(evidence: Evidence, group: str) -> list[int | None]:
    """Steps on the task until every trained variable is solved, for every seed; None if never."""
    solved = np.all(_curves(evidence, group)[:, :, TRAINED] >= SOLVED, axis=-1)
    steps: list[int | None] = []
    for row in solved:
        evaluations = np.flatnonzero(row)
        steps.append(int(evaluations[0] + 1) * SETTINGS.eval_every if len(evaluations) else None)
    return steps


def _facts(evidence: Evidence, groups: tuple[str, ...]) -> dict:
    """What each group did, for the page."""
    facts: dict = {}
    for group in groups:
        at_end = _curves(evidence, group)[:, -1]
        facts |= {
            _over_name(group): float(_over_training(evidence, group).mean()),
            f"steps until every trained variable is at {SOLVED:g}, {group}": " ".join(
                "–" if steps is None else str(steps) for steps in _steps_to_solve(evidence, group)
            ),
            _lowest_name(group): float(at_end[:, TRAINED].min()),
            _end_name(group): float(at_end[:, UNTRAINED].mean()),
        }
    return facts


def _lowest_name(group: str) -> str:
    return f"lowest accuracy of a trained variable at the end, {group}"


def learning_curves(evidence: Evidence, groups: tuple[str, ...]) -> alt.TopLevelMixin:
    """Mean accuracy of the trained variables but the root by step, a line per group, with t intervals over seeds."""
    rows = []
    for group in groups:
        curves = _curves(evidence, group)[:, :, TRAINED].mean(-1)
        for index in range(curves.shape[1]):
            interval = t_interval(curves[:, index], resolution=1 / SETTINGS.n_eval)
            rows.append(
                {
                    "steps": (index + 1) * SETTINGS.eval_every,
                    "start": group.removeprefix("real-"),
                    "accuracy": float(interval.value),
                    "low": max(float(interval.low), 0.0),
                    "high": min(float(interval.high), 1.0),
                }
            )
    n = len(evidence.specs(groups[0]))
    title = f"accuracy on #1 to #3 over training; n = {n} seeds, bands 95 %"
    return charts.curves(pd.DataFrame(rows), x="steps", y="accuracy", series="start", title=title)


def measure_learning(evidence: Evidence, *, start: str, reference: str) -> Readings:
    """Mean accuracy over training, from both starts; one row a seed."""
    groups = (start, reference)
    means = {_over_name(group): _over_training(evidence, group) for group in groups}
    return Readings(
        frame=pd.DataFrame({"seed": _seeds(evidence, start), **means, "examples": SETTINGS.n_eval}),
        numbers=_facts(evidence, groups),
        charts=[learning_curves(evidence, groups)],
        note="Paired by seed, t interval. There is one set of pretrained weights: seeds vary read-out, fresh weights "
        "and training examples. Steps of mimicking come in addition.",
    )


def measure_steps(evidence: Evidence, *, start: str, reference: str) -> Readings:
    """Share of the training steps by which one start is solved before another, one row a seed."""
    groups = (start, reference)
    # A model that is not solved counts as solved with the last step, so the difference is a lower bound
    steps = {
        f"steps to solve, {group}": np.array(
            [SETTINGS.steps if solved is None else solved for solved in _steps_to_solve(evidence, group)]
        )
        for group in groups
    }
    first, second = steps.values()
    frame = pd.DataFrame({"seed": _seeds(evidence, start), **steps, EARLIER: (second - first) / SETTINGS.steps})
    return Readings(
        frame=frame,
        numbers=_facts(evidence, groups),
        charts=[learning_curves(evidence, groups)],
        note=f"Of {SETTINGS.steps} steps. A model that is not solved by then counts as solved with the last step. "
        "Paired by seed, t interval.",
    )


def measure_untrained(evidence: Evidence, *, start: str, reference: str) -> Readings:
    """Accuracy on the untrained variables at the end, from both starts; one row a seed that both have."""
    groups = (start, reference)
    n = min(len(evidence.specs(group)) for group in groups)
    at_end = {_end_name(group): _curves(evidence, group)[:n, -1][:, UNTRAINED].mean(-1) for group in groups}
    return Readings(
        frame=pd.DataFrame({"seed": _seeds(evidence, start)[:n], **at_end, "examples": SETTINGS.n_eval}),
        numbers=_facts(evidence, groups),
        note="Paired by seed, t interval; chance is one half.",
    )


def _seeds(evidence: Evidence, group: str) -> list[int]:
    return [spec.seed for spec in evidence.specs(group)]


def _over_name(group: str) -> str:
    return f"mean accuracy over training, {group}"


def _end_name(group: str) -> str:
    return f"accuracy on untrained variables at the end, {group}"


def _judge(measure: Callable[..., Readings], start: str, reference: str) -> Judge:
    """The judge of one of the three measures."""
    if measure is measure_steps:
        return Mean(EARLIER, unit="seeds", resolution=SETTINGS.eval_every / SETTINGS.steps)
    name = _end_name if measure is measure_untrained else _over_name
    return PairedDifference(name(start), name(reference), unit="seeds", share_of="examples")


def _claim(name: str, method: str, rule: Rule, *, statement: str = "", source: str = "", **options) -> Claim:
    needs = (options["start"], options["reference"])
    measure = options.pop("measure", measure_learning)
    return Claim(
        id=f"real.{name}",
        source=source,
        statement=statement,
        method=method,
        rule=rule,
        preregistration=options.pop("preregistration", PILOT),
        quantity=options.pop("quantity", "difference in mean accuracy over training"),
        value_range=DIFFERENCE,
        sizes=LARGE_SIZES,
        sizes_reason=NO_TIME,
        measure=partial(measure, **options),
        judged=_judge(measure, *needs),
        needs=needs,
        packs=WEIGHTS,
    )


OVER_TRAINING = (
    "Mean accuracy over {steps} steps and the trained variables but the root, {pair}, paired by seed, t interval"
)


def _over(pair: str) -> str:
    return OVER_TRAINING.format(steps=SETTINGS.steps, pair=pair)


def _lost(dose: int, rival: str) -> Claim:
    """A claim that losing association heads costs more than losing as many others."""
    rivals = {"random": "drawn heads", "manipulation": "manipulation heads"}[rival]
    return _claim(
        f"lost.{dose}-{rival}",
        _over(f"without {dose} {rivals} minus without {dose} association heads"),
        Above(0),
        statement=f"A pretrained model that loses its {dose} strongest association heads before training learns slower "
        f"than one that loses {dose} {rivals}.",
        source="ours: a causal test of LEGO, Section 4.2",
        start=without(rival, dose),
        reference=without("association", dose),
    )


CLAIMS = (
    _claim(
        "faster",
        _over("pretrained start minus random start"),
        Above(0),
        start="real-pretrained",
        reference="real-random",
    ),
    _claim(
        "solved-earlier",
        f"Steps until every trained variable is at {SOLVED:g}, random start minus pretrained start, as a share of all "
        "steps, paired by seed, t interval",
        Above(0),
        measure=measure_steps,
        quantity=EARLIER,
        start="real-pretrained",
        reference="real-random",
    ),
    _claim(
        "lengths",
        "Mean accuracy on the untrained variables at the end, pretrained start minus random start with four times the "
        "steps, paired by seed, t interval",
        Conditional(
            Number(_lowest_name("real-random-longer"), AtLeast(LEARNED)),
            Conditional(Number(_lowest_name("real-pretrained"), AtLeast(LEARNED)), Above(0)),
        ),
        measure=measure_untrained,
        quantity="difference in accuracy",
        start="real-pretrained",
        reference="real-random-longer",
    ),
    _claim("mimic", _over("mimicking start minus random start"), Above(0), start="real-mimic", reference="real-random"),
    _claim(
        "mimic-as-pretrained",
        _over("mimicking start minus pretrained start") + f"; at most {SAME:g} behind",
        AtLeast(-SAME),
        start="real-mimic",
        reference="real-pretrained",
    ),
    *(_lost(dose, rival) for dose in DOSES for rival in ("random", "manipulation")),
    _claim(
        "lost.remains",
        _over(f"without {max(DOSES)} association heads minus random start"),
        Above(0),
        statement=f"A pretrained model that loses its {max(DOSES)} strongest association heads before training still "
        "learns faster than one with random weights.",
        source="ours: what of the head start of LEGO, Section 4.2, remains",
        preregistration=REMAINS,
        start=without("association", max(DOSES)),
        reference="real-random",
    ),
)
