"""Training several models of one config as one: passes are joint; data, optimiser and files are separate."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from hooks.model.architectures import Config, make_model
from interp.core.devices import check_device
from interp.core.progress import Count
from interp.core.verbs import prepare_scorable
from interp.sweeps.cost import activation_bytes
from interp.sweeps.parallel import OnOutcome, Specs, initial_model
from interp.sweeps.spec import ModelSpec
from interp.tasks.splits import sample_split
from interp.training.folder import FolderInUse, RunFolder
from interp.training.manifest import manifest_of
from interp.training.objectives import check_mimicking, distance_to_maps, is_pattern
from interp.training.train import NEEDS, Diverged, StepInputs, Trainer

STACK = 64
"""Most models that are trained as one, so that an error or an interrupt concerns few of them."""
MEMORY_SHARE = 0.5
"""Share of the free memory for the activations of the models in one pass."""


def why_not_stacked(spec: ModelSpec) -> str:
    """Why models of this specification cannot be trained stacked; empty if they can.

    The forward pass must be the same operations for all models. It is not if it depends on the values of tokens, as
    with hard-coded attention. Only transformers are supported.
    """
    if spec.settings.contrastive:
        return "the contrastive loss draws another length for each model"
    model = make_model(spec.config)
    if not model.has_attention:
        return "it is not a transformer"
    # Buffers are those of the first model: they must not depend on the seed
    buffers = dict(make_model(spec.config, seed=1).named_buffers())
    if any(not torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers()):
        return "its models have buffers that differ"
    # A pass whose operations depend on values cannot be vectorised: try one
    batch = sample_split(spec.task, 1, generator=torch.Generator().manual_seed(0))
    inputs = StepInputs(batch=batch, learning_rate=0.0, generator=torch.Generator())
    try:
        with torch.no_grad():
            _outputs([model], [inputs])
    except RuntimeError as error:
        return f"its pass depends on the values of tokens ({str(error).split('.')[0]})"
    return ""


def stacking_group(spec: ModelSpec) -> tuple[str, ...]:
    """Key of the specifications that can be trained as one stack, or of which none can be stacked."""
    return repr(spec.config), repr(spec.task.describe()), str(bool(spec.settings.contrastive))


def in_stacks(specs: Specs, *, required: bool = False) -> tuple[list[Specs], dict[Path, ModelSpec]]:
    """Models to train as one, by config and task, and those to train separately.

    Args:
        specs: Models by the folders of their runs.
        required: Whether every model is to be in a stack, also a single one.

    Raises:
        ValueError: stacks are required, and some models cannot be stacked.
    """
    groups: dict[Any, dict[Path, ModelSpec]] = {}
    for path, spec in specs.items():
        groups.setdefault(stacking_group(spec), {})[path] = spec
    stacks: list[Specs] = []
    separate: dict[Path, ModelSpec] = {}
    for group in groups.values():
        # All models of a group can be stacked, or none; a single one gains nothing
        reason = why_not_stacked(next(iter(group.values())))
        if reason and required:
            raise ValueError(f"stacked is True, but models of the sweep cannot be: {reason}.")
        if reason or (len(group) == 1 and not required):
            separate |= group
            continue
        pairs = list(group.items())
        stacks += [dict(pairs[start : start + STACK]) for start in range(0, len(pairs), STACK)]
    return stacks, separate


def train_stacked(
    specs: Specs,
    *,
    device: str | None = None,
    fresh: bool = False,
    on_outcome: OnOutcome = lambda folder, error: None,
) -> None:
    """Train models of one config together, each into its own folder; they resume as if trained separately.

    Batches, learning rates, clipping, curriculum, mimicking, evaluation and files are separate for each model. Only
    forward and backward passes are joint, so weights differ from separate training by rounding. The manifest has the
    number of models as `stacked`; `seconds` are those of all models together. Faster on an accelerator; on a CPU,
    models of width 64 train faster in processes.

    Args:
        specs: Models by the folders of their runs, all of one config. Tasks and settings may differ.
        device: Device to train on; default: the CPU.
        fresh: Discard earlier runs in the folders.
        on_outcome: Called with the folder of each run that has ended, and its error or None.

    Raises:
        ValueError: different configs, or models that cannot be stacked.
    """
    # One config for all, and a forward pass that can be stacked
    first = next(iter(specs.values()), None)
    for folder, spec in specs.items():
        if first is not None and spec.config != first.config:
            raise ValueError(f"stacked models have one config; that of {folder.name} differs from that of the first.")
    spec_of_group = {stacking_group(spec): spec for spec in specs.values()}
    for spec in spec_of_group.values():
        if reason := why_not_stacked(spec):
            raise ValueError(f"these models cannot be trained stacked: {reason}.")
    # Open every folder that can be written to, and train these models together
    torch_device = check_device(device or "cpu")
    trainers: dict[Trainer, Path] = {}
    with ExitStack() as open_folders:
        for folder, spec in specs.items():
            try:
                trainer = _open_trainer(folder, spec, len(specs), fresh, torch_device, open_folders)
            except ValueError as error:
                on_outcome(folder, error)
                continue
            if trainer is None:
                on_outcome(folder, None)
            else:
                trainers[trainer] = folder
        for trainer, error in Stack(list(trainers)).run():
            on_outcome(trainers[trainer], error)


def _open_trainer(
    folder: Path, spec: ModelSpec, n_stacked: int, fresh: bool, device: torch.device, open_folders: ExitStack
) -> Trainer | None:
    """The trainer of a spec, with its folder locked for writing; None if the run is finished."""
    files = RunFolder(folder)
    if not fresh and files.is_trained(spec.description):
        return None
    model = initial_model(spec, folder.parent)
    prepare_scorable(model, NEEDS)
    manifest = manifest_of(model, spec.task, spec.settings, spec.seed, spec.origin) | {"stacked": n_stacked}
    if spec.settings.association == "mimic":
        check_mimicking(spec.task, spec.settings.mimicking)
    open_folders.enter_context(files.writing())
    if fresh:
        files.clear()
    manifest = files.start_or_resume(manifest)
    if files.finished:  # by another process, before this one could write
        return None
    return Trainer(model.to(device), spec.task, spec.settings, spec.seed, files, None, manifest)


class Stack:
    """Trainers whose passes are computed together.

    Args:
        trainers: Their models have one config and are on one device.
        models_per_pass: Most models in one pass; default: as many as fit in the free memory of an accelerator, by
            `models_that_fit`. Halved when memory runs out.
    """

    def __init__(self, trainers: Sequence[Trainer], models_per_pass: int | None = None):
        self.trainers = list(trainers)
        self.models_per_pass = models_per_pass

    def run(self) -> Iterator[tuple[Trainer, Exception | None]]:
        """Train to the end; yields each trainer as it ends, with the error that stopped it or None."""
        active = list(self.trainers)
        for trainer in active:
            trainer.start()
        steps = sum(trainer.settings.total_steps - trainer.step for trainer in active)
        with Count(f"training {len(active)} models as one", steps) as count:
            while active:
                for trainer, error in self._train_one_step(active):
                    active.remove(trainer)
                    yield trainer, error
                for _ in active:
                    count.advance()

    def _train_one_step(self, trainers: Sequence[Trainer]) -> list[tuple[Trainer, Exception | None]]:
        """One step of each trainer; returns those that ended."""
        inputs = {trainer: trainer.step_inputs() for trainer in trainers if not trainer.ended}
        # Joint passes: all losses and gradients of models whose inputs have the same shapes
        losses: dict[Trainer, Tensor] = {}
        for group in _by_shape(inputs):
            losses |= self._losses(group, inputs)
        # Separate updates: a model that diverges does not stop the others
        ended: list[tuple[Trainer, Exception | None]] = []
        for trainer in trainers:
            try:
                if trainer in inputs:
                    trainer.check_finite(losses[trainer])
                    trainer.advance(trainer.update(inputs[trainer], losses[trainer]))
                if trainer.ended:
                    trainer.finish()
                    ended.append((trainer, None))
            except (Diverged, FolderInUse) as error:
                ended.append((trainer, error))
        return ended

    def _losses(self, trainers: Sequence[Trainer], inputs: Mapping[Trainer, StepInputs]) -> dict[Trainer, Tensor]:
        """Losses of models whose passes have the same shapes, and their gradients; in parts if memory runs out."""
        # On an accelerator, as many models in a pass as fit in its memory
        first = trainers[0]
        if self.models_per_pass is None and first.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(first.device)
            self.models_per_pass = models_that_fit(free, first.model.cfg, inputs[first].batch.tokens.shape)
        losses: dict[Trainer, Tensor] = {}
        while len(losses) < len(trainers):
            start = len(losses)
            group = trainers[start : start + (self.models_per_pass or len(trainers))]
            try:
                losses |= _joint_losses(group, [inputs[trainer] for trainer in group])
            except torch.OutOfMemoryError:
                if len(group) == 1:
                    raise
                # Some gradients may have been added already: start this group again, in halves
                for trainer in group:
                    trainer.model.zero_grad(set_to_none=True)
                torch.cuda.empty_cache()
                self.models_per_pass = len(group) // 2
        return losses


def _by_shape(inputs: Mapping[Trainer, StepInputs]) -> list[list[Trainer]]:
    """Trainers whose passes have the same shapes, depth and precision."""
    groups: dict[Any, list[Trainer]] = {}
    for trainer, step in inputs.items():
        shapes = sorted((name, tensor.shape) for name, tensor in step.model_inputs().items())
        mimics = step.targets is not None
        kind = (step.batch.tokens.shape, tuple(shapes), step.depth, mimics, trainer.settings.precision)
        groups.setdefault(kind, []).append(trainer)
    return list(groups.values())


def _joint_losses(trainers: Sequence[Trainer], inputs: Sequence[StepInputs]) -> dict[Trainer, Tensor]:
    """Loss of each model; gradients are added to the models' own."""
    with trainers[0].autocast():
        outputs = _outputs([trainer.model for trainer in trainers], inputs)
    losses = []
    for trainer, step, output in zip(trainers, inputs, outputs, strict=True):
        if step.targets is not None:
            losses.append(distance_to_maps(output, step.targets))
        else:
            logits = output if trainer.settings.precision == "float32" else output.float()
            losses.append(trainer.task_loss(logits, step))
    torch.stack(losses).sum().backward()  # a loss that is not finite affects the gradients of its own model only
    return {trainer: loss.detach() for trainer, loss in zip(trainers, losses, strict=True)}


