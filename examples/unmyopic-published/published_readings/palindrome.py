"""Checks of what was published about the palindrome classifier."""

from collections.abc import Mapping
from functools import partial

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from case_studies.frame.claims import BEFORE_ANY_MODEL, DIFFERENCE, SHARE, Preregistration
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AllOf, AtLeast, AtMost, Below, Between, Equal, Number
from case_studies.recipes.judges import Row
from published_readings import palindrome_parts as parts
from published_readings.checks import Check
from published_readings.measures import VALUE, estimate, estimates, loss_added, mean_of, per_example, share_of
from published_readings.packs import Pack
from published_readings.palindrome_parts import LAST, QUERY, SECOND, SEEN
from published_readings.runs import runs, shares_right
from published_readings.task import TokenRelation

CLEAN = 7.489
"""Mean logit of the right answer less that of the wrong one, by the authors."""
USUAL = 7.5
"""The same, as they round it."""
STRONG = 0.7
"""Cosine above which a key is said to line up strongly with a query."""
NEXT_TO_NOTHING, MOST, QUARTER, ALWAYS = 0.1, 0.5, 0.25, 0.95


KINDS: Mapping[str, TokenRelation] = {
    "mirror": parts.mirror,
    "equal mirror else self": parts.mirror_or_self,
    "mismatch": parts.mismatches,
    "last mismatch": parts.last_mismatch,
    "ends": parts.ends,
}


def on_further_inputs(result: str) -> Preregistration:
    """The rule of before, on further sequences since a result on the 2,000 inputs of the pack."""
    return Preregistration(
        "after a result",
        f"{result} on the 2,000 inputs of the pack. The rule is older; {parts.FURTHER:,} other sequences were fixed "
        "after that.",
        looks=1,
    )


def measure_algorithm(pack: Pack) -> Readings:
    """Share of right answers if only the named parts know the sequence."""
    seen, tokens = runs(pack), pack.task.inputs
    assert seen.targets is not None
    last = parts.pairs(pack).tokens[-parts.N :]
    found = [
        float((parts.against(parts.kept_alone(pack, last, patched=one)) > 0).double().mean()) for one in (True, False)
    ]
    alone = shares_right(parts.kept_alone(pack, tokens, patched=False), seen.targets)
    numbers = {"gain at position 20": found[0] - found[1], "without heads 0.1 and 1.1": float(alone.double().mean())}
    return estimate(share_of(shares_right(parts.kept_alone(pack, tokens), seen.targets) > MOST), numbers=numbers)


def measure_mirror(pack: Pack) -> Readings:
    """Two shares of positions: most attention to the mirror image if equal, to itself if not."""
    seen = runs(pack)
    equal, top = parts.matches(seen.tokens), seen.pattern(0, 0)[:, list(SECOND)].argmax(-1)
    at = torch.tensor(SECOND)
    to_mirror, to_self = (top == QUERY - at).double(), (top == at).double()
    shares = {
        "mirror if equal": mean_of(per_example(to_mirror, equal)),
        "itself if not": mean_of(per_example(to_self, ~equal)),
    }
    by_position = pd.DataFrame(
        {
            "position": SECOND,
            "mirror if equal": [float(to_mirror[equal[:, i], i].mean()) for i in range(parts.HALF)],
            "itself if not": [float(to_self[~equal[:, i], i].mean()) for i in range(parts.HALF)],
        }
    )
    return estimates("key", shares, tables=[("Share of tokens with most attention there", by_position)])


def measure_mismatches(pack: Pack) -> Readings:
    """Attention of the end token to all differing positions together, in sequences with any."""
    seen = runs(pack)
    weight, differ = seen.pattern(1, 0)[:, QUERY, list(SECOND)], ~parts.matches(seen.tokens)
    gap = float(per_example(weight, differ).mean() - per_example(weight, ~differ).mean())
    numbers = {"per differing less per equal position": gap}
    return estimate(mean_of((weight * differ).sum(1)[differ.any(1)]), numbers=numbers)


def measure_last(pack: Pack) -> Readings:
    """Attention of head 1.1 from the end token to position 20 if it differs from its mirror image."""
    seen = runs(pack)
    weight, equal = seen.pattern(1, 1)[:, QUERY, LAST], parts.matches(seen.tokens)[:, -1]
    numbers = {"more than if equal": float(weight[~equal].mean() - weight[equal].mean())}
    return estimate(mean_of(weight[~equal]), numbers=numbers)


