"""Checks of the palindrome classifier, on random weights and where the statements are true by construction."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from published_readings import palindrome_parts as parts
from published_readings.measures import per_example
from published_readings.packs import read_pack
from published_readings.palindrome import CHECKS, KINDS, OF_PALINDROMES
from published_readings.palindrome_parts import LAST, QUERY, SECOND, SEEN
from published_readings.runs import Runs, runs

CONFIG = {
    "d_model": 28, "n_heads": 2, "n_layers": 2, "d_head": 14, "d_mlp": None, "attn_only": True, "act_fn": None,
    "normalization_type": "LN", "eps": 1e-5, "attention_dir": "causal", "attn_scale": 14**0.5, "n_ctx": 22,
    "d_vocab": 33, "d_vocab_out": 2, "key_padding_token": None,
}  # fmt: skip
SHAPES = {"W_Q": (2, 28, 14), "W_K": (2, 28, 14), "W_V": (2, 28, 14), "W_O": (2, 14, 28)}
BIASES = {"b_Q": (2, 14), "b_K": (2, 14), "b_V": (2, 14), "b_O": (28,)}
LAYER_0, LAYER_1 = "blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"


def random_weights(seed):
    draw = np.random.default_rng(seed)
    shapes = {"W_E": (33, 28), "W_pos": (22, 28), "W_U": (28, 2)}
    shapes |= {f"blocks.{layer}.attn.{name}": shape for layer in (0, 1) for name, shape in SHAPES.items()}
    found = {name: draw.normal(0, 28**-0.5, shape) for name, shape in shapes.items()} | {"b_U": np.zeros(2)}
    found |= {f"blocks.{layer}.attn.{name}": np.zeros(shape) for layer in (0, 1) for name, shape in BIASES.items()}
    for norm in ("blocks.0.ln1", "blocks.1.ln1", "ln_final"):
        found |= {f"{norm}.w": np.ones(28), f"{norm}.b": np.zeros(28)}
    return {name: one.astype(np.float32) for name, one in found.items()}


def make_pack(folder, weights=None, tokens=None, seed=0):
    tokens = parts.inputs(400, generator=torch.Generator().manual_seed(seed)) if tokens is None else tokens
    targets = (tokens == tokens.flip(1))[:, 1:-1].all(1).int()[:, None]
    inputs = {"tokens": tokens, "targets": targets, "target_positions": torch.tensor([QUERY])}
    arrays = {name: one.numpy().astype(np.int16) for name, one in inputs.items()}
    about = {"name": "palindrome", "task": "Palindromes.", "config": CONFIG, "examples": {"arrays": list(inputs)}}
    (folder / "palindrome.json").write_text(json.dumps({**about, "readings": []}))
    np.savez(folder / "palindrome.npz", **{**random_weights(seed), **(weights or {}), **arrays})
    return read_pack(folder / "palindrome.json")


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(parts, "N", 100)
    monkeypatch.setattr(parts, "FURTHER", 200)
    monkeypatch.setattr(parts, "RESAMPLES", 50)


@pytest.fixture
def pack(tmp_path):
    return make_pack(tmp_path)


def verdict(pack, id):
    found = CHECKS[id].found(pack)
    return CHECKS[id].rule.verdict(found), found.numbers


def is_true(pack, id):
    found, numbers = verdict(pack, id)
    assert found == "reproduced", (id, numbers)


def plant(seen, name, head, keys):
    """Give a head the pattern that a relation (example, query, key) describes, nearly all its attention."""
    pattern = seen.activation(name).clone()
    wanted = keys.double() + 1e-3 * torch.ones(22, 22).tril()
    pattern[:, head] = (wanted / wanted.sum(-1, keepdim=True)).to(pattern)
    seen._kept[name] = pattern


def test_there_is_a_check_for_every_statement():
    assert list(CHECKS) == [f"pa{at:02}" for at in range(1, 22)]
    assert all(not one.method.endswith((".", ":")) and one.statement.endswith(".") for one in CHECKS.values())


@pytest.mark.parametrize("seed", [0, 1])
def test_few_statements_are_true_of_random_weights(tmp_path, seed):
    pack = make_pack(tmp_path, seed=seed)
    found = {id: one.found(pack) for id, one in CHECKS.items()}
    true = [id for id, one in CHECKS.items() if one.rule.verdict(found[id]) == "reproduced"]
    assert len(true) <= len(CHECKS) // 3, true
    for id, one in CHECKS.items():
        if one.value_range is not None:
            assert one.value_range[0] <= found[id].value <= one.value_range[1], id


def test_relations_of_a_short_sequence():
    """Start, 5 6 7 | 7 9 5, end: only the pair 6 and 9 differs."""
    tokens = torch.tensor([[31, 5, 6, 7, 7, 9, 5, 32]])
    assert parts.matches(tokens).tolist() == [[True, False, True]]
    found = {name: [tuple(one) for one in relation(tokens)[0].nonzero().tolist()] for name, relation in KINDS.items()}
    assert found == {
        "mirror": [(4, 3), (5, 2), (6, 1)],
        "equal mirror else self": [(4, 3), (5, 5), (6, 1)],
        "mismatch": [(7, 5)],
        "last mismatch": [],
        "ends": [(6, 1), (6, 6)],
    }
    tokens[0, 6] = 4
    assert parts.last_mismatch(tokens)[0].nonzero().tolist() == [[7, 6]]
    assert parts.ends(tokens)[0].nonzero().tolist() == [[6, 1]]


def test_new_sequences():
    generator = torch.Generator().manual_seed(0)
    equal = parts.palindromes(200, generator=generator)
    assert equal.shape == (200, 22)
    assert (equal[:, 0] == 31).all()
    assert (equal[:, 21] == 32).all()
    assert parts.matches(equal).all()
    assert len(equal[:, 1:-1].unique()) == 31
    other = parts.changed(equal, [17, LAST], generator=generator)
    differ = ~parts.matches(other)
    assert differ.sum(0).tolist() == [200 * (at in (17, LAST)) for at in SECOND]
    assert (equal != other).sum() == 400
    assert other.max() == 32


def test_pairs_differ_at_one_position(pack):
    equal, copies = parts.of_pairs(parts.pairs(pack).tokens)
    for at, copy in zip(SECOND, copies, strict=True):
        assert (copy != equal).nonzero()[:, 1].tolist() == [at] * parts.N
    change = parts.written_change(pack)
    assert change.shape == (10, parts.N, 28)
    assert change.sum(-1).abs().max() < 1e-5
    assert change.abs().amax((1, 2)).min() > 0


def test_statistics():
    values = torch.tensor([[1.0, 3.0, 9.0], [2.0, 4.0, 6.0], [5.0, 5.0, 5.0]])
    at = torch.tensor([[True, True, False], [False, False, False], [False, False, True]])
    assert per_example(values, at).tolist() == [2, 5]
    scores = torch.tensor([1.0, 2.0, 6.0, -torch.inf])
    assert parts.preference(scores, [2]) == 4.5
    drawn = torch.randn(parts.N, generator=torch.Generator().manual_seed(0))
    found = OF_PALINDROMES.measurement(parts.resampled(lambda rows: float(drawn[rows].mean())), seed=0)
    assert found.value == pytest.approx(float(drawn.mean()))
    half = 1.96 * float(drawn.std()) / parts.N**0.5
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.35)
    assert found.low < found.value < found.high
    assert OF_PALINDROMES.measurement(parts.resampled(lambda rows: 1.0), seed=0).low < 1


def test_statements_about_attention_that_is_planted(pack):
    """Head 0.0 and its pairs, 0.1, 1.0 and 1.1 attend where the authors say."""
    seen, pairs = runs(pack), parts.pairs(pack)
    for one in (seen, pairs):
        plant(one, LAYER_0, 0, parts.mirror_or_self(one.tokens))
        ends = parts.ends(one.tokens)
        ends[:, 18, 3] = ~parts.matches(one.tokens)[:, SECOND.index(18)]
        plant(one, LAYER_0, 1, ends)
    found = parts.mismatches(seen.tokens)
    found[:, :, [17, 19, 20]] = False
    plant(seen, LAYER_1, 0, found)
    for id in ("pa02", "pa12"):
        is_true(pack, id)
    assert verdict(pack, "pa04")[0] == "not reproduced"
    plant(seen, LAYER_1, 1, parts.last_mismatch(seen.tokens))
    is_true(pack, "pa04")
    is_true(pack, "pa16")
    plant(seen, LAYER_1, 0, parts.mismatches(seen.tokens))
    is_true(pack, "pa03")
    assert verdict(pack, "pa16")[0] == "not reproduced"
    rest = torch.zeros(len(seen.tokens), 22, 22)
    rest[range(len(rest)), QUERY, torch.arange(len(rest)) % 8 + 1] = 1
    plant(seen, LAYER_1, 0, rest)
    is_true(pack, "pa05")
    rest[:, QUERY], rest[:, QUERY, 0] = 0, 1
    plant(seen, LAYER_1, 0, rest)
    found = verdict(pack, "pa05")
    assert found[0] == "not reproduced"
    assert found[1]["attention to the start token"] > 0.9


def test_attention_moves_as_much_as_reported(pack):
    pairs = parts.pairs(pack)
    both = (1 - 0.544) * parts.mirror(pairs.tokens).double() + 0.3 * torch.eye(22)
    pattern = pairs.activation(LAYER_0).clone()
    equal, copies = parts.of_pairs(pattern)
    for place, at in enumerate(SECOND):
        equal[:, 0, at] = both[0, at]
        copies[place, :, 0, at] = both[0, at]
        copies[place, :, 0, at, at] += 0.373
        copies[place, :, 0, at, QUERY - at] -= 0.544
    pairs._kept[LAYER_0] = pattern
    found = CHECKS["pa17"].found(pack)
    assert found.value == pytest.approx(0.373, abs=1e-5)
    assert found.numbers["attention off the mirror"] == pytest.approx(0.544, abs=1e-5)
    is_true(pack, "pa17")


def unit(n, draw):
    """Vectors of seven coordinates whose sum is 0, of length 1."""
    found = draw.normal(size=(n, 7))
    found -= found.mean(1, keepdims=True)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def test_statements_about_embeddings_that_are_planted(tmp_path, pack):
    """Numbers and positions have separate coordinates; the second half has shorter vectors of its mirror image."""
    draw = np.random.default_rng(0)
    numbers, positions = np.zeros((33, 28)), np.zeros((22, 28))
    numbers[:31, :7] = unit(31, draw)
    first = unit(11, draw)
    first[2:] -= first[2:] @ first[1][:, None] * first[1]
    first[2:] /= np.linalg.norm(first[2:], axis=1, keepdims=True)
    positions[1:11, 7:14] = first[1:]
    for at in SECOND:
        positions[at] = positions[QUERY - at] * (0.3 if at == 18 else 0.5)
    read = np.eye(28, 14)
    queries = np.stack([read, np.concatenate([-read[:7], read[7:]])])
    name = "blocks.0.attn.W_"
    planted = {"W_E": numbers, "W_pos": positions, f"{name}K": np.stack([read, read]), f"{name}Q": queries}
    found = make_pack(tmp_path, {one: array.astype(np.float32) for one, array in planted.items()})
    is_true(found, "pa13")
    is_true(found, "pa14")
    swapped = {**planted, f"{name}Q": queries[::-1]}
    found = make_pack(tmp_path, {one: array.astype(np.float32) for one, array in swapped.items()})
    assert [verdict(found, id)[0] for id in ("pa13", "pa14")] == ["not reproduced"] * 2


def composed(pack, positions, head, push):
    """Head 0.0 writes one direction at these positions on a mismatch; the end token's query in a head of layer 1 is its
    key; the unembedding is scaled so that its values push by so much at the first of them."""

    def planted(pack):
        seen, name = parts.pairs(pack), "blocks.0.attn.hook_z"
        z = torch.zeros_like(seen.activation(name))
        _, copies = parts.of_pairs(z)
        for at in positions:
            copies[SECOND.index(at), :, at, 0, 0] = 1
        seen._kept[name] = z
        written = pack.weight("blocks.0.attn.W_O")[0, 0]
        query = seen.activation("blocks.1.attn.hook_q").clone()
        query[:, QUERY, head] = (written - written.mean()) @ pack.weight("blocks.1.attn.W_K")[head]
        seen._kept["blocks.1.attn.hook_q"] = query
        return pack

    now = parts.value_pushes(planted(replace(pack)), head)[SECOND.index(positions[0])].mean()
    weights = {**pack.weights, "W_U": pack.weights["W_U"] * (push / float(now))}
    return planted(replace(pack, weights=weights))


def test_statements_about_composition_that_are_planted(pack):
    found = composed(pack, SEEN, 0, 9.0)
    for id in ("pa18", "pa19", "pa21"):
        is_true(found, id)
    assert verdict(composed(pack, SEEN, 0, -9.0), "pa19")[0] == "not reproduced"
    assert verdict(composed(pack, SECOND, 0, 9.0), "pa18")[0] == "not reproduced"
    is_true(composed(pack, [LAST], 1, 5.0), "pa20")
    assert verdict(composed(pack, [LAST, 17], 1, 5.0), "pa20")[0] == "not reproduced"


def test_a_head_that_writes_nothing_is_not_needed(tmp_path):
    w_o = random_weights(0)["blocks.1.attn.W_O"]
    w_o[1] = 0
    found = make_pack(tmp_path, {"blocks.1.attn.W_O": w_o})
    assert CHECKS["pa09"].found(found).value == 0
    is_true(found, "pa09")
    assert CHECKS["pa11"].found(found).value == 0
    assert verdict(found, "pa07")[0] == "not reproduced"


def test_a_head_that_carries_the_answer_is_needed(pack, monkeypatch):
    """With logits that depend on whether head 1.0 is intact."""
    seen = runs(pack)
    right = torch.where(seen.targets == 1, torch.tensor([[-4.0, 4.0]]), torch.tensor([[4.0, -4.0]]))[:, None]
    monkeypatch.setattr(type(seen), "logits", lambda self, edits=None: right * (0.1 if edits else 1))
    is_true(pack, "pa07")
    assert CHECKS["pa07"].found(pack).value == pytest.approx(7.2)
    assert verdict(pack, "pa09")[0] == "not reproduced"


def test_only_unseen_positions_called_palindromes(pack, monkeypatch):
    def called(self, edits=None):
        differ = ~parts.matches(self.tokens)
        differ[:, [SECOND.index(at) for at in (17, 19)]] = False
        return torch.stack([differ.any(1).float(), 0.5 * torch.ones(len(differ))], -1)[:, None]

    monkeypatch.setattr(parts.Runs, "logits", called)
    is_true(pack, "pa15")
    monkeypatch.setattr(parts.Runs, "logits", lambda self, edits=None: torch.tensor([[[0.0, 1.0]]] * len(self.tokens)))
    assert verdict(pack, "pa15")[0] == "not reproduced"


def test_where_every_sequence_is_the_mean_the_kept_parts_are_all(tmp_path):
    tokens = parts.inputs(2, generator=torch.Generator().manual_seed(0))[1:].repeat(8, 1)
    found = make_pack(tmp_path, tokens=tokens)
    clean = runs(found).logits()
    for patched in (True, False):
        assert torch.allclose(parts.kept_alone(found, tokens, patched=patched), clean, atol=1e-4)


def test_kept_parts_pass_nothing_else(tmp_path):
    """Logits are the same for all sequences if heads 0.0 and 0.1 write nothing, and differ if 0.0 writes."""
    w_o = random_weights(0)["blocks.0.attn.W_O"]
    w_o[1] = 0
    found = make_pack(tmp_path, {"blocks.0.attn.W_O": w_o})
    tokens = found.task.inputs[-20:]
    assert parts.kept_alone(found, tokens).std(0).min() > 1e-4
    w_o[0] = 0
    found = make_pack(tmp_path, {"blocks.0.attn.W_O": w_o})
    assert runs(found).logits().std(0).min() > 1e-4
    assert parts.kept_alone(found, tokens).std(0).max() < 1e-5


def test_head_0_1_is_kept_unless_the_algorithm_is_unpatched(tmp_path):
    """Without head 0.0, what is kept is what head 0.1 writes at position 20."""
    w_o = random_weights(0)["blocks.0.attn.W_O"]
    w_o[0] = 0
    found = make_pack(tmp_path, {"blocks.0.attn.W_O": w_o})
    tokens = found.task.inputs[-20:]
    first, both = parts.kept_alone(found, tokens, patched=False), parts.kept_alone(found, tokens)
    assert first.std(0).max() < 1e-5
    assert both.std(0).min() > 1e-5


def test_held_changes_one_head_at_some_positions():
    found = parts.held(1, [0, 2], torch.ones(3, 2, 4))(torch.zeros(5, 3, 2, 4))
    assert found.sum((0, 3)).tolist() == [[0, 20], [0, 0], [0, 20]]


@pytest.mark.parametrize(("id", "part"), [("pa10", "blocks.0.attn.hook_z"), ("pa11", "blocks.1.attn.hook_v")])
@pytest.mark.parametrize(("positions", "expected"), [((LAST,), "reproduced"), ((LAST, 5), "not reproduced")])
def test_a_head_that_is_needed_at_the_last_position_only(pack, monkeypatch, id, part, positions, expected):
    """With logits that are wrong if the head has its mean at any of these positions, on sequences of their own."""

    def planted(self, edits=None):
        right = torch.where(self.targets == 1, torch.tensor([[-4.0, 4.0]]), torch.tensor([[4.0, -4.0]]))[:, None]
        if not edits:
            return right
        replaced = edits[part](torch.full((200, 22, 2, 14), torch.inf)).isfinite()[:, :, 1].all(-1).all(0)
        return right * (-1 if any(replaced[position] for position in positions) else 1)

    monkeypatch.setattr(Runs, "logits", planted)
    found = CHECKS[id].found(pack)
    assert found.n == 200
    assert CHECKS[id].rule.verdict(found) == expected


def test_further_inputs_are_those_of_the_task(pack, monkeypatch):
    monkeypatch.setattr(parts, "FURTHER", 4000)
    sequences = parts.further_inputs(pack)
    equal = parts.matches(sequences.tokens)
    assert equal[:2000].all()
    assert sequences.targets is not None
    assert torch.equal(sequences.targets[:, 0], equal.all(1).long())
    share = 0.5 + 0.5 / parts.NUMBERS
    assert abs(float(equal[2000:].double().mean()) - share) < 5 * (share * (1 - share) / 20_000) ** 0.5
