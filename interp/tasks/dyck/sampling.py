"""The distribution D_{q,k,D} over bracket words: sampling, and exact probabilities of the next step.

A step is up (a bracket opens), down (one closes) or none (the word has ended). Axes: `step` brackets before the step,
`depth` open brackets.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from interp.tasks.dyck.brackets import END, FIRST_BRACKET, PAD, START


@dataclass(frozen=True)
class StepProbabilities:
    """Probabilities to open and to end, by brackets before the step and depth; the remaining one is to close."""

    opens: Float[Tensor, "step depth"]
    ends: Float[Tensor, "step depth"]


def prefix_probabilities(q: float, max_depth: int, length: int) -> StepProbabilities:
    """Step probabilities of prefixes: open with probability 1 at depth 0, q in between, 0 at the maximal depth."""
    opens = torch.full((max_depth + 1,), q, dtype=torch.float64)
    opens[0], opens[-1] = 1, 0
    ends = torch.zeros(length + 1, max_depth + 1, dtype=torch.float64)
    return StepProbabilities(opens.expand(length + 1, -1), ends)


@lru_cache
def word_probabilities(q: float, max_depth: int, length: int, min_length: int) -> StepProbabilities:
    """Step probabilities of complete words.

    After at least `min_length` brackets a word ends with probability 1/2 whenever the depth is 0, conditioned on
    ending within `length` brackets. The condition is exact, by dynamic programming from the end.
    """
    opens = prefix_probabilities(q, max_depth, 0).opens[0]
    ends = torch.zeros(length + 1, max_depth + 1, dtype=torch.float64)
    ends[min_length:, 0] = 0.5
    # P(end in time), up to a factor per step, and P(open and end in time)
    in_time = torch.zeros(length + 2, max_depth + 2, dtype=torch.float64)
    opens_in_time = torch.zeros(length + 1, max_depth + 1, dtype=torch.float64)
    for step in range(length, -1, -1):
        # a step up is followed by a word from one depth higher, a step down from one lower
        after_opening = in_time[step + 1, 1:]
        after_closing = F.pad(in_time[step + 1, :max_depth], (1, 0))
        opens_in_time[step] = (1 - ends[step]) * opens * after_opening
        in_time[step, :-1] = opens_in_time[step] + (1 - ends[step]) * (1 - opens) * after_closing + ends[step]
        # where no word ends, only ratios within a step matter: avoid underflow
        if step < min_length:
            scale = in_time[step].max().clamp_min(1e-300)
            in_time[step] /= scale
            opens_in_time[step] /= scale
    total = in_time[:-1, :-1].clamp_min(1e-300)
    return StepProbabilities(opens_in_time / total, ends / total)


def sample_words(
    n: int, n_types: int, probabilities: StepProbabilities, *, generator: torch.Generator, length: int
) -> Int[Tensor, "batch pos"]:
    """Sample words or prefixes: `[START]`, then `length` tokens including `[END]` and padding."""
    # all random numbers at once
    draws = torch.rand(length, n, generator=generator, dtype=torch.float32).numpy()
    types = torch.randint(n_types, (n, length), generator=generator)
    opens, ends = probabilities.opens.float().numpy(), probabilities.ends.float().numpy()
    # a random walk over depths, one step of all words at a time
    depth = np.zeros(n, dtype=np.int64)
    steps = np.empty((length, n), dtype=np.int64)
    continues = np.ones(n, dtype=bool)
    words_end = bool(ends.any())
    for step in range(length):
        # the last row of the probabilities is for all later steps
        row = min(step, len(opens) - 1)
        move = np.where(draws[step] < opens[row][depth], 1, -1)
        # the same draw decides whether the word ends: if it is among the largest
        if words_end:
            continues &= draws[step] < 1 - ends[row][depth]
            move *= continues
        depth += move
        steps[step] = move
    return _tokens(torch.from_numpy(steps.T.copy()), types)


def number_of_words(n_types: int, max_depth: int, length: int, *, complete: bool) -> int:
    """Number of prefixes, or of complete words, with `length` brackets."""
    # words that end at each depth, one bracket at a time
    by_depth = [1] + [0] * max_depth
    for _ in range(length):
        after_opening = [0] + [n_types * number for number in by_depth[:-1]]
        after_closing = [*by_depth[1:], 0]
        by_depth = [up + down for up, down in zip(after_opening, after_closing, strict=True)]
    return by_depth[0] if complete else sum(by_depth)


def every_word(n_types: int, max_depth: int, length: int, *, complete: bool) -> Int[Tensor, "word bracket"]:
    """Every prefix, or every complete word, with `length` brackets: the tokens of the brackets, in increasing order."""
    openers = range(FIRST_BRACKET, FIRST_BRACKET + 2 * n_types, 2)
    words = torch.empty(1, 0, dtype=torch.long)
    # the openers without a partner of each word, outermost first, and how many there are
    stacks = torch.zeros(1, max_depth + 1, dtype=torch.long)
    depth = torch.zeros(1, dtype=torch.long)
    for n_read in range(length):
        # brackets that may still follow, if a complete word must end in time
        most_open = min(max_depth, length - n_read - 1) if complete else max_depth
        longer_words = []
        for opener in openers:
            rows = depth < most_open
            stack = stacks[rows].scatter(1, depth[rows, None], opener)
            longer_words.append((words[rows], torch.full_like(depth[rows], opener), stack, depth[rows] + 1))
        rows = depth > 0
        last_opener = stacks[rows].gather(1, depth[rows, None] - 1)[:, 0]
        longer_words.append((words[rows], last_opener + 1, stacks[rows], depth[rows] - 1))
        starts, brackets, stack_of_word, depth_of_word = zip(*longer_words, strict=True)
        words = torch.cat([torch.cat(starts), torch.cat(brackets)[:, None]], 1)
        stacks, depth = torch.cat(stack_of_word), torch.cat(depth_of_word)
    return words.unique(dim=0)


def _tokens(steps: Int[Tensor, "batch pos"], types: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch longer"]:
    """Tokens from steps up (1), down (-1) and none (0), and the type of each opener; `[START]` is put in front."""
    # a closer has the type of the last opener of its level
    depth = steps.cumsum(1)
    position = torch.arange(steps.shape[1])
    kind = types
    for level in range(1, int(depth.max()) + 1):
        opens_level = (steps == 1) & (depth == level)
        last_opener = torch.where(opens_level, position, -1).cummax(1).values
        closes_level = (steps == -1) & (depth == level - 1)
        kind = torch.where(closes_level, types.gather(1, last_opener.clamp_min(0)), kind)
    tokens = FIRST_BRACKET + 2 * kind + (steps == -1)
    # after the word, one [END], then padding
    has_ended = steps == 0
    is_end = has_ended & (has_ended.cumsum(1) == 1)
    tokens = torch.where(has_ended, PAD, tokens)
    tokens = torch.where(is_end, END, tokens)
    return F.pad(tokens, (1, 0), value=START)
