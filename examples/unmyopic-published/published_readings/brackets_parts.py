"""What parts of the bracket classifier write, and what passes from one to another."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from sklearn.metrics import roc_auc_score
from torch import Tensor

from case_studies.frame.judge import Readings
from case_studies.recipes.intervals import as_interval, clipped
from interp.core.intervals import Interval
from published_readings.measures import difference_of, estimate, estimates, mean_of, number, share_of
from published_readings.packs import Pack
from published_readings.runs import Edit, Runs, runs
from published_readings.task import TokenRelation

START, PADDING, END, OPENING, CLOSING = range(5)
BALANCED, TOTAL_ONLY, DIPS_ONLY = 0, 1, 2
"""Kinds of string, read from the right: balanced, only the total is wrong, only some count is negative; 3 is both."""
FIRST = 1
"""Position of the first bracket."""
LONGEST = 40
RESAMPLES = 200
EARLIER = ("embedding", "0.0", "0.1", "MLP 0", "1.0", "1.1", "MLP 1")
PARTS = (*EARLIER, "2.0", "2.1", "MLP 2")


def first_bracket(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """The first bracket, for the start token."""
    related = torch.zeros(*tokens.shape, tokens.shape[1], dtype=torch.bool)
    related[:, 0, FIRST] = True
    return related


def later(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """All later tokens, for opening brackets."""
    after = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
    return after & (tokens == OPENING)[..., None]


KINDS: Mapping[str, TokenRelation] = {"first bracket": first_bracket, "later tokens": later}


def elevation(tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
    """Closing minus opening brackets from each position on."""
    steps = (tokens == CLOSING).long() - (tokens == OPENING).long()
    return steps.flip(1).cumsum(1).flip(1)


def is_bracket(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch pos"]:
    """Positions of brackets."""
    return (tokens == OPENING) | (tokens == CLOSING)


def share_opening(tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
    """Share of the brackets of each string that are opening ones."""
    return (tokens == OPENING).sum(1) / is_bracket(tokens).sum(1)


def kinds_of(pack: Pack) -> Int[Tensor, " example"]:
    """The kind of every string of the pack, by its elevations."""
    tokens = pack.task.inputs
    found = elevation(tokens)
    total = found[:, FIRST] != 0
    dips = ((found < 0) & is_bracket(tokens)).any(1)
    return total.long() * TOTAL_ONLY + dips.long() * DIPS_ONLY


def written_by(seen: Runs, part: str) -> Float[Tensor, "example pos d_model"]:
    """What a part adds to the residual stream."""
    if part == "embedding":
        return seen.activation("blocks.0.hook_resid_pre")
    if part.startswith("MLP"):
        return seen.activation(f"blocks.{part[-1]}.hook_mlp_out")
    layer, head = map(int, part.split("."))
    return seen.written(layer, head)


def push(logits: Float[Tensor, "example 1 2"]) -> Float[Tensor, " example"]:
    """Logit of unbalanced less that of balanced."""
    return logits[:, 0, 0] - logits[:, 0, 1]


def read_by(
    pack: Pack, head: int, stream: Float[Tensor, "example pos d_model"]
) -> Float[Tensor, "example pos d_model"]:
    """What a head of layer 2 writes if it attends to one position alone, from this part of the stream.

    The norm is linear: its scale is the mean over strings, so that a part that is the same in all strings writes the
    same.
    """
    seen, name = runs(pack), "blocks.2.attn.W_"
    scale = seen.mean_of(seen.activation("blocks.2.ln1.hook_scale")).clamp_min(1e-9)
    read = (stream - stream.mean(-1, keepdim=True)) / scale * pack.weight("blocks.2.ln1.w")
    return read @ pack.weight(name + "V")[head] @ pack.weight(name + "O")[head]


def linear_push(pack: Pack, written: Float[Tensor, "... d_model"]) -> Float[Tensor, "..."]:
    """Push to unbalanced of what is written at the start token; the norm's scale is its mean over strings."""
    scale = runs(pack).activation("ln_final.hook_scale")[:, 0].mean()
    read_out = pack.weight("ln_final.w") * (pack.weight("W_U")[:, 0] - pack.weight("W_U")[:, 1])
    return (written - written.mean(-1, keepdim=True)) / scale @ read_out


