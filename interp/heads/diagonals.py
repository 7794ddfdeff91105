"""Identity components of W_Q W_K^T and W_V W_O, compared with random matrices of the same spectrum."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks import BridgeModel
from hooks.adapters.bridge.adapter import TransformerBridge
from hooks.adapters.bridge.weights import attention_scale
from hooks.model.baseline import Baseline
from hooks.state import restores_state
from hooks.typed import COUNT, MAY_BE_INFINITE, MAY_BE_MISSING, ROUNDING, SHARE, SIZE, checks_types
from interp.core.consistency import check_that
from interp.core.randomness import derived_seed
from interp.core.results import Result
from interp.core.statistics import holm
from interp.core.verbs import Needs, prepare_model

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

ALPHA = 0.01
ENTRIES_AT_ONCE = 1 << 17
"""Entries of the random frames in memory at the same time, few enough for the cache of a core."""


MATRICES = ("W_Q W_K^T", "W_V W_O")
SCALARS = ("a I", "b I")
"""Scaled identity that a model may add to each matrix."""


@dataclass(frozen=True, kw_only=True)
class DiagonalsResult(Result):
    """Diagonals of every head's W_Q W_K^T and W_V W_O, in that order on axis `matrix`.

    A head with a hard-coded pattern has no W_Q W_K^T: its values there are nan.
    """

    cosine: Annotated[Float[np.ndarray, "layer head matrix"], MAY_BE_MISSING]
    """Cosine of the matrix with the identity: trace / (norm sqrt(d_model))."""
    z: Annotated[Float[np.ndarray, "layer head matrix"], MAY_BE_INFINITE]
    """The cosine in standard deviations of the null, whose mean is 0."""
    p: Annotated[Float[np.ndarray, "layer head matrix"], SHARE, MAY_BE_MISSING]
    """Probability of a cosine at least as large for random directions with the same singular values."""
    p_holm: Annotated[Float[np.ndarray, "layer head matrix"], SHARE, MAY_BE_MISSING]
    """p corrected for all heads and matrices (Holm)."""
    ratio: Annotated[Float[np.ndarray, "layer head matrix"], MAY_BE_INFINITE]
    """Mean of the diagonal over the standard deviation of all other entries: the contrast in a picture of it."""
    mean_diagonal: Annotated[Float[np.ndarray, "layer head matrix"], MAY_BE_INFINITE]
    """Mean of the diagonal in units of a_h and b_h (W_Q W_K^T is divided by the attention scale)."""
    scalar: Annotated[Float[np.ndarray, "layer head matrix"], MAY_BE_MISSING]
    """a_h and b_h, which the model adds to the diagonal; 0 if it has none."""
    cosine_with_scalar: Annotated[Float[np.ndarray, "layer head matrix"], MAY_BE_MISSING]
    """Cosine of the matrix with a_h I or b_h I added; it has no null."""
    ratio_with_scalar: Annotated[Float[np.ndarray, "layer head matrix"], MAY_BE_INFINITE]
    null_sd: Annotated[float, SIZE]
    """Standard deviation of the cosine under the null: 1 / d_model for every spectrum."""
    largest: Annotated[float, SIZE]
    """Largest possible cosine of a matrix of rank d_head."""
    alpha: Annotated[float, SHARE]
    """Level of the Holm correction."""
    n: Annotated[int, COUNT]
    """Random matrices behind each p."""

    def __post_init__(self) -> None:
        super().__post_init__()
        n_matrices = self.cosine.shape[2]
        check_that(n_matrices == len(MATRICES), f"cosine has {n_matrices} matrices; there are {len(MATRICES)}.")
        check_that(not (self.p_holm < self.p - ROUNDING).any(), "p_holm is below p, which it corrects.")

    def heads(self, matrix: int) -> tuple[tuple[int, int], ...]:
        """(layer, head) where the diagonal of W_Q W_K^T (0) or W_V W_O (1) is strong: p_holm at most alpha."""
        layer, head = np.nonzero(self.p_holm[:, :, matrix] <= self.alpha)
        return tuple(zip(layer.tolist(), head.tolist(), strict=True))

    @property
    def _added(self) -> list[int]:
        """The matrices that the model adds a nonzero scaled identity to."""
        return [matrix for matrix in range(len(MATRICES)) if np.nan_to_num(self.scalar[:, :, matrix]).any()]

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per head and matrix."""
        n_layers, n_heads, _ = self.cosine.shape
        axes = {"layer": range(n_layers), "head": range(n_heads), "matrix": MATRICES}
        names = ("cosine", "z", "p", "p_holm", "ratio", "mean_diagonal", "scalar")
        return self._table(axes, *names, "cosine_with_scalar", "ratio_with_scalar", n=self.n)

    def plot(self) -> "alt.TopLevelMixin":
        """Layer x head maps of the cosine of each matrix; below them, those with a_h I or b_h I, if there are any."""
        from interp.view.charts import head_maps

        def maps(panels: dict[str, np.ndarray], title: str, lowest: float, highest: float) -> Any:
            values = np.stack(list(panels.values()))
            domain = (min(lowest, float(np.nanmin(values))), max(highest, float(np.nanmax(values))))
            return head_maps(panels, title=title, value="cosine", domain=domain)

        panels = {
            f"{name}: {len(self.heads(matrix))} strong": self.cosine[:, :, matrix]
            for matrix, name in enumerate(MATRICES)
        }
        null = f"random directions 0 ± {self.null_sd:.2g}, largest possible {self.largest:.2f}"
        chart = maps(panels, f"cosine with the identity; {null}", 0.0, self.largest)
        added = {
            f"{MATRICES[matrix]} + {SCALARS[matrix]}": self.cosine_with_scalar[:, :, matrix] for matrix in self._added
        }
        if not added:
            return chart
        return (chart & maps(added, "with the scaled identity that the model adds", -1.0, 1.0)).resolve_scale(
            color="independent"
        )

    def __str__(self) -> str:
        lines = [f"{'layer':<7}{'matrix':<11}{'strong':<10}{'largest cosine':<17}{'z':>7}{'ratio':>8}"]
        lines[0] += f"   largest with {', '.join(SCALARS[matrix] for matrix in self._added)}" if self._added else ""
        for layer, matrix in np.ndindex(self.cosine.shape[0], len(MATRICES)):
            values, line = self.cosine[layer, :, matrix], f"{layer:<7}{MATRICES[matrix]:<11}"
            if np.isnan(values).all():
                lines.append(line + "hard-coded")
                continue
            best = int(np.nanargmax(values))
            cell = (layer, best, matrix)
            strong = f"{int((self.p_holm[layer, :, matrix] <= self.alpha).sum())} of {np.isfinite(values).sum()}"
            line += (
                f"{strong:<10}{values[best]:<6.3f}{f'(head {best})':<11}{self.z[cell]:>7.1f}{self.ratio[cell]:>8.2f}"
            )
            if matrix in self._added:
                together = self.cosine_with_scalar[layer, :, matrix]
                most = int(np.nanargmax(np.abs(together)))
                line += f"   {together[most]:.3f} (head {most}, {self.scalar[layer, most, matrix]:+.3g} I)"
            lines.append(line)
        foot = f"random directions: cosine 0 ± {self.null_sd:.2g}, p from {self.n}, upper tail, Holm at {self.alpha}"
        return "\n".join([*lines, foot])


