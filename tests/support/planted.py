"""Models with planted patterns, tasks to show them on, and reference computations."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F

import interp
from hooks import Transformer
from hooks.model.attention import visible_keys
from interp.tasks import Lego
from interp.tasks.base import Batch, Task
from interp.tasks.vocab import Vocab


def only_tokens(tokens, attention_mask=None, *, scored=None):
    """A batch with nothing to predict, at every position or at one."""
    n, pos = tokens.shape
    positions = torch.arange(pos) if scored is None else torch.tensor([scored])
    return Batch(
        tokens=tokens,
        target_positions=positions.expand(n, -1),
        labels=torch.zeros(n, len(positions), dtype=torch.long),
        supervised=torch.ones(len(positions), dtype=torch.bool),
        attention_mask=attention_mask,
    )


def ideal_map(related, allowed):
    """Uniform over the visible related keys; over all visible keys if none is related."""
    weight = (related & allowed).double()
    weight = torch.where(weight.sum(-1, keepdim=True) > 0, weight, allowed.double())
    return weight / weight.sum(-1, keepdim=True)


class Planted(Transformer):
    """A transformer in which chosen heads have given patterns.

    `plan` gives, for (layer, head), a function of batch and visible keys that returns a pattern.
    """

    def __init__(self, cfg, plan, *, seed=0):
        super().__init__(cfg, seed=seed)
        for layer in {layer for layer, _ in plan}:
            chosen = {head: make for (at, head), make in plan.items() if at == layer}
            self.add_hook(f"blocks.{layer}.attn.hook_pattern", self._writer(chosen), is_permanent=True)

    def _writer(self, chosen):
        def write(pattern, hook):
            pattern = pattern.clone()
            for head, make in chosen.items():
                pattern[:, head] = make(*self.seen).to(pattern.dtype)
            return pattern

        return write

    def forward(self, tokens, attention_mask=None, **inputs):
        self.seen = only_tokens(tokens, attention_mask), visible_keys(self.cfg, tokens, attention_mask)
        return super().forward(tokens, attention_mask, **inputs)


@dataclass(frozen=True)
class Brackets(Task):
    """Random prefixes of nested brackets of two types, with stack relations and nothing to predict."""

    pos: int = 14
    attention: str = "causal"

    vocab: ClassVar = Vocab(("(", ")", "[", "]"))

    @property
    def targets(self):
        return tuple(map(str, range(self.pos)))

    @property
    def n_ctx(self):
        return self.pos

    def sample(self, n, *, generator, split="train"):
        coins = torch.randint(4, (n, self.pos), generator=generator).tolist()
        return only_tokens(torch.tensor([_word(row) for row in coins]))

    def relations(self, batch):
        n, pos = batch.tokens.shape
        top, unmatched = torch.zeros(2, n, pos, pos, dtype=torch.bool)
        for row, word in enumerate(batch.tokens.tolist()):
            stack = []
            for query, token in enumerate(word):
                if token in (0, 2):
                    stack.append(query)
                else:
                    stack.pop()
                unmatched[row, query, stack] = True
                top[row, query, stack[-1:]] = True
        return {"stack_top": top, "unmatched_open": unmatched}


def _word(coins):
    word, stack = [], []
    for coin in coins:
        if stack and coin < 2:
            word.append(stack.pop() + 1)
        else:
            stack.append(2 * (coin % 2))
            word.append(stack[-1])
    return word


@dataclass(frozen=True, kw_only=True)
class Padded(Lego):
    """LEGO sentences with padding before and after them."""

    left: int = 0
    right: int = 0
    causal: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.causal:
            object.__setattr__(self, "attention", "causal")

    def sample(self, n, *, generator, split="train", n_vars=None):
        batch = super().sample(n, generator=generator, split=split)
        if not self.left + self.right:
            return batch
        within = torch.arange(super().n_ctx).expand(n, -1)
        return replace(
            batch,
            tokens=F.pad(batch.tokens, (self.left, self.right)),
            target_positions=batch.target_positions + self.left,
            position_ids=F.pad(within, (self.left, self.right)),
            attention_mask=F.pad(torch.ones_like(batch.tokens, dtype=torch.bool), (self.left, self.right)),
        )

    def relations(self, batch):
        inside = slice(self.left, batch.tokens.shape[1] - self.right)
        sizes = (self.left, self.right, self.left, self.right)
        bare = only_tokens(batch.tokens[:, inside])
        return {name: F.pad(relation, sizes) for name, relation in super().relations(bare).items()}


def flat_rows(rng, n, length=17):
    """Causal patterns of n models whose rows are uniform on the simplex."""
    weights = rng.exponential(size=(n, 1, length, length)) * np.tri(length)
    return weights / weights.sum(-1, keepdims=True)


def distances_by_loops(patterns):
    """Squared Frobenius distance between every two models, written out."""
    models, heads = patterns.shape[:2]
    found = np.zeros((heads, models, models))
    for head in range(heads):
        for i in range(models):
            for j in range(models):
                found[head, i, j] = ((patterns[i, head] - patterns[j, head]) ** 2).sum()
    return found


def sharp_model(task, **settings):
    """An untrained model with large attention scores, so that its patterns are not uniform."""
    sizes = {"n_layers": 2, "n_heads": 2, "d_model": 16, "attn_scale": 0.7, "n_ctx": 32}
    model = Transformer(interp.config_for(task, **{**sizes, **settings}), seed=3)
    generator = torch.Generator().manual_seed(4)
    for parameter in model.parameters():
        if parameter.ndim == 1:  # biases and gains that matter
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()
