"""Labels that a label is tied to: which are found and held fixed, pairs within groups, and effects, worked by hand."""

import pytest
import torch

from interp.probing.directions import Directions, IsolatedSums, span_of_differences
from interp.probing.ties import isolate

N_FITTING, N = 600, 1000


def draw(size, seed, n=N):
    return torch.randint(size, (n,), generator=torch.Generator().manual_seed(seed))


def tied_to(values, share, seed, size=2):
    """A label that is a function of another one in a share of the examples, and else independent."""
    is_tied = torch.rand(len(values), generator=torch.Generator().manual_seed(seed)) < share
    return torch.where(is_tied, values % size, draw(size, seed + 100, len(values)))


def isolated(label, n_needed=30, n_fitting=N_FITTING, **other_labels):
    n_classes = int(label.max()) + 1
    return isolate(label, other_labels, n_fitting=n_fitting, n_classes=n_classes, n_needed=n_needed, most_uncovered=0.2)


def test_independent_labels_are_not_held():
    isolation = isolated(draw(2, 0), colour=draw(3, 1), constant=torch.full((N,), 4))
    assert isolation.tied == isolation.held == isolation.confounders == ()
    assert isolation.testable
    assert isolation.uncovered == 0


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize(("size", "size_of_other"), [(2, 2), (3, 4), (5, 2)])
def test_pairs_agree_in_a_tied_label_and_differ_in_this_one(share, size, size_of_other):
    colour = draw(size_of_other, 1)
    label = tied_to(colour, share, 2, size)
    isolation = isolated(label, colour=colour)
    assert isolation.tied == isolation.held == ("colour",)
    assert isolation.testable
    bases, sources = isolation.bases + N_FITTING, isolation.sources + N_FITTING
    assert (colour[bases] == colour[sources]).all()
    assert (label[bases] != label[sources]).all()
    assert len(bases.unique()) == len(sources.unique()) == len(bases)
    # as many as there can be: all, or twice those outside of the largest class
    most = 0
    for group in range(size_of_other):
        counts = label[N_FITTING:][colour[N_FITTING:] == group].bincount()
        most += min(int(counts.sum()), 2 * int(counts.sum() - counts.max()))
    assert len(bases) == most


def test_every_example_has_the_next_ones_of_another_class_and_the_same_group():
    """Worked by hand: positions in a group, labels a b b a a | b b a."""
    label = torch.tensor([0, 1] * 20 + [0, 1, 1, 0, 0, 1, 1, 0])
    colour = torch.tensor([0, 0, 1, 1] * 10 + [0] * 5 + [1] * 3)
    label[:40] = tied_to(colour[:40], 0.8, 0)
    isolation = isolate(
        label,
        {"colour": colour},
        n_fitting=40,
        n_classes=2,
        n_needed=1,
        most_uncovered=0.2,
        n_partners=2,
    )
    assert isolation.held == ("colour",)
    pairs = list(zip(isolation.bases.tolist(), isolation.sources.tolist(), strict=True))
    first = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 1), (3, 2), (4, 1), (4, 2)]
    second = [(5, 7), (6, 7), (7, 5), (7, 6)]
    assert pairs == first + second


def test_a_label_under_another_name_does_not_count():
    label = draw(3, 0)
    assert isolated(label, renamed=(label + 1) % 3).tied == ()
    negation = isolated(label % 2, negation=1 - label % 2, colour=draw(2, 1))
    assert negation.tied == ()
    # two names of another label are one label
    colour = draw(2, 1)
    assert isolated(tied_to(colour, 0.5, 2), colour=colour, tint=1 - colour).tied == ("colour",)


def test_too_few_examples_to_tell_them_apart():
    colour = draw(2, 1)
    label = tied_to(colour, 0.9, 2)
    n_pairs = len(isolated(label, colour=colour).bases)
    for n_needed, testable in ((n_pairs, True), (n_pairs + 1, False)):
        isolation = isolated(label, n_needed=n_needed, colour=colour)
        assert isolation.testable == testable
        assert isolation.confounders == (() if testable else ("colour",))
        assert isolation.held == (("colour",) if testable else ())


def test_too_few_examples_to_fit_on():
    """The label differs from the other one in a tenth of the examples to edit, and in two of those to fit on."""
    colour = draw(2, 1)
    label = torch.where(torch.arange(N) % 10 == 0, 1 - colour, colour)
    label[2:N_FITTING] = colour[2:N_FITTING]
    shade = tied_to(label, 0.4, 5)
    isolation = isolated(label, colour=colour, shade=shade, n_needed=20)
    assert isolation.tied == ("colour", "shade")
    assert not isolation.testable
    assert isolation.confounders == ("colour",)  # not the shade, which leaves enough


def test_a_function_of_other_labels():
    digit = draw(6, 0)
    # the parity of a digit: nothing is left with the digit fixed
    parity = isolated(digit % 2, digit=digit)
    assert not parity.testable
    assert parity.confounders == ("digit",)
    # the digit: only a part of it is left with the parity fixed
    whole = isolated(digit, parity=digit % 2)
    assert whole.testable
    assert whole.held == whole.confounders == ("parity",)
    assert whole.uncovered == 1


