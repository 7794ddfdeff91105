"""Expected distances between random attention patterns, the baselines of attention variation."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.randomness import derived_seed

FLAT = "flat simplex"
SHUFFLED = "own rows, keys shuffled"
ONE_HOT = "one-hot rows"
RANDOM_BASELINES = (
    FLAT,
    f"{FLAT}, simulated",
    f"{FLAT}, unmasked",
    "normalised uniforms",
    "softmax of normals",
    ONE_HOT,
    SHUFFLED,
)
"""Names of the baselines. All but the last are the same for every layer.

- `flat simplex`: rows uniform on the simplex of the visible keys, in closed form; `simulated` is a Monte Carlo check
  of it; in `unmasked`, every query sees every key: random square matrices, the bounded-Dyck paper's baseline.
- `normalised uniforms`: independent uniform numbers divided by their sum.
- `softmax of normals`: softmax of independent standard normal scores.
- `one-hot rows`: all weight on one key, drawn uniformly.
- `own rows, keys shuffled`: the rows of the models with the keys of each randomly permuted: equally sharp patterns that
  do not agree on where to attend.
"""
MOST_DRAWS = 1_000_000
"""Largest number of draws for a simulated baseline: long prefixes get fewer patterns, each with more rows."""
FEWEST_SIMULATED_PAIRS = 8

Draw = Callable[[np.random.Generator, tuple[int, ...]], Float[np.ndarray, "..."]]

SIMULATED: dict[str, Draw] = {
    f"{FLAT}, simulated": lambda rng, shape: rng.exponential(size=shape),
    "normalised uniforms": lambda rng, shape: rng.uniform(size=shape),
    "softmax of normals": lambda rng, shape: np.exp(rng.normal(size=shape)),
}
"""Unnormalised weights of the baselines without a closed form."""


def flat_simplex_distance(n_keys: Int[np.ndarray, " query"]) -> float:
    """Expected squared distance between two patterns whose rows are uniform on the simplex.

    Args:
        n_keys: Number of keys visible to each query; rows with 0 keys are skipped.

    Source: the random baseline of bounded Dyck (arXiv:2312.01429), footnote 14, where every query sees every key. The
    expected squared distance between two rows of n keys is 2 (n-1) / (n (n+1)), twice their variance summed over keys.
    """
    n = n_keys[n_keys > 0]
    return float((2 * (n - 1) / (n * (n + 1))).sum())


def one_hot_distance(n_keys: Int[np.ndarray, " query"]) -> float:
    """Expected squared distance between two patterns of uniformly drawn one-hot rows: 2 (1 - 1/n) per row."""
    n = n_keys[n_keys > 0]
    return float((2 * (1 - 1 / n)).sum())


def simulated_distance(
    draw: Draw, n_keys: Int[np.ndarray, " query"], *, n: int, generator: np.random.Generator
) -> tuple[float, float]:
    """Mean squared distance over independent pairs of random patterns, and its standard error.

    Args:
        draw: Draws unnormalised weights of a given shape.
        n_keys: Number of keys visible to each query.
        n: Number of pairs, at least 2.
        generator: Source of randomness.
    """
    # The rows of a pattern follow each other in one vector; a row starts where the one before ends.
    row_sizes = n_keys[n_keys > 0]
    row_starts = np.cumsum(row_sizes) - row_sizes
    pattern_size = int(row_sizes.sum())
    distances = np.empty(n)
    pairs_at_once = max(1, MOST_DRAWS // (2 * pattern_size))
    for start in range(0, n, pairs_at_once):
        n_pairs = min(pairs_at_once, n - start)
        # Draw both patterns of each pair, and normalise their rows.
        weights = draw(generator, (2, n_pairs, pattern_size))
        row_sums = np.add.reduceat(weights, row_starts, axis=-1)
        weights /= np.repeat(row_sums, row_sizes, axis=-1)
        distances[start : start + n_pairs] = np.square(weights[0] - weights[1]).sum(-1)
    return float(distances.mean()), float(distances.std(ddof=1) / n**0.5)


def shuffled_distance(
    patterns: Float[Tensor, "model head query key"], n_keys: Int[np.ndarray, " query"]
) -> Float[np.ndarray, " head"]:
    """Expected squared distance between two models after permuting the keys of every row, independently in each model.

    A permutation keeps the norm of a row and makes its n keys exchangeable, so the expected squared distance between
    two rows x and y is |x|^2 + |y|^2 - 2/n.

    Args:
        patterns: Patterns of any number of models; rows of padding are zero.
        n_keys: Number of keys visible to each query.

    Returns:
        Mean over pairs of different models, exact.
    """
    norms = torch.linalg.vector_norm(patterns, dim=3).double().square().sum(2).mean(0)
    return 2 * (norms.numpy() - (1 / n_keys[n_keys > 0]).sum())


def fixed_baselines(
    n_keys: Int[np.ndarray, " query"], *, n: int, seed: int
) -> tuple[Float[np.ndarray, " baseline"], Float[np.ndarray, " baseline"]]:
    """All baselines but the last, which are the same for every layer, and their standard errors (0 in closed form).

    Args:
        n_keys: Number of keys visible to each query; 0 for padding.
        n: Largest number of pairs in a simulated baseline.
        seed: Determines the draws.
    """
    # In closed form.
    length = int((n_keys > 0).sum())
    closed = {
        FLAT: flat_simplex_distance(n_keys),
        f"{FLAT}, unmasked": flat_simplex_distance(np.full(length, length)),
        ONE_HOT: one_hot_distance(n_keys),
    }
    # Long prefixes get fewer pairs in a simulation.
    n_pairs = min(n, max(FEWEST_SIMULATED_PAIRS, MOST_DRAWS // (2 * int(n_keys.sum()))))
    values, errors = [], []
    for name in RANDOM_BASELINES[:-1]:
        value, error = closed.get(name, np.nan), 0.0
        if name in SIMULATED:
            generator = np.random.default_rng(derived_seed(seed, "baseline", name))
            value, error = simulated_distance(SIMULATED[name], n_keys, n=n_pairs, generator=generator)
        values.append(value)
        errors.append(error)
    return np.array(values), np.array(errors)
