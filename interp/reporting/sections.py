"""Sections of a report page, one function per kind of result: text, chart and table."""

import json
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from markupsafe import Markup

from interp.auditing.contrast import Contrast, points_lost
from interp.auditing.records import HeadVerdict
from interp.auditing.result import AuditResult
from interp.auditing.sentences import list_of_heads, list_of_names, name_of, sentence_on_idle_heads, what_heads_do
from interp.comparison.variation import VariationResult
from interp.core.environment import environment
from interp.core.inputs import all_inputs_text, repeats_text
from interp.core.page_identity import model_line, quantity
from interp.core.randomness import derived_generator
from interp.core.results import Result, count_range
from interp.evaluation.evaluate import EvaluationResult, chunks_on_device
from interp.heads.ablate import AblationResult
from interp.heads.classify import HeadPatterns
from interp.heads.edges import EdgesResult
from interp.heads.kinds import meaning_of
from interp.heads.patch import PatchResult
from interp.probing.logit_lens import LogitLensResult
from interp.probing.probe import ProbeResult
from interp.reporting.subject import Subject
from interp.tasks.base import Task, logits_at_targets
from interp.tasks.splits import sample_split
from interp.theory.balance import BalanceResult
from interp.training.run import TrainingRun
from interp.view.attention import AttentionPage
from interp.view.cards import Card, census, head_cards, pattern_picture, verdict_chip
from interp.view.charts import curves, dots
from interp.view.page import Section

Rows = list[tuple[str, ...]]


def setup_section(subjects: dict[str, Subject], task: Task) -> Section:
    """Task, model and training of each model, one line each."""
    runs = [subject.run for subject in subjects.values() if subject.run is not None]
    # one column per model
    rows = [("", *subjects)]
    rows.append(("task", *(_task_line(subject.run, task) for subject in subjects.values())))
    rows.append(("model", *(model_line(subject.model) for subject in subjects.values())))
    if runs:
        rows.append(("training", *(_training_line(subject.run) for subject in subjects.values())))
    return Section(title="Training setup" if runs else "Model", table=rows)


INSTALLED = {
    "none": "Nothing about attention was taught or set before training.",
    "mimic": "Before training on the task, head 0 of every layer was taught to attend locally and head 1 to attend to "
    "identical tokens (mimicking): these two patterns are installed, not found.",
    "query_key": "Before training, W_Q was copied into W_K, so that at the start every head attends more to identical "
    "tokens, its own included; nothing else was set or taught.",
}
"""What the start of training set, by its association bias."""


def _task_line(run: TrainingRun | None, task: Task) -> str:
    """Description of a run's task, which is read again only if it is not this one."""
    if run is None or run.manifest["task"] == task.describe():
        return task.description
    return run.task.description


def _training_line(run: TrainingRun | None) -> str:
    """Steps, curriculum, association and duration of a run."""
    if run is None:
        return "not trained here"
    settings = run.manifest["settings"]
    stages = " ".join(f"{length}:{steps}" for length, steps in settings["curriculum"])
    curriculum = f" (chain length:steps {stages})" if stages else ""
    bias = {"none": "no association bias", "mimic": "after mimicking", "query_key": "W_Q copied into W_K at the start"}
    contrastive = f", contrastive loss {settings['contrastive']}" if settings.get("contrastive") else ""
    return f"{settings['steps']} steps{curriculum}, {bias[settings['association']]}{contrastive}, {run.seconds:.0f} s"


def curves_section(runs: dict[str, TrainingRun]) -> Section:
    """Held-out accuracy of every target over training, one panel per run."""
    table = pd.concat([run.to_dataframe().assign(run=name) for name, run in runs.items()])
    chance = next(iter(runs.values())).manifest["chance"]
    title = f"accuracy per target, n = {table['n'].iloc[0]} per point"
    return Section(
        title="Learning curves",
        text="Accuracy on held-out examples during training. Bands are 95 % intervals; the dashed line is chance. In a "
        "mimicking run, the first steps train attention only.",
        chart=curves(table, x="step", y="accuracy", series="target", panel="run", rule=chance, title=title),
    )


