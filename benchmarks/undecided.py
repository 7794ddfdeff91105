"""Undecided heads in the models of the studies, audited with `n="enough"`.

`python -m benchmarks.undecided runs/reproduce --seeds 3 --out undecided.jsonl` audits the trained models in a folder
of `interp reproduce`, the first seeds of each group, and appends one line per model; run again, it resumes. Models
that have not learned their task are counted and left out, as in the studies. The table has the share of undecided
heads, of those with a readable label and of all, by study.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

import interp
from case_studies.frame.evidence import Evidence
from case_studies.frame.learned import has_learned
from interp.core.statistics import proportion_interval
from interp.training.folder import RunFolder
from interp.training.spec import ModelSpec

STUDIES = ("audit", "lego", "dyck", "template")
LIMIT = 1024


def models(folder: Path, seeds: int) -> Iterator[tuple[str, str, Evidence, ModelSpec]]:
    """Study, group, evidence and model: each trained model once."""
    seen: set[str] = set()
    for study in STUDIES:
        for group, specs in import_module(f"case_studies.{study}.study").STUDY.groups("standard").items():
            evidence = Evidence(size="standard", seed=0, groups={group: tuple(specs)}, folder=folder / "models")
            for spec in list(specs)[:seeds]:
                if not getattr(spec.config, "n_heads", 0):
                    continue  # a fully connected network
                if spec.key not in seen and RunFolder(evidence.folder / spec.key).finished:
                    seen.add(spec.key)
                    yield study, group, evidence, spec


def measure(evidence: Evidence, spec: ModelSpec) -> dict[str, Any]:
    """The verdicts of one model, or that it has not learned its task."""
    if not has_learned(evidence, spec):
        return {"learned": False}
    started, model = time.process_time(), evidence.run(spec).model
    outcomes = spec.task.audited_outcomes
    found = interp.audit(model, spec.task, n="enough", limit=LIMIT, outcomes=outcomes, at_chance=True)
    heads = [(head.place, head.label, head.readable, head.verdict, head.n, head.n_to_decide) for head in found.heads]
    return {"learned": True, "heads": heads, "seconds": round(time.process_time() - started, 2)}


def table(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Share of undecided heads by study; each with the exact interval over heads."""
    for study in (*STUDIES, "all"):
        part = [line for line in lines if study in ("all", line["study"])]
        learned = [line for line in part if line["learned"]]
        if not learned:
            continue
        heads = [head for line in learned for head in line["heads"]]
        for name, chosen in (("readable", [head for head in heads if head[2]]), ("all", heads)):
            undecided = sum(head[3] == "undecided" for head in chosen)
            low, high = proportion_interval(np.array(undecided), len(chosen))
            share = f"{undecided:>4} of {len(chosen):<5} {undecided / len(chosen):.3f} [{low:.3f}, {high:.3f}]"
            yield f"{study:<9} {name:<9} {share}  {len(learned)} models, {len(part) - len(learned)} have not learned"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder of `interp reproduce`")
    parser.add_argument("--seeds", type=int, default=3, help="models of each group")
    parser.add_argument("--out", type=Path, default=Path("undecided.jsonl"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    lines = [json.loads(text) for text in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
    done = {line["key"] for line in lines}
    with chosen.out.open("a") as file:
        for study, group, evidence, spec in models(chosen.folder, chosen.seeds):
            if spec.key not in done:
                lines.append({"study": study, "group": group, "key": spec.key, **measure(evidence, spec)})
                file.write(json.dumps(lines[-1]) + "\n")
                file.flush()
    print("\n".join(table(lines)))


if __name__ == "__main__":
    main()
