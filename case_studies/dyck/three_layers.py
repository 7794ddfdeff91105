"""The claim about the first layer of three-layer models: its attention is close to uniform (Appendix D.3)."""

import pandas as pd

from case_studies.dyck.last_layers import few
from case_studies.dyck.measures import KEPT, chosen, if_learned, task_of
from case_studies.dyck.models import GRID, grid_name
from case_studies.dyck.pattern_tables import maps_of_seeds
from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AtLeast
from case_studies.recipes.judges import BootstrapMean
from case_studies.recipes.learned import excluded_models
from interp.comparison.variation import attention_variation

CELLS = tuple(cell for cell in GRID if cell[2] == 3)
"""Types, depth and layers of the cells of Table 1 with three layers."""
GROUPS = tuple(grid_name(*cell) for cell in CELLS)
LAYERS = ["layer 0", "layer 1", "layer 2"]
UNIFORM = 0.9
"""Relative entropy from which attention counts as close to uniform; the paper gives no number."""


def measure_first_layer(evidence: Evidence) -> Readings:
    """Row entropy of every layer on the probe prefix as a fraction of its maximum, one row a three-layer model."""
    rows, learned = [], []
    for (types, depth, _), group in zip(CELLS, GROUPS, strict=True):
        models_used = chosen(evidence, group)
        result = attention_variation(models_used.models, task_of(evidence, group), seed=evidence.seed)
        for spec, entropies in zip(models_used.specs, result.relative_of_model, strict=True):
            of_layers = dict(zip(LAYERS, entropies, strict=True))
            rows.append({"types": types, "depth": depth, "seed": spec.seed, **of_layers})
        learned.append(models_used.learned)
    frame = pd.DataFrame(rows)
    by_cell = frame.groupby(["types", "depth"])
    means = {name: by_cell[name].mean() for name in LAYERS}
    of_cells = pd.DataFrame({"models": by_cell.size(), **means, "lowest of layer 0": by_cell[LAYERS[0]].min()})
    first = GROUPS[0]
    text = task_of(evidence, first).staircase()
    return Readings(
        frame=frame,
        table=of_cells.reset_index(),
        title="Relative entropy by cell of Table 1; 1 is uniform attention",
        numbers={
            KEPT: min(learned),
            "lowest of a model": frame[LAYERS[0]].min(),
            "second layer": frame[LAYERS[1]].mean(),
            "third layer": frame[LAYERS[2]].mean(),
        },
        tables=excluded_models(evidence, GROUPS),
        charts=[maps_of_seeds(evidence, first, few(chosen(evidence, first)), layer, text) for layer in range(3)],
        note="That the higher layers have no clear pattern is a judgement by eye: their maps are shown.",
    )


CLAIMS = (
    Claim(
        id="uniformity.three-layers.first-layer",
        method="Row entropy of the first layer on the probe prefix as a fraction of its maximum (1 is uniform), mean "
        "over models with three layers, two and three types, depths 4 and 8, with its 95 % bootstrap interval",
        rule=if_learned(AtLeast(UNIFORM)),
        preregistration=Preregistration(
            "after first models",
            "0.95 and 0.97 in two-layer models, and variations of first layers in these cells of 0.1 to 0.5 times "
            "random rows. The bar is that of interp.classify_heads for uniform heads.",
        ),
        quantity="relative entropy",
        value_range=SHARE,
        measure=measure_first_layer,
        judged=BootstrapMean(LAYERS[0], unit="models"),
        needs=GROUPS,
        sizes=LARGE_SIZES,
        sizes_reason="The cells of Table 1 are trained at size standard and above.",
    ),
)
