"""Run every benchmark on one thread and print its results: `python -m benchmarks`."""

import importlib
import pkgutil

import torch

import benchmarks
from benchmarks.timing import print_all

if __name__ == "__main__":
    torch.set_num_threads(1)
    for module in sorted(info.name for info in pkgutil.iter_modules(benchmarks.__path__)):
        if module.startswith("bench_"):
            print_all(importlib.import_module(f"benchmarks.{module}").comparisons())
