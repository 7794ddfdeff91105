"""Hand-written Dyck models: exact probabilities, balance, and sensitivity to wrong weights."""

import dataclasses
import itertools

import pytest
import torch

import interp
from hooks import BracketStates, load_checkpoint, save_checkpoint, verify
from hooks.model.embeddings import BracketEmbedding
from interp.known_answers import balanced_dyck, uniform_dyck
from interp.tasks import Dyck
from interp.tasks.dyck.brackets import FIRST_BRACKET, START, closer, nesting, opener

EXACT = 1e-10
LANGUAGES = [(2, 4, 0.5), (3, 4, 0.3), (2, 8, 0.3), (3, 8, 0.5)]
ATTENTIONS = ["uniform", "uneven"]


def sampled(task, n, seed=0):
    return task.sample(n, generator=torch.Generator().manual_seed(seed), split="test")


@torch.no_grad()
def predicted(model, batch):
    return model(batch.tokens).double().softmax(-1)


def error(model, task, batch):
    return float((predicted(model, batch) - task.next_token_probabilities(batch)).abs().max())


def by_hand(task, tokens):
    """Next-token probabilities from a stack, a token at a time: nothing of the task's own arithmetic."""
    stack, rows = [], []
    for token in tokens.tolist():
        if token != START:
            kind, closes = divmod(token - FIRST_BRACKET, 2)
            stack.pop() if closes else stack.append(kind)
        row = [0.0] * task.d_vocab
        opens = 1.0 if not stack else 0.0 if len(stack) == task.max_depth else task.q
        for kind in range(task.n_types):
            row[opener(kind)] = opens / task.n_types
        if stack:
            row[closer(stack[-1])] = 1 - opens
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


# uniform_dyck


@pytest.mark.parametrize(("n_types", "max_depth", "q"), LANGUAGES)
@pytest.mark.parametrize(("length", "n"), [(28, 50), (450, 4), (2000, 1)])
def test_uniform_attention_gives_exact_probabilities(n_types, max_depth, q, length, n):
    task = Dyck(n_types=n_types, max_depth=max_depth, q=q, length=length)
    batch = sampled(task, n)
    exact, probabilities = task.next_token_probabilities(batch), predicted(uniform_dyck(task), batch)
    assert (probabilities - exact).abs().max() < EXACT
    assert (probabilities * (exact == 0)).sum(-1).max() < 1e-20
    if length == 2000:
        assert batch.depth.max() == max_depth  # every level was visited


def test_predictions_agree_with_a_stack():
    task = Dyck(n_types=3, max_depth=5, q=0.7, length=60)
    batch = sampled(task, 5)
    for tokens, probabilities in zip(batch.tokens, predicted(uniform_dyck(task), batch), strict=True):
        assert torch.allclose(probabilities, by_hand(task, tokens), atol=EXACT, rtol=0)


@pytest.mark.parametrize(("n_types", "max_depth"), [(1, 1), (1, 3), (3, 1), (5, 12)])
def test_probabilities_are_exact_at_other_sizes(n_types, max_depth):
    task = Dyck(n_types=n_types, max_depth=max_depth, length=300)
    assert error(uniform_dyck(task), task, sampled(task, 4)) < EXACT


def test_longer_prefixes_than_the_task_length():
    short = Dyck(length=4)
    long = dataclasses.replace(short, length=700)
    assert error(uniform_dyck(short), long, sampled(long, 2)) < EXACT
    assert uniform_dyck(Dyck(length=7000)).cfg.n_ctx == 7001


def test_float32_is_exact_up_to_rounding():
    task = Dyck(n_types=3, max_depth=8, length=1000)
    assert error(uniform_dyck(task).float(), task, sampled(task, 2)) < 1e-5


def test_every_head_is_uniform_and_hard_coded():
    task = Dyck(n_types=3, length=50)
    model = uniform_dyck(task)
    assert (model.cfg.n_layers, model.cfg.block, model.cfg.positions) == (2, "dyck", "none")
    _, cache = model.run_with_cache(sampled(task, 3).tokens)
    past = torch.ones(51, 51, dtype=torch.float64).tril()
    for layer in range(2):
        pattern = cache["pattern", layer]
        assert torch.allclose(pattern, (past / past.sum(-1, keepdim=True)).expand_as(pattern), atol=1e-15)
    assert not any(name.endswith(("hook_q", "hook_k")) for name in model.hook_dict)


