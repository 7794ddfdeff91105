"""Attention pages of models: choice of viewer, patterns, labels and error texts."""

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp.tasks import Lego


def test_auto_viewer_by_size(tiny):
    small = Transformer(interp.config_for(tiny, n_layers=1, d_model=8, n_heads=2))
    assert interp.show_attention(small, tiny).viewer == "circuitsvis"
    assert interp.show_attention(small, tiny, examples=2).viewer == "canvas"
    task = Lego(n_vars=12)
    large = Transformer(interp.config_for(task, n_layers=4, d_model=16, n_heads=4))
    assert interp.show_attention(large, task).viewer == "canvas"
    assert interp.show_attention(large, task, heads=[(0, 1)]).viewer == "circuitsvis"


def test_the_page_has_the_patterns_of_the_model(tiny, as_a_user, monkeypatch):
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=8, n_heads=2))
    batch = tiny.sample(3, generator=torch.Generator().manual_seed(0))
    seen = []
    monkeypatch.setattr("interp.heads.show.canvas_page", lambda examples, **more: seen.append((examples, more)))
    interp.show_attention(model, tiny, examples=batch, heads=[(1, 0), (0, 1)], viewer="canvas")
    ((examples, more),) = seen
    assert more["heads"] == ["1.0", "0.1"]
    _, cache = model.run_with_cache(batch.tokens)
    for row, one in enumerate(examples):
        assert "".join(one.tokens) == tiny.vocab.decode(batch.tokens[row])
        for index, (layer, head) in enumerate([(1, 0), (0, 1)]):
            wanted = cache[f"blocks.{layer}.attn.hook_pattern"][row, head].numpy()
            np.testing.assert_array_equal(one.patterns[index], wanted)
        assert np.array_equal(one.relations["association"], tiny.relations(batch)["same_token"][row].numpy())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"viewer": "plotly"}, "viewer is 'plotly'; choose one of auto, circuitsvis, canvas"),
        ({"viewer": "circuitsvis", "examples": 2}, "circuitsvis shows one sequence, not 2"),
        ({"heads": [(0, 9)]}, r"heads is \[\(0, 9\)\]; this model has layers 0 to 0 with heads 0 to 1"),
        ({"heads": []}, r"heads is \[\]"),
        ({"examples": 0}, "examples is empty; show at least one sequence"),
    ],
)
def test_errors(tiny, as_a_user, settings, words):
    model = Transformer(interp.config_for(tiny, n_layers=1, d_model=8, n_heads=2))
    with pytest.raises(ValueError, match=words):
        interp.show_attention(model, tiny, **settings)
