from .variation_result import VariationResult as VariationResult
