"""Claims about the balance violation: length generalisation and the contrastive loss (Figure 3, Section 4.2, D.2).

That about models trained on prefixes is in `prefix_balance`.
"""

from functools import partial

import numpy as np
import pandas as pd

from case_studies.dyck.measures import KEPT, LONG, N_SEQUENCES, Chosen, accuracies, chosen, if_learned, task_of
from case_studies.dyck.preregistration import CONTRASTIVE
from case_studies.frame.claims import DIFFERENCE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, Below, Rule
from case_studies.recipes.intervals import correlation, interval_columns
from case_studies.recipes.judges import BootstrapDifference, Correlation
from case_studies.recipes.learned import excluded_models
from interp.theory.balance import balance_violation
from interp.view.points import scatter, slopes

PAPER_CRITERION = "all 0.8"
"""The paper's accuracy: wherever a bracket is open, the right closer has more than 0.8 of the closers' probability."""
SYMMETRIC = (
    " By the earlier rule an interval that contains 0 decided with 30 models or more: it counted as no correlation."
)
"""Since then such an interval is inconclusive."""
LONG_ACCURACY = ("accuracy at 450", "hard accuracy at 450")
ARMS = ("without", "with")
FORM_AND_ACCURACY = ["form of the violation", "accuracy measured"]
VIOLATION_AND_LENGTH = Correlation("violation", "accuracy at 450", unit="models")
FORMS = ("violation", "released average", "released pairing", "bounded", "share of a decision")
WORDS, WITH_LOSS = "minimal-words-closers", "minimal-words-closers-contrastive"
SETTINGS = {"words": WORDS, "words-all-tokens": "minimal-words-all", "prefixes": "minimal-prefixes-closers"}
"""Group without the contrastive loss, by training data. The group with it has the suffix -contrastive."""


def _readings(evidence: Evidence, group: str, models_used: Chosen) -> pd.DataFrame:
    """Per model: each form of the violation, and accuracy on long prefixes."""
    task = task_of(evidence, group)
    models = models_used.models
    # The violation by the paper's definition and by that of its released code
    balances = [balance_violation(model, task) for model in models]
    released = [balance_violation(model, task, pairing="released") for model in models]
    decisions = [np.nan if balance.decision is None else float(balance.decision.mean()) for balance in balances]
    long = accuracies(models, task, evidence, length=LONG)
    near = accuracies(models, task, evidence)
    return pd.DataFrame(
        {
            "seed": [spec.seed for spec in models_used.specs],
            "violation": [balance.violation for balance in balances],
            "released average": [balance.released for balance in balances],
            "released pairing": [balance.released for balance in released],
            "bounded": [float(balance.bounded.mean()) for balance in balances],
            "share of a decision": decisions,
            "accuracy at 450": long[PAPER_CRITERION],
            "hard accuracy at 450": long["hard"],
            "hard accuracy": near["hard"],
        }
    )


def measure_correlation(evidence: Evidence, *, groups: tuple[str, ...]) -> Readings:
    """Violation and accuracy on long prefixes of the models of all groups, one row a model."""
    # Readings of the models of all groups, labelled by their training
    labels = {group: "with contrastive loss" if group.endswith("contrastive") else "without" for group in groups}
    models_by_group = {group: chosen(evidence, group) for group in groups}
    readings = [
        _readings(evidence, group, models_by_group[group]).assign(models=label) for group, label in labels.items()
    ]
    table = pd.concat(readings, ignore_index=True)
    # Every form of the violation with every accuracy; only the first pair is judged
    correlations = {
        (form, accuracy): correlation(table[form].to_numpy(), table[accuracy].to_numpy(), seed=evidence.seed)
        for form in FORMS
        for accuracy in LONG_ACCURACY
    }
    rows = [
        dict(zip(FORM_AND_ACCURACY, key, strict=True)) | interval_columns(rho, "Spearman")
        for key, rho in correlations.items()
    ]
    return Readings(
        frame=table,
        title="Violation and accuracy of every model",
        numbers={
            KEPT: min(models.learned for models in models_by_group.values()),
            "lowest hard accuracy in distribution": table["hard accuracy"].min(),
        },
        tables=[
            ("Correlation for each form of the violation; the rule uses only the first row", pd.DataFrame(rows)),
            *excluded_models(evidence, groups),
        ],
        charts=[
            scatter(
                table.filter(["violation", "accuracy at 450", "models", "seed"]),
                x="violation",
                y="accuracy at 450",
                series="models",
                title=f"violation and length generalisation, n = {len(table)} models",
            )
        ],
        note="Accuracy on prefixes of 450 brackets by the paper's criterion."
        + (" One correlation over several settings is largely the effect of the treatment." if len(groups) > 1 else ""),
    )


