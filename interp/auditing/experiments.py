"""Ablation and pattern replacement of every head, and of sets of heads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.interventions.ablation_engine import AblationEngine, Head, Net, every_head
from hooks.interventions.replacements import Pattern, Replacement
from interp.core.activations import chunks
from interp.core.statistics import drop_tests
from interp.core.verbs import visible_keys
from interp.heads.kinds import relations_of
from interp.heads.methods import REMOVALS, ReplacementOf, normalised, random_weights, replacements
from interp.tasks.base import Batch, Score, Task

TOKENS_PER_CHUNK = 1536
READINGS = ("ideal", "read_part")
"""Interventions that test a label; see `_reading`."""
INTERVENTIONS = (*REMOVALS, "uniform", "random_rows", *READINGS)
OPPOSED = 0.5
"""Pairs whose writes have a cosine below minus this are removed together, since they may cancel."""
SUSPECTED = 0.05
"""p value at which the search follows up a set. Whatever it finds is tested again, on other sequences and at the
audit's level."""


@dataclass(frozen=True)
class Effects:
    """Effects of every intervention on every head, sequence by sequence."""

    total: Float[np.ndarray, "sample outcome"]
    """Answers scored."""
    drop: Mapping[str, Float[np.ndarray, "sample head outcome"]]
    """Right answers lost, by intervention; NaN where it was not tried."""

    def on(self, outcomes: Sequence[int]) -> "Effects":
        """The effects on some of the outcomes."""
        return Effects(self.total[:, outcomes], {name: drop[:, :, outcomes] for name, drop in self.drop.items()})


