"""Activation patching: activations of source inputs in place of those of base inputs, at one site and place each."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.checks import shown
from hooks.interventions.clean_pass import TOKENS_PER_PASS, Net
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, MAY_BE_MISSING, POSITIVE_COUNT, SHARE, Axes, checks_types
from interp.core.consistency import check_known, check_that, grid
from interp.core.inputs import distinct_inputs, sum_by_input
from interp.core.interchange import Interchange, Place, Rows, Site, SiteKind, sites_of
from interp.core.intervals import Interval
from interp.core.progress import Count
from interp.core.randomness import derived_generator
from interp.core.results import MOST_LINES, MOST_PANELS, Result, count_range, table_lines
from interp.core.sample import Sample
from interp.core.statistics import effective_trials, mean_interval, share_interval
from interp.core.verbs import STREAM, AnyModel, Needs, prepare_model, without_mlps
from interp.tasks.base import LOGIT_DIFFERENCE, Batch, Task
from interp.tasks.outputs import checked_batch
from interp.tasks.splits import ALL, EveryInput, check_sample_size, sample_split

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

PlaceKind = Literal["each", "roles", "all"]
"""Each position, the places that have a role in the task, or all positions together."""
WORDS = {
    "z": "head",
    "resid": "residual stream before layer",
    "attn_out": "attention of layer",
    "mlp_out": "MLP of layer",
}
"""Kinds of sites in a sentence, before their number."""
PAIRS_AT_ONCE = 8 * TOKENS_PER_PASS
"""Tokens of the pairs whose activations are in memory at a time."""


@dataclass(frozen=True, kw_only=True)
class PatchResult(Result):
    """What activations of a source input, in place of those of a base input, do to the answers.

    The independent units of every interval are distinct pairs of inputs.
    """

    kind: str
    """What was patched: the output of one head (`z`), the residual stream before a layer (`resid`), or what attention
    or the MLP of a layer adds to it (`attn_out`, `mlp_out`)."""
    sites: Annotated[tuple[str, ...], Axes("site")]
    """The heads as `layer.head`, or the layers; for `resid` the last one is the input of the read-out."""
    places: Annotated[tuple[str, ...], Axes("place"), DISTINCT]
    """Positions, roles of the task, or `all`."""
    targets: Annotated[tuple[str, ...], Axes("target"), DISTINCT]
    """Names of the targets."""
    effect: Annotated[Interval, Axes("site place target"), MAY_BE_MISSING]
    """Mean rise of the `contrast`, by default the logit of the source's answer minus that of the base's, over pairs
    whose answers differ, with its 95 % t interval; without one for a single pair."""
    gap: Annotated[Interval, Axes("target"), MAY_BE_MISSING]
    """Mean contrast on the source minus that on the base: the effect of patching everything."""
    follows: Annotated[Interval, Axes("site place target"), SHARE, MAY_BE_MISSING]
    """Share of the pairs whose answers differ in which the model gives the source's answer."""
    control: Annotated[Float[np.ndarray, "site place target"], SHARE, MAY_BE_MISSING]
    """Share of the pairs with the same answer in which patching changes the model's answer: what does harm without
    carrying the answer is in it."""
    shape: Annotated[tuple[int, int], POSITIVE_COUNT]
    """Number of layers and of heads per layer of the model."""
    n: Annotated[int, COUNT]
    """Pairs sampled."""
    contrast: str = LOGIT_DIFFERENCE
    """What is moved: `Task.contrast`, in words."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known("kind", [self.kind], WORDS, "a patch")
        names = [f"{layer}.{head}" for layer, head in grid(self.shape)]
        if self.kind != "z":
            names = [str(layer) for layer in range(self.shape[0] + (self.kind == "resid"))]
        text = f"sites is {shown(self.sites)}; of this kind and shape it must be {shown(tuple(names))}."
        check_that(self.sites == tuple(names), text)

    @property
    def share(self) -> Float[np.ndarray, "site place target"]:
        """The effect as a share of the gap: 0 if patching does nothing, 1 if it gives the source's logit difference."""
        return self.effect.value / self.gap.value

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per site, place and target."""
        axes = {"site": self.sites, "place": self.places, "target": self.targets}
        columns = self.effect.columns("effect") | self.follows.columns("follows", "follows_low", "follows_high")
        gap = np.broadcast_to(self.gap.value, self.effect.shape)
        n = np.broadcast_to(self.effect.n, self.effect.shape)
        return self._table(axes, "share", "control", **columns, gap=gap, n=n)

    def plot(self) -> "alt.TopLevelMixin":
        """Site x place maps of the share of the gap for each target; layer x head maps of heads at all positions."""
        from interp.view.charts import heatmaps

        panels = dict(zip(self.targets, np.moveaxis(self.share, -1, 0), strict=True))
        if len(panels) > MOST_PANELS:
            panels = {f"mean of {len(panels)} targets": np.nanmean(self.share, -1)}
        rows, columns, titles = list(self.sites), list(self.places), ("head" if self.kind == "z" else "layer", "place")
        if self.kind == "z" and self.places == ("all",):
            panels = {name: values.reshape(self.shape) for name, values in panels.items()}
            rows, columns, titles = None, [str(head) for head in range(self.shape[1])], ("layer", "head")
        return heatmaps(
            panels,
            x=columns,
            y=rows,
            x_title=titles[1],
            y_title=titles[0],
            title=f"logit difference moved to the source's by patching {self.kind}, n = {self.n} pairs",
            value="share",
            domain=(-1.0, 1.0),
        )

    def __str__(self) -> str:
        names = [[f"{site} at {place}" for place in self.places] for site in self.sites]
        rows = [[self.kind, *self.targets]]
        # One line per site and place, of many those with the largest effects
        sizes = np.nan_to_num(np.abs(self.effect.value)).max(-1)
        largest = np.argsort(-sizes.ravel(), kind="stable")[:MOST_LINES]
        shown = np.sort(largest[sizes.ravel()[largest] >= 0.005])  # smaller ones would be printed as 0.00
        for site, place in zip(*np.unravel_index(shown, sizes.shape), strict=True):
            rows.append([names[site][place], *(interval.text(2) for interval in self.effect[site, place])])
        rows.append(["everything", *(gap.text(2) for gap in self.gap)])
        *lines, everything = table_lines(rows)
        if sizes.size > len(shown):
            lines.append(f"{sizes.size - len(shown)} sites and places with smaller effects or none")
        lines.append(everything)
        n = count_range(np.asarray(self.gap.n))
        lines.append(
            f"rise of {self.contrast}; {self.n} pair{'s' if self.n > 1 else ''}, {n} of them with different answers, "
            f"{'exact' if self.gap.exact else 'which intervals count'}"
        )
        return "\n".join([*lines, self.sentence()])

    def sentence(self) -> str:
        """The largest effect in a sentence."""
        sizes = np.nan_to_num(np.abs(self.effect.value))
        site, place, target = np.unravel_index(sizes.argmax(), sizes.shape)
        where = "at all positions" if self.places == ("all",) else f"at {self.places[place]}"
        if self.places[place].isdigit():
            where = f"at position {self.places[place]}"
        patched = f"{WORDS[self.kind]} {self.sites[site]}"
        if self.kind == "resid" and site == self.shape[0]:
            patched = "residual stream before the read-out"
        effect, gap, follows = self.effect[site, place, target], self.gap[target], self.follows[site, place, target]
        control = self.control[site, place, target]
        contrast = "the logit difference" if self.contrast == LOGIT_DIFFERENCE else self.contrast
        unrelated = (
            "" if np.isnan(control) else f"; where both have the same answer, {control:.2f} of the answers change"
        )
        return (
            f"The source's {patched} {where} moves {contrast} of "
            f"{self.targets[target]} by {effect.text(2)} of {gap:.2f}, and {follows.text(2)} of the answers become the "
            f"source's{unrelated}."
        )


NEEDS = Needs("patch", edits=[*STREAM, "attn.hook_z"], answers=True)
NEEDS_OF_ATTENTION = Needs("patch of attention outputs", edits=[*STREAM, "hook_attn_out"], answers=True)
NEEDS_OF_MLPS = Needs(
    "patch of MLPs",
    edits=[*STREAM, "hook_mlp_out"],
    answers=True,
    lacks=without_mlps("site is 'mlp_out', but this model has no MLPs; choose z, resid or attn_out."),
)


@checks_types
@restores_state
def patch(
    model: AnyModel,
    task: Task,
    *,
    site: SiteKind = "z",
    positions: PlaceKind = "each",
    n: int | EveryInput = 128,
    seed: int = 0,
) -> PatchResult:
    """Patch activations of a source input into a base input, and measure how far the logits go to the source's answer.

    Base inputs are held-out sequences, source inputs their counterparts (`task.counterparts`). Every site and place is
    patched separately, exactly: a pass resumes inside the layer of the site and is read at the targets.

    Args:
        model: Model to intervene on. It is not changed.
        task: Source of the pairs and their labels.
        site: What is patched: `z`, the output of one head; `resid`, the residual stream before a layer; `attn_out` or
            `mlp_out`, what attention or the MLP of a layer adds.
        positions: `each` position separately; the places that have `roles` in the task (`task.places`), which are the
            same for every sequence wherever they are; or `all` positions together.
        n: Number of pairs. "all": every input of the test split as a base, with a fixed family of its other inputs as
            sources (1,024 pairs or more, of up to 32 inputs all pairs), without sampling error.
        seed: Determines the pairs.

    Raises:
        ValueError: too few pairs, a task without two answers or whose pairs always have the same answer, a site that
            the model does not have, or a hook of the caller's where passes resume.

    Source: interchange interventions, Geiger et al. 2021 (arXiv:2106.02997); activation patching of
    TransformerLens, `get_act_patch_attn_head_out_by_pos` and others, whose metric is free. Differs: many pairs in
    place of one, with intervals.

    Example:
        >>> import numpy as np
        >>> import interp
        >>> from interp.known_answers import lego_loop
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> patched = interp.patch(lego_loop(task), task, positions="roles", n=32)
        >>> site, place = np.unravel_index(patched.share[..., 1].argmax(), patched.effect.shape[:2])
        >>> patched.sites[site], patched.places[place]
        ('2.1', '#1 variable')
    """
    net = prepare_model(model, {"attn_out": NEEDS_OF_ATTENTION, "mlp_out": NEEDS_OF_MLPS}.get(site, NEEDS), task)
    check_sample_size("n", n, low=8)
    if task.d_vocab_out < 2:
        raise ValueError(
            f"the task has {task.d_vocab_out} output per target, and no other answer to compare one with; use a task "
            f"with two answers or more."
        )
    # Pairs of inputs, and where their activations are
    base, source = _pairs(task, n, seed)
    is_exact = n == ALL
    both = base.present & source.present
    differs, same = both & (base.labels != source.labels), both & (base.labels == source.labels)
    if not differs.any():
        raise ValueError(
            f"the {len(base)} pairs of {type(task).__name__} have the same answers at every target, so that "
            f"patching has nothing to move; give more pairs, or another task."
        )
    places = _places(task, base, source, positions)
    # The rise of the logit difference, and the answers, in every pair
    net.eval()
    sites = sites_of(net, [site])
    size = max(1, PAIRS_AT_ONCE // max(base.tokens.shape[1], source.tokens.shape[1]))
    with Count("patching", -(-len(base) // size)) as count:
        parts = []
        for start in range(0, len(base), size):
            rows = slice(start, start + size)
            parts.append(_patched(net, task, base.select(rows), source.select(rows), sites, _select(places, rows)))
            count.advance()
    rise, gap, answers, clean = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    # Which pairs count at each place, and whose units are distinct pairs
    pair = np.stack([distinct_inputs(base), distinct_inputs(source)], 1)
    units = np.unique(pair, axis=0, return_inverse=True)[1].ravel()
    exists = torch.stack([_exists(place) for place in places], 1)[:, None, :, None]
    moved = (exists & differs[:, None, None]).double().numpy()
    unmoved = (exists & same[:, None, None]).double().numpy()
    weight = sum_by_input(moved, units)
    mean, low, high = mean_interval(sum_by_input(rise * moved, units), weight)
    gap_weight = sum_by_input(differs.double().numpy(), units)
    mean_gap, low_gap, high_gap = mean_interval(sum_by_input(gap * differs.numpy(), units), gap_weight)
    follows = sum_by_input((answers == source.labels[:, None, None].numpy()) * moved, units)
    changed = ((answers != clean[:, None, None]) * unmoved).sum(0)
    n_units = np.broadcast_to((weight > 0).sum(0), mean.shape).copy()
    effect = Interval(value=mean, low=low, high=high, n=n_units)
    whole_gap = Interval(value=mean_gap, low=low_gap, high=high_gap, n=(gap_weight > 0).sum(0))
    shares = _share(follows, weight, n_units)
    return PatchResult(
        kind=site,
        sites=tuple(_site_name(site) for site in sites),
        places=("all",) if positions == "all" else tuple(place.name for place in places),
        targets=tuple(task.targets),
        effect=effect.as_exact() if is_exact else effect,
        gap=whole_gap.as_exact() if is_exact else whole_gap,
        follows=shares.as_exact() if is_exact else shares,
        control=changed / np.where(unmoved.sum(0) > 0, unmoved.sum(0), np.nan),
        shape=(net.cfg.n_layers, net.cfg.n_heads),
        n=len(base),
        contrast=task.contrast_name,
    )


def _pairs(task: Task, n: int | EveryInput, seed: int) -> tuple[Batch, Batch]:
    """Base inputs and the source input of each: counterparts of a sample, or the partners of every input."""
    if n == ALL and not task.counterparts_are_fixed:
        every = Sample.of(task, n, seed=seed, name="patch")
        base = torch.arange(len(every)).repeat(every.n_draws)
        source = torch.cat([every.partners(slice(None), draw) for draw in range(every.n_draws)])
        return every.batch.select(base), every.batch.select(source)
    generator = derived_generator(seed, "patch")
    base = sample_split(task, n, generator=generator, split="test")
    return base, checked_batch(
        task, task.counterparts(base, generator=generator, split="test"), "counterparts", n=len(base)
    )


def _site_name(site: Site) -> str:
    return str(site.layer) if site.head is None else f"{site.layer}.{site.head}"


def _places(task: Task, base: Batch, source: Batch, kind: PlaceKind) -> list[Place]:
    """What is patched together, in every pair."""
    if kind == "all":
        # Positions that both inputs have; others stand for the first of these, which is patched anyway
        positions_of_both = _places(task, base, source, "each")
        both = torch.stack([_exists(place) for place in positions_of_both], 1)
        positions = torch.arange(len(positions_of_both)).expand_as(both)
        first = both.int().argmax(1, keepdim=True)
        positions = torch.where(both, positions, torch.where(both.any(1, keepdim=True), first, -1))
        return [Place("all", positions, positions)]
    places_of = task.places if kind == "roles" else partial(Task.places, task)
    of_base, of_source = places_of(base), places_of(source)
    return [Place(name, of_base[name], of_source[name]) for name in of_base if name in of_source]


def _exists(place: Place) -> Bool[Tensor, " pair"]:
    """Pairs whose inputs both have the place."""
    return ((place.base >= 0) & (place.source >= 0)).all(1)


def _select(places: Sequence[Place], rows: slice) -> list[Place]:
    """The places of some pairs."""
    return [Place(place.name, place.base[rows], place.source[rows]) for place in places]


@torch.no_grad()
def _patched(
    net: Net, task: Task, base: Batch, source: Batch, sites: Sequence[Site], places: Sequence[Place]
) -> tuple[
    Float[np.ndarray, "pair site place target"],
    Float[np.ndarray, "pair target"],
    Int[np.ndarray, "pair site place target"],
    Int[np.ndarray, "pair target"],
]:
    """In each pair: the rise of the logit difference at every site and place, and that with everything of the source;
    the answers at every site and place, and those to the base."""
    rows = Rows(torch.arange(len(base)), torch.arange(len(base)))
    interchange = Interchange(net, base, [source], [sites[0].kind])

    def difference(logits: Tensor, pairs: slice) -> Float[Tensor, "pair target"]:
        return task.contrast(logits.cpu().double(), source.labels[pairs], base.select(pairs))

    clean = interchange.logits
    before = difference(clean, slice(None))
    gap = difference(interchange.source_logits, slice(None)) - before
    rise = torch.empty(len(base), len(sites), len(places), before.shape[1], dtype=torch.float64)
    answers = torch.empty(rise.shape, dtype=torch.long)
    for index, site in enumerate(sites):
        # Places of one number of positions are patched together
        for width in {place.base.shape[1] for place in places}:
            numbers = [number for number, place in enumerate(places) if place.base.shape[1] == width]
            of_width = [places[number] for number in numbers]
            for position, pairs, logits in interchange.logits_at_places(site, of_width, rows):
                rise[pairs, index, numbers[position]] = difference(logits, pairs) - before[pairs]
                answers[pairs, index, numbers[position]] = task.answers(logits).cpu()
    return rise.numpy(), gap.numpy(), answers.numpy(), task.answers(clean).cpu().numpy()


def _share(
    hits: Float[np.ndarray, "unit *cells"], total: Float[np.ndarray, "unit *#cells"], n: Int[np.ndarray, "*cells"]
) -> Interval:
    """A share with its exact interval; NaN where nothing counts."""
    share, effective = effective_trials(hits, total)
    low, high = share_interval(share, effective)
    is_missing = n == 0
    value, low, high = (np.where(is_missing, np.nan, ends) for ends in (share, low, high))
    return Interval(value=value, low=low, high=high, n=n)
