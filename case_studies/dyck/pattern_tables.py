"""Tables, baselines and maps of attention patterns that several claims show."""

import numpy as np
import pandas as pd

from case_studies.dyck.measures import Chosen, task_of
from case_studies.frame.evidence import Evidence
from interp.comparison.variation import VariationResult
from interp.core.activations import patterns_on
from interp.view.charts import pattern_maps

SHOWN = 8
"""Models whose patterns a map shows."""
CAUSAL = "flat simplex"
"""Random causal rows: uniform on the simplex of the keys that a query sees."""
SQUARE = "flat simplex, unmasked"
"""Random square matrices, the paper's baseline (its footnote 14): every query sees every key."""
SHUFFLED = "own rows, keys shuffled"


def baseline_of(result: VariationResult, name: str = CAUSAL) -> np.ndarray:
    """The expected distance of random patterns, per layer."""
    return result.baseline[result.baselines.index(name)]


def variation_table(result: VariationResult) -> tuple[str, pd.DataFrame]:
    """Variation and entropy of every layer next to all baselines."""
    frame = pd.DataFrame(
        {
            "layer": range(len(result.variation)),
            **result.variation.columns("variation"),
            "entropy, 0 to 1": result.relative_entropy.value,
            **dict(zip(result.baselines, result.baseline, strict=True)),
        }
    )
    return "Variation and entropy by layer, with random patterns as baselines", frame


def maps_of_seeds(evidence: Evidence, group: str, models_used: Chosen, layer: int, text: str):
    """The patterns of a layer on a prefix, one map per seed."""
    patterns = patterns_on(models_used.models[:SHOWN], task_of(evidence, group).read(text))[layer, :, 0, 0]
    depth = models_used.specs[0].config.n_layers
    title = f"layer {layer % depth}, first {len(patterns)} seeds (S: start; rows are queries, columns are keys)"
    return pattern_maps(
        {f"seed {spec.seed}": pattern.numpy() for spec, pattern in zip(models_used.specs, patterns, strict=False)},
        tokens=["S", *text],
        title=title,
    )
