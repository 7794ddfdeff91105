"""Inputs and activations of the palindrome classifier: sequences, what a mismatch changes, and scores.

A sequence is a start token, 20 numbers and an end token; the mirror image of position p is position 21 - p.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from case_studies.frame.judge import Readings
from case_studies.recipes.intervals import as_interval
from published_readings.measures import RESOLUTION, estimate, estimates, mean_of, number, share_of
from published_readings.packs import Pack
from published_readings.runs import Edit, Runs, runs

NUMBERS, START, END = 31, 31, 32
"""How many numbers there are, and the ids of the start and end tokens."""
HALF = 10
"""Numbers in half a sequence."""
SECOND = tuple(range(HALF + 1, 2 * HALF + 1))
"""Positions of the second half."""
LAST, QUERY = 20, 21
"""Positions of the last number, and of the end token, at which the answer is read."""
UNSEEN = (17, 19, LAST)
"""Positions whose mismatch the main two heads miss, by the authors."""
SEEN = tuple(at for at in SECOND if at not in UNSEEN)
N = 300
"""Number of palindromes that are compared with their copies with one changed number."""
FURTHER = 40_000
"""Number of sequences for statements that the inputs of the pack do not decide."""
RESAMPLES = 200


def matches(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch half"]:
    """Whether each token of the second half equals its mirror image; axis `half` is in the order of positions."""
    half = tokens.shape[1] // 2 - 1
    return tokens[:, half + 1 : -1] == tokens[:, 1 : half + 1].flip(1)


def mirror(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """Mirror image of each token of the second half."""
    pos = tokens.shape[1]
    related = torch.eye(pos, dtype=torch.bool).flip(1)
    related[: pos // 2] = related[-1] = False
    return related.expand(len(tokens), -1, -1)


def mirror_or_self(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """For each token of the second half, its mirror image if the two are equal, else the token itself."""
    related, equal = mirror(tokens).clone(), matches(tokens)
    pos, half = tokens.shape[1], equal.shape[1]
    at = torch.arange(half + 1, pos - 1)
    related[:, at, pos - 1 - at] = equal
    related[:, at, at] = ~equal
    return related


def mismatches(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """For the end token, the tokens of the second half that differ from their mirror image."""
    related = torch.zeros(*tokens.shape, tokens.shape[1], dtype=torch.bool)
    equal = matches(tokens)
    related[:, -1, -1 - equal.shape[1] : -1] = ~equal
    return related


def last_mismatch(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """For the end token, the last number if it differs from the first."""
    related = mismatches(tokens)
    related[:, :, :-2] = False
    return related


def ends(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """For the last number, the first one; itself too if the two are equal."""
    related = torch.zeros(*tokens.shape, tokens.shape[1], dtype=torch.bool)
    related[:, -2, 1] = True
    related[:, -2, -2] = matches(tokens)[:, -1]
    return related


def palindromes(n: int, *, generator: torch.Generator) -> Int[Tensor, "example pos"]:
    """Random palindromes between a start and an end token."""
    half = torch.randint(NUMBERS, (n, HALF), generator=generator)
    start, end = torch.full((n, 1), START), torch.full((n, 1), END)
    return torch.cat([start, half, half.flip(1), end], 1)


def changed(
    tokens: Int[Tensor, "example pos"], positions: Sequence[int], *, generator: torch.Generator
) -> Int[Tensor, "example pos"]:
    """The same sequences with another number at each of these positions."""
    tokens = tokens.clone()
    steps = torch.randint(1, NUMBERS, (len(tokens), len(positions)), generator=generator)
    tokens[:, list(positions)] = (tokens[:, list(positions)] + steps) % NUMBERS
    return tokens


def inputs(n: int, *, generator: torch.Generator) -> Int[Tensor, "example pos"]:
    """Sequences by the definition of the task: half are palindromes, in the others half of the pairs are redrawn."""
    tokens = palindromes(n, generator=generator)
    redrawn = torch.rand(n, HALF, generator=generator) < 0.5
    redrawn[: n // 2] = False
    numbers = torch.randint(NUMBERS, (n, HALF), generator=generator)
    tokens[:, list(SECOND)] = torch.where(redrawn, numbers, tokens[:, list(SECOND)])
    return tokens


@lru_cache(maxsize=2)
def further_inputs(pack: Pack) -> Runs:
    """The model on FURTHER sequences other than those of its pack."""
    tokens = inputs(FURTHER, generator=torch.Generator().manual_seed(1))
    return Runs(pack, tokens, matches(tokens).all(1, keepdim=True).long())


@lru_cache(maxsize=4)
def pairs(pack: Pack) -> Runs:
    """The model on N palindromes, then on copies of them with another number at position 11, 12 ... 20."""
    generator = torch.Generator().manual_seed(0)
    equal = palindromes(N, generator=generator)
    copies = [changed(equal, [at], generator=generator) for at in SECOND]
    return Runs(pack, torch.cat([equal, *copies]))


def of_pairs(value: Float[Tensor, "sequence *cells"]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """Values on the palindromes (example, *cells), and on their copies (half, example, *cells)."""
    found = value.unflatten(0, (len(SECOND) + 1, -1))
    return found[0], found[1:]


@lru_cache(maxsize=4)
def written_change(pack: Pack) -> Float[Tensor, "half example d_model"]:
    """What head 0.0 writes at a changed position less what it writes there in the palindrome, less the mean over
    d_model, which no LayerNorm reads."""
    equal, other = of_pairs(pairs(pack).written(0, 0))
    found = torch.stack([copy[:, at] - equal[:, at] for at, copy in zip(SECOND, other, strict=True)])
    return found - found.mean(-1, keepdim=True)


def key_cosines(pack: Pack, head: int, rows: Int[Tensor, " row"]) -> Float[Tensor, " half"]:
    """Cosine of the query of the end token in palindromes with the key that the change by head 0.0 adds, for a head of
    layer 1; both are means over these palindromes."""
    added = written_change(pack)[:, rows].mean(1) * pack.weight("blocks.1.ln1.w")
    keys = added @ pack.weight("blocks.1.attn.W_K")[head]
    query = of_pairs(pairs(pack).activation("blocks.1.attn.hook_q"))[0][rows, QUERY, head].mean(0)
    return torch.cosine_similarity(keys, query, dim=-1)


def norm_scales(pack: Pack) -> Float[Tensor, "half example 1"]:
    """By how much the norm of layer 1 divides at a changed position."""
    scales = of_pairs(pairs(pack).activation("blocks.1.ln1.hook_scale"))[1]
    return torch.stack([copy[:, at] for at, copy in zip(SECOND, scales, strict=True)])


def value_pushes(pack: Pack, head: int) -> Float[Tensor, "half example"]:
    """What the change by head 0.0 adds to the logit of not-palindrome less that of palindrome through the values of a
    head of layer 1 which attends to the changed position alone; the norms' scales are those of the changed sequence."""
    seen = pairs(pack)
    read = written_change(pack) / norm_scales(pack) * pack.weight("blocks.1.ln1.w")
    passed = read @ pack.weight("blocks.1.attn.W_V")[head] @ pack.weight("blocks.1.attn.W_O")[head]
    written = torch.zeros(*seen.tokens.shape, passed.shape[-1])
    written[passed.shape[1] :, QUERY] = passed.flatten(0, 1)
    return of_pairs(against(seen.direct(written)))[1]


