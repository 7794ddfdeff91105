"""Claims about attention variation between models that learned the same language (Section 4.1, Table 1, D.2)."""

from functools import partial

import numpy as np
import pandas as pd

from case_studies.dyck.measures import LEARNED, accuracies, task_of
from case_studies.dyck.models import ENCODINGS, GRID, SEEDS, grid_name
from case_studies.frame.claims import (
    Claim,
    ClaimVerdict,
    Measurement,
    at_least,
    below,
    bootstrap_interval,
    more_than_half,
)
from case_studies.frame.evidence import Evidence
from interp.comparison.variation import VariationResult, attention_variation
from interp.core.activations import patterns_on
from interp.view.charts import dots
from interp.view.points import small_maps

AS_MUCH = 0.75
"""Share of the random baseline from which patterns count as varying as much as random ones."""
FEWEST = 4
"""Fewest seeds that must have learned before a setting is judged."""
SHOWN = 8
RANDOM, SHUFFLED = "flat simplex", "own rows, keys shuffled"
LAYERS = {"first": 0, "last": -1}


def _ends(low: float, high: float) -> str:
    return f"[{low:.3g}, {high:.3g}]"


def _random(result: VariationResult) -> np.ndarray:
    """The variation of random causal rows, per layer."""
    return result.baseline[result.baselines.index(RANDOM)]


def _table(result: VariationResult) -> tuple[str, list[list]]:
    rows: list[list] = [["layer", "variation", "95 %", "entropy, 0 to 1", *result.baselines]]
    for layer, value in enumerate(result.variation):
        cells = [f"{base:.3g}" for base in result.baseline[:, layer]]
        entropy = f"{result.relative_entropy[layer]:.2f}"
        rows.append([layer, f"{value:.3g}", _ends(result.low[layer], result.high[layer]), entropy, *cells])
    return "Variation and entropy by layer, with random patterns as baselines", rows


def _maps(evidence: Evidence, group: str, layer: int):
    """The patterns of a layer on the probe prefix, one map per seed."""
    task = task_of(evidence, group)
    patterns = patterns_on(evidence.models(group)[:SHOWN], task.read(task.staircase()))[layer, :, 0, 0]
    depth = evidence.specs(group)[0].config.n_layers
    title = f"layer {layer % depth}, first {len(patterns)} seeds (S: start; rows are queries, columns are keys)"
    return small_maps(
        {f"seed {i}": pattern.numpy() for i, pattern in enumerate(patterns)},
        tokens=["S", *task.staircase()],
        title=title,
    )


def measure_layer(evidence: Evidence, *, group: str, layer: int) -> Measurement:
    """Variation of one layer divided by that of random causal rows."""
    task, models = task_of(evidence, group), evidence.models(group)
    result = attention_variation(models, task, seed=evidence.seed)
    base = _random(result)[layer]
    return Measurement(
        value=result.variation[layer] / base, low=result.low[layer] / base, high=result.high[layer] / base,
        n=result.n, unit="seeds",
        numbers={
            "lowest hard accuracy": accuracies(models, task, evidence)["hard"].min(),
            "variation": result.variation[layer],
            "random baseline": base,
            f"variation over that of {SHUFFLED}": result.ratio_to(SHUFFLED)[layer],
        },
        tables=[_table(result)],
        charts=[result.plot(), _maps(evidence, group, layer)],
        note="Variation divided by that of random causal rows. Values above 1 are possible: two sharp rows on "
        "different keys are further apart than two random rows. Shuffling the keys of a model's own rows keeps their "
        "sharpness; variation below that baseline means that the seeds share some structure.",
    )  # fmt: skip


def judge_layer(m: Measurement) -> ClaimVerdict:
    """At or above the bar; inconclusive if a seed has not learned the language."""
    return "inconclusive" if m.numbers["lowest hard accuracy"] < LEARNED else at_least(m, AS_MUCH)


def _layer_claim(name: str, group: str, which: str, source: str, models: str) -> Claim:
    return Claim(
        id=name,
        source=source,
        statement=f"Patterns of the {which} layer vary across seeds about as much as random ones: {models}.",
        rule="Variation on the probe prefix divided by that of random causal rows (flat on the simplex): reproduced if "
        f"the 95 % interval over seeds is above {AS_MUCH}, not reproduced if below it, else inconclusive; also "
        f"inconclusive if any seed has accuracy below {LEARNED} on hard positions.",
        quantity="variation / random",
        measure=partial(measure_layer, group=group, layer=LAYERS[which]),
        judge=judge_layer,
        needs=(group,),
    )


