"""Independent random streams derived from one seed and a name, so that a resumed run needs no generator state.

The global generators of Python, NumPy and torch are the caller's.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derived_seed(seed: int, *names: str | int) -> int:
    """The 63-bit seed of a named stream, the same on every machine."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def derived_generator(seed: int, *names: str | int) -> torch.Generator:
    """A CPU generator of a named stream."""
    return torch.Generator().manual_seed(derived_seed(seed, *names))


@contextmanager
def global_generators_restored() -> Iterator[None]:
    """Restore the state of the global generators of Python, NumPy and torch (CPU) after a `with` block.

    Some packages draw from them when they are imported, such as rich and jax.

    >>> import random
    >>> state = random.getstate()
    >>> with global_generators_restored():
    ...     number = random.random()
    >>> random.getstate() == state
    True
    """
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002  # the caller's
    torch_state = torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        torch.set_rng_state(torch_state)
