"""Run benchmarks and print their results: `python -m benchmarks`, `python -m benchmarks import audit`."""

import argparse
import importlib
import multiprocessing
import pkgutil
import sys
import time
from types import ModuleType

import torch
from joblib.externals.loky import get_reusable_executor

import benchmarks


def run(name: str, module: ModuleType) -> None:
    """Print the results of a benchmark, and how long it took."""
    start = time.perf_counter()
    for result in module.comparisons():
        print(result, flush=True)
    print(f"{name}: {time.perf_counter() - start:.0f} s\n", flush=True)
    # A pool of processes that was used would end after five minutes, and this process after it
    get_reusable_executor().shutdown()


if __name__ == "__main__":
    modules = [info.name for info in pkgutil.iter_modules(benchmarks.__path__)]
    names = sorted(module.removeprefix("bench_") for module in modules if module.startswith("bench_"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run benchmarks, half an hour for all.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"Default: all. {', '.join(names)}.")
    parser.add_argument("--threads", type=int, default=1, help="Number of torch's threads. Default: 1.")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(names)):
        parser.error(f"unknown benchmark {', '.join(unknown)}; choose from {', '.join(names)}.")
    torch.set_num_threads(arguments.threads)
    chosen = {name: importlib.import_module(f"benchmarks.bench_{name}") for name in arguments.names or names}
    # A process each, since memory that one has used makes the next faster or slower
    for name, module in chosen.items():
        process = multiprocessing.get_context("fork").Process(target=run, args=(name, module))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"benchmark {name} failed")
