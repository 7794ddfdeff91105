"""What a task is: data from a seed, what to predict and where, what there is to read, which keys are related.

Axes: `batch` examples, `pos` positions, `target` things to predict, `query` and `key` positions of an attention map.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar, get_args, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

Split = Literal["train", "validation", "test"]
AttentionKind = Literal["causal", "bidirectional"]
AnyBatch = TypeVar("AnyBatch", bound="Batch")  # not `Self`, which the shape checker cannot read


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Examples with what to predict in them. Tasks add their own structure in subclasses."""

    tokens: Int[Tensor, "batch pos"]
    """Token ids."""
    target_positions: Int[Tensor, "batch target"]
    """Where each target is read."""
    labels: Int[Tensor, "batch target"]
    """What is right there."""
    supervised: Bool[Tensor, " target"]
    """Which targets the loss counts."""
    position_ids: Int[Tensor, "batch pos"] | None = None
    """Where each token stands, when not 0, 1, 2 ..."""
    attention_mask: Bool[Tensor, "batch pos"] | None = None
    """True for real tokens, when some are padding."""

    def __len__(self) -> int:
        return len(self.tokens)

    def select(self: AnyBatch, rows: Int[Tensor, " n"] | slice) -> AnyBatch:
        """The examples in these rows."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "supervised"}
        return replace(self, **{name: value[rows] for name, value in values.items() if isinstance(value, Tensor)})

    def to(self: AnyBatch, device: torch.device | str) -> AnyBatch:
        """The same examples on a device."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)})

    def model_inputs(self) -> dict[str, Tensor]:
        """Keyword arguments for the model, beside the tokens."""
        given = {"position_ids": self.position_ids, "attention_mask": self.attention_mask}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Score:
    """How a model did on each example, per outcome. Accuracy is the sum of `right` over the sum of `asked`."""

    right: Float[Tensor, "batch outcome"]
    """Answers that were right."""
    loss: Float[Tensor, "batch outcome"]
    """The task's loss (cross entropy in nats, or squared error), summed over the answers."""
    total: Float[Tensor, "batch outcome"]
    """Answers that were asked for; examples may have several, or none."""


@runtime_checkable
class Task(Protocol):
    """The surface that training and every analysis rely on.

    `targets` names the places where something is predicted, `outcomes` what accuracy is told of: for a chain each
    variable, for a language a kind of position, pooled. `chance` is the accuracy of guessing evenly. `answers` are the
    labels that a model gives, read off its logits where targets are.
    """

    @property
    def vocab(self) -> "Vocab": ...
    @property
    def d_vocab(self) -> int: ...
    @property
    def d_vocab_out(self) -> int: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def attention(self) -> AttentionKind: ...
    @property
    def targets(self) -> tuple[str, ...]: ...
    @property
    def outcomes(self) -> tuple[str, ...]: ...
    @property
    def chance(self) -> float: ...
    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> Batch: ...
    def loss(self, logits: Tensor, batch: Any) -> Float[Tensor, ""]: ...
    def answers(self, at_targets: Float[Tensor, "batch target d_vocab_out"]) -> Int[Tensor, "batch target"]: ...
    def score(self, at_targets: Float[Tensor, "batch target d_vocab_out"], batch: Any) -> Score: ...
    def probe_labels(self, batch: Any) -> dict[str, Int[Tensor, "batch target"]]: ...
    def control_types(self, batch: Any) -> Int[Tensor, "batch target"]: ...
    def relations(self, batch: Any) -> dict[str, Bool[Tensor, "batch query key"]]: ...
    def describe(self) -> dict: ...


class Vocab:
    """Tokens by name, and back.

    Raises:
        ValueError: two tokens with one name, or a name that is empty or has white space in it.
    """

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        self.ids = {name: index for index, name in enumerate(self.names)}
        if len(self.ids) < len(self.names):
            double = next(name for name, count in Counter(self.names).items() if count > 1)
            raise ValueError(f"the token {double!r} appears twice in the vocabulary; rename one of the two.")
        for name in self.names:
            if not name or any(letter.isspace() for letter in name):
                raise ValueError(f"the token name {name!r} is empty or has white space in it; no text could hold it.")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _token(self) -> re.Pattern[str]:
        longest_first = sorted(self.names, key=len, reverse=True)
        return re.compile("|".join(re.escape(name) for name in longest_first))

    def encode(self, text: str) -> list[int]:
        """Token ids of a text. White space between tokens is ignored.

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
        """The text of token ids; with spaces only where it could not be read back without.

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


def check_split(split: str) -> None:
    """Refuse a split that does not exist.

    Raises:
        ValueError: with the ones that do.
    """
    if split not in get_args(Split):
        raise ValueError(f"split is {split!r}; choose one of {', '.join(get_args(Split))}.")


def logits_at_targets(
    logits: Float[Tensor, "batch pos d_vocab_out"], batch: Batch
) -> Float[Tensor, "batch target d_vocab_out"]:
    """The logits where targets are read."""
    return logits.gather(1, batch.target_positions[..., None].expand(-1, -1, logits.shape[-1]))


def supervised_cross_entropy(logits: Float[Tensor, "batch pos d_vocab_out"], batch: Batch) -> Float[Tensor, ""]:
    """Cross entropy in nats, mean over supervised targets and examples."""
    chosen = logits_at_targets(logits, batch)[:, batch.supervised]
    return F.cross_entropy(chosen.flatten(0, 1), batch.labels[:, batch.supervised].flatten())
