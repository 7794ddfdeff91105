"""Result of an audit: a record for each head, tables, a chart and text."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from jaxtyping import Float

from hooks.checks import check_class, shown
from hooks.interventions.ablation_engine import Head
from hooks.typed import COUNT, DISTINCT, SHARE, Axes
from interp.auditing.contrast import Contrast, contrast_of, most_telling_head, points_lost
from interp.auditing.interventions import TESTED
from interp.auditing.records import HeadVerdict, InterventionCost, SetCost, check_costs
from interp.auditing.sentences import cost_on_outcome, name_of, sentence, verdict_summary, what_heads_do
from interp.auditing.strata import StratumCost
from interp.auditing.verdicts import HEAD_VERDICTS, RULES, RULES_OF_READING, Verdict
from interp.core.consistency import check_known, check_lost_accuracy, check_that
from interp.core.inputs import all_inputs_text, repeats_text
from interp.core.intervals import Interval
from interp.core.results import Result, count_range
from interp.core.weight_sums import same_weights
from interp.heads.edges import EdgesResult
from interp.heads.interventions import REMOVALS
from interp.heads.part_names import check_edges

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class AuditResult(Result):
    """Verdicts on the heads of a model, or on those that were chosen, layer by layer."""

    heads: tuple[HeadVerdict, ...]
    kinds: Annotated[tuple[str, ...], DISTINCT]
    """Kinds of attention that heads were scored on."""
    interventions: Annotated[tuple[str, ...], DISTINCT]
    outcomes: Annotated[tuple[str, ...], Axes("outcome"), DISTINCT]
    """Outcomes that the verdicts are based on."""
    clean: Annotated[Float[np.ndarray, " outcome"], SHARE]
    """Accuracy of the whole model on all sequences, also those of later looks."""
    threshold: Annotated[Float[np.ndarray, " outcome"], SHARE]
    """A head is needed if removing it costs more than this."""
    sets: tuple[SetCost, ...]
    """Sets of heads that were tested, after a search for them on other sequences."""
    exact: bool
    """Whether the search tried every set of heads."""
    largest_harmless: Annotated[tuple[Head, ...], COUNT]
    """A largest set of heads that can be removed together, on the sequences of the search."""
    smallest_costly: Annotated[tuple[Head, ...], COUNT]
    """A smallest set of heads that cannot; empty if all heads can be removed."""
    warnings: tuple[str, ...]
    """Limitations of the verdicts."""
    alpha: Annotated[float, SHARE]
    """Level of all verdicts together."""
    n: Annotated[int, COUNT]
    """Number of sequences; with `n="enough"`, the largest number behind any verdict; with `n="all"`, all inputs."""
    n_distinct: Annotated[int, COUNT]
    """Number of distinct inputs among them, fewer in a finite task; verdicts and intervals are about these inputs."""
    n_looks: Annotated[int, COUNT] = 1
    """Planned number of looks at growing numbers of sequences."""
    n_seeds: Annotated[int, COUNT] = 0
    """Number of models of other seeds behind `seeds_agree`."""
    strata: tuple[StratumCost, ...] = ()
    """Accuracy lost within strata of the sequences (`Task.strata`), for each head and for `largest_harmless`."""
    n_heads: Annotated[int, COUNT] | None = None
    """Number of heads of the model, if only some of them were audited."""
    largest_harmless_cost: InterventionCost | None = None
    """What removing `largest_harmless` costs, on the sequences of the first look; None if it is empty."""
    every_input: bool = False
    """Whether the sequences are every input of the task: costs, scores and accuracies are then exact, all bounds of
    intervals are the values, and p values of costs are 0 or 1."""
    weights: tuple[float, ...] = ()
    """`weight_sums` of the model, by which other results of the same model are known."""
    subject: str = ""
    """`subject_key` of the model and the task."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Every head was tested under the removals, and under no other interventions than those of the audit
        for index, head in enumerate(self.heads):
            if not set(REMOVALS) <= set(head.costs) <= set(self.interventions):
                raise ValueError(
                    f"heads[{index}] has costs of {shown(list(head.costs))}; the audit has {shown(self.interventions)}."
                )
        places = [head.place for head in self.heads]
        DISTINCT.check(places, "heads")
        for index, head in enumerate(self.heads):
            _check_head(f"heads[{index}]", head, self)
        # Heads of sets are those of the audit
        for index, heads in enumerate(self.sets):
            check_known(f"sets[{index}].heads", heads.heads, places, "heads")
        for name in ("largest_harmless", "smallest_costly"):
            check_known(name, getattr(self, name), places, "heads")
            DISTINCT.check(getattr(self, name), name)
        has_cost = self.largest_harmless_cost is not None
        check_that(self.largest_harmless or not has_cost, "largest_harmless_cost is the cost of no heads.")
        check_that(self.n_distinct <= self.n, f"n_distinct is {self.n_distinct}; n is {self.n}.")
        for index, stratum in enumerate(self.strata):
            check_known(f"strata[{index}].outcome", [stratum.outcome], self.outcomes, "outcomes")
            check_known(f"strata[{index}].heads", stratum.heads, places, "heads")
            check_lost_accuracy(f"strata[{index}].drop", stratum.drop, stratum.clean)
        # Records have one number for each outcome
        records = [(f"heads[{index}]", cost) for index, head in enumerate(self.heads) for cost in head.costs.values()]
        records += [(f"sets[{index}]", heads.cost) for index, heads in enumerate(self.sets)]
        check_costs(records, clean=self.clean, n=self.n)

    def of(self, verdict: str) -> tuple[Head, ...]:
        """(layer, head) of the heads with a verdict.

        Raises:
            ValueError: an unknown verdict (lists the known ones).
        """
        if verdict not in HEAD_VERDICTS:
            raise ValueError(f"verdict is {verdict!r}; choose one of {', '.join(HEAD_VERDICTS)}.")
        return tuple(head.place for head in self.heads if head.verdict == verdict)

    def cost(self, intervention: str) -> tuple[Float[np.ndarray, "head 3"], tuple[str, ...]]:
        """Cost of an intervention on each head's worst outcome, relative to its threshold.

        Returns:
            Drop with the bounds of its interval for each head, NaN where the intervention was not tried; and the
            outcome.

        Raises:
            ValueError: an unknown intervention (lists the known ones).
        """
        if intervention not in self.interventions:
            raise ValueError(f"intervention is {intervention!r}; choose one of {', '.join(self.interventions)}.")
        values = np.full((len(self.heads), 3), np.nan)
        outcomes = [self.outcomes[0]] * len(self.heads)
        for index, head in enumerate(self.heads):
            if cost := head.costs.get(intervention):
                worst = cost.worst(self.threshold)
                values[index] = cost.drop[worst], cost.low[worst], cost.high[worst]
                outcomes[index] = self.outcomes[worst]
        return values, tuple(outcomes)

    def sentences(self) -> tuple[str, ...]:
        """One sentence per head: what it looks like, and what removing it or replacing its pattern costs."""
        return tuple(sentence(head, outcomes=self.outcomes, threshold=self.threshold) for head in self.heads)

    def summary(self) -> str:
        """The model in two sentences: how many heads do what they look like and how many do not; and which heads do
        what, share work, or do nothing that counts."""
        return f"{verdict_summary([head.counted_as for head in self.heads])} {what_heads_do(self.heads)}"

    def contrast(self) -> Contrast | None:
        """Two heads that look alike, of which the model needs one; None if it has no such pair.

        >>> import interp
        >>> known = interp.known_answers.known_answer("template copy, zero decoy", seed=0)
        >>> contrast = interp.audit(known.model, known.task, n=128).contrast()
        >>> contrast.faithful.place, contrast.misleading.place
        ((0, 2), (0, 1))
        """
        return contrast_of(self.heads, outcomes=self.outcomes, threshold=self.threshold)

    def most_telling_head(self) -> HeadVerdict:
        """The head to look at first: the faithful one of the contrast, else the labelled head that costs most."""
        return most_telling_head(self.heads, outcomes=self.outcomes, threshold=self.threshold)

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per head: verdict, label, scores, and the cost of every intervention on its worst outcome."""
        import pandas as pd

        names = ("layer", "head", "verdict", "reason", "partners", "label", "kind")
        names += ("score", "score_low", "score_high", "p_label", "value_weighted", "moved")
        columns: dict[str, Any] = {name: [getattr(head, name) for head in self.heads] for name in names}
        columns["partners"] = [" ".join(map(name_of, partners)) for partners in columns["partners"]]
        for name in self.interventions:
            values, outcomes = self.cost(name)
            columns |= {name: values[:, 0], f"{name}_low": values[:, 1], f"{name}_high": values[:, 2]}
            if name == "mean":
                columns["outcome"] = outcomes
        for name in TESTED:
            for p in ("p_matters", "p_harmless"):
                tests = [getattr(head.costs.get(name), p, np.nan) for head in self.heads]
                columns[f"{name}_{p}"] = np.array(tests, dtype=float)
        for name in REMOVALS:
            columns[f"needed_{name}"] = [head.needed.get(name) for head in self.heads]
        columns["n_to_decide"] = [head.n_to_decide for head in self.heads]
        columns["verdict_outcome"] = [head.outcome for head in self.heads]
        columns["acts_like"] = [head.acts_like for head in self.heads]
        if self.n_seeds:
            columns["seeds_agree"] = [head.seeds_agree for head in self.heads]
        if self.heads[0].edges_in is not None:
            for name in ("edges_in", "edges_out"):
                columns[name] = ["; ".join(getattr(head, name)) for head in self.heads]
        return pd.DataFrame(columns | {"n": [head.n for head in self.heads]})

    def strata_to_dataframe(self) -> "pd.DataFrame":
        """One row per head, or set of heads, and stratum: accuracy within the stratum, what the removal costs there,
        and the number of sequences behind it."""
        import pandas as pd

        names = [field.name for field in fields(StratumCost)]
        columns: dict[str, Any] = {name: [getattr(cost, name) for cost in self.strata] for name in names}
        columns["heads"] = [" ".join(map(name_of, heads)) for heads in columns["heads"]]
        return pd.DataFrame(columns)

    def plot(self) -> "alt.TopLevelMixin":
        """Score against the cost of removing the head, and the verdict of each head by layer."""
        from interp.view.verdicts import verdict_chart

        return verdict_chart(self.to_dataframe(), sentences=self.sentences(), counted=self.counted_with_intervals())

    def _repr_html_(self) -> str:
        """A card for each head, and the chart; the table, whose columns are many, is folded."""
        from interp.view.cards import Card, notebook_cards
        from interp.view.figures import chart_html, table_html

        cards = []
        for head, text in zip(self.heads, self.sentences(), strict=True):
            name = name_of(head.place)
            cost = f"{points_lost(head, self.threshold)} lost without it"
            text = text.removeprefix(f"{name} ")
            cards.append(Card(name=name, verdict=head.verdict, cost=cost, text=text[:1].upper() + text[1:]))
        table = f"<details><summary>table of all numbers</summary>{table_html(self.to_dataframe())}</details>"
        return "\n".join(
            [notebook_cards(cards), f"<p>{self.counted_with_intervals()}</p>", chart_html(self.plot()), table]
        )

    def counted(self) -> str:
        """Number of sequences behind the verdicts, as text: "128 to 256", or "all 1,024 inputs, exact"."""
        if self.every_input:
            return all_inputs_text(self.n)
        n = count_range(np.array([head.n for head in self.heads]))
        return n + repeats_text(self.n, self.n_distinct, counted=False)

    def counted_with_intervals(self) -> str:
        """The number of sequences, and what intervals are: "128 sequences, 95 % intervals"."""
        return self.counted() if self.every_input else f"{self.counted()} sequences, 95 % intervals"

    def with_other_seeds(self, audits: Sequence["AuditResult"]) -> "AuditResult":
        """This result, with the fraction of other models that have a head like each one of its heads.

        Args:
            audits: Audits of models of the same shape, trained from other seeds.

        Returns:
            The result with `seeds_agree`: the fraction with a head of that label and verdict in the same layer.

        Raises:
            ValueError: no audits, or one of a model of another shape.
        """
        if not audits:
            raise ValueError("audits is empty; pass the audits of models trained from other seeds.")
        for index, audit in enumerate(audits):
            if [head.place for head in audit.heads] != [head.place for head in self.heads]:
                raise ValueError(
                    f"audits[{index}] has {_shape_in_words(audit)}, this model {_shape_in_words(self)}; pass audits of "
                    "models of the same shape."
                )
        # Two heads agree if layer, label and verdict are the same; their index within the layer means nothing
        similar_heads = [{(head.layer, head.label, head.verdict) for head in audit.heads} for audit in audits]
        heads = []
        for head in self.heads:
            n_agree = sum((head.layer, head.label, head.verdict) in heads_of_audit for heads_of_audit in similar_heads)
            heads.append(replace(head, seeds_agree=n_agree / len(audits)))
        return self.replaced(heads=tuple(heads), n_seeds=len(audits))

    def with_edges(self, edges: EdgesResult) -> "AuditResult":
        """This result, with the needed edges into each head and out of it, which its sentence then names.

        Args:
            edges: All edges between parts of the same model (`interp.edges`), on the same task.

        Returns:
            The result whose heads have `edges_in` and `edges_out`.

        Raises:
            ValueError: a result of another class, edges between layers or only some edges, or edges of a model with
                other weights or another config, or on another task or other outcomes.

        Example:
            >>> import interp
            >>> known = interp.known_answers.known_answer("template copy, zero decoy", seed=0)
            >>> audited = interp.audit(known.model, known.task, n=128)
            >>> audited = audited.with_edges(interp.edges(known.model, known.task, n=128))
            >>> [head.edges_out for head in audited.heads]
            [(), (), ('0.2 > read-out',)]
        """
        check_class("edges", edges, EdgesResult)
        if not edges.every_edge:
            raise ValueError(
                "edges has edges between layers, or only some edges, so edges of a head would be missing; give "
                "interp.edges(model, task)."
            )
        if not same_weights(self.weights, edges.weights):
            raise ValueError(
                "edges is of a model with other weights than the audited one; measure the edges of the audited model."
            )
        if edges.subject != self.subject:
            raise ValueError(
                "edges is of a model with another config, or of another task, than the audit; measure both on the same "
                "model and task."
            )
        if missing := sorted(set(self.outcomes) - set(edges.outcomes)):
            raise ValueError(
                f"edges is about {', '.join(edges.outcomes)}, without {missing[0]} of the audit; use the same task."
            )
        heads = []
        for head in self.heads:
            edges_in, edges_out = edges.needed_of(head.place)
            heads.append(replace(head, edges_in=edges_in, edges_out=edges_out))
        return self.replaced(heads=tuple(heads))

    def _cost_of_largest_harmless(self) -> str:
        """In words, on the outcome that suffers most."""
        cost = self.largest_harmless_cost
        if cost is None:
            return ""
        return f", which costs {cost_on_outcome(cost, cost.worst(self.threshold), self.outcomes)}"

    def __str__(self) -> str:
        # A line for each head
        lines = []
        for head, text in zip(self.heads, self.sentences(), strict=True):
            line = f"{head.verdict:<11} {text}"
            if head.seeds_agree is not None:
                line += f"  [{head.seeds_agree:.0%} of {self.n_seeds} other seeds agree]"
            lines.append(line)

        # How many heads have each verdict, at which level, and what counts as a loss
        counts = Counter(head.verdict for head in self.heads)
        verdicts = ", ".join(f"{counts[name]} {name}" for name in HEAD_VERDICTS if counts[name])
        looks = f", {self.n_looks} looks" if self.n_looks > 1 else ""
        accuracies = [f"{name} {clean:.2f}" for name, clean in zip(self.outcomes, self.clean, strict=True)]
        losses = dict.fromkeys(f"{loss:.2f}" for loss in self.threshold)
        basis = f"{self.counted()} sequences, level {self.alpha:g} (Bonferroni{looks})"
        if self.every_input:
            basis = f"{self.counted()}, labels at level {self.alpha:g}"
        lines.append(f"{verdicts}; {basis}")
        lines.append(
            f"judged by accuracy on {', '.join(accuracies)}; needed means a loss of more than {', '.join(losses)}"
        )
        # Sets of heads, unless none was tried
        if self.sets or self.largest_harmless:
            removable = f"{len(self.largest_harmless)} of {len(self.heads)} heads can be removed together"
            search = "every set of heads was tried: at most" if self.exact else "sets of heads were searched:"
            lines.append(f"{search} {removable}{self._cost_of_largest_harmless()}")
        return "\n".join([*lines, *self.warnings])


FURTHER_REASONS: tuple[tuple[Verdict, str], ...] = (
    ("faithful", "like a kind"),
    ("undecided", "like a kind too close"),
    ("hidden", "needed"),
    ("redundant", "partner"),
)
"""Verdicts with reasons that no rule gives by itself: of heads for which a kind was tried, or with partners."""
REASONS_OF_VERDICTS = {(verdict, reason) for _, verdict, reason in RULES} | set(FURTHER_REASONS)
REASONS_OF_NEEDED_HEADS = {reason for _, _, reason in RULES_OF_READING} - {"partner"}


def _check_head(name: str, head: HeadVerdict, audit: AuditResult) -> None:
    """Check a record of a head: its verdict follows from a rule, and from the p values of its removals."""
    is_rule = (head.verdict, head.reason) in REASONS_OF_VERDICTS
    verdict = f"{name} has the verdict {head.verdict} with"
    check_that(is_rule, f"{verdict} the reason {shown(head.reason)}, which no rule gives.")
    # Its label
    kinds = audit.kinds
    check_known(f"{name}.kind", [head.kind], kinds, "kinds")
    check_known(f"{name}.label", [head.label], (*kinds, "uniform", "unclassified"), "kinds and no kind")
    check_known(f"{name}.acts_like", [head.acts_like], ("", *kinds), "kinds")
    is_about_label = head.verdict in ("misleading", "idle")
    is_as_labelled = head.readable == (head.verdict == "misleading")
    check_that(not is_about_label or is_as_labelled, f"{verdict} the label {shown(head.label)}.")
    Interval(value=head.score, low=head.score_low, high=head.score_high, n=audit.n)  # type: ignore[arg-type]
    # Whether it is needed
    for removal, is_needed in head.needed.items():
        check_known(f"{name}.needed", [removal], head.costs, "costs")
        p_matters, p_harmless = head.costs[removal].p_matters, head.costs[removal].p_harmless
        if p_matters is None or p_harmless is None:
            continue
        text = f"{name}.needed is {is_needed} for {removal}; p_matters is {p_matters:g}, p_harmless {p_harmless:g}."
        matters, is_harmless = p_matters <= audit.alpha, p_harmless <= audit.alpha
        check_that(matters == (is_needed is True) and (is_harmless or is_needed is not False), text)
        check_that(not (matters and is_harmless), text)
    is_needed = head.needed.get("mean")
    text = f"{verdict} the reason {shown(head.reason)}, but needed is {is_needed} for the mean."
    check_that(head.reason not in REASONS_OF_NEEDED_HEADS or is_needed is True, text)
    check_that(head.reason != "not needed" or not is_needed, text)
    # Other heads, outcomes and edges
    for field in ("partners", "other_heads"):
        DISTINCT.check((head.place, *getattr(head, field)), f"{name}.{field} with itself")
    has_cost = head.beyond_others is not None
    check_that(bool(head.other_heads) == has_cost, f"{name} has other_heads without beyond_others, or the reverse.")
    check_known(f"{name}.outcome", [head.outcome], ("", *audit.outcomes), "outcomes")
    text = f"{name}.verdicts is of {shown(list(head.verdicts))}; outcomes has {shown(audit.outcomes)}."
    check_that(set(head.verdicts) in (set(), set(audit.outcomes)), text)
    place = f"{head.layer}.{head.head}"
    for field, edges in (("edges_in", head.edges_in or ()), ("edges_out", head.edges_out or ())):
        pairs = [edge.partition(" > ")[::2] for edge in edges]
        check_edges([sender for sender, _ in pairs], [receiver for _, receiver in pairs])
        ends = [sender if field == "edges_out" else receiver.partition(" ")[0] for sender, receiver in pairs]
        check_that(set(ends) <= {place}, f"{name}.{field} has an edge of another head: {shown(edges)}.")


def _shape_in_words(audit: AuditResult) -> str:
    layer, head = audit.heads[-1].place
    return f"{layer + 1} layers of {head + 1} heads"