def against(logits: Float[Tensor, "example 1 2"]) -> Float[Tensor, " example"]:
    """Logit of not-palindrome less that of palindrome."""
    return logits[:, 0, 0] - logits[:, 0, 1]


def right_less_wrong(seen: Runs, edits: dict[str, Edit] | None = None) -> Float[Tensor, " example"]:
    """Logit of the right answer less that of the wrong one."""
    assert seen.targets is not None
    return against(seen.logits(edits)) * (1 - 2 * seen.targets[:, 0])


def held(head: int, positions: Sequence[int], value: Float[Tensor, "pos head d_head"]) -> Edit:
    """An edit that gives a head's keys, values or output at some positions a value that all examples share."""

    def edit(found: Tensor) -> Tensor:
        found = found.clone()
        found[:, list(positions), head] = value[list(positions), head]
        return found

    return edit


def kept_alone(pack: Pack, tokens: Int[Tensor, "example pos"], *, patched: bool = True) -> Float[Tensor, "example 1 2"]:
    """Logits if only the parts of the published algorithm know the sequence; all else has its mean over the pack.

    Layer 1 and the end token read the mean stream, plus what head 0.0 writes at the second half and head 0.1 at
    position 20. Head 1.1 reads keys and values of position 20 only.

    Args:
        pack: The model.
        tokens: Its inputs.
        patched: False: what heads 0.1 and 1.1 write is replaced by its mean too.
    """
    usual, seen, name = runs(pack), Runs(pack, tokens), "blocks.1.attn.hook_"
    stream = usual.activation("blocks.1.hook_resid_pre").mean(0).repeat(len(tokens), 1, 1)
    for head, positions in [(0, SECOND), (1, (LAST,) if patched else ())]:
        at = list(positions)
        stream[:, at] += seen.written(0, head)[:, at] - usual.written(0, head).mean(0)[at]
    if patched:
        others = [at for at in range(tokens.shape[1]) if at != LAST]
        edits = {name + part: held(1, others, usual.activation(name + part).mean(0)) for part in "kv"}
    else:
        edits = {name + "z": held(1, range(tokens.shape[1]), usual.activation(name + "z").mean(0))}
    return seen.logits({"blocks.1.hook_resid_pre": lambda value: stream, **edits})


