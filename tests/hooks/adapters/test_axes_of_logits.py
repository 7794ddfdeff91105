"""Logits with the vocabulary before the positions, as torch's losses take them: refused also where both are as long."""

from types import SimpleNamespace

import pytest
from own_models import MAPS, OwnModel, PlainModel, own_model, transformer

import hooks


class Transposed(PlainModel):
    """Gives (batch, vocabulary, pos)."""

    def forward(self, tokens, attention_mask=None):
        return super().forward(tokens, attention_mask).mT


class TransposedAtHooks(OwnModel):
    """A `HookedRootModule` that gives (batch, vocabulary, pos)."""

    def forward(self, tokens, attention_mask=None):
        return super().forward(tokens, attention_mask).mT


class FullLength(PlainModel):
    """Adds all positions to the tokens, so that it accepts one length only."""

    def forward(self, tokens, attention_mask=None):
        if tokens.shape[1] != self.cfg.n_ctx:
            raise RuntimeError("expected a full sequence")
        return super().forward(tokens, attention_mask)


def sizes(n_ctx, d_vocab_out):
    return SimpleNamespace(d_vocab=9, d_vocab_out=d_vocab_out, n_ctx=n_ctx, attention="causal")


def wrapped(make, n_ctx, d_vocab_out, **options):
    module = make(transformer(sizes(n_ctx, d_vocab_out)).cfg).eval()
    return hooks.from_module(module, layers="layers", attention=MAPS, d_vocab=9, n_ctx=n_ctx, **options)


@pytest.mark.parametrize(("n_ctx", "d_vocab_out"), [(4, 4), (5, 5), (12, 6)])
def test_transposed_logits_as_wide_as_long(n_ctx, d_vocab_out):
    for options in ({}, {"forward": lambda module, tokens: (module(tokens),)[0]}):
        with pytest.raises(ValueError, match=r"which axis is the position cannot be tested|axes are not \(batch, pos"):
            wrapped(Transposed, n_ctx, d_vocab_out, **options)
    assert wrapped(PlainModel, n_ctx, d_vocab_out).cfg.d_vocab_out == d_vocab_out


def test_transposed_logits_of_another_width():
    with pytest.raises(ValueError, match=r"returns \(3, 5, 6\) for tokens \(3, 6\); needed are logits"):
        wrapped(Transposed, 12, 5)


def test_transposed_logits_of_a_hooked_root_module():
    own = own_model(transformer(sizes(12, 6)), TransposedAtHooks)
    words = r"logits are \(3, 6, 6\) for tokens \(3, 6\), but \(3, 6, 5\) for 5 positions.*Transpose the last two"
    with pytest.raises(ValueError, match=words):
        hooks.from_bridge(own)


def test_a_model_of_one_length():
    assert wrapped(FullLength, 6, 5).cfg.d_vocab_out == 5
    with pytest.raises(ValueError, match=r"for 5 positions: expected a full sequence\. Let it accept shorter"):
        wrapped(FullLength, 6, 6)
