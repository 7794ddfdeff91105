"""Imports and a first verb in a fresh process, against the import of torch and TransformerLens alone."""

import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.timing import BenchmarkResult, ratio

BASE = "import torch, transformer_lens"
PUBLIC_NAMES = f"{BASE}, hooks, interp; hooks.Transformer, hooks.TransformerConfig, interp.tasks.Lego"
FIRST_VERB = """
import hooks, interp
task = interp.tasks.Lego(n_vars=3)
model = hooks.Transformer(interp.config_for(task, n_layers=2, n_heads=2, d_model=32))
interp.evaluate(model, task, n=1000)
"""
ROUNDS = 4


def comparisons() -> Iterator[BenchmarkResult]:
    # Fresh processes in turn, after one warm-up of each
    codes = (BASE, PUBLIC_NAMES, FIRST_VERB)
    rounds = [[cpu_time_of_process(code) for code in codes] for _ in range(1 + ROUNDS)]
    base, names, verb = zip(*rounds[1:], strict=True)
    yield ratio("import hooks and interp, against torch and transformer_lens", names, base, bar=1.05)
    yield ratio("imports and a first verb, against torch and transformer_lens", verb, base, bar=1.15)


def cpu_time_of_process(code: str) -> float:
    """Seconds of CPU that a new process with this code takes."""
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
