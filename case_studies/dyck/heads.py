"""Claims about stack-like heads: how common they are, and whether they matter more (Figures 1-2, App. B.2, D)."""

from functools import partial

import numpy as np
import pandas as pd

from case_studies.dyck.measures import task_of
from case_studies.frame.claims import Claim, Measurement, below, more_than_half, proportion
from case_studies.frame.evidence import Evidence
from interp.core.activations import patterns_on
from interp.heads.ablate import ablate_heads
from interp.heads.classify import classify_heads
from interp.view.points import scatter, small_maps

STACK_LIKE = ("stack_top", "unmatched_open", "matching_bracket")
"""Kinds of stack-like heads: they attend to the innermost open bracket, to all open brackets, or to the partner."""
GROUPS = ("gpt", "gpt-linear")
MINIMAL = ("minimal-words-closers", "minimal-prefixes-closers")
MARGIN = 0.05
"""Extra accuracy lost in stack-like models that contradicts the paper's claim."""
METHODS = ("uniform", "random_rows", "zero")
N_CLASSIFY = {"quick": 64, "standard": 256, "paper": 256}
N_ABLATE = {"quick": 200, "standard": 500, "paper": 500}


def _classify(evidence: Evidence, group: str, index: int):
    """The head classes of one model."""
    task, model = evidence.task(group), evidence.models(group)[index]
    return classify_heads(model, task, n=N_CLASSIFY[evidence.size], seed=evidence.seed)


def measure_stack_like(evidence: Evidence, *, groups: tuple[str, ...] = GROUPS) -> Measurement:
    """Share of models whose last-layer head is not labelled stack-like."""
    rows: list[list] = [["models", "seed", "layer", "label", *STACK_LIKE, "entropy, 0 to 1"]]
    last, every, seen = [], [], []
    for group in groups:
        for index, spec in enumerate(evidence.specs(group)):
            found = _classify(evidence, group, index)
            columns = [found.kinds.index(kind) for kind in STACK_LIKE]
            for layer, labels in enumerate(found.label):
                scores = [f"{found.score[layer, 0, column]:.2f}" for column in columns]
                rows.append([group, spec.seed, layer, labels[0], *scores, f"{found.entropy[layer, 0]:.2f}"])
                every.append(labels[0] in STACK_LIKE)
            last.append(found.label[-1][0] in STACK_LIKE)
            best = float(found.score[-1, 0, columns].max())
            seen.append((best, float(found.entropy[-1, 0]), found.label[-1][0], group, index))
    value, low, high = proportion(len(last) - sum(last), len(last))
    points = pd.DataFrame(seen, columns=["stack-like score", "row entropy, 0 to 1", "label", "models", "seed"])
    return Measurement(
        value=value, low=low, high=high, n=len(last), unit="models",
        numbers={"share over all layers": 1 - float(np.mean(every)), "stack-like, last layer": sum(last)},
        tables=[("Label and scores of every head (0 is chance, 1 all attention)", rows)],
        charts=[scatter(points, x="stack-like score", y="row entropy, 0 to 1", series="label",
                        title=f"last layers, n = {len(seen)} models"),
                _maps_of(evidence, seen)],
        note="Heads are labelled by interp.classify_heads: score at least 0.3, significantly above "
        "untrained models and permuted keys.",
    )  # fmt: skip


def _maps_of(evidence: Evidence, seen: list[tuple]):
    """The last-layer patterns with the four highest and the four lowest stack-like scores, on the probe prefix."""
    ranked = sorted(seen, key=lambda one: -one[0])
    maps, text = {}, ""
    for score, _, label, group, index in [*ranked[:4], *ranked[-4:]]:
        task = task_of(evidence, group)
        text = task.staircase()
        pattern = patterns_on([evidence.models(group)[index]], task.read(text))[-1, 0, 0, 0]
        maps[f"{group} {evidence.specs(group)[index].seed}: {label}, {score:.2f}"] = pattern.numpy()
    title = "last layers, the four with the highest stack-like score and the four with the lowest"
    return small_maps(maps, tokens=["S", *text], title=title)


