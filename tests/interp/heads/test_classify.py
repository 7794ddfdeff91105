"""Labels of heads with planted patterns, and of no other heads."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import Brackets, Padded, Planted, ideal_map, only_tokens

import interp
from hooks import HeadPattern, Transformer
from interp.heads.classify import _column, _precedence, classify_heads
from interp.heads.kinds import _KINDS, register_kind, relations_of
from interp.tasks import Lego, Vocab

BOTH = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
LEGO_KINDS = ("association", "manipulation", "broadcast", "previous", "current", "induction")


def config(task, **sizes):
    return interp.config_for(task, **{"n_layers": 2, "n_heads": 4, "d_model": 32, **sizes})


def ideal(task, kind):
    """The ideal map of a kind, as a plan for `Planted`."""
    return lambda batch, allowed: ideal_map(relations_of(task, batch, [kind])[kind], allowed)


def uniform(batch, allowed):
    return ideal_map(torch.zeros_like(allowed), allowed)


def assert_labels(model, task, plan, **settings):
    """Every planted head has its label with a score of 0.99, and no other head has one."""
    result = classify_heads(model, task, n=32, **settings)
    for layer in range(model.cfg.n_layers):
        for head in range(model.cfg.n_heads):
            label = plan.get((layer, head), "unclassified")
            assert result.label[layer][head] == label, (layer, head, str(result))
            if label in result.kinds:
                kind = result.kinds.index(label)
                assert result.score[layer, head, kind] >= 0.99
                assert result.p_holm[layer, head, kind] <= 0.01
    for label in set(plan.values()):
        assert result.heads(label) == tuple(sorted(head for head, found in plan.items() if found == label))
    return result


@BOTH
@pytest.mark.parametrize("kind", [*LEGO_KINDS, "uniform"])
def test_only_the_planted_head_is_labelled(kind, causal):
    task = Padded(n_vars=4, causal=causal)
    plan = {(1, 2): kind}
    make = uniform if kind == "uniform" else ideal(task, kind)
    assert_labels(Planted(config(task), {(1, 2): make}), task, plan)


@BOTH
def test_heads_of_every_kind_in_one_model(causal):
    task = Padded(n_vars=4, causal=causal)
    heads = [(0, 0), (0, 1), (0, 3), (1, 1), (1, 2), (1, 0)]
    plan = dict(zip(heads, LEGO_KINDS, strict=True)) | {(1, 3): "uniform"}
    make = {head: uniform if kind == "uniform" else ideal(task, kind) for head, kind in plan.items()}
    assert_labels(Planted(config(task), make), task, plan)


@pytest.mark.parametrize("kind", ["stack_top", "unmatched_open", "previous", "current"])
def test_kinds_of_stack_attention_are_distinguished(kind):
    task = Brackets()
    result = assert_labels(Planted(config(task), {(0, 1): ideal(task, kind)}), task, {(0, 1): kind})
    general = {"previous", "current", "first_token", "duplicate", "induction"}
    assert set(result.kinds) == {"local", "stack_top", "unmatched_open"} | general


@pytest.fixture
def registered():
    """Kinds that a test registers are gone after it."""
    before = dict(_KINDS)
    yield
    _KINDS.clear()
    _KINDS.update(before)


def test_a_registered_kind_is_a_label(registered):
    def first_letter(task, batch):
        return (batch.tokens == batch.tokens[:, 1:2])[:, None, :].expand(-1, batch.tokens.shape[1], -1)

    register_kind("first_letter", first_letter)
    task = Lego(n_vars=4)
    assert_labels(Planted(config(task), {(0, 2): ideal(task, "first_letter")}), task, {(0, 2): "first_letter"})


def test_hard_coded_heads_are_labelled():
    task = Lego(n_vars=4)
    bos = task.vocab.ids["[BOS]"]
    row = (HeadPattern(), HeadPattern(kind="uniform"), HeadPattern(kind="broadcast", token=bos), HeadPattern())
    previous = (HeadPattern(), HeadPattern(kind="local", kernel=(1.0, 0.0, 0.0)), HeadPattern(), HeadPattern())
    model = Transformer(config(task, head_patterns=(row, previous)))
    plan = {(0, 1): "uniform", (0, 2): "broadcast", (1, 1): "previous"}
    assert_labels(model, task, plan)


def test_sequences_without_related_keys_are_skipped():
    """Half of these sequences have no token twice; the others are attended to perfectly."""

    class Letters(Brackets):
        vocab = Vocab(tuple("abcdefghijklmnopqrst"))

        def sample(self, n, *, generator, split="train"):
            tokens = torch.rand(n, 20, generator=generator).argsort(-1)[:, : self.pos]
            tokens[::2, 3] = tokens[::2, 9]
            return only_tokens(tokens)

        def relations(self, batch):
            tokens = batch.tokens
            same = (tokens[:, :, None] == tokens[:, None, :]) & ~torch.eye(self.pos, dtype=torch.bool)
            return {"same_token": same}

    task = Letters(attention="bidirectional")
    result = assert_labels(Planted(config(task), {(0, 0): ideal(task, "association")}), task, {(0, 0): "association"})
    kind = result.kinds.index("association")
    assert result.score.low[0, 0, kind] >= 0.99


def test_half_of_the_attention_scores_half():
    task = Lego(n_vars=4)
    half = lambda batch, allowed: (ideal(task, "previous")(batch, allowed) + uniform(batch, allowed)) / 2  # noqa: E731
    result = classify_heads(Planted(config(task), {(0, 0): half}), task, n=32)
    assert result.label[0][0] == "previous"
    assert result.score[0, 0, result.kinds.index("previous")] == pytest.approx(0.5, abs=1e-6)


def test_the_title_of_the_maps_has_the_widest_half_interval():
    result = classify_heads(Planted(config(Lego(n_vars=2)), {}), Lego(n_vars=2), n=32)
    score = result.score
    result = replace(result, score=replace(score, low=score - 0.1, high=score + 0.2))
    assert "n = 32 sequences (95 % within ±0.150)" in json.dumps(result.plot().to_dict(), ensure_ascii=False)


class Shuffled(Planted):
    """Every head has its own sharp patterns, with each query's keys in random order within those it may see."""

    def _writer(self, chosen):
        generator = torch.Generator().manual_seed(0)

        def write(pattern, hook):
            allowed = self.seen[1][:, None].expand_as(pattern)
            noise = torch.rand(pattern.shape, generator=generator).masked_fill(~allowed, 2.0)
            order = noise.argsort(-1)
            return torch.zeros_like(pattern).scatter(-1, order, pattern.sort(-1, descending=True).values)

        return write


