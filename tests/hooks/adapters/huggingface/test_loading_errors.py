"""Errors of from_huggingface: what was found, and what to do."""

import json
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_loading import folder, no_network, theirs  # noqa: F401 (fixtures)

from hooks import from_huggingface
from hooks.adapters.huggingface.settings import READ, WITHOUT_EFFECT

KNOWN = "known are GPT2LMHeadModel, GPT2Model, BertForMaskedLM, .*AlbertModel"


@pytest.fixture
def written(folder):  # noqa: F811
    """Saves a model and then changes one thing in the folder."""

    def write(name="BertForMaskedLM", *, config=(), change=None, model=None, **options):
        path = folder(theirs(name) if model is None else model, **options)
        values = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**values, **dict(config)}))
        if change is not None:
            tensors = load_file(path / "model.safetensors")
            change(tensors)
            save_file(tensors, path / "model.safetensors", {"format": "pt"})
        return path

    return write


def test_another_architecture(written):
    with pytest.raises(ValueError, match=f"model has the architecture 3, which is not known here; {KNOWN}"):
        from_huggingface(written(config={"architectures": 3}))
    other = transformers.LlamaConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
    )
    with pytest.raises(
        ValueError, match=f"model_or_path has the architecture 'LlamaForCausalLM', which is not known here; {KNOWN}"
    ):
        from_huggingface(transformers.LlamaForCausalLM(other))
    with pytest.raises(
        ValueError, match=f"model has the architecture 'BertForQuestionAnswering', which is not known here; {KNOWN}"
    ):
        from_huggingface(written(config={"architectures": ["BertForQuestionAnswering"]}))


@pytest.mark.parametrize("architectures", [None, []])
def test_a_config_without_an_architecture(written, architectures):
    with pytest.raises(ValueError, match=r'names no architecture; its config needs "architectures" with one of GPT2LM'):
        from_huggingface(written(config={"architectures": architectures}))


@pytest.mark.parametrize("what", [3, None, {"a": 1}])
def test_not_a_model(what):
    with pytest.raises(ValueError, match=rf"model_or_path is a {type(what).__name__}; pass a model of transformers, a"):
        from_huggingface(what)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("GPT2LMHeadModel", "activation_function", "silu"),
        ("GPT2LMHeadModel", "scale_attn_by_inverse_layer_idx", True),
        ("GPT2LMHeadModel", "add_cross_attention", True),
        ("BertForMaskedLM", "hidden_act", "silu"),
        ("BertForMaskedLM", "is_decoder", True),
        ("BertModel", "position_embedding_type", "relative_key"),
        ("BertModel", "quantization_config", {"load_in_8bit": True}),
        ("AlbertForMaskedLM", "num_hidden_groups", 3),
        ("AlbertForMaskedLM", "inner_group_num", 2),
    ],
)
def test_settings_without_a_counterpart(written, name, setting, value):
    found = "load_in_8bit" if isinstance(value, dict) else value
    path = written(name, config={setting: value})
    with pytest.raises(ValueError, match=f"config of the {name} in {path}: {setting} is .*{found}.*; it must be"):
        from_huggingface(path)
    text = f"config of this {name}: {setting} is .*{found}.*; it must be"
    if setting != "quantization_config":
        with pytest.raises(ValueError, match=text):
            from_huggingface(theirs(name, **{setting: value}))


def test_a_setting_out_of_range_names_the_folder(written):
    path = written("BertForMaskedLM", config={"layer_norm_eps": -1.0})
    with pytest.raises(ValueError, match=rf"{path}: layer_norm_eps is -1\.0; it must be a finite number of at least 0"):
        from_huggingface(path)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("GPT2LMHeadModel", "use_qk_norm", True),
        ("GPT2LMHeadModel", "rotary_dim", 4),
        ("GPT2LMHeadModel", "layer_norm_epsilon", "1e-5"),
        ("GPT2LMHeadModel", "n_head", 0),
        ("GPT2LMHeadModel", "scale_attn_weights", 1),
        ("BertForMaskedLM", "logits_scale", 0.5),
        ("BertForMaskedLM", "hidden_size", True),
        ("BertForMaskedLM", "num_hidden_layers", 2.0),
        ("BertForMaskedLM", "is_decoder", 0),
        ("BertForTokenClassification", "id2label", []),
        ("AlbertModel", "embedding_norm", "x"),
        ("AlbertModel", "num_attention_heads", float("nan")),
        ("AlbertModel", "y" * 5000, 3),
    ],
)
def test_settings_that_are_not_known_or_of_another_type(written, name, setting, value):
    path = written(name, config={setting: value})
    with pytest.raises(
        ValueError, match=f"the config of the {name} in {path}: {setting[:150]}.* is .*; it must be|may"
    ) as raised:
        from_huggingface(path)
    assert len(str(raised.value)) < 700


def test_two_names_of_one_setting(written):
    assert from_huggingface(written("GPT2LMHeadModel", config={"hidden_size": 16, "unknown": None})).parity.ok
    with pytest.raises(ValueError, match="hidden_size is 20, but n_embd, another name of it, is 16"):
        from_huggingface(written("GPT2LMHeadModel", config={"hidden_size": 20}))
    with pytest.raises(ValueError, match="num_labels is 3, but id2label names 5"):
        from_huggingface(written("BertForTokenClassification", config={"num_labels": 3}))


