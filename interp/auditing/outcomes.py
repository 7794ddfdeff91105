"""Outcomes that count in an audit: those on which the model is far enough above chance to lose accuracy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.auditing.experiments import HeadExperiments
from interp.auditing.significance import correction_of_needed, is_above_chance, sequences_needed, share_of_look
from interp.core.randomness import derived_generator
from interp.core.statistics import SHARE_THAT_COUNTS
from interp.tasks.base import Batch, Score, Task
from interp.tasks.splits import sample_split

MOST_CONSTANTS = 64
"""Number of constant answers that are tried: the most frequent ones. Each of the others is right in less than 2 %."""
MOST_SEQUENCES_OF_CONSTANTS, LOGITS_OF_CONSTANTS = 2048, 2**24
"""Number of sequences on which a constant answer is chosen, and as many again on which it is measured; fewer where the
logits of all their targets would be more than this number."""
CERTAIN = 20.0
"""Logit of the answer of a constant model, whose other logits are 0: its probability is 1 to eight digits."""


@dataclass(frozen=True, kw_only=True)
class JudgedOutcomes:
    """The outcomes that verdicts are based on."""

    indices: list[int]
    """Their indices among the task's outcomes."""
    names: tuple[str, ...]
    clean: Float[np.ndarray, " outcome"]
    """Accuracy of the whole model."""
    threshold: Float[np.ndarray, " outcome"]
    """Loss of accuracy that counts."""
    at_chance: bool
    """The model is above chance on none of them, so that no accuracy can be lost."""
    too_few: dict[int, float]
    """Outcomes on which the model is above chance, but not by enough for this number of sequences: the loss of accuracy
    that counts on each, by its index."""
    warnings: tuple[str, ...]


def choose_outcomes(
    experiments_on: Callable[[Batch], HeadExperiments],
    task: Task,
    looks: Sequence[int],
    names: Sequence[str] | None,
    *,
    alpha: float,
    at_chance: bool,
    seed: int,
    inputs: Batch | None = None,
) -> tuple[HeadExperiments, JudgedOutcomes]:
    """The outcomes that count, and experiments on the smallest planned number of sequences that is enough for them.

    Args:
        experiments_on: Experiments on a batch, on the heads that are audited.
        task: Source of sequences, outcomes and chance levels.
        looks: Planned numbers of sequences.
        names: Outcomes to choose from; if None, all.
        alpha: Level of the audit.
        at_chance: Accept a model that is not above chance on any outcome.
        seed: Determines the sequences.
        inputs: Every input of the task, if the audit is about all of them; the only look is at these.

    Raises:
        ValueError: no visible relations (`HeadExperiments.check_relations`), or an error of `judged_outcomes`.
    """
    of_constants: Float[np.ndarray, " outcome"] | None = None
    for size in looks:
        # Sample anew with each number, until it is enough
        batch = inputs
        if batch is None:
            batch = sample_split(task, size, generator=derived_generator(seed, "audit"), split="test")
        experiments = experiments_on(batch)
        experiments.check_relations()
        is_last = size == looks[-1]
        if of_constants is None:
            of_constants = _accuracy_of_constants(experiments_on, task, experiments, seed=seed, inputs=inputs)
        judged = judged_outcomes(
            experiments.score,
            task,
            names,
            factor=correction_of_needed(len(experiments.heads)) * len(task.outcomes if names is None else names),
            alpha=alpha * share_of_look(size, looks),
            at_chance=at_chance or not is_last,
            of_constants=of_constants,
            every_input=inputs is not None,
        )
        if is_last or not (judged.too_few or judged.at_chance):
            return experiments, judged
    raise AssertionError


