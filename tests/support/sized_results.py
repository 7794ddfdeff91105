"""Saved results of every class in other sizes: more targets, layers or heads, with the numbers repeated."""

import itertools
import json
from typing import Annotated, get_args, get_origin, get_type_hints

from saved_results import classes, stored

from hooks.typed import Axes


def sized_results(folder, *, targets, layers, heads):
    """A result of every class, by the name of its class.

    Args:
        folder: Where the files are written that results are loaded from.
        targets: Number of targets, or outcomes.
        layers: Number of layers.
        heads: Number of heads of a layer.
    """
    sizes = {
        "target": targets,
        "outcome": targets,
        "layer": layers,
        "head": heads,
        "set": layers * heads,
        "part": 2 + layers * (heads + 2),
        "k": 1 + layers * heads,
        "order": 10,
        "depth": 3 * layers,
        "query_depth": layers,
        "pair_depth": layers,
    }
    results = {}
    for saved in stored():
        name, content = saved["result"], json.loads(json.dumps(saved))
        cls = classes()[name]
        for field, kind in get_type_hints(cls, include_extras=True).items():
            if field in content["values"] and (axes := _axes(kind)):
                content["values"][field] = _resized(content["values"][field], axes, sizes)
        _name(content["values"], name, targets=targets, layers=layers, heads=heads)
        path = folder / f"{name}.json"
        path.write_text(json.dumps(content))
        results[name] = cls.load(path)
    return results


def _axes(kind):
    """Names of the axes of a field, by its annotation."""
    if isinstance(getattr(kind, "dim_str", None), str):
        return kind.dim_str.split()
    if get_origin(kind) is Annotated:
        for rule in kind.__metadata__:
            if isinstance(rule, Axes):
                return [axis for axis in rule.names.split() if axis != "..."]
    for inner in get_args(kind):
        if axes := _axes(inner):
            return axes
    return []


def _resized(value, axes, sizes):
    """A saved value whose axes have other lengths."""
    if isinstance(value, dict):
        if "array" in value:
            depth = 0
            inner = value["array"]
            while isinstance(inner, list):
                depth, inner = depth + 1, inner[0]
            return value | {"array": _resized(value["array"], axes[len(axes) - depth :], sizes)}
        return {key: _resized(inner, axes, sizes) for key, inner in value.items()}
    if not axes or not isinstance(value, list):
        return value
    length = sizes.get(axes[0], len(value))
    return [_resized(inner, axes[1:], sizes) for inner in itertools.islice(itertools.cycle(value), length)]


def _name(values, name, *, targets, layers, heads):
    """Give targets, heads and parts distinct names."""
    for field in ("targets", "outcomes"):
        if field in values:
            values[field] = [*(f"#{index}" for index in range(targets - 1)), "#19 not trained"]
    places = [[layer, head] for layer in range(layers) for head in range(heads)]
    names = [f"{layer}.{head}" for layer, head in places]
    if name == "AblationResult":
        values |= {"names": names, "heads": [[place] for place in places], "shape": [layers, heads]}
    if name == "LogitAttributionResult":
        parts = ["embedding"]
        for layer in range(layers):
            parts += [f"{layer}.{head}" for head in range(heads)] + [f"{layer} bias", f"{layer} MLP"]
        values |= {"parts": [*parts, "read-out bias"], "shape": [layers, heads]}
    if name == "AuditResult":
        records = itertools.islice(itertools.cycle(values["heads"]), len(places))
        verdicts = itertools.cycle(("faithful", "misleading", "hidden", "idle", "redundant", "marginal", "undecided"))
        values["heads"] = [
            {
                **record,
                "layer": layer,
                "head": head,
                "verdict": verdict,
                "outcome": "",
                "costs": _costs(record["costs"], targets),
            }
            for record, (layer, head), verdict in zip(records, places, verdicts, strict=False)
        ]
        values |= {"sets": [], "largest_harmless": [], "strata": []}


def _costs(costs, targets):
    """Costs by intervention on other outcomes."""
    return {
        name: cost | {end: _resized(cost[end], ["target"], {"target": targets}) for end in ("drop", "low", "high")}
        for name, cost in costs.items()
    }
