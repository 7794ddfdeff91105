from . import pruning as pruning
from .balance import BalanceResult as BalanceResult
from .kernels.kernels import kernel_regression as kernel_regression
from .kernels.kernels import template_matrix as template_matrix
from .kernels.random_features import MLPKernel as MLPKernel
from .kernels.random_features import TransformerKernel as TransformerKernel
from .kernels.result import KernelResult as KernelResult
from .kernels.result import TemplateMatrix as TemplateMatrix
from .pruning import (
    IndistinguishableResult as IndistinguishableResult,
)
from .pruning import (
    PruningCurve as PruningCurve,
)
from .pruning import (
    PruningResult as PruningResult,
)
from .pruning import (
    indistinguishable as indistinguishable,
)
from .sign_counting import SignCountingResult as SignCountingResult
