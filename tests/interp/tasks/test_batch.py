"""What every batch of a task can do."""

import pytest
import torch

from interp.tasks import Corpus, Dyck, Lego, Template, Text
from interp.tasks.base import logits_at_targets
from interp.tasks.batch import likeliest

TASKS = {
    "lego": Lego(n_vars=3),
    "dyck": Dyck(length=8, words="complete"),
    "template": Template(train=10, validation=4, test=4),
    "text": Text(corpus=Corpus(documents={name: f"{name} words " * 40 for name in "abc"}), n_ctx=8, vocab_size=300),
}


@pytest.mark.parametrize("name", TASKS)
def test_shuffled_labels_move_every_answer_and_leave_the_inputs(name, generator):
    batch = TASKS[name].sample(6, generator=generator)
    rows = torch.tensor([3, 4, 5, 0, 1, 2])
    shuffled = batch.with_labels_of(rows)
    for field, value in vars(batch).items():
        if not isinstance(value, torch.Tensor) or field == "supervised":
            continue
        moved = field in batch.answer_fields
        assert torch.equal(getattr(shuffled, field), value[rows] if moved else value), field
    assert {"labels"} <= set(batch.answer_fields)


@pytest.mark.parametrize("name", TASKS)
def test_the_loss_is_of_all_logits_and_the_score_of_those_at_targets(name, generator, as_a_user):
    task = TASKS[name]
    batch = task.sample(6, generator=generator)
    logits = torch.randn(*batch.tokens.shape, task.d_vocab_out, generator=generator)
    selected = logits_at_targets(logits, batch)
    assert torch.isfinite(task.loss(logits, batch))
    task.score(selected, batch)
    shape = rf"\(6, {batch.tokens.shape[1]}, {task.d_vocab_out}\)"
    if selected.shape != logits.shape:  # a task with a target at every position has no other ones
        with pytest.raises(ValueError, match="own output, not logits_at_targets of it"):
            task.loss(selected, batch)
        with pytest.raises(ValueError, match=rf"target_logits has the shape {shape}; needed are those at the targets"):
            task.score(logits, batch)
    for wrong in (logits[:, 0], logits[:3], logits[:, 1:]):
        with pytest.raises(ValueError, match=r"logits has the shape .*; needed are those of every position"):
            task.loss(wrong, batch)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1000.0])
def test_of_logits_that_are_equal_up_to_rounding_the_first_is_the_answer(scale, generator):
    equal = torch.zeros(50, 4) - scale
    rounded = equal * (1 + 1e-6 * torch.rand(50, 4, generator=generator))
    assert (likeliest(rounded) == 0).all()
    # Two of four are equal and largest
    logits = torch.tensor([[-3.0, 2.0, 2.0, 1.0]]).expand(50, -1) * max(scale, 1)
    logits = logits * (1 + 1e-6 * torch.rand(50, 4, generator=generator))
    assert (likeliest(logits) == 1).all()


def test_other_logits_have_their_largest(generator):
    logits = torch.randn(500, 3, 7, generator=generator)
    assert torch.equal(likeliest(logits), logits.argmax(-1))
    assert likeliest(torch.tensor([1.0, 1.0 + 1e-4])) == 1
    assert likeliest(torch.tensor([1000.0, 1000.1])) == 1


def test_a_model_that_knows_nothing_answers_the_same_on_every_processor(generator):
    """Without the head that carries the answer all logits are equal, and rounding must not choose."""
    task = Lego(n_vars=3)
    batch = task.sample(64, generator=generator)
    noise = 2e-7 * torch.randn(64, 3, task.d_vocab_out, generator=generator)
    first, second = (task.score(noise * sign, batch).right for sign in (1, -1))
    assert torch.equal(first, second)
