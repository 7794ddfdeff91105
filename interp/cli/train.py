"""`interp train TASK`, with options built from the fields of the task, the model's config and the training settings."""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hooks.checks import did_you_mean
from interp.cli.options import Options
from interp.cli.output import Command, Device, Fresh, Json, Output, Seed, with_user_paths
from interp.cli.tasks import summary

MODEL_OPTIONS = {"n_layers": "layers", "n_heads": "heads", "d_model": "width"}
"""Options of the model that are named differently from their field."""
TASK_FIELDS = {"d_vocab", "d_vocab_out", "n_ctx", "attention"}
"""Fields of a config that follow from the task."""
COMMAND_OPTIONS = {"out", "family", "identity", "seed", "fresh", "device", "json", "help"}
"""Options that are not fields."""
CURRICULUM = (str, "auto (the recipe's), none, or stages length:steps, such as 2:80,3:270,4:350.")

SNAPSHOTS = (
    str,
    "Models to keep in the folder: a number, whose steps have a constant ratio; steps, such as 0,100,500; or "
    "'on change' of an accuracy. Default: none.",
)


class TaskGroup(TyperGroup):
    """One command per known task. The task's class is imported when the command runs, not when commands are listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the known tasks."""
        from interp.tasks.registry import known_tasks

        return list(known_tasks())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command that has no options yet, for the list of commands and for completion."""
        from interp.tasks.registry import known_tasks

        return command_of(cmd_name, lambda: None, known_tasks().get(cmd_name, ""))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the task, which is the first argument, with its options."""
        name, names = args[0], self.list_commands(ctx)
        if name in names:
            return name, _train_command(name), args[1:]
        if not ctx.resilient_parsing:
            ctx.fail(f"there is no task {name!r}; known tasks: {', '.join(names)}.{did_you_mean(name, names)}")
        return None, None, args[1:]


train_app = typer.Typer(
    cls=TaskGroup, help="Train a model on a task; an interrupted run is resumed. `interp tasks` describes the tasks."
)


@train_app.callback()
def _train_group() -> None: ...


def command_of(name: str, function: Any, text: str) -> Any:
    """A command from a function and its help text."""
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command(name, help=text, cls=Command)(function)
    return typer.main.get_command(app)


def _train_command(name: str) -> Any:
    """The command `interp train NAME`; its function's signature has one parameter per option."""
    from interp.tasks.registry import task_class_of
    from interp.training.settings import recipe_for

    task_class = task_class_of(name)
    task_options, model_options, training_options = options_of(task_class)

    def run(
        out: Annotated[Path, typer.Option(help="Folder for the run.")],
        family: Annotated[str | None, typer.Option(help="Preset of the model. Default: that of the task.")] = None,
        identity: Annotated[bool, typer.Option("--identity", help="Same as --qk-identity --vo-identity.")] = False,
        seed: Seed = 0,
        fresh: Fresh = False,
        device: Device = None,
        as_json: Json = False,
        **values: Any,
    ) -> Output:
        if identity:
            for field in ("qk_identity", "vo_identity"):
                if values[model_options.parameter_name(field)] is False:
                    raise ValueError(f"--identity sets what {model_options.negative_flag(field)} denies; omit one.")
                values[model_options.parameter_name(field)] = True
        # each panel reads its options
        task = make_task(task_class, task_options.values_with_preset(values))
        config = _make_config(task, family, model_options, model_options.values(values))
        recipe, command_line = recipe_for(task), training_options.values(values)
        _check_effective(recipe, command_line, config, training_options)
        settings = _make_settings(recipe, {**training_options.preset, **command_line})
        return _train(task, config, settings, out, seed=seed, fresh=fresh, device=device)

    # replace **values by the options
    signature = inspect.signature(run)
    parameters = [entry for entry in signature.parameters.values() if entry.kind is not entry.VAR_KEYWORD]
    for options in (task_options, model_options, training_options):
        parameters.extend(options.parameters().values())
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command_of(name, with_user_paths(run), summary(task_class))


def options_of(task_class: Any) -> tuple[Options, Options, Options]:
    """The options of the task, of the model and of the training. A preset of a task's field is for that only."""
    from hooks import TransformerConfig
    from interp.training.settings import TrainSettings

    # presets of the task are values of its fields, or else of the model's and the training's
    presets = dict(task_class.command_line_defaults)
    task_fields = getattr(task_class, "__dataclass_fields__", {})
    other_presets = {name: value for name, value in presets.items() if name not in task_fields}
    model_options = Options(
        panel="Model",
        cls=TransformerConfig,
        preset=other_presets,
        optional=True,
        names=MODEL_OPTIONS,
        excluded=TASK_FIELDS,
    )
    training_options = Options(
        panel="Training",
        cls=TrainSettings,
        preset=other_presets,
        defaults=_recipe(task_class) | {"curriculum": "auto"},
        converted={"curriculum": CURRICULUM, "snapshots": SNAPSHOTS},
    )
    # an option of the task that another panel has gets a longer name
    task_options = Options(
        panel="Task",
        cls=task_class,
        preset=presets,
        defaults={name: field.default for name, field in task_fields.items()},
        names=task_class.option_names,
        converted=task_class.text_options,
        reserved=COMMAND_OPTIONS | model_options.flags | training_options.flags,
    )
    return task_options, model_options, training_options


