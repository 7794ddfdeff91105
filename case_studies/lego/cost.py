"""Claims about the cost of hard-coded attention: operations, parameters, time, memory (LEGO, Section 5, Figure 8)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import altair as alt
import pandas as pd
import torch

from case_studies.frame.claims import Claim, ClaimVerdict, Measurement, below
from case_studies.frame.evidence import Evidence, Size
from case_studies.lego.counting import (
    Operations,
    Part,
    count_operations,
    count_parameters,
    head_multiplications,
    multiplications,
    parameters_from_sizes,
    unseen_additions,
)
from case_studies.lego.timing import (
    HEAD_BATCH,
    HUGGINGFACE,
    LAYERS,
    LINEAR,
    LONG,
    MODELS,
    OURS,
    SHORT,
    Cost,
    heads_at_lengths,
    heads_of_each_kind,
    take_turns,
    whole_models,
)
from hooks.hardcoded.head_patterns import ORDER
from interp.core.randomness import derived_generator
from interp.view.charts import COLOURS, HEIGHT, WIDTH, scaling_curves

SOURCE = "LEGO, Section 5 and Figure 8"
BATCH, LENGTH = 64, 512
"""Batch size and length at which the paper counts operations."""
FIXED = tuple(name for name in ORDER if name != "learned")
PUBLISHED = "Hugging Face, sdpa"
LINEAR_BAR, HEAD_BAR = 9, 0.5
QUARTILES = (
    "The ends are quartiles over rounds, not a 95 % interval; if several ratios are judged, the largest median and the "
    "largest quartiles. Candidates are timed in turn, so that ratios are paired and load on the machine affects all "
    "equally; absolute times are of this machine and run."
)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Amount of timing at one size of the study."""

    rounds: int
    """Rounds for single heads."""
    lengths: tuple[int, ...]
    """Sequence lengths for single heads, shortest first."""
    models: tuple[str, ...]
    model_rounds: int
    model_lengths: tuple[int, ...]
    """Sequence lengths for whole models."""
    tokens: int
    """Tokens in a batch of whole models."""


_LENGTHS = {"lengths": (SHORT, 1024, 2048, LONG), "models": MODELS, "model_lengths": (128, 256, SHORT, 1024, 2048)}
EFFORT: dict[Size, Effort] = {
    "quick": Effort(
        rounds=5, lengths=(SHORT, LONG), models=(*OURS, PUBLISHED), model_rounds=3, model_lengths=(SHORT,), tokens=SHORT
    ),
    "standard": Effort(rounds=21, model_rounds=5, tokens=2048, **_LENGTHS),
    "paper": Effort(rounds=31, model_rounds=9, tokens=4096, **_LENGTHS),
}


def counted(part: Part) -> dict[str, Operations]:
    """Operations of a part of each base model on a batch of the paper's size."""
    found = {}
    for name, config in OURS.items():
        cfg = config()
        generator = derived_generator(0, "counted")
        tokens = torch.randint(cfg.d_vocab, (BATCH, LENGTH), generator=generator)
        framed = tokens if cfg.pathways is None else cfg.pathways.framed(tokens)
        found[name] = count_operations(cfg, framed, part=part)
    return found