NEEDS = Needs("diagonals", reads=["attn.W_Q", "attn.W_K", "attn.W_V", "attn.W_O"])


@checks_types
@restores_state
@torch.no_grad()
def diagonals(model: Any, *, n_null: int = 200, seed: int = 0) -> DiagonalsResult:
    """Cosine of each head's W_Q W_K^T and W_V W_O, both (d_model, d_model), with the identity.

    The cosine of a matrix M with the identity is trace(M) / (|M|_F sqrt(d_model)): about 0 if M is unrelated to the
    identity, at most sqrt(d_head / d_model) for a head, whose matrices have rank d_head.

    The null keeps the singular values S of a head and draws its directions: U S V^T with random orthonormal frames U
    and V. The cosine then has mean 0 and standard deviation 1 / d_model for every S, so z is the cosine times d_model.
    p is the upper tail, since strong positive diagonals are tested; a strong negative one has p near 1. All heads share
    the same frames: this does not change the distribution of any p, and Holm's correction allows dependent p values.

    Args:
        model: Any model with TransformerLens's names: `cfg.n_layers`, `cfg.n_heads`, `cfg.attn_scale`, and in
            `blocks[layer].attn` W_Q, W_K, W_V (head, d_model, d_head) and W_O (head, d_head, d_model). It is not
            changed. A head with a hard-coded pattern has no W_Q W_K^T: its values there are nan.
        n_null: Random matrices per head and matrix. Every p uses all of them together, so that it can be as small as
            1 / n_null after the correction for any number of heads.
        seed: Determines the random matrices.

    Raises:
        ValueError: a model without these weights or with values that are not finite, or no random matrices.

    Example:
        >>> import interp
        >>> from hooks import Transformer
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16), seed=0)
        >>> interp.diagonals(model).heads(0)  # none of a model that is not trained
        ()

    Source: template paper (arXiv:2310.09753) Figure 7, diagonals of W_K W_Q^T (the transpose of ours) and of W_V W_O^T
    (ours, in TransformerLens's axes), without biases and the gain of the norm; a_h I and b_h I as in its released
    model. Differs: the paper shows the matrices; the cosine, its null and p are ours.
    """
    if n_null < 1:
        raise ValueError(f"n_null is {n_null}; at least 1 random matrix per head and matrix is needed.")
    if isinstance(model, BridgeModel | TransformerBridge | Baseline):
        model = prepare_model(model, NEEDS)
    _check(model)
    heads = _heads(model)
    d_model, rank = heads.diagonal.shape[-1], heads.spectrum.shape[-1]
    # Cosines, also those with the scaled identity that the model adds.
    shifted = heads.diagonal + heads.scalar[..., None]
    cosine = _cosine(heads.diagonal, heads.off_square)
    # p values of the matrices that exist.
    n = n_null * int(heads.present.sum())
    present = heads.present.numpy()
    p = np.full(present.shape, np.nan)
    p_holm = p.copy()
    p[present] = _upper_tail(heads, n, seed)
    p_holm[present] = holm(p[present])

    def masked(values: Tensor) -> Float[np.ndarray, "layer head matrix"]:
        return values.masked_fill(~heads.present, torch.nan).numpy()

    return DiagonalsResult(
        cosine=masked(cosine),
        z=masked(cosine * d_model),
        p=p,
        p_holm=p_holm,
        ratio=masked(_over(heads.diagonal.mean(-1), heads.off_sd)),
        mean_diagonal=masked(heads.diagonal.mean(-1)),
        scalar=masked(heads.scalar),
        cosine_with_scalar=masked(_cosine(shifted, heads.off_square)),
        ratio_with_scalar=masked(_over(shifted.mean(-1), heads.off_sd)),
        null_sd=1 / d_model,
        largest=(rank / d_model) ** 0.5,
        alpha=ALPHA,
        n=n,
    )


