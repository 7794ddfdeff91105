"""Kernels: the same by loops and by integrals, positive, stable draws; regression and the templates' matrix."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import interp
from interp.core.randomness import derived_generator, derived_seed
from interp.tasks import Dyck, Template
from interp.theory import MLPKernel, TransformerKernel, kernel_regression, template_matrix
from interp.theory.kernels.random_features import BLOCK, cosine_kernel, relu_kernel
from interp.theory.kernels.template_matrix import _jackknife, _leave_one_out

ABA_ABB = Template(templates=("aba -> +1", "abb -> -1"), train=512)
AA_AB = Template(templates=("aa -> +1", "ab -> -1"), train=512)
THREE = Template(templates=("aab -> -1", "aba -> 0.5", "abb -> 3"), train=64)


def some_strings(n, pos, n_ids, seed=0):
    return np.random.default_rng(seed).integers(0, n_ids, (n, pos))


def draw_by_draw(kernel, x, y):
    """K_attn as it is written, one pair of strings and one draw at a time."""
    found = np.zeros((len(x), len(y)))
    for first in range(0, kernel.n_draws, BLOCK):
        tokens, positions = (np.random.default_rng(derived_seed(kernel.seed, name, first)) for name in NAMES)
        zeta, p = tokens.standard_normal((200, BLOCK)), positions.standard_normal((9, BLOCK))
        for r in range(min(BLOCK, kernel.n_draws - first)):
            for row, left in enumerate(x):
                for column, right in enumerate(y):
                    s, t = (softmax(kernel, string, zeta[:, r], p[:, r]) for string in (left, right))
                    between = np.array([[float(a == b) for b in right] for a in left])
                    found[row, column] += s @ (between + kernel.gamma**2 * np.eye(len(s))) @ t
    return found / kernel.n_draws


NAMES = ("token", "position")


def softmax(kernel, string, zeta, p):
    weight = [np.exp(kernel.beta * (zeta[token] + kernel.gamma * p[i])) for i, token in enumerate(string)]
    return np.array(weight) / sum(weight)


@pytest.mark.parametrize("n_ids", [2, 6, 150])  # tokens in common everywhere, often, hardly ever
def test_attention_is_the_same_pair_by_pair_and_draw_by_draw(n_ids):
    kernel = TransformerKernel(beta=1.7, gamma=0.6, n_draws=BLOCK + 5, seed=3)
    x, y = some_strings(9, 3, n_ids), some_strings(4, 3, n_ids, seed=1)
    assert (x[:, None, :, None] == y[None, :, None, :]).any()
    expected = draw_by_draw(kernel, x, y)
    np.testing.assert_allclose(kernel.attention(x, y), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(kernel.attention(y, x), expected.T, rtol=0, atol=1e-10)
    np.testing.assert_allclose(kernel.attention(torch.tensor(x), torch.tensor(y)), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(kernel.attention(y), draw_by_draw(kernel, y, y), rtol=0, atol=1e-10)


def test_few_equal_tokens_are_visited_one_by_one_and_give_the_same():
    """Strings over new symbols with a common last token, as in a template task, and one pair that shares a symbol."""
    kernel = TransformerKernel(beta=2.0, n_draws=20)
    x = np.stack([np.arange(1, 14), np.arange(21, 34), np.zeros(13, dtype=int)], 1)
    y = np.stack([np.arange(41, 54), np.arange(61, 74), np.zeros(13, dtype=int)], 1)
    y[4, 0] = x[7, 1]
    np.testing.assert_allclose(kernel.attention(x, y), draw_by_draw(kernel, x, y), rtol=0, atol=1e-10)


@st.composite
def strings(draw):
    n, pos, n_ids = draw(st.integers(1, 12)), draw(st.integers(1, 5)), draw(st.integers(1, 9))
    return some_strings(n, pos, n_ids, seed=draw(st.integers(0, 10**6)))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(strings(), st.floats(0, 10), st.floats(0, 3), st.sampled_from(["relu", "cosine"]), st.integers(1, BLOCK + 9))
def test_every_gram_matrix_is_positive_semidefinite(x, beta, gamma, activation, n_draws):
    kernel = TransformerKernel(beta=beta, gamma=gamma, activation=activation, n_draws=n_draws)
    for found in (kernel.attention(x), kernel.gram(x), MLPKernel().gram(x)):
        np.testing.assert_allclose(found, found.T, rtol=0, atol=1e-12)
        eigenvalues = np.linalg.eigvalsh(found)
        assert eigenvalues[0] >= -1e-12 * max(1, eigenvalues[-1])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(strings(), st.sampled_from(["relu", "cosine"]), st.randoms(use_true_random=False))
def test_draws_hang_on_seed_token_and_position_alone(x, activation, random):
    """Blocks fit together, whatever else is asked about: larger ids, other strings, another order."""
    kernel = TransformerKernel(beta=3.0, activation=activation, n_draws=40, seed=random.randrange(1000))
    other = some_strings(5, x.shape[1], 60, seed=random.randrange(1000))
    whole, n = kernel.gram(np.concatenate([x, other])), len(x)
    for found, expected in (
        (kernel.gram(x), whole[:n, :n]),
        (kernel.gram(x, other), whole[:n, n:]),
        (kernel.gram(other, x), whole[n:, :n]),
        (kernel.gram(x, x.copy()), whole[:n, :n]),
        (kernel.gram(x[::-1].copy()), whole[:n, :n][::-1, ::-1]),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    if kernel.random_draws and x.shape[1] > 1:
        again = TransformerKernel(beta=3.0, activation=activation, n_draws=40, seed=kernel.seed + 1)
        assert (again.gram(other) != kernel.gram(other)).any()


@pytest.mark.parametrize(
    ("own", "other", "between"), [(1.0, 1.0, 0.3), (2.0, 0.5, -0.9), (0.7, 1.9, 1.1), (3.0, 2.0, 0.0)]
)
def test_closed_forms_are_the_integrals(own, other, between):
    """Over u by quadrature; the mean over v given u is elementary for ReLU and for a cosine."""

    def mean(phi, phi_given):
        slope, rest = between / own, np.sqrt(other - between**2 / own)
        density = stats.norm(scale=np.sqrt(own)).pdf
        integrand = lambda u: density(u) * phi(u) * phi_given(slope * u, rest)  # noqa: E731
        return integrate.quad(integrand, -15, 0)[0] + integrate.quad(integrand, 0, 15)[0]

    def relu_given(m, s):
        return m * stats.norm.cdf(m / s) + s * stats.norm.pdf(m / s)

    def cosine(t):
        return np.cos(1.3 * t + 0.4)

    def cosine_given(m, s):
        return np.exp(-((1.3 * s) ** 2) / 2) * cosine(m)

    arguments = np.array([[between]]), np.array([own]), np.array([other])
    relu = mean(lambda u: max(u, 0.0), relu_given)
    assert relu_kernel(*arguments).item() == pytest.approx(relu, abs=1e-7)
    assert cosine_kernel(*arguments, b1=1.3, b2=0.4).item() == pytest.approx(mean(cosine, cosine_given), abs=1e-7)
    kernel = TransformerKernel(b1=1.3, b2=0.4)
    assert kernel.hidden(*arguments) == cosine_kernel(*arguments, b1=1.3, b2=0.4)
    assert TransformerKernel(activation="relu").hidden(*arguments) == relu_kernel(*arguments)


def test_attention_without_choice_is_known():
    """Uniform attention sees equal tokens and positions; with nothing in common and no positions there is nothing."""
    x, y = np.array([[1, 2, 1, 0]]), np.array([[1, 3, 4, 0]])
    uniform = TransformerKernel(beta=0.0, gamma=2.0, n_draws=3)
    assert uniform.attention(x, y) == pytest.approx(3 / 16 + 4 / 4)
    assert uniform.attention(x) == pytest.approx(6 / 16 + 4 / 4)
    assert TransformerKernel(gamma=0.0).attention(x[:, :3], 10 + y[:, :3]) == 0
    assert (uniform.random_draws, TransformerKernel().random_draws, MLPKernel().random_draws) == (0, 256, 0)


def test_the_mlp_counts_equal_positions():
    x, y = np.array([[1, 2, 3, 0], [5, 6, 7, 0]]), np.array([[1, 9, 3, 0], [2, 1, 8, 0], [5, 6, 7, 0]])
    np.testing.assert_array_equal(MLPKernel().attention(x, y), [[3, 1, 1], [1, 1, 4]])
    expected = relu_kernel(MLPKernel().attention(x, y), np.full(2, 4.0), np.full(3, 4.0))
    np.testing.assert_array_equal(MLPKernel().gram(x, y), expected)
    assert MLPKernel().gram(y).diagonal() == pytest.approx([2, 2, 2])  # half of the four positions


def test_a_gram_matrix_of_512_strings_is_one():
    tokens = ABA_ABB.sample(512, generator=torch.Generator().manual_seed(0)).tokens
    found = TransformerKernel(n_draws=256).gram(tokens)
    assert np.linalg.eigvalsh(found)[0] > 0


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
def test_published_recipe_gives_the_same_figures(templates, beta, gamma, own, between, smallest, its_error):
    task = Template(templates=tuple(f"{one} -> {label}" for one, label in zip(templates, ("+1", "-1"), strict=True)))
    kernel = TransformerKernel(beta=beta, gamma=gamma, b1=1.0, b2=0.5, n_draws=16 * BLOCK)
    found = template_matrix(task, kernel, repeats=24)
    upper = np.triu_indices(2)
    error = np.concatenate([found.own_error, found.attention_error[upper]])
    assert (error < 2e-3).all()
    far = np.abs(np.concatenate([found.own - own, found.attention[upper] - between])) / np.hypot(error, 1e-3)
    assert (far < 4).all(), far
    our_error = (found.high - found.low) / 2 / stats.t.isf(0.025, 23)
    assert abs(found.smallest - smallest) < 4 * np.hypot(our_error, its_error)
    assert found.verdict == "nonsingular"
    assert found.n == 24 * 16 * BLOCK


@pytest.mark.parametrize("task", [ABA_ABB, AA_AB])
def test_the_transformer_reads_unseen_symbols_and_the_mlp_does_not(task):
    kernel = TransformerKernel(beta=8.0)
    found = kernel_regression(task, kernels=[kernel, TransformerKernel(activation="relu")], n=512)
    assert found.chosen_accuracy >= 0.95
    assert found.low[found.chosen] > 0.94
    assert found.chosen_mse < 0.2
    assert found.mse_high.max() < found.constant_mse
    matrix = template_matrix(task, kernel)
    assert matrix.verdict == "nonsingular"
    assert matrix.low > 0.001
    blind = kernel_regression(task, kernels=[MLPKernel()], n=512)
    assert (blind.spread < 1e-12).all()
    assert blind.chosen_mse == pytest.approx(1, abs=0.05)
    share = blind.constant_accuracy  # of one of the two labels: that of a fair coin
    assert blind.accuracy == pytest.approx([share, share])
    assert abs(share - 0.5) < 5 * (0.25 / blind.n) ** 0.5
    alike = template_matrix(task, MLPKernel())
    assert (alike.verdict, alike.n, alike.low, alike.high) == ("singular", 0, alike.smallest, alike.smallest)
    assert abs(alike.smallest) < 1e-12
    assert np.ptp(alike.matrix) == 0
    assert (alike.attention == 1).all()  # [CLS]
    assert not alike.matrix_error.any()


def test_uniform_attention_does_not_either():
    """The same code with nothing to attend by: a null of the transformer's own."""
    kernel = TransformerKernel(beta=0.0)
    assert template_matrix(ABA_ABB, kernel).verdict == "singular"
    assert (kernel_regression(ABA_ABB, kernels=[kernel], n=128).spread < 1e-12).all()


