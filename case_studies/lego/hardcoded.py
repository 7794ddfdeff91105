"""Claims about models with hard-coded attention: pretraining (Figure 9), chains, extrapolation, and an audit."""

from collections import Counter
from dataclasses import replace
from functools import partial

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float

from case_studies.frame.claims import DIFFERENCE, SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above, AtLeast, Below, Conditional, Number
from case_studies.lego.curves import SENTENCES, accuracy_rows, depth_curve, depth_curves, learning_chart, untrained
from case_studies.lego.plateau import OFF_PLATEAU, PLATEAU_SEEN, WINDOWS, final_losses, numbers_of_plateau
from case_studies.recipes.audits import EXCLUDED, FEWEST_HEADS, audit_models, head_share_claim, needed_heads
from case_studies.recipes.intervals import as_interval, t_interval
from case_studies.recipes.learned import excluded_models, has_learned
from interp.auditing.verdicts import HEAD_VERDICTS
from interp.view.charts import curves

LONGER_TEXT = (
    "BERT that has left the plateau of single tokens: nine models of 10,000 steps of pretraining, 7 h of one core, or "
    "a GPU"
)
FIGURE_9 = "LEGO, Section 5 and Figure 9; here on smaller models and other text"
OURS = "ours, after LEGO, Section 5"
NAMES = {"bert": "BERT", "hardcode": "Hardcode", "hybrid": "Hybrid"}
LOSS = "nats per masked token"
FURTHER = 0.6
"""Accuracy of an untrained variable, 0.1 above chance, from which it is predicted."""

WRITTEN_SEEN = Preregistration(
    "after a result",
    "5 of 5 needed heads were hard-coded, too few to judge; then equal shares got an interval and models below 0.9 "
    "were excluded. The bar was fixed before any audit, after one seed of smaller models.",
)
FURTHER_SEEN = Preregistration(
    "after a result",
    "with six layers, too few for six variables, no family extrapolated: 0.46 to 0.50 on the worst untrained variable.",
)
LONGER = "Audits of twelve heads per layer take longer than this size allows."
TOO_FEW_STEPS = "Pretraining at this size ends before any model predicts better than single tokens' frequencies do."
TOO_DEEP = "Deep models take longer than this size allows."
TEXTS = tuple(f"text-{name}" for name in NAMES)
EVERY = tuple(f"chains-{name}" for name in NAMES)


def measure_loss_difference(evidence: Evidence, *, family: str, reference: str) -> Measurement:
    """Final validation loss of one model family minus another's, paired by seed."""
    a, b = final_losses(evidence, family), final_losses(evidence, reference)
    interval = t_interval(a - b)
    rows = [["model", *(f"seed {spec.seed}" for spec in evidence.specs(f"text-{family}"))]]
    rows += [[NAMES[name], *(f"{loss:.3f}" for loss in losses)] for name, losses in ((family, a), (reference, b))]
    return Measurement.from_interval(
        interval,
        unit="seeds",
        numbers={
            f"{NAMES[family]}, nats": float(a.mean()),
            f"{NAMES[reference]}, nats": float(b.mean()),
            "windows per model": WINDOWS[evidence.size],
            **numbers_of_plateau(evidence, (family, reference)),
        },
        tables=[("Validation loss after pretraining, nats per masked token", rows)],
        charts=[pretraining_loss_chart(evidence)],
        note="Paired by seed (the same windows of text in the same order), t interval.",
    )


