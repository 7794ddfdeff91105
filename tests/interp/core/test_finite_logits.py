"""Models whose answers are not numbers: every verb refuses them by name, whichever weight or intervention it is."""

from dataclasses import dataclass

import pytest
import torch
from short_runs import new_model

import interp
from interp.tasks import Dyck, InContextLookup, Lego, Template
from interp.tasks.base import Task

TASK = Lego(n_vars=2, sentence_format="compact")
VERBS = {
    "evaluate": lambda model: interp.evaluate(model, TASK, n=20),
    "ablate": lambda model: interp.ablate(model, TASK, n=20),
    "ablate_heads": lambda model: interp.ablate_heads(model, TASK, n=20),
    "keep_heads": lambda model: interp.keep_heads(model, TASK, n=20),
    "classify_heads": lambda model: interp.classify_heads(model, TASK, n=20, untrained=19),
    "patch": lambda model: interp.patch(model, TASK, n=20),
    "edges": lambda model: interp.edges(model, TASK, n=20),
    "audit_parts": lambda model: interp.audit_parts(model, TASK, n=64, at_chance=True),
    "audit": lambda model: interp.audit(model, TASK, n=64, at_chance=True),
    "logit_lens": lambda model: interp.logit_lens(model, TASK, n=20),
    "logit_attribution": lambda model: interp.logit_attribution(model, TASK, n=20),
    "explain_attention": lambda model: interp.explain_attention(model, TASK, (0, 0), n=20),
    "pruning_curve": lambda model: interp.pruning_curve(model, TASK, n=20),
}
WORDS = r"not finite|the scores? .* not finite"


@pytest.fixture
def overflowing():
    """Finite weights whose scores overflow, so that every pattern and every logit is NaN."""
    model = new_model(TASK).eval()
    with torch.no_grad():
        for block in model.weights:
            block.attention.q.weight *= 1e25
            block.attention.k.weight *= 1e25
    return model


@pytest.mark.parametrize("verb", VERBS)
def test_answers_that_are_no_numbers_are_refused(verb, overflowing):
    with pytest.raises(ValueError, match=WORDS):
        VERBS[verb](overflowing)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("verb", ["evaluate", "classify_heads"])
def test_weights_that_are_no_numbers_are_named(verb, value):
    model = new_model(TASK).eval()
    with torch.no_grad():
        model.weights[0].mlp.w_in.weight[0, 0] = value
    words = "NaN" if value != value else "infinity"
    with pytest.raises(
        ValueError, match=rf"model has the weight weights\.0\.mlp\.w_in\.weight, with {words}, as after"
    ):
        VERBS[verb](model)


@pytest.mark.parametrize(
    "task", [TASK, Dyck(length=8), InContextLookup(), Template(train=6, validation=5, test=5)], ids=repr
)
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_every_task_scores_finite_logits_only(task, value, generator):
    batch = task.sample(4, generator=generator, split="test")
    logits = torch.zeros(*batch.labels.shape, task.d_vocab_out)
    task.score(logits, batch)
    logits[2, 0, 0] = value
    with pytest.raises(ValueError, match=r"the logits of the model are not finite: \S+ first at \(2, 0, 0\)"):
        task.score(logits, batch)


def test_a_task_with_a_score_of_its_own_does_not_need_to_check(generator):
    @dataclass(frozen=True, kw_only=True)
    class Own(Lego):
        def score(self, target_logits, batch):
            return Task.score(self, target_logits.nan_to_num(), batch)

    task = Own(n_vars=2)
    batch = task.sample(3, generator=generator)
    with pytest.raises(ValueError, match="the logits of the model are not finite: nan"):
        task.score(torch.full((3, 2, task.d_vocab_out), torch.nan), batch)


def test_an_intervention_that_gives_no_numbers_is_refused():
    model = new_model(TASK).eval()
    with pytest.raises(ValueError, match="not finite"), model.hooks([("blocks.0.attn.hook_z", lambda z, hook: z / 0)]):
        interp.evaluate(model, TASK, n=20)
