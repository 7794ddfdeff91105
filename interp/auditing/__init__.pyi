from .probes import ProbeAudit as ProbeAudit
from .result import AuditResult as AuditResult
from .result import HeadVerdict as HeadVerdict
from .show import show_heads as show_heads
