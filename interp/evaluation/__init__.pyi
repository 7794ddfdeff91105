from .evaluate import EvaluationResult as EvaluationResult
from .extrapolate import ExtrapolationResult as ExtrapolationResult
from .perplexity import PerplexityResult as PerplexityResult
