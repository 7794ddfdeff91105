"""Saved folders open in `transformers` with the same logits; errors leave nothing behind."""

import os

import pytest
import torch
import transformers
from test_loading import ALL, distance, run_ours, run_theirs, texts, theirs, tokenizer_of_words

from hooks import (
    Encoder,
    EncoderConfig,
    HeadPattern,
    Transformer,
    TransformerConfig,
    from_huggingface,
    save_huggingface,
)

SIZES = {"d_vocab": 23, "d_model": 16, "n_heads": 4, "n_layers": 3, "n_ctx": 12}
GPT2 = {**SIZES, "attention": "causal", "tied_embedding": True}
BERT = {**SIZES, "n_token_types": 3}
AUTO = {
    "lm": "AutoModelForMaskedLM",
    "GPT2LMHeadModel": "AutoModelForCausalLM",
    "GPT2Model": "AutoModelForCausalLM",
    "BertForPreTraining": "AutoModelForPreTraining",
    "BertForTokenClassification": "AutoModelForTokenClassification",
    "AlbertForTokenClassification": "AutoModelForTokenClassification",
    "BertModel": "AutoModel",
    "AlbertModel": "AutoModel",
}


def randomised(model):
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name != "unembed.bias" or isinstance(model, Encoder):
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "there"


@pytest.mark.parametrize("name", ALL)
def test_round_trip(name, target):
    model = from_huggingface(theirs(name))
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    save_huggingface(model, target)
    assert torch.equal(torch.get_rng_state(), random)
    opened = getattr(transformers, AUTO.get(name, AUTO["lm"])).from_pretrained(target, local_files_only=True)
    assert distance(run_ours(model, texts(name)), run_theirs(opened.eval(), texts(name))) < 1e-5
    again = from_huggingface(target, with_tokenizer=False)
    assert again.cfg == model.cfg
    assert list(again.state_dict()) == list(before)
    for key, tensor in again.state_dict().items():
        assert torch.equal(tensor, before[key]), key
        assert torch.equal(model.state_dict()[key], before[key]), key


OURS = {
    "gpt2": TransformerConfig(**GPT2),
    "gpt2_own_read_out": TransformerConfig(**{**GPT2, "tied_embedding": False}),
    "gpt2_not_scaled": TransformerConfig(**GPT2, attn_scale=1.0, activation="relu", d_mlp=20, layer_norm_eps=1e-3),
    "bert": EncoderConfig(**BERT, d_mlp=20, activation="gelu_tanh", layer_norm_eps=1e-3),
    "bert_own_read_out": EncoderConfig(**BERT, tied_embedding=False),
    "bert_without_pooler": EncoderConfig(**BERT, head="none"),
    "albert_own_read_out": EncoderConfig(**BERT, tied=True, d_embedding=6, tied_embedding=False),
    "albert_wide": EncoderConfig(**BERT, tied=True, d_embedding=16, head="none", pooler=True),
    "labels": EncoderConfig(**BERT, tied=True, d_embedding=6, head="linear", d_vocab_out=7),
}


@pytest.mark.parametrize(
    ("variant", "dtype"), [*((variant, torch.float32) for variant in OURS), ("gpt2", torch.float64)]
)
def test_models_of_this_package(variant, dtype, target):
    cfg = OURS[variant]
    model = randomised((Encoder if isinstance(cfg, EncoderConfig) else Transformer)(cfg).to(dtype))
    save_huggingface(model, target)
    again = from_huggingface(target, with_tokenizer=False)
    assert again.W_E.dtype == dtype
    tokens = texts("GPT2")["input_ids"]
    assert torch.equal(again(tokens), model(tokens))
    scratch = {"init", "version"}
    ours, back = ({k: v for k, v in m.cfg.to_dict().items() if k not in scratch} for m in (model, again))
    assert back == ours


def test_folder_must_be_new_or_empty(tmp_path):
    model = from_huggingface(theirs("BertModel"))
    (tmp_path / "empty").mkdir()
    save_huggingface(model, str(tmp_path / "empty"))
    save_huggingface(model, tmp_path / "deep" / "er")
    assert sorted(os.listdir(tmp_path)) == ["deep", "empty"]
    assert sorted(os.listdir(tmp_path / "empty")) == ["config.json", "model.safetensors"]
    assert os.stat(tmp_path / "empty").st_mode & 0o777 == 0o755
    for taken in (tmp_path / "empty", tmp_path / "empty" / "config.json"):
        with pytest.raises(ValueError, match=rf"folder {taken} exists already and is not an empty folder; choose"):
            save_huggingface(model, taken)


def test_a_write_that_fails_leaves_nothing(target, monkeypatch):
    model = from_huggingface(theirs("BertModel"))

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(transformers.BertModel, "save_pretrained", fail)
    with pytest.raises(OSError, match="disk full"):
        save_huggingface(model, target)
    assert os.listdir(target.parent) == []


def test_a_next_sentence_head_is_zero(target):
    save_huggingface(from_huggingface(theirs("BertForPreTraining")), target)
    head = transformers.BertForPreTraining.from_pretrained(target).cls.seq_relationship
    assert not head.weight.any()
    assert not head.bias.any()