def _among_learned(evidence: Evidence, group: str) -> tuple[VariationResult, int, int]:
    """Variation among the models that learned the language, their number, and the number of the others.

    With fewer than `FEWEST` of them it is the variation among all models, which is shown and not judged.
    """
    models = evidence.models(group)
    hard = accuracies(models, task_of(evidence, group), evidence)["hard"]
    kept = [model for model, accuracy in zip(models, hard, strict=True) if accuracy >= LEARNED]
    chosen = models if len(kept) < FEWEST else kept
    result = attention_variation(chosen, task_of(evidence, group), seed=evidence.seed)
    return result, len(kept), len(models) - len(kept)


def measure_minimal(evidence: Evidence, *, groups: tuple[str, ...]) -> Measurement:
    """Variation above minimal first layers divided by that of the standard models' last layer."""
    standard = attention_variation(evidence.models("gpt"), task_of(evidence, "gpt"), seed=evidence.seed)
    base = standard.variation[-1]
    rows: list[list] = [["models", "variation", "95 %", "seeds that learned", "seeds excluded"]]
    rows.append(["standard, last layer", f"{base:.3g}", _ends(standard.low[-1], standard.high[-1]), standard.n, 0])
    found = {group: _among_learned(evidence, group) for group in groups}
    for name, (r, kept, failed) in found.items():
        rows.append([name, f"{r.variation[0]:.3g}", _ends(r.low[-1], r.high[-1]), kept, failed])
    judged = [r for r, kept, _ in found.values() if kept >= FEWEST]
    worst = max(judged or [r for r, _, _ in found.values()], key=lambda r: r.variation[0])
    return Measurement(
        value=worst.variation[0] / base, low=worst.low[0] / standard.high[-1], high=worst.high[0] / standard.low[-1],
        n=worst.n, unit="seeds",
        numbers={
            "random baseline": _random(worst)[0],
            "settings that too few seeds learned": [group for group, (_, kept, _) in found.items() if kept < FEWEST],
            "settings judged": len(judged),
        },
        tables=[("Variation on the probe prefix", rows)],
        charts=[_maps(evidence, groups[0], 0)],
        note="The ratio of variations, the largest over the settings; its interval combines the worst ends of both.",
    )  # fmt: skip


def judge_minimal(m: Measurement) -> ClaimVerdict:
    """Below the standard models; inconclusive if no setting was learned by enough seeds."""
    return below(m, 1) if m.numbers["settings judged"] else "inconclusive"


def measure_grid(evidence: Evidence) -> Measurement:
    """Table 1: the last layer's variation divided by that of random rows, in the cell where it is lowest."""
    rows: list[list] = [
        ["types", "depth", "layers", "layer", "variation / random", "95 %", "seeds that learned", "excluded"]
    ]
    last, fewest = [], SEEDS[evidence.size]["grid"]
    for types, depth, layers in GRID:
        result, kept, failed = _among_learned(evidence, grid_name(types, depth, layers))
        fewest = min(fewest, kept)
        ratio, low, high = (part / _random(result) for part in (result.variation, result.low, result.high))
        for layer in range(layers):
            ends = f"[{low[layer]:.2f}, {high[layer]:.2f}]"
            rows.append([types, depth, layers, layer, f"{ratio[layer]:.2f}", ends, kept, failed])
        last.append((ratio[-1], low[-1], high[-1]))
        evidence.forget()
    value, low, high = min(last, key=lambda cell: cell[1])
    return Measurement(
        value=value, low=low, high=high, n=max(fewest, 1), unit="seeds per cell",
        numbers={"fewest seeds that learned": fewest},
        tables=[("Variation divided by that of random causal rows, every cell and layer", rows)],
        note="The cell with the lowest variation of the last layer.",
    )  # fmt: skip


def judge_grid(m: Measurement) -> ClaimVerdict:
    """At or above the bar; inconclusive if a cell was learned by too few seeds."""
    return "inconclusive" if m.numbers["fewest seeds that learned"] < FEWEST else at_least(m, AS_MUCH)


