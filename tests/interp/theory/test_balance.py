"""Balance violation: zero for balanced models, linear in a planted imbalance, equal to a loop over Eq. 12-17.

With released pairs: equal to a loop over the positions of the probe string of the released code.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

import interp
from hooks import HeadPattern, Transformer
from interp.known_answers import balanced_dyck, uniform_dyck
from interp.tasks import Dyck, Lego
from interp.tasks.dyck.brackets import START, closer, opener
from interp.theory.balance import balance_violation, contributions


@pytest.fixture(scope="module")
def task():
    return Dyck()


def minimal(task, seed=0, **sizes):
    """An untrained model with weights large enough that attention is far from uniform."""
    model = Transformer(interp.config_for(task, "dyck_minimal", init="fan_in", **sizes), seed=seed)
    with torch.no_grad():
        for name in ("q", "k"):
            getattr(model.block(0).attention, name).weight *= 2
    return model.requires_grad_(False)


def by_loops(model, task):
    """Eq. 12-17, one query, key and string at a time, from the model's own weights."""
    attention, states = model.block(0).attention, model.cfg.embedding
    table = states.table(model.cfg.d_model).double()

    def u(query, key):
        e_query, e_key = (table[states.row(token, depth)] for token, depth in (query, key))
        score = (attention.q.weight.double() @ e_query) @ (attention.k.weight.double() @ e_key) / model.cfg.attn_scale
        value = attention.o.weight.double() @ attention.v.weight.double() @ e_key
        return score.exp() * (value - value.mean())

    ratio = np.zeros((task.max_depth - 1, task.n_types, task.max_depth, task.n_types))
    released = []
    for d, j in product(range(1, task.max_depth), range(task.n_types)):
        query = (closer(j), d)
        best = {}
        for types in product(range(task.n_types), repeat=d):
            total = u(query, (START, 0)) + u(query, (opener(j), d + 1)) + u(query, query)
            total = total + sum(u(query, (opener(t), m + 1)) for m, t in enumerate(types))
            best[types] = float(total.norm().detach())
        least = min(best, key=best.get)
        signal = min(norm for types, norm in best.items() if types[-1] != least[-1])
        sizes = []
        for depth, i in product(range(1, task.max_depth + 1), range(task.n_types)):
            size = float((u(query, (opener(i), depth)) + u(query, (closer(i), depth - 1))).norm().detach())
            ratio[d - 1, j, depth - 1, i] = size / signal
            sizes.append(size)
        released.append(max(sizes) / best[least])
    return ratio, float(np.mean(released))


def by_positions(model, task):
    """Figure of the released code: one position of its probe string at a time, no causal mask, softmax and all.

    The probe is the start, then for each type a nest of all depths. Position i of a nest's closers is taken to close
    position i of its openers; queries are the closers at positions 1 and later.
    """
    attention, states, deepest = model.block(0).attention, model.cfg.embedding, task.max_depth
    tokens, depths = [START], [0]
    for kind in range(task.n_types):
        tokens += [opener(kind)] * deepest + [closer(kind)] * deepest
        depths += [*range(1, deepest + 1), *range(deepest - 1, -1, -1)]
    table = states.table(model.cfg.d_model).double()
    x = torch.stack([table[states.row(token, depth)] for token, depth in zip(tokens, depths, strict=True)])
    scores = (x @ attention.q.weight.double().T) @ (x @ attention.k.weight.double().T).T / model.cfg.attn_scale
    pattern = scores.softmax(-1)
    values = x @ attention.v.weight.double().T @ attention.o.weight.double().T
    values = values - values.mean(1, keepdim=True)

    def opens(kind, at):
        return 1 + 2 * deepest * kind + at

    def closes(kind, at):
        return opens(kind, at) + deepest

    figures = []
    pattern, values = pattern.detach(), values.detach()
    for kind, at in product(range(task.n_types), range(1, deepest)):
        row = pattern[closes(kind, at)][:, None] * values  # what each position adds
        pairs = [row[opens(t, i)] + row[closes(t, i)] for t in range(task.n_types) for i in range(deepest)]
        strings = [
            row[0] + row[opens(kind, at)] + row[closes(kind, at)] + sum(row[opens(t, i)] for i, t in enumerate(types))
            for types in product(range(task.n_types), repeat=at)
        ]
        figures.append(float(max(one.norm() for one in pairs) / min(one.norm() for one in strings)))
    return np.mean(figures)