def pushes(pack: Pack) -> dict[str, Float[Tensor, " example"]]:
    """Direct push of each part to unbalanced, at the start token."""
    return {part: linear_push(pack, written_by(runs(pack), part)[:, 0]) for part in PARTS}


def pushes_through(pack: Pack, head: int, at: int | None = FIRST) -> dict[str, Float[Tensor, " example"]]:
    """Push to unbalanced of each earlier part through a head of layer 2, from one position, or as the head attends."""
    seen, found = runs(pack), {}
    for part in EARLIER:
        moved = read_by(pack, head, written_by(seen, part))
        weight = seen.pattern(2, head)[:, 0, :, None]
        found[part] = linear_push(pack, moved[:, at] if at is not None else (weight * moved).sum(1))
    return found


def between(values: Float[Tensor, " example"], kinds: Int[Tensor, " example"], *chosen: int) -> Interval:
    """Mean over unbalanced strings (of some kinds) less that over balanced ones."""
    of = torch.isin(kinds, torch.tensor(chosen)) if chosen else kinds != BALANCED
    return difference_of(values[of], values[kinds == BALANCED])


def gap(values: Float[Tensor, " example"], kinds: Int[Tensor, " example"], *chosen: int) -> float:
    """The same as a number."""
    return float(between(values, kinds, *chosen).value)


def auroc(values: Float[Tensor, " example"], hits: Bool[Tensor, " example"]) -> Interval:
    """Chance that a hit has the higher value, with a percentile bootstrap interval over examples."""
    x, y, draw = values.double().numpy(), hits.numpy(), np.random.default_rng(0)
    hit, miss = np.flatnonzero(y), np.flatnonzero(~y)
    rows = [np.concatenate([draw.choice(hit, len(hit)), draw.choice(miss, len(miss))]) for _ in range(RESAMPLES)]
    low, high = np.quantile([roc_auc_score(y[one], x[one]) for one in rows], [0.025, 0.975])
    value = float(roc_auc_score(y, x))
    low, high = min(float(low), value - 1 / len(x)), max(float(high), value + 1 / len(x))
    return clipped(as_interval(value, low, high, len(x)), 0.0, 1.0)


def measure_elevation(pack: Pack) -> Readings:
    """Variance of the elevation that a linear map of the stream before layer 2 explains in other unbalanced strings."""
    seen, kinds = runs(pack), kinds_of(pack)
    rows = torch.nonzero(kinds != BALANCED)[:, 0]
    stream = seen.activation("blocks.2.hook_resid_pre").double()
    stream = torch.cat([stream, torch.ones_like(stream[..., :1])], -1)
    brackets, found = is_bracket(seen.tokens), {}
    after = elevation(seen.tokens).double()
    before = after[:, FIRST, None] - after
    for name, value in [("suffix", after), ("prefix", before)]:
        train, test = rows[::2], rows[1::2]
        inside = brackets[train]
        weight = torch.linalg.lstsq(stream[train][inside], value[train][inside][:, None], driver="gelsd").solution
        real = brackets[test].double()
        error = ((stream[test] @ weight)[..., 0] - value[test]).square() * real
        spread = (value[test] - value[test][brackets[test]].mean()).square() * real
        found[name] = 1 - error.sum(1) / spread.sum(1).mean()
    right = (seen.logits().argmax(-1) == seen.targets)[:, 0].double()  # type: ignore[union-attr]
    numbers = {
        "more than of the brackets before": float(found["suffix"].mean() - found["prefix"].mean()),
        "lowest accuracy of a kind": min(float(right[kinds == one].mean()) for one in kinds.unique().tolist()),
    }
    return estimate(mean_of(found["suffix"]), numbers=numbers)


