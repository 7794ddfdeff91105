"""Claims about models with hard-coded attention: pretraining (Figure 9), chains, extrapolation, and an audit."""

from collections import Counter
from functools import partial

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float

from case_studies.frame.audits import EXCLUDED, FEWEST, audits, needed, share_claim
from case_studies.frame.claims import Claim, ClaimVerdict, Measurement, above, below, rule_text, t_interval
from case_studies.frame.evidence import Evidence, ModelSpec, once_per_model
from case_studies.frame.learned import excluded
from case_studies.lego.curves import accuracy_rows, depth_curves, learning_chart, worst_untrained
from case_studies.lego.generalisation import LARGE
from interp.auditing.verdicts import VERDICTS
from interp.evaluation.perplexity import perplexity
from interp.view.charts import curves

FIGURE_9 = "LEGO, Section 5 and Figure 9"
OURS = "ours, after LEGO, Section 5"
WINDOWS = {"quick": 200, "standard": 400, "paper": 2000}
"""Number of held-out windows for a validation loss."""
NAMES = {"bert": "BERT", "hardcode": "Hardcode", "hybrid": "Hybrid"}
LOSS = "nats per masked token"

LONGER = "Audits of twelve heads per layer take longer than this size allows."
TEXTS = tuple(f"text-{name}" for name in NAMES)
EVERY = tuple(f"chains-{name}" for name in NAMES)


def final_losses(evidence: Evidence, name: str) -> Float[np.ndarray, " seed"]:
    """Cross entropy of masked tokens in nats, on held-out windows of full length, for each seed."""
    return np.array([_final_loss(evidence, spec) for spec in evidence.specs(f"text-{name}")])


@once_per_model
def _final_loss(evidence: Evidence, spec: ModelSpec) -> float:
    model, n = evidence.run(spec).model, WINDOWS[evidence.size]
    return float(perplexity(model, spec.task, n=n, split="validation", seed=evidence.seed).loss[0])


def measure_loss(evidence: Evidence, *, ours: str, other: str) -> Measurement:
    """Final validation loss of one model family minus another's, paired by seed."""
    a, b = final_losses(evidence, ours), final_losses(evidence, other)
    mean, low, high = t_interval(a - b)
    rows = [["model", *(f"seed {spec.seed}" for spec in evidence.specs(f"text-{ours}"))]]
    rows += [[NAMES[name], *(f"{loss:.3f}" for loss in losses)] for name, losses in ((ours, a), (other, b))]
    return Measurement(
        value=mean, low=low, high=high, n=len(a), unit="seeds",
        numbers={f"{NAMES[ours]}, nats": float(a.mean()), f"{NAMES[other]}, nats": float(b.mean()),
                 "windows per model": WINDOWS[evidence.size]},
        tables=[("Validation loss after pretraining, nats per masked token", rows)],
        charts=[loss_chart(evidence)],
        note="Paired by seed (the same windows of text in the same order), t interval.",
    )  # fmt: skip


def measure_steps(evidence: Evidence, *, ours: str, other: str) -> Measurement:
    """Share of the steps after which one family reaches the other's final loss; 1 if it never does."""
    shares, rows = [], [["seed", f"{NAMES[other]}'s final loss", f"{NAMES[ours]} reaches it at step", "of"]]
    pairs = zip(evidence.specs(f"text-{ours}"), evidence.specs(f"text-{other}"), strict=True)
    for spec, spec_b in pairs:
        history, total = evidence.history(spec), spec.settings.steps
        goal = evidence.history(spec_b)[-1]["validation_loss"][0]
        reached = [record["steps_done"] for record in history if record["validation_loss"][0] <= goal]
        shares.append(min(reached, default=total) / total)
        rows.append([str(spec.seed), f"{goal:.3f}", str(reached[0]) if reached else "–", str(total)])
    mean, low, high = t_interval(np.array(shares))
    return Measurement(
        value=mean, low=low, high=high, n=len(shares), unit="seeds",
        tables=[(f"Steps to {NAMES[other]}'s final loss", rows)], charts=[loss_chart(evidence)],
        note=f"Losses on the {evidence.specs(f'text-{ours}')[0].settings.n_eval} validation windows of training; "
        "t interval over seeds.",
    )  # fmt: skip


