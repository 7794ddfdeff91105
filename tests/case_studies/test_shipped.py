"""The results that are shipped with each study belong to its claims of today."""

import pytest

from case_studies.approximations.study import STUDY as APPROXIMATIONS
from case_studies.audit.study import STUDY as AUDIT
from case_studies.compiled.study import STUDY as COMPILED
from case_studies.development.study import STUDY as DEVELOPMENT
from case_studies.dyck.study import STUDY as DYCK
from case_studies.frame.evidence import keys_digest
from case_studies.frame.stored import read_results
from case_studies.language.study import STUDY as LANGUAGE
from case_studies.lego.study import STUDY as LEGO
from case_studies.template.study import STUDY as TEMPLATE

STUDIES = (APPROXIMATIONS, AUDIT, COMPILED, DEVELOPMENT, DYCK, LANGUAGE, LEGO, TEMPLATE)


@pytest.fixture(params=STUDIES, ids=lambda study: study.name)
def shipped(request):
    """A study, its shipped results, and its models by group."""
    study = request.param
    stored = read_results(study.shipped, study.name)
    return study, stored, study.groups(stored.size)


def test_every_number_belongs_to_its_rule(shipped):
    """Groups, models and quantity of every shipped number are those that its claim names today.

    After a change of any of these, measure it again: `python -m case_studies.release STUDY --only CLAIM`.
    """
    study, stored, groups = shipped
    claims = {claim.id: claim for claim in study.claims}
    results = {name: stored.claim(claim, groups) for name, claim in claims.items()}
    numbers = [entry["id"] for entry in stored.content["claims"] if entry["measured"] is not None]
    assert {name: results[name].note for name in numbers if results[name].measurement is None} == {}
    # The comparison itself, without the code that shows them
    for name in numbers:
        entry, claim = stored.entry(claims[name]), claims[name]
        keys = {group: keys_digest([spec.key for spec in groups[group]]) for group in claim.needs}
        assert (entry["groups"], entry["quantity"]) == (keys, claim.quantity), name


@pytest.mark.parametrize("study", [APPROXIMATIONS, COMPILED], ids=lambda study: study.name)
def test_numbers_about_compiled_programs_are_shown_without_the_compiler(study, tmp_path):
    """They are of our own programs; numbers of the suite of known answers are of the suite."""
    stored, _ = study.stored(folder=tmp_path)
    groups = study.groups(stored.size)
    results = {claim.id: stored.claim(claim, groups) for claim in study.claims}
    unmeasured = [result.note for result in results.values() if result.measurement is None]
    assert all(note.startswith("Measured earlier") for note in unmeasured)
    measured = {name: result.provenance for name, result in results.items() if result.measurement is not None}
    programs = {name: provenance["packs"] for name, provenance in measured.items() if "packs" in provenance}
    of_suite = {name for name, digest in programs.items() if digest.startswith("known-")}
    own = {name for name, digest in programs.items() if digest.startswith("own-")}
    if study is COMPILED:
        assert (own, of_suite) == (set(measured), set())
    else:
        trained = {name for name in measured if name.endswith("trained")}
        assert (own, of_suite) == ({"patching.compiled"}, set(measured) - own - trained)
