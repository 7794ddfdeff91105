"""What probes must not be credited with: labels that positions predict, and rounding errors of equal activations."""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from tied import SIGNS, Planted, Tied, linear

import interp
from hooks import Transformer, TransformerConfig
from interp.core import activations
from interp.probing.directions import DirectionSums, edited_activations
from interp.probing.ridge import ROUNDING, fit, varying
from interp.probing.scoring import position_accuracy
from interp.tasks import Lego, Task
from interp.tasks.base import Batch
from interp.tasks.vocab import Vocab

LONGEST, SHORTEST, PAD = 12, 3, 2
TABLE = torch.tensor([0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1])
"""A class for each position, which no line separates."""


@dataclass(frozen=True, kw_only=True)
class Words(Task):
    """Bits. The answer is whether the first two differ; a further label is that of a position, or of a length."""

    target_is_last: bool = True
    """Whether the target is the last token, or the second."""

    disjoint_splits = False
    vocab = Vocab(("0", "1", "-"))
    targets = ("answer",)
    n_ctx = LONGEST
    d_vocab_out = 2

    def sample(self, n, *, generator, split="train"):
        tokens = torch.randint(2, (n, LONGEST), generator=generator)
        lengths = torch.randint(SHORTEST, LONGEST + 1, (n, 1), generator=generator)
        real = torch.arange(LONGEST) < lengths
        return Batch(
            tokens=tokens.masked_fill(~real, PAD),
            target_positions=lengths - 1 if self.target_is_last else torch.ones_like(lengths),
            labels=(tokens[:, :1] ^ tokens[:, 1:2]),
            supervised=torch.ones(1, dtype=torch.bool),
            attention_mask=real,
        )

    def probe_labels(self, batch):
        return {"answer": batch.labels, "where": TABLE[batch.attention_mask.sum(1, keepdim=True) - 1]}


class Positioned(Transformer):
    """A stream with both labels at every position, from which the answer is read."""

    def __init__(self):
        cfg = TransformerConfig(
            d_vocab=3, d_vocab_out=2, n_ctx=LONGEST, d_model=4, n_heads=1, n_layers=1, d_mlp=4, block="no_norm"
        )
        super().__init__(cfg)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()
            self.unembed.weight[1, 0] = 1.0
        self.add_hook("hook_embed", self._write, is_permanent=True)

    def _write(self, resid, hook):
        signs = [self.tokens[:, 0] ^ self.tokens[:, 1], TABLE[(self.tokens != PAD).sum(1) - 1]]
        written = torch.zeros_like(resid)
        for coordinate, values in enumerate(signs):
            written[..., coordinate] = (2.0 * values - 1)[:, None]
        return written

    def forward(self, tokens, *args, **inputs):
        self.tokens = tokens
        return super().forward(tokens, *args, **inputs)


# Positions


@pytest.mark.parametrize("target_is_last", [True, False])
def test_a_label_that_position_or_length_predicts_is_not_readable(target_is_last, monkeypatch):
    task = Words(target_is_last=target_is_last)
    sizes = {"n_train": 400, "n_test": 200}
    where = interp.audit_probe(Positioned(), task, label="where", **sizes)
    assert (where.accuracy == 1).all()
    assert (where.baseline == 1).all()
    assert where.verdict == (("not readable",),) * 2
    answer = interp.audit_probe(Positioned(), task, label="answer", **sizes)
    assert answer.verdict == (("used",),) * 2
    # No other control shows it
    monkeypatch.setattr("interp.probing.probe.position_accuracy", lambda *_: np.zeros(1))
    unseen = interp.audit_probe(Positioned(), task, label="where", **sizes)
    assert (unseen.baseline < 0.9).all()
    assert unseen.verdict == (("unused",),) * 2


def words(positions, lengths):
    n = len(positions)
    return Batch(
        tokens=torch.zeros(n, 4, dtype=torch.long),
        target_positions=torch.tensor(positions)[:, None],
        labels=torch.zeros(n, 1, dtype=torch.long),
        supervised=torch.ones(1, dtype=torch.bool),
        attention_mask=torch.arange(4) < torch.tensor(lengths)[:, None],
    )


