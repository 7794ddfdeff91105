"""The studies of models of others: shipped results without an installation, their own tests with one."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples/unmyopic-published"


@pytest.mark.parametrize(("study_name", "n_claims"), [("published", 84), ("verified", 127)])
def test_its_entry_point_is_a_study_that_ships_a_number_of_every_claim(monkeypatch, tmp_path, study_name, n_claims):
    monkeypatch.syspath_prepend(EXAMPLE)
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["interp.studies"][study_name].partition(":")
    study = getattr(import_module(module), name)
    stored, _ = study.stored(folder=tmp_path)
    entries = {entry["id"]: entry for entry in stored.content["claims"]}
    assert len(entries) == n_claims
    assert {claim.id for claim in study.claims} == set(entries)


@pytest.mark.slow
def test_it_is_installed_with_its_results_and_its_own_tests_pass(tmp_path):
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))  # a build writes next to its sources
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}

    def run(*command):
        done = subprocess.run(
            [sys.executable, *map(str, command)], cwd=tmp_path, env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    run("-m", "pip", "install", *offline, "--target", site, source)
    for package in ("published_readings", "verified_circuits"):
        shutil.rmtree(source / package)
    assert run("-c", "import published_readings as package; print(package.__file__)").startswith(str(site))
    shown = run("-c", "from interp.cli.main import main; main()", "reproduce", "published", "--page", "--out", "pages")
    assert "published at size standard. 79 published statements: 65 reproduced, 14 not reproduced" in shown
    shown = run("-c", "from interp.cli.main import main; main()", "reproduce", "verified", "--page", "--out", "pages")
    assert "verified at size standard. 89 published statements: 38 reproduced, 50 not reproduced" in shown
    printed = run("-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLE / "tests")
    passed = re.search(r"^(\d+) passed", printed, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) > 100
