"""Claims on the values that compiled programs compute: where they can be read, and whether they are used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from case_studies.frame.claims import BEFORE_ANY_MODEL, SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.packs import Packs
from case_studies.frame.rules import AtLeast, Equal, Value
from case_studies.recipes.judges import Share
from interp.known_answers import KnownAnswer
from interp.known_answers.compiled.network import written_at
from interp.known_answers.compiled.task import TOLERANCE
from interp.tasks.base import logits_at_targets
from tool_studies.compiled.heads import OTHERS, SOURCE
from tool_studies.compiled.programs import programs

READ = 0.99
"""Balanced accuracy of a probe, or r2 where the value is a number, from which on it reads a value."""
PENALTY = 1e-6
"""Ridge penalty of the probe: values have no noise, so that it only decides between coordinates that are collinear."""
READ_THERE, AGREES, DIFFERS = "as expected", "interchange agrees with weights", "some values differ"


@dataclass(frozen=True)
class ProgramActivations:
    """The residual stream of a program at every position that has an answer, and the values of its variables there."""

    resid: Float[np.ndarray, "layer place d_model"]
    """Layer 0 is the embedding's output, layer l + 1 the output of layer l."""
    training: Bool[np.ndarray, " place"]
    labels: Mapping[str, Int[np.ndarray, " place"]]
    numbers: Mapping[str, Float[np.ndarray, " place"]]
    """The variables that are numbers."""


@torch.no_grad()
def program_activations(answer: KnownAnswer) -> ProgramActivations:
    """The streams of all examples of a program."""
    task: Any = answer.task
    batch = task.examples(torch.arange(len(task.program.examples)))
    names = [
        "blocks.0.hook_resid_pre",
        *(f"blocks.{layer}.hook_resid_post" for layer in range(answer.model.cfg.n_layers)),
    ]
    inputs: dict[str, Any] = batch.model_inputs()
    _, cache = answer.model.run_with_cache(batch.tokens, **inputs, names_filter=names)
    # Only positions that have an answer
    rows, targets = batch.present.nonzero(as_tuple=True)
    places = batch.target_positions[rows, targets]
    labels = {name: label[rows, targets].numpy() for name, label in task.probe_labels(batch).items() if name != "label"}
    training = torch.isin(rows, task.pools["train"]).numpy()
    resid = torch.stack([cache[name][rows, places] for name in names]).double().numpy()
    variables = task.program.variables
    numbers = {name: resid[-1][:, variables[name][0]] for name in labels if len(variables[name]) == 1}
    return ProgramActivations(resid, training, labels, numbers)


def layers_read(activations: ProgramActivations, name: str) -> list[int]:
    """The layers at which a linear probe reads a value.

    It is fitted on training examples, and tested on the others where the value is one that some training example has.
    """
    label = activations.labels[name]
    fit = activations.training
    scored = ~fit & np.isin(label, label[fit])
    numbers = activations.numbers.get(name)
    layers = []
    for layer, x in enumerate(activations.resid):
        # Regression for numbers, scored by r2
        if numbers is not None:
            predicted = predict_linearly(x, numbers[:, None], fit, np.ones(int(fit.sum())))[scored, 0]
            distance = np.square(numbers[scored] - numbers[scored].mean()).sum()
            score = 1 - np.square(predicted - numbers[scored]).sum() / distance
        # Classification for everything else: classes have equal weight, and so have their recalls
        else:
            classes, index = np.unique(label, return_inverse=True)
            weights = 1 / np.maximum(np.bincount(index[fit], minlength=len(classes)), 1)
            scores = predict_linearly(x, np.eye(len(classes))[index], fit, weights[index[fit]])
            is_right = scores.argmax(1) == index
            score = np.mean([is_right[scored & (index == of_class)].mean() for of_class in np.unique(index[scored])])
        if score >= READ:
            layers.append(layer)
    return layers


def predict_linearly(
    x: Float[np.ndarray, "place d_model"],
    y: Float[np.ndarray, "place output"],
    fit: Bool[np.ndarray, " place"],
    weights: Float[np.ndarray, " fitted"],
) -> Float[np.ndarray, "place output"]:
    """Predictions of weighted ridge regression, fitted to some places."""
    weights = weights / weights.mean()
    mean_x = np.average(x[fit], axis=0, weights=weights)
    mean_y = np.average(y[fit], axis=0, weights=weights)
    centred = x[fit] - mean_x
    weighted = centred * weights[:, None]
    gram = weighted.T @ centred + PENALTY * np.eye(x.shape[1])
    return (x - mean_x) @ np.linalg.solve(gram, weighted.T @ (y[fit] - mean_y)) + mean_y


def follows_from(activations: ProgramActivations, name: str, layers: Mapping[str, int]) -> dict[str, int]:
    """Values from which this one follows linearly, with the layer from which on they are there.

    It is a function of one value; or it is two values together, in that each of its classes is a pair of theirs: then
    the sum of their coordinates is largest for the right class.
    """
    labels = activations.labels[name]
    sources = {}
    for source, layer in layers.items():
        if source != name and _determines(activations.labels[source], labels):
            sources[source] = layer
    # Two values that this one determines, and that determine it together
    sums = [source for source in layers if source != name and _determines(labels, activations.labels[source])]
    for first, second in combinations(sums, 2):
        pair = activations.labels[first] * (activations.labels[second].max() + 1) + activations.labels[second]
        if _determines(pair, labels):
            sources[f"{first} with {second}"] = max(layers[first], layers[second])
    return sources


