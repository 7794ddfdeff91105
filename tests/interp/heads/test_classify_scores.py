"""Head scores against plain loops; their p values, intervals, and invariance to padding and batches."""

import math

import numpy as np
import pytest
import torch
from planted import Padded, Planted, ideal_map, sharp_model

import interp
from hooks import Transformer
from interp.core.randomness import derived_generator, derived_seed
from interp.heads.classify import _half_width, classify_heads
from interp.heads.kinds import relations_of
from interp.heads.measures import measure

GENERAL = ("association", "manipulation", "broadcast", "previous", "current", "first_token", "duplicate", "induction")
ROLES = ("clause_operations", "operation_to_operations", "clause_operands", "same_letter", "same_letter_or_self")
KINDS = (*GENERAL, *ROLES)
BOTH = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
PADDING = pytest.mark.parametrize("padding", [{"left": 3}, {"right": 4}, {"left": 2, "right": 5}], ids=str)


def by_loops(model, task, n):
    """Everything `classify_heads` averages, one sequence, head, query and key at a time."""
    batch = task.sample(n, generator=derived_generator(0, "classify"), split="test")
    with torch.no_grad():
        _, cache = model.run_with_cache(batch.tokens, **batch.model_inputs())
    related = {name: relation.tolist() for name, relation in relations_of(task, batch).items()}
    mask = batch.attention_mask
    n_pos, found = batch.tokens.shape[1], []
    for row in range(n):
        real = [q for q in range(n_pos) if mask is None or mask[row, q]]
        for layer in range(model.cfg.n_layers):
            weight = model.blocks[layer].attn.W_O.detach()
            for head in range(model.cfg.n_heads):
                pattern = cache["pattern", layer][row, head].tolist()
                b = model.block(layer).attention.b
                read = cache["normalized", layer, "ln1"][row].detach()
                extra = 0 * read if b is None else b[head].item() * read
                sent = [float((cache["v", layer][row, k, head] @ weight[head] + extra[k]).norm()) for k in range(n_pos)]
                cell = {"row": row, "layer": layer, "head": head}
                cell["moved"] = sum(pattern[q][k] * sent[k] for q in real for k in real) / len(real)
                entropies, uniformities = [], []
                for q in real:
                    keys = [k for k in real if k <= q or task.attention != "causal"]
                    if len(keys) > 1:
                        entropies.append(
                            -sum(pattern[q][k] * math.log(pattern[q][k]) for k in keys) / math.log(len(keys))
                        )
                        over = sum(max(0.0, pattern[q][k] - 1 / len(keys)) for k in keys)
                        uniformities.append(1 - over / (1 - 1 / len(keys)))
                cell["entropy"], cell["uniformity"] = np.mean(entropies), np.mean(uniformities)
                for name, relation in related.items():
                    above = weighted_above = room = 0.0
                    for q in real:
                        keys = [k for k in real if k <= q or task.attention != "causal"]
                        inside = [k for k in keys if relation[row][q][k]]
                        if not 0 < len(inside) < len(keys):
                            continue
                        chance = len(inside) / len(keys)
                        moved = sum(pattern[q][k] * sent[k] for k in keys)
                        above += sum(pattern[q][k] for k in inside) - chance
                        weighted_above += sum(pattern[q][k] * sent[k] for k in inside) / moved - chance
                        room += 1 - chance
                    cell["score", name] = above / room
                    cell["value_weighted", name] = weighted_above / room
                found.append(cell)
    return found


