"""Published readings of trained models, held against the weights and the audit: `interp reproduce published`."""

from dataclasses import replace
from pathlib import Path

from case_studies.frame.packs import Packs
from case_studies.study import Study
from published_readings import readings, same_function


def study(folder: Path | None = None) -> Study:
    """The study on the packs of a folder; default: without packs."""
    packs = Packs(folder)
    return Study(
        name="published",
        title="Truth from outside: published readings",
        lead=(
            "These small transformers were trained by others, who published what their heads, MLPs and neurons do. "
            "Every statement is a claim with a rule. Where it is about heads the audit's verdict is given too, and "
            "both together give a word: confirmed; limited, if the statement is true and the audit says what it leaves "
            "out; refuted; or undecided."
        ),
        claims=[replace(claim, packs=packs) for claim in (*same_function.claims(packs), *readings.claims(packs))],
        shipped=Path(__file__).parent / "results",
        of_packs=study,
    )


STUDY = study()
