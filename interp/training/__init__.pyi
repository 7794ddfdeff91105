from .run import TrainingRun as TrainingRun
from .settings import Mimicking as Mimicking
from .settings import TrainSettings as TrainSettings
