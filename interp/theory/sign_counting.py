"""Does a model follow chains of signs, or does it count minus signs? Signs are flipped and chains broken to see."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import FullyConnected
from interp.core.activations import CHUNK, SHORT, chunks
from interp.core.devices import device_of
from interp.core.randomness import derived_generator
from interp.core.results import Result
from interp.core.statistics import pooled_interval
from interp.core.verbs import AnyModel, prepare_model
from interp.evaluation.evaluate import Answering
from interp.tasks.base import Batch, Task, logits_at_targets
from interp.tasks.lego.groups import Z2
from interp.tasks.lego.task import Lego, LegoBatch

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

QUESTIONS = {
    "right": "answered rightly, the sentence as it is",
    "one flip": "the answer changes with one sign of another clause",
    "two flips": "the answer changes with two signs anywhere",
    "chain": "does what the chain asks for, where a count would do otherwise",
    "parity": "does what a count asks for, where the chain would do otherwise",
    "broken": "answered with the parity of all signs where the chain is broken",
}
"""What is asked of every variable."""


@dataclass(frozen=True, kw_only=True)
class SignCountingResult(Result):
    """What each variable's answer follows: the chain, or the number of minus signs.

    Questions are the keys of `QUESTIONS`. For the last variable chain and count agree on every flip: `chain` and
    `parity` are not a number there, and `broken` is what tells them apart. So it is with the first variable and
    `broken`, for no chain leads there.
    """

    questions: tuple[str, ...]
    """What was asked."""
    targets: tuple[str, ...]
    """Names of the variables, in chain order."""
    share: Float[np.ndarray, "question target"]
    """Fraction of the sentences that were asked, 0 to 1; not a number where none was."""
    low: Float[np.ndarray, "question target"]
    high: Float[np.ndarray, "question target"]
    """Ends of the 95 % interval (Clopper-Pearson); sentences are the independent units, not flips."""
    total: Int[np.ndarray, "question target"]
    """Answers behind each share."""
    chance: float
    """What guessing evenly answers rightly, and what a model that follows chains scores on broken ones."""
    n: int
    """Held-out sentences, each flipped in two ways and broken once."""

    def of(self, question: str) -> Float[np.ndarray, " target"]:
        """The share of every variable for one question.

        Raises:
            ValueError: a question that was not asked.
        """
        if question not in self.questions:
            raise ValueError(f"question is {question!r}; choose one of {', '.join(self.questions)}.")
        return self.share[self.questions.index(question)]

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per question and variable."""
        import pandas as pd

        question, target = np.indices(self.share.shape)
        columns = {
            "question": np.array(self.questions)[question.ravel()],
            "target": np.array(self.targets)[target.ravel()],
        }
        return pd.DataFrame(columns | {name: getattr(self, name).ravel() for name in ("share", "low", "high", "total")})

    def plot(self) -> "alt.TopLevelMixin":
        """Answers on whole and on broken chains, and what each follows when signs are flipped."""
        import altair as alt
        import pandas as pd

        from interp.view.charts import dots

        table = self.to_dataframe()
        panels = {
            "answers": {"right": "right, whole chain", "broken": "parity, broken chain"},
            "answers that change": {"one flip": "one sign flipped", "two flips": "two signs flipped"},
            "flips on which the two differ": {"chain": "as the chain has it", "parity": "as a count has it"},
        }
        charts: list[Any] = []
        for title, names in panels.items():
            rows = pd.concat([table[table["question"] == name].assign(**{title: says}) for name, says in names.items()])
            rule = self.chance if title == "answers" else None
            charts.append(dots(rows, x="target", y="share", series=title, rule=rule, title=title))
        title = f"following the chain or counting minus signs, n = {self.n} sentences"
        return alt.hconcat(*charts, title=title).resolve_scale(color="independent", xOffset="independent")

    def __str__(self) -> str:
        wide = max(4, *(len(name) for name in self.targets))
        lines = [" " * wide + "  " + "  ".join(f"{name:>9}" for name in self.questions)]
        for name, row in zip(self.targets, self.share.T, strict=True):
            lines.append(f"{name:>{wide}}  " + "  ".join(f"{_cell(value):>9}" for value in row))
        half = float(np.nanmax(self.high - self.low) / 2)
        foot = f"{self.n} held-out sentences (95 % within {half:.3f}), chance {self.chance:.2f}"
        return "\n".join([*lines, foot, *(f"{name}: {QUESTIONS[name]}" for name in self.questions)])


def _cell(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3f}"


