"""Claims about the cost of hard-coded attention: operations, parameters, time, memory (LEGO, Section 5, Figure 8)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy import stats
from torch.utils.flop_counter import FlopCounterMode

from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim, Preregistration
from case_studies.frame.evidence import Evidence, Size
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import AtMost, Below, Value
from case_studies.lego.counting import (
    CountedLayers,
    Operations,
    count_operations,
    count_parameters,
    head_multiplications,
    multiplications,
    parameters_from_sizes,
    unseen_additions,
)
from case_studies.lego.timing import (
    HUGGINGFACE,
    LAYERS,
    LINEAR,
    LONG,
    MODELS,
    OURS,
    SHORT,
    TimeAndMemory,
    bytes_stored_for_backward,
    heads_at_lengths,
    take_turns,
    whole_models,
)
from case_studies.recipes.intervals import as_interval
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.view.charts import COLOURS, HEIGHT, WIDTH, scaling_curves

SOURCE, OURS_AFTER = "LEGO, Section 5 and Figure 8", "ours, after LEGO, Section 5"
BATCH, LENGTH = 64, 512
"""Batch size and length at which the paper counts operations."""
PUBLISHED = "Hugging Face, sdpa"
MEDIAN = "median over rounds of paired ratios, exact interval from order statistics"
INTERVALS = Preregistration(
    "after a result",
    "the bar dates from before any timing; the median had been judged and shown with quartiles, 0.76 [0.75, 0.89].",
)
LINEAR_COUNTED = Preregistration(
    "after a result",
    "8.8 [7.5, 10.6] for the time of long sequences, with a bar of 9 that its own spread cannot decide; operations and "
    "bytes are counted since, and had been seen.",
)
IN_TURN = (
    "If several ratios are judged, the largest median and the largest ends, each of an interval of their joint 95 %. "
    "Candidates are timed in turn, so that ratios are paired and load on the machine affects all equally; absolute "
    "times are of this machine and run."
)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Amount of timing at one size of the study."""

    models: tuple[str, ...]
    model_rounds: int
    model_lengths: tuple[int, ...]
    """Sequence lengths for whole models."""
    tokens: int
    """Tokens in a batch of whole models."""


_LENGTHS = {"models": MODELS, "model_lengths": (128, 256, SHORT, 1024, 2048)}
EFFORT: dict[Size, Effort] = {
    "quick": Effort(models=(*OURS, PUBLISHED), model_rounds=7, model_lengths=(SHORT,), tokens=SHORT),
    "standard": Effort(model_rounds=7, tokens=2048, **_LENGTHS),
    "paper": Effort(model_rounds=9, tokens=4096, **_LENGTHS),
}


def base_model_operations(counted_layers: CountedLayers) -> dict[str, Operations]:
    """Operations of a part of each base model on a batch of the paper's size."""
    operations = {}
    for name, config in OURS.items():
        cfg = config()
        generator = derived_generator(0, "counted")
        tokens = torch.randint(cfg.d_vocab, (BATCH, LENGTH), generator=generator)
        framed = tokens if cfg.pathways is None else cfg.pathways.framed(tokens)
        operations[name] = count_operations(cfg, framed, counted_layers=counted_layers)
    return operations


