"""Claims about how values travel: does a tied model resolve one variable after another, as a loop would? (Figure 4)"""

from functools import partial

import numpy as np
from jaxtyping import Float

from case_studies.frame.claims import Claim, Measurement, above, at_least, difference_interval, t_interval
from case_studies.frame.evidence import Evidence, ModelSpec
from case_studies.lego.curves import RESOLVED, depth_curve, first_for_good
from case_studies.lego.generalisation import LARGE, TOO_SHORT
from interp.probing.probe import ProbeResult, probe
from interp.view.charts import heatmaps

EXAMPLES = {"quick": (1000, 1000), "standard": (2000, 2000), "paper": (20_000, 5000)}
"""Sentences that probes are fitted and scored on."""
STRAIGHT = 0.9
"""Squared correlation from which layers and positions in the chain lie on a line."""
FEWEST = 4
"""Variables that must be resolved for a line to mean anything."""

_done: dict[tuple, ProbeResult] = {}


def probed(evidence: Evidence, spec: ModelSpec) -> ProbeResult:
    """The probe map of a model, made once."""
    key = (evidence.folder, spec.key, evidence.seed, evidence.size)
    if key not in _done:
        n_train, n_test = EXAMPLES[evidence.size]
        model = evidence.run(spec).model
        _done[key] = probe(model, spec.task, label="value", n_train=n_train, n_test=n_test, seed=evidence.seed)
    return _done[key]


def straightness(layers: Float[np.ndarray, " variable"]) -> tuple[float, float]:
    """Squared correlation of resolving layer and place in the chain, and layers per variable; 0, 0 for too few of them.

    The root is left out: nothing has to travel to it.
    """
    place = np.arange(len(layers))
    chosen = np.isfinite(layers) & (place > 0)
    if chosen.sum() < FEWEST or np.ptp(layers[chosen]) == 0:
        return 0.0, 0.0
    slope = np.polyfit(place[chosen], layers[chosen], 1)[0]
    return float(np.corrcoef(place[chosen], layers[chosen])[0, 1] ** 2), float(slope)


def probe_layers(evidence: Evidence, spec: ModelSpec) -> Float[np.ndarray, " variable"]:
    """For each variable the first layer from which a probe tells its value for good."""
    found = probed(evidence, spec)
    return first_for_good(found.accuracy >= RESOLVED, np.arange(len(found.accuracy)))


def measure_percolation(evidence: Evidence, *, tied: str, untied: str) -> Measurement:
    """Straightness of the probe map, tied minus untied."""
    straight: dict[str, list[float]] = {}
    rows: list[list] = [
        ["arm", "seed", "layer from which each variable can be read for good", "r2", "layers a variable"]
    ]
    charts = []
    for group in (tied, untied):
        straight[group] = []
        for spec in evidence.specs(group):
            layers = probe_layers(evidence, spec)
            r2, slope = straightness(layers)
            straight[group].append(r2)
            rows.append([group, spec.seed, layers_in_words(layers), f"{r2:.3f}", f"{slope:.2f}"])
        charts.append(_map(evidence, group))
    a, b = (np.array(straight[group]) for group in (tied, untied))
    mean, low, high = difference_interval(a, b)
    return Measurement(
        value=mean, low=low, high=high, n=min(len(a), len(b)), unit="seeds an arm",
        numbers={f"r2, {group}": float(np.mean(values)) for group, values in straight.items()},
        tables=[("Where each variable's value can be read", rows)], charts=charts,
        note=f"Read for good: probe accuracy of {RESOLVED} or more from that layer to the last. Variables that never "
        "get there are left out of the line; the root too. Welch t interval over seeds. The maps are of seed 0.",
    )  # fmt: skip


def layers_in_words(layers: Float[np.ndarray, " variable"]) -> str:
    """Layers in order of the chain, a dash where there is none."""
    return " ".join("–" if np.isnan(layer) else f"{layer:.0f}" for layer in layers)


def _map(evidence: Evidence, group: str):
    spec = evidence.specs(group)[0]
    found = probed(evidence, spec)
    panels = {"probe accuracy": found.accuracy, "control task": found.control, "untrained model": found.untrained}
    title = f"{group}, seed {spec.seed}: n = {found.n_test} sentences per cell (95 % within ±{found.half_width:.3f})"
    return heatmaps(panels, x=found.targets, x_title="variable", y_title="layer", title=title, value="fraction")


def measure_loop(evidence: Evidence, *, group: str) -> Measurement:
    """Straightness of the answers: how many layers must be applied for each variable."""
    rows: list[list] = [["seed", "layers after which each variable is answered for good", "r2", "layers a variable"]]
    values, slopes = [], []
    for spec in evidence.specs(group):
        layers = depth_curve(evidence, spec).resolved_at()
        r2, slope = straightness(layers)
        values.append(r2)
        slopes.append(slope)
        rows.append([spec.seed, layers_in_words(layers), f"{r2:.3f}", f"{slope:.2f}"])
    mean, low, high = t_interval(np.array(values))
    return Measurement(
        value=mean, low=low, high=min(1.0, high), n=len(values), unit="seeds",
        numbers={"layers a variable": float(np.mean(slopes))}, tables=[("When each variable is answered", rows)],
        note=f"Answered for good: accuracy of {RESOLVED} or more from that depth to three times that of training, "
        "trained variables and others alike; those that never get there are left out of the line, and so is the "
        f"root. A model that answers fewer than {FEWEST} so counts as 0.",
    )  # fmt: skip


CLAIMS = (
    Claim(
        id="percolation.linear", source="LEGO, Section 4.1 and Figure 4", sizes=LARGE, why_not=TOO_SHORT,
        statement="In a tied model values percolate along the chain at a steady pace, more so than in an untied one.",
        rule="Squared correlation of a variable's place in the chain with the layer from which a linear probe tells "
        f"its value for good (accuracy {RESOLVED}), tied minus untied, same depth: reproduced if the t interval over "
        "seeds lies above 0, not reproduced if below, else inconclusive.",
        quantity="difference in r2", measure=partial(measure_percolation, tied="long-tied", untied="long-untied"),
        judge=partial(above, bar=0.0), needs=("long-tied", "long-untied"),
    ),
    Claim(
        id="percolation.loop", source="LEGO, Section 4.1: for-loops", sizes=LARGE, why_not=TOO_SHORT,
        statement="A tied model trained with stochastic depth answers one more variable every so many layers, like a "
        "loop.",
        rule="Squared correlation of a variable's place in the chain with the number of layers after which it is "
        f"answered for good, mean over seeds: reproduced if the t interval lies at {STRAIGHT} or above, not "
        "reproduced if below, else inconclusive.",
        quantity="r2", measure=partial(measure_loop, group="long-stochastic"),
        judge=partial(at_least, bar=STRAIGHT), needs=("long-stochastic",),
    ),
)  # fmt: skip
