"""Checks of the running sum, on random weights and where the statements are true by construction."""

import json

import numpy as np
import pytest
import torch
from published_readings import cumsum
from published_readings.cumsum import CHECKS, means, sums
from published_readings.measures import per_example
from published_readings.packs import read_pack
from published_readings.runs import Runs, runs

CONFIG = {
    "d_model": 24, "n_heads": 1, "n_layers": 1, "d_head": 12, "d_mlp": 8, "attn_only": False, "act_fn": "relu",
    "normalization_type": None, "eps": 1e-5, "attention_dir": "causal", "attn_scale": 12**0.5, "n_ctx": 20,
    "d_vocab": 11, "d_vocab_out": 3, "key_padding_token": None,
}  # fmt: skip
SHAPES = {
    "W_E": (11, 24), "W_pos": (20, 24), "W_U": (24, 3), "blocks.0.attn.W_Q": (1, 24, 12),
    "blocks.0.attn.W_K": (1, 24, 12), "blocks.0.attn.W_V": (1, 24, 12), "blocks.0.attn.W_O": (1, 12, 24),
    "blocks.0.mlp.W_in": (24, 8), "blocks.0.mlp.W_out": (8, 24),
}  # fmt: skip


def random_weights():
    draw = np.random.default_rng(0)
    return {name: draw.normal(0, 24**-0.5, shape).astype(np.float32) for name, shape in SHAPES.items()}


def true_weights():
    """Coordinate 0 has the value, 1 is u, 2 speaks for zero, 3 is one everywhere."""
    found = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    found["W_E"][:, 0] = np.arange(-5, 6)
    found["W_pos"][:, 3] = 1
    found["blocks.0.attn.W_V"][0, 0, 0] = found["blocks.0.attn.W_O"][0, 0, 1] = 1
    found["W_U"][1:3] = [[-1, 0, 1], [-0.1, 1, -0.1]]
    found["W_U"][3, 1] = 0.02
    for neurons, sign in [((0, 1, 3, 4), 1), ((2, 7), -1)]:
        for neuron in neurons:
            found["blocks.0.mlp.W_in"][1, neuron] = sign
            found["blocks.0.mlp.W_out"][neuron, 1:3] = sign * {2: 30, 7: 12, 4: 9, 3: 7, 0: 5, 1: 4}[neuron], 0.2
    return found


def make_pack(folder, weights):
    tokens = torch.randint(11, (300, 20), generator=torch.Generator().manual_seed(0))
    targets = (tokens - 5).cumsum(1).sign() + 1
    inputs = {"tokens": tokens, "targets": targets, "target_positions": torch.arange(20)}
    arrays = {name: one.numpy().astype(np.int16) for name, one in inputs.items()}
    about = {"name": "cumsum", "task": "Running sums.", "config": CONFIG, "examples": {"arrays": list(inputs)}}
    (folder / "cumsum.json").write_text(json.dumps({**about, "readings": []}))
    np.savez(folder / "cumsum.npz", allow_pickle=False, **weights, **arrays)
    return read_pack(folder / "cumsum.json")


@pytest.fixture
def true(tmp_path):
    return make_pack(tmp_path, true_weights())


def verdict(pack, id):
    return CHECKS[id].rule.verdict(CHECKS[id].found(pack))


def test_sums_and_means(true):
    seen = Runs(true, torch.tensor([[5, 6, 3, *[5] * 17]]))
    assert sums(seen)[0, :4].tolist() == [0, 1, -1, -1]
    assert means(seen)[0, :4].tolist() == pytest.approx([0, 0.5, -1 / 3, -0.25])
    values, at = torch.tensor([[1.0, 2, 9], [4, 5, 6]]), torch.tensor([[1, 1, 0], [0, 0, 0]]).bool()
    assert per_example(values, at).tolist() == [1.5]


def test_most_statements_are_false_of_random_weights(tmp_path):
    pack = make_pack(tmp_path, random_weights())
    found = {id: check.found(pack) for id, check in CHECKS.items()}
    true = [id for id, one in found.items() if CHECKS[id].rule.verdict(one) == "reproduced"]
    assert len(true) <= len(CHECKS) / 3