def contrast_section(contrast: Contrast, patterns: AttentionPage, *, counted: str, target_names: str = "") -> Section:
    """Two heads that look alike side by side, and what the model loses without each.

    Args:
        contrast: The two heads.
        patterns: Their patterns on a sentence.
        counted: The sequences behind the losses, in words.
        target_names: What the names of targets mean.
    """
    example = patterns.examples[0]
    cards = []
    for head, loss in zip((contrast.faithful, contrast.misleading), contrast.losses, strict=True):
        name = f"head {name_of(head.place)}"
        pattern = example.patterns[patterns.heads.index(name_of(head.place))]
        picture = pattern_picture(pattern, example.tokens, name=f"pattern of {name}")
        cards.append(Card(name=name, verdict=head.verdict, cost=f"{loss} lost without it", picture=picture))
    text = (
        f"Both attend to {meaning_of(contrast.label)} ({contrast.label}). The model needs "
        f"{name_of(contrast.faithful.place)}, which is {contrast.faithful.verdict}: it acts through its pattern. It "
        f"does not need {name_of(contrast.misleading.place)}, which is {contrast.misleading.verdict}: its pattern "
        "looks meaningful, and the model does not use it."
    )
    foot = (
        "Rows are queries, columns are keys, and cells with a strong colour have large weights. Losses of accuracy: "
        f"{counted}. {target_names}"
    )
    return Section(
        title="Two heads that look alike",
        text=text,
        html=head_cards(cards, kind="pair"),
        foot=Markup('<p class="command">{}</p>').format(foot.strip()),
    )


def cards_section(
    rows: Mapping[str, Sequence[HeadVerdict]],
    patterns: AttentionPage,
    *,
    threshold: Float[np.ndarray, " outcome"],
    title: str,
    text: str,
    counted: str,
) -> Section:
    """Heads as small cards with pattern, verdict and loss, below the number of heads of each verdict.

    Args:
        rows: Heading and heads of each row; a single row needs no heading.
        patterns: The patterns of these heads, on a sentence.
        threshold: Loss of accuracy that counts on each outcome.
        title: Title of the section.
        text: The finding, in a sentence.
        counted: The sequences behind losses and verdicts, in words.
    """
    html = census(head.verdict for heads in rows.values() for head in heads)
    for heading, heads in rows.items():
        cards = []
        for head in heads:
            name = name_of(head.place)
            pattern = patterns.examples[0].patterns[patterns.heads.index(name)]
            picture = pattern_picture(pattern, name=f"pattern of head {name}")
            cost = f"{points_lost(head, threshold)} lost"
            cards.append(Card(name=f"without {name}:", verdict=head.verdict, cost=cost, picture=picture))
        html += (Markup("<h3>{}</h3>").format(heading) if heading else Markup("")) + head_cards(cards)
    foot = f"Points of accuracy lost when the output of a head is replaced by its mean: {counted}."
    return Section(title=title, text=text, html=html, foot=Markup('<p class="command">{}</p>').format(foot))


def accuracy_section(evaluations: dict[str, EvaluationResult], task: Task) -> Section:
    """Test accuracy of every target with its interval, as a chart and a table."""
    table = pd.concat([result.to_dataframe().assign(run=name) for name, result in evaluations.items()])
    first = next(iter(evaluations.values()))
    # a row per target, a column per run
    rows = [("target", *evaluations)]
    for index, target in enumerate(first.targets):
        rows.append((target, *(result.accuracy[index].text(4) for result in evaluations.values())))
    n = f"{first.n}{repeats_text(first.n, int(first.accuracy.n))}"
    text = f"Accuracy on {n} held-out examples of the {first.split} split, with 95 % intervals. "
    if first.accuracy.exact:
        text = f"Accuracy on {all_inputs_text(first.n)}, of the {first.split} split. "
    if len(evaluations) > 1:
        text += "The control is a model for comparison; its settings are at the end of the page. "
    return Section(
        title="Accuracy per target",
        text=text + task.target_names,
        chart=dots(table, x="target", y="accuracy", series="run", rule=first.chance, title=f"n = {first.n} per point"),
        table=rows,
    )


