"""The error bound of one random layer, term by term."""

import pytest
import torch

from interp.theory.pruning.layers import Growth, LayerErrors, grow
from interp.theory.pruning.target import LayerMaps

EXACT = {"residual": 1.0, "first_norm": 2.0, "second_norm": 3.0, "first_error": 0.0, "second_error": 0.0}


def layer_errors(*, from_stream=1.5, from_norm=0.5, attention=None, **errors):
    return LayerErrors(**{**EXACT, **errors}, from_stream=from_stream, from_norm=from_norm, maps=attention)


def maps(score=0.0, write=1.0):
    """One head on a stream of width 2, whose output is already centred."""
    out = torch.tensor([[write, 0, 0], [-write, 0, 0]], dtype=torch.float64) / 2**0.5
    form = torch.zeros(3, 3, dtype=torch.float64)
    form[0, 0] = score
    one = torch.ones(2, dtype=torch.float64)
    return LayerMaps(score=form[None], write=out[None], gain=one, bias=0 * one, w_in=None, w_out=None)


def error_after(errors, *, radius=2.0, error=0.1, eps=0.25):
    return grow(Growth(radius=radius, error=error), errors, d_model=8, eps=eps).error


def test_error_grows_by_the_lipschitz_constant():
    assert error_after(layer_errors()) == pytest.approx(1.5 * 0.1)
    assert grow(Growth(radius=2.0, error=0.0), layer_errors(), d_model=8, eps=1.0).radius == 3.0


def test_errors_of_the_projection_are_added():
    assert error_after(layer_errors(first_error=0.01), error=0.0) == pytest.approx(3 * 0.01 * 2)
    assert error_after(layer_errors(second_error=0.01), error=0.0) == pytest.approx(0.01 * 2 * 2)
    both = error_after(layer_errors(first_error=0.01, second_error=0.02), error=0.1)
    assert both == pytest.approx(1.5 * 0.1 + (3 * 0.01 + 0.02 * 2.01) * 2.1)
    assert error_after(layer_errors(first_error=0.01, residual=2.0), error=0.0) == pytest.approx(3 * 0.01 * 4)


def test_attention_passes_an_error_through_the_norm():
    """The error enters what heads write twice; the norm multiplies it by 1 / sqrt(eps)."""
    through = 0.5 * 2**0.5 * 0.1
    assert error_after(layer_errors(attention=maps())) == pytest.approx(1.5 * 0.1 + through / 0.25**0.5)
    assert error_after(layer_errors(attention=maps()), eps=1e-4) == pytest.approx(1.5 * 0.1 + through / 1e-2)
    assert error_after(layer_errors(attention=maps(write=3.0))) == pytest.approx(1.5 * 0.1 + 3 * through / 0.5)
    moved = 0.1 + 2.1 * 4 * (2 + 2.1) * 0.1  # and the pattern moves with the scores
    assert error_after(layer_errors(attention=maps(score=4.0))) == pytest.approx(1.5 * 0.1 + 0.5 * 2**0.5 * moved / 0.5)


def test_errors_of_attention_are_added():
    assert error_after(layer_errors(write_error=0.01, attention=maps()), error=0.0) == pytest.approx(
        0.5 * 2**0.5 * 0.01 * 2 / 0.5
    )
    assert error_after(layer_errors(score_error=0.01, attention=maps()), error=0.0) == pytest.approx(
        0.5 * 2**0.5 * 2 * 0.01 * 4 / 0.5
    )