def test_the_first_layer_is_minimal_and_the_second_shows_the_top_of_the_stack():
    task = Dyck(n_types=3, max_depth=5, length=200)
    model, batch = uniform_dyck(task), sampled(task, 4)
    _, cache = model.run_with_cache(batch.tokens)
    states = BracketStates(encoding="pair", n_types=3, max_depth=5)
    expected = BracketEmbedding(states, model.cfg.d_model)(batch.tokens).double()
    assert torch.allclose(cache["resid_post", 0], expected, atol=1e-12)
    brackets = nesting(batch.tokens, 5)
    top = torch.zeros_like(expected)
    coordinate = (brackets.top_type * 5 + brackets.depth - 1).clamp_min(0)
    top.scatter_(2, coordinate[..., None], (brackets.depth > 0).double()[..., None])
    assert torch.allclose(cache["resid_post", 1], top, atol=1e-12)


def test_both_norms_encode_the_depth_at_any_length():
    task = Dyck(length=2000)
    model, batch = uniform_dyck(task), sampled(task, 1)
    _, cache = model.run_with_cache(batch.tokens, names_filter=lambda name: name.endswith("ln1.hook_normalized"))
    depth = batch.depth.double()
    sine = cache["blocks.0.ln1.hook_normalized"][..., task.d_vocab]
    assert torch.allclose(sine, depth.arctan().sin(), atol=EXACT, rtol=0)
    symbols = cache["blocks.1.ln1.hook_normalized"][..., 3 + 2 * 8 : 3 + 2 * 8 + 9]  # then the same, dropped
    share = (1 + depth).rsqrt()[..., None]
    levels = nesting(batch.tokens, 4).open_positions >= 0
    assert torch.allclose(symbols[..., :8].unflatten(-1, (2, 4)).sum(-2), levels * share, atol=EXACT, rtol=0)
    assert torch.allclose(symbols[..., 8:], share, atol=EXACT, rtol=0)


@pytest.mark.parametrize(
    ("name", "which"),
    [
        ("weights.0.attention.v.weight", 0),
        ("weights.0.attention.o.weight", 0),
        ("weights.0.mlp.w_in.weight", -1),
        ("weights.0.mlp.w_out.weight", -1),
        ("weights.1.attention.v.weight", 0),
        ("weights.1.norm_1.weight", 0),
        ("weights.1.mlp.w_in.bias", 0),
        ("unembed.weight", 0),
        ("unembed.bias", -2),
    ],
)
def test_one_wrong_weight_changes_the_probabilities(name, which):
    task = Dyck(length=450)
    model, batch = uniform_dyck(task), sampled(task, 4)
    weight = model.get_parameter(name).detach().view(-1)
    weight[weight.nonzero()[which]] *= 0.5
    assert error(model, task, batch) > 1e-3


def test_the_default_eps_breaks_exactness():
    task = Dyck(length=450)
    model = uniform_dyck(task)
    for block in model.stored_blocks:
        block.norm_1.eps = 1e-5
    assert error(model, task, sampled(task, 4)) > 0.1


def test_complete_words_are_refused():
    with pytest.raises(ValueError, match=r"words='complete'; only of prefixes .* Use Dyck\(words='prefixes'\)"):
        uniform_dyck(Dyck(words="complete"))


def test_a_loaded_checkpoint_is_exact(tmp_path):
    task = Dyck(n_types=3, length=450)
    batch = sampled(task, 2)
    model = uniform_dyck(task)
    save_checkpoint(model, tmp_path / "model.safetensors")
    loaded = load_checkpoint(tmp_path / "model.safetensors", cfg=model.cfg)
    assert error(loaded, task, batch) < EXACT
    assert torch.equal(predicted(loaded, batch), predicted(model, batch))


# balanced_dyck


@torch.no_grad()
def contributions(model, task):
    """u(query, key) = exp(score(query, key)) * P W_V e(key) of every state, one at a time, from the weights alone."""
    attention = model.block(0).attention
    e = [row for row in model.embed.weight.unique(dim=0) if row.any()]
    assert len(e) == 3 + 2 * task.n_types * task.max_depth
    by_pair = {}
    for query, key in itertools.product(e, e):
        score = (attention.q.weight @ query) @ (attention.k.weight @ key) / model.cfg.attn_scale
        value = attention.v.weight @ key
        by_pair[int(query.argmax()), int(key.argmax())] = score.exp() * (value - value.mean())
    return by_pair


