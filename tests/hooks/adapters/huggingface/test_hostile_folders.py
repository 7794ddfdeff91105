"""Folders that name other files or choose code are refused, or what they choose is ignored."""

import json
import pickle
import shutil

import pytest
import transformers
from hostile import CODE
from test_loading import folder, no_network, theirs, tokenizer_of_words  # noqa: F401 (fixtures)

from hooks import from_huggingface
from hooks.adapters.huggingface import loading
from hooks.adapters.huggingface.folder import INDEX, WEIGHTS


class Evil:
    """Fails the test where it is unpickled."""

    def __reduce__(self):
        return pytest.fail, ("unpickled",)


@pytest.fixture
def path(folder, no_network):  # noqa: F811
    return folder(theirs("BertForMaskedLM"))


def with_index(path, name):
    """Replace the weights by an index that names one file."""
    shutil.move(path / WEIGHTS, path.parent / "x.safetensors")
    (path / "w.bin").write_bytes(pickle.dumps(Evil()))
    (path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": {"cls.predictions.bias": name}}))


NAMES = ["w.bin", "../x.safetensors", "/tmp/x.safetensors", "a/../../x.safetensors", "..\\x.safetensors",
         ".x.safetensors", "x.safetensors\n", "~/x.safetensors", 3, None, ["w.bin"], "a" * 5000]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_an_index_with_other_files_is_refused(path, name):
    with_index(path, name)
    with pytest.raises(ValueError, match=r"only \*.safetensors files in the same folder are read") as raised:
        from_huggingface(path)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("text", ['{"weight_map": 3}', "{}", "[]", "{", "[" * 100_000, "\udc80"])
def test_an_index_that_cannot_be_read(path, text):
    with_index(path, "w.bin")
    (path / INDEX).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=rf"{INDEX} is not"):
        from_huggingface(path)


@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_links_to_outside_are_not_followed(path, name):
    shutil.move(path / name, path.parent / "elsewhere")
    (path / name).symlink_to("../elsewhere")
    with pytest.raises(ValueError, match=rf"{name} is a link to outside the folder, which is not followed"):
        from_huggingface(path)


def test_a_folder_of_the_hub_cache(path, tmp_path):
    blobs, snapshot = tmp_path / "models--x/blobs", tmp_path / "models--x/snapshots/abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(path.iterdir())):
        shutil.copy(file, blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    assert from_huggingface(snapshot).parity.ok


@pytest.mark.parametrize("key", CODE)
def test_settings_that_choose_code_are_dropped(path, key, monkeypatch):
    (path / "evil.py").write_text("raise SystemExit('it ran')")
    (path / "w.bin").write_bytes(pickle.dumps(Evil()))
    values = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**values, key: CODE[key]}))
    made = []
    load = transformers.BertForMaskedLM.from_pretrained.__func__

    def watched(cls, *args, **options):
        made.append(options)
        return load(cls, *args, **options)

    monkeypatch.setattr(transformers.BertForMaskedLM, "from_pretrained", classmethod(watched))
    assert from_huggingface(path, with_tokenizer=key != "dtype").parity.ok
    (options,) = made
    assert options["attn_implementation"] == "eager"
    assert options["trust_remote_code"] is False
    assert options["use_safetensors"] is True
    assert options["config"].to_dict().get(key) != CODE[key]
    assert not hasattr(options["config"], key) or getattr(options["config"], key) != CODE[key]


def test_quantisation_is_refused(path):
    values = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**values, "quantization_config": {"quant_method": "evil"}}))
    with pytest.raises(ValueError, match=r"quantization_config is .*; it must be absent"):
        from_huggingface(path)


SIZES = [
    ("max_position_embeddings", 300_000_000),
    ("vocab_size", 10**9),
    ("num_hidden_layers", 20_000),
    ("hidden_size", 10**12),
    ("intermediate_size", 10**7),
    ("type_vocab_size", 10**8),
]


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_sizes_are_compared_with_the_file_before_a_model_is_built(path, name, size, monkeypatch):
    def build(*args, **options):
        pytest.fail("built")

    monkeypatch.setattr(transformers.BertForMaskedLM, "from_pretrained", build)
    values = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**values, name: size}))
    with pytest.raises(ValueError, match=rf"do not fit its config: {name} is {size}, but the \d+ stored tensors"):
        from_huggingface(path)


def test_a_name_on_the_hub_is_checked_too(path, monkeypatch, tmp_path):
    with_index(path, "w.bin")
    monkeypatch.setattr(loading, "cached_file", lambda *given, **options: str(path / INDEX))
    with pytest.raises(ValueError, match=r"'w.bin'; only \*.safetensors files in the same folder"):
        loading._check_weights("someone/bert", None, "bert", local_files_only=False)


def test_tokenizers_of_other_files_are_refused(path):
    file = path / "tokenizer_config.json"
    tokenizer_of_words().save_pretrained(path)
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, "vocab_file": "/etc/passwd"}))
    with pytest.raises(ValueError, match=r"names '/etc/passwd' as vocab_file; only files of its folder are read"):
        from_huggingface(path)
    file.write_text(json.dumps({**values, "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}))
    (path / "evil.py").write_text("raise SystemExit('it ran')")
    assert from_huggingface(path).tokenizer.encode("a") == tokenizer_of_words().encode("a")
    file.unlink()
    file.symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match=r"tokenizer_config.json is a link to outside the folder"):
        from_huggingface(path)