def measure_same_or_first(evidence: Evidence) -> Measurement:
    """Share of the last layer's attention on the current or the start token, in models trained on prefixes."""
    task = task_of(evidence, "gpt-prefixes")
    patterns = patterns_on(evidence.models("gpt-prefixes"), task.read(task.staircase()))[-1, :, 0, 0].double().numpy()
    rows = np.arange(2, patterns.shape[-1])  # from the second bracket on there are other keys
    current, first = patterns[:, rows, rows], patterns[:, rows, 0]
    share = (current + first).mean(1)
    mean, low, high = bootstrap_interval(share, seed=evidence.seed)
    points = [
        {"seed": str(seed), "share of attention": value, "low": value, "high": value, "on": name}
        for name, values in (("the current token", current.mean(1)), ("the first token", first.mean(1)))
        for seed, value in enumerate(values)
    ]
    return Measurement(
        value=mean, low=low, high=high, n=len(share), unit="seeds",
        numbers={"share if attention were uniform": float((2 / (rows + 1)).mean()), "by seed": share.round(3)},
        charts=[dots(pd.DataFrame(points), x="seed", y="share of attention", series="on",
                     title=f"last layer's attention on the probe prefix, n = {len(share)} seeds")],
    )  # fmt: skip


STUDY_SIZES = ("standard", "paper")
ENCODING_GROUPS = tuple(f"encoding-{encoding}-{head}" for encoding in ENCODINGS for head in ("linear", "mlp"))
EVERY_MINIMAL = (*ENCODING_GROUPS, "minimal-words-all", "minimal-prefixes-closers")

CLAIMS = (
    *(
        _layer_claim(f"variation.{name}.{which}-layer", group, which, "bounded Dyck, Section 4.1, Figure 1", models)
        for name, group, models in (
            ("no-positions", "gpt", "two layers, no positional encoding"),
            ("linear-positions", "gpt-linear", "two layers, linear positional encoding"),
        )
        for which in LAYERS
    ),
    Claim(
        id="variation.table-1",
        source="bounded Dyck, Table 1",
        statement="Patterns vary as much as random ones for two and three types, depths 4 and 8, two and three layers.",
        rule="The last layer's variation divided by that of random causal rows, in the cell where its interval is "
        f"lowest: as for the single claims, bar {AS_MUCH}. Seeds with accuracy below {LEARNED} on hard positions are "
        f"excluded and counted; inconclusive if any cell keeps fewer than {FEWEST}.",
        quantity="variation / random, lowest cell",
        measure=measure_grid,
        judge=judge_grid,
        needs=tuple(grid_name(*cell) for cell in GRID),
        sizes=STUDY_SIZES,
        why_not="The grid has 8 cells with several seeds each; it is trained at size standard and above.",
    ),
    Claim(
        id="variation.minimal-first-layer",
        source="bounded Dyck, Section 4.1 (Eq. 19)",
        statement="With a minimal first layer the patterns above it vary less across seeds.",
        rule="Reproduced if the interval of the ratio to the standard models' last layer is below 1, not reproduced "
        "if above, else inconclusive. Judged on the setting of Figure 3: complete words, loss on closers, linear head.",
        quantity="variation / standard models'",
        measure=partial(measure_minimal, groups=("minimal-words-closers",)),
        judge=judge_minimal,
        needs=("gpt", "minimal-words-closers"),
    ),
    Claim(
        id="variation.minimal-every-embedding",
        source="bounded Dyck, Section 4.1 (Eq. 19-21)",
        statement="Patterns above a minimal first layer vary less, whatever its embedding and head.",
        rule="As variation.minimal-first-layer, judged on the embedding and head that vary most; seeds with accuracy "
        f"below {LEARNED} on hard positions are excluded and counted, and settings with fewer than {FEWEST} others.",
        quantity="variation / standard models', largest",
        measure=partial(measure_minimal, groups=EVERY_MINIMAL),
        judge=judge_minimal,
        needs=("gpt", *EVERY_MINIMAL),
        sizes=STUDY_SIZES,
        why_not="Three embeddings with two heads each are trained at size standard and above.",
    ),
    _layer_claim(
        "prefixes.variation",
        "gpt-prefixes",
        "last",
        "bounded Dyck, Appendix D.2",
        "two layers trained on prefixes (the paper calls these values surprisingly high)",
    ),
    Claim(
        id="prefixes.current-or-first",
        source="bounded Dyck, Appendix D.2",
        statement="On prefixes, patterns concentrate on the current token in some models and on the first in others.",
        rule="Reproduced if the mean share of the last layer's attention on those two tokens has an interval above one "
        "half, not reproduced if below, else inconclusive.",
        quantity="share of attention",
        measure=measure_same_or_first,
        judge=more_than_half,
        needs=("gpt-prefixes",),
    ),
)
