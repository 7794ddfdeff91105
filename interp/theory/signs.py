"""Sign counting: does a model follow the chain of a LEGO sentence, or count minus signs?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.checks import check_number
from hooks.model.baseline import Baseline
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, MAY_BE_MISSING, SHARE, Axes, checks_types
from interp.core.consistency import check_known, check_that
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.core.results import Result, table_lines
from interp.core.statistics import pooled_interval
from interp.core.verbs import AnyModel, prepare_scorable
from interp.evaluation.evaluate import NEEDS, ScorableModel, chunks_on_device
from interp.tasks.base import Batch, Task, logits_at_targets
from interp.tasks.lego.groups import Z2
from interp.tasks.lego.task import Lego, LegoBatch
from interp.tasks.splits import sample_split

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

    measures: Annotated[tuple[str, ...], Axes("measure"), DISTINCT]
    """Names of what is measured: the keys of `MEASURES`."""
    targets: Annotated[tuple[str, ...], Axes("target"), DISTINCT]
    """Names of the variables, in chain order."""
    share: Annotated[Interval, Axes("measure target"), SHARE, MAY_BE_MISSING]
    """Per measure and target: fraction of answers of which the measure is true, 0 to 1, with its 95 % interval
    (Clopper-Pearson); sentences are the independent units, not flips. NaN if there are no answers."""
    total: Annotated[Int[np.ndarray, "measure target"], COUNT]
    """Number of answers behind each share."""
    chance: Annotated[float, SHARE]
    """Accuracy of random guesses, and the `broken` share of a model that follows chains."""
    n: Annotated[int, COUNT]
    """Number of held-out sentences; each is flipped in two ways and broken once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known("measures", self.measures, MEASURES, "sign_counting")
        has_none = np.isnan(self.share.value) != (self.total == 0)
        check_that(not has_none.any(), "share is missing where total is not 0, or the other way round.")

    def of(self, measure: str) -> Float[np.ndarray, " target"]:
        """The share of every variable for one measure.

        Raises:
            ValueError: an unknown measure.
        """
        if measure not in self.measures:
            raise ValueError(f"measure is {measure!r}; choose one of {', '.join(self.measures)}.")
        return self.share.value[self.measures.index(measure)]

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per measure and variable."""
        axes = {"measure": self.measures, "target": self.targets}
        return self._table(axes, **self.share.columns("share"), total=self.total)

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
        for title, labels in panels.items():
            rows = [table[table["measure"] == name].assign(**{title: label}) for name, label in labels.items()]
            rule = self.chance if title == "answers" else None
            charts.append(dots(pd.concat(rows), x="target", y="share", series=title, rule=rule, title=title))
        title = f"following the chain or counting minus signs, n = {self.n} sentences"
        return alt.hconcat(*charts, title=title).resolve_scale(color="independent", xOffset="independent")

    def __str__(self) -> str:
        rows = [["", *self.measures]]
        for name, shares in zip(self.targets, self.share.value.T, strict=True):
            rows.append([name, *("-" if np.isnan(share) else f"{share:.3f}" for share in shares)])
        lines = table_lines(rows)
        half_width = f"95 % within {self.share.half_width:.3f}"
        lines.append(f"{self.n} held-out sentences ({half_width}), chance {self.chance:.2f}")
        lines += [f"{name}: {MEASURES[name]}" for name in self.measures]
        return "\n".join(lines)


@checks_types
@restores_state
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

    Example:
        >>> import interp
        >>> task = interp.tasks.Lego(n_vars=4)
        >>> model = interp.known_answers.lego_loop(task)  # it follows the chain
        >>> interp.theory.sign_counting(model, task, n=50).of("chain").tolist()
        [1.0, 1.0, 1.0, nan]

    Source: LEGO (arXiv:2206.04301) Section 4.3, where models trained from random weights predict the last variable
    early; the paper explains it by the parity of minus signs. The test is ours.
    """
    net: ScorableModel = prepare_scorable(model, NEEDS)
    task = _checked_task(task, n)
    generator = derived_generator(seed, "parity test")
    batch = sample_split(task, n, generator=generator, split="test")

    # Answers to the sentences, to their two flipped versions, and to sentences with a broken chain
    clause_order = torch.rand(n, task.n_vars, generator=generator, dtype=torch.float32).argsort(1)
    first_flip = clause_order[:, :1]
    both_flips = clause_order[:, 1:3]
    breaks = torch.randint(1, task.n_vars - 1, (n,), generator=generator)
    answers = _answers(net, task, batch)
    changed_by_one = _answers(net, task, flipped(task, batch, first_flip)) != answers
    changed_by_two = _answers(net, task, flipped(task, batch, both_flips)) != answers
    answers_to_broken = _answers(net, task, broken(task, batch, breaks, generator))

    # Flips where chain and count differ. One flip, after the target in the chain: only the count changes. Two flips,
    # one of them upstream: only the chain changes
    target = torch.arange(task.n_vars)
    downstream = first_flip > target
    one_upstream = (both_flips <= target[:, None, None]).sum(-1).T == 1
    n_differ = downstream.long() + one_upstream.long()
    n_follow_chain = (downstream & ~changed_by_one).long() + (one_upstream & changed_by_two).long()

    # For each measure, how many answers it is true of, and how many there are
    every_answer = torch.ones_like(downstream)
    flips_other = first_flip != target
    broken_before = breaks[:, None] <= target
    is_parity = answers_to_broken == batch.labels[:, -1:]
    counts = {
        "right": (answers == batch.labels, every_answer),
        "one flip": (changed_by_one & flips_other, flips_other),
        "two flips": (changed_by_two, every_answer),
        "chain": (n_follow_chain, n_differ),
        "count": (n_differ - n_follow_chain, n_differ),
        "broken": (is_parity & broken_before, broken_before),
    }
    hits = torch.stack([counts[name][0].double() for name in MEASURES], 1).numpy()
    total = torch.stack([counts[name][1].double() for name in MEASURES], 1).numpy()
    share, low, high = pooled_interval(hits, total)
    return SignCountingResult(
        measures=tuple(MEASURES),
        targets=task.targets,
        share=Interval(value=share, low=low, high=high, n=n),
        total=total.sum(0).astype(int),
        chance=task.chance,
        n=n,
    )


