"""Our own programs as packs: compiled once, kept by what determines them, in place of a folder that nobody gave."""

from dataclasses import replace
from functools import partial

import pytest
from tool_studies import own_programs
from tool_studies.approximations.study import STUDY as APPROXIMATIONS
from tool_studies.compiled.study import STUDY as COMPILED
from tool_studies.own_programs import OwnPrograms, cache_folder
from toys import PASSING, STUDY, one_row

import hooks.extras
from case_studies.frame.packs import Packs
from case_studies.frame.provenance import source_digest
from interp.known_answers import PROGRAMS, read_compiled, shipped_program

NAMES = ("histogram", "difference of fractions")


@pytest.fixture
def compiler(monkeypatch):
    """A compiler of the shipped programs, and the names of what it has compiled."""
    names = []

    def compiled(name, *, n):
        names.append((name, n))
        return shipped_program(name).task.program

    monkeypatch.setattr(own_programs, "compiled", compiled)
    monkeypatch.setattr(own_programs, "version", lambda package: {"tracr-pypi": "1.0", "jax": "0.5"}[package])
    monkeypatch.setattr(hooks.extras, "find_spec", lambda name: name)
    return names


def test_programs_are_compiled_once_for_one_code_and_version(compiler, tmp_path, monkeypatch):
    programs = OwnPrograms(tmp_path, NAMES)
    code = source_digest(own_programs.PACKAGE)[:16]
    folder = tmp_path / "programs" / f"{code}-1.0-0.5"
    assert programs.paths == (folder / "histogram.json", folder / "difference_of_fractions.json")
    assert sorted(compiler) == [("difference of fractions", 1000), ("histogram", 1000)]
    assert [read_compiled(path).task.program.name for path in programs.paths] == list(NAMES)
    (folder / "histogram.json").unlink()
    assert OwnPrograms(tmp_path, NAMES).paths == programs.paths
    assert [name for name, _ in compiler[2:]] == ["histogram"]
    monkeypatch.setattr(own_programs, "version", lambda package: "2.0")
    assert OwnPrograms(tmp_path, NAMES).paths[0].parent.name == f"{code}-2.0-2.0"
    assert len(compiler) == 5


def test_every_program_is_among_them_and_the_digest_is_of_their_names(monkeypatch):
    assert OwnPrograms().names == tuple(PROGRAMS)
    before = OwnPrograms().digest
    assert before.startswith("own-")
    monkeypatch.setattr(hooks.extras, "find_spec", lambda name: None)
    assert OwnPrograms().digest == before  # also without the compiler
    assert OwnPrograms(names=NAMES).digest != before


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "unmyopic"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "unmyopic"


def test_without_the_compiler_a_study_leaves_out_the_claims_that_need_it(monkeypatch):
    monkeypatch.setattr(hooks.extras, "find_spec", lambda name: None if name == "tracr" else name)
    missing = {claim.id: claim.missing_input for claim in APPROXIMATIONS.claims if claim.missing_input}
    assert set(missing) == {"order", "patching.compiled"}
    assert missing["order"] == (
        "It compiles programs. tracr is not installed, which this needs. Next, in the folder of unmyopic: "
        'pip install ".[tracr]"'
    )


def number_of_packs(evidence, *, packs):
    return one_row(0.9, 0.8, 1.0, n=len(packs.paths))


def toy_study(packs, shipped=None):
    claim = replace(PASSING, measure=partial(number_of_packs, packs=packs), packs=packs)
    return replace(STUDY, claims=[claim], groups=lambda size: {}, shipped=shipped)


def shown(packs, shipped, tmp_path):
    """The note of the stored number, and its value, in a study on these packs."""
    stored, _ = toy_study(packs, shipped).stored(folder=tmp_path / "none")
    (claim,) = toy_study(packs, shipped).claims
    result = stored.claim(claim, {})
    return result.note, result.measurement


def test_numbers_of_other_packs_are_shown_with_a_note_and_those_of_other_programs_are_not(compiler, tmp_path):
    shipped_program("histogram")
    own = OwnPrograms(tmp_path / "cache", NAMES)
    packs = Packs(own.paths[0].parent)
    of_packs = toy_study(packs).run(folder=tmp_path / "packs", n_jobs=1).page.parent
    note, measurement = shown(own, of_packs, tmp_path)
    assert f"Measured on other packs ({packs.digest})." in note
    assert measurement.n == 2
    of_own = toy_study(own).run(folder=tmp_path / "own", n_jobs=1).page.parent
    assert "Measured on other" not in shown(own, of_own, tmp_path)[0]
    note, measurement = shown(packs, of_own, tmp_path)
    assert (measurement, note.endswith(" on other packs.")) == (None, True)
    changed = OwnPrograms(tmp_path / "cache", NAMES)
    vars(changed)["digest"] = "own-another"
    note, measurement = shown(changed, of_own, tmp_path)
    assert (measurement, note.endswith(" on other packs.")) == (None, True)


@pytest.mark.parametrize("study", [APPROXIMATIONS, COMPILED], ids=lambda study: study.name)
def test_numbers_about_compiled_programs_are_shown_without_the_compiler(study, tmp_path):
    """They are of our own programs; numbers of the suite of known answers are of the suite."""
    stored, _ = study.stored(folder=tmp_path)
    groups = study.groups(stored.size)
    results = {claim.id: stored.claim(claim, groups) for claim in study.claims}
    unmeasured = [result.note for result in results.values() if result.measurement is None]
    assert all(note.startswith(("Measured earlier", "Not in the stored results")) for note in unmeasured)
    measured = {name: result.provenance for name, result in results.items() if result.measurement is not None}
    programs = {name: provenance["packs"] for name, provenance in measured.items() if "packs" in provenance}
    of_suite = {name for name, digest in programs.items() if digest.startswith("known-")}
    own = {name for name, digest in programs.items() if digest.startswith("own-")}
    if study is COMPILED:
        assert (own, of_suite) == (set(measured), set())
    else:
        trained = {name for name in measured if name.endswith("trained")}
        assert (own, of_suite) == ({"patching.compiled"}, set(measured) - own - trained)
