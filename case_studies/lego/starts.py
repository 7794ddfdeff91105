"""Claims about initialisation: random, mimicking, W_K = W_Q, or pretraining on text (Figures 6 and 7)."""

from functools import partial
from typing import Any

import altair as alt
import numpy as np
from jaxtyping import Float

from case_studies.frame.claims import Claim, ClaimVerdict, Measurement, above, rule_text, t_interval, within
from case_studies.frame.evidence import Evidence, ModelSpec
from case_studies.lego.curves import accuracy_rows, depth_curves, learning_chart
from case_studies.lego.generalisation import LARGE
from hooks import TransformerStack, make_model
from interp.core.activations import patterns_on
from interp.core.randomness import derived_generator
from interp.heads.classify import HeadPatterns, classify_heads
from interp.tasks import Lego
from interp.training.pretrained import pretrained
from interp.view.points import small_maps

FIGURE = "LEGO, Section 4.2 and Figure 6"
SAME = 0.05
"""Margin within which accuracies count as equal."""
NO_TIME = "Pretraining on text takes longer than the whole study at this size."


def _means(evidence: Evidence, group: str) -> Float[np.ndarray, " seed"]:
    """Mean accuracy over all variables but the root, for each seed."""
    return np.array([curve.accuracy[-1][1:].mean() for curve in depth_curves(evidence, group)])


def measure_start(evidence: Evidence, *, ours: str, other: str) -> Measurement:
    """Accuracy after the same number of steps on the task, of one start minus another, paired by seed."""
    a, b = _means(evidence, ours), _means(evidence, other)
    mean, low, high = t_interval(a - b)
    groups = (ours, other)
    return Measurement(
        value=mean, low=low, high=high, n=len(a), unit="seeds",
        numbers={ours: float(a.mean()), other: float(b.mean()),
                 **{f"first step above 95 % everywhere, {name}": _first_step(evidence, name) for name in groups}},
        tables=[(f"Accuracy of every variable, {name}", accuracy_rows(evidence, name)) for name in groups],
        charts=[learning_chart(evidence, name) for name in groups],
        note="Paired by seed, t interval. Steps of mimicking and pretraining are in addition to those on the task.",
    )  # fmt: skip


def _first_step(evidence: Evidence, group: str) -> str:
    """Step of the first evaluation with every variable above 95 %, for each seed; a dash if there is none."""
    steps = []
    for spec in evidence.specs(group):
        solved = [record["steps_done"] for record in evidence.history(spec) if min(record["accuracy"]) > 0.95]
        steps.append(str(solved[0]) if solved else "–")
    return " ".join(steps)


def labels_of(evidence: Evidence, start: str) -> tuple[HeadPatterns, HeadPatterns, TransformerStack, Lego]:
    """Heads classified on LEGO sentences before fine-tuning: the pretrained model, and the same model untrained."""
    spec = evidence.specs(start)[0]
    task: Lego = spec.task  # type: ignore[assignment]  # every fine-tuned model here has this task
    chosen: dict[str, Any] = {"symbols": dict(spec.symbols), "seed": spec.seed}
    if isinstance(spec.pretrained, ModelSpec):
        source = spec.pretrained
        model = pretrained(task, evidence.folder / source.key, **chosen)
        blank = make_model(source.config, seed=source.seed)
        untrained = pretrained(task, blank, tokenizer=source.task.vocab, **chosen)
    else:
        model, untrained = pretrained(task, spec.pretrained, **chosen), make_model(spec.config, seed=spec.seed)
    n = {"quick": 64, "standard": 256, "paper": 256}[evidence.size]
    found = classify_heads(model, task, n=n, seed=evidence.seed)
    before = classify_heads(untrained, task, n=n, seed=evidence.seed)
    return found, before, model, task


