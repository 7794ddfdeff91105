"""Claims on the graphs of compiled programs: a program's own is accepted, and with one edge rewired it is refused."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from case_studies.compiled.heads import SOURCE
from case_studies.compiled.programs import programs
from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.packs import Packs
from case_studies.frame.rules import Equal, Value
from case_studies.recipes.intervals import proportion
from interp.algorithms import Algorithm, ImplementsResult, compiled_program, compiled_sites
from interp.algorithms.implements import implements
from interp.known_answers import KnownAnswer

N = 512
"""Pairs of inputs."""
SEEN = Preregistration(
    "after a result",
    "20 of 31 own graphs were accepted while means of one-hot values had no code and equally likely answers counted; "
    "then 30, as one program's answers seldom change, after which pairs are drawn until each variable changes some.",
)


def rewired(graph: Algorithm) -> Iterator[Algorithm]:
    """The graph with each edge in turn from another variable: the first one that the reader does not read, if any."""
    names = [one.name for one in graph.variables]
    for one in graph.variables:
        earlier = names[: names.index(one.name)]
        for of in one.of:
            others = sorted((name for name in earlier if name != of), key=lambda name: name in one.of)
            if others:
                yield graph.without_edge(one.name, of, others[0])


def most_wrong(known: KnownAnswer, graph: Algorithm) -> tuple[Algorithm, float]:
    """The rewired graph that gives most answers otherwise than the program, and their share, on all examples."""
    task: Any = known.task
    batch = task.examples(torch.arange(len(task.program.examples)))
    own = graph.run(batch).answers

    def share(one: Algorithm) -> float:
        said = one.run(batch).answers
        return float(((said != own) & (said >= 0) & batch.present).sum() / batch.present.sum())

    shares = [(share(one), one) for one in rewired(graph)]
    best = max(shares, key=lambda one: one[0])
    return best[1], best[0]


def tested(known: KnownAnswer, graph: Algorithm, rival: Algorithm, seed: int) -> ImplementsResult:
    """The test of a graph at the coordinates of its variables."""
    sites = compiled_sites(known.task)
    return implements(known.model, known.task, graph, rivals=[rival], sites=sites, n=N, seed=seed)


def measure_graphs(evidence: Evidence, *, packs: Packs, own: bool) -> Measurement:
    """Share of the programs whose own graph is accepted; or whose graph with one edge rewired is refused."""
    hits = []
    rows: list[list[Any]] = [["program", "rewired", "answers that differ", "verdict", "reason"]]
    for known in programs(packs):
        graph = compiled_program(known.task)
        wrong, share = most_wrong(known, graph)
        found = tested(known, *((graph, wrong) if own else (wrong, graph)), evidence.seed)
        hits.append(found.verdict == "implements" if own else found.verdict in ("implements a rival", "neither"))
        rows.append([known.name, wrong.name.split(", ", 1)[1], f"{share:.2f}", found.verdict, found.reason])
    value, low, high = proportion(sum(hits), len(hits))
    return Measurement(value=value, low=low, high=high, n=len(hits), unit="programs", tables=[("Every program", rows)])


def claims(packs: Packs) -> tuple[Claim, ...]:
    """The claims on these packs."""
    method = (
        "Share of the programs, by `interp.implements` at the coordinates of each variable, against the graph with one "
        "edge rewired that gives most answers otherwise"
    )
    statements = {
        "own": "Each program's own graph is accepted.",
        "rewired": "Each program's graph with one edge rewired is refused.",
    }
    return tuple(
        Claim(
            id=f"graphs.{name}",
            source=SOURCE,
            statement=statement,
            method=method,
            rule=Value(Equal(1.0)),
            value_range=SHARE,
            quantity="share of programs",
            preregistration=SEEN,
            measure=partial(measure_graphs, packs=packs, own=name == "own"),
            sizes=LARGE_SIZES,
            sizes_reason="Every variable of every program takes ten minutes.",
        )
        for name, statement in statements.items()
    )
