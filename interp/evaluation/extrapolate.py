"""Does a model tell variables that it was never trained on, and how many layers does that take?"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Bool
from torch import Tensor

from hooks import Transformer
from interp.core.activations import CHUNK, SHORT, chunks
from interp.core.devices import device_of
from interp.core.randomness import derived_generator
from interp.core.statistics import proportion_interval
from interp.core.verbs import prepare_model
from interp.evaluation.extrapolation_result import ExtrapolationResult
from interp.tasks.base import Batch, Split, Task
from interp.tasks.lego.task import Lego

FURTHER = 3
"""A tied model is asked up to so many times as deep as it was made."""


def extrapolate(
    model: Transformer,
    task: Task,
    *,
    depths: Sequence[int] | None = None,
    n: int = 2000,
    split: Split = "test",
    seed: int = 0,
) -> ExtrapolationResult:
    """Accuracy of every target, supervised or not, after each number of layers.

    The residual stream after so many layers is read out as if it were the last: what the model answers when it is run
    at that depth, to the last answer. One pass at the greatest depth serves all of them. Examples are those of
    `evaluate` with the same `n`, `split` and `seed`.

    Args:
        model: What to test. It is not changed, but left in evaluation mode.
        task: Where examples come from and what is right; some of its targets are not supervised.
        depths: Numbers of layers to apply, in any order; from 1 to three times `n_layers` when left out, to `n_layers`
            if layers have weights of their own.
        n: How many examples.
        split: Which split they come from.
        seed: Decides the examples.

    Raises:
        ValueError: no depth, one below 1, one that is not whole, one twice, or one that the model cannot be run at
            (why); fewer than one example; an unknown split; a task all of whose targets are supervised; a stream that
            is not finite (after how many layers); a fully connected network, or a TransformerLens bridge.

    Source: LEGO (arXiv:2206.04301) Figure 3b (accuracy on variables beyond those trained on) and Figure 5 (accuracy
    against the layers applied at test). Differs: untied models are read early too, with the read-out of the last layer.
    """
    prepare_model(model, "extrapolate")
    tested = range(1, _deepest(model) + 1) if depths is None else depths
    _check_depths(model, tested)
    tested = sorted(int(depth) for depth in tested)
    if n < 1:
        raise ValueError(f"n is {n}; at least 1 example is needed.")
    batch = task.sample(n, generator=derived_generator(seed, "evaluate", split), split=split)
    if batch.supervised.all():
        hint = "n_supervised below n_vars" if isinstance(task, Lego) else "a task that supervises some of its targets"
        raise ValueError(
            f"all {len(task.targets)} targets of this task are supervised, which leaves nothing to extrapolate to; "
            f"give {hint}, or use evaluate with depth=..."
        )
    right = right_by_depth(model, task, batch, tested).sum(1).numpy()
    low, high = proportion_interval(right, n)
    return ExtrapolationResult(
        depths=tuple(tested),
        targets=task.targets,
        supervised=tuple(batch.supervised.tolist()),
        accuracy=right / n,
        low=low,
        high=high,
        chance=task.chance,
        n=n,
        split=split,
        trained_depth=model.cfg.n_layers,
    )


@torch.no_grad()
def right_by_depth(
    model: Transformer, task: Task, batch: Batch, depths: Sequence[int]
) -> Bool[Tensor, "depth batch target"]:
    """Whether each target is told rightly after each number of layers, from one pass at the greatest; on the CPU.

    Args:
        model: What to test; left in evaluation mode.
        task: Says what an answer is.
        batch: Examples, with any targets supervised.
        depths: Numbers of layers, in the order of the answer's first axis.

    Raises:
        ValueError: depths that `extrapolate` would refuse, or a stream that is not finite.
    """
    _check_depths(model, depths)
    model.eval()
    greatest = max(depths)
    net = model if greatest <= model.cfg.n_layers else model.at_depth(greatest)
    names = [f"blocks.{depth - 1}.hook_resid_post" for depth in depths]
    parts = []
    device = device_of(model)
    for chunk in chunks(batch, max(1, CHUNK * SHORT // max(SHORT, batch.tokens.shape[1]))):
        part = chunk.to(device)
        where = part.target_positions[..., None]
        found: dict[str, Tensor] = {}

        def keep(activation: Tensor, hook: Any, where=where, found=found) -> None:
            found[hook.name] = activation.gather(1, where.expand(-1, -1, activation.shape[-1]))

        inputs = cast(dict[str, Any], part.model_inputs())
        net.run_with_hooks(part.tokens, depth=greatest, **inputs, fwd_hooks=[(name, keep) for name in names])
        streams = [found[name] for name in names]
        _check_finite(streams, depths)
        parts.append(torch.stack([task.answers(net.read_out(stream)) == part.labels for stream in streams]))
    return torch.cat(parts, 1).cpu()


def _deepest(model: Transformer) -> int:
    """How deep a model is asked where nobody says."""
    return model.cfg.n_layers * (FURTHER if _goes_on(model) else 1)


def _goes_on(model: Transformer) -> bool:
    """Whether it is clear what one more layer would be."""
    return model.cfg.tied and (model.cfg.n_layers == 1 or len(model.cfg.head_patterns) <= 1)


def _check_depths(model: Transformer, depths: Sequence[int]) -> None:
    if not depths:
        raise ValueError("depths is empty; give at least one number of layers, or leave it out.")
    if min(depths) < 1:
        raise ValueError(f"depths has {min(depths)}; a model applies at least 1 layer. Leave it out.")
    broken = [depth for depth in depths if int(depth) != depth]
    if broken:
        raise ValueError(f"depths has {broken[0]}; give whole numbers of layers.")
    twice = [depth for depth in depths if list(depths).count(depth) > 1]
    if twice:
        raise ValueError(f"depths has {twice[0]} more than once; give each number of layers once.")
    if max(depths) <= model.cfg.n_layers or _goes_on(model):
        return
    why = "layers of an untied model have weights of their own, and there are no more of them"
    if model.cfg.tied:
        why = "its head_patterns are given layer by layer, and say nothing of further layers"
    raise ValueError(
        f"depths has {max(depths)}, but this model has {model.cfg.n_layers} layers: {why}. Give depths up to "
        f"{model.cfg.n_layers}, or a tied model."
    )


def _check_finite(streams: Sequence[Tensor], depths: Sequence[int]) -> None:
    wrong = [depth for depth, stream in zip(depths, streams, strict=True) if not stream.isfinite().all()]
    if wrong:
        raise ValueError(
            f"the residual stream is not finite after {min(wrong)} layers. Did training diverge, or does the stream "
            f"grow without end? Give smaller depths."
        )
