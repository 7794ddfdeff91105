"""Cheap approximations of the effect of each head and edge, against its removal: `interp reproduce approximations`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from case_studies.frame.evidence import Size
from case_studies.frame.packs import Packs
from case_studies.study import Study
from interp.sweeps.spec import ModelSpec
from tool_studies.approximations import edge_claims
from tool_studies.approximations.attention_pairs import PAIRS
from tool_studies.approximations.claims import claims
from tool_studies.approximations.findings import FINDINGS, WORDS
from tool_studies.audited_models import AUDITED_GROUPS, DYCK, TEMPLATE
from tool_studies.audited_models import groups as audited
from tool_studies.own_programs import OwnPrograms


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """The models of the audit, at the size quick only the smallest; and those whose edges are compared."""
    groups = audited(size)
    of_heads = {name: groups[name] if size != "quick" or name in (*TEMPLATE, *DYCK) else [] for name in AUDITED_GROUPS}
    return of_heads | edge_claims.groups(size)


def study(folder: Path | None = None) -> Study:
    """The study with compiled programs from the packs of a folder; default: with our own, which are compiled."""
    return Study(
        name="approximations",
        title="What approximations miss",
        lead=(
            "Removing each head of a model takes a pass per head, so the effect is often approximated: by attention, "
            "by attention weighted with what it moves, by what a head writes in the direction of the answer, or with a "
            "gradient. Each approximation is compared with the removal of every head, its output replaced by its mean, "
            "on models whose heads are known by construction, on compiled programs, and on trained models. Removing "
            "heads one at a time is itself an approximation: it misses redundant heads. The same is asked of edges, "
            "which EAP, EAP-IG and ACDC find without removing each."
        ),
        findings=FINDINGS,
        words=WORDS,
        claims=(*claims(OwnPrograms() if folder is None else Packs(folder)), *edge_claims.edge_claims(), PAIRS),
        groups=groups,
        shipped=Path(__file__).parent / "results",
        of_packs=study,
    )


STUDY = study()
