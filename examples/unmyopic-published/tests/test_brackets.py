"""Checks of the bracket classifier, on random weights and where the statements are true by construction."""

import json

import numpy as np
import pytest
import torch
from published_readings import brackets_neurons as neurons
from published_readings import brackets_parts as parts
from published_readings.brackets import CHECKS
from published_readings.brackets_parts import (
    BALANCED,
    CLOSING,
    DIPS_ONLY,
    END,
    OPENING,
    PADDING,
    START,
    TOTAL_ONLY,
    elevation,
    kinds_of,
    towers,
)
from published_readings.packs import read_pack
from published_readings.runs import runs

CONFIG = {
    "d_model": 56, "n_heads": 2, "n_layers": 3, "d_head": 28, "d_mlp": 56, "attn_only": False, "act_fn": "relu",
    "normalization_type": "LN", "eps": 1e-5, "attention_dir": "bidirectional", "attn_scale": 28**0.5, "n_ctx": 42,
    "d_vocab": 5, "d_vocab_out": 2, "key_padding_token": PADDING,
}  # fmt: skip
SHAPES = {"attn.W_Q": (2, 56, 28), "attn.W_K": (2, 56, 28), "attn.W_V": (2, 56, 28), "attn.W_O": (2, 28, 56),
          "mlp.W_in": (56, 56), "mlp.W_out": (56, 56)}  # fmt: skip


def random_weights():
    draw = np.random.default_rng(0)
    shapes = {"W_E": (5, 56), "W_pos": (42, 56), "W_U": (56, 2)}
    shapes |= {f"blocks.{layer}.{name}": shape for layer in range(3) for name, shape in SHAPES.items()}
    found = {name: draw.normal(0, 56**-0.5, shape) for name, shape in shapes.items()}
    for norm in (*(f"blocks.{layer}.ln{at}" for layer in range(3) for at in (1, 2)), "ln_final"):
        found |= {f"{norm}.w": np.ones(56), f"{norm}.b": np.zeros(56)}
    return {name: one.astype(np.float32) for name, one in found.items()}


def tokens_of(*strings):
    rows = [[START, *(OPENING if one == "(" else CLOSING for one in text), END] for text in strings]
    return torch.tensor([row + [PADDING] * (42 - len(row)) for row in rows])


def strings(n=240, seed=0):
    """A third each: balanced, shuffled with equal counts, random; lengths are even."""
    draw, found = np.random.default_rng(seed), []
    for at in range(n):
        half = 20 if at % 4 == 0 else int(draw.integers(3, 20))
        text = list(draw.permutation(list("()" * half)))
        if at % 3 == 0:
            depth, text = 0, list(text)
            for i, one in enumerate(text):
                text[i] = "(" if depth == 0 or (one == "(" and depth < 2 * half - i) else ")"
                depth += 1 if text[i] == "(" else -1
        if at % 3 == 2:
            text = list(draw.choice(list("()"), 2 * half))
        found.append("".join(text))
    return found


def make_pack(folder, weights=None):
    tokens = tokens_of(*strings())
    after = elevation(tokens)
    right = (after[:, 1] == 0) & ~((after < 0) & parts.is_bracket(tokens)).any(1)
    inputs = {"tokens": tokens, "targets": right.int()[:, None], "target_positions": torch.tensor([0])}
    arrays = {name: one.numpy().astype(np.int16) for name, one in inputs.items()}
    about = {"name": "brackets", "task": "Brackets.", "config": CONFIG, "examples": {"arrays": list(inputs)}}
    (folder / "brackets.json").write_text(json.dumps({**about, "readings": []}))
    np.savez(folder / "brackets.npz", **{**random_weights(), **(weights or {}), **arrays})
    return read_pack(folder / "brackets.json")


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(parts, "RESAMPLES", 50)


@pytest.fixture
def pack(tmp_path):
    return make_pack(tmp_path)


def verdict(pack, id):
    return CHECKS[id].rule.verdict(CHECKS[id].found(pack))


