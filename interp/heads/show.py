"""Attention pages: the patterns of heads on a few sequences."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float

from hooks.checks import check_number
from hooks.interventions.ablation_engine import Head, every_head
from hooks.interventions.clean_pass import Net
from hooks.state import evaluation_mode, restores_state
from hooks.typed import checks_types
from interp.core.activations import patterns_on
from interp.core.heads import check_heads
from interp.core.page_identity import page_identity
from interp.core.randomness import derived_generator
from interp.core.verbs import AnyModel, Needs, prepare_model
from interp.heads.classify import HeadPatterns
from interp.heads.kinds import relations_of
from interp.tasks.base import Batch, Task
from interp.tasks.splits import sample_split
from interp.view.attention import AttentionPage, Example, canvas_page, circuitsvis_page

Viewer = Literal["canvas", "circuitsvis"]
MOST_COLUMNS = 12
"""Largest number of columns of the grid of chosen heads."""


NEEDS = Needs("show_attention", reads=["attn.hook_pattern"])


@checks_types
@restores_state
def show_attention(
    model: AnyModel,
    task: Task,
    *,
    examples: Batch | tuple[Batch, Batch] | int = 1,
    heads: Sequence[Head] | None = None,
    patterns: HeadPatterns | None = None,
    other_model: AnyModel | None = None,
    viewer: Viewer = "canvas",
    seed: int = 0,
) -> AttentionPage:
    """Attention patterns on a few sequences, as a page that opens offline and renders in a notebook.

    Args:
        model: Model to show.
        task: Source of sequences and relations.
        examples: A batch to show (`task.read` makes one of a text), or the number of held-out sequences to sample. A
            pair of batches of one shape: the patterns on the second are shown next to those on the first, with the
            difference (canvas viewer).
        heads: The (layer, head) to show, default: all.
        patterns: Result of `classify_heads`, whose labels are shown next to the heads, and why a head has none (canvas
            viewer).
        other_model: A model with the same numbers of layers and heads, such as another seed or checkpoint: its patterns
            on the same sequences are shown next to it, with the difference (canvas viewer).
        viewer: `canvas` (grid of heads and a panel, several sequences, relations to outline), or `circuitsvis` (one
            sequence, with the viewer of that library).
        seed: Determines the sampled sequences.

    Raises:
        ValueError: an unknown viewer, a head that does not exist, no examples, several or another model for
            circuitsvis, another model or batch of another shape, or both.

    Example:
        >>> import interp
        >>> from hooks import Transformer
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16), seed=0)
        >>> interp.show_attention(model, task, examples=2).save("attention.html").name
        'attention.html'
    """
    # Check the model, the examples and the heads.
    model = prepare_model(model, NEEDS, task)
    other_examples = None
    if isinstance(examples, tuple):
        examples, other_examples = _pair(examples, other_model)
    if not isinstance(examples, Batch):
        check_number("examples", examples, integer=True, low=1)
        examples = sample_split(task, examples, generator=derived_generator(seed, "show"), split="test")
    if not len(examples):
        raise ValueError("examples is empty; show at least one sequence.")
    shown_heads = every_head(model) if heads is None else check_heads("heads", heads, model)
    if viewer == "circuitsvis" and len(examples) > 1:
        raise ValueError(f"circuitsvis shows one sequence, not {len(examples)}; choose viewer='canvas'.")
    if viewer == "circuitsvis" and other_model is not None:
        raise ValueError("circuitsvis shows one model, not two; choose viewer='canvas'.")
    if viewer == "circuitsvis" and other_examples is not None:
        raise ValueError("circuitsvis shows one input, not two; choose viewer='canvas'.")
    # The patterns of one or two models, or on two inputs, with the relations between tokens.
    model_patterns = _patterns(model, examples, shown_heads)
    other_patterns = [None] * len(examples)
    if other_model is not None:
        with evaluation_mode(other_model):
            other_patterns = _patterns(_comparable(other_model, model), examples, shown_heads)
    tokens = [task.vocab.words(row) for row in examples.tokens]
    if other_examples is not None:
        other_patterns = _patterns(model, other_examples, shown_heads)
        tokens = [_both(*words) for words in zip(tokens, map(task.vocab.words, other_examples.tokens), strict=True)]
    relations = relations_of(task, examples)
    page_examples = []
    for row in range(len(examples)):
        page_examples.append(
            Example(
                tokens=tuple(tokens[row]),
                patterns=model_patterns[row],
                relations={name: relation[row].numpy() for name, relation in relations.items()},
                other_patterns=other_patterns[row],
                other_name="other model" if other_examples is None else "other input",
            )
        )
    # The page of the chosen viewer.
    names = [f"{layer}.{head}" for layer, head in shown_heads]
    page = {"title": f"attention of {len(names)} heads", "identity": page_identity(model, task, seed=seed)}
    if viewer == "circuitsvis":
        return circuitsvis_page(page_examples[0], heads=names, causal=model.cfg.attention == "causal", **page)
    labels, notes = [""] * len(names), [""] * len(names)
    if patterns is not None:
        labels = [patterns.label[layer][head] for layer, head in shown_heads]
        notes = [patterns.why_not[layer][head] for layer, head in shown_heads]
    columns = model.cfg.n_heads if heads is None else min(len(names), MOST_COLUMNS)
    return canvas_page(page_examples, heads=names, labels=labels, notes=notes, columns=columns, **page)


def _pair(examples: tuple[Batch, Batch], other_model: AnyModel | None) -> tuple[Batch, Batch]:
    """Two batches of one shape, to compare on one model."""
    if other_model is not None:
        raise ValueError("examples is a pair and other_model is given; compare two inputs or two models, not both.")
    first, second = examples
    if first.tokens.shape != second.tokens.shape:
        raise ValueError(
            f"examples has tokens of shape {tuple(first.tokens.shape)} and {tuple(second.tokens.shape)}; inputs that "
            f"are compared must have the same number of sequences and tokens."
        )
    return first, second


def _both(words: Sequence[str], other_words: Sequence[str]) -> list[str]:
    """Tokens of two inputs: `a`, or `a/b` where they differ."""
    pairs = zip(words, other_words, strict=True)
    return [word if word == other_word else f"{word}/{other_word}" for word, other_word in pairs]


def _comparable(other_model: AnyModel, model: Net) -> Net:
    """Prepare another model; raise ValueError unless its heads can be compared with those of a model."""
    other_model = prepare_model(other_model, NEEDS)
    other_size, model_size = _size(other_model), _size(model)
    if other_size != model_size:
        raise ValueError(f"other_model has {other_size}; model has {model_size}. They must be equal.")
    return other_model


def _size(model: Net) -> str:
    return f"{model.cfg.n_layers} layers, {model.cfg.n_heads} heads and a vocabulary of {model.cfg.d_vocab}"


@torch.no_grad()
def _patterns(model: Net, examples: Batch, heads: Sequence[Head]) -> Float[np.ndarray, "example head query key"]:
    patterns = patterns_on([model], examples)[:, 0]
    return np.stack([patterns[layer, :, head].numpy() for layer, head in heads], 1)
