"""Tasks to learn, questions to ask of what was learned. Names load on first use: importing this is free."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp import known_answers, tasks
    from interp.auditing import AuditResult, ProbeAudit, audit, audit_probe
    from interp.comparison.variation import attention_variation
    from interp.comparison.variation_result import VariationResult
    from interp.core.verbs import Verbs, verbs_of
    from interp.evaluation.evaluate import EvaluationResult, evaluate
    from interp.evaluation.extrapolate import extrapolate
    from interp.evaluation.extrapolation_result import ExtrapolationResult
    from interp.evaluation.perplexity import PerplexityResult, perplexity
    from interp.heads.ablate import ablate_heads
    from interp.heads.ablation_result import AblationResult
    from interp.heads.classify import classify_heads
    from interp.heads.diagonals import diagonals
    from interp.heads.diagonals_result import DiagonalsResult
    from interp.heads.kinds import known_kinds, register_kind
    from interp.heads.pattern_result import HeadPatterns
    from interp.heads.show import show_attention
    from interp.probing.probe import probe
    from interp.probing.probe_result import ProbeResult
    from interp.reporting.report import report, report_run
    from interp.theory import pruning
    from interp.theory.balance import balance_violation
    from interp.theory.balance_result import BalanceResult
    from interp.theory.kernels.kernel_result import KernelResult, TemplateMatrix
    from interp.theory.kernels.kernels import kernel_regression, template_matrix
    from interp.theory.kernels.random_features import MLPKernel, TransformerKernel
    from interp.theory.pruning import (
        IndistinguishableResult,
        PruningCurve,
        PruningResult,
        indistinguishable,
        pruning_curve,
    )
    from interp.theory.sign_counting import ParityResult, parity_test
    from interp.training.configs import config_for
    from interp.training.pretrained import pretrained
    from interp.training.run import TrainingRun
    from interp.training.settings import Mimicking, TrainSettings
    from interp.training.train import train

_HOME = {
    "AblationResult": "heads.ablation_result",
    "AuditResult": "auditing",
    "BalanceResult": "theory.balance_result",
    "DiagonalsResult": "heads.diagonals_result",
    "EvaluationResult": "evaluation.evaluate",
    "ExtrapolationResult": "evaluation.extrapolation_result",
    "HeadPatterns": "heads.pattern_result",
    "IndistinguishableResult": "theory.pruning",
    "KernelResult": "theory.kernels.kernel_result",
    "MLPKernel": "theory.kernels.random_features",
    "Mimicking": "training.settings",
    "ParityResult": "theory.sign_counting",
    "PerplexityResult": "evaluation.perplexity",
    "ProbeAudit": "auditing",
    "ProbeResult": "probing.probe_result",
    "PruningCurve": "theory.pruning",
    "PruningResult": "theory.pruning",
    "TemplateMatrix": "theory.kernels.kernel_result",
    "TrainSettings": "training.settings",
    "TrainingRun": "training.run",
    "TransformerKernel": "theory.kernels.random_features",
    "VariationResult": "comparison.variation_result",
    "Verbs": "core.verbs",
    "ablate_heads": "heads.ablate",
    "attention_variation": "comparison.variation",
    "audit": "auditing",
    "audit_probe": "auditing",
    "balance_violation": "theory.balance",
    "classify_heads": "heads.classify",
    "config_for": "training.configs",
    "diagonals": "heads.diagonals",
    "evaluate": "evaluation.evaluate",
    "extrapolate": "evaluation.extrapolate",
    "indistinguishable": "theory.pruning",
    "kernel_regression": "theory.kernels.kernels",
    "known_kinds": "heads.kinds",
    "parity_test": "theory.sign_counting",
    "perplexity": "evaluation.perplexity",
    "pretrained": "training.pretrained",
    "probe": "probing.probe",
    "pruning_curve": "theory.pruning",
    "register_kind": "heads.kinds",
    "report": "reporting.report",
    "report_run": "reporting.report",
    "show_attention": "heads.show",
    "template_matrix": "theory.kernels.kernels",
    "train": "training.train",
    "verbs_of": "core.verbs",
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
    if name in ("known_answers", "tasks"):
        return import_module(f"interp.{name}")
    if name == "pruning":
        return import_module("interp.theory.pruning")
    if name in _HOME:
        return getattr(import_module(f"interp.{_HOME[name]}"), name)
    raise AttributeError(f"interp has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
