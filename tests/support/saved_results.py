"""One small result of every class, changes of what is saved of it, and uses of what was loaded."""

import copy
import importlib
import json
import lzma
import math
import pkgutil
import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from eq6_targets import QUICK, target_of
from short_runs import new_model
from texts import corpus

import interp
from hooks import Transformer
from interp.algorithms import chain_loop, sign_count
from interp.comparison.onsets import Onsets
from interp.comparison.over_training import OverTraining
from interp.core.results import Result
from interp.known_answers.lego.loop import lego_loop
from interp.sweeps.sweep_table import SweepTable
from interp.sweeps.tables import VerbTable
from interp.tasks import Dyck, Lego, Template, Text
from interp.theory import MLPKernel, kernel_regression, sign_counting, template_matrix
from interp.theory.pruning import indistinguishable, prune_to_linear

SAVED = Path(__file__).parents[1] / "data" / "saved_results.json.xz"
"""The results as they were saved: `python tests/support/saved_results.py` writes it anew."""
OTHERS = [
    "0.25",
    "x" * 5000,
    "\ud800",
    None,
    True,
    -3,
    3.5,
    9.0,
    1e400,
    -1e9,
    [],
    {},
    [[1, 2]],
    {"a": 1},
    [None],
    [9.0, -4.0],
]
"""Values that are put in the place of others."""


def make():
    """A result of every class."""
    lego, dyck, template = Lego(n_vars=2, sentence_format="compact"), Dyck(n_types=1, max_depth=2, length=4), Template()
    partial = Lego(n_vars=2, n_supervised=1, sentence_format="compact")
    chain = Lego(n_vars=3, sentence_format="compact")
    model = new_model(lego).eval()
    text = Text(corpus=corpus(n=40, length=2), n_ctx=12, vocab_size=300)
    loop = Lego(n_vars=2, alphabet="abcd")
    brackets = Dyck(n_types=2, max_depth=3, length=8)
    minimal = Transformer(interp.config_for(brackets, "dyck_minimal"), seed=0)
    small = Template(train=16, validation=8, test=8)
    return [
        interp.probe(model, lego, n_train=128, n_test=64, verify=True),
        interp.evaluate(model, lego, n=32),
        interp.extrapolate(new_model(partial, tied=True).eval(), partial, n=32),
        interp.perplexity(Transformer(interp.config_for(text, n_layers=1, d_model=16, n_heads=2)), text, n=16),
        interp.classify_heads(model, lego, n=32, untrained=2),
        interp.ablate_heads(model, lego, n=32, n_random=2),
        interp.ablate(model, lego, n=32),
        interp.keep_heads(model, lego, n=32),
        interp.logit_lens(model, lego, n=32),
        interp.logit_attribution(model, lego, n=32),
        interp.edges(model, lego, n=32),
        interp.edges(lego_loop(loop), loop, n=32).circuit(n=32),
        interp.explain_attention(model, lego, (0, 0), n=32, n_pairs=2),
        interp.patch(model, lego, n=32),
        interp.diagonals(model, n_null=8),
        interp.attention_variation([new_model(dyck, seed=seed) for seed in range(3)], dyck, n_baseline=4, resamples=20),
        Onsets(verb="evaluate", value="accuracy", null="chance 0.5", by=("target",), labels=(("a",), ("b",)),
               seeds=(0, 1, 2), onset=np.array([[4.0, 8.0, math.inf], [2.0, math.nan, 4.0]]),
               before=np.array([[2.0, 4.0, 16.0], [-1.0, math.nan, 2.0]])),
        OverTraining(verb="evaluate", columns={"seed": [0, 0], "step": [1, 2], "accuracy": [0.5, 1.0]},
                     seeds=(0,), steps=(1, 2), skipped=((0, 4, "at chance"),)),
        SweepTable(verb="evaluate", columns={"n_vars": [1, 1], "seed": [0, 1], "target": ["a", "a"],
                                             "accuracy": [0.5, 0.75]}, varies=("n_vars", "seed")),
        VerbTable(verb="evaluate", columns={"seed": [0, 1], "target": ["a", "b"], "accuracy": [0.5, 0.75]}),
        interp.audit(model, lego, n=64, at_chance=True),
        interp.audit_parts(model, lego, n=64, at_chance=True, parts="each"),
        interp.audit_probe(model, lego, n_train=128, n_test=64),
        indistinguishable(target_of(seed=1), target_of(seed=2), **{**QUICK, "candidates": 12}, shared="blocks.3.W_R"),
        prune_to_linear(np_eye(), candidates=10),
        interp.pruning_curve(model, lego, n=16, fractions=(1, 0.5, 0)),
        template_matrix(template, MLPKernel(), copies=2),
        kernel_regression(small, n=16, n_validation=8, n_test=8),
        interp.balance_violation(minimal, brackets),
        sign_counting(new_model(chain).eval(), chain, n=16),
        interp.implements(lego_loop(loop), loop, chain_loop(loop), rivals=[sign_count(loop)], n=64),
    ]  # fmt: skip


