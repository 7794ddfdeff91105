"""Checkpoints: exact round trips, error texts, and atomic writes."""

import os
import time
import tracemalloc

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.nn.utils import parametrize, prune

from hooks import HeadPattern, load_checkpoint, save_checkpoint
from hooks.files import write_bytes, write_json, write_text
from hooks.model.checkpoint import VERSION, read_tensors, write_tensors

VARIANTS = {
    "plain": {},
    "tied": {"tied": True},
    "dyck": {"block": "dyck", "positions": "linear", "attention": "causal"},
    "identities": {"qk_identity": True, "vo_identity": True, "attn_bias": False},
    "heads": {"head_patterns": ((HeadPattern(kind="local", kernel=(0.25, 0.5, 0.25)),) * 3,), "block": "post_ln"},
    "sinusoidal": {"positions": "sinusoidal", "d_mlp": 0, "d_vocab_out": 2},
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize(
    ("variant", "dtype"), [*((variant, torch.float32) for variant in VARIANTS), ("plain", torch.float64)]
)
def test_round_trip_is_bit_equal(make, tokens, path, variant, dtype):
    model = make(dtype=dtype, **VARIANTS[variant])
    save_checkpoint(model, path)
    loaded = load_checkpoint(path, cfg=model.cfg)
    assert loaded.cfg == model.cfg
    assert not loaded.training
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight), name
    assert torch.equal(loaded(tokens), model(tokens))


def pruned(model):
    prune.l1_unstructured(model.weights[0].attention.q, "weight", 0.3)


def parametrised(model):
    parametrize.register_parametrization(model.weights[0].attention.k, "weight", torch.nn.Identity())


def with_a_buffer(model):
    model.register_buffer("mean", torch.zeros(3))


def with_a_compiled_block(model):
    model.weights[0] = torch.compile(model.weights[0], backend="eager")


def widened(model):
    model.unembed.weight = torch.nn.Parameter(torch.zeros(99, model.cfg.d_model))


@pytest.mark.parametrize("change", [pruned, parametrised, with_a_buffer, with_a_compiled_block, widened])
def test_what_could_not_be_loaded_is_not_saved(make, path, change):
    model = make()
    change(model)
    with pytest.raises(ValueError, match="model has other weights than its config makes, so the file could not be"):
        save_checkpoint(model, path)
    assert not path.exists()


def test_saving_leaves_the_random_state_of_torch(make, path):
    model = make()
    before = torch.get_rng_state()
    save_checkpoint(model, path)
    assert torch.equal(torch.get_rng_state(), before)


def test_tied_weights_are_stored_once(make, path):
    save_checkpoint(make(tied=True, n_layers=9), path)
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
    assert len([name for name in names if name.endswith("mlp.w_in.weight")]) == 1
    tied = path.stat().st_size
    save_checkpoint(make(n_layers=1), path)
    assert abs(tied - path.stat().st_size) < 100


def test_saving_leaves_no_temporary_files(make, path):
    for seed in (1, 2):
        save_checkpoint(make(seed=seed), path)
        assert os.listdir(path.parent) == [path.name]
    assert torch.equal(load_checkpoint(path).W_E, make(seed=2).W_E)


def test_folders_are_created_and_paths_may_be_strings(make, tmp_path):
    save_checkpoint(make(), str(tmp_path / "a" / "b"))
    assert load_checkpoint(str(tmp_path / "a" / "b")).cfg == make().cfg


