"""Claims about initialisation: random, mimicking, W_K = W_Q, or pretraining on text (Figures 6 and 7)."""

from collections import Counter
from functools import partial

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float

from case_studies.frame.claims import DIFFERENCE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AtLeast, Conditional, Number, Within
from case_studies.lego.curves import SENTENCES, accuracy_table, depth_curves, learning_chart
from case_studies.lego.models import ARMS, FIRST_MODELS
from case_studies.recipes.judges import PairedDifference
from case_studies.recipes.learned import LEARNED
from case_studies.recipes.seeds import more_seeds
from hooks import TransformerStack, make_model
from interp.core.activations import patterns_on
from interp.core.randomness import derived_generator
from interp.heads.classify import MIN_SCORE, HeadPatterns, classify_heads
from interp.sweeps.spec import ModelSpec
from interp.tasks import Lego
from interp.training.pretrained import pretrained
from interp.view.charts import pattern_maps

SAME = 0.05
"""Margin within which accuracies count as equal."""
ONE_PRETRAINED = Preregistration(
    "after a result",
    "-0.011 for one model, with an interval over sentences; the bar was part of the first rule, which also judged "
    "labels.",
    looks=1,
)
UNLEARNED = Preregistration(
    "after a result", "both starts had a mean accuracy of 0.66, and a rule without the condition called them equal."
)
NEITHER_LEARNED = Preregistration(
    "after a result",
    "0.00 [-0.01, 0.01] over ten seeds in 500 steps, in which neither start learns the third variable; the models are "
    "now of chains that the start with W_K = W_Q learns. No model of these from a random start had been seen.",
    looks=1,
)
COPIED = more_seeds("untaught-untied")
BEST, BEST_BEFORE = "association, best head", "association, best head before pretraining"
NO_TIME = "Pretraining on text takes longer than the whole study at this size."


def _means(evidence: Evidence, group: str) -> Float[np.ndarray, " seed"]:
    """Mean accuracy over all variables but the root, for each seed."""
    return np.array([curve.accuracy.value[-1][1:].mean() for curve in depth_curves(evidence, group)])


def _mean(group: str) -> str:
    return f"mean accuracy, {group}"


def _starts(start: str, reference: str, *, suffix: str = "") -> PairedDifference:
    """The judge of two starts, paired by seed."""
    return PairedDifference(_mean(start) + suffix, _mean(reference) + suffix, unit="seeds", share_of="sentences")


def measure_start(evidence: Evidence, *, start: str, reference: str) -> Readings:
    """Accuracy after the same number of steps on the task, from both starts; one row a seed."""
    groups = (start, reference)
    means = {_mean(name): _means(evidence, name) for name in groups}
    seeds = [spec.seed for spec in evidence.specs(start)]
    return Readings(
        frame=pd.DataFrame({"seed": seeds, **means, "sentences": SENTENCES[evidence.size]}),
        numbers={f"first step above 95 % everywhere, {name}": _first_step(evidence, name) for name in groups},
        tables=[(f"Accuracy of every variable, {name}", accuracy_table(evidence, name)) for name in groups],
        charts=[learning_chart(evidence, name) for name in groups],
        note="Paired by seed, t interval. Steps of mimicking and pretraining are in addition to those on the task.",
    )


def measure_speed(evidence: Evidence, *, start: str, reference: str) -> Readings:
    """Mean accuracy over the evaluations of training, from both starts; one row a seed."""
    groups = (start, reference)
    means = {}
    for group in groups:
        curves = [[record["accuracy"][1:] for record in evidence.history(spec)] for spec in evidence.specs(group)]
        means[f"{_mean(group)}, over training"] = [np.mean(curve) for curve in curves]
    seeds = [spec.seed for spec in evidence.specs(start)]
    return Readings(
        frame=pd.DataFrame({"seed": seeds, **means, "sentences": evidence.specs(start)[0].settings.n_eval}),
        numbers={f"first step above 95 % everywhere, {name}": _first_step(evidence, name) for name in groups},
        charts=[learning_chart(evidence, name) for name in groups],
        note="Paired by seed, t interval; the root is not counted. Where one start has learned and the other has not, "
        "the difference also depends on how long both train.",
    )


def _first_step(evidence: Evidence, group: str) -> str:
    """Step of the first evaluation with every variable above 95 %, for each seed; a dash if there is none."""
    steps = []
    for spec in evidence.specs(group):
        solved = [record["steps_done"] for record in evidence.history(spec) if min(record["accuracy"]) > 0.95]
        steps.append(str(solved[0]) if solved else "–")
    return " ".join(steps)


def labels_of(evidence: Evidence, spec: ModelSpec, task: Lego) -> tuple[HeadPatterns, HeadPatterns, TransformerStack]:
    """Heads classified on LEGO sentences: a pretrained model before fine-tuning, and the same model untrained."""
    if spec.pretrained is None:
        model = pretrained(task, evidence.folder / spec.key, seed=spec.seed)
        blank = make_model(spec.config, seed=spec.seed)
        untrained = pretrained(task, blank, tokenizer=spec.task.vocab, seed=spec.seed)
    else:  # published weights
        model = pretrained(task, spec.pretrained, seed=spec.seed)
        untrained = make_model(spec.config, seed=spec.seed)
    n = {"quick": 64, "standard": 256, "paper": 256}[evidence.size]
    trained = classify_heads(model, task, n=n, seed=evidence.seed)
    before = classify_heads(untrained, task, n=n, seed=evidence.seed)
    return trained, before, model


