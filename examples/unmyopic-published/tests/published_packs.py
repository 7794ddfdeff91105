"""A pack of a published model in which it is known what each part does, for tests of the study that reads packs."""

import json

import numpy as np

SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_head": 4, "n_ctx": 4, "d_vocab": 4, "d_vocab_out": 3}
CONFIG = {**SIZES, "d_mlp": 2, "attn_only": False, "act_fn": "relu", "normalization_type": None, "eps": 1e-5,
          "attention_dir": "causal", "attn_scale": 2.0, "key_padding_token": None}  # fmt: skip
READINGS = [
    ("a1", "needs", {"part": "head", "layer": 0, "head": 0}),
    ("a2", "needs", {"part": "head", "layer": 0, "head": 1}),
    ("a3", "not_needed", {"part": "heads", "heads": [[0, 1]]}),
    ("a4", "needs", {"part": "mlp", "layer": 0}),
    ("a5", "not_needed", {"part": "neuron", "layer": 0, "neurons": [0, 1]}),
    ("a6", "looks", {"part": "head", "layer": 0, "head": 0, "query": 3}),
    ("a7", "algorithm", {"part": "model"}),
]


def weights():
    """Head 0.0 attends to the first token and writes which one it is; head 0.1 and the MLP write nothing."""
    found = {name: np.zeros((2, 8, 4), np.float32) for name in ("W_Q", "W_K", "W_V")}
    found |= {"W_O": np.zeros((2, 4, 8), np.float32)}
    found["W_Q"][0, 7, 0] = found["W_K"][0, 6, 0] = 10  # coordinate 7 is one everywhere, coordinate 6 at the start
    for token in range(3):
        found["W_V"][0, token, token] = 1
        found["W_O"][0, token, 3 + token] = 1
    found = {f"blocks.0.attn.{name}": one for name, one in found.items()}
    found |= {"blocks.0.mlp.W_in": np.eye(8, 2, dtype=np.float32), "blocks.0.mlp.W_out": np.zeros((2, 8), np.float32)}
    found |= {"W_E": np.zeros((4, 8), np.float32), "W_pos": np.zeros((4, 8), np.float32)}
    found["W_E"][range(3), range(3)] = found["W_pos"][:, 7] = found["W_pos"][0, 6] = 1
    return found | {"W_U": np.eye(8, 3, -3, dtype=np.float32) * 20}


def inputs(n=400, seed=0):
    """Three letters and an end token, at which the answer is the first letter."""
    tokens = np.random.default_rng(seed).integers(3, size=(n, 4)).astype(np.int16)
    tokens[:, 3] = 3
    return {"tokens": tokens, "targets": tokens[:, :1].copy(), "target_positions": np.array([3], np.int16)}


def write_published(folder, *, name="first", config=None, arrays=None, readings=None, **values):
    """Write a pack; `config`, `arrays` and further values of the JSON replace those of the example."""
    told = [
        {"id": one, "kind": kind, "component": part, "statement": f"Statement {one}."}
        for one, kind, part in (READINGS if readings is None else readings)
    ]
    about = {"name": name, "task": "Say the first letter.", "config": {**CONFIG, **(config or {})}, "readings": told}
    about |= {"examples": {"arrays": ["tokens", "targets", "target_positions"]}, "measured": {"accuracy_per_answer": 1}}
    (folder / f"{name}.json").write_text(json.dumps({**about, **values}))
    np.savez(folder / f"{name}.npz", **{**weights(), **inputs(), **(arrays or {})})
    return folder / f"{name}.json"
