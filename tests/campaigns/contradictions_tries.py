"""Results whose fields contradict each other: refused, by an error that names the file and the field.

Every change here is one after which no result can be right, whatever the model was: an interval without its value in
it, a name twice, an n below 0, a head that the model does not have, an array of another length than its names, a drop
above the accuracy that it is a drop of. So a change that is not refused is a failure, with no exceptions.
"""

import copy
import importlib.util
import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from saved_results import classes, places, stored
from tries import Try

CASES = Path(__file__).parents[1] / "interp/core/test_contradictions.py"
"""Contradictions that are known one by one; here they come in pairs."""
Change = tuple[str, tuple[str, ...]]
"""What was changed, and fields of which the error names one."""
ENDS = ("value", "low", "high")
NOT_NAMES = ("tokens", "warnings", "layers", "sites")
"""Lists of texts in which one may come twice."""


def tries(n: int, folder: Path) -> Iterator[Try]:
    """Saved results with one contradiction."""
    rng, saved, path = random.Random(11), stored(), folder / "result.json"
    known, kinds = (
        _known_cases(),
        (_ends, _outside, _missing_value, _negative_n, _name_twice, _unknown_head, _axis, _drop),
    )
    done = 0
    while done < n:
        content = copy.deepcopy(rng.choice(saved))
        name, values = content["result"], content["values"]
        if rng.random() < 0.15 and len(known.get(name, ())) > 1:
            change = "two known contradictions", ()
            for case in rng.sample(known[name], 2):
                # the first may have removed the place of the second
                with suppress(KeyError, IndexError, TypeError, ValueError):
                    case(values)
        else:
            change = rng.choice(kinds)(values, rng)
        if change is None:
            continue
        done += 1
        path.write_text(json.dumps(content))
        yield _outcome(f"{name}, {change[0]}", path, classes()[name], change[1])


def _known_cases() -> dict[str, list[Callable[[Any], None]]]:
    spec = importlib.util.spec_from_file_location("known_contradictions", CASES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: [case[0] for case in cases] for name, cases in module.CONTRADICTIONS.items()}


def _outcome(what: str, path: Path, cls: Any, fields: tuple[str, ...]) -> Try:
    try:
        cls.load(path)
    except ValueError as error:
        text = str(error)
        is_named = path.name in text and (not fields or any(field in text for field in fields)) and len(text) < 800
        return Try(what, None if is_named else "unclear", text[:300])
    except Exception as error:
        return Try(what, "unclear", f"{type(error).__name__}: {error}"[:300])
    return Try(what, "silently wrong", "it was loaded")


def _at(values: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        values = values[key]
    return values


def _intervals(values: Any) -> list[tuple[Any, ...]]:
    """Places of intervals."""
    mappings = [path for path in places(values) if isinstance(_at(values, path), dict)]
    return [path for path in mappings if {*ENDS, "n"} <= set(_at(values, path))]


def _cells(interval: dict[str, Any]) -> dict[str, np.ndarray]:
    """The ends of an interval as arrays."""
    plain = {end: interval[end]["array"] if isinstance(interval[end], dict) else interval[end] for end in ENDS}
    return {end: np.array(plain[end], dtype=float) for end in ENDS}


def _put(interval: dict[str, Any], end: str, array: np.ndarray) -> None:
    saved = np.where(np.isnan(array), None, array.astype(object)).tolist()
    if isinstance(interval[end], dict):
        interval[end]["array"] = saved
    else:
        interval[end] = saved


def _chosen(values: Any, rng: random.Random) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any], Any] | None:
    """An interval, its ends, and a cell that is wider than nothing."""
    intervals = _intervals(values)
    if not intervals:
        return None
    path = rng.choice(intervals)
    interval = _at(values, path)
    ends = _cells(interval)
    wide = np.argwhere(ends["high"] - ends["low"] > 1e-3)
    if not len(wide) or any(one.shape != ends["value"].shape for one in ends.values()):
        return None
    return path, interval, ends, tuple(wide[rng.randrange(len(wide))])


