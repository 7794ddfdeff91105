"""Kernel regression on unseen symbols: the transformer's kernel learns templates, the MLP's does not."""

import numpy as np
import pytest
from scipy import stats

from interp.core.randomness import derived_generator
from interp.tasks import Template
from interp.theory import KernelResult, MLPKernel, TransformerKernel, kernel_regression, template_matrix

ABA_ABB = Template(templates=("aba -> +1", "abb -> -1"), train=512)

AA_AB = Template(templates=("aa -> +1", "ab -> -1"), train=512)

THREE = Template(templates=("aab -> -1", "aba -> 0.5", "abb -> 3"), train=64)


@pytest.mark.parametrize("task", [ABA_ABB, AA_AB])
def test_transformer_kernel_generalises_to_unseen_symbols_and_mlp_kernel_does_not(task):
    kernel = TransformerKernel(beta=8.0)
    found = kernel_regression(task, kernels=[kernel, TransformerKernel(activation="relu")], n=512)
    assert found.accuracy[found.chosen] >= 0.95
    assert found.accuracy.low[found.chosen] > 0.94
    assert found.mse[found.chosen] < 0.2
    assert found.mse.high.max() < found.constant_mse
    matrix = template_matrix(task, kernel)
    assert matrix.verdict == "nonsingular"
    assert matrix.smallest.low > 0.001
    blind = kernel_regression(task, kernels=[MLPKernel()], n=512)
    assert (blind.spread < 1e-12).all()
    assert blind.mse[blind.chosen] == pytest.approx(1, abs=0.05)
    share = blind.constant_accuracy  # of one of the two labels: that of a fair coin
    assert blind.accuracy.value == pytest.approx([share, share])
    assert abs(share - 0.5) < 5 * (0.25 / blind.n) ** 0.5
    alike = template_matrix(task, MLPKernel())
    assert (alike.verdict, alike.n) == ("singular", 0)
    assert alike.smallest.low == alike.smallest.value == alike.smallest.high
    assert abs(float(alike.smallest)) < 1e-12
    assert np.ptp(alike.matrix) == 0
    assert (alike.attention == 1).all()  # [CLS]
    assert not alike.matrix_error.any()


def test_uniform_attention_does_not_generalise():
    """The transformer's kernel without attention scores, as a null."""
    kernel = TransformerKernel(beta=0.0)
    assert template_matrix(ABA_ABB, kernel).verdict == "singular"
    assert (kernel_regression(ABA_ABB, kernels=[kernel], n=128).spread < 1e-12).all()


