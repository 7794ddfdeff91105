"""The bounded Dyck task: predict the next bracket in nested brackets of bounded depth."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks import presets
from hooks.checks import check_choice, check_field_types, check_number, checks_types
from interp.tasks.base import AttentionKind, Batch, Score, Split, Task
from interp.tasks.dyck import brackets
from interp.tasks.dyck.brackets import END, PAD, START, Nesting, bracket_names, closer, is_closer, nesting
from interp.tasks.dyck.sampling import StepChances, prefix_chances, sample_words, word_chances
from interp.tasks.vocab import Vocab, vocab_of

Words = Literal["prefixes", "complete"]
LossOn = Literal["all", "closers"]
CRITERION = 0.8
"""The paper's: the correct closer must have more than this share of the probability of all closers."""


@dataclass(frozen=True, kw_only=True)
class DyckBatch(Batch):
    """Bracket words. Target i is the token after i brackets."""

    answer_fields = ("labels", "due", "after_closer")

    due: Int[Tensor, "batch target"]
    """Type of the innermost open bracket (0-based), the only one that may close next; -1 if none is open."""
    after_closer: Bool[Tensor, "batch target"]
    """Whether the last token is a closer, so that the answer is not the token just read."""
    depth: Int[Tensor, "batch target"]
    """Number of open brackets."""


