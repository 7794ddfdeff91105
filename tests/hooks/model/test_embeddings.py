"""Bracket embeddings: the table against the paper's equations, depths from tokens, no trained parameters."""

import json
import math
from itertools import product
from typing import get_args

import pytest
import torch
import torch.nn.functional as F

from hooks import BracketStates, Transformer, TransformerConfig, load_checkpoint, presets, save_checkpoint, verify
from hooks.model.embeddings import BracketEmbedding, Encoding, TokenEmbedding

ENCODINGS = get_args(Encoding)
LANGUAGES = [(1, 1), (1, 3), (2, 4), (3, 2)]
PAD, START, END, OPEN, CLOSE, OPEN_2, CLOSE_2 = range(7)


def states_of(encoding="pair", n_types=2, max_depth=4, **settings):
    return BracketStates(encoding=encoding, n_types=n_types, max_depth=max_depth, **settings)


def brackets(states):
    """Every (token, type, closes, depth after it) of a language."""
    for kind, closes, level in product(range(states.n_types), (0, 1), range(1, states.max_depth + 1)):
        yield states.first_bracket + 2 * kind + closes, kind, closes, level - closes


def written_out(encoding, kind, closes, depth, n_types, max_depth, first=3):
    """The non-zero coordinates of one bracket, after the paper; an opener at depth d and its closer have level d."""
    bracket, level = 2 * kind + closes, depth + 1 if closes else depth
    if encoding == "pair":  # Eq. 19
        return {first + bracket * max_depth + level - 1: 1.0}
    if encoding == "type_and_depth":  # Eq. 20
        return {first + bracket: 1.0, first + 2 * n_types + level - 1: 1.0}
    hypotenuse = math.hypot(depth, max_depth + 2 - depth)  # Eq. 21: tan of the angle is depth over this side
    cosine, sine = (max_depth + 2 - depth) / hypotenuse, depth / hypotenuse
    return {first + bracket: 1.0, first + 2 * n_types: cosine, first + 2 * n_types + 1: sine}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("n_types", "max_depth"), LANGUAGES)
@pytest.mark.parametrize("first", [1, 3])
def test_every_row_of_the_table_is_its_equation(encoding, n_types, max_depth, first):
    states = states_of(encoding, n_types, max_depth, first_bracket=first)
    d_model = states.width + 2
    table, expected = states.table(d_model), torch.zeros(states.d_vocab, max_depth + 1, d_model)
    for mark in range(first):
        expected[mark, :, mark] = 1
    for token, kind, closes, depth in brackets(states):
        for at, value in written_out(encoding, kind, closes, depth, n_types, max_depth, first).items():
            expected[token, depth, at] = value
    assert table.shape == (states.d_vocab * (max_depth + 1), d_model)
    for token, depth in product(range(states.d_vocab), range(max_depth + 1)):
        torch.testing.assert_close(table[states.row(token, depth)], expected[token, depth], atol=1e-6, rtol=0)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("n_types", "max_depth"), LANGUAGES)
def test_width_is_the_number_of_coordinates_in_use(encoding, n_types, max_depth):
    states = states_of(encoding, n_types, max_depth)
    used = states.table(states.width + 5).abs().sum(0) > 0
    assert used.tolist() == [True] * states.width + [False] * 5
    wide = {"pair": 3 + 2 * n_types * max_depth, "type_and_depth": 3 + 2 * n_types + max_depth}
    assert states.width == wide.get(encoding, 3 + 2 * n_types + 2)
    assert states.d_vocab == 3 + 2 * n_types


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_two_states_share_a_vector_and_impossible_ones_have_none(encoding):
    states = states_of(encoding)
    table = states.table(states.width)
    rows = {states.row(token, depth) for token, _, _, depth in brackets(states)}
    possible = [table[row] for row in rows] + [table[states.row(mark, 0)] for mark in range(3)]
    distances = torch.pdist(torch.stack(possible))
    assert len(possible) == 3 + 2 * 2 * 4
    assert distances.min() > 0.1
    for token, depth in product(range(3, states.d_vocab), range(5)):
        if states.row(token, depth) not in rows:
            assert (table[states.row(token, depth)] == 0).all()


