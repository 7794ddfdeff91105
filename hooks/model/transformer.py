"""A small transformer with hook points: embedding, blocks, linear read-out."""

from collections.abc import Sequence

from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.model.config import TransformerConfig
from hooks.model.embeddings import BracketEmbedding, TokenEmbedding
from hooks.model.layers import Linear, TiedReadOut
from hooks.model.next_token_loss import ReturnType, check_return_type, next_token_loss
from hooks.model.stack import TransformerStack


class Transformer(TransformerStack):
    """A transformer with a TransformerLens hook point at every intermediate value.

    `model(tokens)` gives logits (batch, pos, d_vocab_out). Hook points have TransformerLens's canonical names for
    every applied layer, also if layers share weights. Results do not depend on the other sequences of a batch.

    Args:
        cfg: Architecture and sizes.
        seed: Decides the initial weights, without torch's global generator.
    """

    cfg: TransformerConfig

    def _build(self, cfg: TransformerConfig) -> None:
        self.embed = (
            TokenEmbedding(cfg.d_vocab, cfg.d_model)
            if cfg.embedding is None
            else BracketEmbedding(cfg.embedding, cfg.d_model)
        )
        self._build_layers(cfg)
        self.unembed = TiedReadOut(self.embed) if cfg.tied_embedding else Linear(cfg.d_model, cfg.d_vocab_out)
        self._build_positions(cfg, cfg.d_model)

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"] | str | Sequence[str],
        attention_mask: Bool[Tensor, "batch pos"] | Int[Tensor, "batch pos"] | None = None,
        *,
        position_ids: Int[Tensor, "#batch pos"] | None = None,
        depth: int | None = None,
        return_type: ReturnType | None = "logits",
        loss_per_token: bool = False,
    ) -> Float[Tensor, "..."] | tuple[Float[Tensor, "batch pos d_vocab_out"], Float[Tensor, "..."]] | None:
        """Logits at every position.

        Args:
            tokens: Token ids, or a text or texts of the attached tokenizer, as in `to_tokens`.
            attention_mask: True or 1 for real tokens; no real token attends to padding.
            position_ids: Position of each token; default: 0, 1, 2 ...
            depth: Number of layers to apply, for stochastic depth; default: all. For more layers than the model has,
                see `at_depth`.
            return_type: `loss`: mean cross entropy of each next token, as in `next_token_loss`, in place of logits
                (batch, pos, d_vocab_out). `both`: (logits, loss). None: nothing, for hooks alone.
            loss_per_token: The loss of each target (batch, pos - 1) in place of the mean.

        Raises:
            ValueError: tokens without a batch axis, tokens or positions out of range, a sequence longer than `n_ctx`, a
                mask of another shape, a depth that the model does not have, a text without a tokenizer, or a loss of a
                model that does not predict next tokens.
        """
        if not isinstance(tokens, Tensor):
            tokens = self.to_tokens(tokens)
        self._check_input(tokens, attention_mask, depth)
        if return_type != "logits" or loss_per_token:
            check_return_type(self.cfg, return_type, loss_per_token)
        context = self._context(tokens, attention_mask)
        logits = self._run(self._embed(tokens, position_ids), context, depth)
        if return_type == "logits" or return_type is None:
            return logits if return_type else None
        loss = next_token_loss(logits, tokens, attention_mask, per_token=loss_per_token)
        return (logits, loss) if return_type == "both" else loss

    W_U = property(lambda self: self.unembed.weight.T)
