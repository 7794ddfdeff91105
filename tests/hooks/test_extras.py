"""A package of an extra that is not installed is named with the command that installs it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hooks.extras
from hooks.extras import MissingExtra, require
from interp.tasks.text.corpus import Corpus

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def without(monkeypatch):
    """Makes a package of an extra seem to be missing; TransformerLens has some of them itself."""

    def hide(missing):
        monkeypatch.setattr(hooks.extras, "find_spec", lambda name: None if name == missing else name)

    return hide


def test_what_is_missing_is_named_with_the_command():
    require("json", extra="text")
    with pytest.raises(MissingExtra) as raised:
        require("no_such_package", extra="text")
    assert str(raised.value) == (
        'no_such_package is not installed, which this needs. Next, in the folder of unmyopic: pip install ".[text]"'
    )
    assert isinstance(raised.value, ImportError)


def test_functions_name_the_extra_that_they_need(without):
    without("datasets")
    with pytest.raises(MissingExtra, match=re.escape('Next, in the folder of unmyopic: pip install ".[text]"')):
        Corpus.from_hub("stories")


@pytest.mark.slow
def test_the_command_line_prints_one_line_and_tasks_of_text_name_their_extra():
    """In a fresh process, which has not imported them yet."""
    code = """import hooks.extras, sys
hooks.extras.find_spec = lambda name: None if name == "tokenizers" else name
import interp
from hooks.extras import MissingExtra
try:
    interp.tasks.Text
except MissingExtra as error:
    print(error)
from interp.cli.main import main
sys.argv = ["interp", "train", "text", "--out", "r"]
main()"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert all('Next, in the folder of unmyopic: pip install ".[text]"' in text for text in (line, done.stdout))


def test_extras_are_complete_and_tests_get_all_of_them():
    extras = PROJECT["optional-dependencies"]
    (all_of,) = [one for one in extras["dev"] if one.startswith("unmyopic[")]
    assert set(all_of.removeprefix("unmyopic[").removesuffix("]").split(",")) == set(extras) - {"dev", "pretrained"}