def test_fixed_tokens_tell_templates_apart_to_an_mlp():
    found = template_matrix(Template(templates=("Xa -> +1", "Ya -> -1")), MLPKernel())
    np.testing.assert_array_equal(found.attention, [[2, 1], [1, 2]])
    np.testing.assert_array_equal(found.own, [3, 3])
    same, different = (relu_kernel(np.array([[k]]), np.array([3.0]), np.array([3.0])).item() for k in (2.0, 1.0))
    assert found.verdict == "nonsingular"
    np.testing.assert_allclose(found.eigenvalues, [same - different, same + different])
    assert found.smallest == pytest.approx(same - different)


def test_regression_is_the_formula_and_its_figures_are_the_definitions():
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
        assert (found.low[setting], found.high[setting]) == (pytest.approx(low), pytest.approx(high))
        error = ((predicted - wanted) ** 2).std() / 70**0.5
        assert found.mse_high[setting] - found.mse_low[setting] == pytest.approx(2 * 1.96 * error, rel=0.25, abs=1e-12)
    assert found.chosen == found.validation_mse.argmin()
    assert found.constant_mse == pytest.approx(((y.mean() - wanted) ** 2).mean())
    assert (found.n_train, found.n_validation, found.n) == (60, 50, 70)
    assert len(set(found.validation_mse)) == 6


