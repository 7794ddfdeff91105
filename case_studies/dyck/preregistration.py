"""When the rules of the Dyck study were fixed, and what had been seen by then."""

from case_studies.frame.claims import Preregistration

PILOT = "a pilot in other code, 8 to 10 seeds per setting, none of which is judged: "
MINIMAL_VARIES = Preregistration("after first models", PILOT + "variation of 0.2 to 0.7 above minimal first layers.")
"""Rules about the variation above minimal first layers."""
CONTRASTIVE = Preregistration(
    "after first models", PILOT + "the contrastive loss lowered the violation 3 to 5 times and raised accuracy at 400."
)
"""Rules about the effect of the contrastive loss."""
