from .ablate import AblationResult as AblationResult
from .classify import HeadPatterns as HeadPatterns
from .diagonals import DiagonalsResult as DiagonalsResult
from .edges import EdgesResult as EdgesResult
from .keep import KeepResult as KeepResult
from .kinds import known_kinds as known_kinds
from .kinds import register_kind as register_kind
from .logit_attribution import LogitAttributionResult as LogitAttributionResult
