"""Token ids that are no integers are refused by every kind of network, by name."""

import pytest
import torch
from bridges import bridge_of

import hooks
from hooks import FullyConnected, FullyConnectedConfig, Recurrent, RecurrentConfig, Transformer, TransformerConfig

pytestmark = pytest.mark.usefixtures("as_a_user")

SIZES = {"d_vocab": 6, "n_ctx": 4}
NETWORKS = {
    "transformer": lambda: Transformer(TransformerConfig(**SIZES, d_model=8, n_heads=2, n_layers=1)),
    "fully connected": lambda: FullyConnected(FullyConnectedConfig(**SIZES, d_vocab_out=2, width=4)),
    "recurrent": lambda: Recurrent(RecurrentConfig(**SIZES, d_vocab_out=2, width=4)),
    "bridge": lambda: hooks.from_bridge(bridge_of("native")),
}
TYPES = [torch.float32, torch.float16, torch.bool, torch.uint8, torch.int8, torch.complex64]


@pytest.mark.parametrize("kind", NETWORKS)
def test_ids_of_other_types_are_refused(kind):
    network = NETWORKS[kind]()
    ids = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])
    assert torch.equal(network(ids.int()), network(ids))
    for dtype in TYPES:
        for call in (network, network.run_with_cache, network.run_with_hooks):
            with pytest.raises(ValueError, match=rf"^tokens is {dtype}; it must hold integer ids, as tokens\.long\(\)"):
                call(ids.to(dtype))
