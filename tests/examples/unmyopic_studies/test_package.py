"""The package of studies about the tool: known to this environment, and complete when it is installed elsewhere."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from interp.cli.installed_studies import study_entry_points

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples/unmyopic-studies"


def test_its_studies_are_known_here():
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"]["interp.studies"]
    known = {name: point.value for name, point in study_entry_points().items()}
    assert set(declared) == {"approximations", "audit", "compiled", "development"}
    assert {name: known.get(name) for name in declared} == declared, "run make .venv/ready"


@pytest.mark.slow
def test_it_is_installed_with_its_results(tmp_path):
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}

    def run(*command):
        done = subprocess.run(
            [sys.executable, *map(str, command)], cwd=tmp_path, env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    run("-m", "pip", "install", *offline, "--target", site, source)
    shutil.rmtree(source)
    code = "import tool_studies; print(tool_studies.__file__); from interp.cli.main import main; main()"
    shown = run("-c", code, "reproduce", "development", "--page", "--out", "pages")
    assert shown.startswith(str(site))
    assert "development at size standard. " in shown
    for study in ("approximations", "audit", "compiled"):
        files = {path.name for path in (site / "tool_studies" / study / "results").iterdir()}
        assert files == {"claims.json", "details.json.xz"}
