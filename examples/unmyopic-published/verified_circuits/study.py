"""A transformer with machine-checked decisions, tested: `interp reproduce verified --weights FOLDER`."""

from pathlib import Path

from case_studies.study import Study
from verified_circuits.claims import claims
from verified_circuits.files import COMMIT, LENGTHS, LICENCE, REPOSITORY, weight_files
from verified_circuits.interchanges import read_subject


def study(folder: Path | None = None) -> Study:
    """The study on the clone of the repository in a folder; default: without weights.

    Raises:
        ValueError: a weight file that is there is wrong; names the file and what was found.
    """
    # Read the files that are there, so that a wrong one is named before anything is measured
    for n in LENGTHS:
        files = weight_files(folder, n)
        if not files.missing:
            read_subject(files, n)
    return Study(
        name="verified",
        title="A proof is not a mechanism: a transformer with machine-checked decisions",
        lead=(
            f"{REPOSITORY} (commit {COMMIT}, {LICENCE} licence) has two transformers, of 10 and of 16 brackets (n10, "
            "n16), trained to tell balanced strings from others. Their decision on every string is machine-checked; "
            "a stated circuit is proven to equal the specification for all lengths. What is certified is about inputs "
            "and outputs, and comes first here. Which wiring computes it is another question, which certificates leave "
            "open. The stated circuit: attention sums brackets to the running depth d_i of each position; a flag says "
            "whether it is below zero; the sum over positions has the final depth and the number of violations; a "
            "string is balanced if and only if both are zero. It is tested in several readings, all of them ours: "
            "literal, charitable, along directions, and a fourth, made after a look at the weights. A statement "
            "that no reading of ours finds is not refuted; another reading may be."
        ),
        claims=claims(folder),
        shipped=Path(__file__).parent / "results",
        of_weights=study,
    )


STUDY = study()