def planted(monkeypatch, pack, layer, head, pattern):
    """Makes a head attend like this in what the checks see."""
    seen, name = runs(pack), f"blocks.{layer}.attn.hook_pattern"
    seen._kept[name] = seen.activation(name).clone()
    seen._kept[name][:, head] = pattern
    monkeypatch.setattr(neurons, "runs", lambda pack: seen)


def test_elevation_and_kinds(pack):
    tokens = tokens_of("(())", "())(", "((()", "()))", "))((")
    assert elevation(tokens)[0, :5].tolist() == [0, 0, 1, 2, 1]
    assert elevation(tokens)[1, :5].tolist() == [0, 0, 1, 0, -1]
    pack.task.inputs.data = tokens
    assert kinds_of(pack).tolist() == [BALANCED, DIPS_ONLY, TOTAL_ONLY | DIPS_ONLY, TOTAL_ONLY, DIPS_ONLY]
    assert parts.share_opening(tokens).tolist() == [0.5, 0.5, 0.75, 0.25, 0.5]
    assert neurons.side_of_half(pack).tolist() == [0, 0, 1, -1, 0]
    assert parts.later(tokens)[0, 1, :7].tolist() == [False, False, True, True, True, True, True]
    assert not parts.later(tokens)[0, 3].any()
    assert torch.nonzero(parts.first_bracket(tokens)[0]).tolist() == [[0, 1]]


def test_towers():
    text = "((()))" + ")(" + "(())"
    expected = tokens_of(text)
    assert torch.equal(towers([(3, 2)]), expected)
    assert towers([(15, 4)]).shape == (1, 42)
    assert not (towers([(15, 4)]) == PADDING).any()


def test_most_statements_are_false_of_random_weights(pack):
    found = {id: check.found(pack) for id, check in CHECKS.items()}
    true = [id for id, one in found.items() if CHECKS[id].rule.verdict(one) == "reproduced"]
    assert len(true) <= len(CHECKS) / 3


def test_parts_add_up_to_the_stream(pack):
    seen = runs(pack)
    whole = sum(parts.written_by(seen, part) for part in parts.PARTS)
    torch.testing.assert_close(whole, seen.activation("blocks.2.hook_resid_post"), atol=1e-5, rtol=1e-5)


def test_paths_add_up_where_the_norms_are_linear(pack):
    pack.task.inputs.data = tokens_of("(()())").repeat(len(pack.task.inputs), 1)
    through = sum(parts.pushes_through(pack, 0, None).values())
    torch.testing.assert_close(through, parts.pushes(pack)["2.0"], atol=1e-4, rtol=1e-4)


def test_what_is_the_same_in_all_strings_separates_none(pack):
    opened = pack.task.inputs[:, 1] == OPENING
    found = parts.pushes_through(pack, 0)["embedding"][opened]
    assert found.std() < 1e-5
    assert parts.pushes_through(pack, 0)["MLP 0"][opened].std() > 1e-3


def test_heads_that_are_responsible(pack, monkeypatch):
    kinds = kinds_of(pack)
    noise = torch.randn(len(parts.PARTS), len(kinds), generator=torch.Generator().manual_seed(0)) / 10
    found = dict(zip(parts.PARTS, noise, strict=True))
    found["2.0"] = found["2.0"] + 6.0 * (kinds & TOTAL_ONLY > 0) + 1.0 * (kinds == DIPS_ONLY)
    found["2.1"] = found["2.1"] + 9.0 * (kinds & DIPS_ONLY > 0) + 1.0 * (kinds == TOTAL_ONLY)
    monkeypatch.setattr(parts, "pushes", lambda pack: found)
    for id in ("br03", "br04", "br05", "br06", "br07"):
        assert verdict(pack, id) == "reproduced"
    limits = CHECKS["br05"].limits
    assert limits
    assert limits.verdict(CHECKS["br05"].found(pack)) == "not reproduced"
    found["MLP 1"] = found["2.0"] * 0.7
    assert limits.verdict(CHECKS["br05"].found(pack)) == "reproduced"
    found["2.0"], found["2.1"] = found["2.1"], found["2.0"]
    assert {verdict(pack, id) for id in ("br05", "br06")} == {"not reproduced"}


