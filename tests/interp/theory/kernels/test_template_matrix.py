"""The kernel matrix of templates: its entries, its smallest eigenvalue with interval, and the verdict."""

import numpy as np
import pytest
from scipy import stats

from interp.core.randomness import derived_seed
from interp.tasks import Dyck, Template
from interp.theory import MLPKernel, TemplateMatrix, TransformerKernel, kernel_regression, template_matrix
from interp.theory.kernels.random_features import BLOCK, relu_kernel
from interp.theory.kernels.template_matrix import _jackknife, _leave_one_out

AA_AB = Template(templates=("aa -> +1", "ab -> -1"), train=512)

THREE = Template(templates=("aab -> -1", "aba -> 0.5", "abb -> 3"), train=64)


# templates, beta, gamma, K_attn with themselves, N_attn, smallest eigenvalue of N for b1 = 1 and b2 = 0.5, and our
# estimate of its standard error: one pair of strings and 4e5 separate draws per entry, as the figures were made
VECTORS = [
    (("aa", "ab"), 1.0, 1.0, (1.239, 1.118), (0.679, 0.661, 0.644), 2.1e-4, 1.8e-4),
    (("aa", "ab"), 2.0, 1.0, (1.519, 1.456), (0.847, 0.801, 0.767), 1.5e-3, 2.4e-4),
    (("aa", "ab"), 1.0, 0.0, (0.656, 0.481), (0.171, 0.156, 0.142), 1.7e-4, 5.5e-5),
    (("aa", "ab"), 3.0, 0.5, (1.018, 0.955), (0.391, 0.348, 0.319), 1.5e-3, 1.4e-4),
    (("aba", "abb"), 1.0, 1.0, (1.028, 1.028), (0.504, 0.502, 0.504), 3.4e-4, 1.3e-4),
    (("aba", "abb"), 2.0, 1.0, (1.382, 1.383), (0.652, 0.645, 0.651), 1.3e-3, 1.7e-4),
]


@pytest.mark.parametrize(("templates", "beta", "gamma", "own", "between", "smallest", "its_error"), VECTORS)
def test_estimates_agree_with_separate_draws_per_entry(templates, beta, gamma, own, between, smallest, its_error):
    task = Template(templates=tuple(f"{one} -> {label}" for one, label in zip(templates, ("+1", "-1"), strict=True)))
    kernel = TransformerKernel(beta=beta, gamma=gamma, b1=1.0, b2=0.5, n_draws=16 * BLOCK)
    found = template_matrix(task, kernel, repeats=24)
    upper = np.triu_indices(2)
    error = np.concatenate([found.own_error, found.attention_error[upper]])
    assert (error < 2e-3).all()
    far = np.abs(np.concatenate([found.own - own, found.attention[upper] - between])) / np.hypot(error, 1e-3)
    assert (far < 4).all(), far
    our_error = (found.smallest.high - found.smallest.low) / 2 / stats.t.isf(0.025, 23)
    assert abs(found.smallest - smallest) < 4 * np.hypot(our_error, its_error)
    assert found.verdict == "nonsingular"
    assert found.n == 24 * 16 * BLOCK


def test_mlp_kernel_distinguishes_fixed_tokens():
    found = template_matrix(Template(templates=("Xa -> +1", "Ya -> -1")), MLPKernel())
    np.testing.assert_array_equal(found.attention, [[2, 1], [1, 2]])
    np.testing.assert_array_equal(found.own, [3, 3])
    same, different = (relu_kernel(np.array([[k]]), np.array([3.0]), np.array([3.0])).item() for k in (2.0, 1.0))
    assert found.verdict == "nonsingular"
    np.testing.assert_allclose(found.eigenvalues, [same - different, same + different])
    assert found.smallest == pytest.approx(same - different)


def test_matrix_is_the_mean_over_pairs_of_different_strings():
    kernel = TransformerKernel(beta=2.0, activation="relu", n_draws=50)
    found = template_matrix(THREE, kernel, copies=3, repeats=2, seed=5)
    tokens = THREE.disjoint_strings(3)
    between, own = np.zeros((2, 3, 3)), np.zeros((2, 3))
    for repeat in range(2):
        drawn = TransformerKernel(beta=2.0, activation="relu", n_draws=50, seed=derived_seed(5, "repeat", repeat))
        for z in range(3):
            own[repeat, z] = np.mean([drawn.attention(tokens[z, c][None]).item() for c in range(3)])
            for w in range(3):
                pairs = [(c, d) for c in range(3) for d in range(3) if z != w or c != d]
                values = [drawn.attention(tokens[z, c][None], tokens[w, d][None]).item() for c, d in pairs]
                between[repeat, z, w] = np.mean(values)
    np.testing.assert_allclose(found.attention, between.mean(0), atol=1e-12)
    np.testing.assert_allclose(found.own, own.mean(0), atol=1e-12)
    np.testing.assert_allclose(found.attention_error, np.abs(between[0] - between[1]) / 2, atol=1e-12)
    np.testing.assert_allclose(found.own_error, np.abs(own[0] - own[1]) / 2, atol=1e-12)
    expected = relu_kernel(between.mean(0), own.mean(0), own.mean(0))
    np.testing.assert_allclose(found.matrix, expected, atol=1e-12)
    smallest = [np.linalg.eigvalsh(relu_kernel(b, o, o))[0] for b, o in zip(between, own, strict=True)]
    assert found.smallest == pytest.approx(2 * np.linalg.eigvalsh(expected)[0] - np.mean(smallest))
    margin = stats.t.isf(0.025, 1) * abs(smallest[0] - smallest[1]) / 2
    assert (found.smallest.low, found.smallest.high) == (
        pytest.approx(found.smallest.value - margin),
        pytest.approx(found.smallest.value + margin),
    )
    assert (found.copies, found.repeats, found.n, found.templates) == (3, 2, 100, ("aab", "aba", "abb"))


