"""Probes: planted values, noise, invariances, controls, interchange, output formats and error texts."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import interp
from hooks import Transformer
from interp import probe
from interp.core import activations
from interp.core.activations import residuals_at_targets
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.probing import ProbeResult
from interp.probing import probe as probing
from interp.probing.ridge import RIDGE
from interp.tasks import S3, Lego

TASK = Lego(n_vars=3, sentence_format="compact")
LAYERS, WIDTH = 3, 10  # the embedding's output and two layers
N_TRAIN, N_TEST = 400, 600


def chance_band(n, classes=2):
    """Five binomial standard deviations around chance: false alarm below one in a million."""
    p = 1 / classes
    return p - 5 * (p * (1 - p) / n) ** 0.5, p + 5 * (p * (1 - p) / n) ** 0.5


def plain_model(task=TASK, **sizes):
    sizes = {"n_layers": LAYERS - 1, "d_model": 16, "n_heads": 2, **sizes}
    return Transformer(interp.config_for(task, **sizes))


@pytest.fixture
def noise(monkeypatch):
    """Activations replaced by noise; `plant` adds a signal, `turn` rotates."""

    class Noise:
        plant = staticmethod(lambda activations, batch: None)
        turn = torch.eye(WIDTH)
        calls = 0

        def __call__(self, model, batch, first=0):
            generator = torch.Generator().manual_seed(self.calls)
            self.calls += 1
            n_targets = batch.labels.shape[1]
            made = torch.randn(LAYERS, n_targets, len(batch), WIDTH, generator=generator)
            if self.calls % 4 in (1, 2):  # two batches of the model, then the same two of the untrained model
                self.plant(made, batch)
            return made @ self.turn

    made = Noise()
    monkeypatch.setattr(activations, "residuals_at_targets", made)
    return made


def plant_value(activations, batch):
    activations[1, 2, :, 4] += 4.0 * batch.labels[:, 2]


@pytest.mark.parametrize("solver", ["ridge", "logistic"])
def test_only_the_planted_cell_is_above_chance(noise, solver):
    noise.plant = plant_value
    result = probe(plain_model(), TASK, n_train=N_TRAIN, n_test=N_TEST, solver=solver)
    low, high = chance_band(N_TEST)
    wanted = np.zeros((LAYERS, 3), bool)
    wanted[1, 2] = True
    assert ((result.accuracy > high) == wanted).all()
    assert (result.accuracy[~wanted] > low).all()
    # two unit Gaussians at distance 4: the optimal accuracy is 97.7 %
    assert result.accuracy[1, 2] == pytest.approx(0.977, abs=5 * (0.977 * 0.023 / N_TEST) ** 0.5 + 0.01)
    assert ((low < result.untrained) & (result.untrained < high)).all()
    assert ((low < result.shuffled) & (result.shuffled < high)).all()
    assert ((low < result.control) & (result.control < high)).all()


def test_noise_is_at_chance(noise):
    result = probe(plain_model(), TASK, n_train=N_TRAIN, n_test=N_TEST)
    low, high = chance_band(N_TEST)
    for values in (result.accuracy, result.untrained, result.shuffled, result.control):
        assert ((low < values) & (values < high)).all()
    inside = (result.accuracy.low <= 0.5) & (result.accuracy.high >= 0.5)
    assert inside.sum() >= 7  # nine 95 % intervals: three misses have probability 0.008
    # 97.5 % quantile of twenty draws, each a mean of 600
    assert (result.shuffled_high > result.shuffled).all()
    assert (result.shuffled_high < high).all()


def test_invariance_to_rotated_activations(noise):
    noise.plant = plant_value
    straight = probe(plain_model(), TASK, n_train=N_TRAIN, n_test=N_TEST)
    noise.calls = 0
    noise.turn = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(9))).Q
    turned = probe(plain_model(), TASK, n_train=N_TRAIN, n_test=N_TEST)
    for name in ("accuracy", "control", "shuffled", "untrained"):
        # an example on the boundary may change sides by rounding
        assert np.allclose(getattr(straight, name), getattr(turned, name), atol=2.5 / N_TEST)


def test_invariance_to_renamed_classes(noise, monkeypatch):
    task = Lego(n_vars=3, group=S3)

    def plant(activations, batch):
        activations[1, 2] += 3.0 * torch.eye(WIDTH)[batch.labels[:, 2]]

    noise.plant = plant
    plain = probe(plain_model(task), task, n_train=N_TRAIN, n_test=N_TEST)
    noise.calls = 0
    names = torch.tensor([3, 5, 0, 1, 4, 2])
    monkeypatch.setattr(Lego, "probe_labels", lambda self, batch: {"value": names[batch.labels]})
    renamed = probe(plain_model(task), task, n_train=N_TRAIN, n_test=N_TEST)
    assert np.allclose(plain.accuracy, renamed.accuracy, atol=1.5 / N_TEST)
    assert plain.accuracy[1, 2] > chance_band(N_TEST, classes=6)[1]


def test_accuracies_equal_scikit_learn(trained, tiny):
    n_train, n_test, seed = 300, 200, 4
    ridge = probe(trained.model, tiny, n_train=n_train, n_test=n_test, seed=seed)
    logistic = probe(trained.model, tiny, n_train=n_train, n_test=n_test, seed=seed, solver="logistic")
    fitting = tiny.sample(n_train, generator=derived_generator(seed, "probe fit"), split="validation")
    testing = tiny.sample(n_test, generator=derived_generator(seed, "probe test"), split="test")
    x_fit, x_test = (residuals_at_targets(trained.model, batch).numpy() for batch in (fitting, testing))
    y_fit, y_test = fitting.labels.numpy(), testing.labels.numpy()
    for layer in range(3):
        for target in range(2):
            alpha = RIDGE * n_train * x_fit[layer, target].var(0).mean()
            models = (
                (ridge, RidgeClassifier(alpha=alpha)),
                (logistic, make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))),
            )
            for ours, theirs in models:
                theirs.fit(x_fit[layer, target], y_fit[:, target])
                score = theirs.score(x_test[layer, target], y_test[:, target])
                assert ours.accuracy[layer, target] == pytest.approx(score, abs=1.5 / n_test)
                share, n = float(ours.accuracy[layer, target]), len(set(map(tuple, testing.tokens.tolist())))
                low = stats.beta.ppf(0.025, share * n, (1 - share) * n + 1) if share > 0 else 0.0
                high = stats.beta.ppf(0.975, share * n + 1, (1 - share) * n) if share < 1 else 1.0
                assert ours.accuracy.low[layer, target] == pytest.approx(low, abs=1e-8)
                assert ours.accuracy.high[layer, target] == pytest.approx(high, abs=1e-8)


def test_probes_are_fitted_on_validation_and_scored_on_test_examples(monkeypatch):
    splits, original = [], Lego.sample

    def sample(self, n, *, generator, split="train", n_vars=None):
        splits.append((n, split))
        return original(self, n, generator=generator, split=split, n_vars=n_vars)

    monkeypatch.setattr(Lego, "sample", sample)
    result = probe(plain_model(), TASK, n_train=50, n_test=40)
    assert splits == [(50, "validation"), (40, "test")]
    assert (result.n_train, result.n_test, result.n_controls) == (50, 40, 20)


def test_a_trained_model_is_above_an_untrained_one(trained, tiny):
    result = probe(trained.model, tiny, n_train=1000, n_test=1000)
    assert result.accuracy.low[-1].min() > 0.98
    assert result.accuracy.value[-1].min() > result.untrained[-1].max()
    assert result.selectivity == pytest.approx(result.accuracy - result.control)
    # the untrained model is seeded
    again = probe(trained.model, tiny, n_train=1000, n_test=1000)
    assert (again.untrained == result.untrained).all()
    assert (again.accuracy == result.accuracy).all()
    other = probe(trained.model, tiny, n_train=1000, n_test=1000, seed=1)
    assert (other.untrained != result.untrained).any()


def test_the_model_is_not_changed(tiny):
    model = plain_model(tiny)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    probe(model, tiny, n_train=50, n_test=40, verify=True)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


def control_of(monkeypatch):
    """What `probe` fits and scores: labels (true, shuffled, control, untrained) in the order of the calls."""
    seen, original = [], probing.score_ridge

    def score(inputs, labels, present, n_classes):
        seen.extend(labels)
        return original(inputs, labels, present, n_classes)

    monkeypatch.setattr(probing, "score_ridge", score)
    return seen


def test_control_labels_are_one_random_class_per_input_type(monkeypatch):
    seen = control_of(monkeypatch)
    task = Lego(n_vars=2, alphabet="abcde", sentence_format="compact")
    probe(plain_model(task), task, n_train=200, n_test=150, seed=2)
    tables = [labels for labels in seen if labels[0].shape[1] == 20]
    fitting = task.sample(200, generator=derived_generator(2, "probe fit"), split="validation")
    testing = task.sample(150, generator=derived_generator(2, "probe test"), split="test")
    types = [task.control_types(batch) for batch in (fitting, testing)]
    assert set(types[0].flatten().tolist()) & set(types[1].flatten().tolist())

    def functions_of_the_type(labels):
        found: dict = {}
        for kinds, values in zip(types, labels, strict=True):
            for kind, drawn in zip(
                kinds.T.flatten().tolist(), values.transpose(1, 2).flatten(0, 1).tolist(), strict=True
            ):
                if found.setdefault(kind, drawn) != drawn:
                    return None
        return found

    shuffled, control = sorted(tables, key=lambda labels: functions_of_the_type(labels) is not None)
    found = functions_of_the_type(control)
    assert found is not None
    assert functions_of_the_type(shuffled) is None
    draws = np.array(list(found.values()))  # type, draw
    low, high = chance_band(draws.size)
    assert low < draws.mean() < high
    assert len({tuple(column) for column in draws.T}) == 20  # draws differ
    for values, batch in zip(shuffled, (fitting, testing), strict=True):
        counts = batch.labels.sum(0)
        assert torch.equal(values.sum(-1), counts[:, None].expand(2, 20))  # shuffled, not redrawn


def test_the_control_task_can_be_memorised_where_the_clause_is_read(monkeypatch):
    """Activations that spell out the clause: the control scores high, so selectivity is what it should be."""

    def clause(model, batch, first=0):
        onehot = torch.nn.functional.one_hot(task.control_types(batch), 6 * 2 * 7).float()
        return onehot.permute(1, 0, 2)[None].repeat(2, 1, 1, 1)

    # so few letters that every clause of the test batch was seen in the fitting batch
    task = Lego(n_vars=3, alphabet="abcdef", sentence_format="compact")
    monkeypatch.setattr(activations, "residuals_at_targets", clause)
    result = probe(plain_model(task), task, n_train=2000, n_test=1000)
    assert result.control.min() > 0.99
    assert result.shuffled.max() < chance_band(1000)[1]


def test_the_output_follows_only_where_the_answer_is(trained, tiny):
    result = probe(trained.model, tiny, n_train=1000, n_test=1000, verify=True)
    causal = result.causal
    assert set(causal) == {"follows", "weights", "placebo", "low", "high", "n"}
    assert all(values.shape == (3, 2) for values in causal.values())
    last, embedding = -1, 0
    assert causal["follows"][last].min() > 0.95
    assert causal["placebo"][last].max() < 0.1
    # the second variable's value is nowhere in its own embedding. Distinct test sentences are the units.
    testing = tiny.sample(1000, generator=derived_generator(0, "probe test"), split="test")
    low, high = chance_band(len(testing.tokens.unique(dim=0)))
    assert low < result.accuracy[embedding, 1] < high
    # an interchange there has no effect, so the output follows less often than by chance
    assert causal["high"][embedding, 1] < 0.5
    assert ((causal["low"] <= causal["follows"]) & (causal["follows"] <= causal["high"])).all()
    # 500 pairs, about half of which have different answers
    assert ((causal["n"] > 250 - 5 * 500**0.5 / 2) & (causal["n"] < 250 + 5 * 500**0.5 / 2)).all()


def test_interchange_worked_by_hand(trained, tiny):
    """Two classes, one direction: interchange along the line between class means, then resume the model."""
    model = trained.model
    causal = probe(model, tiny, n_train=400, n_test=300, verify=True, seed=7).causal
    fitting = tiny.sample(400, generator=derived_generator(7, "probe fit"), split="validation")
    testing = tiny.sample(300, generator=derived_generator(7, "probe test"), split="test")
    resid = residuals_at_targets(model, testing)
    for layer in (0, 2):
        for target in range(2):
            x = residuals_at_targets(model, fitting)[layer, target]
            line = x[fitting.labels[:, target] == 1].mean(0) - x[fitting.labels[:, target] == 0].mean(0)
            line = line / line.norm()
            base, source = resid[layer, target, 0::2], resid[layer, target, 1::2]
            moved = base + ((source - base) @ line)[:, None] * line
            different = testing.labels[0::2, target] != testing.labels[1::2, target]
            if layer == 2:
                answers = model.read_out(moved[:, None])[:, 0].argmax(-1)
            else:
                whole = model.run_with_cache(testing.tokens[0::2])[1]["resid_pre", 0].clone()
                whole[torch.arange(150), testing.target_positions[0::2, target]] = moved
                logits = model.resume(whole, 0)
                answers = logits[torch.arange(150), testing.target_positions[0::2, target]].argmax(-1)
            follows = (answers == testing.labels[1::2, target])[different].double().mean()
            n = int(different.sum())
            assert causal["n"][layer, target] == n
            assert causal["follows"][layer, target] == pytest.approx(float(follows), abs=1.5 / n)  # one near the border


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": "colour"}, "label is 'colour'; this task has value, operation"),
        ({"solver": "lasso"}, "solver is 'lasso'; choose one of ridge, logistic"),
        ({"n_train": 19}, "n_train is 19 for 2 classes; give at least 20"),
        ({"n_test": 0}, "n_test is 0; it must be at least 1"),
    ],
)
def test_error_texts_of_probe(change, words, as_a_user):
    with pytest.raises(ValueError, match=words):
        probe(plain_model(), TASK, **{"n_train": 100, "n_test": 50, **change})


def test_verify_refuses_labels_that_are_not_predicted():
    with pytest.raises(ValueError, match="verify compares with the model's answers, which are not 'operation'"):
        probe(plain_model(), TASK, label="operation", n_train=100, n_test=50, verify=True)


def test_a_label_with_one_class_is_refused(monkeypatch):
    monkeypatch.setattr(Lego, "probe_labels", lambda self, batch: {"value": batch.labels * 0})
    with pytest.raises(ValueError, match=r"'value' has a single class at every target \(0 in all 100 examples at #0\)"):
        probe(plain_model(), TASK, n_train=100, n_test=50)


def test_a_target_with_one_class_is_omitted(monkeypatch):
    everything = probe(plain_model(), TASK, n_train=100, n_test=50)
    columns = torch.tensor([1, 0, 1])
    monkeypatch.setattr(Lego, "probe_labels", lambda self, batch: {"value": batch.labels * columns, "x": batch.labels})
    found = probe(plain_model(), TASK, n_train=100, n_test=50)
    assert found.targets == ("#0", "#2")
    assert found.omitted == {"#1": "a single class"}
    assert str(found).endswith("; omitted: #1 (a single class)")
    assert not everything.omitted
    assert "omitted" not in str(everything)
    assert found.accuracy.value.tolist() == everything.accuracy.value[:, [0, 2]].tolist()
    assert found.untrained.tolist() == everything.untrained[:, [0, 2]].tolist()


def test_activations_that_are_not_finite_are_refused():
    model = plain_model()
    with torch.no_grad():
        model.stored_blocks[0].attention.o.weight[0] = 3e38
    with pytest.raises(ValueError, match="activations has a value that is not finite, first at layer 1, target 0"):
        probe(model, TASK, n_train=100, n_test=50)


@pytest.fixture(scope="module")
def result():
    values = np.arange(6).reshape(2, 3) / 8
    return ProbeResult(
        label="value",
        solver="ridge",
        targets=("#0", "#1", "#2"),
        accuracy=Interval(value=values, low=values / 2, high=(1 + values) / 2, n=np.array([20, 20, 15])),
        control=values / 4,
        shuffled=values / 8,
        shuffled_high=values / 7,
        untrained=np.array([[0.5, np.nan, 0.25], [0.125, 0.0, 1.0]]),
        position=np.array([0.5, 0.25, 0.125]),
        majority=np.array([0.25, 0.5, 0.375]),
        n_train=40,
        n_test=20,
        n_fitted=np.array([40, 30, 25]),
        n_scored=np.array([20, 20, 15]),
        omitted={"#3": "a single class"},
        n_controls=3,
        causal={
            "follows": values[::-1].copy(),
            "weights": values / 3,
            "placebo": values / 9,
            "low": values[::-1] / 2,
            "high": (1 + values[::-1]) / 2,
            "n": np.full((2, 3), 9.0),
        },
    )


def test_saving_and_loading(result, tmp_path):
    path = tmp_path / "deep" / "probes.json"
    result.save(path)
    again = ProbeResult.load(path)
    for name in ("value", "low", "high", "n"):
        assert np.array_equal(getattr(again.accuracy, name), getattr(result.accuracy, name), equal_nan=True)
    for name in ("control", "shuffled", "shuffled_high", "untrained", "n_fitted", "n_scored"):
        assert np.array_equal(getattr(again, name), getattr(result, name), equal_nan=True)
        assert getattr(again, name).dtype == getattr(result, name).dtype
    for name in ("label", "solver", "targets", "n_train", "n_test", "n_controls", "omitted"):
        assert getattr(again, name) == getattr(result, name)
    assert again.causal is not None
    assert {name: values.tolist() for name, values in again.causal.items()} == {
        name: values.tolist() for name, values in result.causal.items()
    }


def test_another_kind_of_result_is_refused(result, tmp_path, tiny, trained):
    path = tmp_path / "result.json"
    interp.evaluate(trained.model, tiny, n=10).save(path)
    with pytest.raises(ValueError, match=r"holds a EvaluationResult, not a ProbeResult; use EvaluationResult\.load"):
        ProbeResult.load(path)
    result.save(path)
    whole = path.read_text()
    for content in (whole[: len(whole) // 2], "", "[1, 2]", '{"values": {}}'):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"result\.json is not (readable JSON .*it should be )?a saved result"):
            ProbeResult.load(path)
    changed = json.loads(whole)
    changed["values"]["colour"] = 1
    path.write_text(json.dumps(changed))
    with pytest.raises(ValueError, match=r"the ProbeResult has unknown fields 'colour'"):
        ProbeResult.load(path)
    del changed["values"]["colour"], changed["values"]["control"]
    path.write_text(json.dumps(changed))
    with pytest.raises(ValueError, match=r"the ProbeResult lacks the fields 'control'"):
        ProbeResult.load(path)
    with pytest.raises(FileNotFoundError):
        ProbeResult.load(tmp_path / "nothing.json")


def test_probe_table(result):
    table = result.to_dataframe()
    assert len(table) == 6
    assert list(table.columns) == [
        "layer",
        "target",
        "accuracy",
        "low",
        "high",
        "control",
        "selectivity",
        "shuffled",
        "shuffled_high",
        "untrained",
        "majority",
        "position",
        "interchange_follows",
        "interchange_weights",
        "interchange_placebo",
        "interchange_low",
        "interchange_high",
        "interchange_n",
        "n",
    ]
    row = table[(table["layer"] == 1) & (table["target"] == "#2")].iloc[0]
    assert row["accuracy"] == 5 / 8
    assert row["selectivity"] == 5 / 8 - 5 / 32
    assert row["interchange_follows"] == 2 / 8
    assert row["n"] == 15
    assert table["n"].tolist() == [20, 20, 15] * 2


def test_probe_text(result):
    lines = str(result).splitlines()
    names = ["#0", "#1", "#2"]
    assert lines[0].split() == ["layer", *names, "interchange", *names]
    follows = [f"{value:.3f}" for value in result.causal["follows"][1]]
    assert lines[2].split() == ["1", "0.375", "0.500", "0.625", *follows]
    assert lines[0].index("interchange") > lines[2].index("0.625")
    assert lines[3].startswith("ridge probes for value, 15 to 20 held-out examples per cell (95 % within 0.250)")
    assert "; control at most 0.156, shuffled at most 0.078, untrained at most" in lines[3]
    assert "position at most 0.500, majority class 0.250 to 0.500; interchange" in lines[3]
    pairs, placebo = int(result.causal["n"].max()), result.causal["placebo"].max()
    assert f"{pairs} pairs per cell, placebo at most {placebo:.3f}" in lines[3]
    assert lines[3].endswith("; omitted: #3 (a single class)")


def test_probe_text_without_interchange(result):
    lines = str(replace(result, causal=None)).splitlines()
    assert lines[0].split() == ["layer", "#0", "#1", "#2"]
    assert lines[2].split() == ["1", "0.375", "0.500", "0.625"]
    assert "interchange" not in lines[3]
    assert lines[3].endswith("; omitted: #3 (a single class)")


def test_probe_chart(result):
    spec = result.plot().to_dict()
    assert "linear probes for value, n = 15 to 20 per cell" in json.dumps(spec)
    rows = [row for rows in spec["datasets"].values() for row in rows]
    panels = {row["map"] for row in rows}
    assert panels == {
        "accuracy",
        "control task",
        "shuffled labels",
        "untrained model",
        "output follows interchange",
    }
    cell = next(row for row in rows if (row["map"], row["layer"], row["target"]) == ("accuracy", 1, "#2"))
    assert cell["fraction"] == 5 / 8
    html = result._repr_html_()
    assert "<svg" in html
    assert "<script" not in html
    assert "0.63" in html or "0.62" in html  # the cell's label
