"""Claims about the cost of hard-coded attention: operations, parameters, time, memory (LEGO, Section 5, Figure 8)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy import stats
from torch.utils.flop_counter import FlopCounterMode

from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim, Preregistration
from case_studies.frame.evidence import Evidence, Size
from case_studies.frame.judge import Readings
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
from case_studies.recipes.intervals import as_interval, interval_columns
from case_studies.recipes.judges import Row
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.view.charts import COLOURS, HEIGHT, WIDTH, scaling_curves

BATCH, LENGTH = 64, 512
"""Batch size and length at which the paper counts operations."""
PUBLISHED = "Hugging Face, sdpa"
OVER_BERT, GROWTH, HARD_CODED = "over BERT's", "times", "hard-coded"
RELATIVE_TIME = "time over Hugging Face's BERT"
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


def measure_flops(evidence: Evidence) -> Readings:
    """Forward operations of Hardcode and Hybrid over BERT's, one row a model; BERT is not judged."""
    layers, heads = base_model_operations("layers"), base_model_operations("head")
    bert = layers["BERT"].forward
    bert_headed = bert + heads["BERT"].forward
    rows, multiplication_rows = [], []
    numbers: dict[str, float] = {}
    for name, config in OURS.items():
        cfg = config()
        layer_operations, head = layers[name], heads[name]
        # The same counts from the sizes, as a check of those of torch's counter
        per_token = multiplications(cfg, LENGTH)
        expected = 2 * BATCH * LENGTH * cfg.n_layers * sum(per_token.values())
        expected_headed = expected + 2 * BATCH * LENGTH * head_multiplications(cfg)
        # Layers alone, and layers with the masked-LM head
        forward = layer_operations.forward + head.forward
        trained = layer_operations.forward + layer_operations.backward
        counts = {
            "forward": layer_operations.forward,
            "forward, from the sizes": expected,
            "with backward": trained,
            "with backward, by torch's own rule": layer_operations.forward + layer_operations.backward_by_torch,
            "forward, masked-LM head too": forward,
            "the same, from the sizes": expected_headed,
            "with backward, masked-LM head too": trained + head.forward + head.backward,
        }
        tera = {counted: count / 1e12 for counted, count in counts.items()}
        ratio = layer_operations.forward / bert
        rows.append({"model": name, OVER_BERT: ratio, **tera, HARD_CODED: name != "BERT", "models": len(OURS) - 1})
        multiplication_rows.append({"model": name, **per_token, "additions not counted": unseen_additions(cfg)})
        numbers |= {f"{name}, TFLOP": tera["forward"], f"{name}, TFLOP from the sizes": expected / 1e12}
        if name != "BERT":
            numbers |= {f"{name} over BERT": ratio, f"{name} over BERT, masked-LM head too": forward / bert_headed}
    bars = {name: layer_operations.forward / 1e12 for name, layer_operations in layers.items()}
    title = f"encoder, {BATCH} x {LENGTH} tokens, forward"
    return Readings(
        frame=pd.DataFrame(rows),
        title=f"TFLOP on {BATCH} x {LENGTH} tokens",
        numbers=numbers,
        tables=[("Multiplications per token and layer", pd.DataFrame(multiplication_rows))],
        charts=[_bars(bars, "TFLOP", title)],
        note="Counted, not timed, with unfused attention. Lookups, norms, softmax and activations do not count; of the "
        "fixed maps only convolutions do. Torch's rule for the gradient of a convolution's kernel ignores groups, as "
        "if a depthwise kernel were dense; both counts are given.",
    )


def measure_parameters(evidence: Evidence) -> Readings:
    """Parameters of Hardcode and Hybrid over BERT's, one row a model; BERT is not judged."""
    parameters = {name: count_parameters(config()) for name, config in OURS.items()}
    rows = [
        {
            "model": name,
            OVER_BERT: n / parameters["BERT"],
            "parameters": n,
            "from the sizes": parameters_from_sizes(OURS[name]()),
            HARD_CODED: name != "BERT",
            "models": len(OURS) - 1,
        }
        for name, n in parameters.items()
    ]
    return Readings(
        frame=pd.DataFrame(rows),
        title="Parameters of base models, token embedding and masked-LM head included",
        numbers={
            **{f"{name}, millions": n / 1e6 for name, n in parameters.items()},
            **{f"{row['model']} over BERT": row[OVER_BERT] for row in rows if row[HARD_CODED]},
        },
        charts=[_bars({name: n / 1e6 for name, n in parameters.items()}, "millions of parameters", "base models")],
        note="Counted. The token embedding is in all three, tied to the masked-LM head.",
    )