def embedding_scores(
    pack: Pack, head: int
) -> tuple[Float[Tensor, "query_token key_token"], Float[Tensor, "query key"]]:
    """Scores of a head of layer 0 between the embeddings of numbers, and of positions, without biases and the norm's
    scale; keys that a position does not see, the start token's and the end token's are -inf."""
    w_q, w_k = (pack.weight(f"blocks.0.attn.W_{part}")[head] for part in "QK")

    def scores(embedded: Tensor) -> Tensor:
        read = (embedded - embedded.mean(-1, keepdim=True)) * pack.weight("blocks.0.ln1.w")
        return read @ w_q @ (read @ w_k).T

    positions = scores(pack.weight("W_pos"))
    seen = torch.ones_like(positions, dtype=torch.bool).tril()
    seen[:, [0, QUERY]] = False
    return scores(pack.weight("W_E")[:NUMBERS]), positions.masked_fill(~seen, -torch.inf)


def preference(scores: Float[Tensor, " key"], preferred: Sequence[int]) -> float:
    """Mean score of the preferred keys less that of the others; keys of score -inf do not count."""
    chosen = torch.zeros_like(scores, dtype=torch.bool)
    chosen[list(preferred)] = True
    return float(scores[chosen].mean() - scores[~chosen & scores.isfinite()].mean())


def resampled(statistic: Callable[[Int[Tensor, " row"]], float], **more) -> Readings:
    """A statistic of N pairs, with a percentile bootstrap interval of 200 resamples of the pairs."""
    draw = np.random.default_rng(0)
    found = [statistic(torch.from_numpy(draw.integers(N, size=N))) for _ in range(RESAMPLES)]
    value = statistic(torch.arange(N))
    low, high = (float(end) for end in np.quantile(found, [0.025, 0.975]))
    return estimate(as_interval(value, min(low, value) - RESOLUTION, max(high, value) + RESOLUTION, N), **more)


def index(positions: Sequence[int]) -> list[int]:
    """Places of positions of the second half on an axis `half`."""
    return [SECOND.index(at) for at in positions]


def measure_prefers(pack: Pack) -> Readings:
    """The lower of two shares: numbers whose own copy scores highest; positions for which they or their mirror do."""
    tokens, positions = embedding_scores(pack, 0)
    top = positions.argmax(-1)
    own = (tokens.argmax(-1) == torch.arange(NUMBERS)).double().mean()
    hits = [int(top[at]) in (at, QUERY - at) for at in SECOND]
    gaps = [preference(tokens[at], [at]) for at in range(NUMBERS)]
    weaker = [preference(positions[at], [at, QUERY - at]) for at in SECOND]
    numbers = {
        "numbers": float(own), "positions": sum(hits) / HALF,
        "positions that prefer the mirror": sum(bool(positions[at, QUERY - at] > positions[at, at]) for at in SECOND)
        / HALF,
        "preference of numbers less that of positions": sum(gaps) / NUMBERS - sum(weaker) / HALF,
    }  # fmt: skip
    return number(min(float(own), sum(hits) / HALF), n=NUMBERS + HALF, numbers=numbers)


