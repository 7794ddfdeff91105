"""Attention relations that several tasks have: for each query, the related keys."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def same_token(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """Keys at other positions that have the token of the query."""
    other_position = ~torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device)
    return (tokens[:, :, None] == tokens[:, None, :]) & other_position


def for_every_query(keys: Bool[Tensor, "batch key"]) -> Bool[Tensor, "batch query key"]:
    """The same keys for every query."""
    return keys[:, None, :].expand(-1, keys.shape[1], -1)


def keys_at(positions: Int[Tensor, "batch query place"]) -> Bool[Tensor, "batch query key"]:
    """The keys at the given positions of each query; -1 for none."""
    batch, pos, _ = positions.shape
    # a position of -1 is an additional column, which is dropped
    no_keys = torch.zeros(batch, pos, pos + 1, dtype=torch.bool, device=positions.device)
    columns = torch.where(positions >= 0, positions, pos)
    return no_keys.scatter(2, columns, True)[..., :pos]


def earlier(relation: Bool[Tensor, "batch query key"]) -> Bool[Tensor, "batch query key"]:
    """The related keys that come before the query."""
    return relation.tril(-1)
