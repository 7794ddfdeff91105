"""Claims about solved models: do their heads look at equal symbols, and is that what they work by? (ours; Figure 7)"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps

import numpy as np
import pandas as pd
import torch

from case_studies.frame.claims import (
    Claim,
    ClaimVerdict,
    Measurement,
    above,
    below,
    correlation,
    more_than_half,
    t_interval,
)
from case_studies.frame.evidence import Evidence, ModelSpec
from case_studies.frame.template_models import PLAIN, A
from case_studies.template.measures import SOLVED, n_train, template_task
from hooks import Transformer
from interp.core.activations import patterns_on
from interp.core.statistics import proportion_interval
from interp.evaluation.evaluate import evaluate
from interp.heads.ablate import ablate_heads
from interp.heads.classify import classify_heads
from interp.probing.probe import probe
from interp.tasks import Template, TemplateBatch
from interp.view.charts import dots
from interp.view.points import scatter, small_maps

N_READ = {"quick": 200, "standard": 500, "paper": 500}
"""Strings for each reading."""
MOST_MODELS, FEWEST = 12, 2
"""Solved models that are read, those with the most training strings first; and the fewest that say anything."""
GROUPS = {A: f"aba-abb {A}", PLAIN: f"aba-abb {PLAIN}"}
BAR = 0.1
"""Accuracy that models must lose without a I before they count as working by it."""


@dataclass(frozen=True)
class Solved:
    """Models to read."""

    models: list[tuple[ModelSpec, Transformer]]
    count: int
    """How many of them are solved. With fewer than two the most accurate ones stand in, to be shown and not judged."""


def solved(evidence: Evidence, variant: str) -> Solved:
    """The models of a variant that are right on unseen validation symbols, at most so many, the largest n first."""
    good: list[tuple[ModelSpec, Transformer]] = []
    others: list[tuple[float, ModelSpec, Transformer]] = []
    for spec in sorted(evidence.specs(GROUPS[variant]), key=lambda spec: (-n_train(spec), spec.seed)):
        model = evidence.run(spec).model
        found = evaluate(model, template_task(spec), n=500, split="validation", seed=evidence.seed)
        accuracy = float(found.accuracy[0])
        if accuracy >= SOLVED:
            good.append((spec, model))
        else:
            others.append((accuracy, spec, model))
        if len(good) == MOST_MODELS:
            break
    if len(good) >= FEWEST:
        return Solved(good, len(good))
    best = sorted(others, key=lambda one: -one[0])[: FEWEST - len(good)]
    return Solved([*good, *((spec, model) for _, spec, model in best)], len(good))


def unless_unsolved(judge: Callable[[Measurement], ClaimVerdict]) -> Callable[[Measurement], ClaimVerdict]:
    """The rule, or inconclusive where hardly any model is solved."""

    @wraps(judge)
    def judged(m: Measurement) -> ClaimVerdict:
        return "inconclusive" if m.numbers["solved models"] < FEWEST else judge(m)

    return judged


def measure_same_symbol(evidence: Evidence, *, variant: str) -> Measurement:
    """Share of solved models in which some head is labelled association: it looks at the same symbol elsewhere."""
    rows: list[list] = [["n", "seed", "head", "label", "association", "95 %", "a"]]
    points, found, maps = [], [], {}
    chosen = solved(evidence, variant)
    for spec, model in chosen.models:
        task = template_task(spec)
        heads = classify_heads(model, task, n=N_READ[evidence.size], seed=evidence.seed)
        kind = heads.kinds.index("association")
        labels = [label for row in heads.label for label in row]
        found.append("association" in labels)
        for (layer, head), score in np.ndenumerate(heads.score[..., kind]):
            a = model.block(layer).attention.a
            value = None if a is None else a[head].item()
            ends = f"[{heads.low[layer, head, kind]:.2f}, {heads.high[layer, head, kind]:.2f}]"
            label = heads.label[layer][head]
            rows.append([n_train(spec), spec.seed, f"{layer}.{head}", label, f"{score:.2f}", ends,
                         None if value is None else f"{value:+.3f}"])  # fmt: skip
            points.append({"layer": f"layer {layer}", "association score": float(score), "a": value or 0.0,
                           "row entropy, 0 to 1": float(heads.entropy[layer, head])})  # fmt: skip
        if len(maps) < 4:
            for head in range(2):
                name = f"n {n_train(spec)}, seed {spec.seed}, head 0.{head}"
                maps[name] = patterns_on([model], _example(task))[0, 0, 0, head].numpy()
    n, hits = len(found), sum(found)
    low, high = proportion_interval(np.array(hits), n)
    first = [one for one in points if one["layer"] == "layer 0"]
    numbers = {
        "solved models": chosen.count,
        "heads of the first layer": len(first),
        "of these, score below 0": sum(one["association score"] < 0 for one in first),
    }
    if variant == A:
        numbers["of these, a below 0"] = sum(one["a"] < 0 for one in first)
    return Measurement(
        value=hits / n, low=float(low), high=float(high), n=n, unit="solved models", numbers=numbers,
        tables=[("Every head", rows)],
        charts=[_score_chart(points, variant, n),
                small_maps(maps, tokens=["x", "y", "x", "C"], title="first layer on an unseen x y x (C: [CLS])")],
        note="An association score of 0 is chance, 1 all attention on the same symbol elsewhere; below 0 the head "
        "looks away from it.",
    )  # fmt: skip


def _example(task: Template) -> TemplateBatch:
    """A string x y x of the first two test symbols."""
    first = task.d_vocab - len(task.alphabet("test"))
    return task.fill(torch.tensor([0]), torch.tensor([[first, first + 1]]))


def _score_chart(points: list[dict], variant: str, n: int):
    """Association scores of all heads: over a, or over the entropy of their rows where there is no a."""
    across = "a" if variant == A else "row entropy, 0 to 1"
    title = f"{variant}: association score of every head, n = {n} models"
    return scatter(pd.DataFrame(points), x=across, y="association score", series="layer", title=title)


def measure_identity_used(evidence: Evidence) -> Measurement:
    """Accuracy on unseen symbols that solved models lose when their scalars a are set to 0."""
    rows: list[list] = [["model", "n", "seed", "accuracy", "a = 0", "|a|, mean"]]
    points, lost = [], []
    chosen = solved(evidence, A)
    for index, (spec, model) in enumerate(chosen.models, start=1):
        without = copy.deepcopy(model)
        scalars = [block.attention.a for block in without.stored_blocks if block.attention.a is not None]
        size = torch.cat([*scalars]).abs().mean().item()
        with torch.no_grad():
            for a in scalars:
                a.zero_()
        found = {
            name: evaluate(one, template_task(spec), n=N_READ[evidence.size], seed=evidence.seed)
            for name, one in (("a as learned", model), ("a = 0", without))
        }
        before, after = (float(one.accuracy[0]) for one in found.values())
        rows.append([index, n_train(spec), spec.seed, f"{before:.3f}", f"{after:.3f}", f"{size:.3f}"])
        lost.append(before - after)
        points += [
            {"model": str(index), "accuracy": one.accuracy[0], "low": one.low[0], "high": one.high[0], "with": name}
            for name, one in found.items()
        ]
    mean, low, high = t_interval(np.array(lost))
    return Measurement(
        value=mean, low=low, high=high, n=len(lost), unit="solved models", numbers={"solved models": chosen.count},
        tables=[("Accuracy on unseen symbols", rows)],
        charts=[dots(pd.DataFrame(points), x="model", y="accuracy", series="with", rule=0.5,
                     title=f"{N_READ[evidence.size]} unseen strings per point")],
    )  # fmt: skip


def judge_used(m: Measurement) -> ClaimVerdict:
    """A clear loss."""
    return above(m, BAR)


def measure_agreement(evidence: Evidence) -> Measurement:
    """Rank correlation over heads: the association score's distance from 0, and the accuracy lost without the head."""
    score, lost, rows = [], [], []
    found_by = {variant: solved(evidence, variant) for variant in GROUPS}
    for variant, chosen in found_by.items():
        for spec, model in chosen.models:
            task = template_task(spec)
            heads = classify_heads(model, task, n=N_READ[evidence.size], seed=evidence.seed)
            kind = heads.kinds.index("association")
            found = ablate_heads(model, task, method="mean", n=N_READ[evidence.size], seed=evidence.seed)
            for index, (layer, head) in enumerate(np.ndindex(heads.score.shape[:2])):
                score.append(abs(float(heads.score[layer, head, kind])))
                lost.append(float(found.drop[index, 0]))
                rows.append({"score's distance from 0": score[-1], "accuracy lost": lost[-1],
                             "models": f"{variant}, layer {layer}"})  # fmt: skip
    value, low, high = correlation(np.array(score), np.array(lost), seed=evidence.seed)
    within = {}
    for variant in GROUPS:
        part = [row for row in rows if row["models"].startswith(f"{variant}, ")]
        columns = (np.array([row[name] for row in part]) for name in ("score's distance from 0", "accuracy lost"))
        within[variant] = [round(one, 3) for one in correlation(*columns, seed=evidence.seed)]
    return Measurement(
        value=value, low=low, high=high, n=len(score), unit="heads",
        numbers={"solved models": sum(chosen.count for chosen in found_by.values()),
                 "within each kind of model, and its interval": within},
        charts=[scatter(pd.DataFrame(rows), x="score's distance from 0", y="accuracy lost", series="models",
                        title=f"heads of solved models set to their mean, n = {len(score)} heads")],
        note="Heads of both kinds of model are pooled, as the rule says; within each kind see below. Heads of one "
        "model are not independent: the bootstrap over heads makes the interval too narrow rather than too wide.",
    )  # fmt: skip