def measure_emergence(evidence: Evidence, *, start: str) -> Measurement:
    """Highest association score of any pretrained head on LEGO sentences, minus the highest before pretraining."""
    found, before, model, task = labels_of(evidence, start)
    kind = found.kinds.index("association")
    best = np.unravel_index(found.score[:, :, kind].argmax(), found.score.shape[:2])
    top = before.score[:, :, kind].max()
    rows = [["head", "label", *found.kinds, "association before pretraining"]]
    for layer, head in np.ndindex(found.score.shape[:2]):
        scores = [f"{value:.2f}" for value in found.score[layer, head]]
        rows.append([f"{layer}.{head}", found.label[layer][head], *scores, f"{before.score[layer, head, kind]:.2f}"])
    labels = [label for row in found.label for label in row]
    return Measurement(
        value=float(found.score[*best, kind] - top), low=float(found.low[*best, kind] - top),
        high=float(found.high[*best, kind] - top), n=found.n, unit="sentences",
        numbers={"best head": f"{best[0]}.{best[1]}", "its score": float(found.score[*best, kind]),
                 "best before pretraining": float(top),
                 **{f"heads labelled {name}": labels.count(name) for name in sorted(set(labels))}},
        tables=[("Every head of the pretrained model on LEGO sentences", rows)],
        charts=[gallery(model, task, found, seed=evidence.seed)],
        note="One pretrained model; the interval is over sentences for its best head, and does not include the "
        "selection of the head. Score: attention to other occurrences of the query token, 0 at chance, 1 for all of "
        "it.",
    )  # fmt: skip


def gallery(model: TransformerStack, task: Lego, found: HeadPatterns, *, seed: int) -> alt.TopLevelMixin:
    """Attention patterns of every head on one sentence, with their labels: Figure 7."""
    batch = task.sample(1, generator=derived_generator(seed, "gallery"), split="test")
    words = task.vocab.words(batch.tokens[0])
    patterns = patterns_on([model], batch)[:, 0, 0].numpy()
    maps = {
        f"{layer}.{head} {found.label[layer][head]}": patterns[layer, head]
        for layer, head in np.ndindex(patterns.shape[:2])
    }
    title = f"one sentence, n = 1; rows are queries, columns are keys: {' '.join(words)}"
    return small_maps(maps, tokens=words, columns=model.cfg.n_heads, title=title)


def judge_emergence(m: Measurement) -> ClaimVerdict:
    """Above the best untrained head, with a head labelled association."""
    if m.numbers.get("heads labelled association", 0):
        return above(m, 0.0)
    return "not reproduced" if m.high < 0.3 else "inconclusive"


def _start(name: str, ours: str, statement: str, **more) -> Claim:
    return Claim(
        id=f"start.{name}", source=FIGURE, statement=statement,
        rule="Mean accuracy over all variables but the root after the same number of steps on the task, this start "
        f"minus the random one, paired by seed: {rule_text('above')}",
        quantity="difference in accuracy", measure=partial(measure_start, ours=ours, other="start-random"),
        judge=partial(above, bar=0.0), needs=(ours, "start-random"), **more,
    )  # fmt: skip


PRETRAINED = {"sizes": LARGE, "why_not": NO_TIME}
CLAIMS = (
    _start("mimic", "start-mimic", "A model whose heads first mimic hard-coded attention learns faster."),
    _start("copy", "start-query-key", "A model that starts with W_K = W_Q, a bias to equal tokens, learns faster.",
           sizes=LARGE, why_not="Two seeds, the number that fits this size, are too few."),
    _start("pretrained", "start-pretrained", "A model that was pretrained on text learns faster.", **PRETRAINED),
    Claim(
        id="start.association", source="LEGO, Section 4.2, Figure 7 and Appendix F", **PRETRAINED,
        statement="Pretraining on text unrelated to LEGO produces heads that attend to equal tokens.",
        rule="Association score of the best head on LEGO sentences before fine-tuning, minus the best of the same "
        "model before pretraining: reproduced if some head is labelled association (classify_heads) and the interval "
        "over sentences is above 0; not reproduced if none is and the interval ends below 0.3; else inconclusive.",
        quantity="difference in score", measure=partial(measure_emergence, start="start-pretrained"),
        judge=judge_emergence, needs=("start-pretrained",),
    ),
    Claim(
        id="start.symbols", source="LEGO, Section 4.2: tokens can be swapped", **PRETRAINED,
        statement="For a pretrained model, arbitrary tokens in place of =, + and - make no difference.",
        rule="Mean accuracy over all variables but the root, pretrained start with arbitrary tokens minus the same "
        f"with the usual ones, paired by seed: reproduced if the t interval over seeds is within {SAME} of 0, not "
        "reproduced if it is outside, else inconclusive. (From a random start all tokens are equivalent before "
        "training.)",
        quantity="difference in accuracy",
        measure=partial(measure_start, ours="start-symbols", other="start-pretrained"),
        judge=partial(within, margin=SAME), needs=("start-symbols", "start-pretrained"),
    ),
)  # fmt: skip
