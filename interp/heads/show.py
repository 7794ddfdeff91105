"""Attention pages: the patterns of heads on a few sequences."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from hooks.interventions.ablation_engine import Head, every_head
from hooks.modules.basic import check_choice
from interp.core.activations import patterns_on
from interp.core.randomness import derived_generator
from interp.core.verbs import AnyModel, prepare_model
from interp.heads.classify import HeadPatterns
from interp.heads.kinds import relations_of
from interp.tasks.base import Batch, Task
from interp.view.attention import AttentionPage, Example, canvas_page, circuitsvis_page

Viewer = Literal["auto", "circuitsvis", "canvas"]
CIRCUITSVIS_CELLS = 40_000
"""Largest number of attention weights for which a circuitsvis page stays near 2 MB."""


def show_attention(
    model: AnyModel,
    task: Task,
    *,
    examples: Batch | int = 1,
    heads: Sequence[Head] | None = None,
    patterns: HeadPatterns | None = None,
    viewer: Viewer = "auto",
    seed: int = 0,
) -> AttentionPage:
    """Attention patterns on a few sequences, as a page that opens offline and renders in a notebook.

    Args:
        model: Model to show.
        task: Source of sequences and relations.
        examples: A batch to show, or the number of held-out sequences to sample.
        heads: The (layer, head) to show, default: all.
        patterns: Result of `classify_heads`, whose labels are shown next to the heads (canvas viewer).
        viewer: `circuitsvis` (one sequence), `canvas` (thumbnails, several sequences, relations to outline), or
            `auto`: circuitsvis for one small sequence, else canvas.
        seed: Determines the sampled sequences.

    Raises:
        ValueError: an unknown viewer, a head that does not exist, no examples, or several for circuitsvis.
    """
    model = prepare_model(model, "show_attention")
    check_choice("viewer", viewer, Viewer)
    if isinstance(examples, int):
        examples = task.sample(examples, generator=derived_generator(seed, "show"), split="test")
    if not len(examples):
        raise ValueError("examples is empty; show at least one sequence.")
    every = every_head(model)
    chosen = every if heads is None else [(int(layer), int(head)) for layer, head in heads]
    if not chosen or not set(chosen) <= set(every):
        raise ValueError(
            f"heads is {chosen}; this model has layers 0 to {model.cfg.n_layers - 1} with heads 0 to "
            f"{model.cfg.n_heads - 1}."
        )
    found = patterns_on([model], examples)[:, 0]
    found = np.stack([found[layer, :, head].numpy() for layer, head in chosen], 1)  # (example, head, query, key)
    if viewer == "auto":
        viewer = "circuitsvis" if len(examples) == 1 and found.size <= CIRCUITSVIS_CELLS else "canvas"
    if viewer == "circuitsvis" and len(examples) > 1:
        raise ValueError(f"circuitsvis shows one sequence, not {len(examples)}; choose viewer='canvas'.")
    relations = relations_of(task, examples)
    shown = [
        Example(
            tokens=tuple(task.vocab.words(examples.tokens[row])),
            patterns=found[row],
            relations={name: relation[row].numpy() for name, relation in relations.items()},
        )
        for row in range(len(examples))
    ]
    names = [f"{layer}.{head}" for layer, head in chosen]
    title = f"attention of {len(chosen)} heads"
    if viewer == "circuitsvis":
        return circuitsvis_page(shown[0], heads=names, causal=model.cfg.attention == "causal", title=title)
    labels = ["" if patterns is None else patterns.label[layer][head] for layer, head in chosen]
    columns = model.cfg.n_heads if heads is None else min(len(chosen), 12)
    return canvas_page(shown, heads=names, labels=labels, columns=columns, title=title)
