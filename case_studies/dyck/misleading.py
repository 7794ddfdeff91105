"""The claim about misleading heads: stack-like, but replacing their pattern changes nothing (Appendix B.1)."""

import numpy as np
import pandas as pd

from case_studies.dyck.heads import HALFWAY, MARGIN, N_ABLATE, POSITIONS, positions_of
from case_studies.dyck.measures import KEPT, chosen, if_learned, task_of
from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above
from case_studies.recipes.intervals import interval_columns, proportion
from case_studies.recipes.judges import Share
from case_studies.recipes.learned import excluded_models
from interp.heads.ablate import ablate_heads
from interp.view.points import scatter

GROUPS = ("gpt", "gpt-linear", "gpt-prefixes")
METHODS = ("uniform", "random_rows")
"""What the pattern is replaced by; a head is misleading only if neither costs accuracy."""
WRONG = 0.05
"""Share of misleading heads that chance alone would give at most: twice the error of a one-sided 95 % end."""
STACK_LIKE, MISLEADING, LOSS = "stack-like", "misleading", "accuracy lost at most"
THRESHOLDS = (0.3, 0.4, HALFWAY, 0.6, 0.7)
"""Positions from which a head may count as stack-like; that in the middle is judged."""


def highest_loss(evidence: Evidence, group: str) -> list[float]:
    """Upper end of the hard accuracy that each model loses with its last pattern replaced, the worse of the methods."""
    task = task_of(evidence, group)
    last = evidence.specs(group)[0].config.n_layers - 1
    losses = []
    for model in chosen(evidence, group).models:
        ends = []
        for method in METHODS:
            result = ablate_heads(
                model, task, heads={"last": [(last, 0)]}, method=method, n=N_ABLATE[evidence.size], seed=evidence.seed
            )
            ends.append(float(result.drop.high[0, 0]))
        losses.append(max(ends))
    return losses


def measure_misleading(evidence: Evidence) -> Readings:
    """Whether a last head is stack-like, and its pattern can be replaced without a loss; one row a model."""
    losses = np.concatenate([highest_loss(evidence, group) for group in GROUPS])
    positions = positions_of(evidence, GROUPS)
    frame = positions[["models", "seed", "position"]].assign(**{LOSS: losses})
    position, unimportant = frame["position"].to_numpy(), losses < MARGIN
    judged = position >= HALFWAY
    # The same count at other thresholds, to show that the result does not hang on one
    counts = {threshold: (position >= threshold, (position >= threshold) & unimportant) for threshold in THRESHOLDS}
    at_thresholds = pd.DataFrame(
        {
            "stack-like from position": threshold,
            "stack-like heads": int(stack_like.sum()),
            "of them misleading": int(misleading.sum()),
            **interval_columns(proportion(int(misleading.sum()), int(stack_like.sum())), "share"),
        }
        for threshold, (stack_like, misleading) in counts.items()
    )
    return Readings(
        frame=frame.assign(**{STACK_LIKE: judged, MISLEADING: judged & unimportant}),
        title="Every model",
        numbers={
            KEPT: min(chosen(evidence, group).learned for group in GROUPS),
            "models": len(frame),
            "with a stack-like head": int(judged.sum()),
            "misleading": int((judged & unimportant).sum()),
            "least accuracy lost of a stack-like head, upper end": float(losses[judged].min())
            if judged.any()
            else None,
        },
        tables=[("Misleading heads at several thresholds", at_thresholds), *excluded_models(evidence, GROUPS)],
        charts=[
            scatter(
                frame.filter(["position", LOSS, "models"]),
                x="position",
                y=LOSS,
                series="models",
                zero=True,
                title=f"last pattern replaced by uniform or random rows, n = {len(frame)} models",
            )
        ],
        note=f"{POSITIONS} The loss is the upper end of its 95 % interval over sequences.",
    )


CLAIMS = (
    Claim(
        id="misleading.stack-like",
        method="Share of stack-like last heads (nearer to stack-like attention than to their own rows with keys "
        "shuffled) that lose less than 0.05 of hard accuracy when their pattern is replaced by uniform and by random "
        "rows, with its exact 95 % interval over models",
        rule=if_learned(Above(WRONG)),
        preregistration=Preregistration(
            "after first models",
            "the stack-like half of 60 models loses 0.115 on average; single models had not been looked at.",
        ),
        quantity="share of stack-like heads that are misleading",
        value_range=SHARE,
        measure=measure_misleading,
        judged=Share(
            MISLEADING, unit="models with a stack-like head", where={STACK_LIKE: True}, without_rows=(0.0, 0.0, 1.0)
        ),
        needs=GROUPS,
    ),
)
