"""Results whose fields contradict each other are refused, when they are loaded and when they are made."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
from saved_results import classes, stored

from interp.core.intervals import Interval

pytestmark = pytest.mark.usefixtures("as_a_user")
STORED = {content["result"]: content["values"] for content in stored()}


def change(*path, to):
    """A change of one place of the saved values: to another value, or to what a function makes of it."""

    def apply(values):
        *outer, key = path
        for part in outer:
            values = values[part]
        values[key] = to(values[key]) if callable(to) else to

    return apply


def cells(field, edit, *, end=None):
    """A change of a saved array, or of an end of a saved interval."""

    def apply(values):
        saved = values[field][end] if end else values[field]
        array = np.array(saved["array"], dtype=float)
        edit(array)
        saved["array"] = [None if number != number else number for number in array] if array.ndim == 1 else (
            np.where(np.isnan(array), None, array).tolist()
        )  # fmt: skip

    return apply


def exact_cells(field, edit):
    """A change of all ends of a saved interval."""

    def apply(values):
        for end in ("value", "low", "high"):
            cells(field, edit, end=end)(values)

    return apply


def several(*changes):
    def apply(values):
        for change_of_values in changes:
            change_of_values(values)

    return apply


def set_to(index, number):
    return lambda array: array.__setitem__(index, number)


def exchange_members(values):
    """A member of the circuit out, the edge that costs least in."""
    members, costs = values["in_circuit"]["array"], values["cost"]["array"]
    members[members.index(True)] = False
    members[int(np.argmin(costs))] = True


def repeat_first(names):
    return [names[0], names[0], *names[2:]]


def faithful(head):
    return head | {"verdict": "faithful", "reason": "not needed"}


def both_shown(cost):
    return cost | {"p_matters": 0.0, "p_harmless": 0.0}


CONTRADICTIONS = {
    "EdgesResult": [
        (change("senders", 0, to="banana"), "senders has 'banana': 'banana' is no part"),
        (change("senders", 0, to="9.9"), "senders has '9.9': '9.9' is in no model with 2 layers of"),
        (change("senders", 0, to="00.0"), "senders has '00.0': .* is no part"),
        (change("senders", 0, to="٠.0"), "senders has .* is no part"),
        (change("senders", 0, to="read-out"), "senders has 'read-out', which does not write"),
        (change("receivers", 0, to="embedding"), "receivers has 'embedding', which does not read"),
        (change("senders", 0, to="1 MLP"), r"have 1 MLP > 0\.0 q, which leads to no later input"),
        (change("receivers", 1, to="0.0 q"), "have embedding > 0.0 q twice"),
        (change("shape", to=[1, 1]), "is in no model with 1 layers of 1 heads"),
        (exact_cells("drop", set_to((0, 0), 0.95)), r"drop is 0\.95 at \[0, 0\], where clean is"),
        (several(*(cells(p, set_to(0, 0.0)) for p in ("p_needed", "p_harmless"))), "p_needed is 0 and p_harmless 0"),
        (cells("random_drop", set_to((0, 0), 0.5)), r"random_drop is 0\.5 at \[0, 0\]; the mean drop of the other"),
        (change("drop", "n", to=10**6), "drop.n is 1000000, more than the sample of"),
    ],
    "CircuitResult": [
        (exchange_members, "in_circuit has .* the search leaves none that leads to no answer"),
        (several(exchange_members, change("n_by_cost", to=14)), "cost 0 is none of the 14 largest"),
        (change("senders", 0, to="banana"), "senders has 'banana'"),
        (change("shape", to=[1, 1, 8]), "is in no model with 1 layers"),
        (change("n_found", to=0), "n_found is 0"),
        (change("sets", to=lambda names: names[::-1]), "sets is .*must begin with whole model"),
        (exact_cells("lost", set_to(0, 0.5)), "lost is 0.5 .*the difference of performs"),
        (exact_cells("left_over", set_to(0, 0.9)), "left_over is 0.9 .*the difference of performs"),
    ],
    "LogitAttributionResult": [
        (exact_cells("contribution", set_to((0, 0), 999.0)), "contribution of .* adds up to"),
        (change("parts", 1, to="9.9"), "parts is .*of this shape it must be"),
        (change("parts", to=lambda names: names[::-1]), "parts is"),
        (change("shape", to=[1, 1]), "parts is"),
    ],
    "KeepResult": [
        (change("kept", 0, to=lambda sets: sets[::-1]), "kept ends with"),
        (change("kept", 1, to=lambda sets: sets[::-1]), "kept of '.*', 0 heads, has 4 of them"),
        (change("kept", 0, 1, to=[[7, 0]]), r"kept of '.*', 1 heads has head \(7, 0\)"),
        (change("kept", 0, 2, to=[[0, 0], [0, 0]]), "has a head twice"),
        (change("sufficient", to=[[7, 0]]), "sufficient is .*which is no set of kept"),
        (cells("area", set_to(0, 1.0)), "area is 1 at"),
        (change("orders", to=repeat_first), "orders has '.*' twice"),
    ],
    "AblationResult": [
        (exact_cells("drop", set_to((0, 0), 0.95)), "drop is 0.95 .*where clean is"),
        (change("heads", 0, to=[[9, 9]]), r"heads of '.*' has head \(9, 9\)"),
        (change("shape", to=[1, 1]), "the model has 1 layers of 1 heads"),
        (change("names", to=repeat_first), "names has '.*' twice"),
    ],
    "PatchResult": [
        (change("sites", 0, to="9.9"), "sites is .*of this kind and shape it must be"),
        (change("kind", to="banana"), "kind has 'banana'"),
        (change("shape", to=[1, 1]), "sites is"),
    ],
    "AttentionExplanation": [
        (change("parts", 1, to="9 MLP"), "parts has '9 MLP', which is no part before"),
        (change("removals", to=lambda names: names[::-1]), "removals is"),
        (exact_cells("share", set_to((0, 0), 5.0)), "share is .*the sum over all pairs is 1"),
    ],
    "HeadPatterns": [
        (change("label", 0, 0, to="banana"), "label of head 0.0 has 'banana'"),
        (change("queries", 0, 0, to="some"), "queries of head 0.0 has 'some'"),
        (change("level", to=0.001), "level is 0.001, below alpha"),
        (several(change("label", 0, 0, to="current"), change("why_not", 0, 0, to="")), "'current', but p_holm is"),
        (change("label", 0, 0, to="uniform"), "label of head 0.0 is 'uniform', but why_not is"),
    ],
    "AuditResult": [
        (change("heads", 0, to=faithful), r"heads\[0\] has the verdict faithful with the reason 'not needed', which"),
        (change("heads", 0, "head", to=1), "heads has .* twice"),
        (change("heads", 0, "label", to="banana"), r"heads\[0\].label has 'banana'"),
        (change("heads", 0, "outcome", to="banana"), r"heads\[0\].outcome has 'banana'"),
        (change("heads", 0, "partners", to=[[0, 0]]), r"heads\[0\].partners with itself"),
        (change("heads", 0, "costs", "mean", "low", 0, to=0.9), r"heads\[0\].costs.mean .*outside its interval"),
        (change("heads", 0, "costs", "mean", to=both_shown), "p_matters is 0, p_harmless 0"),
        (change("largest_harmless", to=[[9, 9]]), r"largest_harmless has \(9, 9\)"),
        (change("interventions", to=lambda names: [*names, names[-1]]), "interventions has '.*' twice"),
        (change("kinds", to=repeat_first), "kinds has '.*' twice"),
        (change("n_distinct", to=10**6), "n_distinct is 1000000; n is"),
        (change("heads", 0, "edges_in", to=["banana > 0.0 q"]), "senders has 'banana'"),
    ],
    "ProbeResult": [
        (cells("causal", set_to((0, 0), -32), end="n"), "causal has n of -32.0; pairs are counted"),
        (cells("causal", set_to((0, 0), 1.5), end="n"), "causal has n of 1.5; pairs are counted"),
    ],
    "ProbeAudit": [
        (change("verdict", 0, 0, to="used"), "verdict at layer 0, .*, is 'used'; p values and interchange say"),
    ],
    "TemplateMatrix": [
        (change("templates", to=repeat_first), "templates has 'aba' twice"),
        (change("verdict", to="nonsingular"), "verdict is nonsingular, but smallest is"),
        (cells("eigenvalues", set_to(0, -5.0)), "eigenvalues is -5"),
    ],
    "KernelResult": [(change("chosen", to=1000), "chosen is 1000; validation_mse is least at")],
    "PerplexityResult": [(cells("loss", set_to(0, 9.0)), "perplexity is .*exp of loss is")],
    "VariationResult": [(change("n_pairs", to=7), "n_pairs is 7; 3 models have 3")],
    "Onsets": [(cells("before", set_to((0, 0), 5.0)), "before is not below onset")],
    "OverTraining": [(change("steps", to=[1]), "columns.step has 2; steps has")],
    "SweepTable": [
        (change("varies", to=["banana"]), "varies has 'banana'; columns has"),
        (change("varies", to=["seed", "seed"]), "varies has 'seed' twice"),
    ],
    "ImplementsResult": [
        (change("verdict", to="implements a rival"), "verdict is 'implements a rival', but rival is None"),
        (change("places", to=repeat_first), "places has '.*' twice"),
        (change("rivals", to=lambda names: [*names, *names]), "rivals has 'sign count' twice"),
        (change("findings", 0, "algorithm", to="banana"), "findings.algorithm has 'banana'"),
    ],
    "PruningResult": [(change("sampled_error", to=1e6), "sampled_error is .*above error")],
    "EvaluationResult": [
        (change("targets", to=repeat_first), "targets has '.*' twice"),
        (change("accuracy", "n", to=10**6), "accuracy.n is 1000000, more than the sample of"),
        (change("accuracy", "value", "array", 0, to=None), "accuracy cannot be an interval: value is missing, but"),
    ],
    "LogitLensResult": [
        (change("targets", to=repeat_first), "targets has '.*' twice"),
    ],
}  # fmt: skip
CASES = [(name, *case) for name, cases in CONTRADICTIONS.items() for case in cases]


@pytest.mark.parametrize(("name", "change_of_values", "words"), CASES)
def test_a_contradiction_is_refused(name, change_of_values, words, tmp_path):
    values = copy.deepcopy(STORED[name])
    change_of_values(values)
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"result": name, "version": 1, "values": values}))
    with pytest.raises(ValueError, match=rf"result\.json is not .*{words}"):
        classes()[name].load(path)


def test_what_is_refused_when_loaded_is_refused_when_made(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"result": "EdgesResult", "version": 1, "values": STORED["EdgesResult"]}))
    edges = classes()["EdgesResult"].load(path)
    with pytest.raises(ValueError, match="senders has 'banana'"):
        replace(edges, senders=("banana", *edges.senders[1:]))
    with pytest.raises(ValueError, match="p_needed is 0 and p_harmless 0"):
        replace(edges, p_needed=0 * edges.p_needed, p_harmless=0 * edges.p_harmless)


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ({"value": np.nan, "low": 0.2, "high": 0.4}, r"value is missing, but its interval is \[0.2, 0.4\]"),
        ({"value": 0.3, "low": np.nan, "high": 0.4}, "one of its ends is missing"),
        ({"value": 0.3, "low": 0.2, "high": np.nan}, "one of its ends is missing"),
        ({"value": 0.3, "low": 0.4, "high": 0.2}, "outside its interval"),
    ],
)
def test_an_interval_that_contradicts_itself(ends, words):
    with pytest.raises(ValueError, match=words):
        Interval(**ends, n=3)
