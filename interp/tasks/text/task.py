"""Language modelling: next-token or masked-token prediction on a corpus, with a byte-pair tokenizer."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.checks import check_choice
from hooks.typed import check_field_types
from interp.tasks.base import AttentionKind, Batch, Score, Split, Task, logits_at_targets
from interp.tasks.batch import check_logits, check_target_logits
from interp.tasks.relations import for_every_query, same_token
from interp.tasks.text.corpus import Corpus
from interp.tasks.text.sampling import TextBatch, masked_batch, next_token_batch, sample_pairs, with_next_sentence
from interp.tasks.text.streams import TokenizedCorpus, TokenStream, cached_tokenizer, tokenize
from interp.tasks.text.tokenizer import Role, TextVocab, check_vocab_size, convert_tokenizer

Objective = Literal["next_token", "masked"]
MASKED_SHARE = 0.15
"""Share of masked tokens of a sequence, excluding special tokens."""
VOCAB_SIZE = 2048
IGNORED_LABEL = -100
"""Label of a position that does not count in the loss."""


@dataclass(frozen=True, kw_only=True)
class Text(Task):
    """Next-token or masked-token prediction on windows of a corpus.

    `next_token`: every position but the last predicts the next token. A window begins anywhere in the concatenated
    documents of a split, each followed by `<|endoftext|>`. `masked`: `[CLS] A [SEP]` with A such a window; 15 % of
    its tokens, at least one, are chosen and become `[MASK]` (80 %), a random token (10 %) or stay (10 %). With
    `next_sentence`, `[CLS] A [SEP] B [SEP]`, where B continues A or, half of the time, comes from another document;
    `[NEXT]` or `[RANDOM]` is predicted at `[CLS]`.

    There is no padding: a window may contain several short documents. With `next_sentence`, A and B are each within
    one document, and documents too short for them are skipped.

    A document is in one split only. Accuracy is reported for each kind of target, pooled over targets.

    Source: next token, Radford et al. 2019; masked and next_sentence, Devlin et al. 2018 (arXiv:1810.04805) Section
    3.1. Differs: a fixed number of masked tokens per sequence; the token read-out predicts the next sentence, where
    BERT has a pooler and a classifier; A and B are windows of half the length instead of sentences.

    Raises:
        ValueError: an unknown corpus or objective, `next_sentence` without `masked`, an n_ctx or vocab_size that is
            too small, both vocab_size and tokenizer, an unknown kind of tokenizer, or one without a special token
            that the objective needs. On first use of the text: a split with too little text.

    >>> from interp.tasks import Corpus, Text
    >>> corpus = Corpus(documents={f"page {n}": f"This is page {n}. " * 9 for n in range(20)})
    >>> task = Text(corpus=corpus, n_ctx=8, vocab_size=300)
    >>> task.vocab.words(task.vocab.encode("This is"))
    ['This', '·is']
    """

    corpus: Corpus | str = "python"
    """A `Corpus`, or `python`: the sources of the standard library."""
    objective: Objective = "next_token"
    next_sentence: bool = False
    n_ctx: int = 128  # pyright: ignore[reportIncompatibleMethodOverride]
    """Tokens of a window, including special tokens."""
    vocab_size: int | None = None
    """Vocabulary size of the tokenizer trained on the training documents; default: 2048."""
    tokenizer: Any = None
    """Tokenizer to use instead: a `tokenizers.Tokenizer` or a fast tokenizer of transformers."""

    is_language = True
    text_options: ClassVar = {
        "corpus": (str, "python (the standard library's sources) or a folder of text files."),
        "pattern": (str, "Files to read from a corpus folder. Default: **/*.txt."),
    }
    command_line_defaults: ClassVar = {"d_model": 128, "n_heads": 4, "n_layers": 4}

    def __post_init__(self):
        check_field_types(self)
        # the corpus, the objective, and a tokenizer or the size of one to train
        if isinstance(self.corpus, str) and self.corpus != "python":
            raise ValueError(f"corpus is {self.corpus!r}; give 'python', or a Corpus: Corpus.from_folder(...).")
        if self.next_sentence and self.objective != "masked":
            raise ValueError(f"next_sentence needs objective 'masked'; the objective is {self.objective!r}.")
        if self.n_ctx < self._n_special + 2:
            raise ValueError(f"n_ctx is {self.n_ctx}; this objective needs at least {self._n_special + 2} tokens.")
        if self.tokenizer is not None and self.vocab_size is not None:
            raise ValueError(
                f"vocab_size is {self.vocab_size}, but the tokenizer has its own size; give one of the two."
            )
        # store them as objects
        if isinstance(self.corpus, str):
            object.__setattr__(self, "corpus", Corpus.python())
        if self.tokenizer is None:
            vocab_size = VOCAB_SIZE if self.vocab_size is None else self.vocab_size
            check_vocab_size(vocab_size)
            object.__setattr__(self, "vocab_size", vocab_size)
        else:
            tokenizer = convert_tokenizer(self.tokenizer)
            # raises if it lacks a special token
            for role in self._roles:
                tokenizer.token(role, needed_by=self._objective_text)
            object.__setattr__(self, "tokenizer", tokenizer)

    @property
    def _objective_text(self) -> str:
        """The objective in an error message."""
        suffix = " with next_sentence" if self.next_sentence else ""
        return f"objective {self.objective!r}{suffix}"

    @property
    def _roles(self) -> tuple[Role, ...]:
        """Special tokens that the objective needs."""
        if self.objective == "next_token":
            return ("end",)
        if self.next_sentence:
            return ("end", "cls", "sep", "mask", "next", "random")
        return ("end", "cls", "sep", "mask")

    @property
    def _n_special(self) -> int:
        """Number of special tokens around the text of a window."""
        if self.objective == "next_token":
            return 0
        return 3 if self.next_sentence else 2

    @property
    def _tokenized(self) -> TokenizedCorpus:
        """The token streams of the splits, read when the text is first used."""
        return tokenize(self.corpus, vocab_size=self.vocab_size, tokenizer=self.tokenizer)  # type: ignore[arg-type]

    @property
    def vocab(self) -> TextVocab:
        """The tokenizer's tokens."""
        return self._tokenized.tokenizer.vocab

    @property
    def attention(self) -> AttentionKind:
        """Causal for next-token prediction."""
        return "causal" if self.objective == "next_token" else "bidirectional"

    @property
    def n_masked(self) -> int:
        """Masked tokens per sequence; 0 for next-token prediction."""
        if self.objective == "next_token":
            return 0
        return max(1, round(MASKED_SHARE * (self.n_ctx - self._n_special)))

    @property
    def targets(self) -> tuple[str, ...]:
        """`token 1`, `token 2`, ...; or `masked 1`, ... in the order of the text, then `next sentence`."""
        if self.objective == "next_token":
            return tuple(f"token {index}" for index in range(1, self.n_ctx))
        masked = tuple(f"masked {index}" for index in range(1, self.n_masked + 1))
        return (*masked, "next sentence") if self.next_sentence else masked

    @property
    def outcomes(self) -> tuple[str, ...]:
        """`token`; or `masked` and, if used, `next_sentence`."""
        if self.objective == "next_token":
            return ("token",)
        return ("masked", "next_sentence") if self.next_sentence else ("masked",)

    @property
    def chances(self) -> tuple[float, ...]:
        """Accuracy of uniform guessing for each outcome: 1/2 for the next sentence."""
        return (self.chance, 0.5) if self.next_sentence else (self.chance,)

    @property
    def disjoint_splits(self) -> bool:
        """False: documents are disjoint, but the same window may occur in two of them."""
        return False

    @property
    def title(self) -> str:
        return "text"

    @property
    def description(self) -> str:
        """Corpus, objective and length."""
        targets = "the next token" if self.objective == "next_token" else "masked tokens"
        if self.next_sentence:
            targets += " and whether the second sentence is the next one"
        source = self.corpus.source["source"]  # type: ignore[union-attr]
        return f"text ({source}): predict {targets}; windows of {self.n_ctx} tokens"

    @property
    def default_family(self) -> str:
        """`gpt`; masked: `bert`; with next sentences: `bert_encoder`."""
        if self.objective == "next_token":
            return "gpt"
        return "bert_encoder" if self.next_sentence else "bert"

    @property
    def default_sizes(self) -> dict[str, Any]:
        """Four layers of four heads, width 128."""
        return {"d_model": 128, "n_heads": 4, "n_layers": 4}

    def config_fields(self, family: str) -> dict[str, Any]:
        """A tied embedding for `gpt`, and token types for two sentences."""
        fields: dict[str, Any] = {}
        if family == "gpt":
            fields["tied_embedding"] = True
        if self.next_sentence:
            fields["n_token_types"] = 2
        return fields

    @property
    def lengths(self) -> range:
        """Tokens of a window."""
        return range(self._n_special + 2, self.n_ctx + 1)

    def sample_length(self, n: int, length: int, *, generator: torch.Generator) -> TextBatch:
        """Sample windows of a length."""
        return self.sample(n, generator=generator, n_ctx=length)

    def recipe(self) -> dict[str, Any]:
        """400 steps of 2048 tokens, enough for the grammar of a small corpus."""
        return {"steps": 400, "tokens_per_step": 2048, "decay_share": 0.2, "n_eval": 128, "eval_every": 100}

    @classmethod
    def from_options(cls, *, pattern: str | None = None, **options: Any) -> "Text":
        """Build the task; `corpus` is a folder of the files of a pattern, or `python`.

        Raises:
            ValueError: a pattern without a folder.
        """
        if options.get("corpus", "python") != "python":
            options["corpus"] = Corpus.from_folder(options["corpus"], pattern or "**/*.txt")
        elif pattern is not None:
            raise ValueError(f"pattern is {pattern!r}, but no corpus folder is given whose files it would choose.")
        return cls(**options)

    def describe(self) -> dict:
        """Settings as plain values, for a manifest; corpus and tokenizer by source and fingerprint."""
        return {
            "task": self.task_name,
            "corpus": self.corpus.describe(),  # type: ignore[union-attr]  # a Corpus since __post_init__
            "objective": self.objective,
            "next_sentence": self.next_sentence,
            "n_ctx": self.n_ctx,
            "vocab_size": self.vocab_size,
            "tokenizer": None if self.tokenizer is None else self.tokenizer.fingerprint,
        }

    @classmethod
    def from_description(cls, values: dict) -> "Text":
        """Build the task from the output of `describe`.

        Raises:
            ValueError: changed text, or a tokenizer that is not in the cache of this machine.
        """
        values = {name: value for name, value in values.items() if name != "task"}
        values["corpus"] = Corpus.from_description(values["corpus"])
        if values.get("tokenizer") is not None:
            values["tokenizer"] = cached_tokenizer(values["tokenizer"])
        return cls(**values)

    def sample(
        self, n: int, *, generator: torch.Generator, split: Split = "train", n_ctx: int | None = None
    ) -> TextBatch:
        """Sample windows.

        Args:
            n: Number of windows.
            generator: The only source of randomness.
            split: `train`, `validation` or `test`, which have disjoint documents.
            n_ctx: Tokens of a window; default: the task's.

        Raises:
            ValueError: an unknown split, one with too little text, or too short an n_ctx.
        """
        check_choice("split", split, Split)
        if n_ctx not in (None, self.n_ctx):
            return replace(self, n_ctx=n_ctx).sample(n, generator=generator, split=split)
        stream = self._tokenized.split[split]
        tokenizer = self._tokenized.tokenizer
        length = self.n_ctx - self._n_special
        self._check_length(stream, length, split)
        # two windows, and whether the second follows the first
        if self.next_sentence:
            windows, follows = sample_pairs(stream, n, length, generator)
            batch = masked_batch(windows, tokenizer, count=self.n_masked, generator=generator)
            next_id, random_id = (tokenizer.token(role, self._objective_text) for role in ("next", "random"))
            return with_next_sentence(batch, torch.where(follows, next_id, random_id))
        # one window
        start = torch.randint(len(stream) - length + 1, (n,), generator=generator)
        window = stream.windows(start, length)
        if self.objective == "next_token":
            return next_token_batch(window)
        return masked_batch([window], tokenizer, count=self.n_masked, generator=generator)

    def _check_length(self, stream: TokenStream, length: int, split: str) -> None:
        """Check that a split has a window and, for next_sentence, two documents that are long enough."""
        if len(stream) < length:
            raise ValueError(
                f"split {split!r} of the text has {len(stream)} tokens; a window takes {length}. Give more text, or a "
                f"smaller n_ctx."
            )
        n_long = int((stream.lengths >= length).sum())
        if self.next_sentence and n_long < 2:
            raise ValueError(
                f"split {split!r} of the text has {n_long} documents of {length} tokens or more; next_sentence needs "
                f"two of them. Give more text, or a smaller n_ctx."
            )

    def loss(self, logits: Float[Tensor, "batch pos d_vocab_out"], batch: Batch) -> Float[Tensor, ""]:
        """Cross entropy in nats, mean over target tokens, plus that of the next sentence if used.

        Source: Devlin et al. 2018, Appendix A.2, for the sum.
        """
        check_logits(logits, batch)
        if self.objective == "next_token":
            # the last position has no target; slicing it off would copy all logits
            labels = F.pad(batch.labels, (0, 1), value=IGNORED_LABEL)
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED_LABEL)
        target_logits = logits_at_targets(logits, batch)
        loss = F.cross_entropy(target_logits.transpose(1, 2), batch.labels, reduction="none")
        if self.next_sentence:
            return loss[:, :-1].mean() + loss[:, -1].mean()
        return loss.mean()

    def score(self, target_logits: Float[Tensor, "batch target d_vocab_out"], batch: Batch) -> Score:
        """Correct answers and cross entropy, summed over target tokens; the next sentence is a separate outcome."""
        check_target_logits(target_logits, batch)
        loss = F.cross_entropy(target_logits.transpose(1, 2), batch.labels, reduction="none")
        right = (self.answers(target_logits) == batch.labels).to(loss.dtype)
        # the targets of each outcome; the next sentence is the last
        groups = [slice(None, -1), slice(-1, None)] if self.next_sentence else [slice(None)]
        return Score(
            right=torch.stack([right[:, group].sum(1) for group in groups], 1),
            loss=torch.stack([loss[:, group].sum(1) for group in groups], 1),
            total=torch.stack([torch.ones_like(loss[:, group]).sum(1) for group in groups], 1),
        )

    def probe_labels(self, batch: TextBatch) -> dict[str, Int[Tensor, "batch target"]]:
        """Probe labels: the `kind` of the correct token, and `previous_kind`, the kind of the token before it.

        Kinds are indices into `interp.tasks.text.tokenizer.TOKEN_KINDS`; see `token_kind`. For the next sentence both
        are `special`.
        """
        kinds = self.vocab.kinds.to(batch.tokens.device)
        previous_tokens = batch.unmasked_tokens.gather(1, self._positions_before(batch))
        return {"kind": kinds[batch.labels], "previous_kind": kinds[previous_tokens]}

    def control_types(self, batch: TextBatch) -> Int[Tensor, "batch target"]:
        """Input type for control tasks: the input token before each target."""
        return batch.tokens.gather(1, self._positions_before(batch))

    def _positions_before(self, batch: Batch) -> Int[Tensor, "batch target"]:
        """Position of the token before each target; for the next sentence that of `[CLS]`."""
        step = 0 if self.objective == "next_token" else 1
        return (batch.target_positions - step).clamp_min(0)

    def relations(self, batch: Batch) -> dict[str, Bool[Tensor, "batch query key"]]:
        """Attention relations: for each query, the keys that are related to it.

        `same_token`: the same token at another position, except special tokens and padding. `special`: special tokens.
        """
        tokens = batch.tokens
        special = self.vocab.special.to(tokens.device)[tokens]
        not_padding = torch.ones_like(special) if batch.attention_mask is None else batch.attention_mask
        return {
            "same_token": same_token(tokens) & (not_padding & ~special)[:, None],
            "special": for_every_query(special & not_padding),
        }