def imbalances(model, task):
    """||u(query, opener) + u(query, closer)||, and ||u(query, opener)||, for every query and pair."""
    u, states = contributions(model, task), 3 + 2 * task.n_types * task.max_depth
    for query, kind, pair in itertools.product(range(states), range(task.n_types), range(task.max_depth)):
        opens = FIRST_BRACKET + 2 * kind * task.max_depth + pair
        closes = opens + task.max_depth
        yield float((u[query, opens] + u[query, closes]).norm()), float(u[query, opens].norm())


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(("n_types", "max_depth"), [(2, 4), (3, 3)])
def test_pairs_cancel_for_every_query(attention, n_types, max_depth):
    task = Dyck(n_types=n_types, max_depth=max_depth)
    norms = list(imbalances(balanced_dyck(task, attention=attention), task))
    assert len(norms) == (3 + 2 * n_types * max_depth) * n_types * max_depth
    assert all(of_pair <= (0 if attention == "uniform" else 1e-14 * of_opener) for of_pair, of_opener in norms)
    assert min(of_opener for _, of_opener in norms) > 1


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("imbalance", [1e-3, 0.1, -0.2])
def test_balance_violation_equals_the_planted_imbalance(attention, imbalance):
    task = Dyck()
    for of_pair, of_opener in imbalances(balanced_dyck(task, imbalance=imbalance, attention=attention), task):
        assert of_pair == pytest.approx(abs(imbalance) * of_opener, rel=1e-9)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(("n_types", "max_depth"), [(2, 4), (3, 8)])
@pytest.mark.parametrize(("length", "n"), [(28, 300), (450, 10)])
def test_brackets_are_closed_correctly_at_any_length(attention, n_types, max_depth, length, n):
    task = Dyck(n_types=n_types, max_depth=max_depth, length=length)
    model = balanced_dyck(task, attention=attention, seed=3)
    batch = sampled(task, n)
    assert (batch.after_closer & (batch.due >= 0)).sum() > 500
    assert interp.evaluate(model, task, n=n).accuracy.value.tolist() == [1, 1, 1, 1]
    likeliest = predicted(model, batch).argmax(-1)
    assert (task.next_token_probabilities(batch).gather(2, likeliest[..., None]) > 0).all()  # nor opens wrongly


def test_brackets_of_complete_words_are_closed_correctly():
    task = Dyck(words="complete", length=40)
    assert interp.evaluate(balanced_dyck(task, attention="uneven"), task, n=100).accuracy.value.tolist() == [1, 1, 1, 1]


def test_an_imbalanced_model_fails_on_long_words():
    task = Dyck()
    long = dataclasses.replace(task, length=450)
    model = balanced_dyck(task, imbalance=0.01)
    hard = [interp.evaluate(model, language, n=n).accuracy[0] for language, n in ((task, 500), (long, 20))]
    assert hard[0] > 0.95
    assert hard[1] < 0.92


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_matched_pairs_do_not_change_the_output(attention):
    task = Dyck(length=200)
    plain, padded = task.read("([["), task.read("([])" * 40 + "([[")
    for imbalance, same in ((0.0, True), (0.01, False)):
        model = balanced_dyck(task, imbalance=imbalance, attention=attention)
        with torch.no_grad():
            short, long = model(plain.tokens)[:, -1], model(padded.tokens)[:, -1]
        assert torch.allclose(short, long, atol=1e-9, rtol=0) == same


def test_scores_are_uniform_or_uneven():
    task = Dyck()
    batch = sampled(task, 5)
    for attention, spread in (("uniform", 0), ("uneven", 1)):
        model = balanced_dyck(task, attention=attention)
        scores = model.run_with_cache(batch.tokens)[1]["attn_scores", 0]
        finite = scores[scores.isfinite()]
        assert (finite.max() - finite.min() > 1) if spread else not finite.any()
    one, other = (balanced_dyck(task, attention="uneven", seed=seed).block(0).attention.q.weight for seed in (0, 1))
    assert not torch.allclose(one, other)


def test_balanced_errors(as_a_user):
    with pytest.raises(ValueError, match="imbalance is nan; it must be a finite number"):
        balanced_dyck(Dyck(), imbalance=float("nan"))
    with pytest.raises(ValueError, match="attention is 'even'; choose one of uniform, uneven"):
        balanced_dyck(Dyck(), attention="even")


def test_a_balanced_checkpoint_loads(tmp_path):
    task = Dyck()
    model, batch = balanced_dyck(task, attention="uneven"), sampled(task, 2)
    save_checkpoint(model, tmp_path / "model.safetensors")
    assert torch.equal(predicted(load_checkpoint(tmp_path / "model.safetensors"), batch), predicted(model, batch))


@pytest.mark.parametrize("make", [uniform_dyck, balanced_dyck, lambda task: balanced_dyck(task, attention="uneven")])
def test_every_hook_point_of_a_known_answer_affects_the_logits(make):
    task = Dyck(n_types=3)
    model = make(task)
    before = model.state_dict()["unembed.weight"].clone()
    report = verify(model)
    assert report.ok, str(report)
    assert torch.equal(model.state_dict()["unembed.weight"], before)
