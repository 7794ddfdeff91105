"""Models whose answer is known, many at once: what an interpretation tool must get right before it is believed."""

from collections.abc import Callable, Iterator, Mapping
from typing import get_args

import torch

from interp.core.randomness import derived_generator
from interp.known_answers.answers import KnownAnswer
from interp.known_answers.craft.randomise import can_turn, randomise
from interp.known_answers.dyck.variants import DYCK_ANSWERS
from interp.known_answers.lego.plants import Values, decoys, detour
from interp.known_answers.lego.variants import loop, random_task, redundant, shortcut
from interp.known_answers.template.variants import TEMPLATE_ANSWERS
from interp.tasks.lego.groups import S3, Z2, GroupAction, cyclic

Builder = Callable[[torch.Generator], KnownAnswer]
GROUPS: tuple[GroupAction, ...] = (Z2, S3, cyclic(3), Z2)
"""Of the chains, in turn."""


def suite(seed: int) -> Iterator[KnownAnswer]:
    """Every known answer there is, each with random sizes, weights, order of heads and, where it can be, basis.

    Args:
        seed: Decides everything; another seed gives other models of the same kinds.

    Returns:
        The answers of `SUITE`, one after the other, as they are asked for.
    """
    return (known_answer(name, seed) for name in SUITE)


def known_answer(name: str, seed: int) -> KnownAnswer:
    """One answer of the suite.

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
    return randomise(found, generator, rotate=can_turn(found.model))


def _chains() -> dict[str, Builder]:
    """LEGO chains over several groups, each variant as often as there are groups."""
    found: dict[str, Builder] = {}
    for index, group in enumerate(GROUPS):

        def task(generator: torch.Generator, group: GroupAction = group):
            return random_task(generator, group=group, longest=3)

        def idle(generator: torch.Generator, most: int = 1) -> int:
            return int(torch.randint(most + 1, (), generator=generator))

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
"""Every known answer by name, and what builds it from a generator."""
