"""Claims about the balance violation: length generalisation and the contrastive loss (Figure 3, Section 4.2, D.2)."""

from functools import partial

import numpy as np
import pandas as pd

from case_studies.dyck.measures import LONG, accuracies, task_of
from case_studies.frame.claims import (
    Claim,
    ClaimVerdict,
    Measurement,
    above,
    below,
    bootstrap_interval,
    correlation,
)
from case_studies.frame.evidence import Evidence
from interp.theory.balance import balance_violation
from interp.view.points import scatter, slopes

PAPER_CRITERION = "all 0.8"
"""The paper's accuracy: wherever a bracket is open, the right closer has more than 0.8 of the closers' probability."""
MOST_UNDECIDED = 30
"""With fewer models than this, a correlation whose interval contains 0 is inconclusive."""
LONG_ACCURACY = ("accuracy at 450", "hard accuracy at 450")
FORMS = ("violation", "released average", "released pairing", "bounded", "share of a decision")
WORDS, WITH_LOSS = "minimal-words-closers", "minimal-words-closers-contrastive"
SETTINGS = {
    "words": (WORDS, "words, loss on closers", "Section 4.2, Eq. 22"),
    "words-all-tokens": ("minimal-words-all", "words, loss on every token", "Section 4.2, Eq. 22"),
    "prefixes": ("minimal-prefixes-closers", "prefixes, loss on closers", "Appendix D.2"),
}
"""Group without the contrastive loss, training data, and source. The group with it has the suffix -contrastive."""


def _readings(evidence: Evidence, group: str) -> pd.DataFrame:
    """Per model: each form of the violation, and accuracy on long prefixes."""
    task, models = task_of(evidence, group), evidence.models(group)
    found = [balance_violation(model, task) for model in models]
    long, near = accuracies(models, task, evidence, length=LONG), accuracies(models, task, evidence)
    released = [balance_violation(model, task, pairing="released") for model in models]
    return pd.DataFrame(
        {
            "seed": [spec.seed for spec in evidence.specs(group)],
            "violation": [one.violation for one in found],
            "released average": [one.released for one in found],
            "released pairing": [one.released for one in released],
            "bounded": [float(one.bounded.mean()) for one in found],
            "share of a decision": [
                float(one.decision.mean()) if one.decision is not None else np.nan for one in found
            ],
            "accuracy at 450": long[PAPER_CRITERION],
            "hard accuracy at 450": long["hard"],
            "hard accuracy": near["hard"],
        }
    )


def measure_correlation(evidence: Evidence, *, groups: tuple[str, ...]) -> Measurement:
    """Rank correlation of violation and accuracy on long prefixes, over the models of all groups together."""
    labels = {group: "with contrastive loss" if group.endswith("contrastive") else "without" for group in groups}
    table = pd.concat(
        [_readings(evidence, group).assign(models=label) for group, label in labels.items()], ignore_index=True
    )
    found = {
        (form, accuracy): correlation(table[form].to_numpy(), table[accuracy].to_numpy(), seed=evidence.seed)
        for form in FORMS
        for accuracy in LONG_ACCURACY
    }
    value, low, high = found["violation", "accuracy at 450"]
    rows: list[list] = [["form of the violation", "accuracy measured", "Spearman", "95 %"]]
    rows += [[*key, f"{rho:+.2f}", f"[{a:+.2f}, {b:+.2f}]"] for key, (rho, a, b) in found.items()]
    return Measurement(
        value=value, low=low, high=high, n=len(table), unit="models",
        numbers={"lowest hard accuracy in distribution": table["hard accuracy"].min()},
        tables=[("Correlation for each form of the violation; the rule uses only the first row", rows)],
        charts=[scatter(table.filter(["violation", "accuracy at 450", "models", "seed"]), x="violation",
                        y="accuracy at 450", series="models",
                        title=f"violation and length generalisation, n = {len(table)} models")],
        note="Accuracy on prefixes of 450 brackets by the paper's criterion."
        + (" One correlation over several settings is largely the effect of the treatment." if len(groups) > 1 else ""),
    )  # fmt: skip


def judge_negative(m: Measurement) -> ClaimVerdict:
    """Below zero. An interval that contains 0 is inconclusive with few models, not reproduced with many."""
    if m.high < 0:
        return "reproduced"
    return "not reproduced" if m.low > 0 or m.n >= MOST_UNDECIDED else "inconclusive"


