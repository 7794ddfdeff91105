"""Claims about the samples that a I saves, on transformers of the paper's size with the paper's training."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import Evidence, Size
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AtLeast, Conditional, Equal, Number
from case_studies.recipes.judges import Mean
from case_studies.recipes.template_models import PLAIN, SCALES, VARIANTS, A
from case_studies.template.measures import by, loss_chart, scores, thresholds
from interp.sweeps.spec import ModelSpec, seeded
from interp.tasks import Template
from interp.training.configs import config_for
from interp.training.settings import TrainSettings

MAGNITUDE = 3.0
"""Doublings of n that count as an order of magnitude: a factor of 8."""
SEEDS = 5
SAVED = "doublings of n saved"
BATCH, EPOCHS = 1024, 1000
FAST_A = "+ a I, fast a"
"""a I whose scalars learn at `FAST_RATE` times the rate of the other weights."""
FAST_RATE = 10.0
GRIDS: Mapping[str, Sequence[int]] = {
    PLAIN: (16, 32, 64, 128, 256, 512, 1024, 2048),
    A: (16, 32, 64, 128, 256, 512),
    FAST_A: (16, 32, 64, 128, 256, 512),
}
"""Training strings of each variant; with a I the grid ends where the paper's loss has been near zero for long."""
NO_CLIPPING = 1e6
"""A norm that no gradient reaches."""


def of_paper_size(variant: str) -> str:
    """The group of a variant's models of the paper's size."""
    return f"aba-abb {variant}, paper's size"


def paper_training(n: int, *, a_rate: float = 1.0) -> TrainSettings:
    """The paper's training: Adam at 1e-3 for 1000 epochs with batches of 1024, or of all strings if there are fewer.

    The rate is constant and gradients are not clipped. The weights with the lowest loss on 100 strings of validation
    symbols are kept.

    Args:
        n: Training strings.
        a_rate: Learning rate of the scalars a, relative to that of the other weights.

    Differs: the loss on validation symbols is computed at every fifth step, in the paper after every epoch.
    """
    return TrainSettings(
        steps=EPOCHS * max(1, n // BATCH),
        batch_size=BATCH,
        n_train=n,
        learning_rate=1e-3,
        warmup_steps=0,
        decay_share=0.0,
        betas=(0.9, 0.999),
        weight_decay=0.0,
        clip_norm=NO_CLIPPING,
        qk_identity_rate=a_rate,
        keep="best",
        eval_every=5,
        n_eval=100,
        checkpoint_every=100,
    )


def paper_size_groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Models of the paper's size with and without a I, at size standard; of the same seeds, so that they are paired."""
    groups: dict[str, list[ModelSpec]] = {of_paper_size(variant): [] for variant in GRIDS}
    if size != "standard":
        return groups
    for variant, grid in GRIDS.items():
        fields = VARIANTS[PLAIN if variant == PLAIN else A]
        a_rate = FAST_RATE if variant == FAST_A else 1.0
        for n in grid:
            task = Template(templates="aba_abb", train=n)
            config = config_for(task, "template", **{**SCALES["paper"].sizes, **fields})
            groups[of_paper_size(variant)] += seeded(task, config, paper_training(n, a_rate=a_rate), SEEDS)
    return groups


def measure_saved(evidence: Evidence, *, variant: str, level: float) -> Readings:
    """Doublings of n that a variant with a I saves before the loss stays below a level, one row a seed."""
    models = {name: scores(evidence, of_paper_size(name)) for name in (PLAIN, variant)}
    # Smallest n of each seed from which its loss stays below the level
    needed = {name: thresholds(rows, level, lambda row: row.loss) for name, rows in models.items()}
    ns = {name: np.array([n for n, _ in of_seeds]) for name, of_seeds in needed.items()}
    # Seeds that never reach the level, and those where neither model does
    never = {name: sum(not reached for _, reached in of_seeds) for name, of_seeds in needed.items()}
    pairs = zip(needed[PLAIN], needed[variant], strict=True)
    reached_by_either = [plain or with_a for (_, plain), (_, with_a) in pairs]
    frame = pd.DataFrame(
        {
            "seed": list(by(models[PLAIN], lambda row: row.seed)),
            **{f"n, {name}": of_seeds for name, of_seeds in ns.items()},
            SAVED: np.log2(ns[PLAIN] / ns[variant]),
        }
    )
    return Readings(
        frame=frame,
        title=f"Smallest n from which the loss stays below {level}",
        numbers={
            **{f"median n, {name}": float(np.median(n_of_seeds)) for name, n_of_seeds in ns.items()},
            "seeds that never get there": never,
            "seeds where neither does": reached_by_either.count(False),
        },
        charts=[loss_chart(models, figure="aba-abb", title="aba against abb, the paper's size")],
        note=f"A seed whose loss never stays below {level} counts as twice the largest n. n is known to a doubling.",
    )


def _claim(name: str, variant: str, *, level: float, prior_knowledge: str, **fields) -> Claim:
    return Claim(
        id=f"identity.{name}",
        method="Models of the paper's size and training (2 layers, 16 heads, width 128; Adam at 1e-3, 1000 epochs): "
        f"doublings of n saved until the loss stays below {level}, on doublings of n from 16, to 2048 without a I and "
        "to 512 with it; t interval over paired seeds, with the error of the grid of n",
        rule=Conditional(Number("seeds where neither does", Equal(0)), AtLeast(MAGNITUDE)),
        preregistration=Preregistration(
            "after a result",
            "a factor of 4 on models of a twentieth of these weights, and the paper's figure. The rule is that of "
            f"those models. {prior_knowledge}",
        ),
        quantity=SAVED,
        needs=(of_paper_size(PLAIN), of_paper_size(variant)),
        sizes=("standard",),
        sizes_reason="At size quick these models take too long (five hours of one core); at size paper "
        "`identity.samples` has models of this size.",
        measure=partial(measure_saved, variant=variant, level=level),
        judged=Mean(SAVED, unit="seeds", resolution=1.0),
        **fields,
    )


def _claims(name: str, *, level: float) -> tuple[Claim, Claim]:
    """That a I saves an order of magnitude of samples for a loss, at the rate of all weights and at a higher one."""
    return (
        _claim(f"paper-size.{name}", A, level=level, prior_knowledge="No model of this size had been measured."),
        _claim(
            f"paper-size.fast-a.{name}",
            FAST_A,
            level=level,
            prior_knowledge="Validation losses of one other seed had been seen: at n = 32 1.1, and 0.48 with a fast a; "
            "at n = 64 0.14 with a fast a.",
        ),
    )


CLAIMS = (
    *_claims("half", level=0.5),
    *_claims("tenth", level=0.1),
)
