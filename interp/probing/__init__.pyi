from .logit_lens import LogitLensResult as LogitLensResult
from .probe import ProbeResult as ProbeResult
