"""First paint of a large attention page in Chromium, loaded from a file."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.timing import BenchmarkResult, seconds
from interp.view.attention import AttentionPage, Example, canvas_page

HEADS, LENGTH, ROUNDS = 144, 128, 5
BAR = 2.0
"""Seconds."""
LONG, MEGABYTES = 1000, 15.0
"""Tokens of a long sequence, and bar of the file's size."""
SCRIPT = """<script>(async () => {
  while (!performance.getEntriesByType("paint").length) await new Promise((done) => setTimeout(done, 20));
  const last = Math.max(...performance.getEntriesByType("paint").map((entry) => entry.startTime));
  document.body.append(Object.assign(document.createElement("pre"), { id: "last-paint", textContent: last }));
})();</script></body>"""


def comparisons() -> Iterator[BenchmarkResult]:
    megabytes = len(page_of(LONG).html.encode()) / 1e6
    name = f"file of {HEADS} heads x {LONG:,} tokens"
    yield BenchmarkResult(name=name, figures=f"{megabytes:.1f} MB", bar=MEGABYTES, passes=megabytes <= MEGABYTES)
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        return
    page = page_of(LENGTH)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(page.html.replace("</body>", SCRIPT))
        times = [first_paint(browser, path, Path(folder) / f"profile{index}") for index in range(ROUNDS)]
    yield seconds(f"first paint of {HEADS} heads x {LENGTH} tokens", times, bar=BAR)


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


def first_paint(browser: str, path: Path, profile: Path) -> float:
    """Seconds until the page is painted."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command = [browser, *flags, "--virtual-time-budget=20000", f"--user-data-dir={profile}", "--dump-dom"]
    process = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, check=True)
    match = re.search(r'<pre id="last-paint">([\d.]+)</pre>', process.stdout)
    assert match is not None
    return float(match.group(1)) / 1e3
