"""Dyck words per second against a loop in plain Python, and the balance condition against a loop over queries."""

import random
from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np
import torch

import interp
from benchmarks.timing import BenchmarkResult, compare, speed
from hooks import Transformer
from interp.tasks import Dyck

LENGTH, WORDS, FEWER, LONG = 28, 10_000, 500, 10_000
BAR = 20_000
"""Words per second."""
START, END, FIRST = 1, 2, 3


def plain_word(task: Dyck, rng: random.Random) -> list[int]:
    """One prefix or complete word, bracket by bracket with a stack; complete words that are too long are rejected."""
    complete = task.words == "complete"
    while True:
        stack: list[int] = []
        tokens = [START]
        while len(tokens) <= task.length:
            # End at depth 0, open a bracket, or close one
            if complete and not stack and len(tokens) > task.min_length and rng.random() < 0.5:
                return [*tokens, END]
            if not stack or (len(stack) < task.max_depth and rng.random() < task.q):
                stack.append(rng.randrange(task.n_types))
                tokens.append(FIRST + 2 * stack[-1])
            else:
                tokens.append(FIRST + 2 * stack.pop() + 1)
        if not complete:
            return tokens
        if not stack and rng.random() < 0.5:
            return [*tokens, END]


def plain_batch(task: Dyck, n: int, rng: random.Random) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens of n words, with depth and type of the innermost open bracket at every position."""
    tokens, depths, due = [], [], []
    for _ in range(n):
        word = plain_word(task, rng)
        # Replay the stack, padding included
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
    """S / P of every query and pair: Eq. 12-17 in a loop over queries and over types of open brackets."""
    attention = model.block(0).attention
    states = model.cfg.embedding
    assert states is not None
    table = states.table(model.cfg.d_model).double()
    read_k = attention.k.weight.double()
    read_v = attention.o.weight.double() @ attention.v.weight.double()
    # Embeddings of all keys
    kinds = range(task.n_types)
    levels = range(1, task.max_depth + 1)
    keys = {(START, 0): table[states.row(START, 0)]}
    for kind, level in product(kinds, levels):
        for token, depth in ((FIRST + 2 * kind, level), (FIRST + 2 * kind + 1, level - 1)):
            keys[token, depth] = table[states.row(token, depth)]
    ratio = np.zeros((task.max_depth - 1, task.n_types, task.max_depth, task.n_types))
    for d, j in product(range(1, task.max_depth), kinds):
        # u of Eq. 12 for the closer of type j at depth d
        query = attention.q.weight.double() @ table[states.row(FIRST + 2 * j + 1, d)]
        u = {}
        for key, vector in keys.items():
            value = read_v @ vector
            u[key] = (query @ (read_k @ vector) / model.cfg.attn_scale).exp() * (value - value.mean())
        # P of Eq. 17
        always = u[START, 0] + u[FIRST + 2 * j, d + 1] + u[FIRST + 2 * j + 1, d]
        least = dict.fromkeys(kinds, float("inf"))  # by the type of the innermost open bracket
        for types in product(kinds, repeat=d):
            total = always + sum(u[FIRST + 2 * kind, level + 1] for level, kind in enumerate(types))
            least[types[-1]] = min(least[types[-1]], float(total.norm()))
        # S of Eq. 15, over P
        for level, i in product(levels, kinds):
            together = u[FIRST + 2 * i, level] + u[FIRST + 2 * i + 1, level - 1]
            ratio[d - 1, j, level - 1, i] = float(together.norm()) / sorted(least.values())[1]
    return ratio


@torch.no_grad()
def comparisons() -> Iterator[BenchmarkResult]:
    for words in ("prefixes", "complete"):
        task = Dyck(length=LENGTH, words=words)
        generator = torch.Generator().manual_seed(0)
        rng = random.Random(0)
        _check(task, generator, rng)
        sample = partial(task.sample, generator=generator)  # includes depths and labels
        yield speed(f"dyck, {words} of up to {LENGTH} brackets", partial(sample, WORDS), n=WORDS, bar=BAR)
        name = f"dyck, {FEWER} {words} of up to {LENGTH}"
        yield compare(name, partial(sample, FEWER), partial(plain_batch, task, FEWER, rng), bar=1.0, rounds=11)
    task = Dyck(length=LONG)
    yield compare(
        f"dyck, one prefix of {LONG:,}",
        partial(task.sample, 1, generator=generator),
        partial(plain_batch, task, 1, rng),
        bar=8.0,  # each step is an array operation, whatever the number of words
        rounds=11,
    )
    for task in (Dyck(), Dyck(n_types=3, max_depth=6)):
        model = Transformer(interp.config_for(task, "dyck_minimal", init="fan_in"))

        def unmyopic(model: Transformer = model, task: Dyck = task) -> np.ndarray:
            """Includes the bounded form, the share of a decision and the average of the released code."""
            return interp.balance_violation(model, task).ratio

        name = f"balance violation, {task.n_types} types to depth {task.max_depth}"
        check = partial(np.testing.assert_allclose, rtol=1e-8)
        yield compare(name, unmyopic, partial(by_query, model, task), bar=0.5, rounds=11, check=check)


def _check(task: Dyck, generator: torch.Generator, rng: random.Random) -> None:
    """Check that both draw from the same language: mean number of brackets and mean depth agree."""
    n = 2000
    batch = task.sample(n, generator=generator)
    tokens, depths, _ = plain_batch(task, n, rng)
    for unmyopic, peer in (
        ((batch.tokens >= FIRST).double().sum(1), (tokens >= FIRST).double().sum(1)),
        (batch.depth.double().mean(1), depths[:, : task.n_ctx].double().mean(1)),
    ):
        error = float(((unmyopic.var() + peer.var()) / n).sqrt())
        assert abs(float(unmyopic.mean() - peer.mean())) <= 5 * error
