"""Kernels against loops over pairs and draws, and against quadrature; Gram matrices and their blocks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from interp.core.randomness import derived_seed
from interp.tasks import Template
from interp.theory import MLPKernel, TransformerKernel
from interp.theory.kernels.random_features import BLOCK, cosine_kernel, relu_kernel

NAMES = ("token", "position")


def some_strings(n, pos, n_ids, seed=0):
    return np.random.default_rng(seed).integers(0, n_ids, (n, pos))


def draw_by_draw(kernel, x, y):
    """K_attn by its definition, for one pair of strings and one draw at a time."""
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


def softmax(kernel, string, zeta, p):
    weight = [np.exp(kernel.beta * (zeta[token] + kernel.gamma * p[i])) for i, token in enumerate(string)]
    return np.array(weight) / sum(weight)


@pytest.mark.parametrize("n_ids", [2, 6, 150])  # tokens in common everywhere, often, hardly ever
def test_attention_equals_a_loop_over_pairs_and_draws(n_ids):
    kernel = TransformerKernel(beta=1.7, gamma=0.6, n_draws=BLOCK + 5, seed=3)
    x, y = some_strings(9, 3, n_ids), some_strings(4, 3, n_ids, seed=1)
    assert (x[:, None, :, None] == y[None, :, None, :]).any()
    expected = draw_by_draw(kernel, x, y)
    np.testing.assert_allclose(kernel.attention(x, y), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(kernel.attention(y, x), expected.T, rtol=0, atol=1e-10)
    np.testing.assert_allclose(kernel.attention(torch.tensor(x), torch.tensor(y)), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(kernel.attention(y), draw_by_draw(kernel, y, y), rtol=0, atol=1e-10)


def test_attention_equals_the_loop_if_few_tokens_are_equal():
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
def test_gram_matrices_are_positive_semidefinite(x, beta, gamma, activation, n_draws):
    kernel = TransformerKernel(beta=beta, gamma=gamma, activation=activation, n_draws=n_draws)
    for found in (kernel.attention(x), kernel.gram(x), MLPKernel().gram(x)):
        np.testing.assert_allclose(found, found.T, rtol=0, atol=1e-12)
        eigenvalues = np.linalg.eigvalsh(found)
        assert eigenvalues[0] >= -1e-12 * max(1, eigenvalues[-1])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(strings(), st.sampled_from(["relu", "cosine"]), st.randoms(use_true_random=False))
def test_draws_depend_on_seed_token_and_position_alone(x, activation, random):
    """Blocks of the Gram matrix are consistent between calls with larger ids, other strings, or another order."""
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
def test_closed_forms_equal_the_integrals(own, other, between):
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


def test_attention_of_uniform_and_disjoint_strings():
    """Uniform attention depends on equal tokens and positions; without common tokens and positions K_attn is 0."""
    x, y = np.array([[1, 2, 1, 0]]), np.array([[1, 3, 4, 0]])
    uniform = TransformerKernel(beta=0.0, gamma=2.0, n_draws=3)
    assert uniform.attention(x, y) == pytest.approx(3 / 16 + 4 / 4)
    assert uniform.attention(x) == pytest.approx(6 / 16 + 4 / 4)
    assert TransformerKernel(gamma=0.0).attention(x[:, :3], 10 + y[:, :3]) == 0
    assert (uniform.random_draws, TransformerKernel().random_draws, MLPKernel().random_draws) == (0, 256, 0)


def test_mlp_attention_counts_equal_positions():
    x, y = np.array([[1, 2, 3, 0], [5, 6, 7, 0]]), np.array([[1, 9, 3, 0], [2, 1, 8, 0], [5, 6, 7, 0]])
    np.testing.assert_array_equal(MLPKernel().attention(x, y), [[3, 1, 1], [1, 1, 4]])
    expected = relu_kernel(MLPKernel().attention(x, y), np.full(2, 4.0), np.full(3, 4.0))
    np.testing.assert_array_equal(MLPKernel().gram(x, y), expected)
    assert MLPKernel().gram(y).diagonal() == pytest.approx([2, 2, 2])  # half of the four positions


def test_gram_matrix_of_512_strings_is_positive_definite():
    task = Template(templates=("aba -> +1", "abb -> -1"), train=512)
    tokens = task.sample(512, generator=torch.Generator().manual_seed(0)).tokens
    found = TransformerKernel(n_draws=256).gram(tokens)
    assert np.linalg.eigvalsh(found)[0] > 0


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"activation": "tanh"}, "activation is 'tanh'; choose one of relu, cosine"),
        ({"beta": -1.0}, "beta is -1.0; it must not be negative"),
        ({"gamma": float("nan")}, "gamma is nan"),
        ({"b1": 0.0}, "b1 is 0; choose another number"),
        ({"b2": float("inf")}, "b2 is inf"),
        ({"n_draws": 0}, "n_draws is 0; it must be positive"),
    ],
)
def test_invalid_kernels_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TransformerKernel(**settings)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("kernel", [TransformerKernel(n_draws=4), MLPKernel()])
def test_invalid_strings_are_refused(kernel):
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


def test_a_large_beta_chooses_one_position():
    """With beta = 10^6 each draw has all weight on one position: K_attn of a string with itself is 1 + gamma^2."""
    x = some_strings(5, 4, 3)
    found = TransformerKernel(beta=1e6, gamma=0.5, n_draws=64).attention(x)
    np.testing.assert_allclose(found.diagonal(), 1.25, rtol=0, atol=1e-3)
    assert np.isfinite(found).all()
