"""Edges of known answers: the pass of the benchmark is the model's, wiring is that of the weights, none is missed."""

import numpy as np
import pytest
import torch

from benchmarks.bench_edges import judged_edges
from benchmarks.edge_wiring import KnownAnswerPass
from interp.core.inputs import inputs_or_sample
from interp.core.randomness import derived_generator
from interp.core.sample import reference_batch
from interp.heads.edges import edges
from interp.known_answers import known_answer

N = 64
NAMES = [
    "recall induction",
    "lookup reroute",
    "template copy in two hops",
    "template same, constant decoy",
    "dyck stack, redundant",
]
"""One of each kind of block: without norms, with an MLP, bare layers with b I, pre-LN, and minimal."""


def separate_passes(answer, n=N):
    batch = inputs_or_sample(answer.task, n, generator=derived_generator(0, "edges"))
    return KnownAnswerPass(answer, batch, reference_batch(answer.task, 0))


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_a_pass_from_the_equations_has_the_same_costs(name):
    answer = known_answer(name, seed=0)
    result = edges(answer.model, answer.task, n=N)
    truth = separate_passes(answer)
    logits = truth._logits({"embedding": truth.clean["embedding"]}, 0, None)
    np.testing.assert_allclose(logits, answer.model(truth.batch.tokens), atol=1e-9)
    names = list(zip(result.senders, result.receivers, strict=True))
    for index in range(0, len(names), max(1, len(names) // 12)):
        np.testing.assert_allclose(result.drop[index], truth.drop(names[index])[0], atol=1e-9)
    # What the weights do not define costs nothing
    costs = np.abs(result.loss_rise.value).max(1)
    wired = np.array([truth.is_wired(edge) for edge in names])
    assert (costs[~wired] < 1e-9).all()
    assert wired[[verdict == "needed" for verdict in result.verdicts]].all()


def test_wiring_is_that_of_the_construction():
    """Induction: 0.0 writes the previous token, which only the keys of 1.2 read."""
    truth = separate_passes(known_answer("recall induction", seed=0), n=8)
    receivers = [f"1.{head} {letter}" for head in range(3) for letter in "qkv"]
    assert [receiver for receiver in receivers if truth.is_wired(("0.0", receiver))] == ["1.2 k"]
    assert truth.is_wired(("1.2", "read-out"))
    assert not truth.is_wired(("0.0", "read-out"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["recall induction with decoys", "lookup mixed outcomes", "template copy by kind"])
def test_no_edge_is_false_or_missed(name, seed):
    counts = judged_edges(known_answer(name, seed), seed)
    assert (counts["models"], counts["false"], counts["missed"], counts["unwired with a cost"]) == (1, 0, 0, 0)
    assert counts["needed"] > 0
