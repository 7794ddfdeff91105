"""Bundles have everything that a check needs, are the same for the same results, and are not trusted."""

import hashlib
import json
import platform
import re
import shutil
import subprocess
import warnings
import zipfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
import toys
from toys import DRAWN, STUDY

import hooks
from case_studies.frame.stored import CLAIMS, DETAILS
from case_studies.review import bundle as bundles
from case_studies.review.bundle import SUMS, open_bundle
from case_studies.review.rounded import rounded_files
from interp.training.folder import RunFolder
from interp.training.identity import ForeignRun


@pytest.fixture(scope="module")
def archives(toy_run, tmp_path_factory):
    """Bundles of a run of the toy study, without and with models."""
    folder = tmp_path_factory.mktemp("bundles")
    return {
        with_models: STUDY.bundle(folder / f"{with_models}/toy.zip", folder=toy_run[0], with_models=with_models)
        for with_models in (False, True)
    }


@pytest.fixture
def bundled(archives, tmp_path):
    """A copy of a bundle, without the run that it is of."""
    toys.MEASURED.clear()
    return lambda with_models=False: Path(shutil.copy(archives[with_models], tmp_path / "toy.zip"))


def check(path, tmp_path, study=STUDY, **options):
    return study.check(folder=tmp_path / "fresh", n_jobs=1, against=path, **options)


