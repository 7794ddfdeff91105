"""How strong are the diagonals of W_Q W_K^T and W_V W_O, beside random matrices of the same spectrum?"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformer_lens import TransformerBridge

from hooks import BridgeModel
from interp.core.randomness import derived_seed
from interp.core.statistics import holm
from interp.core.verbs import prepare_model
from interp.heads.diagonals_result import MATRICES, DiagonalsResult

ALPHA = 0.01
ENTRIES_AT_ONCE = 1 << 17
"""Entries of the random frames that are held at the same time: few enough for the cache of a core."""


@torch.no_grad()
def diagonals(model: Any, *, n_null: int = 200, seed: int = 0) -> DiagonalsResult:
    """How near each head's W_Q W_K^T and W_V W_O, both (d_model, d_model), are to a multiple of the identity.

    The cosine of a matrix M with the identity is trace(M) / (|M|_F sqrt(d_model)): about 0 if M has nothing to do with
    it, at most sqrt(d_head / d_model) for a head, whose matrices have rank d_head.

    The null keeps a head's singular values S and draws its directions: U S V^T with random orthonormal frames U and V.
    The cosine then has mean 0 and standard deviation 1 / d_model whatever S is, so z is the cosine times d_model. p is
    the upper tail, for the claim is of strong positive diagonals; a strong negative one has p near 1. The same frames
    serve every head: each p is what it would be with frames of its own, and Holm's correction holds for p values that
    depend on one another.

    Args:
        model: Anything with TransformerLens's names: `cfg.n_layers`, `cfg.n_heads`, `cfg.attn_scale`, and in
            `blocks[layer].attn` W_Q, W_K, W_V (head, d_model, d_head) and W_O (head, d_head, d_model). It is not
            changed. A head whose pattern is hard-coded has no W_Q W_K^T: every figure of it is not a number.
        n_null: Random matrices per head and matrix. Each p is from all of them together, and so can be as small as
            1 / n_null after the correction, however many heads there are.
        seed: Decides the random matrices.

    Raises:
        ValueError: a model without these weights or with some that are not finite, or no random matrices.

    Source: template paper (arXiv:2310.09753) Figure 7, diagonals of W_K W_Q^T (the transpose of ours) and of W_V W_O^T
    (ours, in TransformerLens's axes); biases and the norm's gain are left aside. a_h I and b_h I as in its released
    model. Differs: there one looks at the matrices; the cosine, its null and p are ours.
    """
    if n_null < 1:
        raise ValueError(f"n_null is {n_null}; at least 1 random matrix per head and matrix is needed.")
    if isinstance(model, BridgeModel | TransformerBridge):
        model = prepare_model(model, "diagonals")
    _check(model)
    heads = _heads(model)
    d_model, rank = heads.diagonal.shape[-1], heads.spectrum.shape[-1]
    shifted = heads.diagonal + heads.scalar[..., None]
    cosine = _cosine(heads.diagonal, heads.off_square)
    n, p = n_null * int(heads.present.sum()), np.full(heads.present.shape, np.nan)
    p_holm, present = p.copy(), heads.present.numpy()
    p[present] = _upper_tail(heads, n, seed)
    p_holm[present] = holm(p[present])

    def shown(values: Tensor) -> Float[np.ndarray, "layer head matrix"]:
        return values.masked_fill(~heads.present, torch.nan).numpy()

    return DiagonalsResult(
        cosine=shown(cosine),
        z=shown(cosine * d_model),
        p=p,
        p_holm=p_holm,
        ratio=shown(_over(heads.diagonal.mean(-1), heads.off_sd)),
        mean_diagonal=shown(heads.diagonal.mean(-1)),
        scalar=shown(heads.scalar),
        cosine_with_scalar=shown(_cosine(shifted, heads.off_square)),
        ratio_with_scalar=shown(_over(shifted.mean(-1), heads.off_sd)),
        null_sd=1 / d_model,
        largest=(rank / d_model) ** 0.5,
        alpha=ALPHA,
        n=n,
    )


@dataclass(frozen=True)
class _Heads:
    """What is asked of every head's matrices W_Q W_K^T / attn_scale and W_V W_O, those that a_h I and b_h I join."""

    spectrum: Float[Tensor, "layer head matrix rank"]
    """Singular values."""
    diagonal: Float[Tensor, "layer head matrix d_model"]
    total: Float[Tensor, "layer head matrix"]
    """Sum of all entries."""
    scalar: Float[Tensor, "layer head matrix"]
    """a_h and b_h; 0 in a model without."""
    present: Bool[Tensor, "layer head matrix"]

    @property
    def off_square(self) -> Float[Tensor, "layer head matrix"]:
        """Sum of the squares of all entries beside the diagonal."""
        return (self.spectrum.square().sum(-1) - self.diagonal.square().sum(-1)).clamp_min(0)

    @property
    def off_sd(self) -> Float[Tensor, "layer head matrix"]:
        """Standard deviation of those entries."""
        d_model = self.diagonal.shape[-1]
        n = max(1, d_model * (d_model - 1))
        mean = (self.total - self.diagonal.sum(-1)) / n
        return (self.off_square / n - mean.square()).clamp_min(0).sqrt()


def _heads(model: Any) -> _Heads:
    spectrum, diagonal, total = [], [], []
    for layer in range(model.cfg.n_layers):
        left, right = _factors(model, layer)  # M = left right^T is never formed
        spectrum.append(torch.linalg.svdvals(torch.linalg.qr(left, mode="r").R @ torch.linalg.qr(right, mode="r").R.mT))
        diagonal.append((left * right).sum(-1))
        total.append((left.sum(-2) * right.sum(-2)).sum(-1))
    present = torch.ones(model.cfg.n_layers, model.cfg.n_heads, len(MATRICES), dtype=torch.bool)
    scalar = torch.zeros(present.shape, dtype=torch.float64)
    for layer in range(model.cfg.n_layers):
        present[layer, :, 0] = torch.tensor(_learned(model, layer))
        attention = model.block(layer).attention if hasattr(model, "block") else None
        for matrix, name in enumerate(("a", "b")):
            if getattr(attention, name, None) is not None:
                scalar[layer, :, matrix] = getattr(attention, name).double()
    return _Heads(torch.stack(spectrum), torch.stack(diagonal), torch.stack(total), scalar, present)


def _factors(
    model: Any, layer: int
) -> tuple[Float[Tensor, "head matrix d_model d_head"], Float[Tensor, "head matrix d_model d_head"]]:
    attn = model.blocks[layer].attn
    value, output = attn.W_V.double().cpu(), attn.W_O.double().cpu().mT
    query = key = torch.zeros_like(value)
    if any(_learned(model, layer)):
        query, key = attn.W_Q.double().cpu() / _scale(model.cfg, value.shape[-1]), attn.W_K.double().cpu()
    return torch.stack([query, value], 1), torch.stack([key, output], 1)


def _scale(cfg: Any, d_head: int) -> float:
    """What scores are divided by. TransformerLens writes -1 for sqrt(d_head), and has a switch."""
    if not getattr(cfg, "use_attn_scale", True):
        return 1.0
    return cfg.attn_scale if cfg.attn_scale > 0 else d_head**0.5


def _learned(model: Any, layer: int) -> list[bool]:
    """Which heads have queries and keys that do something."""
    patterns = model.cfg.patterns_of(layer) if hasattr(model.cfg, "patterns_of") else ()
    return [pattern.learned for pattern in patterns] or [True] * model.cfg.n_heads


def _cosine(diagonal: Float[Tensor, "*heads d_model"], off_square: Float[Tensor, "*heads"]) -> Float[Tensor, "*heads"]:
    """Cosine with the identity, from the diagonal and the sum of squares beside it; 0 for a matrix of zeros."""
    norm = (off_square + diagonal.square().sum(-1)).sqrt()
    return _over(diagonal.sum(-1), norm * diagonal.shape[-1] ** 0.5)


def _over(a: Float[Tensor, "*heads"], b: Float[Tensor, "*heads"]) -> Float[Tensor, "*heads"]:
    return torch.where(a == 0, 0.0, a / b)


def _upper_tail(heads: _Heads, n: int, seed: int) -> Float[np.ndarray, " cell"]:
    """p of every matrix there is: the share of n random ones of its spectrum with as large a trace, itself counted.

    trace(U S V^T) is sum_i s_i <u_i, v_i>. Turning both frames alike changes nothing, so U may be the first axes and
    what is needed of V is its diagonal, the same for every S.
    """
    rng = np.random.default_rng(derived_seed(seed, "diagonals"))
    trace, spectrum = heads.diagonal.sum(-1)[heads.present], heads.spectrum[heads.present]
    rank, d_model = spectrum.shape[-1], heads.diagonal.shape[-1]
    as_large, at_once = torch.zeros(len(trace), dtype=torch.long), max(1, ENTRIES_AT_ONCE // rank**2)
    for start in range(0, n, at_once):
        drawn = _frame_diagonals(min(at_once, n - start), d_model, rank, rng) @ spectrum.T
        as_large += (drawn >= trace).sum(0)
    return (1 + as_large.numpy()) / (1 + n)


def _frame_diagonals(n: int, d_model: int, rank: int, rng: np.random.Generator) -> Float[Tensor, "draw rank"]:
    """Diagonals of random (d_model, rank) matrices with orthonormal columns, uniform over all of them.

    Such a matrix is G R^-1 for a Gaussian G = Q R with a positive diagonal of R. Only the first `rank` rows of G are
    drawn. Of the others only their product with themselves matters, a Wishart matrix T^T T whose triangular T has
    normal entries over chi distributed ones (Bartlett 1933).
    """
    top, rows = torch.from_numpy(rng.standard_normal((n, rank, rank))), min(rank, d_model - rank)
    rest = torch.from_numpy(rng.standard_normal((n, rows, rank))).triu(1)
    chi = np.sqrt(rng.chisquare(d_model - rank - np.arange(rows), size=(n, rows)))
    rest.diagonal(dim1=1, dim2=2).copy_(torch.from_numpy(chi))
    root = torch.linalg.cholesky(top.mT @ top + rest.mT @ rest, upper=True)
    return torch.linalg.solve_triangular(root, top, upper=True, left=False).diagonal(dim1=1, dim2=2)


def _check(model: Any) -> None:
    if not hasattr(model, "blocks") or not hasattr(getattr(model, "cfg", None), "n_heads"):
        raise ValueError(
            f"model is {type(model).__name__}, without blocks and cfg; give a hooks.Transformer or its like."
        )
    for layer in range(model.cfg.n_layers):
        for name in ("W_Q", "W_K", "W_V", "W_O") if any(_learned(model, layer)) else ("W_V", "W_O"):
            weight = getattr(getattr(model.blocks[layer], "attn", None), name, None)
            if weight is None or weight.ndim != 3 or len(weight) != model.cfg.n_heads:
                found = "missing" if weight is None else tuple(weight.shape)
                raise ValueError(
                    f"{name} of layer {layer} is {found}; needed is one matrix for each of {model.cfg.n_heads} heads, "
                    f"as blocks[{layer}].attn.{name} of TransformerLens."
                )
            if not weight.isfinite().all():
                raise ValueError(f"{name} of layer {layer} has values that are not finite; did training diverge?")
