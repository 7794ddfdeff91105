"""Where head 0.0 of the bracket classifier looks, and what its neurons detect."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from case_studies.frame.judge import Readings
from published_readings.brackets_parts import (
    CLOSING,
    FIRST,
    LONGEST,
    OPENING,
    is_bracket,
    pushes_through,
    share_opening,
)
from published_readings.measures import correlation_of, difference_of, estimate, estimates, mean_of, number
from published_readings.packs import Pack
from published_readings.runs import runs

HALF = 0.5
ABOVE, BELOW = 1, -1


def side_of_half(pack: Pack) -> Int[Tensor, " example"]:
    """Whether more than half of a string's brackets are opening ones (1), half (0) or less (-1)."""
    return (share_opening(pack.task.inputs) - HALF).sign().long()


def activations(pack: Pack, layer: int) -> Float[Tensor, "example neuron"]:
    """Neurons at position 1."""
    return runs(pack).activation(f"blocks.{layer}.mlp.hook_post")[:, FIRST]


def detectors(pack: Pack, layer: int, side: int) -> list[int]:
    """Neurons that fire at least twice as much on one side of one half as otherwise, and not next to nothing."""
    active, at = activations(pack, layer), side_of_half(pack) == side
    there, elsewhere = active[at].mean(0), active[~at].mean(0)
    return torch.nonzero((elsewhere < there / 2) & (there > there.max() / 10))[:, 0].tolist()


def measure_detects(pack: Pack, layer: int, neurons: Sequence[int], side: int) -> Readings:
    """Activation of each neuron on one side of one half less that otherwise."""
    active, at = activations(pack, layer), side_of_half(pack) == side
    found = {one: difference_of(active[at, one], active[~at, one]) for one in neurons}
    shares = [float(active[~at, one].mean() / active[at, one].mean().clamp_min(1e-9)) for one in neurons]
    other = 1 - layer
    numbers = {
        "highest share of it otherwise": max(shares),
        "such neurons": len(detectors(pack, layer, side)),
        "more of them in the other layer": len(detectors(pack, other, side)) - len(detectors(pack, layer, side)),
        "fewer than for the other side": len(detectors(pack, layer, -side)) - len(detectors(pack, layer, side)),
    }
    return estimates("neuron", found, numbers=numbers)


def neuron_pushes(pack: Pack, layer: int) -> Float[Tensor, "example neuron"]:
    """What each neuron at position 1 pushes to unbalanced through the values of head 2.0, norms unscaled."""
    written, name = pack.weight(f"blocks.{layer}.mlp.W_out"), "blocks.2.attn.W_"
    read = (written - written.mean(-1, keepdim=True)) * pack.weight("blocks.2.ln1.w")
    moved = read @ pack.weight(name + "V")[0] @ pack.weight(name + "O")[0]
    read_out = pack.weight("W_U")[:, 0] - pack.weight("W_U")[:, 1]
    each = (moved - moved.mean(-1, keepdim=True)) * pack.weight("ln_final.w") @ read_out
    return activations(pack, layer) * each


def measure_departures(pack: Pack, layer: int, neurons: Sequence[int]) -> Readings:
    """Push of each neuron to unbalanced above and below one half, less that at one half."""
    active, side = neuron_pushes(pack, layer), side_of_half(pack)
    found = {}
    for neuron in neurons:
        for way, words in ((ABOVE, "above"), (BELOW, "below")):
            rise = difference_of(active[side == way, neuron], active[side == 0, neuron])
            found[f"{neuron}, {words} one half"] = rise
    return estimates("neuron", found)


def measure_kink(pack: Pack) -> Readings:
    """Correlation of each MLP's push at position 1 through head 2.0 with the distance of the share from one half."""
    found, share = pushes_through(pack, 0), share_opening(pack.task.inputs)
    distance = (share - HALF).abs()

    def with_it(part: str, value: Float[Tensor, " example"]) -> float:
        return float(torch.corrcoef(torch.stack([found[part], value]))[0, 1])

    both = ("MLP 0", "MLP 1")
    more = min(with_it(part, distance) - abs(with_it(part, share)) for part in both)
    correlations = {part: correlation_of(distance, found[part]) for part in both}
    return estimates("part", correlations, numbers={"more than with the share itself": more})


