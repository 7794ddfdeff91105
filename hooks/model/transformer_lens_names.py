"""TransformerLens's names: what its tools read and call of a model and its config.

The tools are `ActivationCache`, `patching`, `head_detector`, `SVDInterpreter`, `path_patching` and `tools.analysis`.
"""

import copy
from numbers import Integral
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.checks import shown

_WEIGHTS = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O", "W_in", "W_out", "b_in", "b_out", "w", "b")


class TransformerLensSettings:
    """Config fields that TransformerLens's tools read; constants, since our models have no such choices."""

    device = None
    """Wherever the model's weights are: `tensor.to(None)` leaves a tensor where it is."""
    dtype = None
    n_key_value_heads = None
    final_rms = False
    use_split_qkv_input = False
    use_attn_result = False
    use_hook_mlp_in = False


class ReadsText:
    """Texts to token ids and back, with the tokenizer that is attached."""

    tokenizer: Any
    """Anything with `encode(text) -> list[int]` and `decode(ids) -> str`, such as a task's vocab or a tokenizer of
    transformers; None until it is attached."""

    @property
    def _device(self) -> Any:
        """The device of the model's weights."""
        raise NotImplementedError

    def to_tokens(self, text: Any, prepend_bos: bool | None = None) -> Int[Tensor, "batch pos"]:
        """Token ids of a text or of texts with the same number of tokens; ids are returned as they are.

        Args:
            text: A text, a list of texts, or ids.
            prepend_bos: Whether the first token is the tokenizer's BOS token. None: the tokens that the tokenizer adds
                by default. False: no special tokens.

        Raises:
            ValueError: an empty list; no tokenizer, or one without a BOS token; texts or rows with different numbers
                of tokens; or what is neither a text nor an id.
        """
        if isinstance(text, Tensor | np.ndarray):
            tokens = torch.as_tensor(text)
        else:
            # Encode each text; rows of ids stay as they are
            texts = [text] if isinstance(text, str) else list(text)
            if not texts or any(isinstance(row, list | tuple) and not row for row in texts):
                raise ValueError(f"tokens is {shown(text)}, which has no tokens; pass a text, texts, or rows of ids.")
            rows = [self._encode(row, prepend_bos) if isinstance(row, str) else _ids(row) for row in texts]
            if len({isinstance(row, list) for row in rows}) > 1:
                raise ValueError(f"tokens is {shown(text)}, single ids beside rows; pass rows of ids, or one row.")
            lengths = sorted({len(row) for row in rows if isinstance(row, list)})
            if len(lengths) > 1:
                raise ValueError(
                    f"the texts have {lengths[0]} to {lengths[-1]} tokens, and none are padded: pass texts with one "
                    f"number of tokens, or token ids and an attention_mask."
                )
            tokens = torch.tensor(rows, dtype=torch.long)
        if tokens.ndim != 2:
            tokens = tokens[None]
        return tokens.to(self._device)

    def to_str_tokens(self, text: Any, prepend_bos: bool | None = None) -> list[str] | list[list[str]]:
        """The text of each token of a text or of one sequence of ids; for a list of texts, a list for each of them.

        Raises:
            ValueError: ids of several sequences; or as `to_tokens`.
        """
        if isinstance(text, list | tuple) and text and all(isinstance(element, str) for element in text):
            return [[self._decode([token]) for token in self._encode(element, prepend_bos)] for element in text]
        tokens = self.to_tokens(text, prepend_bos)
        if len(tokens) != 1:
            raise ValueError(f"tokens is {tuple(tokens.shape)}; to_str_tokens reads one sequence, (pos) or (1, pos).")
        return [self._decode([token]) for token in tokens[0].tolist()]

    def to_string(self, tokens: Any) -> str | list[str]:
        """The text of one id or of a sequence of ids; for a batch (batch, pos), a list of texts."""
        ids = torch.as_tensor(tokens).tolist()
        if isinstance(ids, int):
            return self._decode([ids])
        is_batch = bool(ids) and isinstance(ids[0], list)
        return [self._decode(row) for row in ids] if is_batch else self._decode(ids)

    def to_single_token(self, text: str) -> int:
        """The id of a text that is one token, without special tokens.

        Raises:
            ValueError: no tokenizer, or a text that is not exactly one token.
        """
        ids = self._encode(text, False)
        if len(ids) != 1:
            raise ValueError(f"{text!r} is {len(ids)} tokens, not one.")
        return ids[0]

    def to_single_str_token(self, token: int) -> str:
        """The text of one token id."""
        return self._decode([token])

    def _encode(self, text: str, prepend_bos: bool | None) -> list[int]:
        tokenizer = self._tokenizer_with("encode")
        no_special_tokens = prepend_bos is False and _is_huggingface(tokenizer)
        options = {"add_special_tokens": False} if no_special_tokens else {}
        ids = [int(token) for token in tokenizer.encode(text, **options)]
        if not prepend_bos:
            return ids
        bos = getattr(tokenizer, "bos_token_id", None)
        if bos is None:
            raise ValueError(
                f"prepend_bos is True, but the tokenizer, a {type(tokenizer).__name__}, has no BOS token; write the "
                f"first token into the text."
            )
        return ids if ids[:1] == [bos] else [bos, *ids]

    def _decode(self, ids: list[int]) -> str:
        tokenizer = self._tokenizer_with("decode")
        options = {"clean_up_tokenization_spaces": False} if _is_huggingface(tokenizer) else {}
        return tokenizer.decode(ids, **options)

    def _tokenizer_with(self, method: str) -> Any:
        if self.tokenizer is None:
            raise ValueError("this model has no tokenizer; pass token ids, or set model.tokenizer (a task's vocab).")
        if not hasattr(self.tokenizer, method):
            raise ValueError(f"the tokenizer, a {type(self.tokenizer).__name__}, has no {method}; set one that has it.")
        return self.tokenizer


