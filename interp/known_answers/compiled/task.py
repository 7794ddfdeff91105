"""The task of a compiled program: its examples and answers, the keys its heads select, the values it computes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.checks import check_choice
from interp.known_answers.compiled.network import named_values
from interp.known_answers.compiled.program import Program, read_program
from interp.tasks.base import AttentionKind, Batch, Score, Split, Task, logits_at_targets
from interp.tasks.batch import likeliest
from interp.tasks.splits import check_few_inputs
from interp.tasks.vocab import Vocab, vocab_of

TOLERANCE = 0.05
"""A number is right if it is within this distance."""
VALIDATION = 4
"""One in this many of the examples with known relations is for validation, the others are for testing."""


@dataclass(frozen=True, kw_only=True)
class CompiledBatch(Batch):
    """Examples of a program."""

    example: Int[Tensor, " batch"]
    """Index of each among the program's examples."""


@dataclass(frozen=True, eq=False)
class Compiled(Task):
    """What a compiled program computes, at every position at which it has an answer.

    To load runs on it, register the class: `interp.tasks.register(Compiled)`.

    Targets are positions; short examples have fewer. Examples are drawn with replacement: for testing and validation
    from those whose selected keys are known, for training from the others.
    """

    program: Program = field(repr=False)
    path: str = ""
    """The pack it was read from; a program without one cannot be found again by a manifest."""

    @property
    def vocab(self) -> Vocab:
        """The tokens of the program."""
        return vocab_of(self.program.tokens)

    @property
    def targets(self) -> tuple[str, ...]:
        """Every position at which some example has an answer."""
        return tuple(f"position {position}" for position in self._positions.tolist())

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Answers at all positions together; in a categorical program also those that are not the most frequent one.

        A program that looks for something rare gives one answer nearly always, and is right without its heads.
        """
        if self.program.numerical:
            return ("answer",)
        return ("answer", f"answer but {self.answer_names[self._most_frequent]}")

    @property
    def n_ctx(self) -> int:
        """Longest sequence that the positions of the model allow."""
        return len(self.program.weights["W_pos"])

    @property
    def attention(self) -> AttentionKind:
        """As the program was compiled."""
        return "causal" if self.program.causal else "bidirectional"

    @property
    def disjoint_splits(self) -> bool:
        """Whether no two examples are equal."""
        return len(np.unique(self.program.examples, axis=0)) == len(self.program.examples)

    @property
    def d_vocab_out(self) -> int:
        """Number of answers, or 1 if the output is a number."""
        return 1 if self.program.output_values is None else len(self.program.output_values)

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The numbers that are answers, in increasing order; empty for a categorical program."""
        if not self.program.numerical:
            return ()
        return tuple(np.unique(self.program.targets[self.program.scored].round(4)).tolist())

    @property
    def answer_names(self) -> tuple[str, ...]:
        """The answers of the program."""
        return self.program.output_values or tuple(f"{value:g}" for value in self.values)

    @property
    def chance(self) -> float:
        """Accuracy of uniform guessing among the answers."""
        return 1 / len(self.answer_names)

    @property
    def title(self) -> str:
        return f"the compiled program {self.program.name}"

    @property
    def description(self) -> str:
        """What the program computes."""
        return f"{self.title}: {self.program.description}"

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> CompiledBatch:
        """Draw examples of a split, with replacement.

        Raises:
            ValueError: an unknown split, or one for which the program has no examples.
        """
        check_choice("split", split, Split)
        pool = self.pools[split]
        if n and not len(pool):
            n_related = self.program.relations.shape[1]
            raise ValueError(
                f"the program {self.program.name!r} has no examples for split {split!r}: of its {len(self._tokens)} "
                f"examples, those whose selected keys are known ({n_related}) are for testing, one in {VALIDATION} of "
                f"them for validation, and the others for training. Give it more examples."
            )
        return self.examples(pool[torch.randint(len(pool), (n,), generator=generator)])

    def every_input(self, split: Split = "test") -> CompiledBatch:
        """Every example of a split, equal ones once; `sample` draws examples with equal probabilities.

        Raises:
            ValueError: an unknown split, or more than 131,072 examples.
        """
        check_choice("split", split, Split)
        pool = self.pools[split]
        check_few_inputs(self, len(pool))
        _, first_rows = np.unique(self.program.examples[pool], axis=0, return_index=True)
        return self.examples(pool[torch.from_numpy(np.sort(first_rows))])

    def examples(self, rows: Int[Tensor, " batch"]) -> CompiledBatch:
        """Examples by index."""
        tokens = self._tokens[rows]
        present = self._scored[rows]
        return CompiledBatch(
            tokens=tokens,
            target_positions=self._positions.expand(len(rows), -1) * present,
            labels=self._labels[rows] * present,
            supervised=torch.ones(len(self._positions), dtype=torch.bool),
            attention_mask=tokens != self.program.tokens.index(self.program.pad),
            target_mask=present,
            example=rows,
        )

    @property
    def related_examples(self) -> CompiledBatch:
        """Every example whose selected keys are known."""
        return self.examples(torch.arange(self.program.relations.shape[1]))

    def loss(self, logits: Float[Tensor, "batch pos d_vocab_out"], batch: CompiledBatch) -> Float[Tensor, ""]:
        """Mean squared error of numbers, or cross entropy in nats of answers."""
        if not self.program.numerical:
            return super().loss(logits, batch)
        score = self.score(logits_at_targets(logits, batch), batch)
        return score.loss[:, 0].sum() / score.total[:, 0].sum()

    def score(self, target_logits: Float[Tensor, "batch target d_vocab_out"], batch: CompiledBatch) -> Score:
        """Right answers of an example: the most likely one, or a number within 0.05."""
        # Loss and correctness of every answer, and which answers each outcome counts
        if self.program.numerical:
            loss = (target_logits[..., 0] - self._numbers(target_logits)[batch.labels]).square()
            right = loss.sqrt() <= TOLERANCE
            outcomes = [batch.present]
        else:
            loss = F.cross_entropy(target_logits.transpose(1, 2), batch.labels, reduction="none")
            right = self.answers(target_logits) == batch.labels
            outcomes = [batch.present, batch.present & (batch.labels != self._most_frequent)]
        counted = torch.stack(outcomes, -1).to(loss)
        # Sums over the answers of an example
        return Score(
            right=(right[..., None] * counted).sum(1),
            loss=(loss[..., None] * counted).sum(1),
            total=counted.sum(1),
        )

    def answers(self, target_logits: Float[Tensor, "batch target d_vocab_out"]) -> Int[Tensor, "batch target"]:
        """The most likely answer, or the nearest number."""
        if not self.program.numerical:
            return likeliest(target_logits)
        return likeliest(-(target_logits - self._numbers(target_logits)).abs())

    def probe_labels(self, batch: CompiledBatch) -> dict[str, Int[Tensor, "batch target"]]:
        """The answer, as `label`, and every variable of the program that has several values at the targets."""
        labels = {"label": batch.labels}
        for name, values in self._named_values.items():
            labels[name] = values[batch.example].gather(1, batch.target_positions) * batch.present
        return labels

    def relations(self, batch: CompiledBatch) -> dict[str, Bool[Tensor, "batch query key"]]:
        """Keys to which each head attends by the program: `selector_1`, ... in the order of `program.selectors`.

        They are the selected keys, and the first token where a head counts them. Empty for training examples, of which
        they are not known.
        """
        if (batch.example >= self._related.shape[1]).any():
            return {}
        return {f"selector_{number}": keys[batch.example] for number, keys in enumerate(self._related, start=1)}

    def describe(self) -> dict[str, Any]:
        """Where the program was read from, and its name."""
        return {"task": self.task_name, "path": self.path, "program": self.program.name}

    @classmethod
    def from_description(cls, values: Mapping[str, Any]) -> "Compiled":
        """Read the pack again.

        Raises:
            ValueError: the program was not read from a pack, or another one is there now.
        """
        if not values["path"]:
            raise ValueError(f"the program {values['program']!r} was not read from a pack, so it cannot be read again.")
        program = read_program(values["path"])
        if program.name != values["program"]:
            raise ValueError(f"the pack {values['path']} has {program.name!r}; it was {values['program']!r}.")
        return cls(program, values["path"])

    @classmethod
    def from_options(cls, **options: Any) -> "Compiled":
        """Read the pack at `path`."""
        return cls(read_program(options["path"]), options["path"])

    def _numbers(self, like: Tensor) -> Float[Tensor, " value"]:
        return torch.tensor(self.values).to(like)

    @cached_property
    def _most_frequent(self) -> int:
        return int(np.bincount(self.program.targets[self.program.scored].astype(int)).argmax())

    @cached_property
    def _positions(self) -> Int[Tensor, " target"]:
        return torch.from_numpy(np.flatnonzero(self.program.scored.any(0)))

    @cached_property
    def _tokens(self) -> Int[Tensor, "example pos"]:
        return torch.from_numpy(self.program.examples)

    @cached_property
    def _scored(self) -> Bool[Tensor, "example target"]:
        return torch.from_numpy(self.program.scored)[:, self._positions]

    @cached_property
    def _labels(self) -> Int[Tensor, "example target"]:
        targets = torch.from_numpy(self.program.targets)[:, self._positions]
        if not self.program.numerical:
            return targets.long()
        return (targets[..., None].nan_to_num() - self._numbers(targets)).abs().argmin(-1)

    @cached_property
    def _related(self) -> Bool[Tensor, "selector some query key"]:
        related = torch.from_numpy(self.program.relations).clone()
        for keys, selector in zip(related, self.program.selectors, strict=True):
            keys[..., 0] |= selector.counts
        return related

    @cached_property
    def _named_values(self) -> dict[str, Int[Tensor, "example pos"]]:
        return named_values(self.program)

    @cached_property
    def pools(self) -> dict[Split, Int[Tensor, " example"]]:
        """Indices of the examples of each split."""
        n_related = self.program.relations.shape[1]
        related = torch.arange(n_related)
        return {
            "train": torch.arange(n_related, len(self._tokens)),
            "validation": related[VALIDATION - 1 :: VALIDATION],
            "test": related[related % VALIDATION != VALIDATION - 1],
        }
