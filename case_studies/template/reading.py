"""Claims about solved models: heads, ablations, probes, and diagonals of the weight products (ours; Figure 7)."""

import copy
from collections.abc import Callable
from functools import partial

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
    proportion,
    t_interval,
)
from case_studies.frame.evidence import Evidence, ModelSpec
from case_studies.frame.template_models import PLAIN, A
from case_studies.template.measures import SOLVED, n_train, template_task
from hooks import Transformer, make_model
from interp.core.activations import patterns_on
from interp.evaluation.evaluate import evaluate
from interp.heads.ablate import ablate_heads
from interp.heads.classify import classify_heads
from interp.heads.diagonals import diagonals
from interp.probing.probe import probe
from interp.tasks import Template, TemplateBatch
from interp.view.charts import dots
from interp.view.points import scatter, small_maps

N_READ = {"quick": 200, "standard": 500, "paper": 500}
"""Strings per analysis."""
MOST_MODELS, FEWEST = 12, 2
"""Most solved models that are analysed, those with the most training strings first; and the fewest that are judged."""
GROUPS = {A: f"aba-abb {A}", PLAIN: f"aba-abb {PLAIN}"}
BAR = 0.1
"""Accuracy that solved models must lose with a = 0 before they count as using a I."""
DISTANCE = "score's distance from 0"


def solved(evidence: Evidence, variant: str) -> tuple[list[tuple[ModelSpec, Transformer]], int]:
    """The models of a variant that are right on unseen validation symbols, largest n first, and their number.

    At most `MOST_MODELS`. With fewer than two, the most accurate others are added, shown and not judged.
    """
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
    missing = max(FEWEST - len(good), 0)
    best = sorted(others, key=lambda one: -one[0])[:missing]
    return [*good, *((spec, model) for _, spec, model in best)], len(good)


def judge_solved(m: Measurement, judge: Callable[[Measurement], ClaimVerdict]) -> ClaimVerdict:
    """The rule `judge`; inconclusive with fewer than `FEWEST` solved models."""
    return "inconclusive" if m.numbers["solved models"] < FEWEST else judge(m)


def measure_same_symbol(evidence: Evidence, *, variant: str) -> Measurement:
    """Share of solved models with a head labelled association: it attends to the same symbol elsewhere."""
    rows: list[list] = [["n", "seed", "head", "label", "association", "95 %", "a"]]
    points, found, maps = [], [], {}
    models, count = solved(evidence, variant)
    for spec, model in models:
        task = template_task(spec)
        heads = classify_heads(model, task, n=N_READ[evidence.size], seed=evidence.seed)
        kind = heads.kinds.index("association")
        found.append(any("association" in labels for labels in heads.label))
        for (layer, head), score in np.ndenumerate(heads.score[..., kind]):
            scalars = model.block(layer).attention.a
            a = None if scalars is None else scalars[head].item()
            ends = f"[{heads.low[layer, head, kind]:.2f}, {heads.high[layer, head, kind]:.2f}]"
            rows.append([n_train(spec), spec.seed, f"{layer}.{head}", heads.label[layer][head], f"{score:.2f}", ends,
                         None if a is None else f"{a:+.3f}"])  # fmt: skip
            points.append({"layer": f"layer {layer}", "association score": float(score), "a": a or 0.0,
                           "row entropy, 0 to 1": float(heads.entropy[layer, head])})  # fmt: skip
        if len(maps) < 4:
            for head in range(2):
                name = f"n {n_train(spec)}, seed {spec.seed}, head 0.{head}"
                maps[name] = patterns_on([model], _example(task))[0, 0, 0, head].numpy()
    value, low, high = proportion(sum(found), len(found))
    first = [one for one in points if one["layer"] == "layer 0"]
    numbers = {
        "solved models": count,
        "heads of the first layer": len(first),
        "of these, score below 0": sum(one["association score"] < 0 for one in first),
    }
    if variant == A:
        numbers["of these, a below 0"] = sum(one["a"] < 0 for one in first)
    return Measurement(
        value=value, low=low, high=high, n=len(found), unit="solved models", numbers=numbers,
        tables=[("Every head", rows)],
        charts=[scatter(pd.DataFrame(points), x="a" if variant == A else "row entropy, 0 to 1", y="association score",
                        series="layer", title=f"{variant}: association score of every head, n = {len(found)} models"),
                small_maps(maps, tokens=["x", "y", "x", "C"], title="first layer on an unseen x y x (C: [CLS])")],
        note="An association score of 0 is chance; 1 is all attention on the same symbol elsewhere; below 0 the head "
        "attends to it less than chance.",
    )  # fmt: skip


def _example(task: Template) -> TemplateBatch:
    """A string x y x of the first two test symbols."""
    first = task.d_vocab - len(task.alphabet("test"))
    return task.fill(torch.tensor([0]), torch.tensor([[first, first + 1]]))