def judged_outcomes(
    score: Score,
    task: Task,
    names: Sequence[str] | None,
    *,
    factor: float,
    alpha: float,
    at_chance: bool,
    of_constants: Float[np.ndarray, " outcome"],
    every_input: bool = False,
) -> JudgedOutcomes:
    """Select the outcomes on which the model is above chance by enough to detect a loss of a fifth of it.

    Of every input any loss is detected, and chance is at least what a constant answer achieves, which is known there.
    Whether the model is above it is tested there too, against one that guesses: of few inputs it may get more right by
    luck.

    Args:
        score: Score of the model on each sequence.
        task: Gives the outcomes and their chance level.
        names: Names to choose from; if None, all.
        factor: Factor of the p values that decide whether a head is needed.
        alpha: Level of the family.
        at_chance: Accept a model that is not above chance on any outcome.
        of_constants: If the scores are those of every input: accuracy of constant answers on each outcome of the task.

    Raises:
        ValueError: an unknown outcome, a model at chance, or too few sequences (says how many are needed).
    """
    # Right answers and accuracy on the chosen outcomes
    for name in names or ():
        if name not in task.outcomes:
            raise ValueError(f"outcomes has {name!r}; this task has {', '.join(task.outcomes)}.")
    chosen = [index for index, name in enumerate(task.outcomes) if names is None or name in names]
    right = score.right.double().numpy()[:, chosen]
    total = score.total.double().numpy()[:, chosen]
    chance = np.array(task.chances)[chosen]
    chance = np.maximum(chance, of_constants[chosen])
    clean = right.sum(0) / np.maximum(total.sum(0), 1e-300)

    # Above chance, and by enough to detect the loss that counts with this number of sequences
    above_chance = is_above_chance(right, total, chance, alpha)
    threshold = SHARE_THAT_COUNTS * np.maximum(clean - chance, 1e-9)
    n, n_scored = len(right), (total > 0).sum(0)
    n_answers = np.array([sequences_needed(factor, alpha, float(loss)) for loss in threshold])
    n_needed = np.ceil(n_answers * n / np.maximum(n_scored, 1)).astype(int)  # not every sequence has the outcome
    enough = above_chance & (every_input | (n >= n_needed))

    # The outcomes on which it is enough, and why the others are left out
    outcome_names = np.array(task.outcomes)[chosen]
    judged = np.flatnonzero(enough)
    warnings = []
    for index in np.flatnonzero(above_chance & ~enough):
        warnings.append(
            f"Outcome {outcome_names[index]} is left out: at an accuracy of {clean[index]:.2f}, {n_needed[index]} "
            f"sequences are needed to detect a loss of {SHARE_THAT_COUNTS:.0%} of the accuracy above chance."
        )
    for index in np.flatnonzero(~above_chance):
        warnings.append(f"Outcome {outcome_names[index]} is left out: {clean[index]:.2f} is not above chance.")

    # On none of them: an error; or all outcomes with answers, on which no head can be called harmless
    if not enough.any():
        least = int(n_needed[above_chance].min()) if above_chance.any() else None
        error, warning = _too_weak(n, least, clean, chance, np.array(task.chances)[chosen], alpha)
        if not at_chance:
            raise ValueError(error)
        judged = np.flatnonzero(n_scored > 0)
        threshold = SHARE_THAT_COUNTS * (1 - chance)
        warnings = [warning]
    return JudgedOutcomes(
        indices=[chosen[index] for index in judged],
        names=tuple(outcome_names[judged].tolist()),
        clean=clean[judged],
        threshold=threshold[judged],
        at_chance=not enough.any(),
        too_few={chosen[index]: float(threshold[index]) for index in np.flatnonzero(above_chance & ~enough)},
        warnings=tuple(warnings),
    )


def _accuracy_of_constants(
    experiments_on: Callable[[Batch], HeadExperiments],
    task: Task,
    experiments: HeadExperiments,
    *,
    seed: int,
    inputs: Batch | None,
) -> Float[np.ndarray, " outcome"]:
    """Accuracy of the best constant answer: of every input, or estimated on other sequences than those of the audit.

    Of these one half chooses the answer of each outcome and the other half measures it. An estimate that is not above
    that of guessing by two standard errors is noise, and is 0.
    """
    if inputs is not None:
        return accuracy_of_constant_answers(task, inputs, experiments.logits).max(0)
    size = LOGITS_OF_CONSTANTS // (len(task.targets) * task.d_vocab_out)
    size = min(MOST_SEQUENCES_OF_CONSTANTS, max(64, size))
    batch = sample_split(task, 2 * size, generator=derived_generator(seed, "constants"), split="test")
    halves, half = [], batch
    for rows in (slice(0, size), slice(size, 2 * size)):
        half = batch.select(rows)
        logits = None if _has_logit_of_each_answer(task) else experiments_on(half).logits
        halves.append(accuracy_of_constant_answers(task, half, logits, answers_of=batch))
    best = halves[0].argmax(0)
    accuracy = halves[1][best, np.arange(len(best))]
    # Not every sequence has every outcome
    blank = torch.zeros(1).expand(*half.labels.shape, task.d_vocab_out)
    n_scored = (task.score(blank, half).total > 0).sum(0).clamp_min(1).numpy()
    standard_error = np.sqrt(accuracy * (1 - accuracy) / n_scored)
    return np.where(accuracy - 2 * standard_error > np.array(task.chances), accuracy, 0)


