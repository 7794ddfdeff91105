"""Results to one HTML file that opens offline."""

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from interp.evaluation import EvaluationResult, evaluate
from interp.probe_result import ProbeResult
from interp.randomness import derived_generator
from interp.tasks import Lego, chain_of
from interp.tasks.base import Task
from interp.training_run import TrainingRun
from interp.view.chain import chain_svg, sentence_html
from interp.view.charts import curves, dots
from interp.view.page import Section, write_page


def report(sections: Sequence[Section], path: str | Path, *, title: str, lead: str = "") -> Path:
    """Write sections to one self-contained HTML file, atomically.

    Args:
        sections: Made by the functions of this module, or your own `interp.view.page.Section`.
        path: The HTML file.
        title: Heading of the page.
        lead: What it shows, in a few sentences.

    Raises:
        ValueError: no section.
    """
    return write_page(path, title=title, lead=lead, sections=list(sections))


def report_run(
    run: TrainingRun,
    task: Task,
    path: str | Path,
    *,
    probes: ProbeResult | None = None,
    control: TrainingRun | None = None,
    n_test: int = 10_000,
    title: str = "What the model learned, and where it can be read",
) -> tuple[Path, dict[str, EvaluationResult]]:
    """Write the page of one training run: curves, accuracy, probes, an example, provenance.

    Args:
        run: The model that the page is about.
        task: What it learned.
        path: The HTML file.
        probes: What can be read from it, if that was measured.
        control: Another run to show beside it.
        n_test: Held-out examples for the accuracies.
        title: Heading of the page.

    Returns:
        The file, and the held-out accuracies of the model and of the control.

    Raises:
        ValueError: fewer than one test example.
    """
    runs = {"model": run} | ({"control": control} if control else {})
    tested = {name: evaluate(one.model, task, n=n_test, seed=one.manifest["seed"]) for name, one in runs.items()}
    sections = [
        *([example(run, task)] if isinstance(task, Lego) else []),
        what_was_trained(runs),
        learning_curves(runs),
        accuracies(tested),
        *([probe_map(probes)] if probes else []),
        provenance(run),
    ]
    cfg, (accuracy, target) = run.model.cfg, min(zip(tested["model"].accuracy, task.targets, strict=True))
    lead = (
        f"A transformer with {cfg.n_layers} layers and {cfg.n_heads} heads per layer was trained on "
        f"{run.manifest['task']['task'].upper()} from seed {run.manifest['seed']}. On {n_test} held-out examples its "
        f"weakest target, {target}, is right {accuracy:.2%} of the time."
    )
    return report(sections, path, title=title, lead=lead), tested


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
    if task["task"] != "lego":
        return task["task"]
    chain = f"chains of {task['n_vars']} variables in {task['group']['name']}"
    return f"LEGO: {chain}, {len(task['supervised'])} of them supervised, {task['sentence_format']} format"


def _model_line(run: TrainingRun) -> str:
    cfg, size = run.model.cfg, sum(parameter.numel() for parameter in run.model.parameters())
    tied = "one block applied " if cfg.tied else ""
    return (
        f"{cfg.block}, {tied}{cfg.n_layers} {'times' if cfg.tied else 'layers'} of {cfg.n_heads} heads, width "
        f"{cfg.d_model}, {cfg.attention}, {size:,} parameters"
    )


def _training_line(run: TrainingRun) -> str:
    settings = run.manifest["settings"]
    stages = " ".join(f"{length}:{steps}" for length, steps in settings["curriculum"])
    curriculum = f" (chain length:steps {stages})" if stages else ""
    bias = {"none": "no association bias", "mimic": "after mimicking", "query_key": "W_Q copied into W_K at the start"}
    return f"{settings['steps']} steps{curriculum}, {bias[settings['association']]}, {run.seconds:.0f} s"


def learning_curves(runs: dict[str, TrainingRun]) -> Section:
    """Held-out accuracy of every target over training, one panel per run."""
    table = pd.concat([run.to_dataframe().assign(run=name) for name, run in runs.items()])
    chance = 1 / next(iter(runs.values())).manifest["config"]["d_vocab_out"]
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


def provenance(run: TrainingRun) -> Section:
    """Everything needed to get the same numbers again."""
    manifest = run.manifest
    rows = [("what", "value"), ("seed", str(manifest["seed"]))]
    rows += [(name, str(value)) for name, value in {**manifest["versions"], **manifest["hardware"]}.items()]
    rows += [("threads", str(manifest["threads"])), ("started", manifest["time"])]
    rows += [(name, json.dumps(manifest[name])) for name in ("task", "settings", "config")]
    return Section(title="Provenance", table=rows)
