"""Claims about copying: a wide attention-only model cannot copy an unseen symbol without b I (Section 6)."""

from functools import partial

import numpy as np
import pandas as pd

from case_studies.frame.claims import Claim, Measurement, above, at_least, below, proportion, t_interval
from case_studies.frame.evidence import Evidence
from case_studies.frame.template_models import PLAIN, B
from case_studies.template.measures import Scored, by, by_n, paper_curves, scores, thresholds
from case_studies.template.models import COPY_RATE
from interp.view.charts import dots, scaling_curves

COPIED = 0.95
"""Accuracy that the model with b I needs at every width."""
ERROR = 0.1
SAME = f"{B}, same rate"


def _by_width(rows: list[Scored], name: str) -> list[dict]:
    """Accuracy of each width with its exact interval, symbols of all seeds pooled."""
    found = []
    for width, part in by(rows, lambda row: row.config.d_model).items():
        total = sum(row.total for row in part)
        value, low, high = proportion(sum(row.right for row in part), total)
        found.append({"width": width, "accuracy": value, "low": low, "high": high, "symbols": total, "series": name})
    return found


def measure_copying(evidence: Evidence, *, judged: str, at: str) -> Measurement:
    """Accuracy of one variant on unseen symbols, at the `worst` of its widths or the `widest`; all variants shown."""
    models = {name: scores(evidence, f"copy {name}", each_symbol=True) for name in (PLAIN, B, SAME)}
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
        tables=[("Accuracy on unseen symbols, pooled over seeds", rows)],
        charts=[dots(pd.DataFrame(joined).astype({"width": str}), x="width", y="accuracy", series="series",
                     title=f"copying unseen symbols, {first} training symbols; n = {row['symbols']} per point")],
        note=f"Every test symbol is tested once per seed. The learning rate of b is {COPY_RATE:g} times that of the "
        "other parameters; in the control 'same rate' it is equal.",
    )  # fmt: skip


def measure_width(evidence: Evidence) -> Measurement:
    """Slope of log2 of the samples needed for an error below a tenth, per doubling of width, over seeds."""
    models = by(scores(evidence, f"copy {PLAIN}", each_symbol=True), lambda row: row.config.d_model)
    needed = {width: thresholds(rows, ERROR, lambda row: 1 - row.accuracy) for width, rows in models.items()}
    per_seed = np.log2(np.array([[n for n, _ in part] for part in needed.values()], dtype=float)).T
    widths = np.log2(np.array(list(needed), dtype=float))
    slopes = np.array([np.polyfit(widths, row, 1)[0] for row in per_seed])
    mean, low, high = t_interval(slopes)
    rows: list[list] = [["width", "n needed, by seed", "seeds that need more than the grid has"]]
    for width, part in needed.items():
        rows.append([width, ", ".join(str(n) for n, _ in part), sum(not reached for _, reached in part)])
    points = [
        {"n": n, "error": 1 - one["accuracy"], "low": 1 - one["high"], "high": 1 - one["low"],
         "series": f"width {width}"}
        for width, part in models.items() for n, at in by_n(part).items() for one in _by_width(at, "")
    ]  # fmt: skip
    return Measurement(
        value=mean, low=low, high=high, n=len(slopes), unit="seeds",
        tables=[("Training symbols needed for an error below a tenth (twice the largest n if never reached)", rows)],
        charts=[scaling_curves(pd.DataFrame(points), x="n", y="error", series="series", rule=ERROR,
                               behind=paper_curves("copy", x="n", y="error", series=[f"width {w}" for w in models]),
                               title="copying without b I: error on unseen symbols; dashed: the paper's")],
    )  # fmt: skip


NEEDS = (f"copy {PLAIN}", f"copy {B}", f"copy {SAME}")

CLAIMS = (
    Claim(
        id="copying.identity", source="template paper, Section 6, Figure 5",
        statement="With b I on W_V W_O^T the attention-only model copies unseen symbols, at every width.",
        paper="error below 0.1 from 8 symbols on",
        rule="Accuracy on unseen symbols at the width where it is lowest: reproduced if its exact interval is at or "
        f"above {COPIED}, not reproduced if below, else inconclusive.",
        quantity="accuracy, worst width", measure=partial(measure_copying, judged=B, at="worst"),
        judge=partial(at_least, bar=COPIED), needs=NEEDS,
    ),
    Claim(
        id="copying.fails", source="template paper, Section 6, Figure 4",
        statement="Without b I, the model learns its training symbols and does not generalise to unseen ones.",
        paper="128 symbols, width 512: error 1.0",
        rule="Accuracy on unseen symbols of the widest model: reproduced if its interval is below one half, not "
        "reproduced if above, else inconclusive.",
        quantity="accuracy, widest", measure=partial(measure_copying, judged=PLAIN, at="widest"),
        judge=partial(below, bar=0.5), needs=NEEDS,
    ),
    Claim(
        id="copying.same-rate", source="template paper, Section 6 (a learning rate for b exists)",
        statement="b I is not sufficient: if b learns no faster than the rest, unseen symbols are not copied.",
        rule="Accuracy on unseen symbols: reproduced if its interval is below one half, not reproduced if above, "
        "else inconclusive. Ours: in the theorem only b learns.",
        quantity="accuracy", measure=partial(measure_copying, judged=SAME, at="widest"),
        judge=partial(below, bar=0.5), needs=NEEDS,
    ),
    Claim(
        id="copying.wider-is-worse", source="template paper, Section 6, Figure 4",
        statement="Without b I wider models need more samples to copy.",
        paper="64 at width 64, 2048 at 4096",
        rule="Slope of log2 of the samples needed for an error below a tenth over log2 of the width, for each seed: "
        "reproduced if its interval is above 0, not reproduced if below, else inconclusive.",
        quantity="doublings of n per doubling of width", measure=measure_width, judge=partial(above, bar=0),
        needs=(f"copy {PLAIN}",), sizes=("standard", "paper"),
        why_not="It takes a grid of widths and samples, which is trained at size standard and above.",
    ),
)  # fmt: skip
