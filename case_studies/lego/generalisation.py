"""Claims about what LEGO models learn and how far they extrapolate: Figures 3a, 3b and 5."""

from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from case_studies.frame.claims import DIFFERENCE, SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Judge, Readings
from case_studies.frame.rules import Above, AtLeast
from case_studies.lego.curves import SENTENCES, accuracy_at, accuracy_table, depth_chart, depth_curves, untrained
from case_studies.lego.models import ARMS, FIRST_MODELS, MORE_SEEDS, later
from case_studies.recipes.judges import ArmDifference, PairedDifference, Row
from case_studies.recipes.seeds import more_seeds
from interp.core.statistics import proportion_interval

UntrainedVariable = Literal["first", "second", "third", "worst"]
ORDER: tuple[UntrainedVariable, ...] = ("first", "second", "third")
"""Untrained variables in chain order, as far as the paper names them."""
LOWEST = "lowest accuracy"
SOLVED = 0.99
"""Accuracy at which a variable counts as solved."""
TIED_LONGER = "Tied models need more steps than this size trains for."
LONGER = "Learning five or six group elements takes longer than this size allows."
ONE_COUNTED = Preregistration(
    "after first models",
    f"{FIRST_MODELS.prior_knowledge} One model counted signs, which predicts the last variable: so the worst "
    f"untrained variable "
    "is judged.",
)
TOO_SHORT = "Chains of four leave one variable to extrapolate to, which luck can predict: measured at larger sizes."


def measure_solved(evidence: Evidence, *, group: str) -> Readings:
    """Accuracy of the worst variable at the trained depth, one row a seed."""
    curves = depth_curves(evidence, group)
    last = np.array([accuracy_at(curve, curve.trained_depth) for curve in curves])
    lowest, n = last.min(1), curves[0].n
    # The worst of all cells is judged, so its interval is corrected for choosing it
    low, high = proportion_interval(np.rint(lowest * n).astype(int), n, confidence=1 - 0.05 / last.size)
    frame = pd.DataFrame(
        {
            "seed": [spec.seed for spec in evidence.specs(group)],
            "worst variable": [f"#{variable}" for variable in last.argmin(1)],
            LOWEST: lowest,
            "low": low,
            "high": high,
            "seeds": len(curves),
        }
    )
    return Readings(
        frame=frame,
        numbers={
            "sentences per model": n,
            "seeds that solve every variable": int((last >= SOLVED).all(1).sum()),
        },
        tables=[("Accuracy of every variable", accuracy_table(evidence, group))],
        charts=[depth_chart(curves, "accuracy by number of layers applied")],
        note="Exact interval over sentences for the worst of all variables and seeds (Bonferroni).",
    )


def plain_depth(evidence: Evidence, group: str) -> int:
    """Number of layers of the fixed-depth arm that a group belongs to or is compared with."""
    return ARMS[evidence.size][group.split("-")[0]].layers


def beyond(evidence: Evidence, group: str, times: float) -> Float[np.ndarray, "seed unsupervised"]:
    """Accuracy of every untrained variable, for each seed, at a multiple of the plain depth."""
    depth = round(times * plain_depth(evidence, group))
    return np.stack([untrained(curve, depth) for curve in depth_curves(evidence, group)])


def _words(arm: tuple[str, float]) -> str:
    """An arm and its test depth."""
    return f"{arm[0]} at {arm[1]:g} times the plain depth" if arm[1] != 1 else f"{arm[0]} at the plain depth"


def measure_contrast(
    evidence: Evidence, *, arm: tuple[str, float], reference: tuple[str, float], variable: UntrainedVariable = "worst"
) -> Readings:
    """Accuracy of untrained variables of one arm and another, each at its own test depth; one row a model."""
    rows = []
    for name, times in (arm, reference):
        for spec, accuracies in zip(evidence.specs(name), beyond(evidence, name, times), strict=True):
            depth = round(plain_depth(evidence, name) * times)
            row = {"arm": _words((name, times)), "layers at test": depth, "seed": spec.seed}
            rows.append(row | dict(zip(ORDER, accuracies, strict=False)) | {"worst": accuracies.min()})
    models = pd.DataFrame(rows).assign(sentences=SENTENCES[evidence.size])
    names = list(dict.fromkeys((arm[0], reference[0])))
    by_arm = {words: models.loc[models["arm"].to_numpy() == words] for words in (_words(arm), _words(reference))}
    # Two depths of the same models are paired; two groups of models are not
    paired = len(names) == 1
    of_seeds = {words: of_arm[variable].to_numpy() for words, of_arm in by_arm.items()}
    seeds = [spec.seed for spec in evidence.specs(arm[0])]
    one_by_one = "Untrained variables one by one, every seed"
    return Readings(
        frame=pd.DataFrame({"seed": seeds, **of_seeds, "sentences": SENTENCES[evidence.size]}) if paired else models,
        title="" if paired else one_by_one,
        tables=[
            *([(one_by_one, models)] if paired else []),
            *(
                (f"Accuracy at the trained depth, {name} (* not trained)", accuracy_table(evidence, name))
                for name in names
            ),
        ],
        charts=[depth_chart(depth_curves(evidence, name), name) for name in names],
        note=f"{'Paired by seed, t interval' if paired else 'Welch t interval over seeds'}; chance is 0.5. Sign "
        "counting can predict the last variable of a chain without following it, and no other.",
    )


