"""Claims about heads, from audits of every trained model of the study."""

from functools import partial

from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES
from case_studies.lego.models import GROUPS
from case_studies.recipes.audits import AFTER_AUDITS, Among, head_share_claim, measure_head_share_longer
from case_studies.recipes.seeds import more_seeds

EVERY = (
    *(f"{arm}-{wiring}" for arm in ("classical", "plain", "spare", "long") for wiring in ("untied", "tied")),
    "long-stochastic",
    *(f"start-{start}" for start in ("random", "mimic", "query-key", "pretrained", "symbols")),
    *(f"shortcut-{start}" for start in ("random", "mimic", "pretrained")),
    "mimic-last",
    *(f"group-{group.lower()}" for group in GROUPS),
    "untaught-untied",
    "untaught-tied",
)
"""Every group of the study; `mimic-first` has the models of `long-untied`, except at size `paper`."""
WHOLE = tuple(name for name in EVERY if name.startswith(("classical", "start", "group", "untaught")))
"""Groups trained on every variable."""
NO_MIMICKING = tuple(more_seeds(name) for name in EVERY if name.startswith("untaught"))
"""Groups without mimicking that learn their chains."""
NONE_LEARNED = "Without mimicking no model learns its chains in the time of this size."
UNTAUGHT_FIXED = Preregistration(
    "after a result",
    "5 of 19 decided heads were faithful in models without mimicking that had not learned their chains. For all claims "
    f"about shares of heads: {AFTER_AUDITS.prior_knowledge} Twenty models in place of twelve were fixed after a "
    f"result, 0.09 "
    "[0.01, 0.55] of the needed heads hidden.",
)

LONGER = Preregistration(
    "after a result",
    f"{UNTAUGHT_FIXED.prior_knowledge} Then 0.17 [0.05, 0.59] of the needed heads of twenty models hidden, 15 of 50 "
    f"undecided; "
    "audits of four times the sequences were fixed after that.",
)


def _claim(name: str, statement: str, groups: tuple[str, ...], *, among: Among, **options) -> Claim:
    return head_share_claim(
        f"heads.{name}",
        source="ours, after LEGO, Section 4: association and manipulation heads",
        statement=statement,
        groups=groups,
        among=among,
        above=among == "readable",
        **options,
    )


WITHOUT = {"sizes": LARGE_SIZES, "sizes_reason": NONE_LEARNED, "preregistration": UNTAUGHT_FIXED}
TAUGHT = "In models most of which were taught by mimicking where to look,"
CLAIMS = (
    _claim(
        "readable",
        f"{TAUGHT} heads that look like association or manipulation heads act as such.",
        EVERY,
        among="readable",
    ),
    _claim("needed", f"{TAUGHT} the heads that are needed can be read.", WHOLE, among="needed"),
    _claim(
        "untaught",
        "Without mimicking, heads that look like association or manipulation heads act as such.",
        NO_MIMICKING,
        among="readable",
        **WITHOUT,
    ),
    _claim(
        "needed-untaught",
        "Without mimicking, the heads that are needed can be read.",
        NO_MIMICKING,
        among="needed",
        measure=partial(measure_head_share_longer, groups=NO_MIMICKING, among="needed"),
        **{**WITHOUT, "preregistration": LONGER},
    ),
)
