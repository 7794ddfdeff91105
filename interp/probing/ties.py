"""Labels that a label is tied to, which are held fixed where it is edited.

If a label is correlated with another one, the difference between its class means contains the direction of the other,
and examples that differ in it mostly differ in the other too. An interchange along that difference changes what a model
computes from the other label, even where nothing reads the first. Effects are therefore fitted within groups of
examples that agree in the labels that it is tied to, and values are taken from an example of the same group.

Source: partial regression, Frisch & Waugh 1933 and Lovell 1963.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from scipy import special
from torch import Tensor

TIED = 0.05
"""p value below which two labels are tied. A label that is held fixed in vain costs only pairs."""
ROUNDING = 1e-6
"""Singular values of labels below this share of the largest are rounding errors."""


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """How a label is told apart from the other labels at one target. Examples are those that have the target."""

    tied: tuple[str, ...]
    """Labels that it is correlated with, the strongest first."""
    held: tuple[str, ...]
    """Labels in which both examples of a pair agree."""
    confounders: tuple[str, ...]
    """Labels that it cannot be told apart from; empty if it can be told apart from all."""
    testable: bool
    """Whether enough examples differ in the label and agree in those that it is tied to."""
    uncovered: float
    """Share of the examples to edit that agree in `held` with no example of another class; 1 if a tied label is a
    function of this one, so that only a part of this one can vary with that label fixed."""
    bases: Int[Tensor, " pair"]
    """Examples to edit."""
    sources: Int[Tensor, " pair"]
    """For each, the example that it takes its value from: one of another class that agrees in `held`. An example is
    edited once and is a source once, or with `n_partners` as often as it says."""
    groups: Int[Tensor, " pair"]
    """For each, the row of `group_means` of its group."""
    effects: Float[Tensor, "class fitting"]
    """Weights with which activations of the examples to fit on add up to the effect of each class; the effects have a
    mean of 0, and are NaN for a class without examples."""
    group_means: Float[Tensor, "group fitting"]
    """Weights with which they add up to the mean of each group."""
    class_shares: Float[Tensor, "group class"]
    """Share of each class in each group, of the examples to fit on."""


@dataclass(frozen=True, kw_only=True)
class _Labels:
    """A label and others at one target: of the examples to fit on, then of those to edit."""

    label: Int[Tensor, " example"]
    other_labels: Mapping[str, Int[Tensor, " example"]]
    n_fitting: int
    n_classes: int
    n_needed: int
    """Fewest examples for a verdict."""

    def groups(self, names: Sequence[str]) -> Int[Tensor, " example"]:
        """Number of the group of each example; examples of a group agree in all these labels."""
        columns = [torch.zeros_like(self.label), *(self.other_labels[name] for name in names)]
        return torch.stack(columns, 1).unique(dim=0, return_inverse=True)[1]

    def pairs(self, names: Sequence[str]) -> tuple[Int[Tensor, " pair"], Int[Tensor, " pair"]]:
        """Examples to edit and their sources, of another class and the same group; each is a source at most once."""
        label, groups = self.label[self.n_fitting :], self.groups(names)[self.n_fitting :]
        bases, sources = [], []
        for group in groups.unique():
            # In the order of classes, the example that is as many places further as the largest class has examples
            members = (groups == group).nonzero()[:, 0]
            members = members[label[members].sort(stable=True).indices]
            largest_class = int(label[members].bincount().max())
            partners = members.roll(-largest_class)
            different = label[members] != label[partners]
            bases.append(members[different])
            sources.append(partners[different])
        order = torch.cat(bases).sort()
        return order.values, torch.cat(sources)[order.indices]

    def all_pairs(self, names: Sequence[str], n_partners: int) -> tuple[Int[Tensor, " pair"], Int[Tensor, " pair"]]:
        """Every example to edit with the next ones of another class and the same group, up to a number of them."""
        label, groups = self.label[self.n_fitting :], self.groups(names)[self.n_fitting :]
        bases, sources = [], []
        for group in groups.unique():
            members = (groups == group).nonzero()[:, 0]
            for value in label[members].unique():
                # The next members of another class, after the last one from the first on
                members_of_class = (label[members] == value).nonzero()[:, 0]
                candidates = (label[members] != value).nonzero()[:, 0]
                if not len(candidates):
                    continue
                steps = torch.arange(min(n_partners, len(candidates)))
                indices = (torch.searchsorted(candidates, members_of_class)[:, None] + steps) % len(candidates)
                bases.append(members[members_of_class].repeat_interleave(len(steps)))
                sources.append(members[candidates[indices]].flatten())
        order = torch.cat(bases or [groups[:0]]).sort(stable=True)
        return order.values, torch.cat(sources or [groups[:0]])[order.indices]

    def uncovered(self, names: Sequence[str]) -> float:
        """Share of the examples to edit that agree with no example of another class in these labels."""
        label, groups = self.label[self.n_fitting :], self.groups(names)[self.n_fitting :]
        has_label = F.one_hot(groups).T.double() @ F.one_hot(label.long(), self.n_classes).double()
        is_uniform = (has_label > 0).sum(1) < 2
        return float(is_uniform[groups].double().mean())

    def residual(self, names: Sequence[str], adjusted: Sequence[str] = ()) -> Float[Tensor, "fitting class"]:
        """What groups of these labels, and the additive effects of others, do not explain of the one-hot label."""
        fitting = slice(self.n_fitting)
        groups = F.one_hot(self.groups(names)[fitting]).double()
        sizes = groups.sum(0).clamp_min(1)

        def within_groups(values: Float[Tensor, "fitting column"]) -> Float[Tensor, "fitting column"]:
            return values - groups @ ((groups.T @ values) / sizes[:, None])

        residual = within_groups(F.one_hot(self.label[fitting].long(), self.n_classes).double())
        columns = [
            F.one_hot(self.other_labels[name][fitting].long()).double() for name in adjusted if name not in names
        ]
        if not columns:
            return residual
        controls = within_groups(torch.cat(columns, 1))
        vectors, sizes_of_vectors, _ = torch.linalg.svd(controls, full_matrices=False)
        basis = vectors[:, sizes_of_vectors > ROUNDING * max(1.0, float(sizes_of_vectors[0]))]
        return residual - basis @ (basis.T @ residual)

    def n_effective(self, residual: Float[Tensor, "fitting class"]) -> float:
        """Number of the examples to fit on times the share of the label's variance that is left in a residual."""
        variance = self.residual(()).square().sum()
        return self.n_fitting * float(residual.square().sum() / variance.clamp_min(ROUNDING))

    def leaves_enough(self, names: Sequence[str]) -> bool:
        """Whether enough examples differ in the label and agree in these labels, to fit on and to edit."""
        n_pairs = len(self.pairs(names)[0])
        return min(self.n_effective(self.residual(names)), n_pairs) >= self.n_needed