def test_jackknife_of_a_mean_and_of_its_square():
    values = np.random.default_rng(0).normal(2, 1, 9)
    without, mean, variance = _leave_one_out(values), values.mean(), values.var(ddof=1) / 9
    estimate, error = _jackknife(np.array([mean]), without[:, None])
    assert (estimate.item(), error.item()) == pytest.approx((mean, variance**0.5))
    corrected, _ = _jackknife(np.array([mean**2]), without[:, None] ** 2)
    assert corrected == pytest.approx(mean**2 - variance)  # the unbiased estimate


class Duplicated(Template):
    """The first template in place of the second: N is singular, estimates of its smallest eigenvalue are not zero."""

    def disjoint_strings(self, copies):
        return super().disjoint_strings(2 * copies)[:1].unflatten(1, (2, copies)).flatten(0, 1)


def test_false_positives_on_a_singular_matrix_are_at_most_one_in_forty():
    duplicated = Duplicated(templates=("aba -> +1", "abb -> -1"))
    kernel = TransformerKernel(n_draws=64)
    found = [template_matrix(duplicated, kernel, copies=3, repeats=12, seed=seed) for seed in range(100)]
    wrong = sum(one.verdict == "nonsingular" for one in found)
    assert {one.verdict for one in found} <= {"nonsingular", "undecided"}  # draws cannot prove that it is singular
    assert wrong <= stats.binom.isf(1e-4, 100, 0.025)
    assert np.mean([one.smallest for one in found]) < 0.0002
    covered = sum(one.smallest.low <= 0 <= one.smallest.high for one in found)
    assert covered >= 0.8 * 100


@pytest.mark.usefixtures("as_a_user")
def test_invalid_tasks_and_kernels_are_refused():
    symbolic = Template(templates=("a -> a",))
    for verb in (lambda task: kernel_regression(task), lambda task: template_matrix(task, MLPKernel())):
        with pytest.raises(ValueError, match=r"form is 'symbolic'; .* needs 'real'.*'aba -> "):
            verb(symbolic)
        with pytest.raises(ValueError, match=r"task is a Dyck; .* is about templates: give a Template task"):
            verb(Dyck())
    with pytest.raises(ValueError, match="kernel is 'relu'; it must be a Kernel"):
        template_matrix(AA_AB, "relu")
    with pytest.raises(ValueError, match="copies is 1; it must be at least 2"):
        template_matrix(AA_AB, MLPKernel(), copies=1)
    with pytest.raises(ValueError, match="repeats is 1; it must be at least 2"):
        template_matrix(AA_AB, TransformerKernel(), repeats=1)


@pytest.mark.parametrize(
    ("templates", "shown"), [(("abcab", "abcba"), ["abcab", "abcba"]), (("abcabc", "abcacb"), ["0", "1"])]
)
def test_long_templates_are_numbered_below_the_heatmap(templates, shown):
    task = Template(templates=tuple(f"{one} -> {at}" for at, one in enumerate(templates)))
    found = template_matrix(task, MLPKernel())
    drawn = found.plot().to_dict()
    rows = next(iter(drawn["datasets"].values()))
    assert sorted({row["template"] for row in rows}) == shown


def test_result_prints_tabulates_plots_and_saves(tmp_path):
    matrix = template_matrix(THREE, TransformerKernel(), copies=3, repeats=4)
    matrix.save(tmp_path / "matrix.json")
    same = TemplateMatrix.load(tmp_path / "matrix.json")
    np.testing.assert_array_equal(same.matrix, matrix.matrix)
    assert (same.smallest.low, same.verdict, same.templates) == (matrix.smallest.low, matrix.verdict, matrix.templates)
    rows = matrix.to_dataframe()
    row = rows[(rows["first"] == "aba") & (rows["second"] == "abb")]
    assert row["matrix"].item() == matrix.matrix[1, 2]
    assert f": {matrix.verdict}" in str(matrix)
    assert "1024 draws in 4 sets" in str(matrix)
    assert "no random draws" in str(template_matrix(THREE, MLPKernel()))
    for one in (matrix, template_matrix(Template(templates="majority"), MLPKernel(), copies=2)):
        assert "<svg" in one._repr_html_()


@pytest.mark.parametrize(("smallest", "verdict"), [(1e-14, "singular"), (1e-10, "nonsingular"), (-1e-3, "singular")])
def test_eigenvalues_that_are_rounding_errors_are_zero(monkeypatch, smallest, verdict):
    """The smallest eigenvalue of an exact kernel counts above 1e-12 of the largest, here 2."""
    values = np.array([2 * smallest, 2.0])
    monkeypatch.setattr(np.linalg, "eigvalsh", lambda matrix: np.broadcast_to(values, matrix.shape[:-1]))
    found = template_matrix(Template(templates=("Xa -> +1", "Ya -> -1")), MLPKernel())
    assert (found.verdict, found.smallest, found.smallest.low) == (verdict, 2 * smallest, 2 * smallest)