@BOTH
@pytest.mark.parametrize("padding", [{}, {"left": 1, "right": 2}], ids=str)
@pytest.mark.parametrize("with_b", [False, True], ids=["plain", "b I"])
def test_scores_equal_plain_loops(causal, padding, with_b):
    task = Padded(n_vars=2, causal=causal, **padding)
    model = sharp_model(task, vo_identity=with_b)
    result = classify_heads(model, task, queries="all", n=8)
    assert result.kinds == KINDS
    found = by_loops(model, task, 8)
    for layer, head in np.ndindex(2, 2):
        cells = [cell for cell in found if (cell["layer"], cell["head"]) == (layer, head)]
        for name in ("moved", "entropy", "uniformity"):
            expected = np.mean([cell[name] for cell in cells])
            assert getattr(result, name)[layer, head] == pytest.approx(expected, abs=1e-5)
        for kind, name in enumerate(KINDS):
            for what in ("score", "value_weighted"):
                expected = np.mean([cell[what, name] for cell in cells])
                assert getattr(result, what)[layer, head, kind] == pytest.approx(expected, abs=1e-5)
    assert np.abs(result.score - result.value_weighted).max() > 0.01  # values matter here


@BOTH
def test_p_equals_a_permutation_test(causal):
    """Keys permuted within those that each query may see, 2,000 times; p by then is known within its own noise."""
    task, draws, n = Padded(n_vars=2, causal=causal), 2000, 32
    model = sharp_model(task, attn_scale=4.0)
    result = classify_heads(model, task, queries="all", n=n)
    batch = task.sample(n, generator=derived_generator(0, "classify"), split="test")
    with torch.no_grad():
        _, cache = model.run_with_cache(batch.tokens)
    pos = batch.tokens.shape[1]
    allowed = torch.ones(pos, pos).tril() if causal else torch.ones(pos, pos)
    rng, checked = np.random.default_rng(0), 0
    for kind, name in enumerate(KINDS):
        related = (relations_of(task, batch, [name])[name].float() * allowed).numpy()
        chance = related.sum(-1) / allowed.sum(-1).numpy()
        counts = (chance > 0) & (chance < 1)
        room = (counts * (1 - chance)).sum(-1)
        for layer, head in np.ndindex(2, 2):
            p = result.p[layer, head, kind]
            if not 0.02 < p < 0.98:
                continue
            pattern = cache["pattern", layer][:, head].double().numpy()
            totals = np.zeros(draws)
            for row, q in zip(*counts.nonzero(), strict=True):
                keys = allowed[q].numpy().nonzero()[0]
                order = rng.permuted(np.tile(pattern[row, q, keys], (draws, 1)), axis=1)
                totals += (order @ related[row, q, keys] - chance[row, q]) / room[row]
            share = (totals / n >= result.score[layer, head, kind]).mean()
            checked += 1
            assert abs(share - p) < 5 * (p * (1 - p) / draws) ** 0.5, (name, layer, head, share, p)
    assert checked >= 3


def test_attention_to_unrelated_keys_scores_below_chance():
    task = Padded(n_vars=4)

    def away(batch, allowed):
        return ideal_map(~relations_of(task, batch, ["previous"])["previous"], allowed)

    result = classify_heads(Planted(sharp_model(task).cfg, {(0, 1): away}), task, n=16)
    kind = result.kinds.index("previous")
    assert result.score[0, 1, kind] < 0
    assert result.p[0, 1, kind] > 0.5
    assert result.label[0][1] != "previous"


def test_coverage_of_intervals():
    rng, n, cells = np.random.default_rng(0), 12, 20_000
    values = rng.normal(0.4, 0.2, (n, cells))
    covered = (np.abs(values.mean(0) - 0.4) <= _half_width(values)).mean()
    assert abs(covered - 0.95) < 5 * (0.95 * 0.05 / cells) ** 0.5


def test_intervals_use_only_sequences_with_a_score():
    values = np.array([[0.1, 0.5], [0.3, np.nan], [np.nan, np.nan], [0.2, np.nan]])
    half = _half_width(values)
    assert half[0] == pytest.approx(_half_width(np.array([[0.1], [0.3], [0.2]]))[0])
    assert half[1] == 1  # one sequence has no variance


