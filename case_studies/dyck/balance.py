"""Claims about balance: against length generalisation, and with the contrastive loss. (Figure 3, Section 4.2, D.2)"""

from functools import partial

import numpy as np
import pandas as pd

from case_studies.dyck.measures import LONG, MOST_UNDECIDED, PAPER_CRITERION, accuracies, task_of
from case_studies.frame.claims import Claim, ClaimVerdict, Measurement, above, below, correlation
from case_studies.frame.evidence import Evidence
from interp.core.statistics import bootstrap_mean
from interp.theory.balance import balance_violation
from interp.view.points import scatter, slopes

SETTINGS = {
    "words": "minimal-words-closers",
    "words-all-tokens": "minimal-words-all",
    "prefixes": "minimal-prefixes-closers",
}
"""What models are trained on, and the group without the contrastive loss; with it the name ends in -contrastive."""


def _readings(evidence: Evidence, group: str) -> pd.DataFrame:
    """Per model: violation in its several forms, and accuracy on long prefixes."""
    task = task_of(evidence, group)
    models = evidence.models(group)
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


FORMS = ("violation", "released average", "released pairing", "bounded", "share of a decision")


def measure_correlation(evidence: Evidence, *, groups: tuple[str, ...]) -> Measurement:
    """Rank correlation of violation and long accuracy over the models of some groups together."""
    parts = [_readings(evidence, group).assign(models=_short(group)) for group in groups]
    table = pd.concat(parts, ignore_index=True)
    accuracy = table["accuracy at 450"].to_numpy()
    value, low, high = correlation(table["violation"].to_numpy(), accuracy, seed=evidence.seed)
    rows: list[list] = [["form of the violation", "accuracy measured", "Spearman", "95 %"]]
    for form in FORMS:
        for measured in ("accuracy at 450", "hard accuracy at 450"):
            rho, a, b = correlation(table[form].to_numpy(), table[measured].to_numpy(), seed=evidence.seed)
            rows.append([form, measured, f"{rho:+.2f}", f"[{a:+.2f}, {b:+.2f}]"])
    return Measurement(
        value=value, low=low, high=high, n=len(table), unit="models",
        numbers={"lowest hard accuracy in distribution": table["hard accuracy"].min()},
        tables=[("Every form that was looked at; only the first row is judged", rows)],
        charts=[scatter(table.filter(["violation", "accuracy at 450", "models", "seed"]), x="violation",
                        y="accuracy at 450", series="models",
                        title=f"violation and length generalisation, n = {len(table)} models")],
        note="Accuracy on prefixes of 450 brackets by the paper's criterion."
        + (" Several settings in one correlation: it is largely the treatment's effect." if len(groups) > 1 else ""),
    )  # fmt: skip


def _short(group: str) -> str:
    return "with contrastive loss" if group.endswith("contrastive") else "without"


def judge_negative(m: Measurement) -> ClaimVerdict:
    """Below zero; a small sample whose interval holds zero decides nothing."""
    if m.high < 0:
        return "reproduced"
    return "not reproduced" if m.low > 0 or m.n >= MOST_UNDECIDED else "inconclusive"


def judge_not_negative(m: Measurement) -> ClaimVerdict:
    """The paper's own exception: no negative correlation."""
    if m.high < 0:
        return "not reproduced"
    return "reproduced" if m.low > 0 or m.n >= MOST_UNDECIDED else "inconclusive"


