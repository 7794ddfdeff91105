"""Checks of the sorted list, on random weights and where the statements are true by construction."""

import json

import numpy as np
import pytest
import torch
from published_readings import sorted_list
from published_readings.packs import read_pack
from published_readings.runs import runs
from published_readings.sorted_list import CHECKS, SEPARATOR, drawn, smallest_larger, written_out

CONFIG = {
    "d_model": 96, "n_heads": 2, "n_layers": 1, "d_head": 48, "d_mlp": None, "attn_only": True, "act_fn": None,
    "normalization_type": "LN", "eps": 1e-5, "attention_dir": "causal", "attn_scale": 48**0.5, "n_ctx": 21,
    "d_vocab": 52, "d_vocab_out": 52, "key_padding_token": None,
}  # fmt: skip
SHAPES = {
    "W_E": (52, 96), "W_pos": (21, 96), "W_U": (96, 52), "blocks.0.attn.W_Q": (2, 96, 48),
    "blocks.0.attn.W_K": (2, 96, 48), "blocks.0.attn.W_V": (2, 96, 48), "blocks.0.attn.W_O": (2, 48, 96),
}  # fmt: skip
PATTERN = "blocks.0.attn.hook_pattern"


def random_weights():
    draw = np.random.default_rng(0)
    found = {name: draw.normal(0, 96**-0.5, shape) for name, shape in SHAPES.items()}
    for norm in ("blocks.0.ln1", "ln_final"):
        found |= {f"{norm}.w": np.ones(96), f"{norm}.b": np.zeros(96)}
    return {name: one.astype(np.float32) for name, one in found.items()}


def copying():
    """Head 0.0 copies 28 to 37 and opposes most others, head 0.1 copies the others; reading out is the identity."""
    found = random_weights()
    found |= {name: np.zeros_like(found[name]) for name in SHAPES}
    found["W_E"][:, :52] = found["W_U"][:52] = np.eye(52)
    inside = list(range(28, 38))
    outside = [value for value in range(51) if value not in inside]
    for head, values in [(0, inside + outside[:38]), (1, outside)]:
        for at, value in enumerate(values):
            found["blocks.0.attn.W_V"][head, value, at] = 1
            found["blocks.0.attn.W_O"][head, at, value] = -1 if head == 0 and value in outside else 1
    return found


def make_pack(folder, weights):
    generator = torch.Generator().manual_seed(0)
    tokens = written_out(drawn(200, 0, generator=generator), generator=generator)
    inputs = {"tokens": tokens, "targets": tokens[:, 11:], "target_positions": torch.arange(10, 20)}
    arrays = {name: one.numpy().astype(np.int16) for name, one in inputs.items()}
    about = {"name": "sorted_list", "task": "Sort.", "config": CONFIG, "examples": {"arrays": list(inputs)}}
    (folder / "sorted_list.json").write_text(json.dumps({**about, "readings": []}))
    np.savez(folder / "sorted_list.npz", allow_pickle=False, **weights, **arrays)
    return read_pack(folder / "sorted_list.json")


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(sorted_list, "N", 100)


@pytest.fixture
def copies(tmp_path):
    return make_pack(tmp_path, copying())


def verdict(pack, id):
    return CHECKS[id].rule.verdict(CHECKS[id].found(pack))


def test_smallest_larger():
    entries = torch.tensor([[30, 4, 9, 50, 2, 7, 11, 40, 5, 1]])
    tokens = torch.cat([entries, torch.tensor([[SEPARATOR]]), entries.sort().values], 1)
    related = smallest_larger(tokens)[0]
    keys = {query: torch.nonzero(related[query])[:, 0].tolist() for query in range(21)}
    assert all(not keys[query] for query in (*range(10), 20))
    assert [tokens[0, keys[query][0]].item() for query in range(10, 20)] == [1, 2, 4, 5, 7, 9, 11, 30, 40, 50]
    assert all(len(keys[query]) == 1 for query in range(10, 20))


def test_lists_are_distinct_and_in_order():
    generator = torch.Generator().manual_seed(0)
    tokens = written_out(drawn(50, 30, generator=generator), generator=generator)
    assert tokens[:, :10].min() >= 30
    assert torch.equal(tokens[:, :10].sort().values, tokens[:, 11:])
    assert (tokens[:, 11:].diff() > 0).all()


def test_most_statements_are_false_of_random_weights(tmp_path):
    pack = make_pack(tmp_path, random_weights())
    found = {id: check.found(pack) for id, check in CHECKS.items()}
    true = [id for id, one in found.items() if CHECKS[id].rule.verdict(one) == "reproduced"]
    assert len(true) <= len(CHECKS) / 3


