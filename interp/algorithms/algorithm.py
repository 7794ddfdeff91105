"""Algorithms as causal graphs: named variables, each a function of the inputs and of other variables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.checks import check_class
from interp.tasks.base import Batch, Task

NO_ANSWER = -1
"""The answer of an algorithm that predicts nothing at a target."""


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One variable of an algorithm."""

    name: str
    compute: Callable[..., Int[Tensor, "batch *pos"]]
    """Its values, from a batch and the values of its parents, in their order."""
    parents: tuple[str, ...] = ()
    """Names of the earlier variables that it is a function of."""
    is_input: bool = False
    """Whether it is a token, or a part of one, that nothing has to compute."""
    per_position: bool = False
    """Whether it has a value at each position, (batch, pos), which must be in the model's activations at that position.
    Other variables have one value for each example, (batch,), which may be at any place."""


@dataclass(frozen=True)
class Computation:
    """What an algorithm computes on a batch."""

    values: Mapping[str, Int[Tensor, "batch *pos"]]
    """Values of the variables by name."""
    answers: Int[Tensor, "batch target"]
    """Index of the answer at each target; `NO_ANSWER` (-1) where the algorithm predicts nothing."""


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A causal graph that maps the inputs of a task to its answers.

    Example: LEGO chains of two signs, where 0 is plus and 1 is minus:

        Algorithm(
            name="two signs",
            variables=(
                Variable(name="first", compute=lambda batch: batch.operations[:, 0], is_input=True),
                Variable(name="both", compute=lambda batch, first: first ^ batch.operations[:, 1], parents=("first",)),
            ),
            answers=lambda batch, first, both: torch.stack([first, both], 1),
        )

    Raises:
        ValueError: no variable, two of one name, or one with a parent that is not an earlier variable.

    Source: causal models and interventions on them, Geiger et al. 2021 (arXiv:2106.02997).
    """

    name: str
    variables: tuple[Variable, ...]
    """Each after its parents."""
    answers: Callable[..., Int[Tensor, "batch target"]]
    """Answers at the task's targets, from a batch and the values of all variables, in order; -1 for none."""
    choices: Callable[[Float[Tensor, "batch target d_vocab_out"]], Float[Tensor, "batch target choice"]] | None = field(
        default=None, compare=False
    )
    """Scores of the possible answers, from the model's logits; the highest is its answer. Default: `task.answers`."""

    def __post_init__(self):
        check_class("variables", self.variables, Sequence)
        object.__setattr__(self, "variables", tuple(self.variables))
        if not self.variables:
            raise ValueError(f"variables of {self.name!r} is empty; give at least one.")
        earlier: list[str] = []
        for variable in self.variables:
            check_class(f"a variable of {self.name!r}", variable, Variable)
            if variable.name in earlier:
                raise ValueError(f"variables of {self.name!r} has {variable.name!r} twice; give each its own name.")
            if isinstance(variable.parents, str):
                raise ValueError(f"parents of {variable.name!r} is {variable.parents!r}; give a tuple of names.")
            if missing := [name for name in variable.parents if name not in earlier]:
                raise ValueError(
                    f"variable {variable.name!r} of {self.name!r} depends on {missing[0]!r}, which is not an earlier "
                    f"one; earlier ones are {', '.join(earlier) or 'none'}."
                )
            earlier.append(variable.name)

    __iter__ = None  # so that an algorithm in place of a list of them is an error

    def __getitem__(self, name: str) -> Variable:
        by_name = {variable.name: variable for variable in self.variables}
        if name not in by_name:
            raise ValueError(f"{self.name!r} has no variable {name!r}; it has {', '.join(by_name)}.")
        return by_name[name]

    def run(
        self,
        batch: Batch,
        interventions: Mapping[str, Tensor] | None = None,
        *,
        position: int | None = None,
        base: Computation | None = None,
    ) -> Computation:
        """Compute all variables and the answers, with some variables set to other values.

        Args:
            batch: Inputs.
            interventions: New values of variables, by name; their descendants are computed from them.
            position: The only position at which variables with a value at each position are set; if None, all.
            base: The computation on the batch without interventions, which is not repeated where nothing changes.

        Raises:
            ValueError: values or answers of a wrong shape, or an unknown variable in `interventions`.
        """
        interventions = interventions or {}
        for name in interventions:
            self[name]  # raises if there is none
        # Variables in order; those that no intervention reaches are those of the base computation.
        values: dict[str, Tensor] = {}
        changed = set(interventions)
        for variable in self.variables:
            name = variable.name
            if base is not None and name not in changed and changed.isdisjoint(variable.parents):
                values[name] = base.values[name]
                continue
            changed.add(name)
            values[name] = self._computed(variable, batch, values)
            # Set the variable, at one position or everywhere.
            if name not in interventions:
                continue
            if variable.per_position and position is not None:
                values[name] = values[name].clone()
                values[name][:, position] = interventions[name][:, position]
            else:
                values[name] = interventions[name].long()
        answers = self.answers(batch, *values.values())
        _check_values(f"answers of {self.name!r}", answers, "(batch, target)", tuple(batch.labels.shape))
        if (answers < NO_ANSWER).any():
            raise ValueError(f"answers of {self.name!r} has {int(answers.min())}; give indices, and -1 for no answer.")
        return Computation(values, answers.long())

    def _computed(self, variable: Variable, batch: Batch, values: Mapping[str, Tensor]) -> Int[Tensor, "batch *pos"]:
        """The values of a variable, checked."""
        parent_values = [values[name] for name in variable.parents]
        computed = variable.compute(batch, *parent_values)
        shape = tuple(batch.tokens.shape[: 1 + variable.per_position])
        axes = "(batch, pos)" if variable.per_position else "(batch,)"
        _check_values(f"variable {variable.name!r} of {self.name!r}", computed, axes, shape)
        return computed.long()

    def without_edge(self, variable: str, parent: str, substitute: str) -> "Algorithm":
        """The algorithm with one edge rewired: a variable reads a substitute in place of one of its parents.

        Raises:
            ValueError: no such edge, or a substitute that is not an earlier variable.
        """
        child = self[variable]
        names = [variable.name for variable in self.variables]
        earlier = names[: names.index(variable)]
        if parent not in child.parents:
            raise ValueError(
                f"variable {variable!r} does not depend on {parent!r}, but on {', '.join(child.parents) or 'none'}."
            )
        if substitute not in earlier:
            raise ValueError(
                f"{substitute!r} does not come before {variable!r}; earlier ones are {', '.join(earlier) or 'none'}."
            )
        # The same variables, but one with another parent.
        parents = tuple(substitute if name == parent else name for name in child.parents)
        rewired = replace(child, parents=parents)
        variables = tuple(rewired if variable is child else variable for variable in self.variables)
        name = f"{self.name}, {variable} of {substitute} in place of {parent}"
        return replace(self, name=name, variables=variables)


def _check_values(name: str, values: Any, axes: str, shape: tuple[int, ...]) -> None:
    """Check that values are whole numbers of a shape.

    Raises:
        ValueError: no tensor, another shape, or another type.
    """
    if not isinstance(values, Tensor) or tuple(values.shape) != shape:
        description = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"{name} gave {description}; it must give {axes} = {shape}.")
    if values.is_floating_point() or values.is_complex():
        raise ValueError(f"{name} gave {values.dtype}; it must give integers, a number for each value.")


def scored_targets(task: Task, batch: Any) -> Bool[Tensor, " target"]:
    """Targets whose answers are judged: the audited ones if outcomes are targets, else all."""
    names = list(task.targets)[: batch.labels.shape[1]]
    if not set(task.outcomes) <= set(names):
        return torch.ones(len(names), dtype=torch.bool)
    return torch.tensor([name in task.audited_outcomes for name in names])
