"""Checks of what was published about the model that tracks the sign of a running sum."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from case_studies.frame.claims import BEFORE_ANY_MODEL, SHARE
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AllOf, AtLeast, Below, Between, Equal, Number
from case_studies.recipes.judges import Row
from published_readings.checks import Check
from published_readings.measures import (
    VALUE,
    correlation_of,
    estimate,
    estimates,
    loss_added,
    mean_of,
    number,
    per_example,
)
from published_readings.packs import Pack
from published_readings.runs import Edit, Runs, runs, shares_right
from published_readings.task import TokenRelation

ZERO = 5
"""The token of the value 0; tokens 0 to 10 are -5 to 5."""
NEGATIVE, STILL, POSITIVE = 0, 1, 2
"""Answers."""
NEAR_MEAN, NEAR_SUM, LATE = 0.5, 2, 10
"""Close to zero are means of at most 0.5 and sums of at most 2; late positions begin at 10."""
RISING, FALLING, IMPORTANT = (0, 1, 3, 4), (2, 7), (2, 7, 4, 3, 0, 1)
"""Neurons said to fire for a positive and for a negative mean, and those that matter, in order."""
USELESS, NEXT_TO_NOTHING, ALIGNED = 0.005, 0.1, 0.9
KINDS: Mapping[str, TokenRelation] = {}


def sums(seen: Runs) -> Int[Tensor, "example pos"]:
    """The running sum."""
    return (seen.tokens - ZERO).cumsum(1)


def means(seen: Runs) -> Float[Tensor, "example pos"]:
    """The running mean."""
    return sums(seen) / torch.arange(1, seen.tokens.shape[1] + 1)


def moved(pack: Pack) -> Float[Tensor, "value d_model"]:
    """What the head writes for each value if it attends to it alone, less the mean over values."""
    weight = pack.weight
    found = weight("W_E") @ weight("blocks.0.attn.W_V")[0] @ weight("blocks.0.attn.W_O")[0]
    return found - found.mean(0)


def direction(pack: Pack) -> Float[Tensor, " d_model"]:
    """u: what the head writes per unit of value, by least squares."""
    values = torch.arange(-ZERO, ZERO + 1).to(moved(pack))
    return values @ moved(pack) / (values @ values)


def of_neurons(pack: Pack) -> Float[Tensor, "neuron answer"]:
    """What each neuron adds to the logits per unit of its activation."""
    return pack.weight("blocks.0.mlp.W_out") @ pack.weight("W_U")


def all_off(seen: Runs) -> dict[str, Edit]:
    """Edits that set the activations of all neurons to zero; the MLP's output bias stays."""
    return seen.without_neurons(0, range(len(of_neurons(seen.pack))))


def fall(pack: Pack) -> tuple[Float[Tensor, "example pos"], Float[Tensor, "example pos"]]:
    """Whether each answer is right, and whether it is with all neurons off, as 0 and 1."""
    seen = runs(pack)
    assert seen.targets is not None
    off = seen.logits(all_off(seen))
    clean, without = ((one.argmax(-1) == seen.targets).double() for one in (seen.logits(), off))
    return clean, without


def measure_algorithm(pack: Pack) -> Readings:
    """Share of right answers if the MLP and the read-out know only the position and the running mean along u."""
    seen, u = runs(pack), direction(pack)
    assert seen.targets is not None
    usual = seen.activation("blocks.0.hook_resid_mid").mean(0)
    mean = means(seen)
    stream = usual + (mean - mean.mean(0))[..., None] * u
    edits = {"blocks.0.hook_resid_mid": lambda value: stream}
    right = [shares_right(seen.logits(one), seen.targets) for one in (edits, edits | all_off(seen))]
    return estimate(mean_of(right[0]), numbers={"fall without the MLP": float((right[0] - right[1]).mean())})


def measure_even(pack: Pack) -> Readings:
    """Largest distance of an attention weight from the even one, mean over examples."""
    pattern = runs(pack).pattern(0, 0)
    even = torch.ones_like(pattern[0]).tril()
    return estimate(mean_of((pattern - even / even.sum(-1, keepdim=True)).abs().amax((1, 2))))


def measure_zero_weights(pack: Pack) -> Readings:
    """Largest query or key weight as a share of the largest value or output weight."""
    largest = [float(pack.weight(f"blocks.0.attn.W_{part}").abs().max()) for part in "QKVO"]
    count = sum(pack.weight(f"blocks.0.attn.W_{part}").numel() for part in "QK")
    numbers = {"largest query or key weight": max(largest[:2])}
    return number(max(largest[:2]) / max(largest[2:]), n=count, numbers=numbers)


