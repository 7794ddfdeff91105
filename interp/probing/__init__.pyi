from .probe_result import ProbeResult as ProbeResult
