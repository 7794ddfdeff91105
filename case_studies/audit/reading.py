"""Claims about shares of heads: readable heads that act through their pattern, needed heads that fit no kind."""

from case_studies.audit.models import DYCK, LEGO, TEMPLATE
from case_studies.frame.audits import share_claim
from case_studies.frame.claims import Claim


def _claim(family: str, among: str, *, above: bool, source: str, statement: str) -> Claim:
    return share_claim(
        f"{'readable' if among == 'readable' else 'hidden'}.{family}", source=source, statement=statement,
        groups={"lego": LEGO, "dyck": DYCK, "template": TEMPLATE}[family], among=among, above=above,
    )  # fmt: skip


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