def measure_rest(pack: Pack) -> Readings:
    """Share of palindromes in which the key that most often has most attention has it."""
    seen = runs(pack)
    weight = seen.pattern(1, 0)[parts.matches(seen.tokens).all(1), QUERY]
    key = int(weight.argmax(-1).mode().values)
    numbers = {"attention to the start token": float(weight[:, 0].mean()), "the key": key}
    return estimate(share_of(weight.argmax(-1) == key), numbers=numbers)


def measure_fall(pack: Pack, *, layer: int, head: int, share: bool = False) -> Readings:
    """Fall of the right less the wrong logit if a head's output is replaced by its mean; as a share of what it was."""
    seen = runs(pack)
    clean = parts.right_less_wrong(seen)
    falls = [clean - parts.right_less_wrong(seen, seen.without_head((layer, head), by=by)) for by in ("mean", "zero")]
    unit = abs(float(clean.mean())) if share else 1.0
    numbers = {"before": float(clean.mean()), "fall by zero": float(falls[1].mean()) / unit}
    return estimate(mean_of(falls[0] / unit), numbers=numbers)


def measure_only_last(pack: Pack, *, layer: int, part: str) -> Readings:
    """Loss added if what head 0.1 writes or head 1.1 reads is replaced by its mean everywhere, and but for 20; on
    sequences other than those of the pack."""
    sequences, name = parts.further_inputs(pack), f"blocks.{layer}.attn.hook_{part}"
    mean = sequences.activation(name).mean(0)
    every = range(sequences.tokens.shape[1])
    spared = [position for position in every if position != LAST]
    added, added_if_spared = (
        loss_added(sequences, {name: parts.held(1, positions, mean)}) for positions in (every, spared)
    )
    rest = float(added_if_spared.mean())
    share = rest / max(abs(float(added.mean())), 1e-9)
    return estimate(mean_of(added), numbers={"loss added if position 20 is spared": rest, "share of it": share})


def measure_reverse(pack: Pack) -> Readings:
    """Share of the sequences whose ends differ in which position 20 attends most to position 1."""
    seen = runs(pack)
    pattern, equal = seen.pattern(0, 1), parts.matches(seen.tokens)
    same = equal[:, -1]
    both = pattern[same, LAST][:, [1, LAST]].mean(0)
    numbers = {"both if equal": float(both.sum()), "lesser of both if equal": float(both.min())}
    for at, name in [(LAST, "20"), (18, "18")]:
        weight, one = pattern[:, at, QUERY - at], equal[:, SECOND.index(at)]
        numbers[f"more on the mirror of {name} if unequal"] = float(weight[~one].mean() - weight[one].mean())
    return estimate(share_of(pattern[~same, LAST].argmax(-1) == 1), numbers=numbers)


def measure_ignored(pack: Pack) -> Readings:
    """Attention of the end token to 17 or 19, equal or not, as a share of that to another differing position."""
    seen = runs(pack)
    pattern, equal = seen.pattern(1, 0)[:, QUERY], parts.matches(seen.tokens)
    usual = float(per_example(pattern[:, list(SEEN)], ~equal[:, parts.index(SEEN)]).mean())
    found = {}
    for at in (17, 19):
        for one, words in ((True, "equal"), (False, "not equal")):
            weight = pattern[equal[:, parts.index([at])[0]] == one, at]
            found[f"{at}, {words}"] = mean_of(weight / usual)
    top = pattern.argmax(-1) == LAST
    last = max(float(top[equal[:, -1] == one].double().mean()) for one in (True, False))
    numbers = {"share with most attention to position 20": last, "attention to another differing position": usual}
    return estimates("position", found, numbers=numbers)


def measure_moves(pack: Pack) -> Readings:
    """Rise of the attention of a changed position to itself, mean over positions other than 17 and 19."""
    equal, copies = parts.of_pairs(parts.pairs(pack).pattern(0, 0))

    def rise(mirror: bool) -> Float[Tensor, " example"]:
        at = [(place, p, QUERY - p if mirror else p) for place, p in enumerate(SECOND) if p not in (17, 19)]
        return torch.stack([copies[place, :, p, key] - equal[:, p, key] for place, p, key in at]).mean(0)

    numbers = {"attention off the mirror": -float(rise(True).mean())}
    return estimate(mean_of(rise(False)), numbers=numbers)


