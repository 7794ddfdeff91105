"""`interp.train` and its loop. A run killed at any time resumes and ends with the same weights."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hooks.model.architectures import Model
from hooks.model.layers import is_hooked
from hooks.state import check_differentiable, restores_state_unless_trained
from hooks.typed import checks_types
from interp.core.devices import check_device, device_of, on_device, warn_of_slow_bfloat16
from interp.core.progress import TrainingProgress
from interp.core.randomness import derived_generator
from interp.core.verbs import Needs, prepare_scorable
from interp.evaluation.evaluate import held_out
from interp.tasks.base import Batch, Task
from interp.tasks.batch import NotFinite
from interp.tasks.splits import sample_split
from interp.training.batches import TrainingBatches
from interp.training.folder import RunFolder
from interp.training.manifest import manifest_of
from interp.training.objectives import (
    check_mimicking,
    contrastive_loss,
    copy_query_to_key,
    mimic_batch,
    mimic_loss,
    mimic_targets,
)
from interp.training.run import TrainingRun, best_record
from interp.training.settings import TrainSettings, settings_or_default
from interp.training.snapshots import has_changed, snapshot_steps

Record = dict[str, Any]
"""The metrics of one evaluation."""
OnRecord = Callable[[Record], None]


class Diverged(ValueError):
    """The training loss is not finite."""


NEEDS = Needs(
    "train",
    answers=True,
    exact_outputs=True,
    without_attention=True,
    only_transformer="a run is saved and resumed as a hooks.Transformer; train the wrapped model with its own tools",
)


@checks_types
@restores_state_unless_trained
def train(
    model: Model,
    task: Task,
    settings: TrainSettings | None = None,
    *,
    seed: int = 0,
    folder: str | Path | None = None,
    fresh: bool = False,
    on_record: OnRecord | None = None,
    device: str | None = None,
) -> TrainingRun:
    """Train a model on a task, in place.

    On a CPU, the same seed and number of threads give the same weights. On a GPU, the same seed gives the same
    examples in the same order, and weights that may differ in the last digits.

    Args:
        model: The model to train. Its vocabulary sizes and attention must be those of the task.
        task: The task to learn.
        settings: Training settings; default: `recipe_for(task)`.
        seed: Seed of batches, depths and mimicking data. It does not affect the initial weights.
        folder: Folder for manifest, metrics, state and model; if None, nothing is written. A finished run with the
            same seed, task, config and settings is loaded from it, an unfinished one is resumed.
        fresh: Discard an earlier run in the folder.
        on_record: Called with each metrics record.
        device: Device to train on: `cuda`, `cuda:1` or `cpu`; the model is on the CPU afterwards. If None, the model
            stays on its device.

    Returns:
        The trained model in evaluation mode, with its learning curves and manifest.

    Raises:
        ValueError: an inconsistent task, a model or settings that do not fit it, an unavailable device, a folder with
            another run or with files that are not its own, in which another process trains (`FolderInUse`), or a loss
            that is not finite.
        NoLocks: the file system of the folder has no locks.

    Example:
        >>> import hooks, interp
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> model = hooks.make_model(interp.config_for(task, n_layers=1, d_model=16), seed=0)
        >>> run = interp.train(model, task, interp.TrainSettings(steps=2, n_eval=20), seed=0)
        >>> run.history[-1]["steps_done"]
        2
    """
    settings = settings_or_default(settings, task)
    check_trainable(model)
    prepare_scorable(model, NEEDS)
    manifest = manifest_of(model, task, settings, seed)  # checks the task and the settings
    options = {"folder": folder, "fresh": fresh, "on_record": on_record, "device": device}
    return train_run(model, task, settings, manifest, **options)


def check_trainable(model: Model) -> None:
    """Check that there is something to train in a model; frozen parameters stay as they are.

    Raises:
        ValueError: every parameter is frozen, or one was made in `torch.inference_mode`.
    """
    if not isinstance(model, torch.nn.Module):
        return  # refused by name with its class
    parameters = list(model.parameters())
    if parameters and not any(parameter.requires_grad for parameter in parameters):
        raise ValueError(
            "every parameter of the model is frozen (requires_grad is False), which leaves nothing to train. Call "
            "model.requires_grad_(True), or on the parts to train."
        )
    check_differentiable("model", model, "training")


def train_run(
    model: Model,
    task: Task,
    settings: TrainSettings,
    manifest: dict[str, Any],
    *,
    folder: str | Path | None = None,
    fresh: bool = False,
    on_record: OnRecord | None = None,
    device: str | None = None,
) -> TrainingRun:
    """`train`, with the manifest of the run, which `manifest_of` makes."""
    seed = manifest["seed"]
    torch_device = None if device is None else check_device(device)
    if settings.snapshots is not None and folder is None:
        raise ValueError("settings has snapshots, which are kept in the folder of the run; give folder.")
    files = None if folder is None else RunFolder(folder)
    if files is not None and files.finished and not fresh:
        return _finished_run(model, task, files, manifest, torch_device)
    if settings.association == "mimic":
        check_mimicking(task, settings.mimicking)

    # Without a folder nothing is written, and nothing can be resumed
    if files is None:
        with on_device(model, torch_device):
            history = Trainer(model, task, settings, seed, on_record=on_record).run()
        return TrainingRun.with_task(task, model=model.eval(), history=tuple(history), manifest=manifest)

    # In a folder, start or resume as its only writer
    with files.writing():
        if fresh:
            files.clear()
        manifest = files.start_or_resume(manifest)
        if not files.finished:
            with on_device(model, torch_device):
                history = Trainer(model, task, settings, seed, files, on_record, manifest).run()
            manifest = files.read_manifest()  # with the hashes of all files
            return TrainingRun.with_task(
                task, model=model.eval(), history=tuple(history), manifest=manifest, folder=files.path
            )
    # Another process finished it before this one could write
    return _finished_run(model, task, files, manifest, torch_device)


def _finished_run(
    model: Model, task: Task, files: RunFolder, manifest: dict[str, Any], device: torch.device | None
) -> TrainingRun:
    """The run in a folder, with its weights in this model, which is on the CPU if a device was named."""
    files.tidy()
    manifest = files.start_or_resume(manifest)
    model.load_state_dict(files.load_model().state_dict())
    if device is not None:
        model.to("cpu")
    history = tuple(files.read_metrics())
    return TrainingRun.with_task(task, model=model.eval(), history=history, manifest=manifest, folder=files.path)


@dataclass(frozen=True, kw_only=True)
class StepInputs:
    """What one step needs."""

    batch: Batch
    learning_rate: float
    generator: torch.Generator
    """Of the step, for what its loss draws."""
    depth: int | None = None
    """Number of layers, with stochastic depth."""
    read_at: torch.Tensor | None = None
    """Positions (batch, target) that the logits are those of; None for all."""
    targets: torch.Tensor | None = None
    """Attention maps to mimic, while mimicking."""

    def model_inputs(self) -> dict[str, torch.Tensor]:
        """Tensors that the model's forward pass takes, besides the tokens."""
        inputs = self.batch.model_inputs()
        return inputs if self.read_at is None else {**inputs, "read_at": self.read_at}


