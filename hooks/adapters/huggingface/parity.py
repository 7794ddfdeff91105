"""Comparison of a loaded model with its original: logits and hidden states on seeded random texts with padding."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import transformers
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.adapters.huggingface.configs import Architecture
from hooks.model.config import TransformerConfig
from hooks.model.encoder import Encoder, EncoderConfig
from hooks.model.transformer import TransformerStack
from hooks.randomness import seeded_generator

TOLERANCE = 1e-4
"""Largest difference of a logit that passes, in units of the largest logit where that is above one."""
TEXTS, LENGTH = 4, 32


@dataclass(frozen=True, kw_only=True)
class ParityReport:
    """Differences between a loaded model and the Hugging Face model that its weights came from."""

    architecture: str
    """The Hugging Face class."""
    n_tokens: int
    """Number of tokens compared, without padding."""
    logits: float
    """Largest absolute difference of a logit; of a hidden state if the class has no logits."""
    largest_logit: float
    """Largest absolute value among those, for scale."""
    hidden: tuple[float, ...]
    """Largest absolute difference of the residual stream: before the first layer, then after each layer."""
    pooled: float | None = None
    """Largest absolute difference of the pooled vector; None without a pooler."""
    left_out: tuple[str, ...] = ()
    """Weights of the original that were not loaded and have no effect on the logits."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the libraries."""

    @property
    def ok(self) -> bool:
        """True when logits and pooled vector agree within `TOLERANCE`."""
        differences = (self.logits / max(1.0, self.largest_logit), self.pooled or 0.0)
        return all(difference <= TOLERANCE for difference in differences)  # False if one is NaN

    def __str__(self) -> str:
        lines = [
            f"{self.architecture}, {self.n_tokens} tokens: {'same' if self.ok else 'NOT the same'}",
            f"  logits    {self.logits:.1e}  (largest {self.largest_logit:.3g})",
        ]
        if self.pooled is not None:
            lines.append(f"  pooled    {self.pooled:.1e}")
        names = ["embedded", *(f"layer {layer}" for layer in range(len(self.hidden) - 1))]
        lines += [f"  {name:<9} {value:.1e}" for name, value in zip(names, self.hidden, strict=True)]
        if self.left_out:
            lines.append(f"  left out  {', '.join(self.left_out)}")
        lines.append("  " + ", ".join(f"{name} {version}" for name, version in self.versions.items()))
        return "\n".join(lines)


@torch.no_grad()
def measure_parity(
    model: TransformerStack, hf_model: Any, architecture: Architecture, *, left_out: tuple[str, ...] = (), seed: int = 0
) -> ParityReport:
    """Run both on the same random texts, in evaluation mode, the Hugging Face model with eager attention.

    Args:
        model: The loaded model, in evaluation mode.
        hf_model: The Hugging Face model. Its mode and attention implementation are restored.
        architecture: Its class.
        left_out: Names of weights for the report.
        seed: Seed of the texts.
    """
    # The residual stream before the first layer and after each of them
    inputs, mask = _texts(model.cfg, seed, model.W_E.device)
    layers = range(model.cfg.n_layers)
    # Hugging Face's last hidden state comes after the final LayerNorm
    last = f"blocks.{layers[-1]}.hook_resid_post" if model.ln_final is None else "ln_final.hook_normalized"
    names = [*(f"blocks.{layer}.hook_resid_pre" for layer in layers), last]
    # Run both models
    tokens = inputs["input_ids"]
    further_inputs = {name: ids for name, ids in inputs.items() if name != "input_ids"}
    logits, cache = cast(Any, model).run_with_cache(tokens, mask, **further_inputs, names_filter=names)
    with _as_reference(hf_model):
        hf_output = hf_model(attention_mask=mask.long(), **inputs, output_hidden_states=True)
        hf_pooled = None
        if isinstance(model, Encoder) and model.pooler is not None:
            hf_pooled = hf_model.base_model(attention_mask=mask.long(), **inputs).pooler_output
    hidden = [cache[name] for name in names]
    # Without a head the last hidden states are compared
    if architecture.head == "none":
        output, expected = hidden[-1], hf_output[0]
    else:
        output = logits
        hf_logits = getattr(hf_output, "prediction_logits", None)  # BertForPreTraining
        expected = hf_output.logits if hf_logits is None else hf_logits
    hidden_differences = [
        _distance(values[mask], reference[mask])
        for values, reference in zip(hidden, hf_output.hidden_states, strict=True)
    ]
    pooled_difference = None
    if hf_pooled is not None:
        pooled_difference = _distance(cast(Encoder, model).pool(hidden[-1]), hf_pooled)
    return ParityReport(
        architecture=architecture.name,
        n_tokens=int(mask.sum()),
        logits=_distance(output[mask], expected[mask]),
        largest_logit=float(expected[mask].abs().max()),
        hidden=tuple(hidden_differences),
        pooled=pooled_difference,
        left_out=left_out,
        versions={"transformers": transformers.__version__, "torch": str(torch.__version__)},
    )


def _texts(cfg: TransformerConfig, seed: int, device: Any) -> tuple[dict[str, Tensor], Bool[Tensor, "batch pos"]]:
    generator = seeded_generator(seed)
    pos = min(LENGTH, cfg.n_ctx)
    inputs = {"input_ids": torch.randint(cfg.d_vocab, (TEXTS, pos), generator=generator)}
    if isinstance(cfg, EncoderConfig) and cfg.n_token_types:
        inputs["token_type_ids"] = torch.randint(cfg.n_token_types, (TEXTS, pos), generator=generator)
    # The first text fills the positions; the others are shorter and padded
    shorter = [max(1, pos * index // TEXTS) for index in range(1, TEXTS)]
    lengths = torch.tensor([pos, *shorter])
    mask = torch.arange(pos) < lengths[:, None]
    return {name: ids.to(device) for name, ids in inputs.items()}, mask.to(device)


def _distance(a: Float[Tensor, "*shape"], b: Float[Tensor, "*shape"]) -> float:
    return float((a - b).abs().max())


@contextmanager
def _as_reference(hf_model: Any) -> Iterator[None]:
    """Evaluation mode and eager attention within the context."""
    modes = {module: module.training for module in hf_model.modules()}
    config = cast(Any, hf_model.config)
    attention = config._attn_implementation
    try:
        hf_model.eval()
        config._attn_implementation = "eager"
        yield
    finally:
        config._attn_implementation = attention
        for module, training in modes.items():
            module.training = training
