"""What can be read from states by linear maps, over all strings: squared correlations, and separating hyperplanes."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import linprog
from torch import Tensor

ADDED_STRINGS = 500
"""Strings that a hyperplane violates most, which are added before the next one is sought."""
TOLERANCE = 1e-6
"""Smallest distance from a hyperplane, in units of its margin, below 1."""


def squared_correlation(states: Float[Tensor, "string d_model"], variable: Int[Tensor, " string"]) -> float:
    """Share of a variable's variance that a linear map of the states explains, by least squares over all strings."""
    design = torch.cat([states.double(), torch.ones(len(states), 1, dtype=torch.float64)], 1)
    target = variable.double()[:, None]
    moments, shared = design.T @ design, design.T @ target
    weights = torch.linalg.pinv(moments, hermitian=True) @ shared
    residual = target - design @ weights
    return float(1 - residual.square().sum() / (target - target.mean()).square().sum())


def separable(states: Float[Tensor, "string d_model"], positive: Bool[Tensor, " string"]) -> bool:
    """Whether a hyperplane has all positive strings on one side and all others on the other.

    Decided by linear programs on a growing set of strings: a set that no hyperplane separates shows that there is none.
    """
    points = states.double().numpy()
    # Each direction at unit scale
    points = (points - points.mean(0)) / (points.std(0) + 1e-12)
    signs = np.where(positive.numpy(), 1.0, -1.0)
    rows = np.concatenate([points, np.ones((len(points), 1))], 1) * signs[:, None]
    chosen = np.unique(np.linspace(0, len(rows) - 1, ADDED_STRINGS).astype(int))
    width = rows.shape[1]
    # Smallest weights, as differences of non-negative numbers, with every chosen string outside the margin
    costs = np.concatenate([np.ones(width - 1), [0.0], np.ones(width - 1), [0.0]])
    while True:
        constraints = np.concatenate([-rows[chosen], rows[chosen]], 1)
        solution = linprog(costs, A_ub=constraints, b_ub=-np.ones(len(chosen)), method="highs")
        if solution.status == 2:
            return False
        if solution.x is None:
            raise RuntimeError(f"the linear program for a separating hyperplane fails: {solution.message}")
        weights = solution.x[:width] - solution.x[width:]
        distances = rows @ weights
        if distances.min() > 1 - TOLERANCE or (len(chosen) == len(rows) and distances.min() > 0):
            return True
        worst = np.argsort(distances)[:ADDED_STRINGS]
        if np.isin(worst[distances[worst] < 1 - TOLERANCE], chosen).all():
            return bool(distances.min() > 0)
        chosen = np.union1d(chosen, worst)