def isolate_targets(
    name: str,
    labels: Sequence[Mapping[str, Int[Tensor, "_ target"]]],
    present: Sequence[Bool[Tensor, "_ target"]],
    targets: Sequence[int],
    *,
    n_classes: int,
    n_needed: int,
    most_uncovered: float,
    n_partners: int | None = None,
) -> dict[int, Isolation]:
    """How a label is told apart from the others at several targets, by index in `targets`; empty if it is the only one.

    Args:
        name: Name of the label.
        labels: All labels by name, of the examples to fit on and of those to edit.
        present: Which of them have each target.
        targets: The targets.
        n_classes, n_needed, most_uncovered, n_partners: As for `isolate`.
    """
    isolations = {}
    for index, target in enumerate(targets):
        exists = [of_batch[:, target] for of_batch in present]
        label_by_name = {}
        for label_name in labels[0]:
            values = [of_batch[label_name][rows, target] for of_batch, rows in zip(labels, exists, strict=True)]
            label_by_name[label_name] = torch.cat(values)
        label = label_by_name.pop(name)
        if label_by_name:
            isolations[index] = isolate(
                label,
                label_by_name,
                n_fitting=int(exists[0].sum()),
                n_classes=n_classes,
                n_needed=n_needed,
                most_uncovered=most_uncovered,
                n_partners=n_partners,
            )
    return isolations