def shuffled(task, cfg, seed):
    """Untrained patterns made sharp (by 6 times the usual scores), keys shuffled."""
    cfg = config(task, **cfg, attn_scale=1 / 3)
    return Shuffled(cfg, {(layer, 0): None for layer in range(cfg.n_layers)}, seed=seed)


@BOTH
def test_p_is_calibrated_for_shuffled_keys(causal):
    task = Padded(n_vars=4, causal=causal)
    p = np.concatenate([
        classify_heads(shuffled(task, {"n_layers": 6, "n_heads": 8}, seed), task, n=32, seed=seed).p.ravel()
        for seed in range(2)
    ])  # fmt: skip
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        # kinds overlap, so cells of one head are not independent: a fifth of them (one kind's worth) counts
        band = 5 * (level * (1 - level) / (len(p) / 5)) ** 0.5
        assert abs((p <= level).mean() - level) < band


def test_a_head_of_untrained_models_is_unlabelled():
    task = Lego(n_vars=4)
    planted = Planted(config(task), {(0, 2): ideal(task, "previous"), (1, 0): ideal(task, "current")})
    other = Planted(config(task), {(1, 3): ideal(task, "previous")}, seed=1)
    result = classify_heads(planted, task, queries="all", n=32, untrained=other)
    assert {label for row in result.label for label in row} == {"current", "unclassified"}
    assert result.heads("current") == ((1, 0),)
    assert result.untrained[result.kinds.index("previous")] >= 0.99
    assert result.p_untrained[0, 2, result.kinds.index("previous")] == 1
    assert (result.n_untrained, result.level) == (1, 0.5)
    assert str(result).endswith("labels are exploratory: up to 50% of untrained models have one")


def test_a_perfect_score_with_a_large_p_is_unlabelled(registered):
    """Eight queries that each chose the right one of two keys: p is 0.0023, and 0.019 for the best of eight heads."""

    def second_sees_first(task, batch):
        related = torch.zeros(len(batch), *2 * batch.tokens.shape[1:], dtype=torch.bool)
        related[:, 1, 0] = True
        return related

    register_kind("first", second_sees_first)
    task = Padded(n_vars=4, causal=True)
    model = Planted(config(task), {(0, 1): ideal(task, "first")})
    strict, lax = (
        classify_heads(model, task, kinds=["first"], queries="all", n=8, alpha=alpha) for alpha in (0.01, 0.05)
    )
    assert strict.score.low[0, 1, 0] >= 0.99
    assert strict.p[0, 1, 0] == pytest.approx(0.00234, abs=1e-5)
    assert strict.p_holm[0, 1, 0] == pytest.approx(8 * strict.p[0, 1, 0])
    assert strict.heads("first") == ()
    assert lax.heads("first") == ((0, 1),)


@pytest.mark.parametrize(("of_task", "label"), [((), "previous"), (("induction",), "induction")])
def test_induction_is_the_label_of_a_head_that_previous_describes_as_well_if_it_is_a_relation_of_the_task(
    of_task, label
):
    names = ("previous", "induction", "duplicate")
    precedence = _precedence(names, np.array([0.2, 0.1, 0.1]), of_task)
    scores = np.array([0.9, 0.9, 0.1])
    column = _column(scores, np.array([True, True, False]), scores, precedence)
    assert names[column] == label
    # alone it is the label in any case
    assert names[_column(scores, np.array([False, True, False]), scores, precedence)] == "induction"
