from .grid import Sweep as Sweep
from .run import TrainingRun as TrainingRun
from .settings import Mimicking as Mimicking
from .settings import TrainSettings as TrainSettings
from .spec import ModelSpec as ModelSpec
from .sweep import SweepRuns as SweepRuns
from .sweep_table import SweepTable as SweepTable