def measure_contrastive(evidence: Evidence, *, group: str, column: str) -> Readings:
    """Violation and long accuracy with and without the contrastive loss, one row a seed."""
    # Only seeds that have learned in both arms are compared
    arms = group, f"{group}-contrastive"
    pairs = chosen(evidence, *arms), chosen(evidence, *reversed(arms))
    plain, treated = (_readings(evidence, arm, models) for arm, models in zip(arms, pairs, strict=True))
    change = (treated[column] - plain[column]).to_numpy()
    # Chart and table: violation and accuracies of each seed, without and with the loss
    arms_together = pd.concat([plain.assign(loss="without"), treated.assign(loss="with")], ignore_index=True)
    shown = ["violation", *LONG_ACCURACY]
    long = arms_together.melt(id_vars=["seed", "loss"], value_vars=shown, var_name="measured", value_name="value")
    long["seed"] = long["seed"].astype(str)
    names = {
        f"{name}, {loss}": readings[name]
        for name in shown
        for loss, readings in zip(ARMS, (plain, treated), strict=True)
    }
    frame = pd.DataFrame({"seed": plain["seed"], **names, "prefixes": N_SEQUENCES[evidence.size]})
    return Readings(
        frame=frame,
        title="Violation and accuracy of each seed",
        numbers={
            KEPT: pairs[0].learned,
            "seeds that improve": int((change < 0).sum() if column == "violation" else (change > 0).sum()),
            "lowest hard accuracy in distribution": min(plain["hard accuracy"].min(), treated["hard accuracy"].min()),
        },
        tables=excluded_models(evidence, arms),
        charts=[
            slopes(
                long,
                x="loss",
                y="value",
                line="seed",
                panel="measured",
                title=f"without and with the contrastive loss, n = {len(change)} seeds",
            )
        ],
    )


def _contrastive_claim(name: str, *, of: str) -> Claim:
    group = SETTINGS[name]
    column, rule, measured = {
        "violation": ("violation", Below(0), "mean S / P"),
        "length": ("accuracy at 450", Above(0), "accuracy at length 450 (0.8 criterion)"),
    }[of]
    return Claim(
        id=f"contrastive.{name}.{of}",
        method=f"Change of {measured}, with minus without, paired by seed, with its 95 % bootstrap interval over seeds",
        rule=if_learned(rule),
        preregistration=CONTRASTIVE,
        quantity=f"change of {column}",
        measure=partial(measure_contrastive, group=group, column=column),
        judged=BootstrapDifference(f"{column}, with", f"{column}, without", unit="seeds", share_of="prefixes"),
        needs=(group, f"{group}-contrastive"),
    )


def _correlation_claim(
    name: str, groups: tuple[str, ...], *, rule: Rule, prior_knowledge: str, looks: int = 0
) -> Claim:
    return Claim(
        id=name,
        method="Spearman's correlation of mean S / P with accuracy at length 450, with its 95 % bootstrap interval "
        "over models",
        rule=if_learned(rule),
        preregistration=Preregistration("after a result", prior_knowledge + SYMMETRIC, looks=looks),
        quantity="Spearman's correlation",
        value_range=DIFFERENCE,
        measure=partial(measure_correlation, groups=groups),
        judged=VIOLATION_AND_LENGTH,
        needs=groups,
    )


CLAIMS = (
    _correlation_claim(
        "balance.length.within",
        (f"{WORDS}-many",),
        rule=Below(0),
        prior_knowledge="-0.32 [-0.58, 0.004], 40 models; there are 120 now.",
        looks=1,
    ),
    _correlation_claim(
        "balance.length.across",
        (WORDS, WITH_LOSS),
        rule=Below(0),
        prior_knowledge="-0.85 [-0.89, -0.77], 80 models.",
    ),
    *(_contrastive_claim(name, of=of) for name in SETTINGS for of in ("violation", "length")),
)
