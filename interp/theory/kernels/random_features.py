"""What do infinitely wide nets take two strings for? Kernels of a transformer with one attention layer, and of an MLP.

Axes: `string` and `other` strings, `pos` positions, `draw` random features.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.randomness import derived_seed

Activation = Literal["relu", "cosine"]
Strings = Int[Tensor, "string pos"] | Int[np.ndarray, "string pos"]
Others = Int[Tensor, "other pos"] | Int[np.ndarray, "other pos"]
BLOCK = 256
"""Draws at a time: memory is that many numbers for every position of every string, and for every token id."""
FEW = 64
"""One pair of strings in so many is few: then it is faster to visit them than to multiply matrices."""


@dataclass(frozen=True, kw_only=True)
class TransformerKernel:
    """Similarity of strings to an infinitely wide transformer of which only the last layer is trained.

    With one normal number zeta per token and one p per position, s(X) = softmax_i(beta (zeta[x_i] + gamma p_i)) and

        K_attn(X, Y) = E[s(X)^T (X Y^T + gamma^2 I) s(Y)],    K(X, Y) = E[phi(u) phi(v)],

    (X Y^T)_ij being 1 where x_i = y_j, and (u, v) normal with covariance K_attn. The first mean is over `n_draws`
    draws, which all strings share: a Gram matrix has no negative eigenvalue beyond rounding, and blocks of it fit
    together, whichever strings are asked about at a time. The second has a closed form.

    All strings must end in the same token, from which the answer is read, as a template task's do ([CLS]).

    Source: template paper (arXiv:2310.09753) Eq. 3 and Claim E.2. Differs: a mean over draws takes the place of the
    expectation; its error falls as one over the root of `n_draws`.

    Raises:
        ValueError: an unknown activation, beta or gamma negative or not finite, b1 that is 0 or not finite, b2 that is
            not finite, or no draws.
    """

    beta: float = 4.0
    """Inverse temperature of attention, 0 or more; 0 is uniform attention, which needs no draws."""
    gamma: float = 1.0
    """Size of the position embedding, 0 or more; that of a token has size 1."""
    activation: Activation = "cosine"
    """phi of the MLP: `relu`, or `cosine` for cos(b1 t + b2)."""
    b1: float = 1.0
    b2: float = 0.5
    n_draws: int = 256
    seed: int = 0
    """Decides the draws, together with token id and position: what else is in a call changes nothing."""

    def __post_init__(self):
        if self.activation not in get_args(Activation):
            raise ValueError(f"activation is {self.activation!r}; choose one of {', '.join(get_args(Activation))}.")
        for name in ("beta", "gamma"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; choose a number, 0 or more.")
        if not np.isfinite([self.b1, self.b2]).all() or self.b1 == 0:
            raise ValueError(
                f"b1 is {self.b1} and b2 {self.b2}; choose numbers, b1 not 0: cos(b2) tells nothing apart."
            )
        if self.n_draws < 1:
            raise ValueError(f"n_draws is {self.n_draws}; choose 1 or more.")

    @property
    def random_draws(self) -> int:
        """Draws that values depend on: none where attention is uniform."""
        return self.n_draws if self.beta else 0

    def attention(self, x: Strings, y: Others | None = None) -> Float[np.ndarray, "string other"]:
        """K_attn of every string in x with every string in y; with those in x where y is left out.

        Time is that of a product (string, draw) x (draw, other) for every position, and one more for every two
        positions that often hold the same token.

        Raises:
            ValueError: token ids that are not whole numbers from 0, no strings, or strings of different lengths.
        """
        left = _ids(x, "x")
        right = left if y is None else _ids(y, "y", pos=left.shape[1])
        total = np.zeros((len(left), len(right)))
        for s in self._patterns(left if y is None else np.concatenate([left, right])):
            a, b = s[:, : len(left)], s[:, -len(right) :]
            for i, j in product(range(left.shape[1]), repeat=2):
                equal = left[:, i, None] == right[:, j]
                few = equal.nonzero()
                if i == j:
                    total += (equal + self.gamma**2) * (a[i] @ b[j].T)
                elif len(few[0]) > equal.size / FEW:
                    total += equal * (a[i] @ b[j].T)
                else:
                    total[few] += np.einsum("hr,hr->h", a[i][few[0]], b[j][few[1]])
        return total / self.n_draws

    def gram(self, x: Strings, y: Others | None = None) -> Float[np.ndarray, "string other"]:
        """K of every string in x with every string in y; with those in x where y is left out.

        Raises:
            ValueError: as `attention`.
        """
        between = self.attention(x, y)
        if y is None:
            return self.hidden(between, between.diagonal(), between.diagonal())
        return self.hidden(between, self._diagonal(_ids(x, "x")), self._diagonal(_ids(y, "y")))

    def hidden(
        self,
        between: Float[np.ndarray, "*batch string other"],
        own: Float[np.ndarray, "*batch string"],
        other: Float[np.ndarray, "*batch other"],
    ) -> Float[np.ndarray, "*batch string other"]:
        """E[phi(u) phi(v)] for normal u, v with that covariance and those variances."""
        if self.activation == "relu":
            return relu_kernel(between, own, other)
        return cosine_kernel(between, own, other, b1=self.b1, b2=self.b2)

    def _patterns(self, ids: Int[np.ndarray, "string pos"]) -> Iterator[Float[np.ndarray, "pos string draw"]]:
        """s of every string, a block of draws at a time; a row of zeta or p does not depend on how many there are."""
        for first in range(0, self.n_draws, BLOCK):
            zeta, p = (
                np.random.default_rng(derived_seed(self.seed, name, first)).standard_normal((rows, BLOCK))
                for name, rows in (("token", int(ids.max()) + 1), ("position", ids.shape[1]))
            )
            scores = self.beta * (zeta[ids.T] + self.gamma * p[:, None])[..., : self.n_draws - first]
            weight = np.exp(scores - scores.max(0))
            yield weight / weight.sum(0)

    def _diagonal(self, ids: Int[np.ndarray, "string pos"]) -> Float[np.ndarray, " string"]:
        """K_attn of every string with itself."""
        equal = (ids[:, :, None] == ids[:, None]) + self.gamma**2 * np.eye(ids.shape[1])
        total = np.zeros(len(ids))
        for s in self._patterns(ids):
            total += np.einsum("nij,inr,jnr->n", equal, s, s, optimize=True)
        return total / self.n_draws

    def __str__(self) -> str:
        phi = "relu" if self.activation == "relu" else f"cos({self.b1:g}t+{self.b2:g})"
        return f"transformer, beta {self.beta:g}, gamma {self.gamma:g}, {phi}"


@dataclass(frozen=True, kw_only=True)
class MLPKernel:
    """Similarity of strings to an infinitely wide ReLU net with one hidden layer on concatenated one-hot tokens.

    The inner product of two inputs is the number of positions with equal tokens, and
    K(X, Y) = E[relu(u) relu(v)] with it as covariance. Inputs are not normalised: that would divide K by the length.
    Strings over new symbols differ to it in fixed tokens alone, and that holds for every function of inner products, so
    for every depth. It needs weights of their own for each (position, token): a net whose positions share an embedding
    is another matter.

    Source: template paper (arXiv:2310.09753), its argument that fully connected nets fail; kernel: Cho & Saul 2009.
    """

    @property
    def random_draws(self) -> int:
        """None: it is exact."""
        return 0

    def attention(self, x: Strings, y: Others | None = None) -> Float[np.ndarray, "string other"]:
        """What takes attention's place: positions at which the tokens are equal, as a number from 0 to pos.

        Raises:
            ValueError: as `TransformerKernel.attention`.
        """
        left = _ids(x, "x")
        right = left if y is None else _ids(y, "y", pos=left.shape[1])
        total = np.zeros((len(left), len(right)))
        for i in range(left.shape[1]):
            total += left[:, i, None] == right[:, i]
        return total

    def gram(self, x: Strings, y: Others | None = None) -> Float[np.ndarray, "string other"]:
        """K of every string in x with every string in y; with those in x where y is left out.

        Raises:
            ValueError: as `TransformerKernel.attention`.
        """
        between = self.attention(x, y)
        own, other = (np.full(size, float(x.shape[1])) for size in between.shape)
        return self.hidden(between, own, other)

    def hidden(
        self,
        between: Float[np.ndarray, "*batch string other"],
        own: Float[np.ndarray, "*batch string"],
        other: Float[np.ndarray, "*batch other"],
    ) -> Float[np.ndarray, "*batch string other"]:
        """E[relu(u) relu(v)] for normal u, v with that covariance and those variances."""
        return relu_kernel(between, own, other)

    def __str__(self) -> str:
        return "MLP, relu"


Kernel = TransformerKernel | MLPKernel


def relu_kernel(
    between: Float[np.ndarray, "*batch string other"],
    own: Float[np.ndarray, "*batch string"],
    other: Float[np.ndarray, "*batch other"],
) -> Float[np.ndarray, "*batch string other"]:
    """E[relu(u) relu(v)] for normal u, v with covariance `between` and variances `own` and `other`.

    Source: Cho & Saul 2009, arc-cosine kernel of degree 1. Differs: half of theirs, so that it is the mean itself and
    a variance of 1 gives 1/2.
    """
    scale = np.sqrt(own[..., :, None] * other[..., None, :])
    cosine = np.clip(between / scale, -1, 1)
    angle = np.arccos(cosine)
    return scale / (2 * np.pi) * (np.sin(angle) + (np.pi - angle) * cosine)


def cosine_kernel(
    between: Float[np.ndarray, "*batch string other"],
    own: Float[np.ndarray, "*batch string"],
    other: Float[np.ndarray, "*batch other"],
    *,
    b1: float,
    b2: float,
) -> Float[np.ndarray, "*batch string other"]:
    """E[cos(b1 u + b2) cos(b1 v + b2)] for normal u, v with covariance `between` and variances `own` and `other`.

    Source: template paper (arXiv:2310.09753) Claim E.2.
    """
    total = own[..., :, None] + other[..., None, :]
    minus, plus = (np.exp(-(b1**2) * (total + sign * 2 * between) / 2) for sign in (-1, 1))
    return (minus + np.cos(2 * b2) * plus) / 2


def _ids(tokens: Strings, name: str, *, pos: int | None = None) -> Int[np.ndarray, "string pos"]:
    ids = np.asarray(tokens)
    if ids.ndim != 2 or not ids.size or ids.dtype.kind not in "iu" or ids.min() < 0:
        least = f", least {ids.min()}" if ids.size else ""
        raise ValueError(
            f"{name} has shape {ids.shape} and numbers of type {ids.dtype}{least}; give token ids, whole numbers from "
            f"0, as (string, pos), such as a batch's tokens."
        )
    if pos is not None and ids.shape[1] != pos:
        raise ValueError(f"{name} has strings of {ids.shape[1]} tokens, x of {pos}; the kernel compares equal lengths.")
    return ids