@pytest.mark.parametrize("language", [Dyck(), Dyck(n_types=3, max_depth=3)])
def test_violation_equals_a_loop_over_queries_and_pairs(language):
    model = minimal(language)
    found = balance_violation(model, language)
    ratio, released = by_loops(model, language)
    np.testing.assert_allclose(found.ratio, ratio, rtol=1e-10)
    assert found.released == pytest.approx(released, rel=1e-10)
    assert found.violation == pytest.approx(ratio.mean())
    assert found.n == ratio.size


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n_types", "max_depth"), [(2, 2), (2, 4), (2, 5), (3, 3)])
def test_released_pairs_give_the_figure_of_a_loop_over_the_probe_string(n_types, max_depth, seed):
    language = Dyck(n_types=n_types, max_depth=max_depth)
    model = minimal(language, seed)
    expected = by_positions(model, language)
    assert balance_violation(model, language, pairing="released").released == pytest.approx(expected, rel=1e-10)
    assert abs(balance_violation(model, language).released / expected - 1) > 1e-3  # the definition has another value


@pytest.fixture
def by_hand():
    """Two types, depth 2. Orthogonal x_0, x_1 of norm 1 and s of norm 3; the start adds s, an opener at depth d adds
    d x_t, and its own closer subtracts it. A closer after which nothing is open attends twice to openers at depth 1.
    """
    task = Dyck(n_types=2, max_depth=2)
    model = Transformer(interp.config_for(task, "dyck_minimal")).double()
    states, attention = model.cfg.embedding, model.block(0).attention
    x = torch.zeros(3, model.cfg.d_model, dtype=torch.float64)
    x[[0, 1, 2], [0, 2, 4]], x[[0, 1, 2], [1, 3, 5]] = 0.5**0.5, -(0.5**0.5)  # mean 0, norm 1
    table = states.table(model.cfg.d_model).double()
    q, k, v = torch.zeros(3, len(table), model.cfg.d_model, dtype=torch.float64)
    v[states.row(START, 0)] = 3 * x[2]
    for kind, depth in product((0, 1), (1, 2)):
        v[states.row(opener(kind), depth)] = depth * x[kind]
        v[states.row(closer(kind), depth - 1)] = -depth * x[kind]
    for kind in (0, 1):
        q[states.row(closer(kind), 0), 0] = model.cfg.attn_scale * np.log(2)
        k[states.row(opener(kind), 1), 0] = 1
    with torch.no_grad():
        for name, wanted in zip("qkv", (q, k, v), strict=True):
            getattr(attention, name).weight.copy_((table.T @ wanted).T)  # rows of the table are one-hot
    return task, model


def test_mirrored_and_released_pairs_on_a_model_computed_by_hand(by_hand):
    """Mirrored: each pair sums to 0. Released, whose only query of type j is the closer after which nothing is open:
    S is |2 x_i - 2 x_i| = 0 at depth 1 and |2 x_i - x_i| = 1 at depth 2; the string with t open is
    s + 2 x_t + 2 x_j - x_j, squared norm 9 + 9 for t = j and 9 + 4 + 1 otherwise.
    """
    task, model = by_hand
    mirrored = balance_violation(model, task)
    assert (mirrored.violation, mirrored.released) == pytest.approx((0, 0), abs=1e-9)
    np.testing.assert_allclose(mirrored.signal, 10**0.5)  # s + x_t + 2 x_j - 2 x_j
    found = balance_violation(model, task, pairing="released")
    assert found.released == pytest.approx(1 / 14**0.5)
    assert found.released == pytest.approx(by_positions(model, task))
    np.testing.assert_allclose(found.ratio[0, :, 0], 0, atol=1e-9)
    np.testing.assert_allclose(found.ratio[0, :, 1], 1 / 18**0.5)  # Eq. 17: the least of the other last type
    np.testing.assert_allclose(found.signal, 18**0.5 / 2)  # the largest score, log 2, is subtracted


