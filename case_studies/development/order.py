"""Claims on what comes first: looking or mattering, association or manipulation."""

from functools import partial
from typing import Any

import numpy as np

from case_studies.development.models import FURTHER, SEQUENCES, costs, looks
from case_studies.frame.claims import BEFORE_ANY_MODEL, DIFFERENCE, SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence, once_per_model
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above
from case_studies.recipes.intervals import proportion, t_interval
from case_studies.recipes.learned import excluded_models, has_learned
from interp.comparison.onsets import Onsets
from interp.sweeps.spec import ModelSpec

Onset = dict[tuple[int, int], float]
"""Step by (layer, head); infinite if there is none by the end."""
ARMS = {"lego": (FURTHER,), "template": ("template",), "dyck": ("dyck",)}
PILOTS = "Two further models of three variables had been trained, and only their final accuracies seen."
FIXED = {
    "lego": Preregistration(
        "after a result",
        "with mimicking, which trains patterns before the task, all 52 heads of 8 models looked first; so models "
        f"without it replace them. Of four variables, 8 of these did not learn. {PILOTS} Of eight models of three "
        "variables one had such a head; four more were fixed after that.",
    ),
    "template": BEFORE_ANY_MODEL,
    "dyck": BEFORE_ANY_MODEL,
}
ASSOCIATION, MANIPULATION = "association", "manipulation"


@once_per_model
def look_onsets(evidence: Evidence, spec: ModelSpec) -> Onset:
    """For each head with a label at the end of training, the onset of the score of this kind above untrained models."""
    over = looks(evidence, spec)
    onsets_of_looks = over.onsets()
    onsets = {
        label: float(step) for label, step in zip(onsets_of_looks.labels, onsets_of_looks.onset[:, 0], strict=True)
    }
    last: Any = over.rows(step=over.steps[-1])
    labels = {(row.layer, row.head): row.label for row in last.itertuples()}
    return {(*head,): onsets[*head, label] for head, label in labels.items() if (*head, label) in onsets}


@once_per_model
def cost_onsets(evidence: Evidence, spec: ModelSpec) -> Onset:
    """For each head, the first step from which its removal costs accuracy on some outcome, until the end."""
    onsets: Onsets = costs(evidence, spec).onsets()
    return {_head(name): float(step) for (name,), step in zip(onsets.labels, onsets.onset[:, 0], strict=True)}


def _head(name: str) -> tuple[int, int]:
    layer, head = name.split(".")
    return int(layer), int(head)


def measure_look_before_matter(evidence: Evidence, *, groups: tuple[str, ...]) -> Measurement:
    """Share of heads that look before they matter, minus that of heads that matter first; mean over models."""
    rows: list[list[Any]] = [["group", "seed", "head", "looks from step", "matters from step"]]
    values = []
    heads = 0
    for group in groups:
        for spec in evidence.specs(group):
            if not has_learned(evidence, spec):
                continue
            # Only heads with both onsets: 1 if they look first, -1 if they matter first
            look = look_onsets(evidence, spec)
            cost = cost_onsets(evidence, spec)
            heads_with_both = [
                head for head, step in look.items() if np.isfinite(step) and np.isfinite(cost.get(head, np.inf))
            ]
            rows += [
                [group, spec.seed, f"{layer}.{head}", f"{look[layer, head]:.0f}", f"{cost[layer, head]:.0f}"]
                for layer, head in heads_with_both
            ]
            heads += len(heads_with_both)
            if heads_with_both:
                values.append(np.mean([np.sign(cost[head] - look[head]) for head in heads_with_both]))
    tables = [("Heads that look like something and matter at the end", rows), *excluded_models(evidence, groups)]
    if not values:
        note = "No model has a head that looks like something and matters."
        return Measurement(value=0.0, low=-1.0, high=1.0, n=1, unit="models", tables=tables, note=note)
    interval = t_interval(np.array(values), resolution=len(values) / heads)
    return Measurement.from_interval(
        interval,
        unit="models",
        tables=tables,
        numbers={"heads": heads, "models without such a head": _learned(evidence, groups) - len(values)},
        note=f"{SEQUENCES[evidence.size]} sequences at each snapshot. A head looks from the first snapshot on at which "
        "the score of its final kind stays above that of untrained models, and matters from the first on at which the "
        "cost of its removal stays above 0. Both at one snapshot count as neither.",
    )


def measure_association(evidence: Evidence, *, group: str) -> Measurement:
    """Share of models in which some head shows association before any shows manipulation."""
    rows: list[list[Any]] = [["seed", "association from step", "manipulation from step"]]
    first = []
    for spec in evidence.specs(group):
        if not has_learned(evidence, spec):
            continue
        # The earliest onset of any head, for each of the two kinds
        steps = dict.fromkeys((ASSOCIATION, MANIPULATION), np.inf)
        onsets = looks(evidence, spec).onsets()
        for (*_, kind), step in zip(onsets.labels, onsets.onset[:, 0], strict=True):
            if kind in steps:
                steps[kind] = min(steps[kind], float(step))
        first.append(steps[ASSOCIATION] < steps[MANIPULATION])
        rows.append([spec.seed, *(f"{step:.0f}" if np.isfinite(step) else "not by the end" for step in steps.values())])
    tables = [("First step of any head", rows), *excluded_models(evidence, [group])]
    if not first:
        note = "No model has learned its task."
        return Measurement.from_interval(proportion(0, 0), unit="models", tables=tables, note=note)
    interval = proportion(sum(first), len(first))
    return Measurement.from_interval(
        interval,
        unit="models",
        tables=tables,
        note="Exact interval over models; both at one snapshot do not count.",
    )


def _learned(evidence: Evidence, groups: tuple[str, ...]) -> int:
    return sum(has_learned(evidence, spec) for group in groups for spec in evidence.specs(group))


CLAIMS = (
    *(
        Claim(
            id=f"order.{name}",
            source="ours",
            preregistration=FIXED[name],
            statement=f"In {models} heads look like something before they matter.",
            method="Share of heads that look before they matter minus share that matter first, of those that do both "
            "at the end; t interval over models",
            rule=Above(0),
            quantity="difference of shares",
            value_range=DIFFERENCE,
            measure=partial(measure_look_before_matter, groups=ARMS[name]),
            needs=ARMS[name],
        )
        for name, models in (
            ("lego", "LEGO models without mimicking"),
            ("template", "template models"),
            ("dyck", "Dyck models"),
        )
    ),
    Claim(
        id="association.first",
        source="ours",
        preregistration=Preregistration(
            "after a result",
            f"models of four variables, none of which learned its task. {PILOTS} Twelve models were "
            "fixed after 6 of 7 of this claim. The rule is older.",
        ),
        statement="Without mimicking, association comes before manipulation.",
        method="Share of LEGO models in which some head's association stays above untrained models from an earlier "
        "snapshot on than any head's manipulation; exact interval over models",
        rule=Above(0.5),
        quantity="share of models",
        value_range=SHARE,
        measure=partial(measure_association, group=FURTHER),
        needs=(FURTHER,),
    ),
)