def measure_flops(evidence: Evidence) -> Measurement:
    """Forward operations of Hardcode and Hybrid over BERT's, the larger of the two."""
    layers, heads = base_model_operations("layers"), base_model_operations("head")
    rows = [
        [
            "model",
            "forward",
            "from the sizes",
            "with backward",
            "with backward, by torch's own rule",
            "forward, masked-LM head too",
            "from the sizes",
            "with backward, masked-LM head too",
        ]
    ]
    multiplication_rows = [["model", *multiplications(OURS["BERT"](), LENGTH), "additions not counted"]]
    numbers: dict[str, float] = {}
    for name, config in OURS.items():
        cfg = config()
        layer_operations = layers[name]
        head = heads[name]
        # The same counts from the sizes, as a check of those of torch's counter
        per_token = multiplications(cfg, LENGTH)
        expected = 2 * BATCH * LENGTH * cfg.n_layers * sum(per_token.values())
        expected_headed = expected + 2 * BATCH * LENGTH * head_multiplications(cfg)
        # Layers alone, and layers with the masked-LM head
        forward = layer_operations.forward + head.forward
        trained = layer_operations.forward + layer_operations.backward
        tera = [
            layer_operations.forward,
            expected,
            trained,
            layer_operations.forward + layer_operations.backward_by_torch,
            forward,
            expected_headed,
            trained + head.forward + head.backward,
        ]
        rows.append([name, *(f"{count / 1e12:.3f}" for count in tera)])
        multiplication_rows.append([name, *map(str, per_token.values()), str(unseen_additions(cfg))])
        numbers |= {f"{name}, TFLOP": layer_operations.forward / 1e12, f"{name}, TFLOP from the sizes": expected / 1e12}
        if name != "BERT":
            numbers[f"{name} over BERT"] = layer_operations.forward / layers["BERT"].forward
            bert = layers["BERT"].forward + heads["BERT"].forward
            numbers[f"{name} over BERT, masked-LM head too"] = forward / bert
    # The larger of the two ratios is judged
    value = max(numbers[f"{name} over BERT"] for name in ("Hardcode", "Hybrid"))
    bars = {name: layer_operations.forward / 1e12 for name, layer_operations in layers.items()}
    title = f"encoder, {BATCH} x {LENGTH} tokens, forward"
    return Measurement(
        value=value,
        low=value,
        high=value,
        n=2,
        unit="models",
        exact=True,
        numbers=numbers,
        tables=[
            (f"TFLOP on {BATCH} x {LENGTH} tokens", rows),
            ("Multiplications per token and layer", multiplication_rows),
        ],
        charts=[_bars(bars, "TFLOP", title)],
        note="Counted, not timed, with unfused attention. Lookups, norms, softmax and activations do not count; of the "
        "fixed maps only convolutions do. Torch's rule for the gradient of a convolution's kernel ignores groups, as "
        "if a depthwise kernel were dense; both counts are given.",
    )


def measure_parameters(evidence: Evidence) -> Measurement:
    """Parameters of Hardcode and Hybrid over BERT's, the larger of the two."""
    parameters = {name: count_parameters(config()) for name, config in OURS.items()}
    rows = [["model", "parameters", "from the sizes"]]
    rows += [[name, f"{n:,}", f"{parameters_from_sizes(OURS[name]()):,}"] for name, n in parameters.items()]
    ratios = {f"{name} over BERT": parameters[name] / parameters["BERT"] for name in ("Hardcode", "Hybrid")}
    value = max(ratios.values())
    return Measurement(
        value=value,
        low=value,
        high=value,
        n=len(ratios),
        unit="models",
        exact=True,
        numbers={**{f"{name}, millions": n / 1e6 for name, n in parameters.items()}, **ratios},
        tables=[("Parameters of base models, token embedding and masked-LM head included", rows)],
        charts=[_bars({name: n / 1e6 for name, n in parameters.items()}, "millions of parameters", "base models")],
        note="Counted. The token embedding is in all three, tied to the masked-LM head.",
    )