def test_file_cut_short_anywhere_is_refused(make, path):
    save_checkpoint(make(n_layers=1), path)
    content = path.read_bytes()
    offsets = [*range(0, 40), *range(40, len(content), len(content) // 60), len(content) - 1]
    for offset in offsets:
        path.write_bytes(content[:offset])
        with pytest.raises(ValueError, match=r"model.safetensors is not a readable checkpoint.*cut short"):
            load_checkpoint(path)


def test_other_files_are_refused(path):
    path.write_text("not safetensors at all, but long enough to hold a header")
    with pytest.raises(ValueError, match="is not a readable checkpoint"):
        load_checkpoint(path)
    for metadata in (None, {"format": "pt"}):
        save_file({"embed.weight": torch.zeros(2)}, path, metadata)
        with pytest.raises(ValueError, match="is a safetensors file, but not a checkpoint of unmyopic"):
            load_checkpoint(path)


def test_missing_file(path):
    with pytest.raises(FileNotFoundError, match=r"there is no checkpoint at .*model.safetensors"):
        load_checkpoint(path)


def test_newer_format_is_refused(make, path, monkeypatch):
    monkeypatch.setattr("hooks.model.checkpoint.VERSION", VERSION + 1)
    save_checkpoint(make(), path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=rf"has format version {VERSION + 1}; this unmyopic reads {VERSION}. Upgrade"):
        load_checkpoint(path)


def test_file_of_another_kind_is_refused(path):
    write_tensors(path, {"step": torch.zeros(1)}, kind="sweep", description={})
    with pytest.raises(ValueError, match="holds a sweep, not a model"):
        load_checkpoint(path)
    tensors, description = read_tensors(path, kind="sweep")
    assert tensors["step"].tolist() == [0.0]
    assert description == {}


def test_another_config_is_refused_with_the_fields_that_differ(make, path):
    save_checkpoint(make(tied=True), path)
    with pytest.raises(ValueError, match=r"has another config: block is 'pre_ln', not 'dyck', tied is True, not False"):
        load_checkpoint(path, cfg=make(block="dyck").cfg)


def test_weights_that_do_not_fit_their_config_are_refused(make, path):
    tensors = dict(make().state_dict())
    del tensors["unembed.bias"]
    for broken, words in ((tensors, r"unembed.bias is absent, not of shape \(\d+,\)"), ({}, "layers with weights")):
        write_tensors(path, broken, kind="model", description=make().cfg.to_dict())
        with pytest.raises(ValueError, match=f"do not fit the stored config: .*{words}"):
            load_checkpoint(path)


@pytest.mark.parametrize("change", [{"n_ctx": 300_000_000}, {"d_vocab": 10**9}, {"n_layers": 20_000}])
def test_a_small_file_does_not_build_a_large_model(make, path, change):
    model = make()
    write_tensors(path, model.state_dict(), kind="model", description={**model.cfg.to_dict(), **change})
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(ValueError, match="do not fit the stored config"):
        load_checkpoint(path)
    assert time.process_time() - started < 5
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_a_changed_bit_is_noticed(make, path):
    save_checkpoint(make(), path)
    content = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    for at in (start, start + (len(content) - start) // 2, len(content) - 1):
        content[at] ^= 1
        path.write_bytes(content)
        with pytest.raises(ValueError, match="has changed since it was written"):
            load_checkpoint(path)
        content[at] ^= 1
    path.write_bytes(bytes(content).replace(b"1e-05", b"1e-04"))
    with pytest.raises(ValueError, match="has changed since it was written"):
        load_checkpoint(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(make, path, value):
    model = make()
    with torch.no_grad():
        model.embed.weight[0, :2] = value
    save_checkpoint(model, path)
    with pytest.raises(ValueError, match=r"2 of the \d+ numbers of embed.weight in .* are NaN or infinite"):
        load_checkpoint(path)
    assert load_checkpoint(path, allow_nonfinite=True).embed.weight[0, 1].isfinite().logical_not()


def test_equal_models_give_equal_files(make, tmp_path):
    for name in ("a", "b", "c"):
        save_checkpoint(make(), tmp_path / name)
    assert len({(tmp_path / name).read_bytes() for name in ("a", "b", "c")}) == 1


@pytest.mark.parametrize("description", ["[]", "{", '{"architecture": 3}', '{"d_vocab": {}}', "[" * 50_000, "null"])
def test_a_strange_description_is_refused(make, path, description):
    metadata = {"format": "unmyopic", "version": str(VERSION), "kind": "model", "description": description}
    save_file(dict(make().state_dict()), path, metadata)
    with pytest.raises(ValueError, match=r"model.safetensors is not a checkpoint") as refused:
        load_checkpoint(path)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("step", ["os.fsync", "os.chmod", "os.replace"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_write_that_fails_leaves_the_old_file_and_nothing_else(make, path, monkeypatch, step, error):
    save_checkpoint(make(seed=1), path)
    before = path.read_bytes()

    def fail(*_):
        raise error("on purpose")

    monkeypatch.setattr(f"hooks.files.{step}", fail)
    with pytest.raises(error, match="on purpose"):
        save_checkpoint(make(seed=2), path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_written_files_are_readable_by_others(tmp_path):
    write_bytes(tmp_path / "file", b"1")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_text_and_json(tmp_path):
    write_text(tmp_path / "text", "größer ≥")
    assert (tmp_path / "text").read_bytes().decode() == "größer ≥"
    write_json(tmp_path / "json", {"a": [1, None]})
    assert (tmp_path / "json").read_text() == '{\n "a": [\n  1,\n  null\n ]\n}\n'
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "json", float("nan"))
    assert (tmp_path / "json").read_text().startswith("{")


@pytest.mark.parametrize("part", ["unembed", "embed", "weights.0", "norm_final"])
def test_a_model_of_several_types_keeps_them(make, path, part):
    model = make().bfloat16()
    model.get_submodule(part).float()
    save_checkpoint(model, path)
    loaded = load_checkpoint(path).state_dict()
    assert {name: tensor.dtype for name, tensor in loaded.items()} == {
        name: tensor.dtype for name, tensor in model.state_dict().items()
    }
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in model.state_dict().items())