def test_terms_sum_to_the_direction_of_the_attention_output(task):
    """The softmax denominator cancels in LN: the sum of u over all keys has the direction of the attention output."""
    model = minimal(task).double()
    batch = task.read("([()]")
    _, cache = model.run_with_cache(batch.tokens)
    attended = cache["attn_out", 0][0, -1]
    u = contributions(model, task, "mirrored")
    d = 1  # ( is open; the query is ] after [ () ]
    j = 1
    total = u.start[d - 1, j] + u.openers[d - 1, j, 0, 0]  # (
    total = total + u.openers[d - 1, j, 1, 1] + u.closers[d - 1, j, 1, 1]  # [ ]
    total = total + u.openers[d - 1, j, 2, 0] + u.closers[d - 1, j, 2, 0]  # ( )
    centred = attended - attended.mean()
    assert float(torch.cosine_similarity(total, centred, dim=0)) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("attention", ["uniform", "uneven"])
@pytest.mark.parametrize("language", [Dyck(), Dyck(n_types=3, max_depth=8)])
def test_violation_is_zero_on_the_construction_and_linear_in_a_planted_imbalance(language, attention):
    assert balance_violation(balanced_dyck(language, attention=attention), language).violation < 1e-12
    found = {
        eps: balance_violation(balanced_dyck(language, attention=attention, imbalance=eps), language)
        for eps in (1e-4, 1e-3, 1e-2)
    }
    assert found[1e-4].violation > 0
    assert found[1e-3].violation == pytest.approx(10 * found[1e-4].violation, rel=0.02)
    assert found[1e-2].violation == pytest.approx(100 * found[1e-4].violation, rel=0.05)
    assert found[1e-2].bounded.max() == pytest.approx(0.01 / 2.01, rel=1e-6)


def test_uniform_attention_is_balanced_exactly(task):
    assert balance_violation(balanced_dyck(task), task).violation == 0
    assert balance_violation(balanced_dyck(task), task).released == 0


def test_released_pairs_are_unbalanced_where_matched_pairs_are_balanced(task):
    assert balance_violation(balanced_dyck(task), task, pairing="released").violation > 0.1
    assert balance_violation(balanced_dyck(task), task, pairing="released").released > 0.1


def test_large_scores_do_not_overflow(task):
    """Factors common to one query cancel, however large."""
    model = minimal(task)
    with torch.no_grad():
        model.block(0).attention.q.weight *= 1e3
    assert np.isfinite(balance_violation(model, task).ratio).all()


