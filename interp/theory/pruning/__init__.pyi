from .blocks import (
    prune_to_attention as prune_to_attention,
)
from .blocks import (
    prune_to_linear as prune_to_linear,
)
from .blocks import (
    prune_to_mlp as prune_to_mlp,
)
from .curve import PruningCurve as PruningCurve
from .curve import pruning_curve as pruning_curve
from .network import random_network as random_network
from .result import PruningResult as PruningResult
from .shared_matrix import IndistinguishableResult as IndistinguishableResult
from .shared_matrix import indistinguishable as indistinguishable
from .subset_sum import nearest_subsets as nearest_subsets
from .transformers import prune_to_layer as prune_to_layer
from .transformers import prune_to_transformer as prune_to_transformer
