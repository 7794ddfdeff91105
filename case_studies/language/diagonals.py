"""Claims about the diagonals of W_K W_Q^T and W_V W_O^T in pretrained models (Figure 7)."""

from functools import partial

import numpy as np

from case_studies.frame.claims import Claim, Measurement, above, rule_text, t_interval
from case_studies.frame.evidence import Evidence
from case_studies.language.models import FAMILIES, PLAIN, group
from hooks import make_model
from interp.heads.diagonals import diagonals

MATRICES = {"query-key": (0, "W_K W_Q^T"), "value-output": (1, "W_V W_O^T")}


def measure_diagonals(evidence: Evidence, *, family: str, matrix: int) -> Measurement:
    """Share of heads with a strong positive diagonal, minus that of the untrained model, paired by model."""
    rows: list[list] = [["seed", "head", "cosine with I", "z", "p, Holm", "untrained cosine"]]
    gain, shares, first = [], [], None
    for spec in evidence.specs(group(family, PLAIN)):
        found = diagonals(evidence.run(spec).model, seed=evidence.seed)
        untrained = diagonals(make_model(spec.config, seed=spec.seed), seed=evidence.seed)
        first = first or found
        heads = spec.config.n_layers * spec.config.n_heads
        shares.append((len(found.heads(matrix)) / heads, len(untrained.heads(matrix)) / heads))
        gain.append(shares[-1][0] - shares[-1][1])
        for layer, head in np.ndindex(found.cosine.shape[:2]):
            at = (layer, head, matrix)
            numbers = [f"{found.cosine[at]:+.3f}", f"{found.z[at]:+.1f}", f"{found.p_holm[at]:.3g}"]
            rows.append([spec.seed, f"{layer}.{head}", *numbers, f"{untrained.cosine[at]:+.3f}"])
    mean, low, high = t_interval(np.array(gain))
    assert first is not None
    return Measurement(
        value=mean, low=low, high=high, n=len(gain), unit="seeds",
        numbers={
            "share of heads that are strong": float(np.mean([share for share, _ in shares])),
            "the same untrained": float(np.mean([share for _, share in shares])),
            "heads": len(rows) - 1, "null sd of the cosine": first.null_sd,
            "largest cosine of that rank": first.largest,
        },
        tables=[("Every head", rows)], charts=[first.plot()],
        note="Strong: the cosine's upper tail among random matrices with the same singular values, Holm over heads and "
        "matrices, at 0.01. The chart is of seed 0. The paper shows matrices of OpenAI's GPT-2 and prints no number.",
    )  # fmt: skip


def _claim(family: str, name: str) -> Claim:
    matrix, written = MATRICES[name]
    source = "template paper, Figure 7, on a small GPT-2" if family == "gpt2" else "ours: Figure 7 for BERT"
    return Claim(
        id=f"diagonals.{name}.{family}", source=source,
        statement=f"Pretraining makes the diagonal of {written} strong in heads of {family}.",
        rule="Share of heads with a strong positive diagonal (interp.diagonals), minus that of the model before "
        f"training: {rule_text('above')} If all seeds agree, the interval has no width.",
        quantity="share of heads, over untrained", measure=partial(measure_diagonals, family=family, matrix=matrix),
        judge=partial(above, bar=0.0), needs=(group(family, PLAIN),),
    )  # fmt: skip


CLAIMS = tuple(_claim(family, name) for family in FAMILIES for name in MATRICES)
