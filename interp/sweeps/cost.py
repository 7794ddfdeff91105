"""Estimated cost of a training: floating-point operations and memory."""

from hooks.model.architectures import Config
from interp.sweeps.spec import ModelSpec

PER_WIDTH = 17
"""Numbers kept for the backward pass, per layer and token, for each unit of width."""
PER_WEIGHT = 2.5
"""The same for each attention weight. Source of both: Korthikanti et al., "Reducing activation recomputation"
(arXiv:2205.05198), Equation 2, which counts bytes."""
PER_PARAMETER = 16.0
"""Bytes of a weight, its gradient and AdamW's two moments."""


def training_operations(spec: ModelSpec) -> float:
    """Floating-point operations of a training: 6 per weight and token, and those of attention.

    Source: Kaplan et al., "Scaling laws for neural language models" (arXiv:2001.08361), Section 2.1; embeddings and
    evaluation are not counted. A tied block counts once for each application.
    """
    cfg, pos = spec.config, spec.task.n_ctx
    per_layer = _weights_of_layer(cfg) + 2 * pos * _width_of_heads(cfg)
    per_token = max(1, cfg.n_layers) * per_layer + cfg.d_model * spec.task.d_vocab_out
    return 6.0 * spec.settings.total_steps * _tokens_per_step(spec) * per_token


def training_memory(spec: ModelSpec) -> float:
    """Bytes of a training: weights, gradients and AdamW's state, and numbers for the backward pass."""
    cfg, task = spec.config, spec.task
    stored_layers = 1 if getattr(cfg, "tied", False) else max(1, cfg.n_layers)
    embeddings = cfg.d_model * (task.d_vocab + task.d_vocab_out + task.n_ctx)
    weights = stored_layers * _weights_of_layer(cfg) + embeddings
    activations = activation_bytes(cfg, _tokens_per_step(spec), task.n_ctx)
    if spec.settings.precision == "bfloat16":
        activations *= 0.5
    return PER_PARAMETER * weights + activations


def activation_bytes(cfg: Config, tokens: int, pos: int) -> float:
    """Bytes that a forward pass in single precision keeps for the backward pass.

    Args:
        cfg: Config of the model.
        tokens: Tokens of the batch.
        pos: Tokens of a sequence.
    """
    width = max(cfg.d_model, (getattr(cfg, "d_mlp", None) or 0) // 4)
    per_token = PER_WIDTH * width + PER_WEIGHT * cfg.n_heads * pos
    return 4.0 * tokens * max(1, cfg.n_layers) * per_token


def _tokens_per_step(spec: ModelSpec) -> int:
    batch_size = spec.settings.batch_size
    return batch_size * spec.task.n_ctx if batch_size else spec.settings.tokens_per_step


def _weights_of_layer(cfg: Config) -> int:
    """Weights of the matrices of one layer."""
    d_mlp = getattr(cfg, "d_mlp", None) or cfg.d_model
    return 4 * cfg.d_model * _width_of_heads(cfg) + 2 * cfg.d_model * d_mlp


def _width_of_heads(cfg: Config) -> int:
    """Width of all heads of a layer together."""
    return cfg.n_heads * getattr(cfg, "d_head", 0)
