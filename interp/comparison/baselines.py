"""How far apart would attention patterns lie that have nothing to do with one another? Random rows, by name."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.randomness import derived_seed

FLAT = "flat simplex"
SHUFFLED = "own rows, keys shuffled"
ONE_HOT = "one-hot rows"
NAMES = (
    FLAT,
    f"{FLAT}, simulated",
    f"{FLAT}, unmasked",
    "normalised uniforms",
    "softmax of normals",
    ONE_HOT,
    SHUFFLED,
)
"""The baselines. All but the last are the same for every layer, and every pattern is drawn afresh:

- `flat simplex`: rows uniform on the simplex of the keys that a query may see. Closed form; `simulated` is the same by
  drawing, as a check; `unmasked` lets every query see every key.
- `normalised uniforms`: independent uniform numbers divided by their sum.
- `softmax of normals`: softmax of independent standard normal scores.
- `one-hot rows`: all weight on one key, any as likely.
- `own rows, keys shuffled`: the models' own rows, each with its keys permuted at random: as sharp as the models', and
  without agreement on where to look.
"""
MAX_DRAWN = 1_000_000
"""Numbers drawn for a simulated baseline: long prefixes get fewer patterns, and each of them averages more rows."""
FEWEST_DRAWS = 8

Draw = Callable[[np.random.Generator, tuple[int, ...]], Float[np.ndarray, "..."]]

DRAWN: dict[str, Draw] = {
    f"{FLAT}, simulated": lambda rng, shape: rng.exponential(size=shape),
    "normalised uniforms": lambda rng, shape: rng.uniform(size=shape),
    "softmax of normals": lambda rng, shape: np.exp(rng.normal(size=shape)),
}
"""Weights that become rows once they are divided by their sum: those of the baselines without a closed form."""


def flat_simplex_distance(n_keys: Int[np.ndarray, " query"]) -> float:
    """Expected squared distance of two patterns whose rows are uniform on the simplex.

    Args:
        n_keys: Keys that each query may see; a row of 0 keys is no row.

    Source: the random baseline of bounded Dyck (arXiv:2312.01429) Section 4.1. Rows of n keys lie 2 (n-1) / (n (n+1))
    apart, twice their variance summed over keys.
    """
    n = n_keys[n_keys > 0]
    return float((2 * (n - 1) / (n * (n + 1))).sum())


def one_hot_distance(n_keys: Int[np.ndarray, " query"]) -> float:
    """Expected squared distance of two patterns whose rows are on one key each, any as likely: 2 (1 - 1/n) a row."""
    n = n_keys[n_keys > 0]
    return float((2 * (1 - 1 / n)).sum())


def simulated_distance(
    draw: Draw, n_keys: Int[np.ndarray, " query"], *, n: int, generator: np.random.Generator
) -> tuple[float, float]:
    """Mean squared distance over independent pairs of random patterns, and its standard error.

    Args:
        draw: Gives weights of any shape; rows are these over their sum.
        n_keys: Keys that each query may see.
        n: Pairs to draw, 2 or more.
        generator: Decides them.
    """
    sizes = n_keys[n_keys > 0]
    starts = np.cumsum(sizes) - sizes
    distances = np.empty(n)
    at_once = max(1, MAX_DRAWN // (2 * int(sizes.sum())))
    for start in range(0, n, at_once):
        pairs = min(at_once, n - start)
        weights = draw(generator, (2, pairs, int(sizes.sum())))  # the rows of a pattern, one after another
        weights /= np.repeat(np.add.reduceat(weights, starts, axis=-1), sizes, axis=-1)
        distances[start : start + pairs] = np.square(weights[0] - weights[1]).sum(-1)
    return float(distances.mean()), float(distances.std(ddof=1) / n**0.5)


def shuffled_distance(
    patterns: Float[Tensor, "model head query key"], n_keys: Int[np.ndarray, " query"]
) -> Float[np.ndarray, " head"]:
    """Expected squared distance of two models once every row's keys are permuted, independently in each model.

    A permutation leaves a row's norm, and makes all its n keys alike: two rows then lie |x|^2 + |y|^2 - 2/n apart.

    Args:
        patterns: Of any number of models; rows of padding are zero.
        n_keys: Keys that each query may see.

    Returns:
        Mean over pairs of different models, exact.
    """
    norms = torch.linalg.vector_norm(patterns, dim=3).double().square().sum(2).mean(0)
    return 2 * (norms.numpy() - (1 / n_keys[n_keys > 0]).sum())


def same_for_every_layer(
    n_keys: Int[np.ndarray, " query"], *, n: int, seed: int
) -> tuple[Float[np.ndarray, " baseline"], Float[np.ndarray, " baseline"]]:
    """All baselines but the last, and their standard errors: 0 for those in closed form.

    Args:
        n_keys: Keys that each query may see; 0 for padding.
        n: Most pairs drawn for a simulated one.
        seed: Decides the draws.
    """
    length = int((n_keys > 0).sum())
    closed = {
        FLAT: flat_simplex_distance(n_keys),
        f"{FLAT}, unmasked": flat_simplex_distance(np.full(length, length)),
        ONE_HOT: one_hot_distance(n_keys),
    }
    cells = [(closed[name], 0.0) if name in closed else _simulated(name, n_keys, n, seed) for name in NAMES[:-1]]
    values, errors = np.array(cells).T
    return values, errors


def _simulated(name: str, n_keys: Int[np.ndarray, " query"], n: int, seed: int) -> tuple[float, float]:
    affordable = max(FEWEST_DRAWS, MAX_DRAWN // (2 * int(n_keys.sum())))
    generator = np.random.default_rng(derived_seed(seed, "baseline", name))
    return simulated_distance(DRAWN[name], n_keys, n=min(n, affordable), generator=generator)
