"""False labels: untrained models and patterns with shuffled keys."""

import pytest
import torch
from planted import Padded, Planted
from scipy import stats

import interp
from hooks import Transformer
from interp.heads.classify import classify_heads
from interp.tasks import Lego
from interp.training.objectives import copy_query_to_key

ALPHA = 0.01


def false_labels(models, task):
    """Labelled heads, all heads, and the largest score behind a label."""
    labelled, heads, largest = 0, 0, 0.0
    for model in models:
        result = classify_heads(model, task, n=32, alpha=ALPHA)
        for layer, row in enumerate(result.label):
            for head, label in enumerate(row):
                heads += 1
                if label != "unclassified":
                    labelled += 1
                    known = label in result.kinds
                    score = result.score[layer, head, result.kinds.index(label)] if known else 1.0
                    largest = max(largest, float(score))
    return labelled, heads, largest


def allowed_false_labels(heads):
    """Largest number of labels at a level of 1 % per head, with a false alarm rate of one in a million."""
    return stats.binom.isf(1e-6, heads, ALPHA)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("init", ["fan_in", "normal", "gpt2"])
def test_untrained_models_are_unlabelled(init, causal):
    task = Padded(n_vars=4, causal=causal)
    sizes = {"n_layers": 3, "n_heads": 8, "d_model": 64, "init": init}
    models = [Transformer(interp.config_for(task, **sizes), seed=seed) for seed in range(7)]
    labelled, heads, largest = false_labels(models, task)
    assert heads == 168  # six settings: 1,008 heads
    assert labelled <= allowed_false_labels(heads)
    assert largest <= 0.2


def test_a_biased_initialisation_is_unlabelled():
    """W_Q copied into W_K makes heads attend to themselves; compared with such an initialisation, none is labelled."""
    task = Lego(n_vars=4)
    models = [Transformer(interp.config_for(task, n_layers=3, n_heads=8), seed=seed) for seed in range(4)]
    for model in models:
        copy_query_to_key(model)
    *models, start = models
    association = classify_heads(models[0], task, n=32).score.value[:, :, 0]
    assert association.max() < 0.2
    against_fresh = [classify_heads(model, task, n=32) for model in models]
    assert any(result.heads("current") for result in against_fresh)
    results = [classify_heads(model, task, n=32, untrained=start) for model in models]
    labelled = sum(label != "unclassified" for result in results for row in result.label for label in row)
    assert labelled <= allowed_false_labels(24 * len(models))


@pytest.mark.parametrize("seed", range(3))
def test_patterns_with_shuffled_keys_are_unlabelled(seed):
    """Concentrated rows, their keys in random order: as far from uniform as a trained head."""
    task = Lego(n_vars=4)
    generator = torch.Generator().manual_seed(seed)

    def shuffled(batch, allowed):
        return (4 * torch.randn(allowed.shape, generator=generator)).softmax(-1)

    cfg = interp.config_for(task, n_layers=3, n_heads=8)
    model = Planted(cfg, {(layer, head): shuffled for layer in range(3) for head in range(8)}, seed=seed)
    result = classify_heads(model, task, n=64)
    assert result.entropy.max() < 0.6
    assert {label for row in result.label for label in row} == {"unclassified"}
    cells = result.p.size
    assert (result.p < ALPHA).sum() <= stats.binom.isf(1e-6, cells, ALPHA)  # each p alone is calibrated
    assert (result.p_holm < ALPHA).sum() <= 1
    assert abs(stats.norm.isf(result.p).mean()) < 5 / cells**0.5
