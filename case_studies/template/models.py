"""Models of the template study: groups by training strings, learning rate, width and seed, at each size."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from case_studies.frame.evidence import Size
from case_studies.recipes.seeds import more_seeds, with_seeds
from case_studies.recipes.template_models import (
    A_AND_B,
    MIMETIC,
    PLAIN,
    SCALES,
    A,
    B,
    template_models,
    template_settings,
)
from interp.sweeps.spec import ModelSpec, seeded
from interp.tasks import Template
from interp.tasks.template.families import majority, random_templates
from interp.training.configs import config_for

COPY_RATE = 100.0
"""Learning rate of b in the copying model, relative to the rest: only b can generalise to unseen symbols there."""
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
FURTHER_COPIES, FURTHER_RATES = 8, 15
"""Seeds at size standard of plain copying models by width and n, and of the sweep of learning rates, for claims that
the ordinary number could not decide."""
RATE_SWEEP = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
TEMPLATE_COUNTS = (2, 4, 8, 15)
TEMPLATE_DRAWS = 10
"""Draws of random templates for each count."""
RECURRENT = ("RNN", "LSTM")
FEW, MANY = 1024, 8192
"""Training strings of recurrent networks: where only transformers have a loss below one half in the paper, and where
all have."""
RECURRENT_STEPS = 2000
"""Steps of recurrent networks at size standard: four times those of transformers, since a step is cheap."""
PAIRS, PAIRS_FEW, PAIRS_MANY = f"aabb-abab {PLAIN}", 128, 1024
SYMBOLIC_N = 8192
"""Training strings of programs that print symbols at which the claims are judged."""

PSYCHOMETRIC = {"distribution-of-three": 16384, "match-to-sample": 16384, "matrix-reasoning": 4096}
"""Psychometric tasks of the paper's Appendix, with their training strings; one whose answers are symbols costs more."""
PSYCHOMETRIC_STEPS = 1000
"""Steps on psychometric tasks at size standard: twice those of tasks of two templates."""


