"""Hand-written heads that match contents in two steps, with a preference for a fixed position added."""

from dataclasses import dataclass

import torch

from interp.core.randomness import derived_generator
from interp.known_answers.answers import KnownAnswer
from interp.known_answers.craft.transforms import randomise
from interp.known_answers.craft.weights import SHARP, bias_of, head_rows, position_table
from interp.known_answers.suite import SUITE
from interp.known_answers.task_suite import TASK_SUITE

BUILDERS = {**SUITE, **TASK_SUITE}
WRITES_QUERIES = "indirect object by name"
"""The only one of these heads that reads the other head in its queries, and tokens in its keys."""


@dataclass(frozen=True)
class RestingHead:
    """A model, its head of layer 1 that matches contents, and the pair by which it does."""

    answer: KnownAnswer
    head: tuple[int, int]
    pair: str
    """The pair that carries the answers, by construction."""


@torch.no_grad()
def resting_head(name, *, seed, strength, by, position=0):
    """A two-step head whose scores prefer one position, with random order of heads and basis.

    Args:
        name: Known answer with a head in layer 0 that a head in layer 1 reads.
        seed: Determines it.
        strength: What the scores of the preferred position gain, as a multiple of what a match scores.
        by: `bias`: at every query, by the bias of queries. `positions`: at all queries that are not scored, by their
            position embedding.
        position: The preferred position.
    """
    generator = derived_generator(seed, "resting head", name)
    answer = BUILDERS[name](generator)
    model, task = answer.model, answer.task
    attention = model.block(1).attention
    query, key = attention.q.weight[head_rows(model.block(1), 0)], attention.k.weight[head_rows(model.block(1), 0)]
    bias = bias_of(attention.q)[head_rows(model.block(1), 0)]
    # A coordinate of the head that nothing uses, and directions that only positions write
    used = query.any(1) | key.any(1) | bias.bool()
    row, *_ = (~used).nonzero()[:, 0].tolist()
    n_ctx = len(position_table(model))
    key[row] = read_positions(model, torch.arange(n_ctx) == position)
    score = strength * SHARP * attention.scale
    if by == "bias":
        bias[row] = score
    else:
        scored = task.sample(1, generator=generator).target_positions[0]
        query[row] = score * read_positions(model, ~torch.isin(torch.arange(n_ctx), scored))
    answer = randomise(answer, generator, rotate=True)
    (earlier,), (head,) = (
        [place for place, truth in answer.heads.items() if truth.truth == "faithful" and place[0] == layer]
        for layer in (0, 1)
    )
    writer = f"{earlier[0]}.{earlier[1]}"
    pair = (
        f"tokens of keys x {writer} of queries"
        if name.startswith(WRITES_QUERIES)
        else f"{writer} of keys x tokens of queries"
    )
    return RestingHead(answer, head, pair)


def read_positions(model, positions):
    """A direction of the stream whose product with the embedding is 1 at some positions, 0 at others and of tokens."""
    tokens, table = model.embed.weight.double(), position_table(model).double()
    rows = torch.cat([tokens, table])
    products = torch.cat([torch.zeros(len(tokens)), positions]).double()
    return torch.linalg.pinv(rows) @ products
