"""Claims about the diagonals of W_Q W_K^T and W_V W_O in pretrained models (Figure 7)."""

from functools import partial

import numpy as np

from case_studies.frame.claims import DIFFERENCE, Claim
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above
from case_studies.language.models import ALSO_NEEDED, BEFORE_RESULTS, FAMILIES, PLAIN, group, with_six_seeds
from case_studies.recipes.intervals import t_interval
from hooks import make_model
from interp.heads.diagonals import diagonals

MATRICES = {"query-key": (0, "W_Q W_K^T"), "value-output": (1, "W_V W_O")}
SEEN = {"query-key": "0.25 [-0.06, 0.56]", "value-output": "0.25, the same in each,"}
"""Results of GPT-2 before seeds were added."""


def measure_diagonals(evidence: Evidence, *, family: str, matrix: int) -> Measurement:
    """Share of heads with a strong positive diagonal, minus that of the untrained model, paired by model."""
    rows: list[list] = [["seed", "head", "cosine with I", "z", "p, Holm", "untrained cosine"]]
    gain, shares = [], []
    first = None
    heads = 1
    for spec in evidence.specs(group(family, PLAIN)):
        # The untrained model of the same seed is the control
        learned = diagonals(evidence.run(spec).model, seed=evidence.seed)
        untrained = diagonals(make_model(spec.config, seed=spec.seed), seed=evidence.seed)
        first = first or learned
        heads = spec.config.n_layers * spec.config.n_heads
        shares.append((len(learned.heads(matrix)) / heads, len(untrained.heads(matrix)) / heads))
        gain.append(shares[-1][0] - shares[-1][1])
        for layer, head in np.ndindex(learned.cosine.shape[:2]):
            cell = (layer, head, matrix)
            numbers = [f"{learned.cosine[cell]:+.3f}", f"{learned.z[cell]:+.1f}", f"{learned.p_holm[cell]:.3g}"]
            rows.append([spec.seed, f"{layer}.{head}", *numbers, f"{untrained.cosine[cell]:+.3f}"])
    interval = t_interval(np.array(gain), resolution=1 / heads)
    assert first is not None
    return Measurement.from_interval(
        interval,
        unit="seeds",
        numbers={
            "share of heads that are strong": float(np.mean([share for share, _ in shares])),
            "the same untrained": float(np.mean([share for _, share in shares])),
            "heads": len(rows) - 1,
            "null sd of the cosine": first.null_sd,
            "largest cosine of that rank": first.largest,
        },
        tables=[("Every head", rows)],
        charts=[first.plot()],
        note="Strong: the cosine's upper tail among random matrices with the same singular values, Holm over heads and "
        "matrices, at 0.01. The chart is of seed 0. The paper shows matrices of OpenAI's GPT-2 and prints no number.",
    )


def _claim(family: str, name: str) -> Claim:
    matrix, written = MATRICES[name]
    source = "template paper, Figure 7, on a small GPT-2" if family == "gpt2" else "ours: Figure 7 for BERT"
    return Claim(
        id=f"diagonals.{name}.{family}",
        source=source,
        statement=f"Pretraining makes the diagonal of {written} strong in heads of {family}.",
        method="Share of heads with a strong positive diagonal (interp.diagonals), minus that of the model before "
        "training, t interval over seeds",
        rule=Above(0),
        preregistration=with_six_seeds(SEEN[name]) if family == "gpt2" else BEFORE_RESULTS,
        remedy=ALSO_NEEDED[family],
        quantity="share of heads, over untrained",
        value_range=DIFFERENCE,
        measure=partial(measure_diagonals, family=family, matrix=matrix),
        needs=(group(family, PLAIN),),
    )


CLAIMS = tuple(_claim(family, name) for family in FAMILIES for name in MATRICES)