def measure_one_dimension(pack: Pack) -> Readings:
    """Second singular value of what the head moves, as a share of the first."""
    rows = moved(pack)
    size = torch.linalg.svdvals(rows)
    values = torch.arange(-ZERO, ZERO + 1).to(rows)
    fit = 1 - (rows - values[:, None] * direction(pack)).square().sum() / rows.square().sum()
    numbers = {"explained by value times u": float(fit)}
    return number(float(size[1] / size[0]), n=len(rows), numbers=numbers)


def measure_mean_along_u(pack: Pack) -> Readings:
    """Correlation of the stream along u with the running mean at the last position."""
    seen, u = runs(pack), direction(pack)
    along = seen.activation("blocks.0.hook_resid_mid") @ u / (u @ u)
    mean = means(seen).to(along)
    centred, of_mean = along - along.mean(0), mean - mean.mean(0)
    slope = (centred * of_mean).sum() / of_mean.square().sum()
    each = [float(torch.corrcoef(torch.stack([along[:, at], mean[:, at]]))[0, 1]) for at in range(mean.shape[1])]
    numbers = {"stream per unit of the mean": float(slope), "lowest correlation at a position": min(each)}
    return estimate(correlation_of(along[:, -1], mean[:, -1]), numbers=numbers)


def cosines(pack: Pack) -> dict[str, float]:
    """Cosines of the read-out directions with u and with each other."""
    read, u = pack.weight("W_U").T, direction(pack)
    pairs = {
        "positive and u": (read[POSITIVE], u), "negative and u": (read[NEGATIVE], u),
        "positive and negative": (read[POSITIVE], read[NEGATIVE]),
        "positive and zero": (read[POSITIVE], read[STILL]), "negative and zero": (read[NEGATIVE], read[STILL]),
    }  # fmt: skip
    return {name: float(F.cosine_similarity(a, b, dim=0)) for name, (a, b) in pairs.items()}


def measure_read_out(pack: Pack) -> Readings:
    """The weakest of three cosines, those said to be opposite with the opposite sign."""
    found = cosines(pack)
    weakest = min(found["positive and u"], -found["negative and u"], -found["positive and negative"])
    return number(weakest, n=3, numbers=found)


def measure_zero_read_out(pack: Pack) -> Readings:
    """The higher cosine of the zero read-out with another."""
    found = cosines(pack)
    pair = found["positive and zero"], found["negative and zero"]
    return number(max(pair), n=2, numbers={"lower": min(pair), **found})


def measure_mlp(pack: Pack) -> Readings:
    """Loss added with all neurons off; and accuracy lost at means near zero and elsewhere."""
    seen, (clean, without) = runs(pack), fall(pack)
    near = means(seen).abs() <= NEAR_MEAN
    lost = [float(per_example(clean - without, at).mean()) for at in (near, ~near)]
    numbers = {"accuracy lost near zero less that elsewhere": lost[0] - lost[1], "accuracy lost near zero": lost[0]}
    return estimate(mean_of(loss_added(seen, all_off(seen))), numbers=numbers)


def measure_leans(pack: Pack) -> Readings:
    """Accuracy with all neurons off where the answer is zero, and rise of the share of answers that are zero."""
    seen, (_, without) = runs(pack), fall(pack)
    assert seen.targets is not None
    off = seen.logits(all_off(seen))
    called = [float((one.argmax(-1) == STILL).double().mean()) for one in (off, seen.logits())]
    numbers = {"more often called zero": called[0] - called[1]}
    return estimate(mean_of(per_example(without, seen.targets == STILL)), numbers=numbers)


def measure_fires(pack: Pack, neurons: Sequence[int], sign: int) -> Readings:
    """Activation of each neuron at means of one sign less that at the other."""
    seen, adds = runs(pack), of_neurons(pack)
    active, mean = seen.activation("blocks.0.mlp.hook_post"), sign * means(seen)
    both = (mean > 0).any(1) & (mean < 0).any(1)
    found = {}
    for neuron in neurons:
        of_neuron = active[both][..., neuron]
        found[neuron] = mean_of(per_example(of_neuron, mean[both] > 0) - per_example(of_neuron, mean[both] < 0))
    own, other = (POSITIVE, NEGATIVE) if sign > 0 else (NEGATIVE, POSITIVE)
    numbers = {
        "least added to its own answer": float(adds[list(neurons), own].min()),
        "most added to the opposite": float(adds[list(neurons), other].max()),
    }
    return estimates("neuron", found, numbers=numbers)


