import pytest
import torch

from hooks import Transformer, TransformerConfig

SIZES = {"d_vocab": 11, "d_model": 12, "n_heads": 3, "n_layers": 3, "n_ctx": 10}


@pytest.fixture
def make():
    """Builds small models in which no parameter is 0 or 1, so that an omitted one changes the output."""

    def build(*, seed=1, dtype=torch.float64, **settings):
        model = Transformer(TransformerConfig(**{**SIZES, **settings})).to(dtype).eval()
        generator = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(dtype)
        return model

    return build


@pytest.fixture
def tokens():
    return torch.randint(SIZES["d_vocab"], (4, 8), generator=torch.Generator().manual_seed(2))