def contrast_judge(arm: tuple[str, float], reference: tuple[str, float], variable: UntrainedVariable) -> Judge:
    """The judge of `measure_contrast`: paired, if the models of both arms are the same."""
    arms = _words(arm), _words(reference)
    if arm[0] == reference[0]:
        return PairedDifference(*arms, unit="seeds an arm", share_of="sentences")
    return ArmDifference(variable, arm="arm", arms=arms, unit="seeds an arm", share_of="sentences")


def _solved(group: str, **options: Any) -> Claim:
    fields: dict[str, Any] = {"preregistration": FIRST_MODELS, **options}
    return Claim(
        id=f"solved.{group.removeprefix('classical-')}",
        method="Accuracy on held-out sentences of the worst variable of the worst seed, exact interval (Bonferroni "
        "over variables and seeds)",
        rule=AtLeast(SOLVED),
        quantity=LOWEST,
        value_range=SHARE,
        measure=partial(measure_solved, group=group),
        judged=Row(LOWEST, extreme="smallest", unit="seeds", units="seeds"),
        needs=(group,),
        **fields,
    )


def _contrast(
    name: str,
    arm: tuple[str, float],
    reference: tuple[str, float],
    *,
    variable: UntrainedVariable = "worst",
    **options: Any,
) -> Claim:
    fields: dict[str, Any] = {
        "sizes": LARGE_SIZES,
        "sizes_reason": TOO_SHORT,
        "preregistration": ONE_COUNTED,
        **options,
    }
    return Claim(
        id=name,
        method=f"Accuracy of the {variable} untrained variable, {_words(arm)} minus {_words(reference)}, t interval "
        "over seeds",
        rule=Above(0),
        quantity="difference in accuracy",
        value_range=DIFFERENCE,
        measure=partial(measure_contrast, arm=arm, reference=reference, variable=variable),
        judged=contrast_judge(arm, reference, variable),
        needs=tuple(dict.fromkeys((arm[0], reference[0]))),
        **fields,
    )


DIVERSE_SEEN = Preregistration("after a result", "the worst untrained variables of these models: 0.72 against 0.50.")
CLAIMS = (
    _solved("classical-untied"),
    _solved(
        "classical-tied",
        sizes=LARGE_SIZES,
        sizes_reason=TIED_LONGER,
        preregistration=later(FIRST_MODELS, "Steps were doubled after a result: one seed of three was at 0.864."),
    ),
    _contrast("beyond.tied-diverse", ("long-tied", 1), ("long-untied", 1)),
    _contrast(
        "beyond.diverse", ("long-untied", 1), ("plain-untied", 1), variable="first", preregistration=DIVERSE_SEEN
    ),
    _contrast("beyond.turns", ("long-tied", 2), ("long-tied", 1)),
    _contrast(
        "beyond.turns-plain", ("plain-tied", 2), ("plain-tied", 1), preregistration=later(ONE_COUNTED, MORE_SEEDS)
    ),
    _contrast(
        "beyond.loop-plain", ("plain-tied", 2), ("plain-untied", 1), preregistration=later(ONE_COUNTED, MORE_SEEDS)
    ),
    _contrast(
        "beyond.loop", ("long-stochastic", 2), ("long-untied", 1), preregistration=later(ONE_COUNTED, MORE_SEEDS)
    ),
    _contrast(
        "depth.stochastic",
        (more_seeds("long-stochastic"), 1.25),
        (more_seeds("long-tied"), 1.25),
        preregistration=later(
            ONE_COUNTED, f"{MORE_SEEDS} Twelve models an arm were fixed after 0.11 [-0.01, 0.23] over eight.", looks=2
        ),
    ),
    _solved(
        "group-s3",
        sizes=LARGE_SIZES,
        sizes_reason=LONGER,
        preregistration=later(FIRST_MODELS, "Steps were doubled after a result: the worst seed was at 0.981."),
    ),
    _solved("group-z5", sizes=LARGE_SIZES, sizes_reason=LONGER),
)
