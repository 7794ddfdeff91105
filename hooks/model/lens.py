"""Names of models and configs that TransformerLens's tools read: `ActivationCache`, `patching`, `head_detector` and
`tools.analysis`."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor


class LensConfig:
    """The config fields that TransformerLens's tools read beyond our own."""

    n_layers: int
    n_heads: int
    d_mlp: Any
    block_class: Any

    device = None
    """Wherever the model's weights are: `tensor.to(None)` leaves a tensor where it is."""
    dtype = None
    n_key_value_heads = None
    final_rms = False
    use_split_qkv_input = False
    use_attn_result = False

    @property
    def attn_only(self) -> bool:
        """True when layers have no MLP."""
        return self.d_mlp == 0

    @property
    def normalization_type(self) -> str | None:
        """`LN` if there is a final LayerNorm before the read-out, else None."""
        return "LN" if self.block_class.final_norm else None


class ReadsText:
    """Texts to token ids, with the tokenizer that is attached."""

    tokenizer: Any
    """Anything with `encode(text) -> list[int]`; None until a task or tokenizer is attached."""

    @property
    def _device(self) -> Any:
        """The device of the model's weights."""
        raise NotImplementedError

    def to_tokens(self, text: Any, **_: Any) -> Int[Tensor, "batch pos"]:
        """Token ids of a text or of texts with the same number of tokens; ids are returned as they are."""
        if isinstance(text, Tensor):
            tokens = text
        else:
            texts = [text] if isinstance(text, str) else list(text)
            tokens = torch.tensor([self._encode(t) if isinstance(t, str) else t for t in texts])
        tokens = tokens if tokens.ndim == 2 else tokens[None]
        return tokens.to(self._device)

    def _encode(self, text: str) -> list[int]:
        if self.tokenizer is None:
            raise ValueError("this model has no tokenizer; pass token ids, or set model.tokenizer (a task's vocab).")
        return [int(token) for token in self.tokenizer.encode(text)]


class LensModel(ReadsText):
    """Model methods that TransformerLens's tools call: token ids, and directions in the residual stream."""

    cfg: Any
    W_E: Any
    W_U: Any
    ln_final: Any
    blocks: Any

    @property
    def _device(self) -> Any:
        return self.W_E.device

    def to_single_token(self, text: str) -> int:
        """The id of a text that is one token.

        Raises:
            ValueError: the text is not exactly one token.
        """
        ids = self._encode(text)
        if len(ids) != 1:
            raise ValueError(f"{text!r} is {len(ids)} tokens, not one.")
        return ids[0]

    def tokens_to_residual_directions(self, tokens: Any) -> Float[Tensor, "*tokens d_model"]:
        """The direction in the normalised residual stream that increases the logit of each token.

        The gain of the final LayerNorm is folded in, so that the dot product of a component with this direction is
        exactly its contribution to the logit; the norm's bias and `b_U` are constants that no component writes.
        """
        ids = self.to_single_token(tokens) if isinstance(tokens, str) else tokens
        ids = torch.as_tensor(ids, device=self.W_U.device)
        directions = self.W_U if self.ln_final is None else self.ln_final.w[:, None] * self.W_U
        return directions.T[ids].squeeze(-2) if ids.ndim and ids.shape[-1] == 1 else directions.T[ids]

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """Sum of the biases that layers before `layer` write to the residual stream.

        Raises:
            ValueError: a post_ln model, which normalises the stream after each layer; or a head that is not linear.
        """
        if self.cfg.block == "post_ln":
            raise ValueError("layers of a post_ln model normalise their output: biases of earlier layers do not add.")
        total = torch.zeros(self.cfg.d_model, device=self.W_U.device, dtype=self.W_U.dtype)
        for index in range(min(layer + mlp_input, self.cfg.n_layers)):
            block = self.blocks[index]
            total = total + block.attn.b_O
            if include_mlp_biases and index < layer and not self.cfg.attn_only:
                total = total + block.mlp.b_out
        return total