def test_tokenizer_is_saved_with_the_model(target, tmp_path):
    model = from_huggingface(theirs("BertForMaskedLM"))
    save_huggingface(model, target, tokenizer=tokenizer_of_words())
    again = from_huggingface(target)
    assert again.tokenizer.encode("a [MASK]") == [1, 5, 4, 2]
    assert transformers.AutoConfig.from_pretrained(target).pad_token_id == 0
    save_huggingface(again, tmp_path / "own")
    assert from_huggingface(tmp_path / "own").tokenizer.encode("a") == [1, 5, 2]
    with pytest.raises(ValueError, match="tokenizer is a int; only one of transformers can be written"):
        save_huggingface(model, tmp_path / "third", tokenizer=3)
    model.tokenizer = object()  # a task's vocabulary
    save_huggingface(model, tmp_path / "fourth")
    assert not (tmp_path / "fourth" / "tokenizer.json").exists()


FIXED = ((HeadPattern(kind="uniform"), HeadPattern(), HeadPattern(), HeadPattern()),)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"qk_identity": True}, "qk_identity is True, and GPT2LMHeadModel needs False"),
        ({"vo_identity": True}, "vo_identity is True"),
        ({"head_patterns": FIXED}, "head_patterns holds hard-coded heads, and GPT2LMHeadModel learns every pattern"),
        ({"block": "dyck"}, "block is 'dyck', and GPT2LMHeadModel needs 'pre_ln'"),
        ({"block": "post_ln"}, "block is 'post_ln'"),
        ({"attention": "bidirectional"}, "attention is 'bidirectional', and GPT2LMHeadModel needs 'causal'"),
        ({"tied": True}, "tied is True"),
        ({"positions": "sinusoidal"}, "positions is 'sinusoidal', and GPT2LMHeadModel needs 'learned'"),
        ({"attn_bias": False}, "attn_bias is False"),
        ({"mlp_bias": False}, "mlp_bias is False"),
        ({"block": "no_norm"}, "block is 'no_norm', and GPT2LMHeadModel needs"),
        ({"output_projection": False}, "output_projection is False"),
        ({"d_mlp": 0}, "d_mlp is 0, and GPT2LMHeadModel has an MLP"),
        ({"d_head": 8}, "d_head is 8, and GPT2LMHeadModel needs 4"),
        ({"attn_scale": 3.0}, "attn_scale is 3.0, and GPT2LMHeadModel needs 2.0 or 1.0"),
        ({"tied_embedding": False, "d_vocab_out": 5}, "d_vocab_out is 5, and GPT2LMHeadModel reads out 23 tokens"),
    ],
    ids=str,
)
def test_settings_that_gpt2_lacks(settings, reason, target):
    with pytest.raises(ValueError, match=f"the model does not fit Hugging Face's GPT2LMHeadModel: {reason}"):
        save_huggingface(Transformer(TransformerConfig(**{**GPT2, **settings})), target)
    assert not target.exists()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"embedding_norm": False}, "BertForMaskedLM: embedding_norm is False"),
        ({"n_token_types": 0}, "BertForMaskedLM: n_token_types is 0"),
        ({"d_embedding": 6}, "BertForMaskedLM: d_embedding is 6, and BertForMaskedLM has no Linear there"),
        ({"tied": True}, "AlbertForMaskedLM: d_embedding is 0, and AlbertForMaskedLM has a Linear"),
        ({"tied": True, "d_embedding": 6, "pooler": True}, "AlbertForMaskedLM: pooler is True"),
        ({"head": "linear", "pooler": True}, "BertForTokenClassification: pooler is True"),
        ({"attention": "causal"}, "BertForMaskedLM: attention is 'causal', and BertForMaskedLM needs 'bidirectional'"),
        ({"block": "pre_ln"}, "BertForMaskedLM: block is 'pre_ln'"),
        ({"attn_scale": 1.0}, "BertForMaskedLM: attn_scale is 1.0, and BertForMaskedLM needs 2.0"),
        ({"positions": "none"}, "BertForMaskedLM: positions is 'none'"),
    ],
    ids=str,
)
def test_settings_that_bert_and_albert_lack(settings, reason, target):
    with pytest.raises(ValueError, match=f"the model does not fit Hugging Face's {reason}"):
        save_huggingface(Encoder(EncoderConfig(**{**BERT, **settings})), target)
    assert not target.exists()


def test_unembedding_bias_that_gpt2_lacks(target):
    model = Transformer(TransformerConfig(**{**GPT2, "tied_embedding": False}))
    with torch.no_grad():
        model.unembed.bias[2] = 1
    with pytest.raises(ValueError, match=r"read-out has a bias \(b_U\) that is not zero"):
        save_huggingface(model, target)


@pytest.mark.usefixtures("as_a_user")
def test_other_classes_are_refused(target):
    with pytest.raises(ValueError, match=r"model is a Linear; only a hooks.Transformer or Encoder can be written"):
        save_huggingface(torch.nn.Linear(2, 2), target)


def test_a_model_with_a_hook_that_edits_is_not_written(target):
    model = from_huggingface(theirs("BertModel"))
    model.add_hook("blocks.1.hook_attn_out", lambda activation, hook: 0 * activation)
    with pytest.raises(ValueError, match=r"converted to a BertModel, the model.s logits differ by more than 0.0001"):
        save_huggingface(model, target)
