"""Hand-written Dyck models of one or several heads: accuracy, and the truth about each head."""

import pytest
import torch
from known_truth import check_labels, lost

from interp.known_answers.dyck.one_hot import bracket_states, empty_minimal, write_closers
from interp.known_answers.dyck.stack import attend_to_top, stack_dyck, write_type
from interp.known_answers.dyck.variants import (
    dyck_alone,
    dyck_decoy,
)
from interp.known_answers.suite import DYCK_ANSWERS
from interp.tasks import Dyck


def test_idle_heads_have_no_label():
    check_labels(DYCK_ANSWERS["stack among idle heads"](torch.Generator().manual_seed(0)))


def test_one_of_several_heads_computes_the_same_as_a_single_head():
    task = Dyck(n_types=3, max_depth=4, length=24)
    states = bracket_states(task)
    sizes = {"n_heads": 3, "d_head": states.width, "output_projection": True}
    model = empty_minimal(task, positions="linear", **sizes)
    attend_to_top(model, states, head=1)
    write_type(model, states, head=1)
    write_closers(model, task)
    tokens = task.sample(20, generator=torch.Generator().manual_seed(0), split="test").tokens
    assert torch.allclose(model.eval()(tokens), stack_dyck(task)(tokens), atol=1e-9)


def test_removing_one_of_two_cancelling_heads_breaks_the_model():
    answer = dyck_decoy(torch.Generator().manual_seed(0), work="uneven", decoy="cancelled")
    assert min(lost(answer, [((0, 1),), ((0, 2),)], "mean").values()) > 0.2


def test_the_generator_determines_the_answer():
    first, again, another = (DYCK_ANSWERS["stack, zero decoy"](torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert first.task == again.task != another.task
    for weight, same_weight in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(weight, same_weight)


def test_unknown_options_raise(as_a_user):
    with pytest.raises(ValueError, match="decoy is 'loud'"):
        dyck_decoy(torch.Generator(), decoy="loud")
    with pytest.raises(ValueError, match="work is 'hard'"):
        dyck_alone(torch.Generator(), work="hard")
