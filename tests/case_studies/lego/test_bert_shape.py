"""Size paper of the LEGO study takes a BERT of any width and depth, whose weights it does not read to list or plan."""

import string
from dataclasses import replace

import pytest
import transformers
from transformers.models.bert.tokenization_bert import BertTokenizerFast

import hooks
import interp
from case_studies.frame.running import Run
from case_studies.lego import starts
from case_studies.lego.bert_shape import with_shape_of_bert
from case_studies.lego.models import BERT_VARIABLE, groups
from case_studies.lego.study import STUDY, every_group
from hooks import Encoder, presets, save_huggingface
from hooks.adapters.huggingface import loading
from interp.tasks import Lego
from interp.training.pretrained import pretrained, pretrained_config, source_config


@pytest.fixture
def bert(tmp_path, monkeypatch):
    """The folder of a BERT of width 24 and three layers, named by the environment."""
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *string.ascii_lowercase, *"+-1=;()_>#"]
    vocab = {word: index for index, word in enumerate(words)}
    engine = BertTokenizerFast(vocab=vocab, do_lower_case=False)
    cfg = presets.bert_encoder(d_vocab=len(words), n_ctx=70, d_model=24, n_heads=2, n_layers=3)
    save_huggingface(Encoder(cfg, seed=1), tmp_path / "bert", tokenizer=engine)
    monkeypatch.setenv(BERT_VARIABLE, str(tmp_path / "bert"))
    return tmp_path / "bert"


def claim(name):
    return next(claim for claim in STUDY.claims if claim.id == name)


def run_of(folder, *names):
    """A run of these claims alone."""
    study = replace(STUDY, claims=tuple(map(claim, names)), findings=())
    return Run(study, size="paper", folder=folder, n_jobs=1, seed=0)


def sizes(specs):
    return {(spec.config.n_layers, spec.config.d_model) for spec in specs}


def test_groups_that_are_compared_have_the_shape_of_the_folder(bert, monkeypatch):
    monkeypatch.setattr(loading, "_read_weights", None)  # no weights are read
    shaped, base = every_group("paper"), groups("paper")
    for name in ("start-random", "start-mimic", "start-pretrained", "start-symbols", "shortcut-pretrained",
                 "plain-mimic", "plain-pretrained", "pretrained"):  # fmt: skip
        assert sizes(shaped[name]) == {(3, 24)}, name
    for name in ("classical-untied", "plain-untied", "plain-tied", "long-tied", "group-s3"):
        assert shaped[name] == base[name], name
    assert every_group("standard").keys() == shaped.keys()
    # nothing but the shape differs
    spec, base_spec = shaped["start-mimic"][1], base["start-mimic"][1]
    assert (spec.task, spec.settings, spec.seed) == (base_spec.task, base_spec.settings, base_spec.seed)


def test_the_config_is_that_of_the_model_that_is_built(bert):
    spec = every_group("paper")["start-pretrained"][0]
    assert spec.pretrained == str(bert)
    assert pretrained(spec.task, spec.pretrained).cfg == spec.config


@pytest.mark.parametrize("source", ["bert-base-uncased", "/somewhere/bert"])
def test_keys_without_a_folder_are_those_of_base_size(monkeypatch, source):
    monkeypatch.setenv(BERT_VARIABLE, source)
    base = groups("paper")
    assert with_shape_of_bert(base) == base
    assert sizes(base["start-pretrained"]) == {(12, 768)}


def test_the_config_of_base_size_is_that_of_a_base_bert(tmp_path):
    transformers.BertConfig(architectures=["BertModel"]).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()  # not read
    spec = groups("paper")["start-pretrained"][0]
    assert pretrained_config(spec.task, source_config(tmp_path)) == spec.config


def test_the_config_of_a_run_is_that_of_its_model(tmp_path):
    task = Lego(n_vars=1)
    model = hooks.make_model(interp.config_for(task, n_layers=1, d_model=16))
    interp.train(model, task, interp.TrainSettings(steps=1, batch_size=4, n_eval=8), folder=tmp_path)
    assert source_config(tmp_path) == model.cfg


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (None, FileNotFoundError, "no config.json"),
        ('{"architectures": ["LlamaModel"]}', ValueError, "LlamaModel"),
        ('{"architectures": ["BertModel"], "hidden_size": "wide"}', ValueError, "hidden_size is 'wide'"),
        ('{"architectures": ["BertModel"], "hidden_act": "silu"}', ValueError, "silu"),
    ],
)
def test_folders_without_a_config_that_is_known_are_refused(tmp_path, content, error, words):
    (tmp_path / "model.safetensors").touch()
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(error, match=words):
        source_config(tmp_path)


def test_reading_heads_of_published_weights_trains_nothing(bert, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "_read_weights", None)  # no weights are read
    run = run_of(tmp_path, "start.association", "heads.portion", "start.pretrained")
    plan = run.plan([claim("start.association"), claim("heads.portion")])
    assert (plan.trained, plan.missing, plan.memory) == (0, 0, 0)
    assert str(plan) == "plan: no models to train"
    # fine-tuning the same models does
    trained = run.specs_of([claim("start.pretrained")])
    assert set(trained) > {spec.key for spec in every_group("paper")["pretrained"]}


def test_their_measure_reads_the_folder(bert, tmp_path, monkeypatch):
    monkeypatch.setattr(starts, "gallery", lambda *given, **named: {"mark": "line"})
    measured = claim("start.association")
    run = run_of(tmp_path, "start.association")
    measurement = measured.measurement(run.evidence[measured.id])
    assert len(measurement.tables[1][1]) == 1 + 3 * 2  # a title, every head
    assert not (tmp_path / "models").exists()
