"""Ridge regression classifiers for many cells and relabellings, with one factorisation per cell."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

RIDGE = 1e-3
"""Ridge penalty relative to the mean variance of the inputs."""


@dataclass(frozen=True)
class Factorised:
    """Centred inputs of many cells and the Cholesky factor of their penalised covariance."""

    mean: Float[Tensor, "cell 1 d_model"]
    centred: Float[Tensor, "cell sample d_model"]
    factor: Float[Tensor, "cell d_model d_model"]


@dataclass(frozen=True)
class LinearClassifier:
    """argmax over classes of x W + b, one classifier per cell and relabelling."""

    weight: Float[Tensor, "cell draw d_model class"]
    bias: Float[Tensor, "cell draw class"]

    def accuracy(
        self, inputs: Float[Tensor, "cell sample d_model"], labels: Int[Tensor, "cell draw sample"]
    ) -> Float[Tensor, "cell draw"]:
        """Fraction of samples classified correctly."""
        cells, draws, width, classes = self.weight.shape
        flat = self.weight.transpose(1, 2).reshape(cells, width, draws * classes)
        scores = torch.baddbmm(self.bias.reshape(cells, 1, draws * classes), inputs, flat)
        guess = scores.view(cells, -1, draws, classes).argmax(-1)
        return (guess.transpose(1, 2) == labels).float().mean(-1)


def factorise(inputs: Float[Tensor, "cell sample d_model"], *, ridge: float = RIDGE) -> Factorised:
    """Centre the inputs of every cell and factorise their covariance; `ridge` is relative to its mean diagonal."""
    mean = inputs.mean(1, keepdim=True)
    centred = inputs - mean
    gram = centred.transpose(1, 2) @ centred
    diagonal = gram.diagonal(dim1=1, dim2=2)
    penalty = ridge * diagonal.mean(-1).clamp_min(torch.finfo(gram.dtype).tiny ** 0.5)  # inputs may be constant
    gram.diagonal(dim1=1, dim2=2).add_(penalty[:, None])
    return Factorised(mean, centred, torch.linalg.cholesky(gram))


def fit(data: Factorised, labels: Int[Tensor, "cell draw sample"], n_classes: int) -> LinearClassifier:
    """Fit least squares on one-hot labels, for every cell and every relabelling of it."""
    cells, draws, samples = labels.shape
    onehot = torch.zeros(cells, samples, draws * n_classes, dtype=data.centred.dtype)
    column = labels.transpose(1, 2) + n_classes * torch.arange(draws)
    onehot.scatter_(2, column, 1.0)
    share = onehot.mean(1)
    weight = torch.cholesky_solve(data.centred.transpose(1, 2) @ onehot, data.factor)
    bias = share - (data.mean @ weight)[:, 0]
    width = weight.shape[1]
    return LinearClassifier(
        weight.view(cells, width, draws, n_classes).transpose(1, 2), bias.view(cells, draws, n_classes)
    )