def test_a_pair_has_one_depth_and_an_angle_is_of_the_depth_after_the_bracket():
    by_depth, by_angle = states_of("type_and_depth"), states_of("type_and_angle")
    for level in range(1, 5):
        opener, closer = (by_depth.row(token, depth) for token, depth in ((OPEN, level), (CLOSE, level - 1)))
        slots = by_depth.table(20)[:, by_depth.d_vocab : by_depth.d_vocab + 4]
        assert torch.equal(slots[opener], slots[closer])
        assert slots[opener].argmax() == level - 1
        angles = by_angle.table(20)[:, by_angle.d_vocab : by_angle.d_vocab + 2]
        for row, depth in ((opener, level), (closer, level - 1)):
            angle = math.atan2(float(angles[row, 1]), float(angles[row, 0]))
            assert angle == pytest.approx(math.atan(depth / (4 + 2 - depth)), abs=1e-6)
    assert math.atan2(*(float(x) for x in angles[by_angle.row(CLOSE_2, 0)].flip(0))) == 0


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_states_survive_json(encoding):
    cfg = presets.dyck_minimal(n_types=3, max_depth=2, encoding=encoding)
    again = TransformerConfig.from_json(cfg.to_json())
    assert again == cfg
    assert again.embedding == BracketStates(encoding=encoding, n_types=3, max_depth=2)
    assert hash(again) == hash(cfg)
    assert json.loads(cfg.to_json())["embedding"] == {
        "encoding": encoding, "n_types": 3, "max_depth": 2, "first_bracket": 3,
    }  # fmt: skip
    plain = presets.dyck_gpt(d_vocab=7)
    assert json.loads(plain.to_json())["embedding"] is None
    assert TransformerConfig.from_json(plain.to_json()) == plain
    older = {name: value for name, value in plain.to_dict().items() if name not in ("embedding", "output_projection")}
    assert TransformerConfig.from_dict(older) == plain


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"encoding": "onehot"}, "encoding is 'onehot'; choose one of pair, type_and_depth, type_and_angle"),
        ({"n_types": 0}, "n_types is 0; it must be at least 1"),
        ({"max_depth": 0}, "max_depth is 0; it must be at least 1"),
        ({"first_bracket": 0}, "first_bracket is 0; it must be at least 1"),
    ],
)
def test_states_of_no_language_are_refused(settings, words, as_a_user):
    with pytest.raises(ValueError, match=words):
        states_of(**settings)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"d_vocab": 8}, "d_vocab is 8; the embedding has 7 tokens"),
        ({"d_model": 18}, "d_model is 18; the embedding 'pair' needs 19 or more"),
        ({"encoding": "type_and_depth", "d_model": 10}, "the embedding 'type_and_depth' needs 11 or more"),
        ({"encoding": "type_and_angle", "d_model": 8}, "the embedding 'type_and_angle' needs 9 or more"),
        ({"d_head": 20}, "output_projection is off, but 1 heads of d_head 20 do not fill d_model 50"),
        ({"n_heads": 2, "d_head": 20}, "2 heads of d_head 20 do not fill d_model 50"),
    ],
)
def test_configs_that_an_embedding_does_not_fit_are_refused(sizes, words):
    with pytest.raises(ValueError, match=words):
        presets.dyck_minimal(**sizes)


def test_the_least_width_is_wide_enough():
    for encoding in ENCODINGS:
        width = states_of(encoding).width
        model = Transformer(presets.dyck_minimal(encoding=encoding, d_model=width))
        assert model(torch.tensor([[START, OPEN, CLOSE]])).shape == (1, 3, 7)
    assert presets.dyck_minimal(n_types=3, max_depth=8).d_model == 3 + 48 + 1  # no longer 50
    assert presets.dyck_minimal(d_head=20, output_projection=True).d_head == 20


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_depth_is_counted_from_the_tokens_and_unchanged_by_marks(encoding):
    states = states_of(encoding)
    embedding, table = BracketEmbedding(states, 25), states.table(25)
    rows = [
        [START, OPEN, OPEN_2, OPEN_2, CLOSE_2, CLOSE_2, OPEN, CLOSE, CLOSE, END, PAD, PAD],
        [PAD, PAD, START, OPEN_2, CLOSE_2, OPEN, OPEN, OPEN, OPEN, CLOSE, PAD, END],
        [OPEN, START, CLOSE, END, OPEN, PAD, OPEN_2, START, START, CLOSE_2, CLOSE, PAD],
    ]
    found = embedding(torch.tensor(rows))
    for row, vectors in zip(rows, found, strict=True):
        open_now = 0
        for token, vector in zip(row, vectors, strict=True):
            open_now += {OPEN: 1, OPEN_2: 1, CLOSE: -1, CLOSE_2: -1}.get(token, 0)
            assert torch.equal(vector, table[states.row(token, open_now)])
            assert vector.any()
    assert embedding(torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0, 25)


