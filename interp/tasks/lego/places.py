"""Positions of a sentence by their role in the chain, and relations between them."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def clause_places(
    first: Int[Tensor, "batch target"], n_pos: int, names: Sequence[str], clause_length: int
) -> dict[str, Int[Tensor, "batch some"]]:
    """Positions of each token of each clause by its role, of whole clauses, and of special tokens.

    A value may be stored where the variable is defined, where it is used, or at both: `clause and use` is the clause
    with the operand of the next clause of the chain.

    Args:
        first: Position of the first token of each variable's clause.
        n_pos: Length of the sentence.
        names: Name of each variable; the sentence may have fewer.
        clause_length: Five tokens in the paper's format, which has special tokens around the sentence; else three.
    """
    paper = clause_length == 5
    roles = ("variable", "=", "operation", "operand", ";") if paper else ("variable", "operation", "operand")
    offsets = torch.arange(len(roles), device=first.device)
    found, operand = {}, roles.index("operand")
    for index, name in enumerate(names[: first.shape[1]]):
        clause = first[:, index : index + 1] + offsets
        found |= {f"{name} {role}": clause[:, at : at + 1] for at, role in enumerate(roles)}
        found[f"{name} clause"] = clause
        if index + 1 < first.shape[1]:
            found[f"{name} clause and use"] = torch.cat([clause, first[:, index + 1 : index + 2] + operand], 1)
    ends = {"[BOS]": 0, "[EOS]": n_pos - 1} if paper else {}
    return found | {name: torch.full_like(first[:, :1], at) for name, at in ends.items()}


def sentence_relations(
    tokens: Int[Tensor, "batch pos"], special: Sequence[int], *, clause_length: int, first: int
) -> dict[str, Bool[Tensor, "batch query key"]]:
    """Keys with the same token elsewhere, in the same clause, and with special tokens.

    Args:
        tokens: Sentences.
        special: Ids of special tokens.
        clause_length: Tokens of a clause.
        first: Position of the first clause.
    """
    pos = tokens.shape[1]
    same = (tokens[:, :, None] == tokens[:, None, :]) & ~torch.eye(pos, dtype=torch.bool, device=tokens.device)
    clause = (torch.arange(pos, device=tokens.device) - first).div(clause_length, rounding_mode="floor")
    marked = torch.isin(tokens, torch.tensor(list(special), dtype=tokens.dtype, device=tokens.device))
    return {
        "same_token": same,
        "same_clause": (clause[:, None] == clause).expand(len(tokens), -1, -1),
        "special": marked[:, None, :].expand(-1, pos, -1),
    }
