"""Attention pages of models: choice of viewer, patterns, labels and error texts."""

import json

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer, make_model


def test_the_viewers(tiny):
    small = Transformer(interp.config_for(tiny, n_layers=1, d_model=8, n_heads=2))
    assert interp.show_attention(small, tiny).viewer == "canvas"
    assert interp.show_attention(small, tiny, viewer="circuitsvis").viewer == "circuitsvis"


def test_two_inputs_are_shown_beside_each_other(tiny):
    model = Transformer(interp.config_for(tiny, n_layers=1, n_heads=2, d_model=16), seed=0).eval()
    first, second = (tiny.sample(2, generator=torch.Generator().manual_seed(seed), split="test") for seed in (0, 1))
    page = interp.show_attention(model, tiny, examples=(first, second))
    for batch, name in ((first, "patterns"), (second, "other_patterns")):
        _, cache = model.run_with_cache(batch.tokens)
        expected = cache["blocks.0.attn.hook_pattern"][1].detach().numpy()
        np.testing.assert_allclose(getattr(page.examples[1], name), expected, atol=1e-6)
    assert '"models": ["input", "other input"]' in page.html
    # Tokens that differ are both written
    words, other_words = (tiny.vocab.words(batch.tokens[0]) for batch in (first, second))
    assert words != other_words
    index = next(index for index, word in enumerate(words) if word != other_words[index])
    assert page.examples[0].tokens[index] == f"{words[index]}/{other_words[index]}"


def test_inputs_that_cannot_be_compared(tiny, as_a_user):
    model = Transformer(interp.config_for(tiny, n_layers=1, n_heads=2, d_model=16), seed=0).eval()
    batch = tiny.sample(2, generator=torch.Generator().manual_seed(0), split="test")
    with pytest.raises(ValueError, match=r"tokens of shape \(2, .*\) and \(1, .*\); inputs that are compared"):
        interp.show_attention(model, tiny, examples=(batch, batch.select(slice(0, 1))))
    with pytest.raises(ValueError, match="examples is a pair and other_model is given"):
        interp.show_attention(model, tiny, examples=(batch, batch), other_model=model)
    with pytest.raises(ValueError, match=r"examples\[1\] is 1; it must be a Batch"):
        interp.show_attention(model, tiny, examples=(batch, 1))
    single = batch.select(slice(0, 1))
    with pytest.raises(ValueError, match="circuitsvis shows one input, not two"):
        interp.show_attention(model, tiny, examples=(single, single), viewer="circuitsvis")


def test_another_model_is_shown_beside(tiny):
    first, second = (
        make_model(interp.config_for(tiny, n_layers=2, d_model=8, n_heads=2), seed=seed) for seed in (0, 1)
    )
    second.train()
    page = interp.show_attention(first, tiny, examples=2, other_model=second)
    assert second.training  # as it was
    alone = [interp.show_attention(model, tiny, examples=2) for model in (first, second)]
    for row in range(2):
        np.testing.assert_array_equal(page.examples[row].patterns, alone[0].examples[row].patterns)
        np.testing.assert_array_equal(page.examples[row].other_patterns, alone[1].examples[row].patterns)
    assert alone[0].examples[0].other_patterns is None


def test_models_of_other_shapes_are_refused(tiny):
    first, second = (Transformer(interp.config_for(tiny, n_layers=n, d_model=8, n_heads=2)) for n in (1, 2))
    with pytest.raises(
        ValueError, match=r"other_model has 2 layers, 2 heads and a vocabulary of .*; model has 1 layers"
    ):
        interp.show_attention(first, tiny, other_model=second)
    with pytest.raises(ValueError, match="circuitsvis shows one model, not two"):
        interp.show_attention(first, tiny, other_model=first, viewer="circuitsvis")


def test_a_chart_of_chosen_heads(tiny, tmp_path):
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=8, n_heads=2))
    page = interp.show_attention(model, tiny, examples=2)
    for name in ("a.svg", "a.pdf"):
        page.plot("1.0", "0.1", example=1).save(tmp_path / name)
    svg = (tmp_path / "a.svg").read_text()
    assert "head 1.0" in svg
    assert "head 0.0" not in svg
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(ValueError, match=r"head is '2\.0'; choose from 0\.0, 0\.1, 1\.0, 1\.1"):
        page.plot("2.0")
    with pytest.raises(ValueError, match="example is 2; this page has 2"):
        page.plot(example=2)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(("heads", "columns"), [(None, 7), ([(0, 3), (1, 2)], 2), ("every", 12)])
def test_heads_per_row(tiny, monkeypatch, heads, columns):
    """One row per layer; chosen heads side by side, at most twelve."""
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=14, n_heads=7))
    chosen = [(layer, head) for layer in range(2) for head in range(7)] if heads == "every" else heads
    seen = []
    monkeypatch.setattr("interp.heads.show.canvas_page", lambda examples, **more: seen.append(more["columns"]))
    interp.show_attention(model, tiny, examples=1, heads=chosen)
    assert seen == [columns]


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
        ({"viewer": "plotly"}, "viewer is 'plotly'; choose one of canvas, circuitsvis"),
        ({"viewer": "circuitsvis", "examples": 2}, "circuitsvis shows one sequence, not 2"),
        ({"heads": ["ab", "c"]}, r"heads\[0\] is 'ab'; it must be a tuple"),
        ({"heads": [(0, 9)]}, r"heads has head \(0, 9\); this model has layers 0 to 0 with heads 0 to 1"),
        ({"heads": []}, r"heads is \[\]"),
        ({"examples": 0}, "examples is 0; it must be at least 1"),
        ({"examples": "a=+1;"}, "examples is 'a=.1;'; it must be a Batch or a tuple or an integer"),
        ({"examples": ["a=+1;", "a=+1;b=-a;"]}, r"examples\[0\] is 'a=.1;'; it must be a Batch"),
        ({"examples": ("a=+1;", "a=+1;b=-a;")}, r"examples\[0\] is 'a=.1;'; it must be a Batch"),
    ],
)
def test_errors(tiny, as_a_user, settings, words):
    model = Transformer(interp.config_for(tiny, n_layers=1, d_model=8, n_heads=2))
    with pytest.raises(ValueError, match=words):
        interp.show_attention(model, tiny, **settings)


def test_the_page_says_why_a_head_has_no_label(tiny):
    model = Transformer(interp.config_for(tiny, n_layers=1, n_heads=2, d_model=8))
    patterns = interp.classify_heads(model, tiny, n=16)
    page = interp.show_attention(model, tiny, examples=1, patterns=patterns)
    for note in patterns.why_not[0]:
        assert "at the few queries that are read: below 0.5" in note
        assert json.dumps(note)[1:-1] in page.html
