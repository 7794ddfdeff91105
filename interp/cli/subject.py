"""The model and the task that a command is about: those of a training run, or a pretrained model on a stated task."""

import inspect
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hooks.checks import did_you_mean
from interp.cli.train import command_of, make_task, options_of

OnTask = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="The task of a model that is no training run, with its options of `interp train` in the same quotes.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model, and the task that it is analysed on."""

    model: Any
    task: Any
    run: Any = None
    """The training run, if it is one."""

    def seeds(self, seed: int | None = None) -> str:
        """The seeds of the training, if it is known, and of the analysis, for a page."""
        parts = [] if self.run is None else [f"{self.run.manifest['seed']} (training)"]
        if seed is not None:
            parts.append(f"{seed} (analysis)")
        return ", ".join(parts)


def subject_of(source: Path, task: str | None, *, answers: bool = False) -> Subject:
    """The model of a training run, of a Hugging Face folder, or of packaged weights.

    A pretrained model gets one row of its embedding for each token of the task, and a read-out (`interp.pretrained`);
    on a text, it keeps its vocabulary.

    Args:
        source: The folder of a training run or of a Hugging Face model, or a name of packaged weights.
        task: With a pretrained model: the task, and its options.
        answers: Whether a pretrained model has to answer, so that its read-out is fitted on the task.

    Raises:
        ValueError: a run with a task or a pretrained model without one; an unknown task, or options that it does not
            have; a model that does not fit it.
        FileNotFoundError: there is neither a run nor a model.
    """
    from interp.training.packaged import PACKAGED
    from interp.training.run import TrainingRun

    is_run = (source / "manifest.json").exists()
    is_pretrained = str(source) in PACKAGED or ((source / "config.json").exists() and not is_run)
    if not is_pretrained:
        if task is not None and is_run:
            raise ValueError(f"{source} is a training run, which has a task; omit --task.")
        run = TrainingRun.load(source)
        return Subject(model=run.model, task=run.task, run=run)
    if task is None:
        raise ValueError(
            f"{source} is a pretrained model; say on which task: --task, with its options of `interp train`."
        )
    from interp import load, pretrained

    stated = task_of(task)
    if not stated.is_language:
        readout = "fitted" if answers else "new"
        return Subject(model=pretrained(stated, str(source), readout=readout), task=stated)
    model = load(str(source))
    return Subject(model=model, task=replace(stated, tokenizer=model.tokenizer, vocab_size=None))


def task_of(text: str) -> Any:
    """A task from its name and options, as `interp train` reads them.

    Raises:
        ValueError: no task, or an unknown one.
    """
    from interp.tasks.registry import known_tasks, task_class_of

    try:
        name, *arguments = shlex.split(text) or [""]
    except ValueError as error:
        raise ValueError(f"--task is {text!r}, which cannot be split into words: {error}.") from None
    names = list(known_tasks())
    if name not in names:
        raise ValueError(f"--task is {text!r}; known tasks: {', '.join(names)}.{did_you_mean(name, names)}")
    task_class = task_class_of(name)
    options, _, _ = options_of(task_class)

    def values(**values: Any) -> dict[str, Any]:
        return values

    values.__signature__ = inspect.Signature(list(options.parameters().values()))  # type: ignore[attr-defined]
    # Help would be printed and end the command
    try:
        stated = command_of(name, values, "").main(arguments, standalone_mode=False, help_option_names=[])
    except Exception as error:
        # typer's errors of usage, whose class is not public
        if not hasattr(error, "format_message"):
            raise
        message = " ".join(error.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
        raise ValueError(f"--task is {text!r}: {message}. See interp train {name} --help.") from None
    return make_task(task_class, options.values_with_preset(stated))