def measure_linear(evidence: Evidence) -> Measurement:
    """Operations and stored bytes of association and broadcast at the longest length over the shortest, the largest."""
    lengths = (SHORT, LONG)
    rows = [["head", "tokens in a sequence", "million operations, forward", "stored for backward, MB"]]
    counts: dict[tuple[str, int], tuple[int, int]] = {}
    for head in heads_at_lengths(lengths, seed=evidence.seed):
        counter = FlopCounterMode(display=False)
        with counter:
            head.forward()
        stored_bytes = bytes_stored_for_backward(head, parameters=head.parameters)
        counts[head.name, head.length] = counter.get_total_flops(), stored_bytes
        rows.append(
            [head.name, str(head.length), f"{counter.get_total_flops() / 1e6:.1f}", f"{stored_bytes / 1e6:.2f}"]
        )
    # Growth of both from the shortest sequences to the longest; torch does not count the fused kernel of a learned head
    ratios: dict[str, float] = {}
    for name in (*LINEAR, "learned, written out"):
        (operations, stored_bytes), (most_operations, most_bytes) = (counts[name, length] for length in lengths)
        ratios[f"{name}, operations"] = most_operations / operations
        ratios[f"{name}, stored bytes"] = most_bytes / stored_bytes
    value = max(ratio for name, ratio in ratios.items() if name.partition(",")[0] in LINEAR)
    return Measurement(
        value=value,
        low=value,
        high=value,
        n=len(LINEAR),
        unit="kinds of head",
        exact=True,
        numbers={**ratios, "tokens, times": LONG / SHORT},
        tables=[("One head, one sequence", rows)],
        note="Counted, not timed. Lookups and sums over equal tokens are additions without multiplications, which "
        "torch does not count, and sorting the ids of a sequence takes more than linear time; models do it once.",
    )


def measure_time(evidence: Evidence) -> Measurement:
    """Time of Hardcode and Hybrid over Hugging Face's BERT, the larger of the two."""
    effort = EFFORT[evidence.size]
    models = whole_models(effort.models, lengths=effort.model_lengths, tokens=effort.tokens, seed=evidence.seed)
    costs = take_turns(models, rounds=effort.model_rounds)
    # Median ratios to every model with learned attention; only those to the fused published one are judged
    numbers: dict[str, float] = {}
    peers = [name for name in effort.models if name in (*HUGGINGFACE, "BERT")]
    for peer in peers:
        for family in ("Hardcode", "Hybrid"):
            cost, peer_cost = costs[family, SHORT], costs[peer, SHORT]
            numbers[f"{family} over {peer}"] = float(np.median(cost.over(peer_cost)))
            numbers[f"{family} over {peer}, kept bytes"] = cost.stored_bytes / peer_cost.stored_bytes
    title = f"{LAYERS} layers, forward and backward, {effort.tokens} tokens, n = {effort.model_rounds} rounds"
    return _measured(
        [costs[name, SHORT].over(costs[PUBLISHED, SHORT]) for name in ("Hardcode", "Hybrid")],
        numbers=numbers,
        table=(f"{LAYERS} layers of base width, forward and backward of {effort.tokens} tokens", _rows(costs)),
        charts=_charts(costs, title=title),
        note="No dropout, a vocabulary of 512, logits at every position; equal numbers of tokens at all lengths.",
    )


def _measured(
    ratios: Sequence[Sequence[float]],
    *,
    numbers: Mapping[str, float],
    table: Any,
    charts: list[alt.TopLevelMixin],
    note: str,
) -> Measurement:
    """The measurement of the largest of ratios, given one by one for every round."""
    return Measurement.from_interval(
        largest_median(ratios),
        unit="rounds",
        numbers={**numbers, "threads": torch.get_num_threads()},
        tables=[table],
        charts=charts,
        note=f"{IN_TURN} {note}",
    )


def largest_median(ratios: Sequence[Sequence[float]]) -> Interval:
    """Largest median of several ratios, with the largest ends of intervals that jointly have 95 % (Bonferroni)."""
    confidence = 1 - 0.05 / len(ratios)
    medians = [median_interval(np.array(values), confidence=confidence).floats() for values in ratios]
    value, low, high = (max(values) for values in zip(*medians, strict=True))
    return as_interval(value, low, high, len(ratios[0]))


def median_interval(values: Float[np.ndarray, " round"], *, confidence: float = 0.95) -> Interval:
    """Median with its exact interval between two order statistics; unbounded with too few values.

    The number of values below the true median is binomial with probability one half, whatever their distribution.
    """
    ordered = np.sort(values)
    cut = int(stats.binom.ppf((1 - confidence) / 2, len(ordered), 0.5))  # P(count < cut) is at most the tail
    median = float(np.median(ordered))
    if not cut:
        return as_interval(median, -math.inf, math.inf, len(values))
    return as_interval(median, float(ordered[cut - 1]), float(ordered[-cut]), len(values))


