"""Batches of other widths: results do not depend on how far a batch is padded, nor on how the padding is embedded."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import torch
from own_models import transformer
from tries import Try

import interp
from interp.tasks import Batch, Task, Vocab

PAD = 5
Width = Literal["longest", "whole"]


@dataclass(frozen=True, kw_only=True)
class Sums(Task):
    """The sum of all digits modulo 4, predicted at the sign after them. Words have 1 to `most` digits."""

    most: int = 5
    n_ctx: int = 12
    width: Width = "whole"
    attention: Literal["causal", "bidirectional"] = "bidirectional"
    rare: float = 0.1
    """Probability of each digit beyond the first."""

    vocab = Vocab(("0", "1", "2", "3", "=", "_"))
    targets = ("sum",)
    d_vocab_out = 4
    disjoint_splits = False

    def sample(self, n: int, *, generator: torch.Generator, split: str = "train") -> Batch:
        digits = torch.randint(4, (n, self.n_ctx), generator=generator)
        more = torch.rand(n, self.most - 1, generator=generator) < self.rare
        length, at = 1 + more.sum(1, keepdim=True), torch.arange(self.n_ctx)
        tokens = torch.where(at < length, digits, torch.where(at == length, 4, PAD))
        real = at <= length
        labels = (digits * (at < length)).sum(1, keepdim=True) % 4
        wide = int(length.max()) + 1 if self.width == "longest" else self.n_ctx
        return Batch(
            tokens=tokens[:, :wide], target_positions=length, labels=labels, supervised=torch.tensor([True]),
            attention_mask=real[:, :wide],
        )  # fmt: skip

    def relations(self, batch: Batch) -> dict[str, torch.Tensor]:
        pos = batch.tokens.shape[1]
        return {"zeros": (batch.tokens == 0)[:, None].expand(-1, pos, -1)}


VERBS: dict[str, Callable[[Any, Any, int], list[Any]]] = {
    "evaluate": lambda model, task, n: [interp.evaluate(model, task, n=n).accuracy],
    "ablate_heads, mean": lambda model, task, n: _effects(interp.ablate_heads(model, task, method="mean", n=n)),
    "ablate_heads, zero": lambda model, task, n: _effects(interp.ablate_heads(model, task, method="zero", n=n)),
    "ablate_heads, resample": lambda model, task, n: _effects(
        interp.ablate_heads(model, task, method="resample", n=n, n_random=1)
    ),
    "keep_heads, mean": lambda model, task, n: _performs(interp.keep_heads(model, task, n=n, n_random=2)),
    "keep_heads, resample": lambda model, task, n: _performs(
        interp.keep_heads(model, task, method="resample", n=n, n_random=2)
    ),
    "patch, z": lambda model, task, n: _gaps(interp.patch(model, task, positions="all", n=n)),
    "patch, resid": lambda model, task, n: _gaps(interp.patch(model, task, site="resid", positions="all", n=n)),
    "edges, mean": lambda model, task, n: _effects(interp.edges(model, task, n=n)),
    "edges, resample": lambda model, task, n: _effects(interp.edges(model, task, method="resample", n=n)),
    "logit_lens": lambda model, task, n: [interp.logit_lens(model, task, n=n).logit_difference],
    "classify_heads": lambda model, task, n: [interp.classify_heads(model, task, n=n, untrained=1).score],
}


def _effects(result: Any) -> list[Any]:
    return [result.drop, result.loss_rise]


def _performs(result: Any) -> list[Any]:
    return [result.performs, result.replicates]


def _gaps(result: Any) -> list[Any]:
    return [result.effect, result.gap]


def tries(n: int, folder: Path) -> Iterator[Try]:
    """The same sequences, padded to the longest of each batch and to one width, in chunks of any size."""
    rng, verbs = random.Random(12), list(VERBS)
    for index in range(n):
        verb, n_examples = verbs[index % len(verbs)], rng.randrange(16, 40)
        task = Sums(
            most=rng.randrange(3, 8), n_ctx=rng.randrange(9, 14), attention=rng.choice(["causal", "bidirectional"]),
            rare=rng.choice([0.02, 0.1, 0.4]),
        )  # fmt: skip
        fields = rng.choice([{}, {"block": "post_ln"}, {"positions": "sinusoidal"}, {"tied": True}, {"block": "bare"}])
        model = transformer(task, seed=rng.randrange(10**6), **fields).double()
        chunk = rng.choice([1, 3, 16, 512])
        what = f"{verb}, {task.attention}, {fields}, n {n_examples}, chunks of {chunk}, rare {task.rare}"
        try:
            expected = VERBS[verb](model, task, n_examples)
            with _chunks_of(chunk):
                narrow = VERBS[verb](model, replace(task, width="longest"), n_examples)
                twin = VERBS[verb](_twin(model, rng.randrange(10**6)), replace(task, width="longest"), n_examples)
        except Exception as error:
            yield Try(what, "unclear", f"{type(error).__name__}: {error}"[:300])
            continue
        fault = _difference(expected, narrow, "padded to the longest: ")
        fault = fault or _difference(narrow, twin, "another embedding of padding: ")
        yield Try(what, "silently wrong" if fault else None, fault)


@contextmanager
def _chunks_of(size: int) -> Iterator[None]:
    """Chunks of so many examples, wherever a verb passes a batch in chunks."""
    from interp.core import activations

    with patch.object(activations, "CHUNK", size):
        yield


@torch.no_grad()
def _twin(model: Any, seed: int) -> Any:
    """The model with another embedding of the padding token."""
    twin, generator = deepcopy(model), torch.Generator().manual_seed(seed)
    twin.embed.weight[PAD] += 3 * torch.randn(twin.embed.weight.shape[1], generator=generator)
    return twin


def _difference(first: list[Any], second: list[Any], words: str) -> str:
    """How values and ends of intervals differ; empty if they do not."""
    for index, (one, other) in enumerate(zip(first, second, strict=True)):
        for end in ("value", "low", "high"):
            ours, theirs = np.asarray(getattr(one, end), float), np.asarray(getattr(other, end), float)
            if ours.shape != theirs.shape:
                return f"{words}shapes {ours.shape} and {theirs.shape}"
            if not np.allclose(ours, theirs, atol=1e-6, rtol=1e-6, equal_nan=True):
                return f"{words}{end} of value {index} by {np.nanmax(np.abs(ours - theirs)):.2g}"
    return ""
