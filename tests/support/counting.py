"""A small task of words of different lengths, and a model that holds its labels in a known way."""

from dataclasses import dataclass, replace

import torch

from hooks import Transformer, TransformerConfig
from interp.tasks import Task
from interp.tasks.base import Batch
from interp.tasks.vocab import Vocab

PAD = 2


@dataclass(frozen=True, kw_only=True)
class Counting(Task):
    """Bits; after each one, the number of ones so far. Words of different lengths end in padding."""

    length: int = 7
    shortest: int = 7
    n_unsupervised: int = 0
    """Last targets that are not supervised."""

    disjoint_splits = False
    attention = "causal"
    vocab = Vocab(("0", "1", "-"))

    @property
    def targets(self):
        return tuple(f"after {index + 1}" for index in range(self.length))

    @property
    def n_ctx(self):
        return self.length

    @property
    def d_vocab_out(self):
        return self.length + 1

    def sample(self, n, *, generator, split="train"):
        tokens = torch.randint(2, (n, self.length), generator=generator)
        at = torch.arange(self.length)
        lengths = torch.randint(self.shortest, self.length + 1, (n, 1), generator=generator)
        real = at < lengths
        return Batch(
            tokens=tokens.masked_fill(~real, PAD),
            target_positions=at * real,
            labels=tokens.cumsum(1) * real,
            supervised=at < self.length - self.n_unsupervised,
            attention_mask=None if real.all() else real,
            target_mask=None if real.all() else real,
        )


class Junk(Counting):
    """The same with arbitrary positions and labels where a word has no target."""

    def sample(self, n, *, generator, split="train"):
        batch = super().sample(n, generator=generator, split=split)
        junk = torch.Generator().manual_seed(n)
        positions, labels = (
            torch.randint(high, batch.labels.shape, generator=junk) for high in (self.length, self.d_vocab_out)
        )
        return replace(
            batch,
            target_positions=torch.where(batch.present, batch.target_positions, positions),
            labels=torch.where(batch.present, batch.labels, labels),
        )


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
