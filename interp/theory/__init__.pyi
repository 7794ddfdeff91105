from . import pruning as pruning
from .balance import BalanceResult as BalanceResult
from .kernels.random_features import MLPKernel as MLPKernel
from .kernels.random_features import TransformerKernel as TransformerKernel
from .kernels.regression import KernelResult as KernelResult
from .kernels.regression import kernel_regression as kernel_regression
from .kernels.template_matrix import TemplateMatrix as TemplateMatrix
from .kernels.template_matrix import template_matrix as template_matrix
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
