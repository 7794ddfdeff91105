"""Charts and verbs in forked processes, whose parent has drawn and measured before."""

import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from short_runs import new_model
from tries import TASK, Try, in_child

import interp
from interp.view.charts import chart_svg

LONGEST = 60.0
"""Seconds after which a forked process is taken to hang."""


def _svg(chart: Any) -> str:
    """SVG text of a chart, without the numbers that count what a process has drawn."""
    return re.sub(r"(clip|gradient_)\d+", r"\1", chart_svg(chart))


def _uses() -> dict[str, Callable[[], Any]]:
    """What is done in the parent and then in the child; each gives a text."""
    model = new_model(TASK).eval()
    ablation = interp.ablate_heads(model, TASK, n=16)
    patterns = interp.classify_heads(model, TASK, n=32)
    evaluate = partial(interp.evaluate, model, TASK, n=16)
    return {
        "a chart of an ablation": lambda: _svg(ablation.plot()),
        "a chart of patterns": lambda: _svg(patterns.plot()),
        "a chart of a dict": lambda: _svg({"data": {"values": [{"x": 1}]}, "mark": "point"}),
        "an evaluation": lambda: str(evaluate()),
        "a probe": lambda: str(interp.probe(model, TASK, n_train=64, n_test=32)),
        "an attention page": lambda: str(len(interp.show_attention(model, TASK, examples=1).html)),
    }


def forks(n: int, folder: Path) -> Iterator[Try]:
    """A forked process does what its parent did, with the same result."""
    rng, uses = random.Random(10), _uses()
    for _ in range(n):
        before, after = rng.choice(list(uses)), rng.choice(list(uses))
        what = f"{before}, then in a child {after}"
        uses[before]()
        expected = uses[after]()
        result, error = in_child(uses[after], kill_after=LONGEST)
        if result is None and not error:
            yield Try(what, "lost", "it hangs, or has died")
        elif error:
            yield Try(what, "unclear", error[:300])
        else:
            yield Try(what, None if result == expected else "silently wrong", "another result")