@pytest.mark.parametrize("id", ["so04", "so05", "so10"])
def test_copying_heads(copies, id):
    assert verdict(copies, id) == "reproduced"


def test_copying_what_is_attended_to_sorts(copies):
    seen = runs(copies)
    found = CHECKS["so01"].found(copies)
    # head 0.0 opposes what head 0.1 copies, so only the values that it copies or leaves alone come out right
    easy = torch.isin(seen.tokens[:, 11:], torch.tensor([*range(28, 38), 48, 49, 50])).double().mean()
    assert found.value == pytest.approx(float(easy), abs=0.1)


@pytest.mark.parametrize("id", ["so06", "so07"])
def test_where_heads_attend(copies, monkeypatch, id):
    seen = runs(copies)
    monkeypatch.setattr(sorted_list, "runs", lambda pack: seen)
    seen._kept[PATTERN] = smallest_larger(seen.tokens)[:, None].float().repeat(1, 2, 1, 1)
    assert verdict(copies, id) == "reproduced"
    seen._kept[PATTERN] = seen._kept[PATTERN].roll(1, -1)
    assert verdict(copies, id) == "not reproduced"


def test_attending_replaces_related_rows_only():
    related = torch.zeros(1, 3, 3, dtype=torch.bool)
    related[0, 2, :2] = True
    pattern = torch.full((1, 2, 3, 3), 1 / 3)
    found = sorted_list.attending(related)(pattern)
    assert found[0, 1, 2].tolist() == [0.5, 0.5, 0]
    assert torch.equal(found[:, :, :2], pattern[:, :, :2])


def test_head_that_matters_more(copies):
    more, less = (CHECKS[id].found(copies) for id in ("so02", "so03"))
    assert more.numbers["more than the other head"] == pytest.approx(-less.numbers["more than the other head"])
    assert more.value - less.value == pytest.approx(more.numbers["more than the other head"], abs=1e-5)


def test_gaps_and_high_lists_are_drawn_as_described(copies, monkeypatch):
    lists = []
    kept = sorted_list.on_lists

    def keep(pack, entries, *, generator):
        lists.append(entries)
        return kept(pack, entries, generator=generator)

    monkeypatch.setattr(sorted_list, "on_lists", keep)
    for id in ("so11", "so13", "so14"):
        CHECKS[id].measure(copies)
    runs_of_three, high, gaps = lists
    assert (runs_of_three[:, :3].diff() == 1).all()
    assert high.min() == 30
    assert (gaps[:, 1:].min(1).values - gaps[:, 0] >= 30).all()
    assert all(len(one.unique()) == 10 for entries in lists for one in entries)


def test_the_lower_of_two_neighbours(copies, monkeypatch):
    effect = torch.eye(51)
    monkeypatch.setattr(sorted_list, "copied", lambda pack, head: effect)
    found = CHECKS["so09"].found(copies)
    assert (found.value, found.numbers["the lower wins with 0.45 of the attention"]) == (0, 0)
    for offset, size in [(-2, 0.2), (-1, 0.4), (1, -0.2), (2, -0.1)]:
        effect = effect + torch.diag(torch.full((51 - abs(offset),), size), offset)
    found = CHECKS["so09"].found(copies)
    assert found.value == pytest.approx(0.1)
    assert found.numbers["the lower wins with 0.45 of the attention"] == 1


def test_scores_of_late_positions(copies, monkeypatch):
    late = torch.zeros(21, 51)
    late[16:20, 36:], late[:4, :6] = 1.0, 1.0
    first = torch.zeros(51, 51)
    first[36:, 0] = first[:36, 50] = 1
    monkeypatch.setattr(sorted_list, "scores", lambda pack, head, of="W_E": late if of == "W_pos" else first)
    found = CHECKS["so12"].found(copies)
    assert (found.value, found.numbers["late positions' preference for large keys"]) == (1, 1)


def test_without_the_direct_path_only_attention_speaks(tmp_path, monkeypatch):
    weights = copying()
    weights["blocks.0.attn.W_V"][:] = 0
    pack, seen = make_pack(tmp_path, weights), []
    kept = sorted_list.Runs.logits

    def logits(self, edits=None):
        seen.append(kept(self, edits))
        return seen[-1]

    monkeypatch.setattr(sorted_list.Runs, "logits", logits)
    sorted_list.measure_direct_path(pack)
    without, whole = seen
    assert without.std(0).max() < 1e-5
    assert whole.std(0).max() > 1e-2