def measure_linear(evidence: Evidence) -> Readings:
    """Operations and stored bytes of a head at the longest length over the shortest, one row each."""
    lengths = (SHORT, LONG)
    of_heads = []
    counts: dict[tuple[str, int], dict[str, int]] = {}
    for head in heads_at_lengths(lengths, seed=evidence.seed):
        counter = FlopCounterMode(display=False)
        with counter:
            head.forward()
        count = {
            "operations": counter.get_total_flops(),
            "stored bytes": bytes_stored_for_backward(head, parameters=head.parameters),
        }
        counts[head.name, head.length] = count
        shown = {
            "million operations, forward": count["operations"] / 1e6,
            "stored for backward, MB": count["stored bytes"] / 1e6,
        }
        of_heads.append({"head": head.name, "tokens in a sequence": head.length, **shown})
    # Growth of both from the shortest sequences to the longest; torch does not count the fused kernel of a learned head
    rows = [
        {
            "head": name,
            "counted": counted,
            GROWTH: counts[name, LONG][counted] / counts[name, SHORT][counted],
            HARD_CODED: name in LINEAR,
            "kinds": len(LINEAR),
        }
        for name in (*LINEAR, "learned, written out")
        for counted in ("operations", "stored bytes")
    ]
    return Readings(
        frame=pd.DataFrame(rows),
        title=f"At {LONG} tokens over {SHORT}",
        numbers={**{f"{row['head']}, {row['counted']}": row[GROWTH] for row in rows}, "tokens, times": LONG / SHORT},
        tables=[("One head, one sequence", pd.DataFrame(of_heads))],
        note="Counted, not timed. Lookups and sums over equal tokens are additions without multiplications, which "
        "torch does not count, and sorting the ids of a sequence takes more than linear time; models do it once.",
    )


def measure_time(evidence: Evidence) -> Readings:
    """Time of Hardcode and Hybrid over Hugging Face's BERT, the larger of the two, in one row."""
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
    ratios = [costs[name, SHORT].over(costs[PUBLISHED, SHORT]) for name in ("Hardcode", "Hybrid")]
    largest = largest_median(ratios)
    return Readings(
        frame=pd.DataFrame([{**interval_columns(largest, RELATIVE_TIME), "rounds": largest.n}]),
        numbers={**numbers, "threads": torch.get_num_threads()},
        tables=[(f"{LAYERS} layers of base width, forward and backward of {effort.tokens} tokens", _table(costs))],
        charts=_charts(costs, title=title),
        note=f"{IN_TURN} No dropout, a vocabulary of 512, logits at every position; equal numbers of tokens at all "
        "lengths.",
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


def _table(costs: Mapping[tuple[str, int], TimeAndMemory]) -> pd.DataFrame:
    """Time with its quartiles, and memory, of every candidate."""
    rows = []
    for cost in costs.values():
        median, low, high = (1e3 * seconds for seconds in cost.quartiles)
        times = {"ms": median, "lower quartile": low, "upper quartile": high}
        row = {"candidate": cost.name, "tokens in a sequence": cost.length}
        rows.append(row | times | {"stored for backward, MB": cost.stored_bytes / 1e6})
    return pd.DataFrame(rows)


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
        judged=Row(OVER_BERT, unit="models", units="models", where={HARD_CODED: True}, exact=True),
    ),
    Claim(
        id="hardcoded.parameters",
        method="The larger of Hardcode's and Hybrid's parameters over BERT's, whole models of base size, counted",
        rule=Value(Below(1)),
        preregistration=BEFORE_ANY_MODEL,
        by_construction=True,
        quantity="parameters over BERT's",
        measure=measure_parameters,
        judged=Row(OVER_BERT, unit="models", units="models", where={HARD_CODED: True}, exact=True),
    ),
    Claim(
        id="hardcoded.linear",
        method=f"The largest of association's and broadcast's operations, forward, and bytes stored for the backward "
        f"pass at {LONG} tokens over {SHORT}, counted",
        rule=Value(AtMost(LONG / SHORT)),
        preregistration=LINEAR_COUNTED,
        by_construction=True,
        quantity=f"operations and memory at {LONG} tokens over {SHORT}",
        measure=measure_linear,
        judged=Row(GROWTH, unit="kinds of head", units="kinds", where={HARD_CODED: True}, exact=True),
    ),
    Claim(
        id="hardcoded.time",
        repeatable=False,
        method="The larger of Hybrid's and Hardcode's time over that of Hugging Face's BERT (sdpa), forward and "
        f"backward of {LAYERS} layers of base width, {SHORT} tokens, {MEDIAN}",
        rule=Below(1),
        preregistration=INTERVALS,
        quantity=RELATIVE_TIME,
        measure=measure_time,
        judged=Row(RELATIVE_TIME, unit="rounds", units="rounds"),
    ),
)
