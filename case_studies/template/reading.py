"""Claims about solved models: use of a I, probes, and diagonals of the weight products (ours; Figure 7)."""

import copy
from functools import partial

import numpy as np
import pandas as pd
import torch

from case_studies.frame.claims import DIFFERENCE, SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above, AtLeast, Below, Conditional, Number, Rule
from case_studies.recipes.intervals import proportion, t_interval
from case_studies.recipes.template_models import PLAIN, A
from case_studies.template.copying import COPIED
from case_studies.template.measures import SOLVED, n_train, template_task
from case_studies.template.preregistration import FIRST_MODELS
from case_studies.template.solved import FEWEST, GROUPS, N_READ, solved
from hooks import make_model
from interp.evaluation.evaluate import evaluate
from interp.heads.diagonals import diagonals
from interp.probing.probe import probe
from interp.view.charts import dots

BAR = 0.1
"""Accuracy that solved models must lose with a = 0 before they count as using a I."""


def measure_identity_used(evidence: Evidence) -> Measurement:
    """Accuracy on unseen symbols that solved models lose when their scalars a are set to 0."""
    rows: list[list] = [["model", "n", "seed", "accuracy", "a = 0", "|a|, mean"]]
    points, lost = [], []
    n = N_READ[evidence.size]
    models, count = solved(evidence, GROUPS[A])
    for index, (spec, model) in enumerate(models, start=1):
        # A copy with every a set to 0
        without = copy.deepcopy(model)
        scalars = [block.attention.a for block in without.stored_blocks if block.attention.a is not None]
        size = torch.cat([*scalars]).abs().mean().item()
        with torch.no_grad():
            for a in scalars:
                a.zero_()
        evaluations = {
            name: evaluate(variant_model, template_task(spec), n=n, seed=evidence.seed)
            for name, variant_model in (("a as learned", model), ("a = 0", without))
        }
        before, after = (float(evaluation.accuracy[0]) for evaluation in evaluations.values())
        rows.append([index, n_train(spec), spec.seed, f"{before:.3f}", f"{after:.3f}", f"{size:.3f}"])
        lost.append(before - after)
        points += [
            {"model": str(index), **evaluation.accuracy[0].columns("accuracy"), "with": name}
            for name, evaluation in evaluations.items()
        ]
    interval = t_interval(np.array(lost), resolution=1 / n)
    return Measurement.from_interval(
        interval,
        unit="solved models",
        numbers={"solved models": count},
        tables=[("Accuracy on unseen symbols", rows)],
        charts=[
            dots(
                pd.DataFrame(points),
                x="model",
                y="accuracy",
                series="with",
                rule=0.5,
                title=f"{n} unseen strings per point",
            )
        ],
    )


def measure_where_readable(evidence: Evidence, *, variant: str) -> Measurement:
    """Accuracy of linear probes for the template at [CLS] after the first layer, on unseen symbols."""
    rows: list[list] = [
        ["model", "n", "seed", "after embedding", "after layer 1", "after layer 2", "untrained, layer 2"]
    ]
    readings = {"embedding": 0, "after layer 1": 1, "after layer 2": -1}
    points, first, last = [], [], []
    models, count = solved(evidence, GROUPS[variant])
    # Probe accuracy by layer; that after the first is judged, that of an untrained model is a control
    for index, (spec, model) in enumerate(models, start=1):
        result = probe(model, template_task(spec), label="label", n_train=600, n_test=600, seed=evidence.seed)
        cells = result.accuracy.value[:, 0]
        accuracies = [f"{cells[layer]:.3f}" for layer in readings.values()]
        rows.append([index, n_train(spec), spec.seed, *accuracies, f"{result.untrained[-1, 0]:.3f}"])
        first.append(float(cells[1]))
        last.append(float(cells[-1]))
        for name, layer in readings.items():
            value, low, high = result.accuracy[layer, 0].floats()
            points.append({"model": str(index), "probe accuracy": value, "low": low, "high": high, "where": name})
    interval = t_interval(np.array(first), resolution=1 / 600)
    return Measurement.from_interval(
        interval,
        unit="solved models",
        numbers={"solved models": count, "mean after the last layer": float(np.mean(last))},
        tables=[("Probes at [CLS], fitted on validation symbols, scored on test symbols", rows)],
        charts=[
            dots(
                pd.DataFrame(points),
                x="model",
                y="probe accuracy",
                series="where",
                rule=0.5,
                title="probes for the template at [CLS], unseen symbols; 600 strings per point",
            )
        ],
    )


