"""Claims about stack-like heads: how common they are, and whether they matter more (Figure 2, Appendix B.2)."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from case_studies.dyck.measures import KEPT, chosen, if_learned, task_of
from case_studies.frame.claims import DIFFERENCE, SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, Below
from case_studies.recipes.intervals import difference_interval, interval_columns, proportion
from case_studies.recipes.judges import Row, Share
from case_studies.recipes.learned import excluded_models
from hooks import Transformer
from hooks.model.attention import visible_keys
from interp.core.activations import patterns_on
from interp.core.randomness import derived_generator
from interp.heads.ablate import ablate_heads
from interp.heads.kinds import relations_of
from interp.heads.measures import RelationRows
from interp.heads.untrained import mean_over_sequences
from interp.tasks import Dyck
from interp.view.charts import curves, pattern_maps
from interp.view.points import scatter

STACK_LIKE = ("stack_top", "unmatched_open", "matching_bracket")
"""Kinds of stack-like heads: they attend to the innermost open bracket, to all open brackets, or to the partner."""
GROUPS = ("gpt", "gpt-linear")
MINIMAL = ("minimal-words-closers", "minimal-prefixes-closers")
MARGIN = 0.05
"""Extra accuracy lost in stack-like models that contradicts the paper's claim."""
METHODS = ("uniform", "random_rows", "zero")
THRESHOLDS = np.linspace(0, 1, 21)
"""Positions between a head's shuffled rows (0) and stack-like attention (1)."""
HALFWAY = 0.5
SCORE, SHUFFLED = "stack-like score", "its rows, keys shuffled"
NOT_LIKE = "nearer to its shuffled rows"
LOST = "difference of accuracy lost"
MODELS = "models"
"""Name of the models in the chart of shares."""
POSITIONS = (
    "Highest score of three kinds: attention to the innermost open bracket, to all open brackets, to the matching "
    "bracket. A position is 0 for the model's own rows with keys shuffled and 1 for stack-like attention."
)
N_CLASSIFY = {"quick": 64, "standard": 256, "paper": 256}
N_ABLATE = {"quick": 200, "standard": 500, "paper": 500}


@torch.no_grad()
def stack_scores(model: Transformer, task: Dyck, *, n: int, seed: int) -> tuple[float, float]:
    """Highest stack-like score of the last layer's head, and of its rows with the visible keys of each shuffled.

    A score is that of `interp.classify_heads`: attention mass on related keys, 0 at chance and 1 if all of it is.
    """
    # Keys of each kind of relation, for every query
    batch = task.sample(n, generator=derived_generator(seed, "classify"), split="test")
    related = torch.stack(list(relations_of(task, batch, STACK_LIKE).values()), 1)
    allowed = visible_keys(model.cfg, batch.tokens, batch.attention_mask)
    real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.attention_mask is None else batch.attention_mask
    rows = RelationRows(related & allowed[:, None], allowed, real)
    pattern = patterns_on([model], batch)[-1, 0].float()
    if pattern.shape[1] != 1:
        raise ValueError(f"the last layer has {pattern.shape[1]} heads; stack_scores reads layers with one.")
    shuffled = shuffle_keys(pattern, allowed, generator=derived_generator(seed, "shuffle"))
    # The highest score of the three kinds, of the head and of its shuffled rows as a control
    scores = []
    for attention in (pattern, shuffled):
        by_sequence = rows.score(attention).double().numpy()[:, None]
        scores.append(float(mean_over_sequences(by_sequence).max()))
    return scores[0], scores[1]


def shuffle_keys(
    pattern: Float[torch.Tensor, "batch head query key"], allowed: torch.Tensor, *, generator: torch.Generator
) -> Float[torch.Tensor, "batch head query key"]:
    """The visible weights of every row in random order, independent between rows."""
    chance = torch.rand(pattern.shape, generator=generator).masked_fill(~allowed[:, None], 2.0)
    order = chance.argsort(-1)  # the visible keys of each row in random order, then the others
    places = (~allowed[:, None]).expand_as(pattern).long().argsort(stable=True, dim=-1)  # visible keys first
    return torch.zeros_like(pattern).scatter(-1, places, pattern.gather(-1, order))


