"""Known answers of in-context lookup, modular addition and indirect objects.

They are a suite of their own: the studies of the audit and of approximations measure those of `suite.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from hooks.checks import did_you_mean, listed
from hooks.typed import checks_types
from interp.core.randomness import derived_generator
from interp.known_answers.answers import KnownAnswer
from interp.known_answers.craft.transforms import can_rotate, randomise
from interp.known_answers.small_tasks.in_context_lookup import lookup_circuit, shared_lookup
from interp.known_answers.small_tasks.indirect_object import by_name, by_place
from interp.known_answers.small_tasks.modular_addition import sum_of_both, sum_of_each
from interp.known_answers.suite import Builder

TASK_SUITE: Mapping[str, Builder] = {
    "in-context lookup": lookup_circuit,
    "in-context lookup with decoys": partial(lookup_circuit, decoys=True),
    "in-context lookup, shared": shared_lookup,
    "modular addition": sum_of_both,
    "modular addition with decoys": partial(sum_of_both, decoys=True),
    "modular addition, shared": partial(sum_of_both, copies=2),
    "modular addition, a head for each number": sum_of_each,
    "indirect object by name": by_name,
    "indirect object by name with decoys": partial(by_name, decoys=True),
    "indirect object by name, shared": partial(by_name, copies=2),
    "indirect object by place": by_place,
}
"""Every known answer by name, with the function that builds it from a generator."""


@checks_types
def task_suite(seed: int) -> Iterator[KnownAnswer]:
    """Yield every known answer of `TASK_SUITE`, with random sizes, weights, order of heads and basis.

    Args:
        seed: Determines everything; another seed gives other models of the same algorithms.

    >>> from interp.known_answers import task_suite
    >>> next(task_suite(seed=0)).name
    'in-context lookup, seed 0'
    """
    return (task_answer(name, seed) for name in TASK_SUITE)


@checks_types
def task_answer(name: str, seed: int) -> KnownAnswer:
    """Build one answer of `TASK_SUITE`.

    Args:
        name: A key of `TASK_SUITE`.
        seed: As of `task_suite`.

    Raises:
        ValueError: an unknown name.

    >>> from interp.known_answers import task_answer
    >>> answer = task_answer("in-context lookup", seed=0)
    >>> sorted(truth.looks for truth in answer.heads.values() if truth.truth == "faithful")
    ['induction', 'previous']
    """
    if name not in TASK_SUITE:
        raise ValueError(f"name is {name!r}.{did_you_mean(name, TASK_SUITE)} The suite has {listed(TASK_SUITE)}.")
    generator = derived_generator(seed, "known answer", name)
    answer = TASK_SUITE[name](generator)
    randomised = randomise(answer, generator, rotate=can_rotate(answer.model))
    return replace(randomised, name=f"{name}, seed {seed}")
