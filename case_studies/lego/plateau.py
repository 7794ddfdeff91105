"""The plateau of single-token frequencies: what a masked language model knows before it uses any context."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float

from case_studies.frame.claims import Preregistration
from case_studies.frame.evidence import Evidence, once_per_model
from case_studies.frame.rules import AtLeast, Number
from interp.core.randomness import derived_generator
from interp.evaluation.perplexity import perplexity
from interp.sweeps.spec import ModelSpec
from interp.tasks import Text
from interp.tasks.text.sampling import P_MASK, P_RANDOM

WINDOWS = {"quick": 200, "standard": 400, "paper": 2000}
"""Number of held-out windows for a validation loss."""
COUNTED = 20
"""Windows of training text whose tokens are counted, in multiples of the held-out ones."""
LEFT = 0.5
"""Nats below the entropy of single tokens at which a model has left the plateau. On the plateau a model is 0.1 to 0.2
below, from counts of words in its window; models that use their context are 2.5 below."""
ENTROPY = "entropy of single tokens, nats"
BELOW = "nats of the worst seed below the entropy of single tokens"
OFF_PLATEAU = Number(BELOW, AtLeast(LEFT))
PLATEAU_SEEN = Preregistration(
    "after a result",
    "BERT had stayed on the plateau (4.64 to 4.76 nats), and rules without this condition judged differences of 2.6 "
    "nats. They were fixed after one seed of smaller models, not kept: Hybrid and Hardcode were far ahead of BERT.",
)


def final_losses(evidence: Evidence, name: str) -> Float[np.ndarray, " seed"]:
    """Cross entropy of masked tokens in nats, on held-out windows of full length, for each seed."""
    return np.array([_final_loss(evidence, spec) for spec in evidence.specs(f"text-{name}")])


@once_per_model
def _final_loss(evidence: Evidence, spec: ModelSpec) -> float:
    model, n = evidence.run(spec).model, WINDOWS[evidence.size]
    return float(perplexity(model, spec.task, n=n, split="validation", seed=evidence.seed).loss[0])


def numbers_of_plateau(evidence: Evidence, names: Sequence[str]) -> dict[str, float]:
    """The plateau, and how far below it the worst seed of these families has come."""
    task = evidence.specs(f"text-{names[0]}")[0].task
    entropy = token_entropy(task, windows=WINDOWS[evidence.size], seed=evidence.seed)  # type: ignore[arg-type]
    return {ENTROPY: entropy, BELOW: entropy - max(float(final_losses(evidence, name).max()) for name in names)}


@lru_cache(maxsize=8)
def token_entropy(task: Text, *, windows: int, seed: int) -> float:
    """Loss in nats of the best prediction that uses no other position: token frequencies, and the masked token itself.

    Of the masked tokens some are replaced by a random token and some are left as they are, so that the token at the
    masked position, if it is not `[MASK]`, raises the probability of itself.

    Args:
        task: Masked text.
        windows: Number of validation windows; tokens are counted in `COUNTED` times this number of training windows.
        seed: Determines the windows.
    """
    train = task.sample(COUNTED * windows, generator=derived_generator(seed, "token entropy", "train"))
    held_out = task.sample(
        windows, generator=derived_generator(seed, "token entropy", "validation"), split="validation"
    )
    # Frequencies of the tokens in training text, with one added to each count
    counts = torch.bincount(train.labels.flatten(), minlength=task.d_vocab).double() + 1
    share = counts / counts.sum()
    # What is at a masked position: `[MASK]`, a random token, or the token itself
    shown = held_out.tokens.gather(1, held_out.target_positions)
    right = held_out.labels
    ordinary = task.vocab.ordinary
    p_changed = P_MASK + P_RANDOM
    swapped = (p_changed - P_MASK) / len(ordinary)
    unchanged = 1 - p_changed
    # Bayes' rule for the token that was there, given a visible one
    likelihood = swapped + unchanged * (shown == right)
    visible = share[right] * likelihood / (swapped + unchanged * share[shown])
    return float(-torch.where(torch.isin(shown, ordinary), visible, share[right]).log().mean())
