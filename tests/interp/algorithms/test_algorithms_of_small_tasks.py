"""Algorithms of in-context lookup, modular addition and indirect objects, on models whose algorithm is known."""

import pytest
import torch

import interp
from interp.algorithms import key_lookup, modular_sum, other_by_name, other_by_place, pair_order
from interp.known_answers.task_suite import task_answer
from interp.tasks import InContextLookup, IndirectObject, ModularAddition

ALGORITHMS = {
    key_lookup: InContextLookup(n_pairs=3),
    modular_sum: ModularAddition(p=13),
    other_by_name: IndirectObject(),
    other_by_place: IndirectObject(),
}


def findings(name, algorithm, *rivals):
    """What an interchange of each variable finds in the residual stream of a known answer, and the verdict."""
    known = task_answer(name, seed=0)
    others = [rival(known.task) for rival in rivals]
    result = interp.implements(known.model, known.task, algorithm(known.task), rivals=others, sites="resid", n=256)
    return {finding.variable: finding for finding in result.findings}, result.verdict


@pytest.mark.shapes
@pytest.mark.parametrize(("algorithm", "task"), ALGORITHMS.items())
def test_the_answers_are_the_labels(algorithm, task):
    batch = task.sample(64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(algorithm(task).run(batch).answers, batch.labels)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, pair_order])
def test_other_tasks_are_refused(algorithm):
    with pytest.raises(ValueError, match=f"{algorithm.__name__} is for "):
        algorithm(interp.tasks.Lego())


def test_a_key_that_is_asked_for_in_no_pair_has_no_answer():
    task = InContextLookup(n_pairs=3)
    batch = task.read("a3 f1 c7 c f a")
    algorithm = key_lookup(task)
    other = algorithm.run(task.read("b3 f1 c7 c f b")).values["token"]
    assert algorithm.run(batch, {"token": other}, position=0).answers.tolist() == [[7, 1, -1]]


@pytest.mark.shapes
def test_an_induction_circuit_looks_keys_up_in_any_order():
    found, verdict = findings("in-context lookup", key_lookup, pair_order)
    assert verdict == "implements"
    assert found["token"].status == "found"
    assert {found[f"value {index}"].status for index in range(3)} == {"not found"}


def test_the_sum_is_found_after_the_layer_that_adds():
    found, _ = findings("modular addition", modular_sum)
    assert (found["sum"].status, found["sum"].site) == ("found", "resid 1")


@pytest.mark.slow
def test_which_name_and_which_place_is_repeated_are_told_apart():
    by_name, _ = findings("indirect object by name", other_by_name, other_by_place)
    assert (by_name["repeated name"].status, by_name["repeated name"].site) == ("found", "resid 1")
    assert by_name["repeated place"].status == "not found"
    by_place, _ = findings("indirect object by place", other_by_place, other_by_name)
    assert (by_place["repeated place"].status, by_place["repeated place"].site) == ("found", "resid 2")
    # the name is nowhere but in the answer
    assert by_place["repeated name"].site == "resid 3"