def measure_useless(pack: Pack) -> Readings:
    """Loss added with neuron 5 off, and with neuron 6 off."""
    return estimates("neuron", {neuron: mean_of(loss_without(pack, neuron)) for neuron in (5, 6)})


def loss_without(pack: Pack, neuron: int) -> Float[Tensor, " example"]:
    """Loss added with a neuron off."""
    seen = runs(pack)
    return loss_added(seen, seen.without_neurons(0, [neuron]))


def measure_useful(pack: Pack) -> Readings:
    """Loss added with each neuron off."""
    every = [loss_without(pack, neuron) for neuron in range(len(of_neurons(pack)))]
    mean = [float(one.mean()) for one in every]
    order = sorted(range(len(mean)), key=lambda neuron: -mean[neuron])
    numbers = {
        "that of the next as a share of it": max(one for at, one in enumerate(mean) if at != 2) / max(mean[2], 1e-9),
        "order as published": tuple(order[: len(IMPORTANT)]) == IMPORTANT,
    }
    return estimates("neuron", {at: mean_of(one) for at, one in enumerate(every)}, numbers=numbers)


def measure_raises_zero(pack: Pack) -> Readings:
    """What the six neurons add to the logit of zero: the least."""
    adds = of_neurons(pack)[list(IMPORTANT)]
    share = float((adds[:, STILL].abs() / adds[:, [NEGATIVE, POSITIVE]].abs().amax(1)).max())
    numbers = {"highest share of its largest effect": share}
    return number(float(adds[:, STILL].min()), n=len(IMPORTANT), numbers=numbers)


def measure_hardest(pack: Pack) -> Readings:
    """Loss at late positions with a sum close to zero, less that of the next hardest of four groups, in the sequences
    that have both."""
    seen = runs(pack)
    assert seen.targets is not None
    loss = F.cross_entropy(seen.logits().transpose(1, 2), seen.targets, reduction="none").double()
    late, near = (torch.arange(loss.shape[1]) >= LATE).expand_as(loss), sums(seen).abs() <= NEAR_SUM
    groups = {"late, near": late & near, "late, far": late & ~near, "early, near": ~late & near,
              "early, far": ~late & ~near}  # fmt: skip
    found = {name: float(per_example(loss, at).mean()) for name, at in groups.items()}
    first, *others = groups
    pair = groups[first], groups[max(others, key=found.__getitem__)]
    both = pair[0].any(1) & pair[1].any(1)
    one, other = (per_example(loss[both], at[both]) for at in pair)
    return estimate(mean_of(one - other), numbers={f"loss, {name}": value for name, value in found.items()})


LOWEST = Row(VALUE, extreme="smallest", unit="examples")