def test_violation_is_invariant_to_rotations_of_the_value_space(task):
    """An orthogonal map of the attention output that fixes the mean direction preserves every norm."""
    model = minimal(task)
    before = balance_violation(model, task)
    width = model.cfg.d_model
    ones = torch.ones(width, 1, dtype=torch.float64) / width**0.5
    random = torch.randn(width, width - 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    basis = torch.linalg.qr(torch.cat([ones, random], 1)).Q
    rotation = basis[:, :1] @ basis[:, :1].T + basis[:, 1:] @ basis[:, 1:].roll(1, 1).T
    model = model.double()
    with torch.no_grad():
        model.block(0).attention.v.weight.copy_(rotation @ model.block(0).attention.v.weight)
    np.testing.assert_allclose(balance_violation(model, task).ratio, before.ratio, rtol=1e-5)


def test_decision_is_a_ratio_of_logit_differences(task):
    """Effect of a pair through gain and unembedding, over the effect of the innermost type."""
    model = minimal(task)
    with torch.no_grad():
        model.block(0).norm_1.weight.uniform_(0.5, 1.5)
    found = balance_violation(model, task)
    u = contributions(model, task, "mirrored")
    gain = model.block(0).norm_1.weight.double()
    reader = (model.unembed.weight[closer(0)].double() - model.unembed.weight[closer(1)].double()) * gain
    reader = reader - reader.mean()
    d, j, depth, i = 2, 1, 3, 0
    pair = u.openers[d - 1, j, depth - 1, i] + u.closers[d - 1, j, depth - 1, i]
    inner = u.openers[d - 1, j, d - 1, 0] - u.openers[d - 1, j, d - 1, 1]
    expected = float((reader @ pair).abs() / (reader @ inner).abs())
    assert found.decision[d - 1, j, depth - 1, i] == pytest.approx(expected, rel=1e-9)
    assert balance_violation(minimal(task, mlp_head=True), task).decision is None


def test_uniform_heads_and_eq6_layers_are_accepted(task):
    uniform = Transformer(interp.config_for(task, "dyck_minimal", head_patterns=((HeadPattern(kind="uniform"),),)))
    zero = Transformer(interp.config_for(task, "dyck_minimal"))
    zero.load_state_dict({**zero.state_dict(), **uniform.state_dict()})
    with torch.no_grad():
        zero.block(0).attention.q.weight.zero_()
    np.testing.assert_allclose(balance_violation(uniform, task).ratio, balance_violation(zero, task).ratio, rtol=1e-12)
    eq6 = interp.config_for(task, "dyck_minimal", block="dyck", mlp_head=True)
    assert balance_violation(Transformer(eq6), task).violation > 0


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda t: Transformer(interp.config_for(t)), "first layer is not minimal: it embeds tokens.*'dyck_minimal'"),
        (uniform_dyck, "first layer is not minimal"),
        (lambda t: minimal(replace(t, n_types=3)), "the model has 3 types up to depth 4; the task has 2 up to 4"),
        (lambda t: minimal(t, n_layers=2), "it has 2 layers, not one"),
        (lambda t: minimal(t, n_heads=2), "it has 2 heads, not one"),
        (lambda t: minimal(t, positions="linear"), "it has positions 'linear', not 'none'"),
        (lambda t: minimal(t, block="pre_ln"), "its block is 'pre_ln'"),
        (lambda t: minimal(t, vo_identity=True), "it has b I"),
    ],
)
def test_other_models_are_refused(task, model, message):
    with pytest.raises(ValueError, match=message):
        balance_violation(model(task), task)


def test_other_hard_coded_heads_are_refused(task):
    patterns = ((HeadPattern(kind="local", kernel=(1.0,)),),)
    model = Transformer(interp.config_for(task, "dyck_minimal", head_patterns=patterns))
    with pytest.raises(ValueError, match="hard-coded and not uniform"):
        balance_violation(model, task)


@pytest.mark.usefixtures("as_a_user")
def test_invalid_arguments_are_refused(task):
    with pytest.raises(ValueError, match="pairing is 'text'; choose one of mirrored, released"):
        balance_violation(minimal(task), task, pairing="text")
    with pytest.raises(ValueError, match="task is a Lego; the balance condition is about brackets"):
        balance_violation(minimal(task), Lego(n_vars=2))
    for one in (Dyck(n_types=1), Dyck(max_depth=1)):
        with pytest.raises(ValueError, match="fewer than two of either"):
            balance_violation(minimal(one), one)


def test_result_prints_tabulates_plots_and_saves(task, tmp_path):
    found = balance_violation(minimal(task), task)
    found.save(tmp_path / "balance.json")
    again = interp.theory.BalanceResult.load(tmp_path / "balance.json")
    np.testing.assert_array_equal(again.ratio, found.ratio)
    assert (again.violation, again.released) == (found.violation, found.released)
    table = found.to_dataframe()
    assert len(table) == found.n == 3 * 2 * 4 * 2
    row = table[(table.query_depth == 2) & (table.query_type == 1) & (table.pair_depth == 4) & (table.pair_type == 0)]
    assert row["ratio"].item() == found.ratio[1, 1, 3, 0]
    assert "mean S / P" in str(found)
    assert "<svg" in found._repr_html_()
