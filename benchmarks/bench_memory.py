"""Peak memory of verbs beyond that of the imports, each in a fresh process."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.timing import BenchmarkResult

GIGABYTE = 1024.0
"""Megabytes."""
BARS = {
    "probe": 1 * GIGABYTE,
    "classify_heads": 2 * GIGABYTE,
    "attention page": 2 * GIGABYTE,
    "evaluate": 1 * GIGABYTE,
    "ablate_heads": 1 * GIGABYTE,
    "attention_variation": 1 * GIGABYTE,
    "edges": 2 * GIGABYTE,
}
"""Bar of the memory of each verb, in megabytes."""
SIZES = {
    "probe": 100_000,
    "classify_heads": 8,
    "attention page": 1000,
    "evaluate": 20_000,
    "ablate_heads": 2000,
    "attention_variation": 2000,
    "edges": 256,
}
"""Examples, sequences or, for the page, tokens."""
TOKENS = 4096


def comparisons() -> Iterator[BenchmarkResult]:
    # Two at a time: what is measured is not time
    with ThreadPoolExecutor(2) as pool:
        used = pool.map(memory_of, SIZES, SIZES.values())
    for (verb, size), megabytes in zip(SIZES.items(), used, strict=True):
        bar = BARS[verb]
        yield BenchmarkResult(
            name=f"{verb}, {size:,}", figures=f"{megabytes:,.0f} MB", bar=bar, passes=megabytes <= bar
        )


def memory_of(verb: str, size: int) -> float:
    """Megabytes that a verb adds to the peak memory of a new process."""
    command = [sys.executable, "-m", "benchmarks.bench_memory", verb, str(size)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def peak() -> float:
    """Largest resident memory of this process so far, in megabytes."""
    import resource

    # Linux counts for a process what the one that started it had
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def run(verb: str, size: int) -> float:
    """Run a verb once in this process, and return the megabytes that it added to the peak."""
    call = prepared(verb, size)
    before = peak()
    call()
    return peak() - before


def prepared(verb: str, size: int) -> Callable[[], object]:
    """A call of a verb with this number of examples, its imports done by a small call before."""
    import numpy as np
    import torch

    import interp
    from hooks import Transformer
    from interp.tasks import Dyck, Lego
    from interp.view.attention import Example, canvas_page

    torch.set_num_threads(1)

    def model(task: interp.tasks.Task, n_layers: int, seed: int = 0) -> Transformer:
        return Transformer(interp.config_for(task, d_model=64, n_heads=4, n_layers=n_layers), seed=seed).eval()

    # Calls of the verbs with a number of examples
    def probe(task: Lego, n: int) -> object:
        return interp.probe(model(task, 6), task, n_train=n, n_test=max(200, n // 5))

    def classify(task: Dyck, n: int) -> object:
        return interp.classify_heads(model(task, 2), task, n=n, untrained=1)

    def page(n_tokens: int) -> object:
        patterns = np.random.default_rng(0).random((144, n_tokens, n_tokens), dtype=np.float32)
        tokens = tuple(f"w{index}" for index in range(n_tokens))
        names = [str(head) for head in range(144)]
        example = Example(tokens=tokens, patterns=patterns, relations={})
        return canvas_page([example], heads=names, labels=[""] * 144, columns=12, title="attention")

    def vary(n: int) -> object:
        models = [model(lego, 2, seed) for seed in range(3)]
        return interp.attention_variation(models, lego, n_sampled=n, n_baseline=10, resamples=10)

    lego = Lego(n_vars=6)
    dyck = Dyck(length=TOKENS - 2)

    def evaluate(n: int) -> object:
        return interp.evaluate(model(lego, 2), lego, n=n)

    def ablate(n: int) -> object:
        return interp.ablate_heads(model(lego, 1), lego, n=n)

    def edges(n: int) -> object:
        return interp.edges(Transformer(interp.config_for(Lego(n_vars=4))).eval(), Lego(n_vars=4), n=n)

    # The small call of each verb, and the one that is measured
    calls: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "probe": (lambda: probe(lego, 200), lambda: probe(lego, size)),
        "classify_heads": (lambda: classify(Dyck(length=8), 8), lambda: classify(dyck, size)),
        "attention page": (lambda: page(8), lambda: page(size)),
        "evaluate": (lambda: evaluate(8), lambda: evaluate(size)),
        "ablate_heads": (lambda: ablate(8), lambda: ablate(size)),
        "attention_variation": (lambda: vary(2), lambda: vary(size)),
        "edges": (lambda: edges(8), lambda: edges(size)),
    }
    small_call, large_call = calls[verb]
    small_call()
    return large_call


if __name__ == "__main__":
    print(run(sys.argv[1], int(sys.argv[2])))
