"""Scores as sums over pairs: an induction head, positions only, hooks on the scores, every block, errors."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from families import MODELS, model_of
from packs import write_pack
from resting import resting_head
from rounding import assert_equal_up_to_rounding

import interp
from hooks import HeadPattern, Transformer
from hooks.interventions.head_reading import HeadReading
from interp.core.activations import TOKENS_PER_CHUNK
from interp.core.inputs import inputs_or_sample
from interp.core.randomness import derived_generator
from interp.heads import AttentionExplanation
from interp.heads.explain_attention import EXPLAINED, MOST_PAIRS, ScoreParts, _ranked
from interp.known_answers import known_answer, read_compiled
from interp.known_answers.lego.loop import lego_loop
from interp.tasks import Lego
from interp.tasks.base import logits_at_targets

TASK = Lego(n_vars=2, sentence_format="compact")
N = 24
ADDS = ("pre_ln", "causal", "no_norm", "a I", "a I and b I", "tied", "attention_only")


def random_model(family, task=TASK):
    """A model with random weights, gains and biases, two layers, for the sizes of a task."""
    sizes = {"d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out, "n_layers": 2, "tied_embedding": False}
    return model_of(replace(MODELS[family], **sizes)).eval()


@pytest.fixture(scope="module")
def model():
    return random_model("pre_ln")


@pytest.fixture(scope="module")
def batch():
    return inputs_or_sample(TASK, N, generator=derived_generator(0, "explain attention"))


@pytest.fixture(scope="module")
def result(model):
    return interp.explain_attention(model, TASK, (1, 1), n=N, n_pairs=3)


@pytest.mark.parametrize("family", ADDS)
def test_pairs_sum_to_the_scores(family, batch):
    """Of every pair, computed one by one, biases included."""
    model = random_model(family)
    _, cache = model.run_with_cache(batch.tokens)
    for head in (0, 1):
        parts = ScoreParts.of(HeadReading.of(model, (1, head)), batch)
        total = sum(q @ k.mT for q in parts.queries for k in parts.keys)
        scores = cache["blocks.1.attn.hook_attn_scores"][:, head]
        visible = scores.isfinite()
        assert parts.visible.sum() == visible.sum()
        assert_equal_up_to_rounding(total[visible], scores[visible], terms=model.cfg.d_mlp or model.cfg.d_model)
        assert parts.names[:2] == ["tokens", "positions"]
        assert parts.names[-1] == "biases"
    result = interp.explain_attention(model, TASK, (1, 0), n=N)
    assert result.remainder < 1e-5
    assert result.share.value.sum() == pytest.approx(1, abs=1e-5)


def test_an_induction_head_matches_the_token_before_the_key():
    """By construction: what the head of layer 0 wrote into the keys, times the tokens of the queries."""
    answer = known_answer("recall induction", seed=0)
    heads = [place for place, truth in answer.heads.items() if truth.truth == "faithful"]
    (before,) = [place for place in heads if place[0] == 0]
    (induction,) = [place for place in heads if place[0] == 1]
    result = interp.explain_attention(answer.model, answer.task, induction, n=64)
    assert result.removals[0] == f"{before[0]}.{before[1]} of keys x tokens of queries"
    assert result.drop[0].max() > 0.2
    assert f"Head {induction[0]}.{induction[1]} attends by what {before[0]}.{before[1]} wrote into the keys" in str(
        result
    )


def test_a_head_that_reads_positions_only_is_explained_by_them_in_any_sequence():
    task = Lego(n_vars=2)
    result = interp.explain_attention(lego_loop(task), task, (0, 1), n=32, n_pairs=1)
    assert result.removals[0] == "positions of keys x positions of queries"
    cell = result.parts.index("positions"), result.parts.index("positions")
    assert result.share[cell].value == pytest.approx(1, abs=1e-6)
    assert result.control[cell] == pytest.approx(1, abs=1e-6)
    # All of it is this pair: without it attention is even, without all others nothing moves
    assert result.pattern_change[0].value == pytest.approx(float(result.pattern_change[2].value))
    assert result.pattern_change[1].value == pytest.approx(0, abs=1e-6)


RESTING = [
    # Known answer, seed, strength as a multiple of a match, what prefers the position, the position
    ("recall induction", 0, 0.5, "bias", 0),
    ("recall induction", 1, 0.9, "bias", 0),
    ("recall induction", 2, 0.9, "bias", 1),
    ("recall induction", 3, 4, "positions", 0),
    ("recall induction", 4, 20, "positions", 0),
    ("recall induction with decoys", 5, 4, "positions", 0),
    ("recall induction with decoys", 6, 100, "positions", 1),
    ("in-context lookup", 0, 0.4, "bias", 0),
    ("in-context lookup", 1, 4, "positions", 0),
    ("in-context lookup", 2, 20, "positions", 1),
]


DEFAULT = (1, 3, 7)
RESTING = [
    case if index in DEFAULT else pytest.param(*case, marks=pytest.mark.slow) for index, case in enumerate(RESTING)
]


@pytest.mark.parametrize(("name", "seed", "strength", "by", "position"), RESTING)
def test_the_pair_that_carries_the_answers_is_listed_beside_a_resting_place(name, seed, strength, by, position):
    planted = resting_head(name, seed=seed, strength=strength, by=by, position=position)
    result = interp.explain_attention(planted.answer.model, planted.answer.task, planted.head, n=48)
    assert planted.pair in result.removals[:2]
    rank = result.removals.index(planted.pair)
    assert result.drop.low[rank].max() > 0
    # The resting place is listed too, is the same for any sequence, and nothing else is missing
    (rest,) = {0, 1} - {rank}
    cell = result.pairs[rest]
    assert result.control[cell] == pytest.approx(float(result.share.value[cell]), abs=1e-6)
    assert result.explained.value[-1] >= EXPLAINED
    assert (result.drop.low[-2] <= 0).all()


def test_a_resting_place_alone_would_explain_the_variance_and_none_of_the_answers():
    """That there was something to miss: the first pair is enough by the variance, and all others cost the answers."""
    planted = resting_head("recall induction", seed=3, strength=4, by="positions")
    result = interp.explain_attention(planted.answer.model, planted.answer.task, planted.head, n=48, n_pairs=1)
    assert result.removals[0] == "positions of keys x positions of queries"
    assert result.explained.value[0] >= EXPLAINED
    assert result.drop.value[0].max() == 0
    assert result.drop.low[1].max() > 0


@pytest.mark.slow
def test_a_head_with_two_pairs_that_carry_answers_has_both_listed():
    """Names are preferred to other tokens, and the repeated name is avoided; a resting place is stronger than both."""
    planted = resting_head("indirect object by name", seed=1, strength=20, by="positions")
    result = interp.explain_attention(planted.answer.model, planted.answer.task, planted.head, n=48)
    costly = [name for name, low in zip(result.removals[:-2], result.drop.low, strict=False) if low.max() > 0]
    assert set(costly) == {planted.pair, "tokens of keys x biases of queries"}
    assert costly[0] in result.removals[:2]


def test_where_sequences_make_no_difference_pairs_are_listed_by_their_shares():
    """By construction: the control of every pair is its share, and no pair that reads tokens is listed."""
    task = Lego(n_vars=2)
    result = interp.explain_attention(lego_loop(task), task, (0, 1), n=32)
    np.testing.assert_allclose(result.control, result.share.value, atol=1e-6)
    sizes = [abs(float(result.share.value[pair])) for pair in result.pairs]
    assert sizes == sorted(sizes, reverse=True)
    assert not any("tokens" in name for name in result.removals)


def test_pairs_take_turns_by_share_and_by_share_beyond_the_control():
    share = np.array([[0.6, 0.2], [0.05, -0.15]])
    assert _ranked(share, share) == [(0, 0), (0, 1), (1, 1), (1, 0)]
    control = np.array([[0.6, 0.2], [0.0, 0.0]])
    assert _ranked(share, control) == [(0, 0), (1, 1), (0, 1), (1, 0)]
    rounding = share + 1e-9 * np.array([[0, 1], [2, 3]])
    assert _ranked(share, rounding) == _ranked(share, share)


@torch.no_grad()
def test_the_control_is_that_of_the_next_sequence_of_all(model):
    """Independent of chunks: 256 of these sequences are run at a time."""
    n = TOKENS_PER_CHUNK // 6 + 1
    sequences = inputs_or_sample(TASK, n, generator=derived_generator(0, "explain attention"))
    assert sequences.tokens.shape == (257, 6)
    result = interp.explain_attention(model, TASK, (1, 1), n=n, n_pairs=1)
    parts = ScoreParts.of(HeadReading.of(model, (1, 1)), sequences)
    scores = parts.scores - parts.scores.mean(-1, keepdim=True)
    expected = np.zeros_like(result.control)
    for row in range(n):
        contributions = parts.queries[:, None, row] @ parts.keys[None, :, row].mT
        expected += (contributions * scores[(row + 1) % n]).sum((2, 3)).numpy()
    np.testing.assert_allclose(result.control, expected / float(scores.square().sum()), atol=1e-9)
    assert np.abs(result.control - result.share.value).max() > 0.01


@pytest.mark.parametrize("tokens_per_chunk", [pytest.param(1, marks=pytest.mark.slow), 42])
def test_nothing_depends_on_how_many_sequences_are_run_at_a_time(model, result, monkeypatch, tokens_per_chunk):
    """One of six tokens at a time, or seven."""
    monkeypatch.setattr("interp.heads.explain_attention.TOKENS_PER_CHUNK", tokens_per_chunk)
    chunked = interp.explain_attention(model, TASK, (1, 1), n=N, n_pairs=3)
    assert (chunked.pairs, chunked.removals) == (result.pairs, result.removals)
    np.testing.assert_array_equal(chunked.drop.value, result.drop.value)
    for name in ("share", "control", "explained", "pattern_change", "remainder"):
        np.testing.assert_allclose(np.asarray(getattr(chunked, name)), np.asarray(getattr(result, name)), atol=1e-6)


@torch.no_grad()
def test_shares_and_removals_against_hooks_on_the_scores(model, batch, result):
    parts = ScoreParts.of(HeadReading.of(model, (1, 1)), batch)
    (query, key) = result.pairs[0]
    contribution = parts.queries[query] @ parts.keys[key].mT
    _, cache = model.run_with_cache(batch.tokens)
    scores = cache["blocks.1.attn.hook_attn_scores"][:, 1].double()
    # Share: covariance over keys, of all queries together
    ours = (contribution - contribution.mean(-1, keepdim=True)).flatten()
    theirs = (scores - scores.mean(-1, keepdim=True)).flatten()
    share = float((ours * theirs).sum() / theirs.square().sum())
    assert float(result.share.value[query, key]) == pytest.approx(share, abs=1e-5)
    assert abs(share) == pytest.approx(np.abs(result.share.value).max())
    # Removal: subtract what the pair adds to the scores
    patterns = {}

    def subtract(activation, hook):
        edited = activation.clone()
        edited[:, 1] -= contribution.to(activation)
        return edited

    def store(activation, hook):
        patterns["new"] = activation[:, 1]

    logits = model.run_with_hooks(
        batch.tokens,
        fwd_hooks=[("blocks.1.attn.hook_attn_scores", subtract), ("blocks.1.attn.hook_pattern", store)],
    )
    moved = (patterns["new"] - cache["blocks.1.attn.hook_pattern"][:, 1]).abs().sum(-1).mean() / 2
    assert float(result.pattern_change.value[0]) == pytest.approx(float(moved), abs=1e-5)
    clean = TASK.score(logits_at_targets(model(batch.tokens), batch), batch)
    score = TASK.score(logits_at_targets(logits, batch), batch)
    np.testing.assert_allclose(result.drop.value[0], (clean.right - score.right).mean(0), atol=1e-6)


def test_listed_pairs_explain_what_their_sum_leaves(model, batch):
    """One minus the variance of the remainder, of the first pair, the first two and so on."""
    result = interp.explain_attention(model, TASK, (1, 1), n=N, n_pairs=4)
    parts = ScoreParts.of(HeadReading.of(model, (1, 1)), batch)
    scores = parts.scores - parts.scores.mean(-1, keepdim=True)
    sums, expected = torch.zeros_like(scores), []
    for query, key in result.pairs:
        pair = parts.queries[query] @ parts.keys[key].mT
        sums += pair - pair.mean(-1, keepdim=True)
        expected.append(float(1 - (scores - sums).var(correction=0) / scores.var(correction=0)))
    np.testing.assert_allclose(result.explained.value, expected, atol=1e-5)
    assert (result.explained.low < result.explained.value).all()


def test_by_default_as_many_pairs_as_explain_most_of_the_variance():
    task = Lego(n_vars=2)
    result = interp.explain_attention(lego_loop(task), task, (1, 0), n=32)
    assert result.explained.value[-1] >= EXPLAINED > result.explained.value[-2]
    assert len(result.pairs) == len(result.explained.value) < MOST_PAIRS
    # Where twelve are too few, twelve are listed
    task = Lego(n_vars=3, sentence_format="compact")
    model = Transformer(interp.config_for(task, n_layers=4, n_heads=4, d_model=16), seed=0).eval()
    result = interp.explain_attention(model, task, (3, 0), n=16)
    assert len(result.pairs) == MOST_PAIRS
    assert result.explained.value.max() < EXPLAINED
    assert f"{1 - float(result.explained.value[-1]):.2f} is left to the others" in str(result)


def test_padding_changes_nothing(model, batch):
    mask = torch.ones_like(batch.tokens, dtype=torch.bool)
    padded = replace(
        batch,
        tokens=torch.nn.functional.pad(batch.tokens, (0, 3)),
        attention_mask=torch.nn.functional.pad(mask, (0, 3)),
    )
    plain, with_padding = (ScoreParts.of(HeadReading.of(model, (1, 0)), sequences) for sequences in (batch, padded))
    covariances = [parts.covariance(parts.scores) for parts in (with_padding, plain)]
    torch.testing.assert_close(*covariances, rtol=1e-4, atol=1e-4)
    assert with_padding.n_queries().tolist() == plain.n_queries().tolist() == [batch.tokens.shape[1]] * N


def test_sentences_say_what_opposes_the_scores():
    task = Lego(n_vars=2)
    result = interp.explain_attention(lego_loop(task), task, (1, 0), n=32)
    assert result.share[result.pairs[1]].value < 0
    first, second, third, last = result.sentences()
    assert first.startswith("Head 1.0 attends by what positions wrote into the keys")
    assert second.startswith("It attends against what tokens wrote into the keys and tokens into the queries: -0.2")
    assert third.startswith("Then by what tokens")
    assert last.startswith("The 3 largest of 36 pairs together explain 1.00 [1.00, 1.00] of the variance; 0.00 is left")
    removed = [1, -2, -1]
    opposed = replace(
        result,
        pairs=result.pairs[1:2],
        explained=result.explained[1:2],
        removals=tuple(result.removals[index] for index in removed),
        pattern_change=result.pattern_change[removed],
        drop=result.drop[removed],
    )
    assert opposed.sentences()[0].startswith("Head 1.0 attends against what tokens")
    assert opposed.sentences()[-1].startswith("The largest of 36 pairs explains 0.8")


def test_a_hook_that_changes_the_scores_is_refused(model):
    hook = [("blocks.1.attn.hook_attn_scores", lambda scores, hook: 2 * scores)]
    message = r"by 0\.22: a hook changes it, or .* Remove the hooks of layer 1, or use interp.edges"
    with model.hooks(hook), pytest.raises(ValueError, match=message):
        interp.explain_attention(model, TASK, (1, 0), n=8)


def test_every_input_is_exact():
    task = Lego(n_vars=2, alphabet="ab")
    result = interp.explain_attention(lego_loop(task), task, (1, 0), n="all", n_pairs=1)
    assert result.share.exact
    assert result.drop.exact
    assert "inputs, exact" in str(result)


def test_an_exact_share_that_is_all_up_to_rounding(tmp_path):
    known = read_compiled(write_pack(tmp_path))
    result = interp.explain_attention(known.model, known.task, (1, 0), n="all")
    assert result.explained.exact
    assert result.explained.value[-1] == pytest.approx(1)


def test_saved_and_loaded(result, tmp_path):
    result.save(tmp_path / "why.json")
    loaded = AttentionExplanation.load(tmp_path / "why.json")
    assert str(loaded) == str(result)
    assert loaded.plot().to_json() == result.plot().to_json()


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ((2, 0), r"head has head \(2, 0\); this model has layers 0 to 1 with heads 0 to 1"),
        ((1, 0, 2), r"head is \(1, 0, 2\); it must have 2 elements, not 3"),
        ((1.0, 0), r"head\[0\] is 1\.0; it must be an integer"),
    ],
)
def test_wrong_heads(model, head, message):
    with pytest.raises(ValueError, match=message):
        interp.explain_attention(model, TASK, head)


def test_errors(model):
    with pytest.raises(ValueError, match="n is 4; at least 8 sequences"):
        interp.explain_attention(model, TASK, (0, 0), n=4)
    with pytest.raises(ValueError, match="n_pairs is 0; it must be at least 1"):
        interp.explain_attention(model, TASK, (0, 0), n_pairs=0)
    with pytest.raises(
        ValueError, match=r"the model's block is 'post_ln', whose layers do not add .* scores are no sum"
    ):
        interp.explain_attention(random_model("post_ln"), TASK, (0, 0))
    row = (HeadPattern(kind="uniform"), HeadPattern())
    cfg = interp.config_for(TASK, n_layers=1, n_heads=2, d_model=16, head_patterns=(row,))
    with pytest.raises(ValueError, match=r"head is \(0, 0\), whose pattern is hard-coded \(uniform\)"):
        interp.explain_attention(Transformer(cfg), TASK, (0, 0))
    flat = Transformer(interp.config_for(TASK, n_layers=1, n_heads=2, d_model=16))
    flat.weights[0].attention.q.weight.data.zero_()
    flat.weights[0].attention.q.bias.data.zero_()
    with pytest.raises(ValueError, match="whose scores are the same for all keys"):
        interp.explain_attention(flat, TASK, (0, 0), n=8)
