"""Checks of what was published about the model that sorts ten numbers."""

from collections.abc import Mapping
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from case_studies.frame.claims import SHARE
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AllOf, AtLeast, Below, Equal, Number
from case_studies.recipes.judges import Row
from published_readings.checks import Check
from published_readings.measures import VALUE, estimate, estimates, loss_added, mean_of, number, share_of
from published_readings.packs import Pack
from published_readings.runs import Runs, runs, shares_right
from published_readings.task import TokenRelation

NUMBERS, SEPARATOR = 51, 51
"""Numbers are the tokens 0 to 50."""
OWN = range(28, 38)
"""Values that head 0.0 is said to cover."""
LARGE_SIZES = 35
LIST, SORTED = slice(0, 10), slice(11, 21)
ANSWERED = slice(10, 20)
"""Positions at which the next number is predicted."""
N = 1000
"""Number of lists of each constructed kind."""
MOST, NEXT_TO_NOTHING = 0.5, 0.1


def smallest_larger(tokens: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch query key"]:
    """For each token from the separator on, the smallest entry of the list that is larger than it; for the separator
    the smallest of all."""
    entries, related = tokens[:, None, LIST], torch.zeros(*tokens.shape, tokens.shape[1], dtype=torch.bool)
    query = torch.where(tokens == SEPARATOR, -1, tokens)[:, ANSWERED, None]
    larger = torch.where(entries > query, entries, NUMBERS)
    least = larger.min(-1, keepdim=True).values
    related[:, ANSWERED, LIST] = (larger == least) & (least < NUMBERS)
    return related


KINDS: Mapping[str, TokenRelation] = {"smallest larger": smallest_larger}


def written_out(entries: Int[Tensor, "example 10"], *, generator: torch.Generator) -> Int[Tensor, "example 21"]:
    """These lists in random order, the separator, and the lists in order."""
    order = torch.rand(entries.shape, generator=generator).argsort(-1)
    separator = torch.full((len(entries), 1), SEPARATOR)
    return torch.cat([entries.gather(1, order), separator, entries.sort(-1).values], 1)


def on_lists(pack: Pack, entries: Int[Tensor, "example 10"], *, generator: torch.Generator) -> Runs:
    """The model on these lists in random order."""
    tokens = written_out(entries, generator=generator)
    return Runs(pack, tokens, tokens[:, SORTED])


def drawn(n: int, low: int, *, count: int = 10, generator: torch.Generator) -> Int[Tensor, "example count"]:
    """Distinct numbers from `low` to 50."""
    return low + torch.rand(n, NUMBERS - low, generator=generator).argsort(-1)[:, :count]


def embedded(pack: Pack, name: str = "W_E") -> Float[Tensor, "row d_model"]:
    """Embeddings as layer 0 reads them but for the norm's scale."""
    rows = pack.weight(name)
    return (rows - rows.mean(-1, keepdim=True)) * pack.weight("blocks.0.ln1.w")


def as_logits(pack: Pack, written: Float[Tensor, "row d_model"]) -> Float[Tensor, "row number"]:
    """What these vectors add to the logits of the numbers, less their mean; without the last norm's scale."""
    found = (written - written.mean(-1, keepdim=True)) * pack.weight("ln_final.w")
    logits = (found @ pack.weight("W_U"))[:, :NUMBERS]
    return logits - logits.mean(-1, keepdim=True)


def copied(pack: Pack, head: int) -> Float[Tensor, "attended number"]:
    """What attending to each number adds to the logits."""
    w_v, w_o = (pack.weight(f"blocks.0.attn.W_{part}")[head] for part in "VO")
    return as_logits(pack, embedded(pack)[:NUMBERS] @ w_v @ w_o)


def scores(pack: Pack, head: int, queries: str = "W_E") -> Float[Tensor, "query number"]:
    """Attention scores from embeddings, of tokens or of positions, to the embeddings of numbers; without biases."""
    w_q, w_k = (pack.weight(f"blocks.0.attn.W_{part}")[head] for part in "QK")
    return (embedded(pack, queries) @ w_q) @ (embedded(pack)[:NUMBERS] @ w_k).T


def own_range(head: int) -> Int[Tensor, " value"]:
    """Values that a head is said to copy."""
    inside = list(OWN)
    return torch.tensor(inside if head == 0 else [value for value in range(NUMBERS) if value not in OWN])


def attending(related: Bool[Tensor, "example query key"]):
    """An edit that gives both heads all attention on these keys, for queries that have one."""

    def edit(pattern: Tensor) -> Tensor:
        given = related.to(pattern) / related.sum(-1, keepdim=True).clamp_min(1)
        return torch.where(related.any(-1)[:, None, :, None], given[:, None], pattern)

    return edit


def measure_algorithm(pack: Pack) -> Readings:
    """Share of right answers if both heads attend to the smallest larger entry alone; and whether answers follow."""
    seen = runs(pack)
    assert seen.targets is not None
    name = "blocks.0.attn.hook_pattern"
    right = shares_right(seen.logits({name: attending(smallest_larger(seen.tokens))}), seen.targets)
    key = torch.randint(10, (len(seen.tokens), 10), generator=torch.Generator().manual_seed(0))
    moved = torch.zeros(*seen.tokens.shape, seen.tokens.shape[1], dtype=torch.bool)
    moved[:, ANSWERED] = torch.nn.functional.one_hot(key, seen.tokens.shape[1]).bool()
    followed = shares_right(seen.logits({name: attending(moved)}), seen.tokens.gather(1, key))
    return estimate(mean_of(right), numbers={"answers that follow another entry": float(followed.mean())})


def measure_loss(pack: Pack, *, head: int) -> Readings:
    """Loss added if a head's output is replaced by its mean, and the same for the other head."""
    seen = runs(pack)
    one, other = (loss_added(seen, seen.without_head((0, at))) for at in (head, 1 - head))
    return estimate(mean_of(one), numbers={"more than the other head": float(one.mean() - other.mean())})


def measure_copies(pack: Pack, *, head: int) -> Readings:
    """Share of a head's values whose own logit is raised, and of the others."""
    raised = copied(pack, head).diag() > 0
    inside, outside = (raised[own_range(at)].double().mean() for at in (head, 1 - head))
    return number(float(inside), n=len(own_range(head)), numbers={"of the other values": float(outside)})


def measure_opposes(pack: Pack) -> Readings:
    """Share of the values outside head 0.0's range whose own logit it lowers, and of those inside for head 0.1."""
    lowered = [copied(pack, head).diag() < 0 for head in (0, 1)]
    numbers = {"head 0.1 inside the range": float(lowered[1][own_range(0)].double().mean())}
    return number(float(lowered[0][own_range(1)].double().mean()), n=41, numbers=numbers)


def measure_separator(pack: Pack) -> Readings:
    """Share of lists whose smallest entry has most attention from the separator, in each head."""
    seen = runs(pack)
    smallest = seen.tokens[:, LIST].argmin(-1)
    found = {f"0.{head}": share_of(seen.pattern(0, head)[:, 10].argmax(-1) == smallest) for head in (0, 1)}
    numbers = {
        f"attention in head 0.{head}": float(seen.pattern(0, head)[:, 10].gather(1, smallest[:, None]).mean())
        for head in (0, 1)
    }
    return estimates("head", found, numbers=numbers)


def measure_next(pack: Pack) -> Readings:
    """Share of sorted tokens whose smallest larger entry has most attention in at least one head."""
    seen = runs(pack)
    related, at = smallest_larger(seen.tokens)[:, 11:20], slice(11, 20)
    hits = [related.gather(2, seen.pattern(0, head)[:, at].argmax(-1)[..., None])[..., 0].double() for head in (0, 1)]
    numbers = {f"head 0.{head} alone": float(one.mean()) for head, one in enumerate(hits)}
    return estimate(mean_of(torch.maximum(*hits).mean(1)), numbers=numbers)


def measure_skips(pack: Pack) -> Readings:
    """Share of values from which head 0.1 scores some value two to four above higher than the next one."""
    found = scores(pack, 1)
    values = range(NUMBERS - 4)
    skips = [bool(found[value, value + 2 : value + 5].max() > found[value, value + 1]) for value in values]
    top = found[25].topk(2).indices.tolist()
    numbers = {"28 and 29 are highest from 25": set(top) == {28, 29}}
    return number(sum(skips) / len(values), n=len(values), numbers=numbers)


def measure_neighbours(pack: Pack) -> Readings:
    """The weakest of the mean effects on the two values below (raised) and above (lowered), over both heads."""
    found, wins = {}, []
    for head in (0, 1):
        effect = copied(pack, head)
        values = [int(one) for one in own_range(head) if 2 <= one < NUMBERS - 2]
        for offset in (-2, -1, 1, 2):
            raised = torch.stack([effect[value, value + offset] for value in values]).mean()
            found[f"head 0.{head}, {offset:+d}"] = float(raised)
        for low, high in ((value, value + 1) for value in values if value + 1 in values):
            both = 0.45 * effect[low] + 0.55 * effect[high]
            wins.append(bool(both[low] > both[high]))
    signed = [value if "-" in name.split(", ")[1] else -value for name, value in found.items()]
    numbers = {"the lower wins with 0.45 of the attention": sum(wins) / max(1, len(wins)), **found}
    return number(min(signed), n=NUMBERS, numbers=numbers)


def measure_direct_path(pack: Pack) -> Readings:
    """Share of right answers after d in lists with d, d + 1 and d + 2, the direct path at its mean."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randint(NUMBERS - 2, (N, 1), generator=generator)
    run = start + torch.arange(3)
    others = torch.rand(N, NUMBERS, generator=generator).scatter(1, run, 2.0).argsort(-1)[:, :7]
    seen = on_lists(pack, torch.cat([run, others], 1), generator=generator)
    mean = runs(pack).activation("blocks.0.hook_resid_pre").mean(0)
    attention = seen.activation("blocks.0.hook_attn_out")
    assert seen.targets is not None
    after = seen.tokens[:, ANSWERED] == start
    right = [
        (seen.logits(edits).argmax(-1) == seen.targets)[after]
        for edits in ({"blocks.0.hook_resid_post": lambda value: attention + mean}, None)
    ]
    direct = as_logits(pack, pack.weight("W_E")[:NUMBERS])
    rows = torch.arange(NUMBERS - 2)
    numbers = {
        "d + 1 less d + 2": float((direct[rows, rows + 1] - direct[rows, rows + 2]).mean()),
        "with the direct path": float(right[1].double().mean()),
    }
    return estimate(share_of(right[0]), numbers=numbers)


def measure_large(pack: Pack) -> Readings:
    """Share of values above 35, both heads, whose highest-scoring key by tokens alone is at most 5."""
    top = torch.cat([scores(pack, head)[LARGE_SIZES + 1 : NUMBERS].argmax(-1) for head in (0, 1)])
    late = [scores(pack, head, "W_pos")[16:20] for head in (0, 1)]
    against = min(float(one[:, LARGE_SIZES + 1 :].mean() - one[:, :6].mean()) for one in late)
    return number(float((top <= 5).double().mean()), n=len(top),
                  numbers={"late positions' preference for large keys": against})  # fmt: skip


def measure_high_lists(pack: Pack) -> Readings:
    """Share of lists from 30 to 50 whose smallest entry is not the first answer; and of all lists."""
    generator = torch.Generator().manual_seed(0)
    seen = on_lists(pack, drawn(N, 30, generator=generator), generator=generator)
    first = seen.logits()[:, 0].argmax(-1)
    usual = runs(pack)
    wrong = float((usual.logits()[:, 0].argmax(-1) != usual.tokens[:, 11]).double().mean())
    return estimate(share_of(first != seen.tokens[:, 11]), numbers={"of all lists": wrong})


def measure_gaps(pack: Pack) -> Readings:
    """Share of lists with a gap of 30 or more above the smallest entry in which the next one is not predicted."""
    generator = torch.Generator().manual_seed(0)
    least = torch.randint(11, (N, 1), generator=generator)
    # nine of the numbers that are at least 30 above the smallest
    key = torch.rand(N, NUMBERS, generator=generator)
    others = torch.where(torch.arange(NUMBERS) >= least + 30, key, 2.0).argsort(-1)[:, :9]
    seen = on_lists(pack, torch.cat([least, others], 1), generator=generator)
    wrong = seen.logits()[:, 1].argmax(-1) != seen.tokens[:, 12]
    same = seen.tokens == least
    top = [same.gather(1, seen.pattern(0, head)[:, 11].argmax(-1)[:, None])[:, 0] for head in (0, 1)]
    numbers = {"most attention to its own value": float((top[0] | top[1]).double().mean())}
    return estimate(share_of(wrong), numbers=numbers)


OF_LISTS = Row(VALUE, unit="lists")

CHECKS: dict[str, Check] = {
    "so01": Check(
        statement="Each sorted token attends to the smallest list entry larger than itself and copies it; the "
        "separator attends to the smallest entry.",
        method="Share of right answers if both heads attend to that entry alone; and share of answers that follow if "
               "both "
        "attend to a random entry instead",
        rule=AllOf(AtLeast(0.9), Number("answers that follow another entry", Above(MOST))),
        quantity="share of right answers", value_range=SHARE, measure=measure_algorithm,
    ),
    "so02": Check(
        statement="Head 0.1 is the more important head.",
        method="Loss added if the head's output is its mean at each position, in nats; at least half of the reported "
        "4.963, and more than for head 0.0",
        rule=AllOf(AtLeast(4.963 / 2), Number("more than the other head", Above(0))),
        quantity="loss added", reported="4.963", measure=partial(measure_loss, head=1),
    ),
    "so03": Check(
        statement="Head 0.0 matters, but less.",
        method="Loss added if the head's output is its mean at each position, in nats; at least half of the reported "
        "0.920, and less than for head 0.1",
        rule=AllOf(AtLeast(0.92 / 2), Number("more than the other head", Below(0))),
        quantity="loss added", reported="0.920", measure=partial(measure_loss, head=0),
    ),
    "so04": Check(
        statement="Head 0.0 copies the values 28 to 37, roughly, when it attends to them.",
        method="Share of these values whose own logit its value-output circuit raises above the mean of all numbers; "
               "and "
        "share of the other values",
        rule=AllOf(AtLeast(0.9), Number("of the other values", Below(NEXT_TO_NOTHING))),
        quantity="share of values", value_range=SHARE, measure=partial(measure_copies, head=0),
        judged=Row(VALUE, unit="values", exact=True),
    ),
    "so05": Check(
        statement="Head 0.1 copies most values other than 28 to 37.",
        method="Share of these values whose own logit its value-output circuit raises above the mean of all numbers",
        rule=Above(MOST), quantity="share of values", value_range=SHARE, measure=partial(measure_copies, head=1),
        judged=Row(VALUE, unit="values", exact=True),
    ),
    "so06": Check(
        statement="The separator attends to the smallest entry.",
        method="Share of lists in which the smallest entry has most of the separator's attention, in the head in "
               "which it "
        "is lower",
        rule=Above(MOST), quantity="share of lists", value_range=SHARE, measure=measure_separator,
        judged=Row(VALUE, extreme="smallest", unit="lists"),
    ),
    "so07": Check(
        statement="In at least one head a sorted token mostly attends to the smallest entry larger than itself.",
        method="Share of sorted tokens whose most attended key in one of the heads is that entry, mean over lists",
        rule=Above(MOST), quantity="share of tokens", value_range=SHARE, measure=measure_next,
    ),
    "so08": Check(
        statement="Head 0.1 can prefer entries two to four above a value to the next one; from 25, 28 and 29.",
        method="Share of values from which some key two to four above scores higher than the next value, token "
               "embeddings "
        "alone; and whether 28 and 29 score highest from 25",
        rule=AllOf(Above(0), Number("28 and 29 are highest from 25", Equal(True))),
        quantity="share of values", value_range=SHARE, measure=measure_skips,
        judged=Row(VALUE, unit="values", exact=True),
    ),
    "so09": Check(
        statement="Attending to a value raises those a little below and lowers those a little above, so that the lower "
        "of two candidates wins with slightly less attention.",
        method="Mean effect on the logits of the values one and two below, and with the opposite sign above, for each "
        "head over the values that it copies: the lowest; and share of neighbours of which the lower has the higher "
        "logit with 0.45 against 0.55 of the attention",
        rule=AllOf(Above(0), Number("the lower wins with 0.45 of the attention", Above(MOST))),
        quantity="weakest effect, norms unscaled", measure=measure_neighbours,
        judged=Row(VALUE, unit="values", exact=True),
    ),
    "so10": Check(
        statement="Outside its range head 0.0 lowers what it attends to; head 0.1 does not do so inside that range.",
        method="Share of the values outside 28 to 37 whose own logit head 0.0 lowers; and of those inside for head 0.1",
        rule=AllOf(Above(MOST), Number("head 0.1 inside the range", Below(MOST))),
        quantity="share of values", value_range=SHARE, measure=measure_opposes,
        judged=Row(VALUE, unit="values", exact=True),
    ),
    "so11": Check(
        statement="The direct path favors d + 1 over d + 2 after d, but lists with all three stay correct without it.",
        method="Share of lists with d, d + 1 and d + 2 whose answer after d is right with the direct path at its mean; "
        "and mean of its logit of d + 1 less that of d + 2",
        rule=AllOf(AtLeast(0.9), Number("d + 1 less d + 2", Above(0))),
        quantity="share of lists", value_range=SHARE, measure=measure_direct_path,
        judged=OF_LISTS,
    ),
    "so12": Check(
        statement="By tokens alone, values above 35 would attend to very small ones; late positions work against it.",
        method="Share of values above 35, for both heads, whose highest-scoring key is at most 5, token embeddings "
               "alone; "
        "and score of keys above 35 less that of keys up to 5 from the embeddings of positions 16 to 19, lower head",
        rule=AllOf(Above(MOST), Number("late positions' preference for large keys", Above(0))),
        quantity="share of values", value_range=SHARE, measure=measure_large,
        judged=Row(VALUE, unit="values and heads", exact=True),
    ),
    "so13": Check(
        statement="In lists without an entry below about 30 the separator can miss the smallest.",
        method="Share of lists drawn from 30 to 50 whose first answer is wrong; not rarely is above a tenth",
        rule=Above(NEXT_TO_NOTHING), quantity="share of lists", value_range=SHARE, measure=measure_high_lists,
        judged=OF_LISTS,
    ),
    "so14": Check(
        statement="After a large gap the next entry is not predicted: the smaller one attends to its own value.",
        method="Share of lists whose smallest entry is 30 or more below the others in which the second answer is "
               "wrong; "
        "and share in which its most attended key in one of the heads has its own value",
        rule=AllOf(Above(MOST), Number("most attention to its own value", Above(MOST))),
        quantity="share of lists", value_range=SHARE, measure=measure_gaps,
        judged=OF_LISTS,
    ),
}  # fmt: skip