def test_a_conjunction_leaves_examples_without_a_partner():
    """Where the answer is true, both labels are: no partner differs in the first."""
    first, second = draw(2, 0), draw(2, 1)
    isolation = isolated(first, second=second, answer=first & second)
    assert isolation.held == ("answer",)  # with the second fixed too, half of the examples had no partner
    assert isolation.confounders == ("answer",)
    share = float((first & second)[N_FITTING:].double().mean())
    assert isolation.uncovered == pytest.approx(share)


def test_an_exclusive_or_is_held_by_both_of_its_labels():
    first, second = draw(2, 0), draw(2, 1)
    label = tied_to(first ^ second, 0.5, 2)
    isolation = isolated(label, constant=0 * first, first=first, second=second)
    assert set(isolation.held) == {"first", "second"}
    assert isolation.testable
    assert not isolation.confounders
    # a label of which the other is the exclusive or with a third is told apart from both
    isolation = isolated(first, second=second, answer=first ^ second)
    assert isolation.testable
    assert not isolation.confounders
    assert len(isolation.held) == 1


def test_labels_that_cannot_all_be_held_are_held_the_strongest_first():
    strong, weak = draw(10, 0), draw(40, 1)
    pick = torch.rand(N, generator=torch.Generator().manual_seed(2))
    label = torch.where(pick < 0.6, strong % 5, torch.where(pick < 0.8, weak % 5, draw(5, 3)))
    n_strong = len(isolated(label, strong=strong).bases)
    isolation = isolated(label, n_needed=n_strong, weak=weak, strong=strong)
    assert isolation.tied == ("strong", "weak")
    assert isolation.held == ("strong",)
    assert isolation.testable
    assert isolated(label, n_needed=10, weak=weak, strong=strong).held == ("strong", "weak")


def effects_of(isolation, activations):
    """Effects and centres of activations (example, d), as the sums of directions give them."""
    n = len(activations)
    sums = IsolatedSums(isolation, torch.arange(n), n)
    for start in (0, n // 3):
        rows = slice(start, n if start else n // 3)
        sums.add(rows, activations[None, rows])
    width = activations.shape[1]
    zeros = torch.zeros(len(isolation.effects), width)
    plain = Directions(means=zeros, weights=zeros, centre=activations.mean(0))
    return sums.directions(0, plain)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_effects_are_those_of_the_label_alone(share, generator):
    """Activations are sums of codes, far from 0: differences of the effects are those of the label's codes."""
    colour, shade = draw(4, 1), draw(3, 5)
    label = tied_to(colour, share, 2, 3)
    codes, colours, shades = (torch.randn(size, 7, generator=generator) for size in (3, 4, 3))
    activations = 1000 + codes[label] + 5 * colours[colour] + shades[shade]
    isolation = isolated(label, colour=colour, shade=shade)
    directions = effects_of(isolation, activations[:N_FITTING])
    differences = directions.means - directions.means[0]
    torch.testing.assert_close(differences, codes - codes[0], atol=1e-3, rtol=0)
    if not share:
        return
    # Centres: those of the group, all classes weighted equally, and the other label as it is in the group
    assert directions.has_effect
    members = colour[N_FITTING:][isolation.bases]
    for group in isolation.groups.unique().tolist():
        value = members[isolation.groups == group].unique()
        assert len(value) == 1
        in_group = colour[:N_FITTING] == value
        centre = 1000 + codes.mean(0) + 5 * colours[value[0]] + shades[shade[:N_FITTING][in_group]].mean(0)
        torch.testing.assert_close(directions.centre[group], centre, atol=1e-3, rtol=0)


def test_a_label_without_an_effect_of_its_own(generator):
    colour = draw(2, 1)
    label = tied_to(colour, 0.7, 2)
    codes = torch.tensor([[-3.0, 0], [3, 0]])
    noise = torch.randn(N, 2, generator=generator)
    isolation = isolated(label, colour=colour)
    assert not effects_of(isolation, (codes[colour] + noise)[:N_FITTING]).has_effect
    own = torch.tensor([[0.0, -1], [0, 1]])
    assert effects_of(isolation, (codes[colour] + own[label] + noise)[:N_FITTING]).has_effect


def test_examples_of_a_group_without_any_to_fit_on_are_not_edited():
    colour = draw(2, 1)
    label = tied_to(colour, 0.5, 2)
    colour[N_FITTING : N_FITTING + 20] = 2
    isolation = isolated(label, colour=colour)
    assert isolation.held == ("colour",)
    assert isolation.bases.min() >= 20
    assert len(isolation.group_means) == 2
    assert isolation.group_means.isfinite().all()


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_rounding_errors_of_equal_activations_are_no_effects(share, generator):
    colour = draw(2, 1)
    isolation = isolated(tied_to(colour, share, 2), colour=colour)
    activations = 1000 + 1e-5 * torch.randn(N_FITTING, 6, generator=generator)
    assert span_of_differences(effects_of(isolation, activations).means).shape == (6, 0)


def test_a_class_without_examples_to_fit_on():
    colour = draw(2, 1)
    label = tied_to(colour, 0.5, 2)
    label[N_FITTING] = 2
    isolation = isolated(label, colour=colour)
    assert isolation.effects.isnan().any(1).tolist() == [False, False, True]
    assert effects_of(isolation, torch.randn(N_FITTING, 4)).means.isnan().any(1).tolist() == [False, False, True]
