"""Which models does the study train? Groups over the number of training strings, rates, widths and seeds, by size.

The training alphabet has as many symbols as there are training strings, as in the paper. All models of a size have the
same budget of steps; the weights kept are those with the lowest loss on validation symbols.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from case_studies.frame.claims import Size
from case_studies.frame.evidence import ModelSpec
from interp.tasks import Template
from interp.tasks.template.families import majority, random_templates
from interp.training.configs import config_for
from interp.training.settings import TrainSettings

PLAIN, A, B, BOTH, MIMETIC = "transformer", "+ a I", "+ b I", "+ a I, b I", "mimetic start"
VARIANTS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    A: {"qk_identity": True},
    B: {"vo_identity": True},
    BOTH: {"qk_identity": True, "vo_identity": True},
    MIMETIC: {"init": "mimetic"},
}
B_RATE = 10.0
"""How much faster b is learned than everything else."""
COPY_RATE = 100.0
"""The same in the copying model, where nothing else than b can carry over to unseen symbols."""
COPY_SEEDS = 3
NETWORKS = {
    "one-hot": "one_hot",
    "one-hot and equality": "one_hot_and_equality",
    "shared embedding": "shared_embedding",
}
LENGTHS = {"quick": (2, 4), "standard": (2, 4, 6, 8), "paper": (2, 4, 6, 8)}
"""Lengths of majority."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What a size can carry."""

    sizes: Mapping[str, int]
    """Of the transformers."""
    steps: int
    batch_size: int
    learning_rate: float
    seeds: int
    """Of what is compared in pairs, with a I and without."""
    fewer_seeds: int
    """Of everything else."""
    grid: Sequence[int]
    """Training strings of aba against abb."""
    controlled: Sequence[int]
    """Where the plain transformer is given other learning rates too."""
    rates: Sequence[float]
    """Those rates."""
    mimetic: Sequence[int]
    same_different: Sequence[int]
    programs: Sequence[int]
    majority: Sequence[int]
    copy_widths: Sequence[int]
    copy_grid: Sequence[int]
    """Training strings at which the plain copying model is trained at every width; with b I at the first."""
    networks: Sequence[int]


