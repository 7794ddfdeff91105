"""Claims about the diagonals of W_Q W_K^T and W_V W_O in pretrained models (Figure 7)."""

import copy
from functools import partial

import numpy as np
import pandas as pd
import torch

from case_studies.frame.claims import SHARE, Claim
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above
from case_studies.language.models import PLAIN, after_larger_models
from case_studies.recipes.judges import Share
from hooks import Transformer, make_model
from interp.heads.diagonals import DiagonalsResult, diagonals

MATRICES = {"query-key": (0, "W_Q W_K^T"), "value-output": (1, "W_V W_O")}
SEEN = {
    "query-key": "0.25 [-0.06, 0.56] of the heads",
    "value-output": "0.25 of the heads, the same in each,",
}
"""Results of larger models, by a rule about the share of heads over that of untrained models."""
HAS_SEVERAL = "has several strong heads, more than before training"
STRONG, UNTRAINED, NEGATIVE = "strong heads", "strong before training", "strong negative"
SEVERAL = 2
"""Fewest heads that count as several."""


def measure_diagonals(evidence: Evidence, *, matrix: int) -> Readings:
    """Whether several heads, and more than before training, have a strong positive diagonal; one row a model."""
    rows, of_heads = [], []
    first = None
    for spec in evidence.specs(PLAIN):
        # The untrained model of the same seed is the control
        trained = evidence.run(spec).model
        learned = diagonals(trained, seed=evidence.seed)
        untrained = diagonals(make_model(spec.config, seed=spec.seed), seed=evidence.seed)
        first = first or learned
        n_strong, n_untrained = len(learned.heads(matrix)), len(untrained.heads(matrix))
        rows.append(
            {
                "seed": spec.seed,
                HAS_SEVERAL: n_strong >= SEVERAL and n_strong > n_untrained,
                "heads": spec.config.n_layers * spec.config.n_heads,
                STRONG: n_strong,
                UNTRAINED: n_untrained,
                NEGATIVE: len(diagonals(negated(trained), seed=evidence.seed).heads(matrix)),
            }
        )
        of_model = head_table(learned, matrix).assign(**{"untrained cosine": untrained.cosine[:, :, matrix].ravel()})
        of_heads.append(pd.DataFrame({"seed": spec.seed, **of_model}))
    assert first is not None
    frame = pd.DataFrame(rows)
    n_heads = sum(row["heads"] for row in rows)
    return Readings(
        frame=frame,
        title="Every model",
        numbers={
            "share of heads that are strong": frame[STRONG].sum() / n_heads,
            "the same untrained": frame[UNTRAINED].sum() / n_heads,
            "share of heads with a strong negative diagonal": frame[NEGATIVE].sum() / n_heads,
            "fewest and most of these in a model": [frame[NEGATIVE].min(), frame[NEGATIVE].max()],
            "heads": n_heads,
            "null sd of the cosine": first.null_sd,
            "largest cosine of that rank": first.largest,
        },
        tables=[("Every head", pd.concat(of_heads))],
        charts=[first.plot()],
        note="Strong: the cosine's upper tail among random matrices with the same singular values, Holm over heads and "
        "matrices, at 0.01. Strong negative diagonals are counted by the same test of the matrices with the opposite "
        "sign; they are not judged. The chart is of seed 0. The paper shows matrices of OpenAI's GPT-2 and prints no "
        "number.",
    )


def head_table(result: DiagonalsResult, matrix: int) -> pd.DataFrame:
    """The diagonal of a matrix of every head, one row a head."""
    shape = result.cosine.shape[:2]
    return pd.DataFrame(
        {
            "head": [f"{layer}.{head}" for layer, head in np.ndindex(shape)],
            "cosine with I": result.cosine[:, :, matrix].ravel(),
            "z": result.z[:, :, matrix].ravel(),
            "p, Holm": result.p_holm[:, :, matrix].ravel(),
        }
    )


def negated(model: Transformer) -> Transformer:
    """A copy whose W_Q W_K^T and W_V W_O have the opposite sign."""
    opposite = copy.deepcopy(model)
    with torch.no_grad():
        for block in opposite.stored_blocks:
            block.attention.q.weight.neg_()
            block.attention.o.weight.neg_()
    return opposite


CLAIMS = tuple(
    Claim(
        id=f"diagonals.{name}.gpt2",
        method=f"Share of models in which at least {SEVERAL} heads, and more than before training, have a strong "
        "positive diagonal (interp.diagonals), exact interval over seeds",
        rule=Above(0.5),
        preregistration=after_larger_models(SEEN[name]),
        quantity="share of models with several strong heads",
        value_range=SHARE,
        measure=partial(measure_diagonals, matrix=matrix),
        judged=Share(HAS_SEVERAL, unit="seeds"),
        needs=(PLAIN,),
    )
    for name, (matrix, matrix_text) in MATRICES.items()
)
