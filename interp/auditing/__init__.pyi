from .probes_result import ProbeAudit as ProbeAudit
from .result import AuditResult as AuditResult
