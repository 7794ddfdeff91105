"""Patterns that an audit puts in place of a head's own: uniform, random, and those that test a label.

A label describes the queries that have related keys. For labelled heads only those rows are replaced, so that the other
rows affect no test of the label; for other heads, all rows.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.interventions.ablation_engine import Head, Net
from hooks.interventions.replacements import Pattern, Replacement
from interp.core.verbs import visible_keys
from interp.heads.methods import normalised, random_weights
from interp.tasks.base import Batch

LABEL_PATTERNS = ("ideal", "read_part", "wrong_key")
"""Patterns that test a label: `ideal_rows`, `read_part_rows`, `wrong_key_rows`."""
PATTERNS = ("uniform", "random_rows", *LABEL_PATTERNS)

NewRows = Callable[[Float[Tensor, "batch query key"], str | None], Float[Tensor, "batch query key"]]
"""The new pattern of one head, from its own and its label."""


def new_patterns(
    model: Net, part: Batch, related: Mapping[str, Bool[Tensor, "batch query key"]], labels: Mapping[Head, str],
    *, usual: Mapping[str, Bool[Tensor, "query token"]], seed: int, first: int,
) -> dict[str, Replacement]:  # fmt: skip
    """Replacement patterns for a part of a batch, by name.

    Args:
        model: Model whose heads are replaced.
        part: The part of the batch.
        related: Related keys of each query, for every kind that is a label.
        labels: Kind that each labelled head is labelled with.
        usual: Tokens at related keys of each query in the whole batch, for every kind that is a label (`usual_tokens`).
        seed: Decides the random rows and keys of a sequence, together with its index in the whole batch.
        first: Index of the part's first sequence in the whole batch.
    """
    allowed = visible_keys(model, part.tokens, part.attention_mask)
    seen = {kind: relation & allowed for kind, relation in related.items()}
    random = random_weights(allowed, seed, first)
    uniform, random_rows = normalised(allowed.double(), allowed), normalised(random, allowed)

    def on_described(new: Float[Tensor, "batch query key"]) -> NewRows:
        def rows(pattern: Tensor, kind: str | None) -> Tensor:
            if kind is None:
                return new.to(pattern)
            return torch.where(seen[kind].any(-1, keepdim=True), new.to(pattern), pattern)

        return rows

    def reading(rows: Callable[[Tensor, str], Tensor]) -> NewRows:
        return lambda pattern, kind: pattern if kind is None else rows(pattern, kind)

    def wrong_key(pattern: Tensor, kind: str) -> Tensor:
        here = usual[kind][:, part.tokens].transpose(0, 1)
        anywhere = usual[kind].any(0)[part.tokens][:, None]
        return wrong_key_rows(pattern, seen[kind], allowed, (here, anywhere), random)

    rows: dict[str, NewRows] = {
        "uniform": on_described(uniform),
        "random_rows": on_described(random_rows),
        "ideal": reading(lambda pattern, kind: ideal_rows(pattern, seen[kind])),
        "read_part": reading(lambda pattern, kind: read_part_rows(pattern, seen[kind], allowed)),
        "wrong_key": reading(wrong_key),
    }
    return {name: _for_each_head(model, labels, one) for name, one in rows.items()}


def _for_each_head(model: Net, labels: Mapping[Head, str], rows: NewRows) -> Replacement:
    def new_pattern(layer: int, clean: Float[Tensor, "batch head query key"]) -> Tensor:
        return torch.stack(
            [rows(clean[:, head], labels.get((layer, head))) for head in range(model.cfg.n_heads)], dim=1
        )

    return Pattern(new_pattern)


def ideal_rows(
    pattern: Float[Tensor, "batch query key"], related: Bool[Tensor, "batch query key"]
) -> Float[Tensor, "batch query key"]:
    """Attention spread evenly over the related keys."""
    share = related / related.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(related.any(-1, keepdim=True), share.to(pattern), pattern)


def read_part_rows(
    pattern: Float[Tensor, "batch query key"],
    related: Bool[Tensor, "batch query key"],
    allowed: Bool[Tensor, "batch query key"],
) -> Float[Tensor, "batch query key"]:
    """Attention on related keys is unchanged; the rest is spread evenly over the other keys."""
    others = (allowed & ~related).to(pattern)
    kept = pattern * related
    rest = (1 - kept.sum(-1, keepdim=True)).clamp_min(0)
    spread = kept + rest * others / others.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(related.any(-1, keepdim=True) & others.any(-1, keepdim=True), spread, pattern)


def usual_tokens(
    tokens: Int[Tensor, "batch key"], related: Bool[Tensor, "batch query key"], d_vocab: int
) -> Bool[Tensor, "query token"]:
    """Tokens that are at a related key of each query in some sequence."""
    sample, query, key = related.nonzero().unbind(1)
    found = torch.zeros(related.shape[1], d_vocab, dtype=torch.bool)
    found[query, tokens[sample, key]] = True
    return found


def wrong_key_rows(
    pattern: Float[Tensor, "batch query key"],
    related: Bool[Tensor, "batch query key"],
    allowed: Bool[Tensor, "batch query key"],
    usual: Sequence[Bool[Tensor, "batch #query key"]],
    random: Float[Tensor, "batch query key"],
) -> Float[Tensor, "batch query key"]:
    """All attention on one random key that is not related to the query.

    It is drawn among the usual keys, if the query may see an unrelated one: what a head finds there is of the kind that
    it usually brings, so that only the choice of the key is wrong. Otherwise it is drawn among all unrelated keys.

    Args:
        pattern: The head's own pattern.
        related: Related keys of each query, all of them visible.
        allowed: Visible keys of each query.
        usual: Usual keys of each query, the narrowest choice first; the first that has an unrelated key is taken.
        random: Random weights; the key with the largest one is taken.
    """
    unrelated = allowed & ~related
    candidates = unrelated
    for choice in reversed(usual):
        among = unrelated & choice
        candidates = torch.where(among.any(-1, keepdim=True), among, candidates)
    chosen = torch.zeros_like(pattern).scatter_(-1, (random * candidates).argmax(-1, keepdim=True), 1)
    return torch.where(related.any(-1, keepdim=True) & candidates.any(-1, keepdim=True), chosen, pattern)
