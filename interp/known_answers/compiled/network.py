"""The transformer of a compiled program, and the values that its variables have on the examples."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks import Transformer, TransformerConfig
from interp.known_answers.compiled.program import Program

DECIMALS = 3
"""Numbers that differ by less are the same value of a variable."""


@torch.no_grad()
def network(program: Program) -> Transformer:
    """The transformer that a program was compiled to, in evaluation mode.

    Source: Lindner et al. 2023 (arXiv:2301.05062): attention and MLP add to the stream, without norms or biases, and
    scores are not scaled.
    """
    weights = {name: torch.from_numpy(np.ascontiguousarray(array)).float() for name, array in program.weights.items()}
    n_layers, n_heads, d_model, d_head = weights["W_Q"].shape
    cfg = TransformerConfig(
        d_vocab=len(program.tokens),
        d_vocab_out=weights["W_U"].shape[1],
        d_model=d_model,
        n_heads=n_heads,
        n_layers=n_layers,
        n_ctx=len(weights["W_pos"]),
        d_head=d_head,
        d_mlp=weights["W_in"].shape[2],
        block="no_norm",
        attention="causal" if program.causal else "bidirectional",
        activation="relu",
        attn_scale=1.0,
        attn_bias=False,
        mlp_bias=False,
    )
    model = Transformer(cfg)
    # The names and axes of a state dict
    state = {"embed.weight": weights["W_E"], "positions.weight": weights["W_pos"], "unembed.weight": weights["W_U"].T}
    state["unembed.bias"] = torch.zeros(cfg.d_vocab_out)
    for layer in range(n_layers):
        block = f"weights.{layer}"
        for linear, name in (("q", "W_Q"), ("k", "W_K"), ("v", "W_V")):
            state[f"{block}.attention.{linear}.weight"] = weights[name][layer].transpose(1, 2).reshape(-1, d_model)
        state[f"{block}.attention.o.weight"] = weights["W_O"][layer].reshape(-1, d_model).T
        if cfg.d_mlp:
            state[f"{block}.mlp.w_in.weight"] = weights["W_in"][layer].T
            state[f"{block}.mlp.w_out.weight"] = weights["W_out"][layer].T
    model.load_state_dict(state)
    return model.eval()


@torch.no_grad()
def named_values(program: Program) -> dict[str, Int[Tensor, "example pos"]]:
    """The value of every variable with several values, as a class at each position of each example.

    Each variable has its own coordinates in the residual stream, which are written once, so that its value is there
    after the last layer. The class of a one-hot variable is its largest coordinate, with one class more where none is
    set; the classes of a numerical variable are its different numbers.
    """
    # The stream after the last layer
    tokens = torch.from_numpy(program.examples)
    real = tokens != program.tokens.index(program.pad)
    site = f"blocks.{len(program.weights['W_Q']) - 1}.hook_resid_post"
    _, cache = network(program).run_with_cache(tokens, attention_mask=real, names_filter=site)
    classes_by_variable = {}
    for variable, coordinates in program.variables.items():
        stream = cache[site][..., list(coordinates)]
        if ":" in program.residual[coordinates[0]]:
            value = torch.where(stream.amax(-1) > 0.5, stream.argmax(-1), len(coordinates))
        else:
            value = stream[..., 0].mul(10**DECIMALS).round()
        # Only variables with several values at scored positions
        classes = value[torch.from_numpy(program.scored)].unique()
        if len(classes) > 1:
            classes_by_variable[variable] = torch.searchsorted(classes, value).clamp_max(len(classes) - 1)
    return classes_by_variable


def written_at(program: Program) -> dict[str, int]:
    """The layer from which on each variable is in the residual stream.

    Layer 0 is the embedding's output and layer l + 1 the output of layer l, as in `ProbeResult`.
    """
    weights = program.weights
    # Which coordinates the embedding and each layer write
    writes_by_layer = [_writes(weights["W_E"]) | _writes(weights["W_pos"])]
    for heads, mlp in zip(weights["W_O"], weights["W_out"], strict=True):
        writes_by_layer.append(_writes(heads.reshape(-1, heads.shape[-1])) | _writes(mlp))
    table = np.stack(writes_by_layer)
    # The first layer that writes any coordinate of a variable
    layers = {}
    for name, coordinates in program.variables.items():
        layers[name] = int(table[:, list(coordinates)].any(1).argmax())
    return layers


def _writes(matrix: Float[np.ndarray, "source d_model"]) -> Bool[np.ndarray, " d_model"]:
    """Whether a matrix writes to each coordinate."""
    return (matrix != 0).any(0)