@dataclass(frozen=True, kw_only=True)
class Dyck(Task):
    """Next-token prediction on words of nested brackets of several types, at most `max_depth` deep.

    At depth 0 a bracket opens, at the maximal depth the innermost one closes; in between a bracket opens with
    probability q, its type uniform. A prefix may end anywhere. A complete word ends, from `min_length` brackets on,
    with probability 1/2 whenever no bracket is open, conditioned on ending within `length`.

    Accuracy is reported for `hard` positions (a bracket is open and the last token is a closer) and for `all`
    positions with an open bracket. After an opener the answer is the token just read, so a model at chance on `hard`
    still reaches 0.8 on `all`. An answer is correct if the closer due is the most likely closer; for `hard 0.8` and
    `all 0.8`, as in the paper, if it has more than 0.8 of the closers' probability.

    Splits are independent draws: short words occur in every split, as in the paper.

    Source: bounded Dyck (arXiv:2312.01429) Section 2, Eq. 1-4, and its released code for complete words.

    Raises:
        ValueError: fewer than one type or level, q outside (0, 1), no length, an odd length of complete words, an
            unknown choice, or `score_from` beyond the end.
    """

    n_types: int = 2
    """Number of bracket types."""
    max_depth: int = 4
    """Largest number of open brackets."""
    q: float = 0.5
    """Probability to open where opening and closing are both possible."""
    length: int = 28
    """Brackets of a prefix; the most brackets of a complete word."""
    words: Words = "prefixes"
    """`prefixes` of exactly `length` brackets, or `complete` words followed by `[END]`."""
    min_length: int = 2
    """The fewest brackets of a complete word; equal to `length` for words of one length."""
    loss_on: LossOn = "all"
    """Next tokens in the training loss: `all`, or only `closers` (the paper's released setting)."""
    score_from: int = 0
    """First position that is scored."""

    def __post_init__(self):
        check_field_types(self)
        for name in ("n_types", "max_depth", "length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if not 0 < self.q < 1:
            raise ValueError(f"q is {self.q}; it must be strictly between 0 and 1.")
        for name, choices in (("words", Words), ("loss_on", LossOn)):
            check_choice(name, getattr(self, name), choices)
        if self.words == "complete" and (self.length % 2 or self.min_length % 2):
            raise ValueError(
                f"length is {self.length} and min_length {self.min_length}; complete words have even lengths."
            )
        if self.words == "complete" and not 2 <= self.min_length <= self.length:
            raise ValueError(f"min_length is {self.min_length}; choose 2 to {self.length}.")
        if not 0 <= self.score_from <= self.length:
            raise ValueError(f"score_from is {self.score_from}; positions go from 0 to {self.length}.")

    @property
    def vocab(self) -> Vocab:
        """Special tokens, then the opener and closer of each type."""
        return vocab_of(("[PAD]", "[START]", "[END]", *bracket_names(self.n_types)))

    @property
    def n_ctx(self) -> int:
        """Tokens of an example: `[START]` and the brackets."""
        return self.length + 1

    @property
    def targets(self) -> tuple[str, ...]:
        """Numbers of brackets read before each prediction."""
        return tuple(str(i) for i in range(self.n_ctx))

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Kinds of position, with two criteria of correctness."""
        return ("hard", "all", f"hard {CRITERION}", f"all {CRITERION}")

    @property
    def disjoint_splits(self) -> bool:
        """False: splits are independent draws."""
        return False

    @property
    def audited_outcomes(self) -> tuple[str, ...]:
        """Accuracy of the most likely closer; the paper's criterion is left out."""
        return ("hard", "all")

    @property
    def chance(self) -> float:
        return 1 / self.n_types

    @property
    def attention(self) -> AttentionKind:
        return "causal"

    @property
    def title(self) -> str:
        return "bounded Dyck"

    @property
    def description(self) -> str:
        """Types, depth, q, words and loss."""
        kind = "prefixes of" if self.words == "prefixes" else "complete words of up to"
        language = f"{self.n_types} types to depth {self.max_depth}, q = {self.q}"
        return f"bounded Dyck: {language}; {kind} {self.length} brackets, loss on {self.loss_on}"

    @property
    def default_family(self) -> str:
        return "dyck_gpt"

    def config_fields(self, family: str) -> dict[str, Any]:
        """Positions beyond the task's, and the bracket states of a minimal first layer."""
        if not family.startswith("dyck_"):
            return {}
        states = {"n_types": self.n_types, "max_depth": self.max_depth} if family == "dyck_minimal" else {}
        return {"n_ctx": max(self.n_ctx, presets.DYCK_POSITIONS), **states}

    def recipe(self) -> dict[str, Any]:
        """Enough steps for two layers of width 50 on prefixes of 28."""
        return {"steps": 700, "batch_size": 24, "learning_rate": 6e-3, "weight_decay": 0.0}

    def describe(self) -> dict:
        """Settings as plain values, for a manifest."""
        return {"task": self.task_name, **asdict(self)}

    @classmethod
    def from_description(cls, values: dict) -> "Dyck":
        return cls(**{name: value for name, value in values.items() if name != "task"})

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> DyckBatch:
        """Sample words.

        Args:
            n: Number of words.
            generator: The only source of randomness.
            split: Checked, but without effect: splits are independent draws.

        Raises:
            ValueError: an unknown split.
        """
        check_number("n", n, whole=True, low=0)
        check_choice("split", split, Split)
        words = sample_words(n, self.n_types, self._chances, generator=generator, length=self.length + 1)
        return self._batch(words[:, :-1], words[:, 1:])

    @checks_types
    def read(self, text: str) -> DyckBatch:
        """Parse one example, such as `([[](`. Its last label is padding.

        Raises:
            ValueError: an unknown token, or brackets that are not a prefix of a word (where and why).
        """
        tokens = torch.tensor(self.vocab.encode(text), dtype=torch.long)
        fault = brackets.first_fault(tokens, self.n_types, self.max_depth)
        if fault is not None:
            raise ValueError(f"text is not in the language: at bracket {fault[0]}, {fault[1]}. Text: {text!r}")
        row = F.pad(F.pad(tokens, (1, 0), value=START), (0, 1), value=PAD)[None]
        return self._batch(row[:, :-1], row[:, 1:])

    def _batch(self, tokens: Int[Tensor, "batch pos"], labels: Int[Tensor, "batch pos"]) -> DyckBatch:
        real = ~torch.isin(tokens, torch.tensor([PAD, END]))
        found = nesting(tokens, self.max_depth)
        tokens = torch.where(real, tokens, PAD)
        pos = tokens.shape[1]
        return DyckBatch(
            tokens=tokens,
            target_positions=torch.arange(pos).expand(len(tokens), -1),
            labels=labels,
            supervised=torch.ones(pos, dtype=torch.bool),
            attention_mask=None if real.all() else real,
            target_mask=None if real.all() else real,
            due=torch.where(real, found.top_type, -1),
            after_closer=is_closer(tokens),
            depth=found.depth,
        )

    @property
    def _chances(self) -> StepChances:
        if self.words == "prefixes":
            return prefix_chances(self.q, self.max_depth, self.length)
        return word_chances(self.q, self.max_depth, self.length, self.min_length)

    def next_token_probabilities(self, batch: DyckBatch) -> Float[Tensor, "batch pos d_vocab"]:
        """Exact probability of every next token given the prefix, in float64; zero at padding."""
        step = torch.arange(batch.tokens.shape[1]).expand_as(batch.tokens)
        opens, ends = self._chances.at(batch.depth, step)
        exact = torch.zeros(*batch.tokens.shape, self.d_vocab, dtype=torch.float64)
        exact[..., brackets.opener(0) :: 2] = (opens / self.n_types)[..., None]
        right = (closer(0) + 2 * batch.due.clamp_min(0))[..., None]
        exact = exact.scatter_add(2, right, (1 - opens - ends)[..., None] * (batch.due >= 0)[..., None])
        exact[..., END] = ends
        return exact if batch.attention_mask is None else exact * batch.attention_mask[..., None]

    def loss(self, logits: Float[Tensor, "batch pos d_vocab_out"], batch: Batch) -> Float[Tensor, ""]:
        """Cross entropy in nats, mean over the next tokens selected by `loss_on`.

        Source: Eq. 4; the paper's experiments use `closers` (released code). Differs: the theory has squared error.
        """
        counted = is_closer(batch.labels) if self.loss_on == "closers" else batch.labels != PAD
        return F.cross_entropy(logits.flatten(0, 1), torch.where(counted, batch.labels, -100).flatten())

    def score(self, at_targets: Float[Tensor, "batch target d_vocab_out"], batch: DyckBatch) -> Score:
        """Correct closers and cross entropy among closers, over `hard` and `all` positions."""
        chances = at_targets[..., brackets.closer(0) :: 2].log_softmax(-1)
        right = chances.gather(2, batch.due.clamp_min(0)[..., None])[..., 0]
        best, sure = chances.argmax(-1) == batch.due, right.exp() > CRITERION
        late = torch.arange(batch.due.shape[1], device=batch.due.device) >= self.score_from
        everywhere = (batch.due >= 0) & late
        hard = everywhere & batch.after_closer
        columns = [(best, hard), (best, everywhere), (sure, hard), (sure, everywhere)]
        asked = torch.stack([where.sum(1) for _, where in columns], 1).to(right.dtype)
        return Score(
            right=torch.stack([(what & where).sum(1) for what, where in columns], 1).to(right.dtype),
            loss=torch.stack([-(right * where).sum(1) for _, where in columns], 1),
            total=asked,
        )

    def probe_labels(self, batch: DyckBatch) -> dict[str, Int[Tensor, "batch target"]]:
        """Probe labels after each token: `stack_top` (0 if none is open, else type + 1) and `depth`."""
        return {"stack_top": batch.due + 1, "depth": batch.depth}

    def control_types(self, batch: DyckBatch) -> Int[Tensor, "batch target"]:
        """Input type of each target for control tasks: the last four tokens as one number.

        The last token alone has few values, which every layer separates.
        """
        padded = F.pad(batch.tokens, (3, 0))
        pos = batch.tokens.shape[1]
        return sum((padded[:, 3 - back : 3 - back + pos] * self.d_vocab**back for back in range(4)), batch.tokens * 0)

    def relations(self, batch: Any) -> dict[str, Bool[Tensor, "batch query key"]]:
        """Attention relations: for each query, the keys that are related to it.

        `stack_top`: the innermost open bracket after the query, possibly the query itself. `unmatched_open`: every
        open bracket. `matching_bracket`: the partner. `special`: `[START]`.
        """
        found = self.nesting(batch)
        pos = batch.tokens.shape[1]
        return {
            "stack_top": brackets.key_map(found.top[..., None]),
            "unmatched_open": brackets.key_map(found.open_at),
            "matching_bracket": brackets.matching_map(found, batch.tokens),
            "special": (batch.tokens == START)[:, None, :].expand(-1, pos, -1),
        }

    def nesting(self, batch: Batch) -> Nesting:
        """Depth and open brackets after each token of a batch."""
        return nesting(batch.tokens, self.max_depth)

    def text(self, tokens: Int[Tensor, " pos"]) -> str:
        """The brackets, without `[START]`."""
        return self.vocab.decode(tokens[tokens != START])

    def default_texts(self) -> tuple[str, ...]:
        """The staircase of all types."""
        return (self.staircase(),)

    def staircase(self, *kinds: int, repeat: int = 1) -> str:
        """Text `((((  ))))` for each of the types (default: all), to the maximal depth: every type and depth once.

        Source: the paper's probe prefix, 16 brackets for two types and depth 4.
        """
        pairs = [self.pair(kind) for kind in kinds or range(self.n_types)]
        return "".join(left * self.max_depth + right * self.max_depth for left, right in pairs) * repeat

    def pair(self, kind: int) -> tuple[str, str]:
        """Names of the opener and the closer of a type (0-based)."""
        names = bracket_names(self.n_types)
        return names[2 * kind], names[2 * kind + 1]
