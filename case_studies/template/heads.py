"""Claims about heads of solved models: dependence of attention on equal symbols, and need of the heads (ours)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from case_studies.frame.claims import DIFFERENCE, SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AtLeast, Conditional, Number
from case_studies.recipes.judges import Mean, Share
from case_studies.recipes.template_models import PLAIN, A
from case_studies.template.measures import n_train, template_task
from case_studies.template.solved import FEWEST, GROUPS, N_READ, solved
from hooks import Transformer, make_model
from interp.core.activations import patterns_on
from interp.core.randomness import derived_generator, derived_seed
from interp.heads.ablate import ablate_heads
from interp.heads.classify import classify_heads
from interp.tasks import Template, TemplateBatch
from interp.view.charts import pattern_maps
from interp.view.points import scatter

RESOLUTION = 1e-3
"""About the smallest distance between two rank correlations of 16 heads."""
N_UNTRAINED = 19
"""Untrained models that each model is compared with: one of them has a more dependent head by chance in 1 of 20."""
DEPENDENCE = "more attention if equal"
DEPENDS = "a head depends on equality"
CORRELATION, HAS_CORRELATION = "rank correlation", "heads differ"
DISTANCE = f"{DEPENDENCE}, absolute"


@dataclass(frozen=True, kw_only=True)
class Equality:
    """How much more attention each head of a model pays to a symbol if it equals the query's."""

    preference: Float[np.ndarray, "layer head"]
    """Attention between two positions if their symbols are equal, minus that if they differ, mean over positions."""
    half: Float[np.ndarray, "layer head"]
    """Half width of its 95 % interval over strings, Bonferroni over the heads of the model."""
    untrained: float
    """Largest absolute value of any head of the untrained models."""

    @property
    def signs(self) -> Float[np.ndarray, "layer head"]:
        """1 if a head attends more to equal symbols, -1 if less, beyond all untrained models; else 0."""
        return np.where(np.abs(self.preference) - self.half > self.untrained, np.sign(self.preference), 0.0)


def attention_if_equal(
    patterns: Float[Tensor, "layer string head query key"], tokens: Int[Tensor, "string pos"]
) -> tuple[Float[np.ndarray, "layer head"], Float[np.ndarray, "layer head"]]:
    """Attention at equal symbols minus attention at the same positions if the symbols differ; and its standard error.

    The mean is over pairs of different positions whose symbols are equal in some strings and differ in others, so a
    head whose attention depends on positions alone has a value of 0.

    Raises:
        ValueError: no pair of positions is equal in at least two strings and different in two.
    """
    # Pairs of positions that are equal in at least two strings and different in two
    equal = tokens[:, :, None] == tokens[:, None, :]
    often = torch.minimum(equal.sum(0), (~equal).sum(0)) >= 2
    query, key = often.nonzero(as_tuple=True)
    if not len(query):
        raise ValueError("no two positions hold equal symbols in some strings and different ones in others.")
    attention = patterns[..., query, key].double().movedim(1, -2)  # layer head string pair
    # Weights of the strings in the two means of each pair
    is_equal = equal[:, query, key].double()
    share = is_equal / is_equal.sum(0)
    share_different = (1 - is_equal) / (1 - is_equal).sum(0)
    means = [(attention * share_of_pairs).sum(-2, keepdim=True) for share_of_pairs in (share, share_different)]
    # Strings are independent: the standard error sums their residuals, each averaged over pairs
    residual = ((attention - means[0]) * share - (attention - means[1]) * share_different).mean(-1)
    preference = (means[0] - means[1]).mean((-2, -1))
    return preference.numpy(), residual.square().sum(-1).sqrt().numpy()


def equality_preference(evidence: Evidence, model: Transformer, task: Template) -> Equality:
    """`attention_if_equal` of a model on unseen symbols, and that of untrained models of its architecture."""
    strings = task.sample(N_READ[evidence.size], generator=derived_generator(evidence.seed, "equality"), split="test")
    seeds = [derived_seed(evidence.seed, "untrained", index) for index in range(N_UNTRAINED)]
    with torch.no_grad():
        preference, error = _on([model], strings)
        untrained, _ = _on([make_model(model.cfg, seed=seed) for seed in seeds], strings)
    # Bonferroni over the heads of the model
    tail = 0.025 / preference.size
    half = error[0] * float(stats.t.isf(tail, len(strings) - 2))
    return Equality(preference=preference[0], half=half, untrained=float(np.abs(untrained).max()))