@pytest.mark.parametrize(
    "values",
    [
        {"pad_token_id": 10**30, "return_dict": False},
        {"hidden_dropout_prob": float("nan"), "attention_probs_dropout_prob": 7},
        {"label2id": 3, "output_hidden_states": "x", "_name_or_path": ["x"], "model_type": []},
    ],
)
def test_settings_without_effect_have_none_whatever_their_value(written, values):
    path = written("BertForMaskedLM", config=values)
    assert from_huggingface(path, with_tokenizer=False).parity.ok


@pytest.mark.parametrize("name", ["GPT2Config", "BertConfig", "AlbertConfig"])
def test_every_setting_of_a_class_is_acted_on_or_known_to_have_no_effect(name):
    family = name.removesuffix("Config").lower()
    assert set(getattr(transformers, name)().to_dict()) <= {*READ[family], *WITHOUT_EFFECT}
    assert not set(READ[family]) & WITHOUT_EFFECT


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.bias"])
def test_weights_that_are_not_finite(written, name, value):
    def change(tensors):
        tensors[name if name in tensors else "cls.predictions.bias"].view(-1)[0] = value

    path = written("BertForMaskedLM", change=change)
    with pytest.raises(ValueError, match=rf"1 of the \d+ values of \w+.* in {path} are NaN or infinite"):
        from_huggingface(path)


def test_cross_attention_of_bert():
    with pytest.raises(ValueError, match="this BertModel: is_decoder is True; it must be False: only that can be"):
        from_huggingface(theirs("BertModel", is_decoder=True, add_cross_attention=True))


def drop(name):
    return lambda tensors: tensors.pop(name)


def add(name):
    return lambda tensors: tensors.update({name: torch.zeros(2)})


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("BertForMaskedLM", "bert.encoder.layer.2.output.dense.bias"),
        ("BertForTokenClassification", "classifier.weight"),
        ("AlbertModel", "embeddings.LayerNorm.weight"),
        ("GPT2LMHeadModel", "transformer.h.1.mlp.c_fc.weight"),
    ],
)
def test_a_weight_is_missing(written, name, missing):
    with pytest.raises(ValueError, match=f"the weights in .*model do not fit its config: {missing} is missing"):
        from_huggingface(written(name, change=drop(missing)))


def test_an_untied_unembedding_is_missing(written):
    path = written(model=theirs("GPT2LMHeadModel", tie_word_embeddings=False), change=drop("lm_head.weight"))
    with pytest.raises(ValueError, match=r"do not fit its config: lm_head.weight is missing"):
        from_huggingface(path)


@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM"])
def test_an_extra_weight(written, name):
    with pytest.raises(ValueError, match=f"encoder.adapter.weight has no place in a {name}"):
        from_huggingface(written(name, change=add("encoder.adapter.weight")))


def test_old_buffers_are_ignored(written):
    path = written("GPT2LMHeadModel", change=add("transformer.h.0.attn.masked_bias"))
    assert from_huggingface(path).parity.left_out in ((), ("transformer.h.0.attn.masked_bias",))
    path = written("BertForMaskedLM", change=add("bert.embeddings.position_ids"))
    assert from_huggingface(path).parity.ok


def test_a_weight_of_another_shape(written):
    text = r"do not fit its config: .*LayerNorm.bias is \(16,\), by the config \(20,\)"
    with pytest.raises(ValueError, match=text):
        from_huggingface(written(config={"hidden_size": 20}))


def test_an_object_whose_weights_do_not_fit_its_config():
    model = theirs("BertForMaskedLM")
    model.config.intermediate_size = 20
    text = (
        r"the weights do not fit the config: .*layer.0.intermediate.dense.weight is \(24, 16\), by the config \(20, 16"
    )
    with pytest.raises(ValueError, match=text):
        from_huggingface(model)
    model = theirs("GPT2LMHeadModel")
    model.transformer.h[0].attn.c_attn.weight = torch.nn.Parameter(torch.zeros(16, 51))
    with pytest.raises(ValueError, match=r"c_attn.weight is \(16, 51\), by the config \(16, 48\)"):
        from_huggingface(model)
    model = theirs("BertForMaskedLM")
    model.config.num_hidden_layers = 4
    with pytest.raises(ValueError, match=r"layer.3.attention.self.query.weight is missing"):
        from_huggingface(model)


def test_an_object_with_extra_weights():
    model = theirs("BertForMaskedLM")
    model.adapter = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"adapter.bias has no place in this model"):
        from_huggingface(model)


def test_half_precision_in_memory():
    with pytest.raises(ValueError, match=r"holds torch.bfloat16 weights; call .float\(\) on it first"):
        from_huggingface(theirs("BertForMaskedLM").to(torch.bfloat16))


