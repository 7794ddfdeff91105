"""Recurrent networks on strings, the RNN and LSTM baselines of the template paper."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.checks import check_class, check_fields
from hooks.model.baseline import Baseline, BaselineConfig
from hooks.model.initialise import draw_normal, draw_uniform
from hooks.model.layers import HookPoint, Linear, check_ids, check_token_type
from hooks.randomness import seeded_generator
from hooks.typed import check_field_types

CellKind = Literal["rnn", "lstm"]


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(BaselineConfig):
    """Settings of a `hooks.Recurrent`.

    `n_ctx` is the greatest length of the strings.

    Raises:
        ValueError: a size below one, or an unknown cell.
    """

    cell: CellKind = "rnn"
    """`rnn`: an Elman network with ReLU. `lstm`: long short-term memory."""
    width: int = 128
    """Hidden units."""
    d_embed: int = 128
    """Width of the token embedding."""

    architecture: ClassVar[str] = "recurrent"
    kind: ClassVar[str] = "recurrent network"
    attention = "causal"
    """The output at a position depends on the tokens up to it, as in a causal transformer."""

    def __post_init__(self):
        check_field_types(self)
        check_fields(self, "d_vocab", "n_ctx", "d_vocab_out", "width", "d_embed", integer=True, low=1)

    @property
    def d_model(self) -> int:
        """Hidden width."""
        return self.width


class Recurrent(Baseline):
    """A recurrent network of one layer: embedding, RNN or LSTM from a hidden state of zeros, linear read-out.

    `model(tokens)` gives (batch, pos, d_vocab_out), like a transformer, and is trained and scored in the same way. Hook
    points: `hook_embed`, the input of the recurrence, and `hook_hidden`, the hidden states that are read out (edits do
    not reach later states).

    Source: template paper (arXiv:2310.09753), released code: one layer, ReLU in the RNN. Differs: the paper gives no
    sizes, 128 is our choice; the LSTM starts from zeros, in the released code from a random state.

    Args:
        cfg: Cell and sizes.
        seed: Decides the initial weights: embeddings N(0, 1), the recurrence uniform within 1/sqrt(width) with its
            biases, as in torch, the read-out uniform within 1/sqrt(width), its bias 0.
    """

    def __init__(self, cfg: RecurrentConfig, *, seed: int = 0):
        super().__init__()
        check_class("cfg", cfg, RecurrentConfig)
        self.cfg = cfg
        self.tokenizer = None
        generator = seeded_generator(seed)
        self.embed = nn.Parameter(draw_normal((cfg.d_vocab, cfg.d_embed), generator))
        with torch.random.fork_rng(devices=[]):  # torch draws weights that are replaced below
            if cfg.cell == "rnn":
                self.recurrence = nn.RNN(cfg.d_embed, cfg.width, nonlinearity="relu", batch_first=True)
            else:
                self.recurrence = nn.LSTM(cfg.d_embed, cfg.width, batch_first=True)
        self.read_out = Linear(cfg.width, cfg.d_vocab_out)
        # Draw the weights from the seed
        for weight in (*self.recurrence.parameters(), self.read_out.weight):
            weight.data = draw_uniform(weight.shape, cfg.width**-0.5, generator)
        self.hook_embed = HookPoint()  # (batch, pos, d_embed)
        self.hook_hidden = HookPoint()  # (batch, pos, width)
        self.setup()

    def forward(
        self, tokens: Int[Tensor, "batch pos"], attention_mask: None = None, *, depth: None = None
    ) -> Float[Tensor, "batch pos d_vocab_out"]:
        """The output at every position, from the tokens up to it.

        Raises:
            ValueError: strings longer than `n_ctx` or empty, tokens outside the vocabulary, padding, or a depth.
        """
        check_token_type(tokens)
        if tokens.ndim != 2 or not 1 <= tokens.shape[1] <= self.cfg.n_ctx:
            raise ValueError(
                f"tokens is {tuple(tokens.shape)}; this network reads (batch, pos), 1 to {self.cfg.n_ctx} positions."
            )
        for name, value in (("attention_mask", attention_mask), ("depth", depth)):
            if value is not None:
                raise ValueError(f"{name} was given; a recurrent network reads no padding and has one layer. Omit it.")
        check_ids(tokens, self.cfg.d_vocab, "tokens", "d_vocab")
        hidden, _ = self.recurrence(self.hook_embed(nn.functional.embedding(tokens, self.embed)))
        return self.read_out(self.hook_hidden(hidden))