def measure_pattern_matters(evidence: Evidence) -> Measurement:
    """Accuracy lost when the last layer's pattern is replaced, in the most stack-like models minus in the others."""
    scores, lost = _scores_and_losses(evidence)
    order = np.argsort(-np.array(scores), kind="stable")
    half = len(order) // 2
    like, unlike = order[:half], order[half : 2 * half]
    rows: list[list] = [["pattern becomes", "lost, stack-like half", "lost, other half", "difference", "95 %"]]
    differences = {}
    for method, values in lost.items():
        differences[method] = mean, low, high = _difference(values[like], values[unlike], evidence.seed)
        means = [f"{values[part].mean():.3f}" for part in (like, unlike)]
        rows.append([method, *means, f"{mean:+.3f}", f"[{low:+.3f}, {high:+.3f}]"])
    value, low, high = differences["uniform"]
    points = pd.DataFrame({"stack-like score": scores, "hard accuracy lost": lost["uniform"], "models": "last layer"})
    return Measurement(
        value=value, low=low, high=high, n=2 * half, unit="models",
        numbers={"scores": [round(float(one), 3) for one in scores], "margin": MARGIN},
        tables=[("Hard accuracy lost when the last layer's pattern is replaced", rows)],
        charts=[scatter(points, x="stack-like score", y="hard accuracy lost", series="models", zero=True,
                        title=f"pattern replaced by uniform attention, n = {len(scores)} models")],
        note="Models are split in half by the highest of the three stack-like scores of their last head.",
    )  # fmt: skip


def _scores_and_losses(evidence: Evidence) -> tuple[list[float], dict[str, np.ndarray]]:
    """Per model, the last head's highest stack-like score, and the accuracy lost by each method of replacement."""
    scores, lost = [], {method: [] for method in METHODS}
    for group in GROUPS:
        task = task_of(evidence, group)
        for index, model in enumerate(evidence.models(group)):
            found = _classify(evidence, group, index)
            scores.append(max(found.score[-1, 0, found.kinds.index(kind)] for kind in STACK_LIKE))
            for method in METHODS:
                result = ablate_heads(
                    model, task, heads={"last": [(model.cfg.n_layers - 1, 0)]}, method=method,
                    n=N_ABLATE[evidence.size], seed=evidence.seed,
                )  # fmt: skip
                lost[method].append(result.drop[0, 0])
    return scores, {method: np.array(values) for method, values in lost.items()}


def _difference(a: np.ndarray, b: np.ndarray, seed: int) -> tuple[float, float, float]:
    """Difference of two groups' means with its bootstrap interval; each group is resampled separately."""
    n = 4000
    rng = np.random.default_rng(seed)
    means = [part[rng.integers(len(part), size=(n, len(part)))].mean(1) for part in (a, b)]
    low, high = np.quantile(means[0] - means[1], [0.025, 0.975])
    return float(a.mean() - b.mean()), float(low), float(high)


CLAIMS = (
    Claim(
        id="heads.not-stack-like",
        source="bounded Dyck, Figures 1 and 2, Appendix D",
        statement="Most trained heads are not stack-like: they do not attend to the brackets that are still open.",
        rule="Share of models whose last-layer head is not labelled stack-like: reproduced if its exact interval is "
        "above one half, not reproduced if below, else inconclusive.",
        quantity="share not stack-like",
        measure=measure_stack_like,
        judge=more_than_half,
        needs=GROUPS,
    ),
    Claim(
        id="heads.not-stack-like.minimal",
        source="bounded Dyck, Figure 2",
        statement="Most heads on top of a minimal first layer are not stack-like either.",
        rule="As heads.not-stack-like, for heads above minimal first layers (words and prefixes, loss on closers): "
        "reproduced if the share's interval is above one half, not reproduced if below, else inconclusive.",
        quantity="share not stack-like",
        measure=partial(measure_stack_like, groups=MINIMAL),
        judge=more_than_half,
        needs=MINIMAL,
    ),
    Claim(
        id="heads.stack-like-matters-no-more",
        source="bounded Dyck, Appendix B.2",
        statement="Replacing the pattern of a stack-like head costs no more accuracy than replacing that of a head "
        "that is not readable.",
        rule="Hard accuracy lost when the last layer's pattern is replaced by uniform attention, stack-like half of "
        f"the models minus the other half: reproduced if the interval is below {MARGIN}, not reproduced if above it, "
        "else inconclusive.",
        quantity="difference of accuracy lost",
        measure=measure_pattern_matters,
        judge=partial(below, bar=MARGIN),
        needs=GROUPS,
    ),
)
