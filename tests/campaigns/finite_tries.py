"""Models whose weights or answers are not numbers: every verb refuses them, or read numbers only."""

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from own_models import transformer
from tries import Try

import interp
from hooks import Transformer
from interp.tasks import Dyck, Lego
from interp.tasks.base import logits_at_targets

DRAWN: list[Any] = []
"""Batches that the verb of this try has drawn from the test split."""
FAMILIES = (
    {}, {"block": "post_ln"}, {"block": "bare"}, {"block": "no_norm", "activation": "relu"}, {"tied": True},
    {"attention": "causal"}, {"positions": "sinusoidal"}, {"block": "dyck"},
)  # fmt: skip
PATTERNS_ONLY = ("classify_heads",)
"""Verbs that read attention and the residual stream, and no logits."""
WORDS = ("not finite", "with NaN", "with infinity")
VERBS: dict[str, Callable[[Any, Any], Any]] = {
    "evaluate": lambda model, task: interp.evaluate(model, task, n=20),
    "ablate": lambda model, task: interp.ablate(model, task, n=20),
    "ablate_heads": lambda model, task: interp.ablate_heads(model, task, n=20),
    "keep_heads": lambda model, task: interp.keep_heads(model, task, n=20, n_random=1),
    "patch": lambda model, task: interp.patch(model, task, n=16),
    "edges": lambda model, task: interp.edges(model, task, n=16),
    "logit_lens": lambda model, task: interp.logit_lens(model, task, n=20),
    "classify_heads": lambda model, task: interp.classify_heads(model, task, n=20, untrained=1),
    "audit_parts": lambda model, task: interp.audit_parts(model, task, n=16, at_chance=True, seconds=2),
    "audit": lambda model, task: interp.audit(model, task, n=16, at_chance=True, seconds=2),
}


class _Drawing:
    def sample(self, n: int, *, split: str = "train", **options: Any) -> Any:
        batch = super().sample(n, split=split, **options)  # type: ignore[misc]
        if split == "test":
            DRAWN.append(batch)
        return batch


class DrawnLego(_Drawing, Lego):
    """Lego that notes what is drawn."""


class DrawnDyck(_Drawing, Dyck):
    """Dyck that notes what is drawn."""


TASKS = (DrawnLego(n_vars=2, sentence_format="compact"), DrawnDyck(n_types=1, max_depth=2, length=4))


def _one_value(model: Transformer, rng: random.Random) -> str:
    """A weight that is not finite."""
    name, parameter = rng.choice(list(model.named_parameters()))
    value = rng.choice([math.inf, -math.inf, math.nan])
    parameter.view(-1)[rng.randrange(parameter.numel())] = value
    return f"{value} in {name}"


def _scaled(model: Transformer, rng: random.Random) -> str:
    """Finite weights, some of which are so large that what they are used in overflows."""
    parts = {
        "W_Q and W_K": (".attention.q.weight", ".attention.k.weight"),
        "W_V and W_O": (".attention.v.weight", ".attention.o.weight"),
        "MLP": ("mlp.w_in.weight", "mlp.w_out.weight"),
        "embedding": ("embed.weight",),
        "unembedding": ("unembed.weight",),
        "everything": ("weight",),
    }
    part, by = rng.choice(list(parts)), 10 ** rng.uniform(18, 38)
    for name, parameter in model.named_parameters():
        if name.endswith(parts[part]) and (part != "embedding" or name == "embed.weight"):
            parameter.mul_(by).clamp_(-3e38, 3e38)
    return f"{part} times {by:.1g}"


@torch.no_grad()
def tries(n: int, folder: Path) -> Iterator[Try]:
    """Refused by an error that says it, or every logit that counts is a number."""
    rng, verbs = random.Random(10), list(VERBS)
    for index in range(n):
        verb, task, fields = verbs[index % len(verbs)], rng.choice(TASKS), rng.choice(FAMILIES)
        model = transformer(task, seed=rng.randrange(10**6), **fields)
        change = (_one_value, _scaled, _scaled)[rng.randrange(3)](model, rng)
        what = f"{verb}, {type(task).__name__}, {fields}, {change}"
        DRAWN.clear()
        try:
            VERBS[verb](model, task)
        except ValueError as error:
            is_clear = any(word in str(error) for word in WORDS) and len(str(error)) < 800
            yield Try(what, None if is_clear else "unclear", str(error)[:300])
        except Exception as error:
            yield Try(what, "unclear", f"{type(error).__name__}: {error}"[:300])
        else:
            fault = _fault(model, reads_logits=verb not in PATTERNS_ONLY)
            yield Try(what, "silently wrong" if fault else None, fault)


def _fault(model: Transformer, *, reads_logits: bool) -> str:
    """What is no number in a pass on what the verb has drawn; empty if nothing is."""
    for batch in DRAWN:
        logits, cache = model.run_with_cache(batch.tokens, **batch.model_inputs())
        at_targets = logits_at_targets(logits, batch)[batch.present]
        if reads_logits and not at_targets.isfinite().all():
            return "logits at the targets are not finite"
        for name, activation in cache.items():
            if "pattern" in name and not activation.isfinite().all():
                return f"{name} is not finite"
    return "" if DRAWN else "the verb has drawn nothing"
