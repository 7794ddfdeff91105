"""The template paper on language models: `interp reproduce language`."""

from pathlib import Path

from case_studies.language import diagonals, finetuning, perplexity, real_diagonals
from case_studies.language.findings import FINDINGS, WORDS
from case_studies.language.models import groups
from case_studies.study import Study

STUDY = Study(
    name="language",
    title="Do a I and b I help language models, and does pretraining learn them without being built in?",
    lead=(
        "The template paper adds one scalar per head to W_Q W_K^T and to W_V W_O and reports a lower perplexity of "
        "GPT-2, strong diagonals in the weights of a pretrained one, and that it learns template tasks from few "
        "strings. Here a small GPT-2 is pretrained on the sources of Python's standard library, plain and with both "
        "scalars, on the same budget."
    ),
    findings=FINDINGS,
    words=WORDS,
    claims=(*perplexity.CLAIMS, *diagonals.CLAIMS, *real_diagonals.CLAIMS, *finetuning.CLAIMS),
    groups=groups,
    shipped=Path(__file__).parent / "results",
)