def _is_huggingface(tokenizer: Any) -> bool:
    return hasattr(tokenizer, "all_special_ids")


def _stacked(sublayer: str, name: str) -> property:
    """A weight of every applied layer, stacked: (layer, ...)."""

    def weights(self: "TransformerLensNames") -> Tensor:
        for layer, sites in enumerate(self.blocks):
            if not hasattr(getattr(sites, sublayer, None), name):
                raise ValueError(f"layer {layer} of this model has no {sublayer}.{name}.")
        return torch.stack([getattr(getattr(sites, sublayer), name) for sites in self.blocks])

    return property(weights)


class TransformerLensNames(ReadsText):
    """Weights, directions in the residual stream, texts, and hook points on demand, under TransformerLens's names."""

    cfg: Any
    embed: Any
    unembed: Any
    ln_final: Any
    blocks: Any
    block: Any
    named_modules: Any
    setup: Any
    training: bool

    W_Q, W_K, W_V, W_O = (_stacked("attn", name) for name in ("W_Q", "W_K", "W_V", "W_O"))
    b_Q, b_K, b_V, b_O = (_stacked("attn", name) for name in ("b_Q", "b_K", "b_V", "b_O"))
    W_in, W_out, b_in, b_out = (_stacked("mlp", name) for name in ("W_in", "W_out", "b_in", "b_out"))
    W_E = property(lambda self: self.embed.weight)
    b_U = property(lambda self: self.unembed.bias_or_zero)

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab_out"]:
        """The read-out."""
        return self.unembed.weight.T

    @property
    def QK(self) -> Any:
        """W_Q W_K^T of every head (layer, head, d_model, d_model), as TransformerLens's `FactoredMatrix`.

        Raises:
            ValueError: hard-coded heads, or a I on W_Q W_K^T, which is not a product of these.
        """
        from transformer_lens import FactoredMatrix  # takes a second to import

        if self.cfg.qk_identity:
            raise ValueError("W_Q W_K^T of this model is not all that heads compare with: there is a I (qk_identity).")
        return FactoredMatrix(self.W_Q, self.W_K.mT)

    @property
    def OV(self) -> Any:
        """W_V W_O of every head (layer, head, d_model, d_model), as TransformerLens's `FactoredMatrix`.

        Raises:
            ValueError: b I on W_V W_O, which is not a product of these.
        """
        from transformer_lens import FactoredMatrix  # takes a second to import

        if self.cfg.vo_identity:
            raise ValueError("W_V W_O of this model is not all that heads write: there is b I (vo_identity).")
        return FactoredMatrix(self.W_V, self.W_O)

    @property
    def _device(self) -> Any:
        return self.W_E.device

    def tokens_to_residual_directions(self, tokens: Any) -> Float[Tensor, "*tokens d_model"]:
        """The direction in the normalised residual stream that increases the logit of each token.

        The gain of the final LayerNorm is folded in, so that the dot product of a component with this direction is
        exactly its contribution to the logit; the norm's bias and `b_U` are constants that no component writes.
        """
        ids = self.to_single_token(tokens) if isinstance(tokens, str) else tokens
        ids = torch.as_tensor(ids, device=self.W_U.device)
        w_u = self.W_U if self.ln_final is None else self.ln_final.w[:, None] * self.W_U
        directions = w_u.T[ids]
        # One token of each sequence gives one direction, as in TransformerLens
        is_single = ids.ndim > 0 and ids.shape[-1] == 1
        return directions.squeeze(-2) if is_single else directions

    def tl_parameters(self) -> dict[str, Tensor]:
        """Weights under TransformerLens's names (`blocks.0.attn.W_Q`), for every applied layer.

        Raises:
            ValueError: a head that is not linear.
        """
        weights = {"embed.W_E": self.W_E, "unembed.W_U": self.W_U, "unembed.b_U": self.b_U}
        # Hook points of layers have the weights of their block as attributes
        for path, module in self.named_modules():
            if path.startswith(("blocks.", "ln_final")):
                weights |= {f"{path}.{name}": getattr(module, name) for name in _WEIGHTS if hasattr(module, name)}
        return weights

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
            sites = self.blocks[index]
            total = total + sites.attn.b_O
            # With `mlp_input` the sum ends between attention and MLP of `layer`
            if include_mlp_biases and index < layer and not self.cfg.attn_only:
                total = total + sites.mlp.b_out
        return total

    # Hook points on demand: setters add them to every layer and remove them; they change results by rounding at most.

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        """Add or remove `attn.hook_q_input`, `hook_k_input` and `hook_v_input` (batch, pos, head, d_model).

        Each is a copy, for every head, of the residual stream before `ln1`: an edit reaches the queries, keys or values
        of one head and nothing else. Hook points of `ln1` see the stream itself, and an edit there reaches all copies.
        A layer then takes more time and 3 n_heads times the memory of its input.

        Raises:
            ValueError: a model with hard-coded heads, which have no queries and keys.
        """
        self._refuse_hardcoded("set_use_split_qkv_input", use_split_qkv_input)
        self._set_flag("use_split_qkv_input", use_split_qkv_input)
        for layer, sites in enumerate(self.blocks):
            sites.attn.set_optional(("hook_q_input", "hook_k_input", "hook_v_input"), use_split_qkv_input)
            sites.keep_unhooked(self.cfg, self.block(layer), use_split_qkv_input)
        self._name_new_points()

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        """Add or remove `attn.hook_result` (batch, pos, head, d_model), what each head writes. Models with b I always
        have it.

        Raises:
            ValueError: a model with hard-coded heads.
        """
        self._refuse_hardcoded("set_use_attn_result", use_attn_result)
        self._set_flag("use_attn_result", use_attn_result)
        if not self.cfg.vo_identity:
            for sites in self.blocks:
                sites.attn.set_optional(("hook_result",), use_attn_result)
        self._name_new_points()

    def set_use_hook_mlp_in(self, use_hook_mlp_in: bool) -> None:
        """Add or remove `hook_mlp_in` (batch, pos, d_model), the residual stream before `ln2`, if there is one; only
        the MLP reads it.

        Raises:
            ValueError: blocks other than `pre_ln` and `no_norm`, or a model without MLPs.
        """
        if use_hook_mlp_in and (self.cfg.block not in ("pre_ln", "no_norm") or self.cfg.attn_only):
            raise ValueError(
                f"set_use_hook_mlp_in needs pre_ln or no_norm blocks with an MLP; block is {self.cfg.block!r} and "
                f"d_mlp {self.cfg.d_mlp}. Use hook_resid_mid, or mlp.hook_pre."
            )
        self._set_flag("use_hook_mlp_in", use_hook_mlp_in)
        for sites in self.blocks:
            sites.set_optional(("hook_mlp_in",), use_hook_mlp_in)
        self._name_new_points()

    def _refuse_hardcoded(self, method: str, on: bool) -> None:
        if on and any(self.cfg.patterns_of(layer) for layer in range(self.cfg.n_layers)):
            raise ValueError(
                f"{method} needs heads that are all learned, but head_patterns hard-codes some. Use hook_v or hook_z."
            )

    def _set_flag(self, name: str, on: bool) -> None:
        """Set what TransformerLens's tools read of the config; in a copy, since models may share one."""
        self.cfg = copy.copy(self.cfg)
        object.__setattr__(self.cfg, name, on)

    def _name_new_points(self) -> None:
        """Name the new hook points; they are in the model's mode."""
        for sites in self.blocks:
            sites.train(self.training)
        self.setup()


def _ids(row: Any) -> int | list[int]:
    """An id, or a row of ids, as plain integers.

    Raises:
        ValueError: anything else.
    """
    plain = row.tolist() if isinstance(row, Tensor | np.ndarray) else row
    if isinstance(plain, Integral) and not isinstance(plain, bool):
        return int(plain)
    is_row = isinstance(plain, list | tuple)
    if not is_row or not all(isinstance(token, Integral) and not isinstance(token, bool) for token in plain):
        raise ValueError(f"tokens has {shown(row)}; it must have texts, or rows of integer ids.")
    return [int(token) for token in plain]
