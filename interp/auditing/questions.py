"""May this model be asked about this task, and by which outcomes is it judged?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Net
from interp.auditing.verdicts import SHARE, sequences_needed
from interp.core.statistics import drop_tests
from interp.core.verbs import visible_keys
from interp.heads.kinds import relations_of
from interp.tasks.base import Batch, Score, Task


def check_fit(model: Net, task: Task) -> None:
    """Refuse a task whose sequences the model cannot read, or whose answers it cannot give.

    Raises:
        ValueError: which size does not fit.
    """
    cfg = model.cfg
    for name in ("d_vocab", "n_ctx"):
        if getattr(cfg, name) < getattr(task, name):
            raise ValueError(
                f"the task has {name} {getattr(task, name)}, the model {getattr(cfg, name)}: it cannot read such "
                f"sequences. Audit it on the task that it was made for."
            )
    if cfg.d_vocab_out != task.d_vocab_out:
        raise ValueError(
            f"the task has d_vocab_out {task.d_vocab_out}, the model {cfg.d_vocab_out}: its answers cannot be scored. "
            f"Audit it on the task that it was made for."
        )


def check_relations(model: Net, task: Task, batch: Batch) -> None:
    """Refuse a task that has no relation which the model could look at.

    Raises:
        ValueError: no relations, or only such as reach keys that are hidden from every query.
    """
    relations = relations_of(task, batch)
    if not relations:
        raise ValueError("this task has none of the registered kinds; register one with interp.heads.register_kind.")
    allowed = visible_keys(model, batch.tokens, batch.attention_mask)
    if not any((related & allowed).any() for related in relations.values()):
        raise ValueError(
            f"none of the task's relations ({', '.join(relations)}) reaches a key that the model can see: it is "
            f"{model.cfg.attention}. It cannot be asked about them."
        )


@dataclass(frozen=True)
class Outcomes:
    """The outcomes that verdicts go by."""

    places: list[int]
    names: tuple[str, ...]
    clean: Float[np.ndarray, " outcome"]
    threshold: Float[np.ndarray, " outcome"]
    at_chance: bool
    """The model knows none of them, so that nothing can be lost."""
    warnings: tuple[str, ...]


def judged_outcomes(
    score: Score, task: Task, wanted: Sequence[str] | None, *, n_tests: int, alpha: float, at_chance: bool
) -> Outcomes:
    """Those that the model knows, and knows well enough that a lost share of it would show.

    Raises:
        ValueError: an unknown outcome, a model at chance, or too few sequences (says how many it takes).
    """
    unknown = [name for name in wanted or () if name not in task.outcomes]
    if unknown:
        raise ValueError(f"outcomes has {unknown[0]!r}; this task has {', '.join(task.outcomes)}.")
    chosen = [i for i, name in enumerate(task.outcomes) if wanted is None or name in wanted]
    right, asked = score.right.double().numpy()[:, chosen], score.total.double().numpy()[:, chosen]
    clean = right.sum(0) / np.maximum(asked.sum(0), 1e-300)
    # guessing is "losing" every answer but chance of them
    chance = np.array(getattr(task, "chances", (task.chance,) * len(task.outcomes)))[chosen]
    guessing, _ = drop_tests(right, asked, chance)
    knows = (guessing * len(chosen) <= alpha) & (asked.sum(0) > 0)
    names = np.array(task.outcomes)[chosen]
    have = (asked > 0).sum(0)

    def sequences(share: np.ndarray) -> np.ndarray:
        """How many it takes; where some are not asked, as many more."""
        least = np.array([sequences_needed(n_tests, alpha, float(one)) for one in share])
        return np.ceil(least * len(right) / np.maximum(have, 1)).astype(int)

    threshold = SHARE * np.maximum(clean - chance, 1e-9)
    needed = sequences(threshold)
    enough = knows & (len(right) >= needed)
    if not knows.any() and not at_chance:
        raise ValueError(
            f"the model is not above chance ({_chance(chance)}) on any outcome (at most {np.nanmax(clean):.2f}): "
            f"nothing it does could be lost. Train it, or audit it anyway with at_chance=True."
        )
    if at_chance and not enough.any():
        best = f"at most {np.nanmax(clean):.2f}, chance {_chance(chance)}"
        warning = f"The model knows too little ({best}) for anything to be lost: no head can be called harmless."
        if knows.any():
            warning = (
                f"With {len(right)} sequences, where {int(needed[knows].min())} are needed, no head can be called "
            )
            warning += f"harmless ({best})."
        threshold = SHARE * (1 - chance)
        kept = np.flatnonzero(have > 0)
        return Outcomes(
            [chosen[i] for i in kept], tuple(names[kept].tolist()), clean[kept], threshold[kept], True, (warning,)
        )
    if not enough.any():
        raise ValueError(
            f"n is {len(right)}; {int(needed[knows].min())} sequences are needed to call any of the heads harmless at "
            f"level {alpha:g}. Give more, or a larger alpha."
        )
    warnings = []
    for index in np.flatnonzero(knows & ~enough):
        warnings.append(
            f"Outcome {names[index]} is left out: at an accuracy of {clean[index]:.2f} it takes {needed[index]} "
            f"sequences to see a {SHARE:.0%} loss of what the model knows."
        )
    for index in np.flatnonzero(~knows):
        warnings.append(f"Outcome {names[index]} is left out: {clean[index]:.2f} is not above chance.")
    kept = np.flatnonzero(enough)
    return Outcomes(
        [chosen[index] for index in kept],
        tuple(names[kept].tolist()),
        clean[kept],
        threshold[kept],
        False,
        tuple(warnings),
    )


def _chance(chance: Float[np.ndarray, " outcome"]) -> str:
    return ", ".join(f"{one:.2f}" if one >= 0.01 else f"{one:.1g}" for one in dict.fromkeys(chance.tolist()))