def rewritten(path, change, *, sums=True):
    """Write an archive again with changed files, and new hashes if `sums`."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    files = change(files) or files
    if sums:
        listed = {name: hashlib.sha256(content).hexdigest() for name, content in files.items() if name != SUMS}
        files[SUMS] = "".join(f"{digest}  {name}\n" for name, digest in listed.items()).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def test_a_bundle_has_what_a_check_needs(bundled):
    with zipfile.ZipFile(bundled()) as archive:
        files = {name: archive.read(name).decode("utf-8", "replace") for name in archive.namelist()}
    assert set(files) == {
        "README.md",
        "SHA256SUMS",
        "models.json",
        "requirements.txt",
        "results/claims.json",
        "results/details.json.xz",
    }
    assert len(re.findall(r"^    \S.*$", files["README.md"], re.MULTILINE)) == 2  # two commands
    assert "interp reproduce toy --check --against toy.zip" in files["README.md"]
    assert f"\ntorch=={version('torch')}\n" in files["requirements.txt"]
    assert f"with Python {platform.python_version()} on " in files["README.md"]
    assert "needs unmyopic 0.1.0" in files["README.md"]
    models = json.loads(files["models.json"])
    assert sorted(one["seed"] for one in models) == [0, 1, 2]
    assert all(re.fullmatch("[0-9a-f]{64}", one["weights"]) and one["files"] == [] for one in models)


def test_equal_results_give_equal_bundles(archives, finished, tmp_path):
    path = archives[False]
    copy = STUDY.bundle(tmp_path / "copy.zip", folder=tmp_path)
    assert copy.read_bytes() == path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert {one.date_time for one in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}  # nor does the clock matter
    assert [file.name for file in path.parent.iterdir()] == ["toy.zip"]


def test_sha256sum_can_read_the_hashes(bundled, tmp_path):
    with zipfile.ZipFile(bundled()) as archive:
        archive.extractall(tmp_path / "unpacked")
    try:
        done = subprocess.run(["sha256sum", "--check", SUMS], cwd=tmp_path / "unpacked", capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no sha256sum on this machine")
    assert (done.returncode, done.stdout.count(": OK")) == (0, 5)


def test_a_check_against_a_bundle_trains_what_it_lacks(bundled, tmp_path, trained):
    path = bundled()
    result = check(path, tmp_path)
    assert (result.passed, result.against) == (True, str(path))
    assert result.tally == "3 same, 0 differs, 1 not shipped"
    assert sorted(trained) == [0, 1, 2]


def test_its_models_are_used_and_stay_apart(bundled, tmp_path, trained):
    path = bundled(with_models=True)
    result = check(path, tmp_path)
    assert (result.tally, trained) == ("3 same, 0 differs, 1 not shipped", [])
    assert sorted(toys.MEASURED) == ["accuracy", "constant", "drawn"]
    assert not (tmp_path / "fresh/models").exists()  # ordinary runs do not use them
    (folder,) = (tmp_path / "fresh").iterdir()
    assert folder.name == f"bundle-{open_bundle(path).digest}"
    assert check(path, tmp_path, fresh=True).passed
    assert sorted(trained) == [0, 1, 2]


def test_a_planted_number_in_a_bundle_differs(bundled, tmp_path):
    path = bundled()

    def plant(files):
        content = json.loads(files["results/claims.json"])
        content["claims"][0]["measured"] *= 1.01
        files["results/claims.json"] = json.dumps(content).encode()

    rewritten(path, plant)
    result = check(path, tmp_path, only=["figure-1.some"])
    assert [one.status for one in result.comparisons] == ["differs"]


def test_a_folder_can_be_checked_too(finished, tmp_path):
    assert STUDY.check(folder=tmp_path, n_jobs=1, against=tmp_path / "toy/quick").passed
    with pytest.raises(ValueError, match=r"models has no claims.json to check against"):
        STUDY.check(folder=tmp_path, n_jobs=1, against=tmp_path / "models")


def dropped(name):
    return lambda files: {one: content for one, content in files.items() if one != name}


def added(name):
    return lambda files: files | {name: b"x"}


def spoiled(files):
    return files | {"models.json": files["models.json"] + b" "}


def edited(**changes):
    def change(files):
        content = json.loads(files["results/claims.json"])
        content["claims"][0] |= changes
        return files | {"results/claims.json": json.dumps(content).encode()}

    return change


@pytest.mark.parametrize(
    ("change", "sums", "words"),
    [
        (spoiled, False, "toy.zip is damaged: the SHA-256 of models.json is not that in SHA256SUMS"),
        (dropped("models.json"), False, "is damaged: it lacks 'models.json', which SHA256SUMS lists"),
        (added("more.txt"), False, "is damaged: it has more.txt, which SHA256SUMS does not list"),
        (dropped(SUMS), False, "is not a bundle: it has no SHA256SUMS"),
        (dropped("results/claims.json"), True, "is not a bundle: it has no results/claims.json"),
        (
            added("../escaped.txt"),
            True,
            "has a file named '../escaped.txt'; a bundle has each file once, at a relative",
        ),
        (added("/etc/escaped"), True, "has a file named '/etc/escaped'"),
        (added("models/../../escaped"), True, "has a file named 'models/../../escaped'"),
        (added("models/.hidden"), True, "has a file named 'models/.hidden'"),
        (added("back\\slash"), True, r"has a file named 'back\\\\slash'"),
        (
            edited(measured="much"),
            True,
            r"cannot be read: claims\[0\].measured is 'much'; it must be a finite number",
        ),
        (edited(interval=[1]), True, r"claims\[0\].interval is \[1\]; it must have 2 elements"),
        (edited(verdict="\x1b[31m"), True, r"claims\[0\] has unknown fields 'verdict'"),
        (
            edited(groups={"unknown": "0123456789abcdef"}),
            True,
            "details.json.xz has no settings of the group 'unknown'",
        ),
    ],
)
def test_damaged_and_hostile_bundles_are_refused(bundled, tmp_path, change, sums, words):
    path = bundled()
    rewritten(path, change, sums=sums)
    with pytest.raises(ValueError, match=words):
        check(path, tmp_path)
    assert toys.MEASURED == []
    assert not (tmp_path / "fresh").exists()
    assert not list(tmp_path.parent.rglob("escaped*"))


def test_a_file_twice_is_refused(bundled, tmp_path):
    path = bundled()
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("models.json", "again")
    with pytest.raises(ValueError, match=r"has a file named 'models.json'; a bundle has each file once"):
        check(path, tmp_path)


def test_flipped_and_missing_bytes_are_named(bundled, tmp_path):
    path = bundled()
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo("results/details.json.xz")
    for at in range(entry.header_offset + 60, entry.header_offset + 90):
        content[at] ^= 255
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"is damaged: .*results/details.json.xz"):
        check(path, tmp_path)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="is damaged or not a bundle: it cannot be read as a zip archive"):
        check(path, tmp_path)


def test_other_files_and_studies_are_named(bundled, tmp_path):
    path = bundled()
    with pytest.raises(FileNotFoundError, match=r"there is no archive .*nowhere.zip"):
        check(tmp_path / "nowhere.zip", tmp_path)
    (tmp_path / "text.zip").write_text("not a zip")
    with pytest.raises(ValueError, match="is damaged or not a bundle"):
        check(tmp_path / "text.zip", tmp_path)
    with pytest.raises(ValueError, match="has results of the study toy, not of other"):
        check(path, tmp_path, study=replace(STUDY, name="other"))


def test_large_archives_are_refused(bundled, tmp_path, monkeypatch):
    path = bundled()
    monkeypatch.setattr(bundles, "LARGEST_BUNDLE", 1000)
    with pytest.raises(ValueError, match="has more than 1000 bytes unpacked"):
        check(path, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(bundles, "LARGEST", 2000)
    with pytest.raises(ValueError, match=r"results/claims.json in .* has more than 2000 bytes"):
        check(path, tmp_path)


def test_models_that_no_claim_names_are_not_unpacked(bundled, tmp_path):
    path = bundled(with_models=True)
    files = {f"models/{'f' * 20}/{name}": b"{}" for name in bundles.MODEL_FILES}
    rewritten(path, lambda known: known | files)
    assert check(path, tmp_path).passed
    assert not list((tmp_path / "fresh").rglob("f" * 20))


@pytest.mark.parametrize("file", bundles.MODEL_FILES)
def test_a_file_of_a_model_that_changes_after_the_hashes_were_compared_is_refused(bundled, tmp_path, file):
    path = bundled(with_models=True)
    bundle = open_bundle(path)
    key = next(name.split("/")[1] for name in bundle.sums if name.startswith("models/"))
    inside = f"models/{key}/{file}"
    rewritten(path, lambda files: files | {inside: files[inside] + b" "})
    with pytest.raises(ValueError, match=r"toy\.zip was changed while it was read"):
        bundle.unpack_models(tmp_path / "models", [key])
    assert not (tmp_path / "models" / key / file).exists()


@pytest.mark.parametrize("file", [CLAIMS, DETAILS])
def test_results_that_change_after_the_hashes_were_compared_are_refused(bundled, file):
    path = bundled()
    bundle = open_bundle(path)
    inside = f"{bundles.RESULTS}/{file}"
    rewritten(path, lambda files: files | {inside: files[inside] + b" "})
    with pytest.raises(ValueError, match=r"toy\.zip was changed while it was read"):
        bundle.results("toy")


def test_models_that_are_not_trained_are_named(reproduce, tmp_path):
    """Those of claims without a number are not needed."""
    reproduce(only=["figure-1"])
    assert len(_models(STUDY.bundle(tmp_path / "two.zip", folder=tmp_path, with_models=True))) == 2
    shutil.rmtree(tmp_path / "models" / toys.specs(2)[1].key)
    with pytest.raises(
        ValueError, match=r"the model \w{20} \(seed 1\) is not in .*models; train it, or bundle without"
    ):
        STUDY.bundle(tmp_path / "toy.zip", folder=tmp_path, with_models=True)
    assert not (tmp_path / "toy.zip").exists()
    assert [one["weights"] is None for one in _models(STUDY.bundle(tmp_path / "toy.zip", folder=tmp_path))].count(
        True
    ) == 1


def _models(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("models.json"))


def test_measures_of_a_bundle_are_compared_with_todays(bundled, tmp_path):
    path = bundled()
    changed = replace(STUDY, claims=[replace(DRAWN, measure=lambda evidence: toys.one_row(0.51, 0.0, 1.0, n=50))])
    (one,) = check(path, tmp_path, study=changed).comparisons
    assert one.status == "differs"
    assert one.reason.startswith("another number")


def test_models_that_were_unpacked_are_not_written_again(bundled, tmp_path):
    path = bundled(with_models=True)
    assert check(path, tmp_path).passed
    (folder,) = (tmp_path / "fresh").iterdir()
    first, second, *_ = sorted((folder / "models").iterdir())
    before = first.stat().st_ino, (first / "model.safetensors").stat().st_mtime_ns
    shutil.copy(first / "model.safetensors", second)  # is written again
    assert check(path, tmp_path).passed
    assert (first.stat().st_ino, (first / "model.safetensors").stat().st_mtime_ns) == before


@pytest.fixture(scope="module")
def half(toy_run, tmp_path_factory):
    """A bundle with weights in half precision."""
    folder = tmp_path_factory.mktemp("half")
    return STUDY.bundle(folder / "toy.zip", folder=toy_run[0], with_models=True, half=True)


def test_weights_are_rounded_where_claims_have_intervals(half, archives, toy_run):
    models = {model["key"]: model for model in _models(half)}
    in_full = {model["key"]: model for model in _models(archives[True])}
    assert models.keys() == in_full.keys()
    rounded = {key for key, model in models.items() if "rounded_from" in model}
    assert {models[key]["rounded_from"] for key in rounded} == {in_full[key]["weights"] for key in rounded}
    # The claim of the group `few` has a number without an interval if its two models are equally right
    exact = toy_run[1].claims[1].measurement.exact
    assert {models[spec.key]["seed"] for spec in toys.specs(3) if spec.key in rounded} == ({2} if exact else {0, 1, 2})
    with zipfile.ZipFile(half) as archive:
        readme = archive.read("README.md").decode()
        sizes = {name: archive.getinfo(name).file_size for name in archive.namelist()}
    for key in rounded:
        weights = sum(size for name, size in sizes.items() if name.startswith(f"models/{key}/model"))
        assert weights < 0.75 * RunFolder(toy_run[0] / "models" / key).model_path.stat().st_size
    assert f"The weights of {len(rounded)} are rounded to half precision" in readme
    assert "The 3 trained models are in `models/`" in readme


def test_rounded_models_are_those_of_the_bundle_up_to_rounding(half, tmp_path, toy_run, trained):
    result = check(half, tmp_path)
    assert (result.passed, trained) == (True, [])
    (folder,) = (tmp_path / "fresh").iterdir()
    for key in open_bundle(half).rounded:
        unpacked = RunFolder(folder / "models" / key)
        assert unpacked.is_trained()  # its weights have the hash of its manifest
        before = RunFolder(toy_run[0] / "models" / key).load_model().state_dict()
        for name, weights in unpacked.load_model().state_dict().items():
            assert weights.dtype == before[name].dtype
            torch.testing.assert_close(weights, before[name], rtol=2**-11, atol=2**-24)
    # Other weights than the bundle lists are refused, also rounded ones
    rewritten(half, swap_rounded)
    with pytest.raises(ForeignRun, match=r"are not those of its models\.json"):
        check(half, tmp_path / "again")


def swap_rounded(files):
    """Exchange the rounded weights of two models, or spoil those of the only one."""
    names = sorted(name for name in files if name.endswith("model.half.safetensors"))
    contents = [files[name] for name in names[1:] + names[:1]]
    return files | dict(zip(names, contents if len(names) > 1 else [b"x"], strict=True))


def test_weights_that_half_precision_cannot_hold_are_not_rounded(tmp_path):
    folder = RunFolder(tmp_path / "run")
    model = hooks.Transformer(toys.CONFIG)
    with torch.no_grad():
        next(model.parameters())[0, 0] = 1e6
    hooks.save_checkpoint(model, folder.model_path)
    assert rounded_files(folder) is None
