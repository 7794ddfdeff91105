"""Template transformers that more than one study trains, with their scale at each size.

The number of symbols in the training alphabet is the number of training strings, as in the paper. All models of a size
train for the same number of steps; the weights with the lowest loss on validation symbols are kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from case_studies.frame.evidence import Size
from interp.sweeps.spec import ModelSpec, seeded
from interp.tasks import Template
from interp.training.configs import config_for
from interp.training.settings import TrainSettings

PLAIN, A, B, A_AND_B, MIMETIC = "transformer", "+ a I", "+ b I", "+ a I, b I", "mimetic start"
VARIANTS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    A: {"qk_identity": True},
    B: {"vo_identity": True},
    A_AND_B: {"qk_identity": True, "vo_identity": True},
    MIMETIC: {"init": "mimetic"},
}
B_RATE = 10.0
"""Learning rate of b, as a multiple of the learning rate of all other parameters."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Models and grids of one size."""

    sizes: Mapping[str, int]
    """Dimensions of the transformers."""
    steps: int
    batch_size: int
    learning_rate: float
    seeds: int
    """Seeds of variants that are compared in pairs, with and without a I."""
    fewer_seeds: int
    """Seeds of all other models but these."""
    majority_seeds: int
    copy_seeds: int
    network_seeds: int
    b_seeds: int
    """Seeds of transformers with b I on aba against abb."""
    grid: Sequence[int]
    """Training strings of aba against abb."""
    between: Sequence[int]
    """Further training strings, half-way between doublings, where the loss crosses its thresholds."""
    controlled: Sequence[int]
    """Training strings at which the plain transformer is also trained at other learning rates."""
    rates: Sequence[float]
    """Those learning rates."""
    mimetic: Sequence[int]
    same_different: Sequence[int]
    programs: Sequence[int]
    majority: Sequence[int]
    copy_widths: Sequence[int]
    copy_grid: Sequence[int]
    """Training strings of the plain copying model at every width; the model with b I is trained at the first."""
    networks: Sequence[int]


DOUBLINGS = tuple(2**power for power in range(4, 14))
SCALES: dict[Size, Scale] = {
    "quick": Scale(
        sizes={"d_model": 32, "n_heads": 4, "d_head": 16, "d_mlp": 64},
        steps=300, batch_size=128, learning_rate=2e-3, seeds=4, fewer_seeds=3,
        majority_seeds=4, copy_seeds=3, network_seeds=3, b_seeds=0,
        grid=(128, 256, 512, 1024, 2048), between=(), controlled=(256, 512, 1024), rates=(4e-3, 8e-3), mimetic=(128,),
        same_different=(512,), programs=(512,), majority=(1024,), copy_widths=(128, 512, 1024),
        copy_grid=(128,), networks=(512,),
    ),
    "standard": Scale(
        sizes={"d_model": 64, "n_heads": 8, "d_head": 16, "d_mlp": 128},
        steps=500, batch_size=256, learning_rate=1e-3, seeds=5, fewer_seeds=3,
        majority_seeds=6, copy_seeds=5, network_seeds=5, b_seeds=5,
        grid=DOUBLINGS[2:9], between=(181, 362, 724, 1448),
        controlled=(256, 512, 1024), rates=(3e-3, 1e-2), mimetic=(128, 256, 512), same_different=(256, 512, 1024),
        programs=(1024,), majority=(4096,), copy_widths=(64, 128, 256, 512), copy_grid=(128, 512, 2048),
        networks=(512, 2048),
    ),
    "paper": Scale(
        sizes={"d_model": 128, "n_heads": 16, "d_head": 64, "d_mlp": 256},
        steps=1000, batch_size=1024, learning_rate=1e-3, seeds=5, fewer_seeds=5,
        majority_seeds=5, copy_seeds=5, network_seeds=5, b_seeds=5, grid=(4, 8, *DOUBLINGS), between=(),
        controlled=DOUBLINGS[3:9], rates=(1e-4, 3e-4, 3e-3), mimetic=(4, 8, *DOUBLINGS),
        same_different=(4, 8, *DOUBLINGS[:9]), programs=(4, 8, *DOUBLINGS), majority=(8, 32, 128, 512, 2048, 8192),
        copy_widths=(64, 128, 256, 512, 1024, 2048, 4096), copy_grid=(8, 16, 32, 64, 128, 256, 512, 1024, 2048),
        networks=(4, 8, *DOUBLINGS),
    ),
}  # fmt: skip


def template_settings(size: Size, n: int, **changes: Any) -> TrainSettings:
    """The same number of steps for every n; at size paper 1000 epochs, which are more steps from 1024 strings on."""
    scale = SCALES[size]
    steps = scale.steps * max(1, n // scale.batch_size) if size == "paper" else scale.steps
    settings = {
        "learning_rate": scale.learning_rate,
        "weight_decay": 0.0,
        "vo_identity_rate": B_RATE,
        "keep": "best",
        "eval_every": max(25, steps // 40),
        "n_eval": 300,
        "checkpoint_every": 1000,
    }
    return TrainSettings(steps=steps, batch_size=scale.batch_size, n_train=n, **(settings | changes))


def template_models(
    size: Size,
    templates: Any,
    ns: Iterable[int],
    variant: str = PLAIN,
    *,
    seeds: int | None = None,
    rates: Sequence[float | None] = (None,),
    **sizes: Any,
) -> list[ModelSpec]:
    """Transformers for each number of training strings, learning rate and seed.

    Args:
        size: Size of the study.
        templates: Templates of the task, as `Template` takes them.
        ns: Numbers of training strings.
        variant: One of `VARIANTS`.
        seeds: Models per n; default: the seeds of paired variants.
        rates: Learning rates; None is that of the size.
        **sizes: Config fields that differ from the size's.
    """
    scale = SCALES[size]
    n_seeds = scale.seeds if seeds is None else seeds
    specs: list[ModelSpec] = []
    for n in ns:
        task = Template(templates=templates, train=n)
        config = config_for(task, "template", **{**scale.sizes, **VARIANTS[variant], **sizes})
        for rate in rates:
            changes = {} if rate is None else {"learning_rate": rate}
            specs += seeded(task, config, template_settings(size, n, **changes), n_seeds)
    return specs
