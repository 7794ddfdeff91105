"""Claims about the transformer's kernel: error against n and diversity (Theorem 4.4), and its block structure."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Below, Between
from case_studies.recipes.intervals import interval_columns, t_interval
from case_studies.recipes.judges import Mean
from interp.core.randomness import derived_generator, derived_seed
from interp.tasks import Template
from interp.theory.kernels.kernel_regression import kernel_regression
from interp.theory.kernels.random_features import Kernel, TransformerKernel
from interp.view.charts import scaling_curves

N = {"quick": (32, 64, 128), "standard": (64, 128, 256, 512, 1024), "paper": (64, 128, 256, 512, 1024, 2048)}
SYMBOLS = {"quick": (8, 32, 128), "standard": (8, 16, 32, 64, 128, 256, 512), "paper": (8, 16, 32, 64, 128, 256, 512)}
"""Training symbols of the grid of rho, which is half of them with two wildcards."""
FIXED_N = {"quick": 128, "standard": 512, "paper": 512}
"""Training strings on the grid of rho."""
FIXED_SYMBOLS = 2048
"""Training symbols on the grid of n."""
REGRESSIONS = {"quick": 3, "standard": 10, "paper": 10}
PENALTY = 1e-3
SLOPE = "slope"
FEATURES = {"quick": (256, 512, 1024), "standard": (256, 1024, 4096, 16384), "paper": (256, 1024, 4096, 16384)}
STRINGS, ALPHABET = 32, 8
"""Strings of the block structure and their symbols, so few that strings share some."""


def measure_error(evidence: Evidence, *, grid: str) -> Readings:
    """Slope of log2 of the squared error on unseen symbols per doubling of n or of rho, over draws."""
    # Along one grid the strings vary, along the other the symbols and with them rho
    if grid == "n":
        x = ns = list(N[evidence.size])
        tasks = [Template(templates="aba_abb", train=FIXED_SYMBOLS) for _ in ns]
    else:
        tasks = [Template(templates="aba_abb", train=symbols) for symbols in SYMBOLS[evidence.size]]
        x = [task.diversity() for task in tasks]
        ns = [FIXED_N[evidence.size]] * len(tasks)
    errors = []
    for draw in range(REGRESSIONS[evidence.size]):
        seed = derived_seed(evidence.seed, f"error against {grid}", draw)
        errors.append([_error(task, n, seed) for task, n in zip(tasks, ns, strict=True)])
    return _slopes(np.array(errors), x, grid, "squared error")


def _error(task: Template, n: int, seed: int) -> float:
    kernel = TransformerKernel(activation="relu", seed=seed)
    return float(kernel_regression(task, kernels=[kernel], regularisation=[PENALTY], n=n, seed=seed).mse[0])


def measure_blocks(evidence: Evidence) -> Readings:
    """Slope of log2 of the spread of the kernel within pairs of equal pattern, per doubling of its draws."""
    task = Template(templates="aba_abb", train=ALPHABET)
    generator = derived_generator(evidence.seed, "strings of the blocks")
    strings = task.sample(STRINGS, generator=generator).tokens.numpy()
    spreads = []
    for draw in range(REGRESSIONS[evidence.size]):
        seed = derived_seed(evidence.seed, "blocks", draw)
        kernels = [TransformerKernel(activation="relu", n_draws=count, seed=seed) for count in FEATURES[evidence.size]]
        spreads.append([spread_within(kernel, strings) for kernel in kernels])
    return _slopes(np.array(spreads), list(FEATURES[evidence.size]), "draws", "spread")


def spread_within(kernel: Kernel, strings: Int[np.ndarray, "string pos"]) -> float:
    """Standard deviation of the kernel over pairs of strings with the same pattern of equal tokens.

    The pattern of a pair is which positions of the two strings have equal tokens, within and between them.
    """
    first, second = np.triu_indices(len(strings))
    pairs_of_strings = np.concatenate([strings[first], strings[second]], axis=1)
    equal = (pairs_of_strings[:, :, None] == pairs_of_strings[:, None]).reshape(len(pairs_of_strings), -1)
    _, group = np.unique(equal, axis=0, return_inverse=True)
    # Deviations from the mean of each pattern
    values = kernel.gram(strings)[first, second]
    group = group.ravel()
    sizes = np.bincount(group)
    inside = values - (np.bincount(group, values) / sizes)[group]
    return float(np.sqrt(np.square(inside).sum() / (sizes - 1).sum()))


def _slopes(values: Float[np.ndarray, "draw x"], x: Sequence[float], name: str, varied: str) -> Readings:
    """The log-log slope of every draw; a table and a chart of the means at each x."""
    frame = pd.DataFrame({"draw": range(len(values)), SLOPE: np.polyfit(np.log2(x), np.log2(values).T, 1)[0]})
    columns = zip(x, values.T, strict=True)
    means = pd.DataFrame([{name: size, **interval_columns(t_interval(column), varied)} for size, column in columns])
    points = means.assign(low=means["low"].clip(lower=0.0), series="mean over draws")
    return Readings(
        frame=frame,
        tables=[(f"{varied} by {name}, mean over draws", means)],
        charts=[scaling_curves(points, x=name, y=varied, series="series", title=f"{varied} by {name}")],
    )


HOW = "t interval over draws of the strings and the kernel (ReLU, beta 4, gamma 1, fixed lambda), aba against abb"

CLAIMS = (
    Claim(
        id="kernel.error-n",
        method=f"Slope of log2 of the squared error on unseen symbols over log2 of n, {FIXED_SYMBOLS} training "
        f"symbols, for each draw, {HOW}",
        rule=Below(0),
        preregistration=BEFORE_ANY_MODEL,
        quantity="log2 of squared error per doubling of n",
        measure=partial(measure_error, grid="n"),
        judged=Mean(SLOPE, unit="draws of strings and kernel"),
    ),
    Claim(
        id="kernel.error-rho",
        method=f"Slope of log2 of the squared error on unseen symbols over log2 of rho, n fixed, for each draw, {HOW}",
        rule=Below(0),
        preregistration=BEFORE_ANY_MODEL,
        quantity="log2 of squared error per doubling of rho",
        measure=partial(measure_error, grid="rho"),
        judged=Mean(SLOPE, unit="draws of strings and kernel"),
    ),
    Claim(
        id="kernel.blocks",
        method="Slope of log2 of the kernel's spread over pairs of strings with the same pattern of equal tokens over "
        "log2 of its draws, which is -1/2 if only the draws cause it and nearer 0 if anything else does, for each "
        "set of draws, t interval",
        rule=Between(-0.6, -0.4),
        preregistration=BEFORE_ANY_MODEL,
        by_construction=True,
        quantity="log2 of spread per doubling of draws",
        measure=measure_blocks,
        judged=Mean(SLOPE, unit="draws of the kernel"),
    ),
)
