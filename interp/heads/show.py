"""Attention pages: the patterns of heads on a few sequences."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float

from hooks.checks import check_choice, checks_types
from hooks.interventions.ablation_engine import Head, Net, every_head
from interp.core.activations import patterns_on
from interp.core.evaluation_mode import evaluation_mode, in_evaluation_mode
from interp.core.page_identity import page_identity
from interp.core.randomness import derived_generator
from interp.core.verbs import AnyModel, prepare_model
from interp.heads.ablation_methods import check_heads
from interp.heads.classify import HeadPatterns
from interp.heads.kinds import relations_of
from interp.tasks.base import Batch, Task
from interp.view.attention import AttentionPage, Example, canvas_page, circuitsvis_page

Viewer = Literal["canvas", "circuitsvis"]


@checks_types
@in_evaluation_mode
def show_attention(
    model: AnyModel,
    task: Task,
    *,
    examples: Batch | int = 1,
    heads: Sequence[Head] | None = None,
    patterns: HeadPatterns | None = None,
    other: AnyModel | None = None,
    viewer: Viewer = "canvas",
    seed: int = 0,
) -> AttentionPage:
    """Attention patterns on a few sequences, as a page that opens offline and renders in a notebook.

    Args:
        model: Model to show.
        task: Source of sequences and relations.
        examples: A batch to show, or the number of held-out sequences to sample.
        heads: The (layer, head) to show, default: all.
        patterns: Result of `classify_heads`, whose labels are shown next to the heads (canvas viewer).
        other: Another model with equally many layers and heads, such as another seed or checkpoint: its patterns on the
            same sequences are shown next to it, with the difference (canvas viewer).
        viewer: `canvas` (grid of heads and a panel, several sequences, relations to outline), or `circuitsvis` (one
            sequence, with the viewer of that library).
        seed: Determines the sampled sequences.

    Raises:
        ValueError: an unknown viewer, a head that does not exist, no examples, several or another model for
            circuitsvis, or another model of another shape.

    Example:
        >>> import interp
        >>> from hooks import Transformer
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16), seed=0)
        >>> interp.show_attention(model, task, examples=2).save("attention.html").name
        'attention.html'
    """
    model = prepare_model(model, "show_attention", task)
    check_choice("viewer", viewer, Viewer)
    if isinstance(examples, int):
        examples = task.sample(examples, generator=derived_generator(seed, "show"), split="test")
    if not len(examples):
        raise ValueError("examples is empty; show at least one sequence.")
    shown_heads = every_head(model) if heads is None else check_heads("heads", heads, model)
    if viewer == "circuitsvis" and len(examples) > 1:
        raise ValueError(f"circuitsvis shows one sequence, not {len(examples)}; choose viewer='canvas'.")
    if viewer == "circuitsvis" and other is not None:
        raise ValueError("circuitsvis shows one model, not two; choose viewer='canvas'.")
    # The patterns of one or two models on each sequence, with the relations between its tokens.
    model_patterns = _patterns(model, examples, shown_heads)
    other_patterns = [None] * len(examples)
    if other is not None:
        with evaluation_mode(other):
            other_patterns = _patterns(_comparable(other, model), examples, shown_heads)
    relations = relations_of(task, examples)
    shown = [
        Example(
            tokens=tuple(task.vocab.words(examples.tokens[row])),
            patterns=model_patterns[row],
            relations={name: relation[row].numpy() for name, relation in relations.items()},
            other_patterns=other_patterns[row],
        )
        for row in range(len(examples))
    ]
    names = [f"{layer}.{head}" for layer, head in shown_heads]
    page = {"title": f"attention of {len(names)} heads", "identity": page_identity(model, task, seed=seed)}
    if viewer == "circuitsvis":
        return circuitsvis_page(shown[0], heads=names, causal=model.cfg.attention == "causal", **page)
    labels = ["" if patterns is None else patterns.label[layer][head] for layer, head in shown_heads]
    columns = model.cfg.n_heads if heads is None else min(len(names), 12)
    return canvas_page(shown, heads=names, labels=labels, columns=columns, **page)


def _comparable(other: AnyModel, model: Net) -> Net:
    """Another model, if its heads can be compared with those of a model."""
    other = prepare_model(other, "show_attention")
    sizes = [(net.cfg.n_layers, net.cfg.n_heads, net.cfg.d_vocab) for net in (other, model)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            "other has {} layers, {} heads and a vocabulary of {}; model has {}, {} and {}. They must be equal.".format(
                *sizes[0], *sizes[1]
            )
        )
    return other


@torch.no_grad()
def _patterns(model: Net, examples: Batch, heads: Sequence[Head]) -> Float[np.ndarray, "example head query key"]:
    patterns = patterns_on([model], examples)[:, 0]
    return np.stack([patterns[layer, :, head].numpy() for layer, head in heads], 1)
