"""Does a model compute this? Interchange interventions on every variable of a stated algorithm, and of its rivals."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Int
from torch import Tensor

from hooks import BridgeModel
from hooks.checks import check_choice, check_class, check_number, checks_types
from hooks.interventions.ablation_engine import Net
from interp.algorithms.algorithm import Algorithm
from interp.algorithms.experiment import Experiment, Hypothesis
from interp.algorithms.findings import CHANGED, SELECTED, accuracy_of_best, answers_of, contradiction_of, finding_of
from interp.algorithms.learned import Choices
from interp.algorithms.predictions import choose_pairs
from interp.algorithms.result import BAR, ImplementsResult
from interp.algorithms.verdict import judge
from interp.core.evaluation_mode import in_evaluation_mode
from interp.core.interchange import KINDS, Site, SiteKind
from interp.core.randomness import derived_seed
from interp.core.verbs import AnyModel, prepare_model, untrained_copy
from interp.tasks.base import Task

Search = Literal["whole", "means", "learned"]
LEAST = 32
"""Fewest pairs."""


@checks_types
@in_evaluation_mode
def implements(
    model: AnyModel,
    task: Task,
    algorithm: Algorithm,
    *,
    rivals: Sequence[Algorithm] = (),
    sites: str | Sequence[str] | Mapping[str, Site] = "resid",
    search: str = "whole",
    n: int = 512,
    seed: int = 0,
) -> ImplementsResult:
    """Test whether a model computes an algorithm, by interchanging its variables between inputs.

    For each variable and each site, what the model has there in a source input takes the place of what it has in a base
    input. If the variable is there, the answers become those of the algorithm with the source's value of the variable
    and the base's inputs (interchange intervention accuracy). Half of the pairs select the site, the other half score
    it. The model *implements* the algorithm if it answers as the algorithm does, each variable is found at some site,
    and no variable of a rival that is found contradicts it; each of these with the whole 95 % interval at or above 0.9.

    Only answers count that the model gives rightly without an interchange. `forced` is what an interchange of outputs
    would give: a variable that is an answer is always found at the read-out of this answer.

    Args:
        model: Model to intervene on. It is not changed.
        task: Source of the inputs: base inputs from its test split, source inputs from `task.counterparts`.
        algorithm: The algorithm to test.
        rivals: Other algorithms for the same answers, tested on the same pairs. Their answers are read as those of
            `algorithm` are.
        sites: Kinds of sites, one or several of: `resid`, the residual stream before each layer and after the last;
            `attn_out`; `mlp_out`; `z`, the output of one head. Or the site of each variable by name, to test a stated
            alignment; places are searched.
        search: What is interchanged: the `whole` activation; the subspace that the `means` of the variable's values
            span; or a subspace that is `learned` on the pairs that select, at the best sites of whole interchanges.
        n: Number of pairs. With fewer than 72 no variable can be found, as the interval is too wide.
        seed: Determines pairs, the untrained model and the start of what is learned.

    Returns:
        Findings about each variable, the verdict, and a map of sites and places.

    Raises:
        ValueError: fewer than 32 pairs, an unknown kind of site or search, a site that the model does not have, a
            variable without a site, two algorithms of one name, `learned` for variables with a value at each position,
            or a model that does not fit.

    Source: Geiger et al. 2021 (arXiv:2106.02997) interchange interventions; Geiger et al. 2024 (arXiv:2303.02536)
    learned subspaces. Differs: sites are scored on other pairs than they are selected on; answers that must stay count.
    """
    net = prepare_model(model, "implements", task)
    given = sites if isinstance(sites, Mapping) else {}
    kinds = _checked(net, (algorithm, *rivals), sites, search, n)
    algorithms = (algorithm, *rivals)
    pairs = choose_pairs(task, algorithms, n, seed)
    outcomes = {one.name: (one.run(pairs.base), one.run(pairs.source)) for one in algorithms}
    choices: Choices = algorithm.choices or (lambda logits: logits)

    def read(logits: Tensor) -> Int[Tensor, "pair target"]:
        return task.answers(logits) if algorithm.choices is None else choices(logits).argmax(-1)

    def experiment(one: Net, **more: Any) -> Experiment:
        return Experiment(one, task, pairs, algorithms, outcomes, read, choices, kinds, given, search, seed, **more)

    trained = experiment(net)
    control = experiment(untrained_copy(net, derived_seed(seed, "untrained") % 2**31), judge_all=True)
    maps, of_control = trained.run("interchanges"), control.run("interchanges, untrained")
    findings, best = [], []
    for one, accuracy, other in zip(trained.hypotheses, maps, of_control, strict=True):
        finding, answers = finding_of(trained, one, accuracy, accuracy_of_best(other))
        findings.append(finding)
        best.append(answers)
    answered = tuple(answers_of(one, algorithm, task, pairs, outcomes, trained.clean[0]) for one in algorithms)
    against = tuple(
        found
        for one, finding, answers in zip(trained.hypotheses, findings, best, strict=True)
        for other in algorithms
        if (found := contradiction_of(trained, one, finding, answers, other)) is not None
    )
    verdict, reason, rival = judge(algorithm.name, [one.name for one in rivals], findings, answered, against)
    places = [place.name for place in trained.places]
    return ImplementsResult(
        algorithm=algorithm.name,
        rivals=tuple(one.name for one in rivals),
        verdict=verdict,
        reason=reason,
        rival=rival,
        bar=BAR,
        search=search,
        findings=tuple(findings),
        answers=answered,
        contradictions=against,
        sites=tuple(map(str, trained.sites)),
        places=tuple(places),
        map=np.stack(
            [_map(one, accuracy, len(places)) for one, accuracy in zip(trained.hypotheses, maps, strict=True)]
        ),
        n=n,
    )


def _checked(
    net: Net, algorithms: Sequence[Algorithm], sites: str | Sequence[str] | Mapping[str, Site], search: str, n: int
) -> tuple[SiteKind, ...]:
    check_number("n", n, whole=True, low=LEAST)
    check_choice("search", search, Search)
    names: list[str] = []
    for one in algorithms:
        check_class("a rival" if names else "algorithm", one, Algorithm)
        if one.name in names:
            raise ValueError(f"two algorithms are called {one.name!r}; give each its own name.")
        names.append(one.name)
        if search == "learned" and any(variable.per_position for variable in one.variables):
            raise ValueError(
                f"search is 'learned', but {one.name!r} has a value at each position; use 'whole' or 'means'."
            )
    if isinstance(sites, Mapping):
        return _given(net, algorithms, sites, search)
    kinds = (sites,) if isinstance(sites, str) else tuple(sites)
    if not kinds:
        raise ValueError(f"sites is empty; give one or several of {', '.join(KINDS)}.")
    for kind in kinds:
        check_choice("sites", kind, SiteKind)
        _check_kind(kind, net)  # pyright: ignore[reportArgumentType]  # checked above
    return kinds  # pyright: ignore[reportReturnType]


def _given(net: Net, algorithms: Sequence[Algorithm], sites: Mapping[str, Site], search: str) -> tuple[SiteKind, ...]:
    """Check the sites of variables, and return their kinds."""
    for name, site in sites.items():
        _check_site(name, site, net)
        if site.coordinates is not None and search != "whole":
            raise ValueError(f"sites[{name!r}] has coordinates and search is {search!r}; use search='whole'.")
    for one in algorithms:
        if missing := [variable.name for variable in one.variables if variable.name not in sites]:
            raise ValueError(f"sites has no site of {missing[0]!r} of {one.name!r}; it has {', '.join(sites)}.")
    return tuple(dict.fromkeys(site.kind for site in sites.values()))


def _check_site(name: str, site: Any, net: Net) -> None:
    """Check that a model has the site of a variable.

    Raises:
        ValueError: another kind, a layer, head or coordinate that the model does not have, or a head of no `z`.
    """
    check_class(f"sites[{name!r}]", site, Site)
    check_choice(f"sites[{name!r}].kind", site.kind, SiteKind)
    _check_kind(site.kind, net)
    last = net.cfg.n_layers if site.kind == "resid" else net.cfg.n_layers - 1
    check_number(f"sites[{name!r}].layer", site.layer, whole=True, low=0, high=last)
    if (site.head is not None) != (site.kind == "z"):
        raise ValueError(f"sites[{name!r}] is {site}; give a head for the kind 'z', and for no other.")
    if site.head is not None:
        check_number(f"sites[{name!r}].head", site.head, whole=True, low=0, high=net.cfg.n_heads - 1)
    width = net.cfg.d_head if site.kind == "z" else net.cfg.d_model
    for one in site.coordinates or ():
        check_number(f"sites[{name!r}].coordinates", one, whole=True, low=0, high=width - 1)


def _check_kind(kind: SiteKind, net: Net) -> None:
    """Check that a model has hook points of a kind.

    Raises:
        ValueError: it has none.
    """
    if kind != "mlp_out":
        return  # `prepare_model` has checked the others
    if isinstance(net, BridgeModel):
        lacks = bool(net.capabilities.lacks({"hook_mlp_out": ("read", "edit")}))
    else:
        lacks = "blocks.0.hook_mlp_out" not in net.hook_dict
    if lacks:
        raise ValueError("sites has 'mlp_out', but this model has no hook_mlp_out; use resid, attn_out or z.")


def _map(one: Hypothesis, accuracy: np.ndarray, n_places: int) -> np.ndarray:
    values = accuracy[:, :, SELECTED, CHANGED]
    return np.broadcast_to(values, (len(values), n_places)) if one.per_position else values