def isolate(
    label: Int[Tensor, " example"],
    other_labels: Mapping[str, Int[Tensor, " example"]],
    *,
    n_fitting: int,
    n_classes: int,
    n_needed: int,
    most_uncovered: float,
    n_partners: int | None = None,
) -> Isolation:
    """Find the labels that a label is tied to at one target, and how it is edited with these fixed.

    Two labels are tied if a chi-squared test says so. The tied ones are held fixed in pairs, the strongest first, as
    long as enough examples are left; so are labels to which it is tied only jointly, where few examples are lost. The
    effects are also adjusted, additively, for the labels that are not held. Another label of which it is a function and
    that is a function of it is the same label under another name, and does not count.

    Args:
        label: Classes of the examples that have the target: those to fit on, then those to edit.
        other_labels: The other labels of these examples.
        n_fitting: Number of examples to fit on.
        n_classes: Number of classes.
        n_needed: Fewest examples for a verdict, to fit on and to edit.
        most_uncovered: Share of the examples that may agree with no example of another class.
        n_partners: Edit every example, with up to this number of sources; default: each at most once, with one source
            that no other example has.
    """
    labels = _Labels(
        label=label,
        other_labels=_distinct(label, other_labels),
        n_fitting=n_fitting,
        n_classes=n_classes,
        n_needed=n_needed,
    )
    tied = _tied(labels)
    too_strong = tuple(name for name in tied if not labels.leaves_enough([name]))
    held = [] if too_strong else _held(labels, tied, most_uncovered)
    # Effects, adjusted for all other labels where enough is left, else for those that it is tied to
    residual = labels.residual(held, list(labels.other_labels))
    if labels.n_effective(residual) < n_needed:
        residual = labels.residual(held, tied)
    testable = not too_strong and (not tied or labels.n_effective(residual) >= n_needed)
    # Labels that it cannot be told apart from
    parts = tuple(name for name in tied if _is_function(label, labels.other_labels[name]))
    uncovered = labels.uncovered(held) if held else 0.0
    confounders: tuple[str, ...] = ()
    if not testable:
        confounders = too_strong or tied
    elif parts:
        confounders, uncovered = parts, 1.0
    elif uncovered >= most_uncovered:
        confounders = tuple(name for name in held if labels.uncovered([name]) >= most_uncovered) or tuple(held)
    # Pairs whose groups have examples to fit on
    groups = labels.groups(held)
    fitting_groups, test_groups = groups[:n_fitting], groups[n_fitting:]
    bases, sources = labels.pairs(held) if n_partners is None else labels.all_pairs(held, n_partners)
    is_known = torch.isin(test_groups[bases], fitting_groups)
    bases, sources = bases[is_known], sources[is_known]
    group_numbers = test_groups[bases].unique()
    # Weights of effects and of means of groups
    one_hot = F.one_hot(label[:n_fitting].long(), n_classes).double()
    members = (fitting_groups == group_numbers[:, None]).double()
    group_means = members / members.sum(1, keepdim=True)
    effects = torch.linalg.pinv(residual, rtol=ROUNDING)
    return Isolation(
        tied=tied,
        held=tuple(held),
        confounders=confounders,
        testable=testable,
        uncovered=uncovered,
        bases=bases,
        sources=sources,
        groups=torch.searchsorted(group_numbers, test_groups[bases]),
        effects=effects.masked_fill(one_hot.sum(0)[:, None] == 0, torch.nan),
        group_means=group_means,
        class_shares=group_means @ one_hot,
    )


def _tied(labels: _Labels) -> tuple[str, ...]:
    """The labels that are correlated with the label, the strongest first."""
    strength_by_name = {}
    for name, values in labels.other_labels.items():
        p_value, strength = _association(labels.label, values)
        if p_value <= TIED:
            strength_by_name[name] = strength
    return tuple(sorted(strength_by_name, key=lambda name: -strength_by_name[name]))


def _held(labels: _Labels, tied: Sequence[str], most_uncovered: float) -> list[str]:
    """As many labels as can be held fixed together: the tied ones, then those that it is tied to only jointly."""
    held: list[str] = []
    for name in tied:
        if labels.leaves_enough([*held, name]):
            held.append(name)
    # Such as by an exclusive or; only where few examples are lost, since an effect of the label may need the others
    names = list(labels.other_labels)
    if _association(labels.label, labels.groups(names), labels.groups(held))[0] <= TIED:
        for name in names:
            larger = [*held, name]
            if name not in held and labels.leaves_enough(larger) and labels.uncovered(larger) < most_uncovered:
                held = larger
    return held


def _distinct(
    label: Int[Tensor, " example"], other_labels: Mapping[str, Int[Tensor, " example"]]
) -> dict[str, Int[Tensor, " example"]]:
    """The other labels with several values, without those that are the same as the label or as an earlier one."""
    distinct: dict[str, Int[Tensor, " example"]] = {}
    for name, values in other_labels.items():
        # Numbers of the values, from 0
        _, values = values.unique(return_inverse=True)
        is_same = any(
            _is_function(known, values) and _is_function(values, known) for known in (label, *distinct.values())
        )
        if int(values.max()) > 0 and not is_same:
            distinct[name] = values
    return distinct


def _is_function(label: Int[Tensor, " example"], other_label: Int[Tensor, " example"]) -> bool:
    """Whether another label has one value in all examples of a class."""
    return len(torch.stack([label, other_label], 1).unique(dim=0)) == len(label.unique())


def _association(
    label: Int[Tensor, " example"], other_label: Int[Tensor, " example"], groups: Int[Tensor, " example"] | None = None
) -> tuple[float, float]:
    """Chi-squared test of independence within groups (default: one): p value, and share of the largest chi-squared."""
    groups = torch.zeros_like(label) if groups is None else groups
    chi_squared, n_degrees, largest = 0.0, 0, 0.0
    for group in groups.unique():
        members = groups == group
        _, rows = label[members].unique(return_inverse=True)
        _, columns = other_label[members].unique(return_inverse=True)
        counts = torch.zeros(int(rows.max()) + 1, int(columns.max()) + 1, dtype=torch.float64)
        counts.index_put_((rows, columns), torch.ones(len(rows), dtype=torch.float64), accumulate=True)
        expected = counts.sum(1, keepdim=True) * counts.sum(0) / counts.sum()
        chi_squared += float(((counts - expected).square() / expected).sum())
        n_degrees += (counts.shape[0] - 1) * (counts.shape[1] - 1)
        largest += len(rows) * (min(counts.shape) - 1)
    if not n_degrees:
        return 1.0, 0.0
    return float(special.chdtrc(n_degrees, chi_squared)), chi_squared / largest