def sign_counting(model: AnyModel | FullyConnected, task: Task, *, n: int = 2000, seed: int = 0) -> SignCountingResult:
    """Whether a model tells variables by following the chain or by counting minus signs.

    Every held-out sentence is answered as it is, with the sign of one random clause flipped, with two flipped, and
    with its chain broken. A flip changes what follows from it in the chain; a count changes with any one flip and
    never with two. The last variable follows from all signs, so that both agree, unless the chain is broken: the
    letter that a random clause refers to, neither the first nor the last of the chain, becomes one that stands
    nowhere in the sentence. Then nothing says what the last variable is; a model that counts still answers with the
    parity of all signs, one that follows the chain answers with it half of the time.

    An even score on broken chains does not prove that a model follows the chain: it may count, and be thrown off by
    what it has never seen. Sentences are of the test split; what becomes of them by a flip may be of any.

    Args:
        model: What to test: any that `evaluate` takes. It is not changed, but left in evaluation mode.
        task: LEGO over signs, with three variables or more and a letter to spare.
        n: How many sentences.
        seed: Decides sentences, flips and breaks.

    Raises:
        ValueError: fewer than one sentence; another task or group; fewer than three variables; no letter to spare; or
            no model that is accepted.

    Source: LEGO (arXiv:2206.04301) Section 4.3, where models from random weights tell the last variable early; its
    explanation is the parity of minus signs. The test is ours.
    """
    net: Answering = model if isinstance(model, FullyConnected) else prepare_model(model, "evaluate")
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
    beyond = one > target  # one flip, after the target in the chain: a count changes, the chain does not
    astride = (two <= target[:, None, None]).sum(-1).T == 1  # one of two flips is upstream: only the chain changes
    chain = (beyond & ~changed_by_one).long() + (astride & changed_by_two).long()
    differ = beyond.long() + astride.long()
    everywhere = torch.ones_like(beyond)
    found = {
        "right": (answers == batch.labels, everywhere),
        "one flip": (changed_by_one & (one != target), one != target),
        "two flips": (changed_by_two, everywhere),
        "chain": (chain, differ),
        "parity": (differ - chain, differ),
        "broken": ((of_broken == batch.labels[:, -1:]) & (breaks[:, None] <= target), breaks[:, None] <= target),
    }
    right, asked = (torch.stack([found[name][part].double() for name in QUESTIONS], 1).numpy() for part in (0, 1))
    share, low, high = pooled_interval(right, asked)
    return SignCountingResult(
        questions=tuple(QUESTIONS),
        targets=task.targets,
        share=share,
        low=low,
        high=high,
        total=asked.sum(0).astype(int),
        chance=task.chance,
        n=n,
    )


def flipped(task: Lego, batch: LegoBatch, clauses: Int[Tensor, "batch flip"]) -> LegoBatch:
    """The sentences with some signs turned over.

    Args:
        task: What the sentences are of; over signs.
        batch: Sentences of full length.
        clauses: Whose signs: numbers in chain order, none twice in a row.
    """
    turned = torch.zeros_like(batch.operations).scatter_(1, clauses, 1)
    return task.from_content(torch.stack([batch.letters, batch.operations ^ turned, batch.clause_of], -1))


def broken(task: Lego, batch: LegoBatch, clauses: Int[Tensor, " batch"], generator: torch.Generator) -> Batch:
    """The sentences with one clause each that refers to a letter which stands nowhere else.

    Args:
        task: What the sentences are of; with a letter to spare.
        batch: Sentences.
        clauses: Which clause of each, in chain order, the root's excepted.
        generator: Decides the letters.
    """
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
    model.eval()
    device = device_of(model)
    size = max(1, CHUNK * SHORT // max(SHORT, batch.tokens.shape[1]))
    parts = (chunk.to(device) for chunk in chunks(batch, size))
    return torch.cat(
        [task.answers(logits_at_targets(model(part.tokens, **part.model_inputs()), part)) for part in parts]
    ).cpu()


def _checked(task: Task, n: int) -> Lego:
    if n < 1:
        raise ValueError(f"n is {n}; at least 1 sentence is needed.")
    if not isinstance(task, Lego):
        raise ValueError(f"task is a {type(task).__name__}; the parity test is of Lego, over signs (Z2).")
    if task.group.act != Z2.act:
        raise ValueError(f"task has group={task.group.name!r}; only a value of signs (Z2) is the parity of a count.")
    if task.n_vars < 3:
        raise ValueError(
            f"n_vars is {task.n_vars}; a chain is broken between its first and last of 3 variables or more."
        )
    if task.n_vars == len(task.alphabet):
        raise ValueError(
            f"n_vars is {task.n_vars}, all letters of the alphabet; breaking a chain takes a letter that stands "
            f"nowhere. Give a longer alphabet."
        )
    return task
