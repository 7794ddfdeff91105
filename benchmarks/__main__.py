"""Run benchmarks and print their results: `python -m benchmarks`, `python -m benchmarks import audit`."""

import argparse
import importlib
import pkgutil
import time

import torch

import benchmarks

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
    for name in arguments.names or names:
        start = time.perf_counter()
        for result in importlib.import_module(f"benchmarks.bench_{name}").comparisons():
            print(result, flush=True)
        print(f"{name}: {time.perf_counter() - start:.0f} s\n", flush=True)