def flipped(task: Lego, batch: LegoBatch, clauses: Int[Tensor, "batch flip"]) -> LegoBatch:
    """The sentences with the signs of these clauses flipped: distinct clauses, numbered in chain order."""
    flips = torch.zeros_like(batch.operations).scatter_(1, clauses, 1)
    return task.from_content(torch.stack([batch.letters, batch.operations ^ flips, batch.clause_of], -1))


def broken(task: Lego, batch: LegoBatch, clauses: Int[Tensor, " batch"], generator: torch.Generator) -> Batch:
    """The sentences with one clause each, not the first of the chain, that refers to a letter not in the sentence."""
    unused_letter = (
        torch.rand(len(batch), len(task.alphabet), generator=generator, dtype=torch.float32)
        .scatter_(1, batch.letters, -1)
        .argmax(1)
    )
    reference = batch.target_positions.gather(1, clauses[:, None]) + task.clause_length - 2
    if task.sentence_format == "compact":
        reference = reference + 1
    tokens = batch.tokens.scatter(1, reference, unused_letter[:, None] + task.vocab.ids[task.alphabet[0]])
    return Batch(
        tokens=tokens,
        target_positions=batch.target_positions,
        labels=batch.labels,
        supervised=batch.supervised,
        position_ids=batch.position_ids,
    )


@torch.no_grad()
def _answers(model: ScorableModel, task: Lego, batch: Batch) -> Int[Tensor, "batch target"]:
    answers = []
    for chunk in chunks_on_device(model, batch):
        logits = model(chunk.tokens, **chunk.model_inputs())
        answers.append(task.answers(logits_at_targets(logits, chunk)))
    return torch.cat(answers).cpu()


def _checked_task(task: Task, n: int) -> Lego:
    check_number("n", n, integer=True, above=0)
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
