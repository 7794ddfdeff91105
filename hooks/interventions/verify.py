"""Proof that every advertised hook point fires, acts, and leaves nothing behind."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from hooks.model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """What `verify` found, hook point by hook point."""

    fires: dict[str, int]
    """How often each hook point fired in one forward pass; one is right."""
    acts: dict[str, float]
    """Largest change of any logit when the activation there is replaced by noise; zero is wrong."""
    pattern_error: float
    """Largest distance of a pattern's row sum from one."""
    rerun_equal: bool
    """True when a run after all those edits gives the first run's logits, bit for bit."""
    hooks_left: int
    """Hooks still registered at the end."""

    @property
    def failures(self) -> list[str]:
        """Everything that is not as advertised, in words; empty when all is well."""
        found = [f"{name} fired {count} times in one pass" for name, count in self.fires.items() if count != 1]
        found += [
            f"an edit of {name} does not reach the logits" for name, change in self.acts.items() if not change > 0
        ]
        if self.pattern_error > 1e-4:
            found.append(f"a pattern's row sums to one only within {self.pattern_error:.2g}")
        if not self.rerun_equal:
            found.append("a run after the edits differs from the run before them")
        if self.hooks_left:
            found.append(f"{self.hooks_left} hooks were left behind")
        return found

    @property
    def ok(self) -> bool:
        """True when nothing failed."""
        return not self.failures

    def __str__(self) -> str:
        if self.ok:
            return f"verified: {len(self.fires)} hook points fire once each and act; nothing is left behind"
        return "not verified: " + "; ".join(self.failures)


@torch.no_grad()
def verify(model: Transformer, *, seed: int = 0) -> VerifyReport:
    """Run the model, edit every hook point in turn, and report which of them do what they promise.

    The edits run on a copy with random weights: this is a proof about the computation, and a head whose
    values happen to be zero must not hide a hook point that works. The last two checks are about `model`
    itself, before and after.

    Args:
        model: The model to check. It is not changed.
        seed: Decides the random weights, tokens and edits.

    Raises:
        ValueError: another model than a `hooks.Transformer`.
    """
    if not isinstance(model, Transformer):
        raise ValueError(f"model is a {type(model).__name__}; verify knows the hook points of a hooks.Transformer.")
    generator = torch.Generator().manual_seed(seed)
    device = model.W_E.device
    tokens = model.embed.example(3, min(model.cfg.n_ctx, 7), generator).to(device)
    if model.cfg.pathways is not None:
        tokens = model.cfg.pathways.framed(tokens)
    before = _count_hooks(model)
    first = model(tokens)
    twin = copy.deepcopy(model)
    twin.reset_hooks(including_permanent=True)
    for parameter in twin.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[-1] ** -0.5)
    clean = twin(tokens)
    fires, acts = {}, {}
    for name in twin.hook_dict:
        calls: list[str] = []

        def noise(activation: Tensor, hook, calls=calls) -> Tensor:
            calls.append(hook.name)
            random = torch.randn(activation.shape, generator=generator).to(activation)
            return torch.where(activation.isfinite(), random, activation)

        acts[name] = float((twin.run_with_hooks(tokens, fwd_hooks=[(name, noise)]) - clean).abs().max())
        fires[name] = len(calls)
    _, cache = twin.run_with_cache(tokens, names_filter=lambda name: name.endswith("hook_pattern"))
    error = max(float((pattern.sum(-1) - 1).abs().max()) for pattern in cache.values())
    return VerifyReport(
        fires=fires,
        acts=acts,
        pattern_error=error,
        rerun_equal=bool(torch.equal(clean, twin(tokens)) and torch.equal(first, model(tokens))),
        hooks_left=_count_hooks(twin) + _count_hooks(model) - before,
    )


def _count_hooks(model: Transformer) -> int:
    return sum(len(point.fwd_hooks) + len(point.bwd_hooks) for point in model.hook_dict.values())