def probe_section(probes: ProbeResult) -> Section:
    """Probe accuracy by layer and target, with its controls."""
    text = (
        f"Each cell is the held-out accuracy of one linear classifier ({probes.solver}) that predicts {probes.label} "
        f"from the residual stream at the position of the target; layer 0 is the embedding. The classifiers were "
        f"fitted on {count_range(probes.n_fitted)} examples. The other maps are controls: the same classifiers on a "
        f"control task (a random class for each input type, which can only be memorised), with shuffled labels, and on "
        f"an untrained model of the same config. The mean accuracy is {probes.control.mean():.3f} on the control task "
        f"and {probes.shuffled.mean():.3f} with shuffled labels ({probes.n_controls} draws)."
    )
    text += f" The most frequent class has a share of {probes.majority.mean():.3f}, on average over targets."
    # with verify=True, whether the model uses what probes read
    if probes.causal is not None:
        causal = probes.causal
        text += (
            f"\n\nA label that can be decoded is not necessarily used by the model. The last map is the result of an "
            f"interchange intervention: the class direction at one layer is set to its value in another sentence, and "
            f"the map shows how often the output becomes the answer to that sentence (at least "
            f"{int(causal['n'].min())} pairs per cell). On average, a change of the same size in a random direction "
            f"has this effect in {np.nanmean(causal['placebo']):.1%} of pairs, and an interchange along the weights of "
            f"the probe in {np.nanmean(causal['weights']):.1%}."
        )
    # what an interchange moves besides the answer
    for target, names in probes.tied.items():
        text += f" At {target} answers are tied to {' and '.join(names)}, which an interchange moves too."
    return Section(title="Linear probes by layer and target", text=text, chart=probes.plot())


def example_section(subject: Subject, task: Task) -> Section:
    """One held-out example and the answers of the model, as the task shows it."""
    batch = sample_split(task, 1, generator=derived_generator(subject.seed, "example"), split="test")
    (batch_on_device,) = chunks_on_device(subject.model, batch)
    with torch.no_grad():
        logits = subject.model(batch_on_device.tokens, **batch_on_device.model_inputs())
        answers = task.answers(logits_at_targets(logits, batch_on_device))
    return task.example(batch, answers.cpu())


def heads_section(patterns: HeadPatterns) -> Section:
    """Label, score, interval and p value of every head."""
    columns = ("head", "label", "score [95 %]", "p (Holm)", "value-weighted", "untrained", "entropy", "moved")
    rows: Rows = [(*columns, "why no label")]
    for layer, row in enumerate(patterns.label):
        for head, label in enumerate(row):
            # the kind of its label, or else the nearest
            kind = patterns.best_kind(layer, head)
            cell = (layer, head, kind)
            nearest = f" (nearest {patterns.kinds[kind]})" if label == "unclassified" else ""
            score = patterns.score[cell].text(2)
            # a p value that is too small for a float is 0
            p = f"{patterns.p_holm[cell]:.1e}" if patterns.p_holm[cell] > 0 else "< 1e-300"
            measures = [
                patterns.value_weighted[cell],
                patterns.untrained[kind],
                patterns.entropy[layer, head],
                patterns.moved[layer, head],
            ]
            numbers = [f"{value:.2f}" for value in measures]
            rows.append((f"{layer}.{head}", label + nearest, score, p, *numbers, patterns.why_not[layer][head]))
    condition = f"its 95 % interval over {patterns.n} sequences is above 0.3"
    if patterns.score.exact:
        condition = f"its score ({all_inputs_text(patterns.n)}) is at least 0.3"
    text = (
        "The score of a head on a kind is its attention to related keys, scaled so that 0 is chance and 1 is all of "
        "its attention, at the queries that are read: those whose output can reach a scored position, or all in older "
        "results. A head is labelled only if its p value (permuted keys, corrected for all heads and kinds) is "
        f"at most {patterns.alpha:g}, if {condition}, and if it passes a comparison with untrained models (column "
        f"untrained: their highest score): {patterns.comparison_text()}. Value-weighted: the score with attention "
        "weighted by the norm of what each key writes. Entropy: mean row entropy as a fraction of its maximum. Moved: "
        "mean norm of what a query receives. A label describes where a head attends, not whether it matters; ablation "
        "measures that."
    )
    scores = ("Scores and labels", rows)
    return Section(title="Classification of heads", text=text, chart=patterns.plot(), tables=[scores], folded=True)


