"""Programs that other people's compilers wrote, held against the audit: `interp reproduce compiled`."""

from dataclasses import replace
from pathlib import Path

from case_studies.compiled import graphs, heads, values
from case_studies.frame.packs import Packs
from case_studies.study import Study


def study(folder: Path | None = None) -> Study:
    """The study on the packs of a folder; default: without packs."""
    packs = Packs(folder)
    return Study(
        name="compiled",
        title="Truth from outside: compiled programs",
        lead=(
            "These transformers were not trained: a compiler wrote their weights from programs, so what each head "
            "selects is known. Whether the answers need a head is found by removing it, alone and in sets, on every "
            "example. The audit, which sees neither, is compared with both. What is needed depends on the removal: a "
            "count of the tokens of sequences of one length is always the same, needed under zero and harmless under "
            "the mean."
        ),
        claims=[
            replace(claim, packs=packs)
            for claim in (*heads.claims(packs), *values.claims(packs), *graphs.claims(packs))
        ],
        shipped=Path(__file__).parent / "results",
        of_packs=study,
    )


STUDY = study()
