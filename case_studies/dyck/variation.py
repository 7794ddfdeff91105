"""Claims about attention variation: do models that learned the same language look alike? (Section 4.1, Table 1, D.2)"""

from functools import partial

import numpy as np
import pandas as pd

from case_studies.dyck.learning import LEARNED
from case_studies.dyck.measures import accuracies, task_of
from case_studies.dyck.models import ENCODINGS, GRID, SEEDS, grid_name
from case_studies.frame.claims import Claim, ClaimVerdict, Measurement, at_least, below, more_than_half
from case_studies.frame.evidence import Evidence
from interp.comparison.variation import VariationResult, attention_variation
from interp.core.activations import patterns_on
from interp.core.statistics import bootstrap_mean
from interp.view.charts import dots
from interp.view.points import small_maps

AS_MUCH = 0.75
"""Share of the random baseline from which patterns count as varying as much as random ones."""
FEWEST = 4
"""Seeds that must have learned before a setting says anything."""
SHOWN = 8
RANDOM, SHUFFLED = "flat simplex", "own rows, keys shuffled"
LAYERS = {"first": 0, "last": -1}


def _table(result: VariationResult) -> tuple[str, list[list]]:
    rows: list[list] = [["layer", "variation", "95 %", "entropy, 0 to 1", *result.baselines]]
    for layer in range(len(result.variation)):
        ends = f"[{result.low[layer]:.3g}, {result.high[layer]:.3g}]"
        cells = [f"{value:.3g}" for value in result.baseline[:, layer]]
        entropy = f"{result.relative_entropy[layer]:.2f}"
        rows.append([layer, f"{result.variation[layer]:.3g}", ends, entropy, *cells])
    return "Variation and entropy by layer, beside random patterns", rows


def _maps(evidence: Evidence, group: str, layer: int):
    """What the heads of a layer look like on the probe prefix, seed by seed."""
    task = task_of(evidence, group)
    batch = task.read(task.staircase())
    patterns = patterns_on(evidence.models(group)[:SHOWN], batch)[layer, :, 0, 0]
    tokens = ["S", *task.staircase()]
    depth = evidence.specs(group)[0].config.n_layers
    title = f"layer {layer % depth}, first {len(patterns)} seeds (S: start; rows ask, columns are looked at)"
    return small_maps({f"seed {i}": pattern.numpy() for i, pattern in enumerate(patterns)}, tokens=tokens, title=title)


def measure_layer(evidence: Evidence, *, group: str, layer: int) -> Measurement:
    """Variation of one layer over the flat-simplex baseline; every seed must have learned the language."""
    task, models = task_of(evidence, group), evidence.models(group)
    result = attention_variation(models, task, seed=evidence.seed)
    hard = accuracies(models, task, evidence)["hard"]
    base = result.baseline[result.baselines.index(RANDOM), layer]
    return Measurement(
        value=result.variation[layer] / base,
        low=result.low[layer] / base,
        high=result.high[layer] / base,
        n=result.n,
        unit="seeds",
        numbers={
            "lowest hard accuracy": hard.min(),
            "variation": result.variation[layer],
            "random baseline": base,
            f"variation over that of {SHUFFLED}": result.ratio_to(SHUFFLED)[layer],
        },
        tables=[_table(result)],
        charts=[result.plot(), _maps(evidence, group, layer)],
        note=(
            "Measured is variation over that of random causal rows. Above 1 is possible: two sharp rows that look at "
            "different keys are further apart than two random ones. A model's own rows with their keys shuffled keep "
            "that sharpness; where variation is below that, the seeds share some structure."
        ),
    )


def judge_layer(m: Measurement) -> ClaimVerdict:
    """As much as random: interval above the bar. Models that did not learn say nothing."""
    if m.numbers["lowest hard accuracy"] < LEARNED:
        return "inconclusive"
    return at_least(m, AS_MUCH)


