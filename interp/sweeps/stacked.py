"""Training several models of one config as one: their passes are computed together, everything else is as alone."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from hooks.model.architectures import make_model
from hooks.model.baseline import Baseline
from interp.core.devices import check_device
from interp.core.progress import Count
from interp.sweeps.jobs import OnOutcome, TrainJob, initial_model
from interp.sweeps.spec import activation_bytes
from interp.training.folder import FolderInUse, RunFolder
from interp.training.objectives import check_mimicking, distance_to_maps, is_pattern
from interp.training.train import manifest_of
from interp.training.trainer import Diverged, Planned, Trainer

MEMORY_SHARE = 0.5
"""Part of the free memory that the activations of models at one time may take."""


def cannot_stack(job: TrainJob) -> str:
    """Why models of this job cannot be trained stacked; empty if they can.

    Their pass must be the same operations for all: not if it depends on the values of tokens, as with hard-coded
    attention, nor if it is not a transformer's.
    """
    if job.settings.contrastive:
        return "the contrastive loss draws another length for each model"
    model = make_model(job.config)
    if isinstance(model, Baseline):
        return "it is not a transformer"
    others = dict(make_model(job.config, seed=1).named_buffers())
    if any(not torch.equal(buffer, others[name]) for name, buffer in model.named_buffers()):
        return "its models have buffers that differ"
    batch = job.task.sample(1, generator=torch.Generator().manual_seed(0))
    planned = Planned(batch=batch, rate=0.0, generator=torch.Generator())
    try:
        with torch.no_grad():
            _outputs([model], [planned])
    except RuntimeError as error:
        return f"its pass depends on the values of tokens ({str(error).split('.')[0]})"
    return ""


def kind_of(job: TrainJob) -> tuple[str, ...]:
    """What decides whether models can be stacked; equal for jobs of which all can be, or none."""
    return repr(job.config), repr(job.task.describe()), str(bool(job.settings.contrastive))


def train_stacked(
    jobs: Mapping[str, TrainJob], *, fresh: bool = False, on_outcome: OnOutcome = lambda name, error: None
) -> None:
    """Train models of one config together, each into its own folder; resumable as alone.

    Batches, learning rates, clipping, curriculum, mimicking, evaluation and files are those of each model alone; only
    forward and backward passes are joint, so that weights differ from those trained alone by rounding. The manifest
    has their number as `stacked`, and `seconds` are those of all together. Worth it on an accelerator; on a CPU models
    of width 64 train faster in processes.

    Args:
        jobs: Jobs by name, all of one config and device. Tasks and settings may differ.
        fresh: Discard earlier runs in the folders.
        on_outcome: Called with the name of each job that has ended and its error, or None.

    Raises:
        ValueError: no common config or device, or models that cannot be stacked.
    """
    first = next(iter(jobs.values()))
    if other := next((name for name, job in jobs.items() if job.config != first.config), None):
        raise ValueError(f"stacked models have one config; that of {other} differs from that of the first.")
    if other := next((name for name, job in jobs.items() if job.device != first.device), None):
        raise ValueError(f"stacked models are on one device; that of {other} differs from that of the first.")
    for job in {kind_of(job): job for job in jobs.values()}.values():
        if why := cannot_stack(job):
            raise ValueError(f"these models cannot be trained stacked: {why}.")
    device = check_device(first.device or "cpu")
    trainers: dict[str, Trainer] = {}
    with ExitStack() as folders:
        for name, job in jobs.items():
            try:
                trainer = _opened(job, len(jobs), fresh, device, folders)
            except ValueError as error:
                on_outcome(name, error)
                continue
            if trainer is None:
                on_outcome(name, None)
            else:
                trainers[name] = trainer
        for name, error in Stack(trainers).run():
            on_outcome(name, error)


def _opened(job: TrainJob, n: int, fresh: bool, device: Any, folders: ExitStack) -> Trainer | None:
    """The trainer of a job, its folder taken; None if the run is finished."""
    files, model = RunFolder(job.folder), initial_model(job)
    if files.finished and not fresh:
        return None
    manifest = {**manifest_of(model, job.task, job.settings, job.seed), "stacked": n}
    if job.settings.association == "mimic":
        check_mimicking(job.task, job.settings.mimicking)
    folders.enter_context(files.writing())
    if fresh:
        files.clear()
    manifest = files.open(manifest)
    return None if files.finished else Trainer(
        model.to(device), job.task, job.settings, job.seed, files, None, manifest
    )  # fmt: skip


class Stack:
    """Trainers whose passes are computed together.

    Args:
        trainers: By name; their models have one config and are on one device.
        at_once: Most models in one pass; default: what fits in the free memory of an accelerator, by
            `models_in`. Halved when memory runs out.
    """

    def __init__(self, trainers: Mapping[str, Trainer], at_once: int | None = None):
        self.trainers = dict(trainers)
        self.at_once = at_once

    def run(self) -> Iterator[tuple[str, Exception | None]]:
        """Train to the end; yields each model as it ends, with the error that stopped it or None."""
        left = dict(self.trainers)
        for trainer in left.values():
            trainer.start()
        steps = sum(trainer.total - trainer.done for trainer in left.values())
        try:
            with Count(f"training {len(left)} models as one", steps) as count:
                while left:
                    for name, error in self._round(left):
                        left.pop(name)
                        yield name, error
                    for _ in left:
                        count.one()
        except KeyboardInterrupt as error:
            for trainer in left.values():
                error.add_note(trainer.where())
            raise

    def _round(self, left: Mapping[str, Trainer]) -> list[tuple[str, Exception | None]]:
        """One step of each trainer; returns those that ended."""
        ended: list[tuple[str, Exception | None]] = []
        planned = {name: one.plan(one.done) for name, one in left.items() if not one.ended}
        losses: dict[str, Tensor] = {}
        for names in _by_shape(left, planned):
            losses |= self._losses(names, left, planned)
        for name, trainer in left.items():
            try:
                if name in planned:
                    trainer.check(losses[name])
                    trainer.advance(trainer.update(planned[name], losses[name]))
                if trainer.ended:
                    trainer.finish()
                    ended.append((name, None))
            except (Diverged, FolderInUse) as error:
                ended.append((name, error))
        return ended

    def _losses(
        self, names: Sequence[str], trainers: Mapping[str, Trainer], planned: Mapping[str, Planned]
    ) -> dict[str, Tensor]:
        """Losses of models whose passes have the same shapes, and their gradients; in parts if memory runs out."""
        first = trainers[names[0]]
        if self.at_once is None and first.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(first.device)
            self.at_once = models_in(free, first.model.cfg, planned[names[0]].batch.tokens.shape)
        losses: dict[str, Tensor] = {}
        done = 0
        while done < len(names):
            chosen = names[done : done + (self.at_once or len(names))]
            try:
                losses |= _joint_losses([trainers[name] for name in chosen], chosen, planned)
            except torch.OutOfMemoryError:
                if len(chosen) == 1:
                    raise
                for name in chosen:
                    trainers[name].model.zero_grad(set_to_none=True)
                torch.cuda.empty_cache()
                self.at_once = len(chosen) // 2
                continue
            done += len(chosen)
        return losses


def _by_shape(trainers: Mapping[str, Trainer], planned: Mapping[str, Planned]) -> list[list[str]]:
    """Names of models whose passes have the same shapes, depth and precision."""
    groups: dict[Any, list[str]] = {}
    for name, one in planned.items():
        inputs = sorted((key, value.shape) for key, value in one.batch.model_inputs().items())
        mimics = one.targets is not None
        shapes = (one.batch.tokens.shape, tuple(inputs), one.depth, mimics, trainers[name].settings.precision)
        groups.setdefault(shapes, []).append(name)
    return list(groups.values())


def _joint_losses(
    trainers: Sequence[Trainer], names: Sequence[str], planned: Mapping[str, Planned]
) -> dict[str, Tensor]:
    """Loss of each model; gradients are added to the models' own."""
    plans = [planned[name] for name in names]
    with trainers[0].autocast():
        outputs = _outputs([one.model for one in trainers], plans)
    losses = []
    for trainer, plan, out in zip(trainers, plans, outputs, strict=True):
        if plan.targets is not None:
            losses.append(distance_to_maps(out, plan.targets))
        else:
            logits = out if trainer.settings.precision == "float32" else out.float()
            losses.append(trainer.task.loss(logits, plan.batch))
    torch.stack(losses).sum().backward()  # a loss that is not finite is in no other model's gradients
    return {name: loss.detach() for name, loss in zip(names, losses, strict=True)}