def test_the_choice_goes_by_validation_symbols():
    """Where validation and test disagree, the setting that is best on test symbols is not the one chosen."""
    kernels = [TransformerKernel(beta=beta, n_draws=16, seed=seed) for beta in (1.0, 4.0) for seed in range(4)]
    disagree = 0
    for seed in range(4):
        found = kernel_regression(AA_AB, kernels=kernels, n=32, n_validation=8, n_test=50, seed=seed)
        assert found.chosen == found.validation_mse.argmin()
        disagree += found.chosen != found.mse.argmin()
    assert disagree


def test_what_is_tried_when_nothing_is_said():
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


def test_the_matrix_is_the_mean_over_pairs_of_different_strings():
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
    assert (found.low, found.high) == (pytest.approx(found.smallest - margin), pytest.approx(found.smallest + margin))
    assert (found.copies, found.repeats, found.n, found.templates) == (3, 2, 100, ("aab", "aba", "abb"))


def test_jackknife_of_a_mean_and_of_its_square():
    values = np.random.default_rng(0).normal(2, 1, 9)
    without, mean, variance = _leave_one_out(values), values.mean(), values.var(ddof=1) / 9
    estimate, error = _jackknife(np.array([mean]), without[:, None])
    assert (estimate.item(), error.item()) == pytest.approx((mean, variance**0.5))
    corrected, _ = _jackknife(np.array([mean**2]), without[:, None] ** 2)
    assert corrected == pytest.approx(mean**2 - variance)  # the unbiased estimate


