"""Association biases given to a model before it learns: maps taught to its heads, or W_Q copied into W_K."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import Transformer
from hooks.hardcoded.head_patterns import local_band
from interp.tasks.base import Batch, Task
from interp.training.settings import Mimicking

MANIPULATION_HEAD, ASSOCIATION_HEAD = 0, 1
PAPER_KERNEL = (1.0, 2.0, 4.0, 2.0, 1.0)
SMOOTHING = 1e-3


def mimic_targets(task: Task, batch: Batch, settings: Mimicking) -> Float[Tensor, "head batch query key"]:
    """The two maps to teach: local (head 0) and association (head 1), smoothed and row-normalised.

    A token that stands nowhere else gets a uniform association row, as in the paper. Under causal attention the
    maps keep only the keys that a query may see.
    """
    relations = task.relations(batch)
    association = relations["same_token"].float()
    if settings.local_target == "band":
        local = local_band(batch.tokens.shape[1], PAPER_KERNEL).to(association).expand_as(association)
    else:
        local = relations["same_clause"].float()
    maps = torch.stack([local, association]) + SMOOTHING
    if task.attention == "causal":
        maps = maps.tril()
    return maps / maps.sum(-1, keepdim=True)


def mimic_loss(model: Transformer, batch: Batch, targets: Float[Tensor, "head batch query key"]) -> Float[Tensor, ""]:
    """KL divergence in nats from the smoothed patterns of heads 0 and 1 to their maps, summed over layers.

    Source: LEGO Appendix B.3. Differs: KL(map || pattern); the text can be read either way.
    """
    losses = []

    def compare(pattern: Tensor, hook) -> None:
        smooth = pattern[:, : len(targets)].transpose(0, 1) + SMOOTHING
        smooth = smooth / smooth.sum(-1, keepdim=True)
        losses.append((targets * (targets.log() - smooth.log())).sum(-1).mean((1, 2)).sum())

    with model.hooks([(lambda name: name.endswith("hook_pattern"), compare)]):
        model(batch.tokens, **batch.model_inputs())
    return torch.stack(losses).sum()


def mimic_batch(task: Task, settings: Mimicking, generator: torch.Generator) -> Batch:
    """What to teach on: examples of the task, or the same shape filled with random tokens."""
    batch = task.sample(settings.batch_size, generator=generator)
    if settings.tokens == "random":
        tokens = torch.randint(task.d_vocab, batch.tokens.shape, generator=generator)
        batch = dataclasses.replace(batch, tokens=tokens)
    return batch


@torch.no_grad()
def copy_query_to_key(model: Transformer) -> None:
    """Set W_K to W_Q in every block, so that equal tokens start with the largest scores."""
    for block in model.stored_blocks:
        block.attention.k.load_state_dict(block.attention.q.state_dict())
