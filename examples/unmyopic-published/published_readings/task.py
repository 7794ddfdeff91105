"""The task of a published model: given inputs with right answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.tasks.base import AttentionKind, Batch, Score, Split, Task
from interp.tasks.vocab import Vocab, vocab_of

TokenRelation = Callable[[Int[Tensor, "batch pos"]], Bool[Tensor, "batch query key"]]
"""Related keys of each query, from the tokens alone."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Published(Task):
    """The inputs of a pack. Examples are drawn from them with replacement: half of them for training, the others for
    validation and testing."""

    name: str
    path: Path
    """The JSON file of the pack."""
    about: str
    """What the model does, in a sentence."""
    inputs: Int[Tensor, "example pos"] = field(repr=False)
    """Token ids."""
    labels: Int[Tensor, "example answer"] = field(repr=False)
    """Right answers; -1 where there is none."""
    positions: Int[Tensor, " answer"] = field(repr=False)
    """Where answers are read."""
    d_vocab: int  # pyright: ignore[reportIncompatibleMethodOverride]
    d_vocab_out: int  # pyright: ignore[reportIncompatibleMethodOverride]
    attention: AttentionKind  # pyright: ignore[reportIncompatibleMethodOverride]
    padding: int | None
    """The token that is masked as a key."""
    named: Mapping[str, TokenRelation] = field(default_factory=dict, repr=False)
    """Relations by name."""

    @property
    def vocab(self) -> Vocab:
        """Token ids as names."""
        return vocab_of(tuple(map(str, range(self.d_vocab))))

    @property
    def targets(self) -> tuple[str, ...]:
        """Every position at which an answer is read."""
        return tuple(f"position {at}" for at in self.positions.tolist())

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Answers at all positions together."""
        return ("answer",)

    @property
    def n_ctx(self) -> int:
        return self.inputs.shape[1]

    @property
    def disjoint_splits(self) -> bool:
        """Whether no two examples are equal."""
        return len(self.inputs.unique(dim=0)) == len(self.inputs)

    @property
    def title(self) -> str:
        return f"the task of {self.name}"

    @property
    def description(self) -> str:
        """What the model does."""
        return self.about

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> Batch:
        """Draw examples of a split, with replacement."""
        pool = self.pools[split]
        return self.examples(pool[torch.randint(len(pool), (n,), generator=generator)])

    def examples(self, rows: Int[Tensor, " batch"]) -> Batch:
        """Examples by index."""
        return self.batch(self.inputs[rows], self.labels[rows])

    def batch(self, tokens: Int[Tensor, "batch pos"], targets: Int[Tensor, "batch answer"] | None = None) -> Batch:
        """These inputs; without right answers they are 0."""
        if targets is None:
            targets = torch.zeros(len(tokens), len(self.positions), dtype=torch.long)
        present = targets >= 0
        return Batch(
            tokens=tokens,
            target_positions=self.positions.expand(len(tokens), -1) * present,
            labels=targets.clamp_min(0),
            supervised=torch.ones(len(self.positions), dtype=torch.bool),
            attention_mask=None if self.padding is None else tokens != self.padding,
            target_mask=present,
        )

    def score(self, target_logits: Float[Tensor, "batch target d_vocab_out"], batch: Batch) -> Score:
        """Right answers of an example, all positions together."""
        loss = F.cross_entropy(target_logits.transpose(1, 2), batch.labels, reduction="none")
        right, present = self.answers(target_logits) == batch.labels, batch.present.to(loss)
        right, loss, total = ((one * present).sum(1, keepdim=True) for one in (right.to(loss), loss, present))
        return Score(right=right, loss=loss, total=total)

    def relations(self, batch: Batch) -> dict[str, Bool[Tensor, "batch query key"]]:
        """The relations that readings name, between tokens that are not padding."""
        keys = batch.tokens != (-1 if self.padding is None else self.padding)
        return {name: relation(batch.tokens) & keys[:, None] & keys[..., None] for name, relation in self.named.items()}

    def describe(self) -> dict[str, Any]:
        """Where the pack is; its files have the examples."""
        return {"task": self.task_name, "path": str(self.path)}

    @classmethod
    def from_description(cls, values: Mapping[str, Any]) -> "Published":
        """Read the pack again."""
        from published_readings.packs import read_pack

        return read_pack(Path(values["path"])).task

    @cached_property
    def pools(self) -> dict[Split, Int[Tensor, " example"]]:
        """Indices of the examples of each split, in an order that does not depend on theirs."""
        every = torch.randperm(len(self.inputs), generator=torch.Generator().manual_seed(0))
        train, validation, test = every.chunk(2)[0], *every.chunk(2)[1].chunk(2)
        return {"train": train, "validation": validation, "test": test}