def test_what_is_read_at_position_1(pack, monkeypatch):
    kinds = kinds_of(pack)
    found = {part: torch.zeros(len(kinds)) for part in parts.EARLIER}
    found["MLP 1"], found["MLP 0"] = 3.0 * (kinds != BALANCED), 1.0 * (kinds != BALANCED)
    found["1.1"] = 1.0 * (kinds == DIPS_ONLY) + 0.1 * (kinds == TOTAL_ONLY)
    for module in (parts, neurons):
        monkeypatch.setattr(module, "pushes_through", lambda pack, head, at=1: found)
    for id in ("br10", "br11", "br12", "br13"):
        assert verdict(pack, id) == "reproduced"
    found["embedding"] = 9.0 * (kinds != BALANCED)
    assert {verdict(pack, id) for id in ("br10", "br12")} == {"not reproduced"}


def test_where_head_2_0_reads(pack, monkeypatch):
    pattern = torch.full((len(pack.task.inputs), 42, 42), 0.5 / 41)
    pattern[:, :, 1] = 0.5
    planted(monkeypatch, pack, 2, 0, pattern)
    assert verdict(pack, "br08") == "reproduced"


def test_where_head_0_0_reads(pack, monkeypatch):
    tokens = pack.task.inputs
    later = torch.ones(42, 42).triu(1) * (tokens != PADDING)[:, None]
    flat = later + 0.05 * (tokens != PADDING)[:, None]
    less = flat + 0.3 * (tokens == CLOSING)[..., None]
    less[:, 1] = 1.0 * (tokens != PADDING)
    even = less / less.sum(-1, keepdim=True)
    planted(monkeypatch, pack, 0, 0, even)
    for id in ("br21", "br22", "br23"):
        assert verdict(pack, id) == "reproduced"
    assert verdict(pack, "br24") == "not reproduced"
    less[:, 27:32, 38:41] *= 3
    planted(monkeypatch, pack, 0, 0, less / less.sum(-1, keepdim=True))
    assert verdict(pack, "br24") == "reproduced"
    assert CHECKS["br24"].found(pack).value == pytest.approx(3, rel=1e-3)


def test_neurons_that_detect(pack, monkeypatch):
    side = neurons.side_of_half(pack)
    active = torch.zeros(len(side), 56)
    active[:, [53, 39, 8, 33, 43]] = 1.0 * (side > 0)[:, None]
    active[:, [21, 7, 50]] = 1.0 * (side < 0)[:, None]
    active[:, 6] = 1.0 * (side < 0) + 0.1
    monkeypatch.setattr(neurons, "activations", lambda pack, layer: active)
    monkeypatch.setattr(neurons, "neuron_pushes", lambda pack, layer: 1.0 * (side != 0)[:, None].expand(-1, 56))
    for id in ("br15", "br17", "br18", "br19", "br20"):
        assert verdict(pack, id) == "reproduced"
    assert neurons.detectors(pack, 1, 1) == [8, 33, 39, 43, 53]
    active[:, 8] = 1.0
    assert verdict(pack, "br15") == "not reproduced"


def test_opposite_and_aligned(tmp_path):
    weights = random_weights()
    direction = np.random.default_rng(1).normal(size=56).astype(np.float32)
    direction -= direction.mean()
    weights["W_E"][OPENING], weights["W_E"][CLOSING] = direction, -direction
    opposite = make_pack(tmp_path, weights)
    assert verdict(opposite, "br25") == "reproduced"
    wrote = parts.runs(opposite).pack.weight("blocks.0.attn.W_V")[0] @ opposite.weight("blocks.0.attn.W_O")[0]
    written = (torch.from_numpy(direction) @ wrote).numpy()
    for layer in (0, 1):
        weights[f"blocks.{layer}.mlp.W_in"] = np.repeat(written[:, None], 56, 1)
    found = CHECKS["br26"].found(make_pack(tmp_path, weights))
    assert found.value == pytest.approx(56, rel=1e-3)
    assert 0.2 < CHECKS["br26"].found(opposite).value < 3


