"""Is the reading true? Every head and every probe, held against what the model does."""

from interp.auditing.audit import audit
from interp.auditing.probes import audit_probe
from interp.auditing.probes_result import ProbeAudit
from interp.auditing.result import AuditResult

__all__ = ["AuditResult", "ProbeAudit", "audit", "audit_probe"]
