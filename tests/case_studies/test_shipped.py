"""The results that are shipped with each study: today's measures made them."""

import json

import pytest

from case_studies.approximations.study import STUDY as APPROXIMATIONS
from case_studies.audit.study import STUDY as AUDIT
from case_studies.compiled.study import STUDY as COMPILED
from case_studies.development.study import STUDY as DEVELOPMENT
from case_studies.dyck.study import STUDY as DYCK
from case_studies.frame.code_digest import code_digest
from case_studies.frame.stored import CLAIMS
from case_studies.language.study import STUDY as LANGUAGE
from case_studies.lego.study import STUDY as LEGO
from case_studies.template.study import STUDY as TEMPLATE

STUDIES = (APPROXIMATIONS, AUDIT, COMPILED, DEVELOPMENT, DYCK, LANGUAGE, LEGO, TEMPLATE)


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_no_number_is_lost_because_its_measure_has_changed(study):
    """A number whose measure is another one today is shown as not measured, on its page and in the paper's table.

    A change of a measure, or of a constant that it reads, comes with a new measurement of its claims; or without their
    stored numbers, if their models cannot be trained here.
    """
    stored = {one["id"]: one for one in json.loads((study.shipped / CLAIMS).read_text())["claims"]}
    numbers = {claim.id: stored[claim.id] for claim in study.claims if stored.get(claim.id, {}).get("measure")}
    today = {claim.id: code_digest(claim.measure) for claim in study.claims}
    assert [name for name, one in numbers.items() if one["measure"] != today[name]] == []
    assert numbers or study.name == "language"  # measured before sources were recorded


@pytest.mark.parametrize("study", [APPROXIMATIONS, COMPILED], ids=lambda study: study.name)
def test_numbers_about_compiled_programs_are_shown_without_the_compiler(study, tmp_path):
    """They are of our own programs; one that needs trained models too is of packs from outside, and says so."""
    stored, _ = study.stored(folder=tmp_path)
    results = {claim.id: stored.claim(claim) for claim in study.claims}
    assert [name for name, result in results.items() if result.measurement is None] == []
    programs = {name: result.provenance["packs"] for name, result in results.items() if "packs" in result.provenance}
    outside = {name for name, digest in programs.items() if not digest.startswith("own-")}
    if study is COMPILED:
        assert (set(programs), outside) == (set(results), set())
    else:
        assert (set(programs), outside) == ({"order", "patching.compiled"}, {"order"})
        assert "Measured on other packs (a47cae73c2ab104b)." in results["order"].note
