"""How often does a readable head act through its pattern, and how often does an essential head look like nothing?"""

from functools import partial

from case_studies.audit.models import DYCK, LEGO, TEMPLATE
from case_studies.frame.audits import RULE, judge_fewest, judge_most, measure_share
from case_studies.frame.claims import Claim

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