def measure_flops(evidence: Evidence) -> Measurement:
    """Forward operations of Hardcode and Hybrid over BERT's, the larger of the two."""
    layers, heads = counted("layers"), counted("head")
    rows = [["model", "forward", "from the sizes", "with backward", "with backward, by torch's own rule",
             "forward, masked-LM head too", "from the sizes", "with backward, masked-LM head too"]]  # fmt: skip
    parts = [["model", *multiplications(OURS["BERT"](), LENGTH), "additions not counted"]]
    numbers: dict[str, float] = {}
    for name, config in OURS.items():
        cfg, one, head = config(), layers[name], heads[name]
        per_token = multiplications(cfg, LENGTH)
        expected = 2 * BATCH * LENGTH * cfg.n_layers * sum(per_token.values())
        expected_headed = expected + 2 * BATCH * LENGTH * head_multiplications(cfg)
        both, trained = one.forward + head.forward, one.forward + one.backward
        tera = [one.forward, expected, trained, one.forward + one.backward_by_torch,
                both, expected_headed, trained + head.forward + head.backward]  # fmt: skip
        rows.append([name, *(f"{count / 1e12:.3f}" for count in tera)])
        parts.append([name, *map(str, per_token.values()), str(unseen_additions(cfg))])
        numbers |= {f"{name}, TFLOP": one.forward / 1e12, f"{name}, TFLOP from the sizes": expected / 1e12}
        if name != "BERT":
            numbers[f"{name} over BERT"] = one.forward / layers["BERT"].forward
            bert = layers["BERT"].forward + heads["BERT"].forward
            numbers[f"{name} over BERT, masked-LM head too"] = both / bert
    value = max(numbers[f"{name} over BERT"] for name in ("Hardcode", "Hybrid"))
    bars = {name: one.forward / 1e12 for name, one in layers.items()}
    title = f"encoder, {BATCH} x {LENGTH} tokens, forward"
    return Measurement(
        value=value, low=value, high=value, n=BATCH * LENGTH, unit="tokens", numbers=numbers,
        tables=[(f"TFLOP on {BATCH} x {LENGTH} tokens", rows), ("Multiplications per token and layer", parts)],
        charts=[_bars(bars, "TFLOP", title)],
        note="Counted, not timed, with unfused attention. Lookups, norms, softmax and activations do not count; of the "
        "fixed maps only convolutions do. Torch's rule for the gradient of a convolution's kernel ignores groups, as "
        "if a depthwise kernel were dense; both counts are given.",
    )  # fmt: skip


def measure_parameters(evidence: Evidence) -> Measurement:
    """Parameters of Hardcode and Hybrid over BERT's, the larger of the two."""
    found = {name: count_parameters(config()) for name, config in OURS.items()}
    rows = [["model", "parameters", "from the sizes"]]
    rows += [[name, f"{n:,}", f"{parameters_from_sizes(OURS[name]()):,}"] for name, n in found.items()]
    ratios = {f"{name} over BERT": found[name] / found["BERT"] for name in ("Hardcode", "Hybrid")}
    value = max(ratios.values())
    return Measurement(
        value=value, low=value, high=value, n=len(ratios), unit="models",
        numbers={**{f"{name}, millions": n / 1e6 for name, n in found.items()}, **ratios},
        tables=[("Parameters of base models, token embedding and masked-LM head included", rows)],
        charts=[_bars({name: n / 1e6 for name, n in found.items()}, "millions of parameters", "base models")],
        note="Counted. The token embedding is in all three, tied to the masked-LM head.",
    )  # fmt: skip


def measure_linear(evidence: Evidence) -> Measurement:
    """Time of association and broadcast at the longest length over the shortest, the larger of the two."""
    effort = EFFORT[evidence.size]
    short, long = effort.lengths[0], effort.lengths[-1]
    found = take_turns(heads_at_lengths(effort.lengths, seed=evidence.seed), rounds=effort.rounds)
    names = list(dict.fromkeys(name for name, _ in found))
    ratios = {name: found[name, long].over(found[name, short]) for name in names}
    kept = {f"{name}, kept bytes": found[name, long].kept / found[name, short].kept for name in names}
    return _measured(
        [ratios[name] for name in LINEAR], effort.rounds,
        numbers={**{name: ratio[0] for name, ratio in ratios.items()}, **kept, "tokens, times": long / short},
        table=("One head, forward and backward, batch of one sequence", _rows(found)),
        charts=_charts(found, title=f"one head, forward and backward, n = {effort.rounds} rounds"),
        note="Heads that need token maps compute them in every call.",
    )  # fmt: skip


