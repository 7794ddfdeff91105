"""Text as a task: the next token, or masked tokens, of documents cut by a byte-pair tokenizer."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.tasks.base import AttentionKind, Batch, Score, Split, check_split, logits_at_targets
from interp.tasks.text.corpus import Corpus
from interp.tasks.text.streams import Stream, Streams, cut, kept_tokenizer
from interp.tasks.text.tokens import Role, check_vocab_size, take_tokenizer
from interp.tasks.text.vocab import TextVocab
from interp.tasks.text.windows import Marks, TextBatch, masked, next_tokens, pairs, starts, with_next_sentence

Objective = Literal["next_token", "masked"]
MASKED_SHARE = 0.15
"""Of the tokens of a masked sequence, special ones not counted."""
VOCAB_SIZE = 2048
NOTHING = -100
"""Label of a position that the loss leaves out."""


@dataclass(frozen=True, kw_only=True)
class Text:
    """Windows of a corpus; the tokens that come next, or those that were masked, are to be told.

    `next_token`: every position but the last predicts the token after it. A window begins anywhere in the documents of
    a split, joined with `<|endoftext|>` after each. `masked`: `[CLS] A [SEP]`, A such a window; in it 15 % of the
    tokens, at least one, are chosen and become `[MASK]` (80 %), another token (10 %) or stay (10 %). With
    `next_sentence`, `[CLS] A [SEP] B [SEP]`, where B goes on after A in the same document or, half of the time,
    comes from another; which, `[NEXT]` or `[RANDOM]`, is told at `[CLS]`.

    Every window is full: nothing is padded, and a document shorter than a window stands in one with its neighbours
    (with `next_sentence`, A and B lie in one document each, and documents too short for them are passed over).

    A document is in one split only. Accuracy is told of each kind of target, pooled over targets.

    Source: next token, Radford et al. 2019; masked and next_sentence, Devlin et al. 2018 (arXiv:1810.04805) Section
    3.1. Differs: a fixed number of masked tokens, so that all sequences have as many targets; the next sentence is
    told by the read-out of tokens, where BERT has a pooler and classifier of its own; A and B are windows, not
    sentences, of half the length each.

    Raises:
        ValueError: an unknown corpus or objective, `next_sentence` without `masked`, too short an n_ctx, both or too
            small a vocab_size, something that is no tokenizer, or one without a token that the objective needs. When
            the text is first used: a split with too little text.
    """

    corpus: Corpus | str = "python"
    """The documents: a `Corpus`, or `python`, the standard library's sources."""
    objective: Objective = "next_token"
    next_sentence: bool = False
    n_ctx: int = 128
    """Tokens of a window, special ones included."""
    vocab_size: int | None = None
    """Tokens of the tokenizer that is trained on the training documents; 2048 when left out."""
    tokenizer: Any = None
    """One to use instead: a `tokenizers.Tokenizer` or a fast one of transformers."""

    def __post_init__(self):
        if isinstance(self.corpus, str) and self.corpus != "python":
            raise ValueError(f"corpus is {self.corpus!r}; give 'python', or a Corpus: Corpus.from_folder(...).")
        if not isinstance(self.corpus, Corpus | str):
            raise ValueError(f"corpus is a {type(self.corpus).__name__}; give a Corpus: Corpus(documents=...).")
        if self.objective not in get_args(Objective):
            raise ValueError(f"objective is {self.objective!r}; choose one of {', '.join(get_args(Objective))}.")
        if self.next_sentence and self.objective != "masked":
            raise ValueError(f"next_sentence goes with objective 'masked'; the objective is {self.objective!r}.")
        if self.n_ctx < self._frame + 2:
            raise ValueError(f"n_ctx is {self.n_ctx}; this objective needs at least {self._frame + 2} tokens.")
        if self.tokenizer is not None and self.vocab_size is not None:
            raise ValueError(f"vocab_size is {self.vocab_size}, but a tokenizer is given, which has its own; drop one.")
        derived: dict[str, Any] = {"corpus": Corpus.python() if isinstance(self.corpus, str) else self.corpus}
        if self.tokenizer is None:
            derived["vocab_size"] = VOCAB_SIZE if self.vocab_size is None else self.vocab_size
            check_vocab_size(derived["vocab_size"])
        else:
            derived["tokenizer"] = take_tokenizer(self.tokenizer)
            for role in self._roles:
                derived["tokenizer"].token(role, self._name)
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def _name(self) -> str:
        return f"objective {self.objective!r}{' with next_sentence' if self.next_sentence else ''}"

    @property
    def _roles(self) -> tuple[Role, ...]:
        """Special tokens that the objective needs."""
        masked: tuple[Role, ...] = ("cls", "sep", "mask") if self.objective == "masked" else ()
        return ("end", *masked, *(("next", "random") if self.next_sentence else ()))

    @property
    def _frame(self) -> int:
        """Special tokens around the text of a window."""
        return 0 if self.objective == "next_token" else 3 if self.next_sentence else 2

    @property
    def _streams(self) -> Streams:
        return cut(self.corpus, vocab_size=self.vocab_size, tokenizer=self.tokenizer)  # type: ignore[arg-type]

    def _token(self, role: Role) -> int:
        return self._streams.tokens.token(role, self._name)

    @property
    def vocab(self) -> TextVocab:
        """The tokenizer's tokens."""
        return self._streams.tokens.vocab

    @property
    def d_vocab(self) -> int:
        """Number of tokens."""
        return len(self.vocab)

    @property
    def d_vocab_out(self) -> int:
        """Number of tokens: any may be right as far as the model knows."""
        return len(self.vocab)

    @property
    def attention(self) -> AttentionKind:
        """Causal where the next token is to be told."""
        return "causal" if self.objective == "next_token" else "bidirectional"

    @property
    def n_masked(self) -> int:
        """Masked tokens of a sequence; none where the next token is to be told."""
        return 0 if self.objective == "next_token" else max(1, round(MASKED_SHARE * (self.n_ctx - self._frame)))

    @property
    def targets(self) -> tuple[str, ...]:
        """`token 1` to the last, or `masked 1` and so on in the order of the text, then `next sentence`."""
        if self.objective == "next_token":
            return tuple(f"token {index}" for index in range(1, self.n_ctx))
        masked = tuple(f"masked {index}" for index in range(1, self.n_masked + 1))
        return (*masked, *(("next sentence",) if self.next_sentence else ()))

    @property
    def outcomes(self) -> tuple[str, ...]:
        """What accuracy is told of: `token`, or `masked`, and `next_sentence`."""
        if self.objective == "next_token":
            return ("token",)
        return ("masked", "next_sentence") if self.next_sentence else ("masked",)

    @property
    def chance(self) -> float:
        """Accuracy of guessing evenly among all tokens."""
        return 1 / self.d_vocab

    @property
    def chances(self) -> tuple[float, ...]:
        """The same for each outcome: of the next sentence there are two answers."""
        return (self.chance, *((0.5,) if self.next_sentence else ()))

    def describe(self) -> dict:
        """The settings as plain values, for a manifest; of corpus and tokenizer where they are and a fingerprint."""
        return {
            "task": "text",
            "corpus": self.corpus.describe(),  # type: ignore[union-attr]  # made a Corpus when the task was made
            "objective": self.objective,
            "next_sentence": self.next_sentence,
            "n_ctx": self.n_ctx,
            "vocab_size": self.vocab_size,
            "tokenizer": None if self.tokenizer is None else self.tokenizer.fingerprint,
        }

    @classmethod
    def from_description(cls, values: dict) -> "Text":
        """The task that `describe` described.

        Raises:
            ValueError: text that is no longer the same, or a tokenizer that was never used on this machine.
        """
        values = {name: value for name, value in values.items() if name != "task"}
        values["corpus"] = Corpus.from_description(values["corpus"])
        if values.get("tokenizer") is not None:
            values["tokenizer"] = kept_tokenizer(values["tokenizer"])
        return cls(**values)

    def sample(
        self, n: int, *, generator: torch.Generator, split: Split = "train", n_ctx: int | None = None
    ) -> TextBatch:
        """Windows of the text of a split.

        Args:
            n: How many.
            generator: Decides them; the only randomness.
            split: Whose documents.
            n_ctx: Tokens of a window; the task's when left out.

        Raises:
            ValueError: an unknown split, one with too little text, or too short an n_ctx.
        """
        check_split(split)
        if n_ctx not in (None, self.n_ctx):
            return replace(self, n_ctx=n_ctx).sample(n, generator=generator, split=split)
        stream, length = self._streams.split[split], self.n_ctx - self._frame
        self._check_length(stream, length, split)
        if not self.next_sentence:
            windows = stream.windows(starts(stream, n, length, generator), length)
            return self._masked([windows], generator) if self.objective == "masked" else next_tokens(windows)
        windows, follows = pairs(stream, n, length, generator)
        batch = self._masked(windows, generator)
        return with_next_sentence(batch, torch.where(follows, self._token("next"), self._token("random")))

    def _check_length(self, stream: Stream, length: int, split: str) -> None:
        """Refuse a split without a window, or without two documents to take sentences from."""
        if len(stream) < length:
            raise ValueError(
                f"split {split!r} of the text has {len(stream)} tokens; a window takes {length}. Give more text, or a "
                f"smaller n_ctx."
            )
        if self.next_sentence and (long := int((stream.lengths >= length).sum())) < 2:
            raise ValueError(
                f"split {split!r} of the text has {long} documents of {length} tokens or more; next_sentence needs two "
                f"of them. Give more text, or a smaller n_ctx."
            )

    def _masked(self, windows: list[Tensor], generator: torch.Generator) -> TextBatch:
        marks = Marks(*(self._token(role) for role in ("cls", "sep", "mask")), ordinary=self.vocab.ordinary)
        return masked(windows, marks, count=self.n_masked, generator=generator)

    def loss(self, logits: Float[Tensor, "batch pos d_vocab_out"], batch: Batch) -> Float[Tensor, ""]:
        """Cross entropy in nats, mean over the tokens to tell; with a next sentence its own is added to the others'.

        Source: Devlin et al. 2018, Appendix A.2, for the sum.
        """
        if self.objective == "next_token":  # the last position has nothing to tell; without it all would be copied
            labels = F.pad(batch.labels, (0, 1), value=NOTHING)
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NOTHING)
        at_targets = logits_at_targets(logits, batch)
        loss = F.cross_entropy(at_targets.transpose(1, 2), batch.labels, reduction="none")
        if self.next_sentence:
            return loss[:, :-1].mean() + loss[:, -1].mean()
        return loss.mean()

    def answers(self, at_targets: Float[Tensor, "batch target d_vocab_out"]) -> Int[Tensor, "batch target"]:
        """The most likely token."""
        return at_targets.argmax(-1)

    def score(self, at_targets: Float[Tensor, "batch target d_vocab_out"], batch: Batch) -> Score:
        """Right answers and cross entropy, summed over the tokens to tell; of the next sentence by themselves."""
        loss = F.cross_entropy(at_targets.transpose(1, 2), batch.labels, reduction="none")
        right = (self.answers(at_targets) == batch.labels).to(loss.dtype)
        parts = [slice(None, -1), slice(-1, None)] if self.next_sentence else [slice(None)]
        return Score(
            right=torch.stack([right[:, part].sum(1) for part in parts], 1),
            loss=torch.stack([loss[:, part].sum(1) for part in parts], 1),
            total=torch.stack([torch.ones_like(loss[:, part]).sum(1) for part in parts], 1),
        )

    def probe_labels(self, batch: TextBatch) -> dict[str, Int[Tensor, "batch target"]]:
        """What there is to read: the `kind` of the right token, and `previous_kind`, that of the one before it.

        Kinds are places in `interp.tasks.text.vocab.KINDS`; `kind_of` there says which is which. For the next sentence
        both are `special`.
        """
        kinds = self.vocab.kinds.to(batch.tokens.device)
        return {"kind": kinds[batch.labels], "previous_kind": kinds[batch.written.gather(1, self._before(batch))]}

    def control_types(self, batch: TextBatch) -> Int[Tensor, "batch target"]:
        """The input's token before each target, which for the next token is the one just read: a control's type."""
        return batch.tokens.gather(1, self._before(batch))

    def _before(self, batch: Batch) -> Int[Tensor, "batch target"]:
        """Where the token before the one to tell stands; for the next sentence `[CLS]` itself."""
        step = 0 if self.objective == "next_token" else 1
        return (batch.target_positions - step).clamp_min(0)

    def relations(self, batch: Batch) -> dict[str, Bool[Tensor, "batch query key"]]:
        """Which keys stand in which relation to each query.

        `same_token`: the same token elsewhere, special ones and padding apart. `special`: special tokens.
        """
        tokens = batch.tokens
        pos = tokens.shape[1]
        special = self.vocab.special.to(tokens.device)[tokens]
        real = torch.ones_like(special) if batch.attention_mask is None else batch.attention_mask
        elsewhere = ~torch.eye(pos, dtype=torch.bool, device=tokens.device)
        same = (tokens[:, :, None] == tokens[:, None, :]) & (real & ~special)[:, None] & elsewhere
        return {"same_token": same, "special": (special & real)[:, None].expand(-1, pos, -1)}
