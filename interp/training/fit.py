"""Whether a model and settings fit a task."""

from hooks.model.architectures import Model
from interp.tasks.base import Task
from interp.training.objectives import check_contrastive
from interp.training.settings import TrainSettings
from interp.training.snapshots import snapshot_steps


def check_fit(model: Model, task: Task, settings: TrainSettings) -> None:
    """Refuse a model or settings that do not fit the task.

    Raises:
        ValueError: what does not fit.
    """
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
    types = task.config_fields(task.default_family).get("n_token_types", 0)
    if getattr(cfg, "n_token_types", 0) < types:
        raise ValueError(
            f"the task needs {types} token types to distinguish its sentences; this model has fewer. Use "
            f"interp.config_for(task), or next_sentence=False."
        )
    if settings.depth_range is not None and not 1 <= settings.depth_range[0] <= settings.depth_range[1] <= cfg.n_layers:
        raise ValueError(f"depth_range is {settings.depth_range}; give two depths from 1 to {cfg.n_layers}, in order.")
    if settings.association != "none" and (not cfg.n_heads or cfg.head_patterns):
        has = "hard-coded heads" if cfg.n_heads else "no attention"
        raise ValueError(f"association is {settings.association!r}, but this model has {has}; leave it 'none'.")
    if settings.contrastive:
        check_contrastive(task, settings.contrastive, cfg.n_ctx)
    if settings.association == "mimic" and cfg.n_heads < 2:
        raise ValueError(f"association 'mimic' trains two heads per layer; the model has {cfg.n_heads}.")
    if settings.curriculum:
        _check_curriculum(task, [length for length, _ in settings.curriculum])
    snapshot_steps(settings.snapshots, settings.total_steps)


def _check_curriculum(task: Task, lengths: list[int]) -> None:
    if not task.lengths:
        raise ValueError(f"curriculum is a schedule of lengths; a {type(task).__name__} task has only one.")
    for length in (min(lengths), max(lengths)):
        if length not in task.lengths:
            raise ValueError(
                f"curriculum has the length {length}; the lengths of this task go from {task.lengths.start} to "
                f"{task.lengths.stop - 1}."
            )
