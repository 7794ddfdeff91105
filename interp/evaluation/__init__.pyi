from .evaluate import EvaluationResult as EvaluationResult
from .extrapolation_result import ExtrapolationResult as ExtrapolationResult
from .perplexity import PerplexityResult as PerplexityResult