def _determines(source: Int[np.ndarray, " place"], value: Int[np.ndarray, " place"]) -> bool:
    """Whether each class of a source goes with one class of a value only."""
    pairs = np.unique(np.stack([source, value]), axis=1)
    return len(np.unique(pairs[0])) == pairs.shape[1]


@dataclass(frozen=True)
class ValueReading:
    """Where a probe reads a value of a program."""

    program: str
    name: str
    written: int
    """The layer that writes it; layer 0 is the embedding's output."""
    layers: tuple[int, ...]
    """The layers at which a probe reads it."""
    n_layers: int
    """Number of layers, the embedding's output among them."""
    sources: Mapping[str, int]
    """Values from which it follows, written at an earlier layer, with that layer."""

    @property
    def expected(self) -> int:
        """The first layer at which it should be read."""
        return min([self.written, *self.sources.values()])


@cache
def value_readings(packs: Packs) -> list[ValueReading]:
    """Every value that a probe can be fitted to, in every program."""
    readings = []
    for answer in programs(packs):
        task: Any = answer.task
        activations = program_activations(answer)
        written = written_at(task.program)
        one_hot = {
            name: written[name]
            for name, places in task.program.variables.items()
            if name in activations.labels and len(places) > 1
        }
        for name, label in activations.labels.items():
            # A value that is constant in either half cannot be probed
            in_training, held_out = set(label[activations.training]), set(label[~activations.training])
            if len(in_training & held_out) < 2:
                continue
            sources = follows_from(activations, name, one_hot)
            readings.append(
                ValueReading(
                    program=answer.name,
                    name=name,
                    written=written[name],
                    layers=tuple(layers_read(activations, name)),
                    n_layers=len(activations.resid),
                    sources={source: layer for source, layer in sources.items() if layer < written[name]},
                )
            )
    return readings


def measure_written(evidence: Evidence, *, packs: Packs) -> Readings:
    """Whether a probe reads a value at the layer that writes it, and at every later one. One row a value."""
    rows = []
    for reading in value_readings(packs):
        layers = set(range(reading.written, reading.n_layers))
        rows.append(
            {
                "program": reading.program,
                "value": reading.name,
                READ_THERE: layers <= set(reading.layers),
                "written at": reading.written,
                "read at": _listed(reading.layers),
            }
        )
    frame: Any = pd.DataFrame(rows)
    shown = frame[~frame[READ_THERE]].drop(columns=READ_THERE)
    return Readings(frame=frame, table=shown, title="Values that are not read there")


def measure_read(evidence: Evidence, *, packs: Packs) -> Readings:
    """Whether a probe reads a value first at the layer that writes it, or at which it follows from another.

    A value that is a function of a one-hot variable is a linear function of its coordinates. Some functions of two
    variables are too, such as "both"; these are in the table of exceptions. One row a value.
    """
    rows = []
    for reading in value_readings(packs):
        first_layer = reading.layers[0] if reading.layers else None
        sources = [f"{source} ({layer})" for source, layer in reading.sources.items() if layer == reading.expected]
        rows.append(
            {
                "program": reading.program,
                "value": reading.name,
                READ_THERE: first_layer == reading.expected,
                "written at": reading.written,
                "read at": "never" if first_layer is None else first_layer,
                "follows from": ", ".join(sources) or "nothing",
            }
        )
    frame: Any = pd.DataFrame(rows)
    elsewhere = frame["read at"] != frame["written at"]
    return Readings(
        frame=frame,
        table=frame[elsewhere].drop(columns=READ_THERE),
        title="Values read at another layer than that which writes them",
        numbers={
            "read before they are written, where they follow from another": int((frame[READ_THERE] & elsewhere).sum())
        },
    )


def _listed(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers)) or "none"


def readers(answer: KnownAnswer, name: str) -> list[str]:
    """The parts of a transformer with weights that read a variable after it is written."""
    program = answer.task.program  # type: ignore[attr-defined]
    weights = program.weights
    coordinates = list(program.variables[name])
    by_attention = bool((weights["W_O"][:, :, :, coordinates] != 0).any())
    start = written_at(program)[name]
    names = []
    for layer in range(len(weights["W_Q"])):
        if layer >= start:
            kinds = "Q", "K", "V"
            names += [f"{layer} {kind}" for kind in kinds if (weights[f"W_{kind}"][layer][:, coordinates] != 0).any()]
        if layer >= start - by_attention and (weights["W_in"][layer][coordinates] != 0).any():
            names.append(f"{layer} MLP")
    return [*names, *(["output"] if (weights["W_U"][coordinates] != 0).any() else [])]


