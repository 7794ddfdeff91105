"""Checks of what was published about the bracket classifier."""

from functools import partial

from case_studies.frame.claims import BEFORE_ANY_MODEL, SHARE, Preregistration
from case_studies.frame.rules import Above, AllOf, AtLeast, Below, Between, Number, Within
from case_studies.recipes.judges import Row
from published_readings import brackets_neurons as neurons
from published_readings import brackets_parts as parts
from published_readings.brackets_neurons import ABOVE, BELOW
from published_readings.brackets_parts import CLOSING, DIPS_ONLY, KINDS, TOTAL_ONLY
from published_readings.checks import Check
from published_readings.measures import VALUE

__all__ = ["CHECKS", "KINDS"]
HALF_OF_IT = Number("the next as a share of it", AtLeast(0.5))
"""A part is not the only one responsible if another does half as much."""
DETECTS = (
    "Activation at position 1 if {} of the brackets are opening ones less that otherwise, the neuron for which it is "
    "lowest; and the activation otherwise, less than half of it for every neuron"
)
OTHERWISE = Number("highest share of it otherwise", Below(0.5))
LINEAR = Preregistration(
    "after a result",
    "pushes were divided by each string's own scale of the norms, so that what is the same in all strings seemed to "
    "separate them: through head 2.0 the embedding had a share of 0.68 (0.59 in strings that begin with an opening "
    "bracket), MLP 1 0.15, MLP 0 0.14. The scale is now its mean over strings, as the authors make the norms linear.",
)
ACTIVATIONS = Preregistration(
    "after a result", "the activations of all four neurons fall with any departure from one half."
)
THROUGH = "Push to unbalanced of what a part writes at position 1 through the values of head 2.0, norms linear"

OF_STRINGS = Row(VALUE, unit="strings")
LOWEST = Row(VALUE, extreme="smallest", unit="strings")

