"""Models with known answers as the data of claims: a number of another suite is not shown."""

from dataclasses import replace

import pytest

from case_studies.frame.packs import Packs
from case_studies.frame.stored import read_results
from case_studies.recipes.known_suite import KnownAnswers
from interp.cli.installed_studies import load_study, study_entry_points


def test_the_digest_follows_the_names_and_the_packs(tmp_path):
    before, of_dyck = KnownAnswers(), KnownAnswers(names=("dyck balanced",))
    assert (before.digest.startswith("known-"), before.missing_input) == (True, "")
    assert KnownAnswers().digest == before.digest != of_dyck.digest
    # With packs that are not there, nothing can be measured
    without = KnownAnswers(packs=Packs(tmp_path))
    assert (without.digest, without.missing) == ("", Packs(tmp_path).missing)
    assert "give their folder with --packs" in without.missing_input
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "a.npz").write_bytes(b"")
    assert KnownAnswers(packs=Packs(tmp_path)).digest == f"{before.digest}-{Packs(tmp_path).digest}"


@pytest.mark.parametrize("name", ["approximations", "audit", "dyck"])
def test_numbers_of_another_suite_are_not_measured(name):
    study = load_study(name, study_entry_points())
    stored = read_results(study.shipped, study.name)
    groups = study.groups(stored.size)
    claims = [claim for claim in study.claims if isinstance(claim.packs, KnownAnswers)]
    measured = [claim for claim in claims if stored.claim(claim, groups).measurement is not None]
    assert measured
    for claim in measured:
        other = replace(claim, packs=replace(claim.packs, names=("lookup ties",)))
        result = stored.claim(other, groups)
        assert result.label == "not measured"
        assert result.note.startswith("Measured earlier (")
        assert result.note.endswith(") on other known answers.")
