"""The audit on every known answer: `python -m benchmarks.known_answers RESULTS.jsonl --seeds 0 10`.

Each answer is audited once and its heads are appended to the file; an interrupted run is resumed.
At the end all differences from the truth are printed, for the chosen seeds and names.
"""

import argparse
import fnmatch
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

import interp
from interp.known_answers import SUITE, known_answer

N, MORE = 256, 4
"""Number of sequences, and the factor by which it grows if a head is undecided."""


def audit_answer(name: str, seed: int, n: str) -> dict[str, Any]:
    """Audit one known answer: the truth, the verdict and the reason for every head, and the CPU seconds.

    Args:
        name: Key of `SUITE`.
        seed: Seed of the answer, and of the audit.
        n: `256`, and four times that if a head is undecided; or `enough`.
    """
    known, start = known_answer(name, seed), time.process_time()
    if n == "enough":
        result = interp.audit(known.model, known.task, n="enough", seed=seed)
    else:
        result = interp.audit(known.model, known.task, n=int(n), seed=seed)
        if result.of("undecided"):
            result = interp.audit(known.model, known.task, n=MORE * int(n), seed=seed)
    heads = []
    for found, sentence in zip(result.heads, result.sentences(), strict=True):
        truth = known.heads[found.place]
        needed = {name: one for name, one in (truth.needed or {}).items() if found.needed[name] not in (one, None)}
        heads.append({
            "head": list(found.place), "truth": truth.truth, "verdict": found.verdict, "reason": found.reason,
            "n": found.n, "partners": [list(one) for one in found.partners],
            "true partners": [list(one) for one in truth.partners],
            "partners ok": not truth.partners or set(found.partners) == set(truth.partners),
            "wrongly needed": sorted(needed), "sentence": sentence,
        })  # fmt: skip
    spent = time.process_time() - start
    return {"name": name, "seed": seed, "n": n, "seconds": round(spent, 2), "model": known.name, "heads": heads}


def kinds_of_difference(head: dict[str, Any]) -> list[str]:
    """What is wrong with the verdict on a head; nothing if it is the truth."""
    truth, verdict, found = head["truth"], head["verdict"], []
    if verdict == "faithful" != truth:
        found.append("false faithful")
    if verdict == "idle" and truth in ("faithful", "hidden"):
        found.append("needed heads called idle")
    if truth == "redundant" and (verdict != "redundant" or not head["partners ok"]):
        found.append("redundant sets incomplete")
    if verdict != truth:
        found.append("undecided" if verdict == "undecided" else "verdicts that differ")
    elif not head["partners ok"]:
        found.append("partners that differ")
    if head["wrongly needed"]:
        found.append("needed under another removal")
    return found


def report(rows: Iterable[dict[str, Any]]) -> str:
    """Every difference, then their numbers by kind, then the CPU seconds."""
    lines, rows = [], list(rows)
    kinds = (
        "false faithful", "needed heads called idle", "redundant sets incomplete", "verdicts that differ",
        "partners that differ", "undecided", "needed under another removal",
    )  # fmt: skip
    counts: dict[str, int] = dict.fromkeys(kinds, 0)
    for row in rows:
        for head in row["heads"]:
            wrong = kinds_of_difference(head)
            for kind in wrong:
                counts[kind] += 1
            if wrong:
                place, partners = "{}.{}".format(*head["head"]), head["true partners"]
                lines.append(
                    f"{row['name']}, seed {row['seed']}, head {place}: {', '.join(wrong)}; truth {head['truth']} with "
                    f"{partners}, verdict {head['verdict']} ({head['reason']}). {head['sentence']}"
                )
    seconds = [row["seconds"] for row in rows]
    n_heads = sum(len(row["heads"]) for row in rows)
    lines += [f"{kind}: {count}" for kind, count in counts.items()]
    most = max(rows, key=lambda row: row["seconds"], default={"name": "none"})["name"]
    mean = sum(seconds) / max(1, len(rows))
    lines.append(
        f"{len(rows)} models, {n_heads} heads; {sum(seconds):.0f} CPU seconds, {mean:.1f} a model, most for {most}."
    )
    return "\n".join(lines)


def read(path: Path) -> dict[tuple[str, int, str], dict[str, Any]]:
    """The answers in a file, by name, seed and n; a line that was cut off counts as missing."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[row["name"], row["seed"], row["n"]] = row
    return found


def run(path: Path, *, seeds: Iterable[int], only: str = "*", n: str = str(N)) -> str:
    """Audit the answers that are not in the file yet, append them, and report on all that were chosen."""
    wanted = [(name, seed, n) for seed in seeds for name in SUITE if fnmatch.fnmatch(name, only)]
    done = read(path)
    cut_off = path.exists() and path.read_text()[-1:] not in ("", "\n")
    with path.open("a") as file:
        file.write("\n" if cut_off else "")
        for key in wanted:
            if key not in done:
                done[key] = audit_answer(*key)
                file.write(json.dumps(done[key]) + "\n")
                file.flush()
    return report(done[key] for key in wanted)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="file of results")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 1), metavar=("FIRST", "END"))
    parser.add_argument("--only", default="*", help="pattern of names, such as 'loop masked*'")
    parser.add_argument("--n", default=str(N), help="number of sequences, or 'enough'")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(run(given.path, seeds=range(*given.seeds), only=given.only, n=given.n))
