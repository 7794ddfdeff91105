"""Sign counting: does a model follow the chain of a LEGO sentence, or count minus signs?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.checks import checks_types
from hooks.model.baseline import Baseline
from interp.core.evaluation_mode import in_evaluation_mode
from interp.core.randomness import derived_generator
from interp.core.results import Result
from interp.core.statistics import pooled_interval
from interp.core.verbs import AnyModel, prepare_model
from interp.evaluation.evaluate import Answering, parts_on_device
from interp.tasks.base import Batch, Task, logits_at_targets
from interp.tasks.lego.groups import Z2
from interp.tasks.lego.task import Lego, LegoBatch

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

MEASURES = {
    "right": "the answer is right, on the original sentence",
    "one flip": "the answer changes with the sign of one other clause",
    "two flips": "the answer changes with the signs of any two clauses",
    "chain": "the answer follows the chain, on flips where chain and count differ",
    "count": "the answer follows the count, on the same flips",
    "broken": "the answer is the parity of all signs, on sentences with a broken chain",
}
"""What is measured for every variable."""


@dataclass(frozen=True, kw_only=True)
class SignCountingResult(Result):
    """Whether the answer for each variable follows the chain or the number of minus signs.

    For the last variable, chain and count agree on every flip: `chain` and `count` are NaN there, and `broken`
    separates the two. For the first variable `broken` is NaN, because a broken chain still leads to it.
    """

    measures: tuple[str, ...]
    """Names of what is measured: the keys of `MEASURES`."""
    targets: tuple[str, ...]
    """Names of the variables, in chain order."""
    share: Float[np.ndarray, "measure target"]
    """Fraction of answers of which the measure is true, 0 to 1; NaN if there are no answers."""
    low: Float[np.ndarray, "measure target"]
    high: Float[np.ndarray, "measure target"]
    """95 % interval (Clopper-Pearson); sentences are the independent units, not flips."""
    total: Int[np.ndarray, "measure target"]
    """Number of answers behind each share."""
    chance: float
    """Accuracy of random guesses, and the `broken` share of a model that follows chains."""
    n: int
    """Number of held-out sentences; each is flipped in two ways and broken once."""

    def of(self, measure: str) -> Float[np.ndarray, " target"]:
        """The share of every variable for one measure.

        Raises:
            ValueError: an unknown measure.
        """
        if measure not in self.measures:
            raise ValueError(f"measure is {measure!r}; choose one of {', '.join(self.measures)}.")
        return self.share[self.measures.index(measure)]

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per measure and variable."""
        return self._table({"measure": self.measures, "target": self.targets}, "share", "low", "high", "total")

    def plot(self) -> "alt.TopLevelMixin":
        """Answers on whole and broken chains, and the effects of flipped signs."""
        import altair as alt
        import pandas as pd

        from interp.view.charts import dots

        table = self.to_dataframe()
        panels = {
            "answers": {"right": "right, whole chain", "broken": "parity, broken chain"},
            "answers that change": {"one flip": "one sign flipped", "two flips": "two signs flipped"},
            "flips where chain and count differ": {"chain": "follows the chain", "count": "follows the count"},
        }
        charts: list[Any] = []
        for title, names in panels.items():
            parts = [table[table["measure"] == name].assign(**{title: label}) for name, label in names.items()]
            rule = self.chance if title == "answers" else None
            charts.append(dots(pd.concat(parts), x="target", y="share", series=title, rule=rule, title=title))
        title = f"following the chain or counting minus signs, n = {self.n} sentences"
        return alt.hconcat(*charts, title=title).resolve_scale(color="independent", xOffset="independent")

    def __str__(self) -> str:
        wide = max(4, *(len(name) for name in self.targets))
        lines = [" " * wide + "  " + "  ".join(f"{name:>9}" for name in self.measures)]
        for name, row in zip(self.targets, self.share.T, strict=True):
            cells = ["-" if np.isnan(value) else f"{value:.3f}" for value in row]
            lines.append(f"{name:>{wide}}  " + "  ".join(f"{cell:>9}" for cell in cells))
        half = float(np.nanmax(self.high - self.low) / 2)
        foot = f"{self.n} held-out sentences (95 % within {half:.3f}), chance {self.chance:.2f}"
        return "\n".join([*lines, foot, *(f"{name}: {MEASURES[name]}" for name in self.measures)])