def measure_identity_used(evidence: Evidence) -> Measurement:
    """Accuracy on unseen symbols that solved models lose when their scalars a are set to 0."""
    rows: list[list] = [["model", "n", "seed", "accuracy", "a = 0", "|a|, mean"]]
    points, lost = [], []
    n, (models, count) = N_READ[evidence.size], solved(evidence, A)
    for index, (spec, model) in enumerate(models, start=1):
        without = copy.deepcopy(model)
        scalars = [block.attention.a for block in without.stored_blocks if block.attention.a is not None]
        size = torch.cat([*scalars]).abs().mean().item()
        with torch.no_grad():
            for a in scalars:
                a.zero_()
        found = {
            name: evaluate(one, template_task(spec), n=n, seed=evidence.seed)
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
        value=mean, low=low, high=high, n=len(lost), unit="solved models", numbers={"solved models": count},
        tables=[("Accuracy on unseen symbols", rows)],
        charts=[dots(pd.DataFrame(points), x="model", y="accuracy", series="with", rule=0.5,
                     title=f"{n} unseen strings per point")],
    )  # fmt: skip


def measure_agreement(evidence: Evidence) -> Measurement:
    """Rank correlation over heads: distance of the association score from 0, and accuracy lost by ablating the head."""
    rows, within, count, n = [], {}, 0, N_READ[evidence.size]
    for variant in GROUPS:
        start, (models, n_solved) = len(rows), solved(evidence, variant)
        for spec, model in models:
            task = template_task(spec)
            heads = classify_heads(model, task, n=n, seed=evidence.seed)
            found = ablate_heads(model, task, method="mean", n=n, seed=evidence.seed)
            scores = heads.score[..., heads.kinds.index("association")]
            for index, ((layer, _), score) in enumerate(np.ndenumerate(scores)):
                rows.append({DISTANCE: abs(float(score)), "accuracy lost": float(found.drop[index, 0]),
                             "models": f"{variant}, layer {layer}"})  # fmt: skip
        within[variant] = [round(end, 3) for end in _agreement(rows[start:], evidence.seed)]
        count += n_solved
    value, low, high = _agreement(rows, evidence.seed)
    return Measurement(
        value=value, low=low, high=high, n=len(rows), unit="heads",
        numbers={"solved models": count, "within each kind of model, and its interval": within},
        charts=[scatter(pd.DataFrame(rows), x=DISTANCE, y="accuracy lost", series="models",
                        title=f"mean ablation of heads of solved models, n = {len(rows)} heads")],
        note="The heads of both kinds of models are pooled, as the rule says; the correlation within each kind is "
        "below. Heads of one model are not independent, so the bootstrap over heads makes the interval too narrow.",
    )  # fmt: skip


def _agreement(rows: list[dict], seed: int) -> tuple[float, float, float]:
    distance, lost = (np.array([row[name] for row in rows]) for name in (DISTANCE, "accuracy lost"))
    return correlation(distance, lost, seed=seed)


def measure_where_readable(evidence: Evidence, *, variant: str) -> Measurement:
    """Accuracy of linear probes for the template at [CLS] after the first layer, on unseen symbols."""
    rows: list[list] = [
        ["model", "n", "seed", "after embedding", "after layer 1", "after layer 2", "untrained, layer 2"]
    ]
    where = {"embedding": 0, "after layer 1": 1, "after layer 2": -1}
    points, first, last = [], [], []
    models, count = solved(evidence, variant)
    for index, (spec, model) in enumerate(models, start=1):
        result = probe(model, template_task(spec), label="label", n_train=600, n_test=600, seed=evidence.seed)
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
        numbers={"solved models": count, "mean after the last layer": float(np.mean(last))},
        tables=[("Probes at [CLS], fitted on validation symbols, scored on test symbols", rows)],
        charts=[dots(pd.DataFrame(points), x="model", y="probe accuracy", series="where", rule=0.5,
                     title="probes for the template at [CLS], unseen symbols; 600 strings per point")],
    )  # fmt: skip


def judge_not_yet(m: Measurement) -> ClaimVerdict:
    """Not readable after the first layer; inconclusive if not readable after the last."""
    return "inconclusive" if m.numbers["mean after the last layer"] < SOLVED else below(m, 0.75)


