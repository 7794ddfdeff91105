"""Relations of a task that no registered kind stands for are kinds of their own name, in labels and audits."""

from dataclasses import dataclass

import pytest
import torch

import hooks
import interp
from interp.tasks import Dyck, Lego, Template

NAMES = ("openers", "closers", "previous")


class Related:
    """Three relations, one of which has the name of a registered kind."""

    def relations(self, batch):
        n, pos = batch.tokens.shape
        distance = torch.arange(pos)[:, None] - torch.arange(pos)
        maps = {"openers": distance >= 2, "closers": distance == 2, "previous": distance == 1}
        return {name: related.expand(n, pos, pos) for name, related in maps.items()}


@dataclass(frozen=True, kw_only=True)
class RelatedLego(Related, Lego):
    pass


@dataclass(frozen=True, kw_only=True)
class RelatedDyck(Related, Dyck):
    pass


@dataclass(frozen=True, kw_only=True)
class RelatedTemplate(Related, Template):
    pass


@pytest.mark.parametrize(
    "task",
    [RelatedLego(n_vars=3), RelatedDyck(n_types=2, max_depth=2), RelatedTemplate()],
    ids=lambda task: task.task_name,
)
def test_all_relations_of_a_task_are_kinds(task):
    model = hooks.make_model(interp.config_for(task, n_layers=1, n_heads=2, d_model=16))
    kinds = interp.classify_heads(model, task, n=16, untrained=1).kinds
    assert set(NAMES) <= set(kinds)
    assert set(NAMES) <= set(interp.heads.known_kinds(task))


@pytest.mark.parametrize("name", ["histogram", "sort", "depth"])
def test_a_compiled_program_is_audited_with_its_own_relations(name):
    known = interp.known_answers.shipped_program(name)
    selectors = {kind for kind in interp.heads.known_kinds(known.task) if kind.startswith("selector")}
    assert selectors
    result = interp.classify_heads(known.model, known.task, n=64, untrained=1)
    assert selectors <= set(result.kinds)