def measure_head(evidence: Evidence) -> Measurement:
    """Time of one head of each fixed kind over a learned one, the largest."""
    rounds = EFFORT[evidence.size].rounds
    found = take_turns(heads_of_each_kind(seed=evidence.seed), rounds=rounds)
    learned = found["learned", SHORT]
    ratios = {name: one.over(learned) for (name, _), one in found.items()}
    bars = {name: ratios[name][0] for name in ("learned", *FIXED)}
    return _measured(
        [ratios[name] for name in FIXED], rounds,
        numbers={f"{name} over learned": ratio[0] for name, ratio in ratios.items()},
        table=(f"One head, forward and backward, {HEAD_BATCH} x {SHORT} tokens", _rows(found)),
        charts=[_bars(bars, "time over a learned head's", f"one head, {SHORT} tokens, n = {rounds} rounds")],
        note="Every fixed head computes its own token maps, which a model computes once for all layers; they are also "
        "timed separately. The learned head needs none and stores no scores, as in training.",
    )  # fmt: skip


def measure_time(evidence: Evidence) -> Measurement:
    """Time of Hardcode and Hybrid over Hugging Face's BERT, the larger of the two."""
    effort = EFFORT[evidence.size]
    models = whole_models(effort.models, lengths=effort.model_lengths, tokens=effort.tokens, seed=evidence.seed)
    found = take_turns(models, rounds=effort.model_rounds)
    numbers: dict[str, float] = {}
    for theirs in (name for name in effort.models if name in (*HUGGINGFACE, "BERT")):
        for ours in ("Hardcode", "Hybrid"):
            one, other = found[ours, SHORT], found[theirs, SHORT]
            numbers[f"{ours} over {theirs}"] = one.over(other)[0]
            numbers[f"{ours} over {theirs}, kept bytes"] = one.kept / other.kept
    title = f"{LAYERS} layers, forward and backward, {effort.tokens} tokens, n = {effort.model_rounds} rounds"
    return _measured(
        [found[name, SHORT].over(found[PUBLISHED, SHORT]) for name in ("Hardcode", "Hybrid")], effort.model_rounds,
        numbers=numbers,
        table=(f"{LAYERS} layers of base width, forward and backward of {effort.tokens} tokens", _rows(found)),
        charts=_charts(found, title=title),
        note="No dropout, a vocabulary of 512, logits at every position; equal numbers of tokens at all lengths.",
    )  # fmt: skip


def _measured(
    ratios: Iterable[tuple[float, float, float]], rounds: int, *, numbers: Mapping[str, float], table: Any,
    charts: list[alt.TopLevelMixin], note: str,
) -> Measurement:  # fmt: skip
    """The measurement of the largest of timed ratios."""
    value, low, high = _largest(ratios)
    return Measurement(
        value=value, low=low, high=high, n=rounds, unit="rounds",
        numbers={**numbers, "threads": torch.get_num_threads()}, tables=[table], charts=charts,
        note=f"{QUARTILES} {note}",
    )  # fmt: skip


