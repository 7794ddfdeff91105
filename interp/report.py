"""Results to one HTML file that opens offline."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
        f"{run.manifest['task']['task']} from seed {run.manifest['seed']}. On {n_test} held-out examples its weakest "
        f"target, {target}, is right {accuracy:.2%} of the time."
    )
    return report(sections, path, title=title, lead=lead), tested


def what_was_trained(runs: dict[str, TrainingRun]) -> Section:
    """Model, task and training of each run, side by side."""
    rows = [("", *runs)]
    for title, part, names in (
        ("task", "task", ("n_vars", "group", "supervised", "sentence_format")),
        (
            "model",
            "config",
            ("block", "tied", "n_layers", "n_heads", "d_model", "d_mlp", "positions", "attention"),
        ),
        (
            "training",
            "settings",
            ("steps", "curriculum", "association", "tokens_per_step", "learning_rate", "depth_range"),
        ),
    ):
        for name in names:
            cells = [run.manifest[part].get(name) for run in runs.values()]
            cells = [cell["name"] if isinstance(cell, dict) else cell for cell in cells]
            if any(cell is not None for cell in cells):
                rows.append((f"{title}: {name}", *(_shown(cell) for cell in cells)))
    rows.append(("parameters", *(f"{sum(p.numel() for p in run.model.parameters()):,}" for run in runs.values())))
    rows.append(("time", *(f"{run.seconds:.0f} s" for run in runs.values())))
    text = ""
    if any(run.manifest["settings"]["association"] == "mimic" for run in runs.values()):
        text = (
            "With association 'mimic', head 0 of every layer is first taught to attend locally and head 1 to attend to "
            "identical tokens; the task comes after. Those two patterns are therefore installed, not discovered."
        )
    return Section(title="What was trained", text=text, table=rows)


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
            f"\n\nReadable is not used. The last map sets the class direction of one layer to its value in another "
            f"sentence, and shows how often the output becomes that sentence's answer ({int(causal['n'].min())} pairs "
            f"or more per cell). A move as far in a random direction does so in {causal['placebo'].mean():.1%} of "
            f"pairs on average, a move along the probe's own weights in {causal['weights'].mean():.1%}: where a probe "
            f"looks is not where the model moves."
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
        text="Clauses stand in random order; the small number says which variable of the chain each defines.",
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


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(":".join(map(str, item)) if isinstance(item, list) else str(item) for item in value)
    return str(value)
