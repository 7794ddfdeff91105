"""Claims about copying: saying a symbol again, which a wide attention-only model cannot, but for b I. (Section 6)"""

from functools import partial

import numpy as np
import pandas as pd

from case_studies.frame.claims import Claim, ClaimVerdict, Measurement, above, at_least, below, t_interval
from case_studies.frame.evidence import Evidence
from case_studies.frame.template_models import PLAIN, B
from case_studies.template.measures import Scored, by, by_n, paper_curves, scores, threshold
from case_studies.template.models import COPY_RATE
from interp.core.statistics import proportion_interval
from interp.view.charts import dots, scaling_curves

COPIED = 0.95
"""Accuracy that the model with b I must have at every width."""
ERROR = 0.1
SAME = f"{B}, same rate"


def _by_width(rows: list[Scored], name: str) -> list[dict]:
    """Accuracy of each width, symbols of all seeds pooled, with its exact interval."""
    found = []
    for width, part in by(rows, lambda row: row.config.d_model).items():
        right, asked = sum(row.right for row in part), sum(row.total for row in part)
        low, high = proportion_interval(np.array(right), asked)
        found.append({"width": width, "accuracy": right / asked, "low": float(low), "high": float(high),
                      "symbols": asked, "series": name})  # fmt: skip
    return found


def measure_copying(evidence: Evidence, *, judged: str, at: str) -> Measurement:
    """Accuracy on unseen symbols of one variant, at the `worst` of its widths or the `widest`, beside the others'."""
    groups = {PLAIN: f"copy {PLAIN}", B: f"copy {B}", SAME: f"copy {SAME}"}
    models = {name: scores(evidence, group, each_symbol=True) for name, group in groups.items()}
    first = min(row.n for row in models[B])
    found = {name: _by_width([row for row in rows if row.n == first], name) for name, rows in models.items()}
    row = min(found[judged], key=lambda one: one["accuracy"] if at == "worst" else -one["width"])
    joined = [one for part in found.values() for one in part]
    rows: list[list] = [["model", "width", "accuracy", "95 %", "unseen symbols"]]
    for one in joined:
        ends = f"[{one['low']:.3f}, {one['high']:.3f}]"
        rows.append([one["series"], one["width"], f"{one['accuracy']:.3f}", ends, one["symbols"]])
    sums = {
        str(width): [round(one.model.block(0).attention.b.sum().item(), 2) for one in part if one.n == first]
        for width, part in by(models[B], lambda row: row.config.d_model).items()
    }
    return Measurement(
        value=row["accuracy"], low=row["low"], high=row["high"], n=row["symbols"], unit="unseen symbols",
        numbers={"width": row["width"], "training symbols": first, "sum of b, by width and seed": sums},
        tables=[("Accuracy on unseen symbols, those of all seeds together", rows)],
        charts=[dots(pd.DataFrame(joined).astype({"width": str}), x="width", y="accuracy", series="series",
                     title=f"unseen symbols said again, {first} training symbols; n = {row['symbols']} per point")],
        note=f"Every test symbol is asked once of each seed. b learns {COPY_RATE:g} times as fast as the rest; 'same "
        "rate' is the control where it does not.",
    )  # fmt: skip


def judge_copied(m: Measurement) -> ClaimVerdict:
    """At least 0.95."""
    return at_least(m, COPIED)


def judge_fails(m: Measurement) -> ClaimVerdict:
    """Less than half."""
    return below(m, 0.5)


