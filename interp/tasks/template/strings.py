"""Strings of templates: batches, tables of tokens, and parsing."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.tasks.base import Batch
from interp.tasks.template.language import LabelledTemplate, substitution
from interp.tasks.vocab import Vocab


@dataclass(frozen=True, kw_only=True)
class TemplateBatch(Batch):
    """Strings of templates. One target, the label; in next-token form one target per token."""

    answer_fields = ("labels", "values")

    template: Int[Tensor, " batch"]
    """Index of the template of each string."""
    values: Float[Tensor, "batch target"]
    """Real labels; zeros in the other forms."""


def template_table(templates: Sequence[LabelledTemplate], *, fixed: Sequence[str]) -> Int[Tensor, "template column"]:
    """Tokens and label of each template: n for its n-th wildcard, -1 - id for a fixed token, 0 for a real label."""
    rows = []
    for template in templates:
        entry_of = {token: -1 - index for index, token in enumerate(fixed)}
        entry_of |= {wildcard: index for index, wildcard in enumerate(template.wildcards)}
        row = [entry_of[token] for token in template.tokens]
        label = entry_of[template.label] if isinstance(template.label, str) else 0
        rows.append([*row, label])
    return torch.tensor(rows)


def undecided_pairs(rows: Int[Tensor, "template pos"]) -> Bool[Tensor, "pos pos"]:
    """Pairs of positions that are equal in some template and different in another."""
    equal = rows[:, :, None] == rows[:, None, :]
    return equal.any(0) & ~equal.all(0)


def parse_string(
    text: str, templates: Sequence[LabelledTemplate], vocab: Vocab, *, fixed: Sequence[str]
) -> tuple[int, list[int]]:
    """Index of the template that a string matches, and the ids of the symbols of its wildcards.

    Raises:
        ValueError: an unknown symbol, or a string that matches no template.
    """
    # tokens separated by white space, or else found one after the other
    tokens = text.split()
    if len(tokens) == 1 and text.strip() not in vocab.ids:
        tokens = vocab.words(vocab.encode(text))
    unknown = [token for token in tokens if token not in vocab.ids]
    if unknown:
        names = " ".join(vocab.names[:20])
        raise ValueError(f"the string {text!r} has the unknown symbol {unknown[0]!r}; known are {names} ...")
    # no string matches two templates of a task
    for index, template in enumerate(templates):
        symbols = substitution(tokens, template, fixed=fixed)
        if symbols is not None:
            return index, [vocab.ids[symbol] for symbol in symbols.values()]
    examples = ", ".join(map(str, templates[:6]))
    raise ValueError(f"the string {text!r} matches none of the {len(templates)} templates ({examples}).")
