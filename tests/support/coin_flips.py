"""A task whose answers depend on nothing."""

from dataclasses import dataclass, replace

import torch

from interp.tasks import Lego


@dataclass(frozen=True, kw_only=True)
class CoinFlips(Lego):
    """LEGO sentences whose answers are drawn, whatever the sentence is."""

    first: float
    """Share of the first answer."""

    def sample(self, n, *, generator, split="train"):
        batch = super().sample(n, generator=generator, split=split)
        flips = torch.rand(batch.labels.shape, generator=generator) > self.first
        return replace(batch, labels=flips.long())
