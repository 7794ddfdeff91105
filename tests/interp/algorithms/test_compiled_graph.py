"""Causal graphs of compiled programs: the same answers as the model, accepted as they are, refused when rewired."""

import pytest
import torch
from packs import write_pack

import interp
from interp.algorithms import compiled_program, compiled_sites
from interp.known_answers import read_compiled
from interp.tasks import Lego
from interp.tasks.base import logits_at_targets


@pytest.fixture(scope="module", params=[False, True], ids=["categorical", "numerical"])
def known(request, tmp_path_factory):
    return read_compiled(write_pack(tmp_path_factory.mktemp("pack"), numerical=request.param))


def everything(known):
    return known.task.examples(torch.arange(len(known.task.program.examples)))


def test_the_graph_gives_the_answers_of_the_model(known):
    batch = everything(known)
    with torch.no_grad():
        logits = logits_at_targets(known.model(batch.tokens, **batch.model_inputs()), batch)
    found = compiled_program(known.task).run(batch).answers
    assert torch.equal(found[batch.present], known.task.answers(logits)[batch.present])
    assert (found[~batch.present] == -1).all()


def test_variables_are_those_of_the_program_and_depend_on_what_it_says(known):
    graph = compiled_program(known.task)
    of = {one.name: set(one.parents) for one in graph.variables}
    assert of == {
        "indices": set(), "tokens": set(), "previous": {"indices", "tokens"}, "same_attn_output": {"tokens"}
    }  # fmt: skip
    assert [one.name for one in graph.variables if one.is_input] == ["indices", "tokens"]
    assert all(one.per_position for one in graph.variables)
    sites = compiled_sites(known.task)
    assert [str(sites[name]) for name in of] == ["resid 0*", "resid 0*", "attn_out 0*", "attn_out 1*"]
    batch = everything(known)
    previous = graph.run(batch).values["previous"]
    assert torch.equal(previous[:, 2:][batch.attention_mask[:, 2:]], batch.tokens[:, 1:-1][batch.attention_mask[:, 2:]])
    assert (previous[:, 1] == 3).all()  # none: the first letter has no letter before it


def test_its_own_graph_is_accepted_and_a_rewired_one_refused(known):
    graph, sites = compiled_program(known.task), compiled_sites(known.task)
    read = "same_attn_output" if known.task.program.numerical else "previous"
    wrong = graph.without_edge(read, "tokens", "indices")
    found = interp.implements(known.model, known.task, graph, rivals=[wrong], sites=sites, n=256)
    assert found.verdict == "implements"
    assert found.finding(read).accuracy == 1
    assert found.finding(read).random < 0.5
    refused = interp.implements(known.model, known.task, wrong, rivals=[graph], sites=sites, n=256)
    assert (refused.verdict, refused.rival) == ("implements a rival", graph.name)


def test_the_mean_of_two_values_is_a_value(tmp_path):
    """Two positions of one index: the query after it finds two keys, and the mean of two letters is no letter."""
    known = read_compiled(write_pack(tmp_path, numerical=False))
    graph, batch = compiled_program(known.task), everything(known)
    indices = graph.run(batch).values["indices"].clone()
    indices[:, 4] = indices[:, 1]
    found = graph.run(batch, {"indices": indices})
    long = batch.attention_mask[:, 4]
    two = long & (batch.tokens[:, 1] != batch.tokens[:, 4])
    assert two.any()
    assert (found.values["previous"][two, 2] > 3).all()
    assert torch.equal(found.values["previous"][long & ~two, 2], batch.tokens[long & ~two, 1])
    target = (batch.target_positions == 2).long().argmax(1)
    answers = found.answers.gather(1, target[:, None])[:, 0]
    assert (answers[two] == -1).all()  # both are equally likely
    assert (answers[long & ~two] == batch.tokens[long & ~two, 1]).all()
    assert len(found.values["previous"][two, 2].unique()) == 3


def test_other_tasks_are_refused():
    with pytest.raises(ValueError, match="compiled_program is for compiled programs"):
        compiled_program(Lego())
    with pytest.raises(ValueError, match="compiled_sites is for compiled programs"):
        compiled_sites(Lego())
