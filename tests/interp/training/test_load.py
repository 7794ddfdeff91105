"""Models by folder or name, packaged weights, and heads of a pretrained model that are initialised again."""

import re

import pytest
import torch
import transformers
from texts import corpus

import hooks
import interp
from hooks import Encoder, presets, save_huggingface
from hooks.extras import MissingExtra
from hooks.files import file_digest
from interp.sweeps.spec import ModelSpec
from interp.tasks import Lego, Text
from interp.training import packaged
from interp.training.packaged import PackagedWeights, packaged_folder

TASK = Lego(n_vars=2)
SETTINGS = interp.TrainSettings(steps=1, batch_size=4, n_eval=8)


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A folder of weights in an importable package, under the name `tiny`."""
    text = Text(corpus=corpus(), n_ctx=32, vocab_size=300, objective="masked")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=text.vocab.engine)
    package = tmp_path / "packages" / "tiny_weights"
    model = Encoder(presets.bert_encoder(d_vocab=text.d_vocab, n_ctx=32, d_model=16, n_heads=2, n_layers=2), seed=0)
    save_huggingface(model, package / "model", tokenizer=tokenizer)
    (package / "__init__.py").write_text("raise AssertionError('the package is not imported')")
    monkeypatch.syspath_prepend(package.parent)
    digest = file_digest(package / "model/model.safetensors")
    tiny = PackagedWeights(package="tiny_weights", folder="model", sha256=digest)
    monkeypatch.setitem(packaged.PACKAGED, "tiny", tiny)
    return package / "model"


def test_packaged_weights_are_loaded_by_name_as_from_their_folder(weights):
    by_name, by_folder = interp.load("tiny"), interp.load(weights)
    assert all(torch.equal(a, b) for a, b in zip(by_name.parameters(), by_folder.parameters(), strict=True))
    assert by_name.tokenizer is not None
    assert ": same" in str(by_name.parity)


def test_a_training_run_is_loaded_by_its_folder(tmp_path):
    run = interp.train(interp.known_answers.lego_loop(TASK), TASK, SETTINGS, folder=tmp_path / "run")
    loaded = interp.load(tmp_path / "run")
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), run.model.parameters(), strict=True))


def test_what_is_not_there_is_refused_by_name(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="there is no such folder, and packaged weights are minilm"):
        interp.load(tmp_path / "nothing")
    missing = PackagedWeights(package="no_such_weights", folder="model", sha256="")
    monkeypatch.setitem(packaged.PACKAGED, "minilm", missing)
    with pytest.raises(
        MissingExtra, match=re.escape("which is not installed. Next, in the folder of unmyopic: pip in")
    ):
        interp.load("minilm")
    with pytest.raises(MissingExtra, match="no_such_weights"):
        interp.pretrained(TASK, "minilm")


def test_other_weights_under_a_name_are_refused(weights, monkeypatch):
    other = PackagedWeights(package="tiny_weights", folder="model", sha256="0" * 64)
    monkeypatch.setitem(packaged.PACKAGED, "tiny", other)
    with pytest.raises(ValueError, match="has other weights than 'tiny' stands for: SHA-256 "):
        packaged_folder("tiny")


def test_the_key_of_a_model_has_the_hash_of_its_packaged_weights(monkeypatch):
    options = {"task": TASK, "config": presets.lego(d_vocab=TASK.d_vocab), "settings": SETTINGS, "seed": 0}
    spec = ModelSpec(**options, pretrained="minilm")
    key = spec.key
    assert spec.origin == {"pretrained": f"minilm sha256:{packaged.PACKAGED['minilm'].sha256}"}
    monkeypatch.setitem(packaged.PACKAGED, "minilm", PackagedWeights(package="p", folder="f", sha256="1"))
    assert ModelSpec(**options, pretrained="minilm").key != key
    assert ModelSpec(**options, pretrained="some/folder").origin == {"pretrained": "some/folder"}


@pytest.mark.parametrize("tied", [False, True])
def test_fresh_heads_differ_from_the_source_and_nothing_else_does(tied):
    long = Lego(n_vars=4)
    source = torch.nn.Module.eval(interp.train(_model(long, tied), long, SETTINGS).model)
    plain = interp.pretrained(TASK, source, tokenizer=long.vocab, seed=3)
    fresh = interp.pretrained(TASK, source, tokenizer=long.vocab, fresh_heads=[(0, 1)], seed=3)
    changed = {name: (fresh.state_dict()[name] != tensor) for name, tensor in plain.state_dict().items()}
    changed = {name: mask for name, mask in changed.items() if mask.any()}
    # queries, keys and values of the second of two heads of width 8, and its columns of the output
    assert {name.split(".attention.")[1] for name in changed} >= {"q.weight", "k.weight", "v.weight", "o.weight"}
    for name, mask in changed.items():
        assert name.split(".attention.")[0] == "weights.0", name
        along = 1 if name.endswith("o.weight") else 0
        places = mask.movedim(along, 0).flatten(1).any(1) if mask.ndim > 1 else mask
        assert not places[:8].any()
        assert places[8:].all() or mask.ndim == 1
    # as in a new model of the same seed
    new = _model(TASK, tied, seed=3)
    assert torch.equal(fresh.block(0).attention.q.weight[8:], new.block(0).attention.q.weight[8:])


def test_fresh_heads_that_are_refused():
    long = Lego(n_vars=4)
    with pytest.raises(ValueError, match=r"fresh_heads has head \(0, 2\); this model has layers 0 to 1 with heads 0"):
        interp.pretrained(TASK, _model(long), tokenizer=long.vocab, fresh_heads=[(0, 2)])
    with pytest.raises(ValueError, match="fresh_heads are heads of a pretrained model; give pretrained"):
        ModelSpec(task=TASK, config=_model(long).cfg, settings=SETTINGS, seed=0, fresh_heads=((0, 0),))


def _model(task, tied=False, seed=0):
    sizes = {"n_layers": 2, "n_heads": 2, "d_model": 16}
    return hooks.make_model(interp.config_for(task, "lego", tied=tied, **sizes), seed=seed)