def _has_logit_of_each_answer(task: Task) -> bool:
    """Whether answers have logits, and are not numbers."""
    return task.d_vocab_out == len(task.answer_names) > 1


def accuracy_of_constant_answers(
    task: Task,
    batch: Batch,
    target_logits: Float[Tensor, "batch target d_vocab_out"] | None,
    *,
    answers_of: Batch | None = None,
) -> Float[np.ndarray, "constant outcome"]:
    """Accuracy of models that give every input the same answer.

    Inputs may nearly all have the same answer, which then is no success. The answers that are tried are the most
    frequent one of each target, and each answer at all targets, up to `MOST_CONSTANTS`. If an answer has no logit, as a
    number, it is given by the model's median output for inputs with that answer.

    Args:
        task: Scores the answers.
        batch: Inputs with their right answers.
        target_logits: Outputs of the model; None where answers have logits.
        answers_of: Inputs whose answers are counted; default: the batch.
    """
    # How often each answer is right at each target
    n_answers = len(task.answer_names)
    counts = torch.zeros(len(task.targets), n_answers, dtype=torch.long)
    counted = answers_of or batch
    counts.scatter_add_(1, counted.labels.T, counted.present.T.long())
    n_frequent = min(MOST_CONSTANTS, int((counts.sum(0) > 0).sum()))
    frequent = counts.sum(0).argsort(descending=True, stable=True)[:n_frequent]
    constants = [counts.argmax(1), *frequent[:, None].expand(-1, len(task.targets))]
    # The outputs that stand for each answer
    if _has_logit_of_each_answer(task):
        outputs = torch.eye(n_answers) * CERTAIN
    else:
        assert target_logits is not None
        outputs = torch.zeros(n_answers, task.d_vocab_out)
        for answer in frequent.tolist():
            has_answer = (batch.labels == answer) & batch.present
            if has_answer.any():
                outputs[answer] = target_logits[has_answer].float().median(0).values
    # Accuracy of each of these models on each outcome
    accuracies = []
    for answers in constants:
        score = task.score(outputs[answers].expand(len(batch), -1, -1), batch)
        total = score.total.double().sum(0).numpy()
        accuracies.append(score.right.double().sum(0).numpy() / np.maximum(total, 1e-300))
    return np.stack(accuracies)


def _too_weak(
    n: int,
    n_needed: int | None,
    clean: Float[np.ndarray, " outcome"],
    chance: Float[np.ndarray, " outcome"],
    of_guessing: Float[np.ndarray, " outcome"],
    alpha: float,
) -> tuple[str, str]:
    """Why a model cannot lose enough accuracy on any outcome, as an error and as a warning.

    Args:
        n: Number of sequences.
        n_needed: Number that would be enough for some outcome; None if the model is above chance on none.
        clean: Accuracy of the model.
        chance: Accuracy at chance: of guessing, or of the best constant answer.
        of_guessing: Accuracy of guessing.
        alpha: Level.
    """
    best = f"at most {np.nanmax(clean):.2f}"
    distinct = dict.fromkeys(zip(chance.tolist(), of_guessing.tolist(), strict=True))
    levels = ", ".join(_chance_in_words(*levels_of_outcome) for levels_of_outcome in distinct)
    if n_needed is None:
        error = (
            f"the model is not above chance ({levels}) on any outcome ({best}), so no intervention can cost accuracy. "
            "Train it, or pass at_chance=True to audit it anyway."
        )
        return error, f"The model is not above chance ({best}, chance {levels}), so nothing can be called harmless."
    error = (
        f"n is {n}; {n_needed} sequences are needed to call anything harmless at level {alpha:g}. Pass a "
        "larger n or a larger alpha."
    )
    warning = (
        f"With {n} sequences, where {n_needed} are needed, nothing can be called harmless ({best}, chance {levels})."
    )
    return error, warning


def _chance_in_words(level: float, of_guessing: float) -> str:
    text = f"{level:.2f}" if level >= 0.01 else f"{level:.1g}"
    return text if level == of_guessing else f"{text} by a constant answer"