@checks_types
@in_evaluation_mode
def sign_counting(model: AnyModel | Baseline, task: Task, *, n: int = 2000, seed: int = 0) -> SignCountingResult:
    """Test whether a model predicts variables by following the chain or by counting minus signs.

    Every test sentence is answered in four versions: the original, with the sign of one random clause flipped, with two
    flipped, and with a broken chain. A flip changes the values after it in the chain; a count of minus signs changes
    with every single flip and never with two. On the last variable chain and count agree unless the chain is broken: a
    random clause inside the chain then refers to a letter that is not in the sentence, and the last variable has no
    value. A model that counts still answers with the parity of all signs, one that follows the chain for half of the
    sentences. A share of one half does not prove the latter: a model may count, and fail on unusual sentences.

    Args:
        model: Any model that `evaluate` accepts. It is not changed, but left in evaluation mode.
        task: LEGO over signs, with at least three variables and more letters than variables.
        n: Number of sentences.
        seed: Seed of sentences, flips and breaks.

    Raises:
        ValueError: fewer than one sentence; another task or group; fewer than three variables; no unused letter; or a
            model that is not accepted.

    Source: LEGO (arXiv:2206.04301) Section 4.3, where models trained from random weights predict the last variable
    early; the paper explains it by the parity of minus signs. The test is ours.
    """
    net: Answering = model if isinstance(model, Baseline) else prepare_model(model, "evaluate")
    task = _checked(task, n)
    generator = derived_generator(seed, "parity test")
    batch = task.sample(n, generator=generator, split="test")
    order = torch.rand(n, task.n_vars, generator=generator).argsort(1)
    one, two = order[:, :1], order[:, 1:3]
    breaks = torch.randint(1, task.n_vars - 1, (n,), generator=generator)
    answers = _answers(net, task, batch)
    changed_by_one = _answers(net, task, flipped(task, batch, one)) != answers
    changed_by_two = _answers(net, task, flipped(task, batch, two)) != answers
    of_broken = _answers(net, task, broken(task, batch, breaks, generator))
    target = torch.arange(task.n_vars)
    after = one > target  # one flip, after the target in the chain: a count changes, the chain does not
    between = (two <= target[:, None, None]).sum(-1).T == 1  # one of two flips is upstream: only the chain changes
    chain = (after & ~changed_by_one).long() + (between & changed_by_two).long()
    differ = after.long() + between.long()
    everywhere = torch.ones_like(after)
    found = {
        "right": (answers == batch.labels, everywhere),
        "one flip": (changed_by_one & (one != target), one != target),
        "two flips": (changed_by_two, everywhere),
        "chain": (chain, differ),
        "count": (differ - chain, differ),
        "broken": ((of_broken == batch.labels[:, -1:]) & (breaks[:, None] <= target), breaks[:, None] <= target),
    }
    hits, total = (torch.stack([found[name][part].double() for name in MEASURES], 1).numpy() for part in (0, 1))
    share, low, high = pooled_interval(hits, total)
    return SignCountingResult(
        measures=tuple(MEASURES),
        targets=task.targets,
        share=share,
        low=low,
        high=high,
        total=total.sum(0).astype(int),
        chance=task.chance,
        n=n,
    )


def flipped(task: Lego, batch: LegoBatch, clauses: Int[Tensor, "batch flip"]) -> LegoBatch:
    """The sentences with the signs of these clauses flipped: distinct clauses, numbered in chain order."""
    turned = torch.zeros_like(batch.operations).scatter_(1, clauses, 1)
    return task.from_content(torch.stack([batch.letters, batch.operations ^ turned, batch.clause_of], -1))


def broken(task: Lego, batch: LegoBatch, clauses: Int[Tensor, " batch"], generator: torch.Generator) -> Batch:
    """The sentences with one clause each, not the first of the chain, that refers to a letter not in the sentence."""
    spare = torch.rand(len(batch), len(task.alphabet), generator=generator).scatter_(1, batch.letters, -1).argmax(1)
    reference = batch.target_positions.gather(1, clauses[:, None]) + task.clause_length - 2
    if task.sentence_format == "compact":
        reference = reference + 1
    tokens = batch.tokens.scatter(1, reference, spare[:, None] + task.vocab.ids[task.alphabet[0]])
    return Batch(
        tokens=tokens,
        target_positions=batch.target_positions,
        labels=batch.labels,
        supervised=batch.supervised,
        position_ids=batch.position_ids,
    )


@torch.no_grad()
def _answers(model: Answering, task: Lego, batch: Batch) -> Int[Tensor, "batch target"]:
    parts = parts_on_device(model, batch)
    return torch.cat(
        [task.answers(logits_at_targets(model(part.tokens, **part.model_inputs()), part)) for part in parts]
    ).cpu()


def _checked(task: Task, n: int) -> Lego:
    if n < 1:
        raise ValueError(f"n is {n}; at least 1 sentence is needed.")
    task = Lego.require(task, "sign counting is for Lego over signs (Z2).")
    if task.group.act != Z2.act:
        raise ValueError(f"task has group={task.group.name!r}; only over signs (Z2) is a value the parity of a count.")
    if task.n_vars < 3:
        raise ValueError(
            f"n_vars is {task.n_vars}; a chain is broken between its first and last variable, so it needs 3 or more."
        )
    if task.n_vars == len(task.alphabet):
        raise ValueError(
            f"n_vars is {task.n_vars}, all letters of the alphabet; breaking a chain takes an unused letter. Give a "
            f"longer alphabet."
        )
    return task
