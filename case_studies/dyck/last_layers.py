"""Claims about the last layers of two-layer models: do their patterns differ as much as random ones (Section 4.1)?"""

from dataclasses import replace
from functools import partial

from case_studies.dyck.measures import KEPT, Chosen, chosen, if_learned, task_of
from case_studies.dyck.pattern_tables import CAUSAL, SHUFFLED, SQUARE, baseline_of, maps_of_seeds, variation_table
from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import AtLeast, Between
from case_studies.recipes.learned import excluded_models
from interp.comparison.variation import attention_variation

CLOSE = (3 / 4, 4 / 3)
"""Bounds of the ratio to a random baseline within which the variation counts as close to it."""
BASELINES = {CAUSAL: "random causal rows", SQUARE: "random square matrices"}
"""Description of each baseline that a claim is judged by."""

DRAWN = 4
"""Models whose patterns are drawn."""


def few(models_used: Chosen) -> Chosen:
    """The first models of those that a claim is measured on, for maps of their patterns: a page must not get large."""
    return replace(models_used, specs=models_used.specs[:DRAWN], models=models_used.models[:DRAWN])


def measure_last_layer(evidence: Evidence, *, group: str, baseline: str = CAUSAL) -> Measurement:
    """Variation of the last layer on the probe prefix divided by that of random patterns.

    Args:
        evidence: Models that have learned are compared.
        group: Their group.
        baseline: The random patterns, one of `BASELINES`; the other ratio is among the numbers.
    """
    task = task_of(evidence, group)
    models_used = chosen(evidence, group)
    text = task.staircase()
    result = attention_variation(models_used.models, task, prefixes=text, seed=evidence.seed)
    value, low, high = result.variation[-1].floats()
    # The ratio to each baseline; one is judged
    base = float(baseline_of(result, baseline)[-1])
    numbers = {KEPT: models_used.learned, "variation": value, "its interval": [low, high]}
    for name, description in BASELINES.items():
        expected = float(baseline_of(result, name)[-1])
        numbers[f"variation of {description}"] = expected
        numbers[f"ratio to {description}"] = value / expected
    shuffled = float(baseline_of(result, SHUFFLED)[-1])
    numbers[f"ratio to {SHUFFLED}"] = value / shuffled
    numbers[f"its interval, {SHUFFLED}"] = [low / shuffled, high / shuffled]
    # The patterns are shown once, with the claim about causal rows
    charts = [result.plot()]
    if baseline == CAUSAL:
        charts.append(maps_of_seeds(evidence, group, few(models_used), -1, text))
    return Measurement(
        value=value / base,
        low=low / base,
        high=high / base,
        n=result.n,
        unit="seeds",
        numbers=numbers,
        tables=[variation_table(result), *excluded_models(evidence, [group])],
        charts=charts,
        note="The paper's baseline is random square matrices (its footnote 14; 1.76 for 16 tokens, 1.78 with the start "
        "token), whose rows have weight on keys that a causal model cannot see. Random causal rows are further apart, "
        "3.10. Values above 1 are possible: two sharp rows on different keys are further apart than two random rows. "
        "Shuffling the keys of a model's own rows keeps their sharpness; variation below that baseline means that the "
        "seeds share some structure.",
    )


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
            measure=partial(measure_last_layer, group=group, baseline=SQUARE),
            needs=(group,),
        ),
    )


CLAIMS = tuple(claim for name in GROUPS for claim in _claims(name))
