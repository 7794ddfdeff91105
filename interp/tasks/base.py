"""Tasks: sampling, loss, scoring, probe labels and attention relations.

Axes: `batch` examples, `pos` positions, `target` predictions per example, `query` and `key` positions of attention.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from textwrap import shorten
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.tasks.batch import Batch, Score, check_finite_logits, check_target_logits, likeliest, logits_at_targets
from interp.tasks.fields import default, json_value, tuples
from interp.tasks.outputs import checked_probe_labels
from interp.tasks.splits import ALL, SPLITS, Split, can_sample, sample_split
from interp.tasks.vocab import Vocab

if TYPE_CHECKING:
    from interp.view.page import Section

AttentionKind = Literal["causal", "bidirectional"]
MOST_STRATA = 16
"""Possible answers up to which each is a stratum: of 256 sequences, 16 for each of as many frequent answers, of which a
loss of everything can still be shown."""
LOGIT_DIFFERENCE = "the logit of the source's answer minus that of the base's"
"""What patches are measured by, in words, unless a task says otherwise."""
AnyTask = TypeVar("AnyTask", bound="Task")


def _of_finite_logits(score: Callable[..., Score]) -> Callable[..., Score]:
    """The `score` of a task, which refuses logits that are not finite."""

    @wraps(score)
    def score_finite(self: Any, target_logits: Tensor, batch: Any) -> Score:
        check_finite_logits(target_logits)
        return score(self, target_logits, batch)

    return score_finite


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

    counterparts_are_fixed: ClassVar[bool] = False
    """Whether `counterparts` gives every example the same one each time, whatever the generator."""

    if TYPE_CHECKING:

        @property
        def vocab(self) -> Vocab: ...
        @property
        def targets(self) -> tuple[str, ...]: ...

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # RunningSum is called running_sum
        if "task_name" not in vars(cls):
            cls.task_name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        # answers are scored of finite logits only, however a task scores them
        if "score" in vars(cls):
            setattr(cls, "score", _of_finite_logits(cls.score))  # noqa: B010
        # an inherited list of inputs may not be that of another `sample`
        if "sample" in vars(cls) and "every_input" not in vars(cls):
            setattr(cls, "every_input", Task.every_input)  # noqa: B010  # pyright would compare signatures

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> Batch:
        """Sample n examples of a split; the generator is the only source of randomness."""
        raise NotImplementedError(f"{type(self).__name__} does not define sample(n, *, generator, split).")

    def every_input(self, split: Split = "test") -> Batch:
        """Every distinct input of a split, each once, in a fixed order: those that `sample` can draw.

        For tasks with few inputs, of which analyses with `n="all"` then have no sampling error. Each input counts once
        there, also if `sample` draws some more often than others. Default: the task cannot list its inputs. A subclass
        that overrides `sample` has the default again, unless it defines both.

        Raises:
            ValueError: the task does not define it, or has too many inputs (says how many).
        """
        raise ValueError(
            f"{type(self).__name__} cannot list its inputs: define every_input(split), which returns a batch with each "
            f"input of a split once, or give a number n in place of {ALL!r}."
        )

    @property
    def lists_inputs(self) -> bool:
        """Whether the class defines `every_input`, which may still refuse to list too many inputs."""
        return type(self).every_input is not Task.every_input

    def _sample_some_split(self, n: int) -> Batch:
        """Training examples, always the same; if there are none, those of another split."""
        for split in SPLITS:
            if can_sample(self, split):
                break
        else:
            split = "train"
        return sample_split(self, n, generator=torch.Generator().manual_seed(0), split=split)

    @default
    def n_ctx(self) -> int:
        """Largest number of tokens of an example; default: that of 512 sampled examples."""
        return self._sample_some_split(512).tokens.shape[1]

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
        if self.d_vocab_out == self.d_vocab:
            return tuple(self.vocab.names)
        return tuple(str(answer) for answer in range(self.d_vocab_out))

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
        settings = {name: value for name, value in self.describe().items() if name != "task"}
        if not settings:
            return self.title
        texts = [f"{name} {shorten(str(value), 40, placeholder='...')}" for name, value in settings.items()]
        return f"{self.title}: {', '.join(texts)}"

    def loss(self, logits: Float[Tensor, "batch pos d_vocab_out"], batch: Any) -> Float[Tensor, ""]:
        """Training loss of logits at every position; default: cross entropy in nats, mean over supervised targets.

        Raises:
            ValueError: logits of another shape, such as those of `logits_at_targets`.
        """
        return self.loss_at_targets(logits_at_targets(logits, batch), batch)

    def loss_at_targets(
        self, target_logits: Float[Tensor, "batch target d_vocab_out"], batch: Any
    ) -> Float[Tensor, ""]:
        """Training loss of logits at the targets, which `loss` is by default.

        Override it, and not `loss`, if the loss reads no other logits: training can then compute only those.
        """
        check_target_logits(target_logits, batch)
        supervised = batch.supervised
        if batch.target_mask is None:
            # every example has every target: columns can be selected, which keeps the batch axis
            labels = batch.labels[:, supervised]
            return F.cross_entropy(target_logits[:, supervised].flatten(0, 1), labels.flatten())
        # else mean over the supervised targets that exist
        scored = supervised & batch.target_mask
        return F.cross_entropy(target_logits[scored], batch.labels[scored])

    @_of_finite_logits
    def score(self, target_logits: Float[Tensor, "batch target d_vocab_out"], batch: Any) -> Score:
        """Score of each example; default: correct answers and cross entropy of every target."""
        check_target_logits(target_logits, batch)
        total = batch.present.to(target_logits.dtype)
        right = self.answers(target_logits) == batch.labels
        loss = F.cross_entropy(target_logits.transpose(1, 2), batch.labels, reduction="none")
        return Score(right=right * total, loss=loss * total, total=total)

    @default
    def contrast_name(self) -> str:
        """What `contrast` is, in words."""
        return LOGIT_DIFFERENCE

    def contrast(
        self,
        target_logits: Float[Tensor, "batch target d_vocab_out"],
        other_labels: Int[Tensor, "batch target"],
        batch: Any,
    ) -> Float[Tensor, "batch target"]:
        """What a patch is measured by, for each target; default: the logit of another answer minus that of the right
        one.

        Args:
            target_logits: Logits at the targets.
            other_labels: The other answers, those of the sources of a patch.
            batch: The examples, the bases of a patch.
        """
        labels = torch.stack([other_labels, batch.labels], -1).to(target_logits.device)
        logit_of_other, logit_of_right = target_logits.gather(-1, labels).unbind(-1)
        return logit_of_other - logit_of_right

    def answers(self, target_logits: Float[Tensor, "batch target d_vocab_out"]) -> Int[Tensor, "batch target"]:
        """Predicted labels; default: the most likely answer at each target, of equal ones the first (`likeliest`)."""
        return likeliest(target_logits)

    def probe_labels(self, batch: Any) -> dict[str, Int[Tensor, "batch target"]]:
        """Labels that probes may read, by name: classes as integers, none negative; default: the labels, as `label`.

        Missing targets (`Batch.target_mask`) may have any.
        """
        return {"label": batch.labels}

    @default
    def answer_label(self) -> str | None:
        """The probe label that equals the answers, whose use `probe(verify=True)` can test; None if there is none."""
        batch = self._sample_some_split(64)
        answers = batch.labels[batch.present]
        for name, labels in checked_probe_labels(self, batch).items():
            if torch.equal(labels[batch.present], answers):
                return name
        return None

    def control_types(self, batch: Any) -> Int[Tensor, "batch target"]:
        """Input type of each target for control tasks; default: the last four tokens up to the target, as one number.

        Differs: Hewitt and Liang use the token. Many tasks have the same token, such as `=`, at every target.
        """
        # three columns in front, for targets at the first three tokens
        padded = F.pad(batch.tokens, (3, 0))
        # the tokens are the digits of a number in base d_vocab
        types = torch.zeros_like(batch.target_positions)
        for distance in range(4):
            token = padded.gather(1, batch.target_positions + 3 - distance)
            types = types + token * self.d_vocab**distance
        return types

    def relations(self, batch: Any) -> dict[str, Bool[Tensor, "batch query key"]]:
        """Attention relations: for each query, the keys that are related to it; default: none.

        Heads are classified by them, besides relations of position and tokens. `interp.heads.kinds` knows `same_token`,
        `same_clause` and `special`, among others; any other relation is a kind of its own name.
        """
        return {}

    def strata(self, batch: Any) -> dict[str, Bool[Tensor, "batch *outcome"]]:
        """Kinds of examples within which an audit also measures what heads cost: for each name, the examples.

        A mask (batch, outcome) selects other examples for each outcome. Every batch has every name. Default: a stratum
        for each correct answer, if at most 16 are possible and outcomes are targets; else none.
        """
        if len(self.answer_names) > MOST_STRATA or batch.labels.shape[1] != len(self.outcomes):
            return {}
        strata: dict[str, Bool[Tensor, "batch *outcome"]] = {}
        for answer, name in enumerate(self.answer_names):
            has_answer = (batch.labels == answer) & batch.present
            key = f"answer {name}"
            strata[key] = strata[key] | has_answer if key in strata else has_answer  # answers may look the same
        return strata

    def places(self, batch: Any) -> dict[str, Int[Tensor, "batch position"]]:
        """Positions with the same role in every example, by name of the role; -1 where an example has none.

        An interchange copies activations from the source's positions to the base's. Default: a role for each position.
        """
        n, pos = batch.tokens.shape
        positions = torch.arange(pos, device=batch.tokens.device).expand(n, -1)
        if batch.attention_mask is not None:
            positions = positions.masked_fill(~batch.attention_mask, -1)
        return {str(position): positions[:, [position]] for position in range(pos)}

    def counterparts(self, batch: Any, *, generator: torch.Generator, split: Split = "test") -> Any:
        """A second example for each of a batch, as the source of an interchange; default: an independent one.

        A task can keep what is not interchanged, such as names, so that only computed values differ.
        """
        return self.sample(len(batch), generator=generator, split=split)

    def read(self, text: str) -> Batch:
        """Parse one example from text.

        Raises:
            ValueError: a task that does not define this method, or a text that is not an example.
        """
        raise ValueError(f"{type(self).__name__} tasks have no `read` for text; use sampled examples, or define it.")

    def text(self, tokens: Int[Tensor, " pos"]) -> str:
        """Tokens as a text that `read` parses."""
        return self.vocab.decode(tokens)

    def default_texts(self) -> tuple[str, ...]:
        """Texts on which attention patterns are compared; if empty, sampled examples are used."""
        return ()

    def example(self, batch: Any, answers: Int[Tensor, "1 target"]) -> "Section":
        """Section of a report that shows one example and the model's answers; default: its tokens and a table."""
        from interp.view.page import Section

        # one row per target that this example has
        rows: list[tuple[str, ...]] = [("target", "position", "correct", "answer")]
        for index, name in enumerate(self.targets):
            if batch.present[0, index]:
                position = int(batch.target_positions[0, index])
                correct = self.answer_names[int(batch.labels[0, index])]
                answer = self.answer_names[int(answers[0, index])]
                rows.append((name, str(position), correct, answer))
        # its tokens, without padding
        tokens = batch.tokens[0]
        if batch.attention_mask is not None:
            tokens = tokens[batch.attention_mask[0]]
        text = " ".join(self.vocab.words(tokens))
        # a long table is cut: it has a header and 24 targets
        if len(rows) > 25:
            text += f"\n\nThe first 24 of {len(rows) - 1} targets:"
        return Section(title="Example", text=text, table=rows[:25])

    def recipe(self) -> dict[str, Any]:
        """Training settings that learn the task, as values of `TrainSettings`; default: those of `TrainSettings()`."""
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
            ValueError: a field that JSON cannot store.
        """
        settings = {}
        if is_dataclass(self):
            names = [field.name for field in fields(self) if field.init]
            settings = {name: json_value(getattr(self, name), name, self) for name in names}
        return {"task": self.task_name, **settings}

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
        """Sizes of the model for `interp train`, from the options of the command line."""
        return sizes

    @classmethod
    def require(cls: type[AnyTask], task: Any, advice: str) -> AnyTask:
        """Return the task if it is of this class, for analyses of this class of task only.

        Raises:
            ValueError: a task of another class; the advice is the end of the message.
        """
        if not isinstance(task, cls):
            raise ValueError(f"task is a {type(task).__name__}; {advice}")
        return task
