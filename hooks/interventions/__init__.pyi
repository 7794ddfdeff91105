from .replacements import Mean as Mean
from .replacements import Pattern as Pattern
from .replacements import Resample as Resample
from .replacements import Zero as Zero
from .replacements import patch as patch