def attention_section(page: AttentionPage) -> Section:
    """The attention viewer, embedded in the page."""
    if page.findings:
        return Section(
            title="What each head does",
            text="The verdict on every head, layer by layer. Choose a head to see its pattern on a sentence, what each "
            f"ablation costs, and what probes read before and after its layer. {_kinds_in_words(page)}".strip(),
            html=_viewer(page),
        )
    return Section(
        title="Attention maps",
        text="One map per head on held-out sequences; rows are queries, columns are keys. Hover over a map to read a "
        "weight, click to enlarge it, point at a token to see where it attends, and outline a relation to compare it "
        "with the pattern of a head.",
        html=_viewer(page),
    )


def _viewer(page: AttentionPage) -> Markup:
    """The viewer within the page; that of circuitsvis in a frame of its own, which grows with its content."""
    if page.fragment:
        return Markup(page.fragment)
    frame = f'<iframe class="viewer" srcdoc="{escape(page.html)}" title="Attention maps"></iframe>'
    return Markup(frame)


def _kinds_in_words(page: AttentionPage) -> str:
    """What the heads of each kind on a page attend to."""
    kinds = dict.fromkeys(finding.label for finding in page.findings if finding.label)
    meanings = [f"{kind} heads attend to {meaning_of(kind)}" for kind in kinds]
    return f"Kinds: {'; '.join(meanings)}." if meanings else ""


ABLATION_INTERVALS = "Intervals are 95 %, paired bootstrap over sequences."


def ablation_section(result: AblationResult) -> Section:
    """Accuracy with single heads ablated, or with named sets of heads and random sets of the same size."""
    single = all(len(heads) == 1 for heads in result.heads)
    text = (
        f"The outputs of heads are set to {result.method} on {result.n} held-out sequences, and everything downstream "
        "is recomputed. "
    )
    text += "These are all inputs: figures are exact." if result.drop.exact else ABLATION_INTERVALS
    if single:
        text += " Heads are ablated one at a time; a function that two heads share may show no effect."
        return Section(title="Ablation of single heads", text=text, chart=result.plot())
    # a row without ablation, then one or two per set
    rows = [("ablated heads", *(f"accuracy on {target}" for target in result.targets))]
    rows.append(("none", *(f"{value:.3f}" for value in result.clean)))
    for index, (name, heads) in enumerate(zip(result.names, result.heads, strict=True)):
        accuracies = result.drop[index].subtracted_from(result.clean)
        rows.append((f"{name} ({len(heads)})", *(accuracy.text() for accuracy in accuracies)))
        if result.random_drop is not None:
            drops = result.random_drop[index]
            means = result.clean - drops.mean(0)
            lowest = result.clean - drops.max(0)
            cells = (f"{mean:.3f}, worst {low:.3f}" for mean, low in zip(means, lowest, strict=True))
            rows.append((f"{len(drops)} random sets of {len(heads)}", *cells))
    return Section(title="Ablation of sets of heads", text=text, chart=result.plot(), table=rows)


def variation_section(result: VariationResult) -> Section:
    """Distance between the patterns of models, layer by layer, and between random patterns."""
    # the baselines before this one are of random patterns, and the same in every layer
    shuffled = result.baselines.index("own rows, keys shuffled")
    rows: Rows = [
        ("layer", "variation [95 %]", "/ flat simplex", "/ own rows, keys shuffled", "relative entropy [95 %]")
    ]
    for layer, ratio in enumerate(result.ratio_to()):
        variation = result.variation[layer]
        entropy = result.relative_entropy[layer]
        # two models give one pair, and no interval
        if result.n > 2:
            variation_text, entropy_text = variation.text(), entropy.text(2)
        else:
            variation_text, entropy_text = f"{variation:.3f} (one pair)", f"{entropy:.2f}"
        ratio_to_shuffled = float(variation) / max(result.baseline[shuffled, layer], 1e-300)
        rows.append((str(layer), variation_text, f"{ratio:.2f}", f"{ratio_to_shuffled:.2f}", entropy_text))
    distances = zip(result.baselines[:shuffled], result.baseline[:shuffled, 0], strict=True)
    distance_texts = [f"{name} {mean:.2f}" for name, mean in distances]
    text = (
        f"Squared Frobenius distance between the attention patterns of {result.n} models on the same input, mean over "
        f"{result.n_pairs} pairs, over heads and over {len(result.prefixes)} input(s). Intervals resample models, not "
        "pairs, since pairs share models. Sharp patterns are at larger distances than flat ones regardless of their "
        "meaning; for comparison, the table has the relative entropy (0 for a single key, 1 for uniform) and the ratio "
        "to the distance after shuffling the keys of each row. Expected distances of random patterns: "
        f"{'; '.join(distance_texts)}."
    )
    return Section(title="Attention variation between models", text=text, chart=result.plot(), table=rows)