def before_and_after(pack: Pack, token: int) -> tuple[Float[Tensor, " example"], Float[Tensor, " example"]]:
    """Weight of head 0.0 per key before a bracket of this kind as a share of that per key after it; and how the
    weights after it vary, as a share of their mean. Means over the brackets of each string with brackets between two
    others."""
    seen = runs(pack)
    pattern, real = seen.pattern(0, 0), is_bracket(seen.tokens)
    after = torch.ones_like(pattern[0], dtype=torch.bool).triu(1) & real[:, None]
    before = torch.ones_like(pattern[0], dtype=torch.bool).tril(-1) & real[:, None]
    # a bracket with at least two brackets on either side
    queries = (seen.tokens == token) & (after.sum(-1) > 1) & (before.sum(-1) > 1)
    mean_after, mean_before = ((pattern * one).sum(-1) / one.sum(-1).clamp_min(1) for one in (after, before))
    spread = (((pattern - mean_after[..., None]) * after).square().sum(-1) / after.sum(-1).clamp_min(1)).sqrt()
    some = queries.any(1)

    def over(values: Tensor) -> Tensor:
        return ((values * queries).sum(1) / queries.sum(1).clamp_min(1))[some]

    return over(mean_before) / over(mean_after), over(spread) / over(mean_after)


def measure_after(pack: Pack, token: int = OPENING) -> Readings:
    """Weight per key before a bracket as a share of that after it."""
    ratio, varies = before_and_after(pack, token)
    other = before_and_after(pack, CLOSING if token == OPENING else OPENING)[0]
    numbers = {
        "variation of the keys after": float(varies.mean()),
        "less that of the other bracket": float(ratio.mean() - other.mean()),
    }
    return estimate(mean_of(ratio), numbers=numbers)


def opened(pack: Pack) -> Bool[Tensor, " example"]:
    """Strings that begin with an opening bracket."""
    return pack.task.inputs[:, FIRST] == OPENING


def measure_first_reads(pack: Pack) -> Readings:
    """Weight of head 2.0 from the start token on position 1; highest mean weight on another position."""
    weight = runs(pack).pattern(2, 0)[opened(pack), 0]
    mean = runs(pack).mean_of(runs(pack).pattern(2, 0)[:, 0])
    others = torch.cat([weight[:, :FIRST], weight[:, FIRST + 1 :]], 1).mean(0)
    numbers = {"highest on another position": float(others.max()), "all strings": float(mean[FIRST])}
    return estimate(mean_of(weight[:, FIRST]), numbers=numbers)


def measure_even(pack: Pack) -> Readings:
    """Distance of head 0.0's weights from even ones, from an opening bracket at position 1: mean over tokens."""
    seen, rows = runs(pack), opened(pack)
    real, weight = seen.real[rows].double(), seen.pattern(0, 0)[rows, FIRST].double()
    count = real.sum(1, keepdim=True)
    return estimate(mean_of(((weight * count - 1).abs() * real).sum(1) / count[:, 0]))


def measure_uneven(pack: Pack) -> Readings:
    """Weight per key on positions 38 to 40 from opening brackets at 27 to 31, by that on the other later brackets."""
    seen = runs(pack)
    full = is_bracket(seen.tokens)[:, LONGEST]
    found = []
    for query in range(27, 32):
        weight = seen.pattern(0, 0)[:, query]
        last, others = weight[:, 38:41].mean(1), weight[:, query + 1 : 38].mean(1)
        found.append(torch.where(full & (seen.tokens[:, query] == OPENING), last / others, torch.nan))
    ratio = torch.stack(found, 1).nanmean(1)
    return estimate(mean_of(ratio[ratio.isfinite()]))


def bracket_writes(pack: Pack, head: int) -> Float[Tensor, "token d_model"]:
    """What a head of layer 0 writes for an opening and a closing bracket, without the norm's scale."""
    rows = pack.weight("W_E")[[OPENING, CLOSING]]
    read = (rows - rows.mean(-1, keepdim=True)) * pack.weight("blocks.0.ln1.w")
    return read @ pack.weight("blocks.0.attn.W_V")[head] @ pack.weight("blocks.0.attn.W_O")[head]


def measure_opposite(pack: Pack) -> Readings:
    """Cosine of what head 0.0 writes for the two brackets."""
    found = [float(torch.cosine_similarity(*bracket_writes(pack, head), dim=0)) for head in (0, 1)]
    return number(found[0], n=2, numbers={"head 0.1": found[1]})


def measure_aligned(pack: Pack) -> Readings:
    """Squared cosine of a layer's input directions with the bracket direction of head 0.0, times d_model (1 by
    chance)."""
    opening, closing = bracket_writes(pack, 0)
    found = {}
    for layer in (0, 1):
        w_in = pack.weight(f"blocks.{layer}.mlp.W_in") * pack.weight(f"blocks.{layer}.ln2.w")[:, None]
        direction = (opening - closing)[:, None]
        cosine = torch.cosine_similarity(w_in - w_in.mean(0), direction - direction.mean(), dim=0)
        found[layer] = mean_of(cosine.square() * len(direction))
    return estimates("layer", found)
