"""Each result as a section of a page: what it shows, how to read it, its chart and its table."""

import json
from html import escape

import pandas as pd
from markupsafe import Markup

from interp.auditing.result import AuditResult
from interp.comparison.variation import VariationResult
from interp.core.randomness import derived_generator
from interp.core.results import Result
from interp.evaluation.evaluate import EvaluationResult
from interp.heads.ablate import AblationResult
from interp.heads.classify import HeadPatterns
from interp.probing.probe import ProbeResult
from interp.tasks import LabelledTemplate, Lego, chain_of
from interp.theory.balance import BalanceResult
from interp.training.run import TrainingRun
from interp.view.attention import AttentionPage
from interp.view.chain import chain_svg, sentence_html
from interp.view.charts import curves, dots
from interp.view.page import Section


def what_was_trained(runs: dict[str, TrainingRun]) -> Section:
    """Task, model and training of each run, a line each; all settings stand under provenance."""
    rows = [("", *runs)]
    rows += [
        (name, *(describe(run) for run in runs.values()))
        for name, describe in (("task", _task_line), ("model", _model_line), ("training", _training_line))
    ]
    text = ""
    if any(run.manifest["settings"]["association"] == "mimic" for run in runs.values()):
        text = (
            "Before the task, mimicking teaches head 0 of every layer to attend locally and head 1 to attend to "
            "identical tokens. Those two patterns are therefore installed, not discovered."
        )
    return Section(title="What was trained", text=text, table=rows)


def _task_line(run: TrainingRun) -> str:
    task = run.manifest["task"]
    if task["task"] == "dyck":
        kind = "prefixes of" if task["words"] == "prefixes" else "complete words of up to"
        language = f"{task['n_types']} types to depth {task['max_depth']}, q = {task['q']}"
        return f"bounded Dyck: {language}; {kind} {task['length']} brackets, loss on {task['loss_on']}"
    if task["task"] == "text":
        asked = {"next_token": "the next token", "masked": "masked tokens"}[task["objective"]]
        more = " and whether a second sentence follows" if task["next_sentence"] else ""
        return f"text ({task['corpus']['source']}): {asked}{more}; windows of {task['n_ctx']} tokens"
    if task["task"] == "template":
        shown = [str(LabelledTemplate(tuple(one["tokens"]), one["label"])) for one in task["templates"][:4]]
        more = f" and {len(task['templates']) - 4} more" if len(task["templates"]) > 4 else ""
        symbols = task["train"] if isinstance(task["train"], int) else len(task["train"])
        return f"templates: {', '.join(shown)}{more}; {task['form']} labels, {symbols} training symbols"
    if task["task"] != "lego":
        return task["task"]
    chain = f"chains of {task['n_vars']} variables in {task['group']['name']}"
    return f"LEGO: {chain}, {len(task['supervised'])} of them supervised, {task['sentence_format']} format"


def _model_line(run: TrainingRun) -> str:
    cfg, size = run.model.cfg, sum(parameter.numel() for parameter in run.model.parameters())
    tied = "one block applied " if cfg.tied else ""
    return (
        f"{cfg.block}, {tied}{cfg.n_layers} {'times' if cfg.tied else 'layers'} of {cfg.n_heads} "
        f"{'head' if cfg.n_heads == 1 else 'heads'}, width "
        f"{cfg.d_model}, {cfg.attention}, {size:,} parameters"
    )


def _training_line(run: TrainingRun) -> str:
    settings = run.manifest["settings"]
    stages = " ".join(f"{length}:{steps}" for length, steps in settings["curriculum"])
    curriculum = f" (chain length:steps {stages})" if stages else ""
    bias = {"none": "no association bias", "mimic": "after mimicking", "query_key": "W_Q copied into W_K at the start"}
    contrastive = f", contrastive loss {settings['contrastive']}" if settings.get("contrastive") else ""
    return f"{settings['steps']} steps{curriculum}, {bias[settings['association']]}{contrastive}, {run.seconds:.0f} s"


