"""Probe labels in many forms: the same result as the same classes as integers, or an error that names the method."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from short_runs import new_model
from torch import Tensor
from tries import Try

import interp
from interp.tasks import Lego

FORMS: dict[str, tuple[Callable[[Tensor], Any], bool]] = {
    "int32": (lambda x: x.int(), True),
    "int16": (lambda x: x.short(), True),
    "int8": (lambda x: x.to(torch.int8), True),
    "uint8": (lambda x: x.to(torch.uint8), True),
    "with gaps": (lambda x: 7 * x + 3, True),
    "far apart": (lambda x: 10**6 * x + 5, True),
    "by columns": (lambda x: x.T.contiguous().T, True),
    "every other of a wider tensor": (lambda x: x.repeat_interleave(2, 0)[::2], True),
    "float": (lambda x: x.float(), False),
    "halves": (lambda x: x / 2, False),
    "float64 with NaN": (lambda x: x.double().masked_fill(x == 0, torch.nan), False),
    "-100 for one class": (lambda x: x.masked_fill(x == 0, -100), False),
    "-1 for one class": (lambda x: x.masked_fill(x == 1, -1), False),
    "from -2": (lambda x: x - 2, False),
    "a list": (lambda x: x.tolist(), False),
    "an array": (lambda x: x.numpy(), False),
    "texts": (lambda x: [[str(value) for value in row] for row in x.tolist()], False),
    "one a sequence": (lambda x: x[:, 0], False),
    "one too few": (lambda x: x[:-1], False),
    "one too many": (lambda x: torch.cat([x, x[:1]]), False),
    "another axis": (lambda x: x[..., None], False),
    "transposed": (lambda x: x.T, False),
    "None": (lambda x: None, False),
    "complex": (lambda x: x.to(torch.complex64), False),
    "sparse": (lambda x: x.to_sparse(), False),
    "without memory": (lambda x: x.to("meta"), False),
}
"""Forms of labels, made of 64-bit integers from 0, and whether they are valid."""


@dataclass(frozen=True)
class Labelled(Lego):
    """Chains with one label, in some form."""

    form: str = ""
    n_classes: int = 2

    def probe_labels(self, batch: Any) -> dict[str, Any]:
        # A class that the answers and the operations determine, so that it can be read
        classes = (2 * batch.labels + batch.tokens[:, :1]) % self.n_classes
        return {"digit": classes if not self.form else FORMS[self.form][0](classes)}


def _results(model: Any, task: Labelled, use: str, solver: str, seed: int) -> str:
    if use == "probe":
        return str(interp.probe(model, task, n_train=96, n_test=48, solver=solver, seed=seed))
    if use == "audit_probe":
        return str(interp.audit_probe(model, task, n_train=96, n_test=64, seed=seed))
    interp.check_task(task)
    return ""


def tries(n: int, folder: Path) -> Iterator[Try]:
    """A random form, number of classes and use."""
    rng = random.Random(11)
    plain = Lego(n_vars=2, sentence_format="compact")
    model = new_model(plain).eval()
    for index in range(n):
        form, n_classes = rng.choice(list(FORMS)), rng.randrange(2, 6)
        use, solver = rng.choice(["probe", "probe", "audit_probe", "check_task"]), rng.choice(["ridge", "logistic"])
        sizes = {"n_vars": 2, "sentence_format": "compact", "n_classes": n_classes}
        what = f"{form}, {n_classes} classes, {use}, {solver}"
        _, is_valid = FORMS[form]
        try:
            result = _results(model, Labelled(**sizes, form=form), use, solver, index)
        except ValueError as error:
            is_clear = not is_valid and "probe_labels" in str(error) and len(str(error)) < 600
            yield Try(what, None if is_clear else "unclear", str(error)[:300])
            continue
        except Exception as error:
            yield Try(what, "unclear", f"{type(error).__name__}: {error}"[:300])
            continue
        same = is_valid and result == _results(model, Labelled(**sizes), use, solver, index)
        yield Try(what, None if same else "silently wrong", "another result than of 64-bit integers")
