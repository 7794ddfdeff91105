"""Suite of known answers on which to test an analysis."""

from collections.abc import Callable, Iterator, Mapping
from typing import get_args

import torch

from interp.core.randomness import derived_generator
from interp.known_answers.answers import KnownAnswer, draw
from interp.known_answers.craft.transforms import can_rotate, randomise
from interp.known_answers.dyck.variants import DYCK_ANSWERS
from interp.known_answers.lego.variants import Values, decoys, detour, loop, random_task, redundant, shortcut
from interp.known_answers.template.variants import TEMPLATE_ANSWERS
from interp.tasks.lego.groups import S3, Z2, GroupAction, cyclic

Builder = Callable[[torch.Generator], KnownAnswer]
GROUPS: tuple[GroupAction, ...] = (Z2, S3, cyclic(3), Z2)
"""Groups of the LEGO chains."""


def suite(seed: int) -> Iterator[KnownAnswer]:
    """Yield every known answer of `SUITE`, with random sizes, weights, order of heads and, where possible, basis.

    Args:
        seed: Determines everything; another seed gives other models of the same algorithms.
    """
    return (known_answer(name, seed) for name in SUITE)


def known_answer(name: str, seed: int) -> KnownAnswer:
    """Build one answer of the suite.

    Args:
        name: A key of `SUITE`.
        seed: As of `suite`.

    Raises:
        ValueError: an unknown name.
    """
    if name not in SUITE:
        raise ValueError(f"name is {name!r}; the suite has {', '.join(SUITE)}.")
    generator = derived_generator(seed, "known answer", name)
    found = SUITE[name](generator)
    return randomise(found, generator, rotate=can_rotate(found.model))


def _chains() -> dict[str, Builder]:
    """Every variant of LEGO chains over every group."""
    found: dict[str, Builder] = {}
    for index, group in enumerate(GROUPS):

        def task(generator: torch.Generator, group: GroupAction = group):
            return random_task(generator, group=group, longest=3)

        def idle(generator: torch.Generator, most: int = 1) -> int:
            return draw(generator, 0, most)

        named = f"{group.name} {index}"
        found[f"loop {named}"] = lambda g, task=task: loop(task(g), g, idle=idle(g, 2))
        found[f"loop untied {named}"] = lambda g, task=task: loop(task(g), g, idle=idle(g), untie=True)
        found[f"loop redundant {named}"] = lambda g, task=task: redundant(task(g), g, idle=idle(g))
        found[f"loop detour {named}"] = lambda g, task=task: detour(task(g), g, idle=idle(g))
        for values in get_args(Values):
            found[f"loop {values} decoys {named}"] = lambda g, task=task, values=values: decoys(
                task(g), g, values=values, idle=idle(g)
            )
        found[f"shortcut {index}"] = lambda g: shortcut(random_task(g, group=Z2), g, idle=idle(g))
    return found


SUITE: Mapping[str, Builder] = {
    **_chains(),
    **{f"dyck {name}": build for name, build in DYCK_ANSWERS.items()},
    **{f"template {name}": build for name, build in TEMPLATE_ANSWERS.items()},
}
"""Every known answer by name, with the function that builds it from a generator."""
