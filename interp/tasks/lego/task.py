"""The LEGO task: resolve a chain of group operations whose clauses are in random order."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from hooks.checks import check_choice, check_class, check_number
from hooks.typed import check_field_types, checks_types
from interp.tasks.base import SPLITS, Batch, Split, Task
from interp.tasks.contents import contents_of_split, draw_distinct, split_of
from interp.tasks.lego.chain import Chain, Grammar, chain_section, parse_clauses
from interp.tasks.lego.groups import Z2, GroupAction, ready_made
from interp.tasks.lego.places import clause_places, sentence_relations
from interp.tasks.lego.sampling import draw_content, every_content, number_of_contents
from interp.tasks.splits import check_few_inputs
from interp.tasks.vocab import Vocab, vocab_of

if TYPE_CHECKING:
    from interp.view.page import Section

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SentenceFormat = Literal["paper", "compact"]
ClauseOrder = Literal["random", "chain"]


@dataclass(frozen=True, kw_only=True)
class LegoBatch(Batch):
    """LEGO sentences. `target` is the chain variable: 0 is the root, i is resolved from i - 1."""

    letters: Int[Tensor, "batch target"]
    """Index of each variable's letter in the alphabet."""
    operations: Int[Tensor, "batch target"]
    """Index of the group element applied to obtain each variable."""
    clause_of: Int[Tensor, "batch target"]
    """Index of the clause that defines each variable."""


