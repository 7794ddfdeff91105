"""Circuits: found in a loop, judged against every smaller set, drawn, written for other tools; errors."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from browser import faults
from own_models import transformer

import interp
from hooks import Transformer
from interp.core.intervals import Interval
from interp.core.sample import Sample
from interp.heads import CircuitResult, EdgesResult, read_circuit
from interp.heads.circuit import EdgeSets, Scores, _without_unneeded
from interp.heads.interventions import OF_PARTS
from interp.known_answers.lego.loop import lego_loop
from interp.tasks import Lego

TASK = Lego(n_vars=2, alphabet="abcde")


@pytest.fixture(scope="module")
def edges():
    return interp.edges(lego_loop(TASK), TASK, n="all")


@pytest.fixture(scope="module")
def circuit(edges):
    return edges.circuit(n="all")


def kept(edges, names):
    return np.array([name in names for name in edges.names])


def test_the_circuit_of_a_loop_is_that_of_its_chain(edges, circuit):
    """The value of the first variable is written by 0.1, moved by 1.0 and read at the answers."""
    assert {"embedding > 0.1 v", "0.1 > 0 MLP", "0 MLP > 1.0 v", "1.0 > 1 MLP", "0 MLP > read-out"} <= set(
        circuit.names
    )
    assert not {name for name in circuit.names if "0.0" in name or "2.0" in name}
    assert set(circuit.names) <= set(edges.names)
    assert len(circuit.names) < 20


def test_it_is_faithful_and_no_edge_can_go(edges, circuit):
    """On every input, each smaller circuit by one edge is measured here once more."""
    sets = EdgeSets(edges.model, Sample(TASK, TASK.every_input("test"), exact=True), OF_PARTS["mean"])
    model, alone = sets.scores([np.ones(len(edges.names), bool), kept(edges, circuit.names)])
    np.testing.assert_allclose(circuit.performs.value[:2], [model.accuracy, alone.accuracy])
    least = 0.5 + 0.95 * (model.accuracy - 0.5)
    assert (alone.accuracy >= least).all()
    assert circuit.is_faithful == "yes"
    smaller = [kept(edges, names) for names in combinations(circuit.names, len(circuit.names) - 1)]
    for scores in sets.scores(smaller):
        assert (scores.accuracy < least).any()
    assert circuit.n_needed == len(circuit.names)


class NeedsTheFirstTwo(EdgeSets):
    """Scores of an imagined model that needs edges 0 and 1 only."""

    def __init__(self):
        """Nothing is run."""

    def scores(self, sets):
        right = [np.full((1, 1), float(edges[:2].all())) for edges in sets]
        return [Scores(right=of_set, total=np.ones((1, 1)), loss=0.0) for of_set in right]


@pytest.mark.parametrize("n_edges", [2, 3, 7])
def test_the_search_goes_on_until_no_edge_can_go(n_edges):
    smallest = _without_unneeded(NeedsTheFirstTwo(), np.ones(n_edges, bool), lambda scores: scores.accuracy[0] == 1)
    assert np.flatnonzero(smallest).tolist() == [0, 1]


def test_controls_lose_the_task(circuit):
    by_name = dict(zip(circuit.sets, circuit.performs.value, strict=True))
    assert (by_name["without the circuit"] <= 0.8).all()
    assert np.mean([by_name[f"random {index}"][1] for index in range(8)]) < 0.8
    assert list(by_name)[:2] == ["whole model", "circuit"]
    assert circuit.n_by_cost >= len(circuit.names)


def test_another_half_of_the_sequences_judges(edges):
    result = interp.edges(edges.model, TASK, n=32).circuit(n=48)
    assert not result.performs.exact
    assert result.n_measured == 24
    assert "found on 24 sequences, measured on 24" in str(result)
    assert result.lost.high.max() > 0.025  # too few to show that it is faithful
    assert result.is_faithful == "undecided"


def test_at_most_so_many_edges(edges):
    small = edges.circuit(n="all", at_most=3)
    assert len(small.names) == 3
    assert small.is_faithful == "no"


def test_sentences_claim_no_more_than_was_shown(edges, circuit):
    """A circuit cut to a size keeps less: nothing says that it does the task, or that none of its edges can go."""
    small = edges.circuit(n="all", at_most=3)
    assert small.n_found == circuit.n_found == len(circuit.names)
    verdicts, search = small.sentences()
    assert verdicts.startswith(f"The circuit has 3 of {len(edges.names)} edges. Faithful: no.")
    assert verdicts.endswith("Minimal: not judged, since the circuit is not faithful.")
    assert f"Of the {small.n_found} edges that it left, those with the largest single costs are the circuit." in search
    assert "no single further edge can go" not in search
    verdicts, search = circuit.sentences()
    assert verdicts.endswith(f"Minimal: shown for {len(circuit.names)} of them.")
    assert f"the {circuit.n_by_cost} edges with the largest single costs keep 0.95 of the accuracy above" in search
    assert "no single further edge can go" in search


def test_a_model_that_lost_its_task_since():
    model = lego_loop(TASK)
    edges = interp.edges(model, TASK, n=64)
    model.unembed.weight.data.zero_()
    with pytest.raises(
        ValueError, match=r"its accuracy is .* there, and was 1\.00, 1\.00 when .* call interp.edges again"
    ):
        edges.circuit(n=16)


def shifted(interval, difference):
    ends = {end: getattr(interval, end) - difference for end in ("value", "low", "high")}
    return replace(interval, **ends)


def with_estimates(circuit, **changes):
    """The circuit with other intervals of differences, and the accuracies that have these differences."""
    estimates = {
        name: replace(value, exact=False) for name, value in vars(circuit).items() if isinstance(value, Interval)
    }
    estimates |= changes
    accuracy = estimates["performs"].value.copy()
    accuracy[1] = accuracy[0] - estimates["lost"].value
    accuracy[4] = accuracy[2] - estimates["left_over"].value
    estimates["performs"] = Interval(value=accuracy, low=accuracy, high=accuracy, n=1)
    halves = estimates["without_halves"]
    of_circuit = shifted(halves[0], estimates["gaps"].value)
    ends = {end: np.stack([getattr(halves[0], end), getattr(of_circuit, end)]) for end in ("value", "low", "high")}
    return replace(circuit, **estimates | {"without_halves": Interval(**ends, n=1)})


def test_answers_follow_the_intervals(circuit):
    def interval(low, high, shape=(2,)):
        ends = {"value": np.full(shape, low), "low": np.full(shape, low), "high": np.full(shape, high)}
        return Interval(**ends, n=1)

    assert with_estimates(circuit, lost=interval(0.0, 0.02)).is_faithful == "yes"
    assert with_estimates(circuit, lost=interval(0.0, 0.03)).is_faithful == "undecided"
    assert with_estimates(circuit, lost=interval(0.03, 0.04)).is_faithful == "no"
    # A gap between model and circuit counts if the better of the two is above chance
    halves = (2, 1, 2)
    gap = {"gaps": interval(0.1, 0.2, (1, 2)), "left_over": interval(0.0, 0.01)}
    assert with_estimates(circuit, **gap, without_halves=interval(0.6, 0.7, halves)).is_complete == "no"
    assert with_estimates(circuit, **gap, without_halves=interval(0.4, 0.5, halves)).is_complete == "yes"
    assert with_estimates(circuit, **gap, without_halves=interval(0.4, 0.7, halves)).is_complete == "undecided"
    close = gap | {"gaps": interval(-0.01, 0.01, (1, 2)), "without_halves": interval(0.6, 0.7, halves)}
    assert with_estimates(circuit, **close).is_complete == "yes"
    assert with_estimates(circuit, **close | {"left_over": interval(0.1, 0.2)}).is_complete == "no"
    assert with_estimates(circuit, **close | {"gaps": interval(-0.2, -0.1, (1, 2))}).is_complete == "no"


def test_written_for_other_tools_and_read(edges, circuit, tmp_path):
    circuit.save_circuit(tmp_path / "circuit.json")
    graph = json.loads((tmp_path / "circuit.json").read_text())
    assert set(graph) == {"cfg", "nodes", "edges"}
    assert graph["cfg"] == {"n_layers": 3, "n_heads": 2, "parallel_attn_mlp": False, "d_model": edges.model.cfg.d_model}
    assert len(graph["edges"]) == len(edges.names)
    assert graph["edges"]["input->a0.h1<v>"]["in_graph"] is True
    assert graph["edges"]["input->a0.h0<v>"]["in_graph"] is False
    assert graph["nodes"]["m0"] == graph["nodes"]["logits"] == {"in_graph": True}
    assert graph["nodes"]["a0.h0"] == {"in_graph": False}
    read = read_circuit(tmp_path / "circuit.json")
    assert [f"{sender} > {receiver}" for sender, receiver, _, _ in read] == list(edges.names)
    assert [is_member for *_, is_member in read] == circuit.in_circuit.tolist()
    np.testing.assert_allclose([score for _, _, score, _ in read], circuit.cost)


@pytest.mark.parametrize(
    ("edge", "words"),
    [
        ({"a0.h1": {"score": 1.0, "in_graph": True}}, "has the edge 'a0.h1'; it must be sender->receiver"),
        (
            {"x0->m1": {"score": 1.0, "in_graph": True}},
            "the edge 'x0->m1': 'x0' is no node; nodes are input, m0",
        ),
        (
            {"logits->m1": {"score": 1.0, "in_graph": True}},
            "senders has 'read-out', which does not write",
        ),
        (
            {"a0.h1<q>->m1": {"score": 1.0, "in_graph": True}},
            "senders has '0.1 q', which does not write",
        ),
        (
            {"m0->input": {"score": 1.0, "in_graph": True}},
            "has the edge 'm0->input': receivers has 'embedding', which does not read",
        ),
        (
            {"m0->a1.h1": {"score": 1.0, "in_graph": True}},
            "receivers has '1.1', which does not read",
        ),
        ({"m1->a0.h0<q>": {"score": 1.0, "in_graph": True}}, "has the edge 'm1->a0.h0<q>': .*leads to no later input"),
        ({"a0.h0->a0.h0<q>": {"score": 1.0, "in_graph": True}}, "leads to no later input"),
        ({"m0->m0": {"score": 1.0, "in_graph": True}}, "leads to no later input"),
        ({"a00.h0->m1": {"score": 1.0, "in_graph": True}}, "has the edge 'a00.h0->m1': .*'00.0' is no part"),
        ({"a0.h01->m1": {"score": 1.0, "in_graph": True}}, "'0.01' is no part"),
        ({"a٠.h0->m1": {"score": 1.0, "in_graph": True}}, "is no part of a model"),
        ({"a²h0->m1": {"score": 1.0, "in_graph": True}}, "is no node"),
        ({" a0.h0->m1": {"score": 1.0, "in_graph": True}}, "is no node"),
        ({"m0->m1": {"score": 1.0, "in_graph": 1}}, "in_graph of 'm0->m1' is a int; it must be a bool"),
        ({"m0->m1": {"in_graph": True}}, "has the edge 'm0->m1' without score"),
        ({"m0->m1": {"score": 1.0}}, "has the edge 'm0->m1' without in_graph"),
        ({"m0->m1": {"score": "x", "in_graph": True}}, "score of 'm0->m1' is 'x'; it must be a finite number"),
        ({"m0->m1": {"score": None, "in_graph": True}}, "score of 'm0->m1' is None; it must be a finite number"),
    ],
)
def test_a_circuit_of_another_tool_that_cannot_be_read(edge, words, tmp_path):
    (tmp_path / "circuit.json").write_text(json.dumps({"edges": edge}))
    with pytest.raises(ValueError, match=words):
        read_circuit(tmp_path / "circuit.json")


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ({"cfg": {"n_layers": 1, "n_heads": 1}}, "has the edge 'm0->m1': receivers has '1 MLP'.* 1 layers of 1 heads"),
        ({"cfg": {"n_layers": 0, "n_heads": 1}}, "cfg.n_layers is 0; it must be at least 1"),
        ({"cfg": {"n_heads": 1}}, "cfg.n_layers is None; it must be an integer"),
        ({"nodes": {"m0": {"in_graph": False}}}, "the edge 0 MLP > 1 MLP is in the circuit, but the node 0 MLP is not"),
        ({"nodes": {"banana": {"in_graph": True}}}, "nodes has 'banana': 'banana' is no node"),
        (
            {"cfg": {"n_layers": 2, "n_heads": 1}, "nodes": {"a9.h0": {"in_graph": False}}},
            "nodes has 'a9.h0': '9.0' is in",
        ),
    ],
)
def test_a_circuit_whose_parts_contradict_each_other(graph, words, tmp_path):
    edges = {"m0->m1": {"score": 1.0, "in_graph": True}}
    (tmp_path / "circuit.json").write_text(json.dumps(graph | {"edges": edges}))
    with pytest.raises(ValueError, match=rf"circuit\.json.*{words}"):
        read_circuit(tmp_path / "circuit.json")


def test_drawn_as_a_graph_and_as_a_page(circuit, tmp_path):
    svg = circuit.svg()
    assert svg.count('class="edge ') == len(circuit.names)
    assert 'class="edge v" tabindex="0" role="button" data-name="embedding &gt; 0.1 v"' in svg
    page = circuit.save_page(tmp_path / "circuit.html").read_text()
    assert svg in page
    assert "Click an edge" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    # Layers go up, and an edge is as wide as it costs
    heights = {name: svg.index(f">{name}</text>") for name in ("embedding", "0 MLP", "read-out")}
    assert all(height > 0 for height in heights.values())
    cheap = replace(circuit, cost=np.where(np.arange(len(circuit.cost)) == np.argmax(circuit.cost), 1.0, 0.0))
    assert cheap.svg().count('stroke-width="1.50"') >= len(circuit.names) - 1
    assert 'stroke-width="8.00"' in circuit.svg()


def test_saved_and_loaded(circuit, tmp_path):
    circuit.save(tmp_path / "circuit.json")
    loaded = CircuitResult.load(tmp_path / "circuit.json")
    assert str(loaded) == str(circuit)
    assert loaded.svg() == circuit.svg()
    assert len(loaded.to_dataframe()) == len(circuit.sets) * 2


def test_errors(edges, tmp_path):
    edges.save(tmp_path / "edges.json")
    with pytest.raises(ValueError, match=r"this result was loaded and has no model; call interp\.edges"):
        EdgesResult.load(tmp_path / "edges.json").circuit()
    with pytest.raises(ValueError, match=r"faithful is 1\.5; it is a share, 0 to 1"):
        edges.circuit(faithful=1.5)
    with pytest.raises(ValueError, match="at_most is 0; it must be"):
        edges.circuit(at_most=0)
    task = Lego(n_vars=2, sentence_format="compact")
    with pytest.raises(ValueError, match="the model is not above chance on any outcome, so there is no task to keep"):
        interp.edges(transformer(task), task, n=16).circuit()
    post_ln = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16, block="post_ln"))
    with pytest.raises(ValueError, match="the model has the block 'post_ln'; a circuit needs learned heads and inputs"):
        interp.edges(post_ln, task, n=16).circuit()


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (8, "n is 8; at least 16 sequences"),
        ("everything", "n is 'everything'; give a number of examples, or 'all' for every input"),
    ],
)
def test_wrong_numbers_of_sequences(edges, n, message):
    with pytest.raises(ValueError, match=message):
        edges.circuit(n=n)


def test_the_caller_keeps_the_random_state(edges):
    before = torch.get_rng_state()
    edges.model.train()
    edges.circuit(n="all", at_most=3)
    assert edges.model.training
    edges.model.eval()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_in_a_browser(browser, circuit, tmp_path):
    """An edge is chosen by a click and by keys; at 1280 and 400 pixels, light and dark, nothing is wrong."""
    path = circuit.save_page(tmp_path / "circuit.html")
    assert faults(browser, path) == []
    page = browser.open(path)
    page.run("document.querySelector('.edge').dispatchEvent(new MouseEvent('click', {bubbles: true})); 0")
    name = page.run("document.querySelector('#numbers strong').textContent")
    assert name in circuit.names
    assert page.run("document.querySelector('.edge.chosen').dataset.name") == name
    assert "alone it costs" in page.run("document.querySelector('#numbers').textContent")
    # The next edge by keys
    page.run("[...document.querySelectorAll('.edge')][1].focus(); 0")
    page.press("Enter")
    assert page.run("document.querySelector('#numbers strong').textContent") != name
    assert page.run("document.querySelectorAll('.edge.chosen').length") == 1
    assert page.problems == []
    # What is clicked is wider than what is drawn, and not seen on a light or a dark page
    strokes = "[...document.querySelectorAll('.edge path.reach')].map((path) => getComputedStyle(path).stroke)"
    for dark in (False, True):
        assert set(browser.open(path, dark=dark).run(strokes)) == {"rgba(0, 0, 0, 0)"}
