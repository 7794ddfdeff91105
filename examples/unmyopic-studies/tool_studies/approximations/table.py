"""The tables of the study: every approximation on every family of models, and heads missed or found by cause."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from case_studies.frame.evidence import Evidence
from case_studies.frame.packs import Packs
from interp.core.intervals import Interval
from tool_studies.approximations.agreement import (
    PERCENTILE,
    auroc,
    bar,
    mean_rank_correlation,
    n_concerned,
    rank_correlations,
    wrong_share,
)
from tool_studies.approximations.scores import (
    CANCELLED,
    CERTAIN,
    COMPILED,
    DECOY,
    FACTOR,
    FLAT,
    FOUND_CAUSES,
    LEVEL,
    METHODS,
    MISSED_CAUSES,
    RANGE,
    REDUNDANT,
    SATURATED,
    SMALL_SUM,
    TERM_CAUSE,
    TRAINED,
    ModelScores,
    compiled_scores,
    known_scores,
    trained_scores,
)

ALL_TRAINED = "all trained models"
CAUSES: Mapping[str, str] = {
    REDUNDANT: "redundant heads: removing one alone costs nothing, removing it with others does",
    SATURATED: f"needed heads of models with a cross entropy below {CERTAIN} nats per answer",
    FLAT: f"needed heads whose fall of the margin is below {LEVEL} of itself if extrapolated linearly",
    RANGE: "known answers: heads that are needed under the mean but not under another sequence's output; other models: "
    f"needed heads whose fall of the margin is wrong by more than a factor of {FACTOR:g}, but is not flat",
    TERM_CAUSE: f"needed heads whose attribution (loss) sums to less than {SMALL_SUM} of the sizes of its terms",
    CANCELLED: "heads that cancel others: none is needed, but removing one alone breaks the model",
    DECOY: "heads with a readable pattern that are not needed",
}
READING = (
    "Rank correlation: Spearman's, of the size of the approximation with the rise of the loss without the head, mean "
    "over models with at least three heads of different effects [95 % bootstrap interval over models]. AUROC: chance "
    "that a needed head has a higher score than another head of its model, over all such pairs [95 % interval, models "
    "independent]; in trained models needed means that removing the head costs more than a fifth of the accuracy above "
    "chance, so that the row of removing the head alone is nearly 1 by definition. Heads within noise of that, and "
    "heads of redundant pairs, are left out."
)


def families(evidence: Evidence, packs: Packs) -> dict[str, list[ModelScores]]:
    """The models of every family; without compiled programs if there are no packs, without families that have none."""
    families = {"known answers": known_scores(evidence.size, evidence.seed)}
    if packs.digest:
        families[COMPILED] = compiled_scores(packs, evidence.size, evidence.seed)
    families |= {f"trained: {name}": trained_scores(evidence, [name]) for name in TRAINED}
    families[ALL_TRAINED] = trained_scores(evidence)
    return {name: models for name, models in families.items() if models}


def main_table(families: Mapping[str, Sequence[ModelScores]], *, seed: int) -> tuple[str, pd.DataFrame]:
    """A row for each approximation, a column for each family."""
    rows = [("models; heads (needed, not needed)", *(_counts(models) for models in families.values()))]
    # Rank correlation and AUROC in one cell
    for method in METHODS:
        cells = []
        for models in families.values():
            of_rank = mean_rank_correlation(models, method, seed=seed)
            of_need = auroc(models, method)
            cells.append(f"{with_ends(of_rank)}; {with_ends(of_need)}")
        rows.append((method, *cells))
    # Number of models that have several heads with different effects, and that have needed and other heads
    method = METHODS[0]
    n_models = [f"{len(rank_correlations(models, method))}; {auroc(models, method).n}" for models in families.values()]
    rows.append(("models behind each (rank correlation; AUROC)", *n_models))
    title = "Rank correlation with the exact effect; AUROC for “the head is needed”"
    return title, pd.DataFrame(rows, columns=["", *families])


def cause_table(families: Mapping[str, Sequence[ModelScores]]) -> tuple[str, pd.DataFrame]:
    """A row for each cause and family that it concerns, a column for each approximation."""
    rows = []
    for cause in (*MISSED_CAUSES, *FOUND_CAUSES):
        for name, models in families.items():
            n_heads = n_concerned(models, cause)
            if n_heads:
                shares = [wrong_share(models, method, cause) for method in METHODS]
                wrong_if = "found" if cause in FOUND_CAUSES else "missed"
                cells = [f"{round(float(share) * n_heads)} ({share.low:.2f} to {share.high:.2f})" for share in shares]
                rows.append((cause, name, n_heads, wrong_if, *cells))
    title = "Heads on which an approximation is wrong, by cause (95 % interval of their share, over models)"
    return title, pd.DataFrame(rows, columns=["cause", "models", "heads", "wrong if", *METHODS])


def bar_table(families: Mapping[str, Sequence[ModelScores]]) -> tuple[str, pd.DataFrame]:
    """The bars above which a head is found."""
    rows = []
    for name, models in families.items():
        n = sum(int(model.idle.sum()) for model in models)
        rows.append((name, n, *(f"{bar(models, method):.2g}" for method in METHODS)))
    title = f"Share of a model's largest score that {PERCENTILE:g} % of the idle heads do not exceed"
    return title, pd.DataFrame(rows, columns=["models", "idle heads", *METHODS])


def cause_note() -> pd.DataFrame:
    """The causes and the heads that they concern."""
    return pd.DataFrame(CAUSES.items(), columns=["cause", "heads that it concerns"])


def with_ends(interval: Interval) -> str:
    """A number with its interval; a dash without units."""
    return interval.text(digits=2) if interval.n else "-"


def _counts(models: Sequence[ModelScores]) -> str:
    needed = sum(int((model.needed & model.decided).sum()) for model in models)
    decided = sum(int(model.decided.sum()) for model in models)
    heads = int(np.sum([len(model.needed) for model in models]))
    return f"{len(models)}; {heads} ({needed}, {decided - needed})"
