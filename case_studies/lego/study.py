"""The LEGO paper: `interp reproduce lego`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from case_studies.frame.evidence import Size
from case_studies.lego import (
    algorithms,
    cost,
    evolved,
    generalisation,
    hardcoded,
    lag,
    lengths,
    loops,
    one_length,
    percolation,
    portion,
    real_audit,
    real_heads,
    real_training,
    shortcut,
    starts,
)
from case_studies.lego.bert_shape import with_shape_of_bert
from case_studies.lego.findings import FINDINGS, WORDS
from case_studies.lego.models import groups
from case_studies.lego.pathway_models import pathway_groups
from case_studies.lego.real_models import real_groups
from case_studies.study import Study
from interp.sweeps.spec import ModelSpec


def every_group(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """All models of the study, by group."""
    real = {**real_groups(size), **real_audit.audited_groups(size)}
    return {**with_shape_of_bert(groups(size)), **pathway_groups(size), **real}


STUDY = Study(
    name="lego",
    title="Chains of group operations: what transformers learn, and how far they extrapolate",
    lead=(
        "The LEGO paper trains transformers to resolve chains of signs and reports that they do so by association and "
        "manipulation, that weight-tied models behave like a loop and extrapolate further, that a shortcut prevents "
        "this, and that much of attention can be hard-coded instead of learned. Each of these claims is measured on "
        "small models and judged by a rule."
    ),
    findings=FINDINGS,
    words=WORDS,
    claims=(
        *generalisation.CLAIMS,
        *one_length.CLAIMS,
        *lag.CLAIMS,
        *percolation.CLAIMS,
        *loops.CLAIMS,
        *algorithms.CLAIMS,
        *real_heads.CLAIMS,
        *real_audit.CLAIMS,
        *real_training.CLAIMS,
        *starts.CLAIMS,
        *lengths.CLAIMS,
        *shortcut.CLAIMS,
        *evolved.CLAIMS,
        *portion.CLAIMS,
        *cost.CLAIMS,
        *hardcoded.CLAIMS,
    ),
    groups=every_group,
    shipped=Path(__file__).parent / "results",
)
