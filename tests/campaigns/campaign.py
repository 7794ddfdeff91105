"""The campaign: thousands of tries to lose something, to let something in, or to be silently wrong or unclear.

`make campaign` runs all of it on two processes; `--share 0.1` a tenth; `--only pages killed` some areas. It prints
each failure when its area is done, then a table of tries and failures; exit code 1 if there is one.
"""

import argparse
import importlib
import multiprocessing
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support"), str(ROOT / "tests/campaigns")]
AREAS = {
    "crashes at file operations": ("crashes", "at_every_operation", 400),
    "killed trainings": ("crashes", "killed", 100),
    "full disks": ("crashes", "full_disk", 100),
    "concurrent trainings": ("crashes", "concurrent", 200),
    "folders without locks": ("locks_tries", "tries", 300),
    "killed studies": ("studies", "tries", 40),
    "saved results, used": ("restored", "results", 4600),
    "claims and manifests, used": ("restored", "claims_and_manifests", 1200),
    "damaged files": ("damage_tries", "tries", 3300),
    "arguments": ("arguments", "tries", 3500),
    "hostile folders": ("folders", "tries", 400),
    "hostile pages": ("pages", "tries", 120),
    "hook points": ("models_tries", "hook_points", 2000),
    "batches and padding": ("models_tries", "batches", 1000),
    "threads": ("models_tries", "threads", 900),
    "edits in place": ("edits_tries", "in_place", 1500),
    "compiled models": ("edits_tries", "compiled", 600),
    "masks": ("edits_tries", "masks", 800),
    "HookedTransformer settings": ("settings_tries", "hooked_transformers", 3000),
    "Hugging Face settings": ("settings_tries", "hugging_face", 2500),
    "forked processes": ("forks_tries", "forks", 60),
    "identity of models": ("identity_tries", "tries", 900),
    "probe labels": ("labels_tries", "tries", 800),
    "numbers that are not finite": ("finite_tries", "tries", 400),
    "contradicting results": ("contradictions_tries", "tries", 800),
    "widths of batches": ("widths_tries", "tries", 300),
    "modules as they are written": ("modules_tries", "tries", 150),
    "modes and links": ("outputs_tries", "files", 150),
    "closed and full outputs": ("outputs_tries", "commands", 40),
    "plug-ins": ("plug_ins_tries", "tries", 60),
}
"""Module, function and number of tries of each area."""
MOST = 60
"""Failures of an area that are printed."""


def run(area: str, share: float) -> tuple[str, int, list[tuple[str, str, str]], float]:
    """Run an area: its name, the number of tries, failures (fault, what, detail), and seconds."""
    import torch

    torch.set_num_threads(1)
    module, function, n = AREAS[area]
    start, tried, failures = time.perf_counter(), 0, []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for one in getattr(importlib.import_module(module), function)(max(1, round(n * share)), Path(folder)):
                tried += 1
                if one.fault:
                    failures.append((one.fault, one.what, one.detail))
        except BaseException:  # the area itself failed, in whatever way
            failures.append(("lost", f"after {tried} tries", traceback.format_exc()))
    return area, tried, failures, time.perf_counter() - start


def table(results: list[tuple[str, int, list[tuple[str, str, str]], float]]) -> str:
    """Tries and failures of each area, in text."""
    from tries import FAULTS

    lines = [f"{'area':28s}{'tries':>8s}" + "".join(f"{fault:>16s}" for fault in FAULTS) + f"{'seconds':>9s}"]
    total: Counter[str] = Counter()
    for area, tried, failures, seconds in results:
        counts = Counter(fault for fault, _, _ in failures)
        total += counts + Counter(tries=tried)
        lines.append(f"{area:28s}{tried:8d}" + "".join(f"{counts[one]:16d}" for one in FAULTS) + f"{seconds:9.0f}")
    lines.append(f"{'all':28s}{total['tries']:8d}" + "".join(f"{total[one]:16d}" for one in FAULTS))
    return "\n".join(lines)


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="share of the tries")
    parser.add_argument("--only", nargs="+", choices=list(AREAS), default=list(AREAS), metavar="AREA")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    results = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=1) as pool:
        for one in [pool.submit(run, area, options.share) for area in options.only]:
            results.append(one.result())
            area, tried, failures, seconds = results[-1]
            print(f"{area}: {tried} tries, {len(failures)} failures, {seconds:.0f} s", flush=True)
            for fault, what, detail in failures[:MOST]:
                print(f"    {fault}: {what}\n        {detail}", flush=True)
    print(table(results))
    return int(any(failures for _, _, failures, _ in results))


if __name__ == "__main__":
    sys.exit(main())