def _layer_claim(name: str, group: str, which: str, source: str, models: str) -> Claim:
    return Claim(
        id=name,
        source=source,
        statement=f"Patterns of the {which} layer vary across seeds about as much as random ones: {models}.",
        rule=(
            f"Variation on the probe prefix over that of random causal rows (flat on the simplex): reproduced if the "
            f"95 % interval over seeds lies above {AS_MUCH}, not reproduced if below it, else inconclusive; also out "
            f"of reach if any seed has less than {LEARNED} on hard positions."
        ),
        quantity="variation / random",
        measure=partial(measure_layer, group=group, layer=LAYERS[which]),
        judge=judge_layer,
        needs=(group,),
    )


def _among_learned(evidence: Evidence, group: str) -> tuple[VariationResult, int, int]:
    """Variation among the models that learned the language, how many those are, and how many did not.

    Where too few learned it is that of all of them, to be shown and not to be judged.
    """
    models = evidence.models(group)
    hard = accuracies(models, task_of(evidence, group), evidence)["hard"]
    kept = [model for model, accuracy in zip(models, hard, strict=True) if accuracy >= LEARNED]
    chosen = models if len(kept) < FEWEST else kept
    result = attention_variation(chosen, task_of(evidence, group), seed=evidence.seed)
    return result, len(kept), len(models) - len(kept)


def measure_minimal(evidence: Evidence, *, groups: tuple[str, ...]) -> Measurement:
    """Variation above minimal first layers over that of standard models' last layer."""
    standard = attention_variation(evidence.models("gpt"), task_of(evidence, "gpt"), seed=evidence.seed)
    base, base_low = standard.variation[-1], standard.low[-1]
    rows: list[list] = [["models", "variation", "95 %", "seeds that learned", "seeds left out"]]
    rows.append(["standard, last layer", f"{base:.3g}", _ends(standard), standard.n, 0])
    found = {group: _among_learned(evidence, group) for group in groups}
    rows += [[name, f"{r.variation[0]:.3g}", _ends(r), kept, failed] for name, (r, kept, failed) in found.items()]
    left_out = [group for group, (_, kept, _) in found.items() if kept < FEWEST]
    judged = {group: r for group, (r, kept, _) in found.items() if kept >= FEWEST}
    worst = max((judged or {group: r for group, (r, _, _) in found.items()}).values(), key=lambda r: r.variation[0])
    return Measurement(
        value=worst.variation[0] / base,
        low=worst.low[0] / standard.high[-1],
        high=worst.high[0] / base_low,
        n=worst.n,
        unit="seeds",
        numbers={
            "random baseline": worst.baseline[worst.baselines.index(RANDOM), 0],
            "settings that too few seeds learned": left_out,
            "settings judged": len(judged),
        },
        tables=[("Variation on the probe prefix", rows)],
        charts=[_maps(evidence, groups[0], 0)],
        note="Measured is a ratio of variations, the largest among the settings; its interval joins the worst ends "
        "of both.",
    )


def _ends(result: VariationResult) -> str:
    return f"[{result.low[-1]:.3g}, {result.high[-1]:.3g}]"


def judge_minimal(m: Measurement) -> ClaimVerdict:
    """Below the standard models', interval included; a setting that was not learned says nothing."""
    if m.numbers["settings judged"] == 0:
        return "inconclusive"
    return below(m, 1)


def measure_grid(evidence: Evidence) -> Measurement:
    """Table 1: the last layer's variation over the random baseline, in every cell; the lowest is judged."""
    head = ["types", "depth", "layers", "layer", "variation / random", "95 %", "seeds that learned", "left out"]
    rows: list[list] = [head]
    lowest, fewest = None, SEEDS[evidence.size]["grid"]
    for types, depth, layers in GRID:
        group = grid_name(types, depth, layers)
        result, kept, failed = _among_learned(evidence, group)
        fewest = min(fewest, kept)
        base = result.baseline[result.baselines.index(RANDOM)]
        ratio, low, high = (part / base for part in (result.variation, result.low, result.high))
        for layer in range(layers):
            ends = f"[{low[layer]:.2f}, {high[layer]:.2f}]"
            rows.append([types, depth, layers, layer, f"{ratio[layer]:.2f}", ends, kept, failed])
        if lowest is None or low[-1] < lowest[1]:
            lowest = (ratio[-1], low[-1], high[-1])
        evidence.forget()
    assert lowest is not None
    value, low, high = lowest
    return Measurement(
        value=value, low=low, high=high, n=max(fewest, 1), unit="seeds a cell",
        numbers={"fewest seeds that learned": fewest},
        tables=[("Variation over random causal rows, every cell and layer", rows)],
        note="Measured is the cell whose last layer varies least.",
    )  # fmt: skip


