"""Training settings, with conversion to and from JSON."""

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from hooks.checks import check_class, check_fields
from hooks.files import shortened
from hooks.typed import check_field_types, restored
from interp.tasks.base import Task

Association = Literal["none", "mimic", "query_key"]
LocalTarget = Literal["band", "clause"]
MimicTokens = Literal["examples", "random"]
Keep = Literal["last", "best"]
Precision = Literal["float32", "bfloat16"]
Decay = Literal["linear", "cosine"]
OnChange = Literal["on change"]
ReadAt = Literal["all", "targets"]
_ADDED_LATER = ("precision", "decay", "snapshots", "read_at")
"""Fields omitted from `to_dict` at their defaults, so that earlier descriptions stay the same."""


@dataclass(frozen=True, kw_only=True)
class Mimicking:
    """Mimicking: training attention patterns towards fixed maps before the task is learned.

    Head 0 of every layer is trained towards a local (manipulation) map, head 1 towards the association map; other
    heads are free.

    Source: LEGO (arXiv:2206.04301) Appendix B.3 and released code: both maps, their smoothing, examples of the
    task. Differs: 150 steps of 64 at 2e-3 for a small model, instead of 1000 to 5000 steps of 200 at 5e-5.

    Raises:
        ValueError: a number that is not positive, or an unknown choice.
    """

    steps: int = 150
    batch_size: int = 64
    learning_rate: float = 2e-3
    local_target: LocalTarget = "band"
    """`band`: the paper's kernel [1, 2, 4, 2, 1] around the query. `clause`: uniform over its own clause."""
    tokens: MimicTokens = "examples"
    """Training data: `examples` of the task or uniformly `random` tokens."""

    def __post_init__(self):
        check_field_types(self, prefix="mimicking.")
        check_fields(self, "steps", "batch_size", prefix="mimicking.", integer=True, above=0)
        check_fields(self, "learning_rate", prefix="mimicking.", above=0)


def recipe_for(task: Task) -> "TrainSettings":
    """Settings that learn a task: its `recipe`."""
    return TrainSettings(**task.recipe())