@dataclass(frozen=True, kw_only=True)
class Lego(Task):
    """Sentences like `a=+1;b=-a;` with shuffled clauses; the value of every variable is predicted.

    Variable i is `v_i = g_i . v_{i-1}` with `v_0 = g_0 . root`. Each sentence draws letters without replacement, and
    operations independently and uniformly. A variable is predicted at the first token of its clause.

    A hash of its content assigns each sentence to one split: three quarters to training, one eighth each to
    validation and test. Held-out sentences never occur in training, for any seed.

    The loss is the cross entropy in nats, mean over the supervised variables.

    Source: LEGO (arXiv:2206.04301) Section 2 and released data. Differs: the paper draws values and derives signs,
    which for a group acting on itself is the same distribution; its splits are independent draws; it has one logit and
    binary cross entropy where Z2 has two logits here.

    Raises:
        ValueError: no variable, or more than letters; supervised variables that are none, repeated or out of range; an
            unknown format or order.

    >>> from interp.tasks import Lego
    >>> task = Lego(n_vars=2)
    >>> batch = task.read("b=-a;a=+1;")
    >>> task.vocab.decode(batch.tokens[0]), batch.labels
    ('[BOS]b=-a;a=+1;[EOS]', tensor([[0, 1]]))
    >>> task.chain(batch).edges
    (('1', '+', 'a'), ('a', '-', 'b'))
    """

    target_names = "#0, #1, ... are the variables of a chain in order; #0 is computed from the constant at the root."
    n_vars: int = 12
    """Variables in a chain."""
    group: GroupAction = Z2
    """The group, and the set that it acts on."""
    n_supervised: int | None = None
    """Number of variables, from the first, that count in the loss; default: all."""
    supervised: tuple[int, ...] | None = None
    """Indices of the variables that count in the loss, instead of `n_supervised`."""
    alphabet: tuple[str, ...] | str = LETTERS
    """Names of variables."""
    clause_order: ClauseOrder = "random"
    """`random`, or `chain`: clauses in the order of the chain."""
    sentence_format: SentenceFormat = "paper"
    """`paper`: `[BOS]`, five tokens a clause (`b = - a ;`), `[EOS]`. `compact`: three tokens a clause (`b - a`)."""

    text_options: ClassVar = {"group": (str, "Z2 (signs) or S3 (permutations). Default: Z2.")}
    command_line_defaults: ClassVar = {"n_vars": 4, "association": "mimic"}

    def __post_init__(self):
        check_field_types(self)
        check_class("group", self.group, GroupAction)
        # a letter for each variable
        object.__setattr__(self, "alphabet", tuple(self.alphabet))
        check_number("n_vars", self.n_vars, integer=True, low=1)
        if self.n_vars > len(self.alphabet):
            raise ValueError(
                f"n_vars is {self.n_vars}, more than the {len(self.alphabet)} letters of the alphabet; give a longer "
                f"alphabet or fewer variables."
            )
        # supervision
        if self.n_supervised is not None and self.supervised is not None:
            raise ValueError("n_supervised and supervised are both given; give one of them.")
        self._set_supervised()
        # raises if two tokens have the same name
        len(self.vocab)

    def _set_supervised(self) -> None:
        """Store the supervised variables as indices, also if only their number is given."""
        if self.supervised is not None:
            supervised = tuple(self.supervised)
        else:
            supervised = tuple(range(self.n_vars if self.n_supervised is None else self.n_supervised))
        has_repeats = len(set(supervised)) < len(supervised)
        if not supervised or has_repeats or not set(supervised) <= set(range(self.n_vars)):
            raise ValueError(
                f"supervised variables are {supervised}; give at least one, none twice, each from 0 to "
                f"{self.n_vars - 1}."
            )
        object.__setattr__(self, "supervised", tuple(sorted(supervised)))
        object.__setattr__(self, "n_supervised", None)

    # Tokens and names

    @property
    def vocab(self) -> Vocab:
        marks = ("[PAD]", "[BOS]", "[EOS]", "=", ";") if self.sentence_format == "paper" else ("[PAD]",)
        return vocab_of((*marks, self.group.root_token, *self.group.elements, *self.alphabet))

    @property
    def d_vocab_out(self) -> int:
        """Number of values of a variable."""
        return len(self.group.points)

    @property
    def clause_length(self) -> int:
        """Tokens of a clause."""
        return 5 if self.sentence_format == "paper" else 3

    @property
    def _n_marks(self) -> int:
        """Tokens before the first clause, and after the last: `[BOS]` and `[EOS]`, or none."""
        return 1 if self.sentence_format == "paper" else 0

    @property
    def n_ctx(self) -> int:
        """Tokens of a sentence."""
        return self.clause_length * self.n_vars + 2 * self._n_marks

    @property
    def answer_names(self) -> tuple[str, ...]:
        """The values of a variable."""
        return tuple(self.group.points)

    @property
    def title(self) -> str:
        return "LEGO"

    @property
    def description(self) -> str:
        """Length, group, supervised variables and format."""
        chain = f"chains of {self.n_vars} variables in {self.group.name}"
        return f"LEGO: {chain}, {len(self.supervised or ())} of them supervised, {self.sentence_format} format"

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the variables in chain order: #0, #1, ..."""
        return tuple(f"#{index}" for index in range(self.n_vars))

    @property
    def audited_outcomes(self) -> tuple[str, ...]:
        """The supervised variables; training does not determine what a model predicts for the others."""
        return tuple(self.targets[index] for index in self.supervised or ())

    def describe(self) -> dict:
        """Settings as plain values, for a manifest."""
        return {
            "task": self.task_name,
            "n_vars": self.n_vars,
            "group": asdict(self.group),
            "supervised": list(self.supervised or ()),
            "alphabet": list(self.alphabet),
            "clause_order": self.clause_order,
            "sentence_format": self.sentence_format,
        }

    @classmethod
    def from_description(cls, values: dict) -> "Lego":
        return super().from_description({**values, "group": GroupAction.from_dict(values["group"])})

    @classmethod
    def from_options(cls, **options: Any) -> "Lego":
        """Build the task; the group is given by name."""
        if "group" in options:
            options["group"] = ready_made(options["group"])
        return cls(**options)

    # Sentences

    def sample(
        self, n: int, *, generator: torch.Generator, split: Split = "train", n_vars: int | None = None
    ) -> LegoBatch:
        """Sample sentences.

        Args:
            n: Number of sentences.
            generator: The only source of randomness.
            split: `train`, `validation` or `test`; the splits are disjoint.
            n_vars: Chain length, at most the task's; default: the task's. A shorter chain occupies randomly chosen
                clause slots of a full sentence, given by `position_ids`, so that every position is trained.

        Raises:
            ValueError: a negative n, an unknown split, a chain length out of range, or a split with too few sentences.
        """
        check_number("n", n, integer=True, low=0)
        check_choice("split", split, Split)
        length = self.n_vars if n_vars is None else n_vars
        if not 1 <= length <= self.n_vars:
            raise ValueError(f"n_vars is {length}; this task has chains of 1 to {self.n_vars}.")
        draw = partial(
            draw_content,
            n_vars=length,
            n_letters=len(self.alphabet),
            n_operations=len(self.group.elements),
            shuffled=self.clause_order == "random",
            generator=generator,
        )
        content = contents_of_split(n, split, draw)
        # a shorter chain occupies some of the clauses of a full sentence, in order
        slots = None
        if length < self.n_vars:
            slots = draw_distinct(n, self.n_vars, length, generator).sort(-1).values
        return self.from_content(content, slots)

    def every_input(self, split: Split = "test") -> LegoBatch:
        """Every sentence of a split, each once. `sample` draws them with equal probabilities.

        Raises:
            ValueError: an unknown split, or more than 131,072 sentences in all splits together.
        """
        check_choice("split", split, Split)
        contents = {
            "n_vars": self.n_vars,
            "n_letters": len(self.alphabet),
            "n_operations": len(self.group.elements),
            "shuffled": self.clause_order == "random",
        }
        check_few_inputs(self, number_of_contents(**contents), where="in all splits together")
        content = every_content(**contents)
        return self.from_content(content[split_of(content) == SPLITS.index(split)])

    def from_content(
        self, content: Int[Tensor, "batch target field"], slots: Int[Tensor, "batch clause"] | None = None
    ) -> LegoBatch:
        """Build sentences from the letter, operation and clause of every variable, in chain order.

        Args:
            content: Indices of the letter, the operation and the clause of every variable.
            slots: For each clause, its place among the clauses of a full sentence; default: 0, 1, ...
        """
        letters, operations, clause_of = content.unbind(-1)
        n, length = letters.shape
        # clauses in chain order
        ids = self.vocab.ids
        variable = letters + ids[self.alphabet[0]]
        operation = operations + ids[self.group.elements[0]]
        root = torch.full((n, 1), ids[self.group.root_token])
        operand = torch.cat([root, variable[:, :-1]], 1)
        columns = [variable, operation, operand]
        if self.sentence_format == "paper":
            equals = torch.full_like(variable, ids["="])
            stop = torch.full_like(variable, ids[";"])
            columns = [variable, equals, operation, operand, stop]
        clauses = torch.stack(columns, -1)
        # clauses in the order of the sentence
        clauses = torch.empty_like(clauses).scatter_(1, clause_of[..., None].expand_as(clauses), clauses)
        tokens = clauses.flatten(1)
        if self.sentence_format == "paper":
            tokens = F.pad(tokens, (1, 0), value=ids["[BOS]"])
            tokens = F.pad(tokens, (0, 1), value=ids["[EOS]"])
        # a shorter chain has fewer variables that can be supervised
        supervised = torch.zeros(length, dtype=torch.bool)
        supervised[[index for index in self.supervised or () if index < length]] = True
        return LegoBatch(
            tokens=tokens,
            target_positions=self._n_marks + self.clause_length * clause_of,
            labels=self.values(operations),
            supervised=supervised,
            position_ids=None if slots is None else self._position_ids(slots),
            letters=letters,
            operations=operations,
            clause_of=clause_of,
        )

    def _position_ids(self, slots: Int[Tensor, "batch clause"]) -> Int[Tensor, "batch pos"]:
        """Position ids of a short sentence whose clauses occupy these slots of a full one."""
        ids = (slots[..., None] * self.clause_length + torch.arange(self.clause_length)).flatten(1)
        if self.sentence_format == "paper":
            ids = F.pad(ids + 1, (1, 1))
            ids[:, -1] = self.n_ctx - 1
        return ids

    def values(self, operations: Int[Tensor, "batch target"]) -> Int[Tensor, "batch target"]:
        """Value of every variable, by applying the operations along the chain."""
        act = torch.tensor(self.group.act)
        value = torch.full((len(operations),), self.group.root)
        values = []
        for operation in operations.unbind(1):
            value = act[operation, value]
            values.append(value)
        return torch.stack(values, 1)

    def counterparts(self, batch: LegoBatch, *, generator: torch.Generator, split: Split = "test") -> LegoBatch:
        """The same letters and order of clauses, with other operations; of any split."""
        operations = torch.randint(len(self.group.elements), batch.operations.shape, generator=generator)
        return self.from_content(torch.stack([batch.letters, operations, batch.clause_of], -1))

    @checks_types
    def read(self, text: str) -> LegoBatch:
        """Parse one sentence into a batch of one; `[BOS]` and `[EOS]` are optional.

        Raises:
            ValueError: an unknown token, a malformed clause, another number of clauses than the task has, or
                clauses that do not form one chain.
        """
        words = [word for word in self.vocab.words(self.vocab.encode(text)) if word not in ("[BOS]", "[EOS]")]
        grammar = Grammar(
            n_clauses=self.n_vars,
            clause_length=self.clause_length,
            letters=self.alphabet,
            operations=self.group.elements,
            root=self.group.root_token,
        )
        return self.from_content(torch.tensor([parse_clauses(words, grammar)]))

    def chain(self, batch: LegoBatch, row: int = 0) -> Chain:
        """The chain of one sentence of a batch, by token names."""
        words = tuple(self.vocab.words(batch.tokens[row]))
        n_vars = batch.letters.shape[1]
        marks = (None,) * self._n_marks
        clauses = [clause for clause in range(n_vars) for _ in range(self.clause_length)]
        return Chain(
            words=words,
            root=self.group.root_token,
            variables=tuple(self.alphabet[index] for index in batch.letters[row].tolist()),
            operations=tuple(self.group.elements[index] for index in batch.operations[row].tolist()),
            values=tuple(self.group.points[index] for index in batch.labels[row].tolist()),
            clause_of=tuple(batch.clause_of[row].tolist()),
            clause_of_word=(*marks, *clauses, *marks),
        )

    def example(self, batch: LegoBatch, answers: Int[Tensor, "1 target"]) -> "Section":
        """The sentence and its chain, with the model's answers."""
        return chain_section(self.chain(batch), self.group.points, answers[0].tolist())

    # Training

    @property
    def lengths(self) -> range:
        return range(1, self.n_vars + 1)

    def shorter_lengths(self, length: int) -> range:
        """All shorter chains of two variables or more."""
        return range(2, length)

    def tokens_of_length(self, length: int) -> int:
        """Tokens of a sentence of this number of clauses."""
        return self.n_ctx * length // self.n_vars

    def sample_length(self, n: int, length: int, *, generator: torch.Generator) -> LegoBatch:
        """Sample chains of a length."""
        return self.sample(n, generator=generator, n_vars=length)

    def recipe(self) -> dict[str, Any]:
        """Mimicking, and a curriculum over lengths."""
        return {"curriculum": curriculum_to(self.n_vars), "association": "mimic"} if self.n_vars > 1 else {}

    # What analyses need

    def probe_labels(self, batch: LegoBatch) -> dict[str, Int[Tensor, "batch target"]]:
        """Probe labels at each variable: its `value`, and the `operation` of its clause."""
        return {"value": batch.labels, "operation": batch.operations}

    def control_types(self, batch: LegoBatch) -> Int[Tensor, "batch target"]:
        """Input type of each target for control tasks: its clause (letter, operation, letter) as one number.

        Differs: Hewitt and Liang use the word. Here a word is one of 26 letters, which every layer separates.
        """
        n_letters, n_operations = len(self.alphabet), len(self.group.elements)
        root = torch.full_like(batch.letters[:, :1], n_letters)
        operand = torch.cat([root, batch.letters[:, :-1]], 1)
        return (batch.letters * n_operations + batch.operations) * (n_letters + 1) + operand

    def places(self, batch: LegoBatch) -> dict[str, Int[Tensor, "batch position"]]:
        """Each token of the clause that defines each variable, by its role; the whole clause; the special tokens."""
        return clause_places(batch.target_positions, batch.tokens.shape[1], self.targets, self.clause_length)

    def relations(self, batch: Batch) -> dict[str, Bool[Tensor, "batch query key"]]:
        """Attention relations: for each query, the keys that are related to it.

        `same_token`: the identical token at another position. `same_clause`: the clause of the query, including the
        query. `special`: `[BOS]` and `[EOS]`, for every query; none in the compact format.
        """
        special = [self.vocab.ids[name] for name in ("[BOS]", "[EOS]") if name in self.vocab.ids]
        return sentence_relations(batch.tokens, special, clause_length=self.clause_length, start=self._n_marks)


def curriculum_to(n_vars: int) -> tuple[tuple[int, int], ...]:
    """Curriculum stages (chain length, steps) up to chains of `n_vars`, for models of width 64 with mimicking.

    Tested up to chains of six; for longer ones a last stage of 900 steps is a guess. Empty for chains of one.
    """
    tested_stages = ((2, 80), (3, 270), (4, 350), (5, 500), (6, 800))
    stages = tuple((length, steps) for length, steps in tested_stages if length <= n_vars)
    longest, _ = tested_stages[-1]
    return (*stages, (n_vars, 900)) if n_vars > longest else stages
