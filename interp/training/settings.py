"""How a model is trained, as a value: checked when made, JSON both ways."""

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

Association = Literal["none", "mimic", "query_key"]
LocalTarget = Literal["band", "clause"]
MimicTokens = Literal["examples", "random"]
Keep = Literal["last", "best"]
Precision = Literal["float32", "bfloat16"]
Decay = Literal["linear", "cosine"]
_ADDED_LATER = ("precision", "decay")
"""Fields that earlier descriptions lack: at their defaults they are left out, so that those stay as they were."""


@dataclass(frozen=True, kw_only=True)
class Mimicking:
    """Teaching attention where to look before the task is learned.

    Head 0 of every layer is taught a local (manipulation) map, head 1 the association map; the other heads are
    free.

    Source: LEGO (arXiv:2206.04301) Appendix B.3 and released code: both maps, their smoothing, examples of the
    task. Differs: 150 steps of 64 at 2e-3 for a small model, where it has 1000 to 5000 steps of 200 at 5e-5.

    Raises:
        ValueError: a number that is not positive, or an unknown choice.
    """

    steps: int = 150
    batch_size: int = 64
    learning_rate: float = 2e-3
    local_target: LocalTarget = "band"
    """`band`: the paper's kernel [1, 2, 4, 2, 1] around the query. `clause`: uniform over its own clause."""
    tokens: MimicTokens = "examples"
    """What to teach on: `examples` of the task or uniformly `random` tokens."""

    def __post_init__(self):
        for name in ("steps", "batch_size", "learning_rate"):
            if getattr(self, name) <= 0:
                raise ValueError(f"mimicking.{name} is {getattr(self, name)}; it must be positive.")
        for name, choices in (("local_target", LocalTarget), ("tokens", MimicTokens)):
            if getattr(self, name) not in get_args(choices):
                raise ValueError(
                    f"mimicking.{name} is {getattr(self, name)!r}; choose one of {', '.join(get_args(choices))}."
                )


def curriculum_to(n_vars: int) -> tuple[tuple[int, int], ...]:
    """Stages (chain length, steps) that reach chains of `n_vars`, with which mimicking models of width 64 learn.

    Measured to chains of six; beyond, one last stage of 900 steps is a guess. Empty for chains of one.
    """
    measured = ((2, 80), (3, 270), (4, 350), (5, 500), (6, 800))
    stages = tuple(stage for stage in measured if stage[0] <= n_vars)
    return (*stages, (n_vars, 900)) if n_vars > measured[-1][0] else stages


