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
from interp.heads.classify import HeadPatterns
from interp.heads.kinds import relations_of
from interp.heads.methods import check_heads
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
    """
    model = prepare_model(model, "show_attention", task)
    check_choice("viewer", viewer, Viewer)
    if isinstance(examples, int):
        examples = task.sample(examples, generator=derived_generator(seed, "show"), split="test")
    if not len(examples):
        raise ValueError("examples is empty; show at least one sequence.")
    chosen = every_head(model) if heads is None else check_heads("heads", heads, model)
    if viewer == "circuitsvis" and (len(examples) > 1 or other is not None):
        asked = f"one sequence, not {len(examples)}" if len(examples) > 1 else "one model, not two"
        raise ValueError(f"circuitsvis shows {asked}; choose viewer='canvas'.")
    found = _patterns(model, examples, chosen)
    others = None
    if other is not None:
        with evaluation_mode(other):
            others = _patterns(_comparable(other, model), examples, chosen)
    relations = relations_of(task, examples)
    shown = [
        Example(
            tokens=tuple(task.vocab.words(examples.tokens[row])),
            patterns=found[row],
            relations={name: relation[row].numpy() for name, relation in relations.items()},
            other_patterns=None if others is None else others[row],
        )
        for row in range(len(examples))
    ]
    names = [f"{layer}.{head}" for layer, head in chosen]
    page = {"title": f"attention of {len(chosen)} heads", "identity": page_identity(model, task, seed=seed)}
    if viewer == "circuitsvis":
        return circuitsvis_page(shown[0], heads=names, causal=model.cfg.attention == "causal", **page)
    labels = ["" if patterns is None else patterns.label[layer][head] for layer, head in chosen]
    columns = model.cfg.n_heads if heads is None else min(len(chosen), 12)
    return canvas_page(shown, heads=names, labels=labels, columns=columns, **page)


def _comparable(other: AnyModel, model: Net) -> Net:
    """Another model, if its heads can be compared with those of a model."""
    other = prepare_model(other, "show_attention")
    sizes = [(one.cfg.n_layers, one.cfg.n_heads, one.cfg.d_vocab) for one in (other, model)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            "other has {} layers, {} heads and a vocabulary of {}; model has {}, {} and {}. They must be equal.".format(
                *sizes[0], *sizes[1]
            )
        )
    return other


@torch.no_grad()
def _patterns(model: Net, examples: Batch, heads: Sequence[Head]) -> Float[np.ndarray, "example head query key"]:
    found = patterns_on([model], examples)[:, 0]
    return np.stack([found[layer, :, head].numpy() for layer, head in heads], 1)