def test_a_folder_without_a_config(written):
    path = written()
    (path / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"model has no config.json; is it one that save_pretrained wrote"):
        from_huggingface(path)


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_a_config_that_cannot_be_read(written, text):
    path = written()
    (path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config.json is not"):
        from_huggingface(path)


def test_heads_that_do_not_divide_the_width(written):
    with pytest.raises(
        ValueError, match=r"model: num_attention_heads is 3, which does not divide .* hidden_size is 16"
    ):
        from_huggingface(written(config={"num_attention_heads": 3}))


def test_a_folder_without_a_tokenizer(written):
    path = written(tokenizer=False)
    with pytest.raises(FileNotFoundError, match=r"model has no tokenizer \(tokenizer.json, .*\); with_tokenizer=False"):
        from_huggingface(path)
    (path / "tokenizer.json").write_text("not a tokenizer")
    with pytest.raises(ValueError, match=r"the tokenizer of .*model cannot be read .*with_tokenizer=False loads"):
        from_huggingface(path)
    assert from_huggingface(path, with_tokenizer=False).tokenizer is None


def without_the_unknown_word(tokenizer):
    words = tokenizer["model"]["vocab"]
    del words["[UNK]"]


def with_a_negative_word(tokenizer):
    tokenizer["model"]["vocab"]["[UNK]"] = -1


@pytest.mark.parametrize("change", [without_the_unknown_word, with_a_negative_word])
def test_a_tokenizer_that_fails_at_unknown_words(written, change):
    path = written()
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    change(tokenizer)
    tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["content"] != "[UNK]"]
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (path / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match=r"the tokenizer of .*model cannot be read .*with_tokenizer=False loads"):
        from_huggingface(path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pkl"])
def test_pickles_are_never_opened(written, name):
    path = written()
    (path / "model.safetensors").unlink()
    (path / name).write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(ValueError, match=rf"in {name}, a pickle, which can execute code .*safe_serialization=True"):
        from_huggingface(path)
    (path / name).unlink()
    with pytest.raises(FileNotFoundError, match=r"model has no model.safetensors"):
        from_huggingface(path)


def test_a_pickle_next_to_safetensors_is_ignored(written):
    path = written()
    (path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    assert from_huggingface(path).parity.ok


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_weights_cut_short(written, share):
    path = written() / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"the weights in .*model cannot be read .*Is a file cut short"):
        from_huggingface(path.parent)


def test_pointers_of_git_lfs_in_place_of_weights(written):
    path = written() / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n")
    with pytest.raises(ValueError, match=r"model.safetensors is a pointer of Git LFS, .* Fetch that: git lfs pull"):
        from_huggingface(path.parent)


def test_a_shard_is_missing(written):
    path = written(max_shard_size="4KB")
    sorted(path.glob("model-*.safetensors"))[1].unlink()
    with pytest.raises(FileNotFoundError, match=r"model are not complete: the index names model-00002"):
        from_huggingface(path)


def with_a_tensor_of_another_shard(path, first, second):
    name = next(iter(second))
    save_file({**first, name: torch.zeros_like(second[name])}, path)


def with_a_tensor_of_no_shard(path, first, second):
    save_file({**first, "more": torch.zeros(2)}, path)


def without_a_tensor(path, first, second):
    save_file(dict(list(first.items())[1:]), path)


@pytest.mark.parametrize("change", [with_a_tensor_of_another_shard, with_a_tensor_of_no_shard, without_a_tensor])
def test_shards_have_what_the_index_says(written, change):
    shards = sorted(written(max_shard_size="4KB").glob("model-*.safetensors"))
    change(shards[0], load_file(shards[0]), load_file(shards[1]))
    with pytest.raises(ValueError, match=r"model-00001.*(has|does not have) the tensor .*index.json assigns to"):
        from_huggingface(shards[0].parent)


def test_a_single_file(written):
    path = written()
    with pytest.raises(ValueError, match=r"model.safetensors is a single file; pass the folder that holds it"):
        from_huggingface(path / "model.safetensors")
    with pytest.raises(ValueError, match=r"config.json is a single file"):
        from_huggingface(str(path / "config.json"))


@pytest.mark.parametrize("name", ["./nothing", "/nothing/here", "a/b/c", "~/nothing here"])
def test_a_path_that_does_not_exist(name):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nothing|there is no folder a/b/c"):
        from_huggingface(name)


@pytest.mark.parametrize("name", ["gpt2-of-nobody", "nobody/bert.base_v1"])
def test_a_hub_name_without_a_network(name, no_network, monkeypatch):  # noqa: F811
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    text = rf"'{name}' is no folder here, and could not be had from the Hugging Face hub .*HF_HUB_OFFLINE set"
    with pytest.raises(ConnectionError, match=text):
        from_huggingface(name)


def test_a_folder_is_preferred_to_a_hub_name(written, tmp_path, monkeypatch, no_network):  # noqa: F811
    shutil.move(written(), tmp_path / "bert-base")
    monkeypatch.chdir(tmp_path)
    assert from_huggingface("bert-base").parity.ok


def test_code_in_the_folder_is_not_run(written):
    path = written(config={"auto_map": {"AutoModelForMaskedLM": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]}})
    (path / "evil.py").write_text("raise SystemExit('it ran')")
    assert from_huggingface(path, with_tokenizer=False).parity.ok
