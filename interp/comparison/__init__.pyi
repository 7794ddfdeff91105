from .variation import VariationResult as VariationResult
