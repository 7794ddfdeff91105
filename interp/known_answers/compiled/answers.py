"""Compiled programs as known answers: the truth about their heads by brute force, with plain hooks on all examples."""

from collections.abc import Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks import Transformer
from hooks.files import user_path
from hooks.interventions.ablation_engine import Head, every_head
from hooks.typed import checks_types
from interp.core.statistics import SHARE_THAT_COUNTS
from interp.known_answers.answers import HeadTruth, KnownAnswer
from interp.known_answers.compiled.network import network
from interp.known_answers.compiled.program import Program, read_program
from interp.known_answers.compiled.task import Compiled
from interp.tasks.base import logits_at_targets

RELATION = 0.5
"""A selector is a relation if at least this fraction of the queries that select keys leave others out."""
MOST_HEADS = 12
"""Number of heads that do something up to which every set of them is removed."""
Method = Literal["zero", "mean", "resample"]
METHODS: tuple[Method, ...] = ("zero", "mean", "resample")


@checks_types
def read_compiled(path: str | Path) -> KnownAnswer:
    """Read a compiled program: its transformer, its task, and the truth about every head.

    A pack is two files, `NAME.json` with sizes and names and `NAME.npz` with plain arrays. Nothing is executed, and
    every array is checked against the sizes before it is read.

    `task.relations` has the keys to which each head attends by the program, as `selector_1`, `selector_2`, ..., which
    are kinds of head of this task.

    Args:
        path: One of the two files, or their common name without an ending.

    Raises:
        FileNotFoundError: one of the files is not there.
        ValueError: a file that cannot be read, or arrays that do not fit the sizes; names the file.

    Source: Lindner et al. 2023 (arXiv:2301.05062), who compile RASP programs (Weiss et al. 2021) to such transformers.
    """
    program = read_program(path)
    return known_answer_of(program, str(user_path(path).absolute()))


def known_answer_of(program: Program, path: str = "") -> KnownAnswer:
    """A program as a known answer; `path` is the pack it was read from, if any."""
    model = network(program)
    task = Compiled(program, path)
    return KnownAnswer(name=f"compiled {program.name}", model=model, task=task, heads=truth_of_heads(model, task))


def truth_of_heads(model: Transformer, task: Compiled) -> dict[Head, HeadTruth]:
    """The truth about every head.

    A head whose weights are zero is idle. What a head of the program does is not in doubt, but whether the answers need
    it depends on the distribution and on the removal: a count of tokens is the same in all sequences of one length, so
    that its mean is as good. Hence each is removed, alone and with every set of others, and the accuracy that is lost
    is compared with a fifth of the accuracy above that of guessing and of the best constant answer, on all examples of
    the test split. Outcomes on which a constant answer is always right do not count.

    A head is needed if its mean loses that much. Then it is faithful if its selector is a relation, and hidden if it is
    not (it selects all keys). A head that is not needed alone is redundant if it is in a smallest set that is needed
    together; its partners are the others of these sets. Any other head is misleading if its selector is a relation, and
    idle if it is not.
    """
    removal = Removal(model, task)
    truths = {head: HeadTruth(truth="idle", needed=dict.fromkeys(METHODS, False)) for head in every_head(model)}
    # Remove every head of the program alone, and sets of those that are not needed
    heads = [(selector.layer, selector.head) for selector in task.program.selectors]
    needed: dict[Head, dict[str, bool]] = {}
    for head in heads:
        needed[head] = {method: removal.costs([head], method) for method in METHODS}
    not_needed_alone = [head for head in heads if not needed[head]["mean"]]
    redundant_sets = removal.minimal(not_needed_alone) if len(not_needed_alone) <= MOST_HEADS else []
    for number, (head, is_relation) in enumerate(zip(heads, relations(task), strict=True), start=1):
        sets_with_head = [heads_together for heads_together in redundant_sets if head in heads_together]
        partners = frozenset[Head]().union(*sets_with_head)
        if needed[head]["mean"]:
            truth = "faithful" if is_relation else "hidden"
        elif partners:
            truth = "redundant"
        else:
            truth = "misleading" if is_relation else "idle"
        truths[head] = HeadTruth(
            truth=truth,
            looks=f"selector_{number}" if is_relation else None,
            partners=tuple(sorted(partners - {head})),
            needed=needed[head],
        )
    return truths


def relations(task: Compiled) -> list[bool]:
    """Whether each selector is a relation: whether enough queries select some keys and leave others out."""
    batch = task.related_examples
    real = batch.attention_mask
    assert real is not None
    are_relations = []
    for keys in task.relations(batch).values():
        selects = (keys & real[:, None]).any(-1) & real
        leaves_out = (~keys & real[:, None]).any(-1) & real
        are_relations.append(bool((selects & leaves_out).sum() >= RELATION * selects.sum()))
    return are_relations