class Twins(Template):
    """Every template twice: N is singular, and only its errors say otherwise."""

    def disjoint_strings(self, copies):
        return super().disjoint_strings(2 * copies).unflatten(1, (2, copies)).flatten(0, 1)


def test_a_singular_matrix_is_not_called_nonsingular_more_often_than_one_time_in_forty():
    twins = Twins(templates=("aba -> +1", "abb -> -1"))
    kernel = TransformerKernel(n_draws=64)
    found = [template_matrix(twins, kernel, copies=3, repeats=12, seed=seed) for seed in range(100)]
    wrong = sum(one.verdict == "nonsingular" for one in found)
    assert {one.verdict for one in found} <= {"nonsingular", "undecided"}  # draws cannot show that it is singular
    assert wrong <= stats.binom.isf(1e-4, 100, 0.025)
    assert np.mean([one.smallest for one in found]) < 0.0002
    covered = sum(one.low <= 0 <= one.high for one in found)
    assert covered >= 0.8 * 100


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"activation": "tanh"}, "activation is 'tanh'; choose one of relu, cosine"),
        ({"beta": -1.0}, "beta is -1.0; choose a number, 0 or more"),
        ({"gamma": float("nan")}, "gamma is nan"),
        ({"b1": 0.0}, r"b1 is 0.0 and b2 0.5; .*b1 not 0"),
        ({"b2": float("inf")}, "b2 inf"),
        ({"n_draws": 0}, "n_draws is 0; choose 1 or more"),
    ],
)
def test_impossible_kernels_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TransformerKernel(**settings)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("kernel", [TransformerKernel(n_draws=4), MLPKernel()])
def test_other_things_than_strings_are_refused(kernel):
    good = np.array([[1, 2, 0]])
    for bad, message in (
        (np.array([1, 2]), r"x has shape \(2,\)"),
        (np.array([[0.5, 1.0]]), "x has .*dtype float64.*give token ids"),
        (np.array([[1, -2]]), "x has .*least -2"),
        (np.zeros((0, 3), dtype=int), r"x has shape \(0, 3\)"),
    ):
        for verb in (kernel.gram, kernel.attention):
            with pytest.raises(ValueError, match=message):
                verb(bad)
    for verb in (kernel.gram, kernel.attention):
        with pytest.raises(ValueError, match="y has strings of 2 tokens, x of 3"):
            verb(good, good[:, :2])
        with pytest.raises(ValueError, match=r"y has .*least -1"):
            verb(good, good - 1)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernels": []}, r"kernels is \[\]; give a list"),
        ({"kernels": MLPKernel()}, r"kernels is MLPKernel\(\); give a list"),
        ({"kernels": ["relu"]}, r"kernels is \['relu'\]"),
        ({"regularisation": ()}, r"regularisation is \(\); give positive numbers"),
        ({"regularisation": (0.1, 0.0)}, r"regularisation is \(0.1, 0.0\)"),
        ({"n": 1}, "n is 1; choose 2 or more"),
        ({"n_validation": 0}, "n_validation is 0"),
        ({"n_test": 1}, "n_test is 1"),
    ],
)
def test_impossible_regressions_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        kernel_regression(AA_AB, **settings)


