"""In-context lookup for tests: pairs of a key and a value, then the keys in another order, for their values."""

from dataclasses import dataclass

import torch

from interp.tasks import Batch, Task, Vocab


@dataclass(frozen=True, kw_only=True)
class Pairs(Task):
    n_pairs: int = 3
    n_symbols: int = 8
    attention = "causal"
    disjoint_splits = False

    @property
    def targets(self):
        return tuple(f"query {index + 1}" for index in range(self.n_pairs))

    @property
    def vocab(self):
        return Vocab([*map(str, range(self.n_symbols)), *"abcdefghijklmnop"[: self.n_symbols]])

    def sample(self, n, *, generator, split="train"):
        keys = self.n_symbols + torch.rand(n, self.n_symbols, generator=generator).argsort(1)[:, : self.n_pairs]
        values = torch.randint(self.n_symbols, (n, self.n_pairs), generator=generator)
        order = torch.rand(n, self.n_pairs, generator=generator).argsort(1)
        return Batch(
            tokens=torch.cat([torch.stack([keys, values], 2).flatten(1), keys.gather(1, order)], 1),
            target_positions=torch.arange(2 * self.n_pairs, 3 * self.n_pairs).expand(n, -1).clone(),
            labels=values.gather(1, order),
            supervised=torch.ones(self.n_pairs, dtype=torch.bool),
        )
