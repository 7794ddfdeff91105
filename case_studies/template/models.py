"""Models of the template study: groups by training strings, learning rate, width and seed, at each size."""

from collections.abc import Mapping, Sequence
from typing import Any

from case_studies.frame.evidence import ModelSpec, Size, seeded
from case_studies.frame.template_models import (
    BOTH,
    MIMETIC,
    PLAIN,
    SCALES,
    A,
    B,
    template_models,
    template_settings,
)
from interp.tasks import Template
from interp.tasks.template.families import majority, random_templates
from interp.training.configs import config_for

COPY_RATE = 100.0
"""Learning rate of b in the copying model, relative to the rest: only b can generalise to unseen symbols there."""
COPY_SEEDS = 3
NETWORKS = {
    "one-hot": "one_hot",
    "one-hot and equality": "one_hot_and_equality",
    "shared embedding": "shared_embedding",
}
LENGTHS = {"quick": (2, 4), "standard": (2, 4, 6, 8), "paper": (2, 4, 6, 8)}
"""Lengths of majority."""
SWEEP_N = 1024
SWEEPS: dict[str, tuple[str, Sequence[Any]]] = {
    "depth": ("n_layers", (1, 2, 4)),
    "heads": ("n_heads", (1, 4, 16)),
    "width": ("d_model", (32, 128, 256)),
}
"""The config field that each sweep varies, and its values."""
SWEEP_RATES = (1e-3, 3e-3)
RATE_SWEEP = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
TEMPLATE_COUNTS = (2, 4, 8, 15)


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Every group of models at a size; empty where the size does not train the group."""
    scale, quick = SCALES[size], size == "quick"
    found = {
        f"aba-abb {PLAIN}": template_models(size, "aba_abb", scale.grid),
        f"aba-abb {A}": template_models(size, "aba_abb", scale.grid, A),
        f"aba-abb {B}": template_models(size, "aba_abb", () if quick else scale.grid, B, seeds=scale.fewer_seeds),
        f"aba-abb {MIMETIC}": template_models(size, "aba_abb", scale.mimetic, MIMETIC),
        "aba-abb other rates": template_models(size, "aba_abb", scale.controlled, rates=scale.rates),
    }
    for variant in (PLAIN, A):
        found[f"same-different {variant}"] = template_models(size, "same_different", scale.same_different, variant)
        found[f"programs {variant}"] = template_models(size, "programs", scale.programs, variant)
    for variant in (PLAIN, BOTH):
        seeds = scale.seeds if quick else scale.fewer_seeds
        found[f"majority {variant}"] = [
            spec
            for length in LENGTHS[size]
            for spec in template_models(size, majority(length), scale.majority, variant, seeds=seeds)
        ]
    return found | _copying(size) | _networks(size) | _sweeps(size)


def _copying(size: Size) -> dict[str, list[ModelSpec]]:
    """Copying models by width: plain, with b I at a higher learning rate, and with b I at the rate of the rest."""
    scale = SCALES[size]
    first = scale.copy_grid[:1]

    def specs(widths: Sequence[int], ns: Sequence[int], *, with_b: bool, times: float) -> list[ModelSpec]:
        found = []
        for width in widths:
            for n in ns:
                task = Template(templates="copy", train=n)
                config = config_for(task, "template_copy", d_model=width, vo_identity=with_b)
                settings = template_settings(size, n, learning_rate=1e-3, vo_identity_rate=times)
                found += seeded(task, config, settings, COPY_SEEDS)
        return found

    return {
        f"copy {PLAIN}": specs(scale.copy_widths, scale.copy_grid, with_b=False, times=1.0),
        f"copy {B}": specs(scale.copy_widths, scale.copy_grid if size == "paper" else first, with_b=True,
                           times=COPY_RATE),
        f"copy {B}, same rate": specs(scale.copy_widths[1:2], first, with_b=True, times=1.0),
    }  # fmt: skip


def _networks(size: Size) -> dict[str, list[ModelSpec]]:
    """Fully connected networks by their input encoding."""
    found: dict[str, list[ModelSpec]] = {}
    for name, inputs in NETWORKS.items():
        found[f"network {name}"] = []
        for n in SCALES[size].networks:
            task = Template(templates="aba_abb", train=n)
            config = config_for(task, "fully_connected", inputs=inputs)
            settings = template_settings(size, n, learning_rate=1e-3)
            found[f"network {name}"] += seeded(task, config, settings, SCALES[size].fewer_seeds)
    return found


def _sweeps(size: Size) -> dict[str, list[ModelSpec]]:
    """Sweeps of depth, heads and width at two learning rates each, of the learning rate, and of random templates."""
    if size == "quick":
        return {name: [] for name in (*(f"sweep {what}" for what in SWEEPS), "sweep learning rate", "random templates")}
    few = SCALES[size].fewer_seeds
    found = {
        f"sweep {name}": [
            spec
            for value in values
            for spec in template_models(size, "aba_abb", [SWEEP_N], seeds=few, rates=SWEEP_RATES, **{field: value})
        ]
        for name, (field, values) in SWEEPS.items()
    }
    found["sweep learning rate"] = template_models(size, "aba_abb", [SWEEP_N], seeds=few, rates=RATE_SWEEP)
    found["random templates"] = [
        spec
        for count in TEMPLATE_COUNTS
        for draw in range(3)
        for spec in template_models(
            size, random_templates(count, length=5, n_wildcards=4, seed=draw), [SWEEP_N], seeds=1
        )
    ]
    return found