DOUBLINGS = tuple(2**power for power in range(4, 14))
SCALES: dict[Size, Scale] = {
    "quick": Scale(
        sizes={"d_model": 32, "n_heads": 4, "d_head": 16, "d_mlp": 64},
        steps=300, batch_size=128, learning_rate=2e-3, seeds=4, fewer_seeds=3,
        grid=(128, 256, 512, 1024, 2048), controlled=(256, 512, 1024), rates=(4e-3, 8e-3), mimetic=(128,),
        same_different=(512,), programs=(512,), majority=(1024,), copy_widths=(128, 512, 1024),
        copy_grid=(128,), networks=(512,),
    ),
    "standard": Scale(
        sizes={"d_model": 64, "n_heads": 8, "d_head": 16, "d_mlp": 128},
        steps=500, batch_size=256, learning_rate=1e-3, seeds=5, fewer_seeds=3, grid=DOUBLINGS[2:9],
        controlled=(256, 512, 1024), rates=(3e-3, 1e-2), mimetic=(128, 256, 512), same_different=(256, 512),
        programs=(1024,), majority=(4096,), copy_widths=(64, 128, 256, 512), copy_grid=(128, 512, 2048),
        networks=(512, 2048),
    ),
    "paper": Scale(
        sizes={"d_model": 128, "n_heads": 16, "d_head": 64, "d_mlp": 256},
        steps=1000, batch_size=1024, learning_rate=1e-3, seeds=5, fewer_seeds=5, grid=(4, 8, *DOUBLINGS),
        controlled=DOUBLINGS[3:9], rates=(1e-4, 3e-4, 3e-3), mimetic=(4, 8, *DOUBLINGS),
        same_different=(4, 8, *DOUBLINGS[:9]), programs=(4, 8, *DOUBLINGS), majority=(8, 32, 128, 512, 2048, 8192),
        copy_widths=(64, 128, 256, 512, 1024, 2048, 4096), copy_grid=(8, 16, 32, 64, 128, 256, 512, 1024, 2048),
        networks=(4, 8, *DOUBLINGS),
    ),
}  # fmt: skip
SWEEP_N = 1024
SWEEPS: dict[str, tuple[str, Sequence[int]]] = {
    "depth": ("n_layers", (1, 2, 4)),
    "heads": ("n_heads", (1, 4, 16)),
    "width": ("d_model", (32, 128, 256)),
}
"""What is varied in a sweep: a field of the config, and its values."""
SWEEP_RATES = (1e-3, 3e-3)
RATE_SWEEP = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
TEMPLATE_COUNTS = (2, 4, 8, 15)


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Every group of models at a size; a group that a size does not train is empty."""
    scale, big = SCALES[size], size != "quick"
    found: dict[str, list[ModelSpec]] = {}
    for variant, ns in ((PLAIN, scale.grid), (A, scale.grid), (B, scale.grid if big else ()), (MIMETIC, scale.mimetic)):
        found[f"aba-abb {variant}"] = [
            one for n in ns for one in _models(size, _task("aba_abb", n), variant, fewer=variant == B)
        ]
    found["aba-abb other rates"] = [
        one
        for n in scale.controlled
        for rate in scale.rates
        for one in _models(size, _task("aba_abb", n), PLAIN, rate=rate)
    ]
    for variant in (PLAIN, A):
        for name, ns in (("same-different", scale.same_different), ("programs", scale.programs)):
            task = name.replace("-", "_")
            found[f"{name} {variant}"] = [one for n in ns for one in _models(size, _task(task, n), variant)]
    for variant in (PLAIN, BOTH):
        found[f"majority {variant}"] = [
            one
            for length in LENGTHS[size]
            for n in scale.majority
            for one in _models(size, _task(majority(length), n), variant, fewer=size != "quick")
        ]
    return found | _copying(size) | _networks(size) | _sweeps(size)


def _task(templates: Any, n: int) -> Template:
    return Template(templates=templates, train=n)


def _settings(size: Size, n: int) -> TrainSettings:
    """The same steps for every n; the paper has 1000 epochs, which from 1024 strings on are more."""
    scale = SCALES[size]
    steps = scale.steps * max(1, n // scale.batch_size) if size == "paper" else scale.steps
    return TrainSettings(
        steps=steps,
        batch_size=scale.batch_size,
        learning_rate=scale.learning_rate,
        weight_decay=0.0,
        n_train=n,
        vo_identity_rate=B_RATE,
        keep="best",
        eval_every=max(25, steps // 40),
        n_eval=300,
        checkpoint_every=1000,
    )


def _models(
    size: Size, task: Template, variant: str, *, rate: float | None = None, fewer: bool = False, **sizes: Any
) -> Sequence[ModelSpec]:
    n = task.train if isinstance(task.train, int) else len(task.train)
    settings = _settings(size, n)
    if rate is not None:
        settings = replace(settings, learning_rate=rate)
    config = config_for(task, "template", **{**SCALES[size].sizes, **VARIANTS[variant], **sizes})
    return _seeded(task, config, settings, SCALES[size].fewer_seeds if fewer else SCALES[size].seeds)


def _seeded(task: Template, config: Any, settings: TrainSettings, seeds: int) -> list[ModelSpec]:
    return [ModelSpec(task=task, config=config, settings=settings, seed=seed) for seed in range(seeds)]


def _copying(size: Size) -> dict[str, list[ModelSpec]]:
    """The model that says a symbol again, by width: plain, with b I, and with b I learned no faster than the rest."""
    scale = SCALES[size]
    first = scale.copy_grid[0]

    def specs(widths: Sequence[int], ns: Sequence[int], *, with_b: bool, times: float) -> list[ModelSpec]:
        found = []
        for width in widths:
            for n in ns:
                task = _task("copy", n)
                config = config_for(task, "template_copy", d_model=width, vo_identity=with_b)
                settings = replace(_settings(size, n), learning_rate=1e-3, vo_identity_rate=times)
                found += _seeded(task, config, settings, COPY_SEEDS)
        return found

    return {
        f"copy {PLAIN}": specs(scale.copy_widths, scale.copy_grid, with_b=False, times=1.0),
        f"copy {B}": specs(scale.copy_widths, [first] if size != "paper" else scale.copy_grid, with_b=True,
                           times=COPY_RATE),
        f"copy {B}, same rate": specs(scale.copy_widths[1:2], [first], with_b=True, times=1.0),
    }  # fmt: skip


def _networks(size: Size) -> dict[str, list[ModelSpec]]:
    """Fully connected networks by what they read."""
    found: dict[str, list[ModelSpec]] = {}
    for name, inputs in NETWORKS.items():
        found[f"network {name}"] = []
        for n in SCALES[size].networks:
            task = _task("aba_abb", n)
            settings = replace(_settings(size, n), learning_rate=1e-3)
            config = config_for(task, "fully_connected", inputs=inputs)
            found[f"network {name}"] += _seeded(task, config, settings, SCALES[size].fewer_seeds)
    return found


def _sweeps(size: Size) -> dict[str, list[ModelSpec]]:
    """Depth, heads and width at several rates each, rates by themselves, and random templates by their number."""
    groups = [*(f"sweep {name}" for name in SWEEPS), "sweep learning rate", "random templates"]
    if size == "quick":
        return {name: [] for name in groups}
    task = _task("aba_abb", SWEEP_N)
    found: dict[str, list[ModelSpec]] = {}
    for name, (parameter, values) in SWEEPS.items():
        found[f"sweep {name}"] = [
            one
            for value in values
            for rate in SWEEP_RATES
            for one in _models(size, task, PLAIN, rate=rate, fewer=True, **{parameter: value})
        ]
    found["sweep learning rate"] = [
        one for rate in RATE_SWEEP for one in _models(size, task, PLAIN, rate=rate, fewer=True)
    ]
    found["random templates"] = [
        _models(size, _task(random_templates(count, length=5, n_wildcards=4, seed=draw), SWEEP_N), PLAIN)[0]
        for count in TEMPLATE_COUNTS
        for draw in range(3)
    ]
    return found
