"""A number is of the packs that it was measured on; its measure is the same code on any packs, and without."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from toys import PASSING, STUDY, one_row

from case_studies.frame.evidence import Evidence
from case_studies.frame.measuring import measurement_file
from case_studies.frame.packs import Packs, WeightFiles
from case_studies.recipes.judges import Row

OF_PACKS = Row("value", unit="packs")


def write_packs(folder, *numbers):
    """Packs `0.json`, `1.json` ... of a number each; returns their folder."""
    folder.mkdir()
    for index, number in enumerate(numbers):
        (folder / f"{index}.json").write_text(json.dumps(number))
        (folder / f"{index}.npz").write_bytes(b"")
    return folder


def mean(evidence, *, packs, scale=1.0):
    """Mean number of the packs."""
    values = [json.loads(path.read_text()) for path in packs.paths] if packs.digest else [0.9]
    return one_row(scale * sum(values) / len(values), 0.2, 1.0, n=len(values))


def toy_study(folder=None, shipped=None, *, required=True):
    """A study of one claim on packs; it can be measured without them if they are not required."""
    packs = Packs(folder)
    measure = partial(partial(mean, packs=packs), scale=1.0)
    claim = replace(PASSING, measure=measure, judged=OF_PACKS, packs=packs if required else None)
    return replace(STUDY, claims=[claim], groups=lambda size: {}, shipped=shipped)


@pytest.fixture
def folder(tmp_path):
    return write_packs(tmp_path / "packs", 0.25, 0.75)


@pytest.fixture
def others(tmp_path):
    return write_packs(tmp_path / "others", 0.25, 0.76)


@pytest.fixture
def shipped(folder, tmp_path):
    """Results on the packs of `folder`."""
    result = toy_study(folder).run(folder=tmp_path / "runs", n_jobs=1)
    return result.page.parent


def test_no_folder_has_no_packs(tmp_path):
    assert [Packs().digest, Packs(tmp_path / "nowhere").digest, Packs(tmp_path).digest] == ["", "", ""]
    with pytest.raises(ValueError, match=r"^there are no packs \(NAME.json and NAME.npz\); give a folder with --packs"):
        _ = Packs().paths
    with pytest.raises(ValueError, match=r"nowhere has no packs \(NAME.json and NAME.npz\)"):
        _ = Packs(tmp_path / "nowhere").paths
    (claim,) = toy_study().claims
    assert (
        claim.missing_input == "It reads packs, files from outside, and there are none; give their folder with --packs."
    )


def test_a_claim_has_the_digest_of_its_packs(folder, others):
    first, second, none = (toy_study(packs).claims[0].packs_digest for packs in (folder, others, None))
    assert first == Packs(folder).digest != second == Packs(others).digest
    assert (none, PASSING.packs_digest) == ("", "")


def test_a_measurement_is_found_for_its_packs_only(folder, others):
    evidence = Evidence(size="quick", seed=0, groups={}, folder=Path())
    claims = [toy_study(packs).claims[0] for packs in (folder, others, None)]
    keys = {measurement_file(Path(), "toy", claim, evidence).key for claim in claims}
    assert len(keys) == 3


def test_the_packs_are_stored_with_the_number(shipped, folder, tmp_path):
    (entry,) = json.loads((shipped / "claims.json").read_text())["claims"]
    assert (entry["measured"], entry["made"]["packs"]) == (0.5, Packs(folder).digest)
    plain = replace(STUDY, claims=[PASSING]).run(folder=tmp_path / "plain", n_jobs=1)
    assert "packs" not in plain.claims[0].provenance


@pytest.mark.parametrize("has_packs", [True, False], ids=["the same packs", "no packs"])
def test_the_stored_number_is_shown_with_its_packs_or_none(shipped, folder, tmp_path, has_packs):
    result = toy_study(folder if has_packs else None, shipped).draw(folder=tmp_path / "out")
    (claim,) = result.claims
    assert (claim.label, claim.measurement.value, claim.note) == ("reproduced", 0.5, "")
    page = (result.page.parent / f"claims/{claim.claim.id}.html").read_text()
    assert f", files of models {Packs(folder).digest}, " in page


def test_the_stored_number_is_not_shown_for_other_packs(shipped, others, tmp_path):
    (claim,) = toy_study(others, shipped).draw(folder=tmp_path / "out").claims
    assert (claim.label, claim.measurement) == ("not measured", None)
    assert claim.note == "Measured earlier (0.5, n = 2 packs) on other packs."


def test_a_number_without_packs_is_not_shown_for_packs(folder, tmp_path):
    shipped = toy_study(required=False).run(folder=tmp_path / "runs", n_jobs=1).page.parent
    (claim,) = toy_study(folder, shipped).draw(folder=tmp_path / "out").claims
    assert claim.note == "Measured earlier (0.9, n = 1 packs) on packs that were not recorded."
    (claim,) = toy_study(None, shipped).draw(folder=tmp_path / "out").claims
    assert claim.measurement.value == 0.9


def test_a_check_on_other_packs_names_them(shipped, folder, others, tmp_path):
    def check(packs, **options):
        return toy_study(packs, shipped, **options).check(folder=tmp_path / "check", n_jobs=1).comparisons[0]

    assert check(folder).status == "same"
    other = check(others)
    assert (other.status, other.reason) == ("differs", "another number, on other packs")
    assert other.causes == (f"packs: {Packs(folder).digest} stored, {Packs(others).digest} here",)
    assert check(None).status == "not measured"
    none = check(None, required=False)
    assert none.status == "differs"
    assert none.causes == (f"packs: {Packs(folder).digest} stored, none here",)


NAMES = ("certificates/a.json", "certificates/b.json")


def write_weights(folder, contents):
    """A clone with weights in a folder of their own."""
    (folder / "certificates").mkdir(parents=True)
    for name, content in contents.items():
        (folder / "certificates" / name).write_text(content)
    return folder


def test_weights_are_found_in_a_clone_and_in_its_folder(tmp_path):
    clone = write_weights(tmp_path / "clone", {"a.json": "1", "b.json": "2"})
    in_clone = WeightFiles(clone, names=NAMES)
    in_folder = WeightFiles(clone / "certificates", names=NAMES)
    assert in_clone.paths == in_folder.paths == (clone / "certificates/a.json", clone / "certificates/b.json")
    assert in_clone.missing == in_folder.missing == ""
    other = WeightFiles(write_weights(tmp_path / "other", {"a.json": "1", "b.json": "3"}), names=NAMES)
    assert in_clone.digest == in_folder.digest != other.digest
    assert len(in_clone.digest) == 16


def test_missing_weights_are_named(tmp_path):
    clone = write_weights(tmp_path / "clone", {"a.json": "1"})
    files = WeightFiles(clone, names=NAMES)
    assert (files.missing, files.digest) == ("no certificates/b.json", "")
    with pytest.raises(ValueError, match=r"clone has no certificates/b\.json; give a folder with --weights\.$"):
        _ = files.paths
    nowhere = WeightFiles(names=NAMES)
    assert (nowhere.digest, nowhere.missing) == ("", "no weights (certificates/a.json, certificates/b.json)")
    claim = replace(PASSING, packs=nowhere)
    assert claim.missing_input == (
        "It reads weights, files from outside, and there are none; give their folder with --weights."
    )


def test_numbers_on_weights_are_stored_and_shown_with_them(tmp_path):
    clone = write_weights(tmp_path / "clone", {"a.json": "0.25", "b.json": "0.75"})
    other = write_weights(tmp_path / "other", {"a.json": "0.25", "b.json": "0.8"})

    def study(folder, shipped=None):
        files = WeightFiles(folder, names=NAMES)
        claim = replace(PASSING, measure=partial(mean, packs=files), judged=OF_PACKS, packs=files)
        return replace(STUDY, claims=[claim], groups=lambda size: {}, shipped=shipped)

    page = study(clone).run(folder=tmp_path / "runs", n_jobs=1).page
    of_claim = (page.parent / f"claims/{PASSING.id}.html").read_text()
    assert f", weights {WeightFiles(clone, names=NAMES).digest}, " in of_claim
    (claim,) = study(other, page.parent).draw(folder=tmp_path / "out").claims
    assert claim.note == "Measured earlier (0.5, n = 2 packs) on other weights."
