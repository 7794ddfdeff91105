"""Algorithms: the ready-made ones against the tasks' labels, interventions, and errors."""

import pytest
import torch

from interp.algorithms import (
    Algorithm,
    Variable,
    bracket_stack,
    chain_loop,
    depth_counter,
    equality,
    first_symbol,
    majority_symbol,
    nearest_clause,
    sign_count,
)
from interp.tasks import S3, Dyck, Lego, Template


def batch_of(task, n=300):
    return task.sample(n, generator=torch.Generator().manual_seed(0), split="test")


RIGHT = [
    (chain_loop, Lego(n_vars=4)),
    (chain_loop, Lego(n_vars=3, group=S3, sentence_format="compact")),
    (nearest_clause, Lego(n_vars=3, clause_order="chain")),
    (sign_count, Lego(n_vars=4)),
    (bracket_stack, Dyck(length=20)),
    (bracket_stack, Dyck(n_types=3, max_depth=3, length=16, words="complete")),
    (depth_counter, Dyck(length=20)),
    (depth_counter, Dyck(n_types=3, max_depth=3, length=16, words="complete")),
    (equality, Template(templates="aba_abb")),
    (equality, Template(templates="copy")),
    (equality, Template(templates="distribution_of_three")),
    (first_symbol, Template(templates="aba_abb")),
    (majority_symbol, Template(templates="same_different")),
]


@pytest.mark.parametrize(("make", "task"), RIGHT, ids=lambda one: getattr(one, "__name__", type(one).__name__))
def test_answers_are_the_labels(make, task):
    batch = batch_of(task)
    found = make(task).run(batch).answers
    labels = torch.where(batch.after_closer, batch.due, -1) if isinstance(task, Dyck) else batch.labels
    said = found >= 0
    assert said.any()
    if make is sign_count:
        assert said[:, -1].all()
        assert not said[:, :-1].any()
    elif not isinstance(task, Dyck):
        assert said[:, -1].all()
    assert (found == labels)[said & batch.present].all()
    if isinstance(task, Dyck):
        assert (said == (labels >= 0))[batch.present].all()


def test_shortcuts_are_wrong_where_they_should_be():
    task = Template(templates=("aba -> +1", "abb -> -1", "abc -> 0"))
    batch = batch_of(task)
    first, most = (make(task).run(batch).answers == batch.labels for make in (first_symbol, majority_symbol))
    assert first[batch.template < 2].all()
    assert not first[batch.template == 2].any()
    assert most[batch.template != 1].all()
    assert not most[batch.template == 1].any()
    chain = Lego(n_vars=4)
    batch = batch_of(chain)
    in_order = (batch.clause_of == torch.arange(4)).all(1)
    right = (nearest_clause(chain).run(batch).answers == batch.labels).all(1)
    assert right[in_order].all()
    assert not right[~in_order].all()


def test_setting_a_variable_changes_what_depends_on_it():
    task = Lego(n_vars=3, group=S3)
    batch, loop = batch_of(task), chain_loop(task)
    new = torch.zeros(len(batch), dtype=torch.long)
    found = loop.run(batch, {"value #1": new})
    act = torch.tensor(task.group.act)
    assert torch.equal(found.answers[:, 0], batch.labels[:, 0])
    assert torch.equal(found.answers[:, 1], new)
    assert torch.equal(found.answers[:, 2], act[batch.operations[:, 2], new])


def test_stack_and_counter_differ_about_a_bracket_in_the_past():
    task = Dyck(length=8)
    batch = task.read("([])[()]")
    stack, counter = bracket_stack(task), depth_counter(task)
    new = stack.run(batch).values["bracket"].clone()
    new[:, 4] = batch.tokens[:, 2] * 5 + 1  # the closer of depth 0 becomes the opener `[` at depth 1
    plain, looked_up, counted = (
        one.answers[0]
        for one in (
            stack.run(batch),
            stack.run(batch, {"bracket": new}, position=4),
            counter.run(batch, {"bracket": new}, position=4),
        )
    )
    assert plain[4] == -1
    assert looked_up[4] == 1
    assert counted[4] == -1  # both `(` and `[` are open at level 1, which is no stack
    assert torch.equal(plain[5:], looked_up[5:])


def test_one_position_is_set_alone():
    task = Dyck(length=10)
    batch = batch_of(task, 20)
    stack = bracket_stack(task)
    new = torch.zeros_like(batch.tokens)
    found = stack.run(batch, {"bracket": new}, position=4).values["bracket"]
    assert (found[:, 4] == 0).all()
    kept = torch.arange(found.shape[1]) != 4
    assert torch.equal(found[:, kept], stack.run(batch).values["bracket"][:, kept])


def test_an_edge_can_be_rewired():
    task = Lego(n_vars=3)
    loop = chain_loop(task)
    wrong = loop.without_edge("value #2", "value #1", "value #0")
    batch = batch_of(task)
    found = wrong.run(batch).answers
    assert torch.equal(found[:, 2], loop.run(batch).values["value #0"] ^ batch.operations[:, 2])
    assert wrong.name == "chain loop, value #2 of value #0 in place of value #1"
    with pytest.raises(ValueError, match="does not depend on 'value #0', but on operation #2, value #1"):
        loop.without_edge("value #2", "value #0", "value #1")
    with pytest.raises(ValueError, match="'value #2' does not come before 'value #1'"):
        loop.without_edge("value #1", "value #0", "value #2")


def one(name="a", parents=(), compute=lambda batch, *_: batch.tokens[:, 0]):
    return Variable(name=name, parents=parents, compute=compute)


def answers(batch, *_):
    return torch.zeros_like(batch.labels)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ((), "variables of 'mine' is empty; give at least one"),
        ((one(), one()), "has 'a' twice; give each its own name"),
        (
            (one(parents=("b",)), one("b")),
            "variable 'a' of 'mine' depends on 'b', which is not an earlier one; earlier ones are",
        ),
        ((one(), "b"), "a variable of 'mine' is"),
    ],
)
def test_graphs_that_are_none(as_a_user, variables, text):
    with pytest.raises(ValueError, match=text):
        Algorithm(name="mine", variables=variables, answers=answers)


def test_wrong_shapes_and_names():
    task = Lego(n_vars=2)
    batch = batch_of(task, 8)
    wide = Algorithm(name="mine", variables=(one(compute=lambda batch: batch.tokens),), answers=answers)
    with pytest.raises(ValueError, match=r"variable 'a' of 'mine' gave \(8, 12\); it must give \(batch,\) = \(8,\)"):
        wide.run(batch)
    short = Algorithm(name="mine", variables=(one(),), answers=lambda batch, a: a)
    with pytest.raises(ValueError, match=r"answers of 'mine' gave \(8,\); it must give \(batch, target\) = \(8, 2\)"):
        short.run(batch)
    with pytest.raises(ValueError, match="'chain loop' has no variable 'value'; it has operation #0"):
        chain_loop(task).run(batch, {"value": batch.tokens[:, 0]})


def test_ready_made_ones_refuse_other_tasks():
    with pytest.raises(ValueError, match="chain_loop is for Lego"):
        chain_loop(Dyck())
    with pytest.raises(ValueError, match="group='S3'; only over signs"):
        sign_count(Lego(group=S3))
    with pytest.raises(ValueError, match="bracket_stack is for Dyck"):
        bracket_stack(Lego())
    with pytest.raises(ValueError, match="'equality test' is for template tasks"):
        equality(Lego())