def judge_grid(m: Measurement) -> ClaimVerdict:
    """As a single claim, and every cell must have been learned."""
    if m.numbers["fewest seeds that learned"] < FEWEST:
        return "inconclusive"
    return at_least(m, AS_MUCH)


def measure_same_or_first(evidence: Evidence) -> Measurement:
    """Share of the last layer's attention on the current token or on the start token, models trained on prefixes."""
    task = task_of(evidence, "gpt-prefixes")
    patterns = patterns_on(evidence.models("gpt-prefixes"), task.read(task.staircase()))[-1, :, 0, 0].double().numpy()
    rows = np.arange(2, patterns.shape[-1])  # from the second bracket on, self and start leave something over
    share = (patterns[:, rows, rows] + patterns[:, rows, 0]).mean(1)
    even = float((2 / (rows + 1)).mean())
    mean, low, high = bootstrap_mean(share, seed=evidence.seed)
    parts = {"the current token": patterns[:, rows, rows].mean(1), "the first token": patterns[:, rows, 0].mean(1)}
    shares = [
        {"seed": str(seed), "share of attention": value, "low": value, "high": value, "on": name}
        for name, values in parts.items()
        for seed, value in enumerate(values)
    ]
    return Measurement(
        value=float(mean), low=float(low), high=float(high), n=len(share), unit="seeds",
        numbers={"share if attention were uniform": even, "by seed": share.round(3)},
        charts=[dots(pd.DataFrame(shares), x="seed", y="share of attention", series="on",
                     title=f"last layer's attention on the probe prefix, n = {len(share)} seeds")],
    )  # fmt: skip


STUDY_SIZES = ("standard", "paper")
ENCODING_GROUPS = tuple(f"encoding-{encoding}-{head}" for encoding in ENCODINGS for head in ("linear", "mlp"))

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
        rule=(
            f"The last layer's variation over random causal rows, in the cell where its interval is lowest: as for the "
            f"single claims, bar {AS_MUCH}. Seeds with less than {LEARNED} on hard positions are left out and "
            f"counted; inconclusive if fewer than {FEWEST} are left in any cell."
        ),
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
        rule="Reproduced if the interval of the ratio to the standard models' last layer lies below 1, not "
        "reproduced if "
        "above, else inconclusive. Judged on the setting of Figure 3: complete words, loss on closers, linear head.",
        quantity="variation / standard models'",
        measure=partial(measure_minimal, groups=("minimal-words-closers",)),
        judge=judge_minimal,
        needs=("gpt", "minimal-words-closers"),
    ),
    Claim(
        id="variation.minimal-every-embedding",
        source="bounded Dyck, Section 4.1 (Eq. 19-21)",
        statement="Patterns above a minimal first layer vary less whatever its embedding and head.",
        rule=f"As variation.minimal-first-layer, judged on the embedding and head that vary most; seeds with less than "
        f"{LEARNED} on hard positions are left out and counted, and settings with fewer than {FEWEST} others.",
        quantity="variation / standard models', largest",
        measure=partial(measure_minimal, groups=(*ENCODING_GROUPS, "minimal-words-all", "minimal-prefixes-closers")),
        judge=judge_minimal,
        needs=("gpt", *ENCODING_GROUPS, "minimal-words-all", "minimal-prefixes-closers"),
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
        statement="On prefixes, patterns sit on the current token in some models and on the first one in others.",
        rule="Reproduced if the mean share of the last layer's attention on those two tokens has an interval above one "
        "half, not reproduced if below, else inconclusive.",
        quantity="share of attention",
        measure=measure_same_or_first,
        judge=more_than_half,
        needs=("gpt-prefixes",),
    ),
)
