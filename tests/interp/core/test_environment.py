"""Which version of the source made a result."""

import sys

import pytest

from interp.core import environment


@pytest.mark.parametrize(
    ("commit", "status", "changed"),
    [
        ("0123456789abcdef", "", False),
        ("0123456789abcdef", " M interp/core/environment.py", True),
        (None, " M x", False),
    ],
)
def test_the_source_has_changed_only_if_files_differ_from_its_commit(monkeypatch, tmp_path, commit, status, changed):
    package = tmp_path / "interp/__init__.py"
    monkeypatch.setattr(environment.interp, "__file__", str(package))
    if commit:
        (tmp_path / ".git").mkdir()
    answers = {"rev-parse": commit, "status": status}
    monkeypatch.setattr(environment, "_git", lambda root, command, *arguments: answers[command])
    version = environment.source_version.__wrapped__()
    assert (version["commit"], version["changed"]) == (commit, changed)
    shown = environment.source_line(version)
    assert shown.startswith("0123456789" if commit else "version ")
    assert shown.endswith(" with changes") == changed


def test_a_command_with_a_file_name_that_is_no_text_can_be_stored(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/bin/interp", "heads", "run", "--page", "p\udcff.html"])
    assert environment.command_line() == r"interp heads run --page 'p\udcff.html'"