@pytest.mark.parametrize(
    ("rule", "accuracy"),
    [
        (lambda position, length: position, 1.0),
        (lambda position, length: length % 2, 1.0),
        (lambda position, length: (position + length) % 2, 1.0),
        (lambda position, length: 1, 1.0),
    ],
)
def test_position_length_or_both_predict(rule, accuracy):
    cases = [(position, length) for position in (0, 1) for length in (2, 3, 4)]
    batch = words([position for position, _ in cases], [length for _, length in cases])
    labels = torch.tensor([rule(*case) for case in cases])[:, None]
    assert position_accuracy([batch, batch], [labels, labels], [0]).tolist() == [accuracy]


def test_cases_that_were_not_fitted():
    # Both together were not seen: position alone, or length alone, predicts
    fitting, testing = words([0, 1], [2, 3]), words([0, 1], [3, 2])
    for labels in (torch.tensor([[0], [1]]), torch.tensor([[1], [0]])):
        assert position_accuracy([fitting, testing], [labels, labels], [0]).tolist() == [1.0]
        assert position_accuracy([fitting, testing], [labels, labels.flip(0)], [0]).tolist() == [1.0]
    # A position that was not seen: the most frequent class
    fitting, testing = words([0, 0, 1, 1, 1], [4] * 5), words([0, 1, 2, 3], [4] * 4)
    labels = torch.tensor([[0], [0], [1], [1], [1]]), torch.tensor([[0], [1], [1], [1]])
    assert position_accuracy([fitting, testing], labels, [0]).tolist() == [1.0]


def test_the_control_is_reported_like_the_others():
    result = interp.probe(Positioned(), Words(), label="where", n_train=200, n_test=100)
    assert result.position.tolist() == [1.0]
    assert ", position at most 1.000" in str(result)
    assert (result.to_dataframe()["position"] == 1).all()
    # Where all examples have one position and length, the most frequent class is predicted
    task = Lego(n_vars=2)
    model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16))
    plain = interp.probe(model, task, n_train=100, n_test=100)
    assert ((plain.position > 0.35) & (plain.position < 0.65)).all()


# Features without variance


@pytest.fixture
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def one_rounding_apart(width=48):
    """Codes of two classes that differ in the last bit of every coordinate."""
    codes = torch.full((2, width), 1000.0)
    codes[1] = torch.nextafter(codes[0], torch.tensor(torch.inf))
    return codes


CONSTANT = {"zero": torch.zeros(2, 48), "equal": torch.full((2, 48), 3.0), "rounding": one_rounding_apart()}


@pytest.mark.parametrize("solver", ["ridge", "logistic"])
@pytest.mark.parametrize("codes", CONSTANT.values(), ids=CONSTANT)
def test_nothing_is_read_from_equal_activations(codes, solver, no_warnings):
    task = Tied()
    model = Planted(task, {"read 1": codes}, weights=torch.zeros(48, 2), bias=torch.zeros(2))
    result = interp.probe(model, task, n_train=200, n_test=200, solver=solver, verify=True)
    assert ((result.accuracy > 0.35) & (result.accuracy < 0.65)).all()
    for name in ("accuracy", "control", "shuffled", "untrained"):
        assert np.isfinite(getattr(result, name)).all()
    # The answer is always 0, with every edit
    assert len({values.tobytes() for values in (result.causal[name] for name in ("follows", "weights"))}) == 1


@pytest.mark.parametrize("tie", [0.0, 0.5])
@pytest.mark.parametrize("codes", CONSTANT.values(), ids=CONSTANT)
def test_equal_activations_are_not_readable(codes, tie, no_warnings):
    """Decided with few examples too, and with the other label held fixed."""
    task = Tied(tie=tie)
    model = Planted(task, {"read 1": codes}, weights=torch.zeros(48, 2), bias=torch.zeros(2))
    audit = interp.audit_probe(model, task, n_train=100, n_test=40)
    assert audit.verdict == (("not readable",),) * 2
    assert (audit.p[1] == 0).all()