def measure_diagonals(evidence: Evidence, *, variant: str, matrix: int) -> Measurement:
    """Share of solved models with a strong positive diagonal in some head's matrix; untrained models as a control."""
    rows: list[list] = [["n", "seed", "head", "cosine with I", "z", "p, Holm", "scalar", "untrained cosine"]]
    models, count = solved(evidence, variant)
    results, strong, untrained_strong = [], [], []
    for spec, model in models:
        found = diagonals(model, seed=evidence.seed)
        untrained = diagonals(make_model(spec.config, seed=spec.seed), seed=evidence.seed)
        strong.append(bool(found.heads(matrix)))
        untrained_strong.append(bool(untrained.heads(matrix)))
        results.append(found)
        for layer, head in np.ndindex(found.cosine.shape[:2]):
            at = (layer, head, matrix)
            numbers = [f"{found.cosine[at]:+.3f}", f"{found.z[at]:+.1f}", f"{found.p_holm[at]:.3g}"]
            cosine = f"{untrained.cosine[at]:+.3f}"
            rows.append([n_train(spec), spec.seed, f"{layer}.{head}", *numbers, f"{found.scalar[at]:+.3f}", cosine])
    value, low, high = proportion(sum(strong), len(strong))
    return Measurement(
        value=value, low=low, high=high, n=len(strong), unit="solved models",
        numbers={"solved models": count, "the same share before training": float(np.mean(untrained_strong)),
                 "null sd of the cosine": results[0].null_sd, "largest cosine of that rank": results[0].largest},
        tables=[("Every head", rows)], charts=[results[0].plot()],
        note="Strong: the cosine is in the upper tail among random matrices with the same singular values, Holm over "
        "heads and matrices, at 0.01. The chart shows the first model of the table.",
    )  # fmt: skip


def _claim(name: str, variants: tuple[str, ...], judge: Callable[[Measurement], ClaimVerdict], **fields) -> Claim:
    needs = tuple(GROUPS[variant] for variant in variants)
    return Claim(id=name, judge=partial(judge_solved, judge=judge), needs=needs, **fields)


def _looking_claim(name: str, variant: str, models: str) -> Claim:
    return _claim(
        name, (variant,), more_than_half, source="template paper, Section 5 (why a I helps), Figure 7",
        statement=f"Solved models {models} have heads that attend to the same symbol elsewhere.",
        rule="Share of solved models with a head labelled association (interp.classify_heads, kind same_symbol): "
        "reproduced if its exact interval is above one half, not reproduced if below, else inconclusive.",
        quantity="share of solved models", measure=partial(measure_same_symbol, variant=variant),
    )  # fmt: skip


def _readable_claim(name: str, variant: str, models: str) -> Claim:
    return _claim(
        name, (variant,), judge_not_yet, source="ours",
        statement="Equality is computed between the symbols first and read by [CLS] later: in solved models "
        f"{models} the template cannot be read at [CLS] after the first layer.",
        rule="Mean probe accuracy at [CLS] after the first layer: reproduced if its interval over models is below "
        f"0.75, not reproduced if above, else inconclusive; also inconclusive if it is less than {SOLVED} after the "
        "last layer.",
        quantity="probe accuracy after layer 1", measure=partial(measure_where_readable, variant=variant),
    )  # fmt: skip


def _diagonal_claim(name: str, variant: str, matrix: int, which: str, models: str) -> Claim:
    return _claim(
        name, (variant,), more_than_half, source="template paper, Figure 7, on our models",
        statement=f"Training makes the diagonal of {which} strong in some head: solved models {models}.",
        rule="Share of solved models with a head whose diagonal is strong (interp.diagonals): reproduced if its exact "
        "interval is above one half, not reproduced if below, else inconclusive. The paper examines a pretrained "
        "GPT-2.",
        quantity="share of solved models", measure=partial(measure_diagonals, variant=variant, matrix=matrix),
    )  # fmt: skip


CLAIMS = (
    _looking_claim("heads.same-symbol.identity", A, "with a I"),
    _looking_claim("heads.same-symbol.plain", PLAIN, "without a I"),
    _claim(
        "heads.identity-used", (A,), partial(above, bar=BAR), source="ours, the causal half of Section 5",
        statement="Solved models with a I depend on it.",
        rule="Accuracy on unseen symbols lost when every a is set to 0: reproduced if the interval over models is "
        f"above {BAR}, not reproduced if below, else inconclusive.",
        quantity="accuracy lost", measure=measure_identity_used,
    ),
    _claim(
        "heads.ablation-agrees", tuple(GROUPS), partial(above, bar=0), source="ours",
        statement="The heads whose attention depends most on equality are those that models need most.",
        rule="Spearman correlation over the heads of all solved models, of the association score's distance from 0 "
        "with the accuracy lost when the head is set to its mean: reproduced if the bootstrap interval is above 0, "
        "not reproduced if below, else inconclusive.",
        quantity="rank correlation", measure=measure_agreement,
    ),
    _readable_claim("probes.identity", A, "with a I"),
    _readable_claim("probes.plain", PLAIN, "without a I"),
    _diagonal_claim("diagonals.query-key", PLAIN, 0, "W_K W_Q^T", "without a I"),
    _diagonal_claim("diagonals.value-output", PLAIN, 1, "W_V W_O^T", "without a I"),
    _diagonal_claim("diagonals.query-key.identity", A, 0, "W_K W_Q^T", "with a I, which is added to it"),
)  # fmt: skip