def _outputs(models: Sequence[Any], plans: Sequence[Planned]) -> Tensor:
    """Logits of each model on its own batch, or its attention patterns by layer while it mimics."""
    template, plan = models[0], plans[0]
    mimics, depth = plan.targets is not None, {} if plan.depth is None else {"depth": plan.depth}
    own = [dict(model.named_parameters()) for model in models]
    parameters = {name: torch.stack([one[name] for one in own]) for name in own[0]}
    tokens = torch.stack([one.batch.tokens for one in plans])
    inputs = [one.batch.model_inputs() for one in plans]
    joint = {name: torch.stack([one[name] for one in inputs]) for name in inputs[0]}

    def one_pass(values: dict[str, Tensor], tokens: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        if not mimics:
            return functional_call(template, values, (tokens,), {**inputs, **depth})
        patterns: list[Tensor] = []
        with template.hooks([(is_pattern, lambda pattern, hook: patterns.append(pattern))]):
            functional_call(template, values, (tokens,), inputs)
        return torch.stack(patterns)

    return torch.vmap(one_pass)(parameters, tokens, joint)


def models_in(free: int, cfg: Any, shape: Sequence[int]) -> int:
    """Number of models whose activations take `MEMORY_SHARE` of a number of bytes; at least 1.

    Args:
        free: Bytes.
        cfg: Config of the models.
        shape: Sequences and positions of a batch of one model.
    """
    examples, pos = shape
    return max(1, int(MEMORY_SHARE * free / activation_bytes(cfg, examples * pos, pos)))
