"""Claims about perplexity with a I and b I at the same training budget (Figure 6)."""

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float

from case_studies.frame.claims import Claim
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above
from case_studies.language.models import (
    PLAIN,
    SCALES,
    VARIANTS,
    WITH_IDENTITIES,
    after_larger_models,
)
from case_studies.recipes.intervals import t_interval
from case_studies.recipes.judges import PairedDifference
from interp.core.randomness import derived_generator
from interp.core.statistics import t_half_width
from interp.evaluation.evaluate import score_batch
from interp.sweeps.spec import ModelSpec
from interp.view.charts import curves


def measure_perplexity(evidence: Evidence) -> Readings:
    """Loss per token of the models of both variants, on the same held-out text; one row a seed."""
    # Mean loss of each model over the same windows
    loss = {variant: _losses(evidence, variant) for variant in VARIANTS}
    seeds = [spec.seed for spec in _paired(evidence, PLAIN)]
    means = {_loss_of(variant): losses.mean(1) for variant, losses in loss.items()}
    perplexities = {
        f"perplexity, {variant} [95 % over windows]": [_perplexity(of_seed) for of_seed in losses]
        for variant, losses in loss.items()
    }
    # The learned scalars of the models that have them
    scalars = [{"seed": spec.seed, **_scalars(evidence, spec)} for spec in evidence.specs(WITH_IDENTITIES)]
    return Readings(
        frame=pd.DataFrame({"seed": seeds, **means, **perplexities}),
        title="Loss and perplexity on held-out files",
        numbers={
            "windows per model": loss[PLAIN].shape[1],
            **{f"perplexity, {variant}": float(np.exp(loss[variant].mean())) for variant in VARIANTS},
        },
        tables=[("The learned scalars", pd.DataFrame(scalars))],
        charts=[_curves(evidence)],
        note="Perplexity is the exponential of the mean loss per scored token, on files that no model was trained on. "
        "Both variants have the same text, steps, learning rates and seeds. The text is Python's standard library.",
    )


def _paired(evidence: Evidence, name: str) -> tuple[ModelSpec, ...]:
    """The models of a group of the seeds that both groups have."""
    return evidence.specs(name)[: SCALES[evidence.size].n_pairs]


def _losses(evidence: Evidence, name: str) -> Float[np.ndarray, "seed window"]:
    """Mean loss per token of each window, of the models that are in a pair; the same windows for every model."""
    windows = SCALES[evidence.size].n_windows
    losses = []
    for spec in _paired(evidence, name):
        batch = spec.task.sample(windows, generator=derived_generator(evidence.seed, "perplexity"), split="test")
        score = score_batch(evidence.run(spec).model, spec.task, batch)
        losses.append((score.loss[:, 0] / score.total[:, 0]).double().numpy())
    return np.stack(losses)


def _perplexity(loss: Float[np.ndarray, " window"]) -> str:
    half = float(t_half_width(loss))
    mean = loss.mean()
    return f"{np.exp(mean):.2f} [{np.exp(mean - half):.2f}, {np.exp(mean + half):.2f}]"


def _loss_of(variant: str) -> str:
    return f"nats per token, {variant}"


def _scalars(evidence: Evidence, spec: ModelSpec) -> dict[str, float]:
    state = evidence.run(spec).model.state_dict()
    scalars = {}
    for name in ("a", "b"):
        values = np.concatenate([value.numpy() for key, value in state.items() if key.endswith(f"attention.{name}")])
        scalars |= {f"{name}, mean": values.mean(), f"{name}, least": values.min(), f"{name}, most": values.max()}
    return {name: float(scalar) for name, scalar in scalars.items()}


def _curves(evidence: Evidence) -> alt.TopLevelMixin:
    """Validation loss by step: mean over seeds with its t interval."""
    rows: list[dict] = []
    for variant in VARIANTS:
        runs = [evidence.history(spec) for spec in _paired(evidence, variant)]
        for records in zip(*runs, strict=True):
            losses = np.array([record["validation_loss"][0] for record in records])
            mean, low, high = t_interval(losses).floats()
            point = {"nats per token": mean, "low": low, "high": high}
            rows.append({"steps": records[0]["steps_done"], "model": variant, **point})
    n = len(_paired(evidence, PLAIN))
    title = f"GPT-2, validation loss, mean of {n} seeds, 95 %"
    return curves(pd.DataFrame(rows), x="steps", y="nats per token", series="model", title=title, domain=None)


CLAIMS = (
    Claim(
        id="perplexity.gpt2",
        method="Loss per token of the plain model minus that of the other, on the same held-out text, paired by seed, "
        "t interval",
        rule=Above(0),
        preregistration=after_larger_models("0.017 [-0.015, 0.049], each of the three above 0,"),
        quantity="gain in nats per token",
        measure=measure_perplexity,
        judged=PairedDifference(_loss_of(PLAIN), _loss_of(WITH_IDENTITIES), unit="seeds"),
        needs=tuple(VARIANTS),
    ),
)
