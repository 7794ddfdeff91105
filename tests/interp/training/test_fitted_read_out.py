"""A read-out that is fitted on a frozen model."""

import pytest
import torch

import interp
from hooks import make_model
from interp.core.page_identity import model_line
from interp.tasks import Dyck, Lego

TASK = Lego(n_vars=3)


@pytest.fixture(scope="module")
def source():
    """A hand-written model that computes every value of a chain."""
    return interp.known_answers.lego_loop(TASK)


@pytest.fixture(scope="module")
def fitted(source):
    return interp.pretrained(TASK, source, tokenizer=TASK.vocab, readout="fitted")


def test_it_reads_what_the_frozen_model_computes(source, fitted):
    new = interp.pretrained(TASK, source, tokenizer=TASK.vocab)
    accuracy = {name: interp.evaluate(model, TASK, n=300).accuracy for name, model in (("new", new), ("fit", fitted))}
    assert (accuracy["fit"].value == 1).all()
    assert accuracy["new"].value.min() < 0.9


def test_no_other_weight_changes(source, fitted):
    new = interp.pretrained(TASK, source, tokenizer=TASK.vocab)
    names = [name for name, tensor in new.state_dict().items() if not torch.equal(tensor, fitted.state_dict()[name])]
    assert names == ["unembed.weight", "unembed.bias"]
    assert not fitted.unembed._forward_pre_hooks


def test_how_it_was_fitted_is_said_on_pages_and_in_manifests(fitted):
    text = "read-out fitted by logistic regression on 6000 answers of 2000 training examples (seed 0), of which it"
    assert text in model_line(fitted)
    run = interp.train(fitted, TASK, interp.TrainSettings(steps=1, batch_size=4, n_eval=8))
    assert text in run.manifest["read_out_fit"]


def test_answers_of_more_than_two_kinds_and_answers_that_never_occur():
    """A model that knows the last token: the next one is read where it is certain, and padding is never answered."""
    task = Dyck(n_types=2, max_depth=1, length=6)
    blank = make_model(interp.config_for(task, "lego", n_layers=1, d_model=32, n_heads=2), seed=0)
    model = interp.pretrained(task, blank, tokenizer=task.vocab, readout="fitted", seed=1)
    again = interp.pretrained(task, blank, tokenizer=task.vocab, readout="fitted", seed=1)
    assert torch.equal(model.unembed.weight, again.unembed.weight)
    batch = task.sample(50, generator=torch.Generator().manual_seed(0))
    answers = model(batch.tokens).argmax(-1)
    never = set(range(task.d_vocab_out)) - set(batch.labels[batch.present].tolist())
    assert never
    assert not never & set(answers.flatten().tolist())


def test_another_kind_of_read_out_is_refused(source, as_a_user):
    with pytest.raises(ValueError, match="readout is 'frozen'; choose one of new, fitted"):
        interp.pretrained(TASK, source, tokenizer=TASK.vocab, readout="frozen")