def site(answer: KnownAnswer, name: str) -> str:
    """The hook point just after a variable is written."""
    program = answer.task.program  # type: ignore[attr-defined]
    start = written_at(program)[name]
    if start == 0:
        return "blocks.0.hook_resid_pre"
    by_attention = (program.weights["W_O"][start - 1][:, :, list(program.variables[name])] != 0).any()
    return f"blocks.{start - 1}.hook_resid_{'mid' if by_attention else 'post'}"


@torch.no_grad()
def changed_by(answer: KnownAnswer, name: str, seed: int) -> tuple[int, int]:
    """Examples of which an answer changes if a variable has the values of another example of the same length.

    Returns:
        Their number, and the number of examples whose values differ.
    """
    task: Any = answer.task
    batch = task.examples(torch.arange(len(task.program.examples)))
    inputs: dict[str, Any] = batch.model_inputs()
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(seed))
    lengths = inputs["attention_mask"].sum(1)
    source = torch.arange(len(batch))
    # Each example's values come from another example of its length, in random order
    for length in lengths.unique():
        rows = order[lengths[order] == length]
        source[rows] = rows.roll(1)
    places = list(task.program.variables[name])
    differ = torch.zeros(len(batch), dtype=torch.bool)

    def interchange(resid: Tensor, hook: Any) -> Tensor:
        new = resid.clone()
        new[:, :, places] = resid[source][:, :, places]
        differ.copy_(((new - resid).abs() > 1e-4).any(2).logical_and(inputs["attention_mask"]).any(1))
        return new

    # Answers that change when the values are interchanged
    clean = logits_at_targets(answer.model(batch.tokens, **inputs), batch)
    edited = answer.model.run_with_hooks(batch.tokens, **inputs, fwd_hooks=[(site(answer, name), interchange)])
    edited = logits_at_targets(edited, batch)
    moved = (clean - edited).abs()[..., 0] > TOLERANCE
    changed = moved if task.program.numerical else clean.argmax(-1) != edited.argmax(-1)
    return int((changed & batch.present).any(1).sum()), int(differ.sum())


def measure_used(evidence: Evidence, *, packs: Packs) -> Readings:
    """Whether an interchange of a value agrees with the weights: answers change if some part reads it."""
    rows = []
    for answer in programs(packs):
        task: Any = answer.task
        names = [name for name in task.probe_labels(task.examples(torch.arange(2))) if name != "label"]
        for name in names:
            # Weights and interchange must agree
            read_by = readers(answer, name)
            changed, differ = changed_by(answer, name, evidence.seed)
            rows.append(
                {
                    "program": answer.name,
                    "value": name,
                    AGREES: bool(read_by) == (changed > 0),
                    DIFFERS: differ > 0,
                    "read by": ", ".join(read_by) or "nothing",
                    "examples whose values differ": differ,
                    "whose answers change": changed,
                }
            )
    frame: Any = pd.DataFrame(rows)
    shown = frame[DIFFERS] & (~frame[AGREES] | (frame["read by"] == "nothing"))
    return Readings(
        frame=frame,
        table=frame[shown].drop(columns=[AGREES, DIFFERS]),
        title="Values that nothing reads, or where the two differ",
    )


def claims(packs: Packs) -> tuple[Claim, ...]:
    """The claims on these packs."""
    return (
        Claim(
            id="values.written",
            source=SOURCE,
            statement="A probe reads every value of the program at the layer that writes it, and at all later ones.",
            method=f"Share of the values with several values; the probe has a balanced accuracy of {READ} on other "
            f"examples, or that r2 where the value is a number",
            rule=Value(Equal(1.0)),
            value_range=SHARE,
            quantity="share of values read from the layer that writes them",
            preregistration=Preregistration(
                "after a result", "a penalty of 0.001, and values that no training example has, gave 0.97."
            ),
            measure=partial(measure_written, packs=packs),
            judged=Share(READ_THERE, unit="values"),
        ),
        Claim(
            id="values.read",
            source=SOURCE,
            statement="A probe reads a value of the program first at the layer that writes it, or at which it follows "
            "from another value.",
            method=f"Share of the values with several values; the probe has a balanced accuracy of {READ} on other "
            f"examples, or that r2 where the value is a number",
            rule=Value(AtLeast(0.95)),
            value_range=SHARE,
            quantity="share of values read where expected",
            preregistration=Preregistration(
                "after a result",
                f"on {OTHERS}, numbers were first read as classes, which no linear probe can; 0.953 then.",
            ),
            measure=partial(measure_read, packs=packs),
            judged=Share(READ_THERE, unit="values"),
        ),
        Claim(
            id="values.used",
            source=SOURCE,
            statement="Answers change if a value is another example's and some later part reads it, and only then.",
            method="Share of the values, interchanged at all positions just after they are written, on which answers "
            "change if and only if some weight reads them",
            rule=Value(AtLeast(0.95)),
            preregistration=BEFORE_ANY_MODEL,
            value_range=SHARE,
            quantity="share of values that behave as expected",
            measure=partial(measure_used, packs=packs),
            judged=Share(AGREES, unit="values", where={DIFFERS: True}, without_rows=(0.0, 0.0, 1.0)),
        ),
    )