def measure_circuit(pack: Pack) -> Readings:
    """How well the named parts alone separate strings with a wrong total from balanced ones."""
    seen, kinds = runs(pack), kinds_of(pack)
    tally = written_by(seen, "0.0")
    stream = seen.mean_of(seen.activation("blocks.0.hook_resid_mid")).repeat(len(tally), 1, 1)
    stream[:, FIRST] += tally[:, FIRST] - seen.mean_of(tally)[FIRST]

    def mean(name: str) -> Float[Tensor, "example pos d_model"]:
        return seen.mean_of(seen.activation(name)).expand(len(tally), -1, -1)

    attention, last = mean("blocks.1.hook_attn_out"), mean("blocks.2.hook_mlp_out")
    edits: dict[str, Edit] = {
        "blocks.0.hook_resid_mid": lambda value: stream, "blocks.1.hook_attn_out": lambda value: attention,
        "blocks.2.hook_mlp_out": lambda value: last, **seen.without_head((2, 1)),
    }  # fmt: skip
    kept = (kinds == BALANCED) | (kinds == TOTAL_ONLY)
    found = push(seen.logits(edits))
    return estimate(auroc(found[kept], kinds[kept] == TOTAL_ONLY))


def measure_separates(pack: Pack, head: str, *chosen: int) -> Readings:
    """By how much a head of layer 2 separates unbalanced from balanced strings more than the other parts do.

    Without kinds the other head of layer 2 is not one of them.
    """
    found, kinds = pushes(pack), kinds_of(pack)
    others = [part for part in PARTS if part not in (("2.0", "2.1") if not chosen else (head,))]
    best = max(others, key=lambda part: gap(found[part], kinds, *chosen))
    own, next_one = gap(found[head], kinds, *chosen), gap(found[best], kinds, *chosen)
    share = next_one / max(own, 1e-9)
    numbers = {"its push": own, "push of the next part": next_one, "the next as a share of it": share}
    every = pd.DataFrame({"part": list(found), "push": [gap(one, kinds, *chosen) for one in found.values()]})
    further = between(found[head] - found[best], kinds, *chosen)
    return estimate(further, numbers=numbers, tables=[("Push to unbalanced", every)])


def measure_not_clean(pack: Pack) -> Readings:
    """Push of head 2.0 in strings that only dip, and of 2.1 in those with only a wrong total."""
    found, kinds = pushes(pack), kinds_of(pack)
    pairs = [("2.0", DIPS_ONLY), ("2.1", TOTAL_ONLY)]
    numbers = {}
    for head, kind in pairs:
        usual = found[head][kinds == BALANCED].quantile(0.95)
        numbers[f"share of strings beyond 95 % of the balanced ones, {head}"] = float(
            (found[head][kinds == kind] > usual).double().mean()
        )
    return estimates("head", {head: between(found[head], kinds, kind) for head, kind in pairs}, numbers=numbers)


@torch.no_grad()
def measure_stored(pack: Pack) -> Readings:
    """Push of head 2.0 for a wrong total that is left if it reads position 1 alone, as a share of what it was."""
    seen, kinds = runs(pack), kinds_of(pack)
    stream = seen.activation("blocks.2.hook_resid_pre")
    mean = seen.mean_of(stream).expand_as(stream)
    alone, without = mean.clone(), stream.clone()
    alone[:, FIRST], without[:, FIRST] = stream[:, FIRST], mean[:, FIRST]
    whole = gap(linear_push(pack, seen.written(2, 0)[:, 0]), kinds, TOTAL_ONLY)
    found = []
    for one in (alone, without):
        kept: dict[str, Tensor] = {}
        edits = seen.head_inputs(2, 0, one, parts="kv")

        def keep(value: Tensor, kept: dict[str, Tensor] = kept) -> Tensor:
            kept["z"] = value
            return value

        seen.logits({**edits, "blocks.2.attn.hook_z": keep})
        written = kept["z"][:, 0, 0] @ pack.weight("blocks.2.attn.W_O")[0]
        found.append(linear_push(pack, written) / whole)
    numbers = {"left without position 1": gap(found[1], kinds, TOTAL_ONLY)}
    return estimate(between(found[0], kinds, TOTAL_ONLY), numbers=numbers)