def learning_curves(runs: dict[str, TrainingRun]) -> Section:
    """Held-out accuracy of every target over training, one panel per run."""
    table = pd.concat([run.to_dataframe().assign(run=name) for name, run in runs.items()])
    chance = next(iter(runs.values())).manifest["chance"]
    return Section(
        title="Learning curves",
        text="Accuracy on held-out examples as training went on; bands are 95 % intervals, the dashed line is chance. "
        "The first steps of a mimicking run teach attention only.",
        chart=curves(
            table, x="step", y="accuracy", series="target", panel="run", rule=chance,
            title=f"accuracy per target, n = {table['n'].iloc[0]} per point",
        ),
    )  # fmt: skip


def accuracies(tested: dict[str, EvaluationResult]) -> Section:
    """Test accuracy of every target with its interval, and as a table."""
    table = pd.concat([result.to_dataframe().assign(run=name) for name, result in tested.items()])
    first = next(iter(tested.values()))
    rows = [("target", *tested)]
    for index, target in enumerate(first.targets):
        cells = [f"{r.accuracy[index]:.4f}  [{r.low[index]:.4f}, {r.high[index]:.4f}]" for r in tested.values()]
        rows.append((target, *cells))
    return Section(
        title="Accuracy per target",
        text=f"On {first.n} examples of the {first.split} split, none of them trained on. Intervals are 95 %, exact.",
        chart=dots(table, x="target", y="accuracy", series="run", rule=first.chance, title=f"n = {first.n} per point"),
        table=rows,
    )


def probe_map(probes: ProbeResult) -> Section:
    """Where each target's value can be read, beside the controls of that reading."""
    text = (
        f"Each cell: held-out accuracy of one linear classifier ({probes.solver}) that reads {probes.label} from the "
        f"residual stream where the target is read; layer 0 is the embedding. The classifiers were fitted on "
        f"{probes.n_train} examples. Beside it: the same classifiers on a control task, a random class for each input "
        f"type, which only memory can answer; and on an untrained model of the same config. With shuffled labels they "
        f"score {probes.shuffled.mean():.3f} on average ({probes.n_controls} draws)."
    )
    if probes.causal is not None:
        causal = probes.causal
        text += (
            f"\n\nReadable does not mean used. The last map sets the class direction of one layer to its value in "
            f"another sentence, and shows how often the output becomes that sentence's answer "
            f"({int(causal['n'].min())} pairs or more per cell). A move as far in a random direction does so in "
            f"{causal['placebo'].mean():.1%} of pairs on average, a move along the probe's own weights in "
            f"{causal['weights'].mean():.1%}."
        )
    return Section(title="Where each answer becomes readable", text=text, chart=probes.plot())


def example(run: TrainingRun, task: Lego) -> Section:
    """One held-out sentence, its chain, and what the model answers."""
    batch = task.sample(1, generator=derived_generator(run.manifest["seed"], "example"), split="test")
    chain = chain_of(task, batch)
    logits = run.model(batch.tokens).detach()[0, batch.target_positions[0]]
    answers = [task.group.points[index] for index in logits.argmax(-1).tolist()]
    index_of = {clause: index for index, clause in enumerate(chain.clause_of)}
    picture = chain_svg(
        root=chain.root,
        variables=chain.variables,
        operations=chain.operations,
        values=chain.values,
        answers=answers,
    )
    sentence = sentence_html(chain.words, chain.clause_of_word, [index_of[c] for c in range(task.n_vars)])
    return Section(
        title="One sentence and its chain",
        text="Every clause gives one variable as an operation on another, and clauses stand in random order; the "
        "small number says which place in the chain each defines. To tell a value, the model must find the clause that "
        "the variable depends on, and the one before it, down to the root.",
        html=sentence + picture,
    )


