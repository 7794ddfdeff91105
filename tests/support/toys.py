"""Toy claims about models trained for two steps."""

from dataclasses import replace

import altair as alt
import numpy as np
import pandas as pd

import interp
from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim, Preregistration
from case_studies.frame.judge import Readings
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above, Value
from case_studies.recipes.judges import Row
from case_studies.study import Study
from hooks import Transformer
from interp.core.randomness import derived_generator
from interp.sweeps.spec import ModelSpec
from interp.tasks import Lego

TASK = Lego(n_vars=2, sentence_format="compact")
CONFIG = interp.config_for(TASK, n_layers=1, d_model=16, n_heads=2)
SETTINGS = interp.TrainSettings(steps=2, batch_size=8, warmup_steps=1, eval_every=1, n_eval=20)
MEASURED = []
"""Names of the measures called in this process."""


def specs(n, first=0, **changes):
    return [
        ModelSpec(task=TASK, config=CONFIG, settings=replace(SETTINGS, **changes), seed=first + i) for i in range(n)
    ]


def groups(size):
    return {"few": specs(2), "more": specs(3), "large": specs(1, batch_size=16)}


def one_row(value, low, high, *, n, **shown):
    """What a measure returns that has one number with its interval; toy claims judge the column `value`."""
    return Readings(frame=pd.DataFrame([{"value": value, "low": low, "high": high, "n": n}]), **shown)


def accuracy(evidence):
    MEASURED.append("accuracy")
    (group,) = evidence.groups
    runs = evidence.runs(group)
    assert all(isinstance(model, Transformer) and not model.training for model in evidence.models(group))
    values = [float(np.mean(run.final_accuracy)) for run in runs]
    table = pd.DataFrame({"seed": range(len(values)), "accuracy": values})
    mean = float(np.mean(values))
    return one_row(
        mean,
        min(values),
        max(*values, mean + 1e-9),  # equal values are an interval too
        n=len(values),
        numbers={"per_seed": np.array(values), "layers": 1},
        table=table,
        title="Accuracy of <every> seed",
        charts=[alt.Chart(table).mark_bar().encode(x="seed:O", y="accuracy:Q")],
        note="Hardly trained.",
    )


def drawn(evidence):
    MEASURED.append("drawn")
    batch = evidence.task("more").sample(50, generator=derived_generator(evidence.seed, "drawn"), split="test")
    mean = float(batch.labels.double().mean())
    return one_row(mean, 0.0, 1.0, n=50)


def constant(evidence):
    MEASURED.append("constant")
    return one_row(0.25, 0.2, 0.3, n=10)


PASSING = Claim(
    id="figure-1.some",
    source="Toy et al., Figure 1",
    statement="It is sometimes <right>.",
    paper="0.97",
    method="Share of right answers, over draws",
    rule=Above(0.1),
    preregistration=BEFORE_ANY_MODEL,
    measure=constant,
    judged=Row("value", unit="draws"),
)
FAILING = Claim(
    id="figure-1.all",
    source="Toy et al., Theorem 2",
    statement="It is always right.",
    method="Mean accuracy, from the worst to the best seed",
    rule=Above(0.99),
    preregistration=Preregistration("after first models", "two models of two steps."),
    measure=accuracy,
    judged=Row("value", unit="seeds"),
    needs=["few"],
)
DRAWN = Claim(
    id="table-3.drawn",
    source="Toy et al., Table 3",
    statement="Labels are balanced.",
    method="Share of labels",
    rule=Value(Above(-1)),
    preregistration=BEFORE_ANY_MODEL,
    measure=drawn,
    judged=Row("value", unit="sentences"),
    needs=("more",),
)
DISTANT = Claim(
    id="table-4.large",
    source="Toy et al., Table 4",
    statement="A large one is right.",
    method="Mean accuracy, from the worst to the best seed",
    rule=Above(0.99),
    preregistration=BEFORE_ANY_MODEL,
    measure=accuracy,
    judged=Row("value", unit="seeds"),
    needs=["large"],
    sizes=["paper"],
    sizes_reason="It takes a GPU.",
)
CLAIMS = (PASSING, FAILING, DRAWN, DISTANT)
STUDY = Study(name="toy", title="Toys & <others>", lead="Nothing is learned.", claims=CLAIMS, groups=groups)


def measured(value=0.0, low=None, high=None, n=8, **numbers):
    """A measurement to judge; without ends its interval is the value."""
    low, high = value if low is None else low, value if high is None else high
    return Measurement(value=value, low=low, high=high, n=n, unit="seeds", numbers=numbers, exact=low == high)


def check_measured(study, result):
    """Check that each claim of size quick was measured, and no other; returns the results by claim id."""
    results = {one.claim.id: one for one in result.claims}
    for claim in study.claims:
        found = results[claim.id]
        if "quick" in claim.sizes:
            assert found.measurement is not None, claim.id
            assert found.measurement.low <= found.measurement.value <= found.measurement.high, claim.id
            assert found.measurement.n >= 1
        else:
            assert (found.label, found.verdict, found.note) == ("not measured", None, claim.sizes_reason)
    return results
