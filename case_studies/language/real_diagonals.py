"""Claims about the diagonals of W_Q W_K^T and W_V W_O in real pretrained weights (Figure 7): all-MiniLM-L6-v2.

There is one such model, so units are its heads. It is an encoder, where the paper shows GPT-2.
"""

from functools import partial

import numpy as np

from case_studies.frame.claims import DIFFERENCE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above
from case_studies.language.diagonals import MATRICES
from case_studies.recipes.intervals import as_interval, proportion
from case_studies.recipes.pretrained_weights import PretrainedWeights
from hooks import make_model
from interp.heads.diagonals import diagonals
from interp.training.load import load

WEIGHTS = PretrainedWeights()
N_UNTRAINED = 5
"""Models with fresh weights of the same shape; the most strong heads of any of them are the reference."""
CONSIDERABLE = 0.1
"""Share of the heads, beyond that of untrained models, that counts as strong diagonals in several heads."""


def measure_real_diagonals(evidence: Evidence, *, matrix: int) -> Measurement:
    """Share of the heads with a strong positive diagonal, minus the largest share in any untrained model."""
    model = load(WEIGHTS.name)
    learned = diagonals(model, seed=evidence.seed)
    fresh = [diagonals(make_model(model.cfg, seed=index), seed=evidence.seed) for index in range(N_UNTRAINED)]
    n_heads = learned.cosine[:, :, matrix].size
    n_untrained = max(len(result.heads(matrix)) for result in fresh)
    strong = proportion(len(learned.heads(matrix)), n_heads)
    value, low, high = (number - n_untrained / n_heads for number in strong.floats())
    rows: list[list] = [["head", "cosine with I", "z", "p, Holm"]]
    for layer, head in np.ndindex(learned.cosine.shape[:2]):
        cell = (layer, head, matrix)
        numbers = [f"{learned.cosine[cell]:+.3f}", f"{learned.z[cell]:+.1f}", f"{learned.p_holm[cell]:.3g}"]
        rows.append([f"{layer}.{head}", *numbers])
    return Measurement.from_interval(
        as_interval(value, low, high, n_heads),
        unit="heads of one model",
        numbers={
            "strong heads": len(learned.heads(matrix)),
            f"most strong heads of {N_UNTRAINED} untrained models": n_untrained,
            "largest cosine": float(np.nanmax(learned.cosine[:, :, matrix])),
            "null sd of the cosine": learned.null_sd,
            "largest cosine of that rank": learned.largest,
        },
        tables=[("Every head", rows)],
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
        quantity="difference in the share of heads",
        value_range=DIFFERENCE,
        sizes=LARGE_SIZES,
        sizes_reason="Reading a real encoder takes longer than this size.",
        measure=partial(measure_real_diagonals, matrix=matrix),
        packs=WEIGHTS,
    )
    for name, (matrix, matrix_text) in MATRICES.items()
)
