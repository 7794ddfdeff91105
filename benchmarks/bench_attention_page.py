"""First paint of a large attention page in Chromium, loaded from a file."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.timing import Result, seconds
from interp.view.attention import AttentionPage, Example, canvas_page

HEADS, LENGTH, ROUNDS = 144, 128, 5
BAR = 2.0
"""Seconds."""
LONG, MEGABYTES = 1000, 15.0
"""Tokens of a long sequence, and bar of the file's size."""
SCRIPT = """<script>(async () => {
  while (!performance.getEntriesByType("paint").length) await new Promise((done) => setTimeout(done, 20));
  const last = Math.max(...performance.getEntriesByType("paint").map((entry) => entry.startTime));
  document.body.append(Object.assign(document.createElement("pre"), { id: "found", textContent: last }));
})();</script></body>"""


def comparisons() -> Iterator[Result]:
    long = len(page_of(LONG).html.encode()) / 1e6
    name = f"file of {HEADS} heads x {LONG:,} tokens"
    yield Result(name=name, figures=f"{long:.1f} MB", bar=MEGABYTES, passes=long <= MEGABYTES)
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        return
    page = page_of(LENGTH)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(page.html.replace("</body>", SCRIPT))
        taken = tuple(painted(browser, path, Path(folder) / f"profile{index}") for index in range(ROUNDS))
    yield seconds(f"first paint of {HEADS} heads x {LENGTH} tokens", taken, bar=BAR)


def page_of(length: int) -> AttentionPage:
    """Random rows of attention, which compress badly."""
    rows = np.random.default_rng(0).exponential(size=(HEADS, length, length))
    example = Example(
        tokens=tuple(f"w{i}" for i in range(length)),
        patterns=rows / rows.sum(-1, keepdims=True),
        relations={"diagonal": np.eye(length, dtype=bool)},
    )
    names = [str(head) for head in range(HEADS)]
    return canvas_page([example], heads=names, labels=[""] * HEADS, columns=12, title="attention")


def painted(browser: str, path: Path, profile: Path) -> float:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command = [browser, *flags, "--virtual-time-budget=20000", f"--user-data-dir={profile}", "--dump-dom"]
    done = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, check=True)
    found = re.search(r'<pre id="found">([\d.]+)</pre>', done.stdout)
    assert found is not None
    return float(found.group(1)) / 1e3
