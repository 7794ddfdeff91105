"""Suite of known answers on which to test an analysis."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import get_args

import torch

from hooks.checks import checks_types
from interp.core.randomness import derived_generator
from interp.known_answers.answers import KnownAnswer, draw
from interp.known_answers.craft.transforms import can_rotate, randomise
from interp.known_answers.dyck.variants import DYCK_ANSWERS
from interp.known_answers.lego.cancelling import cancelling
from interp.known_answers.lego.divided import divided, evenly
from interp.known_answers.lego.gated import constant, magnitude, masked
from interp.known_answers.lego.variants import Values, decoys, detour, loop, random_task, redundant, shortcut
from interp.known_answers.template.variants import TEMPLATE_ANSWERS
from interp.tasks.lego.groups import S3, Z2, GroupAction, cyclic

Builder = Callable[[torch.Generator], KnownAnswer]
GROUPS: tuple[GroupAction, ...] = (Z2, S3, cyclic(3), Z2)
"""Groups of the LEGO chains."""
SHORT_GROUPS: tuple[GroupAction, ...] = (Z2, cyclic(3), cyclic(4))
"""Groups of the chains of two variables."""


@checks_types
def suite(seed: int) -> Iterator[KnownAnswer]:
    """Yield every known answer of `SUITE`, with random sizes, weights, order of heads and, where possible, basis.

    Args:
        seed: Determines everything; another seed gives other models of the same algorithms.
    """
    return (known_answer(name, seed) for name in SUITE)


@checks_types
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


SHORT_CHAINS: Mapping[str, Callable[..., KnownAnswer]] = {
    "three cancel, association": partial(cancelling, pattern="association"),
    "three cancel, manipulation": partial(cancelling, pattern="manipulation"),
    "three cancel, unreadable": partial(cancelling, pattern="unreadable"),
    "two cancel in noise, association": partial(cancelling, n_heads=2, noise="all", pattern="association"),
    "two cancel in noise, unreadable": partial(cancelling, n_heads=2, noise="all", pattern="unreadable"),
    "three cancel in noise, manipulation": partial(cancelling, noise="one", pattern="manipulation"),
    "magnitude, association": partial(magnitude, pattern="association"),
    "magnitude, manipulation": partial(magnitude, pattern="manipulation"),
    "masked, association": partial(masked, pattern="association"),
    "masked, unreadable": partial(masked, pattern="unreadable"),
    "constant gate, association": partial(constant, pattern="association"),
    "constant gate, unreadable": partial(constant, pattern="unreadable"),
    "divided association": partial(divided, work="association"),
    "divided manipulation": partial(divided, work="manipulation"),
    "over two layers": partial(loop, untie=True),
    "uniform": evenly,
}
"""LEGO chains of two variables, which take little time to audit, by what is special about them."""


def _short_chains() -> dict[str, Builder]:
    """Every one of `SHORT_CHAINS` over every group."""

    def build(generator: torch.Generator, make: Callable[..., KnownAnswer], group: GroupAction) -> KnownAnswer:
        return make(random_task(generator, group=group, longest=2), generator, idle=draw(generator, 0, 1))

    return {
        f"loop {name} {group.name}": partial(build, make=make, group=group)
        for name, make in SHORT_CHAINS.items()
        for group in SHORT_GROUPS
    }


SUITE: Mapping[str, Builder] = {
    **_chains(),
    **_short_chains(),
    **{f"dyck {name}": build for name, build in DYCK_ANSWERS.items()},
    **{f"template {name}": build for name, build in TEMPLATE_ANSWERS.items()},
}
"""Every known answer by name, with the function that builds it from a generator."""