@dataclass(frozen=True)
class _Heads:
    """Spectra and diagonals of W_Q W_K^T / attn_scale and W_V W_O, to which a_h I and b_h I are added."""

    spectrum: Float[Tensor, "layer head matrix rank"]
    """Singular values."""
    diagonal: Float[Tensor, "layer head matrix d_model"]
    total: Float[Tensor, "layer head matrix"]
    """Sum of all entries."""
    scalar: Float[Tensor, "layer head matrix"]
    """a_h and b_h; 0 if the model has none."""
    present: Bool[Tensor, "layer head matrix"]

    @property
    def off_square(self) -> Float[Tensor, "layer head matrix"]:
        """Sum of squares of the entries off the diagonal."""
        return (self.spectrum.square().sum(-1) - self.diagonal.square().sum(-1)).clamp_min(0)

    @property
    def off_sd(self) -> Float[Tensor, "layer head matrix"]:
        """Standard deviation of the entries off the diagonal."""
        d_model = self.diagonal.shape[-1]
        n = max(1, d_model * (d_model - 1))
        mean = (self.total - self.diagonal.sum(-1)) / n
        return (self.off_square / n - mean.square()).clamp_min(0).sqrt()


def _heads(model: Any) -> _Heads:
    spectrum, diagonal, total = [], [], []
    present = torch.ones(model.cfg.n_layers, model.cfg.n_heads, len(MATRICES), dtype=torch.bool)
    scalar = torch.zeros(present.shape, dtype=torch.float64)
    for layer in range(model.cfg.n_layers):
        # The matrix left right^T is never formed: its singular values are those of the product of both R.
        left_factor, right_factor = _factors(model, layer)
        left_r = torch.linalg.qr(left_factor, mode="r").R
        right_r = torch.linalg.qr(right_factor, mode="r").R
        spectrum.append(torch.linalg.svdvals(left_r @ right_r.mT))
        diagonal.append((left_factor * right_factor).sum(-1))
        total.append((left_factor.sum(-2) * right_factor.sum(-2)).sum(-1))
        # Which heads have W_Q W_K^T, and the scaled identities.
        present[layer, :, 0] = torch.tensor(_learned(model, layer))
        attention = model.block(layer).attention if hasattr(model, "block") else None
        for matrix, name in enumerate(("a", "b")):
            if getattr(attention, name, None) is not None:
                scalar[layer, :, matrix] = getattr(attention, name).double()
    return _Heads(torch.stack(spectrum), torch.stack(diagonal), torch.stack(total), scalar, present)


def _factors(
    model: Any, layer: int
) -> tuple[Float[Tensor, "head matrix d_model d_head"], Float[Tensor, "head matrix d_model d_head"]]:
    """Factors whose products are W_Q W_K^T / attn_scale, or zero without, and W_V W_O."""
    attn = model.blocks[layer].attn
    value = attn.W_V.double().cpu()
    output = attn.W_O.double().cpu().mT
    query = key = torch.zeros_like(value)
    if any(_learned(model, layer)):
        query = attn.W_Q.double().cpu() / attention_scale(model.cfg, value.shape[-1])
        key = attn.W_K.double().cpu()
    return torch.stack([query, value], 1), torch.stack([key, output], 1)