class Removal:
    """Accuracy without sets of heads, on every example of the test split.

    Args:
        model: The transformer of the program.
        task: Its task.
    """

    def __init__(self, model: Transformer, task: Compiled):
        self.model = model
        self.task = task
        self.batch = task.examples(task.pools["test"])
        self.inputs: dict[str, Any] = self.batch.model_inputs()
        # Outputs of heads, and what replaces them
        self.sites = [f"blocks.{layer}.attn.hook_z" for layer in range(model.cfg.n_layers)]
        self.clean = self._accuracy([])
        """Accuracy of the whole model."""
        self.chance = torch.maximum(torch.tensor(task.chances), self._accuracy_of_constants())
        """Accuracy of guessing, or of the best constant answer if that is higher."""
        self.replacements = self._replacements()

    def costs(self, heads: Sequence[Head], method: Method = "mean") -> bool:
        """Whether accuracy falls by more than what counts, on some outcome."""
        layers = sorted({layer for layer, _ in heads})
        drop = self.clean - self._accuracy([self._hook(layer, heads, method) for layer in layers])
        above_chance = self.clean - self.chance
        return bool(((drop > SHARE_THAT_COUNTS * above_chance) & (above_chance > 0)).any())

    def minimal(self, heads: Sequence[Head]) -> list[frozenset[Head]]:
        """Sets of heads that cost accuracy together, of which no smaller set does."""
        minimal_sets: list[frozenset[Head]] = []
        sizes = range(2, len(heads) + 1)
        for candidate in chain.from_iterable(combinations(heads, size) for size in sizes):
            has_smaller = any(smaller < set(candidate) for smaller in minimal_sets)
            if not has_smaller and self.costs(candidate):
                minimal_sets.append(frozenset(candidate))
        return minimal_sets

    @torch.no_grad()
    def _accuracy(self, hooks: list) -> Float[Tensor, " outcome"]:
        logits = self.model.run_with_hooks(self.batch.tokens, **self.inputs, fwd_hooks=hooks)
        score = self.task.score(logits_at_targets(logits, self.batch), self.batch)
        return score.right.sum(0) / score.total.sum(0).clamp_min(1)

    def _accuracy_of_constants(self) -> Float[Tensor, " outcome"]:
        """Accuracy of the best answer that is the same everywhere, or the most frequent at each position."""
        n_answers = len(self.task.answer_names)
        is_answer = F.one_hot(self.batch.labels, n_answers) * self.batch.present[..., None]
        constants = [is_answer.sum(0).argmax(-1), *torch.arange(n_answers)[:, None].expand(-1, len(self.task.targets))]
        accuracies = []
        for answers in constants:
            if self.task.program.numerical:
                logits = torch.tensor(self.task.values)[answers][:, None]
            else:
                logits = F.one_hot(answers, n_answers).float()
            score = self.task.score(logits.expand(len(self.batch), -1, -1), self.batch)
            accuracies.append(score.right.sum(0) / score.total.sum(0).clamp_min(1))
        return torch.stack(accuracies).amax(0)

    def _hook(self, layer: int, heads: Sequence[Head], method: Method):
        """Hook that replaces the output of those of the heads that are in a layer."""
        in_layer = [head for head_layer, head in heads if head_layer == layer]

        def replace(z: Tensor, hook) -> Tensor:
            z = z.clone()
            z[:, :, in_layer] = self.replacements[method][layer][:, :, in_layer]
            return z

        return self.sites[layer], replace

    @torch.no_grad()
    def _replacements(self) -> dict[Method, list[Tensor]]:
        """What takes a head's place in each layer: nothing, its mean over real tokens, or another example's."""
        _, cache = self.model.run_with_cache(self.batch.tokens, **self.inputs, names_filter=self.sites)
        clean = [cache[site] for site in self.sites]
        # The mean of a position is over the examples that have a token there
        real = self.inputs["attention_mask"]
        share = (real / real.sum(0).clamp_min(1))[..., None, None]
        return {
            "zero": [torch.zeros_like(z) for z in clean],
            "mean": [(z * share).sum(0, keepdim=True).expand_as(z) for z in clean],
            "resample": [z[other_example(real.bool()), torch.arange(z.shape[1])] for z in clean],
        }


def other_example(real: Bool[Tensor, "example pos"]) -> Int[Tensor, "example pos"]:
    """For each example and position the nearest earlier one, in a circle, that has a token there: padding is no source.

    At positions that are padding everywhere it is the example before.
    """
    n_examples = len(real)
    before = (torch.arange(n_examples) - 1) % n_examples
    source = before[:, None].repeat(1, real.shape[1])
    position = torch.arange(real.shape[1])
    has_source = real.any(0)
    for _ in range(n_examples):
        is_padding = ~real[source, position] & has_source
        if not is_padding.any():
            break
        source = torch.where(is_padding, (source - 1) % n_examples, source)
    return source
