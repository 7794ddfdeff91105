"""Saved results, claims and manifests with one place changed: refused by an error that names it, or used after load."""

import copy
import json
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from damage import SHIPPED, train
from saved_results import changed, outcome, stored
from tries import Try

from case_studies.dyck.study import STUDY
from case_studies.frame.stored import read_results
from interp.training import TrainingRun
from interp.training.folder import RunFolder

FAULTS = {"silent": "silently wrong", "crash": "unclear", "unclear": "unclear"}
PAGE_EVERY = 10
"""One result in so many is also drawn as a page, which takes a second."""


def results(n: int, folder: Path) -> Iterator[Try]:
    """Every class of result."""
    every = stored()
    for result in every:
        rng = random.Random(f"campaign {result['result']}")
        for index in range(-(-n // len(every))):
            content, what = changed(result, rng)
            ending, detail = outcome(content, folder, page=index % PAGE_EVERY == 0)
            yield Try(what, FAULTS.get(ending), detail)


def claims_and_manifests(n: int, folder: Path) -> Iterator[Try]:
    """The claims of a study, manifest and metrics of a run."""
    run = folder / "run"
    train(run)
    claims = folder / "claims"
    shutil.copytree(next(SHIPPED.glob("dyck/**/claims.json")).parent, claims)
    for path, use in (
        (claims / "claims.json", lambda: _use_claims(claims)),
        (run / "manifest.json", lambda: _use_run(run)),
        (run / "metrics.jsonl", lambda: _use_run(run)),
    ):
        before = path.read_text()
        rng = random.Random(f"campaign {path.name}")
        for _ in range(-(-n // 3)):
            text, what = _changed_text(before, rng)
            path.write_text(text)
            yield _tried(f"{path.name}, {what}", path, use)
        path.write_text(before)


def _changed_text(text: str, rng: random.Random) -> tuple[str, str]:
    """A file with one place changed; of several lines, in one of them."""
    lines = text.splitlines() if not text.rstrip().startswith("{\n") else [text]
    index = rng.randrange(len(lines))
    wrapped = {"result": "file", "values": copy.deepcopy(json.loads(lines[index]))}
    content, what = changed(wrapped, rng)
    lines[index] = json.dumps(content["values"])
    return "\n".join(lines) + "\n", what.removeprefix("file, ")


def _use_claims(folder: Path) -> None:
    results_of_study = read_results(folder, "dyck")
    assert results_of_study is not None
    result = results_of_study.result(STUDY, folder)
    str(result)
    result.to_dataframe()
    sum(entry["cost"]["seconds"] for entry in results_of_study.content["claims"])


def _use_run(folder: Path) -> None:
    files = RunFolder(folder)
    run = TrainingRun.load(folder)
    str(run), run.task, run.to_dataframe(), run.plot().to_json(), files.read_manifest()


def _tried(what: str, path: Path, use: Callable[[], Any]) -> Try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            use()
        except ValueError as error:
            text = str(error)
            is_named = path.name in text or path.parent.name in text
            return Try(what, None if is_named and len(text) < 800 else "unclear", text[:300])
        except Exception as error:
            return Try(what, "unclear", f"{type(error).__name__}: {str(error)[:300]}")
    return Try(what)
