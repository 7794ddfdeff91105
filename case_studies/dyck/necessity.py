"""Claims about layers whose balance is broken by hand: they fail, at a length that their violation determines."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from scipy import stats

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AllOf, Between, Equal, Number, Value
from case_studies.recipes.judges import Row, Share
from case_studies.recipes.known_suite import KnownAnswers
from hooks import Transformer
from interp.core.randomness import derived_seed
from interp.known_answers import balanced_dyck
from interp.tasks import Dyck
from interp.tasks.dyck.brackets import closer
from interp.theory.balance import balance_violation
from interp.view.points import scatter

LANGUAGES = ((2, 4), (3, 4))
"""Bracket types and maximal depth."""
AMOUNTS = (0.003, 0.001, 0.0003)
"""Relative sizes of a fault: with the largest, models are wrong after about 60 brackets, with the smallest 1000."""
DRAWS = {"quick": 2, "standard": 5, "paper": 5}
"""Models per language, kind of fault and amount."""
LENGTHS = (250, 500, 1000, 2000, 4000)
"""Lengths of the words, in brackets, in the order in which they are tried."""
BALANCED = "balanced models that fail"
FAILS, SLOPE = "fails", "slope of log length over log violation"
BALANCED_MODELS = KnownAnswers(names=("dyck balanced",))
"""The hand-written models that are broken."""


def scale_closers(task: Dyck, amount: float, seed: int) -> Transformer:
    """A balanced model with uneven attention, whose closers' values are then multiplied by 1 + amount."""
    return balanced_dyck(task, attention="uneven", imbalance=amount, seed=seed)


@torch.no_grad()
def perturb_values(task: Dyck, amount: float, seed: int) -> Transformer:
    """The same with every weight of W_V multiplied by 1 + amount times a normal number."""
    model = balanced_dyck(task, attention="uneven", seed=seed)
    weight = model.block(0).attention.v.weight
    weight.mul_(1 + amount * _normal(weight.shape, seed))
    return model


@torch.no_grad()
def perturb_scores(task: Dyck, amount: float, seed: int) -> Transformer:
    """The same with amount times a normal number added to every score, so that score gaps depend on the query."""
    model = balanced_dyck(task, attention="uneven", seed=seed)
    weight = model.block(0).attention.q.weight  # keys are one-hot: a weight of W_Q is a score
    weight.add_(amount * model.cfg.attn_scale * _normal(weight.shape, seed))
    return model


FAULTS: dict[str, Callable[[Dyck, float, int], Transformer]] = {
    "closers scaled": scale_closers,
    "values perturbed": perturb_values,
    "scores perturbed": perturb_scores,
}