@pytest.mark.shapes
def test_results_equal_their_definitions():
    kernels = [TransformerKernel(beta=2.0, n_draws=64), TransformerKernel(activation="relu", n_draws=64), MLPKernel()]
    parts = (1e-3, 0.3)
    found = kernel_regression(THREE, kernels=kernels, regularisation=parts, n=60, n_validation=50, n_test=70, seed=4)

    def sample(n, split):
        batch = THREE.sample(n, generator=derived_generator(4, "kernel regression", split), split=split)
        return batch.tokens, batch.values[:, 0].double().numpy()

    train, y = sample(60, "train")
    for setting in range(6):
        kernel, part = kernels[setting // 2], parts[setting % 2]
        assert (found.kernels[setting], found.regularisation[setting]) == (str(kernel), part)
        gram = kernel.gram(train)
        weights = np.linalg.solve(gram + part * np.trace(gram) / 60 * np.eye(60), y)
        for split, n, mse, accuracy in (
            ("validation", 50, found.validation_mse, found.validation_accuracy),
            ("test", 70, found.mse, found.accuracy),
        ):
            x, wanted = sample(n, split)
            predicted = kernel.gram(x, train) @ weights
            assert mse[setting] == pytest.approx(((predicted - wanted) ** 2).mean(), rel=1e-6)
            right = [
                min((-1, 0.5, 3), key=lambda v: abs(v - one)) == y for one, y in zip(predicted, wanted, strict=True)
            ]
            assert accuracy[setting] == pytest.approx(np.mean(right))
        assert found.spread[setting] == pytest.approx(predicted.std(), rel=1e-6, abs=1e-12)
        low, high = stats.binomtest(sum(right), 70).proportion_ci(0.95)
        assert (found.accuracy.low[setting], found.accuracy.high[setting]) == (pytest.approx(low), pytest.approx(high))
        error = ((predicted - wanted) ** 2).std() / 70**0.5
        assert found.mse.high[setting] - found.mse.low[setting] == pytest.approx(2 * 1.96 * error, rel=0.25, abs=1e-12)
    assert found.chosen == found.validation_mse.argmin()
    assert found.constant_mse == pytest.approx(((y.mean() - wanted) ** 2).mean())
    assert (found.n_train, found.n_validation, found.n) == (60, 50, 70)
    assert len(set(found.validation_mse)) == 6


def test_setting_is_chosen_on_validation_symbols():
    """If validation and test disagree, the setting that is best on test symbols is not chosen."""
    kernels = [TransformerKernel(beta=beta, n_draws=16, seed=seed) for beta in (1.0, 4.0) for seed in range(4)]
    disagree = 0
    for seed in range(4):
        found = kernel_regression(AA_AB, kernels=kernels, n=32, n_validation=8, n_test=50, seed=seed)
        assert found.chosen == found.validation_mse.argmin()
        disagree += found.chosen != found.mse.value.argmin()
    assert disagree


def test_default_kernels():
    found = kernel_regression(AA_AB, n=24, n_validation=10, n_test=10, seed=1)
    tried = {(name, part) for name, part in zip(found.kernels, found.regularisation.tolist(), strict=True)}
    names = [
        f"transformer, beta {beta}, gamma 1, {activation}" for beta in (4, 8) for activation in ("relu", "cos(1t+0.5)")
    ]
    assert tried == {(name, part) for name in names for part in (1e-3, 1e-1)}
    grid = [
        TransformerKernel(beta=beta, activation=activation, seed=1)
        for beta in (4.0, 8.0)
        for activation in ("relu", "cosine")
    ]
    same = kernel_regression(AA_AB, kernels=grid, n=24, n_validation=10, n_test=10, seed=1)
    np.testing.assert_array_equal(found.mse, same.mse)
    assert (kernel_regression(AA_AB, n=24, n_validation=10, n_test=10, seed=2).mse != found.mse).all()


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernels": []}, r"kernels is \[\]; give a list"),
        ({"kernels": MLPKernel()}, r"kernels is MLPKernel\(\); it must be a list or None"),
        ({"kernels": ["relu"]}, r"kernels\[0\] is 'relu'; it must be a Kernel"),
        ({"regularisation": ()}, "regularisation is empty; give positive numbers"),
        ({"regularisation": (0.1, 0.0)}, "regularisation is 0.0; it must be positive"),
        ({"n": 1}, "n is 1; it must be at least 2"),
        ({"n_validation": 0}, "n_validation is 0"),
        ({"n_test": 1}, "n_test is 1"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        kernel_regression(AA_AB, **settings)


def test_result_prints_tabulates_plots_and_saves(tmp_path):
    found = kernel_regression(AA_AB, kernels=[MLPKernel(), TransformerKernel()], n=32, n_validation=20, n_test=30)
    assert found.chosen >= 2
    found.save(tmp_path / "kernel.json")
    again = KernelResult.load(tmp_path / "kernel.json")
    np.testing.assert_array_equal(again.mse, found.mse)
    assert (again.kernels, again.chosen) == (found.kernels, found.chosen)
    table = found.to_dataframe()
    assert table[table.chosen]["mse"].item() == found.mse[found.chosen]
    assert table["accuracy"].tolist() == found.accuracy.value.tolist()
    assert "chosen" in str(found).splitlines()[1 + found.chosen]
    assert "constant: mse" in str(found)
    assert "<svg" in found._repr_html_()