OF_PALINDROMES = Row(VALUE, unit="palindromes")

CHECKS: dict[str, Check] = {
    "pa01": Check(
        statement="Head 0.0 compares each token of the second half with its mirror image and marks mismatches there, "
        "which head 1.0 finds from the end token; heads 0.1 and 1.1 correct them at position 20.",
        method="Share of right answers if all else has its mean: layer 1 reads only what head 0.0 writes at "
               "positions 11 "
        "to 20 and head 0.1 at 20, and head 1.1 reads 20 only. Gain at position 20: share of the sequences that differ "
        "there alone which are found, less that with heads 0.1 and 1.1 at their mean",
        rule=AllOf(AtLeast(0.9), Number("gain at position 20", Above(NEXT_TO_NOTHING))),
        quantity="share of right answers", value_range=SHARE, measure=measure_algorithm,
    ),
    "pa02": Check(
        statement="In head 0.0 a token of the second half attends to its mirror image if they are equal, else usually "
        "to itself.",
        method="Share of tokens, mean over sequences, whose most attended key is the mirror image if the two are "
               "equal, "
        "or the token itself if not; the lower of the two shares",
        rule=Above(MOST), quantity="lower share of tokens", value_range=SHARE, measure=measure_mirror,
        judged=Row(VALUE, extreme="smallest", unit="examples"),
    ),
    "pa03": Check(
        statement="In head 1.0 the end token attends to tokens of the second half that differ from their mirror image.",
        method="Attention of the end token to all such tokens together, mean over the sequences with any, and per "
               "token "
        "less that to a token that is equal",
        rule=AllOf(Above(MOST), Number("per differing less per equal position", Above(0))),
        quantity="attention to differing tokens", value_range=SHARE, measure=measure_mismatches,
    ),
    "pa04": Check(
        statement="In head 1.1 the end token attends to position 20 if its token differs from the first number.",
        method="Attention of the end token to position 20, mean over sequences whose ends differ, and less that over "
               "the "
        "other sequences",
        rule=AllOf(Above(MOST), Number("more than if equal", Above(0))),
        quantity="attention to position 20", value_range=SHARE, measure=measure_last,
    ),
    "pa05": Check(
        statement="In palindromes the end token attends to no fixed position in head 1.0, and not to the start token.",
        method="Share of palindromes in which one key has most attention, for the key of which it is highest, and mean "
        "attention to the start token",
        rule=AllOf(Below(MOST), Number("attention to the start token", Below(NEXT_TO_NOTHING))),
        quantity="share with the same key", value_range=SHARE, measure=measure_rest,
        judged=OF_PALINDROMES,
    ),
    "pa06": Check(
        statement="Head 0.0 is needed: mean ablation costs most of the logit difference.",
        method="Fall of the right less the wrong logit if the head's output is its mean at each position; at least "
               "half "
        "of the reported fall of 6.875",
        rule=AtLeast((CLEAN - 0.614) / 2), quantity="fall of the logit difference", reported="7.489 to 0.614",
        measure=partial(measure_fall, layer=0, head=0),
    ),
    "pa07": Check(
        statement="Head 1.0 is needed: mean ablation costs most of the logit difference.",
        method="Fall of the right less the wrong logit if the head's output is its mean at each position; at least "
               "half "
        "of the reported fall of 7.19",
        rule=AtLeast((CLEAN - 0.299) / 2), quantity="fall of the logit difference", reported="7.489 to 0.299",
        measure=partial(measure_fall, layer=1, head=0),
    ),
    "pa08": Check(
        statement="Head 0.1 is not crucial under mean ablation, although zero ablation suggests it.",
        method="Fall of the right less the wrong logit as a share of what it was, with the head's output at its mean; "
        "and with zero in its place",
        rule=AllOf(Below(QUARTER), Number("fall by zero", Above(QUARTER))),
        quantity="share of the logit difference lost", reported="7.489 to 6.642 (mean), 3.477 (zero)",
        measure=partial(measure_fall, layer=0, head=1, share=True),
    ),
    "pa09": Check(
        statement="Head 1.1 is not crucial: mean ablation costs little of the logit difference.",
        method="Fall of the right less the wrong logit as a share of what it was, with the head's output at its mean",
        rule=Below(QUARTER), quantity="share of the logit difference lost", reported="7.489 to 6.815",
        measure=partial(measure_fall, layer=1, head=1, share=True),
    ),
    "pa10": Check(
        statement="The output of head 0.1 is needed at position 20 only.",
        method="Loss added if the head's output is its mean at every position, in nats, at least half of the 0.11 "
        "reported; and the share of it that is added if position 20 is spared",
        rule=AllOf(AtLeast(0.055), Number("share of it", Below(NEXT_TO_NOTHING))),
        quantity="loss added", reported="0.008 to 0.118; 0.010 if 20 is spared",
        measure=partial(measure_only_last, layer=0, part="z"),
        preregistration=on_further_inputs("0.072 [0.048, 0.095]"),
    ),
    "pa11": Check(
        statement="Head 1.1 needs the values of position 20 only.",
        method="Loss added if the head's values are their mean at every position, in nats, at least half of the 0.006 "
        "reported; and the share of it that is added if position 20 is spared",
        rule=AllOf(AtLeast(0.003), Number("share of it", Below(NEXT_TO_NOTHING))),
        quantity="loss added", reported="0.008 to 0.014; 0.008 if 20 is spared",
        measure=partial(measure_only_last, layer=1, part="v"),
        preregistration=on_further_inputs("0.0050 [-0.0007, 0.0106]"),
    ),
    "pa12": Check(
        statement="In head 0.1 position 20 attends to position 1 if the two differ and to both if they are equal, the "
        "reverse of head 0.0; position 18 may do the same.",
        method="Share of the sequences whose ends differ in which position 20 attends most to position 1; where they "
               "are "
        "equal, attention to both together and to the lesser; limited if 18 attends less to its mirror image if "
        "the two differ",
        rule=AllOf(
            Above(MOST), Number("both if equal", Above(MOST)),
            Number("lesser of both if equal", Above(NEXT_TO_NOTHING)),
            Number("more on the mirror of 20 if unequal", Above(0)),
        ),
        limits=Number("more on the mirror of 18 if unequal", AtMost(0)),
        quantity="share of sequences", value_range=SHARE, measure=measure_reverse,
    ),
    "pa13": Check(
        statement="In head 0.0 every number prefers its own copy, and every position of the second half, less so, "
        "itself or mostly its mirror.",
        method="Share of the numbers whose own copy has the highest score among the embeddings of numbers, and of the "
        "positions for which it is their own or their mirror's among those of visible positions; the lower of the two. "
        "Preference: mean score of the preferred less that of the others",
        rule=AllOf(
            AtLeast(ALWAYS), Number("positions that prefer the mirror", Above(MOST)),
            Number("preference of numbers less that of positions", Above(0)),
        ),
        quantity="lower share of rows", value_range=SHARE, preregistration=BEFORE_ANY_MODEL,
        measure=parts.measure_prefers,
        judged=Row(VALUE, unit="rows", exact=True),
    ),
    "pa14": Check(
        statement="In head 0.1 every number avoids its own copy, and position 20 prefers itself and its mirror, 18 "
        "less so.",
        method="Share of the numbers whose own copy has a score below the mean of the other numbers; whether "
               "positions 1 "
        "and 20 have the two highest scores of position 20; and by how much position 18, and 20 more than 18, prefers "
        "the two",
        rule=AllOf(
            AtLeast(ALWAYS), Number("position 20 prefers both", Equal(True)),
            Number("preference of position 18", Above(0)),
            Number("preference of position 20 less that of 18", Above(0)),
        ),
        quantity="share of numbers", value_range=SHARE, preregistration=BEFORE_ANY_MODEL, measure=parts.measure_avoids,
        judged=Row(VALUE, unit="numbers", exact=True),
    ),
    "pa15": Check(
        statement="Sequences that differ from a palindrome at positions 17 and 19 alone are always called palindromes.",
        method="Share called palindromes of new sequences that differ at 17, at 19 or at both, the lowest of the "
               "three; "
        "and of those that differ at another position, the highest",
        rule=AllOf(AtLeast(ALWAYS), Number("most with another position", Below(MOST))),
        quantity="share called palindromes", value_range=SHARE, measure=parts.measure_unseen,
        judged=Row(VALUE, extreme="smallest", unit="sequences"),
    ),
    "pa16": Check(
        statement="In head 1.0 the end token never attends to positions 17 and 19 and rarely to 20, equal or not.",
        method="Mean attention to 17 or 19, where equal or not, the highest of the four, as a share of that to a "
        "differing token elsewhere; and share of sequences in which 20 has most attention",
        rule=AllOf(
            Below(NEXT_TO_NOTHING), Number("share with most attention to position 20", Below(NEXT_TO_NOTHING))
        ),
        quantity="share of the usual attention", measure=measure_ignored,
    ),
    "pa17": Check(
        statement="In head 0.0 a mismatch moves attention from the mirror image to the token itself.",
        method="Rise of the attention of a changed number to itself and fall of that to its mirror image, mean over "
        "positions other than 17 and 19 of new palindromes; each within a fifth of the authors' number",
        rule=AllOf(
            Between(0.8 * 0.373, 1.2 * 0.373), Number("attention off the mirror", Between(0.8 * 0.544, 1.2 * 0.544))
        ),
        quantity="rise of the attention to itself", value_range=DIFFERENCE, reported="0.373; mirror image 0.544",
        measure=measure_moves,
        judged=OF_PALINDROMES,
    ),
    "pa18": Check(
        statement="What head 0.0 adds at a mismatch gives head 1.0 a key that lines up with the query of the end "
        "token, but at 17, 19 and 20.",
        method="Cosine of the added key with the query, means over new palindromes, the lowest of the other seven "
        "positions; and the highest of these three; bootstrap over palindromes",
        rule=AllOf(AtLeast(STRONG), Number("highest at 17, 19 and 20", Below(STRONG))),
        quantity="lowest cosine", value_range=DIFFERENCE, preregistration=BEFORE_ANY_MODEL, measure=parts.measure_keys,
        judged=OF_PALINDROMES,
    ),
    "pa19": Check(
        statement="What head 0.0 adds at a mismatch, as a value of head 1.0, pushes to not-palindrome by a little more "
        "than the usual logit difference, but at 17, 19 and 20.",
        method="What it adds to the logit of not-palindrome less the other if head 1.0 attends to it alone, mean "
               "over the "
        "other seven positions, from 1 to 1.5 times the usual 7.5; half of that separates the seven from the three",
        rule=AllOf(
            Between(USUAL, 1.5 * USUAL), Number("least of these", Above(USUAL / 2)),
            Number("most at 17, 19 and 20", Below(USUAL / 2)),
        ),
        quantity="push to not-palindrome", reported="a little more than 7.5", preregistration=BEFORE_ANY_MODEL,
        measure=parts.measure_values,
        judged=OF_PALINDROMES,
    ),
    "pa20": Check(
        statement="Head 1.1 makes up for what head 1.0 misses at position 20, not for 17 and 19.",
        method="The same cosine for head 1.1 at position 20; its push through values there, at least half of the usual "
        "7.5; and at 17 and 19 the higher of the shares of both that are reached, each the lesser of cosine and push",
        rule=AllOf(
            AtLeast(STRONG), Number("push at position 20", AtLeast(USUAL / 2)),
            Number("share of it at 17 or 19", Below(MOST)),
        ),
        quantity="cosine at position 20", value_range=DIFFERENCE, preregistration=BEFORE_ANY_MODEL,
        measure=parts.measure_makes_up,
        judged=OF_PALINDROMES,
    ),
    "pa21": Check(
        statement="What head 0.0 adds at a mismatch is nearly the same direction at all positions but 17, 19 and 20.",
        method="Cosine of the additions at two of the other seven positions, each the mean over new palindromes, the "
        "lowest of all pairs; bootstrap over palindromes",
        rule=Above(0.9), quantity="lowest cosine", value_range=DIFFERENCE, preregistration=BEFORE_ANY_MODEL,
        measure=parts.measure_parallel,
        judged=OF_PALINDROMES,
    ),
}  # fmt: skip
