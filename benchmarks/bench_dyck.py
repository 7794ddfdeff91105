"""Bracket words per second against the loop that a user would write, and the balance condition query by query."""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch

import interp
from benchmarks.timing import Comparison, compare
from hooks import Transformer
from interp.tasks import Dyck

LENGTH, WORDS, FEWER, LONG = 28, 10_000, 500, 10_000
PROMISED = 20_000
START, END, FIRST = 1, 2, 3


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Words per second that were promised by themselves."""

    name: str
    per_second: tuple[float, ...]

    def __str__(self) -> str:
        middle = statistics.median(self.per_second)
        verdict = "holds" if middle >= PROMISED else "DOES NOT HOLD"
        return (
            f"{self.name:<58} {middle:,.0f}/s, worst {min(self.per_second):,.0f}/s, promised {PROMISED:,}/s: {verdict}"
        )


def plain_prefix(task: Dyck, rng: random.Random) -> list[int]:
    """One prefix, bracket by bracket over a stack."""
    stack: list[int] = []
    tokens = [START]
    while len(tokens) <= task.length:
        opens = not stack or (len(stack) < task.max_depth and rng.random() < task.q)
        if opens:
            stack.append(rng.randrange(task.n_types))
            tokens.append(FIRST + 2 * stack[-1])
        else:
            tokens.append(FIRST + 2 * stack.pop() + 1)
    return tokens


def plain_word(task: Dyck, rng: random.Random) -> list[int]:
    """One complete word: drawn again until it ends in time."""
    while True:
        stack: list[int] = []
        tokens = [START]
        while len(tokens) <= task.length:
            if not stack and len(tokens) > task.min_length and rng.random() < 0.5:
                return [*tokens, END]
            if not stack or (len(stack) < task.max_depth and rng.random() < task.q):
                stack.append(rng.randrange(task.n_types))
                tokens.append(FIRST + 2 * stack[-1])
            else:
                tokens.append(FIRST + 2 * stack.pop() + 1)
        if not stack and rng.random() < 0.5:
            return [*tokens, END]


def plain_batch(task: Dyck, n: int, rng: random.Random) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, depth and type of the innermost open bracket of n words."""
    one = plain_word if task.words == "complete" else plain_prefix
    tokens, depths, due = [], [], []
    for _ in range(n):
        word = one(task, rng)
        word += [0] * (task.n_ctx + 1 - len(word))
        stack: list[int] = []
        depth, top = [], []
        for token in word:
            if token >= FIRST and (token - FIRST) % 2 == 0:
                stack.append((token - FIRST) // 2)
            elif token >= FIRST:
                stack.pop()
            depth.append(len(stack))
            top.append(stack[-1] if stack else -1)
        tokens.append(word)
        depths.append(depth)
        due.append(top)
    return torch.tensor(tokens), torch.tensor(depths), torch.tensor(due)


def by_query(model: Transformer, task: Dyck) -> np.ndarray:
    """S / P of every query and pair: Eq. 12-17 for one query at a time, one open string at a time."""
    attention, states = model.block(0).attention, model.cfg.embedding
    assert states is not None
    table = states.table(model.cfg.d_model).double()
    read_k, read_v = attention.k.weight.double(), attention.o.weight.double() @ attention.v.weight.double()
    kinds, levels = range(task.n_types), range(1, task.max_depth + 1)
    keys = {(START, 0): table[states.row(START, 0)]}
    for kind, level in product(kinds, levels):
        for token, depth in ((FIRST + 2 * kind, level), (FIRST + 2 * kind + 1, level - 1)):
            keys[token, depth] = table[states.row(token, depth)]
    ratio = np.zeros((task.max_depth - 1, task.n_types, task.max_depth, task.n_types))
    for d, j in product(range(1, task.max_depth), kinds):
        query = attention.q.weight.double() @ table[states.row(FIRST + 2 * j + 1, d)]
        u = {}
        for key, vector in keys.items():
            value = read_v @ vector
            u[key] = (query @ (read_k @ vector) / model.cfg.attn_scale).exp() * (value - value.mean())
        always = u[START, 0] + u[FIRST + 2 * j, d + 1] + u[FIRST + 2 * j + 1, d]
        least = dict.fromkeys(kinds, float("inf"))  # by the type of the innermost open bracket
        for types in product(kinds, repeat=d):
            total = always + sum(u[FIRST + 2 * kind, level + 1] for level, kind in enumerate(types))
            least[types[-1]] = min(least[types[-1]], float(total.norm()))
        for level, i in product(levels, kinds):
            together = u[FIRST + 2 * i, level] + u[FIRST + 2 * i + 1, level - 1]
            ratio[d - 1, j, level - 1, i] = float(together.norm()) / sorted(least.values())[1]
    return ratio


@torch.no_grad()
def comparisons() -> Iterator[Comparison | Speed]:
    for words in ("prefixes", "complete"):
        task = Dyck(length=LENGTH, words=words)
        generator, rng = torch.Generator().manual_seed(0), random.Random(0)
        _check(task, generator, rng)
        speeds = tuple(WORDS / _seconds(lambda: task.sample(WORDS, generator=generator)) for _ in range(11))  # noqa: B023
        yield Speed(name=f"dyck, {words} of up to {LENGTH} brackets", per_second=speeds)
        name = f"dyck, {FEWER} {words} of up to {LENGTH}"

        def ours(task: Dyck = task, generator: torch.Generator = generator) -> object:
            """What is due, how deep, and labels are in the price."""
            return task.sample(FEWER, generator=generator)

        def theirs(task: Dyck = task, rng: random.Random = rng) -> object:
            return plain_batch(task, FEWER, rng)

        yield compare(name, ours, theirs, bar=1.0, rounds=11)
    task = Dyck(length=LONG)
    yield compare(
        f"dyck, one prefix of {LONG:,}",
        lambda: task.sample(1, generator=generator),
        lambda: plain_batch(task, 1, rng),
        bar=8.0,  # each step is an array operation, for one word as for thousands
        rounds=11,
    )
    for task in (Dyck(), Dyck(n_types=3, max_depth=6)):
        model = Transformer(interp.config_for(task, "dyck_minimal", init="fan_in"))

        def whole(model: Transformer = model, task: Dyck = task) -> np.ndarray:
            """Bounded form, share of a decision and the released average are in the price."""
            return interp.balance_violation(model, task).ratio

        def loops(model: Transformer = model, task: Dyck = task) -> np.ndarray:
            return by_query(model, task)

        np.testing.assert_allclose(whole(), loops(), rtol=1e-8)
        name = f"balance violation, {task.n_types} types to depth {task.max_depth}"
        yield compare(name, whole, loops, bar=0.5, rounds=11)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _check(task: Dyck, generator: torch.Generator, rng: random.Random) -> None:
    """Both draw from the same language: as many brackets in a word on average, and as many left open."""
    n = 2000
    batch = task.sample(n, generator=generator)
    tokens, depths, _ = plain_batch(task, n, rng)
    for mine, other in (
        ((batch.tokens >= FIRST).double().sum(1), (tokens >= FIRST).double().sum(1)),
        (batch.depth.double().mean(1), depths[:, : task.n_ctx].double().mean(1)),
    ):
        error = float(((mine.var() + other.var()) / n).sqrt())
        assert abs(float(mine.mean() - other.mean())) <= 5 * error
