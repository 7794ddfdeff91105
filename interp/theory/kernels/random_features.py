"""Kernels of infinitely wide networks on strings: random features of a one-layer transformer, and an MLP's kernel.

Axes: `string` and `other` strings, `pos` positions, `draw` random features.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from hooks.checks import check_fields
from hooks.typed import check_field_types
from interp.core.randomness import derived_seed

Activation = Literal["relu", "cosine"]
Strings = Int[Tensor, "string pos"] | Int[np.ndarray, "string pos"]
Others = Int[Tensor, "other pos"] | Int[np.ndarray, "other pos"]
BLOCK = 256
"""Draws per block: memory is this number of floats for every position of every string, and for every token id."""
FEW = 64
"""If at most one pair of strings in 64 has equal tokens, looping over those pairs is faster than a matrix product."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel on strings: K = E[phi(u) phi(v)] for normal u, v whose covariance is `attention`."""

    @property
    def random_draws(self) -> int:
        """Number of random draws that values depend on; 0 if the kernel is exact."""
        return 0

    def attention(self, x: Strings, y: Others | None = None) -> Float[np.ndarray, "string other"]:
        """Covariance of every string in x with every string in y (default: x).

        Raises:
            ValueError: token ids that are not integers from 0, no strings, or strings of different lengths.
        """
        raise NotImplementedError

    def gram(self, x: Strings, y: Others | None = None) -> Float[np.ndarray, "string other"]:
        """Gram matrix: K of every string in x with every string in y (default: x). Raises as `attention` does."""
        between = self.attention(x, y)
        if y is None:
            return self.hidden(between, between.diagonal(), between.diagonal())
        return self.hidden(between, self._diagonal(_ids(x, "x")), self._diagonal(_ids(y, "y")))

    def hidden(
        self,
        between: Float[np.ndarray, "*batch string other"],
        variance: Float[np.ndarray, "*batch string"],
        other_variance: Float[np.ndarray, "*batch other"],
    ) -> Float[np.ndarray, "*batch string other"]:
        """E[phi(u) phi(v)] for normal u, v with covariance `between` and these variances; default: ReLU."""
        return relu_kernel(between, variance, other_variance)

    def _diagonal(self, ids: Int[np.ndarray, "string pos"]) -> Float[np.ndarray, " string"]:
        """`attention` of every string with itself."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class TransformerKernel(Kernel):
    """Kernel of an infinitely wide transformer with one attention layer, of which only the last layer is trained.

    With normal random numbers zeta per token and p per position, s(X) = softmax_i(beta (zeta[x_i] + gamma p_i)) and

        K_attn(X, Y) = E[s(X)^T (X Y^T + gamma^2 I) s(Y)],    K(X, Y) = E[phi(u) phi(v)],

    where (X Y^T)_ij is 1 if x_i = y_j, and (u, v) are normal with covariance K_attn. The first expectation is a mean
    over `n_draws` draws shared by all strings, so a Gram matrix is positive semidefinite up to rounding, and blocks
    computed in separate calls are consistent. The second has a closed form.

    All strings must end in the same token, at which the answer is read, such as the [CLS] of a template task.

    Example:
        >>> import numpy as np
        >>> from interp.theory import TransformerKernel
        >>> TransformerKernel(n_draws=64).gram(np.array([[1, 2, 0], [1, 1, 0]])).shape
        (2, 2)

    Source: template paper (arXiv:2310.09753) Eq. 3 and Claim E.2. Differs: the expectation is a mean over draws, with
    an error proportional to 1 / sqrt(n_draws).

    Raises:
        ValueError: an unknown activation, beta or gamma negative or not finite, b1 that is 0 or not finite, b2 that is
            not finite, or no draws.
    """

    beta: float = 4.0
    """Inverse temperature of attention, at least 0; 0 is uniform attention, which needs no draws."""
    gamma: float = 1.0
    """Scale of the position embedding, at least 0, relative to the token embedding."""
    activation: Activation = "cosine"
    """phi, the activation of the MLP: `relu`, or `cosine` for cos(b1 t + b2)."""
    b1: float = 1.0
    b2: float = 0.5
    n_draws: int = 256
    seed: int = 0
    """Seed of the draws, which depend on nothing else but token id and position."""

    def __post_init__(self):
        check_field_types(self)
        check_fields(self, "beta", "gamma", low=0)
        check_fields(self, "b1", "b2")
        check_fields(self, "n_draws", integer=True, above=0)
        if self.b1 == 0:
            raise ValueError("b1 is 0; choose another number: with b1 = 0 the activation is constant.")

    @property
    def random_draws(self) -> int:
        return self.n_draws if self.beta else 0

    def attention(self, x: Strings, y: Others | None = None) -> Float[np.ndarray, "string other"]:
        """K_attn of every string in x with every string in y (default: x).

        The cost is one matrix product (string, draw) x (draw, other) per position, and one per pair of positions that
        often have the same token.
        """
        x_ids, y_ids = _id_pair(x, y)
        ids = x_ids if y is None else np.concatenate([x_ids, y_ids])
        total = np.zeros((len(x_ids), len(y_ids)))
        for pattern in self._patterns(ids):
            x_pattern = pattern[:, : len(x_ids)]
            y_pattern = pattern[:, -len(y_ids) :]
            # Pairs of positions i of x and j of y contribute where their tokens are equal, and gamma^2 where i is j
            for i, j in product(range(x_ids.shape[1]), repeat=2):
                equal = x_ids[:, i, None] == y_ids[:, j]
                x_index, y_index = equal.nonzero()
                if i == j:
                    total += (equal + self.gamma**2) * (x_pattern[i] @ y_pattern[j].T)
                elif len(x_index) > equal.size / FEW:
                    total += equal * (x_pattern[i] @ y_pattern[j].T)
                else:
                    # Few pairs of strings have equal tokens here: compute only those
                    products = np.einsum("hr,hr->h", x_pattern[i][x_index], y_pattern[j][y_index])
                    total[x_index, y_index] += products
        return total / self.n_draws

    def hidden(
        self,
        between: Float[np.ndarray, "*batch string other"],
        variance: Float[np.ndarray, "*batch string"],
        other_variance: Float[np.ndarray, "*batch other"],
    ) -> Float[np.ndarray, "*batch string other"]:
        if self.activation == "relu":
            return relu_kernel(between, variance, other_variance)
        return cosine_kernel(between, variance, other_variance, b1=self.b1, b2=self.b2)

    def _patterns(self, ids: Int[np.ndarray, "string pos"]) -> Iterator[Float[np.ndarray, "pos string draw"]]:
        """s of every string, one block of draws at a time. Rows of zeta and p do not depend on the number of rows."""
        for first in range(0, self.n_draws, BLOCK):
            # Draws of the embeddings of tokens and positions, then softmax over positions
            zeta = self._normal_draws("token", int(ids.max()) + 1, first)
            p = self._normal_draws("position", ids.shape[1], first)
            scores = self.beta * (zeta[ids.T] + self.gamma * p[:, None])[..., : self.n_draws - first]
            weight = np.exp(scores - scores.max(0))
            yield weight / weight.sum(0)

    def _normal_draws(self, name: str, n_rows: int, first: int) -> Float[np.ndarray, "row draw"]:
        """One block of normal draws, from draw number `first`."""
        return np.random.default_rng(derived_seed(self.seed, name, first)).standard_normal((n_rows, BLOCK))

    def _diagonal(self, ids: Int[np.ndarray, "string pos"]) -> Float[np.ndarray, " string"]:
        equal = (ids[:, :, None] == ids[:, None]) + self.gamma**2 * np.eye(ids.shape[1])
        total = np.zeros(len(ids))
        for pattern in self._patterns(ids):
            total += np.einsum("nij,inr,jnr->n", equal, pattern, pattern, optimize=True)
        return total / self.n_draws

    def __str__(self) -> str:
        phi = "relu" if self.activation == "relu" else f"cos({self.b1:g}t+{self.b2:g})"
        return f"transformer, beta {self.beta:g}, gamma {self.gamma:g}, {phi}"


@dataclass(frozen=True, kw_only=True)
class MLPKernel(Kernel):
    """Kernel of an infinitely wide ReLU network with one hidden layer on concatenated one-hot tokens.

    The inner product of two inputs is the number of positions with equal tokens, and K(X, Y) = E[relu(u) relu(v)] with
    the inner products as covariance. Inputs are not normalised, which would divide K by the length. The kernel
    distinguishes strings over new symbols by their fixed tokens alone; the same is true for every function of inner
    products, and so at every depth. It assumes separate weights for each (position, token): a network whose positions
    share an embedding has another kernel.

    Source: template paper (arXiv:2310.09753), its argument that fully connected networks fail; kernel: Cho & Saul 2009.
    """

    def attention(self, x: Strings, y: Others | None = None) -> Float[np.ndarray, "string other"]:
        """Inner products of the inputs: the number of positions with equal tokens, 0 to pos."""
        x_ids, y_ids = _id_pair(x, y)
        total = np.zeros((len(x_ids), len(y_ids)))
        for position in range(x_ids.shape[1]):
            total += x_ids[:, position, None] == y_ids[:, position]
        return total

    def _diagonal(self, ids: Int[np.ndarray, "string pos"]) -> Float[np.ndarray, " string"]:
        return np.full(len(ids), float(ids.shape[1]))

    def __str__(self) -> str:
        return "MLP, relu"


def relu_kernel(
    between: Float[np.ndarray, "*batch string other"],
    variance: Float[np.ndarray, "*batch string"],
    other_variance: Float[np.ndarray, "*batch other"],
) -> Float[np.ndarray, "*batch string other"]:
    """E[relu(u) relu(v)] for normal u, v with covariance `between` and these variances.

    Source: Cho & Saul 2009, arc-cosine kernel of degree 1. Differs: half of theirs, so that it is the expectation, 1/2
    at variance 1.
    """
    scale = np.sqrt(variance[..., :, None] * other_variance[..., None, :])
    cosine = np.clip(between / scale, -1, 1)
    angle = np.arccos(cosine)
    return scale / (2 * np.pi) * (np.sin(angle) + (np.pi - angle) * cosine)


def cosine_kernel(
    between: Float[np.ndarray, "*batch string other"],
    variance: Float[np.ndarray, "*batch string"],
    other_variance: Float[np.ndarray, "*batch other"],
    *,
    b1: float,
    b2: float,
) -> Float[np.ndarray, "*batch string other"]:
    """E[cos(b1 u + b2) cos(b1 v + b2)] for normal u, v with covariance `between` and these variances.

    Source: template paper (arXiv:2310.09753) Claim E.2.
    """
    total = variance[..., :, None] + other_variance[..., None, :]
    minus = np.exp(-(b1**2) * (total - 2 * between) / 2)
    plus = np.exp(-(b1**2) * (total + 2 * between) / 2)
    return (minus + np.cos(2 * b2) * plus) / 2


def _id_pair(x: Strings, y: Others | None) -> tuple[Int[np.ndarray, "string pos"], Int[np.ndarray, "other pos"]]:
    """Token ids of x and of y (default: x), checked."""
    x_ids = _ids(x, "x")
    if y is None:
        return x_ids, x_ids
    return x_ids, _ids(y, "y", pos=x_ids.shape[1])


def _ids(tokens: Strings, name: str, *, pos: int | None = None) -> Int[np.ndarray, "string pos"]:
    ids = np.asarray(tokens)
    if ids.ndim != 2 or not ids.size or ids.dtype.kind not in "iu" or ids.min() < 0:
        least = f", least {ids.min()}" if ids.size else ""
        raise ValueError(
            f"{name} has shape {ids.shape} and dtype {ids.dtype}{least}; give token ids, integers from 0, of shape "
            f"(string, pos), such as a batch's tokens."
        )
    if pos is not None and ids.shape[1] != pos:
        raise ValueError(f"{name} has strings of {ids.shape[1]} tokens, x of {pos}; lengths must be equal.")
    return np.ascontiguousarray(ids, dtype=np.int64)  # the memory order would change the order of sums
