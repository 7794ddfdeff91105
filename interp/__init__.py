"""Tasks to learn, questions to ask of what was learned. Names load on first use: importing this is free."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp import known_answers, pruning, tasks
    from interp.ablation import ablate_heads
    from interp.ablation_result import AblationResult
    from interp.attention import show_attention
    from interp.auditing import AuditResult, ProbeAudit, audit, audit_probe
    from interp.balance import balance_violation
    from interp.balance_result import BalanceResult
    from interp.diagonals_result import DiagonalsResult
    from interp.evaluation import EvaluationResult, evaluate
    from interp.extrapolation import extrapolate
    from interp.extrapolation_result import ExtrapolationResult
    from interp.fine_tuning import pretrained
    from interp.identity_strength import diagonals
    from interp.kernel_result import KernelResult, TemplateMatrix
    from interp.kernels import kernel_regression, template_matrix
    from interp.kinds import known_kinds, register_kind
    from interp.models import config_for
    from interp.parity import ParityResult, parity_test
    from interp.pattern_result import HeadPatterns
    from interp.patterns import classify_heads
    from interp.perplexities import PerplexityResult, perplexity
    from interp.probe_result import ProbeResult
    from interp.probing import probe
    from interp.pruning import IndistinguishableResult, PruningCurve, PruningResult, indistinguishable, pruning_curve
    from interp.random_features import MLPKernel, TransformerKernel
    from interp.reporting import report, report_run
    from interp.train_settings import Mimicking, TrainSettings
    from interp.training import train
    from interp.training_run import TrainingRun
    from interp.variation import attention_variation
    from interp.variation_result import VariationResult
    from interp.verbs import Verbs, verbs_of

_HOME = {
    "AblationResult": "ablation_result",
    "AuditResult": "auditing",
    "BalanceResult": "balance_result",
    "DiagonalsResult": "diagonals_result",
    "EvaluationResult": "evaluation",
    "ExtrapolationResult": "extrapolation_result",
    "HeadPatterns": "pattern_result",
    "IndistinguishableResult": "pruning",
    "KernelResult": "kernel_result",
    "MLPKernel": "random_features",
    "Mimicking": "train_settings",
    "ParityResult": "parity",
    "PerplexityResult": "perplexities",
    "ProbeAudit": "auditing",
    "ProbeResult": "probe_result",
    "PruningCurve": "pruning",
    "PruningResult": "pruning",
    "TemplateMatrix": "kernel_result",
    "TrainSettings": "train_settings",
    "TrainingRun": "training_run",
    "TransformerKernel": "random_features",
    "VariationResult": "variation_result",
    "Verbs": "verbs",
    "ablate_heads": "ablation",
    "attention_variation": "variation",
    "audit": "auditing",
    "audit_probe": "auditing",
    "balance_violation": "balance",
    "classify_heads": "patterns",
    "config_for": "models",
    "diagonals": "identity_strength",
    "evaluate": "evaluation",
    "extrapolate": "extrapolation",
    "indistinguishable": "pruning",
    "kernel_regression": "kernels",
    "known_kinds": "kinds",
    "parity_test": "parity",
    "perplexity": "perplexities",
    "pretrained": "fine_tuning",
    "probe": "probing",
    "pruning_curve": "pruning",
    "register_kind": "kinds",
    "report": "reporting",
    "report_run": "reporting",
    "show_attention": "attention",
    "template_matrix": "kernels",
    "train": "training",
    "verbs_of": "verbs",
}

__all__ = [
    "AblationResult",
    "AuditResult",
    "BalanceResult",
    "DiagonalsResult",
    "EvaluationResult",
    "ExtrapolationResult",
    "HeadPatterns",
    "IndistinguishableResult",
    "KernelResult",
    "MLPKernel",
    "Mimicking",
    "ParityResult",
    "PerplexityResult",
    "ProbeAudit",
    "ProbeResult",
    "PruningCurve",
    "PruningResult",
    "TemplateMatrix",
    "TrainSettings",
    "TrainingRun",
    "TransformerKernel",
    "VariationResult",
    "Verbs",
    "ablate_heads",
    "attention_variation",
    "audit",
    "audit_probe",
    "balance_violation",
    "classify_heads",
    "config_for",
    "diagonals",
    "evaluate",
    "extrapolate",
    "indistinguishable",
    "kernel_regression",
    "known_answers",
    "known_kinds",
    "parity_test",
    "perplexity",
    "pretrained",
    "probe",
    "pruning",
    "pruning_curve",
    "register_kind",
    "report",
    "report_run",
    "show_attention",
    "tasks",
    "template_matrix",
    "train",
    "verbs_of",
]


def __getattr__(name: str) -> Any:
    if name in ("known_answers", "pruning", "tasks"):
        return import_module(f"interp.{name}")
    if name in _HOME:
        return getattr(import_module(f"interp.{_HOME[name]}"), name)
    raise AttributeError(f"interp has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