def recipe_for(task: Any) -> "TrainSettings":
    """Settings known to learn a task, or the defaults.

    For chains, mimicking and a curriculum over their length. For brackets, steps in which two layers of width 50 learn
    prefixes of 28. For templates, as many strings as the training alphabet has symbols (the paper's choice), the
    weights that are best on validation symbols, and a faster rate for b_h. For text, 400 steps of 2048 tokens: enough
    for the grammar of a small corpus, not for its sense.
    """
    kind = task.describe()["task"]
    if kind == "dyck":
        return TrainSettings(steps=700, batch_size=24, learning_rate=6e-3, weight_decay=0.0)
    if kind == "template":
        return TrainSettings(
            steps=300,
            batch_size=128,
            learning_rate=2e-3,
            weight_decay=0.0,
            n_train=len(task.alphabet("train")),
            vo_identity_rate=10.0,
            keep="best",
            eval_every=25,
        )
    if kind == "text":
        return TrainSettings(steps=400, tokens_per_step=2048, decay_share=0.2, n_eval=128, eval_every=100)
    n_vars = getattr(task, "n_vars", 1)
    return TrainSettings(curriculum=curriculum_to(n_vars), association="mimic") if n_vars > 1 else TrainSettings()


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How `interp.train` proceeds. The defaults are plain training; `recipe_for` gives what learns LEGO in minutes.

    Raises:
        ValueError: a number out of range, an unknown choice, or settings that exclude each other.
    """

    steps: int = 700
    """Optimiser steps on the task; with a `curriculum`, leave it out or give their sum."""
    curriculum: tuple[tuple[int, int], ...] = ()
    """Stages (length, steps). Of chains: within a stage `current_share` of the batches have its length, the rest a
    random shorter one, from 2 upwards. Of text: every window of a stage has its length, in tokens."""
    current_share: float = 0.55
    tokens_per_step: int = 1536
    """Batch size is this over the sequence length, so short chains are cheap."""
    batch_size: int | None = None
    """Examples per step, instead of `tokens_per_step`."""
    n_train: int | None = None
    """Train on a fixed set of this many examples; fresh ones at every step when left out."""
    learning_rate: float = 1e-3
    warmup_steps: int = 50
    decay_share: float = 0.45
    """Share of the steps, at the end, over which the learning rate falls to zero."""
    decay: Decay = "linear"
    """How it falls: in a straight line, or as half a cosine wave. The latter over all steps (`decay_share=1`,
    `warmup_steps=0`) is LEGO's schedule. Differs: it is stepped once per epoch there, at every step here."""
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    association: Association = "none"
    """A bias towards equal tokens before training: `mimic` teaches it, `query_key` copies W_Q into W_K."""
    mimicking: Mimicking = field(default_factory=Mimicking)
    qk_identity_rate: float = 1.0
    vo_identity_rate: float = 1.0
    """Learning rate of the scalars a_h, and of b_h, over that of everything else. At the same rate b does next to
    nothing: the training loss is gone before b has grown."""
    contrastive: float = 0.0
    """Weight of the contrastive regulariser for bracket languages (bounded Dyck, Eq. 22); the paper's is 0.3."""
    depth_range: tuple[int, int] | None = None
    """Stochastic depth: the number of layers is drawn uniformly from this range, both ends included, per batch."""
    keep: Keep = "last"
    """Which weights the trained model has: the `last`, or those of the evaluation with the `best` (lowest) loss on
    validation examples."""
    precision: Precision = "float32"
    """What the forward pass of training computes in; `bfloat16` through torch's autocast, for a GPU. Weights,
    optimiser, loss and every evaluation stay in float32."""
    eval_every: int = 50
    n_eval: int = 1000
    checkpoint_every: int = 100

    def __post_init__(self):
        object.__setattr__(self, "curriculum", tuple((int(n), int(steps)) for n, steps in self.curriculum))
        if self.curriculum:
            object.__setattr__(self, "steps", sum(steps for _, steps in self.curriculum))
        positive = (
            "steps",
            "tokens_per_step",
            "learning_rate",
            "clip_norm",
            "qk_identity_rate",
            "vo_identity_rate",
            "eval_every",
            "n_eval",
            "checkpoint_every",
        )
        for name in positive:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive.")
        for name in ("current_share", "decay_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it is a share, 0 to 1.")
        for name in ("contrastive", "weight_decay"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must not be negative.")
        chosen = (("association", Association), ("keep", Keep), ("precision", Precision), ("decay", Decay))
        for name, choices in chosen:
            if getattr(self, name) not in get_args(choices):
                raise ValueError(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(get_args(choices))}.")
        if self.n_train is not None and self.curriculum:
            raise ValueError("n_train and curriculum exclude each other: a fixed set has one chain length.")
        for name in ("n_train", "batch_size"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give at least 1, or leave it out.")

    def learning_rate_at(self, step: int) -> float:
        """Learning rate of a step: linear warm-up, constant, decay to zero."""
        warm = min(1.0, (step + 1) / max(1, self.warmup_steps))
        decaying = max(1.0, self.decay_share * self.steps)
        left = min((self.steps - step) / decaying, 1.0)
        if self.decay == "cosine":
            left = (1 - math.cos(math.pi * left)) / 2
        return self.learning_rate * min(warm, left)

    def stage_at(self, step: int) -> int | None:
        """Chain length of the curriculum stage that a step belongs to; None without a curriculum."""
        for length, steps in self.curriculum:
            if step < steps:
                return length
            step -= steps
        return self.curriculum[-1][0] if self.curriculum else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON. What was added later is left out where it stands at its default."""
        defaults = {field.name: field.default for field in fields(self)}
        same = [name for name in _ADDED_LATER if getattr(self, name) == defaults[name]]
        return {name: value for name, value in asdict(self).items() if name not in same}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainSettings":
        """Settings from `to_dict`, or from a part of it."""
        values = dict(values)
        values["mimicking"] = Mimicking(**values.get("mimicking", {}))
        for name in ("betas", "depth_range"):
            if values.get(name) is not None:
                values[name] = tuple(values[name])
        values["curriculum"] = tuple(tuple(stage) for stage in values.get("curriculum", ()))
        return cls(**values)
