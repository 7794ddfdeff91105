"""A regulariser for bracket languages: what was opened and closed again must not change what comes next."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.tasks.base import Batch
from interp.tasks.dyck.task import Dyck


def contrastive_loss(
    forward: Callable[..., Float[Tensor, "batch pos d_vocab_out"]],
    task: Dyck,
    batch: Batch,
    logits: Float[Tensor, "batch pos d_vocab_out"],
    generator: torch.Generator,
) -> Float[Tensor, ""]:
    """Mean over the positions of x of || logits(p_r x) - logits(x) ||^2, where p_r is r nested pairs of one type.

    r is uniform on 1 to the greatest depth, the type uniform; both are drawn once per batch. p_r stands between
    `[START]` and x. Both branches receive gradient.

    Args:
        forward: The model, or anything that gives logits for `(tokens, attention_mask=...)`.
        task: Whose language x is from.
        batch: x.
        logits: What the model says of x.
        generator: Decides r and the type.

    Raises:
        ValueError: the longer sequences do not fit the model.

    Source: bounded Dyck (arXiv:2312.01429) Eq. 22. Differs: the released code inserts a pair at a random depth of one
    fixed balanced string and puts it before the start token.
    """
    times = int(torch.randint(1, task.max_depth + 1, (1,), generator=generator))
    kind = int(torch.randint(task.n_types, (1,), generator=generator))
    longer = insert_after_start(batch.tokens, nested_pairs(task, times, kind))
    extra: dict[str, Any] = {}
    if batch.attention_mask is not None:
        mask = batch.attention_mask
        extra["attention_mask"] = torch.cat([mask[:, :1].expand(-1, 2 * times + 1), mask[:, 1:]], 1)
    shifted = forward(longer, **extra)[:, 2 * times + 1 :]
    distance = (shifted - logits[:, 1:]).square().sum(-1)
    if batch.attention_mask is None:
        return distance.mean()
    real = batch.attention_mask[:, 1:]
    return (distance * real).sum() / real.sum()


def nested_pairs(task: Dyck, times: int, kind: int) -> Int[Tensor, " pos"]:
    """Tokens of p_r: `((()))` for r = 3."""
    opener, closer = (task.vocab.ids[name] for name in task.pair(kind))
    return torch.tensor([opener] * times + [closer] * times)


def insert_after_start(tokens: Int[Tensor, "batch pos"], between: Int[Tensor, " some"]) -> Int[Tensor, "batch longer"]:
    """The same sequences with other tokens between `[START]` and the rest."""
    return torch.cat([tokens[:, :1], between.to(tokens.device).expand(len(tokens), -1), tokens[:, 1:]], 1)
