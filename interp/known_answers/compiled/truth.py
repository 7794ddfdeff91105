"""What is true about the heads of a compiled program, by brute force with plain hooks on all of its examples."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import chain, combinations
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks import Transformer
from hooks.interventions.ablation_engine import Head, every_head
from interp.known_answers.answers import HeadTruth
from interp.known_answers.compiled.task import Compiled
from interp.tasks.base import logits_at_targets

SHARE = 0.2
"""Loss of accuracy that counts, as a fraction of the accuracy above chance; the audit's."""
REMOVALS = ("zero", "mean", "resample")
RELATION = 0.5
"""A selector is a relation if at least this fraction of the queries that select keys leave others out."""
MOST_HEADS = 12
"""Number of heads that do something up to which every set of them is removed."""


def truth_of_heads(model: Transformer, task: Compiled) -> dict[Head, HeadTruth]:
    """The truth about every head.

    A head whose weights are zero is idle. What a head of the program does is not in doubt, but whether the answers need
    it depends on the distribution and on the removal: a count of tokens is the same in all sequences of one length, so
    that its mean is as good. Hence each is removed, alone and with every set of others, and the accuracy that is lost
    is compared with a fifth of the accuracy above chance, on all examples whose selected keys are known.

    A head is needed if its mean loses that much. Then it is faithful if its selector is a relation, and hidden if it is
    not (it selects all keys). A head that is not needed alone is redundant if it is in a smallest set that is needed
    together; its partners are the others of these sets. Any other head is misleading if its selector is a relation, and
    idle if it is not.
    """
    removal = Removal(model, task)
    found = {head: HeadTruth(truth="idle", needed=dict.fromkeys(REMOVALS, False)) for head in every_head(model)}
    looks = relations(task)
    heads = [(one.layer, one.head) for one in task.program.selectors]
    alone = {head: {how: removal.costs([head], how) for how in REMOVALS} for head in heads}
    spare = [head for head in heads if not alone[head]["mean"]]
    sets = removal.minimal(spare) if len(spare) <= MOST_HEADS else []
    for at, head in enumerate(heads, start=1):
        partners = {other for one in sets if head in one for other in one} - {head}
        kind = f"selector_{at}" if looks[at - 1] else None
        if alone[head]["mean"]:
            truth = "faithful" if kind else "hidden"
        else:
            truth = "redundant" if partners else "misleading" if kind else "idle"
        found[head] = HeadTruth(truth=truth, looks=kind, partners=tuple(sorted(partners)), needed=alone[head])
    return found


def relations(task: Compiled) -> list[bool]:
    """Whether each selector is a relation: whether enough queries select some keys and leave others out."""
    batch = task.examples(torch.arange(task.program.relations.shape[1]))
    real = batch.attention_mask
    assert real is not None
    found = []
    for keys in task.relations(batch).values():
        keys = keys & real[:, None]
        selects, leaves = keys.any(-1) & real, (~keys & real[:, None]).any(-1) & real
        found.append(bool((selects & leaves).sum() >= RELATION * selects.sum()))
    return found


class Removal:
    """Accuracy without sets of heads, on every example with known relations.

    Args:
        model: The transformer of the program.
        task: Its task.
    """

    def __init__(self, model: Transformer, task: Compiled):
        self.model, self.task = model, task
        self.batch = task.examples(torch.arange(task.program.relations.shape[1]))
        self.names = [f"blocks.{layer}.attn.hook_z" for layer in range(model.cfg.n_layers)]
        self._known: dict[tuple[frozenset[Head], str], bool] = {}
        self._others = self._replacements()

    @cached_property
    def clean(self) -> Float[Tensor, " outcome"]:
        """Accuracy of the whole model."""
        return self._accuracy([])

    def costs(self, heads: Iterable[Head], how: str = "mean") -> bool:
        """Whether accuracy falls by more than what counts, on some outcome."""
        key = (frozenset(heads), how)
        if key not in self._known:
            lost = self.clean - self._accuracy([self._hook(layer, key[0], how) for layer in {at for at, _ in key[0]}])
            self._known[key] = bool((lost > SHARE * (self.clean - torch.tensor(self.task.chances))).any())
        return self._known[key]

    def minimal(self, heads: list[Head]) -> list[frozenset[Head]]:
        """Sets of heads that cost accuracy together, of which no smaller set does."""
        found: list[frozenset[Head]] = []
        for some in map(frozenset, chain(*(combinations(heads, size) for size in range(2, len(heads) + 1)))):
            if not any(one < some for one in found) and self.costs(some):
                found.append(some)
        return found

    @torch.no_grad()
    def _accuracy(self, hooks: list) -> Float[Tensor, " outcome"]:
        inputs: dict[str, Any] = self.batch.model_inputs()
        logits = self.model.run_with_hooks(self.batch.tokens, **inputs, fwd_hooks=hooks)
        score = self.task.score(logits_at_targets(logits, self.batch), self.batch)
        return score.right.sum(0) / score.total.sum(0).clamp_min(1)

    def _hook(self, layer: int, heads: frozenset[Head], how: str):
        chosen = [head for at, head in heads if at == layer]

        def replace(z: Tensor, hook) -> Tensor:
            z = z.clone()
            z[:, :, chosen] = self._others[how][layer][:, :, chosen]
            return z

        return self.names[layer], replace

    @torch.no_grad()
    def _replacements(self) -> Mapping[str, list[Tensor]]:
        """What takes a head's place in each layer: nothing, its mean over real tokens, or another example's."""
        inputs: dict[str, Any] = self.batch.model_inputs()
        _, cache = self.model.run_with_cache(self.batch.tokens, **inputs, names_filter=self.names)
        clean = [cache[name] for name in self.names]
        real: Bool[Tensor, "batch pos"] = inputs["attention_mask"]
        share = (real / real.sum(0).clamp_min(1))[..., None, None]
        return {
            "zero": [torch.zeros_like(z) for z in clean],
            "mean": [(z * share).sum(0, keepdim=True).expand_as(z) for z in clean],
            "resample": [z.roll(1, 0) for z in clean],
        }
