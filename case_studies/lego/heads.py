"""Claims about heads, from audits of every trained model of the study."""

from case_studies.frame.audits import share_claim
from case_studies.frame.claims import Claim
from case_studies.lego.models import GROUPS

EVERY = (
    *(f"{arm}-{wiring}" for arm in ("classical", "plain", "long") for wiring in ("untied", "tied")),
    "long-stochastic",
    *(f"start-{start}" for start in ("random", "mimic", "query-key", "pretrained", "symbols")),
    *(f"shortcut-{start}" for start in ("random", "mimic", "pretrained")),
    *(f"group-{group.lower()}" for group in GROUPS),
)
"""Every group of the study."""
WHOLE = tuple(name for name in EVERY if name.startswith(("classical", "start", "group")))
"""Groups trained on every variable."""
UNTAUGHT = tuple(name for name in EVERY if name.startswith(("start", "shortcut")) and not name.endswith("mimic"))
"""Groups without mimicking."""


def _claim(name: str, statement: str, groups: tuple[str, ...], *, among: str) -> Claim:
    return share_claim(
        f"heads.{name}", source="LEGO, Section 4: association and manipulation heads", statement=statement,
        groups=groups, among=among, above=among == "readable",
    )  # fmt: skip


CLAIMS = (
    _claim("readable", "Heads that look like association or manipulation heads act as such.", EVERY, among="readable"),
    _claim("needed", "The heads that are needed can be read.", WHOLE, among="needed"),
    _claim(
        "untaught", "This is also true without mimicking: readable heads act through their pattern.", UNTAUGHT,
        among="readable",
    ),
)  # fmt: skip
