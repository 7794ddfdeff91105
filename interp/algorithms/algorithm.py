"""Algorithms as causal graphs: named variables, each a function of the inputs and of other variables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.checks import check_class
from interp.tasks.base import Batch, Task

Values = Mapping[str, Int[Tensor, "batch *pos"]]
"""Values of variables by name: one number for each example, or one for each position of it."""
NOTHING = -1
"""An answer of an algorithm that says nothing about a target."""


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One variable of an algorithm."""

    name: str
    compute: Callable[..., Int[Tensor, "batch *pos"]]
    """Its values, from a batch and the values of the variables in `of`, in this order."""
    of: tuple[str, ...] = ()
    """Names of the variables that it is a function of, all of them earlier ones."""
    given: bool = False
    """Whether it is an input: a token, or a part of one, that nothing has to compute."""
    per_position: bool = False
    """Whether it has a value at each position, (batch, pos), which belongs into the model's activations there. Others
    have one value for each example, (batch,), which may be anywhere."""


@dataclass(frozen=True)
class Outcome:
    """What an algorithm computes on a batch."""

    values: Values
    answers: Int[Tensor, "batch target"]
    """Index of the answer at each target; `NOTHING` (-1) where the algorithm says nothing."""


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A causal graph that maps the inputs of a task to its answers.

    Example: LEGO chains of two signs, where 0 is plus and 1 is minus:

        Algorithm(
            name="two signs",
            variables=(
                Variable(name="first", compute=lambda batch: batch.operations[:, 0], given=True),
                Variable(name="both", compute=lambda batch, first: first ^ batch.operations[:, 1], of=("first",)),
            ),
            answers=lambda batch, first, both: torch.stack([first, both], 1),
        )

    Raises:
        ValueError: no variable, two of one name, or one that depends on a variable that is not an earlier one.

    Source: causal models and interventions on them, Geiger et al. 2021 (arXiv:2106.02997).
    """

    name: str
    variables: tuple[Variable, ...]
    """In an order in which each comes after those that it depends on."""
    answers: Callable[..., Int[Tensor, "batch target"]]
    """Answers at the task's targets, from a batch and the values of all variables, in order; -1 for nothing."""
    choices: Callable[[Float[Tensor, "batch target d_vocab_out"]], Float[Tensor, "batch target choice"]] | None = field(
        default=None, compare=False
    )
    """Scores of the possible answers, from the model's logits; the highest is its answer. Default: `task.answers`."""

    def __post_init__(self):
        check_class("variables", self.variables, Sequence)
        object.__setattr__(self, "variables", tuple(self.variables))
        if not self.variables:
            raise ValueError(f"variables of {self.name!r} is empty; give at least one.")
        known: list[str] = []
        for one in self.variables:
            check_class(f"a variable of {self.name!r}", one, Variable)
            if one.name in known:
                raise ValueError(f"variables of {self.name!r} has {one.name!r} twice; give each its own name.")
            if missing := [name for name in one.of if name not in known]:
                raise ValueError(
                    f"variable {one.name!r} of {self.name!r} depends on {missing[0]!r}, which is not an earlier one; "
                    f"earlier ones are {', '.join(known) or 'none'}."
                )
            known.append(one.name)

    def __getitem__(self, name: str) -> Variable:
        found = {one.name: one for one in self.variables}
        if name not in found:
            raise ValueError(f"{self.name!r} has no variable {name!r}; it has {', '.join(found)}.")
        return found[name]

    def run(
        self,
        batch: Batch,
        given: Mapping[str, Tensor] | None = None,
        *,
        position: int | None = None,
        base: Outcome | None = None,
    ) -> Outcome:
        """Compute all variables and the answers, with some variables set to given values.

        Args:
            batch: Inputs.
            given: New values of variables, by name; what depends on them is computed from them.
            position: The only position at which variables with a value at each position are set; if None, all.
            base: What it computes on the batch if nothing is set, from which the values are taken that cannot change.

        Raises:
            ValueError: values or answers of a wrong shape, or an unknown variable in `given`.
        """
        values: dict[str, Tensor] = {}
        changed = set(given or {})
        for name in changed:
            self[name]  # raises if there is none
        for one in self.variables:
            if base is not None and one.name not in changed and changed.isdisjoint(one.of):
                values[one.name] = base.values[one.name]
                continue
            changed.add(one.name)
            found = one.compute(batch, *(values[name] for name in one.of))
            shape = tuple(batch.tokens.shape[: 1 + one.per_position])
            if not isinstance(found, Tensor) or tuple(found.shape) != shape:
                got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
                axes = "(batch, pos)" if one.per_position else "(batch,)"
                raise ValueError(f"variable {one.name!r} of {self.name!r} gave {got}; it must give {axes} = {shape}.")
            found = found.long()
            if given is not None and one.name in given:
                found = _set(found, given[one.name], position if one.per_position else None)
            values[one.name] = found
        answers = self.answers(batch, *values.values())
        if tuple(answers.shape) != tuple(batch.labels.shape):
            raise ValueError(
                f"answers of {self.name!r} gave {tuple(answers.shape)}; it must give (batch, target) = "
                f"{tuple(batch.labels.shape)}."
            )
        return Outcome(values, answers.long())

    def without_edge(self, variable: str, of: str, instead: str) -> "Algorithm":
        """The algorithm with one edge rewired: a variable reads another one in place of one that it depends on.

        Raises:
            ValueError: no such edge, or `instead` is not an earlier variable of the same kind.
        """
        target, earlier = self[variable], [one.name for one in self.variables]
        if of not in target.of:
            raise ValueError(
                f"variable {variable!r} does not depend on {of!r}, but on {', '.join(target.of) or 'none'}."
            )
        if instead not in earlier[: earlier.index(variable)]:
            raise ValueError(f"{instead!r} does not come before {variable!r}; earlier ones are {', '.join(earlier)}.")
        edited = replace(target, of=tuple(instead if name == of else name for name in target.of))
        name = f"{self.name}, {variable} of {instead} in place of {of}"
        return replace(self, name=name, variables=tuple(edited if one is target else one for one in self.variables))


def _set(found: Tensor, new: Tensor, position: int | None) -> Tensor:
    if position is None:
        return new.long()
    found = found.clone()
    found[:, position] = new[:, position]
    return found


def scored_targets(task: Task, batch: Any) -> Bool[Tensor, " target"]:
    """Targets whose answers are judged: the audited ones if outcomes are targets, else all."""
    names = list(task.targets)[: batch.labels.shape[1]]
    if not set(task.outcomes) <= set(names):
        return torch.ones(len(names), dtype=torch.bool)
    return torch.tensor([name in task.audited_outcomes for name in names])
