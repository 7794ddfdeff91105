# The public names, each imported on first use. Results and secondary functions are in the packages below.
# `supported_verbs` lists verbs in the order of their names here.
from . import (
    algorithms as algorithms,
    auditing as auditing,
    comparison as comparison,
    evaluation as evaluation,
    heads as heads,
    known_answers as known_answers,
    probing as probing,
    sweeps as sweeps,
    tasks as tasks,
    theory as theory,
    training as training,
)
from .evaluation.evaluate import evaluate as evaluate
from .evaluation.perplexity import perplexity as perplexity
from .probing.probe import probe as probe
from .auditing.probes import audit_probe as audit_probe
from .heads.show import show_attention as show_attention
from .comparison.variation import attention_variation as attention_variation
from .heads.classify import classify_heads as classify_heads
from .heads.ablate import ablate_heads as ablate_heads
from .heads.ablate import ablate as ablate
from .heads.keep import keep_heads as keep_heads
from .auditing.audit import audit as audit
from .auditing.parts import audit_parts as audit_parts
from .heads.patch import patch as patch
from .algorithms.implements import implements as implements
from .probing.logit_lens import logit_lens as logit_lens
from .heads.logit_attribution import logit_attribution as logit_attribution
from .heads.edges import edges as edges
from .heads.explain_attention import explain_attention as explain_attention
from .heads.diagonals import diagonals as diagonals
from .training.train import train as train
from .theory.balance import balance_violation as balance_violation
from .evaluation.extrapolate import extrapolate as extrapolate
from .theory.pruning.shared_matrix import indistinguishable as indistinguishable
from .theory.pruning.curve import pruning_curve as pruning_curve
from .core.verbs import supported_verbs as supported_verbs
from .comparison.over_training import over_training as over_training
from .heads.interventions import Intervention as Intervention
from .reporting.report import report as report
from .reporting.report import report_run as report_run
from .tasks.check import check_task as check_task
from .sweeps.sweep import sweep as sweep
from .training.configs import config_for as config_for
from .training.load import load as load
from .training.pretrained import pretrained as pretrained
from .training.settings import TrainSettings as TrainSettings