def loss_chart(evidence: Evidence) -> alt.TopLevelMixin:
    """Figure 9: validation and training loss by step, mean over seeds with its band."""
    rows, names = [], [name for name in NAMES if f"text-{name}" in evidence.groups]
    for name in names:
        histories = [evidence.history(spec) for spec in evidence.specs(f"text-{name}")]
        for records in zip(*histories, strict=True):
            for kind in ("validation", "training"):
                losses = [one["validation_loss"][0] if kind == "validation" else one["loss"] for one in records]
                mean, low, high = t_interval(np.array(losses))
                rows.append({"step": records[0]["steps_done"], LOSS: mean, "low": low, "high": high,
                             "model": NAMES[name], "kind": kind})  # fmt: skip
    specs = evidence.specs(f"text-{names[0]}")
    (first, raised), (last, _) = specs[0].settings.curriculum[0], specs[0].settings.curriculum[-1]
    table = pd.DataFrame(rows)
    bottom, top = max(0.0, float(min(table[LOSS])) - 0.3), float(max(table[LOSS])) + 0.2
    table[["low", "high"]] = table[["low", "high"]].clip(bottom, top)
    title = [
        f"mean of n = {len(specs)} seeds, {specs[0].settings.n_eval} windows each, bands 95 % over seeds",
        f"windows grow from {first} to {last} tokens at step {raised}",
    ]
    return curves(table, x="step", y=LOSS, series="model", panel="kind", title=title, domain=(bottom, top))


def measure_chains(evidence: Evidence, *, ours: str, other: str, trained: bool) -> Measurement:
    """Accuracy after fine-tuning on chains, of one family minus another, paired by seed."""
    a, b = (
        np.array([
            curve.accuracy[-1][np.array(curve.supervised)][1:].mean()
            if trained
            else worst_untrained(curve, curve.depths[-1])
            for curve in depth_curves(evidence, f"chains-{name}")
        ])
        for name in (ours, other)
    )  # fmt: skip
    mean, low, high = t_interval(a - b)
    tables = [
        (f"Accuracy of every variable, {NAMES[name]} (* not trained)", accuracy_rows(evidence, f"chains-{name}"))
        for name in (ours, other)
    ]
    return Measurement(
        value=mean, low=low, high=high, n=len(a), unit="seeds",
        numbers={NAMES[ours]: float(a.mean()), NAMES[other]: float(b.mean())}, tables=tables,
        charts=[learning_chart(evidence, f"chains-{name}") for name in (ours, other)],
        note="Paired by seed, t interval; chance is 0.5. No mimicking.",
    )  # fmt: skip


def measure_written(evidence: Evidence, *, group: str) -> Measurement:
    """Share of hard-coded heads among needed heads."""
    found = list(audits(evidence, [group]))
    hits, of, counts = [], [], Counter()
    for one in found:
        patterns = one.spec.config.patterns_of(0)  # type: ignore[union-attr]  # these models have heads
        mask = needed(one.result)
        fixed = np.array([not patterns[head.head].learned for head in one.result.heads])
        hits.append(int((mask & fixed).sum()))
        of.append(int(mask.sum()))
        for head in one.result.heads:
            pattern = patterns[head.head]
            marker = "" if pattern.token is None else f" of {one.spec.task.vocab.names[pattern.token]}"
            name = pattern.kind + marker
            counts[name, head.verdict] += 1
    shares = np.array([hit / of_one for hit, of_one in zip(hits, of, strict=True) if of_one])
    value, low, high = t_interval(shares) if len(shares) > 1 else (float(shares.sum()), 0.0, 1.0)
    kinds = list(dict.fromkeys(name for name, _ in counts))
    rows = [["kind of head", *VERDICTS], *([kind, *(counts[kind, v] for v in VERDICTS)] for kind in kinds)]
    return Measurement(
        value=value, low=low, high=high, n=max(1, len(found)), unit="models",
        numbers={"heads": sum(of), "models left out": len(evidence.specs(group)) - len(found)},
        tables=[("Verdicts on heads, by kind in the configuration", rows), *excluded(evidence, [group])],
        note="Half of the heads of each layer are hard-coded. Mean over seeds of each model's share, t interval. "
        f"{EXCLUDED}",
    )  # fmt: skip