@pytest.mark.parametrize("id", ["cu02", "cu03", "cu04", "cu05", "cu06", "cu07", "cu10", "cu11", "cu12", "cu14"])
def test_true_statements(true, id):
    assert verdict(true, id) == "reproduced"


def test_reversed_signs_are_refuted(tmp_path):
    weights = true_weights()
    weights["blocks.0.mlp.W_in"] *= -1
    pack = make_pack(tmp_path, weights)
    assert {verdict(pack, id) for id in ("cu10", "cu11")} == {"not reproduced"}


def test_direction_is_what_the_head_writes_per_unit(true):
    assert cumsum.direction(true).tolist() == pytest.approx([0, 1, *[0] * 22])
    assert runs(true).activation("blocks.0.hook_resid_mid")[..., 1] == pytest.approx(means(runs(true)), abs=1e-5)


def test_the_algorithm_needs_only_the_mean(tmp_path):
    weights = true_weights()
    weights["W_U"][3, 1] = weights["W_U"][2, 1] = 0.3
    pack = make_pack(tmp_path, weights)
    found = CHECKS["cu01"].found(pack)
    clean = (runs(pack).logits().argmax(-1) == runs(pack).targets).double().mean()
    assert found.value == pytest.approx(float(clean), abs=1e-6)


def test_the_order_of_neurons(true):
    found = cumsum.measure_useful(true)
    losses = found.frame["value"].tolist()
    order = sorted(range(8), key=lambda neuron: -losses[neuron])
    assert found.numbers["order as published"] == (order[:6] == [2, 7, 4, 3, 0, 1])
    assert losses[5] == losses[6] == 0


def test_hardest_are_late_and_near(true):
    numbers = cumsum.measure_hardest(true).numbers
    assert numbers["loss, late, near"] > numbers["loss, late, far"]


def test_what_is_lost_near_zero(true, monkeypatch):
    near = means(runs(true)).abs() <= 0.5
    monkeypatch.setattr(cumsum, "fall", lambda pack: (torch.ones(near.shape), (~near).double()))
    numbers = cumsum.measure_mlp(true).numbers
    assert numbers["accuracy lost near zero"] == numbers["accuracy lost near zero less that elsewhere"] == 1


def test_leaning_to_zero(tmp_path):
    weights = true_weights()
    weights["W_U"][3, 1] = 0.3
    pack = make_pack(tmp_path, weights)
    found = CHECKS["cu09"].found(pack)
    assert found.value == 1
    assert found.numbers["more often called zero"] > 0.01


def test_share_of_the_next_neuron(true):
    found = CHECKS["cu13"].found(true)
    others = max(cumsum.measure_useful(true).frame["value"].drop(2))
    assert found.numbers["that of the next as a share of it"] == pytest.approx(others / max(found.value, 1e-9))
    assert others != found.value


def test_neurons_off_leave_the_output_bias(tmp_path):
    weights = random_weights() | {"blocks.0.mlp.b_in": np.zeros(8, np.float32)}
    weights["blocks.0.mlp.b_out"] = bias = weights["W_U"][:, 0] * 3
    pack = make_pack(tmp_path, weights)
    seen = runs(pack)
    expected = (seen.activation("blocks.0.hook_resid_mid") + torch.from_numpy(bias)) @ torch.from_numpy(weights["W_U"])
    assert torch.equal(cumsum.fall(pack)[1] > 0, expected.argmax(-1) == seen.targets)
    assert seen.logits(cumsum.all_off(seen)) == pytest.approx(expected, abs=1e-5)


def test_losses_are_compared_within_sequences(true):
    seen = runs(true)
    assert seen.targets is not None
    loss = torch.nn.functional.cross_entropy(seen.logits().transpose(1, 2), seen.targets, reduction="none").double()
    late, near = torch.arange(20) >= 10, sums(seen).abs() <= 2
    differences = []
    for at, row in zip(near, loss, strict=True):
        if (at & late).any() and (at & ~late).any():
            differences.append(float(row[at & late].mean() - row[at & ~late].mean()))
    found = CHECKS["cu15"].found(true)
    losses = found.numbers
    assert losses["loss, early, near"] == max(losses[name] for name in losses if name != "loss, late, near")
    assert (found.n, found.value) == (len(differences), pytest.approx(np.mean(differences)))
