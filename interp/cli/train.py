"""`interp train TASK`, with options built from the fields of the task, the model's config and the training settings."""

import ast
import inspect
import textwrap
from collections.abc import Collection
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape

TASKS = {
    "lego": "Train on LEGO: chains of group operations with shuffled clauses.",
    "dyck": "Train on bounded Dyck: words of nested brackets.",
    "template": "Train on template tasks; test strings have unseen symbols.",
    "text": "Train a small language model on Python's sources or a folder of text.",
}
NAMES = {"n_layers": "--layers", "n_heads": "--heads", "d_model": "--width", "train": "--n"}
"""Options named differently from their field."""
FROM_TASK = {"d_vocab", "d_vocab_out", "n_ctx", "attention"}
"""Fields of a config that follow from the task."""
AS_TEXT: dict[str, tuple[Any, str]] = {
    "group": (str, "Z2 (signs) or S3 (permutations). Default: Z2."),
    "templates": (list[str], "A ready-made family (aba_abb, copy, ...) or a template, 'aba -> +1'; repeatable."),
    "curriculum": (str, "auto (the recipe's), none, or stages length:steps, such as 2:80,3:270,4:350."),
    "corpus": (str, "python (the standard library's sources) or a folder of text files."),
}
"""Fields whose values are written as text: type of the option, and help."""

Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Train again even if the folder has a trained model.")]
Device = Annotated[str | None, typer.Option(help="Where to train: cuda, cuda:1. Default: the CPU.")]

train_app = typer.Typer(help="Train a model on a task; an interrupted run is resumed.")


def _add_command(name: str) -> None:
    unparsed = {"ignore_unknown_options": True}

    @train_app.command(name, help=TASKS[name], add_help_option=False, context_settings=unparsed)
    def command(arguments: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        # Built here, since the options come from classes whose import loads torch.
        app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
        app.command(help=TASKS[name])(_train_command(name))
        app(args=arguments or [], prog_name=f"interp train {name}")


for _name in TASKS:
    _add_command(_name)


def _train_command(name: str) -> Any:
    """The function behind `interp train NAME`; its signature has one parameter per option."""
    from hooks import TransformerConfig
    from interp.tasks.registry import task_class_of
    from interp.training.settings import TrainSettings, recipe_for

    def run(
        out: Annotated[Path, typer.Option(help="Folder for the run.")],
        family: Annotated[str | None, typer.Option(help="Preset of the model. Default: that of the task.")] = None,
        identity: Annotated[bool, typer.Option("--identity", help="Same as --qk-identity --vo-identity.")] = False,
        pattern: Annotated[str, typer.Option(help="Files to read from a corpus folder.")] = "**/*.txt",
        seed: Seed = 0,
        fresh: Fresh = False,
        device: Device = None,
        **given: Any,
    ) -> None:
        chosen = {field: value for field, value in given.items() if value not in (None, [])}
        chosen = {**task_class_of(name).command_line_defaults, **chosen} | (
            {"qk_identity": True, "vo_identity": True} if identity else {}
        )
        of_task, sizes, of_settings = ({key: chosen[key] for key in part if key in chosen} for part in parts)
        task = _make_task(name, of_task, pattern)
        config = _make_config(task, family, sizes)
        _train(task, config, _make_settings(recipe_for(task), of_settings), out, seed=seed, fresh=fresh, device=device)

    task_class = task_class_of(name)
    defaults = dict(task_class.command_line_defaults)
    parts = [
        _options("Task", task_class, _values(task_class) | defaults),
        _options("Model", TransformerConfig, defaults, without=FROM_TASK),
        _options("Training", TrainSettings, _values(recipe_for(task_class())) | {"curriculum": "auto"} | defaults),
    ]
    signature = inspect.signature(run)
    fixed = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    fixed = [one for one in fixed if one.name != "pattern" or name == "text"]
    every = [option for part in parts for option in part.values()]
    run.__signature__ = signature.replace(parameters=[*fixed, *every])  # type: ignore[attr-defined]
    return run


def _values(of: Any) -> dict[str, Any]:
    """Field values of a dataclass instance, or defaults of the class."""
    return {field.name: getattr(of, field.name, None) for field in fields(of)}


def _options(
    panel: str, cls: Any, defaults: dict[str, Any], without: Collection[str] = ()
) -> dict[str, inspect.Parameter]:
    """One parameter for each field of a dataclass that can be given as text; None, its default, keeps the field's."""
    types, texts = get_type_hints(cls), _field_texts(cls)
    found = {}
    for name in [field.name for field in fields(cls) if field.init and field.name not in without]:
        kind, text = AS_TEXT.get(name) or (_option_type(types[name]), texts.get(name, ""))
        if kind is None:
            continue
        choices = "|".join(get_args(kind)) if get_origin(kind) is Literal else None
        shown = defaults.get(name)
        if isinstance(shown, bool | int | float | str | tuple) and (kind is not str or isinstance(shown, str)):
            text = f"{text} Default: {shown}.".strip()
        option = typer.Option(
            *([NAMES[name]] if name in NAMES else []), help=escape(text), metavar=choices, rich_help_panel=panel
        )
        annotation = Annotated[(str if choices else kind) | None, option]
        found[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None)
    return found


def _option_type(hint: Any) -> Any:
    """A type that the command line reads: a number, text, a choice, a flag or a pair. None for any other field."""
    if hint in (int, float, str, bool) or get_origin(hint) is Literal:
        return hint
    if get_origin(hint) in (Union, UnionType):
        return next((kind for kind in map(_option_type, get_args(hint)) if kind is not None), None)
    return hint if get_origin(hint) is tuple and set(get_args(hint)) <= {int, float} else None


def _field_texts(cls: type) -> dict[str, str]:
    """The docstring below each field of a dataclass."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(tree.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _make_task(name: str, options: dict[str, Any], pattern: str) -> Any:
    from interp.tasks.registry import task_class_of

    more = {"pattern": pattern} if name == "text" else {}
    return task_class_of(name).from_options(**options, **more)


def _make_config(task: Any, family: str | None, sizes: dict[str, Any]) -> Any:
    from interp.training.configs import config_for

    sizes = task.command_line_sizes(family, sizes)
    if family == "fully_connected":
        sizes = {"width": sizes["d_model"]}  # it has no heads
    return config_for(task, family, **sizes)


def _make_settings(recipe: Any, options: dict[str, Any]) -> Any:
    stages = options.pop("curriculum", "auto")
    if stages != "auto":
        options = {"steps": type(recipe).steps, **options, "curriculum": _stages(stages)}
    return replace(recipe, **options)


def _stages(text: str) -> tuple[tuple[int, int], ...]:
    try:
        stages = [stage.split(":") for stage in text.split(",") if stage] if text != "none" else []
        return tuple((int(length), int(steps)) for length, steps in stages)
    except ValueError:
        raise ValueError(f"curriculum is {text!r}; give auto, none, or stages length:steps: 2:80,3:270.") from None


def _train(task: Any, config: Any, settings: Any, folder: Path, *, seed: int, **options: Any) -> None:
    from hooks import make_model
    from interp.core.progress import TrainingProgress
    from interp.training.train import train

    model = make_model(config, seed=seed)
    with TrainingProgress("model") as progress:
        print(train(model, task, settings, seed=seed, folder=folder, on_record=progress, **options))
    check = " --verify" if task.answer_label is not None else ""
    print(f"next: interp probe {folder}{check}, or interp report {folder}")