def test_the_untrained_models_have_fresh_weights():
    """The first sequences, one untrained model: its weights are those of `Transformer`."""
    task = Padded(n_vars=2)
    model = sharp_model(task)
    kinds = KINDS[:6]  # those that every sequence scores
    result = classify_heads(model, task, kinds=kinds, queries="all", n=16, seed=5)
    assert result.n_untrained == 1  # no head is a candidate for a label
    twin = Transformer(model.cfg, seed=derived_seed(5, "untrained twin") % 2**31)
    batch = task.sample(16, generator=derived_generator(5, "classify"), split="test").select(slice(8))
    wanted = measure(twin, task, batch, kinds, queries="all").score.mean(0).max((0, 1))
    np.testing.assert_allclose(result.untrained, wanted, atol=1e-6)
    start = Transformer(model.cfg, seed=11)
    given = classify_heads(model, task, queries="all", n=8, seed=5, untrained=start)
    scores = classify_heads(start, task, queries="all", n=8, seed=5).score.value
    np.testing.assert_allclose(given.untrained, scores.max((0, 1)), atol=1e-6)


@BOTH
@PADDING
def test_scores_are_invariant_to_padding(causal, padding):
    bare, padded = Padded(n_vars=3, causal=causal), Padded(n_vars=3, causal=causal, **padding)
    model = sharp_model(bare)
    plain, other = classify_heads(model, bare, n=16), classify_heads(model, padded, n=16)
    assert plain.label == other.label
    for name in ("value", "low", "high"):
        np.testing.assert_allclose(getattr(other.score, name), getattr(plain.score, name), atol=2e-5, err_msg=name)
    for name in ("p", "value_weighted", "uniformity", "entropy", "moved", "untrained"):
        np.testing.assert_allclose(getattr(other, name), getattr(plain, name), atol=2e-5, err_msg=name)


@BOTH
def test_measures_are_invariant_to_the_batch(causal, monkeypatch):
    task = Padded(n_vars=3, causal=causal, left=1)
    model = sharp_model(task)
    batch = task.sample(64, generator=torch.Generator().manual_seed(0))
    together = measure(model, task, batch, KINDS)
    monkeypatch.setattr("interp.heads.measures.MOST_SEQUENCES", 1)
    alone = measure(model, task, batch, KINDS)
    names = ("score", "null_variance", "value_weighted", "uniformity", "entropy", "moved", "chance")
    for name in names:
        np.testing.assert_allclose(getattr(alone, name), getattr(together, name), atol=1e-5, err_msg=name)
    for row in range(0, 64, 21):
        one = measure(model, task, batch.select(torch.tensor([row])), KINDS)
        for name in names[:-1]:
            np.testing.assert_allclose(getattr(one, name)[0], getattr(together, name)[row], atol=1e-5, err_msg=name)


def test_a_sequence_of_one_token_tells_nothing_but_stays_finite():
    """No query sees several keys: as even, and as certain, as can be. The other sequences are measured as before."""
    task = Padded(n_vars=3, causal=False, left=1)
    model = sharp_model(task)
    batch = task.sample(4, generator=torch.Generator().manual_seed(0))
    before = measure(model, task, batch, KINDS)
    batch.attention_mask[0] = False
    batch.attention_mask[0, 1] = True
    found = measure(model, task, batch, KINDS)
    assert (found.uniformity[0] == 1).all()
    assert (found.entropy[0] == 0).all()
    for name in ("uniformity", "entropy"):
        np.testing.assert_allclose(getattr(found, name)[1:], getattr(before, name)[1:], atol=1e-5)


def test_scores_are_invariant_to_the_batch(monkeypatch):
    task = Padded(n_vars=4, causal=False)
    model = Transformer(interp.config_for(task, n_layers=2, n_heads=4, d_model=32))
    together = classify_heads(model, task, n=16)
    monkeypatch.setattr("interp.heads.measures.MOST_SEQUENCES", 1)
    alone = classify_heads(model, task, n=16)
    for name in ("score", "value_weighted", "uniformity", "entropy", "moved"):
        np.testing.assert_allclose(getattr(together, name), getattr(alone, name), atol=1e-6)
