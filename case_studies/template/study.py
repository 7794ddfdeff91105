"""The template study: `interp reproduce template`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from case_studies.frame.evidence import Size
from case_studies.study import Study
from case_studies.template import (
    algorithms,
    answers,
    areas,
    copying,
    copying_start,
    crossing,
    curves,
    efficiency,
    gradients,
    heads,
    kernel,
    kernel_rates,
    networks,
    paper_size,
    reading,
    set_regression,
    sweeps,
    template_sets,
)
from case_studies.template.findings import FINDINGS, WORDS
from case_studies.template.models import groups as trained_groups
from interp.sweeps.spec import ModelSpec


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Every group of models at a size."""
    return {
        **trained_groups(size),
        **paper_size.paper_size_groups(size),
        **areas.area_groups(size),
        **crossing.crossing_groups(size),
    }


STUDY = Study(
    name="template",
    title="One scalar per head: template tasks",
    lead=(
        "The template paper (arXiv:2310.09753) trains models on strings labelled by which symbols are equal, and tests "
        "them on unseen symbols. Transformers generalise, fully connected networks on one-hot inputs do not, and one "
        "scalar per head saves samples. Each claim says when its rule was fixed, and has its result on models that a "
        "small machine can train. Theorems are numbered as in version 1 of the paper."
    ),
    findings=FINDINGS,
    words=WORDS,
    claims=(
        *efficiency.CLAIMS,
        *paper_size.CLAIMS,
        *areas.CLAIMS,
        *copying.CLAIMS,
        *gradients.CLAIMS,
        *copying_start.CLAIMS,
        *networks.CLAIMS,
        *kernel.CLAIMS,
        *kernel_rates.CLAIMS,
        *set_regression.CLAIMS,
        *template_sets.CLAIMS,
        *heads.CLAIMS,
        *reading.CLAIMS,
        *sweeps.CLAIMS,
        *curves.CLAIMS,
        *crossing.CLAIMS,
        *answers.CLAIMS,
        *algorithms.CLAIMS,
    ),
    groups=groups,
    shipped=Path(__file__).parent / "results",
)
