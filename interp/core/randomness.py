"""Independent random streams derived from one seed and a name, so that a resumed run needs no generator state."""

import torch

from hooks.randomness import derived_seed


def derived_generator(seed: int, *names: str | int) -> torch.Generator:
    """A CPU generator of a named stream."""
    return torch.Generator().manual_seed(derived_seed(seed, *names))