def _on(models: Sequence[Transformer], strings: TemplateBatch) -> tuple[np.ndarray, np.ndarray]:
    """`attention_if_equal` of each model: (model, layer, head)."""
    patterns = patterns_on(models, strings)
    preferences = [attention_if_equal(patterns[:, index], strings.tokens) for index in range(len(models))]
    return np.stack([preference for preference, _ in preferences]), np.stack([error for _, error in preferences])


def measure_same_symbol(evidence: Evidence, *, variant: str) -> Readings:
    """Whether a solved model has a head whose attention depends on equality, in either direction; one row a model."""
    rows, of_heads = [], []
    maps = {}
    models, count = solved(evidence, GROUPS[variant])
    for spec, model in models:
        # Dependence on equality, and for comparison the labels of the same heads
        task = template_task(spec)
        reading = equality_preference(evidence, model, task)
        kinds = classify_heads(model, task, n=N_READ[evidence.size], seed=evidence.seed)
        labelled = any("association" in labels for labels in kinds.label)
        names = {"n": n_train(spec), "seed": spec.seed}
        rows.append(names | {DEPENDS: bool(reading.signs.any()), "a head is labelled association": labelled})
        for (layer, head), preference in np.ndenumerate(reading.preference):
            scalars = model.block(layer).attention.a
            of_heads.append(
                {
                    **names,
                    "head": f"{layer}.{head}",
                    "layer": f"layer {layer}",
                    DEPENDENCE: float(preference),
                    "95 % ±": reading.half[layer, head],
                    "untrained, at most": reading.untrained,
                    "sign": reading.signs[layer, head],
                    "label": kinds.label[layer][head],
                    "row entropy, 0 to 1": float(kinds.entropy[layer, head]),
                    "a": 0.0 if scalars is None else scalars[head].item(),
                }
            )
        if len(maps) < 4:
            for head in range(2):
                name = f"n {n_train(spec)}, seed {spec.seed}, head 0.{head}"
                maps[name] = patterns_on([model], _example(task))[0, 0, 0, head].numpy()
    frame, heads = pd.DataFrame(rows), pd.DataFrame(of_heads)
    return Readings(
        frame=frame,
        numbers={
            "solved models": count,
            "models with a head labelled association": int(frame["a head is labelled association"].to_numpy().sum()),
            **_counts(heads),
        },
        tables=[("Every head", heads)],
        charts=[
            scatter(
                heads.filter(["layer", DEPENDENCE, "a", "row entropy, 0 to 1"]),
                x="a" if variant == A else "row entropy, 0 to 1",
                y=DEPENDENCE,
                series="layer",
                title=f"{variant}: every head, n = {len(frame)} models",
            ),
            pattern_maps(maps, tokens=["x", "y", "x", "C"], title="first layer on an unseen x y x (C: [CLS])"),
        ],
        note=f"“{DEPENDENCE}” is attention from one position to another if their symbols are equal, minus that between "
        "the same positions if they differ; it is 0 for a head that reads positions alone.",
    )


def _counts(heads: pd.DataFrame) -> dict[str, int]:
    """Heads of each sign, in all layers and in the first."""
    first = heads.loc[heads["layer"] == "layer 0"]
    counts = {"heads": len(heads)}
    for prefix, chosen in (("", heads), ("first layer: ", first)):
        counts[f"{prefix}heads that attend more to equal symbols"] = int((chosen["sign"].to_numpy() > 0).sum())
        counts[f"{prefix}heads that attend less to equal symbols"] = int((chosen["sign"].to_numpy() < 0).sum())
    return counts | {"first layer: heads": len(first), "first layer: a below 0": int((first["a"].to_numpy() < 0).sum())}


def _example(task: Template) -> TemplateBatch:
    """A string x y x of the first two test symbols."""
    first = task.d_vocab - len(task.alphabet("test"))
    return task.fill(torch.tensor([0]), torch.tensor([[first, first + 1]]))


