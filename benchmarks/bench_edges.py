"""Exact edges: of LEGO and untrained models, known answers, and compiled programs next to EAP, EAP-IG and ACDC.

`python -m benchmarks edges` takes a tenth of the known answers and leaves ACDC out; `python -m benchmarks.bench_edges`
takes all, with every seed, and ACDC (80 minutes).
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy import stats
from tool_studies.approximations.edge_methods import acdc, edge_attribution
from tool_studies.approximations.edge_scores import STEPS, auroc, means
from tool_studies.approximations.removal import ModelOnBatch
from tool_studies.own_programs import OwnPrograms

import interp
from benchmarks.edge_truth import ProgramPass, planted_pairs
from benchmarks.edge_wiring import ROUNDING, KnownAnswerPass, Name
from benchmarks.timing import BenchmarkResult
from hooks import Transformer
from interp.core.inputs import inputs_or_sample
from interp.core.randomness import derived_generator
from interp.core.sample import reference_batch
from interp.heads.edges import EdgesResult, edges
from interp.heads.explain_attention import explain_attention
from interp.known_answers import KnownAnswer, known_answer, read_compiled
from interp.known_answers.suite import SUITE
from interp.tasks import Lego

UNTRAINED = 500
ALPHA = 0.05
THRESHOLDS = (1e-4, 1e-3, 1e-2, 1e-1)
"""Thresholds of ACDC."""
MOST_SEQUENCES = 128
"""Sequences that the peers and, next to them, the exact costs are computed on."""
SEEDS = 10
TENTH = tuple((name, index % SEEDS) for index, name in enumerate(tuple(SUITE)[::10]))
"""A part of the known answers, each with one of the seeds."""
MEASURED = (64, 512)
"""Sequences on which edges of known answers are measured: the second number where the first left one undecided that
the separate pass shows to be needed."""
SEPARATE = 128
"""Further sequences of the separate pass."""
MOST_TRIED = 24
"""Edges per model that have a separate pass besides those called needed."""
METHODS: dict[str, Callable[..., Any]] = {
    "EAP": edge_attribution,
    f"EAP-IG, {STEPS} steps": partial(edge_attribution, steps=STEPS),
}
SLOW_METHODS: dict[str, Callable[..., Any]] = {"ACDC": partial(acdc, thresholds=THRESHOLDS, measure="divergence")}
"""Other methods; the slow ones run with `python -m benchmarks.bench_edges` alone."""


def comparisons() -> Iterator[BenchmarkResult]:
    yield every_edge()
    yield untrained_models()
    yield from programs(METHODS)
    yield known_answers(TENTH)
    yield attention_pairs()


def every_edge() -> BenchmarkResult:
    """Processor time of all edges of 6 layers x 4 heads, on 256 sequences of 22 tokens."""
    task = Lego(n_vars=4)
    model = Transformer(interp.config_for(task)).eval()
    start = time.process_time()
    result = edges(model, task, n=256)
    duration = time.process_time() - start
    figures = f"{len(result.names)} edges, {duration:.1f} CPU s"
    return BenchmarkResult(name="every edge, 6 x 4 heads", figures=figures, bar=360.0, passes=duration <= 360)


def untrained_models() -> BenchmarkResult:
    """Share of untrained models with any needed edge; it passes within the binomial band of the level."""
    task = Lego(n_vars=2, sentence_format="compact")
    hits = 0
    for seed in range(UNTRAINED):
        model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16), seed=seed).eval()
        hits += bool(edges(model, task, n=64, alpha=ALPHA, seed=seed).needed)
    most = stats.binom.isf(1e-6, UNTRAINED, ALPHA)
    figures = f"{hits} of {UNTRAINED} have a needed edge, at most {most:.0f} by the level"
    return BenchmarkResult(name="untrained models", figures=figures, bar=float(most), passes=hits <= float(most))


def programs(methods: Mapping[str, Callable[..., Any]]) -> Iterator[BenchmarkResult]:
    """Needed edges of the compiled programs against their wiring, and the same edges by other methods.

    Args:
        methods: Other methods by name.
    """
    counts = {"edges": 0, "true": 0, "false": 0, "missed": 0, "unwired with a cost": 0}
    areas: dict[str, list[float]] = {name: [] for name in ("exact", *methods)}
    seconds = dict.fromkeys(areas, 0.0)
    for path in OwnPrograms().paths:
        answer = read_compiled(path)
        truth = ProgramPass(answer)
        result = edges(answer.model, answer.task, n="all")
        names = list(truth.edges())
        by_name = dict(zip(result.names, range(len(result.names)), strict=True))
        order = [by_name[f"{sender} > {receiver}"] for sender, receiver in names]
        needed = np.array([result.verdicts[index] == "needed" for index in order])
        wired = np.array([truth.is_wired(edge) for edge in names])
        true = wired & np.array([is_wired and truth.matters(edge) for edge, is_wired in zip(names, wired, strict=True)])
        costs = np.abs(result.loss_rise.value).sum(1)[order]
        counts["edges"] += len(names)
        counts["true"] += int(true.sum())
        counts["false"] += int((needed & ~true).sum())
        counts["missed"] += int((true & ~needed).sum())
        counts["unwired with a cost"] += int((~wired & (np.nan_to_num(costs) > 0)).sum())
        if not true.any() or true.all():
            continue
        # The same truth for all methods, on a sample
        batch = inputs_or_sample(answer.task, MOST_SEQUENCES, generator=derived_generator(0, "edges"))
        start = time.process_time()
        exact = edges(answer.model, answer.task, n=MOST_SEQUENCES)
        drops = np.nan_to_num(exact.drop.value, nan=0.0).max(1)
        seconds["exact"] += time.process_time() - start
        areas["exact"].append(auroc(drops[order], true))
        for name, method in methods.items():
            start = time.process_time()
            answers = ModelOnBatch(answer.task, batch, next(answer.model.parameters()).dtype)
            scores = np.abs(method(answer.model, answers, means(answer.model, answer.task, batch, 0)))
            seconds[name] += time.process_time() - start
            areas[name].append(auroc(scores[order], true))
    figures = ", ".join(f"{count} {name}" for name, count in counts.items())
    passes = not (counts["false"] or counts["missed"] or counts["unwired with a cost"])
    yield BenchmarkResult(name="needed edges of the compiled programs", figures=figures, bar=None, passes=passes)
    for name, values in areas.items():
        array = np.array(values)
        half = stats.t.isf(0.025, len(array) - 1) * array.std(ddof=1) / len(array) ** 0.5
        figures = f"AUROC {array.mean():.3f} ± {half:.3f} over {len(array)} programs, {seconds[name]:.1f} CPU s"
        yield BenchmarkResult(name=f"true edges of the compiled programs, {name}", figures=figures, bar=None)


def known_answers(chosen: Iterable[tuple[str, int]]) -> BenchmarkResult:
    """Needed edges of known answers against those that their weights define, and against separate passes.

    Args:
        chosen: Names and seeds.
    """
    counts: Counter[str] = Counter()
    for name, seed in chosen:
        counts.update(judged_edges(known_answer(name, seed), seed))
    figures = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    passes = not (counts["false"] or counts["missed"] or counts["unwired with a cost"])
    return BenchmarkResult(name="needed edges of the known answers", figures=figures, bar=None, passes=passes)


def judged_edges(answer: KnownAnswer, seed: int) -> Counter[str]:
    """How many edges of a known answer are needed, falsely so, missed, or have a cost without being wired.

    False: called needed, but its weights do not define it, or the separate pass shows that it costs less than counts.
    Missed: not called needed, though the separate pass shows that it costs more.
    """
    batch = inputs_or_sample(answer.task, SEPARATE, generator=derived_generator(seed, "separate pass"))
    result = edges(answer.model, answer.task, n=MEASURED[0], alpha=ALPHA, seed=seed)
    truth = KnownAnswerPass(answer, batch, reference_batch(answer.task, seed))
    names = list(zip(result.senders, result.receivers, strict=True))
    wired = {edge for edge in names if truth.is_wired(edge)}
    needed = _needed(result)
    # A separate pass for each edge called needed, and for some of the others that are wired
    rest = sorted(wired - needed)
    chosen = np.random.default_rng(seed).permutation(len(rest))[:MOST_TRIED]
    drops = {edge: truth.drop(edge) for edge in needed | {rest[index] for index in chosen}}
    costs_more = {edge for edge, (_, low, _) in drops.items() if (low > truth.threshold).any()}
    costs_less = {edge for edge, (_, _, high) in drops.items() if (high < truth.threshold).all()}
    # Edges that are undecided on few sequences are measured on more
    is_repeated = not costs_more <= needed
    if is_repeated:
        result = edges(answer.model, answer.task, n=MEASURED[1], alpha=ALPHA, seed=seed)
        needed = _needed(result)
    costs = np.abs(np.nan_to_num(result.loss_rise.value)).max(1)
    costly = {edge for edge, cost in zip(names, costs, strict=True) if cost > ROUNDING}
    return Counter(
        {
            "models": 1,
            "edges": len(names),
            "wired": len(wired),
            "separate passes": len(drops),
            "needed": len(needed),
            "false": len(needed - wired | needed & costs_less),
            "missed": len(costs_more - needed),
            "unwired with a cost": len(costly - wired),
            "models measured on more sequences": int(is_repeated),
        }
    )


def _needed(result: EdgesResult) -> set[Name]:
    edges_with_verdicts = zip(result.senders, result.receivers, result.verdicts, strict=True)
    return {(sender, receiver) for sender, receiver, verdict in edges_with_verdicts if verdict == "needed"}


def attention_pairs() -> BenchmarkResult:
    """Heads of the compiled programs whose planted pair of parts accounts for most of their scores.

    tracr adds to every head a default, to attend to the first token, which is a pair of tokens with tokens: a planted
    pair that comes second to it counts as found.
    """
    default = "tokens of keys x tokens of queries"
    first = after_default = n_heads = 0
    remainder = 0.0
    for path in OwnPrograms().paths:
        answer = read_compiled(path)
        for head, query, key in planted_pairs(answer):
            result = explain_attention(answer.model, answer.task, head, n="all", n_pairs=2)
            planted = f"{key} of keys x {query} of queries"
            n_heads += 1
            first += result.removals[0] == planted
            after_default += result.removals[:2] == (default, planted)
            remainder = max(remainder, result.remainder)
    figures = f"{first} of {n_heads} first, {after_default} after the default, remainder at most {remainder:.1g}"
    passes = first + after_default == n_heads and remainder < 1e-5
    return BenchmarkResult(name="planted pairs of the compiled heads", figures=figures, bar=None, passes=passes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for result in programs(METHODS | SLOW_METHODS):
        print(result)
    print(known_answers(product(SUITE, range(SEEDS))))
