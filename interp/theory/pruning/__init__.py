"""Pruning random networks to given functions (the strong lottery ticket of Theorem 3), and pruning trained models."""

from interp.theory.pruning.blocks import prune_to_attention as prune_to_attention
from interp.theory.pruning.blocks import prune_to_linear as prune_to_linear
from interp.theory.pruning.blocks import prune_to_mlp as prune_to_mlp
from interp.theory.pruning.curve import PruningCurve as PruningCurve
from interp.theory.pruning.curve import pruning_curve as pruning_curve
from interp.theory.pruning.network import random_network as random_network
from interp.theory.pruning.result import PruningResult as PruningResult
from interp.theory.pruning.shared_matrix import IndistinguishableResult as IndistinguishableResult
from interp.theory.pruning.shared_matrix import indistinguishable as indistinguishable
from interp.theory.pruning.subset_sum import nearest_subsets as nearest_subsets
from interp.theory.pruning.transformers import prune_to_layer as prune_to_layer
from interp.theory.pruning.transformers import prune_to_transformer as prune_to_transformer
