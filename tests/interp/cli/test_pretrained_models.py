"""Commands on a pretrained model: it takes the place of a run, with its task."""

import json

import pytest
import torch
import transformers
from texts import corpus

import interp
from hooks import Encoder, presets, save_huggingface
from interp.cli.main import app
from interp.cli.output import run_command
from interp.cli.subject import subject_of, task_of
from interp.tasks import Dyck, Lego, Text

LEGO = "lego --n-vars 2 --alphabet abc"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small encoder of text in the format of Hugging Face."""
    text = Text(corpus=corpus(), n_ctx=32, vocab_size=300, objective="masked")
    cfg = presets.bert_encoder(d_vocab=text.d_vocab, n_ctx=32, d_model=16, n_heads=2, n_layers=2)
    path = tmp_path_factory.mktemp("models") / "theirs"
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=text.vocab.engine)
    save_huggingface(Encoder(cfg, seed=0), path, tokenizer=tokenizer)
    return path


def test_a_task_has_the_options_of_train():
    assert task_of("lego --n-vars 2 --alphabet abc") == Lego(n_vars=2, alphabet="abc")
    assert task_of("dyck") == Dyck()
    with pytest.raises(ValueError, match=r"--task is 'leggo --n-vars 2'; known tasks: .* Did you mean lego\?"):
        task_of("leggo --n-vars 2")


@pytest.mark.parametrize("command", ["heads", "probe", "lens"])
def test_commands_take_a_folder_of_weights_in_place_of_a_run(folder, command, capsys):
    assert run_command(app, [command, str(folder), "--task", LEGO, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["command"] == command


def test_the_model_is_that_of_interp_pretrained(folder):
    subject = subject_of(folder, LEGO)
    model = interp.pretrained(Lego(n_vars=2, alphabet="abc"), folder)
    assert all(torch.equal(a, b) for a, b in zip(subject.model.parameters(), model.parameters(), strict=True))
    assert subject.seeds(3) == "3 (analysis)"


def test_a_text_is_read_with_the_vocabulary_of_the_model(folder):
    subject = subject_of(folder, "text --n-ctx 32 --objective masked")
    assert subject.task.vocab.engine.get_vocab() == interp.load(folder).tokenizer.get_vocab()
    assert subject.model.cfg.d_vocab == subject.task.d_vocab


def test_what_is_missing_or_too_much_is_said(folder, tmp_path, capsys):
    task = Lego(n_vars=1)
    settings = interp.TrainSettings(steps=1, batch_size=4, n_eval=8)
    interp.train(interp.known_answers.lego_loop(task), task, settings, folder=tmp_path / "run")
    for arguments, message in [
        (["heads", str(folder)], "is a pretrained model; say on which task: --task, with its options"),
        (["heads", str(tmp_path / "run"), "--task", "lego"], "is a training run, which has a task; omit --task."),
        (["report", str(folder), "--task", LEGO], "is no training run, whose folder would get the report; give --out."),
        (["heads", str(folder), "--task", "lego --nvars 2"], "No such option: --nvars"),
    ]:
        assert run_command(app, arguments) == 2
        assert message in capsys.readouterr().err
