"""Independent random streams derived from one seed and a name, so that a resumed run needs no generator state."""

import hashlib

import torch


def derived_seed(seed: int, *names: str | int) -> int:
    """The 63-bit seed of a named stream, the same on every machine."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def derived_generator(seed: int, *names: str | int) -> torch.Generator:
    """A CPU generator of a named stream."""
    return torch.Generator().manual_seed(derived_seed(seed, *names))
