"""What every batch of a task can do."""

import pytest
import torch

from interp.tasks import Corpus, Dyck, Lego, Template, Text
from interp.tasks.base import logits_at_targets

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
