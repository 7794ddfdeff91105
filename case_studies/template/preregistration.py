"""When the rules of the template study were fixed, and what had been seen by then."""

from case_studies.frame.claims import Preregistration

FIRST_MODELS = Preregistration(
    "after first models",
    "pilot models in other code, none of which is judged. The rules were committed less than an hour before the "
    "results, while the models were in training.",
)
SAMPLES = Preregistration(
    "after a result",
    "one rule required a factor of 4, where the paper says an order of magnitude; a factor of 4 was seen, the same in "
    "all seeds on doublings of n. The half-steps of n were added after that.",
    looks=1,
)
"""Rules about how many samples a I saves."""


def extended(prior_knowledge: str, addition: str, *, looks: int = 1) -> Preregistration:
    """The rule of the first models, with more models since a result was seen."""
    return Preregistration(
        "after a result",
        f"{prior_knowledge}. The rule is that of the first models. Added after that: {addition}.",
        looks=looks,
    )


def over_models(prior_knowledge: str) -> Preregistration:
    """The bar of the first models, with models as units since a result was seen."""
    return Preregistration(
        "after a result", f"{prior_knowledge}. The bar is that of the first models; the units were not models then."
    )
