from .development.onsets import Onsets as Onsets
from .development.over_training import OverTraining as OverTraining
from .development.page import development_page as development_page
from .variation import VariationResult as VariationResult