def measure_avoids(pack: Pack) -> Readings:
    """Share of numbers whose own copy scores below the mean of the others."""
    tokens, positions = embedding_scores(pack, 1)
    avoid = [preference(tokens[at], [at]) < 0 for at in range(NUMBERS)]
    last, other = (preference(positions[at], [at, QUERY - at]) for at in (LAST, 18))
    numbers = {
        "own copy scores lowest": float((tokens.argmin(-1) == torch.arange(NUMBERS)).double().mean()),
        "position 20 prefers both": set(positions[LAST].topk(2).indices.tolist()) == {1, LAST},
        "preference of position 18": other, "preference of position 20 less that of 18": last - other,
    }  # fmt: skip
    return number(sum(avoid) / NUMBERS, n=NUMBERS, numbers=numbers)


def measure_keys(pack: Pack) -> Readings:
    """Cosine of the added key with the query of the end token: the lowest of the seven positions that are seen."""
    every = key_cosines(pack, 0, torch.arange(N))
    numbers = {"highest at 17, 19 and 20": float(every[index(UNSEEN)].max())}
    by_position = pd.DataFrame({"position": SECOND, "cosine": every.tolist()})
    return resampled(
        lambda rows: float(key_cosines(pack, 0, rows)[index(SEEN)].min()),
        numbers=numbers, tables=[("Cosine of the added key and the query", by_position)],
    )  # fmt: skip


def measure_values(pack: Pack) -> Readings:
    """Push to not-palindrome through the values of head 1.0, mean over the seven positions that are seen."""
    found = value_pushes(pack, 0)
    mean = found.mean(1)
    least, most = float(mean[index(SEEN)].min()), float(mean[index(UNSEEN)].max())
    unscaled = float((found * norm_scales(pack)[..., 0])[index(SEEN)].mean())
    numbers = {"least of these": least, "most at 17, 19 and 20": most, "without the scale of layer 1's norm": unscaled}
    by_position = pd.DataFrame({"position": SECOND, "push": mean.tolist()})
    pushed = mean_of(found[index(SEEN)].mean(0))
    note = f"The change is divided by the scale of layer 1's norm, as head 1.0 reads it. Else it is {unscaled:.2f}."
    return estimate(pushed, numbers=numbers, tables=[("Push to not-palindrome", by_position)], note=note)


def measure_makes_up(pack: Pack) -> Readings:
    """Cosine of the key that head 1.1 is given at position 20 with the query of the end token."""
    cosines, pushes = key_cosines(pack, 1, torch.arange(N)), value_pushes(pack, 1).mean(1)
    last, others = index([LAST])[0], index([17, 19])
    ratios = torch.minimum(cosines[others] / cosines[last], pushes[others] / pushes[last])
    numbers = {"push at position 20": float(pushes[last]), "share of it at 17 or 19": float(ratios.max())}
    numbers |= {f"cosine at {SECOND[at]}": float(cosines[at]) for at in others}
    numbers |= {f"push at {SECOND[at]}": float(pushes[at]) for at in others}
    return resampled(lambda rows: float(key_cosines(pack, 1, rows)[last]), numbers=numbers)


def measure_parallel(pack: Pack) -> Readings:
    """Lowest cosine of two of the changes at the seven positions that are seen."""
    change = written_change(pack)[index(SEEN)]
    pair = torch.triu_indices(len(SEEN), len(SEEN), 1)

    def lowest(rows: Tensor) -> float:
        mean = change[:, rows].mean(1)
        return float(torch.cosine_similarity(mean[pair[0]], mean[pair[1]], dim=-1).min())

    return resampled(lowest)


def measure_unseen(pack: Pack) -> Readings:
    """Share called palindrome of the sequences that differ from one only at 17, only at 19, or at both."""
    generator = torch.Generator().manual_seed(1)
    equal = palindromes(N, generator=generator)

    def called(*at: int) -> Bool[Tensor, " example"]:
        seen = Runs(pack, changed(equal, at, generator=generator))
        return against(seen.logits()) < 0

    found = {", ".join(map(str, at)): share_of(called(*at)) for at in ((17,), (19,), (17, 19))}
    others = {f"position {at}": float(called(at).double().mean()) for at in SECOND if at not in (17, 19)}
    numbers = {"most with another position": max(others.values()), **others}
    return estimates("changed positions", found, numbers=numbers)