def _largest(ratios: Iterable[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Maximum of the medians, of the lower and of the upper quartiles."""
    value, low, high = (max(values) for values in zip(*ratios, strict=True))
    return value, low, high


def _rows(found: Mapping[tuple[str, int], Cost]) -> list[list[str]]:
    rows = [["candidate", "tokens in a sequence", "ms", "quartiles", "stored for backward, MB"]]
    for cost in found.values():
        median, low, high = (1e3 * seconds for seconds in cost.quartiles)
        rows.append(
            [cost.name, str(cost.length), f"{median:.2f}", f"{low:.2f} to {high:.2f}", f"{cost.kept / 1e6:.2f}"]
        )
    return rows


def _charts(found: Mapping[tuple[str, int], Cost], *, title: str) -> list[alt.TopLevelMixin]:
    """Time and memory by length, a chart each."""
    length = "tokens in a sequence"
    charts = []
    for name in ("ms", "MB stored for backward"):
        rows = []
        for cost in found.values():
            value, low, high = (1e3 * seconds for seconds in cost.quartiles) if name == "ms" else (cost.kept / 1e6,) * 3
            rows.append({length: cost.length, name: value, "low": low, "high": high, "what": cost.name})
        charts.append(scaling_curves(pd.DataFrame(rows), x=length, y=name, series="what", title=title, log_y=True))
    return charts


def _bars(values: Mapping[str, float], unit: str, title: str) -> alt.TopLevelMixin:
    rows = [{"what": name, "value": value} for name, value in values.items()]
    chart = alt.Chart(alt.InlineData(values=rows)).mark_bar(color=COLOURS[0]).encode(
        alt.X("what:N", sort=list(values), title=None, axis=alt.Axis(labelAngle=0)),
        alt.Y("value:Q", title=unit, scale=alt.Scale(zero=True)),
        tooltip=["what:N", alt.Tooltip("value:Q", title=unit, format=".4g")],
    )  # fmt: skip
    return chart.properties(title=title, width=WIDTH, height=HEIGHT)


def judge_count(m: Measurement) -> ClaimVerdict:
    """Below 1."""
    return "reproduced" if m.value < 1 else "not reproduced"


def judge_ratio(m: Measurement, bar: float) -> ClaimVerdict:
    """Reproduced if the median is at most the bar, not reproduced if the lower quartile is above it."""
    if m.value <= bar:
        return "reproduced"
    return "not reproduced" if m.low > bar else "inconclusive"


CLAIMS = (
    Claim(
        id="hardcoded.flops", source=SOURCE,
        statement="Models with hard-coded attention need fewer operations than BERT.",
        rule=f"The larger of Hardcode's and Hybrid's forward operations over BERT's, base sizes, encoder alone, "
        f"{BATCH} sequences of {LENGTH} tokens: reproduced if below 1, else not reproduced.",
        quantity="operations over BERT's", measure=measure_flops, judge=judge_count,
    ),
    Claim(
        id="hardcoded.parameters", source=SOURCE,
        statement="Models with hard-coded attention have fewer parameters than BERT.",
        rule="The larger of Hardcode's and Hybrid's parameters over BERT's, whole models of base size: reproduced if "
        "below 1, else not reproduced.",
        quantity="parameters over BERT's", measure=measure_parameters, judge=judge_count,
    ),
    Claim(
        id="hardcoded.linear", source=SOURCE,
        statement="The time of association and broadcast heads is linear in the sequence length.",
        rule=f"The larger of association's and broadcast's time, forward and backward, at {LONG} tokens over "
        f"{SHORT}, median over rounds of paired ratios: reproduced if at most {LINEAR_BAR}, not reproduced if the "
        f"lower quartile is above {LINEAR_BAR}, else inconclusive.",
        quantity=f"time at {LONG} tokens over {SHORT}", measure=measure_linear,
        judge=partial(judge_ratio, bar=LINEAR_BAR),
    ),
    Claim(
        id="hardcoded.head", source=SOURCE,
        statement="A hard-coded head takes at most half the time of a learned one.",
        rule="The largest time of one association, [CLS], [SEP] or convolution head over one learned head as in "
        f"training, forward and backward, {SHORT} tokens, median over rounds of paired ratios: reproduced if at most "
        f"{HEAD_BAR}, not reproduced if the lower quartile is above {HEAD_BAR}, else inconclusive.",
        quantity="time over a learned head's", measure=measure_head, judge=partial(judge_ratio, bar=HEAD_BAR),
    ),
    Claim(
        id="hardcoded.time", source=SOURCE,
        statement="Models with hard-coded attention train faster than BERT.",
        rule="The larger of Hybrid's and Hardcode's time over that of Hugging Face's BERT (sdpa), forward and "
        f"backward of {LAYERS} layers of base width, {SHORT} tokens, paired by round: reproduced if the upper "
        "quartile is below 1, not reproduced if the lower quartile is above 1, else inconclusive.",
        quantity="time over Hugging Face's BERT", measure=measure_time, judge=partial(below, bar=1.0),
    ),
)  # fmt: skip
