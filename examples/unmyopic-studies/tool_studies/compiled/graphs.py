"""Claims on the graphs of compiled programs: a program's own is accepted, and with one edge rewired it is refused."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd
import torch

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.packs import Packs
from case_studies.frame.rules import Equal, Value
from case_studies.recipes.judges import Share
from interp.algorithms import Algorithm, ImplementsResult, compiled_program, compiled_sites
from interp.algorithms.implements import implements
from interp.known_answers import KnownAnswer
from tool_studies.compiled.heads import OTHERS, SOURCE
from tool_studies.compiled.programs import programs

N, MORE = 512, 2048
"""Pairs of inputs; more where they leave it undecided, as few of them change an answer."""
AS_EXPECTED = "as expected"
SEEN = Preregistration(
    "after a result",
    f"on {OTHERS}, 20 own graphs were accepted while means of one-hot values had no code and equally likely answers "
    "counted; then 30, as one program's answers seldom change, after which pairs are drawn until each variable changes "
    "some. On our own programs 512 pairs left some undecided, in which few pairs change an answer; these get 2,048.",
)


def rewired(graph: Algorithm) -> Iterator[Algorithm]:
    """The graph with each edge in turn from another variable: the first one that the reader does not read, if any."""
    names = [variable.name for variable in graph.variables]
    for variable in graph.variables:
        earlier = names[: names.index(variable.name)]
        for parent in variable.parents:
            alternatives = [name for name in earlier if name != parent]
            alternatives.sort(key=lambda name: name in variable.parents)
            if alternatives:
                yield graph.without_edge(variable.name, parent, alternatives[0])


def most_wrong(answer: KnownAnswer, graph: Algorithm) -> tuple[Algorithm, float]:
    """The rewired graph that gives most answers otherwise than the program, and their share, on all examples."""
    task: Any = answer.task
    batch = task.examples(torch.arange(len(task.program.examples)))
    correct = graph.run(batch).answers

    def share(rewired_graph: Algorithm) -> float:
        answers = rewired_graph.run(batch).answers
        return float(((answers != correct) & (answers >= 0) & batch.present).sum() / batch.present.sum())

    shares = [(share(rewired_graph), rewired_graph) for rewired_graph in rewired(graph)]
    best = max(shares, key=lambda share_and_graph: share_and_graph[0])
    return best[1], best[0]


def tested(answer: KnownAnswer, graph: Algorithm, rival: Algorithm, seed: int) -> ImplementsResult:
    """The test of a graph at the coordinates of its variables."""
    sites = compiled_sites(answer.task)
    result = implements(answer.model, answer.task, graph, rivals=[rival], sites=sites, n=N, seed=seed)
    if result.verdict == "undecided":
        result = implements(answer.model, answer.task, graph, rivals=[rival], sites=sites, n=MORE, seed=seed)
    return result


def measure_graphs(evidence: Evidence, *, packs: Packs, accepts_correct: bool) -> Readings:
    """Whether a program's own graph is accepted, or that with one edge rewired is refused; one row a program."""
    rows = []
    for answer in programs(packs):
        graph = compiled_program(answer.task)
        wrong, share = most_wrong(answer, graph)
        # One graph is tested with the other as its rival
        if accepts_correct:
            result = tested(answer, graph, wrong, evidence.seed)
            is_right = result.verdict == "implements"
        else:
            result = tested(answer, wrong, graph, evidence.seed)
            is_right = result.verdict in ("implements a rival", "neither")
        rows.append(
            {
                "program": answer.name,
                AS_EXPECTED: is_right,
                "rewired": wrong.name.split(", ", 1)[1],
                "answers that differ": share,
                "verdict": result.verdict,
                "reason": result.reason,
            }
        )
    return Readings(frame=pd.DataFrame(rows), title="Every program")


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
            measure=partial(measure_graphs, packs=packs, accepts_correct=name == "own"),
            judged=Share(AS_EXPECTED, unit="programs"),
        )
        for name, statement in statements.items()
    )
