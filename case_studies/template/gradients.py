"""Claims about copying at the start of training: gradients against width (Theorems 5.1 and 5.2)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, Below
from case_studies.recipes.intervals import interval_columns, t_interval
from case_studies.recipes.judges import Row
from hooks import make_model
from interp.core.randomness import derived_seed
from interp.tasks import Template
from interp.tasks.base import Split
from interp.training.configs import config_for
from interp.view.charts import dots

WIDTHS = {"quick": (64, 128, 256), "standard": (64, 128, 256, 512, 1024, 2048), "paper": (128, 256, 512, 1024, 2048)}
DRAWS = {"quick": 4, "standard": 10, "paper": 10}
SYMBOLS = 64
"""Number of training symbols and number of unseen ones."""
SPEED = "relative speed"


def measure_plain(evidence: Evidence) -> Readings:
    """Speed of the unseen loss in the widest plain models of which all weights are trained."""
    return _readings(_speeds(evidence, with_b=False), WIDTHS[evidence.size])


def measure_b(evidence: Evidence) -> Readings:
    """Speed of the unseen loss in the widest models with b I of which only b is trained."""
    return _readings(_speeds(evidence, with_b=True), WIDTHS[evidence.size])


def relative_speed(model: nn.Module, task: Template, parameters: Sequence[nn.Parameter]) -> float:
    """Fall of the loss on unseen symbols over that on training symbols, in gradient flow at the current weights.

    1 if both fall at the same speed, 0 if the loss on unseen symbols does not move, negative if it rises.

    Args:
        model: Model of the task.
        task: A template task with one wildcard and one template.
        parameters: The trained parameters; the others are frozen.
    """
    train, test = (_gradient(model, task, parameters, split) for split in ("train", "test"))
    return float(test @ train / (train @ train))


def _gradient(
    model: nn.Module, task: Template, parameters: Sequence[nn.Parameter], split: Split
) -> Float[Tensor, " parameter"]:
    """Gradient of the mean loss over every symbol of a split."""
    symbols = torch.tensor([task.vocab.ids[name] for name in task.alphabet(split)])
    batch = task.fill(torch.zeros_like(symbols), symbols[:, None])
    gradients = torch.autograd.grad(task.loss(model(batch.tokens), batch), parameters, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in gradients]).double()


def _speeds(evidence: Evidence, *, with_b: bool) -> Float[np.ndarray, "draw width"]:
    task = Template(templates="copy", train=SYMBOLS, test=SYMBOLS)
    speeds = []
    for draw in range(DRAWS[evidence.size]):
        seed = derived_seed(evidence.seed, "copying gradients", draw)
        speeds.append([_speed(task, width, seed=seed, with_b=with_b) for width in WIDTHS[evidence.size]])
    return np.array(speeds)


def _speed(task: Template, width: int, *, seed: int, with_b: bool) -> float:
    model = make_model(config_for(task, "template_copy", d_model=width, vo_identity=with_b), seed=seed)
    trained = [parameter for name, parameter in model.named_parameters() if not with_b or name.split(".")[-1] == "b"]
    return relative_speed(model, task, trained)


def _readings(speed: Float[np.ndarray, "draw width"], widths: Sequence[int]) -> Readings:
    """The mean speed at every width, over draws."""
    rows = [
        {"width": width, **interval_columns(t_interval(column), SPEED), "least": column.min(), "largest": column.max()}
        for width, column in zip(widths, speed.T, strict=True)
    ]
    frame = pd.DataFrame(rows).assign(draws=len(speed))
    return Readings(
        frame=frame,
        title="Relative speed at the start, mean over draws",
        numbers={"training symbols": SYMBOLS, "unseen symbols": SYMBOLS},
        charts=[
            dots(
                frame.astype({"width": str}),
                x="width",
                y=SPEED,
                rule=0.0,
                title=f"fall of the loss on unseen symbols over that on training symbols, {len(speed)} draws",
            )
        ],
        note="Relative speed: the inner product of the gradients on unseen and training symbols over the squared norm "
        "of the latter, that is dL_test/dt over dL_train/dt in gradient flow at t = 0.",
    )


WIDEST = Row(SPEED, by="width", unit="draws of the initial weights", units="draws")
"""The widest models are judged."""
HOW = (
    "Speed of the loss on unseen symbols over that on training symbols in the widest models, t interval over "
    "draws of the initial weights"
)

CLAIMS = (
    Claim(
        id="copying.gradient",
        method=HOW,
        rule=Below(0),
        preregistration=Preregistration(
            "after a result",
            "speeds of 0.23, 0.06, -0.03, -0.11, -0.13 and -0.15 at widths 64 to 2048. The rule before required a "
            "falling logarithm of the absolute speed, 0.09 [0.02, 0.15], which means nothing where the speed changes "
            "its sign.",
        ),
        quantity="relative speed, widest",
        measure=measure_plain,
        judged=WIDEST,
    ),
    Claim(
        id="copying.gradient-b",
        method=HOW,
        rule=Above(0),
        preregistration=BEFORE_ANY_MODEL,
        quantity="relative speed, widest",
        measure=measure_b,
        judged=WIDEST,
    ),
)
