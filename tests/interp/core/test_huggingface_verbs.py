"""Every verb on a Hugging Face model loaded from a folder with its tokenizer."""

from dataclasses import replace

import pytest
import torch
import transformers
from texts import corpus

import hooks
import interp
from interp.tasks import Text
from interp.tasks.text.tokenizer import train_tokenizer

WORDS = corpus(n=30, length=3)


@pytest.fixture(scope="module")
def tokenizer():
    trained = train_tokenizer(WORDS.texts("train"), 320)
    named = {f"{role}_token": name for role, name in (("cls", "[CLS]"), ("sep", "[SEP]"), ("mask", "[MASK]"))}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained.engine, eos_token="<|endoftext|>", pad_token="[PAD]", **named
    )


def saved(model, tokenizer, folder):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def gpt2(tokenizer):
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=len(tokenizer), bos_token_id=None, eos_token_id=None, **sizes)
    )


def bert(tokenizer):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return transformers.BertForMaskedLM(
        transformers.BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **sizes)
    )


@pytest.mark.parametrize(("make", "objective"), [(gpt2, "next_token"), (bert, "masked")])
def test_every_verb_on_a_huggingface_folder(make, objective, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("UNMYOPIC_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)
    theirs = make(tokenizer).eval()
    model = hooks.from_huggingface(saved(theirs, tokenizer, tmp_path / "model"))
    assert model.parity.ok
    task = Text(corpus=WORDS, objective=objective, n_ctx=16, tokenizer=model.tokenizer)
    assert task.d_vocab == model.cfg.d_vocab
    batch = task.sample(3, generator=torch.Generator().manual_seed(0), split="test")
    torch.testing.assert_close(model(batch.tokens), theirs(batch.tokens).logits, atol=1e-5, rtol=0)
    assert interp.perplexity(model, task, n=16).perplexity[0] == pytest.approx(320, rel=0.1)
    assert interp.classify_heads(model, task, n=16).score.shape[:2] == (2, 2)
    lost = interp.ablate_heads(model, task, n=16)
    assert lost.loss_rise.shape == (4, 1)
    assert interp.probe(model, replace(task, n_ctx=8, vocab_size=None), n_train=200, n_test=50).n_test == 50
    assert interp.audit(model, task, n=16, at_chance=True).n == 16
    assert set(interp.diagonals(model).cosine.shape) == {2}
    assert "svg" in interp.show_attention(model, task).html or "canvas" in interp.show_attention(model, task).html
    hooks.save_huggingface(model, tmp_path / "back")
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    assert torch.equal(again(batch.tokens).logits, theirs(batch.tokens).logits)