def _rows(costs: Mapping[tuple[str, int], TimeAndMemory]) -> list[list[str]]:
    rows = [["candidate", "tokens in a sequence", "ms", "quartiles", "stored for backward, MB"]]
    for cost in costs.values():
        median, low, high = (1e3 * seconds for seconds in cost.quartiles)
        rows.append(
            [cost.name, str(cost.length), f"{median:.2f}", f"{low:.2f} to {high:.2f}", f"{cost.stored_bytes / 1e6:.2f}"]
        )
    return rows


def _charts(costs: Mapping[tuple[str, int], TimeAndMemory], *, title: str) -> list[alt.TopLevelMixin]:
    """Time and memory by length, a chart each."""
    length = "tokens in a sequence"
    charts = []
    for name in ("ms", "MB stored for backward"):
        rows = []
        for cost in costs.values():
            if name == "ms":
                value, low, high = (1e3 * seconds for seconds in cost.quartiles)
            else:  # counted, so without spread
                value = low = high = cost.stored_bytes / 1e6
            rows.append({length: cost.length, name: value, "low": low, "high": high, "what": cost.name})
        charts.append(scaling_curves(pd.DataFrame(rows), x=length, y=name, series="what", title=title, log_y=True))
    return charts


def _bars(values: Mapping[str, float], unit: str, title: str) -> alt.TopLevelMixin:
    rows = [{"what": name, "value": value} for name, value in values.items()]
    chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar(color=COLOURS[0])
        .encode(
            alt.X("what:N", sort=list(values), title=None, axis=alt.Axis(labelAngle=0)),
            alt.Y("value:Q", title=unit, scale=alt.Scale(zero=True)),
            tooltip=["what:N", alt.Tooltip("value:Q", title=unit, format=".4g")],
        )
    )
    return chart.properties(title=title, width=WIDTH, height=HEIGHT)


CLAIMS = (
    Claim(
        id="hardcoded.flops",
        method="The larger of Hardcode's and Hybrid's forward operations over BERT's, base sizes, encoder alone, "
        f"{BATCH} sequences of {LENGTH} tokens, counted",
        rule=Value(Below(1)),
        preregistration=BEFORE_ANY_MODEL,
        by_construction=True,
        quantity="operations over BERT's",
        measure=measure_flops,
    ),
    Claim(
        id="hardcoded.parameters",
        source=OURS_AFTER,
        statement="Models with hard-coded attention have fewer parameters than BERT.",
        method="The larger of Hardcode's and Hybrid's parameters over BERT's, whole models of base size, counted",
        rule=Value(Below(1)),
        preregistration=BEFORE_ANY_MODEL,
        by_construction=True,
        quantity="parameters over BERT's",
        measure=measure_parameters,
    ),
    Claim(
        id="hardcoded.linear",
        source=OURS_AFTER,
        statement="Operations and memory of association and broadcast heads are linear in the sequence length.",
        method=f"The largest of association's and broadcast's operations, forward, and bytes stored for the backward "
        f"pass at {LONG} tokens over {SHORT}, counted",
        rule=Value(AtMost(LONG / SHORT)),
        preregistration=LINEAR_COUNTED,
        by_construction=True,
        quantity=f"operations and memory at {LONG} tokens over {SHORT}",
        measure=measure_linear,
    ),
    Claim(
        id="hardcoded.time",
        source=OURS_AFTER,
        repeatable=False,
        statement="Models with hard-coded attention train faster than BERT.",
        method="The larger of Hybrid's and Hardcode's time over that of Hugging Face's BERT (sdpa), forward and "
        f"backward of {LAYERS} layers of base width, {SHORT} tokens, {MEDIAN}",
        rule=Below(1),
        preregistration=INTERVALS,
        quantity="time over Hugging Face's BERT",
        measure=measure_time,
    ),
)
