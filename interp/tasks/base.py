"""Tasks: sampling, loss, scoring, probe labels and attention relations.

Axes: `batch` examples, `pos` positions, `target` predictions per example, `query` and `key` positions of attention.
"""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.tasks.batch import Batch, Score, logits_at_targets
from interp.tasks.fields import default, plain, tuples
from interp.tasks.vocab import Vocab

if TYPE_CHECKING:
    from interp.view.page import Section

Split = Literal["train", "validation", "test"]
AttentionKind = Literal["causal", "bidirectional"]
AnyTask = TypeVar("AnyTask", bound="Task")
IS_A_TASK = "give an object whose class derives from interp.tasks.Task."


class Task:
    """Base class of tasks.

    A subclass, usually a frozen dataclass, defines `vocab`, `targets` and `sample`. Everything else has a default, for
    tasks that predict one of several classes at each target, and can be overridden: the attributes by a field, a
    property or a class attribute, the methods by methods. `interp.check_task` tests that a task is consistent;
    `interp.tasks.register` makes it known by name, so that runs on it can be loaded.
    """

    task_name: ClassVar[str]
    """Name in manifests and on the command line; default: the name of the class in snake case."""
    is_language: ClassVar[bool] = False
    """Whether the targets are tokens of running text, so that perplexity is defined."""
    target_names: ClassVar[str] = ""
    """A sentence for pages that explains the names of targets, starting with the first; empty if they need none."""
    text_options: ClassVar[Mapping[str, tuple[Any, str]]] = {}
    """Command-line options that `from_options` converts: type and help text of each."""
    option_names: ClassVar[Mapping[str, str]] = {}
    """Fields whose command-line option has another name: the name by field."""
    command_line_defaults: ClassVar[Mapping[str, Any]] = {}
    """Options of `interp train` that differ from the task's, the preset's and the recipe's defaults."""

    if TYPE_CHECKING:

        @property
        def vocab(self) -> Vocab: ...
        @property
        def targets(self) -> tuple[str, ...]: ...

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "task_name" not in vars(cls):
            cls.task_name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> Batch:
        """Sample n examples of a split; the generator is the only source of randomness."""
        raise NotImplementedError(f"{type(self).__name__} does not define sample(n, *, generator, split).")

    @default
    def n_ctx(self) -> int:
        """Largest number of tokens of an example; default: that of 512 sampled examples."""
        return self.sample(512, generator=torch.Generator().manual_seed(0)).tokens.shape[1]

    @default
    def attention(self) -> AttentionKind:
        """Attention of models of this task."""
        return "bidirectional"

    @default
    def disjoint_splits(self) -> bool:
        """Whether no example may occur in two splits."""
        return True

    @default
    def d_vocab(self) -> int:
        """Number of tokens."""
        return len(self.vocab)

    @default
    def d_vocab_out(self) -> int:
        """Number of possible answers; default: the number of tokens."""
        return self.d_vocab

    @default
    def answer_names(self) -> tuple[str, ...]:
        """Name of each possible answer; default: the tokens, or numbers if the answers are not tokens."""
        tokens = self.d_vocab_out == self.d_vocab
        return tuple(self.vocab.names) if tokens else tuple(map(str, range(self.d_vocab_out)))

    @default
    def outcomes(self) -> tuple[str, ...]:
        """Names of the accuracies that are reported; default: one for each target."""
        return tuple(self.targets)

    @default
    def audited_outcomes(self) -> tuple[str, ...]:
        """The outcomes that studies base verdicts on."""
        return tuple(self.outcomes)

    @default
    def chance(self) -> float:
        """Accuracy of uniform guessing."""
        return 1 / self.d_vocab_out

    @default
    def chances(self) -> tuple[float, ...]:
        """Accuracy of uniform guessing for each outcome."""
        return (self.chance,) * len(self.outcomes)

    @default
    def title(self) -> str:
        """Name of the task in a sentence."""
        return self.task_name.replace("_", " ")

    @default
    def description(self) -> str:
        """The task and its settings in one line."""
        values = {name: str(value) for name, value in self.describe().items() if name != "task"}
        shown = ", ".join(f"{name} {shorten(value, 40, placeholder='...')}" for name, value in values.items())
        return f"{self.title}: {shown}" if shown else self.title

    def loss(self, logits: Float[Tensor, "batch pos d_vocab_out"], batch: Any) -> Float[Tensor, ""]:
        """Training loss; default: cross entropy in nats, mean over the supervised targets."""
        at_targets, counted = logits_at_targets(logits, batch), batch.supervised
        if batch.target_mask is None:
            return F.cross_entropy(at_targets[:, counted].flatten(0, 1), batch.labels[:, counted].flatten())
        counted = counted & batch.target_mask
        return F.cross_entropy(at_targets[counted], batch.labels[counted])

    def score(self, at_targets: Float[Tensor, "batch target d_vocab_out"], batch: Any) -> Score:
        """Score of each example; default: correct answers and cross entropy of every target."""
        total = batch.present.to(at_targets.dtype)
        loss = F.cross_entropy(at_targets.transpose(1, 2), batch.labels, reduction="none")
        return Score(right=(self.answers(at_targets) == batch.labels) * total, loss=loss * total, total=total)

    def answers(self, at_targets: Float[Tensor, "batch target d_vocab_out"]) -> Int[Tensor, "batch target"]:
        """Predicted labels; default: the most likely answer at each target."""
        return at_targets.argmax(-1)

    def probe_labels(self, batch: Any) -> dict[str, Int[Tensor, "batch target"]]:
        """Labels that probes may read, classes 0, 1, ... by name; default: the labels, as `label`."""
        return {"label": batch.labels}

    @default
    def answer_label(self) -> str | None:
        """The probe label that the model predicts, if there is one: `probe(verify=True)` can test its use."""
        batch = self.sample(64, generator=torch.Generator().manual_seed(0))
        named = self.probe_labels(batch).items()
        here = batch.present
        return next((name for name, labels in named if torch.equal(labels[here], batch.labels[here])), None)

    def control_types(self, batch: Any) -> Int[Tensor, "batch target"]:
        """Input type of each target for control tasks; default: the last four tokens up to the target, as one number.

        Differs: Hewitt and Liang use the token. Many tasks have the same token, such as `=`, at every target.
        """
        padded, steps = F.pad(batch.tokens, (3, 0)), range(4)
        return sum(
            (padded.gather(1, batch.target_positions + 3 - back) * self.d_vocab**back for back in steps),
            torch.zeros_like(batch.target_positions),
        )

    def relations(self, batch: Any) -> dict[str, Bool[Tensor, "batch query key"]]:
        """Attention relations: for each query, the keys that are related to it; default: none.

        Heads are classified by them, besides relations of position. `interp.heads.kinds` knows `same_token`,
        `same_clause` and `special`, among others; `interp.heads.register_kind` adds kinds.
        """
        return {}

    def places(self, batch: Any) -> dict[str, Int[Tensor, "batch some"]]:
        """Positions of each example that have the same role, by name; -1 where an example has none; default: each one.

        An interchange takes what is at the source's positions to the base's.
        """
        n, pos = batch.tokens.shape
        at = torch.arange(pos, device=batch.tokens.device).expand(n, -1)
        if batch.attention_mask is not None:
            at = at.masked_fill(~batch.attention_mask, -1)
        return {str(index): at[:, index : index + 1] for index in range(pos)}

    def counterparts(self, batch: Any, *, generator: torch.Generator, split: Split = "test") -> Any:
        """Another example for each of a batch, as the source of an interchange; default: an independent one.

        A task can keep what is not interchanged, such as names, so that only what is computed differs.
        """
        return self.sample(len(batch), generator=generator, split=split)

    def read(self, text: str) -> Batch:
        """Parse one example from text.

        Raises:
            ValueError: a task that does not define it, or a text that is no example.
        """
        raise ValueError(f"{type(self).__name__} tasks have no `read` for text; use sampled examples, or define it.")

    def text(self, tokens: Int[Tensor, " pos"]) -> str:
        """The text that `read` parses to these tokens."""
        return self.vocab.decode(tokens)

    def default_texts(self) -> tuple[str, ...]:
        """Texts on which attention patterns are compared by default; if none, sampled examples are used."""
        return ()

    def example(self, batch: Any, answers: Int[Tensor, "1 target"]) -> "Section":
        """Section of a report that shows one example and the model's answers; default: its tokens and a table."""
        from interp.view.page import Section

        rows: list[tuple[str, ...]] = [("target", "position", "correct", "answer")]
        for index, name in enumerate(self.targets):
            if batch.present[0, index]:
                found = (batch.labels[0, index], answers[0, index])
                names = (self.answer_names[int(label)] for label in found)
                rows.append((name, str(int(batch.target_positions[0, index])), *names))
        real = slice(None) if batch.attention_mask is None else batch.attention_mask[0]
        text = " ".join(self.vocab.words(batch.tokens[0][real]))
        more = f"\n\nThe first 24 of {len(rows) - 1} targets:" if len(rows) > 25 else ""
        return Section(title="Example", text=text + more, table=rows[:25])

    def recipe(self) -> dict[str, Any]:
        """Values of `TrainSettings` that learn the task; default: those of `TrainSettings()`."""
        return {}

    @default
    def default_family(self) -> str:
        """Default preset of `interp.config_for`."""
        return "lego"

    @default
    def default_sizes(self) -> dict[str, Any]:
        """Sizes of the default preset that differ from the preset's."""
        return {}

    def config_fields(self, family: str) -> dict[str, Any]:
        """Fields of a preset's config that the task needs, besides its sizes and attention."""
        return {}

    @default
    def lengths(self) -> range:
        """Lengths that a curriculum may have; empty if all examples are sampled with one length."""
        return range(0)

    def shorter_lengths(self, length: int) -> range:
        """Lengths of the shorter examples that are mixed into a curriculum's stage; default: none."""
        return range(0)

    def tokens_of_length(self, length: int) -> int:
        """Number of tokens of an example of a length."""
        return length

    def sample_length(self, n: int, length: int, *, generator: torch.Generator) -> Batch:
        """Sample n training examples of one of the `lengths`."""
        raise NotImplementedError(f"{type(self).__name__} has lengths, but does not define sample_length.")

    def describe(self) -> dict[str, Any]:
        """Settings as plain values, for a manifest; default: the fields of the dataclass.

        Raises:
            ValueError: a field that JSON cannot hold.
        """
        own = [field.name for field in fields(self) if field.init] if is_dataclass(self) else []
        return {"task": self.task_name, **{name: plain(getattr(self, name), name, self) for name in own}}

    @classmethod
    def from_description(cls: type[AnyTask], values: dict[str, Any]) -> AnyTask:
        """Build the task from the output of `describe`; default: lists become tuples."""
        return cls(**{name: tuples(value) for name, value in values.items() if name != "task"})

    @classmethod
    def from_options(cls: type[AnyTask], **options: Any) -> AnyTask:
        """Build the task from options of the command line."""
        return cls(**options)

    @classmethod
    def command_line_sizes(cls, family: str | None, sizes: dict[str, Any]) -> dict[str, Any]:
        """Sizes of the model for `interp train`, from those given as options."""
        return sizes

    @classmethod
    def require(cls: type[AnyTask], task: Any, why: str) -> AnyTask:
        """Return the task if it is of this class, for analyses that are defined for no other.

        Raises:
            ValueError: another class of task.
        """
        if not isinstance(task, cls):
            raise ValueError(f"task is a {type(task).__name__}; {why}")
        return task
