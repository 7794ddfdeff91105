"""Claims on what EAP, EAP-IG and ACDC find and miss of the edges of trained models."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from case_studies.frame.claims import DIFFERENCE, SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence, Size
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AtLeast, AtMost, Rule
from case_studies.recipes.dyck_models import two_layer_models
from case_studies.recipes.intervals import interval_columns
from case_studies.recipes.judges import Row
from case_studies.recipes.learned import excluded_models
from case_studies.recipes.template_models import SCALES, template_models
from interp.core.intervals import Interval
from interp.sweeps.spec import ModelSpec, seeded
from interp.tasks import Lego
from interp.tasks.lego.task import curriculum_to
from interp.training.configs import config_for
from interp.training.settings import TrainSettings
from tool_studies.approximations.edge_scores import (
    ACDC,
    EAP,
    EAP_IG,
    EXACT,
    FAMILIES,
    FOR_PLAIN_PASSES,
    METHODS,
    PEERS,
    SEQUENCES,
    THRESHOLDS,
    EdgeScores,
    aurocs,
    edge_scores,
    over_models,
    rank_correlation,
    shares_missed,
)

CHAINS = Lego(n_vars=3, sentence_format="compact")
LEGO_LAYERS = 3
DYCK_HEADS = 2
SEEDS: dict[Size, int] = {"quick": 0, "standard": 3, "paper": 10}
GROUPS = tuple(FAMILIES.values())
SOURCES = {
    EAP: "ours, after Syed et al. 2023 (arXiv:2310.10348)",
    EAP_IG: "ours, after Hanna et al. 2024 (arXiv:2403.17806)",
    ACDC: "ours, after Conmy et al. 2023 (arXiv:2304.14997)",
}
IDS = {EAP: "eap", EAP_IG: "eap-ig", ACDC: "acdc"}
VALUE, MODELS = "mean over models", "models"
Statistic = Callable[[Sequence[EdgeScores], str], Interval]
"""A statistic of a method over models."""
OVER = "mean over models, t interval"
KNOWN = Preregistration(
    "after first models",
    "the same methods on compiled programs (AUROC 0.89 of EAP, 0.98 of EAP-IG, 1.00 of ACDC), and the accuracy of one "
    "further model of each family; no edge of a trained model.",
)


def groups(size: Size) -> dict[str, Sequence[ModelSpec]]:
    """Small models of each family: chains of three, prefixes of bounded Dyck words, aba against abb."""
    seeds = SEEDS[size]
    config = config_for(CHAINS, "lego", n_layers=LEGO_LAYERS)
    settings = TrainSettings(curriculum=curriculum_to(CHAINS.n_vars), association="mimic")
    n_strings = max(SCALES["quick"].grid)
    return {
        "edges-lego": seeded(CHAINS, config, settings, seeds),
        "edges-dyck": two_layer_models("quick", seeds, n_heads=DYCK_HEADS),
        "edges-template": template_models("quick", "aba_abb", [n_strings], seeds=seeds),
    }


def measure_order(evidence: Evidence) -> Readings:
    """Rank correlation of the scores of every method with the exact rise of the loss."""
    models = edge_scores(evidence)
    title = "Rank correlation with the exact rise of the loss"
    return _by_method(models, PEERS, order, title=title, tables=excluded_models(evidence, GROUPS))


def measure_need(evidence: Evidence, *, method: str) -> Readings:
    """AUROC of every method for the exact verdict; by plain passes, of this one."""
    models = edge_scores(evidence)
    numbers = {"by plain passes": float(need_elsewhere(models, method)), **_counts(models)}
    return _by_method(models, METHODS, need, title="AUROC for the exact verdict “needed”", numbers=numbers)


def measure_missed(evidence: Evidence) -> Readings:
    """Share of needed edges that every method misses."""
    return _by_method(edge_scores(evidence), METHODS, missed, title="Share of the needed edges that are missed")


def measure_gain(evidence: Evidence, *, method: str) -> Readings:
    """AUROC of the exact rise of the loss minus that of a method, for needed by plain passes on other sequences."""
    models = edge_scores(evidence)
    of_exact, of_method = (aurocs(models, name, elsewhere=True) for name in (EXACT, method))
    title = "AUROC for needed in a plain pass on other sequences"
    return Readings(
        frame=_single(over_models(of_exact - of_method, *DIFFERENCE)),
        table=family_table(models, METHODS, need_elsewhere),
        title=title,
    )


def measure_repeated(evidence: Evidence) -> Readings:
    """Share of exact verdicts that plain passes on other sequences agree with."""
    models = edge_scores(evidence)
    shares = [float((model.needed == model.needed_elsewhere)[model.decided].mean()) for model in models]
    return Readings(
        frame=_single(over_models(np.array(shares), *SHARE)),
        table=count_table(models),
        title="Edges of each model",
        numbers=_counts(models),
    )


def measure_time(evidence: Evidence) -> Readings:
    """CPU seconds of ACDC over those of the exact removal of every edge."""
    models = edge_scores(evidence)
    ratios = np.log([model.seconds[ACDC] / model.seconds[EXACT] for model in models])
    interval = over_models(ratios, -np.inf, np.inf)
    value, low, high = np.exp(interval.floats())
    # A column for each family
    rows = []
    for name in METHODS:
        seconds = [[model.seconds[name] for model in models if model.family == family] for family in FAMILIES]
        rows.append((name, *(f"{np.mean(values):.2f}" if values else "-" for values in seconds)))
    return Readings(
        frame=pd.DataFrame([{VALUE: value, "low": low, "high": high, MODELS: interval.n}]),
        table=pd.DataFrame(rows, columns=["method", *FAMILIES]),
        title=f"CPU seconds for all edges of a model, {SEQUENCES} sequences, mean over models",
    )


def _single(interval: Interval) -> pd.DataFrame:
    """A frame of one estimate over all models."""
    return pd.DataFrame([{**interval_columns(interval, VALUE), MODELS: interval.n}])


def _by_method(models: Sequence[EdgeScores], methods: Sequence[str], statistic: Statistic, **fields: Any) -> Readings:
    """A statistic of every method over all models, one row a method; its table has a column for each family."""
    intervals = {name: statistic(models, name) for name in methods}
    rows = [
        {"method": name, **interval_columns(interval, VALUE), MODELS: interval.n}
        for name, interval in intervals.items()
    ]
    return Readings(frame=pd.DataFrame(rows), table=family_table(models, methods, statistic), **fields)


def order(models: Sequence[EdgeScores], method: str) -> Interval:
    """Mean rank correlation."""
    return over_models(np.array([rank_correlation(model, method) for model in models]), *DIFFERENCE)


def need(models: Sequence[EdgeScores], method: str) -> Interval:
    """Mean AUROC for the exact verdict."""
    return over_models(aurocs(models, method), *SHARE)


def need_elsewhere(models: Sequence[EdgeScores], method: str) -> Interval:
    """Mean AUROC for needed in a plain pass on other sequences."""
    return over_models(aurocs(models, method, elsewhere=True), *SHARE)


def missed(models: Sequence[EdgeScores], method: str) -> Interval:
    """Mean share of needed edges that are missed."""
    return over_models(shares_missed(models, method), *SHARE)


def family_table(models: Sequence[EdgeScores], methods: Sequence[str], statistic: Statistic) -> pd.DataFrame:
    """A row for each method, a column for each family and for all; the last row has the number of models."""
    columns = {family: [model for model in models if model.family == family] for family in FAMILIES} | {"all": models}
    rows: list[tuple[Any, ...]] = []
    for name in methods:
        intervals = [statistic(of_family, name) for of_family in columns.values()]
        rows.append((name, *(interval.text(digits=2) if interval.n else "–" for interval in intervals)))
    rows.append(("models", *(int(statistic(of_family, methods[0]).n) for of_family in columns.values())))
    return pd.DataFrame(rows, columns=["method", *columns])


def count_table(models: Sequence[EdgeScores]) -> pd.DataFrame:
    """A row for each model."""
    rows = []
    for model in models:
        differ = (model.needed != model.needed_elsewhere) & model.decided
        masks = (model.needed, ~model.decided, model.needed_elsewhere, differ)
        rows.append((f"{model.family} {model.seed}", len(model.needed), *(int(mask.sum()) for mask in masks)))
    columns = ["model", "edges", "needed", "undecided", "needed in plain passes", "verdicts differ"]
    return pd.DataFrame(rows, columns=columns)


def _counts(models: Sequence[EdgeScores]) -> dict[str, int]:
    return {
        "edges": sum(len(model.needed) for model in models),
        "needed": sum(int(model.needed.sum()) for model in models),
        "undecided": sum(int((~model.decided).sum()) for model in models),
    }


def edge_claims() -> tuple[Claim, ...]:
    """Four claims for each method, and two on the exact costs."""

    def edge_claim(
        name: str, statement: str, method: str, rule: Rule, measure: Callable[..., Readings], **options: Any
    ) -> Claim:
        judged = Row(VALUE, unit=MODELS, units=MODELS)
        fields = {"source": "ours", "value_range": SHARE, "judged": judged, **options}
        return Claim(
            id=f"edges.{name}.trained",
            statement=statement,
            method=f"{method}; {OVER}",
            rule=rule,
            measure=measure,
            preregistration=KNOWN,
            needs=GROUPS,
            sizes=LARGE_SIZES,
            sizes_reason="Its models are trained for it alone.",
            **fields,
        )

    claims: list[Claim] = []
    for method in PEERS:
        of_method = Row(VALUE, unit=MODELS, units=MODELS, where={"method": method})
        name, options = IDS[method], {"source": SOURCES[method], "judged": of_method}
        claims += [
            edge_claim(
                f"{name}.order",
                f"{method} orders the edges of a model nearly as their removal does.",
                f"{method}: Spearman's correlation of the size of its scores with that of the exact rise of the loss",
                Above(0.8),
                measure_order,
                quantity="rank correlation",
                **options | {"value_range": DIFFERENCE},
            ),
            edge_claim(
                f"{name}.need",
                f"{method} distinguishes needed edges.",
                f"{method}: AUROC for the exact verdict “needed” at level 0.05, of edges that are decided",
                AtLeast(0.9),
                partial(measure_need, method=method),
                quantity="AUROC",
                **options,
            ),
            edge_claim(
                f"{name}.missed",
                f"{method} misses few needed edges.",
                f"{method}: share of the k needed edges that are not among the k edges with the highest scores",
                AtMost(0.1),
                measure_missed,
                quantity="share missed",
                **options,
            ),
            edge_claim(
                f"{name}.gain",
                f"The exact cost distinguishes edges that are needed on other sequences better than {method}.",
                f"AUROC of the exact rise of the loss minus that of {method}, for needed in a plain pass for each edge "
                f"on {FOR_PLAIN_PASSES} other sequences",
                Above(0),
                partial(measure_gain, method=method),
                quantity="difference of AUROCs",
                value_range=DIFFERENCE,
            ),
        ]
    return (
        *claims,
        edge_claim(
            "repeated",
            "Exact verdicts on edges are the same on other sequences.",
            f"share of verdicts (needed, harmless) that a plain pass for each edge on {FOR_PLAIN_PASSES} other "
            "sequences agrees with",
            AtLeast(0.99),
            measure_repeated,
            quantity="share of verdicts",
        ),
        edge_claim(
            "time",
            "Removing every edge exactly takes less time than ACDC.",
            f"CPU seconds of ACDC with {len(THRESHOLDS)} thresholds over those of the exact removal, geometric mean",
            Above(1),
            measure_time,
            quantity="ratio of CPU seconds",
            value_range=(0.0, np.inf),
            repeatable=False,
        ),
    )
