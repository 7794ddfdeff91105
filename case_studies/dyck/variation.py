"""Claims about attention variation above minimal first layers (Section 4.1) and by language and depth (Table 1)."""

from functools import partial

import numpy as np
import pandas as pd

from case_studies.dyck.measures import FEWEST, KEPT, chosen, if_learned, task_of
from case_studies.dyck.models import ENCODINGS, GRID, SEEDS, grid_name
from case_studies.dyck.pattern_tables import SHUFFLED, baseline_of, maps_of_seeds
from case_studies.dyck.preregistration import MINIMAL_VARIES
from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AllOf, AtLeast, Below, Number
from case_studies.recipes.judges import Row
from case_studies.recipes.learned import excluded_models
from interp.comparison.variation import attention_variation

LOWEST = "lowest ratio of a cell"
"""Name of the number that is judged next to the interval of the cell furthest from 1."""
TO_RANDOM, FROM_ONE = "variation / random", "distance from 1, logarithm"
TO_STANDARD = "variation / standard models'"
LARGEST_RATIO = Row(TO_STANDARD, unit="seeds", units="seeds", where={"judged": True})


def measure_minimal(evidence: Evidence, *, groups: tuple[str, ...]) -> Readings:
    """Variation above minimal first layers divided by that of the standard models' last layer, one row a setting."""
    # The reference: the last layer of the standard models
    first = chosen(evidence, "gpt")
    standard = attention_variation(first.models, task_of(evidence, "gpt"), seed=evidence.seed)
    base = standard.variation[-1]
    # Each setting with a minimal first layer; the one that varies most is judged
    models_of = {group: chosen(evidence, group) for group in groups}
    too_few = [group for group, models_used in models_of.items() if models_used.learned < FEWEST]
    rows, random_rows = [], {}
    for group, models_used in models_of.items():
        result = attention_variation(models_used.models, task_of(evidence, group), seed=evidence.seed)
        random_rows[group] = baseline_of(result)[0]
        variation, least, most = result.variation[0].floats()
        rows.append(
            {
                "models": group,
                "variation": variation,
                "variation, low": least,
                "variation, high": most,
                TO_STANDARD: variation / float(base),
                "low": least / float(base.high),
                "high": most / float(base.low),
                "seeds": result.n,
                "seeds that learned": models_used.learned,
                "seeds excluded": len(evidence.specs(group)) - models_used.learned,
                # Settings that too few seeds learned are judged only if there is no other
                "judged": group not in too_few or len(too_few) == len(groups),
            }
        )
    worst = LARGEST_RATIO.chosen(LARGEST_RATIO.rows(pd.DataFrame(rows)))
    return Readings(
        frame=pd.DataFrame(rows),
        title="Variation on the probe prefix",
        numbers={
            KEPT: min(first.learned, max(models_used.learned for models_used in models_of.values())),
            "variation of the standard models' last layer": float(base),
            "its interval": [float(base.low), float(base.high)],
            "random baseline": random_rows[worst["models"]],
            "settings that too few seeds learned": too_few,
            "settings judged": len(groups) - len(too_few),
        },
        tables=excluded_models(evidence, ["gpt", *groups]),
        charts=[
            maps_of_seeds(evidence, groups[0], chosen(evidence, groups[0]), 0, task_of(evidence, groups[0]).staircase())
        ],
        note="The ratio of variations, the largest over the settings; its interval combines the worst ends of both.",
    )