def judge_agreement(m: Measurement) -> ClaimVerdict:
    """A positive correlation."""
    return above(m, 0)


def measure_where_readable(evidence: Evidence, *, variant: str) -> Measurement:
    """Accuracy of linear probes at [CLS] after the first layer: which template is it, on unseen symbols?"""
    rows: list[list] = [
        ["model", "n", "seed", "after embedding", "after layer 1", "after layer 2", "untrained, layer 2"]
    ]
    points, first, last = [], [], []
    chosen = solved(evidence, variant)
    for index, (spec, model) in enumerate(chosen.models, start=1):
        result = probe(model, template_task(spec), label="label", n_train=600, n_test=600, seed=evidence.seed)
        where = {"embedding": 0, "after layer 1": 1, "after layer 2": -1}
        cells = result.accuracy[:, 0]
        rows.append([index, n_train(spec), spec.seed, *(f"{cells[i]:.3f}" for i in where.values()),
                     f"{result.untrained[-1, 0]:.3f}"])  # fmt: skip
        first.append(float(cells[1]))
        last.append(float(cells[-1]))
        points += [
            {"model": str(index), "probe accuracy": cells[i], "low": result.low[i, 0], "high": result.high[i, 0],
             "where": name}
            for name, i in where.items()
        ]  # fmt: skip
    mean, low, high = t_interval(np.array(first))
    return Measurement(
        value=mean, low=low, high=high, n=len(first), unit="solved models",
        numbers={"solved models": chosen.count, "mean after the last layer": float(np.mean(last))},
        tables=[("Probes at [CLS], fitted on validation symbols, scored on test symbols", rows)],
        charts=[dots(pd.DataFrame(points), x="model", y="probe accuracy", series="where", rule=0.5,
                     title="which template, read at [CLS] on unseen symbols; 600 strings per point")],
    )  # fmt: skip