def judge_written(m: Measurement) -> ClaimVerdict:
    """Above one half, the share of hard-coded heads in the model, with at least `FEWEST` needed heads."""
    return above(m, 0.5) if m.numbers["heads"] >= FEWEST else "inconclusive"


def _loss(name: str, statement: str, ours: str, other: str, *, lower: bool, paper: str) -> Claim:
    return Claim(
        id=f"hardcoded.loss-{name}", source=FIGURE_9, paper=paper, statement=statement,
        rule="Validation loss after the same number of pretraining steps, "
        f"{NAMES[ours]} minus {NAMES[other]}, paired by seed: {rule_text('below' if lower else 'above')}",
        quantity="difference in loss, nats", measure=partial(measure_loss, ours=ours, other=other),
        judge=partial(below if lower else above, bar=0.0), needs=TEXTS,
    )  # fmt: skip


def _chains(ours: str, *, trained: bool) -> Claim:
    what = "learns chains better" if trained else "extrapolates further along chains"
    which = (
        "Mean accuracy over trained variables but the root" if trained else "Accuracy of the worst untrained variable"
    )
    return Claim(
        id=f"hardcoded.{'chains' if trained else 'beyond'}-{ours}", source=OURS,
        statement=f"After the same pretraining and fine-tuning, {NAMES[ours]} {what} than BERT.",
        rule=f"{which}, {NAMES[ours]} minus BERT, paired by seed: {rule_text('above')}",
        quantity="difference in accuracy",
        measure=partial(measure_chains, ours=ours, other="bert", trained=trained),
        judge=partial(above, bar=0.0), needs=(f"chains-{ours}", "chains-bert"),
    )  # fmt: skip


CLAIMS = (
    _loss("hybrid", "Hybrid reaches a lower final loss than BERT.", "hybrid", "bert", lower=True,
          paper="1.47 against 1.49"),
    _loss("hardcode", "Without learned attention the final loss is higher than BERT's.", "hardcode", "bert",
          lower=False, paper="1.66 against 1.49"),
    _loss("learned", "Adding learned heads to hard-coded ones lowers the loss.", "hybrid", "hardcode", lower=True,
          paper="1.47 against 1.66"),
    Claim(
        id="hardcoded.steps", source=FIGURE_9,
        statement="Hybrid reaches BERT's final loss in fewer steps.",
        rule="Share of the steps after which Hybrid's validation loss is at most BERT's final one, 1 if it never is: "
        f"{rule_text('below', 1)}",
        quantity="share of the steps", measure=partial(measure_steps, ours="hybrid", other="bert"),
        judge=partial(below, bar=1.0), needs=TEXTS,
    ),
    *(_chains(name, trained=trained) for trained in (True, False) for name in ("hybrid", "hardcode")),
    Claim(
        id="hardcoded.written", source=OURS, sizes=LARGE, why_not=LONGER,
        statement="In Hybrid, fine-tuned on chains, the needed heads are the hard-coded ones.",
        rule="Share of hard-coded heads among those that the audit finds needed; half of all heads are hard-coded: "
        f"{rule_text('above', 'one half')} Inconclusive with fewer than {FEWEST} needed heads.",
        quantity="share of needed heads", measure=partial(measure_written, group="chains-hybrid"),
        judge=judge_written, needs=("chains-hybrid",),
    ),
    share_claim(
        "hardcoded.readable", source="LEGO, Sections 4 and 5", sizes=LARGE, why_not=LONGER,
        statement="In BERT, Hardcode and Hybrid, fine-tuned on chains, readable heads act through their pattern.",
        groups=EVERY, among="readable", above=True,
    ),
)  # fmt: skip
