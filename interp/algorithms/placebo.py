"""Placebo sources: inputs in which a variable has the same value as in the base, so that no answer may change."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.algorithms.algorithm import Computation
from interp.algorithms.predictions import Pairs, Prediction, has_own_counterparts
from interp.core.randomness import derived_generator
from interp.tasks.base import Batch, Task
from interp.tasks.outputs import checked_batch

OWN_CANDIDATES = 8
"""Further counterparts of each base input, for tasks with rules of their own for pairs: of a variable with two values,
about four of them have the same one."""
CANDIDATES = 256
"""Inputs among which a placebo source is looked for, in other tasks; of 26 values, about ten have the same one."""
PAIRS_AT_ONCE = 1024
NONE = -1
"""Row of a placebo source, where there is none."""


@dataclass(frozen=True)
class Candidates:
    """Inputs that may be placebo sources."""

    batch: Batch
    """All of them; the sources of the pairs in tasks in which any input can be the source of any other."""
    of_pair: Int[Tensor, "pair candidate"]
    """Those of each pair, as rows of the batch."""
    difference: Float[Tensor, "pair candidate"]
    """Share of tokens in which each differs from the pair's base; 0 for the same input."""
    are_sources: bool
    """Whether they are the sources of the pairs, and not further inputs."""


def candidates_for(task: Task, pairs: Pairs, seed: int) -> Candidates:
    """Inputs that may be placebo sources of each pair."""
    generator = derived_generator(0 if pairs.of_all_inputs else seed, "placebo sources")
    n_base, n_source = len(pairs.base_inputs), len(pairs.source_inputs)
    if not has_own_counterparts(task):
        # Some of the sources, all if they are few; in another order for each pair.
        n_candidates = min(n_source, CANDIDATES)
        start = torch.randint(n_source, (len(pairs), 1), generator=generator)
        order = torch.randperm(n_source, generator=generator)
        of_pair = order[(start + torch.arange(n_candidates)) % n_source]
        return Candidates(pairs.source_inputs, of_pair, _difference(pairs, pairs.source_inputs, of_pair), True)
    # Further counterparts of the base inputs, several in a row for each.
    repeated = pairs.base_inputs.select(torch.arange(n_base).repeat_interleave(OWN_CANDIDATES))
    batch = checked_batch(
        task, task.counterparts(repeated, generator=generator, split="test"), "counterparts", n=len(repeated)
    )
    of_pair = pairs.rows.base[:, None] * OWN_CANDIDATES + torch.arange(OWN_CANDIDATES)
    return Candidates(batch, of_pair, _difference(pairs, batch, of_pair), False)


def _difference(pairs: Pairs, batch: Batch, of_pair: Int[Tensor, "pair candidate"]) -> Float[Tensor, "pair candidate"]:
    """Share of tokens in which candidates differ from the bases of pairs; 1 if they have other lengths."""
    base = pairs.base_inputs.tokens
    if base.shape[1] != batch.tokens.shape[1]:
        return torch.ones(of_pair.shape)
    parts = []
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        chunk = slice(start, start + PAIRS_AT_ONCE)
        differs = batch.tokens[of_pair[chunk]] != base[pairs.rows.base[chunk]][:, None]
        parts.append(differs.float().mean(-1))
    return torch.cat(parts)


def placebo_sources(
    judged: Prediction, pairs: Pairs, computation: Computation, candidates: Candidates, computed: Computation
) -> Int[Tensor, "at pair"]:
    """For each pair with answers that must change, a candidate with which they must not; -1 where there is none.

    The variable has the same value in it as in the base input, at the same position if it has one at each. Of several,
    it is one whose own answers are others, in which the variable is computed from other values, and with other tokens:
    what else could be at a site differs most there.

    Args:
        judged: What is predicted, and judged, for a variable.
        pairs: Base and source inputs.
        computation: What the algorithm computes on the base inputs of the pairs.
        candidates: Inputs that may be placebo sources.
        computed: What the algorithm computes on them.
    """
    name = judged.variable.name
    values, candidate_values = computation.values[name], computed.values[name]
    sources = torch.full(judged.changed.shape[:2], NONE)
    for position in range(len(sources)):
        rows = judged.changed[position].any(-1).nonzero()[:, 0]
        if not len(rows):
            continue
        # Other inputs in which the variable has the same value.
        choices = candidates.of_pair[rows]
        base_value, value = values[rows], candidate_values[choices]
        if judged.variable.per_position:
            if position >= value.shape[-1]:
                continue
            base_value, value = base_value[:, position], value[..., position]
        possible = (value == base_value[:, None]) & (candidates.difference[rows] > 0)
        # Answers that must stay, and would be others if they were those of the candidate.
        counted = judged.changed[position, rows][:, None]
        own_answers = computed.answers[choices]
        differs = (counted & (own_answers != computation.answers[rows][:, None])).any(-1)
        other_parents = _other_parents(judged, computation, computed, rows, choices, position)
        score = 1 + differs.float() + other_parents.float() + candidates.difference[rows]
        best, index = (score * possible).max(1)
        chosen = choices.gather(1, index[:, None])[:, 0]
        sources[position, rows] = torch.where(best > 0, chosen, NONE)
    return sources


def _other_parents(
    judged: Prediction,
    computation: Computation,
    computed: Computation,
    rows: Int[Tensor, " row"],
    choices: Int[Tensor, "row candidate"],
    position: int,
) -> Bool[Tensor, "row candidate"]:
    """Whether a parent of the variable has another value in each candidate, at this position if it has one at each."""
    differs = torch.zeros(choices.shape, dtype=torch.bool)
    for parent in judged.variable.parents:
        base_value, value = computation.values[parent][rows], computed.values[parent][choices]
        if base_value.ndim == 1:
            differs |= value != base_value[:, None]
        elif position < value.shape[-1]:
            differs |= value[..., position] != base_value[:, None, position]
    return differs
