"""A small task of words of different lengths, and a model that holds its labels in a known way."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from hooks import Transformer, TransformerConfig
from interp.tasks.base import Batch, Score, Task, Vocab

PAD = 2


@dataclass(frozen=True, kw_only=True)
class Counting(Task):
    """Bits; after each one, the number of ones so far."""

    length: int = 7

    @property
    def vocab(self):
        return Vocab(("0", "1", "-"))

    @property
    def targets(self):
        return tuple(f"after {index + 1}" for index in range(self.length))

    @property
    def n_ctx(self):
        return self.length

    @property
    def attention(self):
        return "causal"

    @property
    def d_vocab_out(self):
        return self.length + 1

    def sample(self, n, *, generator, split="train"):
        tokens = torch.randint(2, (n, self.length), generator=generator)
        return Batch(
            tokens=tokens,
            target_positions=torch.arange(self.length).expand(n, -1),
            labels=tokens.cumsum(1),
            supervised=torch.ones(self.length, dtype=torch.bool),
        )

    def loss(self, logits, batch):
        return F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())

    def score(self, at_targets, batch):
        right = (self.answers(at_targets) == batch.labels).float()
        return Score(right=right, loss=1 - right, total=torch.ones_like(right))

    def probe_labels(self, batch):
        return {"count": batch.labels}

    def control_types(self, batch):
        return batch.tokens

    def relations(self, batch):
        return {}

    def describe(self):
        return {"task": "counting", "length": self.length}


class Counter(Transformer):
    """A model whose residual stream is a code of the number of ones so far, from the embedding on.

    Its layers add nothing, and its answer is the count with the nearest code.

    Args:
        codes: The code of each count; codes have a mean of 0 and one length.
    """

    def __init__(self, codes, *, n_ctx, n_layers=1):
        counts, width = codes.shape
        cfg = TransformerConfig(
            d_vocab=3, d_vocab_out=counts, n_ctx=n_ctx, d_model=width, n_heads=1, n_layers=n_layers, attention="causal"
        )
        super().__init__(cfg)
        self.codes = codes
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if not name.startswith("norm_final"):
                    weight.zero_()
            self.unembed.weight.copy_(codes)
        self.add_hook("hook_embed", lambda resid, hook: self.codes[self.ones].to(resid), is_permanent=True)

    def forward(self, tokens, *args, **inputs):
        self.ones = (tokens == 1).cumsum(1)
        return super().forward(tokens, *args, **inputs)


def binary_codes(counts):
    """Codes of 0 to `counts - 1`: their binary digits as -1 and 1, then the negatives of these."""
    digits = (torch.arange(counts)[:, None] >> torch.arange((counts - 1).bit_length())) & 1
    return torch.cat([2.0 * digits - 1, 1 - 2.0 * digits], 1)