def positions_of(evidence: Evidence, groups: tuple[str, ...]) -> pd.DataFrame:
    """Group, seed, score, score of the shuffled rows, and position between these and 1, of every model used."""
    rows = []
    for group in groups:
        models_used = chosen(evidence, group)
        task = task_of(evidence, group)
        for spec, model in zip(models_used.specs, models_used.models, strict=True):
            score, shuffled = stack_scores(model, task, n=N_CLASSIFY[evidence.size], seed=evidence.seed)
            rows.append((group, spec.seed, score, shuffled, (score - shuffled) / (1 - shuffled)))
    return pd.DataFrame(rows, columns=["models", "seed", SCORE, SHUFFLED, "position"])


def _learned(evidence: Evidence, groups: tuple[str, ...]) -> int:
    return min(chosen(evidence, group).learned for group in groups)


def share_curve(table: pd.DataFrame) -> pd.DataFrame:
    """Share of models below every threshold, and the same share of their shuffled rows as a control, with intervals."""
    points = []
    for name, column in ((MODELS, "position"), ("their rows, keys shuffled", SHUFFLED)):
        for threshold in THRESHOLDS:
            share = proportion(int((table[column] < threshold).sum()), len(table))
            points.append((threshold, *share.floats(), name))
    return pd.DataFrame(points, columns=["threshold", "share below", "low", "high", "attention"])


def distribution_of(table: pd.DataFrame) -> dict[str, Any]:
    """Numbers, a table and a chart of how stack-like the models are, at every threshold."""
    curve = share_curve(table)
    models = curve[curve["attention"] == MODELS]
    # Thresholds at which the interval of the share excludes one half
    most = models[models["low"] > 0.5]["threshold"]
    few = models[models["high"] < 0.5]["threshold"]
    chart = curves(
        curve,
        x="threshold",
        y="share below",
        series="attention",
        rule=0.5,
        domain=(0.0, 1.0),
        title=f"stack-like attention of last heads, n = {len(table)} models",
    )
    return {
        "numbers": {
            "median position": table["position"].median(),
            "lower and upper quartile": table["position"].quantile([0.25, 0.75]).tolist(),
            "share of models below halfway": float((table["position"].to_numpy() < HALFWAY).mean()),
            "largest score of shuffled rows": table[SHUFFLED].max(),
            "least threshold with most models below": most.min() if len(most) else None,
            "largest threshold with most models above": few.max() if len(few) else None,
        },
        "tables": [("Share of models below each threshold", models.drop(columns="attention"))],
        "charts": [chart],
    }


def measure_stack_like(evidence: Evidence, *, groups: tuple[str, ...]) -> Readings:
    """Whether a last head is nearer to its rows with keys shuffled than to stack-like attention, one row a model."""
    table = positions_of(evidence, groups)
    distribution = distribution_of(table)
    return Readings(
        frame=table.assign(**{NOT_LIKE: table["position"] < HALFWAY}),
        title="Every model",
        numbers={KEPT: _learned(evidence, groups), **distribution["numbers"]},
        tables=[*distribution["tables"], *excluded_models(evidence, groups)],
        charts=[*distribution["charts"], _maps_of(evidence, table)],
        note=POSITIONS,
    )


def _maps_of(evidence: Evidence, table: pd.DataFrame):
    """The last-layer patterns with the four highest and the four lowest scores, on the probe prefix."""
    ranked = sorted(table.values.tolist(), key=lambda row: -row[-1])
    maps, text = {}, ""
    for group, seed, _, _, position in [*ranked[:4], *ranked[4:][-4:]]:
        task = task_of(evidence, group)
        text = task.staircase()
        index = [spec.seed for spec in evidence.specs(group)].index(seed)
        pattern = patterns_on([evidence.models(group)[index]], task.read(text))[-1, 0, 0, 0]
        maps[f"{group} {seed}: {position:.2f}"] = pattern.numpy()
    title = "last layers, the four that are most stack-like and the four that are least"
    return pattern_maps(maps, tokens=["S", *text], title=title)