class Trainer:
    """The training loop. Steps are numbered through both phases, mimicking and then the task.

    Args:
        model: Model to train, in place, on its device.
        task: The task.
        settings: Training settings.
        seed: Seed of everything random.
        files: Folder of the run, which this process writes to; if None, nothing is saved.
        on_record: Called with each metrics record.
        manifest: Manifest of the run in the folder.
    """

    def __init__(
        self,
        model: Any,
        task: Task,
        settings: TrainSettings,
        seed: int,
        files: RunFolder | None = None,
        on_record: OnRecord | None = None,
        manifest: dict[str, Any] | None = None,
    ):
        self.model = model
        self.task = task
        self.settings = settings
        self.seed = seed
        self.files = files
        self.manifest = manifest or {}
        self.on_record = on_record or (lambda record: None)
        self.device = device_of(model)
        if settings.precision == "bfloat16":
            warn_of_slow_bfloat16(self.device)
        self.step = 0
        """Number of steps that are finished."""
        self.saved_step = 0
        """Step from which the run would resume."""
        self.seconds = 0.0
        self.history: list[Record] = []
        self.best_weights: dict[str, torch.Tensor] | None = None
        self.snapshot_steps = frozenset(snapshot_steps(settings.snapshots, settings.total_steps))
        self.accuracy_at_snapshot: list[float] = []
        self.validation = sample_split(
            task, settings.n_eval, generator=derived_generator(seed, "validation"), split="validation"
        )
        self.batches = TrainingBatches(task, settings, seed)

    def run(self) -> list[Record]:
        """Train from the start, or from the last checkpoint, to the end; returns the records."""
        self.start()
        try:
            with TrainingProgress() as show:
                while not self.ended:
                    if record := self.advance(self.train_one_step()):
                        show(record)
        except KeyboardInterrupt as error:
            error.add_note(self.interrupted())
            raise
        return self.finish()

    def start(self) -> None:
        """Begin, or resume from the last checkpoint."""
        self.optimizer = make_optimizer(self.model, self.settings)
        self.parameters = list(self.model.parameters())
        checkpoint = self.files.load_state() if self.files else None
        if checkpoint is None:
            self._begin()
        else:
            self._resume(*checkpoint)
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        self.started = time.perf_counter() - self.seconds

    def _begin(self) -> None:
        """Prepare the model and the folder for the first step."""
        if self.settings.association == "query_key":
            copy_query_to_key(self.model)
        if self.files:
            self.files.cut_metrics(0)
            self.files.snapshots.cut(-1)
            if 0 in self.snapshot_steps:
                self.files.save_snapshot(self.model, 0)
        self._compare_later_with(self.model)

    def _resume(
        self, weights: dict[str, torch.Tensor], slots: dict[int, dict[str, torch.Tensor]], description: dict[str, Any]
    ) -> None:
        """Continue from a checkpoint: weights, optimiser state, step; records and snapshots after it are dropped."""
        assert self.files is not None
        # Weights, moments and progress as they were
        self.model.load_state_dict(weights)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        self.seconds = description["seconds"]
        self.step = self.saved_step = description["steps_done"]
        # What was written after the checkpoint will be written again
        self.history = self.files.cut_metrics(self.step)
        if self.settings.keep == "best" and self.history:
            self.best_weights = self.files.load_best()
        self.files.snapshots.cut(self.step)
        if self.settings.snapshots == "on change":
            last_snapshot = self.files.load_snapshot(self.files.snapshots.steps[-1])
            self._compare_later_with(last_snapshot.to(self.device))

    @property
    def ended(self) -> bool:
        """Whether all steps are finished."""
        return self.step >= self.settings.total_steps

    def train_one_step(self) -> float:
        """Train one step without counting it; returns the loss."""
        inputs = self.step_inputs()
        loss = self._loss(inputs)
        if not loss.requires_grad:
            raise ValueError("the loss depends on no parameter that is trained; model.requires_grad_(True) trains all.")
        self.check_finite(loss)
        loss.backward()
        return self.update(inputs, loss)

    def step_inputs(self) -> StepInputs:
        """Draw what the next step needs."""
        generator = derived_generator(self.seed, "step", self.step)
        mimic_steps, mimicking = self.settings.mimic_steps, self.settings.mimicking
        if self.step < mimic_steps:
            batch = mimic_batch(self.task, mimicking, generator).to(self.device)
            targets = mimic_targets(self.task, batch, mimicking)
            return StepInputs(batch=batch, learning_rate=mimicking.learning_rate, generator=generator, targets=targets)
        # The task begins with a new optimiser, without the moments of mimicking
        if self.step == mimic_steps and mimic_steps:
            self.optimizer = make_optimizer(self.model, self.settings)
        task_step = self.step - mimic_steps
        batch = self.batches.batch(task_step, generator).to(self.device)
        learning_rate = self.settings.learning_rate_at(task_step)
        return StepInputs(
            batch=batch,
            learning_rate=learning_rate,
            generator=generator,
            depth=self._depth(generator),
            read_at=read_positions(self.model, self.task, self.settings, batch),
        )

    def _depth(self, generator: torch.Generator) -> int | None:
        if self.settings.depth_range is None:
            return None
        low, high = self.settings.depth_range
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    def _loss(self, inputs: StepInputs) -> torch.Tensor:
        batch = inputs.batch
        if inputs.targets is not None:
            with self.autocast():
                return mimic_loss(self.model, batch, inputs.targets)
        forward = partial(self._forward, depth=inputs.depth)
        logits = forward(batch.tokens, **inputs.model_inputs())
        loss = self.task_loss(logits, inputs)
        if self.settings.contrastive:
            regulariser = contrastive_loss(forward, self.task, batch, logits, inputs.generator)
            loss = loss + self.settings.contrastive * regulariser
        return loss

    def task_loss(self, logits: torch.Tensor, inputs: StepInputs) -> torch.Tensor:
        """The task's loss of logits at the positions that are read."""
        if inputs.read_at is None:
            return self.task.loss(logits, inputs.batch)
        return self.task.loss_at_targets(logits, inputs.batch)

    def _forward(self, tokens: torch.Tensor, **inputs: Any) -> torch.Tensor:
        with self.autocast():
            logits = self.model(tokens, **inputs)
        return logits if self.settings.precision == "float32" else logits.float()

    def autocast(self) -> AbstractContextManager:
        """The precision of the forward pass."""
        if self.settings.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def check_finite(self, loss: torch.Tensor) -> None:
        """Check a loss.

        Raises:
            Diverged: it is not finite.
        """
        if not torch.isfinite(loss):
            raise Diverged(f"the loss is {loss.item()} at step {self.step}; lower learning_rate or clip_norm.")

    def update(self, inputs: StepInputs, loss: torch.Tensor) -> float:
        """Change the weights by their clipped gradients, and remove the gradients; returns the loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = inputs.learning_rate * group["relative_rate"]
        torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    def advance(self, loss: float) -> Record | None:
        """Count a step; returns its record if the model was evaluated. Writes snapshots and checkpoints."""
        self.step += 1
        self.seconds = time.perf_counter() - self.started
        # Evaluate, then write a snapshot or a checkpoint where one is due
        record = None
        changed = False
        if self.ended or self.step % self.settings.eval_every == 0:
            record = self._evaluate(loss)
            changed = self._has_changed(record["accuracy"])
        if self.files and (changed or self.step in self.snapshot_steps):
            self.files.save_snapshot(self.model, self.step)
        if self.files and not self.ended and self.step % self.settings.checkpoint_every == 0:
            self.files.save_state(self.model, self.optimizer, self.step, self.seconds)
            self.saved_step = self.step
        return record

    def _evaluate(self, loss: float) -> Record:
        """Evaluate on the validation examples; records the metrics, and keeps the weights if they are the best."""
        try:
            accuracy, validation_loss = held_out(self.model, self.task, self.validation)
        except NotFinite:
            raise Diverged(f"the loss is nan after step {self.step}; lower learning_rate or clip_norm.") from None
        mimicking = self.step <= self.settings.mimic_steps
        record = {
            "steps_done": self.step,
            "phase": "mimic" if mimicking else "task",
            "loss": loss,
            "accuracy": accuracy,
            "validation_loss": validation_loss,
            "stage": None if mimicking else self.settings.stage_at(self.step - self.settings.mimic_steps - 1),
            "seconds": round(self.seconds, 3),
            "total": self.settings.total_steps,
        }
        self.model.train()
        self.history.append(record)
        # Weights first: after an interruption there is no record of a best model that was not saved
        if self.settings.keep == "best" and best_record(self.history) is record:
            weights = self.model.state_dict()
            self.best_weights = {name: weight.detach().clone() for name, weight in weights.items()}
            if self.files:
                self.files.save_best(self.model)
        if self.files:
            self.files.append_metrics(record)
        self.on_record(record)
        return record

    def _compare_later_with(self, model: Model) -> None:
        """Store the accuracies that later ones are compared with, for snapshots on change."""
        if self.settings.snapshots == "on change":
            self.accuracy_at_snapshot, _ = held_out(model, self.task, self.validation)

    def _has_changed(self, accuracy: list[float]) -> bool:
        """Whether accuracies have changed since the last snapshot, for snapshots on change."""
        if self.settings.snapshots != "on change":
            return False
        changed = has_changed(self.accuracy_at_snapshot, accuracy, self.settings.n_eval)
        if changed:
            self.accuracy_at_snapshot = accuracy
        return changed

    def finish(self) -> list[Record]:
        """Write the trained model; returns the records."""
        if self.best_weights is not None:
            self.model.load_state_dict(self.best_weights)
        if self.files:
            self.files.finish(self.model, self.manifest)
        return self.history

    def interrupted(self) -> str:
        """How far training is, and what resumes it, for a message."""
        progress = f"interrupted at step {self.step} of {self.settings.total_steps}"
        if self.files is None:
            return f"{progress}; nothing was saved; with folder=, the same call resumes"
        return f"{progress}; the same call resumes from step {self.saved_step}, which is saved in {self.files.path}"


def read_positions(model: Any, task: Task, settings: TrainSettings, batch: Batch) -> torch.Tensor | None:
    """Positions at which a training step computes the last layer and the read-out; None for all.

    They are the targets with `read_at="targets"`. All positions are needed if the loss reads more (a task with its own
    `loss`, the contrastive loss), if hooks are attached, and for models that are not transformers. With targets at more
    than half of the positions there is little to save.
    """
    if settings.read_at == "all" or settings.contrastive or not model.takes_read_at:
        return None
    has_own_loss = getattr(task.loss, "__func__", None) is not Task.loss
    if has_own_loss or 2 * batch.labels.shape[1] > batch.tokens.shape[1]:
        return None
    return None if is_hooked(model) else batch.target_positions


def make_optimizer(model: Model, settings: TrainSettings) -> torch.optim.Optimizer:
    """AdamW, with a group for each relative learning rate: the scalars a_h and b_h may have different ones."""
    qk_scalars, vo_scalars = model.identity_scalars()
    relative_rates = {id(scalar): settings.qk_identity_rate for scalar in qk_scalars}
    relative_rates |= {id(scalar): settings.vo_identity_rate for scalar in vo_scalars}
    parameters_by_rate: dict[float, list[torch.nn.Parameter]] = {1.0: []}
    for parameter in model.parameters():
        rate = relative_rates.get(id(parameter), 1.0)
        parameters_by_rate.setdefault(rate, []).append(parameter)
    groups: Any = [{"params": parameters, "relative_rate": rate} for rate, parameters in parameters_by_rate.items()]
    return torch.optim.AdamW(groups, betas=settings.betas, weight_decay=settings.weight_decay, fused=True)
