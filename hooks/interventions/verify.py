"""Verification that every hook point of a model fires once, affects the logits, and leaves no hooks behind."""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.model.layers import HookPoint, check_not_compiled, hook_tables
from hooks.model.transformer import TransformerStack
from hooks.randomness import seeded_generator
from hooks.state import restores_state
from hooks.typed import checks_types


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """Result of `verify`, per hook point."""

    fires: dict[str, int]
    """Number of times that each hook point fired in one forward pass; it should be one."""
    acts: dict[str, float]
    """Largest change of a logit when the activation is replaced by noise; it should not be zero."""
    pattern_error: float
    """Largest difference between a row sum of a pattern and one."""
    rerun_equal: bool
    """True if the logits after all edits equal those before, bit for bit."""
    hooks_left: int
    """Hooks still registered at the end."""

    @property
    def failures(self) -> list[str]:
        """Every failed check, in words."""
        failures = [f"{name} fired {count} times in one pass" for name, count in self.fires.items() if count != 1]
        unread = [name for name, change in self.acts.items() if not change > 0]
        failures += [f"an edit of {name} does not reach the logits" for name in unread]
        if self.pattern_error > 1e-4:
            failures.append(f"a pattern's row sums to one only within {self.pattern_error:.2g}")
        if not self.rerun_equal:
            failures.append("a run after the edits differs from the run before them")
        if self.hooks_left:
            failures.append(f"{self.hooks_left} hooks were left behind")
        return failures

    @property
    def ok(self) -> bool:
        """True if no check failed."""
        return not self.failures

    def __str__(self) -> str:
        if self.ok:
            return f"verified: {len(self.fires)} hook points fire once each and act; nothing is left behind"
        return "not verified: " + "; ".join(self.failures)


@checks_types
@restores_state
@torch.no_grad()
def verify(model: TransformerStack, *, seed: int = 0) -> VerifyReport:
    """Edit every hook point in turn, and check that it fires once and affects the logits.

    The edits run on a copy with random weights, since the check is of the computation: with the model's weights, a head
    whose values are zero would fail. That logits are reproduced and no hooks are left is also checked on `model`
    itself.

    >>> import hooks
    >>> print(hooks.verify(hooks.Transformer(hooks.TransformerConfig(d_vocab=5, d_model=8, n_heads=2, n_layers=1))))
    verified: 21 hook points fire once each and act; nothing is left behind

    Args:
        model: The model to check. It is not changed.
        seed: Seed of the random weights, tokens and edits.

    Raises:
        ValueError: another model than a `hooks.Transformer`, or one with a compiled part.
    """
    if isinstance(model, torch.nn.Module):
        check_not_compiled(*model.modules())
    if not isinstance(model, TransformerStack):
        raise ValueError(f"model is a {type(model).__name__}; verify checks the hook points of a hooks.Transformer.")
    # Tokens that the model can read
    generator = seeded_generator(seed)
    tokens = model.embed.example(3, min(model.cfg.n_ctx, 7), generator).to(model.W_E.device)
    if model.cfg.pathways is not None:
        tokens = model.cfg.pathways.framed(tokens)
    n_hooks_before = _count_hooks(model)
    logits_before = model(tokens)
    # Replace every activation of the copy by noise, point by point
    randomised = _copy_with_random_weights(model, generator)
    clean = randomised(tokens)
    fires, acts = {}, {}
    for name in randomised.hook_dict:
        logits, fires[name] = _run_with_noise(randomised, tokens, name, generator)
        acts[name] = float((logits - clean).abs().max())
    # Compare both models with their state before the edits
    _, cache = randomised.run_with_cache(tokens, names_filter=lambda name: name.endswith("hook_pattern"))
    error = max(float((pattern.sum(-1) - 1).abs().max()) for pattern in cache.values())
    return VerifyReport(
        fires=fires,
        acts=acts,
        pattern_error=error,
        rerun_equal=bool(torch.equal(clean, randomised(tokens)) and torch.equal(logits_before, model(tokens))),
        hooks_left=_count_hooks(randomised) + _count_hooks(model) - n_hooks_before,
    )


def _copy_with_random_weights(model: TransformerStack, generator: torch.Generator) -> TransformerStack:
    """A copy of the model without hooks, whose weights are random."""
    randomised = copy.deepcopy(model)
    randomised.reset_hooks(including_permanent=True)
    for point in randomised.hook_dict.values():
        for table in hook_tables(point):
            table.clear()
    for parameter in randomised.parameters():
        parameter.copy_(
            torch.randn(parameter.shape, generator=generator, dtype=torch.float32) * parameter.shape[-1] ** -0.5
        )
    return randomised


def _run_with_noise(
    model: TransformerStack, tokens: Int[Tensor, "batch pos"], name: str, generator: torch.Generator
) -> tuple[Float[Tensor, "batch pos d_vocab_out"], int]:
    """Logits with noise at a hook point, and the number of times that it fired."""
    n_calls = 0

    def replace_by_noise(activation: Tensor, hook: HookPoint) -> Tensor:
        nonlocal n_calls
        n_calls += 1
        noise = torch.randn(activation.shape, generator=generator, dtype=torch.float32).to(activation)
        return torch.where(activation.isfinite(), noise, activation)

    logits = model.run_with_hooks(tokens, fwd_hooks=[(name, replace_by_noise)])
    return logits, n_calls


def _count_hooks(model: TransformerStack) -> int:
    return sum(len(table) for point in model.hook_dict.values() for table in hook_tables(point))