CHECKS: dict[str, Check] = {
    "br01": Check(
        statement="Each position ends up with the count of closing minus opening brackets from it on; a string is "
        "unbalanced if the first count is not zero or any is negative.",
        method="Variance of this count that a linear map of the stream before layer 2 explains, fitted on one half "
               "of the "
        "unbalanced strings and tested on the other; it is less for the brackets before; and accuracy on each kind",
        rule=AllOf(
            AtLeast(0.9), Number("more than of the brackets before", Above(0)),
            Number("lowest accuracy of a kind", AtLeast(0.95)),
        ),
        quantity="variance explained", preregistration=BEFORE_ANY_MODEL, measure=parts.measure_elevation,
        judged=OF_STRINGS,
    ),
    "br02": Check(
        statement="Head 0.0 tallies brackets at position 1, the MLPs of layers 0 and 1 turn the tally into zero or "
        "not, and head 2.0 copies that to the start token.",
        method="Chance that a string with a wrong total gets a higher logit of unbalanced than a balanced one if all "
               "else "
        "has its mean (bootstrap interval)",
        rule=AtLeast(0.9), quantity="AUROC", value_range=SHARE, measure=parts.measure_circuit,
        judged=OF_STRINGS,
    ),
    "br03": Check(
        statement="Head 2.0 is one of the two parts that separate unbalanced from balanced strings most.",
        method="Direct push to unbalanced, mean over unbalanced less balanced strings, less that of the next part "
               "other "
        "than head 2.1",
        rule=Above(0), quantity="push more than the next", preregistration=LINEAR,
        measure=partial(parts.measure_separates, head="2.0"),
        judged=OF_STRINGS,
    ),
    "br04": Check(
        statement="Head 2.1 is the other of these two parts.",
        method="Direct push to unbalanced, mean over unbalanced less balanced strings, less that of the next part "
               "other "
        "than head 2.0",
        rule=Above(0), quantity="push more than the next", preregistration=LINEAR,
        measure=partial(parts.measure_separates, head="2.1"),
        judged=OF_STRINGS,
    ),
    "br05": Check(
        statement="Head 2.0 is responsible for the check of the total.",
        method="Its push to unbalanced in strings with only a wrong total less that in balanced ones, less that of the "
        "next part; limited if another part pushes half as much",
        rule=Above(0), limits=HALF_OF_IT, quantity="push more than the next", preregistration=LINEAR,
                measure=lambda pack: parts.measure_separates(pack, "2.0", TOTAL_ONLY),
        judged=OF_STRINGS,
    ),
    "br06": Check(
        statement="Head 2.1 is responsible for the check that no count is negative.",
        method="Its push to unbalanced in strings that only dip less that in balanced ones, less that of the next "
               "part; "
        "limited if another part pushes half as much",
        rule=Above(0), limits=HALF_OF_IT, quantity="push more than the next", preregistration=LINEAR,
                measure=lambda pack: parts.measure_separates(pack, "2.1", DIPS_ONLY),
        judged=OF_STRINGS,
    ),
    "br07": Check(
        statement="Each of these heads often signals failures for which the other is responsible.",
        method="Push to unbalanced of head 2.0 in strings that only dip, and of 2.1 in those with only a wrong total, "
        "less that in balanced ones: the lower",
        rule=Above(0), quantity="push to unbalanced", preregistration=LINEAR,
        measure=parts.measure_not_clean,
        judged=LOWEST,
    ),
    "br08": Check(
        statement="From the start token, head 2.0 has about half of its attention on position 1 and next to nothing on "
        "each other, in strings that begin with an opening bracket.",
        method="Mean attention to position 1; and the highest mean attention to another position",
        rule=AllOf(Between(0.35, 0.65), Number("highest on another position", Below(0.1))),
        quantity="attention", reported="0.5", value_range=SHARE, measure=neurons.measure_first_reads,
        judged=OF_STRINGS,
    ),
    "br09": Check(
        statement="What head 2.0 needs for the total is at position 1 before layer 2.",
        method="Push of head 2.0 for a wrong total if all but position 1 of what it reads has its mean, as a share of "
        "what it was; and if position 1 alone has its mean",
        rule=AllOf(AtLeast(0.5), Number("left without position 1", Below(0.5))),
        quantity="share of the push", preregistration=LINEAR, measure=parts.measure_stored,
        judged=OF_STRINGS,
    ),
    "br10": Check(
        statement="The MLP of layer 1 matters most of all earlier parts for what head 2.0 reads at position 1.",
        method=f"{THROUGH}, strings that begin with an opening bracket, unbalanced less balanced ones, as a share of "
               f"all "
        "parts; more than every other part",
        rule=AllOf(Above(0), Number("more than every other", Above(0))),
        quantity="share of the separation", preregistration=LINEAR,
        measure=partial(parts.measure_input, part="MLP 1", opened=True),
        judged=OF_STRINGS,
    ),
    "br11": Check(
        statement="The MLP of layer 0 matters too for what head 2.0 reads at position 1.",
        method=f"{THROUGH}, strings that begin with an opening bracket, unbalanced less balanced ones, as a share of "
               f"all "
        "parts; at least a tenth",
        rule=AtLeast(0.1), quantity="share of the separation", preregistration=LINEAR,
        measure=partial(parts.measure_input, part="MLP 0", opened=True),
        judged=OF_STRINGS,
    ),
    "br12": Check(
        statement="The embedding contributes nothing to the difference between balanced and unbalanced strings.",
        method=f"{THROUGH}, unbalanced less balanced strings, as a share of all parts; nothing is within a tenth of "
               f"zero",
        rule=Within(0.1), quantity="share of the separation", preregistration=LINEAR,
        measure=partial(parts.measure_input, part="embedding"),
        judged=OF_STRINGS,
    ),
    "br13": Check(
        statement="Head 1.1 matters somewhat to head 2.0 at position 1, and mostly brings in whether the string dips.",
        method=f"{THROUGH}: in strings that only dip less that in strings with only a wrong total; and less that in "
        "balanced ones",
        rule=AllOf(Above(0), Number("only dips less balanced", Above(0))),
        quantity="difference of pushes", preregistration=LINEAR, measure=parts.measure_dips_through,
        judged=OF_STRINGS,
    ),
    "br14": Check(
        statement="Both MLPs respond to the share of opening brackets with a kink at one half.",
        method="Correlation of the push of an MLP at position 1 through head 2.0 with the distance of this share "
               "from one "
        "half, the lower of the MLPs; and more than with the share itself",
        rule=AllOf(Above(0.5), Number("more than with the share itself", Above(0))),
        quantity="correlation", preregistration=LINEAR, measure=neurons.measure_kink,
        judged=Row(VALUE, extreme="smallest", unit="examples"),
    ),
    "br15": Check(
        statement="Neurons 53, 39 and 8 of layer 1 fire if more than half of the brackets are opening ones.",
        method=DETECTS.format("more than half"), rule=AllOf(Above(0), OTHERWISE),
        quantity="difference of activations", preregistration=BEFORE_ANY_MODEL,
        measure=lambda pack: neurons.measure_detects(pack, 1, (53, 39, 8), ABOVE),
        judged=LOWEST,
    ),
    "br16": Check(
        statement="Neurons 33 and 43 of layer 0 do so too; layer 1 has more such neurons.",
        method=DETECTS.format("more than half") + "; and how many more neurons of layer 1 fire twice as much then",
        rule=AllOf(Above(0), OTHERWISE, Number("more of them in the other layer", Above(0))),
        quantity="difference of activations", preregistration=BEFORE_ANY_MODEL,
        measure=lambda pack: neurons.measure_detects(pack, 0, (33, 43), ABOVE),
        judged=LOWEST,
    ),
    "br17": Check(
        statement="Neurons 21 and 7 of layer 0 fire if less than half of the brackets are opening ones.",
        method=DETECTS.format("less than half"), rule=AllOf(Above(0), OTHERWISE),
        quantity="difference of activations", preregistration=BEFORE_ANY_MODEL,
        measure=lambda pack: neurons.measure_detects(pack, 0, (21, 7), BELOW),
        judged=LOWEST,
    ),
    "br18": Check(
        statement="Neurons 50 and 6 of layer 1 fire if less than half are opening ones; few of layer 1 do.",
        method=DETECTS.format("less than half") + "; and fewer neurons of the layer than for more than half",
        rule=AllOf(Above(0), OTHERWISE, Number("fewer than for the other side", Above(0))),
        quantity="difference of activations", preregistration=BEFORE_ANY_MODEL,
        measure=lambda pack: neurons.measure_detects(pack, 1, (50, 6), BELOW),
        judged=LOWEST,
    ),
    "br19": Check(
        statement="Neurons 10 and 3 of layer 1 respond to any departure from one half, in both directions.",
        method="Push to unbalanced through head 2.0 in strings above or below one half less that at one half, the "
               "lowest",
        rule=Above(0), quantity="difference of pushes, norms unscaled", preregistration=ACTIVATIONS,
        measure=lambda pack: neurons.measure_departures(pack, 1, (10, 3)),
        judged=LOWEST,
    ),
    "br20": Check(
        statement="Neurons 19 and 34 of layer 0 come close to responding in both directions.",
        method="Push to unbalanced through head 2.0 in strings above or below one half less that at one half, the "
               "lowest",
        rule=Above(0), quantity="difference of pushes, norms unscaled", preregistration=ACTIVATIONS,
        measure=lambda pack: neurons.measure_departures(pack, 0, (19, 34)),
        judged=LOWEST,
    ),
    "br21": Check(
        statement="From an opening bracket head 0.0 attends about evenly to the positions after it, hardly to others.",
        method="Attention per bracket before as a share of that per bracket after, hardly is less than a quarter; and "
        "standard deviation over the brackets after, as a share of their mean, about even is less than half",
        rule=AllOf(Below(0.25), Number("variation of the keys after", Below(0.5))),
        quantity="before as a share of after", measure=neurons.measure_after,
        judged=OF_STRINGS,
    ),
    "br22": Check(
        statement="From a closing bracket the same holds, less so.",
        method="Attention per bracket before as a share of that per bracket after; it is higher than from an opening "
               "one",
        rule=AllOf(Below(1), Number("less that of the other bracket", Above(0))),
        quantity="before as a share of after", preregistration=BEFORE_ANY_MODEL,
        measure=partial(neurons.measure_after, token=CLOSING),
        judged=OF_STRINGS,
    ),
    "br23": Check(
        statement="From an opening bracket at position 1 head 0.0 attends almost evenly to all tokens.",
        method="Distance of the weights from the even one, as a share of it, mean over tokens",
        rule=Below(0.1), quantity="distance from even", measure=neurons.measure_even,
        judged=OF_STRINGS,
    ),
    "br24": Check(
        statement="Opening brackets at about 27 to 31 attend strongly to positions 38 to 40 in head 0.0.",
        method="Attention per key on these three by that on the other later ones, strings of 40; strongly is twice",
        rule=AtLeast(2), quantity="times the other keys", preregistration=BEFORE_ANY_MODEL,
        measure=neurons.measure_uneven,
        judged=OF_STRINGS,
    ),
    "br25": Check(
        statement="Head 0.0 tallies: it writes opposite vectors for opening and closing brackets.",
        method="Cosine of the two, token embeddings alone",
        rule=Below(-0.9), quantity="cosine", reported="close to -1", measure=neurons.measure_opposite,
        judged=Row(VALUE, unit="tokens", exact=True),
    ),
    "br26": Check(
        statement="Inputs of neurons in the MLPs of layers 0 and 1 align with it, much more than by chance.",
        method="Squared cosine, mean over neurons, times d_model (1 by chance), the lower layer; much more is three "
               "times",
        rule=AtLeast(3), quantity="times chance", preregistration=BEFORE_ANY_MODEL, measure=neurons.measure_aligned,
        judged=Row(VALUE, extreme="smallest", unit="neurons"),
    ),
    "br27": Check(
        statement="The MLPs are important inputs of head 2.1 too, and hold at each position whether its count is "
        "negative.",
        method="Share of the push through head 2.1, strings that only dip less balanced ones, that is from both "
               "MLPs; and "
        "AUROC of their push at a position for a negative count there",
        rule=AllOf(AtLeast(0.5), Number("AUROC of a dip at the position", Above(0.75))),
        quantity="share of the push", preregistration=LINEAR, measure=parts.measure_inputs_of_other,
        judged=OF_STRINGS,
    ),
    "br28": Check(
        statement="One head that carries position 1 to the start token, 2.0, alone settles strings that begin with a "
        "closing bracket.",
        method="Share of these strings called unbalanced with head 2.1 at its mean; limited if that holds as well with "
        "head 2.0 at its mean",
        rule=AtLeast(0.95), limits=Number("with head 2.0 at its mean", AtLeast(0.95)),
        quantity="share of strings", value_range=SHARE, measure=parts.measure_first_closing,
        judged=OF_STRINGS,
    ),
    "br29": Check(
        statement="Two tall towers with )( between them fool the model, with 15 and 4 pairs at 99.9856 % confidence.",
        method="Probability of balanced for these towers; and share of the other towers of 19 pairs, at least 4 each, "
        "that are called balanced",
        rule=AllOf(Between(0.9998, 0.9999), Number("other towers of at least 4 called balanced", Above(0.5))),
        quantity="probability of balanced", reported="0.999856", value_range=SHARE, measure=parts.measure_towers,
        judged=Row(VALUE, unit="strings", exact=True),
    ),
}  # fmt: skip