def _named(path: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(key for key in path if isinstance(key, str))[-1:]


def _ends(values: Any, rng: random.Random) -> Change | None:
    if (chosen := _chosen(values, rng)) is None:
        return None
    path, interval, ends, cell = chosen
    low = ends["low"].copy()
    ends["low"][cell], ends["high"][cell] = ends["high"][cell], low[cell]
    for end in ("low", "high"):
        _put(interval, end, ends[end])
    return f"ends of {'.'.join(map(str, path))} exchanged at {tuple(map(int, cell))}", _named(path)


def _outside(values: Any, rng: random.Random) -> Change | None:
    if (chosen := _chosen(values, rng)) is None:
        return None
    path, interval, ends, cell = chosen
    width = ends["high"][cell] - ends["low"][cell]
    ends["value"][cell] = rng.choice([ends["high"][cell] + width, ends["low"][cell] - width])
    _put(interval, "value", ends["value"])
    return f"value of {'.'.join(map(str, path))} outside at {tuple(map(int, cell))}", _named(path)


def _missing_value(values: Any, rng: random.Random) -> Change | None:
    if (chosen := _chosen(values, rng)) is None:
        return None
    path, interval, ends, cell = chosen
    end = rng.choice(ENDS)
    ends[end][cell] = np.nan
    _put(interval, end, ends[end])
    return f"{end} of {'.'.join(map(str, path))} missing at {tuple(map(int, cell))}", _named(path)


def _negative_n(values: Any, rng: random.Random) -> Change | None:
    counts = [path for path in places(values) if path and path[-1] == "n"]
    if not counts:
        return None
    *outer, key = rng.choice(counts)
    holder, number = _at(values, tuple(outer)), rng.choice([-1, -32, 1.5])
    if isinstance(holder[key], dict):
        array = np.array(holder[key]["array"], dtype=float)
        array.flat[rng.randrange(array.size)] = number
        holder[key]["array"] = array.tolist()
    else:
        holder[key] = number
    return f"{'.'.join(map(str, (*outer, key)))} is {number}", ("n",)


def _name_twice(values: Any, rng: random.Random) -> Change | None:
    names = [
        name for name, value in values.items()
        if isinstance(value, list) and len(value) > 1 and all(isinstance(one, str) for one in value)
        and len(set(value)) == len(value) and name not in NOT_NAMES
    ]  # fmt: skip
    if not names:
        return None
    name = rng.choice(names)
    first, second = rng.sample(range(len(values[name])), 2)
    values[name][first] = values[name][second]
    # records of heads that name what is no longer there are refused first
    return f"{values[name][second]!r} twice in {name}", (name, "heads[")


def _unknown_head(values: Any, rng: random.Random) -> Change | None:
    if "layer" not in json.dumps(values) and not {"heads", "kept", "head", "shape"} & set(values):
        return None
    head_places = [
        path for path in places(values)
        if path and path[0] in ("heads", "largest_harmless", "smallest_costly")
        and isinstance(_at(values, path), list) and len(_at(values, path)) == 2
        and all(type(one) is int for one in _at(values, path))
    ]  # fmt: skip
    if not head_places:
        return None
    path = rng.choice(head_places)
    _at(values, path)[rng.randrange(2)] = rng.choice([-1, 99, 2])
    return f"{'.'.join(map(str, path))} is {_at(values, path)}", (str(path[0]), "partners")


def _axis(values: Any, rng: random.Random) -> Change | None:
    """An interval without its last cells along an axis, whose names stay."""
    if (fields := [name for name in ("targets", "outcomes") if len(values.get(name, ())) > 1]) == []:
        return None
    arrays = [name for name, value in values.items() if isinstance(value, dict) and {*ENDS} <= set(value)]
    arrays = [name for name in arrays if _cells(values[name])["value"].ndim]
    if not arrays:
        return None
    name = rng.choice(arrays)
    axis = rng.randrange(_cells(values[name])["value"].ndim)
    for end, array in _cells(values[name]).items():
        _put(values[name], end, np.delete(array, -1, axis))
    return f"{name} without the last along axis {axis}; {fields[0]} as before", (name, *fields)


def _drop(values: Any, rng: random.Random) -> Change | None:
    if "drop" not in values or "clean" not in values or "value" not in values["drop"]:
        return None
    ends, clean = _cells(values["drop"]), np.array(values["clean"]["array"], dtype=float)
    cell = tuple(rng.randrange(size) for size in ends["value"].shape)
    above = clean[cell[-1]] + rng.choice([0.01, 0.1, 0.5])
    for end in ENDS:
        ends[end][cell] = above
        _put(values["drop"], end, ends[end])
    return f"drop is {above} at {cell}, above clean", ("drop",)