def measure_strong_diagonals(evidence: Evidence, *, group: str, matrix: int, accuracy: float = SOLVED) -> Measurement:
    """Share of solved models with a strong positive diagonal in some head's matrix; untrained models as a control."""
    rows: list[list] = [["n", "width", "seed", "head", "cosine with I", "z", "p, Holm", "scalar", "untrained cosine"]]
    models, count = solved(evidence, group, accuracy=accuracy)
    results, strong, untrained_strong = [], [], []
    for spec, model in models:
        # The same statistic before training is the control
        learned = diagonals(model, seed=evidence.seed)
        untrained = diagonals(make_model(spec.config, seed=spec.seed), seed=evidence.seed)
        strong.append(bool(learned.heads(matrix)))
        untrained_strong.append(bool(untrained.heads(matrix)))
        results.append(learned)
        for layer, head in np.ndindex(learned.cosine.shape[:2]):
            cell = (layer, head, matrix)
            numbers = [f"{learned.cosine[cell]:+.3f}", f"{learned.z[cell]:+.1f}", f"{learned.p_holm[cell]:.3g}"]
            numbers += [f"{learned.scalar[cell]:+.3f}", f"{untrained.cosine[cell]:+.3f}"]
            rows.append([n_train(spec), spec.config.d_model, spec.seed, f"{layer}.{head}", *numbers])
    interval = proportion(sum(strong), len(strong))
    return Measurement.from_interval(
        interval,
        unit="solved models",
        numbers={
            "solved models": count,
            "the same share before training": float(np.mean(untrained_strong)),
            "null sd of the cosine": results[0].null_sd,
            "largest cosine of that rank": results[0].largest,
        },
        tables=[("Every head", rows)],
        charts=[results[0].plot()],
        note="Strong: the cosine is in the upper tail among random matrices with the same singular values, Holm over "
        "heads and matrices, at 0.01. The chart shows the first model of the table.",
    )


def _claim(name: str, group: str, rule: Rule, *, preregistration: Preregistration = FIRST_MODELS, **fields) -> Claim:
    """A claim about the solved models of a group; inconclusive with fewer than `FEWEST`."""
    enough = Conditional(Number("solved models", AtLeast(FEWEST)), rule)
    return Claim(id=name, rule=enough, preregistration=preregistration, needs=(group,), **fields)


def _readable_claim(name: str, variant: str, models: str) -> Claim:
    return _claim(
        name,
        GROUPS[variant],
        Conditional(Number("mean after the last layer", AtLeast(SOLVED)), Below(0.75)),
        source="ours",
        statement="Equality is computed between the symbols first and read by [CLS] later: in solved models "
        f"{models} the template cannot be read at [CLS] after the first layer.",
        method="Mean probe accuracy at [CLS] after the first layer, t interval over models",
        quantity="probe accuracy after layer 1",
        value_range=SHARE,
        measure=partial(measure_where_readable, variant=variant),
    )


FIGURE_7 = "ours, after Figure 7, which is about a pretrained GPT-2"


def _diagonal_claim(name: str, variant: str, models: str) -> Claim:
    return _claim(
        name,
        GROUPS[variant],
        Above(0.5),
        source=FIGURE_7,
        statement=f"Training makes the diagonal of W_Q W_K^T strong in some head: solved models {models}.",
        method="Share of solved models with a head whose diagonal is strong (interp.diagonals), exact interval",
        quantity="share of solved models",
        value_range=SHARE,
        measure=partial(measure_strong_diagonals, group=GROUPS[variant], matrix=0),
    )


CLAIMS = (
    _claim(
        "heads.identity-used",
        GROUPS[A],
        Above(BAR),
        source="ours, the causal half of the paper's account of why a I helps",
        statement="Solved models with a I depend on it.",
        method="Accuracy on unseen symbols lost when every a is set to 0, t interval over models",
        quantity="accuracy lost",
        value_range=DIFFERENCE,
        measure=measure_identity_used,
    ),
    _readable_claim("probes.identity", A, "with a I"),
    _diagonal_claim("diagonals.query-key", PLAIN, "without a I"),
    _diagonal_claim("diagonals.query-key.identity", A, "with a I, which is added to it"),
    _claim(
        "diagonals.value-output.copying",
        f"copy {PLAIN}",
        Above(0.5),
        source=f"{FIGURE_7}; here one attention layer without b I, trained to copy a symbol",
        preregistration=Preregistration(
            "after a result",
            "no strong diagonal in 12 models of aba against abb, where there is nothing to copy. No copying model had "
            "been looked at.",
        ),
        statement="Training makes the diagonal of W_V W_O strong in some head of models that have learned to copy "
        "unseen symbols.",
        method=f"Share of copying models with an accuracy of at least {COPIED} on unseen symbols that have a head "
        f"whose "
        "diagonal is strong (interp.diagonals), exact interval",
        quantity="share of copying models",
        value_range=SHARE,
        measure=partial(measure_strong_diagonals, group=f"copy {PLAIN}", matrix=1, accuracy=COPIED),
        sizes=LARGE_SIZES,
        sizes_reason="At size quick no model copies unseen symbols without b I.",
    ),
)
