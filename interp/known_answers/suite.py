"""Suite of known answers on which to test an analysis."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import get_args

import torch

from hooks.checks import did_you_mean, listed
from hooks.typed import checks_types
from interp.core.randomness import derived_generator
from interp.known_answers.answers import KnownAnswer, draw
from interp.known_answers.craft.transforms import can_rotate, randomise
from interp.known_answers.dyck.indirect import dyck_gated, dyck_hops, dyck_masked
from interp.known_answers.dyck.variants import (
    DyckDecoy,
    Work,
    dyck_alone,
    dyck_among_idle,
    dyck_cancelling,
    dyck_decoy,
    dyck_divided,
    dyck_redundant,
    dyck_uniform,
)
from interp.known_answers.lego.added import cancelling, constant, magnitude, masked
from interp.known_answers.lego.divided import divided, evenly
from interp.known_answers.lego.variants import DecoyValues, decoys, detour, loop, random_task, redundant, shortcut
from interp.known_answers.lookup.keys import any_key, mixed_outcomes, single_key, ties
from interp.known_answers.lookup.sharing import EQUAL, UNEQUAL, faint_backup, needed_once_shared_once, share_values
from interp.known_answers.lookup.strata import eighth, rare_stratum, reroute
from interp.known_answers.recall.model import duplicate, first_token, induction, repeated
from interp.known_answers.template.copy_variants import (
    copy_by_kind,
    copy_cancelling,
    copy_first,
    copy_hops,
    copy_previous,
    copy_second,
)
from interp.known_answers.template.count import template_count
from interp.known_answers.template.same_variants import (
    same_cancelling,
    same_decoy,
    same_divided,
    same_gated,
    same_majority,
    same_masked,
    same_plain,
    same_redundant,
)
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

    >>> from interp.known_answers import suite
    >>> answers = suite(seed=0)
    >>> next(answers).name
    'loop Z2 0, seed 0'
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

    >>> from interp.known_answers import known_answer
    >>> answer = known_answer("dyck stack, redundant", seed=0)
    >>> [head for head, truth in answer.heads.items() if truth.truth == "redundant"]
    [(0, 1), (0, 2)]
    """
    if name not in SUITE:
        raise ValueError(f"name is {name!r}.{did_you_mean(name, SUITE)} The suite has {listed(SUITE)}.")
    generator = derived_generator(seed, "known answer", name)
    answer = SUITE[name](generator)
    randomised = randomise(answer, generator, rotate=can_rotate(answer.model))
    return replace(randomised, name=f"{name}, seed {seed}")


def _chain(build: Callable[..., KnownAnswer], group: GroupAction, *, longest: int = 3, most_idle: int = 1) -> Builder:
    """A LEGO answer over a group, with a random task and number of idle heads."""

    def build_random(generator: torch.Generator) -> KnownAnswer:
        task = random_task(generator, group=group, longest=longest)
        return build(task, generator, idle=draw(generator, 0, most_idle))

    return build_random


