"""Claims about the diagonals of W_Q W_K^T and W_V W_O in pretrained models (Figure 7)."""

import copy
from functools import partial

import numpy as np
import torch

from case_studies.frame.claims import SHARE, Claim
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above
from case_studies.language.models import PLAIN, after_larger_models
from case_studies.recipes.intervals import proportion
from hooks import Transformer, make_model
from interp.heads.diagonals import diagonals

MATRICES = {"query-key": (0, "W_Q W_K^T"), "value-output": (1, "W_V W_O")}
SEEN = {
    "query-key": "0.25 [-0.06, 0.56] of the heads",
    "value-output": "0.25 of the heads, the same in each,",
}
"""Results of larger models, by a rule about the share of heads over that of untrained models."""
SEVERAL = 2
"""Fewest heads that count as several."""


def measure_diagonals(evidence: Evidence, *, matrix: int) -> Measurement:
    """Share of models in which several heads, and more than before training, have a strong positive diagonal."""
    rows: list[list] = [["seed", "head", "cosine with I", "z", "p, Holm", "untrained cosine"]]
    by_seed: list[list] = [["seed", "heads", "strong heads", "strong before training", "strong negative"]]
    hits: list[bool] = []
    negative: list[int] = []
    strong_heads = np.zeros(2)
    first = None
    for spec in evidence.specs(PLAIN):
        # The untrained model of the same seed is the control
        trained = evidence.run(spec).model
        learned = diagonals(trained, seed=evidence.seed)
        untrained = diagonals(make_model(spec.config, seed=spec.seed), seed=evidence.seed)
        first = first or learned
        n_strong, n_untrained = len(learned.heads(matrix)), len(untrained.heads(matrix))
        hits.append(n_strong >= SEVERAL and n_strong > n_untrained)
        strong_heads += n_strong, n_untrained
        negative.append(len(diagonals(negated(trained), seed=evidence.seed).heads(matrix)))
        n_heads_of_model = spec.config.n_layers * spec.config.n_heads
        by_seed.append([spec.seed, n_heads_of_model, n_strong, n_untrained, negative[-1]])
        for layer, head in np.ndindex(learned.cosine.shape[:2]):
            cell = (layer, head, matrix)
            numbers = [f"{learned.cosine[cell]:+.3f}", f"{learned.z[cell]:+.1f}", f"{learned.p_holm[cell]:.3g}"]
            rows.append([spec.seed, f"{layer}.{head}", *numbers, f"{untrained.cosine[cell]:+.3f}"])
    assert first is not None
    n_heads = len(rows) - 1
    return Measurement.from_interval(
        proportion(sum(hits), len(hits)),
        unit="seeds",
        numbers={
            "share of heads that are strong": strong_heads[0] / n_heads,
            "the same untrained": strong_heads[1] / n_heads,
            "share of heads with a strong negative diagonal": sum(negative) / n_heads,
            "fewest and most of these in a model": [min(negative), max(negative)],
            "heads": n_heads,
            "null sd of the cosine": first.null_sd,
            "largest cosine of that rank": first.largest,
        },
        tables=[("Every model", by_seed), ("Every head", rows)],
        charts=[first.plot()],
        note="Strong: the cosine's upper tail among random matrices with the same singular values, Holm over heads and "
        "matrices, at 0.01. Strong negative diagonals are counted by the same test of the matrices with the opposite "
        "sign; they are not judged. The chart is of seed 0. The paper shows matrices of OpenAI's GPT-2 and prints no "
        "number.",
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
        needs=(PLAIN,),
    )
    for name, (matrix, matrix_text) in MATRICES.items()
)
