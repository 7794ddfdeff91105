"""`interp.implements` on known answers and untrained models: `python -m benchmarks.algorithms FILE.jsonl --seeds 0 10`.

Each model is tested once and appended to the file; an interrupted run is resumed. A summary is printed at the end.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import interp
from hooks import Transformer
from interp import algorithms
from interp.algorithms import Algorithm, ImplementsResult
from interp.core.randomness import derived_seed
from interp.core.verbs import untrained_copy
from interp.known_answers import known_answer
from interp.known_answers.template.copy import template_copy
from interp.known_answers.template.same import template_same
from interp.tasks import Task, Template

NAMES = {
    "loop Z2 0": "chain loop",
    "loop S3 1": "chain loop",
    "loop untied Z3 2": "chain loop",
    "shortcut 0": "sign count",
    "dyck stack": "bracket stack",
    "dyck uniform": "depth counter",
    "dyck balanced": "depth counter",
    "dyck balanced, uneven": "depth counter",
    "template copy": "equality test",
    "template same": "equality test",
}
"""Known answers, and the algorithm of each; those of templates are on strings on which the algorithms differ."""
STRINGS = {
    "template copy": ("abc -> b", "abb -> b", "aba -> b"),
    "template same": ("aba -> +1", "abb -> -1", "abc -> 0"),
}
N, N_UNTRAINED = 512, 256
"""Pairs of inputs."""
UNTRAINED = 2
"""Untrained models of the architecture of each known answer."""


def candidates(task: Task) -> dict[str, Algorithm]:
    """Every ready-made algorithm that is defined for a task, by name."""
    found = {}
    for name in ("chain_loop", "sign_count", "nearest_clause", "bracket_stack", "depth_counter", "equality",
                 "first_symbol", "majority"):  # fmt: skip
        try:
            one = getattr(algorithms, name)(task)
        except ValueError:
            continue  # for another task
        found[one.name] = one
    return found


def test(model: Any, task: Task, right: str, seed: int, n: int) -> ImplementsResult:
    """The result on the right algorithm, with all others as rivals."""
    known = candidates(task)
    own = known.pop(right)
    return interp.implements(model, task, own, rivals=list(known.values()), n=n, seed=seed)


def record(found: ImplementsResult) -> dict[str, Any]:
    """What is kept of a result."""
    tested = [one for one in found.findings if one.found != "not tested"]
    own = [one for one in tested if one.algorithm == found.algorithm]
    shares = [value for one in own for value in (one.accuracy, one.kept) if not np.isnan(value)]
    answers = next(one.accuracy for one in found.answers if one.algorithm == found.algorithm)
    above = [f"{one.variable} of {one.algorithm}" for one in tested if one.algorithm != found.algorithm
             and one.low > one.baseline]  # fmt: skip
    return {
        "verdict": found.verdict, "reason": found.reason, "least": min([answers, *shares]), "tested": len(own),
        "rivals above what is forced": above,
    }  # fmt: skip


def models(first: int, last: int) -> Iterator[tuple[str, str, int, Any, Task]]:
    """Name, algorithm, seed, model and task of each known answer and of untrained copies of it."""
    for seed in range(first, last):
        for name, right in NAMES.items():
            model, task = build(name, seed)
            yield name, right, seed, model, task
            for copy in range(UNTRAINED):
                yield (
                    f"untrained {copy}: {name}",
                    right,
                    seed,
                    untrained_copy(model, derived_seed(seed, name, copy) % 2**31),
                    task,
                )


def build(name: str, seed: int) -> tuple[Transformer, Task]:
    """A known answer and its task."""
    if name not in STRINGS:
        known = known_answer(name, seed)
        return known.model, known.task
    task = Template(templates=STRINGS[name])
    if name == "template copy":
        return template_copy(task, relative=bool(seed % 2), seed=seed), task
    return template_same(task, seed=seed), task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 10))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in chosen.results.read_text().splitlines()] if chosen.results.exists() else []
    done = {(row["name"], row["seed"]) for row in rows}
    for name, right, seed, model, task in models(*chosen.seeds):
        if (name, seed) in done:
            continue
        start = time.process_time()
        row = {
            "name": name,
            "seed": seed,
            **record(test(model, task, right, seed, N_UNTRAINED if name.startswith("untrained") else N)),
        }
        rows.append(row | {"seconds": round(time.process_time() - start, 2)})
        with chosen.results.open("a") as file:
            print(json.dumps(rows[-1]), file=file)
        print(f"{len(rows)}: {name}, seed {seed}: {row['verdict']} ({row['least']:.3f})", flush=True)
    summarise(rows)


def summarise(rows: list[dict[str, Any]]) -> None:
    """Verdicts by name, the least share of the right algorithm, and rivals above what is forced."""
    for name in ("untrained", *NAMES):
        some = [row for row in rows if row["name"].startswith(name)]
        if some:
            least = min(row["least"] for row in some)
            above = sum(bool(row["rivals above what is forced"]) for row in some)
            verdicts = dict(Counter(row["verdict"] for row in some))
            print(f"{name}: {len(some)} models, {verdicts}; least share {least:.3f}; rivals above forced in {above}")


if __name__ == "__main__":
    main()
