"""Is what a probe reads also used? What can be read at each layer, and what the answers owe to it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformer_lens.tools.analysis.interchange import (
    NormMatchedPlacebo,
    SubspaceInterchange,
    probe_basis,
    random_basis,
)

from hooks import BridgeModel
from hooks.interventions.ablation_engine import Net
from hooks.modules import take
from interp.auditing.probes_result import ProbeAudit
from interp.auditing.questions import check_fit
from interp.auditing.verdicts import SHARE
from interp.core.activations import class_means, residual_names, residuals_at_targets
from interp.core.randomness import derived_generator, derived_seed
from interp.core.statistics import check_level, drop_interval, drop_tests, holm
from interp.core.verbs import AnyModel, prepare_model
from interp.probing.probe import ProbeResult, probe
from interp.tasks.base import Batch, Task

CHANGES = ("interchange", "erasure")


def audit_probe(
    model: AnyModel,
    task: Task,
    *,
    label: str | None = None,
    n_train: int = 1000,
    n_test: int = 512,
    alpha: float = 0.01,
    seed: int = 0,
) -> ProbeAudit:
    """Say of every layer and target whether a label can be read there, and whether the answers depend on it.

    Readable: a linear probe is right more often than its controls (shuffled labels, a control task, an untrained twin),
    by more than a fifth of what they leave. Used: where the label's direction (along the class means) is set to that of
    an example with another label, or to the mean of all examples, some answer of the example changes, in more than a
    fifth of examples beyond those in which a move as far in a random direction changes one.

    Args:
        model: What to audit. It is not changed.
        task: Where examples and labels come from.
        label: Which of `task.probe_labels`; the first when left out.
        n_train: Examples that probes and class means are fitted on.
        n_test: Held-out examples behind each figure.
        alpha: Level of all verdicts together (Holm).
        seed: Decides examples, controls and random directions.

    Raises:
        ValueError: what `probe` refuses, too few test examples, or a task that does not fit the model.
    """
    model = prepare_model(model, "audit_probe")
    check_fit(model, task)
    if n_test < 32:
        raise ValueError(f"n_test is {n_test}; at least 32 examples are needed for a verdict.")
    check_level(alpha)
    read = probe(model, task, label=label, n_train=n_train, n_test=n_test, seed=seed)
    columns = [task.targets.index(name) for name in read.targets]
    fitting = task.sample(n_train, generator=derived_generator(seed, "probe fit"), split="validation")
    testing = task.sample(n_test, generator=derived_generator(seed, "probe test"), split="test")
    labels = [task.probe_labels(batch)[read.label][:, columns] for batch in (fitting, testing)]
    n_classes = int(torch.cat(labels).max()) + 1
    inputs = residuals_at_targets(model, fitting)[:, columns]
    means = class_means(inputs, labels[0].T.expand(len(inputs), -1, -1), n_classes)
    baseline = np.maximum(np.maximum(read.shuffled, read.control), read.untrained)
    legible = _readable(read, baseline)
    changes = _Changes(model, task, testing, labels[1], seed)
    asked = legible[1] > alpha
    changed = changes.measure(means, inputs.mean(2), columns, where=asked)
    tests = {name: drop_tests(values[..., 0], values[..., 1], np.array(SHARE)) for name, values in changed.items()}
    used = np.minimum(2 * np.minimum(*(tests[name][0] for name in CHANGES)), 1)
    unused = np.maximum(*(tests[name][1] for name in CHANGES))
    p = holm(np.stack([*legible, used, unused]))
    costs = {
        name: [np.where(asked, end, np.nan) for end in drop_interval(values[..., 0], values[..., 1])]
        for name, values in changed.items()
    }
    return ProbeAudit(
        label=read.label,
        targets=read.targets,
        verdict=tuple(
            tuple(_verdict(p[:, layer, target], alpha) for target in range(len(columns)))
            for layer in range(len(inputs))
        ),
        accuracy=read.accuracy,
        low=read.low,
        high=read.high,
        baseline=baseline,
        **{name: costs[name][0] for name in CHANGES},
        **{f"{name}_low": costs[name][1] for name in CHANGES},
        **{f"{name}_high": costs[name][2] for name in CHANGES},
        p=p,
        alpha=alpha,
        n=n_test,
    )


def _readable(
    read: ProbeResult, baseline: Float[np.ndarray, "layer target"]
) -> tuple[Float[np.ndarray, "layer target"], Float[np.ndarray, "layer target"]]:
    """p of "not readable" and of "readable"."""
    right = np.rint(read.accuracy * read.n_test)
    answers = (np.arange(read.n_test)[:, None, None] < right).astype(float)
    readable, unreadable = drop_tests(answers, np.ones_like(answers), baseline + SHARE * (1 - baseline))
    return readable, np.where(baseline >= 1, 0.0, unreadable)  # nothing is read better than by a perfect control


def _verdict(p: Float[np.ndarray, " question"], alpha: float) -> str:
    readable, not_readable, used, unused = (bool(one <= alpha) for one in p)
    if not_readable:
        return "not readable"
    if not readable or not (used or unused):
        return "undecided"
    return "used" if used else "unused"


@dataclass
class _Changes:
    """How often answers change when what a probe reads is interchanged or erased, beyond a placebo."""

    model: Net
    task: Task
    batch: Batch
    labels: Int[Tensor, "batch target"]
    seed: int

    @torch.no_grad()
    def measure(
        self,
        means: Float[Tensor, "layer target label d_model"],
        centre: Float[Tensor, "layer target d_model"],
        columns: list[int],
        *,
        where: Bool[np.ndarray, "layer target"],
    ) -> dict[str, Float[np.ndarray, "sample layer target 2"]]:
        """Per example, layer and target: changed minus changed by the placebo, and whether it was asked.

        An example is asked of interchange only if the one it takes from, the next, has another label; none is asked
        outside `where`.
        """
        self.model.eval()
        names = residual_names(self.model)
        inputs: dict[str, Any] = self.batch.model_inputs()
        logits, cache = self.model.run_with_cache(self.batch.tokens, names_filter=names, **inputs)
        before = self.task.answers(take(logits, self.batch.target_positions))
        shape = (len(self.batch), len(names), len(columns), 2)
        found = {name: np.zeros(shape) for name in CHANGES}
        for layer, name in enumerate(names):
            for index in np.flatnonzero(where[layer]).tolist():
                column = columns[index]
                at = self.batch.target_positions[:, column]
                here = cache[name][torch.arange(len(at)), at]
                there = means[layer, index].any(-1)  # a class that no fitting example had at this target has no mean
                basis = probe_basis(means[layer, index][there])
                random = random_basis(
                    here.shape[-1], basis.shape[1], derived_seed(self.seed, "placebo", layer, column) % 2**31
                )
                along = SubspaceInterchange(basis)
                differs = self.labels[:, index] != self.labels[:, index].roll(-1)
                sources = {"interchange": here.roll(-1, 0), "erasure": centre[layer, index].expand_as(here)}
                for change, source in sources.items():
                    moved = [
                        self._changed(cache[name], layer, at, to, before)
                        for to in (along(here, source), NormMatchedPlacebo(along, random)(here, source))
                    ]
                    asked = differs if change == "interchange" else torch.ones_like(differs)
                    found[change][:, layer, index, 0] = ((moved[0].double() - moved[1].double()) * asked).numpy()
                    found[change][:, layer, index, 1] = asked.double().numpy()
        return found

    def _changed(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        layer: int,
        at: Int[Tensor, " batch"],
        to: Float[Tensor, "batch d_model"],
        before: Int[Tensor, "batch target"],
    ) -> Bool[Tensor, " batch"]:
        edited = resid.clone()
        edited[torch.arange(len(at)), at] = to
        positions: dict[str, Any] = {}
        if isinstance(self.model, BridgeModel) and self.model.positions_in_layers:
            positions["position_ids"] = self.batch.position_ids
        logits = self.model.resume(
            edited,
            layer,
            tokens=self.batch.tokens,
            attention_mask=self.batch.attention_mask,
            read_at=self.batch.target_positions,
            **positions,
        )
        return (self.task.answers(logits) != before).any(1)