CHECKS: dict[str, Check] = {
    "cu01": Check(
        statement="The head averages the tokens along one direction, and positive and negative are read along it; the "
        "MLP sharpens the decision near zero.",
        method="Share of right answers if the stream after the head has its mean at each position but for the running "
        "mean along this direction; and its fall with all neurons off",
        rule=AllOf(AtLeast(ALIGNED), Number("fall without the MLP", Above(0))),
        quantity="share of right answers", value_range=SHARE, measure=measure_algorithm,
    ),
    "cu02": Check(
        statement="The head attends evenly to all tokens up to its own.",
        method="Largest distance of an attention weight from the even one, mean over examples",
        rule=Below(0.01), quantity="largest distance", value_range=SHARE, measure=measure_even,
    ),
    "cu03": Check(
        statement="Attention is even because query and key weights are zero.",
        method="Largest query or key weight as a share of the largest value or output weight",
        rule=Below(0.01), quantity="share of the largest weight", measure=measure_zero_weights,
        judged=Row(VALUE, unit="weights", exact=True),
    ),
    "cu04": Check(
        statement="What the head moves is one-dimensional and proportional to the value.",
        method="Second singular value of what it writes for the eleven values, as a share of the first; and share of "
               "the "
        "variance that value times one vector explains",
        rule=AllOf(Below(NEXT_TO_NOTHING), Number("explained by value times u", Above(0.95))),
        quantity="share of the first singular value", value_range=SHARE, measure=measure_one_dimension,
        judged=Row(VALUE, unit="values", exact=True),
    ),
    "cu05": Check(
        statement="After the head the stream along that direction is the running mean.",
        method="Correlation at the last position; and stream per unit of the mean over all positions, one within a "
               "tenth",
        rule=AllOf(Above(0.95), Number("stream per unit of the mean", Between(0.9, 1.1))),
        quantity="correlation", measure=measure_mean_along_u,
    ),
    "cu06": Check(
        statement="Positive is read along that direction, negative against it.",
        method="Lowest cosine of positive with it, negative with its opposite, and positive with the opposite of "
               "negative",
        rule=Above(ALIGNED), quantity="lowest cosine", reported="0.970, 0.958, 0.949", measure=measure_read_out,
        judged=Row(VALUE, unit="cosines", exact=True),
    ),
    "cu07": Check(
        statement="The read-out of zero is slightly opposed to both others.",
        method="Higher cosine of the read-out of zero with another; small is above -0.3 for both",
        rule=AllOf(Below(0), Number("lower", Above(-0.3))),
        quantity="higher cosine", reported="-0.190, -0.128", measure=measure_zero_read_out,
        judged=Row(VALUE, unit="cosines", exact=True),
    ),
    "cu08": Check(
        statement="The MLP is needed where the mean is near zero.",
        method="Loss added with all neurons off, in nats, at least half of the reported 0.463; and accuracy lost at "
               "means "
        "of at most 0.5 less that at others",
        rule=AllOf(AtLeast((0.536 - 0.073) / 2), Number("accuracy lost near zero less that elsewhere", Above(0))),
        quantity="loss added", reported="0.073 to 0.536", measure=measure_mlp,
    ),
    "cu09": Check(
        statement="Without the MLP the model leans to zero, and still does well where the answer is zero.",
        method="Accuracy with all neurons off where the answer is zero; and rise of the share of positions called zero",
        rule=AllOf(AtLeast(ALIGNED), Number("more often called zero", Above(0))),
        quantity="accuracy", value_range=SHARE, measure=measure_leans,
    ),
    "cu10": Check(
        statement="Neurons 0, 1, 3 and 4 fire for a positive mean, raise positive and lower negative.",
        method="Activation at positive less that at negative means, the neuron for which it is lowest; and what the "
        "neurons add to both logits",
        rule=AllOf(
            Above(0), Number("least added to its own answer", Above(0)), Number("most added to the opposite", Below(0))
        ),
        quantity="difference of activations", measure=lambda pack: measure_fires(pack, RISING, 1),
        judged=LOWEST,
    ),
    "cu11": Check(
        statement="Neurons 2 and 7 fire for a negative mean, raise negative and lower positive.",
        method="Activation at negative less that at positive means, the neuron for which it is lowest; and what the "
        "neurons add to both logits",
        rule=AllOf(
            Above(0), Number("least added to its own answer", Above(0)), Number("most added to the opposite", Below(0))
        ),
        quantity="difference of activations", measure=lambda pack: measure_fires(pack, FALLING, -1),
        judged=LOWEST,
    ),
    "cu12": Check(
        statement="Neurons 5 and 6 are almost useless.",
        method="Loss added with one of them off, in nats: the higher",
        rule=Below(USELESS), quantity="loss added", reported="0.0002, 0.0000", measure=measure_useless,
    ),
    "cu13": Check(
        statement="Neuron 2 is by far the most useful, then 7, 4, 3, 0, 1.",
        method="Loss added with neuron 2 off, in nats, at least half of the reported 0.0951; the next one's at most "
               "three "
        "quarters of it; and the order",
        rule=AllOf(
            AtLeast(0.0951 / 2), Number("that of the next as a share of it", Below(0.75)),
            Number("order as published", Equal(True)),
        ),
        quantity="loss added", reported="0.0951, 0.0465, 0.0311, 0.0200, 0.0185, 0.0163", measure=measure_useful,
        judged=Row(VALUE, where={"neuron": 2}, unit="examples"),
    ),
    "cu14": Check(
        statement="All important neurons raise zero slightly when they fire.",
        method="What each of the six adds to the logit of zero per unit, the least; slightly is less than a tenth of "
               "its "
        "largest effect",
        rule=AllOf(Above(0), Number("highest share of its largest effect", Below(NEXT_TO_NOTHING))),
        quantity="least added to zero", measure=measure_raises_zero,
        judged=Row(VALUE, unit="neurons", exact=True),
    ),
    "cu15": Check(
        statement="Hardest are long sequences whose sum ends close to zero.",
        method="Loss at positions from 10 on with a sum of at most 2, in nats, less that of the hardest of the other "
        "groups (early or late, close to zero or not), mean over the sequences that have both",
        rule=Above(0), quantity="difference of losses", preregistration=BEFORE_ANY_MODEL, measure=measure_hardest,
    ),
}  # fmt: skip
