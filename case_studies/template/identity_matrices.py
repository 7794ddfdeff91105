"""Claims about weights: do W_K W_Q^T and W_V W_O^T come near the identity by training alone? (Figure 7)"""

from functools import partial

import numpy as np

from case_studies.frame.claims import Claim, Measurement, more_than_half
from case_studies.frame.evidence import Evidence
from case_studies.frame.template_models import PLAIN, A
from case_studies.template.measures import n_train
from case_studies.template.reading import GROUPS, solved, unless_unsolved
from hooks import make_model
from interp.core.statistics import proportion_interval
from interp.heads.diagonals import diagonals


def measure_diagonals(evidence: Evidence, *, variant: str, matrix: int) -> Measurement:
    """Share of solved models in which some head's matrix has a strong positive diagonal, beside the same untrained."""
    rows: list[list] = [["n", "seed", "head", "cosine with I", "z", "p, Holm", "scalar", "untrained cosine"]]
    chosen = solved(evidence, variant)
    strong, untrained_strong, first = [], [], None
    for spec, model in chosen.models:
        found = diagonals(model, seed=evidence.seed)
        untrained = diagonals(make_model(spec.config, seed=spec.seed), seed=evidence.seed)
        strong.append(bool(found.heads(matrix)))
        untrained_strong.append(bool(untrained.heads(matrix)))
        first = first or found
        for layer, head in np.ndindex(found.cosine.shape[:2]):
            at = (layer, head, matrix)
            numbers = [f"{found.cosine[at]:+.3f}", f"{found.z[at]:+.1f}", f"{found.p_holm[at]:.3g}"]
            scalar = f"{found.scalar[at]:+.3f}"
            name = f"{layer}.{head}"
            rows.append([n_train(spec), spec.seed, name, *numbers, scalar, f"{untrained.cosine[at]:+.3f}"])
    n, hits = len(strong), sum(strong)
    low, high = proportion_interval(np.array(hits), n)
    assert first is not None
    return Measurement(
        value=hits / n, low=float(low), high=float(high), n=n, unit="solved models",
        numbers={"solved models": chosen.count, "the same share before training": float(np.mean(untrained_strong)),
                 "null sd of the cosine": first.null_sd, "largest cosine of that rank": first.largest},
        tables=[("Every head", rows)], charts=[first.plot()],
        note="Strong: the cosine's upper tail among random matrices with the same singular values, Holm over heads and "
        "matrices, at 0.01. The chart is of the first model in the table.",
    )  # fmt: skip


def _diagonal_claim(name: str, variant: str, matrix: int, which: str, models: str) -> Claim:
    return Claim(
        id=name, source="template paper, Figure 7, on models of our own",
        statement=f"Training makes the diagonal of {which} strong in some head: solved models {models}.",
        rule="Share of solved models with a head whose diagonal is strong (interp.diagonals): reproduced if its exact "
        "interval lies above one half, not reproduced if below, else inconclusive. The paper looks at a pretrained "
        "GPT-2.",
        quantity="share of solved models", measure=partial(measure_diagonals, variant=variant, matrix=matrix),
        judge=unless_unsolved(more_than_half), needs=(GROUPS[variant],),
    )  # fmt: skip


CLAIMS = (
    _diagonal_claim("diagonals.query-key", PLAIN, 0, "W_K W_Q^T", "without a I"),
    _diagonal_claim("diagonals.value-output", PLAIN, 1, "W_V W_O^T", "without a I"),
    _diagonal_claim("diagonals.query-key.identity", A, 0, "W_K W_Q^T", "with a I, beside which it stands"),
)
