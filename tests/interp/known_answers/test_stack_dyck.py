"""The hand-written stack head: accuracy, pattern, and label."""

from dataclasses import replace

import pytest
import torch

import interp
from interp.known_answers import stack_dyck
from interp.tasks import Dyck

LANGUAGES = [(2, 4), (3, 4), (2, 8)]


@pytest.mark.parametrize(("n_types", "max_depth"), LANGUAGES)
@pytest.mark.parametrize(("length", "n"), [(28, 60), (2000, 1)])
def test_the_stack_head_closes_every_bracket_at_any_length(n_types, max_depth, length, n):
    task = Dyck(n_types=n_types, max_depth=max_depth, length=length)
    result = interp.evaluate(stack_dyck(task), task, n=n)
    assert (result.accuracy[:2] == 1).all()


def test_all_attention_is_on_the_top_of_the_stack():
    task = Dyck(n_types=2, max_depth=4)
    model, batch = stack_dyck(task), task.sample(30, generator=torch.Generator().manual_seed(0), split="test")
    name = "blocks.0.attn.hook_pattern"
    pattern = model.run_with_cache(batch.tokens, names_filter=name)[1][name][:, 0]
    top = task.relations(batch)["stack_top"]
    open_ = top.any(-1)
    mass = (pattern * top).sum(-1)
    assert mass[open_].min() > 1 - 1e-12
    assert pattern[..., 0][~open_].min() > 1 - 1e-12  # [START] where nothing is open


def test_the_stack_head_is_labelled_and_acts_through_its_pattern():
    task = Dyck(n_types=2, max_depth=4)
    model = stack_dyck(task)
    assert interp.classify_heads(model, task, n=40).label[0][0] == "stack_top"
    for method in ("uniform", "random_rows"):
        lost = interp.ablate_heads(model, task, n=60, method=method)
        assert lost.drop.low[0, 0] > 0.1, method
    stack_top = interp.ablate_heads(model, task, n=60, method="stack_top")
    assert abs(stack_top.drop[0, 0]) < 1e-12
    long = replace(task, length=450)
    assert interp.evaluate(model, long, n=4).accuracy[0] == 1
