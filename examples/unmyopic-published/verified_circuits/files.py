"""Weight files of `brian-naughton/verified-circuits`: settings, and weights as hexadecimal floating-point numbers.

A file is JSON with `cfg`, `note` and `state_dict_hex`: nested lists of `float.hex()` texts, so that weights are read
exactly. Nothing in it is executed.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from case_studies.frame.packs import WeightFiles
from hooks.checks import check_number
from hooks.files import read_json, reading, shortened
from verified_circuits.model import PooledConfig, PooledTransformer

REPOSITORY = "brian-naughton/verified-circuits"
COMMIT = "bc28792"
LICENCE = "MIT"
LENGTHS = (10, 16)
"""Numbers of tokens of the two models."""
EXPECTED = f"a weight file of {REPOSITORY}"
FIXED = {"causal": True, "pool": "sum"}
"""Settings that have one value."""
SIZES = {"n": "n_ctx", "layers": "n_layers", "heads": "n_heads", "d": "d_model", "ff": "d_mlp"}
"""Our names of the sizes."""
LARGEST_SIZE = 4096


def weight_files(folder: Path | None, n: int) -> WeightFiles:
    """The weight file of the model of n tokens, in a clone of the repository or in its folder of certificates."""
    return WeightFiles(folder, names=(f"certificates/dyck{n}_exact_seed0.weights.json",))


@cache
def read_model(files: WeightFiles) -> PooledTransformer:
    """The model of a weight file, in single precision, as its weights are.

    Raises:
        ValueError: there is no file, or it is not a weight file of such a model; names the file and the fault.
    """
    (path,) = files.paths
    return load_model(path)


def load_model(path: Path) -> PooledTransformer:
    """Read a weight file into a `PooledTransformer`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: settings or weights that are missing, malformed, or of another model; names the file and the fault.
    """
    values = read_json(path, EXPECTED)
    with reading(path, EXPECTED):
        cfg = _read_config(values["cfg"])
        model = PooledTransformer(cfg)
        model.load_state_dict(_our_weights(values["state_dict_hex"], cfg, model))
    return model.eval()


def _read_config(settings: Mapping[str, Any]) -> PooledConfig:
    """The sizes in a file's settings.

    Raises:
        ValueError: a size that is none, or a setting of another kind of model.
    """
    for name, value in FIXED.items():
        if settings[name] != value:
            raise ValueError(f"cfg.{name} is {settings[name]!r}; only {value!r} is known.")
    sizes: dict[str, int] = {}
    for name, size_name in SIZES.items():
        check_number(f"cfg.{name}", settings[name], integer=True, low=1, high=LARGEST_SIZE)
        sizes[size_name] = settings[name]
    if sizes["d_model"] % sizes["n_heads"]:
        raise ValueError(f"cfg.d is {sizes['d_model']}, which {sizes['n_heads']} heads do not divide.")
    return PooledConfig(**sizes)


def _our_weights(weights: Mapping[str, Any], cfg: PooledConfig, model: PooledTransformer) -> dict[str, Tensor]:
    """Weights under our names and axes.

    Raises:
        ValueError: a weight that is missing, unknown, of another shape, or not finite.
    """
    names = _their_names(cfg)
    unknown = sorted(set(weights) - set(names.values()))
    if unknown:
        raise ValueError(f"it has the weight {shortened(unknown[0])!r}, which the model lacks.")
    state: dict[str, Tensor] = {}
    for our_name, shape in ((name, weight.shape) for name, weight in model.state_dict().items()):
        name = names[our_name]
        if name not in weights:
            raise ValueError(f"the weight {name!r} is missing.")
        weight = _numbers(name, weights[name])
        # Heads are consecutive groups of rows of (out, in), or of columns for the output
        if our_name.endswith(("W_Q", "W_K", "W_V")) and weight.shape == (cfg.d_model, cfg.d_model):
            weight = weight.view(cfg.n_heads, cfg.d_head, cfg.d_model).mT.contiguous()
        if our_name.endswith("W_O") and weight.shape == (cfg.d_model, cfg.d_model):
            weight = weight.T.reshape(cfg.n_heads, cfg.d_head, cfg.d_model)
        if weight.shape != shape:
            raise ValueError(f"{name} is {tuple(weight.shape)}, which does not fit cfg.")
        state[our_name] = weight
    return state


def _numbers(name: str, texts: Any) -> Tensor:
    """A weight from nested lists of hexadecimal numbers; each must be a number of single precision.

    Raises:
        ValueError: lists of different lengths, a text that is no number, or one that is not exact in single precision.
    """

    def parse(entry: Any) -> Any:
        if isinstance(entry, list):
            return [parse(child) for child in entry]
        if not isinstance(entry, str):
            raise ValueError(f"{name} has a {type(entry).__name__}; weights are texts of hexadecimal numbers.")
        return float.fromhex(entry)

    double = torch.tensor(parse(texts), dtype=torch.float64)
    if not double.isfinite().all():
        raise ValueError(f"{name} has a number that is not finite.")
    single = double.float()
    if not torch.equal(single.double(), double):
        raise ValueError(f"{name} has a number that single precision cannot hold.")
    return single


def _their_names(cfg: PooledConfig) -> dict[str, str]:
    """The file's name of each of our weights."""
    names = {"embed.weight": "tok.weight", "positions.weight": "pos"}
    for layer in range(cfg.n_layers):
        prefix = f"blocks.{layer}."
        for matrix in "QKVO":
            names[f"{prefix}attn.W_{matrix}"] = f"{prefix}W{matrix.lower()}.weight"
        for index, map_name in ((0, "mlp1"), (2, "mlp2")):
            for kind in ("weight", "bias"):
                names[f"{prefix}mlp.{index}.{kind}"] = f"{prefix}{map_name}.{kind}"
    for our_map, their_map in (("hidden", "h1"), ("unembed", "h2")):
        for kind in ("weight", "bias"):
            names[f"{our_map}.{kind}"] = f"{their_map}.{kind}"
    return names


def to_file_content(model: PooledTransformer, note: str) -> dict[str, Any]:
    """The content of a weight file with the weights of a model; the inverse of `load_model`."""
    cfg: Any = model.cfg
    settings = {**FIXED, **{name: getattr(cfg, size_name) for name, size_name in SIZES.items()}}
    weights: dict[str, Any] = {}
    for our_name, their_name in _their_names(cfg).items():
        weight = model.state_dict()[our_name]
        if our_name.endswith(("W_Q", "W_K", "W_V")):
            weight = weight.mT.reshape(cfg.d_model, cfg.d_model)
        if our_name.endswith("W_O"):
            weight = weight.reshape(cfg.d_model, cfg.d_model).T
        weights[their_name] = _texts(weight.tolist())
    return {"cfg": settings, "note": note, "state_dict_hex": weights}


def _texts(numbers: Any) -> Any:
    if isinstance(numbers, list):
        return [_texts(child) for child in numbers]
    return float(numbers).hex()