def _normal(shape: torch.Size, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def repeated_nests(task: Dyck, kind: int, length: int) -> str:
    """A word of at most `length` brackets that accumulates matched pairs of one type, with tests in between.

    It repeats a nest of this type to the maximal depth, and after it, for every two types, a pair of the second inside
    a pair of the first: the closer of the first must be predicted after a closer.
    """
    opener, closer = task.pair(kind)
    pairs = [task.pair(bracket) for bracket in range(task.n_types)]
    tests = "".join(outer[0] + "".join(inner) + outer[1] for outer in pairs for inner in pairs)
    block = opener * task.max_depth + closer * task.max_depth + tests
    return block * (length // len(block))


@torch.no_grad()
def first_error(model: Transformer, task: Dyck) -> int | None:
    """Length of the shortest prefix of a word of repeated nests after which the likeliest closer is wrong.

    It is the least over the types of the nests; None if no word of up to 4000 brackets has an error.
    """
    for length in LENGTHS:
        positions = []
        for kind in range(task.n_types):
            batch = task.read(repeated_nests(task, kind, length))
            # Only positions after a closer are tested: there the right closer depends on earlier brackets
            likeliest = model(batch.tokens)[..., closer(0) :: 2].argmax(-1)
            wrong = (likeliest != batch.due) & (batch.due >= 0) & batch.after_closer
            positions += wrong.nonzero()[:1, 1].tolist()
        if positions:
            return min(positions)
    return None


def _broken(evidence: Evidence) -> pd.DataFrame:
    """Fault, amount, violation and length of the first error (nan: none) of every broken model."""
    rows = []
    for types, depth in LANGUAGES:
        task = Dyck(n_types=types, max_depth=depth)
        for fault, make in FAULTS.items():
            for amount in AMOUNTS:
                for draw in range(DRAWS[evidence.size]):
                    seed = derived_seed(evidence.seed, "broken", types, depth, fault, str(amount), draw)
                    model = make(task, amount, seed)
                    violation = balance_violation(model, task).violation
                    rows.append((types, fault, amount, violation, first_error(model, task)))
    table = pd.DataFrame(rows, columns=["types", "fault", "amount", "violation", "first error"])
    return table.astype({"first error": float})


def _chart(table: pd.DataFrame) -> Any:
    """Length of the first error against the violation, of the models that fail."""
    points = table.dropna()
    points = pd.DataFrame(
        {
            "log10 of the violation": np.log10(points["violation"]),
            "log10 of the first error": np.log10(points["first error"]),
            "fault": points["fault"],
        }
    )
    title = f"length of the first error, n = {len(table)} hand-written models"
    return scatter(points, x="log10 of the violation", y="log10 of the first error", series="fault", title=title)


def measure_failing(evidence: Evidence) -> Readings:
    """Whether a broken model is wrong on some word of repeated nests of up to 4000 brackets, one row a model."""
    table = _broken(evidence)
    tasks = [Dyck(n_types=types, max_depth=depth) for types, depth in LANGUAGES]
    unbroken = [
        first_error(balanced_dyck(task, attention=kind), task) for task in tasks for kind in ("uniform", "uneven")
    ]
    return Readings(
        frame=table.assign(**{FAILS: table["first error"].notna()}),
        title="Every broken model",
        numbers={
            BALANCED: sum(error is not None for error in unbroken),
            "balanced models": len(unbroken),
            "longest length without an error, brackets": table["first error"].max(),
            "least violation": table["violation"].min(),
        },
        charts=[_chart(table)],
        note="The theorem is about all prefixes; tested are words that repeat a nest of one type, whose matched pairs "
        "add up. On sampled prefixes pairs of different types partly cancel: see theorem-1.balanced.",
    )


def measure_rate(evidence: Evidence) -> Readings:
    """Slope of the logarithm of the length of the first error over that of the violation, in one row."""
    table = _broken(evidence)
    # Slope of the logarithms over models that fail
    failed = table.dropna()
    x = np.log(failed["violation"].to_numpy())
    y = np.log(failed["first error"].to_numpy())
    fit = cast(Any, stats.linregress(x, y))
    half = float(stats.t.ppf(0.975, len(x) - 2) * fit.stderr)
    products = failed["violation"] * failed["first error"]
    return Readings(
        frame=pd.DataFrame([{SLOPE: fit.slope, "low": fit.slope - half, "high": fit.slope + half, "n": len(failed)}]),
        numbers={
            "violation x length, least": products.min(),
            "violation x length, median": products.median(),
            "violation x length, largest": products.max(),
            "models without an error": len(table) - len(failed),
        },
        tables=[("Every broken model", table)],
        charts=[_chart(table)],
    )


TRIED = Preregistration(
    "after first models", "48 models of this kind; all failed, at a violation times length of 0.5 to 4."
)

CLAIMS = (
    Claim(
        id="theorem-1.necessary",
        method="Share of hand-written layers with balance broken by 0.03 % to 0.3 % that are wrong on words of up to "
        "4000 brackets that repeat one nest",
        rule=AllOf(Value(Equal(1)), Number(BALANCED, Equal(0))),
        preregistration=TRIED,
        quantity="share that fails",
        value_range=SHARE,
        measure=measure_failing,
        judged=Share(FAILS, unit="hand-written models"),
        packs=BALANCED_MODELS,
        by_construction=True,
    ),
    Claim(
        id="theorem-1.rate",
        method="Slope of the logarithm of the length of the first error over that of the violation, over hand-written "
        "layers with broken balance, with its 95 % t interval over models",
        rule=Between(-1.25, -0.75),
        preregistration=TRIED,
        quantity=SLOPE,
        measure=measure_rate,
        judged=Row(SLOPE, unit="hand-written models"),
        packs=BALANCED_MODELS,
    ),
)