def head_table(patterns: HeadPatterns) -> Section:
    """Label, score, interval and p of every head."""
    rows = [("head", "label", "score [95 %]", "p (Holm)", "value-weighted", "untrained", "entropy", "moved")]
    for layer, row in enumerate(patterns.label):
        for head, label in enumerate(row):
            best = int(patterns.score[layer, head].argmax())
            kind = patterns.kinds.index(label) if label in patterns.kinds else best
            cell = (layer, head, kind)
            nearest = f" (nearest {patterns.kinds[kind]})" if label == "unclassified" else ""
            rows.append(
                (
                    f"{layer}.{head}",
                    label + nearest,
                    f"{patterns.score[cell]:.2f} [{patterns.low[cell]:.2f}, {patterns.high[cell]:.2f}]",
                    f"{patterns.p_holm[cell]:.1e}" if patterns.p_holm[cell] > 0 else "< 1e-300",
                    f"{patterns.value_weighted[cell]:.2f}",
                    f"{patterns.untrained[..., kind].max():.2f}",
                    f"{patterns.entropy[layer, head]:.2f}",
                    f"{patterns.moved[layer, head]:.2f}",
                )
            )
    text = (
        "The score of a head is the attention it puts on related keys, 0 at chance and 1 for all of it. A head is "
        "labelled only if permuting keys could hardly give its score (p, corrected for all heads and kinds at "
        f"{patterns.alpha:g}), if its interval over {patterns.n} sequences lies above 0.3, and above every head of an "
        "untrained model (column untrained). Value-weighted: the score when keys count by the norm of what they write. "
        "A label says where a head looks, not that it matters; taking heads out shows that."
    )
    return Section(title="Where each head looks", text=text, chart=patterns.plot(), table=rows)


def gallery(page: AttentionPage) -> Section:
    """The attention viewer, inside the page."""
    frame = f'<iframe srcdoc="{escape(page.html)}" title="attention" style="width:100%;height:640px;border:0"></iframe>'
    return Section(
        title="Attention, head by head",
        text="One map per head on held-out sentences: rows are queries, columns are keys. Point to read a weight, "
        "click to enlarge, and outline a relation to compare it with what a head is said to do.",
        html=Markup(frame),
    )


def ablations(result: AblationResult) -> Section:
    """What breaks without each head, or without named sets of heads beside random ones."""
    single = all(len(chosen) == 1 for chosen in result.heads)
    text = (
        f"Heads are set to {result.method} on {result.n} held-out sentences, and everything after them is run again; "
        "intervals are 95 %, paired bootstrap over sentences."
    )
    if single:
        text += " One head at a time: what a single removal does not show may still be shared by two heads."
        return Section(title="What breaks without each head", text=text, chart=result.plot())
    rows = [("heads removed", *(f"accuracy on {target}" for target in result.targets))]
    rows.append(("none", *(f"{value:.3f}" for value in result.clean)))
    for index, (name, chosen) in enumerate(zip(result.names, result.heads, strict=True)):
        left = result.clean - result.drop[index]
        ends = zip(left, result.clean - result.high[index], result.clean - result.low[index], strict=True)
        rows.append((f"{name} ({len(chosen)})", *(f"{value:.3f} [{low:.3f}, {high:.3f}]" for value, low, high in ends)))
        if result.random_drop is not None:
            drops = result.random_drop[index]
            middle, worst = result.clean - drops.mean(0), result.clean - drops.max(0)
            cells = (f"{mean:.3f}, worst {least:.3f}" for mean, least in zip(middle, worst, strict=True))
            rows.append((f"{len(drops)} random sets of {len(chosen)}", *cells))
    return Section(title="What breaks without each kind of head", text=text, chart=result.plot(), table=rows)