def measure_pattern_matters(evidence: Evidence) -> Readings:
    """Accuracy lost when the last layer's pattern is replaced, stack-like models minus the others, one row a method."""
    # Models are split in half by the position of their last head
    table = positions_of(evidence, GROUPS)
    lost = _losses(evidence)
    order = np.argsort(-table["position"].to_numpy(), kind="stable")
    half = len(order) // 2
    like, unlike = order[:half], order[half : 2 * half]
    # Loss of accuracy in one half minus that in the other, for each replacement of the pattern
    rows = []
    for method, values in lost.items():
        difference = difference_interval(values[like], values[unlike], resolution=1 / N_ABLATE[evidence.size])
        means = {"lost, stack-like half": values[like].mean(), "lost, other half": values[unlike].mean()}
        rows.append({"pattern becomes": method, **means, **interval_columns(difference, LOST), "models": 2 * half})
    points = table[["position", "models"]].assign(**{"hard accuracy lost": lost["uniform"]})
    distribution = distribution_of(table)
    return Readings(
        frame=pd.DataFrame(rows),
        title="Hard accuracy lost when the last layer's pattern is replaced",
        numbers={KEPT: _learned(evidence, GROUPS), "margin": MARGIN, **distribution["numbers"]},
        tables=[*distribution["tables"], ("Every model", table), *excluded_models(evidence, GROUPS)],
        charts=[
            *distribution["charts"],
            _maps_of(evidence, table),
            scatter(
                points,
                x="position",
                y="hard accuracy lost",
                series="models",
                zero=True,
                title=f"pattern replaced by uniform attention, n = {len(points)} models",
            ),
        ],
        note=f"Models are split in half by how stack-like their last head is. {POSITIONS} Whether most heads are "
        "stack-like depends on the threshold, so the distribution is shown without a verdict.",
    )


def _losses(evidence: Evidence) -> dict[str, np.ndarray]:
    """Accuracy lost on hard positions by each method of replacement, per model, in the order of `positions_of`."""
    lost = {method: [] for method in METHODS}
    for group in GROUPS:
        task = task_of(evidence, group)
        last = evidence.specs(group)[0].config.n_layers - 1
        for model in chosen(evidence, group).models:
            for method in METHODS:
                result = ablate_heads(
                    model,
                    task,
                    heads={"last": [(last, 0)]},
                    method=method,
                    n=N_ABLATE[evidence.size],
                    seed=evidence.seed,
                )
                lost[method].append(float(result.drop[0, 0]))
    return {method: np.array(values) for method, values in lost.items()}


CLAIMS = (
    Claim(
        id="heads.not-stack-like.minimal",
        method="Share of models whose last head is nearer to its own rows with keys shuffled than to stack-like "
        "attention by its attention to open or matching brackets, with its exact 95 % interval",
        rule=if_learned(Above(0.5)),
        preregistration=Preregistration(
            "after a result",
            "80 of 80 heads without a label. By the earlier rule a head with a label, a score of 0.3, counted.",
        ),
        quantity="share not stack-like",
        value_range=SHARE,
        measure=partial(measure_stack_like, groups=MINIMAL),
        judged=Share(NOT_LIKE, unit="models"),
        needs=MINIMAL,
    ),
    Claim(
        id="heads.stack-like-matters-no-more",
        method="Hard accuracy lost when the last layer's pattern is replaced by uniform attention, stack-like half of "
        "the models minus the other half, with Welch's 95 % t interval over models",
        rule=if_learned(Below(MARGIN)),
        preregistration=Preregistration(
            "after a result", "-0.010 [-0.023, 0.004], 60 models; the bar is older, the scores are new."
        ),
        quantity=LOST,
        value_range=DIFFERENCE,
        measure=measure_pattern_matters,
        judged=Row(LOST, unit="models", units="models", where={"pattern becomes": "uniform"}),
        needs=GROUPS,
    ),
)