def measure_steps(evidence: Evidence, *, family: str, reference: str) -> Measurement:
    """Share of the steps after which one family reaches the other's final loss; 1 if it never does."""
    shares = []
    rows = [["seed", f"{NAMES[reference]}'s final loss", f"{NAMES[family]} reaches it at step", "of"]]
    pairs = zip(evidence.specs(f"text-{family}"), evidence.specs(f"text-{reference}"), strict=True)
    for spec, spec_b in pairs:
        history = evidence.history(spec)
        total = spec.settings.steps
        # The first step at which the model's loss is at most the reference's final one
        goal = evidence.history(spec_b)[-1]["validation_loss"][0]
        reached = [record["steps_done"] for record in history if record["validation_loss"][0] <= goal]
        shares.append(min(reached, default=total) / total)
        rows.append([str(spec.seed), f"{goal:.3f}", str(reached[0]) if reached else "–", str(total)])
    settings = evidence.specs(f"text-{family}")[0].settings
    interval = t_interval(np.array(shares), resolution=settings.eval_every / settings.steps)
    return Measurement.from_interval(
        interval,
        unit="seeds",
        numbers=numbers_of_plateau(evidence, (family, reference)),
        tables=[(f"Steps to {NAMES[reference]}'s final loss", rows)],
        charts=[pretraining_loss_chart(evidence)],
        note=f"Losses on the {settings.n_eval} validation windows of training, every {settings.eval_every} steps; "
        "equal shares have the interval of a rounding error.",
    )


def pretraining_loss_chart(evidence: Evidence) -> alt.TopLevelMixin:
    """Figure 9: validation and training loss by step, mean over seeds with its band."""
    rows = []
    names = [name for name in NAMES if f"text-{name}" in evidence.groups]
    # Mean over seeds of both losses at every evaluation
    for name in names:
        histories = [evidence.history(spec) for spec in evidence.specs(f"text-{name}")]
        for records in zip(*histories, strict=True):
            for kind in ("validation", "training"):
                losses = [
                    record["validation_loss"][0] if kind == "validation" else record["loss"] for record in records
                ]
                mean, low, high = t_interval(np.array(losses)).floats()
                rows.append(
                    {
                        "step": records[0]["steps_done"],
                        LOSS: mean,
                        "low": low,
                        "high": high,
                        "model": NAMES[name],
                        "kind": kind,
                    }
                )
    # Bands of few seeds are wide: the chart shows the range of the means
    table = pd.DataFrame(rows)
    bottom = max(0.0, float(min(table[LOSS])) - 0.3)
    top = float(max(table[LOSS])) + 0.2
    table[["low", "high"]] = table[["low", "high"]].clip(bottom, top)
    specs = evidence.specs(f"text-{names[0]}")
    first, raised = specs[0].settings.curriculum[0]
    last, _ = specs[0].settings.curriculum[-1]
    title = [
        f"mean of n = {len(specs)} seeds, {specs[0].settings.n_eval} windows each, bands 95 % over seeds",
        f"windows grow from {first} to {last} tokens at step {raised}",
    ]
    return curves(table, x="step", y=LOSS, series="model", panel="kind", title=title, domain=(bottom, top))


def measure_chains(evidence: Evidence, *, family: str, reference: str) -> Measurement:
    """Accuracy on trained variables after fine-tuning on chains, of one family minus another, paired by seed."""
    a, b = _trained_accuracies(evidence, family), _trained_accuracies(evidence, reference)
    interval = t_interval(a - b, resolution=1 / SENTENCES[evidence.size])
    tables = [
        (f"Accuracy of every variable, {NAMES[name]} (* not trained)", accuracy_rows(evidence, f"chains-{name}"))
        for name in (family, reference)
    ]
    return Measurement.from_interval(
        interval,
        unit="seeds",
        numbers={
            NAMES[family]: float(a.mean()),
            NAMES[reference]: float(b.mean()),
            **numbers_of_plateau(evidence, (family, reference)),
        },
        tables=tables,
        charts=[learning_chart(evidence, f"chains-{name}") for name in (family, reference)],
        note="Paired by seed, t interval; chance is 0.5. No mimicking.",
    )


def _trained_accuracies(evidence: Evidence, family: str) -> Float[np.ndarray, " seed"]:
    """Mean accuracy over the trained variables but the root, for each seed."""
    means = []
    for curve in depth_curves(evidence, f"chains-{family}"):
        accuracy = curve.accuracy.value[-1][np.array(curve.supervised)]
        means.append(accuracy[1:].mean())
    return np.array(means)


