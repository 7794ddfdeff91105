"""Masked tokens of text: which of a few frequent tokens was there?

The text is the language reference that every Python has (`pydoc_data.topics`), in the tokens of the packaged encoder.
"""

from dataclasses import dataclass
from functools import lru_cache
from pydoc_data.topics import topics

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from hooks.adapters.huggingface.loading import find_tokenizer, quiet
from interp.tasks.base import Batch, Split, Task
from interp.tasks.relations import for_every_query, same_token
from interp.tasks.vocab import Vocab, vocab_of
from interp.training.packaged import packaged_folder

SOURCE = "minilm"
PARTS: dict[Split, tuple[int, ...]] = {"train": (0, 1, 2), "validation": (3,), "test": (4,)}
"""Which of every five paragraphs, in alphabetical order, a split has."""


@dataclass(frozen=True)
class Text:
    """Tokens of all paragraphs, as ids of the task."""

    names: tuple[str, ...]
    """The tokens of the text, then `[CLS]`, `[SEP]` and `[MASK]`."""
    paragraphs: tuple[Int[Tensor, " pos"], ...]
    frequent: tuple[int, ...]
    """Ids of the tokens, the most frequent first."""


@lru_cache(maxsize=1)
def _text() -> Text:
    tokenizer = find_tokenizer(packaged_folder(SOURCE))
    # the topics share paragraphs, each of which counts once
    texts = {" ".join(paragraph.split()) for topic in topics.values() for paragraph in topic.split("\n\n")}
    with quiet():  # of long paragraphs only windows are read
        rows = tokenizer(sorted(texts), add_special_tokens=False)["input_ids"]
    paragraphs = [torch.tensor(row) for row in rows if row]
    used, numbered = torch.cat(paragraphs).unique(return_inverse=True)
    names = tokenizer.convert_ids_to_tokens(used.tolist())
    frequent = numbered.bincount().argsort(descending=True, stable=True).tolist()
    marks = (tokenizer.cls_token, tokenizer.sep_token, tokenizer.mask_token)
    lengths = [len(paragraph) for paragraph in paragraphs]
    return Text((*names, *marks), tuple(numbered.split(lengths)), tuple(frequent))


@dataclass(frozen=True, kw_only=True)
class MaskedTokens(Task):
    """`[CLS] A [SEP]` with a window A of a paragraph, in which one of the most frequent tokens is masked.

    The token is drawn uniformly among `n_answers`, then one of its occurrences, then the window around it. A paragraph
    is in one split only.
    """

    n_answers: int = 8
    """Number of possible answers: the most frequent tokens."""
    n_ctx: int = 32  # pyright: ignore[reportIncompatibleMethodOverride]
    """Tokens of an example, including `[CLS]` and `[SEP]`."""
    targets = ("masked",)  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    disjoint_splits = False  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    """Some paragraphs differ in a few tokens only."""

    @property
    def vocab(self) -> Vocab:
        return vocab_of(_text().names)

    @property
    def answer_names(self) -> tuple[str, ...]:
        """These tokens, the most frequent first."""
        return tuple(_text().names[token] for token in _text().frequent[: self.n_answers])

    @property
    def d_vocab_out(self) -> int:
        return self.n_answers

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> Batch:
        windows, places, labels = _occurrences(self.n_answers, self.n_ctx, split)
        length = self.n_ctx - 2
        # a token, then one of the places where it is, then where the window around it begins
        answers = torch.randint(self.n_answers, (n,), generator=generator)
        counts = labels.bincount(minlength=self.n_answers)
        firsts = counts.cumsum(0) - counts
        draws = torch.rand(n, 2, generator=generator, dtype=torch.float64)
        rows = labels.argsort(stable=True)[firsts[answers] + (draws[:, 0] * counts[answers]).long()]
        starts, ends = windows[rows].T
        earliest = (places[rows] - length + 1).maximum(starts)
        latest = places[rows].minimum(ends - length)
        begin = earliest + (draws[:, 1] * (latest - earliest + 1)).long()
        stream = torch.cat(_text().paragraphs)
        text = stream[begin[:, None] + torch.arange(length)]
        cls, sep, mask = (torch.full((n, 1), len(self.vocab) - back) for back in (3, 2, 1))
        positions = (1 + places[rows] - begin)[:, None]
        tokens = torch.cat([cls, text, sep], 1).scatter(1, positions, mask)
        return Batch(
            tokens=tokens,
            target_positions=positions,
            labels=answers[:, None],
            supervised=torch.ones(1, dtype=torch.bool),
        )

    def relations(self, batch: Batch) -> dict[str, Bool[Tensor, "batch query key"]]:
        """`same_token`: the same token at another position, except marks. `special`: the marks of the ends."""
        ordinary = batch.tokens < len(self.vocab) - 3
        marks = (batch.tokens == len(self.vocab) - 3) | (batch.tokens == len(self.vocab) - 2)
        return {"same_token": same_token(batch.tokens) & ordinary[:, None], "special": for_every_query(marks)}


@lru_cache(maxsize=8)
def _occurrences(
    n_answers: int, n_ctx: int, split: Split
) -> tuple[Int[Tensor, "place 2"], Int[Tensor, " place"], Int[Tensor, " place"]]:
    """Start and end of the paragraph, place in the stream, and number of the token, for each occurrence in a split."""
    text = _text()
    number = torch.full((len(text.names),), -1)
    number[list(text.frequent[:n_answers])] = torch.arange(n_answers)
    windows, places, labels = [], [], []
    start = 0
    for index, paragraph in enumerate(text.paragraphs):
        end = start + len(paragraph)
        if index % 5 in PARTS[split] and len(paragraph) >= n_ctx - 2:
            numbers = number[paragraph]
            positions = (numbers >= 0).nonzero()[:, 0]
            places.append(start + positions)
            labels.append(numbers[positions])
            windows.append(torch.tensor([start, end]).expand(len(positions), 2))
        start = end
    return torch.cat(windows), torch.cat(places), torch.cat(labels)