def _recipe(task_class: Any) -> dict[str, Any]:
    """Settings of the task's recipe, or the general ones for a task without default settings."""
    from interp.training.settings import TrainSettings, recipe_for

    try:
        return vars(recipe_for(task_class()))
    except (TypeError, ValueError):
        return vars(TrainSettings())


def make_task(task_class: Any, options: dict[str, Any]) -> Any:
    """A task from the values of its options.

    Raises:
        ValueError: values that do not fit.
    """
    try:
        return task_class.from_options(**options)
    except TypeError as error:
        raise ValueError(f"the options do not fit the task {task_class.task_name!r}: {error}.") from error


def _make_config(task: Any, family: str | None, options: Options, values: dict[str, Any]) -> Any:
    """The config of a model from the values of its options on the command line."""
    from interp.training.configs import BASELINES, config_for

    sizes = {**options.preset, **values}
    kind = BASELINES.get(family or task.default_family)
    if kind is None:
        return config_for(task, family, **task.command_line_sizes(family, sizes))
    # a baseline has one size
    unknown = [options.flag(name) for name in values if name != "d_model"]
    if unknown:
        raise ValueError(f"a {kind} network has no {', '.join(unknown)}; of the model's options, give --width.")
    width = {"width": sizes["d_model"]} if "d_model" in sizes else {}
    return config_for(task, family, **width)


def _check_effective(recipe: Any, command_line: dict[str, Any], config: Any, options: Options) -> None:
    """Check that every option of training on the command line has an effect.

    Raises:
        ValueError: an option that another one, the recipe or the model overrides.
    """
    stages = command_line.get("curriculum", "auto")
    has_curriculum = bool(recipe.curriculum) if stages == "auto" else bool(_stages(stages))
    if "steps" in command_line and has_curriculum:
        source = "the recipe of this task has" if stages == "auto" else "--curriculum has"
        curriculum = recipe.curriculum if stages == "auto" else _stages(stages)
        text = ",".join(f"{length}:{steps}" for length, steps in curriculum)
        total = sum(steps for _, steps in curriculum)
        if command_line["steps"] != total:
            raise ValueError(
                f"--steps is {command_line['steps']}, but {source} the stages {text}, whose {total} steps count. Add "
                f"--curriculum none, which trains at one length, or give stages with more steps."
            )
    if "batch_size" in command_line and "tokens_per_step" in command_line:
        raise ValueError("--batch-size and --tokens-per-step exclude each other; give one of them.")
    # what each of these options belongs to
    needed = {"current_share": ("a curriculum", has_curriculum)}
    for name in ("qk_identity", "vo_identity"):
        needed[f"{name}_rate"] = (f"--{name.replace('_', '-')}", bool(getattr(config, name, False)))
    for name, (cause, is_present) in needed.items():
        if name in command_line and not is_present:
            raise ValueError(f"{options.flag(name)} has no effect without {cause}; omit it.")


def _make_settings(recipe: Any, options: dict[str, Any]) -> Any:
    """The recipe of the task with the options of the command line."""
    settings = dict(options)
    stages = settings.pop("curriculum", "auto")
    if stages != "auto":
        settings["curriculum"] = _stages(stages)
        # the steps of the recipe are for its curriculum, or for none
        if recipe.curriculum or settings["curriculum"]:
            settings.setdefault("steps", type(recipe).steps)
    # tokens per step on the command line count, not the recipe's examples per step
    if "tokens_per_step" in settings:
        settings.setdefault("batch_size", None)
    if "snapshots" in settings:
        settings["snapshots"] = _snapshots(settings["snapshots"])
    return replace(recipe, **settings)


def _snapshots(text: str) -> int | tuple[int, ...] | str:
    """A number of snapshots, their steps, or text such as `on change`."""
    steps = text.split(",")
    if not all(step.strip().isdigit() for step in steps):
        return text
    return int(text) if len(steps) == 1 else tuple(map(int, steps))


def _stages(text: str) -> tuple[tuple[int, int], ...]:
    """Stages of a curriculum from `length:steps,length:steps`.

    Raises:
        ValueError: any other text.
    """
    if text == "none":
        return ()
    try:
        stages = [stage.split(":") for stage in text.split(",") if stage]
        return tuple((int(length), int(steps)) for length, steps in stages)
    except ValueError:
        raise ValueError(f"curriculum is {text!r}; give auto, none, or stages length:steps: 2:80,3:270.") from None


def _train(task: Any, config: Any, settings: Any, folder: Path, *, seed: int, **options: Any) -> Output:
    """Train a model in a folder."""
    from hooks import make_model
    from interp.training.train import train

    model = make_model(config, seed=seed)
    run = train(model, task, settings, seed=seed, folder=folder, **options)
    # what to do next; a model without attention has no probes
    text = str(run)
    if config.n_heads:
        verify = " --verify" if task.answer_label is not None else ""
        text += f"\nnext: interp probe {folder}{verify}, or interp report {folder}"
    return Output(
        text=text,
        values={
            "task": task.task_name,
            "folder": str(folder),
            "seed": seed,
            "steps": run.history[-1]["steps_done"] if run.history else 0,
            "seconds": run.seconds,
            "accuracy": dict(zip(task.outcomes, run.final_accuracy, strict=False)),
            "at_chance": list(run.at_chance),
        },
    )
