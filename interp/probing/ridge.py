"""Ridge regression classifiers for many cells and relabellings, fitted on examples that are read block by block."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

RIDGE = 1e-3
"""Ridge penalty relative to the mean variance of the inputs."""
ROUNDING = 64 * torch.finfo(torch.float32).eps
"""Differences between activations below this share of their norm are rounding errors."""


def varying(
    mean: Float[Tensor, "*cells d_model"], variance: Float[Tensor, "*cells d_model"]
) -> Bool[Tensor, "*cells d_model"]:
    """Which coordinates differ between examples by more than rounding errors; no probe reads the others."""
    squared_norm = (mean.square() + variance).sum(-1, keepdim=True)
    return variance > ROUNDING**2 * squared_norm


@dataclass(frozen=True)
class LinearClassifier:
    """argmax over classes of x W + b, one classifier per cell and relabelling."""

    weight: Float[Tensor, "cell draw d_model class"]
    bias: Float[Tensor, "cell draw class"]

    def n_correct(
        self, inputs: Float[Tensor, "cell sample d_model"], labels: Int[Tensor, "cell draw sample"]
    ) -> Int[Tensor, "cell draw"]:
        """Number of samples classified correctly."""
        cells, draws, width, classes = self.weight.shape
        # One product for all draws of a cell.
        weight = self.weight.transpose(1, 2).reshape(cells, width, draws * classes)
        bias = self.bias.reshape(cells, 1, draws * classes)
        scores = torch.baddbmm(bias, inputs, weight)
        predicted = scores.view(cells, -1, draws, classes).argmax(-1)
        return (predicted.transpose(1, 2) == labels).sum(-1)

    def accuracy(
        self, inputs: Float[Tensor, "cell sample d_model"], labels: Int[Tensor, "cell draw sample"]
    ) -> Float[Tensor, "cell draw"]:
        """Fraction of samples classified correctly."""
        return self.n_correct(inputs, labels).float() / labels.shape[-1]


class Moments:
    """Means and covariances of inputs and one-hot labels in many cells, from which classifiers are fitted.

    Examples are added in blocks, so that memory does not depend on their number. After a single block,
    the moments are those of a computation on all examples at once.

    Args:
        n_cells: Number of cells.
        width: Width of the inputs.
        columns: Columns of the one-hot labels of each set of labels.
        dtype: Precision of the sums: double for several blocks.

    Source: Chan, Golub & LeVeque 1983, for adding blocks.
    """

    def __init__(self, n_cells: int, width: int, columns: Sequence[int], *, dtype: torch.dtype):
        self.n, self.input_dtype = 0, dtype
        self.mean = torch.zeros(n_cells, 1, width, dtype=dtype)
        self.gram = torch.zeros(n_cells, width, width, dtype=dtype)
        self.cross = [torch.zeros(n_cells, width, n_columns, dtype=dtype) for n_columns in columns]
        self.share = [torch.zeros(n_cells, n_columns, dtype=dtype) for n_columns in columns]

    def add(
        self, inputs: Float[Tensor, "cell sample d_model"], onehots: Sequence[Float[Tensor, "cell sample _"]]
    ) -> None:
        """Add a block of examples, with one-hot labels of each set of labels (see `one_hot`)."""
        self.input_dtype = inputs.dtype
        n_before, n_block = self.n, inputs.shape[1]
        self.n += n_block
        block_mean = inputs.mean(1, keepdim=True)
        centred = (inputs - block_mean).transpose(1, 2)
        shift = block_mean - self.mean
        between = n_before * n_block / self.n
        # Covariances within the block, and between its mean and the mean so far.
        self.gram += centred @ centred.transpose(1, 2)
        if n_before:
            self.gram += between * shift.transpose(1, 2) @ shift
        # The same for inputs and labels, for each set of labels.
        for cross, share, onehot in zip(self.cross, self.share, onehots, strict=True):
            share_shift = onehot.mean(1) - share
            cross += centred @ onehot
            if n_before:
                cross += between * shift.transpose(1, 2) @ share_shift[:, None]
            share += share_shift * (n_block / self.n)
        self.mean += shift * (n_block / self.n)

    def varying(self) -> Bool[Tensor, "cell d_model"]:
        """Which coordinates vary (see `varying`)."""
        return varying(self.mean[:, 0], self.gram.diagonal(dim1=1, dim2=2) / max(1, self.n))

    def solve(self, n_classes: int, *, ridge: float = RIDGE) -> list[LinearClassifier]:
        """Least squares on one-hot labels, in the precision of the inputs, for each set of labels.

        Args:
            n_classes: Number of classes; each set of labels has this number of columns for every draw.
            ridge: Penalty relative to the mean variance of the inputs.
        """
        dtype = self.input_dtype
        # Coordinates that do not vary get the weight 0
        varies = self.varying()[..., None]
        gram = self.gram.to(dtype, copy=True)
        gram *= varies & varies.mT
        mean = self.mean.to(dtype)
        # Add the penalty, which is positive even where inputs are constant.
        diagonal = gram.diagonal(dim1=1, dim2=2)
        penalty = ridge * diagonal.mean(-1).clamp_min(torch.finfo(gram.dtype).tiny ** 0.5)
        diagonal.add_(penalty[:, None])
        # All sets of labels share one factor of the covariance.
        factor = torch.linalg.cholesky(gram)
        classifiers = []
        for cross, share in zip(self.cross, self.share, strict=True):
            weight = torch.cholesky_solve(cross.to(dtype) * varies, factor)
            bias = share.to(dtype) - (mean @ weight)[:, 0]
            weight_by_draw = weight.unflatten(2, (-1, n_classes)).transpose(1, 2)
            classifiers.append(LinearClassifier(weight_by_draw, bias.unflatten(1, (-1, n_classes))))
        return classifiers


def one_hot(
    labels: Int[Tensor, "cell draw sample"], n_classes: int, dtype: torch.dtype
) -> Float[Tensor, "cell sample column"]:
    """One-hot labels; the classes of a draw are next to each other."""
    cells, draws, samples = labels.shape
    onehot = torch.zeros(cells, samples, draws * n_classes, dtype=dtype)
    column = labels.transpose(1, 2).long() + n_classes * torch.arange(draws)
    return onehot.scatter_(2, column, 1.0)


def fit(
    inputs: Float[Tensor, "cell sample d_model"],
    labels: Int[Tensor, "cell draw sample"],
    n_classes: int,
    *,
    ridge: float = RIDGE,
) -> LinearClassifier:
    """Fit least squares on one-hot labels, for every cell and every relabelling of it."""
    onehot = one_hot(labels, n_classes, inputs.dtype)
    moments = Moments(len(inputs), inputs.shape[2], [onehot.shape[2]], dtype=inputs.dtype)
    moments.add(inputs, [onehot])
    return moments.solve(n_classes, ridge=ridge)[0]