def judge_not_yet(m: Measurement) -> ClaimVerdict:
    """Not readable after the first layer, readable after the last."""
    if m.numbers["mean after the last layer"] < SOLVED:
        return "inconclusive"
    return below(m, 0.75)


def _looking_claim(name: str, variant: str, models: str) -> Claim:
    return Claim(
        id=name, source="template paper, Section 5 (why a I helps), Figure 7",
        statement=f"Solved models {models} have heads that look at the same symbol elsewhere.",
        rule="Share of solved models with a head labelled association (interp.classify_heads, kind same_symbol): "
        "reproduced if its exact interval lies above one half, not reproduced if below, else inconclusive.",
        quantity="share of solved models", measure=partial(measure_same_symbol, variant=variant),
        judge=unless_unsolved(more_than_half), needs=(GROUPS[variant],),
    )  # fmt: skip


def _readable_claim(name: str, variant: str, models: str) -> Claim:
    return Claim(
        id=name, source="ours",
        statement=f"Equality is found among the symbols first and read by [CLS] later: in solved models {models} the "
        "template cannot be read at [CLS] after the first layer.",
        rule=f"Mean probe accuracy at [CLS] after the first layer: reproduced if its interval over models lies below "
        f"0.75, not reproduced if above, else inconclusive; also inconclusive if less than {SOLVED} is read after the "
        "last layer.",
        quantity="probe accuracy after layer 1", measure=partial(measure_where_readable, variant=variant),
        judge=unless_unsolved(judge_not_yet), needs=(GROUPS[variant],),
    )  # fmt: skip


CLAIMS = (
    _looking_claim("heads.same-symbol.identity", A, "with a I"),
    _looking_claim("heads.same-symbol.plain", PLAIN, "without a I"),
    Claim(
        id="heads.identity-used", source="ours, the causal half of Section 5",
        statement="Solved models with a I work by it.",
        rule=f"Accuracy on unseen symbols lost when every a is set to 0: reproduced if the interval over models lies "
        f"above {BAR}, not reproduced if below, else inconclusive.",
        quantity="accuracy lost", measure=measure_identity_used, judge=unless_unsolved(judge_used), needs=(GROUPS[A],),
    ),
    Claim(
        id="heads.ablation-agrees", source="ours",
        statement="The heads whose attention depends most on equality are those that models need most.",
        rule="Spearman correlation over the heads of all solved models, of the association score's distance from 0 "
        "with the accuracy lost when the head is set to its mean: reproduced if the bootstrap interval lies above 0, "
        "not reproduced if below, else inconclusive.",
        quantity="rank correlation", measure=measure_agreement, judge=unless_unsolved(judge_agreement),
        needs=tuple(GROUPS.values()),
    ),
    _readable_claim("probes.identity", A, "with a I"),
    _readable_claim("probes.plain", PLAIN, "without a I"),
)  # fmt: skip
