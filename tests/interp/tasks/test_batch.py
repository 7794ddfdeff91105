"""What every batch of a task can do."""

import pytest
import torch

from interp.tasks import Corpus, Dyck, Lego, Template, Text

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