def variations(result: VariationResult) -> Section:
    """How far apart models look, layer by layer, and how far random patterns would."""
    spread = result.baselines.index("own rows, keys shuffled")
    rows = [
        ("layer", "variation [95 %]", "over flat simplex", "over own rows, keys shuffled", "relative entropy [95 %]")
    ]
    for layer, value in enumerate(result.variation):
        ends = f"[{result.low[layer]:.3f}, {result.high[layer]:.3f}]"
        entropy_ends = f"[{result.relative_low[layer]:.2f}, {result.relative_high[layer]:.2f}]"
        rows.append(
            (
                str(layer),
                f"{value:.3f} {ends if result.n > 2 else '(one pair)'}",
                f"{result.ratio_to()[layer]:.2f}",
                f"{value / max(result.baseline[spread, layer], 1e-300):.2f}",
                f"{result.relative_entropy[layer]:.2f} {entropy_ends if result.n > 2 else ''}",
            )
        )
    fixed = zip(result.baselines[:spread], result.baseline[:spread, 0], strict=True)
    text = (
        f"Squared Frobenius distance between the attention patterns of {result.n} models on the same input, mean over "
        f"{result.n_pairs} pairs, over heads and over {len(result.prefixes)} input(s). Intervals resample models, not "
        "pairs, which share models. Sharp rows lie further apart than flat ones whatever they mean, so the entropy "
        "stands beside (0 is one key, 1 uniform), and so does what the models' own rows would give with their keys "
        f"shuffled. Random patterns: {', '.join(f'{name} {mean:.2f}' for name, mean in fixed)}."
    )
    return Section(title="How far apart models look", text=text, chart=result.plot(), table=rows)


def balance(result: BalanceResult) -> Section:
    """Which matched brackets do not cancel."""
    rows = [
        ("form", "mean", "largest"),
        ("S / P", f"{result.violation:.4f}", f"{result.ratio.max():.4f}"),
        ("bounded, 0 to 1", f"{result.bounded.mean():.4f}", f"{result.bounded.max():.4f}"),
        ("released average", f"{result.released:.4f}", ""),
    ]
    if result.decision is not None:
        rows.append(("share of a decision", f"{result.decision.mean():.4f}", f"{result.decision.max():.4f}"))
    return Section(
        title="Whether matched brackets cancel",
        text="S is the trace that an opener and its closer leave in the unnormalised attention output, P the least "
        f"signal that must be kept apart; 0 is balance. {result.n} queries and pairs, {result.pairing} pairing. The "
        "figures are exact for this model: nothing was sampled.",
        chart=result.plot(),
        table=rows,
    )


def verdicts(result: AuditResult) -> Section:
    """What each head looks like, what it does, and the verdict, in a sentence each."""
    rows = [("head", "verdict", "what was found")]
    for head, verdict, sentence in zip(result.heads, result.verdict, result.sentences(), strict=True):
        name = f"{head[0]}.{head[1]}"
        rows.append((name, verdict, sentence.removeprefix(f"{name} ")))
    worst = ", ".join(dict.fromkeys(f"{value:.2f}" for value in result.threshold))
    text = (
        "A pattern says where a head looks, not what it does. Faithful: needed, and through what it looks like. "
        "Misleading: looks like something, and is not needed or acts through something else. Hidden: needed, and looks "
        "like nothing. Idle: neither. Redundant: can go alone, not together with its partners. Undecided: intervals do "
        f"not separate. Needed means that accuracy falls by more than {worst} when the head's output is its mean over "
        f"other sequences; {result.n} sequences, 95 % intervals, all verdicts at level {result.alpha:g} (Holm)."
    )
    if result.warnings:
        text += "\n\n" + " ".join(result.warnings)
    return Section(title="Whether each head does what it looks like", text=text, chart=result.plot(), table=rows)


def as_it_prints(result: Result) -> Section:
    """Any other result: its chart, and what it prints."""
    title = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(result).__name__)
    title = title.removesuffix(" result").strip().capitalize()
    return Section(title=title, chart=result.plot(), html=Markup("<pre>{}</pre>").format(str(result)))


def provenance(run: TrainingRun) -> Section:
    """Everything needed to get the same numbers again."""
    manifest = run.manifest
    rows = [("what", "value"), ("seed", str(manifest["seed"]))]
    rows += [(name, str(value)) for name, value in {**manifest["versions"], **manifest["hardware"]}.items()]
    rows += [("threads", str(manifest["threads"])), ("started", manifest["time"])]
    rows += [(name, json.dumps(manifest[name])) for name in ("task", "settings", "config")]
    return Section(title="Provenance", table=rows)
