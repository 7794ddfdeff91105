"""`interp reproduce`, killed by SIGTERM or SIGKILL at a random time: no process is left, and it resumes."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tries import Try

ROOT = Path(__file__).resolve().parents[2]
NEEDED = (ROOT, ROOT / "tests/support", ROOT / "tests/campaigns")
LONGEST = 5.0
"""Seconds after which no process may be left."""
MARK = "UNMYOPIC_CAMPAIGN"


def tries(n: int, folder: Path) -> Iterator[Try]:
    rng, environment = random.Random(0), _with_the_study(folder)
    start = time.perf_counter()
    _reproduce(folder / "whole", environment).wait()
    longest = time.perf_counter() - start
    whole = _claims(folder / "whole")
    for index in range(n):
        kind, path = (signal.SIGTERM, signal.SIGKILL)[index % 2], folder / f"try {index}"
        process, after = _reproduce(path, environment), rng.uniform(0.2, 1) * longest
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.send_signal(kind)
        process.wait()
        end = time.monotonic() + LONGEST
        while _left(folder) and time.monotonic() < end:
            time.sleep(0.05)
        what, left = f"{kind.name} after {after:.1f} s", _left(folder)
        if left:
            for one in left:
                os.kill(one, signal.SIGKILL)
            yield Try(what, "lost", f"{len(left)} processes are left after {LONGEST:g} s")
        code = _reproduce(path, environment).wait()
        if code != 0:
            yield Try(what, "lost", f"the next run ended with {code}")
        elif _claims(path) != whole:
            yield Try(what, "silently wrong", "other results than an undisturbed run")
        else:
            yield Try(what)
        shutil.rmtree(path)


def _with_the_study(folder: Path) -> dict[str, str]:
    """An environment in which the study is installed, as a package would install it."""
    installed = folder / "installed/campaign-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: campaign\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[interp.studies]\ntoy = campaign_study:STUDY\n")
    path = os.pathsep.join(str(one) for one in (installed.parent, *NEEDED))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", MARK: str(folder)}


def _reproduce(folder: Path, environment: dict[str, str]) -> subprocess.Popen:
    code = "from interp.cli.main import main; main()"
    command = [sys.executable, "-c", code, "reproduce", "toy", "--out", str(folder), "--jobs", "2"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _claims(folder: Path) -> list[dict[str, Any]]:
    """The stored claims without times and provenance."""
    content = json.loads((folder / "toy/quick/claims.json").read_text())
    return [{name: value for name, value in one.items() if name not in ("cost", "made")} for one in content["claims"]]


def _left(folder: Path) -> list[int]:
    """Processes that were started here and still run."""
    mark, found = f"{MARK}={folder}".encode(), []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                state = (process / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
            except OSError:  # it ended meanwhile
                continue
    return found
