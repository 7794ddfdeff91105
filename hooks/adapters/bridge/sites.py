"""Canonical sites of a bridge, the hook points that may serve them, and forward passes that set and record them."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.model.checked_hooks import storing_hooks

CANDIDATES = {
    "hook_embed": ("hook_embed", "embed.hook_out"),
    "hook_pos_embed": ("hook_pos_embed", "pos_embed.hook_out"),
    # hook_normalized comes last: with a gain of one it equals what the unembedding reads, but it is before the gain
    "ln_final.hook_normalized": ("ln_final.hook_out", "unembed.hook_in", "ln_final.hook_normalized"),
    "hook_resid_pre": ("hook_resid_pre", "hook_in"),
    "attn.hook_q": ("attn.hook_q", "attn.q.hook_out"),
    "attn.hook_k": ("attn.hook_k", "attn.k.hook_out"),
    "attn.hook_v": ("attn.hook_v", "attn.v.hook_out"),
    "attn.hook_attn_scores": ("attn.hook_attn_scores",),
    "attn.hook_pattern": ("attn.hook_pattern",),
    "attn.hook_z": ("attn.hook_z", "attn.o.hook_in"),
    "hook_attn_out": ("hook_attn_out", "attn.hook_out", "attn.o.hook_out"),
    "hook_resid_mid": ("hook_resid_mid", "ln1.hook_out", "attn.hook_out"),
    "mlp.hook_pre": ("mlp.hook_pre", "mlp.in.hook_out"),
    "mlp.hook_post": ("mlp.hook_post", "mlp.out.hook_in"),
    "hook_mlp_out": ("hook_mlp_out", "mlp.hook_out", "mlp.out.hook_out"),
    "hook_resid_post": ("hook_resid_post", "hook_out"),
}
"""The hook points of a bridge that may serve each canonical site, in the order they are tested."""
GLOBAL_SITES = ("hook_embed", "hook_pos_embed", "ln_final.hook_normalized")
LAYER_SITES = tuple(site for site in CANDIDATES if site not in GLOBAL_SITES)
WEIGHTS = ("attn.W_Q", "attn.W_K", "attn.W_V", "attn.W_O")
ATTENTION_INPUTS = ("attn.hook_in", "ln1.hook_out", "ln1.hook_normalized", "hook_resid_pre")
"""The hook points that may have the input of queries, keys and values, if the projections have none themselves."""
ALSO_RECORDED = (
    *(f"attn.{name}.hook_in" for name in "qkv"),
    *ATTENTION_INPUTS[:3],
    *("ln1.hook_in", "ln2.hook_in", "ln2.hook_out", "mlp.hook_pre_linear"),
)
"""Hook points that the tests of the others need."""

MOST_ROUNDING = 0.02
"""Share of the largest value that rounding changes at most: several units in bfloat16, whose square root is 9 %, which
an output of attention that is halved before it is added would pass."""


@dataclass(frozen=True)
class Cell:
    """Whether one site can be read, or edited."""

    state: Literal["works", "through", "ignored", "missing", "wrong copy"]
    """`works`; works `through` another hook point; an edit is `ignored`; the site is `missing`; or the hook point is
    `wrong copy`: it has another quantity than its name says."""
    point: str = ""
    """The bridge's own hook point that serves the site."""
    reason: str = ""
    """The reason for a failure, or a note."""

    @property
    def ok(self) -> bool:
        """True when the site can be used."""
        return self.state in ("works", "through")

    def __str__(self) -> str:
        text = f"through {self.point}" if self.state == "through" else self.state
        return f"{text} ({self.reason})" if self.reason else text


def recorded_points(bridge: Any) -> list[str]:
    """Every hook point of the bridge that the tests record."""
    sites = {name for names in CANDIDATES.values() for name in names} | set(ALSO_RECORDED)
    layers = range(bridge.cfg.n_layers)
    names = [*sites, *(f"blocks.{layer}.{site}" for layer in layers for site in sites)]
    existing = set(bridge.hook_dict)
    return [name for name in names if name in existing]