def measure_contrastive(evidence: Evidence, *, group: str, what: str) -> Measurement:
    """Change of violation or long accuracy that the contrastive loss makes, paired by seed."""
    plain, treated = (_readings(evidence, name) for name in (group, f"{group}-contrastive"))
    change = (treated[what] - plain[what]).to_numpy()
    mean, low, high = bootstrap_mean(change, seed=evidence.seed)
    both = pd.concat([plain.assign(loss="without"), treated.assign(loss="with")], ignore_index=True)
    shown = ["violation", "accuracy at 450", "hard accuracy at 450"]
    long = both.melt(id_vars=["seed", "loss"], value_vars=shown, var_name="measured", value_name="value")
    long["seed"] = long["seed"].astype(str)
    rows: list[list] = [["seed", *(f"{name}, {loss}" for name in shown for loss in ("without", "with"))]]
    for index, seed in enumerate(plain["seed"]):
        cells = [f"{part[name][index]:.3f}" for name in shown for part in (plain, treated)]
        rows.append([int(seed), *cells])
    return Measurement(
        value=float(mean), low=float(low), high=float(high), n=len(change), unit="seeds",
        numbers={
            "mean without": plain[what].mean(),
            "mean with": treated[what].mean(),
            "seeds that improve": int((change < 0).sum() if what == "violation" else (change > 0).sum()),
            "lowest hard accuracy in distribution": min(plain["hard accuracy"].min(), treated["hard accuracy"].min()),
        },
        tables=[("Seed by seed", rows)],
        charts=[slopes(long, x="loss", y="value", line="seed", panel="measured",
                       title=f"without and with the contrastive loss, n = {len(change)} seeds")],
    )  # fmt: skip


def judge_lower(m: Measurement) -> ClaimVerdict:
    """Below zero."""
    return below(m, 0)


def judge_higher(m: Measurement) -> ClaimVerdict:
    """Above zero."""
    return above(m, 0)


_CORRELATION_RULE = (
    "Spearman's correlation of mean S / P with accuracy at length 450: {} if the 95 % bootstrap interval over models "
    f"lies below 0; {{}} if above 0, or if it holds 0 with {MOST_UNDECIDED} models or more; else inconclusive."
)


def _contrastive_claims() -> list[Claim]:
    claims = []
    for name, group in SETTINGS.items():
        trained = {"words": "words, loss on closers", "words-all-tokens": "words, loss on every token"}
        where = trained.get(name, "prefixes, loss on closers")
        source = "bounded Dyck, Appendix D.2" if name == "prefixes" else "bounded Dyck, Section 4.2, Eq. 22"
        for what, column, judge, direction in (
            ("violation", "violation", judge_lower, "lowers the balance violation"),
            ("length", "accuracy at 450", judge_higher, "improves length generalisation"),
        ):
            end = "below" if what == "violation" else "above"
            measured = "mean S / P" if what == "violation" else "accuracy at length 450 (0.8 criterion)"
            claims.append(
                Claim(
                    id=f"contrastive.{name}.{what}",
                    source=source,
                    statement=f"The contrastive loss {direction}: {where}.",
                    rule=f"Change of {measured}, with minus without, paired by seed: reproduced if the 95 % bootstrap "
                    f"interval over seeds lies {end} 0, not reproduced on the other side, else inconclusive.",
                    quantity=f"change of {column}",
                    measure=partial(measure_contrastive, group=group, what=column),
                    judge=judge,
                    needs=(group, f"{group}-contrastive"),
                )
            )
    return claims


CLAIMS = (
    Claim(
        id="balance.length.within",
        source="bounded Dyck, Figure 3",
        statement="Among models of one setting, a lower balance violation goes with better length generalisation.",
        rule=_CORRELATION_RULE.format("reproduced", "not reproduced"),
        quantity="Spearman's correlation",
        measure=partial(measure_correlation, groups=("minimal-words-closers",)),
        judge=judge_negative,
        needs=("minimal-words-closers",),
    ),
    Claim(
        id="balance.length.across",
        source="bounded Dyck, Figure 3",
        statement="With and without the contrastive loss taken together, a lower violation goes with better length "
        "generalisation.",
        rule=_CORRELATION_RULE.format("reproduced", "not reproduced"),
        quantity="Spearman's correlation",
        measure=partial(measure_correlation, groups=("minimal-words-closers", "minimal-words-closers-contrastive")),
        judge=judge_negative,
        needs=("minimal-words-closers", "minimal-words-closers-contrastive"),
    ),
    *_contrastive_claims(),
    Claim(
        id="prefixes.balance-within",
        source="bounded Dyck, Appendix D.2",
        statement="On prefixes the paper itself finds no negative correlation of violation and length generalisation.",
        rule=_CORRELATION_RULE.format("not reproduced", "reproduced"),
        quantity="Spearman's correlation",
        measure=partial(measure_correlation, groups=("minimal-prefixes-closers",)),
        judge=judge_not_negative,
        needs=("minimal-prefixes-closers",),
    ),
)
