"""Positions of a sentence by their role in the chain, and relations between them."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.tasks.relations import for_every_query, same_token

ROLES = {5: ("variable", "=", "operation", "operand", ";"), 3: ("variable", "operation", "operand")}
"""Role of each token of a clause, by the length of the clause."""


def clause_places(
    starts: Int[Tensor, "batch target"], n_pos: int, names: Sequence[str], clause_length: int
) -> dict[str, Int[Tensor, "batch position"]]:
    """Positions of each token of each clause by its role, of whole clauses, and of special tokens.

    A value may be stored where the variable is defined, where it is used, or at both: `clause and use` is the clause
    with the operand of the next clause of the chain.

    Args:
        starts: Position of the first token of each variable's clause.
        n_pos: Length of the sentence.
        names: Name of each variable; the sentence may have fewer.
        clause_length: Five tokens in the paper's format, which has special tokens around the sentence; else three.
    """
    roles = ROLES[clause_length]
    offsets = torch.arange(clause_length, device=starts.device)
    n_vars = starts.shape[1]
    places = {}
    for index, name in enumerate(names[:n_vars]):
        # each token of the clause, and all of them
        clause = starts[:, [index]] + offsets
        for offset, role in enumerate(roles):
            places[f"{name} {role}"] = clause[:, [offset]]
        places[f"{name} clause"] = clause
        # together with the place where the next clause uses the variable
        if index + 1 < n_vars:
            operand_of_next = starts[:, [index + 1]] + roles.index("operand")
            places[f"{name} clause and use"] = torch.cat([clause, operand_of_next], 1)
    if clause_length == 5:
        places["[BOS]"] = torch.full_like(starts[:, :1], 0)
        places["[EOS]"] = torch.full_like(starts[:, :1], n_pos - 1)
    return places


def sentence_relations(
    tokens: Int[Tensor, "batch pos"], special: Sequence[int], *, clause_length: int, start: int
) -> dict[str, Bool[Tensor, "batch query key"]]:
    """Keys with the same token elsewhere, in the same clause, and with special tokens; and by their role in a clause.

    For every token of a clause: `clause_operations` and `clause_operands`, those of all clauses. For an operation:
    `operation_to_operations`. For a letter: `same_letter` elsewhere, and `same_letter_or_self`.

    Args:
        tokens: Sentences.
        special: Ids of special tokens.
        clause_length: Tokens of a clause.
        start: Position of the first clause.
    """
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    clause = (positions - start).div(clause_length, rounding_mode="floor")
    special_ids = torch.tensor(list(special), dtype=tokens.dtype, device=tokens.device)
    # Roles of positions: those of special tokens have none
    roles = ROLES[clause_length]
    in_clause = ~torch.isin(tokens, special_ids)
    role = (positions - start) % clause_length
    is_operation = in_clause & (role == roles.index("operation"))
    is_operand = in_clause & (role == roles.index("operand"))
    is_letter = is_operand | (in_clause & (role == roles.index("variable")))
    operations = in_clause[:, :, None] & is_operation[:, None, :]
    same_letter = same_token(tokens) & is_letter[:, :, None]
    itself = torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device)
    return {
        "same_token": same_token(tokens),
        "same_clause": (clause[:, None] == clause).expand(len(tokens), -1, -1),
        "special": for_every_query(torch.isin(tokens, special_ids)),
        "clause_operations": operations,
        "operation_to_operations": operations & is_operation[:, :, None],
        "clause_operands": in_clause[:, :, None] & is_operand[:, None, :],
        "same_letter": same_letter,
        "same_letter_or_self": same_letter | (itself & is_letter[:, :, None]),
    }