def _learned(model: Any, layer: int) -> list[bool]:
    """Which heads compute their pattern from queries and keys."""
    patterns = model.cfg.patterns_of(layer) if hasattr(model.cfg, "patterns_of") else ()
    return [pattern.learned for pattern in patterns] or [True] * model.cfg.n_heads


def _cosine(diagonal: Float[Tensor, "*heads d_model"], off_square: Float[Tensor, "*heads"]) -> Float[Tensor, "*heads"]:
    """Cosine with the identity, from the diagonal and the sum of squares off it; 0 for a matrix of zeros."""
    norm = (off_square + diagonal.square().sum(-1)).sqrt()
    return _over(diagonal.sum(-1), norm * diagonal.shape[-1] ** 0.5)


def _over(numerator: Float[Tensor, "*heads"], denominator: Float[Tensor, "*heads"]) -> Float[Tensor, "*heads"]:
    """The quotient; 0 where the numerator is 0."""
    return torch.where(numerator == 0, 0.0, numerator / denominator)


def _upper_tail(heads: _Heads, n: int, seed: int) -> Float[np.ndarray, " cell"]:
    """p of every present matrix: the fraction of n random ones with its spectrum and a trace at least as large.

    The matrix itself counts as one of them. trace(U S V^T) is sum_i s_i <u_i, v_i>. It is invariant to a common
    rotation of both frames, so U can be fixed to the first axes; then only the diagonal of V is needed, for every S.
    """
    rng = np.random.default_rng(derived_seed(seed, "diagonals"))
    trace = heads.diagonal.sum(-1)[heads.present]
    spectrum = heads.spectrum[heads.present]
    rank, d_model = spectrum.shape[-1], heads.diagonal.shape[-1]
    # Count the random matrices whose trace is at least as large, few frames at a time.
    n_as_large = torch.zeros(len(trace), dtype=torch.long)
    frames_at_once = max(1, ENTRIES_AT_ONCE // rank**2)
    for start in range(0, n, frames_at_once):
        n_frames = min(frames_at_once, n - start)
        random_trace = _frame_diagonals(n_frames, d_model, rank, rng) @ spectrum.T
        n_as_large += (random_trace >= trace).sum(0)
    return (1 + n_as_large.numpy()) / (1 + n)


def _frame_diagonals(n: int, d_model: int, rank: int, rng: np.random.Generator) -> Float[Tensor, "draw rank"]:
    """Diagonals of (d_model, rank) matrices with orthonormal columns, drawn uniformly.

    Such a matrix is G R^-1 for a Gaussian G = Q R with a positive diagonal of R. Only the first `rank` rows of G are
    drawn. The others enter through their Gram matrix, a Wishart matrix T^T T with triangular T: normal entries above a
    chi distributed diagonal (Bartlett 1933).
    """
    top = torch.from_numpy(rng.standard_normal((n, rank, rank)))
    # The triangular factor of the Gram matrix of the other rows.
    rows = min(rank, d_model - rank)
    lower = torch.from_numpy(rng.standard_normal((n, rows, rank))).triu(1)
    chi = np.sqrt(rng.chisquare(d_model - rank - np.arange(rows), size=(n, rows)))
    lower.diagonal(dim1=1, dim2=2).copy_(torch.from_numpy(chi))
    # R from the Gram matrix of all rows, then the first rows of G R^-1.
    root = torch.linalg.cholesky(top.mT @ top + lower.mT @ lower, upper=True)
    return torch.linalg.solve_triangular(root, top, upper=True, left=False).diagonal(dim1=1, dim2=2)


def _check(model: Any) -> None:
    """Raise ValueError unless the model has the weights of every layer under TransformerLens's names, all finite."""
    if not hasattr(model, "blocks") or not hasattr(getattr(model, "cfg", None), "n_heads"):
        raise ValueError(
            f"model is {type(model).__name__}, without blocks and cfg; pass a hooks.Transformer or a similar model."
        )
    for layer in range(model.cfg.n_layers):
        names = ("W_Q", "W_K", "W_V", "W_O") if any(_learned(model, layer)) else ("W_V", "W_O")
        for name in names:
            weight = getattr(getattr(model.blocks[layer], "attn", None), name, None)
            if weight is None or weight.ndim != 3 or len(weight) != model.cfg.n_heads:
                shape = "missing" if weight is None else tuple(weight.shape)
                raise ValueError(
                    f"{name} of layer {layer} is {shape}; expected one matrix for each of {model.cfg.n_heads} heads in "
                    f"blocks[{layer}].attn.{name}, as in TransformerLens."
                )
            if not weight.isfinite().all():
                raise ValueError(f"{name} of layer {layer} has values that are not finite; did training diverge?")
