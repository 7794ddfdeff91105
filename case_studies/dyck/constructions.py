"""Claims that are checked on models written down, not trained: Corollary 1 and Theorem 1."""

import math

import pandas as pd
import torch

from case_studies.dyck.measures import LONG
from case_studies.frame.claims import Claim, ClaimVerdict, Measurement
from case_studies.frame.evidence import Evidence
from interp.core.randomness import derived_generator
from interp.evaluation.evaluate import evaluate
from interp.known_answers import balanced_dyck, uniform_dyck
from interp.tasks import Dyck
from interp.theory.balance import balance_violation
from interp.view.points import scatter

LANGUAGES = [(2, 4), (3, 4), (2, 8), (3, 8)]
LENGTHS = {"quick": (28, 450, 2000), "standard": (28, 450, 2000, 4000), "paper": (28, 450, 2000, 4000)}
N_SEQUENCES = {"quick": 1, "standard": 4, "paper": 4}
EXACT = 1e-10
"""Largest error of a probability that counts as exact in float64."""
BALANCED = 1e-12


@torch.no_grad()
def measure_uniform_exact(evidence: Evidence) -> Measurement:
    """Largest error of any next-token probability of the construction, over languages and lengths."""
    rows: list[list] = [["types", "depth", "length", "largest error", "probability of a forbidden token"]]
    worst, asked, points = 0.0, 0, []
    for types, depth in LANGUAGES:
        task = Dyck(n_types=types, max_depth=depth, length=max(LENGTHS[evidence.size]))
        model = uniform_dyck(task)
        generator = derived_generator(evidence.seed, "corollary 1", types, depth)
        batch = task.sample(N_SEQUENCES[evidence.size], generator=generator, split="test")
        said, exact = model(batch.tokens).softmax(-1), task.next_token_probabilities(batch)
        for length in LENGTHS[evidence.size]:
            part = (said - exact)[:, : length + 1].abs().max()
            forbidden = (said * (exact == 0))[:, : length + 1].sum(-1).max()
            rows.append([types, depth, length, f"{float(part):.1e}", f"{float(forbidden):.1e}"])
            points.append((float(length), math.log10(float(part)), f"{types} types, depth {depth}"))
        worst, asked = max(worst, float((said - exact).abs().max())), asked + batch.tokens.numel()
    return Measurement(
        value=worst, low=worst, high=worst, n=asked, unit="positions",
        tables=[("Exact next-token probabilities against the model's, float64", rows)],
        charts=[scatter(pd.DataFrame(points, columns=["length", "log10 of the largest error", "language"]), x="length",
                        y="log10 of the largest error", series="language", title=f"n = {asked} positions, float64")],
        note="The model is written down, two layers of uniform attention; there is nothing to sample but the words, "
        "and the largest error is no mean: it has no interval.",
    )  # fmt: skip


def judge_exact(m: Measurement) -> ClaimVerdict:
    """Exact to the bar."""
    return "reproduced" if m.value < EXACT else "not reproduced"


def measure_balanced(evidence: Evidence) -> Measurement:
    """Accuracy on long prefixes of models that are balanced by construction, and their violation; then with a fault."""
    rows: list[list] = [["types", "depth", "attention", "imbalance planted", "violation", "hard accuracy at 450"]]
    lowest, violation, points = None, 0.0, []
    for types, depth in LANGUAGES[:2]:
        task = Dyck(n_types=types, max_depth=depth, length=LONG)
        for attention in ("uniform", "uneven"):
            for imbalance in (0.0, 0.001, 0.01, 0.1):
                model = balanced_dyck(task, attention=attention, imbalance=imbalance)
                found = balance_violation(model, task).violation
                result = evaluate(model, task, n=40, seed=evidence.seed)
                rows.append([types, depth, attention, imbalance, f"{found:.2e}", f"{result.accuracy[0]:.3f}"])
                points.append((found, float(result.accuracy[0]), f"{types} types, {attention} attention"))
                if imbalance == 0:
                    violation = max(violation, found)
                    if lowest is None or result.accuracy[0] < lowest[0]:
                        lowest = (result.accuracy[0], result.low[0], result.high[0])
    assert lowest is not None
    value, low, high = (float(part) for part in lowest)
    return Measurement(
        value=value, low=low, high=high, n=40, unit="prefixes",
        numbers={"largest violation of a balanced model": violation},
        tables=[("Balanced models, and models with closers scaled by 1 + imbalance", rows)],
        charts=[scatter(pd.DataFrame(points, columns=["violation", "hard accuracy at 450", "models"]), x="violation",
                        y="hard accuracy at 450", series="models", title="a planted fault, n = 40 prefixes a point")],
        note="Linear heads in place of the theorem's MLP of six layers: for choosing the closer they are enough.",
    )  # fmt: skip


def judge_balanced(m: Measurement) -> ClaimVerdict:
    """Nothing wrong, and balanced indeed."""
    fits = m.value == 1 and m.numbers["largest violation of a balanced model"] < BALANCED
    return "reproduced" if fits else "not reproduced"


CLAIMS = (
    Claim(
        id="corollary-1.uniform",
        source="bounded Dyck, Corollary 1",
        statement="Two layers of uniform attention can generate the language exactly, at any length.",
        rule=f"Written down as a model: reproduced if every next-token probability is within {EXACT:g} in float64, "
        f"for two "
        "and three types, depths 4 and 8, up to length 2000 (4000 at size standard), else not reproduced.",
        quantity="largest error",
        measure=measure_uniform_exact,
        judge=judge_exact,
    ),
    Claim(
        id="theorem-1.balanced",
        source="bounded Dyck, Theorem 1",
        statement="A layer that satisfies the balance condition, whatever its attention, can tell the right closer "
        "at any "
        "length.",
        rule=f"Models written down to be balanced, with uniform and with uneven attention: reproduced if their "
        f"violation "
        f"is below {BALANCED:g} and no hard position of 40 prefixes of length 450 is wrong, else not reproduced.",
        quantity="hard accuracy",
        measure=measure_balanced,
        judge=judge_balanced,
    ),
)
