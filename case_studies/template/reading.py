"""Claims about solved models: use of a I, probes, and diagonals of the weight products (ours; Figure 7)."""

import copy
from functools import partial

import numpy as np
import pandas as pd
import torch

from case_studies.frame.claims import DIFFERENCE, SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AtLeast, Below, Conditional, Number, Rule
from case_studies.recipes.intervals import interval_columns
from case_studies.recipes.judges import Mean, PairedDifference, Share
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

LEARNED_A, WITHOUT_A = "a as learned", "a = 0"
FIRST_LAYER, LAST_LAYER = "after layer 1", "after layer 2"
STRONG, UNTRAINED = "a head is strong", "a head is strong before training"
N_PROBED = 600
"""Strings on which a probe is fitted, and on which it is scored."""
BAR = 0.1
"""Accuracy that solved models must lose with a = 0 before they count as using a I."""


def measure_identity_used(evidence: Evidence) -> Readings:
    """Accuracy on unseen symbols of solved models, and of the same models with their scalars a set to 0."""
    rows, points = [], []
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
        accuracies = {
            name: evaluate(variant_model, template_task(spec), n=n, seed=evidence.seed).accuracy[0]
            for name, variant_model in ((LEARNED_A, model), (WITHOUT_A, without))
        }
        rows.append(
            {
                "model": index,
                "n": n_train(spec),
                "seed": spec.seed,
                **{name: float(accuracy) for name, accuracy in accuracies.items()},
                "|a|, mean": size,
                "strings": n,
            }
        )
        points += [
            {"model": str(index), **interval_columns(accuracy, "accuracy"), "with": name}
            for name, accuracy in accuracies.items()
        ]
    return Readings(
        frame=pd.DataFrame(rows),
        title="Accuracy on unseen symbols",
        numbers={"solved models": count},
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


def measure_where_readable(evidence: Evidence, *, variant: str) -> Readings:
    """Accuracy of linear probes for the template at [CLS], on unseen symbols, after every layer."""
    readings = {"after embedding": 0, FIRST_LAYER: 1, LAST_LAYER: -1}
    rows, points = [], []
    models, count = solved(evidence, GROUPS[variant])
    # Probe accuracy by layer; that after the first is judged, that of an untrained model is a control
    for index, (spec, model) in enumerate(models, start=1):
        result = probe(model, template_task(spec), label="label", n_train=N_PROBED, n_test=N_PROBED, seed=evidence.seed)
        cells = {name: result.accuracy[layer, 0] for name, layer in readings.items()}
        row = {"model": index, "n": n_train(spec), "seed": spec.seed}
        control = float(result.untrained[-1, 0])
        rows.append(row | {name: float(cell) for name, cell in cells.items()} | {"untrained, layer 2": control})
        points += [
            {"model": str(index), **interval_columns(cell, "probe accuracy"), "where": name}
            for name, cell in cells.items()
        ]
    frame = pd.DataFrame(rows)
    return Readings(
        frame=frame,
        title="Probes at [CLS], fitted on validation symbols, scored on test symbols",
        numbers={"solved models": count, "mean after the last layer": frame[LAST_LAYER].mean()},
        charts=[
            dots(
                pd.DataFrame(points),
                x="model",
                y="probe accuracy",
                series="where",
                rule=0.5,
                title=f"probes for the template at [CLS], unseen symbols; {N_PROBED} strings per point",
            )
        ],
    )


def measure_strong_diagonals(evidence: Evidence, *, group: str, matrix: int, accuracy: float = SOLVED) -> Readings:
    """Whether a solved model has a strong positive diagonal in some head's matrix, one row a model."""
    rows, of_heads, results = [], [], []
    models, count = solved(evidence, group, accuracy=accuracy)
    for spec, model in models:
        # The same statistic before training is the control
        learned = diagonals(model, seed=evidence.seed)
        untrained = diagonals(make_model(spec.config, seed=spec.seed), seed=evidence.seed)
        results.append(learned)
        names = {"n": n_train(spec), "width": spec.config.d_model, "seed": spec.seed}
        rows.append(names | {STRONG: bool(learned.heads(matrix)), UNTRAINED: bool(untrained.heads(matrix))})
        for layer, head in np.ndindex(learned.cosine.shape[:2]):
            cell = (layer, head, matrix)
            of_heads.append(
                {
                    **names,
                    "head": f"{layer}.{head}",
                    "cosine with I": learned.cosine[cell],
                    "z": learned.z[cell],
                    "p, Holm": learned.p_holm[cell],
                    "scalar": learned.scalar[cell],
                    "untrained cosine": untrained.cosine[cell],
                }
            )
    frame = pd.DataFrame(rows)
    return Readings(
        frame=frame,
        numbers={
            "solved models": count,
            "the same share before training": frame[UNTRAINED].mean(),
            "null sd of the cosine": results[0].null_sd,
            "largest cosine of that rank": results[0].largest,
        },
        tables=[("Every head", pd.DataFrame(of_heads))],
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
        judged=Mean(FIRST_LAYER, unit="solved models", resolution=1 / N_PROBED),
    )


HAS_STRONG = Share(STRONG, unit="solved models")


def _diagonal_claim(name: str, variant: str) -> Claim:
    return _claim(
        name,
        GROUPS[variant],
        Above(0.5),
        method="Share of solved models with a head whose diagonal is strong (interp.diagonals), exact interval",
        quantity="share of solved models",
        value_range=SHARE,
        measure=partial(measure_strong_diagonals, group=GROUPS[variant], matrix=0),
        judged=HAS_STRONG,
    )


CLAIMS = (
    _claim(
        "heads.identity-used",
        GROUPS[A],
        Above(BAR),
        method="Accuracy on unseen symbols lost when every a is set to 0, t interval over models",
        quantity="accuracy lost",
        value_range=DIFFERENCE,
        measure=measure_identity_used,
        judged=PairedDifference(LEARNED_A, WITHOUT_A, unit="solved models", share_of="strings"),
    ),
    _readable_claim("probes.identity", A, "with a I"),
    _diagonal_claim("diagonals.query-key", PLAIN),
    _diagonal_claim("diagonals.query-key.identity", A),
    _claim(
        "diagonals.value-output.copying",
        f"copy {PLAIN}",
        Above(0.5),
        preregistration=Preregistration(
            "after a result",
            "no strong diagonal in 12 models of aba against abb, where there is nothing to copy. No copying model had "
            "been looked at.",
        ),
        method=f"Share of copying models with an accuracy of at least {COPIED} on unseen symbols that have a head "
        f"whose "
        "diagonal is strong (interp.diagonals), exact interval",
        quantity="share of copying models",
        value_range=SHARE,
        measure=partial(measure_strong_diagonals, group=f"copy {PLAIN}", matrix=1, accuracy=COPIED),
        judged=HAS_STRONG,
        sizes=LARGE_SIZES,
        sizes_reason="At size quick no model copies unseen symbols without b I.",
    ),
)