def measure_further(evidence: Evidence, *, group: str) -> Measurement:
    """Accuracy of the first untrained variable, over models that have learned the trained ones."""
    specs = [spec for spec in evidence.specs(group) if has_learned(evidence, spec)]
    curves_of_specs = [depth_curve(evidence, spec) for spec in specs]
    every = [untrained(curve, curve.trained_depth) for curve in curves_of_specs]
    first = np.array([accuracy[0] for accuracy in every] or [0.0])
    interval = t_interval(first, resolution=1 / SENTENCES[evidence.size])
    return Measurement.from_interval(
        interval,
        unit="models",
        numbers={"models": len(every), "untrained variables, one by one": np.mean(every, axis=0) if every else []},
        tables=[
            ("Accuracy of every variable (* not trained)", accuracy_rows(evidence, group)),
            *excluded_models(evidence, [group]),
        ],
        charts=[learning_chart(evidence, group)],
        note=f"t interval over models; chance is 0.5. {EXCLUDED}",
    )


def measure_written(evidence: Evidence, *, group: str) -> Measurement:
    """Share of hard-coded heads among needed heads."""
    audits = list(audit_models(evidence, [group]))
    hits, of = [], []
    counts = Counter()
    for audited in audits:
        # The configuration says which heads are hard-coded, the audit which ones are needed
        patterns = audited.spec.config.patterns_of(0)  # type: ignore[union-attr]  # these models have heads
        mask = needed_heads(audited.result)
        hard_coded = np.array([not patterns[head.head].learned for head in audited.result.heads])
        hits.append(int((mask & hard_coded).sum()))
        of.append(int(mask.sum()))
        for head in audited.result.heads:
            pattern = patterns[head.head]
            marker = "" if pattern.token is None else f" of {audited.spec.task.vocab.names[pattern.token]}"
            name = pattern.kind + marker
            counts[name, head.verdict] += 1
    # Models without a needed head have no share; one share alone says nothing about others
    shares = np.array([hit / n_needed for hit, n_needed in zip(hits, of, strict=True) if n_needed])
    fewest = min((n_needed for n_needed in of if n_needed), default=1)
    if len(shares) > 1:
        interval = t_interval(shares, resolution=1 / fewest)
    else:
        interval = as_interval(float(shares.sum()), 0.0, 1.0, len(shares))
    kinds = list(dict.fromkeys(name for name, _ in counts))
    rows: list[list] = [["kind of head", *HEAD_VERDICTS]]
    rows += [[kind, *(counts[kind, verdict] for verdict in HEAD_VERDICTS)] for kind in kinds]
    return Measurement.from_interval(
        replace(interval, n=len(audits)),
        unit="models",
        numbers={"heads": sum(of), "models left out": len(evidence.specs(group)) - len(audits)},
        tables=[("Verdicts on heads, by kind in the configuration", rows), *excluded_models(evidence, [group])],
        note="Half of the heads of each layer are hard-coded. Mean over seeds of each model's share, t interval. "
        f"{EXCLUDED}",
    )


def _loss(name: str, statement: str, family: str, reference: str, *, lower: bool, paper: str) -> Claim:
    return Claim(
        id=f"hardcoded.loss-{name}",
        source=FIGURE_9,
        paper=paper,
        statement=statement,
        sizes=LARGE_SIZES,
        sizes_reason=TOO_FEW_STEPS,
        method=f"Validation loss after the same number of pretraining steps, {NAMES[family]} minus {NAMES[reference]}, "
        f"paired "
        "by seed, t interval",
        rule=Conditional(OFF_PLATEAU, Below(0) if lower else Above(0)),
        preregistration=PLATEAU_SEEN,
        remedy=LONGER_TEXT,
        quantity="difference in loss, nats",
        measure=partial(measure_loss_difference, family=family, reference=reference),
        needs=TEXTS,
    )