def measure_input(pack: Pack, part: str, *, opened: bool = False) -> Readings:
    """By how much a part at position 1 separates strings through head 2.0, as a share of all earlier parts.

    Args:
        pack: The model.
        part: The part.
        opened: Only strings that begin with an opening bracket.
    """
    chosen = pack.task.inputs[:, FIRST] == OPENING if opened else torch.ones(len(pack.task.inputs), dtype=torch.bool)
    found, kinds = {name: one[chosen] for name, one in pushes_through(pack, 0).items()}, kinds_of(pack)[chosen]
    whole = sum(gap(one, kinds) for one in found.values())
    shares = {name: gap(one, kinds) / whole for name, one in found.items()}
    numbers = {"more than every other": shares[part] - max(one for name, one in shares.items() if name != part)}
    every = pd.DataFrame({"part": list(shares), "share": list(shares.values())})
    return estimate(between(found[part] / whole, kinds), numbers=numbers, tables=[("Share of the separation", every)])


def measure_dips_through(pack: Pack) -> Readings:
    """Push of head 1.1 at position 1 through head 2.0 in strings that only dip, less that with only a wrong total."""
    found, kinds = pushes_through(pack, 0)["1.1"], kinds_of(pack)
    numbers = {"only dips less balanced": gap(found, kinds, DIPS_ONLY)}
    return estimate(difference_of(found[kinds == DIPS_ONLY], found[kinds == TOTAL_ONLY]), numbers=numbers)


def measure_inputs_of_other(pack: Pack) -> Readings:
    """Share of the separation of strings that only dip, through head 2.1, that both MLPs give."""
    found, kinds = pushes_through(pack, 1, None), kinds_of(pack)
    whole = sum(gap(one, kinds, DIPS_ONLY) for one in found.values())
    seen = runs(pack)
    written = written_by(seen, "MLP 0") + written_by(seen, "MLP 1")
    inside, moved = is_bracket(seen.tokens), read_by(pack, 1, written)
    here = linear_push(pack, moved)[inside]
    dips = (elevation(seen.tokens) < 0)[inside]
    numbers = {"AUROC of a dip at the position": float(roc_auc_score(dips.numpy(), here.numpy()))}
    return estimate(between((found["MLP 0"] + found["MLP 1"]) / whole, kinds, DIPS_ONLY), numbers=numbers)


def measure_first_closing(pack: Pack) -> Readings:
    """Share of strings with a closing bracket first that are called unbalanced with head 2.1 at its mean."""
    seen = runs(pack)
    rows = seen.tokens[:, FIRST] == CLOSING
    without = [push(seen.logits(seen.without_head((2, head))))[rows] > 0 for head in (1, 0)]
    numbers = {"with head 2.0 at its mean": float(without[1].double().mean())}
    return estimate(share_of(without[0]), numbers=numbers)


def towers(pairs: Sequence[tuple[int, int]]) -> Int[Tensor, "example pos"]:
    """A)(B for two towers of a and b pairs, padded."""
    rows = []
    for a, b in pairs:
        brackets = [OPENING] * a + [CLOSING] * (a + 1) + [OPENING] * (b + 1) + [CLOSING] * b
        rows.append([START, *brackets, END, *[PADDING] * (LONGEST - len(brackets))])
    return torch.tensor(rows)


def measure_towers(pack: Pack) -> Readings:
    """Probability of balanced for towers of 15 and 4 pairs."""
    pairs = [(15, 4), *((a, 19 - a) for a in range(4, 16))]
    found = Runs(pack, towers(pairs)).logits()[:, 0].softmax(-1)[:, 1]
    numbers = {"other towers of at least 4 called balanced": float((found[1:] > 0.5).double().mean())}
    return number(float(found[0]), n=1, numbers=numbers)
