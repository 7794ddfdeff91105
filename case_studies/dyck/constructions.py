"""Claims checked on hand-written models, without training: Corollary 1 and Theorem 1."""

from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from case_studies.dyck.measures import LONG
from case_studies.frame.claims import BEFORE_ANY_MODEL, SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AllOf, Below, Equal, Number, Value
from case_studies.recipes.intervals import interval_columns
from case_studies.recipes.judges import Row
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
ERROR, PLANTED, ACCURACY = "largest error", "imbalance planted", "hard accuracy at 450"
N_LONG = 40
"""Long prefixes per model."""
EVERY_SHORT = "least accuracy on every short prefix"


@torch.no_grad()
def measure_uniform_exact(evidence: Evidence) -> Readings:
    """Largest error of any next-token probability of the uniform-attention model, one row a language and length."""
    rows, positions = [], 0
    for types, depth in LANGUAGES:
        task = Dyck(n_types=types, max_depth=depth, length=max(LENGTHS[evidence.size]))
        generator = derived_generator(evidence.seed, "corollary 1", types, depth)
        batch = task.sample(N_SEQUENCES[evidence.size], generator=generator, split="test")
        predicted = uniform_dyck(task)(batch.tokens).softmax(-1)
        exact = task.next_token_probabilities(batch)
        # Prefixes of the longest words give the errors at shorter lengths
        for length in LENGTHS[evidence.size]:
            error = float((predicted - exact)[:, : length + 1].abs().max())
            forbidden = float((predicted * (exact == 0))[:, : length + 1].sum(-1).max())
            row = {"types": types, "depth": depth, "length": length}
            rows.append(row | {ERROR: error, "probability of a forbidden token": forbidden})
        positions += batch.tokens.numel()
    frame = pd.DataFrame(rows).assign(positions=positions)
    points = {
        "length": frame["length"].astype(float),
        "log10 of the largest error": np.log10(frame[ERROR]),
        "language": [f"{row['types']} types, depth {row['depth']}" for row in rows],
    }
    return Readings(
        frame=frame,
        title="Next-token probabilities of the model compared with the exact ones, float64",
        charts=[
            scatter(
                pd.DataFrame(points),
                x="length",
                y="log10 of the largest error",
                series="language",
                title=f"n = {positions} positions, float64",
            )
        ],
        note="The model is hand-written: two layers of uniform attention. Only the words are sampled, and the largest "
        "error is not a mean, so it has no interval.",
    )


def measure_balanced(evidence: Evidence) -> Readings:
    """Accuracy on prefixes and violation of models that are balanced by construction, and with a planted fault."""
    rows = []
    for types, depth in LANGUAGES[:2]:
        task = Dyck(n_types=types, max_depth=depth, length=LONG)
        short = replace(task, length=SHORT[evidence.size][types])
        for attention in ("uniform", "uneven"):
            for imbalance in (0.0, 0.001, 0.01, 0.1):
                model = balanced_dyck(task, attention=attention, imbalance=imbalance)
                accuracy = evaluate(model, task, n=N_LONG, seed=evidence.seed).accuracy[0]
                on_short = evaluate(model, short, n="all")
                rows.append(
                    {
                        "types": types,
                        "depth": depth,
                        "attention": attention,
                        PLANTED: imbalance,
                        "violation": balance_violation(model, task).violation,
                        **interval_columns(accuracy, ACCURACY),
                        "long prefixes": N_LONG,
                        "on every short prefix": float(on_short.accuracy.value[0]),
                        "their length": short.length,
                        "their number": on_short.n,
                    }
                )
    frame = pd.DataFrame(rows)
    balanced = frame.loc[frame[PLANTED].to_numpy() == 0]
    models = [f"{row['types']} types, {row['attention']} attention" for row in rows]
    return Readings(
        frame=frame,
        title="Balanced models, and models with closers scaled by 1 + imbalance",
        numbers={
            "largest violation of a balanced model": balanced["violation"].max(),
            EVERY_SHORT: balanced["on every short prefix"].min(),
        },
        charts=[
            scatter(
                frame.filter(["violation", ACCURACY]).assign(models=models),
                x="violation",
                y=ACCURACY,
                series="models",
                title=f"planted fault, n = {N_LONG} prefixes per point",
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
        judged=Row(ERROR, unit="positions", units="positions", exact=True),
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
        judged=Row(ACCURACY, extreme="smallest", where={PLANTED: 0.0}, unit="prefixes", units="long prefixes"),
        packs=BALANCED_MODELS,
    ),
)
