"""Does a model compute this? Interchange interventions on every variable of a stated algorithm, and of its rivals."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from hooks.checks import check_choice, check_number
from hooks.interventions.clean_pass import Net
from hooks.state import check_differentiable, restores_state
from hooks.typed import checks_types
from interp.algorithms.algorithm import Algorithm
from interp.algorithms.experiment import Experiment, Interchanged, Search, Setup
from interp.algorithms.findings import accuracy_of_best, answers_as, contradiction_of, finding_of
from interp.algorithms.judgement import AlgorithmEvidence, judge_algorithms
from interp.algorithms.placebo import candidates_for
from interp.algorithms.predictions import FEWEST_PAIRS, choose_pairs, computations_on, pairs_of_all
from interp.algorithms.result import BAR, ImplementsResult
from interp.algorithms.search import CHANGED, Located, Stage, locate, search_again
from interp.core.interchange import SITE_KINDS, Site, SiteKind, sites_of
from interp.core.randomness import derived_generator, derived_seed
from interp.core.verbs import STREAM, AnyModel, Needs, prepare_model, untrained_copy
from interp.tasks.base import Batch, Task
from interp.tasks.splits import ALL, check_sample_size, sample_split

FINER: tuple[SiteKind, ...] = ("z", "attn_out", "mlp_out")
"""Sites that are searched for what the residual stream does not have by itself."""


NEEDS = Needs("implements", edits=[*STREAM, "attn.hook_z"], answers=True, untrained=True)


@checks_types
@restores_state
def implements(
    model: AnyModel,
    task: Task,
    algorithm: Algorithm,
    *,
    rivals: Sequence[Algorithm] = (),
    sites: str | Sequence[str] | Mapping[str, Site] = "auto",
    search: str = "auto",
    n: int | str = 512,
    seed: int = 0,
) -> ImplementsResult:
    """Test whether a model computes an algorithm, by interchanging its variables between inputs.

    For each variable and each site, the activations in a source input replace those in a base input. If the variable is
    there, the answers become those of the algorithm with the source's value of the variable and the base's inputs
    (interchange intervention accuracy); and they stay as they are with a placebo source, another input in which the
    variable has the same value. In these shares no answer has more than half of the weight, so that neither a constant
    answer nor damage that always leads to the same answer is a success. Half of the pairs select the site, the other
    half score it. The model *implements* the algorithm if it answers as the algorithm does, each variable is found at
    some site, and no variable of a rival that is found contradicts it; each of these with the whole 95 % interval at
    or above 0.9.

    Only answers count that the model gives rightly without an interchange. `forced` is the accuracy of an interchange
    of outputs: a variable that is an answer is always found at the read-out of this answer. If a search is going to
    take more than ten seconds, its expected time is printed before it starts.

    Args:
        model: Model to intervene on. It is not changed.
        task: Source of the inputs: base inputs from its test split, source inputs from `task.counterparts`.
        algorithm: The algorithm to test.
        rivals: Other algorithms for the same answers, tested on the same pairs. Their answers are read as those of
            `algorithm` are.
        sites: Kinds of sites, one or several of: `resid`, the residual stream before each layer and after the last;
            `attn_out`; `mlp_out`; `z`, the output of one head. Or the site of each variable by name, to test a stated
            alignment; places are searched. `auto`: `resid`, then the others for variables that are not there.
        search: What is interchanged: the `whole` activation; the subspace that the `means` of the variable's values
            span; the same by an `oblique` projection, which leaves all else that varies there, such as a variable whose
            direction is not orthogonal; or a subspace that is `learned` on the pairs that select, at the best sites of
            whole interchanges. `auto`: whole activations, then spans of means and finer sites for variables that no
            whole one has by itself, then oblique ones; whole ones only at stated sites.
        n: Number of pairs. With fewer than 72 no variable can be found, as the interval is too wide. Or `all`: pairs
            of all inputs of the test split, in a task that can list them. If every pair in which a variable changes an
            answer is used, at most 16,384, shares are exact and there are no intervals; else a fixed part of them is.
            The seed has a part in `untrained` only.
        seed: Determines pairs, the untrained model and the start of learning.

    Returns:
        Findings about each variable, the verdict, and a map of sites and places.

    Raises:
        ValueError: fewer than 32 pairs, inputs that cannot be listed, an unknown kind of site or search, a site that
            the model does not have, a variable without a site, two algorithms of one name, `learned` for variables with
            a value at each position, or a model that does not fit.

    Example:
        >>> import interp
        >>> from interp.algorithms import bracket_stack
        >>> from interp.known_answers import stack_dyck
        >>> task = interp.tasks.Dyck(length=8)
        >>> interp.implements(stack_dyck(task), task, bracket_stack(task), n=256).finding("top").site
        'resid 1'

    Source: Geiger et al. 2021 (arXiv:2106.02997) interchange interventions; Geiger et al. 2024 (arXiv:2303.02536)
    learned subspaces. Differs: sites are scored on other pairs than they are selected on; answers that must stay count.
    """
    net = prepare_model(model, NEEDS, task)
    check_differentiable("model", net, "the search for subspaces")
    algorithms = (algorithm, *rivals)
    stages = _stages(net, algorithms, sites, search, n)
    pairs = pairs_of_all(task, algorithms) if isinstance(n, str) else choose_pairs(task, algorithms, n, seed)
    candidates = candidates_for(task, pairs, seed)
    setup = Setup(
        task=task,
        algorithms=algorithms,
        pairs=pairs,
        computations=computations_on(pairs, algorithms),
        candidates=candidates,
        candidate_computations={tested.name: tested.run(candidates.batch) for tested in algorithms},
        inputs=pairs.base_inputs if pairs.of_all_inputs else _inputs_as_they_come(task, len(pairs), seed),
        stated_sites=sites if isinstance(sites, Mapping) else {},
        seed=0 if pairs.of_all_inputs else seed,
    )
    trained = Experiment(net, setup)
    agreements = [answers_as(trained, tested) for tested in algorithms]
    # The best site of every variable; finer ones only for algorithms that the answers do not refute.
    may_pass = {agreement.algorithm for agreement in agreements if not agreement.is_refuted}
    located = locate(
        trained, stages, name="interchanges", is_open=lambda hypothesis: hypothesis.name[0] in may_pass, times=2
    )
    untrained = Experiment(untrained_copy(net, derived_seed(seed, "untrained") % 2**31), setup, judge_all=True)
    located_untrained = search_again(untrained, located, name="interchanges, untrained")
    # What is found there, and where algorithms contradict each other.
    findings, contradictions = [], []
    for index, hypothesis in enumerate(trained.hypotheses):
        control = accuracy_of_best(untrained, untrained.hypotheses[index], located_untrained[index])
        finding, answers = finding_of(trained, hypothesis, located[index], control)
        findings.append(finding)
        for rival in algorithms:
            contradiction = contradiction_of(trained, hypothesis, finding, answers, rival)
            if contradiction is not None:
                contradictions.append(contradiction)
    names = [rival.name for rival in rivals]
    judgement = judge_algorithms(algorithm.name, names, AlgorithmEvidence(findings, agreements, contradictions))
    all_sites = list(
        dict.fromkeys(site for variable in located for stage, _ in variable.searched for site in stage.sites)
    )
    return ImplementsResult(
        algorithm=algorithm.name,
        rivals=tuple(names),
        verdict=judgement.verdict,
        reason=judgement.reason,
        rival=judgement.rival,
        bar=BAR,
        search=search,
        findings=tuple(findings),
        answers=tuple(agreements),
        contradictions=tuple(contradictions),
        sites=tuple(map(str, all_sites)),
        places=tuple(place.name for place in trained.places),
        map=np.stack([_map(variable, all_sites, len(trained.places)) for variable in located]),
        n=len(pairs),
        exact=pairs.every_pair,
        n_inputs=len(pairs.base_inputs) if pairs.of_all_inputs else 0,
    )


def _inputs_as_they_come(task: Task, n: int, seed: int) -> Batch:
    """Inputs of the test split."""
    return sample_split(task, n, generator=derived_generator(seed, "implements answers"), split="test")


def _map(located: Located, sites: Sequence[Site], n_places: int) -> Float[np.ndarray, "site place"]:
    """Accuracy of a variable at every site and place, as in the stage that found it where there are several.

    A variable with a value at each position has one accuracy for each site, repeated for all places.
    """
    accuracies = np.full((len(sites), n_places), np.nan)
    stages = sorted(located.searched, key=lambda searched: searched[0] == located.stage)  # the one that found it last
    for stage, by_site in stages:
        for index, site in enumerate(stage.sites):
            row = accuracies[sites.index(site)]
            row[:] = np.where(np.isnan(by_site[index, :, CHANGED]), row, by_site[index, :, CHANGED])
    return accuracies


def _stages(
    net: Net,
    algorithms: Sequence[Algorithm],
    sites: str | Sequence[str] | Mapping[str, Site],
    search: str,
    n: int | str,
) -> list[Stage]:
    """Check the arguments, and return what is searched, in this order."""
    kinds = _checked_kinds(net, algorithms, sites, search, n)
    if isinstance(sites, Mapping):
        stated_sites = tuple(dict.fromkeys(sites.values()))
        return [Stage("whole" if search == "auto" else cast(Interchanged, search), stated_sites)]
    searched = tuple(sites_of(net, kinds))
    if search != "auto":
        return [Stage(cast(Interchanged, search), searched)]
    stages = [Stage("whole", searched), Stage("means", searched)]
    if sites == "auto":
        finer: list[SiteKind] = [kind for kind in FINER if _has_kind(kind, net)]
        stages.append(Stage("whole", tuple(sites_of(net, finer))))
    return [*stages, Stage("oblique", searched)]


def _checked_kinds(
    net: Net,
    algorithms: Sequence[Algorithm],
    sites: str | Sequence[str] | Mapping[str, Site],
    search: str,
    n: int | str,
) -> tuple[SiteKind, ...]:
    """Check the arguments, and return the kinds of sites."""
    check_sample_size("n", n, low=FEWEST_PAIRS)
    check_choice("search", search, Search)
    if search == "learned" and n == ALL:
        raise ValueError(
            "search is 'learned', which needs other pairs to score on than to learn from; give a number n."
        )
    names: list[str] = []
    for algorithm in algorithms:
        if algorithm.name in names:
            raise ValueError(f"two algorithms are called {algorithm.name!r}; give each its own name.")
        names.append(algorithm.name)
        if search == "learned" and any(variable.per_position for variable in algorithm.variables):
            raise ValueError(
                f"search is 'learned', but {algorithm.name!r} has a value at each position; use 'whole' or 'means'."
            )
    if isinstance(sites, Mapping):
        _check_stated_sites(net, algorithms, sites, search)
        return tuple(dict.fromkeys(site.kind for site in sites.values()))
    if sites == "auto":
        return ("resid",)
    kinds: tuple[Any, ...] = (sites,) if isinstance(sites, str) else tuple(sites)
    if not kinds:
        raise ValueError(f"sites is empty; give one or several of {', '.join(SITE_KINDS)}, or 'auto'.")
    for kind in kinds:
        check_choice("sites", kind, SiteKind)
        _check_kind(kind, net)
    return kinds


def _check_stated_sites(net: Net, algorithms: Sequence[Algorithm], sites: Mapping[str, Site], search: str) -> None:
    if not sites:
        raise ValueError("sites is empty; give the site of each variable, or kinds of sites.")
    known = [variable.name for algorithm in algorithms for variable in algorithm.variables]
    for name, site in sites.items():
        if name not in known:
            raise ValueError(f"sites has {name!r}, which is no variable; there are {', '.join(dict.fromkeys(known))}.")
        _check_site(name, site, net)
        if site.coordinates is not None and search not in ("whole", "auto"):
            raise ValueError(f"sites[{name!r}] has coordinates and search is {search!r}; use search='whole'.")
    for algorithm in algorithms:
        if missing := [variable.name for variable in algorithm.variables if variable.name not in sites]:
            raise ValueError(f"sites has no site of {missing[0]!r} of {algorithm.name!r}; it has {', '.join(sites)}.")


def _check_site(name: str, site: Any, net: Net) -> None:
    """Raise ValueError unless a model has the stated site of a variable."""
    check_choice(f"sites[{name!r}].kind", site.kind, SiteKind)
    _check_kind(site.kind, net)
    last = net.cfg.n_layers if site.kind == "resid" else net.cfg.n_layers - 1
    check_number(f"sites[{name!r}].layer", site.layer, integer=True, low=0, high=last)
    if (site.head is not None) != (site.kind == "z"):
        raise ValueError(f"sites[{name!r}] is {site}; give a head for the kind 'z', and for no other.")
    if site.head is not None:
        check_number(f"sites[{name!r}].head", site.head, integer=True, low=0, high=net.cfg.n_heads - 1)
    width = net.cfg.d_head if site.kind == "z" else net.cfg.d_model
    if site.coordinates is not None and (not site.coordinates or len(set(site.coordinates)) < len(site.coordinates)):
        raise ValueError(f"sites[{name!r}].coordinates is {site.coordinates}; give some, each once.")
    for coordinate in site.coordinates or ():
        check_number(f"sites[{name!r}].coordinates", coordinate, integer=True, low=0, high=width - 1)


def _check_kind(kind: SiteKind, net: Net) -> None:
    """Raise ValueError unless a model has hook points of a kind; `prepare_model` has checked the others."""
    if not _has_kind(kind, net):
        usable = ", ".join(name for name in SITE_KINDS if _has_kind(name, net))
        raise ValueError(f"sites has {kind!r}, but this model has no hook_{kind}; use {usable}.")


def _has_kind(kind: SiteKind, net: Net) -> bool:
    """Whether a model has hook points of a kind."""
    return kind in ("resid", "z") or net.can_edit(f"hook_{kind}")
