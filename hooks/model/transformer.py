"""A small transformer with hook points: embedding, blocks, linear read-out."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.model.config import TransformerConfig
from hooks.model.embeddings import BracketEmbedding, TokenEmbedding
from hooks.model.stack import TransformerStack
from hooks.modules import Linear, TiedReadOut


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
        tokens: Int[Tensor, "batch pos"],
        attention_mask: Bool[Tensor, "batch pos"] | Int[Tensor, "batch pos"] | None = None,
        *,
        position_ids: Int[Tensor, "#batch pos"] | None = None,
        depth: int | None = None,
    ) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits at every position.

        Args:
            tokens: Token ids.
            attention_mask: True or 1 for real tokens; no real token attends to padding.
            position_ids: Position of each token; default: 0, 1, 2 ...
            depth: Number of layers to apply, for stochastic depth; default: all. For more layers than the model has,
                see `at_depth`.

        Raises:
            ValueError: tokens without a batch axis, tokens or positions out of range, a sequence longer than `n_ctx`, a
                mask of another shape, or a depth that the model does not have.
        """
        self._check_input(tokens, attention_mask, depth)
        context = self._context(tokens, attention_mask)
        return self._run(self._embed(tokens, position_ids), context, depth)

    W_U = property(lambda self: self.unembed.weight.T)