@pytest.mark.parametrize("solver", ["ridge", "logistic"])
def test_constant_coordinates_change_nothing(solver, monkeypatch, no_warnings):
    """Noise and a signal; then the same with coordinates that are constant up to rounding."""
    task = Lego(n_vars=2, sentence_format="compact")
    model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16))

    def planted(constant):
        def stream(model, batch, first=0):
            generator = torch.Generator().manual_seed(len(batch))
            values = torch.randn(2, 2, len(batch), 6, generator=generator)
            values[1, :, :, 0] += 3.0 * batch.labels.T
            leak = torch.where(batch.labels.T == 1, 50 * (1 + 1e-7), 50.0)[None].expand(2, -1, -1)
            return torch.cat([values, leak[..., None].repeat(1, 1, 1, 3)], -1) if constant else values

        monkeypatch.setattr(activations, "residuals_at_targets", stream)
        return interp.probe(model, task, n_train=200, n_test=150, solver=solver)

    plain, padded = planted(False), planted(True)
    # The penalty of ridge regression is relative to the mean variance of all coordinates, so that it is smaller
    assert np.allclose(plain.accuracy, padded.accuracy, atol=2.5 / 150)
    assert (padded.accuracy.value[1] > 0.85).all()
    assert (padded.accuracy.value[0] < 0.65).all()


def test_which_coordinates_vary():
    mean, variance = torch.tensor([3.0, 4, 0]), torch.tensor([0.0, 1, 0])
    smallest = ROUNDING**2 * 26
    assert varying(mean, variance).tolist() == [False, True, False]
    variance[0] = 0.9 * smallest
    assert varying(mean, variance).tolist() == [False, True, False]
    variance[0] = 1.1 * smallest
    assert varying(mean, variance).tolist() == [True, True, False]
    assert not varying(torch.zeros(2), torch.zeros(2)).any()


def test_weights_of_constant_coordinates_are_zero(generator):
    inputs = torch.randn(1, 50, 4, generator=generator)
    labels = torch.randint(2, (1, 1, 50), generator=generator)
    inputs[..., 2] = one_rounding_apart(1)[labels[0, 0], 0]
    weight = fit(inputs, labels, 2).weight[0, 0]
    assert (weight[2] == 0).all()
    assert (weight[[0, 1, 3]] != 0).all()


def test_directions_of_equal_activations(generator, no_warnings):
    labels = torch.randint(3, (40, 2), generator=generator)
    streams = torch.full((1, 2, 40, 5), 2.0)
    streams[:, 1] += torch.randn(40, 5, generator=generator)
    sums = DirectionSums(labels, torch.ones(40, 2, dtype=torch.bool), 3)
    sums.add(slice(0, 40), streams)
    directions = sums.directions()
    assert [directions[0, target].varies for target in range(2)] == [False, True]
    base, source = torch.randn(2, 6, 5, generator=generator)
    for edit in edited_activations(directions[0, 0], base, source, 0).values():
        assert torch.equal(edit(), base)


# Labels that hardly vary


@dataclass(frozen=True, kw_only=True)
class Rare(Tied):
    """The label that is read has one value in all but some examples."""

    n_rare: int = 3

    def probe_labels(self, batch):
        rare = torch.arange(len(batch))[:, None] < self.n_rare
        return super().probe_labels(batch) | {"rare": rare.long()}


def test_labels_with_few_examples_outside_of_one_class(no_warnings):
    task = Rare(n_rare=4)
    model = linear(task, SIGNS, SIGNS)
    for verb in (interp.probe, interp.audit_probe):
        with pytest.raises(ValueError, match=r"omitted: last \(fewer than 5 examples outside of a single class\)"):
            verb(model, task, label="rare", n_train=200, n_test=100)
    task = Rare(n_rare=5)
    for solver in ("ridge", "logistic"):
        result = interp.probe(model, task, label="rare", n_train=200, n_test=100, solver=solver)
        assert (result.accuracy == 0.95).all()
        assert result.position.tolist() == [0.95]
    audit = interp.audit_probe(model, task, label="rare", n_train=200, n_test=100)
    assert {verdict for row in audit.verdict for verdict in row} <= {"not readable", "undecided"}
    assert np.isfinite(audit.p).all()


def test_a_class_that_no_test_example_has_is_not_readable(monkeypatch, no_warnings):
    labels_of = Rare.probe_labels
    task = Rare(n_rare=20)

    def labels(self, batch):
        labels = labels_of(self, batch)
        return labels | {"rare": labels["rare"] * (len(batch) > 150)}

    monkeypatch.setattr(Rare, "probe_labels", labels)
    audit = interp.audit_probe(linear(task, SIGNS, SIGNS), task, label="rare", n_train=200, n_test=100)
    assert audit.verdict == (("not readable",),) * 2
