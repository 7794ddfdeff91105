"""Pairs of prompts that the user brings: clean ones and corrupted ones, with the answer to each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.checks import check_choice, check_number, is_array, shown
from hooks.typed import check_field_types
from interp.tasks.base import AttentionKind, Batch, Score, Split, Task
from interp.tasks.batch import check_target_logits
from interp.tasks.text.tokenizer import convert_tokenizer
from interp.tasks.vocab import Vocab, vocab_of

Metric = Callable[[Float[Tensor, "batch d_vocab_out"], "PromptBatch"], Float[Tensor, " batch"]]
"""A number for each prompt, from the logits at its last token; larger is closer to the answer to the clean prompt."""
PADDING = 0
"""Token id behind the shorter prompts, which nothing reads."""


@dataclass(frozen=True, kw_only=True)
class PromptBatch(Batch):
    """Prompts, with the answer to the other prompt of their pair."""

    other_labels: Int[Tensor, "batch target"]
    """The answer to the other prompt of the pair."""
    pairs: Int[Tensor, " batch"]
    """Number of the pair."""
    is_clean: Bool[Tensor, " batch"]
    """Whether it is the clean prompt of its pair."""

    answer_fields: ClassVar[tuple[str, ...]] = ("labels", "other_labels")


@dataclass(frozen=True)
class Prompts(Task):
    """Pairs of prompts: of each a clean one and a corrupted one, and the answer to either, predicted at the last token.

    Analyses run on the clean prompts. Their counterparts are the corrupted ones: `interp.patch` puts activations of
    these into the clean prompts, and `method="counterpart"` is what a part writes for them; `swapped` is the other
    direction. Means are over all prompts. With `n="all"` every pair counts once, and numbers are exact: they are about
    these prompts. Any other number draws the pairs in turn; intervals are then over pairs, for prompts that stand for
    others. A single pair has no interval.

    An answer is right if its logit is the largest among all answers of these pairs. The loss is the logit of the answer
    to the other prompt minus that of the right one, or minus the metric.

    Raises:
        ValueError: no pairs, other numbers of prompts and answers, an empty prompt, texts without a tokenizer, token
            ids without d_vocab or outside of it, an answer that is not one token, or two equal answers in a pair. When
            prompts are scored: a metric that fails, or gives no finite number for each prompt.

    >>> from interp.tasks import Prompts
    >>> task = Prompts([[1, 2, 3]], [[4, 2, 3]], [(1, 4)], d_vocab=5)
    >>> batch = task.every_input()
    >>> batch.tokens.tolist(), batch.labels.tolist(), batch.target_positions.tolist()
    ([[1, 2, 3]], [[1]], [[2]])
    """

    clean: Any
    """The clean prompts: texts, or token ids of each, also as a tensor (pair, pos)."""
    corrupted: Any
    """The corrupted prompt of each pair. Prompts may have different lengths."""
    answer_pairs: Any
    """For each pair the answer to the clean and that to the corrupted prompt: texts of one token, or token ids."""
    tokenizer: Any = None
    """For texts: a `tokenizers.Tokenizer` or a fast tokenizer of transformers. It adds no token: write `<|endoftext|>`
    at the start of a prompt, if the model expects it."""
    d_vocab: int | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    """Number of tokens; default: that of the tokenizer."""
    metric: Metric | None = None
    """In place of the difference of the two answers' logits."""

    counterparts_are_fixed = True

    def __post_init__(self):
        check_field_types(self)
        tokenizer = None if self.tokenizer is None else convert_tokenizer(self.tokenizer)
        object.__setattr__(self, "tokenizer", tokenizer)
        if self.d_vocab is None:
            if tokenizer is None:
                raise ValueError("d_vocab is None; give the number of tokens of the model, or a tokenizer for texts.")
            object.__setattr__(self, "d_vocab", len(tokenizer.vocab))
        check_number("d_vocab", self.d_vocab, integer=True, low=2)
        # Prompts and answers as tuples of token ids
        for name in ("clean", "corrupted"):
            prompts = [self._ids(prompt, name) for prompt in _rows(getattr(self, name), name)]
            object.__setattr__(self, name, tuple(prompts))
        pairs = [
            tuple(map(self._answer, _rows(pair, "answer_pairs"))) for pair in _rows(self.answer_pairs, "answer_pairs")
        ]
        object.__setattr__(self, "answer_pairs", tuple(pairs))
        sizes = {name: len(getattr(self, name)) for name in ("clean", "corrupted", "answer_pairs")}
        if len(set(sizes.values())) > 1 or not sizes["clean"]:
            sizes_in_words = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            raise ValueError(
                f"{sizes_in_words}; give a clean prompt, a corrupted one and two answers for each of some pairs."
            )
        for index, pair in enumerate(pairs):
            if len(pair) != 2 or pair[0] == pair[1]:
                raise ValueError(
                    f"answer_pairs[{index}] is {shown(pair)}; give two different answers, to the clean and to the "
                    f"corrupted prompt."
                )

    def _ids(self, prompt: Any, name: str) -> tuple[int, ...]:
        """The token ids of a prompt."""
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise ValueError(f"{name} has the text {shown(prompt)}; give tokenizer as well, or token ids.")
            prompt = self.tokenizer.vocab.encode(prompt)
        ids = [_id(token, name) for token in _rows(prompt, name)]
        if not ids:
            raise ValueError(f"{name} has a prompt without tokens.")
        outside = [token for token in ids if not 0 <= token < self._size]
        if outside:
            raise ValueError(
                f"{name} has the token id {outside[0]}; with d_vocab {self._size} they are 0 to {self._size - 1}."
            )
        return tuple(ids)

    def _answer(self, answer: Any) -> int:
        """The token id of an answer."""
        token, *further_tokens = self._ids(answer if isinstance(answer, str) else [answer], "answer_pairs")
        if further_tokens:
            words = self.tokenizer.vocab.words([token, *further_tokens])
            raise ValueError(
                f"answer_pairs has {shown(answer)}, which is {len(words)} tokens: {words}; give one token."
            )
        return token

    @property
    def _size(self) -> int:
        assert self.d_vocab is not None  # since __post_init__
        return self.d_vocab

    @property
    def vocab(self) -> Vocab:
        """The tokenizer's tokens, or their ids."""
        if self.tokenizer is not None:
            return self.tokenizer.vocab
        return vocab_of(tuple(map(str, range(self._size))))

    @property
    def targets(self) -> tuple[str, ...]:
        return ("answer",)

    @property
    def n_ctx(self) -> int:
        """Tokens of the longest prompt."""
        return max(map(len, (*self.clean, *self.corrupted)))

    @property
    def attention(self) -> AttentionKind:
        """Causal: the answer is the next token."""
        return "causal"

    @property
    def disjoint_splits(self) -> bool:
        """False: every split has all pairs."""
        return False

    @property
    def chance(self) -> float:
        """Accuracy of guessing among all answers of these pairs."""
        return 1 / len(self._candidates)

    @cached_property
    def _candidates(self) -> Int[Tensor, " candidate"]:
        """Every answer of any pair."""
        return torch.tensor(self.answer_pairs).unique()

    def swapped(self) -> "Prompts":
        """The corrupted prompts as clean ones: what is patched then comes from the clean ones.

        >>> Prompts([[1, 2]], [[3, 2]], [(1, 3)], d_vocab=5).swapped().clean
        ((3, 2),)
        """
        pairs = tuple(pair[::-1] for pair in self.answer_pairs)
        return Prompts(self.corrupted, self.clean, pairs, self.tokenizer, self.d_vocab, self.metric)

    # Batches

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> PromptBatch:
        """The clean prompts in turn, in a random order; of the validation split, from which means are taken, all.

        Raises:
            ValueError: a negative n, or an unknown split.
        """
        check_number("n", n, integer=True, low=0)
        check_choice("split", split, Split)
        n_pairs = len(self.clean)
        n_prompts = 2 * n_pairs if split == "validation" else n_pairs
        order = torch.randperm(n_prompts, generator=generator).repeat(-(-n // n_prompts))[:n]
        return self._batch(order % n_pairs, order < n_pairs)

    def every_input(self, split: Split = "test") -> PromptBatch:
        """The clean prompts, in their order.

        Raises:
            ValueError: an unknown split.
        """
        check_choice("split", split, Split)
        n_pairs = len(self.clean)
        return self._batch(torch.arange(n_pairs), torch.ones(n_pairs, dtype=torch.bool))

    def counterparts(self, batch: PromptBatch, *, generator: torch.Generator, split: Split = "test") -> PromptBatch:
        """The other prompt of each pair."""
        return self._batch(batch.pairs.cpu(), ~batch.is_clean.cpu())

    def _batch(self, pairs: Int[Tensor, " batch"], is_clean: Bool[Tensor, " batch"]) -> PromptBatch:
        """One prompt of each of some pairs."""
        prompts, answers = [], []
        for pair, clean in zip(pairs.tolist(), is_clean.tolist(), strict=True):
            prompts.append(self.clean[pair] if clean else self.corrupted[pair])
            answers.append(self.answer_pairs[pair] if clean else self.answer_pairs[pair][::-1])
        lengths = torch.tensor([len(prompt) for prompt in prompts], dtype=torch.long)
        n_ctx = self.n_ctx
        rows = [[*prompt, *[PADDING] * (n_ctx - len(prompt))] for prompt in prompts]
        of_both = torch.tensor(answers, dtype=torch.long).view(-1, 2)
        is_real = torch.arange(n_ctx) < lengths[:, None]
        all_equal = len({len(prompt) for prompt in (*self.clean, *self.corrupted)}) == 1
        return PromptBatch(
            tokens=torch.tensor(rows, dtype=torch.long).view(-1, n_ctx),
            target_positions=lengths[:, None] - 1,
            labels=of_both[:, :1],
            other_labels=of_both[:, 1:],
            supervised=torch.ones(1, dtype=torch.bool),
            attention_mask=None if all_equal else is_real,
            pairs=pairs,
            is_clean=is_clean,
        )

    # Scores

    def answers(self, target_logits: Float[Tensor, "batch target d_vocab_out"]) -> Int[Tensor, "batch target"]:
        """The likeliest of the answers of these pairs."""
        candidates = self._candidates.to(target_logits.device)
        return candidates[target_logits[..., candidates].argmax(-1)]

    def score(self, target_logits: Float[Tensor, "batch target d_vocab_out"], batch: PromptBatch) -> Score:
        """Right answers; the loss is the logit of the answer to the other prompt minus that of the right one, or minus
        the metric."""
        check_target_logits(target_logits, batch)
        right = (self.answers(target_logits) == batch.labels).to(target_logits.dtype)
        contrast = self.contrast(target_logits, batch.other_labels, batch)
        return Score(right=right, loss=contrast if self.metric is None else -contrast, total=torch.ones_like(right))

    @property
    def contrast_name(self) -> str:
        if self.metric is None:
            return super().contrast_name
        return f"the metric {_name_of(self.metric)}"

    def contrast(
        self,
        target_logits: Float[Tensor, "batch target d_vocab_out"],
        other_labels: Int[Tensor, "batch target"],
        batch: PromptBatch,
    ) -> Float[Tensor, "batch target"]:
        """The logit of another answer minus that of the right one, or the metric."""
        if self.metric is None:
            return super().contrast(target_logits, other_labels, batch)
        return _checked_values(self.metric, target_logits[:, 0], batch)[:, None]

    # Descriptions

    def describe(self) -> dict[str, Any]:
        """Prompts and answers as token ids; the tokenizer and the metric by name."""
        values = {name: getattr(self, name) for name in ("clean", "corrupted", "answer_pairs", "d_vocab")}
        tokenizer = None if self.tokenizer is None else self.tokenizer.fingerprint
        metric = None if self.metric is None else _name_of(self.metric)
        return {"task": self.task_name, **values, "tokenizer": tokenizer, "metric": metric}

    @property
    def description(self) -> str:
        """Number of pairs, and the first one."""
        first = self.text(self.every_input().tokens[0, : len(self.clean[0])])
        return f"{len(self.clean)} pairs of prompts, such as {shown(first)}"


def _name_of(metric: Metric) -> str:
    return getattr(metric, "__name__", type(metric).__name__)


def _rows(values: Any, name: str) -> list[Any]:
    """The elements of a collection that has an order, or of a tensor or array."""
    if is_array(values) and values.ndim:
        return values.tolist()
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ValueError(f"{name} has {shown(values)}; give a list of them, or a tensor of token ids.")
    return list(values)


def _id(token: Any, name: str) -> int:
    check_number(f"a token id of {name}", token, integer=True)
    return int(token)


def _checked_values(
    metric: Metric, logits: Float[Tensor, "batch d_vocab_out"], batch: PromptBatch
) -> Float[Tensor, " batch"]:
    """The values of a metric of the user's.

    Raises:
        ValueError: the metric fails, or gives no finite number for each prompt.
    """
    try:
        values = metric(logits, batch)
    except Exception as error:
        raise ValueError(f"metric fails with {type(error).__name__}: {error}") from error
    if not isinstance(values, Tensor) or tuple(values.shape) != (len(batch),):
        result = f"a tensor of shape {tuple(values.shape)}" if isinstance(values, Tensor) else shown(values)
        raise ValueError(f"metric gives {result} for {len(batch)} prompts; it must give one number for each, (batch,).")
    if not values.isfinite().all():
        raise ValueError(
            f"metric gives {float(values[~values.isfinite()][0])} for a prompt; it must be a finite number."
        )
    return values.to(logits)
