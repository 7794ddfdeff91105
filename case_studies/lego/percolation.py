"""Claims about where values are resolved: does a tied model resolve variable by variable, like a loop? (Figure 4)"""

from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Float

from case_studies.frame.claims import DIFFERENCE, Claim
from case_studies.frame.evidence import LARGE_SIZES, Evidence, once_per_model
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above
from case_studies.lego.curves import RESOLVED
from case_studies.lego.generalisation import TOO_SHORT
from case_studies.lego.models import EXCLUDED_LATER, MORE_SEEDS, later
from case_studies.recipes.audits import EXCLUDED
from case_studies.recipes.judges import NOTHING_KNOWN, ArmDifference
from case_studies.recipes.learned import excluded_models, has_learned
from interp.evaluation.extrapolate import first_for_good
from interp.probing.probe import ProbeResult, probe
from interp.sweeps.spec import ModelSpec
from interp.view.charts import heatmaps

EXAMPLES = {"quick": (1000, 1000), "standard": (2000, 2000), "paper": (20_000, 5000)}
"""Number of sentences for fitting and scoring probes."""
R2_STEP = 0.01
"""Change of the squared correlation if one of eight variables is resolved a layer later, rounded up."""
ARMS = ("long-tied", "long-untied")
STRAIGHT, DECODED = "r2", "layer from which each variable is decoded"
FEWEST = 4
"""Smallest number of resolved variables for a correlation."""


@once_per_model
def probed(evidence: Evidence, spec: ModelSpec) -> ProbeResult:
    """Probe map of a model."""
    n_train, n_test = EXAMPLES[evidence.size]
    model = evidence.run(spec).model
    return probe(model, spec.task, label="value", n_train=n_train, n_test=n_test, seed=evidence.seed)


def straightness(layers: Float[np.ndarray, " variable"]) -> tuple[float, float]:
    """Squared correlation of resolving layer and position in the chain, and slope in layers per variable.

    The root is excluded, because its value is in its own clause. Returns 0, 0 with fewer than `FEWEST` resolved
    variables.
    """
    place = np.arange(len(layers))
    chosen = np.isfinite(layers) & (place > 0)
    if chosen.sum() < FEWEST or np.ptp(layers[chosen]) == 0:
        return 0.0, 0.0
    slope = np.polyfit(place[chosen], layers[chosen], 1)[0]
    return float(np.corrcoef(place[chosen], layers[chosen])[0, 1] ** 2), float(slope)


def probe_layers(evidence: Evidence, spec: ModelSpec) -> Float[np.ndarray, " variable"]:
    """For each variable, the first layer from which a probe decodes its value in all later layers."""
    accuracy = probed(evidence, spec).accuracy
    return first_for_good(accuracy >= RESOLVED, np.arange(len(accuracy)))


def measure_percolation(evidence: Evidence, *, tied: str, untied: str) -> Readings:
    """Straightness of the probe map, one row a model; those that have not learned their task are not judged."""
    rows = []
    for group in (tied, untied):
        for spec in evidence.specs(group):
            row = {"arm": group, "seed": spec.seed, "learned": has_learned(evidence, spec)}
            if row["learned"]:
                layers = probe_layers(evidence, spec)
                row[DECODED] = layers_in_words(layers)
                row[STRAIGHT], row["layers per variable"] = straightness(layers)
            rows.append(row)
    return Readings(
        frame=pd.DataFrame(rows, columns=["arm", "seed", "learned", DECODED, STRAIGHT, "layers per variable"]),
        title="Layer from which each variable's value is decoded",
        numbers={
            f"models, {group}": sum(row["arm"] == group and row["learned"] for row in rows) for group in (tied, untied)
        },
        tables=excluded_models(evidence, (tied, untied)),
        charts=[_map(evidence, group) for group in (tied, untied)],
        note=f"Decoded: probe accuracy of {RESOLVED} or more from that layer to the last. Variables that never reach "
        "it are excluded from the correlation, and so is the root. Welch t interval over seeds. The maps are of "
        f"seed 0. {EXCLUDED}",
    )


def layers_in_words(layers: Float[np.ndarray, " variable"]) -> str:
    """Layers in chain order, a dash for NaN."""
    return " ".join("–" if np.isnan(layer) else f"{layer:.0f}" for layer in layers)


def _map(evidence: Evidence, group: str):
    spec = evidence.specs(group)[0]
    probes = probed(evidence, spec)
    accuracy = probes.accuracy
    panels = {"probe accuracy": accuracy.value, "control task": probes.control, "untrained model": probes.untrained}
    sample = f"n = {probes.n_test} sentences per cell (95 % within ±{accuracy.half_width:.3f})"
    title = f"{group}, seed {spec.seed}: {sample}"
    return heatmaps(panels, x=probes.targets, x_title="variable", y_title="layer", title=title, value="fraction")


CLAIMS = (
    Claim(
        id="percolation.linear",
        sizes=LARGE_SIZES,
        sizes_reason=TOO_SHORT,
        method="Squared correlation of a variable's position in the chain with the layer from which a linear probe "
        f"decodes its value (accuracy {RESOLVED}), tied minus untied, same depth, t interval over seeds",
        rule=Above(0),
        preregistration=later(EXCLUDED_LATER, MORE_SEEDS),
        quantity="difference in r2",
        value_range=DIFFERENCE,
        measure=partial(measure_percolation, tied=ARMS[0], untied=ARMS[1]),
        judged=ArmDifference(
            STRAIGHT,
            arm="arm",
            arms=ARMS,
            unit="seeds an arm",
            where={"learned": True},
            resolution=R2_STEP,
            without_rows=NOTHING_KNOWN,
        ),
        needs=ARMS,
    ),
)
