"""Run benchmarks on one thread and print their results: `python -m benchmarks`, `python -m benchmarks import audit`."""

import argparse
import importlib
import pkgutil

import torch

import benchmarks
from benchmarks.timing import print_all

if __name__ == "__main__":
    found = (info.name for info in pkgutil.iter_modules(benchmarks.__path__))
    names = sorted(name.removeprefix("bench_") for name in found if name.startswith("bench_"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run benchmarks, half an hour for all.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"Default: all. {', '.join(names)}.")
    chosen = parser.parse_args().names
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"unknown benchmark {', '.join(unknown)}; choose from {', '.join(names)}.")
    torch.set_num_threads(1)
    for name in chosen or names:
        print_all(importlib.import_module(f"benchmarks.bench_{name}").comparisons())
