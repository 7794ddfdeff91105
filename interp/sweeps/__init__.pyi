from .grid import Sweep as Sweep
from .spec import ModelSpec as ModelSpec
from .sweep import SweepRuns as SweepRuns
from .sweep_table import SweepTable as SweepTable
