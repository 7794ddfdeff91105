"""May this model be asked about this task, and by which outcomes is it judged?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from hooks import Transformer
from hooks.attention import visible_keys
from interp.auditing.verdicts import SHARE, sequences_needed
from interp.kinds import relations_of
from interp.statistics import drop_tests
from interp.tasks.base import Batch, Score, Task


def check_fit(model: Transformer, task: Task) -> None:
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


def check_relations(model: Transformer, task: Task, batch: Batch) -> None:
    """Refuse a task that has no relation which the model could look at.

    Raises:
        ValueError: no relations, or only such as reach keys that are hidden from every query.
    """
    relations = relations_of(task, batch)
    if not relations:
        raise ValueError("this task has none of the registered kinds; register one with interp.register_kind.")
    allowed = visible_keys(model.cfg, batch.tokens, batch.attention_mask)
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
    right, asked = score.right.double().numpy()[:, chosen], score.asked.double().numpy()[:, chosen]
    clean = right.sum(0) / np.maximum(asked.sum(0), 1e-300)
    # guessing is "losing" every answer but chance of them
    guessing, _ = drop_tests(right, asked, np.full(len(chosen), task.chance))
    knows = (guessing * len(chosen) <= alpha) & (asked.sum(0) > 0)
    names = np.array(task.outcomes)[chosen]
    warnings = []
    if not knows.any():
        said = f"the model is not above chance ({task.chance:.2f}) on any outcome (at most {np.nanmax(clean):.2f})"
        if not at_chance:
            raise ValueError(
                f"{said}: nothing it does could be lost. Train it, or audit it anyway with at_chance=True."
            )
        warnings.append(
            f"{said[0].upper()}{said[1:]}: a head that does nothing and one that is needed are hard to tell."
        )
        knows, clean_known = asked.sum(0) > 0, np.ones(len(chosen))
    else:
        clean_known = clean
    threshold = SHARE * np.maximum(clean_known - task.chance, 1e-9)
    needed = np.array([sequences_needed(n_tests, alpha, float(share)) for share in threshold])
    have = (asked > 0).sum(0)
    if not (knows & (have >= needed)).any():
        raise ValueError(
            f"n is {len(right)}; {int(needed[knows].min())} sequences are needed to call any of the heads harmless at "
            f"level {alpha:g}. Give more, or a larger alpha."
        )
    for index in np.flatnonzero(knows & (have < needed)):
        warnings.append(
            f"Outcome {names[index]} is left out: at an accuracy of {clean[index]:.2f} it takes {needed[index]} "
            f"sequences to see a {SHARE:.0%} loss of what the model knows."
        )
    for index in np.flatnonzero(~knows):
        warnings.append(f"Outcome {names[index]} is left out: {clean[index]:.2f} is not above chance.")
    kept = np.flatnonzero(knows & (have >= needed))
    return Outcomes(
        [chosen[index] for index in kept], tuple(names[kept].tolist()), clean[kept], threshold[kept], tuple(warnings)
    )