@pytest.mark.usefixtures("as_a_user")
def test_other_tasks_and_kernels_are_refused():
    symbolic = Template(templates=("a -> a",))
    for verb in (lambda task: kernel_regression(task), lambda task: template_matrix(task, MLPKernel())):
        with pytest.raises(ValueError, match=r"form is 'symbolic'; .* needs 'real'.*'aba -> "):
            verb(symbolic)
        with pytest.raises(ValueError, match=r"task is Dyck; .* is about templates: give a Template task"):
            verb(Dyck())
    with pytest.raises(ValueError, match="kernel is a str; give a TransformerKernel or an MLPKernel"):
        template_matrix(AA_AB, "relu")
    with pytest.raises(ValueError, match="copies is 1 and repeats 32; choose 2 or more of each"):
        template_matrix(AA_AB, MLPKernel(), copies=1)
    with pytest.raises(ValueError, match="copies is 12 and repeats 1"):
        template_matrix(AA_AB, TransformerKernel(), repeats=1)


def test_results_show_and_save_themselves(tmp_path):
    found = kernel_regression(AA_AB, kernels=[MLPKernel(), TransformerKernel()], n=32, n_validation=20, n_test=30)
    assert found.chosen >= 2
    found.save(tmp_path / "kernel.json")
    again = interp.theory.KernelResult.load(tmp_path / "kernel.json")
    np.testing.assert_array_equal(again.mse, found.mse)
    assert (again.kernels, again.chosen) == (found.kernels, found.chosen)
    table = found.to_dataframe()
    assert table[table.chosen]["mse"].item() == found.chosen_mse
    assert table["accuracy"].tolist() == found.accuracy.tolist()
    assert "chosen" in str(found).splitlines()[1 + found.chosen]
    assert "constant: mse" in str(found)
    assert "<svg" in found._repr_html_()

    matrix = template_matrix(THREE, TransformerKernel(), copies=3, repeats=4)
    matrix.save(tmp_path / "matrix.json")
    same = interp.theory.TemplateMatrix.load(tmp_path / "matrix.json")
    np.testing.assert_array_equal(same.matrix, matrix.matrix)
    assert (same.low, same.verdict, same.templates) == (matrix.low, matrix.verdict, matrix.templates)
    rows = matrix.to_dataframe()
    row = rows[(rows["first"] == "aba") & (rows["second"] == "abb")]
    assert row["matrix"].item() == matrix.matrix[1, 2]
    assert f": {matrix.verdict}" in str(matrix)
    assert "1024 draws in 4 sets" in str(matrix)
    assert "no random draws" in str(template_matrix(THREE, MLPKernel()))
    for one in (matrix, template_matrix(Template(templates="majority"), MLPKernel(), copies=2)):
        assert "<svg" in one._repr_html_()