def measure_pattern_ablation_agreement(evidence: Evidence, *, variant: str) -> Readings:
    """Rank correlation over the heads of a model, of dependence on equality with accuracy lost by ablation."""
    rows, points = [], []
    n = N_READ[evidence.size]
    models, count = solved(evidence, GROUPS[variant])
    for spec, model in models:
        task = template_task(spec)
        size = np.abs(equality_preference(evidence, model, task).preference)
        drop = ablate_heads(model, task, method="mean", n=n, seed=evidence.seed).drop
        lost = np.asarray(drop)[:, 0].reshape(size.shape)
        # Over all heads, which is judged, and over those of the first and of the last layer
        correlation = rank_correlation(size, lost)
        rows.append(
            {
                "n": n_train(spec),
                "seed": spec.seed,
                CORRELATION: correlation,
                "first layer": rank_correlation(size[0], lost[0]),
                "last layer": rank_correlation(size[-1], lost[-1]),
                HAS_CORRELATION: correlation is not None,
            }
        )
        points += [
            {DISTANCE: float(size[head]), "accuracy lost": float(lost[head]), "models": f"{variant}, layer {head[0]}"}
            for head in np.ndindex(size.shape)
        ]
    frame = pd.DataFrame(rows)
    with_correlation = int(frame[HAS_CORRELATION].to_numpy().sum())
    return Readings(
        frame=frame,
        title="Rank correlation over the heads of each model",
        numbers={
            "solved models": count,
            "models with a correlation": with_correlation,
            "models in which all heads cost the same": len(frame) - with_correlation,
        },
        charts=[
            scatter(
                pd.DataFrame(points),
                x=DISTANCE,
                y="accuracy lost",
                series="models",
                title=f"mean ablation of each head, {len(models)} models",
            )
        ],
        note="Only correlations within a model are judged: pooled over models and over both kinds of models, the "
        "correlation can have another sign than in each.",
    )


def rank_correlation(x: Float[np.ndarray, "*head"], y: Float[np.ndarray, "*head"]) -> float | None:
    """Spearman's rank correlation; None if all values of one are equal."""
    if not (np.ptp(x) and np.ptp(y)):
        return None
    return float(np.corrcoef(stats.rankdata(x.ravel()), stats.rankdata(y.ravel()))[0, 1])


def _looking_claim(name: str, variant: str, prior_knowledge: str) -> Claim:
    return Claim(
        id=f"heads.same-symbol.{name}",
        method="Share of solved models with a head whose attention differs between equal and different symbols at the "
        f"same positions by more than in any head of {N_UNTRAINED} untrained models, exact interval",
        rule=Conditional(Number("solved models", AtLeast(FEWEST)), Above(0.5)),
        preregistration=Preregistration(
            "after a result",
            f"no head of 12 models labelled association, {prior_knowledge}. "
            "Only attention to the same symbol counted then.",
        ),
        quantity="share of solved models",
        value_range=SHARE,
        measure=partial(measure_same_symbol, variant=variant),
        judged=Share(DEPENDS, unit="solved models"),
        needs=(GROUPS[variant],),
    )


def _agreement_claim(name: str, variant: str, models: str, prior_knowledge: str) -> Claim:
    return Claim(
        id=f"heads.ablation-agrees.{name}",
        source="ours",
        statement="The heads whose attention depends most on equality are those that the model needs most: solved "
        f"models {models}.",
        method="Spearman correlation over the heads of each solved model, of the absolute difference in attention "
        "between equal and different symbols with the accuracy lost when the head is set to its mean; mean over "
        "models with t interval",
        rule=Conditional(
            Number("solved models", AtLeast(FEWEST)),
            Conditional(Number("models with a correlation", AtLeast(FEWEST)), Above(0)),
        ),
        preregistration=Preregistration(
            "after a result",
            "-0.30 [-0.38, -0.21] over heads of both kinds of models together, "
            f"{prior_knowledge} within this kind, for the score of association. Units were heads then.",
        ),
        quantity="rank correlation within models",
        value_range=DIFFERENCE,
        measure=partial(measure_pattern_ablation_agreement, variant=variant),
        judged=Mean(
            CORRELATION,
            unit="solved models",
            where={HAS_CORRELATION: True},
            without_rows=(0.0, -1.0, 1.0),
            resolution=RESOLUTION,
        ),
        needs=(GROUPS[variant],),
    )


CLAIMS = (
    _looking_claim("identity", A, "while a was negative in 56 of 96 heads"),
    _looking_claim("plain", PLAIN, "with scores below chance in 22 of 96"),
    _agreement_claim("plain", PLAIN, "without a I", "0.24 [0.10, 0.37]"),
)