def judge_not_negative(m: Measurement) -> ClaimVerdict:
    """The opposite of `judge_negative`: the exception that the paper reports."""
    swapped: dict[ClaimVerdict, ClaimVerdict] = {"reproduced": "not reproduced", "not reproduced": "reproduced"}
    return swapped.get(judge_negative(m), "inconclusive")


def measure_contrastive(evidence: Evidence, *, group: str, what: str) -> Measurement:
    """Change of the violation or of long accuracy caused by the contrastive loss, paired by seed."""
    plain, treated = (_readings(evidence, name) for name in (group, f"{group}-contrastive"))
    change = (treated[what] - plain[what]).to_numpy()
    mean, low, high = bootstrap_interval(change, seed=evidence.seed)
    both = pd.concat([plain.assign(loss="without"), treated.assign(loss="with")], ignore_index=True)
    shown = ["violation", *LONG_ACCURACY]
    long = both.melt(id_vars=["seed", "loss"], value_vars=shown, var_name="measured", value_name="value")
    long["seed"] = long["seed"].astype(str)
    rows: list[list] = [["seed", *(f"{name}, {loss}" for name in shown for loss in ("without", "with"))]]
    for index, seed in enumerate(plain["seed"]):
        rows.append([int(seed), *(f"{part[name][index]:.3f}" for name in shown for part in (plain, treated))])
    return Measurement(
        value=mean, low=low, high=high, n=len(change), unit="seeds",
        numbers={
            "mean without": plain[what].mean(),
            "mean with": treated[what].mean(),
            "seeds that improve": int((change < 0).sum() if what == "violation" else (change > 0).sum()),
            "lowest hard accuracy in distribution": min(plain["hard accuracy"].min(), treated["hard accuracy"].min()),
        },
        tables=[("Violation and accuracy of each seed", rows)],
        charts=[slopes(long, x="loss", y="value", line="seed", panel="measured",
                       title=f"without and with the contrastive loss, n = {len(change)} seeds")],
    )  # fmt: skip


def _contrastive_claim(name: str, *, of: str) -> Claim:
    group, trained_on, source = SETTINGS[name]
    column, direction, effect, measured = {
        "violation": ("violation", "below", "lowers the balance violation", "mean S / P"),
        "length": (
            "accuracy at 450", "above", "improves length generalisation", "accuracy at length 450 (0.8 criterion)"
        ),
    }[of]  # fmt: skip
    return Claim(
        id=f"contrastive.{name}.{of}",
        source=f"bounded Dyck, {source}",
        statement=f"The contrastive loss {effect}: {trained_on}.",
        rule=f"Change of {measured}, with minus without, paired by seed: reproduced if the 95 % bootstrap interval "
        f"over seeds is {direction} 0, not reproduced on the other side, else inconclusive.",
        quantity=f"change of {column}",
        measure=partial(measure_contrastive, group=group, what=column),
        judge=partial(below if of == "violation" else above, bar=0),
        needs=(group, f"{group}-contrastive"),
    )


def _correlation_claim(name: str, groups: tuple[str, ...], *, source: str, statement: str, negative: bool) -> Claim:
    at_negative, else_ = ("reproduced", "not reproduced") if negative else ("not reproduced", "reproduced")
    return Claim(
        id=name,
        source=f"bounded Dyck, {source}",
        statement=statement,
        rule=f"Spearman's correlation of mean S / P with accuracy at length 450: {at_negative} if the 95 % bootstrap "
        f"interval over models is below 0; {else_} if above 0, or if it contains 0 with {MOST_UNDECIDED} models or "
        "more; else inconclusive.",
        quantity="Spearman's correlation",
        measure=partial(measure_correlation, groups=groups),
        judge=judge_negative if negative else judge_not_negative,
        needs=groups,
    )


CLAIMS = (
    _correlation_claim(
        "balance.length.within",
        (WORDS,),
        source="Figure 3",
        statement="Among models of one setting, those with a lower balance violation generalise better to longer "
        "words.",
        negative=True,
    ),
    _correlation_claim(
        "balance.length.across",
        (WORDS, WITH_LOSS),
        source="Figure 3",
        statement="Over models with and without the contrastive loss together, a lower violation correlates with "
        "better length generalisation.",
        negative=True,
    ),
    *(_contrastive_claim(name, of=of) for name in SETTINGS for of in ("violation", "length")),
    _correlation_claim(
        "prefixes.balance-within",
        ("minimal-prefixes-closers",),
        source="Appendix D.2",
        statement="On prefixes the paper itself finds no negative correlation of violation and length generalisation.",
        negative=False,
    ),
)
