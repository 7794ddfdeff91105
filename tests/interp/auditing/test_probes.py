"""Audit of probes: planted labels are used from their layer on, and unused in registers that nothing reads."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp.auditing import ProbeAudit
from interp.auditing.probes import PROBE_VERDICTS
from interp.known_answers import lego_loop
from interp.known_answers.craft.weights import balance, head_rows
from interp.known_answers.lego.loop import MANIPULATION, larger_loop
from interp.tasks import Lego

SIZES = {"n_train": 400, "n_test": 200}


@dataclass(frozen=True, kw_only=True)
class WithParity(Lego):
    """LEGO with a further label, the parity of a variable's letter, on which no answer depends."""

    def probe_labels(self, batch):
        return super().probe_labels(batch) | {"parity": batch.letters % 2, "one": torch.zeros_like(batch.letters)}


@pytest.fixture(scope="module")
def task():
    return WithParity(n_vars=2)


@pytest.fixture(scope="module")
def model(task):
    torch.set_num_threads(1)
    return lego_loop(task)


@pytest.fixture(scope="module")
def values(model, task):
    return interp.audit_probe(model, task, **SIZES)


@pytest.fixture(scope="module")
def parity(model, task):
    return interp.audit_probe(model, task, label="parity", **SIZES)


def column(result, target):
    return [row[result.targets.index(target)] for row in result.verdict]


def test_values_are_used_from_the_planted_layer_on(values):
    assert values.label == "value"
    for variable, target in enumerate(values.targets):
        first = 2 * variable + 1
        found = column(values, target)
        assert found == ["not readable"] * first + ["used"] * (len(found) - first)
        assert values.readable_from(target) == first


def test_effects_of_interchange_and_erasure(values):
    read = np.array(values.verdict) == "used"
    for change in (values.interchange, values.erasure):
        assert (np.isfinite(change) == read).all()
        assert (change.low[read] <= change[read]).all()
        assert (change[read] <= change.high[read]).all()
    assert (values.interchange[read] > 0.5).all()  # another value at the first token is another answer
    assert (values.accuracy[read] == 1).all()
    assert ((values.accuracy.low <= values.accuracy) & (values.accuracy <= values.accuracy.high)).all()


def test_labels_readable_from_an_untrained_embedding_are_not_readable(parity):
    """The parity of a letter can also be read from the embedding of an untrained model."""
    assert (parity.accuracy == 1).all()
    assert (parity.baseline == 1).all()
    assert {one for row in parity.verdict for one in row} == {"not readable"}
    assert np.isnan(parity.interchange).all()  # not tested


def with_a_copy_of_the_operation(model, task):
    """The loop with a second head that also writes the operation of its clause to unused coordinates."""
    size = len(task.group.elements)
    larger = larger_loop(task, registers=size)
    out = larger.block(0).attention.o.weight
    rows = head_rows(larger.block(0), MANIPULATION)
    end = larger.cfg.d_model - 1
    with torch.no_grad():
        out[end - size : end, rows][:, :size] = torch.eye(size)
    balance(larger)
    batch = task.sample(50, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(larger(batch.tokens), model(batch.tokens), atol=1e-6)
    return larger


def test_a_copy_of_the_operation_is_unused(model, task):
    plain, copied = (
        interp.audit_probe(one, task, label="operation", **SIZES)
        for one in (model, with_a_copy_of_the_operation(model, task))
    )
    assert column(plain, "#1") == ["not readable"] * 4
    assert column(copied, "#1") == ["not readable"] + ["unused"] * 3
    assert copied.readable_from("#1") == 1
    for result in (plain, copied):  # for the root the operation is the value
        assert column(result, "#0") == ["not readable"] + ["used"] * 3


@pytest.mark.parametrize("seed", range(3))
def test_no_label_is_used_by_an_untrained_model(seed, tiny):
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=32, n_heads=2), seed=seed)
    result = interp.audit_probe(model, tiny, **SIZES, seed=seed)
    assert set(np.array(result.verdict).ravel()) <= {"not readable", "undecided"}
    assert [result.readable_from(target) for target in result.targets] == [None, None]