def balance_section(result: BalanceResult) -> Section:
    """Balance violation of matched brackets."""
    rows = [
        ("form", "mean", "largest"),
        ("S / P", f"{result.violation:.4f}", f"{result.ratio.max():.4f}"),
        ("bounded, 0 to 1", f"{result.bounded.mean():.4f}", f"{result.bounded.max():.4f}"),
        ("released average", f"{result.released:.4f}", ""),
    ]
    if result.decision is not None:
        rows.append(("share of a decision", f"{result.decision.mean():.4f}", f"{result.decision.max():.4f}"))
    return Section(
        title="Balance of matched brackets",
        text="S is the trace of a matched pair of brackets in the unnormalised attention output, P the smallest signal "
        f"that must be distinguished; perfect balance gives 0. {result.n} queries and pairs, {result.pairing} pairing. "
        "The values are exact for this model; nothing was sampled.",
        chart=result.plot(),
        table=rows,
    )


LIKE_THE_END = 0.9
"""Share of the accuracy of the last layer above the control, from which a target counts as answered."""


def lens_section(result: LogitLensResult) -> Section:
    """After which layer each target is answered, and the accuracy of the read-out after every layer."""
    targets_by_layer: dict[int, list[str]] = {}
    needed = result.control[-1] + LIKE_THE_END * (result.accuracy.value[-1] - result.control[-1])
    for target, is_answered in zip(result.targets, (result.accuracy.value >= needed).T, strict=True):
        # the first layer from which the accuracy stays
        first = len(is_answered) - int(np.argmin([*is_answered[::-1], False]))
        targets_by_layer.setdefault(first, []).append(target)
    findings = [f"{list_of_names(names)} from layer {layer} on" for layer, names in sorted(targets_by_layer.items())]
    text = (
        f"Answered: {'; '.join(findings)}. From there on the read-out of the residual stream has {LIKE_THE_END:.0%} of "
        "what it has at the end above the control: the same answers on the labels of other examples. Layer 0 is the "
        "embedding."
    )
    return Section(title="Where the answer is there", text=text, chart=result.plot())


def patch_section(result: PatchResult) -> Section:
    """The site and place that moves each answer most, and the map of all."""
    site_name = {"z": "head", "resid": "the residual stream before layer"}.get(result.kind, f"{result.kind} of layer")
    rows: Rows = [("target", "patched", "at", "share of the logit difference", "answers that follow [95 %]")]
    for index, target in enumerate(result.targets):
        share = result.share[:, :, index]
        if np.isnan(share).all():
            continue
        site, place = np.unravel_index(np.nanargmax(share), share.shape)
        follows = result.follows[site, place, index].text(2)
        name = result.places[place]
        # a place is a role of the task, a position, or all of them
        name = f"position {name}" if name.isdigit() else name.replace("all", "all positions")
        rows.append((target, f"{site_name} {result.sites[site]}", name, f"{share[site, place]:.2f}", follows))
    findings = [f"{target}: {site} at {place}" for target, site, place, *_ in rows[1:]]
    text = (
        f"What carries the answer most: {'; '.join(findings)}. An activation of one input takes the place of that of "
        f"another one; a share of 1 moves the whole logit difference. {result.n} pairs."
    )
    return Section(title="What carries the answer", text=text, chart=result.plot(), table=rows)


MOST_EDGES = 20
"""Needed edges in the table of a page, the most costly first."""


