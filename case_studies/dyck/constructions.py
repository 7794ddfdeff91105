"""Claims checked on hand-written models, without training: Corollary 1 and Theorem 1."""

import math
from dataclasses import replace

import pandas as pd
import torch

from case_studies.dyck.measures import LONG
from case_studies.frame.claims import BEFORE_ANY_MODEL, SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import AllOf, Below, Equal, Number, Value
from case_studies.recipes.known_suite import KnownAnswers
from interp.core.randomness import derived_generator
from interp.evaluation.evaluate import evaluate
from interp.known_answers import balanced_dyck, uniform_dyck
from interp.tasks import Dyck
from interp.theory.balance import balance_violation
from interp.view.points import scatter

LANGUAGES = [(2, 4), (3, 4), (2, 8), (3, 8)]
"""Bracket types and maximal depth."""
LENGTHS = {"quick": (28, 450, 2000), "standard": (28, 450, 2000, 4000), "paper": (28, 450, 2000, 4000)}
N_SEQUENCES = {"quick": 1, "standard": 4, "paper": 4}
EXACT = 1e-10
"""Largest error of a probability that counts as exact in float64."""
BALANCED = 1e-12
"""Largest violation that counts as balanced."""
UNIFORM_MODELS = KnownAnswers(names=("dyck uniform",))
BALANCED_MODELS = KnownAnswers(names=("dyck balanced",))
"""The hand-written models of each claim."""
SHORT = {"quick": {2: 8, 3: 6}, "standard": {2: 12, 3: 9}, "paper": {2: 12, 3: 9}}
"""Brackets of the prefixes that are all tested, by number of bracket types: beginnings are shorter prefixes."""
EVERY_SHORT = "least accuracy on every short prefix"


@torch.no_grad()
def measure_uniform_exact(evidence: Evidence) -> Measurement:
    """Largest error of any next-token probability of the uniform-attention model, over languages and lengths."""
    rows: list[list] = [["types", "depth", "length", "largest error", "probability of a forbidden token"]]
    worst, positions = 0.0, 0
    points = []
    for types, depth in LANGUAGES:
        task = Dyck(n_types=types, max_depth=depth, length=max(LENGTHS[evidence.size]))
        generator = derived_generator(evidence.seed, "corollary 1", types, depth)
        batch = task.sample(N_SEQUENCES[evidence.size], generator=generator, split="test")
        predicted = uniform_dyck(task)(batch.tokens).softmax(-1)
        exact = task.next_token_probabilities(batch)
        # Prefixes of the longest words give the errors at shorter lengths
        for length in LENGTHS[evidence.size]:
            error = (predicted - exact)[:, : length + 1].abs().max()
            forbidden = (predicted * (exact == 0))[:, : length + 1].sum(-1).max()
            rows.append([types, depth, length, f"{float(error):.1e}", f"{float(forbidden):.1e}"])
            points.append((float(length), math.log10(float(error)), f"{types} types, depth {depth}"))
        worst = max(worst, float((predicted - exact).abs().max()))
        positions += batch.tokens.numel()
    return Measurement(
        value=worst,
        low=worst,
        high=worst,
        exact=True,
        n=positions,
        unit="positions",
        tables=[("Next-token probabilities of the model compared with the exact ones, float64", rows)],
        charts=[
            scatter(
                pd.DataFrame(points, columns=["length", "log10 of the largest error", "language"]),
                x="length",
                y="log10 of the largest error",
                series="language",
                title=f"n = {positions} positions, float64",
            )
        ],
        note="The model is hand-written: two layers of uniform attention. Only the words are sampled, and the largest "
        "error is not a mean, so it has no interval.",
    )


def measure_balanced(evidence: Evidence) -> Measurement:
    """Accuracy on prefixes and violation of models that are balanced by construction, and with a planted fault."""
    rows: list[list] = [
        [
            "types",
            "depth",
            "attention",
            "imbalance planted",
            "violation",
            "hard accuracy at 450",
            "on every short prefix",
            "their length",
            "their number",
        ]
    ]
    points, balanced = [], []
    for types, depth in LANGUAGES[:2]:
        task = Dyck(n_types=types, max_depth=depth, length=LONG)
        short = replace(task, length=SHORT[evidence.size][types])
        for attention in ("uniform", "uneven"):
            for imbalance in (0.0, 0.001, 0.01, 0.1):
                model = balanced_dyck(task, attention=attention, imbalance=imbalance)
                violation = balance_violation(model, task).violation
                accuracy = evaluate(model, task, n=40, seed=evidence.seed).accuracy[0]
                on_short = evaluate(model, short, n="all")
                share = float(on_short.accuracy.value[0])
                numbers = [f"{violation:.2e}", f"{accuracy:.3f}", f"{share:.4f}", short.length, on_short.n]
                rows.append([types, depth, attention, imbalance, *numbers])
                points.append((violation, float(accuracy), f"{types} types, {attention} attention"))
                if imbalance == 0:
                    balanced.append((violation, accuracy, share))
    # The balanced model with the lowest accuracy is judged; those with a planted fault are shown
    worst = min((accuracy for _, accuracy, _ in balanced), key=float)
    return Measurement.from_interval(
        replace(worst, n=40),
        unit="prefixes",
        numbers={
            "largest violation of a balanced model": max(violation for violation, _, _ in balanced),
            EVERY_SHORT: min(share for _, _, share in balanced),
        },
        tables=[("Balanced models, and models with closers scaled by 1 + imbalance", rows)],
        charts=[
            scatter(
                pd.DataFrame(points, columns=["violation", "hard accuracy at 450", "models"]),
                x="violation",
                y="hard accuracy at 450",
                series="models",
                title="planted fault, n = 40 prefixes per point",
            )
        ],
        note="Linear heads replace the theorem's MLP of six layers; they suffice to choose the closer. Long prefixes "
        "are random ones of one length; the theorem is about every prefix of every length, of which all short ones are "
        "tested.",
    )


CLAIMS = (
    Claim(
        id="corollary-1.uniform",
        method="Largest error of a next-token probability of hand-written models in float64, for two and three types, "
        "depths 4 and 8, up to length 2000 (4000 at size standard)",
        rule=Value(Below(EXACT)),
        preregistration=BEFORE_ANY_MODEL,
        by_construction=True,
        quantity="largest error",
        measure=measure_uniform_exact,
        packs=UNIFORM_MODELS,
    ),
    Claim(
        id="theorem-1.balanced",
        method="Lowest accuracy on the hard positions of 40 random prefixes of length 450, and of every prefix of "
        "length 12 (two types) and 9 (three types; 8 and 6 at size quick), which begin with all shorter ones, over "
        "hand-written balanced models with uniform and with uneven attention",
        rule=AllOf(
            Value(Equal(1)),
            Number(EVERY_SHORT, Equal(1)),
            Number("largest violation of a balanced model", Below(BALANCED)),
        ),
        preregistration=Preregistration(
            "after a result",
            "1 on the random prefixes of length 450, by the earlier rule. Short prefixes were added.",
            looks=1,
        ),
        by_construction=True,
        quantity="hard accuracy",
        value_range=SHARE,
        measure=measure_balanced,
        packs=BALANCED_MODELS,
    ),
)