def measure_emergence(evidence: Evidence, *, group: str) -> Readings:
    """Highest association score of any pretrained head on LEGO sentences, and before pretraining; one row a model."""
    task = ARMS[evidence.size]["start"].task()
    rows, of_heads, charts = [], [], []
    labels = Counter()
    for spec in evidence.specs(group):
        trained, before, model = labels_of(evidence, spec, task)
        # The best head after pretraining and the best before, which need not be the same
        after, first = _association_scores(trained), _association_scores(before)
        rows.append({"seed": spec.seed, BEST: after.max(), BEST_BEFORE: first.max()})
        labels.update(label for row in trained.label for label in row)
        for layer, head in np.ndindex(after.shape):
            scores = {"association": after[layer, head], "association before pretraining": first[layer, head]}
            label = trained.label[layer][head]
            of_heads.append({"seed": spec.seed, "head": f"{layer}.{head}", "label": label, **scores})
        charts = charts or [gallery(model, task, trained, seed=evidence.seed)]
    return Readings(
        frame=pd.DataFrame(rows),
        title="Association score of the best head",
        numbers={f"heads labelled {name}": labels[name] for name in labels},
        tables=[("Every head of the pretrained models on LEGO sentences", pd.DataFrame(of_heads))],
        charts=charts,
        note="t interval over pretrained models. Score: attention to other occurrences of the query token, 0 at "
        f"chance, 1 for all of it; a labelled head has at least {MIN_SCORE}. The gallery is of the first model.",
    )


def _association_scores(patterns: HeadPatterns) -> Float[np.ndarray, "layer head"]:
    return patterns.score.value[:, :, patterns.kinds.index("association")]


def gallery(model: TransformerStack, task: Lego, patterns: HeadPatterns, *, seed: int) -> alt.TopLevelMixin:
    """Attention patterns of every head on one sentence, with their labels: Figure 7."""
    batch = task.sample(1, generator=derived_generator(seed, "gallery"), split="test")
    words = task.vocab.words(batch.tokens[0])
    attention = patterns_on([model], batch)[:, 0, 0].numpy()
    maps = {
        f"{layer}.{head} {patterns.label[layer][head]}": attention[layer, head]
        for layer, head in np.ndindex(attention.shape[:2])
    }
    title = f"one sentence, n = 1; rows are queries, columns are keys: {' '.join(words)}"
    return pattern_maps(maps, tokens=words, columns=model.cfg.n_heads, title=title)


def _start(name: str, start: str, **options) -> Claim:
    return Claim(
        id=f"start.{name}",
        method="Mean accuracy over all variables but the root after the same number of steps on the task, this start "
        "minus the random one, paired by seed, t interval",
        rule=Above(0),
        preregistration=FIRST_MODELS,
        quantity="difference in accuracy",
        value_range=DIFFERENCE,
        measure=partial(measure_start, start=start, reference="start-random"),
        judged=_starts(start, "start-random"),
        needs=(start, "start-random"),
        **options,
    )


TEXT_PLATEAU = (
    "text models that have left their first plateau: 10,000 steps of pretraining in place of 2,500, 4 to 5 h of one "
    "core, or a GPU"
)
PRETRAINED = {"sizes": LARGE_SIZES, "sizes_reason": NO_TIME, "remedy": TEXT_PLATEAU}
CLAIMS = (
    _start("mimic", "start-mimic"),
    Claim(
        id="start.copy",
        method="Mean accuracy over all variables but the root and all evaluations of training, this start minus the "
        "random one, paired by seed, t interval",
        rule=Above(0),
        preregistration=NEITHER_LEARNED,
        quantity="difference in accuracy over training",
        value_range=DIFFERENCE,
        measure=partial(measure_speed, start=COPIED, reference="untaught-random"),
        judged=_starts(COPIED, "untaught-random", suffix=", over training"),
        needs=(COPIED, "untaught-random"),
        sizes=LARGE_SIZES,
        sizes_reason="Without mimicking no model learns its chains in the time of this size.",
    ),
    _start("pretrained", "start-pretrained", **PRETRAINED),
    Claim(
        id="start.association",
        **PRETRAINED,
        method="Association score of the best head on LEGO sentences before fine-tuning, minus the best of the same "
        f"model before pretraining, t interval over models; a head of this kind scores at least {MIN_SCORE}",
        rule=Above(MIN_SCORE),
        preregistration=ONE_PRETRAINED,
        quantity="difference in score",
        measure=partial(measure_emergence, group="pretrained"),
        judged=PairedDifference(BEST, BEST_BEFORE, unit="models"),
        needs=("pretrained",),
        before_training=("paper",),
    ),
    Claim(
        id="start.symbols",
        **PRETRAINED,
        method="Mean accuracy over all variables but the root, pretrained start with arbitrary tokens minus the same "
        "with the usual ones, paired by seed, t interval",
        rule=Conditional(Number(_mean("start-pretrained"), AtLeast(LEARNED)), Within(SAME)),
        preregistration=UNLEARNED,
        quantity="difference in accuracy",
        value_range=DIFFERENCE,
        measure=partial(measure_start, start="start-symbols", reference="start-pretrained"),
        judged=_starts("start-symbols", "start-pretrained"),
        needs=("start-symbols", "start-pretrained"),
    ),
)
