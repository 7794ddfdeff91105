"""Claims about the diagonals of W_Q W_K^T and W_V W_O in real pretrained weights (Figure 7): all-MiniLM-L6-v2.

There is one such model, so units are its heads. It is an encoder, where the paper shows GPT-2.
"""

from functools import partial

import numpy as np
import pandas as pd

from case_studies.frame.claims import DIFFERENCE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above
from case_studies.language.diagonals import MATRICES, head_table
from case_studies.recipes.intervals import proportion
from case_studies.recipes.judges import Row
from case_studies.recipes.pretrained_weights import PretrainedWeights
from hooks import make_model
from interp.heads.diagonals import diagonals
from interp.training.load import load

WEIGHTS = PretrainedWeights()
N_UNTRAINED = 5
"""Models with fresh weights of the same shape; the most strong heads of any of them are the reference."""
EXCESS = "difference in the share of heads"
CONSIDERABLE = 0.1
"""Share of the heads, beyond that of untrained models, that counts as strong diagonals in several heads."""


def measure_real_diagonals(evidence: Evidence, *, matrix: int) -> Readings:
    """Share of the heads with a strong positive diagonal, minus the largest share in any untrained model; one row."""
    model = load(WEIGHTS.name)
    learned = diagonals(model, seed=evidence.seed)
    fresh = [diagonals(make_model(model.cfg, seed=index), seed=evidence.seed) for index in range(N_UNTRAINED)]
    n_heads = learned.cosine[:, :, matrix].size
    n_untrained = max(len(result.heads(matrix)) for result in fresh)
    strong = proportion(len(learned.heads(matrix)), n_heads)
    value, low, high = (number - n_untrained / n_heads for number in strong.floats())
    excess = {EXCESS: value, "low": low, "high": high, "heads": n_heads}
    return Readings(
        frame=pd.DataFrame([excess]),
        numbers={
            "strong heads": len(learned.heads(matrix)),
            f"most strong heads of {N_UNTRAINED} untrained models": n_untrained,
            "largest cosine": float(np.nanmax(learned.cosine[:, :, matrix])),
            "null sd of the cosine": learned.null_sd,
            "largest cosine of that rank": learned.largest,
        },
        tables=[("Every head", head_table(learned, matrix))],
        charts=[learned.plot()],
        note="Exact interval over heads, which are not independent. Strong: the cosine's upper tail among random "
        "matrices with the same singular values, Holm over heads and matrices, at 0.01. The paper shows matrices of "
        "GPT-2 and prints no number.",
    )


CLAIMS = tuple(
    Claim(
        id=f"diagonals.{name}.minilm",
        method="Share of the heads that have a strong positive diagonal (interp.diagonals), minus the largest share in "
        f"any of {N_UNTRAINED} untrained models, exact interval over heads",
        rule=Above(CONSIDERABLE),
        preregistration=Preregistration(
            "after a result", "49 of 72 heads have a strong W_Q W_K^T and 40 of 72 a strong W_V W_O.", looks=1
        ),
        quantity=EXCESS,
        value_range=DIFFERENCE,
        sizes=LARGE_SIZES,
        sizes_reason="Reading a real encoder takes longer than this size.",
        measure=partial(measure_real_diagonals, matrix=matrix),
        judged=Row(EXCESS, unit="heads of one model", units="heads"),
        packs=WEIGHTS,
    )
    for name, (matrix, matrix_text) in MATRICES.items()
)
