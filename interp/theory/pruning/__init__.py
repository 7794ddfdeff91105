"""Pruning random networks to given functions (the strong lottery ticket of Theorem 3), and pruning trained models."""

from interp.theory.pruning.blocks import prune_to_attention, prune_to_linear, prune_to_mlp
from interp.theory.pruning.curve import PruningCurve, pruning_curve
from interp.theory.pruning.network import random_network
from interp.theory.pruning.result import PruningResult
from interp.theory.pruning.shared_matrix import IndistinguishableResult, indistinguishable
from interp.theory.pruning.subset_sum import nearest_subsets
from interp.theory.pruning.transformers import prune_to_layer, prune_to_transformer

__all__ = [
    "IndistinguishableResult",
    "PruningCurve",
    "PruningResult",
    "indistinguishable",
    "nearest_subsets",
    "prune_to_attention",
    "prune_to_layer",
    "prune_to_linear",
    "prune_to_mlp",
    "prune_to_transformer",
    "pruning_curve",
    "random_network",
]