def test_an_earlier_bracket_matters_only_through_the_depth():
    embedding = BracketEmbedding(states_of(), 25)
    one, other = (embedding(torch.tensor([row]))[0, -1] for row in ([START, OPEN, OPEN_2], [START, OPEN_2, OPEN_2]))
    deeper = embedding(torch.tensor([[OPEN, OPEN, OPEN_2]]))[0, -1]
    assert torch.equal(one, other)
    assert not torch.equal(one, deeper)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([START, OPEN, CLOSE, CLOSE_2], "tokens go from depth -1 to 1; a minimal first layer has depths 0 to 4"),
        ([START] + [OPEN] * 5, r"tokens go from depth 0 to 5; .* Is every row a prefix of a word of the language\?"),
        ([CLOSE] + [OPEN] * 4, "tokens go from depth -1 to 3"),
    ],
)
def test_depths_that_the_language_does_not_have_are_refused(row, words):
    model = Transformer(presets.dyck_minimal())
    good = torch.tensor([[START, OPEN] + [CLOSE, OPEN] * 10])[:, : len(row)]
    model(good)
    with pytest.raises(ValueError, match=words):
        model(torch.cat([good, torch.tensor([row])]))


@pytest.mark.parametrize("token", [7, 12, -1])
def test_tokens_of_another_language_are_refused(token):
    with pytest.raises(ValueError, match=r"^tokens "):
        Transformer(presets.dyck_minimal())(torch.tensor([[START, token]]))


@pytest.mark.parametrize("token", [7, 12])
def test_the_error_about_tokens_of_another_language_tells_the_tokens(token):
    words = f"tokens holds ids from 1 to {token}; d_vocab of this model is 7"
    with pytest.raises(ValueError, match=words):
        Transformer(presets.dyck_minimal())(torch.tensor([[START, token]]))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_table_is_neither_trained_nor_saved(encoding, tmp_path):
    model = Transformer(presets.dyck_minimal(encoding=encoding))
    assert isinstance(model.embed, BracketEmbedding)
    assert not any(name.startswith("embed") for name, _ in model.named_parameters())
    assert not any(name.startswith("embed") for name in model.state_dict())
    assert not model.W_E.requires_grad
    before = model.W_E.clone()
    tokens = model.embed.example(8, 6, torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
    assert torch.equal(model.W_E, before)
    assert torch.equal(before, states_of(encoding).table(model.cfg.d_model))
    for dtype in (torch.float32, torch.float64):
        save_checkpoint(model.to(dtype), tmp_path / "model")
        loaded = load_checkpoint(tmp_path / "model", cfg=model.cfg)
        assert torch.equal(loaded.W_E, before.to(dtype))
        assert torch.equal(loaded(tokens), model(tokens))


def test_the_seed_does_not_decide_the_table():
    one, other = (Transformer(presets.dyck_minimal(), seed=seed) for seed in (0, 1))
    assert torch.equal(one.W_E, other.W_E)
    assert not torch.equal(one.W_U, other.W_U)


@pytest.mark.parametrize(
    "cfg",
    [
        *(presets.dyck_minimal(encoding=encoding, n_ctx=9) for encoding in ENCODINGS),
        presets.dyck_minimal(mlp_head=True, n_heads=2, n_ctx=9),
        presets.dyck_minimal(n_types=1, max_depth=1, n_ctx=9),
        presets.dyck_minimal(block="dyck", mlp_head=True, output_projection=True, attn_bias=True, n_ctx=9),
        *(
            preset(d_vocab=7, d_model=12, d_mlp=10, n_ctx=9, n_heads=heads)
            for preset in (presets.dyck_gpt, presets.dyck_eq6, presets.dyck_uniform)
            for heads in (1, 2)
        ),
        presets.dyck_gpt(d_vocab=7, d_model=12, n_ctx=9, positions="linear"),
    ],
    ids=str,
)
def test_every_hook_point_acts(cfg):
    report = verify(Transformer(cfg))
    assert report.ok, str(report)


@pytest.mark.parametrize("pos", [1, 6, 7])
def test_examples_are_tokens_that_the_model_reads(pos):
    states = states_of(n_types=3, max_depth=1)
    embedding = BracketEmbedding(states, states.width)
    tokens = embedding.example(40, pos, torch.Generator().manual_seed(0))
    assert tokens.shape == (40, pos)
    assert embedding(tokens).shape == (40, pos, states.width)
    assert set(tokens[:, 0].tolist()) == {3, 5, 7}  # (2/3)^40 to miss a type: one in ten million
    assert torch.equal(tokens[:, 1::2], tokens[:, : pos - 1 : 2] + 1)
    learned = TokenEmbedding(5, 2).example(40, pos, torch.Generator().manual_seed(0))
    assert learned.shape == (40, pos)
    assert set(learned.flatten().tolist()) == set(range(5))