def _chains() -> dict[str, Builder]:
    """Every variant of LEGO chains over every group."""
    chains: dict[str, Builder] = {}
    for index, group in enumerate(GROUPS):
        suffix = f"{group.name} {index}"
        chains[f"loop {suffix}"] = _chain(loop, group, most_idle=2)
        chains[f"loop untied {suffix}"] = _chain(partial(loop, untie=True), group)
        chains[f"loop redundant {suffix}"] = _chain(redundant, group)
        chains[f"loop detour {suffix}"] = _chain(detour, group)
        for values in get_args(DecoyValues):
            chains[f"loop {values} decoys {suffix}"] = _chain(partial(decoys, values=values), group)
        chains[f"shortcut {index}"] = _chain(shortcut, Z2, longest=4)
    return chains


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
DYCK_ANSWERS: Mapping[str, Builder] = {
    "uniform": dyck_uniform,
    "balanced": partial(dyck_alone, work="uniform"),
    "balanced, uneven": partial(dyck_alone, work="uneven"),
    "stack": dyck_alone,
    "stack, redundant": dyck_redundant,
    "stack among idle heads": dyck_among_idle,
    "balanced among idle heads": partial(dyck_among_idle, work="uniform"),
    **{
        f"{work}, {decoy} decoy": partial(dyck_decoy, work=work, decoy=decoy)
        for work in get_args(Work)
        for decoy in get_args(DyckDecoy)
    },
    "stack, three cancel": dyck_cancelling,
    "uniform, three cancel": partial(dyck_cancelling, work="uniform"),
    "uneven, three cancel": partial(dyck_cancelling, work="uneven"),
    "stack, two cancel unreadably": partial(dyck_cancelling, pattern="uniform", n_heads=2),
    "stack, three cancel unreadably": partial(dyck_cancelling, pattern="uneven"),
    "uniform, three cancel unreadably": partial(dyck_cancelling, work="uniform", pattern="uniform"),
    "stack, two cancel under noise": partial(dyck_cancelling, n_heads=2, noise="all"),
    "uneven, two cancel under the noise of one": partial(dyck_cancelling, work="uneven", n_heads=2, noise="one"),
    "uniform, three cancel under noise": partial(dyck_cancelling, work="uniform", noise="all"),
    "stack, two cancel unreadably under noise": partial(dyck_cancelling, pattern="uniform", n_heads=2, noise="all"),
    "stack, three cancel unreadably under noise": partial(dyck_cancelling, pattern="uneven", noise="all"),
    "levels divided": dyck_divided,
    "levels divided with a uniform head": partial(dyck_divided, second="uniform"),
    "levels divided with an uneven head": partial(dyck_divided, second="uneven"),
    "stack, magnitude": partial(dyck_gated, brings="sign"),
    "stack, magnitude of self": partial(dyck_gated, brings="sign", pattern="self"),
    "stack, constant": partial(dyck_gated, brings="one"),
    "stack, constant unreadably": partial(dyck_gated, brings="one", pattern="uniform"),
    "stack, masked redundancy": dyck_masked,
    "two layers, stack then self": dyck_hops,
    "two layers, self then stack": partial(dyck_hops, first="self", second="stack"),
    "two layers, uniform then self": partial(dyck_hops, first="uniform"),
    "two layers, self then uniform": partial(dyck_hops, first="self", second="uniform"),
}
"""Dyck models, without the prefix `dyck` of their names in the suite."""
TEMPLATE_ANSWERS: Mapping[str, Builder] = {
    "same": same_plain,
    "same, redundant": same_redundant,
    "same, zero decoy": same_decoy,
    "same, constant decoy": partial(same_decoy, constant=True),
    "copy": copy_previous,
    "copy, redundant": partial(copy_previous, copies=2),
    "copy, zero decoy": partial(copy_previous, decoy=True),
    "copy, hidden": copy_second,
    "copy, hidden beside a decoy": partial(copy_second, decoy=True),
    "copy, misread": partial(copy_second, relative=True),
    "copy, first token": copy_first,
    "copy, first token for the last query": partial(copy_first, relative=True),
    "same, cancelled decoys": partial(same_cancelling, n_heads=2),
    "same, three cancel": same_cancelling,
    "same, two cancel unreadably": partial(same_cancelling, n_heads=2, readable=False),
    "same, three cancel unreadably": partial(same_cancelling, readable=False),
    "same, two cancel under noise": partial(same_cancelling, n_heads=2, noise="all"),
    "same, three cancel unreadably under noise": partial(same_cancelling, readable=False, noise="all"),
    "copy, cancelled decoys": partial(copy_cancelling, n_heads=2),
    "copy, three cancel": copy_cancelling,
    "copy, two cancel unreadably": partial(copy_cancelling, n_heads=2, readable=False),
    "copy, three cancel unreadably": partial(copy_cancelling, readable=False),
    "copy, two cancel under noise": partial(copy_cancelling, n_heads=2, noise="all"),
    "copy, two cancel under the noise of one": partial(copy_cancelling, n_heads=2, noise="one"),
    "copy, three cancel under noise": partial(copy_cancelling, noise="all"),
    "copy, two cancel unreadably under noise": partial(copy_cancelling, n_heads=2, readable=False, noise="all"),
    "same, magnitude": partial(same_gated, brings="sign"),
    "same, constant": partial(same_gated, brings="one"),
    "same, constant unreadably": partial(same_gated, brings="one", readable=False),
    "same, masked redundancy": same_masked,
    "same, divided": same_divided,
    "majority": same_majority,
    "copy in two hops": copy_hops,
    "copy in two hops, the first hidden": partial(copy_hops, offsets=(3, 1)),
    "copy in two hops, the second hidden": partial(copy_hops, offsets=(1, 3)),
    "copy by kind": copy_by_kind,
    "count": template_count,
    "count, zero decoy": partial(template_count, decoy="zero"),
    "count, three cancel": partial(template_count, decoy="cancelled"),
}
"""Models of template tasks, without the prefix `template`."""
LOOKUP_ANSWERS: Mapping[str, Builder] = {
    "two share unequally": partial(share_values, shares=UNEQUAL[2]),
    "three share unequally": partial(share_values, shares=UNEQUAL[3]),
    "four share unequally": partial(share_values, shares=UNEQUAL[4]),
    "three share equally": partial(share_values, shares=EQUAL),
    "two share unequally, unreadable": partial(share_values, shares=UNEQUAL[2], readable=False),
    "faint backup": faint_backup,
    "needed once, shared once": needed_once_shared_once,
    "needed once, shared once, unreadable": partial(needed_once_shared_once, readable=False),
    "mixed outcomes": mixed_outcomes,
    "any key": any_key,
    "single key": single_key,
    "ties": ties,
    "ties, unreadable": partial(ties, readable=False),
    "an eighth of the queries": eighth,
    "an eighth of the queries, unreadable": partial(eighth, readable=False),
    "rare stratum": rare_stratum,
    "reroute": reroute,
    "reroute, unreadable": partial(reroute, readable=False),
}
"""Models that look letters up, without the prefix `lookup`."""
RECALL_ANSWERS: Mapping[str, Builder] = {
    "induction": induction,
    "induction with decoys": partial(induction, decoys=True),
    "duplicate": duplicate,
    "duplicate with decoys": partial(duplicate, decoy=True),
    "first token": first_token,
    "first token with a decoy": partial(first_token, decoy=True),
    "whether repeated": repeated,
}
"""Models that recall earlier tokens, without the prefix `recall`."""
SUITE: Mapping[str, Builder] = {
    **_chains(),
    **{
        f"loop {name} {group.name}": _chain(build, group, longest=2)
        for name, build in SHORT_CHAINS.items()
        for group in SHORT_GROUPS
    },
    **{f"dyck {name}": build for name, build in DYCK_ANSWERS.items()},
    **{f"template {name}": build for name, build in TEMPLATE_ANSWERS.items()},
    **{f"lookup {name}": build for name, build in LOOKUP_ANSWERS.items()},
    **{f"recall {name}": build for name, build in RECALL_ANSWERS.items()},
}
"""Every known answer by name, with the function that builds it from a generator."""
