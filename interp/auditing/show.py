"""Every head on one page: its verdict, its pattern, what each ablation costs, and the probes around its layer."""

import numpy as np

from hooks.interventions.ablation_engine import every_head
from hooks.typed import checks_types
from interp.auditing.interventions import INTERVENTIONS
from interp.auditing.result import AuditResult
from interp.auditing.sentences import name_of
from interp.core.page_identity import page_identity
from interp.core.verbs import AnyModel, prepare_model
from interp.heads.show import MOST_COLUMNS, NEEDS, show_attention
from interp.probing.probe import ProbeResult
from interp.tasks.base import Batch, Task
from interp.view.attention import AttentionPage, Finding, canvas_page
from interp.view.verdicts import VERDICT_COLOURS

INTERVENTIONS_IN_WORDS = {
    "mean": "output: its mean",
    "zero": "output: zeros",
    "resample": "output: that in another sequence",
    "uniform": "pattern: uniform",
    "wrong_key": "pattern: all on a wrong key",
    "resampled_pattern": "pattern: that in another sequence",
    "resampled_values": "values: those in other sequences",
    "ideal": "pattern: the ideal one of its kind",
    "label_only_pattern": "pattern: all else spread evenly",
}
"""Interventions of the audit, in words."""


@checks_types
def show_heads(
    model: AnyModel,
    task: Task,
    audit: AuditResult,
    *,
    probes: ProbeResult | None = None,
    examples: Batch | int = 3,
    seed: int = 0,
) -> AttentionPage:
    """A page with a grid of heads and verdicts; the chosen head has its pattern, costs, probes and sentence.

    It opens on the head that tells most: a faithful one that another head only looks like, else the labelled head whose
    removal costs most.

    Args:
        model: The audited model.
        task: Source of sequences and relations.
        audit: Its audit.
        probes: Probes of the model, whose accuracies before and after the layer of the head are shown.
        examples: A batch to show, or the number of held-out sequences to sample.
        seed: Determines the sampled sequences.

    Raises:
        ValueError: an audit or probes of another class or of a model of another shape, or no examples.
    """
    # A page of attention patterns, whose heads the audit and the probes must fit
    net = prepare_model(model, NEEDS, task)
    n_layers, n_heads = net.cfg.n_layers, net.cfg.n_heads
    places = [head.place for head in audit.heads]
    is_of_model = places == every_head(net) if audit.n_heads is None else audit.n_heads == n_layers * n_heads
    if not is_of_model:
        raise ValueError(
            f"audit has {audit.n_heads or len(places)} heads, the last of these {name_of(places[-1])}; the model has "
            f"{n_layers} layers of {n_heads} heads."
        )
    chosen = None if audit.n_heads is None else places
    page = show_attention(net, task, heads=chosen, examples=examples, seed=seed)
    if probes is not None and len(probes.accuracy) != n_layers + 1:
        raise ValueError(f"probes has {len(probes.accuracy)} layers with the embedding; the model has {n_layers + 1}.")
    # The same examples, with verdicts in the grid and the finding on the chosen head
    findings = _findings(audit, probes)
    return canvas_page(
        page.examples,
        heads=page.heads,
        labels=[head.verdict for head in audit.heads],
        columns=n_heads if chosen is None else min(len(chosen), MOST_COLUMNS),
        title="What each head does",
        findings=findings,
        identity=page_identity(model, task, seed=seed),
    )


def _findings(audit: AuditResult, probes: ProbeResult | None) -> list[Finding]:
    """What the page shows of each head."""
    words = INTERVENTIONS_IN_WORDS | {name: name for name in audit.interventions if name not in INTERVENTIONS}
    costs = {name: audit.cost(name)[0] for name in words if name in audit.interventions}
    most_telling = audit.most_telling_head()
    findings = []
    for index, (head, sentence) in enumerate(zip(audit.heads, audit.sentences(), strict=True)):
        tried = {name: cost[index].tolist() for name, cost in costs.items() if np.isfinite(cost[index, 0])}
        worst = head.costs["mean"].worst(audit.threshold) if "mean" in head.costs else 0
        finding = Finding(
            verdict=head.verdict,
            colour=VERDICT_COLOURS[head.verdict],
            sentence=sentence[:1].upper() + sentence[1:],
            label=head.label if head.readable else "",
            is_first=head == most_telling,
            costs=[(words[name], *interval) for name, interval in tried.items()],
            threshold=float(audit.threshold[worst]),
            probes=[] if probes is None else _accuracies_around(probes, head.layer),
        )
        findings.append(finding)
    return findings


def _accuracies_around(probes: ProbeResult, layer: int) -> list[tuple[str, float, float]]:
    """Name, and probe accuracy before and after a layer, of each target."""
    before = probes.accuracy.value[layer].tolist()
    after = probes.accuracy.value[layer + 1].tolist()
    return list(zip(probes.targets, before, after, strict=True))
