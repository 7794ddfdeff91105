"""Edges: a planted chain, models at chance, a computation edge by edge, invariances, sentences, errors."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from bridges import bridge_of, hugging_face
from edge_reference import brute_force, points_on_demand
from own_models import transformer

import interp
from hooks import HeadPattern, Transformer, from_bridge, from_huggingface
from hooks.interventions.ablation_engine import part_points
from hooks.interventions.edge_engine import EdgeEngine
from interp.core.inputs import inputs_or_sample
from interp.core.randomness import derived_generator
from interp.core.sample import N_REFERENCE, Sample, reference_batch
from interp.core.statistics import drop_interval, drop_tests, holm
from interp.heads import EdgesResult
from interp.heads import edges as edges_module
from interp.heads.circuit import EdgeSets
from interp.heads.interventions import OF_PARTS
from interp.known_answers import known_answer
from interp.known_answers.lego.loop import lego_loop
from interp.tasks import Lego
from interp.tasks.base import logits_at_targets

TASK = Lego(n_vars=3, sentence_format="compact")
MODEL = transformer(TASK)
CHAIN = Lego(n_vars=2)
N = 24


def loop(n_vars=2):
    task = Lego(n_vars=n_vars)
    return lego_loop(task), task


@pytest.fixture(scope="module")
def result():
    return interp.edges(MODEL, TASK, n=N)


@pytest.fixture(scope="module")
def of_loop():
    model, task = loop()
    return interp.edges(model, task, n=96)


def sequences(task=TASK, n=N):
    return inputs_or_sample(task, n, generator=derived_generator(0, "edges"))


def instead(model, task, method, n):
    """What each part writes instead, computed here."""
    reference = reference_batch(task, 0)
    _, cache = model.run_with_cache(reference.tokens)
    outputs = {name: cache[name].detach() for name in part_points(model)}
    if method == "zero":
        return {name: torch.zeros_like(values[:n]) for name, values in outputs.items()}
    if method == "mean":
        return {name: values.mean(0, keepdim=True).expand(n, *values.shape[1:]) for name, values in outputs.items()}
    rows = torch.randint(N_REFERENCE, (n,), generator=derived_generator(0, "replacement"))
    return {name: values[rows] for name, values in outputs.items()}


@pytest.mark.parametrize("method", ["mean", "zero", "resample"])
@torch.no_grad()
def test_equal_to_a_separate_pass_for_each_edge(method):
    result = interp.edges(MODEL, TASK, n=N, method=method)
    batch, separate = sequences(), points_on_demand(MODEL)
    new_outputs = instead(MODEL, TASK, method, N)
    clean = TASK.score(logits_at_targets(MODEL(batch.tokens), batch), batch)
    engine = EdgeEngine(MODEL, batch.tokens[:1])
    assert [f"{sender} > {receiver}" for sender, receiver in engine.edges] == list(result.names)
    for index in range(0, len(engine.edges), 3):
        logits = brute_force(separate, batch.tokens, new_outputs, engine.edges[index])
        score = TASK.score(logits_at_targets(logits, batch), batch)
        np.testing.assert_allclose(result.drop[index], (clean.right - score.right).mean(0), atol=1e-6)
        np.testing.assert_allclose(result.loss_rise[index], (score.loss - clean.loss).mean(0), atol=1e-5)


def test_the_edges_of_a_loop_are_found(of_loop):
    """Needed is what costs more than a fifth of the accuracy above chance."""
    assert {"embedding > 0.1 v", "0.1 > 0 MLP", "0 MLP > 1.0 v", "1.0 > 1 MLP", "0 MLP > read-out"} <= set(
        of_loop.needed
    )
    costs_enough = (of_loop.drop.value > of_loop.threshold).any(1)
    for verdict, costs in zip(of_loop.verdicts, costs_enough, strict=True):
        assert verdict == "undecided" or costs == (verdict == "needed")
    assert of_loop.verdicts.count("undecided") == 1


@pytest.mark.slow
def test_nothing_reaches_the_answers_through_idle_heads():
    known = known_answer("loop Z2 0", seed=0)
    idle = {f"{layer}.{head}" for (layer, head), truth in known.heads.items() if truth.truth == "idle"}
    result = interp.edges(known.model, known.task, n=64)
    touched = {name for edge in result.needed for name in edge.replace(" > ", " ").split() if "." in name}
    assert result.needed
    assert not touched & idle


def test_a_model_at_chance_has_no_needed_edge():
    """Of an untrained model every edge changes the loss, and none is needed."""
    result = interp.edges(Transformer(interp.config_for(TASK, n_layers=1, n_heads=2, d_model=16), seed=0), TASK, n=64)
    assert (np.abs(result.loss_rise.value) > 1e-6).any()
    assert np.isnan(result.threshold).all()
    assert set(result.verdicts) == {"undecided"}
    assert result.sentences() == [
        f"The model is not above chance on any outcome (at most {result.clean.max():.2f}): no edge is judged."
    ]


def test_tests_and_intervals_are_those_of_the_audit(of_loop):
    model, task = loop()
    sample = Sample(task, sequences(task, 96))
    effects = edges_module.edge_effects(model, sample, OF_PARTS["mean"]).effects
    assert effects.lost.shape == (96, len(of_loop.names), 2, 2)
    np.testing.assert_allclose(of_loop.threshold, 0.2 * (of_loop.clean - 0.5))
    lost, total = sample.by_input(effects.lost[:, :, 0]), sample.by_input(effects.total)
    larger, smaller = drop_tests(lost, total[:, None], of_loop.threshold)
    np.testing.assert_allclose(of_loop.p_needed, holm(np.minimum(2 * larger.min(1), 1)))
    np.testing.assert_allclose(of_loop.p_harmless, holm(smaller.max(1)))
    np.testing.assert_allclose(of_loop.drop.low, drop_interval(lost, total[:, None])[1])


def test_verdicts_follow_their_p_values(of_loop):
    costs = (of_loop.drop.value > of_loop.threshold).any(1)
    p_values = {"p_needed": np.where(costs, 0.049, 1.0), "p_harmless": np.where(costs, 1.0, 0.049)}
    changed = replace(of_loop, **p_values)
    assert changed.verdicts == tuple(np.where(costs, "needed", "harmless").tolist())
    assert set(replace(changed, alpha=0.04).verdicts) == {"undecided"}


def test_the_control_is_the_mean_of_the_other_edges_into_the_same_input(result):
    table = result.to_dataframe().query(f"outcome == {result.outcomes[0]!r}").set_index("edge")
    into = table[table["receiver"] == "1.0 v"]
    others = into.drop("0.1 > 1.0 v")["drop"].mean()
    assert table.loc["0.1 > 1.0 v", "random_drop"] == pytest.approx(others)
    assert np.isnan(table.loc["embedding > 0.0 q", "random_drop"])


def test_every_input_is_exact():
    task = Lego(n_vars=2, alphabet="ab")
    model = lego_loop(task)
    result = interp.edges(model, task, n="all")
    assert result.drop.exact
    assert result.n < 32
    assert set(result.verdicts) == {"needed", "harmless"}
    assert [verdict == "needed" for verdict in result.verdicts] == (result.drop.value > result.threshold).any(
        1
    ).tolist()
    assert f"all {result.n:,} inputs, exact" in str(result)
    paired = interp.edges(model, task, n="all", method="resample")
    assert set(paired.needed) >= {"0 MLP > read-out", "0.1 > 0 MLP"}


def test_results_do_not_depend_on_the_split_of_the_batch(result, monkeypatch):
    monkeypatch.setattr("interp.heads.experiment.TOKENS_PER_CHUNK", 40)
    again = interp.edges(MODEL, TASK, n=N)
    np.testing.assert_allclose(again.drop.value, result.drop.value, atol=1e-6)
    np.testing.assert_allclose(again.loss_rise.value, result.loss_rise.value, atol=1e-5)


def test_exchanged_heads_have_exchanged_edges(result):
    model = transformer(TASK)
    attention = model.weights[0].attention
    d_head = model.cfg.d_head
    with torch.no_grad():
        for rows in (attention.q.weight, attention.k.weight, attention.v.weight):
            rows.copy_(rows.roll(d_head, 0))
        for rows in (attention.q.bias, attention.k.bias, attention.v.bias):
            rows.copy_(rows.roll(d_head, 0))
        attention.o.weight.copy_(attention.o.weight.roll(d_head, 1))
    exchanged = interp.edges(model, TASK, n=N)
    for index, name in enumerate(result.names):
        new_name = name.replace("0.0", "0.x").replace("0.1", "0.0").replace("0.x", "0.1")
        partner = exchanged.names.index(new_name)
        np.testing.assert_allclose(exchanged.loss_rise[partner], result.loss_rise[index], atol=1e-5)


def test_layers_that_share_weights_are_separate_parts():
    tied = Transformer(interp.config_for(TASK, n_layers=2, n_heads=2, d_model=16, tied=True), seed=1)
    result = interp.edges(tied, TASK, n=8)
    assert len(result.names) == 46
    assert not np.allclose(result.loss_rise[0], result.loss_rise[result.names.index("embedding > 1.0 q")])


def test_sentences_and_the_printed_table(of_loop):
    assert of_loop.sentences()[0].startswith("15 of 100 edges are needed, ")
    assert "The queries of 1.0 need embedding." in of_loop.sentences()
    assert "The answers (read-out) need 0 MLP, 2 MLP." in of_loop.sentences()
    assert str(of_loop).splitlines()[1].split()[:4] == ["embedding", ">", "0.1", "v"]
    assert "76 edges that cost no more" in str(of_loop)


def test_saved_and_loaded(of_loop, tmp_path):
    of_loop.save(tmp_path / "edges.json")
    loaded = EdgesResult.load(tmp_path / "edges.json")
    assert str(loaded) == str(of_loop)
    assert loaded.model is None
    assert loaded.plot().to_json() == of_loop.plot().to_json()


def test_errors():
    with pytest.raises(ValueError, match=r"method is 'uniform'; it must be 'mean' or 'zero' or .* an Intervention"):
        interp.edges(MODEL, TASK, method="uniform")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n is 4; at least 8 sequences"):
        interp.edges(MODEL, TASK, n=4)
    with pytest.raises(ValueError, match=r"alpha is 1\.0; it must be strictly between 0 and 1"):
        interp.edges(MODEL, TASK, alpha=1.0)
    with pytest.raises(ValueError, match=r"edges does not accept this bridge of .*: it has to edit separate inputs"):
        interp.edges(bridge_of("native", d_vocab=TASK.d_vocab, d_model=16, d_head=8, n_heads=2, n_ctx=TASK.n_ctx), TASK)


@pytest.mark.parametrize("method", ["mean", "zero", "resample"])
def test_a_bridge_costs_what_our_own_model_with_the_same_weights_does(method):
    bridge, model = (
        bridge_of("gpt2", d_vocab=TASK.d_vocab),
        from_huggingface(hugging_face("gpt2", d_vocab=TASK.d_vocab)),
    )
    theirs, ours = (interp.edges(net, TASK, n=12, method=method) for net in (bridge, model))
    assert theirs.names == ours.names
    assert np.abs(ours.loss_rise.value).max() > 0.1
    for name in ("drop", "loss_rise"):
        np.testing.assert_allclose(getattr(theirs, name).value, getattr(ours, name).value, rtol=0, atol=1e-5)
    np.testing.assert_allclose(theirs.p_needed, ours.p_needed, rtol=0, atol=1e-5)


def test_some_edges_of_a_bridge():
    bridge = bridge_of("gpt2", d_vocab=TASK.d_vocab)
    some = interp.edges(bridge, TASK, n=12, within=["0.1 > layer 1", "embedding > read-out"])
    assert some.names == (
        *(f"0.1 > 1.{head} {letter}" for head in range(4) for letter in "qkv"),
        "0.1 > 1 MLP",
        "embedding > read-out",
    )
    assert (
        some.weights
        != interp.edges(bridge_of("gpt2", d_vocab=TASK.d_vocab, seed=1), TASK, n=12, within=["0.1 > 1 MLP"]).weights
    )
    with pytest.raises(ValueError, match="only some edges; a circuit needs every edge"):
        some.circuit()


def test_the_circuit_of_a_bridge_is_that_of_our_own_model_with_the_same_weights():
    """Weights are random, so that chance is the accuracy of no edges."""
    our_model = from_huggingface(hugging_face("gpt2", d_vocab=TASK.d_vocab))
    sets = [np.ones(0, dtype=bool)]
    scores = []
    for model in (our_model, from_bridge(bridge_of("gpt2", d_vocab=TASK.d_vocab))):
        edges = interp.edges(model, TASK, n=12)
        sample = Sample.of(TASK, 16, seed=0, name="circuit")
        if len(sets[0]) == 0:
            sets = list(np.random.default_rng(0).random((4, len(edges.names))) < 0.7)
        scores.append(EdgeSets(model, sample, edges.intervention).scores(sets))
    for ours, theirs in zip(*scores, strict=True):
        np.testing.assert_array_equal(ours.right, theirs.right)
        np.testing.assert_allclose(ours.loss, theirs.loss, rtol=1e-4)


@pytest.mark.parametrize("row", [(HeadPattern(kind="uniform"), HeadPattern())])
def test_a_hard_coded_head_has_edges_into_its_values_only(row):
    cfg = interp.config_for(TASK, n_layers=1, n_heads=2, d_model=16, head_patterns=(row,))
    result = interp.edges(Transformer(cfg, seed=0), TASK, n=8)
    assert [name for name in result.receivers if name.startswith("0.0")] == ["0.0 v"]
    assert [name for name in result.receivers if name.startswith("0.1")] == ["0.1 q", "0.1 k", "0.1 v"]
