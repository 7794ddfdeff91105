"""Equality of numbers that are computed twice: the tolerance follows from dtype and size."""

import torch


def rounding(expected, *, terms, dtype=torch.float32):
    """Absolute tolerance of the elements of a result, where the same numbers are computed in another order.

    A sum of n terms, each rounded to a share eps / 2 of the largest element, is off by about sqrt(n) eps / 2 times that
    element. Instruction sets, libraries and sizes of a batch order sums differently. Of two computations, each with
    four such sums in a row (scores, mixed values, MLP, logits), the difference has a standard deviation of
    sqrt(2 x 4) sqrt(n) eps / 2, about 1.4 sqrt(n) eps; six of them are allowed, for the largest of many elements.

    Args:
        expected: The numbers. At least 1 counts as the largest, since intermediate values of models are that large.
        terms: Terms of the longest sum, such as the width of the MLP.
        dtype: Of the less exact computation.
    """
    expected = torch.as_tensor(expected).detach().double()
    largest = expected[expected.isfinite()].abs().amax().clamp_min(1).item()
    return 8.5 * terms**0.5 * torch.finfo(dtype).eps * largest


def assert_equal_up_to_rounding(actual, expected, *, terms, dtype=torch.float32):
    """Assert that two tensors are the same numbers; arguments as of `rounding`."""
    tolerance = rounding(expected, terms=terms, dtype=dtype)
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0, check_dtype=False)
