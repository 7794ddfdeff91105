"""The inputs that a verb asks about, and what its intervals count.

Every input of a task (`n="all"`) is a sample as any other, whose numbers are exact: no verb has a second path for it.
What an intervention draws for each input is drawn once for a sample; for every input it is averaged over a fixed family
of pairings of inputs (`interp.core.inputs`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.activations import chunks
from interp.core.inputs import distinct_inputs, inputs_or_sample, number_of_pairings, partners, sum_by_input
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator, derived_seed
from interp.tasks.base import Batch, Task
from interp.tasks.outputs import checked_batch
from interp.tasks.splits import ALL, EveryInput, Split, check_sample_size, sample_split

Estimator = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Mean, lower and upper end, from sums and numbers of answers of each unit (`interp.core.statistics`)."""
N_REFERENCE = 256
"""Other inputs, which say what a part usually writes."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Inputs of a task, which are all of them if `exact`.

    >>> import interp
    >>> sample = Sample.of(interp.tasks.Lego(n_vars=2), 16, seed=0, name="guide")
    >>> len(sample), sample.exact, sample.n_draws
    (16, False, 1)
    """

    task: Task
    batch: Batch
    seed: int = 0
    """Determines what is drawn for each input, and the inputs of `reference`."""
    exact: bool = False
    """Whether these are every input of the task, or the first of them, so that numbers have no sampling error."""
    first: int = 0
    """Number of inputs in earlier samples; with it, draws differ from those for earlier ones."""
    every: Batch | None = None
    """Every input, if `batch` has only the first of them."""

    @classmethod
    def of(
        cls, task: Task, n: int | EveryInput, *, seed: int, name: str, split: Split = "test", low: int = 8
    ) -> "Sample":
        """n inputs of a split, or every input.

        Args:
            task: The task.
            n: Number of inputs, or "all".
            seed: Determines the inputs and what is drawn for them.
            name: What they are for; with another name, they are others.
            split: The split.
            low: Smallest number of inputs.

        Raises:
            ValueError: too few inputs, or an error of `inputs_or_sample`.
        """
        check_sample_size("n", n)
        if n != ALL and n < low:
            raise ValueError(f"n is {n}; at least {low} sequences are needed for an interval.")
        batch = inputs_or_sample(task, n, generator=derived_generator(seed, name), split=split)
        return cls(task, batch, seed, exact=n == ALL)

    def __len__(self) -> int:
        return len(self.batch)

    # Units

    @cached_property
    def inputs(self) -> Int[np.ndarray, " sample"]:
        """Number of the distinct input of each example, the unit of intervals."""
        return np.arange(len(self)) if self.exact else distinct_inputs(self.batch)

    @property
    def n_inputs(self) -> int:
        """Number of distinct inputs."""
        return int(self.inputs.max()) + 1

    def by_input(self, values: Float[np.ndarray, "sample *cells"]) -> Float[np.ndarray, "input *cells"]:
        """Sum over the examples of each distinct input."""
        return sum_by_input(values, self.inputs)

    def estimate(
        self,
        values: Float[np.ndarray, "sample *cells"],
        weight: Float[np.ndarray, "sample *#cells"],
        interval_of: Estimator,
    ) -> Interval:
        """Mean of values per answer, with its interval over distinct inputs; without one if the sample is exact.

        Args:
            values: Sum over the answers of each example.
            weight: Number of answers of each example.
            interval_of: Mean and ends of its interval, from the sums and the numbers of answers of each distinct input.

        Returns:
            The estimate; NaN in cells without answers.
        """
        total = np.broadcast_to(weight.sum(0), values.shape[1:])
        missing = ~(total > 0)
        if self.exact:
            mean = values.sum(0) / np.where(missing, np.nan, total)
            return Interval(value=mean, low=mean, high=mean, n=len(self), exact=True)
        ends = interval_of(self.by_input(values), self.by_input(weight))
        mean, low, high = (np.where(missing, np.nan, end) for end in ends)
        return Interval(value=mean, low=low, high=high, n=self.n_inputs)

    # Parts

    def chunks(self, size: int) -> Iterator[tuple[slice, Batch]]:
        """`size` examples at a time: their rows, and the examples."""
        for index, chunk in enumerate(chunks(self.batch, size)):
            yield slice(index * size, index * size + len(chunk)), chunk

    def halves(self) -> tuple["Sample", "Sample"]:
        """Two samples, to choose on one and to measure on the other; of every input, twice the same."""
        if self.exact:
            return self, self
        half = len(self) // 2
        later = replace(self, batch=self.batch.select(slice(half, None)), first=self.first + half)
        return replace(self, batch=self.batch.select(slice(0, half))), later

    # What is drawn

    @property
    def n_draws(self) -> int:
        """Number of draws over which the effect of what is drawn is averaged."""
        return number_of_pairings(len(self.reference)) if self.exact else 1

    @cached_property
    def reference(self) -> Batch:
        """Inputs that say what a part usually writes: others from the validation split, or every input, with its
        counterpart if that is fixed."""
        if not self.exact:
            return reference_batch(self.task, self.seed)
        every = self.batch if self.every is None else self.every
        return every.followed_by(self._counterparts_of(every)) if self.task.counterparts_are_fixed else every

    def partners(self, rows: slice, draw: int = 0) -> Int[Tensor, " batch"]:
        """Rows of `reference` that a draw gives some of the examples.

        Args:
            rows: The examples.
            draw: Number of the draw, below `n_draws`.
        """
        if self.exact:
            return partners(rows, len(self.reference), draw)
        return self._drawn_partners[rows]

    @cached_property
    def _drawn_partners(self) -> Int[Tensor, " sample"]:
        generator = derived_generator(self.seed, "replacement")
        return torch.randint(len(self.reference), (self.first + len(self),), generator=generator)[self.first :]

    @cached_property
    def counterparts(self) -> Batch:
        """The counterpart of each example (`Task.counterparts`).

        Raises:
            ValueError: counterparts of another length.
        """
        return self._counterparts_of(self.batch)

    def _counterparts_of(self, examples: Batch) -> Batch:
        generator = derived_generator(self.seed, "counterparts")
        drawn = self.task.counterparts(examples, generator=generator, split="test")
        batch = checked_batch(self.task, drawn, "counterparts", n=len(examples))
        length, expected = batch.tokens.shape[1], examples.tokens.shape[1]
        if length != expected:
            raise ValueError(
                f"the counterparts of {type(self.task).__name__} have {length} tokens, the examples {expected}; what "
                f"is written for them has no place in the examples. Use method='resample', or interp.patch."
            )
        return batch

    def draw_seed(self, draw: int) -> int:
        """Seed of what a draw gives each example; of every input, the same for every seed of the verb."""
        return derived_seed(0, "pairing", draw) if self.exact else self.seed


def reference_batch(task: Task, seed: int) -> Batch:
    """The sequences that references are computed on."""
    return sample_split(task, N_REFERENCE, generator=derived_generator(seed, "reference"), split="validation")
