"""The claim about copying at the start of training with the paper's initial weights (Theorem 5.1, Appendix J.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from case_studies.frame.claims import Claim, Preregistration
from case_studies.frame.evidence import Evidence, Size
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AtMost
from case_studies.recipes.intervals import interval_columns, t_interval
from case_studies.recipes.judges import Row
from interp.core.randomness import derived_seed
from interp.view.charts import dots

WIDTHS: dict[Size, Sequence[int]] = {
    "quick": (512, 1024, 2048),
    "standard": (256, 512, 1024, 2048, 4096),
    "paper": (256, 512, 1024, 2048, 4096),
}
DRAWS: dict[Size, int] = {"quick": 4, "standard": 10, "paper": 10}
SYMBOLS = 64
"""Number of training symbols and number of unseen ones."""
D_HEAD = 32
"""Width of a head; the number of heads grows with the embedding, as one over it."""
GAMMAS = (0.0, 1.0)
"""Scales of the position embedding."""
LARGEST = 0.05
"""Largest relative speed that counts as not moving."""
SPEED = "relative speed"
MATRICES = ("W_V", "W_O", "W_E", "P")


@dataclass(frozen=True, kw_only=True)
class CopyingModel:
    """The attention layer of the theorem on strings of one token x.

    The logits are W_E (sum_h W_O,h W_V,h^T) (e_x + gamma p) / H, with the embedding e_x, the position p and H heads.
    """

    embedding: Float[Tensor, "symbol d_model"]
    position: Float[Tensor, " d_model"]
    values: Float[Tensor, "d_model inner"]
    """W_V of all heads."""
    output: Float[Tensor, "d_model inner"]
    """W_O of all heads."""
    gamma: float
    n_heads: int

    def logits(self, symbols: Float[Tensor, " batch"]) -> Float[Tensor, "batch symbol"]:
        """Logits of every symbol after a string of one symbol."""
        read = self.embedding[symbols] + self.gamma * self.position
        return (read @ self.values) @ self.output.T @ self.embedding.T / self.n_heads

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The trained matrices by name."""
        return dict(zip(MATRICES, (self.values, self.output, self.embedding, self.position), strict=True))


def initial_model(width: int, *, gamma: float, seed: int) -> CopyingModel:
    """A model with the initial weights of the theorem: mean-field scaling, in which the logits vanish with the width.

    Embeddings are N(0, 1 / width), W_V N(0, 1 / width) and W_O N(0, 1 / D_HEAD), and the heads are averaged. Their
    number is width / D_HEAD, so that it grows with the width.

    Source: template paper (arXiv:2310.09753), Appendix J.2. Differs: the variances are chosen so that each head's
    output is of order one; the limit does not depend on them.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, std: float) -> Tensor:
        return (std * torch.randn(shape, generator=generator, dtype=torch.float32)).requires_grad_()

    return CopyingModel(
        embedding=normal(2 * SYMBOLS, width, std=width**-0.5),
        position=normal(width, std=width**-0.5),
        values=normal(width, width, std=width**-0.5),
        output=normal(width, width, std=D_HEAD**-0.5),
        gamma=gamma,
        n_heads=width // D_HEAD,
    )


def relative_speeds(model: CopyingModel) -> dict[str, float]:
    """Fall of the loss on unseen symbols over that on training symbols at the start, if one matrix is trained.

    With all matrices at any rates, the relative speed is a weighted mean of these, and so at most the largest.
    """
    parameters = model.parameters
    train, test = (_gradients(model, list(parameters.values()), symbols) for symbols in _splits())
    pairs = zip(test, train, strict=True)
    products = [float(test_gradient.flatten() @ gradient.flatten()) for test_gradient, gradient in pairs]
    squares = [float(gradient.square().sum()) for gradient in train]
    # A matrix that does not move the training loss, such as P with gamma = 0, has no relative speed
    ratios = zip(parameters, products, squares, strict=True)
    return {name: product / square for name, product, square in ratios if square}


def _splits() -> tuple[Tensor, Tensor]:
    """Training symbols and unseen ones."""
    return torch.arange(SYMBOLS), torch.arange(SYMBOLS, 2 * SYMBOLS)


def _gradients(model: CopyingModel, parameters: Sequence[Tensor], symbols: Tensor) -> list[Tensor]:
    """Gradients of the mean loss over symbols that are to be copied."""
    loss = cross_entropy(model.logits(symbols), symbols)
    gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return [gradient.double() for gradient in gradients]


def measure_start(evidence: Evidence) -> Readings:
    """Relative speed of the fastest matrix, mean over draws, at every width and scale of the positions."""
    widths = WIDTHS[evidence.size]
    speeds: dict[tuple[float, int], list[dict[str, float]]] = {}
    for draw in range(DRAWS[evidence.size]):
        seed = derived_seed(evidence.seed, "copying with the paper's initial weights", draw)
        for gamma in GAMMAS:
            for width in widths:
                model = initial_model(width, gamma=gamma, seed=seed)
                speeds.setdefault((gamma, width), []).append(relative_speeds(model))
    # The largest of any matrix is judged; every matrix is shown
    rows = []
    for (gamma, width), draws in speeds.items():
        fastest = t_interval(np.array([max(by_matrix.values()) for by_matrix in draws]))
        rows.append({"gamma": gamma, "width": width, **interval_columns(fastest, SPEED), **pd.DataFrame(draws).mean()})
    frame = pd.DataFrame(rows).assign(draws=DRAWS[evidence.size], widest=lambda table: table["width"] == widths[-1])
    return Readings(
        frame=frame,
        title="Relative speed at the start if one matrix is trained, mean over draws",
        numbers={"training symbols": SYMBOLS, "unseen symbols": SYMBOLS},
        charts=[
            dots(
                frame.assign(width=frame["width"].astype(str), series=[f"gamma {gamma:g}" for gamma in frame["gamma"]]),
                x="width",
                y=SPEED,
                series="series",
                rule=0.0,
                title="fall of the loss on unseen symbols over that on training symbols, largest of any matrix",
            )
        ],
        note="dL_test/dt over dL_train/dt in gradient flow at t = 0. A negative speed is a rising loss on unseen "
        "symbols: the position embedding lowers the logits of symbols that are never an answer.",
    )


CLAIMS = (
    Claim(
        id="copying.start",
        method="Speed of the loss on unseen symbols over that on training symbols in the widest models, for the "
        f"trained matrix and the scale of the position embedding ({GAMMAS[0]:g} or {GAMMAS[1]:g}) where it is largest, "
        "which bounds that of any learning rates; t interval over draws of the initial weights",
        rule=AtMost(LARGEST),
        preregistration=Preregistration(
            "after a result",
            "-0.15 [-0.16, -0.14] in models with another start (`copying.gradient`). For this start the speed without "
            "positions was estimated by hand as the training symbols over the width: 0.016.",
        ),
        quantity="largest relative speed, widest",
        measure=measure_start,
        judged=Row(SPEED, where={"widest": True}, unit="draws of the initial weights", units="draws"),
    ),
)
