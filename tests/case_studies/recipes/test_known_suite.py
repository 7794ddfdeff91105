"""Models with known answers as the data of claims: a number of another suite is not shown."""

from dataclasses import replace
from pathlib import Path

import pytest

import interp.known_answers
from case_studies.approximations.study import STUDY as APPROXIMATIONS
from case_studies.audit.study import STUDY as AUDIT
from case_studies.compiled.study import STUDY as COMPILED
from case_studies.development.study import STUDY as DEVELOPMENT
from case_studies.dyck.study import STUDY as DYCK
from case_studies.frame import code_digest as digests
from case_studies.frame.packs import Packs
from case_studies.frame.stored import read_results
from case_studies.language.study import STUDY as LANGUAGE
from case_studies.lego.study import STUDY as LEGO
from case_studies.recipes.known_suite import PACKAGE, KnownAnswers
from case_studies.template.study import STUDY as TEMPLATE

STUDIES = (APPROXIMATIONS, AUDIT, COMPILED, DEVELOPMENT, DYCK, LANGUAGE, LEGO, TEMPLATE)
READ = digests._read


@pytest.fixture
def change(monkeypatch):
    """Changes the code of a module of `interp.known_answers`, as digests see it."""

    def change(module):
        def read(name, *file):
            code, imports = READ(name, *file)
            return (f"{code} changed", imports) if name == f"{PACKAGE}.{module}" else (code, imports)

        monkeypatch.setattr(digests, "_read", read)

    return change


def modules_read(monkeypatch, data):
    """The modules that the digest of some data is of."""
    names = []

    def read(name, *file):
        names.append(name)
        return READ(name, *file)

    monkeypatch.setattr(digests, "_read", read)
    assert data.digest
    return sorted(name.removeprefix(f"{PACKAGE}.") for name in names)


def test_the_digest_is_of_every_module_that_builds_the_suite(monkeypatch):
    folder = Path(interp.known_answers.__file__).parent
    files = [path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py") if path.name != "__init__.py"]
    # compiled programs, and the answers of the small tasks, are suites of their own
    others = ("compiled", "small_tasks", "task_suite")
    modules = {".".join(file.parts) for file in files if file.parts[0] not in others}
    assert modules_read(monkeypatch, KnownAnswers()) == sorted(modules)
    of_dyck = modules_read(monkeypatch, KnownAnswers(modules=("dyck.balanced",)))
    assert of_dyck == ["craft.weights", "dyck.balanced", "dyck.one_hot"]


def test_the_digest_follows_the_code_and_the_packs(change, tmp_path):
    before, of_dyck = KnownAnswers(), KnownAnswers(modules=("dyck.balanced",))
    assert (before.digest.startswith("known-"), before.missing_input) == (True, "")
    assert KnownAnswers().digest == before.digest != of_dyck.digest
    change("recall.model")
    assert KnownAnswers().digest != before.digest
    assert KnownAnswers(modules=("dyck.balanced",)).digest == of_dyck.digest
    change("compiled.network")
    assert KnownAnswers().digest == before.digest
    # With packs that are not there, nothing can be measured
    without = KnownAnswers(packs=Packs(tmp_path))
    assert (without.digest, without.missing) == ("", Packs(tmp_path).missing)
    assert "give their folder with --packs" in without.missing_input
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "a.npz").write_bytes(b"")
    assert KnownAnswers(packs=Packs(tmp_path)).digest == f"{before.digest}-{Packs(tmp_path).digest}"


@pytest.mark.parametrize("study", [APPROXIMATIONS, AUDIT, DYCK], ids=lambda study: study.name)
def test_numbers_of_a_changed_suite_are_not_measured(study, change):
    """A planted change of the code that builds the models: every shipped number about them is not shown."""
    stored = read_results(study.shipped, study.name)
    groups = study.groups(stored.size)

    def results():
        # Data without the digest that an earlier look has stored
        claims = [claim for claim in study.claims if isinstance(claim.packs, KnownAnswers)]
        claims = [replace(claim, packs=replace(claim.packs)) for claim in claims]
        return {claim.id: stored.claim(claim, groups) for claim in claims}

    measured = {name for name, result in results().items() if result.measurement is not None}
    assert measured
    change("craft.weights")
    changed = results()
    assert {changed[name].label for name in measured} == {"not measured"}
    assert all(changed[name].note.startswith("Measured earlier (") for name in measured)
    assert all(changed[name].note.endswith(") on other known answers.") for name in measured)


METHODS = ("eap", "eap-ig", "acdc")
"""Methods that are compared with exact edges, on trained models."""


def builds_models(claim):
    """Whether the code of a measure imports what builds models with known answers, other than compiled ones."""
    modules = set()
    digests._description(claim.measure, modules)
    sources = digests._sources({name for name in modules if name.startswith("case_studies.")})
    for name in sources:
        file = Path(digests.import_module(name).__file__)
        for path in READ(name, file, file.stat().st_mtime_ns)[1]:
            builder = path.rpartition(".")[2]
            is_type = builder[0].isupper() and not builder.isupper()
            is_of_programs = ".compiled." in path or builder in ("read_compiled", "PROGRAMS")
            if path.startswith(f"{PACKAGE}.") and not is_of_programs and not is_type:
                return True
    return False


def test_every_claim_on_known_answers_has_their_digest():
    """Claims on trained models only may share the modules of those on known answers."""
    without = {
        f"{study.name}:{claim.id}"
        for study in STUDIES
        for claim in study.claims
        if builds_models(claim) and not isinstance(claim.packs, KnownAnswers)
    }
    of_edges = {f"{method}.{question}" for method in METHODS for question in ("order", "need", "missed", "gain")}
    assert without == {f"approximations:edges.{name}.trained" for name in (*of_edges, "pairs", "repeated", "time")} | {
        "approximations:values.trained",
        "approximations:patching.trained",
        "approximations:patching.compiled",
        "approximations:saturation.trained",
        "audit:silent.untrained",
        "audit:silent.shuffled",
    }
