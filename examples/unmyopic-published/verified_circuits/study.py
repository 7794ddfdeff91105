"""A transformer with machine-checked decisions, tested: `interp reproduce verified --weights FOLDER`."""

from pathlib import Path

from case_studies.study import Study
from verified_circuits.claims import claims
from verified_circuits.files import COMMIT, LICENCE, REPOSITORY


def study(folder: Path | None = None) -> Study:
    """The study on the clone of the repository in a folder; default: without weights."""
    return Study(
        name="verified",
        title="A proof is not a mechanism: a transformer with machine-checked decisions",
        lead=(
            f"{REPOSITORY} (commit {COMMIT}, {LICENCE} licence) has two transformers, trained to tell balanced bracket "
            "strings from others, whose decision on every input is machine-checked, and a circuit that is proven to "
            "equal the specification for all lengths. What is certified is about inputs and outputs, and comes first "
            "here. Which wiring computes it inside is another question, which the certificates leave open. The "
            "authors' description of the circuit is tested in three readings, all of them ours: literal, charitable, "
            "and along directions. A description that no reading finds is not refuted; another reading may be."
        ),
        claims=claims(folder),
        shipped=Path(__file__).parent / "results",
        of_weights=study,
    )


STUDY = study()
