from .ablation_result import AblationResult as AblationResult
from .diagonals_result import DiagonalsResult as DiagonalsResult
from .kinds import known_kinds as known_kinds
from .kinds import register_kind as register_kind
from .pattern_result import HeadPatterns as HeadPatterns
