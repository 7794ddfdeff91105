"""The claim about Proposition 1 (Appendix B.1): what a transformer computes can be independent of its attention."""

import copy

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AllOf, AtLeast, Equal, Number, Value
from case_studies.recipes.judges import Row
from hooks import Transformer
from interp.comparison.variation import attention_variation
from interp.core.randomness import derived_generator, derived_seed
from interp.tasks import Dyck
from interp.training.configs import config_for

DEPTHS = (1, 2, 3)
"""Numbers of layers."""
DRAWS = 10
"""Pairs of models for each number of layers."""
SPREAD = 10.0
"""Standard deviation of the scores of every layer, so that patterns are far from uniform."""
N_SEQUENCES = 32
LOGIT = "largest difference of a logit"
DISTANCE = "least distance of patterns, over random causal rows"
CHANGED = "least difference of a logit with W_V as drawn"


@torch.no_grad()
def without_values(model: Transformer) -> Transformer:
    """The same model with W_V = 0 in every layer: the choice of the paper's proof."""
    silent = copy.deepcopy(model)
    for layer in range(model.cfg.n_layers):
        silent.block(layer).attention.v.weight.zero_()
    return silent


@torch.no_grad()
def opposite_attention(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> tuple[Transformer, Transformer]:
    """Two models that differ from a given one, and from each other, in W_Q of every layer: scores of opposite sign.

    Args:
        model: All its other weights are kept.
        tokens: Inputs on which the scores of each layer have the standard deviation `SPREAD` if W_V is zero.
    """
    silent = without_values(model)
    pair = copy.deepcopy(model), copy.deepcopy(model)
    for layer in range(model.cfg.n_layers):
        # Without values the stream that enters a layer does not depend on W_Q and W_K
        name = f"blocks.{layer}.hook_resid_pre"
        _, cache = silent.run_with_cache(tokens, names_filter=name)
        attention = silent.block(layer).attention
        scores = attention.q(cache[name]) @ attention.k(cache[name]).mT
        scale = SPREAD / float(scores.std())
        for sign, changed in zip((1.0, -1.0), pair, strict=True):
            changed.block(layer).attention.q.weight.mul_(sign * scale)
    return pair


@torch.no_grad()
def measure_independent(evidence: Evidence) -> Readings:
    """Largest difference of a logit between two models with W_V = 0 that differ in W_Q and W_K; one row a pair."""
    task = Dyck()
    tokens = task.sample(N_SEQUENCES, generator=derived_generator(evidence.seed, "proposition 1"), split="test").tokens
    rows = []
    for layers in DEPTHS:
        for draw in range(DRAWS):
            seed = derived_seed(evidence.seed, "pair", layers, draw)
            base = Transformer(config_for(task, "dyck_eq6", n_layers=layers, d_model=16, d_mlp=32), seed=seed)
            pair = opposite_attention(base, tokens)
            silent = [without_values(model) for model in pair]
            difference, change = (
                float((first(tokens) - second(tokens)).abs().max()) for first, second in (silent, pair)
            )
            # Patterns of the models whose logits are compared; the least distant layer counts
            distance = float(attention_variation(silent, task, seed=evidence.seed).ratio_to().min())
            row = {"layers": layers, "pair": draw, LOGIT: difference, "the same, W_V as drawn": change}
            rows.append(row | {"distance of patterns": distance})
    frame = pd.DataFrame(rows).assign(pairs=len(rows))
    return Readings(
        frame=frame,
        title="Models that differ in W_Q and W_K only; distances are relative to random causal rows",
        numbers={DISTANCE: frame["distance of patterns"].min(), CHANGED: frame["the same, W_V as drawn"].min()},
        note="The paper's proof sets W_V to zero, so that no layer passes on what it attends to. That trained models "
        "have such heads is another claim: misleading.stack-like.",
    )


CLAIMS = (
    Claim(
        id="proposition-1.independent",
        method="Largest difference of a logit between models of Eq. 6 with W_V = 0, one to three layers, whose W_Q and "
        "W_K give every score the opposite sign, and the least distance of their patterns in a layer",
        rule=AllOf(Value(Equal(0)), Number(DISTANCE, AtLeast(1))),
        preregistration=Preregistration(
            "after first models",
            "equal logits in a first construction, whose deeper layers were nearly uniform in both models.",
        ),
        quantity=LOGIT,
        measure=measure_independent,
        judged=Row(LOGIT, unit="pairs of models", units="pairs", exact=True),
        by_construction=True,
    ),
)
