"""Level of labels and verdicts: untrained models of every initialisation, classified and audited.

`python -m benchmarks.levels --models 1000 --out levels.jsonl` appends one line per model; run again, it resumes.
`--audit` also audits each model; `--shuffled STEPS` first trains it on shuffled labels. The table has the share of
models with a label, for each initialisation.
"""

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from scipy import stats

import interp
from case_studies.audit.controls import with_shuffled_labels
from hooks import make_model
from hooks.model.config import Initialisation
from interp.core.statistics import proportion_interval
from interp.tasks import Batch, Dyck, Lego, Task, Template, Vocab

INITS = get_args(Initialisation)
LEVEL = 0.01
N = 64
"""Sequences of each model."""
CLAIMS = ("faithful", "misleading", "hidden", "redundant")
"""Verdicts that claim that a head does something, or nothing although it has a label."""


@dataclass(frozen=True, kw_only=True)
class ModularAddition(Task):
    """The sum of two numbers modulo 31."""

    @property
    def targets(self) -> tuple[str, ...]:
        return ("sum",)

    @property
    def vocab(self) -> Vocab:
        return Vocab([*map(str, range(31)), "="])

    def sample(self, n: int, *, generator: torch.Generator, split: str = "train") -> Batch:
        pairs = torch.cartesian_prod(torch.arange(31), torch.arange(31))
        pairs = pairs[torch.tensor([{"train": 0, "validation": 1, "test": 2}[split]]) == (pairs * 5).sum(1) // 5 % 3]
        a, b = pairs[torch.randint(len(pairs), (n,), generator=generator)].T
        return Batch(
            tokens=torch.stack([a, b, torch.full_like(a, 31)], 1),
            target_positions=torch.full((n, 1), 2),
            labels=(a + b)[:, None] % 31,
            supervised=torch.tensor([True]),
        )


SETTINGS: dict[str, tuple[Task, Sequence[str | None]]] = {
    "lego": (Lego(n_vars=4), (None, "gpt")),
    "lego, compact": (Lego(n_vars=3, sentence_format="compact"), (None,)),
    "dyck": (Dyck(max_depth=3, length=20), (None, "dyck_gpt")),
    "aba": (Template(templates="aba_abb"), (None, "lego", "template")),
    "aabb": (Template(templates="aabb_abab"), (None, "lego", "template")),
    "majority of 4": (Template(templates="majority"), (None, "lego", "template")),
    "abcabc": (Template(templates=["abcabc -> +1", "abccba -> -1"]), (None, "lego", "template")),
    "next token": (Template(templates=["abab -> a", "abba -> b"], form="next_token"), (None, "lego")),
    "sum": (ModularAddition(), (None,)),
}
"""Tasks by name, each with the families of `config_for`."""


def setting(index: int) -> tuple[str, str, Task, Any]:
    """Initialisation, name of the task, task and config of a model."""
    init, name = list(product(INITS, SETTINGS))[index % (len(INITS) * len(SETTINGS))]
    task, families = SETTINGS[name]
    draw = random.Random(index)
    n_layers, n_heads, d_model = draw.choice([1, 2, 3, 4]), draw.choice([2, 4, 8]), draw.choice([32, 64])
    sizes = {"n_layers": n_layers, "n_heads": n_heads, "d_model": d_model, "d_head": d_model // n_heads}
    return init, name, task, interp.config_for(task, draw.choice(families), init=init, **sizes)


def measure(index: int, *, audit: bool, shuffled: int) -> dict[str, Any]:
    """Labels of one model, and its verdicts."""
    init, name, task, cfg = setting(index)
    started = time.perf_counter()
    model = make_model(cfg, seed=10_000_000 + index).eval()
    if shuffled:
        settings = interp.TrainSettings(steps=shuffled, batch_size=32)
        task = with_shuffled_labels(task)
        model = interp.train(model, task, settings).model.eval()
    found = interp.classify_heads(model, task, n=N, alpha=LEVEL, seed=index)
    labels = Counter(label for row in found.label for label in row)
    line: dict[str, Any] = {"index": index, "init": init, "task": name, "labels": labels}
    if audit:
        heads = interp.audit(model, task, n=N, alpha=LEVEL, at_chance=True, seed=index).heads
        line["verdicts"] = Counter(head.verdict for head in heads)
    return line | {"untrained": found.n_untrained, "seconds": round(time.perf_counter() - started, 2)}


def table(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Share of models with a label of a kind, `uniform`, or a verdict that claims something, by initialisation."""
    events = {"a kind": kinds_of, "uniform": lambda line: line["labels"].get("uniform", 0)}
    if any("verdicts" in line for line in lines):
        events["a verdict"] = lambda line: sum(line.get("verdicts", {}).get(name, 0) for name in CLAIMS)
    for event, count in events.items():
        outside = expected = 0.0
        for init in (*INITS, "all"):
            hits = [count(line) > 0 for line in lines if init in ("all", line["init"])]
            if not hits:
                continue
            low, high = proportion_interval(np.array(sum(hits)), len(hits))
            p = stats.binom.sf(sum(hits) - 1, len(hits), LEVEL)
            yield f"{event:<10} {init:<9} {sum(hits):>4} of {len(hits):<5} [{low:.4f}, {high:.4f}]  p {p:.3f}"
            if init != "all":
                outside += p < 0.05
                expected += stats.binom.sf(stats.binom.isf(0.05, len(hits), LEVEL), len(hits), LEVEL)
        yield f"{event}: {outside:.0f} initialisations with p below 0.05, {expected:.2f} expected at level {LEVEL}"


def kinds_of(line: dict[str, Any]) -> int:
    """Heads with a label of a kind."""
    return sum(count for label, count in line["labels"].items() if label not in ("uniform", "unclassified"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("levels.jsonl"))
    parser.add_argument("--audit", action="store_true")
    parser.add_argument("--shuffled", type=int, default=0, metavar="STEPS")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    lines = [json.loads(text) for text in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
    done = {line["index"] for line in lines}
    with chosen.out.open("a") as file:
        for index in range(chosen.models):
            if index not in done:
                lines.append(measure(index, audit=chosen.audit, shuffled=chosen.shuffled))
                file.write(json.dumps(lines[-1]) + "\n")
                file.flush()
    print("\n".join(table(lines)))


if __name__ == "__main__":
    main()
