"""What each method of `ablate_heads` puts in a head's place, against hooks that put it there by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from planted import Padded, ideal_map, sharp_model
from scipy import stats
from scoring import correct

import interp
from hooks import Transformer, TransformerConfig
from hooks.model.attention import visible_keys
from interp.core.activations import chunks
from interp.core.heads import check_heads
from interp.core.randomness import derived_generator
from interp.core.sample import N_REFERENCE, Sample
from interp.heads.interventions import METHODS, References, normalised
from interp.heads.kinds import relations_of
from interp.tasks import Lego
from interp.tasks.base import logits_at_targets

N = 60
TOKENS_PER_CHUNK = 600
"""Of N sequences there are two chunks."""
SAME_WHEN_PADDED = [method for method in METHODS if method not in ("random_rows", "counterpart")]
# `random_rows` draws one number per key; the counterparts of `Padded` have no padding
BOTH = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
SETS = {"one": [(1, 1)], "several": [(0, 1), (1, 0), (0, 0)]}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("interp.heads.experiment.TOKENS_PER_CHUNK", TOKENS_PER_CHUNK)


def model_of(task, seed=3, **sizes):
    cfg = interp.config_for(task, **{"n_layers": 2, "n_heads": 2, "d_model": 16, "attn_scale": 0.7, **sizes})
    return Transformer(cfg, seed=seed).eval()


def by_hand(model, task, heads, method):
    """Accuracy and loss lost, sequence by sequence, with `heads` (z, or all they write) edited by ordinary hooks."""
    batch = task.sample(N, generator=derived_generator(0, "ablate"), split="test")
    reference = task.sample(N_REFERENCE, generator=derived_generator(0, "reference"), split="validation")
    _, cache = model.run_with_cache(reference.tokens, **reference.model_inputs())
    handed_on = "result" if model.cfg.vo_identity else "z"
    rows_of_all = torch.randint(N_REFERENCE, (N,), generator=derived_generator(0, "replacement"))
    counterparts = task.counterparts(batch, generator=derived_generator(0, "counterparts"), split="test")
    _, of_counterparts = model.run_with_cache(counterparts.tokens, **counterparts.model_inputs())
    lost, size = [], TOKENS_PER_CHUNK // batch.tokens.shape[1]
    for index, part in enumerate(chunks(batch, size)):
        values = {}
        allowed = visible_keys(model.cfg, part.tokens, part.attention_mask)
        if method == "resample":
            rows = rows_of_all[index * size :][: len(part)]
        elif method == "random_rows":
            places = range(index * size, index * size + len(part))
            drawn = [derived_generator(0, "random rows", place) for place in places]
            drawn = [torch.empty(allowed.shape[1:]).exponential_(generator=generator) for generator in drawn]
            pattern = ideal_map(allowed, allowed) * torch.stack(drawn)
            pattern = pattern / pattern.sum(-1, keepdim=True)
        elif method == "uniform":
            pattern = ideal_map(allowed, allowed)
        elif method not in METHODS:
            pattern = ideal_map(relations_of(task, part, [method])[method], allowed)

        def edit(z, hook, values=values):
            layer, z = hook.layer(), z.clone()
            other = cache[handed_on, layer]
            for head in [head for at, head in heads if at == layer]:
                if method == "zero":
                    z[:, :, head] = 0
                elif method == "mean":
                    z[:, :, head] = other[:, :, head].mean(0)
                elif method == "resample":
                    z[:, :, head] = other[rows][:, :, head]  # noqa: B023
                elif method == "counterpart":
                    start = index * size  # noqa: B023
                    z[:, :, head] = of_counterparts[handed_on, layer][start : start + len(z), :, head]
                else:
                    v = values["attn.hook_v", layer][:, :, head]
                    if model.cfg.vo_identity:
                        x, b = values["ln1.hook_normalized", layer], model.block(layer).attention.b
                        v = v @ model.blocks[layer].attn.W_O[head] + b[head] * x
                    z[:, :, head] = (pattern.double() @ v.double()).to(z.dtype)  # noqa: B023
            return z

        def keep(activation, hook, values=values):
            values[hook.name.split(".", 2)[2], hook.layer()] = activation

        hooks = [(f"blocks.{at}.{name}", keep) for at in range(2) for name in ("attn.hook_v", "ln1.hook_normalized")]
        hooks += [(f"blocks.{at}.attn.hook_{handed_on}", edit) for at in range(2)]
        edited = model.run_with_hooks(part.tokens, fwd_hooks=hooks, **part.model_inputs())
        clean = model(part.tokens, **part.model_inputs())
        right = [correct(task, logits, part).double() for logits in (clean, edited)]
        losses = [
            F.cross_entropy(logits_at_targets(logits, part).transpose(1, 2), part.labels, reduction="none").double()
            for logits in (clean, edited)
        ]
        lost.append(torch.stack([right[0] - right[1], losses[1] - losses[0]]))
    return torch.cat(lost, 1).numpy()


@pytest.mark.parametrize("method", [*METHODS, "association"])
def test_methods_with_b_equal_hooks_by_hand(method):
    task = Padded(n_vars=3)
    model = model_of(task, vo_identity=True).double()
    with torch.no_grad():
        for layer in range(2):
            model.block(layer).attention.b.copy_(torch.tensor([0.7, -1.3]))
        result = interp.ablate_heads(model, task, heads=SETS, method=method, n=N)
        for index, heads in enumerate(SETS.values()):
            lost, rise = by_hand(model, task, heads, method)
            np.testing.assert_allclose(result.drop[index], lost.mean(0), atol=1e-12)
            np.testing.assert_allclose(result.loss_rise[index], rise.mean(0), atol=1e-10)
            assert np.abs(result.loss_rise[index]).max() > 1e-2


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("method", [*METHODS, "association", "current"])
def test_methods_equal_hooks_by_hand(method, causal):
    task = Padded(n_vars=3, causal=causal)
    model = model_of(task)
    result = interp.ablate_heads(model, task, heads=SETS, method=method, n=N)
    assert result.method == method
    with torch.no_grad():
        for index, heads in enumerate(SETS.values()):
            lost, rise = by_hand(model, task, heads, method)
            np.testing.assert_allclose(result.drop[index], lost.mean(0), atol=1e-12)
            np.testing.assert_allclose(result.loss_rise[index], rise.mean(0), atol=1e-5)
            assert np.abs(result.loss_rise[index]).max() > 1e-3


def test_the_interval_is_a_paired_bootstrap():
    task = Lego(n_vars=3)
    model = model_of(task)
    result = interp.ablate_heads(model, task, heads=SETS, n=N)
    with torch.no_grad():
        _, rise = by_hand(model, task, SETS["several"], "zero")
    for target in range(3):
        values = rise[:, target]
        theirs = stats.bootstrap(
            (values,), np.mean, method="percentile", n_resamples=2000, rng=np.random.default_rng(0)
        ).confidence_interval
        # each end is a quantile of 2,000 draws; the 2.5 % quantile of a normal has a standard deviation of 0.06
        noise = 5 * 2**0.5 * 0.06 * values.std() / N**0.5
        assert result.loss_rise.low[1, target] == pytest.approx(theirs.low, abs=noise)
        assert result.loss_rise.high[1, target] == pytest.approx(theirs.high, abs=noise)


def test_the_mean_excludes_padding():
    """Sequences of two lengths: where half are padding, the mean is that of the other half."""

    class Ragged(Lego):
        def sample(self, n, *, generator, split="train", n_vars=None):
            batch = super().sample(n, generator=generator, split=split)
            mask = torch.ones_like(batch.tokens, dtype=torch.bool)
            mask[::2, -1] = False
            return type(batch)(**{**batch.__dict__, "attention_mask": mask})

    task = Ragged(n_vars=2)
    model = model_of(task)
    reference = task.sample(N_REFERENCE, generator=derived_generator(0, "reference"), split="validation")
    found = References(model, Sample(task, reference, 0)).means["blocks.1.attn.hook_z"]
    with torch.no_grad():
        _, cache = model.run_with_cache(reference.tokens, attention_mask=reference.attention_mask)
    torch.testing.assert_close(found[0, :-1], cache["z", 1][:, :-1].mean(0))
    torch.testing.assert_close(found[0, -1], cache["z", 1][1::2, -1].mean(0))
    assert (found[0, -1] - cache["z", 1][:, -1].mean(0)).abs().max() > 1e-4


def test_a_relation_may_be_empty_in_some_chunks(monkeypatch):
    """One sentence of five has a token twice; chunks of one sequence mostly have no relation at all."""
    from interp.heads import kinds

    def rare(task, batch):
        related = torch.zeros(len(batch), *2 * batch.tokens.shape[1:], dtype=torch.bool)
        related[::5, 3, 1] = True
        return related if len(batch) > 1 else related & False

    monkeypatch.setattr(kinds, "_KINDS", {**kinds._KINDS, "rare": kinds.Kind(rare)})
    monkeypatch.setattr("interp.heads.experiment.TOKENS_PER_CHUNK", 1)
    monkeypatch.setattr("interp.heads.measures.MOST_SEQUENCES", 1)
    task = Lego(n_vars=2)
    model = model_of(task)
    rarely = interp.ablate_heads(model, task, method="rare", n=16)
    assert not np.array_equal(rarely.loss_rise, interp.ablate_heads(model, task, method="uniform", n=16).loss_rise)
    assert np.isfinite(interp.classify_heads(model, task, kinds=["rare"], n=16).score).all()


@pytest.mark.parametrize("heads", ["each", "pairs"])
def test_random_sets_for_every_head_or_pair(heads):
    task = Lego(n_vars=2)
    result = interp.ablate_heads(model_of(task), task, heads=heads, n=16, n_random=3)
    plain = interp.ablate_heads(model_of(task), task, heads=heads, n=16)
    np.testing.assert_allclose(result.drop, plain.drop, atol=1e-12)
    assert result.random_drop.shape == (len(result.names), 3, 2)


def test_the_seed_determines_sequences_references_and_sets():
    task = Lego(n_vars=3)
    model = model_of(task, n_layers=3, n_heads=4)
    for method in ("zero", "resample", "random_rows"):
        one, two = (
            interp.ablate_heads(model, task, heads=SETS, method=method, n=64, n_random=2, seed=s) for s in (0, 1)
        )
        again = interp.ablate_heads(model, task, heads=SETS, method=method, n=64, n_random=2, seed=0)
        assert np.array_equal(one.loss_rise, again.loss_rise)
        assert np.array_equal(one.random_drop, again.random_drop)
        assert np.array_equal(one.loss_rise.low, again.loss_rise.low)
        assert not np.array_equal(one.loss_rise, two.loss_rise)


def test_ideal_map_without_related_keys_is_uniform():
    tokens = torch.arange(5)[None]
    allowed = visible_keys(model_of(Lego(n_vars=1)).cfg, tokens)
    weight = torch.zeros(1, 5, 5, dtype=torch.float64)
    weight[0, 2, [1, 3]] = 1
    pattern = normalised(weight, allowed)
    assert pattern[0, 2].tolist() == [0, 0.5, 0, 0.5, 0]
    assert pattern[0, 0].tolist() == pytest.approx([0.2] * 5)


@pytest.mark.parametrize("method", METHODS)
def test_results_are_invariant_to_chunks(method, monkeypatch):
    task = Lego(n_vars=2)
    model = model_of(task)
    at_once = interp.ablate_heads(model, task, method=method, n=24)
    monkeypatch.setattr("interp.heads.experiment.TOKENS_PER_CHUNK", 60)
    in_parts = interp.ablate_heads(model, task, method=method, n=24)
    np.testing.assert_allclose(in_parts.loss_rise, at_once.loss_rise, atol=1e-6)


@BOTH
@pytest.mark.parametrize("method", [*SAME_WHEN_PADDED, "association", "manipulation", "previous"])
def test_ablation_is_invariant_to_padding(causal, method):
    results = []
    for padding in ({}, {"left": 3}, {"right": 4}):
        task = Padded(n_vars=3, causal=causal, **padding)
        results.append(interp.ablate_heads(sharp_model(task), task, method=method, n=64))
    for other in results[1:]:
        np.testing.assert_allclose(other.clean, results[0].clean, atol=1e-6)
        np.testing.assert_allclose(other.loss_rise.value, results[0].loss_rise.value, atol=2e-5)
        for name in ("value", "low", "high"):
            np.testing.assert_allclose(getattr(other.drop, name), getattr(results[0].drop, name), atol=2e-5)
    assert np.abs(results[0].loss_rise).max() > 1e-2


@pytest.mark.parametrize("method", ["zero", "mean", "uniform", "association"])
def test_ablation_is_invariant_to_the_batch(method, monkeypatch):
    task = Padded(n_vars=3, left=2)
    model = sharp_model(task)
    together = interp.ablate_heads(model, task, method=method, n=64)
    monkeypatch.setattr("interp.heads.experiment.TOKENS_PER_CHUNK", 1)
    alone = interp.ablate_heads(model, task, method=method, n=64)
    np.testing.assert_allclose(alone.drop, together.drop, atol=1e-6)
    np.testing.assert_allclose(alone.loss_rise, together.loss_rise, atol=1e-5)


def test_heads_that_a_user_names():
    sizes = {"d_vocab": 5, "d_model": 12, "n_heads": 3, "n_layers": 3, "n_ctx": 4}
    model = Transformer(TransformerConfig(**sizes))
    assert check_heads("heads", [(0, 1), (2, 2)], model) == [(0, 1), (2, 2)]
    assert check_heads("heads", torch.tensor([[2, 0], [0, 0]]), model) == [(2, 0), (0, 0)]
    for heads, words in [
        (None, r"heads is None; it must be a list of \(layer, head\), such as \[\(0, 0\), \(2, 2\)\]"),
        ([(0, 0.5)], "it must be a list of"),
        ([], r"heads is \[\]; give at least one head, each only once"),
        ([(0, 1), (0, 1)], "give at least one head, each only once"),
        ([(0, 1), (3, 0)], r"heads has head \(3, 0\); this model has layers 0 to 2 with heads 0 to 2"),
    ]:
        with pytest.raises(ValueError, match=words):
            check_heads("heads", heads, model)
