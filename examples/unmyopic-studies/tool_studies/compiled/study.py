"""Programs that a compiler wrote, held against the audit, probes and `implements`: `interp reproduce compiled`."""

from dataclasses import replace
from pathlib import Path

from case_studies.frame.packs import Packs
from case_studies.study import Study
from interp.known_answers import PROGRAMS
from tool_studies.compiled import found, graphs, heads, values
from tool_studies.compiled.findings import FINDINGS, WORDS
from tool_studies.own_programs import OwnPrograms


def study(folder: Path | None = None) -> Study:
    """The study on the packs of a folder; default: on our own programs, which are compiled."""
    packs = OwnPrograms() if folder is None else Packs(folder)
    return Study(
        name="compiled",
        title="Truth from a compiler: programs in RASP",
        lead=(
            f"These transformers were not trained: tracr compiled their weights from {len(PROGRAMS)} programs of ours, "
            "each of which is checked by a plain statement of what it computes, so what each head "
            "selects is known. Whether the answers need a head is found by removing it, alone and in sets, on every "
            "example. The audit, which sees neither, is compared with both. What is needed depends on the removal: a "
            "count of the tokens of sequences of one length is always the same, needed under zero and harmless under "
            "the mean."
        ),
        findings=FINDINGS,
        words=WORDS,
        claims=[
            replace(claim, packs=packs)
            for claim in (*heads.claims(packs), *found.claims(packs), *values.claims(packs), *graphs.claims(packs))
        ],
        shipped=Path(__file__).parent / "results",
        of_packs=study,
    )


STUDY = study()