def between(variant: str) -> str:
    """The group of a variant's models on aba against abb between the doublings of n."""
    return f"aba-abb {variant}, between doublings"


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Every group of models at a size; empty where the size does not train the group."""
    scale = SCALES[size]
    # Two templates, by the scalars that are added, the start and the learning rate
    groups = {
        f"aba-abb {PLAIN}": template_models(size, "aba_abb", scale.grid),
        f"aba-abb {A}": template_models(size, "aba_abb", scale.grid, A),
        f"aba-abb {B}": template_models(size, "aba_abb", scale.grid, B, seeds=scale.b_seeds),
        f"aba-abb {MIMETIC}": template_models(size, "aba_abb", scale.mimetic, MIMETIC),
        "aba-abb other rates": template_models(size, "aba_abb", scale.controlled, rates=scale.rates),
    }
    for variant, seeds in ((PLAIN, scale.seeds), (A, scale.seeds), (B, scale.b_seeds)):
        groups[between(variant)] = template_models(size, "aba_abb", scale.between, variant, seeds=seeds)
    # Other tasks
    for variant in (PLAIN, A):
        groups[f"same-different {variant}"] = template_models(size, "same_different", scale.same_different, variant)
        groups[f"programs {variant}"] = template_models(size, "programs", scale.programs, variant)
    for variant in (PLAIN, A_AND_B):
        groups[f"majority {variant}"] = [
            spec
            for length in LENGTHS[size]
            for spec in template_models(size, majority(length), scale.majority, variant, seeds=scale.majority_seeds)
        ]
    return groups | _copying(size) | _networks(size) | _sweeps(size) | _recurrent(size) | _further_tasks(size)


def _copying(size: Size) -> dict[str, list[ModelSpec]]:
    """Copying models by width: plain, with b I at a higher learning rate, and with b I at the rate of the rest."""
    scale = SCALES[size]
    first = scale.copy_grid[:1]

    def specs(widths: Sequence[int], ns: Sequence[int], *, with_b: bool, times: float) -> list[ModelSpec]:
        models = []
        for width in widths:
            for n in ns:
                task = Template(templates="copy", train=n)
                config = config_for(task, "template_copy", d_model=width, vo_identity=with_b)
                settings = template_settings(size, n, learning_rate=1e-3, vo_identity_rate=times)
                models += seeded(task, config, settings, scale.copy_seeds)
        return models

    # Models with b I have the whole grid of n at size paper only, else its first n
    grid_with_b = scale.copy_grid if size == "paper" else first
    plain = specs(scale.copy_widths, scale.copy_grid, with_b=False, times=1.0)
    return {
        f"copy {PLAIN}": plain,
        more_seeds(f"copy {PLAIN}"): with_seeds(plain, FURTHER_COPIES, size),
        f"copy {B}": specs(scale.copy_widths, grid_with_b, with_b=True, times=COPY_RATE),
        f"copy {B}, same rate": specs(scale.copy_widths[1:2], first, with_b=True, times=1.0),
    }


def _networks(size: Size) -> dict[str, list[ModelSpec]]:
    """Fully connected networks by their input encoding."""
    groups: dict[str, list[ModelSpec]] = {}
    narrow = {"width": 256} if size == "quick" else {}
    for name, inputs in NETWORKS.items():
        groups[f"network {name}"] = []
        for n in SCALES[size].networks:
            task = Template(templates="aba_abb", train=n)
            config = config_for(task, "fully_connected", inputs=inputs, **narrow)
            settings = template_settings(size, n, learning_rate=1e-3)
            groups[f"network {name}"] += seeded(task, config, settings, SCALES[size].network_seeds)
    return groups


def _sweeps(size: Size) -> dict[str, list[ModelSpec]]:
    """Sweeps of depth, heads and width at two learning rates each, of the learning rate, and of random templates."""
    if size == "quick":
        names = [f"sweep {name}" for name in (*SWEEPS, "learning rate")]
        return {name: [] for name in (*names, "random templates")}
    few = SCALES[size].fewer_seeds
    groups = {
        f"sweep {name}": [
            spec
            for value in values
            for spec in template_models(size, "aba_abb", [SWEEP_N], seeds=few, rates=SWEEP_RATES, **{field: value})
        ]
        for name, (field, values) in SWEEPS.items()
    }
    rates = template_models(size, "aba_abb", [SWEEP_N], seeds=few, rates=RATE_SWEEP)
    groups["sweep learning rate"] = with_seeds(rates, FURTHER_RATES, size)
    # One model for each draw of templates
    groups["random templates"] = []
    for count in TEMPLATE_COUNTS:
        for draw in range(TEMPLATE_DRAWS):
            templates = random_templates(count, length=5, n_wildcards=4, seed=draw)
            groups["random templates"] += template_models(size, templates, [SWEEP_N], seeds=1)
    return groups


def _recurrent(size: Size) -> dict[str, list[ModelSpec]]:
    """Recurrent networks on aba against abb, by cell."""
    groups: dict[str, list[ModelSpec]] = {f"recurrent {cell}": [] for cell in RECURRENT}
    if size == "quick":
        return groups
    for cell in RECURRENT:
        for n in SCALES[size].grid if size == "paper" else (FEW, MANY):
            task = Template(templates="aba_abb", train=n)
            steps = {} if size == "paper" else {"steps": RECURRENT_STEPS}
            settings = replace(template_settings(size, n, eval_every=100), **steps)
            config = config_for(task, cell.lower())
            groups[f"recurrent {cell}"] += seeded(task, config, settings, SCALES[size].network_seeds)
    return groups


def _further_tasks(size: Size) -> dict[str, list[ModelSpec]]:
    """Transformers on aabb against abab, on programs that print symbols, and on psychometric tasks."""
    symbolic = {variant: f"symbolic programs {variant}" for variant in (PLAIN, A_AND_B)}
    psychometric = {name: f"psychometric {name}" for name in PSYCHOMETRIC}
    if size == "quick":
        return {name: [] for name in (PAIRS, *symbolic.values(), *psychometric.values())}
    paper = size == "paper"
    pairs = SCALES[size].grid[:10] if paper else (PAIRS_FEW, PAIRS_MANY)
    groups = {PAIRS: template_models(size, "aabb_abab", pairs)}
    for variant, name in symbolic.items():
        ns = (512, 2048, SYMBOLIC_N, 32768) if paper else (SYMBOLIC_N,)
        groups[name] = template_models(size, "symbolic_programs", ns, variant, seeds=SCALES[size].fewer_seeds)
    for name, group in psychometric.items():
        templates, ns = name.replace("-", "_"), [PSYCHOMETRIC[name]]
        specs = template_models(size, templates, ns, A_AND_B, seeds=SCALES[size].fewer_seeds)
        steps = {} if paper else {"steps": PSYCHOMETRIC_STEPS, "eval_every": 50}
        groups[group] = [replace(spec, settings=replace(spec.settings, **steps)) for spec in specs]
    return groups
