import sys
from types import SimpleNamespace

import pytest

from interp.cli.main import main


@pytest.fixture
def interp(tmp_path, monkeypatch, capsys):
    """Runs `interp ...` in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["interp", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return SimpleNamespace(returncode=stopped.value.code or 0, stdout=printed.out, stderr=printed.err)

    return run
