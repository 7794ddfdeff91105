"""Auxiliary objectives: mimicking of attention maps, W_Q copied into W_K, and the contrastive loss for brackets."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import TransformerStack
from hooks.model.hardcoded.token_maps import local_band
from interp.tasks.base import Batch, Task
from interp.tasks.dyck.task import Dyck
from interp.tasks.splits import sample_split
from interp.training.settings import Mimicking

MANIPULATION_HEAD, ASSOCIATION_HEAD = 0, 1
PAPER_KERNEL = (1.0, 2.0, 4.0, 2.0, 1.0)
SMOOTHING = 1e-3


def check_mimicking(task: Task, settings: Mimicking) -> None:
    """Check that a task has the relations that mimicking needs.

    Raises:
        ValueError: a relation that the task does not have.
    """
    generator = torch.Generator().manual_seed(0)
    example = mimic_batch(task, dataclasses.replace(settings, batch_size=1), generator)
    relations = task.relations(example)
    needed = ["same_token"] if settings.local_target == "band" else ["same_token", "same_clause"]
    if lacking := [name for name in needed if name not in relations]:
        raise ValueError(
            f"association is 'mimic', which needs the relation {' and '.join(lacking)}; this {type(task).__name__} "
            f"task has {', '.join(relations) or 'no relations'}. Use 'none' or 'query_key', or add it to its relations."
        )


def mimic_targets(task: Task, batch: Batch, settings: Mimicking) -> Float[Tensor, "head batch query key"]:
    """Target maps: local (head 0) and association (head 1), smoothed and row-normalised.

    A token that occurs once has a uniform association row, as in the paper. Under causal attention the maps are
    restricted to the visible keys.
    """
    relations = task.relations(batch)
    association = relations["same_token"].float()
    if settings.local_target == "band":
        local = local_band(batch.tokens.shape[1], PAPER_KERNEL).to(association).expand_as(association)
    else:
        local = relations["same_clause"].float()
    # Smooth, drop keys that are not visible, and normalise the rows
    maps = torch.stack([local, association]) + SMOOTHING
    if task.attention == "causal":
        maps = maps.tril()
    return maps / maps.sum(-1, keepdim=True)


def mimic_loss(
    model: TransformerStack, batch: Batch, targets: Float[Tensor, "head batch query key"]
) -> Float[Tensor, ""]:
    """`distance_to_maps` of the attention patterns of a model."""
    patterns: list[Tensor] = []
    with model.hooks([(is_pattern, lambda pattern, hook: patterns.append(pattern))]):
        model(batch.tokens, **batch.model_inputs())
    return distance_to_maps(patterns, targets)


def is_pattern(name: str) -> bool:
    """Whether a hook point is that of attention patterns."""
    return name.endswith("hook_pattern")


def distance_to_maps(
    patterns: Iterable[Float[Tensor, "batch head query key"]], targets: Float[Tensor, "mimicked batch query key"]
) -> Float[Tensor, ""]:
    """KL(map || smoothed pattern) of heads 0 and 1, in nats, summed over layers.

    Source: LEGO Appendix B.3, whose text does not fix the direction of the divergence.
    """
    losses = []
    for pattern in patterns:
        # Patterns of the mimicked heads, smoothed like the maps so that no logarithm is infinite
        smooth = pattern[:, : len(targets)].transpose(0, 1) + SMOOTHING
        smooth = smooth / smooth.sum(-1, keepdim=True)
        divergence = (targets * (targets.log() - smooth.log())).sum(-1)
        losses.append(divergence.mean((1, 2)).sum())
    return torch.stack(losses).sum()


def mimic_batch(task: Task, settings: Mimicking, generator: torch.Generator) -> Batch:
    """Examples of the task for mimicking, optionally with random tokens."""
    batch = sample_split(task, settings.batch_size, generator=generator)
    if settings.tokens == "random":
        tokens = torch.randint(task.d_vocab, batch.tokens.shape, generator=generator)
        batch = dataclasses.replace(batch, tokens=tokens)
    return batch


@torch.no_grad()
def copy_query_to_key(model: TransformerStack) -> None:
    """Set W_K to W_Q in every block, so that equal tokens initially have the largest scores."""
    for block in model.stored_blocks:
        block.attention.k.load_state_dict(block.attention.q.state_dict())


def contrastive_loss(
    forward: Callable[..., Float[Tensor, "batch pos d_vocab_out"]],
    task: Task,
    batch: Batch,
    logits: Float[Tensor, "batch pos d_vocab_out"],
    generator: torch.Generator,
) -> Float[Tensor, ""]:
    """Contrastive regulariser for brackets: mean over positions of || logits(p_r x) - logits(x) ||^2.

    p_r is r nested pairs of one type, inserted between `[START]` and x. r is uniform from 1 to the maximal depth, the
    type uniform; both are drawn once per batch. Both branches receive gradients.

    Args:
        forward: The model, or a function from `(tokens, attention_mask=...)` to logits.
        task: The bracket language of x.
        batch: x.
        logits: Logits of the model on x.
        generator: Draws r and the type.

    Raises:
        ValueError: another task, or longer sequences that do not fit the model.

    Source: bounded Dyck (arXiv:2312.01429) Eq. 22. Differs: the released code inserts a pair at a random depth of one
    fixed balanced string and puts it before the start token.
    """
    task = Dyck.require(task, "only bracket languages have the contrastive loss.")
    # Draw p_r, and insert it after the start token, with its padding mask
    r = int(torch.randint(1, task.max_depth + 1, (1,), generator=generator))
    kind = int(torch.randint(task.n_types, (1,), generator=generator))
    longer = insert_after_start(batch.tokens, nested_pairs(task, r, kind))
    inputs: dict[str, Any] = {}
    if batch.attention_mask is not None:
        mask = batch.attention_mask
        inputs["attention_mask"] = torch.cat([mask[:, :1].expand(-1, 2 * r + 1), mask[:, 1:]], 1)
    # Compare the logits of x after p_r with those of x alone, at its tokens without padding
    shifted = forward(longer, **inputs)[:, 2 * r + 1 :]
    distance = (shifted - logits[:, 1:]).square().sum(-1)
    if batch.attention_mask is None:
        return distance.mean()
    is_token = batch.attention_mask[:, 1:]
    return (distance * is_token).sum() / is_token.sum()


def check_contrastive(task: Task, weight: float, n_ctx: int) -> None:
    """Raise ValueError unless the task is a bracket language and its longer sequences fit `n_ctx`."""
    task = Dyck.require(task, f"contrastive is {weight}, and only bracket languages have this loss.")
    needed = task.n_ctx + 2 * task.max_depth
    if n_ctx < needed:
        raise ValueError(
            f"n_ctx of the model is {n_ctx}; the contrastive loss needs {needed}, {2 * task.max_depth} more."
        )


def nested_pairs(task: Dyck, r: int, kind: int) -> Int[Tensor, " pos"]:
    """Tokens of p_r, such as `((()))` for r = 3."""
    opener, closer = (task.vocab.ids[name] for name in task.pair(kind))
    return torch.tensor([opener] * r + [closer] * r)


def insert_after_start(
    tokens: Int[Tensor, "batch pos"], inserted: Int[Tensor, " inserted"]
) -> Int[Tensor, "batch longer"]:
    """The sequences with tokens inserted after `[START]`."""
    return torch.cat([tokens[:, :1], inserted.to(tokens.device).expand(len(tokens), -1), tokens[:, 1:]], 1)