def _chains(family: str) -> Claim:
    return Claim(
        id=f"hardcoded.chains-{family}",
        source=OURS,
        sizes=LARGE_SIZES,
        sizes_reason=TOO_FEW_STEPS,
        statement=f"After the same pretraining and fine-tuning, {NAMES[family]} learns chains better than BERT.",
        method=f"Mean accuracy over trained variables but the root, {NAMES[family]} minus BERT, paired by seed, t "
        f"interval",
        rule=Conditional(OFF_PLATEAU, Above(0)),
        preregistration=PLATEAU_SEEN,
        quantity="difference in accuracy",
        value_range=DIFFERENCE,
        remedy=LONGER_TEXT,
        measure=partial(measure_chains, family=family, reference="bert"),
        needs=(f"chains-{family}", "chains-bert", f"text-{family}", "text-bert"),
    )


def _further(family: str) -> Claim:
    return Claim(
        id=f"hardcoded.further-{family}",
        source=OURS,
        sizes=LARGE_SIZES,
        sizes_reason=TOO_DEEP,
        statement=f"{NAMES[family]}, deep enough for every variable and fine-tuned on the first ones, predicts the "
        "next.",
        method="Accuracy of the first untrained variable, t interval over models that have learned the trained ones",
        rule=Above(FURTHER),
        preregistration=FURTHER_SEEN,
        quantity="accuracy",
        value_range=SHARE,
        measure=partial(measure_further, group=f"deep-{family}"),
        needs=(f"deep-{family}",),
    )


CLAIMS = (
    _loss(
        "hybrid",
        "Hybrid reaches a lower final loss than BERT.",
        "hybrid",
        "bert",
        lower=True,
        paper="1.47 against 1.49",
    ),
    _loss(
        "hardcode",
        "Without learned attention the final loss is higher than BERT's.",
        "hardcode",
        "bert",
        lower=False,
        paper="1.66 against 1.49",
    ),
    _loss(
        "learned",
        "Adding learned heads to hard-coded ones lowers the loss.",
        "hybrid",
        "hardcode",
        lower=True,
        paper="1.47 against 1.66",
    ),
    Claim(
        id="hardcoded.steps",
        source="ours, after Figure 9",
        sizes=LARGE_SIZES,
        sizes_reason=TOO_FEW_STEPS,
        statement="Hybrid reaches BERT's final loss in fewer steps.",
        method="Share of the steps after which Hybrid's validation loss is at most BERT's final one, 1 if it never "
        "is, t interval over seeds",
        rule=Conditional(OFF_PLATEAU, Below(1)),
        preregistration=PLATEAU_SEEN,
        quantity="share of the steps",
        remedy=LONGER_TEXT,
        measure=partial(measure_steps, family="hybrid", reference="bert"),
        needs=TEXTS,
    ),
    *(claim(name) for claim in (_chains, _further) for name in ("hybrid", "hardcode")),
    Claim(
        id="hardcoded.written",
        source=OURS,
        sizes=LARGE_SIZES,
        sizes_reason=LONGER,
        statement="In Hybrid, fine-tuned on chains, the needed heads are the hard-coded ones.",
        method="Share of hard-coded heads among those that the audit finds needed, mean over seeds, t interval; half "
        "of all heads are hard-coded",
        rule=Conditional(Number("heads", AtLeast(FEWEST_HEADS)), Above(0.5)),
        preregistration=WRITTEN_SEEN,
        quantity="share of needed heads",
        value_range=SHARE,
        measure=partial(measure_written, group="chains-hybrid"),
        needs=("chains-hybrid",),
    ),
    head_share_claim(
        "hardcoded.readable",
        source="ours, after LEGO, Sections 4 and 5",
        sizes=LARGE_SIZES,
        sizes_reason=LONGER,
        statement="In BERT, Hardcode and Hybrid, fine-tuned on chains, readable heads act through their pattern.",
        groups=EVERY,
        among="readable",
        above=True,
    ),
)
