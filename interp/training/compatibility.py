"""Compatibility of a model and training settings with a task."""

from hooks.model.architectures import Model
from interp.tasks.base import Task
from interp.training.objectives import check_contrastive
from interp.training.settings import TrainSettings
from interp.training.snapshots import snapshot_steps


def check_compatible(model: Model, task: Task, settings: TrainSettings) -> None:
    """Check that a model can be trained on a task with these settings.

    Raises:
        ValueError: the size or the setting that does not fit.
    """
    _check_sizes(model, task)
    cfg, depth_range = model.cfg, settings.depth_range
    if depth_range is not None and not 1 <= depth_range[0] <= depth_range[1] <= cfg.n_layers:
        raise ValueError(f"depth_range is {depth_range}; give two depths from 1 to {cfg.n_layers}, in order.")
    _check_objectives(model, task, settings)
    if settings.curriculum:
        _check_curriculum(task, [length for length, _ in settings.curriculum])
    snapshot_steps(settings.snapshots, settings.total_steps)


def _check_sizes(model: Model, task: Task) -> None:
    """Check vocabulary, length, attention and token types."""
    cfg = model.cfg
    if (cfg.d_vocab, cfg.d_vocab_out) != (task.d_vocab, task.d_vocab_out):
        raise ValueError(
            f"the model has d_vocab {cfg.d_vocab} and d_vocab_out {cfg.d_vocab_out}; the task needs {task.d_vocab} "
            f"and {task.d_vocab_out}. interp.config_for(task) makes a config that fits."
        )
    if cfg.n_ctx < task.n_ctx:
        raise ValueError(f"n_ctx of the model is {cfg.n_ctx}; the task has sequences of {task.n_ctx}.")
    if cfg.attention == "bidirectional" and task.attention == "causal":
        raise ValueError("attention of the model is bidirectional; it would see the answers of a causal task.")
    needed_types = task.config_fields(task.default_family).get("n_token_types", 0)
    if getattr(cfg, "n_token_types", 0) < needed_types:
        raise ValueError(
            f"the task needs {needed_types} token types to distinguish its sentences; this model has fewer. Use "
            f"interp.config_for(task), or next_sentence=False."
        )


def _check_objectives(model: Model, task: Task, settings: TrainSettings) -> None:
    """Check that the model has the heads, and the task the brackets, that auxiliary objectives train."""
    cfg, association = model.cfg, settings.association
    if association != "none" and (not cfg.n_heads or cfg.head_patterns):
        obstacle = "hard-coded heads" if cfg.n_heads else "no attention"
        raise ValueError(f"association is {association!r}, but this model has {obstacle}; leave it 'none'.")
    if settings.contrastive:
        check_contrastive(task, settings.contrastive, cfg.n_ctx)
    if association == "mimic" and cfg.n_heads < 2:
        raise ValueError(f"association 'mimic' trains two heads per layer; the model has {cfg.n_heads}.")


def _check_curriculum(task: Task, lengths: list[int]) -> None:
    if not task.lengths:
        raise ValueError(f"curriculum is a schedule of lengths; a {type(task).__name__} task has only one.")
    for length in (min(lengths), max(lengths)):
        if length not in task.lengths:
            raise ValueError(
                f"curriculum has the length {length}; the lengths of this task go from {task.lengths.start} to "
                f"{task.lengths.stop - 1}."
            )