@dataclass
class HeadExperiments:
    """Interventions on the heads of one model on one batch, which is run in parts."""

    model: Net
    task: Task
    batch: Batch
    seed: int
    """Determines references and random rows."""
    keep: bool = False
    """Keep the clean run of every part for further calls; the batch must be small."""

    _removals: dict[str, ReplacementOf] = field(init=False, default_factory=dict)

    @property
    def heads(self) -> list[Head]:
        """All heads of the model."""
        return every_head(self.model)

    def _removal(self, method: str) -> ReplacementOf:
        if method not in self._removals:  # references are drawn once
            self._removals[method] = replacements(method, self.model, self.task, self.batch, seed=self.seed)
        return self._removals[method]

    def parts(self) -> Iterable[tuple[Batch, slice, AblationEngine]]:
        """Parts of the batch, each with its rows and an ablation engine."""
        return self._kept if self.keep else self._run()

    @cached_property
    def _kept(self) -> list[tuple[Batch, slice, AblationEngine]]:
        return list(self._run())

    def _run(self) -> Iterator[tuple[Batch, slice, AblationEngine]]:
        self.model.eval()
        size = max(1, TOKENS_PER_CHUNK // self.batch.tokens.shape[1])
        for index, part in enumerate(chunks(self.batch, size)):
            rows = slice(index * size, index * size + len(part))
            engine = AblationEngine(self.model, part.tokens, read_at=part.target_positions, **part.model_inputs())
            yield part, rows, engine

    def score(self) -> Score:
        """Score of the unchanged model on each sequence."""
        scores = [self.task.score(engine.logits, part) for part, _, engine in self.parts()]
        return Score(**{name: torch.cat([getattr(one, name) for one in scores]) for name in ("right", "loss", "total")})

    def effects(
        self, labels: Mapping[Head, str], *, negligible: Float[np.ndarray, " outcome"] | float = -np.inf
    ) -> Effects:
        """Apply every intervention to every head.

        Args:
            labels: Kind that each readable head is labelled with; `ideal` and `read_part` are tried on these only.
            negligible: Loss of accuracy on each outcome; `read_part` is not tried on heads whose removal costs less on
                all of them, since no verdict depends on it.
        """
        drop, total = self._each_head(INTERVENTIONS[:-1], labels)
        cost = drop["mean"].sum(0) / np.maximum(total.sum(0), 1e-300)
        costly = dict(zip(self.heads, (cost >= negligible).any(-1), strict=True))
        labels = {head: label for head, label in labels.items() if costly[head]}
        drop["read_part"] = np.full_like(drop["mean"], np.nan)
        if labels:
            drop |= self._each_head(("read_part",), labels)[0]
        return Effects(total=total, drop=drop)

    def _each_head(
        self, names: Sequence[str], labels: Mapping[Head, str]
    ) -> tuple[dict[str, Float[np.ndarray, "sample head outcome"]], Float[np.ndarray, "sample outcome"]]:
        """Right answers lost under each of these interventions, and answers scored."""
        kinds = sorted(set(labels.values()))
        related = relations_of(self.task, self.batch, kinds) if kinds else {}
        n_outcomes = len(self.task.outcomes)
        drop = {name: np.full((len(self.batch), len(self.heads), n_outcomes), np.nan) for name in names}
        total = np.empty((len(self.batch), n_outcomes))
        for part, rows, engine in self.parts():
            clean = self.task.score(engine.logits, part)
            right, total[rows] = clean.right.double(), clean.total.double().numpy()
            changes = self._patterns(part, rows, {kind: relation[rows] for kind, relation in related.items()}, labels)
            changes |= {name: self._removal(name)(rows) for name in REMOVALS if name in names}
            for name in names:
                for head, logits in engine.each_head(changes[name], labels if name in READINGS else None):
                    after = self.task.score(logits, part).right.double()
                    drop[name][rows, self.heads.index(head)] = (right - after).numpy()
        return drop, total

    def removed(self, sets: Sequence[Sequence[Head]]) -> Float[np.ndarray, "sample set outcome"]:
        """Right answers lost when all heads of a set are replaced by their means, for each set."""
        drop = np.zeros((len(self.batch), len(sets), len(self.task.outcomes)))
        for part, rows, engine in self.parts() if sets else ():
            before = self.task.score(engine.logits, part).right.double()
            replace = self._removal("mean")(rows)
            for index, chosen in enumerate(sets):
                after = self.task.score(engine.head_set(chosen, replace), part).right.double()
                drop[rows, index] = (before - after).numpy()
        return drop

    def _patterns(
        self, part: Batch, rows: slice, related: Mapping[str, Tensor], labels: Mapping[Head, str]
    ) -> dict[str, Replacement]:
        """Replacement patterns for a part of the batch.

        A label describes the queries that have related keys. For labelled heads only those rows are replaced, so that
        the other rows affect neither test of the label; for other heads, all rows.
        """
        model = self.model
        allowed = visible_keys(model, part.tokens, part.attention_mask)
        seen = {kind: relation & allowed for kind, relation in related.items()}
        described = {kind: relation.any(-1, keepdim=True) for kind, relation in seen.items()}
        uniform = normalised(allowed.double(), allowed)
        random = normalised(random_weights(allowed, self.seed, rows.start), allowed)

        def row_by_row(new: Float[Tensor, "batch query key"]) -> Replacement:
            def new_pattern(layer: int, clean: Tensor) -> Tensor:
                pattern = new.to(clean)[:, None].expand_as(clean).clone()
                for head in range(model.cfg.n_heads):
                    if kind := labels.get((layer, head)):
                        pattern[:, head] = torch.where(described[kind], pattern[:, head], clean[:, head])
                return pattern

            return Pattern(new_pattern)

        def reading(ideal: bool) -> Replacement:
            def new_pattern(layer: int, clean: Tensor) -> Tensor:
                pattern = clean.clone()
                for head in range(model.cfg.n_heads):
                    if kind := labels.get((layer, head)):
                        pattern[:, head] = _reading(pattern[:, head], seen[kind], allowed, ideal=ideal)
                return pattern

            return Pattern(new_pattern)

        return {
            "uniform": row_by_row(uniform),
            "random_rows": row_by_row(random),
            "ideal": reading(True),
            "read_part": reading(False),
        }


def _reading(
    pattern: Float[Tensor, "batch query key"],
    related: Bool[Tensor, "batch query key"],
    allowed: Bool[Tensor, "batch query key"],
    *,
    ideal: bool,
) -> Float[Tensor, "batch query key"]:
    """The part of a pattern that the label describes; rows without related keys are unchanged.

    `ideal`: attention is spread evenly over the related keys. Otherwise attention on related keys is unchanged, and the
    rest is spread evenly over the other keys.
    """
    described = related.any(-1, keepdim=True)
    if ideal:
        return torch.where(described, (related / related.sum(-1, keepdim=True).clamp_min(1)).to(pattern), pattern)
    others = (allowed & ~related).to(pattern)
    kept = pattern * related
    rest = (1 - kept.sum(-1, keepdim=True)).clamp_min(0)
    spread = kept + rest * others / others.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(described & others.any(-1, keepdim=True), spread, pattern)


Fatal = Callable[[frozenset[Head]], bool]
"""Whether removing these heads together costs more than removing each alone. Must be monotone: true of a set if true of
a subset."""


@dataclass(frozen=True)
class FatalSets:
    """Result of `fatal_sets`."""

    sets: tuple[tuple[Head, ...], ...]
    """Minimal fatal sets: none is fatal without any one of its heads."""
    together: tuple[Head, ...]
    """A largest set of heads that can be removed together."""
    removals: int
    """Number of sets tried."""


def fatal_sets(heads: Sequence[Head], fatal: Fatal) -> FatalSets:
    """Find a maximal set of heads that can be removed together, and a minimal fatal set for each other head.

    Heads join the set one by one, in the order given. A head that would make it fatal stays out; the heads of the set
    that it cannot be removed with are found by halving (QuickXplain), in about 2 k log2(heads / k) removals for k of
    them.

    Args:
        heads: Heads to search, none of them fatal alone.
        fatal: Experiment that removes a set.

    Source: Junker 2004 (QuickXplain).
    """
    tried: dict[frozenset[Head], bool] = {}

    def is_fatal(chosen: frozenset[Head]) -> bool:
        if chosen not in tried:
            tried[chosen] = fatal(chosen)
        return tried[chosen]

    if len(heads) < 2 or not is_fatal(frozenset(heads)):
        return FatalSets((), tuple(heads), len(tried))
    together, sets = list(heads[:1]), []
    for head in heads[1:]:
        if is_fatal(frozenset([*together, head])):
            sets.append(tuple(sorted([head, *_fewest(frozenset([head]), together, is_fatal, changed=False)])))
        else:
            together.append(head)
    return FatalSets(tuple(sets), tuple(together), len(tried))


def _fewest(background: frozenset[Head], heads: Sequence[Head], fatal: Fatal, *, changed: bool) -> list[Head]:
    """A minimal subset of the heads that is fatal together with the background; all of them are."""
    if changed and fatal(background):
        return []
    if len(heads) == 1:
        return list(heads)
    half = len(heads) // 2
    first, second = list(heads[:half]), list(heads[half:])
    from_second = _fewest(background | frozenset(first), second, fatal, changed=True)
    from_first = _fewest(background | frozenset(from_second), first, fatal, changed=bool(from_second))
    return from_first + from_second


@dataclass(frozen=True)
class HeadSets:
    """Sets of heads to remove together."""

    fatal: tuple[tuple[Head, ...], ...]
    opposed: tuple[tuple[Head, Head], ...]

    @property
    def all(self) -> list[tuple[Head, ...]]:
        """Every set: first the fatal ones, then the opposed pairs."""
        return [*self.fatal, *self.opposed]

    def effects(
        self,
        together: Float[np.ndarray, "sample set outcome"],
        alone: Float[np.ndarray, "sample head outcome"],
        heads: Sequence[Head],
    ) -> Float[np.ndarray, "sample set outcome"]:
        """Effects that verdicts use: of fatal sets the excess over their heads alone, of pairs the whole effect."""
        more = together.copy()
        for index, chosen in enumerate(self.fatal):
            more[:, index] -= alone[:, [heads.index(head) for head in chosen]].sum(1)
        return more


def sets_to_test(
    search: HeadExperiments, effects: Effects, outcomes: list[int], threshold: Float[np.ndarray, " outcome"]
) -> HeadSets:
    """Find sets worth a test: fatal together though no head is alone, and opposed pairs of which one is needed alone.

    Args:
        search: Experiments on other, fewer sequences than those of the effects.
        effects: Effects of single heads.
        outcomes: Indices of the outcomes that count.
        threshold: Loss of accuracy that counts on each of them.
    """
    cost = (effects.drop["mean"].sum(0) / np.maximum(effects.total.sum(0), 1e-300))[:, outcomes]
    needed = dict(zip(search.heads, (cost > threshold).any(-1), strict=True))
    spare = [head for head, alone in needed.items() if not alone]
    total = search.score().total.double().numpy()[:, outcomes]

    @cache
    def lost(*chosen: Head) -> Float[np.ndarray, "sample outcome"]:
        return search.removed([chosen])[:, 0, outcomes]

    def suspect(drop: Float[np.ndarray, "sample outcome"]) -> bool:
        p, _ = drop_tests(drop, total, threshold)
        return bool(p.min() * len(p) <= SUSPECTED)

    def fatal(chosen: frozenset[Head]) -> bool:
        together = lost(*sorted(chosen))  # a set that costs little needs no test of its heads alone
        return suspect(together) and suspect(together - sum(lost(head) for head in chosen))

    against = [pair for pair in opposed(search, OPPOSED) if any(needed[head] for head in pair)]
    return HeadSets(fatal_sets(spare, fatal).sets, tuple(against[: max(8, len(needed) // 2)]))


@torch.no_grad()
def opposed(experiments: HeadExperiments, least: float) -> list[tuple[Head, Head]]:
    """Pairs of heads with opposite writes: cosine at most -`least`.

    A head's write is its output at all positions of the batch, minus its mean over sequences at each position.
    """
    model, heads = experiments.model, experiments.heads
    written: list[Tensor] = []
    for _, _, engine in experiments.parts():
        rows = []
        for layer in range(model.cfg.n_layers):
            z, at = engine.heads(layer).z, cast(Any, model.blocks[layer])
            out = z if model.cfg.vo_identity else torch.einsum("bphe,hed->bphd", z, at.attn.W_O)
            rows.append(out.permute(2, 0, 1, 3))
        written.append(torch.cat(rows))
    every = torch.cat(written, 1)
    flat = (every - every.mean(1, keepdim=True)).flatten(1)
    size = flat.norm(dim=1, keepdim=True)
    unit = torch.where(size > 1e-9 * size.max(), flat / size.clamp_min(1e-300), 0)
    cosine = unit @ unit.T
    return [(heads[i], heads[j]) for i in range(len(heads)) for j in range(i + 1, len(heads)) if cosine[i, j] <= -least]
