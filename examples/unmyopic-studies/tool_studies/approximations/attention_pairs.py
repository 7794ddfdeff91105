"""How much of the attention scores of trained LEGO models the listed pairs of `interp.explain_attention` explain."""

from typing import Any

import numpy as np
import pandas as pd

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AtLeast
from case_studies.recipes.intervals import interval_columns
from case_studies.recipes.judges import Row
from case_studies.recipes.learned import has_learned
from hooks.interventions.ablation_engine import every_head
from interp.heads.explain_attention import EXPLAINED, MOST_PAIRS, AttentionExplanation, explain_attention
from tool_studies.approximations.edge_scores import FAMILIES, over_models

GROUP = FAMILIES["LEGO"]
SEQUENCES = 256
SHARE_OF_HEADS = "share of heads"


def measure_pairs(evidence: Evidence) -> Readings:
    """Share of the heads of a model whose listed pairs explain enough of the variance, mean over models, in one row.

    Its table has a row for each layer.
    """
    by_layer: dict[int, list[AttentionExplanation]] = {}
    shares = []
    for spec in evidence.specs(GROUP):
        if not has_learned(evidence, spec):
            continue
        model: Any = evidence.run(spec).model.eval()
        explanations = [
            explain_attention(model, spec.task, head, n=SEQUENCES, seed=evidence.seed) for head in every_head(model)
        ]
        shares.append(np.mean([explained_share(explanation) >= EXPLAINED for explanation in explanations]))
        for explanation in explanations:
            by_layer.setdefault(explanation.head[0], []).append(explanation)
    heads = [explanation for explanations in by_layer.values() for explanation in explanations]
    layers = [
        {"layer": layer, "heads": len(explanations), **row_of(explanations)}
        for layer, explanations in {**by_layer, "all": heads}.items()
        if explanations
    ]
    interval = over_models(np.array(shares), *SHARE)
    return Readings(
        frame=pd.DataFrame([{**interval_columns(interval, SHARE_OF_HEADS), "models": interval.n}]),
        table=pd.DataFrame(layers),
        title="Share of the variance of scores that the listed pairs explain together, median and range over heads",
        numbers={
            "heads": len(heads),
            "largest remainder": max((explanation.remainder for explanation in heads), default=0.0),
        },
    )


def explained_share(explanation: AttentionExplanation) -> float:
    """What all listed pairs explain together."""
    return float(explanation.explained.value[-1])


def row_of(explanations: list[AttentionExplanation]) -> dict[str, Any]:
    """Pairs in all, pairs listed, their explained share, and heads with enough of it."""
    shares = [explained_share(explanation) for explanation in explanations]
    n_pairs = [len(explanation.parts) ** 2 for explanation in explanations]
    n_listed = [len(explanation.pairs) for explanation in explanations]
    few, most = min(n_pairs), max(n_pairs)
    return {
        "pairs in all": f"{few} to {most}" if few < most else str(few),
        "pairs listed": f"{np.median(n_listed):g} ({min(n_listed)} to {max(n_listed)})",
        "explained": f"{np.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})",
        f"at least {EXPLAINED:g}": sum(share >= EXPLAINED for share in shares),
    }


PAIRS = Claim(
    id="edges.pairs.trained",
    source="ours",
    statement="A dozen pairs of what wrote into query and key explain the attention scores of trained LEGO heads.",
    method=f"share of heads in which the listed pairs, at most {MOST_PAIRS}, explain at least {EXPLAINED:g} of the "
    "variance of the scores over keys; mean over models, t interval",
    rule=AtLeast(0.9),
    preregistration=Preregistration(
        "after a result",
        "12 pairs explained this much in 25 of the 36 heads of the same models: all of layers 0 and 1, and 1 of 12 in "
        "layer 2.",
    ),
    measure=measure_pairs,
    judged=Row(SHARE_OF_HEADS, unit="models", units="models"),
    quantity=SHARE_OF_HEADS,
    value_range=SHARE,
    needs=(GROUP,),
    sizes=LARGE_SIZES,
    sizes_reason="Its models are trained for it alone.",
)
