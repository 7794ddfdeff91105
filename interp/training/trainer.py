"""The training loop: one step after another, with records, checkpoints and snapshots."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from hooks.model.architectures import Model
from interp.core.devices import device_of
from interp.core.progress import TrainingProgress
from interp.core.randomness import derived_generator
from interp.evaluation.evaluate import held_out
from interp.tasks.base import Batch
from interp.training.folder import RunFolder
from interp.training.objectives import contrastive_loss, copy_query_to_key, mimic_batch, mimic_loss, mimic_targets
from interp.training.run import best_record
from interp.training.settings import TrainSettings
from interp.training.snapshots import has_changed, snapshot_steps

OnRecord = Callable[[dict[str, Any]], None]


class Diverged(ValueError):
    """The training loss is not finite."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What one step needs."""

    batch: Batch
    rate: float
    """Learning rate."""
    generator: torch.Generator
    """Of the step, for what its loss draws."""
    depth: int | None = None
    """Number of layers, with stochastic depth."""
    targets: torch.Tensor | None = None
    """Maps to mimic, while mimicking."""


class Trainer:
    """The training loop. Steps are numbered through both phases, mimicking and then the task."""

    def __init__(
        self, model, task, settings: TrainSettings, seed: int, files: RunFolder | None, on_record, manifest=None
    ):
        self.model, self.task, self.settings, self.seed, self.files = model, task, settings, seed, files
        self.manifest = manifest or {}
        self.device = device_of(model)
        self.on_record = on_record or (lambda record: None)
        self.mimic_steps, self.total = settings.mimic_steps, settings.total_steps
        self.snapshot_steps = frozenset(snapshot_steps(settings.snapshots, self.total))
        self.at_snapshot: list[float] = []
        self.history: list[dict[str, Any]] = []
        self.seconds, self.done, self.saved = 0.0, 0, 0
        self.validation = task.sample(
            settings.n_eval, generator=derived_generator(seed, "validation"), split="validation"
        )
        self.best: dict[str, torch.Tensor] | None = None
        self.fixed: Batch | None = None
        if settings.n_train is not None:
            self.fixed = task.sample(settings.n_train, generator=derived_generator(seed, "fixed set"))

    def run(self) -> list[dict[str, Any]]:
        """Train from the start, or from the last checkpoint, to the end; returns the records."""
        self.start()
        try:
            with TrainingProgress() as show:
                while not self.ended:
                    if record := self.advance(self._step(self.done)):
                        show(record)
        except KeyboardInterrupt as error:
            error.add_note(self.where())
            raise
        return self.finish()

    @property
    def ended(self) -> bool:
        """Whether all steps are done."""
        return self.done >= self.total

    def advance(self, loss: float) -> dict[str, Any] | None:
        """Count a step; returns its record if the model was evaluated. Writes snapshots and checkpoints."""
        self.done = done = self.done + 1
        self.seconds = time.perf_counter() - self.started
        changed, record = False, None
        if self.ended or done % self.settings.eval_every == 0:
            record = self._record(done, loss)
            changed = self._has_changed(record["accuracy"])
        if self.files and (changed or done in self.snapshot_steps):
            self.files.save_snapshot(self.model, done)
        if self.files and not self.ended and done % self.settings.checkpoint_every == 0:
            self.files.save_state(self.model, self.optimizer, done, self.seconds)
            self.saved = done
        return record

    def finish(self) -> list[dict[str, Any]]:
        """Write the trained model; returns the records."""
        if self.best is not None:
            self.model.load_state_dict(self.best)
        if self.files:
            self.files.finish(self.model, self.manifest)
        return self.history

    def where(self) -> str:
        """How far training is, and what resumes it."""
        at = f"training stopped at step {self.done} of {self.total}"
        if self.files is None:
            return f"{at}; nothing was saved; with folder=, the same call resumes"
        return f"{at}; the same call resumes from step {self.saved}, which is saved in {self.files.path}"

    def start(self) -> None:
        """Begin, or resume from the last checkpoint."""
        self._restore()
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        self.started = time.perf_counter() - self.seconds

    def _restore(self) -> None:
        self.optimizer = self._new_optimizer()
        state = self.files.load_state() if self.files else None
        if state is None:
            if self.settings.association == "query_key":
                copy_query_to_key(self.model)
            if self.files:
                self.files.cut_metrics(0)
                self.files.snapshots.cut(-1)
                if 0 in self.snapshot_steps:
                    self.files.save_snapshot(self.model, 0)
            self._compare_with(self.model)
            return
        weights, slots, description = state
        self.model.load_state_dict(weights)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        self.seconds = description["seconds"]
        assert self.files is not None
        self.history = self.files.cut_metrics(description["steps_done"])
        if self.settings.keep == "best" and self.history:
            self.best = self.files.load_best().state_dict()
        self.done = self.saved = description["steps_done"]
        self.files.snapshots.cut(self.saved)
        if self.settings.snapshots == "on change":
            self._compare_with(self.files.snapshots.load(self.files.snapshots.steps[-1]).to(self.device))

    def _compare_with(self, model: Model) -> None:
        """Accuracies with which later ones are compared, for snapshots on change."""
        if self.settings.snapshots == "on change":
            self.at_snapshot, _ = held_out(model, self.task, self.validation)

    def _has_changed(self, accuracy: list[float]) -> bool:
        """Whether accuracies have changed since the last snapshot, for snapshots on change."""
        if self.settings.snapshots != "on change" or not has_changed(self.at_snapshot, accuracy, self.settings.n_eval):
            return False
        self.at_snapshot = accuracy
        return True

    def _new_optimizer(self) -> torch.optim.Optimizer:
        s = self.settings
        a, b = self.model.identity_scalars()
        rates = {id(one): s.qk_identity_rate for one in a} | {id(one): s.vo_identity_rate for one in b}
        groups: dict[float, list[torch.nn.Parameter]] = {1.0: []}
        for parameter in self.model.parameters():
            groups.setdefault(rates.get(id(parameter), 1.0), []).append(parameter)
        described: Any = [{"params": chosen, "times": times} for times, chosen in groups.items()]
        return torch.optim.AdamW(described, betas=s.betas, weight_decay=s.weight_decay, fused=True)

    def plan(self, done: int) -> Planned:
        """Draw what a step needs."""
        if done == self.mimic_steps and done:
            self.optimizer = self._new_optimizer()
        generator = derived_generator(self.seed, "step", done)
        if done < self.mimic_steps:
            mimicking = self.settings.mimicking
            batch = mimic_batch(self.task, mimicking, generator).to(self.device)
            targets = mimic_targets(self.task, batch, mimicking)
            return Planned(batch=batch, rate=mimicking.learning_rate, generator=generator, targets=targets)
        step = done - self.mimic_steps
        batch = self._batch(step, generator).to(self.device)
        rate, depth = self.settings.learning_rate_at(step), self._depth(generator)
        return Planned(batch=batch, rate=rate, generator=generator, depth=depth)

    def _step(self, done: int) -> float:
        planned = self.plan(done)
        loss = self._loss(planned)
        self.check(loss)
        loss.backward()
        return self.update(planned, loss)

    def check(self, loss: torch.Tensor) -> None:
        """Check a loss.

        Raises:
            Diverged: it is not finite.
        """
        if not torch.isfinite(loss):
            raise Diverged(f"the loss is {loss.item()} at step {self.done}; lower learning_rate or clip_norm.")

    def update(self, planned: Planned, loss: torch.Tensor) -> float:
        """Change the weights by their gradients, and remove these; returns the loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = planned.rate * group["times"]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    def _loss(self, planned: Planned) -> torch.Tensor:
        batch = planned.batch
        if planned.targets is not None:
            with self.autocast():
                return mimic_loss(self.model, batch, planned.targets)
        forward = partial(self._forward, depth=planned.depth)
        logits = forward(batch.tokens, **batch.model_inputs())
        loss = self.task.loss(logits, batch)
        if self.settings.contrastive:
            extra = contrastive_loss(forward, self.task, batch, logits, planned.generator)
            loss = loss + self.settings.contrastive * extra
        return loss

    def _forward(self, tokens: torch.Tensor, **inputs: Any) -> torch.Tensor:
        with self.autocast():
            logits = self.model(tokens, **inputs)
        return logits if self.settings.precision == "float32" else logits.float()

    def autocast(self) -> AbstractContextManager:
        """The precision of the forward pass."""
        if self.settings.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def _batch(self, step: int, generator: torch.Generator) -> Batch:
        s = self.settings
        if self.fixed is not None:
            return self._fixed_batch(self.fixed, step)
        stage = s.stage_at(step)
        if stage is None:
            return self.task.sample(self._batch_size(self.task.n_ctx), generator=generator)
        length, shorter = stage, self.task.shorter_lengths(stage)
        if shorter and float(torch.rand(1, generator=generator)) >= s.current_share:
            length = int(torch.randint(shorter.start, shorter.stop, (1,), generator=generator))
        n = self._batch_size(self.task.tokens_of_length(length))
        return self.task.sample_length(n, length, generator=generator)

    def _batch_size(self, sequence: int) -> int:
        return self.settings.batch_size or max(1, self.settings.tokens_per_step // sequence)

    def _fixed_batch(self, fixed: Batch, step: int) -> Batch:
        size = min(self._batch_size(self.task.n_ctx), len(fixed))
        per_epoch = len(fixed) // size
        epoch, index = divmod(step, per_epoch)
        order = torch.randperm(len(fixed), generator=derived_generator(self.seed, "epoch", epoch))
        return fixed.select(order[index * size : (index + 1) * size])

    def _depth(self, generator: torch.Generator) -> int | None:
        if self.settings.depth_range is None:
            return None
        low, high = self.settings.depth_range
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    def _record(self, done: int, loss: float) -> dict[str, Any]:
        accuracy, validation_loss = held_out(self.model, self.task, self.validation)
        record = {
            "steps_done": done,
            "phase": "mimic" if done <= self.mimic_steps else "task",
            "loss": loss,
            "accuracy": accuracy,
            "validation_loss": validation_loss,
            "stage": None if done <= self.mimic_steps else self.settings.stage_at(done - self.mimic_steps - 1),
            "seconds": round(self.seconds, 3),
            "total": self.total,
        }
        self.model.train()
        self.history.append(record)
        if self.settings.keep == "best" and best_record(self.history) is record:
            self.best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
            if self.files:
                self.files.save_best(self.model)
        if self.files:
            self.files.append_metrics(record)
        self.on_record(record)
        return record