def test_a_trained_model_uses_its_answer(trained, tiny):
    result = interp.audit_probe(trained.model, tiny, **SIZES)
    assert [row[0] for row in result.verdict][-1] == "used"


def test_the_seed_decides_everything(model, task, values):
    again, other = (interp.audit_probe(model, task, **SIZES, seed=seed) for seed in (0, 1))
    assert np.array_equal(again.p, values.p)
    assert other.verdict == values.verdict
    assert not np.array_equal(other.accuracy, values.accuracy)


def test_p_values_agree_with_the_verdicts(values):
    readable, not_readable, used, unused = values.p
    assert ((values.p > 0) & (values.p <= 1)).all()
    found = np.array(values.verdict)
    assert ((found == "used") == ((readable <= values.alpha) & (used <= values.alpha))).all()
    assert ((found == "not readable") == (not_readable <= values.alpha)).all()
    assert (unused[found == "used"] > values.alpha).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_test": 31}, "n_test is 31; at least 32"),
        ({"alpha": 0.0}, "alpha is 0.0; it must be strictly between"),
        ({"alpha": 1.0}, "alpha is 1.0; it must be strictly between"),
        ({"label": "colour"}, "label is 'colour'; this task has value, operation, parity, one"),
        ({"label": "one"}, "has a single class at every target"),
        ({"n_train": 10}, "n_train is 10 for 2 classes; give at least 20"),
    ],
)
def test_bad_input(model, task, settings, words):
    with pytest.raises(ValueError, match=words):
        interp.audit_probe(model, task, **(SIZES | settings))


def test_a_task_that_does_not_fit_raises(model, task):
    with pytest.raises(ValueError, match=r"the task has n_ctx 17, the model 12: it cannot read"):
        interp.audit_probe(model, replace(task, n_vars=3, supervised=None))


def test_an_unknown_target_raises(values):
    with pytest.raises(ValueError, match="target is '#2'; there are #0, #1"):
        values.readable_from("#2")


def test_readable_from_depends_on_all_later_layers(values):
    """Whether the label is also used does not matter."""

    def made(*rows):
        readable = np.array(rows)
        p = np.stack([np.where(readable, 0.0, 1.0)] + [np.ones(readable.shape)] * 3)
        verdict = np.where(readable & np.isnan(values.interchange.value), "cannot be told apart", "undecided")
        return replace(values, p=p, verdict=tuple(map(tuple, verdict.tolist())))

    found = made((True, False), (False, True), (True, False), (True, False))
    assert found.readable_from("#0") == 2
    assert found.readable_from("#1") is None
    assert made(*[(True, True)] * 4).readable_from("#0") == 0


def test_probe_audits_are_saved_drawn_and_printed(values, parity, tmp_path):
    from interp.view.figures import chart_html

    for result in (values, parity):
        result.save(tmp_path / "probes.json")
        loaded = ProbeAudit.load(tmp_path / "probes.json")
        assert loaded.verdict == result.verdict
        for field in ("p", "interchange", "erasure", "accuracy"):
            assert np.array_equal(getattr(loaded, field), getattr(result, field), equal_nan=True)
        assert np.array_equal(loaded.erasure.high, result.erasure.high, equal_nan=True)
        assert str(loaded) == str(result)
    assert "<svg" in chart_html(values.plot())
    *rows, last = str(values).split("\n")
    assert last == "value: 4 used, 4 not readable; 200 (174 distinct) examples, level 0.01 (Holm)"
    assert len(rows) == 1 + len(values.verdict)
    assert rows[1].split() == ["0", "not", "readable", "not", "readable"]
    page = interp.report([values], tmp_path / "page.html", title="Probes")
    assert "4 used, 4 not readable" in page.read_text()


def test_a_row_per_layer_and_target(values):
    table = values.to_dataframe()
    assert list(table["layer"]) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert list(table["verdict"]) == [one for row in values.verdict for one in row]
    assert set(table["verdict"]) <= set(PROBE_VERDICTS)
    assert {"accuracy", "baseline", "interchange_low", "erasure_high"} <= set(table)
    assert (table["n"] == 200).all()
