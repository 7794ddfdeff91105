from .onsets import Onsets as Onsets
from .over_training import OverTraining as OverTraining
from .page import development_page as development_page
