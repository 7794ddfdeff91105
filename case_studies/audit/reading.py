"""How often does a readable head act through its pattern, and how often does an essential head look like nothing?"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from case_studies.audit.audits import DYCK, LEGO, TEMPLATE, Audited, audits, needed, readable, share
from case_studies.frame.claims import Claim, ClaimVerdict, Measurement
from case_studies.frame.evidence import Evidence
from case_studies.frame.judging import below, more_than_half
from interp.auditing.verdicts import VERDICTS
from interp.view.points import scatter

FEWEST = 8
"""Heads that a share must be of, at least, to be judged."""


def measure_share(evidence: Evidence, *, groups: Sequence[str], among: str, n: int | None = None) -> Measurement:
    """Of readable heads the faithful, or of needed heads the hidden."""
    found = list(audits(evidence, groups, n=n))
    pick, verdict = (readable, "faithful") if among == "readable" else (needed, "hidden")
    chosen = [pick(one.result) for one in found]
    given = [np.array(one.result.verdict)[mask] for mask, one in zip(chosen, found, strict=True)]
    of, hits, open_ = (
        [int(part.sum()) for part in parts]
        for parts in (chosen, [one == verdict for one in given], [one == "undecided" for one in given])
    )
    _, low, _ = share(hits, of)
    _, _, high = share([hit + more for hit, more in zip(hits, open_, strict=True)], of)
    decided = sum(of) - sum(open_)
    return Measurement(
        value=sum(hits) / decided if decided else low, low=low, high=high, n=max(1, len(found)), unit="models",
        numbers={"heads": sum(of), "undecided": sum(open_), "heads in all": sum(len(one.result.heads) for one in found),
                 "models left out": sum(len(evidence.specs(group)) for group in groups) - len(found)},
        tables=[(f"Verdicts on {among} heads, by group", _table(found, chosen)),
                ("Labels and verdicts", _labels(found, chosen))],
        charts=[_chart(found)] if found else [],
        note="Models that do not know their task are left out. The interval takes models, not heads, as independent, "
        "and undecided heads as either: they are hits at its upper end and misses at its lower. (A first run counted "
        "them as misses throughout, and so called readable.dyck reproduced with 16 of 17 heads undecided.)",
    )  # fmt: skip


def _table(found: Sequence[Audited], chosen: Sequence[np.ndarray]) -> list[list]:
    """How many heads of each verdict among those chosen."""
    rows: list[list] = [["group", "models", "heads", *VERDICTS]]
    for group in dict.fromkeys(one.group for one in found):
        of_group = [(one.result, mask) for one, mask in zip(found, chosen, strict=True) if one.group == group]
        counts = Counter(verdict for result, mask in of_group for verdict in np.array(result.verdict)[mask].tolist())
        rows.append([group, len(of_group), sum(counts.values()), *(counts[name] for name in VERDICTS)])
    return rows


def _labels(found: Sequence[Audited], chosen: Sequence[np.ndarray]) -> list[list]:
    counts = Counter(
        (label, verdict)
        for one, mask in zip(found, chosen, strict=True)
        for label, verdict, taken in zip(one.result.label, one.result.verdict, mask, strict=True)
        if taken
    )
    labels = sorted({label for label, _ in counts})
    return [["label", *VERDICTS], *([label, *(counts[label, name] for name in VERDICTS)] for label in labels)]


def _chart(found: Sequence[Audited]):
    """Every head: what it looks like against what taking it out costs."""
    rows = []
    for one in found:
        cost, _ = one.result.cost("mean")
        rows += zip(one.result.score, cost[:, 0], one.result.verdict, strict=True)
    columns = ["looks: score on its kind", "does: accuracy lost without it", "verdict"]
    table = pd.DataFrame([(float(score), float(lost), verdict) for score, lost, verdict in rows], columns=columns)
    return scatter(table, x=columns[0], y=columns[1], series="verdict", zero=True,
                   title=f"every head, n = {len(rows)} heads of {len(found)} models")  # fmt: skip


def judge_most(m: Measurement) -> ClaimVerdict:
    """Most of them, of enough heads."""
    return more_than_half(m) if m.numbers["heads"] >= FEWEST else "inconclusive"


def judge_fewest(m: Measurement) -> ClaimVerdict:
    """Fewer than half, of enough heads."""
    return below(m, 0.5) if m.numbers["heads"] >= FEWEST else "inconclusive"


RULE = (
    "Share of decided heads; its interval takes undecided ones as hits at the upper end and as misses at the lower. "
    "Reproduced if it lies {side} one half, not reproduced if on the other side, else out of "
    f"reach; inconclusive too with fewer than {FEWEST} such heads."
)
READABLE = "share of readable heads that are faithful"
HIDDEN = "share of needed heads that look like nothing"


def _claim(family: str, among: str, *, above: bool, source: str, statement: str) -> Claim:
    groups = {"lego": LEGO, "dyck": DYCK, "template": TEMPLATE}[family]
    return Claim(
        id=f"{'readable' if among == 'readable' else 'hidden'}.{family}",
        source=source,
        statement=statement,
        rule=RULE.format(side="above" if above else "below"),
        quantity=READABLE if among == "readable" else HIDDEN,
        measure=partial(measure_share, groups=groups, among=among),
        judge=judge_most if above else judge_fewest,
        needs=groups,
    )


CLAIMS = (
    _claim(
        "lego",
        "readable",
        above=True,
        source="LEGO, Section 4: association and manipulation heads",
        statement="In models of LEGO chains, heads that look like association or manipulation do what they look like.",
    ),
    _claim(
        "dyck",
        "readable",
        above=False,
        source="bounded Dyck, Section 5",
        statement="In models of bounded Dyck, heads with a readable pattern do not act through it.",
    ),
    _claim(
        "template",
        "readable",
        above=True,
        source="template tasks, Section 4: attention to equal symbols",
        statement="In models of template tasks, heads with a readable pattern act through it.",
    ),
    _claim(
        "lego",
        "needed",
        above=False,
        source="LEGO, Section 4",
        statement="In models of LEGO chains, the heads that are needed are readable.",
    ),
    _claim(
        "dyck",
        "needed",
        above=True,
        source="bounded Dyck, Section 3 and Figure 1",
        statement="In models of bounded Dyck, the heads that are needed look like nothing that can be read.",
    ),
    _claim(
        "template",
        "needed",
        above=False,
        source="template tasks, Section 4",
        statement="In models of template tasks, the heads that are needed are readable.",
    ),
)