def edges_section(result: EdgesResult) -> Section:
    """The needed edges, the most costly first."""
    drop = result.drop
    rows: Rows = [("edge", "outcome", "accuracy lost [95 %]")]
    for name in result.needed[:MOST_EDGES]:
        edge = result.names.index(name)
        outcome = int(np.nanargmax(drop.value[edge]))
        rows.append((name, result.outcomes[outcome], drop[edge, outcome].text(2)))
    counts = {verdict: result.verdicts.count(verdict) for verdict in ("needed", "harmless", "undecided")}
    costliest = f": without {rows[1][0]}, accuracy on {rows[1][1]} falls by {rows[1][2]}" if len(rows) > 1 else ""
    verb = "is" if counts["needed"] == 1 else "are"
    text = (
        f"{counts['needed']} of {quantity(len(result.names), 'edge')} {verb} needed alone{costliest}. "
        f"{counts['harmless']} {'is' if counts['harmless'] == 1 else 'are'} harmless, {counts['undecided']} undecided. "
        f"What the sender writes for the receiver alone is replaced ({result.method}); {result.n} sequences, level "
        f"{result.alpha:g} over all edges."
    )
    return Section(title="Which connections are needed", text=text, chart=result.plot(), table=rows)


def audit_section(result: AuditResult) -> Section:
    """Verdict and finding on every head; idle heads in one row."""
    rows: Rows = [("head", "verdict", "finding")]
    # a head that is needed under another replacement has a row of its own
    idle = [head for head in result.heads if head.reason == "not needed" and not any(head.needed.values())]
    idle = [head for head in idle if head.verdict == "idle"]
    for head, sentence in zip(result.heads, result.sentences(), strict=True):
        name = name_of(head.place)
        if len(idle) < 2 or head not in idle:
            rows.append((name, verdict_chip(head.verdict), sentence.removeprefix(f"{name} ")))
    if len(idle) > 1:
        finding = sentence_on_idle_heads(idle, outcomes=result.outcomes, threshold=result.threshold)
        rows.append((list_of_heads([head.place for head in idle]), verdict_chip("idle"), finding))
    # one threshold per outcome; equal ones are printed once
    thresholds = ", ".join(dict.fromkeys(f"{value:.2f}" for value in result.threshold))
    text = (
        f"{what_heads_do(result.heads)}\n\n"
        "A pattern shows where a head attends, not what it does. Faithful: the head is needed, and acts through its "
        "pattern. Misleading: it has a clear pattern, but is not needed or acts through something else. Hidden: it is "
        "needed, but has no clear pattern. Idle: neither. Redundant: not needed alone, but needed together with its "
        "partners. Undecided: the intervals do not separate these cases. Needed means that accuracy falls by more than "
        f"{thresholds} when the output of the head is replaced by its mean over other sequences. "
    )
    counted = result.counted_with_intervals()
    if result.every_input:
        text += f"{counted[:1].upper()}{counted[1:]}; labels at level {result.alpha:g}."
    else:
        text += f"{counted}, all verdicts at level {result.alpha:g} (Bonferroni)."
    if result.warnings:
        text += "\n\n" + " ".join(result.warnings)
    return Section(title="Audit of heads", text=text, chart=result.plot(), table=rows)


def printed_section(result: Result) -> Section:
    """Any other result: its chart and its printed text."""
    # the name of its class in words, without "Result"
    title = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(result).__name__)
    title = title.removesuffix(" result").strip().capitalize()
    return Section(title=title, chart=result.plot(), html=Markup("<pre>{}</pre>").format(str(result)))


def provenance_section(subject: Subject) -> Section:
    """Seed, versions, hardware and settings that are needed to reproduce a run, or a page about a model."""
    manifest = environment() if subject.run is None else subject.run.manifest
    rows = [("", "value")]
    if subject.run is not None:
        rows.append(("seed", str(subject.seed)))
    rows += [(name, str(value)) for name, value in {**manifest["versions"], **manifest["hardware"]}.items()]
    rows.append(("threads", str(manifest["threads"])))
    if subject.run is not None:
        rows.append(("started", manifest["time"]))
        rows += [(name, json.dumps(manifest[name])) for name in ("task", "settings", "config")]
    return Section(title="Provenance", tables=[("Versions, hardware and settings", rows)], folded=True)