def measure_width(evidence: Evidence) -> Measurement:
    """Slope of log2 of the samples needed for an error below a tenth, per doubling of width, over seeds."""
    models = by(scores(evidence, f"copy {PLAIN}", each_symbol=True), lambda row: row.config.d_model)
    needed = {
        width: [
            threshold(part, ERROR, lambda row: 1 - row.accuracy) for part in by(rows, lambda row: row.seed).values()
        ]
        for width, rows in models.items()
    }
    per_seed = np.log2(np.array([[n for n, _ in part] for part in needed.values()], dtype=float)).T
    widths = np.log2(np.array(list(needed), dtype=float))
    slopes = np.array([np.polyfit(widths, row, 1)[0] for row in per_seed])
    mean, low, high = t_interval(slopes)
    rows: list[list] = [["width", "n needed, by seed", "never within the grid"]]
    for width, part in needed.items():
        rows.append([width, ", ".join(str(n) for n, _ in part), sum(not reached for _, reached in part)])
    points = [
        {"n": n, "error": 1 - one["accuracy"], "low": 1 - one["high"], "high": 1 - one["low"],
         "series": f"width {width}"}
        for width, part in models.items() for n, at in by_n(part).items() for one in _by_width(at, "")
    ]  # fmt: skip
    return Measurement(
        value=mean, low=low, high=high, n=len(slopes), unit="seeds",
        tables=[("Training symbols needed for an error below a tenth (twice the largest n where never)", rows)],
        charts=[scaling_curves(pd.DataFrame(points), x="n", y="error", series="series", rule=ERROR,
                               behind=paper_curves("copy", x="n", y="error", series=[f"width {w}" for w in models]),
                               title="copying without b I: error on unseen symbols; dashed: the paper's")],
    )  # fmt: skip


def judge_inverse(m: Measurement) -> ClaimVerdict:
    """Wider models need more."""
    return above(m, 0)


NEEDS = (f"copy {PLAIN}", f"copy {B}", f"copy {SAME}")

CLAIMS = (
    Claim(
        id="copying.identity", source="template paper, Section 6, Figure 5",
        statement="With b I on W_V W_O^T the attention-only model says unseen symbols again, at every width.",
        paper="error below 0.1 from 8 symbols on",
        rule=f"Accuracy on unseen symbols at the width where it is lowest: reproduced if its exact interval lies at or "
        f"above {COPIED}, not reproduced if below, else inconclusive.",
        quantity="accuracy, worst width", measure=partial(measure_copying, judged=B, at="worst"),
        judge=judge_copied, needs=NEEDS,
    ),
    Claim(
        id="copying.fails", source="template paper, Section 6, Figure 4",
        statement="Without it, the model learns its training symbols and does not carry over to unseen ones.",
        paper="128 symbols, width 512: error 1.0",
        rule="Accuracy on unseen symbols of the widest model: reproduced if its interval lies below one half, not "
        "reproduced if above, else inconclusive.",
        quantity="accuracy, widest", measure=partial(measure_copying, judged=PLAIN, at="widest"),
        judge=judge_fails, needs=NEEDS,
    ),
    Claim(
        id="copying.same-rate", source="template paper, Section 6 (a learning rate for b exists)",
        statement="b I is not enough by itself: where b learns no faster than the rest, unseen symbols are not copied.",
        rule="Accuracy on unseen symbols: reproduced if its interval lies below one half, not reproduced if above, "
        "else inconclusive. Ours: the theorem lets only b learn.",
        quantity="accuracy", measure=partial(measure_copying, judged=SAME, at="widest"),
        judge=judge_fails, needs=NEEDS,
    ),
    Claim(
        id="copying.wider-is-worse", source="template paper, Section 6, Figure 4",
        statement="Without b I wider models need more samples to copy.",
        paper="64 at width 64, 2048 at 4096",
        rule="Slope of log2 of the samples needed for an error below a tenth over log2 of the width, seed by seed: "
        "reproduced if its interval lies above 0, not reproduced if below, else inconclusive.",
        quantity="doublings of n per doubling of width", measure=measure_width, judge=judge_inverse,
        needs=(f"copy {PLAIN}",), sizes=("standard", "paper"),
        why_not="It takes a grid of widths and samples, which is trained at size standard and above.",
    ),
)  # fmt: skip
