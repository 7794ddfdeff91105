"""One seed, many independent streams: every draw is named by what it is for, so a resumed run needs no history."""

import hashlib

import torch


def derived_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream of that name, the same on every machine."""
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def derived_generator(seed: int, *names: str | int) -> torch.Generator:
    """A CPU generator for the stream of that name."""
    return torch.Generator().manual_seed(derived_seed(seed, *names))