@torch.no_grad()
def run(
    bridge: Any,
    tokens: Int[Tensor, "batch pos"],
    edits: Mapping[str, Tensor] | None = None,
    record: Iterable[str] = (),
    **inputs: Any,
) -> tuple[Float[Tensor, "batch pos d_vocab_out"], dict[str, Tensor]]:
    """Logits and recorded activations of one pass; hook points that do not fire are missing from the record.

    Args:
        bridge: The bridge to run.
        tokens: Token ids.
        edits: Activations to set, by hook point.
        record: Hook points to record, after the edits.
        inputs: Passed to the bridge.
    """
    activations: dict[str, Tensor] = {}
    hooks = [(name, _setting_hook(value)) for name, value in (edits or {}).items()]
    hooks += storing_hooks(record, activations, transform=lambda activation: activation.detach().clone())
    with _attached(bridge, hooks):
        logits = bridge(tokens, **inputs)
    return logits.detach(), activations


def reaches(
    bridge: Any, tokens: Int[Tensor, "batch pos"], edits: Mapping[str, Tensor], point: str, target: str | None
) -> bool:
    """Whether the output of one hook point is computed from the activation set at another, by torch's graph.

    Unlike a comparison of values, this also works where all weights between the two are zero.

    Args:
        bridge: The bridge to run.
        tokens: Token ids.
        edits: Activations to set, by hook point; one of them at `point`.
        point: Where the activation is set.
        target: The later hook point; if None, the logits.
    """
    source = edits[point].clone().requires_grad_(True)
    activations: dict[str, Tensor] = {}
    values = {**edits, point: source}
    hooks: list[tuple[str, Callable]] = [(name, _setting_hook(value)) for name, value in values.items()]
    if target is not None:
        hooks += storing_hooks([target], activations)
    with torch.enable_grad(), _attached(bridge, hooks):
        logits = bridge(tokens)
        output = logits if target is None else activations[target]
        if not output.requires_grad:
            return False
        return torch.autograd.grad(output.sum(), source, allow_unused=True)[0] is not None


def _setting_hook(value: Tensor) -> Callable[..., Tensor]:
    return lambda activation, hook: value.clone()


@contextmanager
def _attached(bridge: Any, hooks: list[tuple[str, Callable]]) -> Iterator[None]:
    # A bridge may warn of an edit that it ignores; here that is a test result
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with bridge.hooks(fwd_hooks=hooks):
            yield


class Tolerance:
    """Comparison of tensors up to rounding in a dtype."""

    def __init__(self, dtype: torch.dtype):
        self.eps = torch.finfo(dtype).eps

    def equal(self, value: Tensor | None, expected: Tensor | None) -> bool:
        """Equal up to sqrt(eps), or 2 %, of the largest value; False if either is None."""
        if value is None or expected is None or value.shape != expected.shape:
            return False
        scale = float(expected.abs().max())
        return bool((value - expected).abs().max() <= min(self.eps**0.5, MOST_ROUNDING) * scale + 1e-12)

    def same_change(self, value: Tensor, expected: Tensor, clean: Tensor) -> bool:
        """Both differ from `clean` by the same change, up to 2 % of it or rounding."""
        change = float((expected - clean).abs().max())
        rounding = min(64 * self.eps, MOST_ROUNDING) * float(clean.abs().max())
        return bool((value - expected).abs().max() <= max(change / 50, rounding))

    def visible(self, expected: Tensor, clean: Tensor) -> bool:
        """So different from `clean` that `same_change` would not accept an edit without effect."""
        return not self.same_change(clean, expected, clean)

    def changed(self, value: Tensor, clean: Tensor) -> bool:
        """Different by more than rounding."""
        return bool((value - clean).abs().max() > 8 * self.eps * clean.abs().max())