class StepsOfStages(int):
    """Steps that follow from the stages of a curriculum: no choice of the caller, also in `dataclasses.replace`."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of `interp.train`. The defaults are plain training; `recipe_for(task)` gives settings for a task.

    Raises:
        ValueError: a number out of range, an unknown choice, or incompatible settings.

    Example:
        >>> import interp
        >>> settings = interp.TrainSettings(steps=100, warmup_steps=10, learning_rate=0.5)
        >>> [settings.learning_rate_at(step) for step in (0, 9, 50)]
        [0.05, 0.5, 0.5]
    """

    steps: int = 700
    """Optimiser steps on the task; with a `curriculum`, the sum of its steps, and no other number."""
    curriculum: tuple[tuple[int, int], ...] = ()
    """Stages (length, steps), for tasks that have `lengths`. `current_share` of a stage's batches have its length, the
    others a random one of the task's `shorter_lengths`: shorter chains for LEGO, none for text."""
    current_share: float = 0.55
    """Share of a stage's batches with the stage's length."""
    tokens_per_step: int = 1536
    """Tokens per batch: the batch size is this divided by the sequence length."""
    batch_size: int | None = None
    """Examples per step, instead of `tokens_per_step`."""
    n_train: int | None = None
    """Size of a fixed training set; if None, every batch has fresh examples."""
    learning_rate: float = 1e-3
    """Maximal learning rate."""
    warmup_steps: int = 50
    """Steps of linear warm-up."""
    decay_share: float = 0.45
    """Share of the steps, at the end, over which the learning rate falls to zero."""
    decay: Decay = "linear"
    """Shape of the decay. `cosine` over all steps (`decay_share=1`, `warmup_steps=0`) is LEGO's schedule. Differs: it
    is updated at every step, in LEGO once per epoch."""
    betas: tuple[float, float] = (0.9, 0.98)
    """AdamW's betas."""
    weight_decay: float = 0.01
    """AdamW's weight decay."""
    clip_norm: float = 1.0
    """Maximal norm of the gradient."""
    association: Association = "none"
    """Bias towards equal tokens before training: `mimic` trains it, `query_key` copies W_Q into W_K."""
    mimicking: Mimicking = field(default_factory=Mimicking)
    """Settings of `association="mimic"`."""
    qk_identity_rate: float = 1.0
    """Learning rate of the scalars a_h, relative to that of the other parameters."""
    vo_identity_rate: float = 1.0
    """Learning rate of the scalars b_h, relative to that of the other parameters. At 1 they have little effect: the
    training loss vanishes before they have grown."""
    contrastive: float = 0.0
    """Weight of the contrastive regulariser for bracket languages (bounded Dyck, Eq. 22); the paper's is 0.3."""
    depth_range: tuple[int, int] | None = None
    """Stochastic depth: range, inclusive, from which the number of layers is drawn uniformly for each batch."""
    keep: Keep = "last"
    """Weights of the trained model: the `last`, or those of the evaluation with the `best` (lowest) validation
    loss."""
    precision: Precision = "float32"
    """Precision of the forward pass in training; `bfloat16` uses torch's autocast. Weights, optimiser state, loss and
    evaluation are in float32."""
    read_at: ReadAt = "all"
    """Positions at which the last layer and the read-out are computed in training. `targets`: only there, where the
    loss reads no others and it saves time (see `read_positions`). Weights differ by rounding, so this is another model,
    in another folder of a sweep."""
    eval_every: int = 50
    """Steps between evaluations."""
    n_eval: int = 1000
    """Validation examples."""
    checkpoint_every: int = 100
    """Steps between checkpoints to resume from."""
    snapshots: int | tuple[int, ...] | OnChange | None = None
    """Models to keep in the run's folder: a number of them, whose steps have a constant ratio; or their steps, where 0
    is before training; or `on change`, the evaluations at which the accuracy of an outcome has moved by more than its
    noise since the last snapshot. Steps of mimicking count. The trained model is the same without."""

    def __post_init__(self):
        check_field_types(self)
        # Stages as pairs of integers; with stages, the number of steps follows from them
        try:
            object.__setattr__(self, "curriculum", tuple((int(n), int(steps)) for n, steps in self.curriculum))
        except (TypeError, ValueError):
            shown = shortened(repr(self.curriculum))
            raise ValueError(f"curriculum is {shown}; give stages (length, steps): ((2, 80), (3, 270)).") from None
        if self.curriculum:
            self._set_steps_of_stages()
        # Ranges and choices of single fields
        counts = ("steps", "tokens_per_step", "eval_every", "n_eval", "checkpoint_every")
        check_fields(self, *counts, integer=True, above=0)
        check_fields(self, "learning_rate", "clip_norm", "qk_identity_rate", "vo_identity_rate", above=0)
        check_fields(self, "current_share", "decay_share", low=0, high=1)
        check_fields(self, "contrastive", "weight_decay", low=0)
        check_fields(self, "warmup_steps", integer=True, low=0)
        check_fields(self, "n_train", "batch_size", integer=True, low=1)
        self._check_betas()
        self._check_snapshots()
        # Fields that exclude each other
        if self.n_train is not None and self.curriculum:
            raise ValueError("n_train and curriculum exclude each other: a fixed set has one chain length.")

    def _set_steps_of_stages(self) -> None:
        """Set the number of steps to that of the stages; another number would have no effect.

        Raises:
            ValueError: a number of steps that the caller gave.
        """
        total = sum(steps for _, steps in self.curriculum)
        is_default = isinstance(self.steps, StepsOfStages) or self.steps == type(self).steps
        if not is_default and self.steps != total:
            raise ValueError(
                f"steps is {shortened(repr(self.steps))}, but the stages of the curriculum have {total} steps, which "
                f"count. Omit steps, or pass curriculum=()."
            )
        object.__setattr__(self, "steps", StepsOfStages(total))

    def _check_betas(self) -> None:
        numbers = [beta for beta in self.betas if isinstance(beta, int | float) and 0 <= beta < 1]
        if len(numbers) != 2 or len(self.betas) != 2:
            raise ValueError(f"betas is {shortened(repr(self.betas))}; give two numbers from 0 to below 1.")

    def _check_snapshots(self) -> None:
        """Check a number of snapshots, or steps; a string can only be "on change"."""
        if isinstance(self.snapshots, int):
            check_fields(self, "snapshots", integer=True, low=2)
        elif self.snapshots is not None and not isinstance(self.snapshots, str):
            steps = list(self.snapshots)
            if not steps or steps[0] < 0 or steps != sorted(set(steps)):
                shown = shortened(repr(self.snapshots))
                raise ValueError(f"snapshots is {shown}; give steps from 0 on, each once and in order.")

    @property
    def mimic_steps(self) -> int:
        """Steps of mimicking, before those on the task."""
        return self.mimicking.steps if self.association == "mimic" else 0

    @property
    def total_steps(self) -> int:
        """All steps: those of mimicking and those on the task."""
        return self.mimic_steps + self.steps

    def learning_rate_at(self, step: int) -> float:
        """Learning rate at a step: linear warm-up, constant, decay to zero."""
        warmup = min(1.0, (step + 1) / max(1, self.warmup_steps))
        decay_steps = max(1.0, self.decay_share * self.steps)
        remaining = min((self.steps - step) / decay_steps, 1.0)
        decay = (1 - math.cos(math.pi * remaining)) / 2 if self.decay == "cosine" else remaining
        return self.learning_rate * min(warmup, decay)

    def stage_at(self, step: int) -> int | None:
        """Length of the curriculum stage of a step; None without a curriculum."""
        for length, steps in self.curriculum:
            if step < steps:
                return length
            step -= steps
        return self.curriculum[-1][0] if self.curriculum else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON. Fields of `_ADDED_LATER` are omitted at their defaults."""
        defaults = {field.name: field.default for field in fields(self)}
        omitted = [name for name in _ADDED_LATER if getattr(self, name) == defaults[name]]
        return {name: value for name, value in asdict(self).items() if name not in omitted}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainSettings":
        """Settings from `to_dict` or part of it.

        Raises:
            ValueError: an unknown field, or a value of another type or out of range.
        """
        return restored(cls, values)


def settings_or_default(settings: TrainSettings | None, task: Task) -> TrainSettings:
    """The settings, or the task's recipe if they are None.

    Raises:
        ValueError: an object of another class.
    """
    if settings is None:
        return recipe_for(task)
    check_class("settings", settings, TrainSettings)
    return settings