def np_eye():
    import torch

    return torch.eye(2)


def stored():
    """The results as they were saved."""
    return json.loads(lzma.decompress(SAVED.read_bytes()))


@cache
def classes():
    """Every class of result in the project, by name."""
    for module in pkgutil.walk_packages(interp.__path__, "interp."):
        if module.name.split(".")[1] not in ("cli", "view") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = {cls.__name__: cls for cls in subclasses(Result) if cls.__module__.startswith("interp.")}
    # A class with a leading underscore is a base of others
    return {name: cls for name, cls in found.items() if not name.startswith("_")}


def subclasses(cls):
    for subclass in cls.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def places(value, path=()):
    """Every place in a JSON value, as a path of keys."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def changed(saved, rng, path=None):
    """A saved result with one place changed: the new content, what was done, and whether the file says the same."""
    content = copy.deepcopy(saved)
    values = content["values"]
    if path is None:
        # Half of the changes are of whole fields, of which there are fewer than numbers
        every = [place for place in places(values) if place]
        shallow = [place for place in every if len(place) <= 2]
        path = rng.choice(shallow if rng.random() < 0.5 else every)
    *outer, key = path
    inner = values
    for part in outer:
        inner = inner[part]
    kind = rng.choice(["other", "other", "other", "missing", "extra", "scaled", "longer", "shorter"])
    before = copy.deepcopy(inner[key])
    if kind == "missing":
        del inner[key]
    elif kind == "extra" and isinstance(inner[key], dict):
        inner[key]["surplus"] = 1
    elif kind == "scaled" and isinstance(before, int | float) and not isinstance(before, bool):
        inner[key] = rng.choice([-1, 100, 0.5, 1e6]) * before + rng.choice([0, 7])
    elif kind == "longer" and isinstance(before, list) and before:
        inner[key] = [*before, before[-1]]
    elif kind == "shorter" and isinstance(before, list) and before:
        inner[key] = before[:-1]
    else:
        inner[key] = rng.choice(OTHERS)
    what = f"{saved['result']}, {kind} at {'.'.join(map(str, path))}"
    return content, what


def use(result, *, page=False):
    """Print, tabulate and plot a result; and, which takes a second, draw the page of it."""
    text = str(result)
    if type(result).to_dataframe is not Result.to_dataframe:
        result.to_dataframe().to_string()
    # A table of a verb that has no column of numbers by the usual names asks which to draw
    if type(result).plot is not Result.plot and not (hasattr(result, "columns") and lacks_value(result)):
        result.plot().to_json()
        if page:
            result._repr_html_()
    return text


def lacks_value(table):
    """Whether a table of a verb has none of the columns that are drawn by default."""
    try:
        return not table.value
    except ValueError as error:
        return "name the column to use" in str(error)
    except AttributeError:
        return False


def says_the_same(saved, again):
    """Whether what is saved again has everything that was saved before, and more only by defaults."""
    # A number, and an array without axes
    if isinstance(again, dict) and "array" in again and isinstance(saved, int | float):
        again = again["array"]
    if isinstance(saved, dict) and isinstance(again, dict):
        return all(name in again and says_the_same(value, again[name]) for name, value in saved.items())
    if isinstance(saved, list) and isinstance(again, list):
        return len(saved) == len(again) and all(map(says_the_same, saved, again))
    return type(saved) is type(again) and saved == again if isinstance(saved, bool | str) else saved == again


def outcome(content, folder, *, page=False):
    """Load changed content and use it: "refused", "harmless", "silent" or "crash", and in words why."""
    path = Path(folder) / "result.json"
    path.write_text(json.dumps(content))
    cls = classes()[content["result"]]
    try:
        result = cls.load(path)
    except ValueError as error:
        text = str(error)
        if isinstance(error, json.JSONDecodeError | UnicodeError) or path.name not in text or len(text) > 800:
            return "unclear", f"{type(error).__name__}: {text[:300]}"
        return "refused", text
    except Exception as error:
        return "crash", f"while loading: {type(error).__name__}: {error}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            use(result, page=page)
        except Exception as error:
            return "crash", f"{type(error).__name__}: {str(error)[:300]}"
    # It says what the file says: saved again, it has the same values
    path.write_text("")
    result.save(path)
    again = json.loads(path.read_text())["values"]
    if not says_the_same(content["values"], again):
        return "silent", "it has other values than the file"
    return "harmless", ""


def write():
    """Write one saved result of every class."""
    saved = [result.to_dict() for result in make()]
    assert {one["result"] for one in saved} == set(classes())
    SAVED.write_bytes(lzma.compress(json.dumps(saved).encode()))
    with tempfile.TemporaryDirectory() as folder:
        for one in saved:
            assert outcome(one, folder) == ("harmless", ""), one["result"]


if __name__ == "__main__":
    write()