def measure_grid(evidence: Evidence) -> Readings:
    """Table 1: variation divided by that of random rows, one row a cell and layer."""
    rows = []
    # Every layer of every cell is shown; the last layers are compared
    for types, depth, layers in GRID:
        group = grid_name(types, depth, layers)
        models_used = chosen(evidence, group)
        result = attention_variation(models_used.models, task_of(evidence, group), seed=evidence.seed)
        ratio, low, high = (ends / baseline_of(result) for ends in result.variation.columns("ratio").values())
        ratio_to_shuffled = result.ratio_to(SHUFFLED)
        for layer in range(layers):
            rows.append(
                {
                    "types": types,
                    "depth": depth,
                    "layers": layers,
                    "layer": layer,
                    TO_RANDOM: ratio[layer],
                    "low": low[layer],
                    "high": high[layer],
                    f"/ {SHUFFLED}": ratio_to_shuffled[layer],
                    # By its logarithm twice and half the baseline are equally far
                    FROM_ONE: abs(np.log(ratio[layer])),
                    "seeds": result.n,
                    "seeds that learned": models_used.learned,
                    "excluded": len(evidence.specs(group)) - models_used.learned,
                    "last layer": layer == layers - 1,
                }
            )
        evidence.forget()  # a cell's models are used once
    frame = pd.DataFrame(rows)
    last = frame.loc[frame["last layer"].to_numpy()]
    return Readings(
        frame=frame,
        title="Variation divided by that of random causal rows, every cell and layer",
        numbers={
            KEPT: min(SEEDS[evidence.size]["grid"], *frame["seeds that learned"]),
            "cells": len(GRID),
            LOWEST: last[TO_RANDOM].min(),
            "highest ratio of a cell": last[TO_RANDOM].max(),
            f"ratios to {SHUFFLED}": last[f"/ {SHUFFLED}"].tolist(),
        },
        tables=excluded_models(evidence, [grid_name(*cell) for cell in GRID]),
        note="The cell whose last layer is furthest from the random baseline, by ratio.",
    )


ENCODING_GROUPS = tuple(f"encoding-{encoding}-{head}" for encoding in ENCODINGS for head in ("linear", "mlp"))
EVERY_MINIMAL = (*ENCODING_GROUPS, "minimal-words-all", "minimal-prefixes-closers")
CLAIMS = (
    Claim(
        id="variation.table-1",
        method="The last layer's variation on the probe prefix divided by that of random causal rows: the cell in "
        "which the ratio is furthest from 1, with its 95 % interval over seeds, and the lowest ratio of a cell",
        rule=if_learned(AllOf(AtLeast(1), Number(LOWEST, AtLeast(1)))),
        preregistration=Preregistration(
            "after a result",
            "ratios of 2.87 to 5.46 in the eight cells. The earlier rule asked for 3/4 to 4/3, so models that differ "
            "more did not pass.",
        ),
        quantity="variation / random, furthest from 1",
        measure=measure_grid,
        judged=Row(TO_RANDOM, by=FROM_ONE, unit="seeds", units="seeds", where={"last layer": True}),
        needs=tuple(grid_name(*cell) for cell in GRID),
        sizes=LARGE_SIZES,
        sizes_reason="The grid has 8 cells with several seeds each; it is trained at size standard and above.",
    ),
    Claim(
        id="variation.minimal-first-layer",
        method="Variation divided by that of the standard models' last layer, in the setting of Figure 3 (complete "
        "words, loss on closers, linear head); its interval combines the worst ends of both 95 % intervals over seeds",
        rule=if_learned(Below(1)),
        preregistration=MINIMAL_VARIES,
        quantity=TO_STANDARD,
        measure=partial(measure_minimal, groups=("minimal-words-closers",)),
        judged=LARGEST_RATIO,
        needs=("gpt", "minimal-words-closers"),
    ),
    Claim(
        id="variation.minimal-every-embedding",
        method="As variation.minimal-first-layer, for the embedding and head that vary most",
        rule=if_learned(Below(1)),
        preregistration=Preregistration(
            "after a result", "0.21 [0.11, 0.38]; models that have not learned are excluded by another rule now."
        ),
        quantity="variation / standard models', largest",
        measure=partial(measure_minimal, groups=EVERY_MINIMAL),
        judged=LARGEST_RATIO,
        needs=("gpt", *EVERY_MINIMAL),
        sizes=LARGE_SIZES,
        sizes_reason="Three embeddings with two heads each are trained at size standard and above.",
    ),
)
