from .probe import ProbeResult as ProbeResult
