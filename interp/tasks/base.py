"""Tasks: sampling, loss, scoring, probe labels and attention relations.

Axes: `batch` examples, `pos` positions, `target` predictions per example, `query` and `key` positions of attention.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Split = Literal["train", "validation", "test"]
AttentionKind = Literal["causal", "bidirectional"]
AnyBatch = TypeVar("AnyBatch", bound="Batch")  # not `Self`, which the shape checker cannot read


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Examples and their targets. Tasks add fields in subclasses."""

    tokens: Int[Tensor, "batch pos"]
    """Token ids."""
    target_positions: Int[Tensor, "batch target"]
    """Position at which each target is predicted."""
    labels: Int[Tensor, "batch target"]
    """Correct answer for each target."""
    supervised: Bool[Tensor, " target"]
    """Targets that count in the training loss."""
    position_ids: Int[Tensor, "batch pos"] | None = None
    """Position ids; None for 0, 1, 2, ..."""
    attention_mask: Bool[Tensor, "batch pos"] | None = None
    """True for real tokens, False for padding; None if there is no padding."""

    answer_fields: ClassVar[tuple[str, ...]] = ("labels",)
    """Fields that depend on what is correct, and not on the tokens alone."""

    def __len__(self) -> int:
        return len(self.tokens)

    def with_labels_of(self: AnyBatch, rows: Int[Tensor, " batch"]) -> AnyBatch:
        """The same inputs with the correct answers of other examples, for controls on shuffled labels."""
        return replace(self, **{name: getattr(self, name)[rows] for name in self.answer_fields})

    def select(self: AnyBatch, rows: Int[Tensor, " n"] | slice) -> AnyBatch:
        """Select examples by row."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "supervised"}
        return replace(self, **{name: value[rows] for name, value in values.items() if isinstance(value, Tensor)})

    def to(self: AnyBatch, device: torch.device | str) -> AnyBatch:
        """Move every tensor to a device."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)})

    def model_inputs(self) -> dict[str, Tensor]:
        """Keyword arguments of the model's forward pass, besides the tokens."""
        given = {"position_ids": self.position_ids, "attention_mask": self.attention_mask}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Score:
    """Per-example results for each outcome. Accuracy is the sum of `right` divided by the sum of `total`."""

    right: Float[Tensor, "batch outcome"]
    """Number of correct answers."""
    loss: Float[Tensor, "batch outcome"]
    """The task's loss (cross entropy in nats, or squared error), summed over answers."""
    total: Float[Tensor, "batch outcome"]
    """Number of scored answers; an example may have several, or none."""


class TaskDefaults(Protocol):
    """Vocabulary and answers of a task, as for tasks that predict a token at every target."""

    @property
    def vocab(self) -> "Vocab": ...
    @property
    def targets(self) -> tuple[str, ...]: ...

    @property
    def d_vocab(self) -> int:
        return len(self.vocab)

    @property
    def d_vocab_out(self) -> int:
        """Number of possible answers."""
        return self.d_vocab

    @property
    def outcomes(self) -> tuple[str, ...]:
        """What accuracy is reported for: each target."""
        return self.targets

    @property
    def chance(self) -> float:
        """Accuracy of uniform guessing."""
        return 1 / self.d_vocab_out

    def answers(self, at_targets: Float[Tensor, "batch target d_vocab_out"]) -> Int[Tensor, "batch target"]:
        """The most likely answer at each target."""
        return at_targets.argmax(-1)


@runtime_checkable
class Task(TaskDefaults, Protocol):
    """The interface that training and every analysis use.

    `targets` names the predictions of an example. `outcomes` names what accuracy is reported for: each variable of a
    chain, or a kind of position in a language, pooled. `chance` is the accuracy of uniform guessing. `answers` gives
    the predicted labels from the logits at the targets.
    """

    @property
    def n_ctx(self) -> int: ...
    @property
    def attention(self) -> AttentionKind: ...
    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> Batch: ...
    def loss(self, logits: Tensor, batch: Any) -> Float[Tensor, ""]: ...
    def score(self, at_targets: Float[Tensor, "batch target d_vocab_out"], batch: Any) -> Score: ...
    def probe_labels(self, batch: Any) -> dict[str, Int[Tensor, "batch target"]]: ...
    def control_types(self, batch: Any) -> Int[Tensor, "batch target"]: ...
    def relations(self, batch: Any) -> dict[str, Bool[Tensor, "batch query key"]]: ...
    def describe(self) -> dict: ...


class Vocab:
    """Token names and ids.

    Raises:
        ValueError: a duplicate name, or a name that is empty or contains white space.
    """

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        self.ids = {name: index for index, name in enumerate(self.names)}
        if len(self.ids) < len(self.names):
            double = next(name for name, count in Counter(self.names).items() if count > 1)
            raise ValueError(f"the token {double!r} appears twice in the vocabulary; rename one of them.")
        for name in self.names:
            if not name or any(letter.isspace() for letter in name):
                raise ValueError(f"the token name {name!r} is empty or contains white space; choose another.")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _token(self) -> re.Pattern[str]:
        longest_first = sorted(self.names, key=len, reverse=True)
        return re.compile("|".join(re.escape(name) for name in longest_first))

    def encode(self, text: str) -> list[int]:
        """Encode a text as token ids. White space between tokens is ignored.

        Raises:
            ValueError: an unknown token (which, where).
        """
        ids, at = [], 0
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            match = self._token.match(text, at)
            if match is None:
                word = text[at:].split()[0][:12]
                raise ValueError(
                    f"unknown token at character {at}: {word!r}. Known tokens: {' '.join(self.names[:40])}"
                )
            ids.append(self.ids[match.group()])
            at = match.end()
        return ids

    def decode(self, tokens: Int[Tensor, " pos"] | Sequence[int]) -> str:
        """Decode token ids; spaces are inserted only if the text could not be encoded again without them.

        Raises:
            ValueError: an id outside the vocabulary (which, where).
        """
        words = self.words(tokens)
        text = "".join(words)
        return text if self._token.findall(text) == words else " ".join(words)

    def words(self, tokens: Int[Tensor, " pos"] | Sequence[int]) -> list[str]:
        """The name of each token."""
        words = []
        for position, token in enumerate(tokens):
            if not 0 <= int(token) < len(self.names):
                raise ValueError(f"unknown token id {int(token)} at position {position}; ids go to {len(self) - 1}.")
            words.append(self.names[int(token)])
        return words


@lru_cache
def vocab_of(names: tuple[str, ...]) -> Vocab:
    """Return the vocabulary with these names, built once."""
    return Vocab(names)


def logits_at_targets(
    logits: Float[Tensor, "batch pos d_vocab_out"], batch: Batch
) -> Float[Tensor, "batch target d_vocab_out"]:
    """Logits at the target positions."""
    return logits.gather(1, batch.target_positions[..., None].expand(-1, -1, logits.shape[-1]))
