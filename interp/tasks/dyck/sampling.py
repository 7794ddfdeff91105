"""The distribution D_{q,k,D} over bracket words: sampling, and exact probabilities of the next step.

Axes: `step` brackets read so far, `depth` open brackets.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.tasks.dyck.brackets import END, FIRST_BRACKET, PAD, START


@dataclass(frozen=True)
class StepChances:
    """Probabilities of the next step (open or end; the rest is close), by brackets read so far and depth."""

    opens: Float[Tensor, "step depth"]
    ends: Float[Tensor, "step depth"]

    def at(self, depth: Int[Tensor, "*batch pos"], step: Int[Tensor, "*batch pos"]) -> tuple[Tensor, Tensor]:
        """Probabilities to open and to end, at given depths and steps."""
        step = step.clamp_max(len(self.opens) - 1)
        return self.opens[step, depth], self.ends[step, depth]


def prefix_chances(q: float, max_depth: int, length: int) -> StepChances:
    """Step probabilities of prefixes: open with probability 1 at depth 0, q in between, 0 at the maximal depth."""
    opens = torch.full((max_depth + 1,), q, dtype=torch.float64)
    opens[0], opens[-1] = 1, 0
    return StepChances(opens.expand(length + 1, -1), torch.zeros(length + 1, max_depth + 1, dtype=torch.float64))


@lru_cache
def word_chances(q: float, max_depth: int, length: int, min_length: int) -> StepChances:
    """Step probabilities of complete words.

    After at least `min_length` brackets a word ends with probability 1/2 whenever the depth is 0, conditioned on
    ending within `length` brackets. The condition is exact, by dynamic programming from the end.
    """
    opens = prefix_chances(q, max_depth, 0).opens[0]
    ending = torch.zeros(length + 1, max_depth + 1, dtype=torch.float64)
    ending[min_length:, 0] = 0.5
    finish = torch.zeros(length + 2, max_depth + 2, dtype=torch.float64)  # P(end in time), up to a factor per step
    next_open = torch.zeros(length + 1, max_depth + 1, dtype=torch.float64)
    for step in range(length, -1, -1):
        up, down = finish[step + 1, 1:], torch.nn.functional.pad(finish[step + 1, :max_depth], (1, 0))
        next_open[step] = (1 - ending[step]) * opens * up
        finish[step, :-1] = next_open[step] + (1 - ending[step]) * (1 - opens) * down + ending[step]
        scale = finish[step].max().clamp_min(1e-300)
        if step < min_length:  # no word ends here, so only ratios within a step matter: avoid underflow
            finish[step] /= scale
            next_open[step] /= scale
    whole = finish[:-1, :-1].clamp_min(1e-300)
    return StepChances(next_open / whole, ending / whole)


def sample_words(
    n: int, n_types: int, chances: StepChances, *, generator: torch.Generator, length: int
) -> Int[Tensor, "batch pos"]:
    """Sample words or prefixes: `[START]`, then `length` tokens including `[END]` and padding."""
    draws = torch.rand(length, n, generator=generator).numpy()
    kinds = torch.randint(n_types, (n, length), generator=generator)
    opens, ends = chances.opens.float().numpy(), chances.ends.float().numpy()
    depth = np.zeros(n, dtype=np.int64)
    steps = np.empty((length, n), dtype=np.int64)
    going = np.ones(n, dtype=bool) if ends.any() else None
    for step in range(length):
        row = min(step, len(opens) - 1)
        move = np.where(draws[step] < opens[row][depth], 1, -1)
        if going is not None:
            going &= draws[step] < 1 - ends[row][depth]
            move *= going
        depth += move
        steps[step] = move
    return _with_types(torch.from_numpy(steps.T.copy()), kinds)


def _with_types(steps: Int[Tensor, "batch pos"], kinds: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch longer"]:
    """Tokens from steps up (1), down (-1) and none (0); closers get the type of their opener."""
    depth = steps.cumsum(1)
    at = torch.arange(steps.shape[1])
    kind = kinds
    for level in range(1, int(depth.max()) + 1):
        last = torch.where((steps == 1) & (depth == level), at, -1).cummax(1).values
        kind = torch.where((steps == -1) & (depth == level - 1), kinds.gather(1, last.clamp_min(0)), kind)
    tokens = FIRST_BRACKET + 2 * kind + (steps == -1)
    ended = steps == 0
    tokens = torch.where(ended, PAD, tokens)
    first = ended & (ended.cumsum(1) == 1)
    tokens = torch.where(first, END, tokens)
    return torch.nn.functional.pad(tokens, (1, 0), value=START)
