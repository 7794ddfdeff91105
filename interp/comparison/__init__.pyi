from .onsets import Onsets as Onsets
from .over_training import OverTraining as OverTraining
from .training_page import development_page as development_page
from .variation import VariationResult as VariationResult
