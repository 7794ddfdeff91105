"""Import in a fresh process: ours after torch and TransformerLens, against these alone."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.timing import BenchmarkResult, compare

BASE = "import torch, transformer_lens"
OURS = f"{BASE}, hooks, interp; hooks.Transformer, hooks.TransformerConfig, interp.tasks.Lego"


def comparisons() -> Iterator[BenchmarkResult]:
    name = "import hooks and interp, against torch and transformer_lens"
    yield compare(name, partial(fresh, OURS), partial(fresh, BASE), bar=1.05, rounds=7)


def fresh(code: str) -> None:
    """Run code in another process."""
    subprocess.run([sys.executable, "-c", code], check=True)