def _outputs(models: Sequence[Any], inputs: Sequence[StepInputs]) -> Tensor:
    """Logits of each model on its own batch, or its attention patterns by layer while it mimics."""
    template = models[0]
    first = inputs[0]
    mimics = first.targets is not None
    depth = {} if first.depth is None else {"depth": first.depth}

    # Stack weights, tokens and further inputs along a new model axis
    weights = [dict(model.named_parameters()) for model in models]
    stacked_weights = {name: torch.stack([values[name] for values in weights]) for name in weights[0]}
    tokens = torch.stack([step.batch.tokens for step in inputs])
    further = [step.model_inputs() for step in inputs]
    stacked_further = {name: torch.stack([values[name] for values in further]) for name in further[0]}

    def one_pass(values: dict[str, Tensor], tokens: Tensor, further: dict[str, Tensor]) -> Tensor:
        if not mimics:
            return functional_call(template, values, (tokens,), {**further, **depth})
        patterns: list[Tensor] = []
        with template.hooks([(is_pattern, lambda pattern, hook: patterns.append(pattern))]):
            functional_call(template, values, (tokens,), further)
        return torch.stack(patterns)

    return torch.vmap(one_pass)(stacked_weights, tokens, stacked_further)


def models_that_fit(free: int, cfg: Config, shape: Sequence[int]) -> int:
    """Number of models whose activations take `MEMORY_SHARE` of a number of bytes; at least 1.

    Args:
        free: Bytes.
        cfg: Config of the models.
        shape: Sequences and positions of a batch of one model.
    """
    examples, pos = shape
    return max(1, int(MEMORY_SHARE * free / activation_bytes(cfg, examples * pos, pos)))