def tallying():
    """Head 0.0 writes opening less closing brackets everywhere, head 2.0 carries it from position 1 to the start, and
    fewer opening ones are called unbalanced. Directions are pairs of coordinates of opposite sign."""
    found = {name: one if name.endswith(".w") else np.zeros_like(one) for name, one in random_weights().items()}

    def pair(at):
        one = np.zeros(56, np.float32)
        one[2 * at : 2 * at + 2] = 1, -1
        return one

    found["W_E"][OPENING], found["W_E"][CLOSING] = pair(0), -pair(0)
    found["W_pos"][:] = pair(6)
    found["W_pos"][0], found["W_pos"][1] = pair(1), pair(2)
    found["blocks.0.attn.W_V"][0, :, 0], found["blocks.0.attn.W_O"][0, 0] = pair(0), 5 * pair(3)
    found["blocks.2.attn.W_Q"][0, :, 0], found["blocks.2.attn.W_K"][0, :, 0] = 30 * pair(1), 30 * pair(2)
    found["blocks.2.attn.W_V"][0, :, 1], found["blocks.2.attn.W_O"][0, 1] = pair(3), 5 * pair(4)
    found["W_U"][:, 0], found["W_U"][:, 1] = -pair(4), pair(4)
    return found


def test_a_model_that_tallies(tmp_path):
    pack = make_pack(tmp_path, tallying())
    stored = CHECKS["br09"].found(pack)
    assert (stored.value, stored.numbers["left without position 1"]) == (
        pytest.approx(1, abs=0.05),
        pytest.approx(0, abs=0.05),
    )
    assert CHECKS["br02"].found(pack).value > 0.95
    for id in ("br02", "br05", "br09", "br25"):
        assert verdict(pack, id) == "reproduced"


def test_strings_that_begin_with_a_closing_bracket(tmp_path):
    pack = make_pack(tmp_path, tallying())
    seen, rows = runs(pack), pack.task.inputs[:, 1] == CLOSING
    found = CHECKS["br28"].found(pack)
    expected = (parts.push(seen.logits())[rows] > 0).double().mean()
    assert (found.value, found.n) == (pytest.approx(float(expected)), int(rows.sum()))
    assert found.numbers["with head 2.0 at its mean"] in (0, 1)
    assert 0 < found.value < 1


def test_counts_in_the_stream(pack, monkeypatch):
    seen, name = runs(pack), "blocks.2.hook_resid_pre"
    monkeypatch.setattr(parts, "runs", lambda pack: seen)
    after = elevation(pack.task.inputs)
    kept = seen.activation(name)
    for count, better in [(after, True), (after[:, 1:2] - after, False)]:
        seen._kept[name] = torch.zeros_like(kept)
        seen._kept[name][..., 0] = count
        found = CHECKS["br01"].found(pack)
        assert (found.value == pytest.approx(1)) == better
        assert (found.numbers["more than of the brackets before"] > 0.1) == better


def test_pushes_of_neurons_add_up_to_those_of_their_mlp(pack):
    seen = runs(pack)
    scale = (
        seen.mean_of(seen.activation("blocks.2.ln1.hook_scale"))[1]
        * seen.activation("ln_final.hook_scale")[:, 0].mean()
    )
    for layer in (0, 1):
        whole = neurons.neuron_pushes(pack, layer).sum(1) / scale
        torch.testing.assert_close(parts.pushes_through(pack, 0)[f"MLP {layer}"], whole, atol=1e-5, rtol=1e-4)


def test_auroc():
    values, hits = torch.tensor([0.0, 1, 2, 3]), torch.tensor([False, False, True, True])
    assert parts.auroc(values, hits).value == 1
    assert parts.auroc(-values, hits).value == 0
