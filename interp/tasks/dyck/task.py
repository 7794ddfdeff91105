"""The bounded Dyck task: predict the next bracket in nested brackets of bounded depth."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks import presets
from hooks.checks import check_choice, check_fields, check_number
from hooks.typed import check_field_types, checks_types
from interp.tasks.base import AttentionKind, Batch, Score, Split, Task
from interp.tasks.batch import check_logits, check_target_logits, likeliest
from interp.tasks.dyck import brackets
from interp.tasks.dyck.brackets import END, PAD, START, Nesting, bracket_names, closer, is_closer, nesting, opener
from interp.tasks.dyck.sampling import (
    StepProbabilities,
    every_word,
    number_of_words,
    prefix_probabilities,
    sample_words,
    word_probabilities,
)
from interp.tasks.relations import for_every_query, keys_at
from interp.tasks.splits import check_few_inputs
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

    >>> from interp.tasks import Dyck
    >>> task = Dyck(n_types=2, max_depth=4)
    >>> task.staircase()
    '(((())))[[[[]]]]'
    >>> task.read("([").due.tolist()  # the type that may close next; -1 for none
    [[-1, 0, 1]]
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
        check_fields(self, "n_types", "max_depth", "length", low=1)
        if not 0 < self.q < 1:
            raise ValueError(f"q is {self.q}; it must be strictly between 0 and 1.")
        # every opener of a complete word has its closer
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
        return tuple(str(n_read) for n_read in range(self.n_ctx))

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
        """Accuracy of the most likely closer, without the paper's criterion."""
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
        words = "prefixes of" if self.words == "prefixes" else "complete words of up to"
        language = f"{self.n_types} types to depth {self.max_depth}, q = {self.q}"
        return f"bounded Dyck: {language}; {words} {self.length} brackets, loss on {self.loss_on}"

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

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> DyckBatch:
        """Sample words.

        Args:
            n: Number of words.
            generator: The only source of randomness.
            split: Checked, but without effect: splits are independent draws.

        Raises:
            ValueError: an unknown split.
        """
        check_number("n", n, integer=True, low=0)
        check_choice("split", split, Split)
        probabilities = self._step_probabilities
        words = sample_words(n, self.n_types, probabilities, generator=generator, length=self.length + 1)
        return self._batch(words[:, :-1], words[:, 1:])

    def every_input(self, split: Split = "test") -> DyckBatch:
        """Every prefix, or every complete word, once; the same in every split.

        Each counts once, though `sample` draws words with different probabilities. The token after a prefix is not
        known, so its last label is padding.

        Raises:
            ValueError: an unknown split, or more than 131,072 words (says how many).
        """
        check_choice("split", split, Split)
        is_complete = self.words == "complete"
        lengths = range(self.min_length, self.length + 1, 2) if is_complete else [self.length]
        language = (self.n_types, self.max_depth)
        check_few_inputs(self, sum(number_of_words(*language, length, complete=is_complete) for length in lengths))
        # [START], the brackets, [END] after a complete word, and padding up to one token more than a model reads
        rows = []
        for length in lengths:
            row = F.pad(every_word(*language, length, complete=is_complete), (1, 0), value=START)
            if is_complete:
                row = F.pad(row, (0, 1), value=END)
            rows.append(F.pad(row, (0, self.length + 2 - row.shape[1]), value=PAD))
        words = torch.cat(rows)
        return self._batch(words[:, :-1], words[:, 1:])

    @checks_types
    def read(self, text: str) -> DyckBatch:
        """Parse one example, such as `([[](`. Its last label is padding.

        Raises:
            ValueError: an unknown token, or brackets that are not a prefix of a word (the first error, where).
        """
        tokens = torch.tensor(self.vocab.encode(text), dtype=torch.long)
        fault = brackets.first_fault(tokens, self.n_types, self.max_depth)
        if fault is not None:
            position, reason = fault
            raise ValueError(f"text is not in the language: at bracket {position}, {reason}. Text: {text!r}")
        # inputs begin with [START]; the last label is unknown
        row = F.pad(tokens, (1, 0), value=START)
        row = F.pad(row, (0, 1), value=PAD)[None]
        return self._batch(row[:, :-1], row[:, 1:])

    def _batch(self, tokens: Int[Tensor, "batch pos"], labels: Int[Tensor, "batch pos"]) -> DyckBatch:
        """Inputs and next tokens as a batch; the model does not read `[END]`."""
        # [START] and the brackets; a mask only if some word is shorter than the others
        in_word = ~torch.isin(tokens, torch.tensor([PAD, END]))
        mask = None if in_word.all() else in_word
        # depth and open brackets, the correct closer among them
        nested = nesting(tokens, self.max_depth)
        tokens = torch.where(in_word, tokens, PAD)
        pos = tokens.shape[1]
        return DyckBatch(
            tokens=tokens,
            target_positions=torch.arange(pos).expand(len(tokens), -1),
            labels=labels,
            supervised=torch.ones(pos, dtype=torch.bool),
            attention_mask=mask,
            target_mask=mask,
            due=torch.where(in_word, nested.top_type, -1),
            after_closer=is_closer(tokens),
            depth=nested.depth,
        )

    @property
    def _step_probabilities(self) -> StepProbabilities:
        if self.words == "prefixes":
            return prefix_probabilities(self.q, self.max_depth, self.length)
        return word_probabilities(self.q, self.max_depth, self.length, self.min_length)

    def next_token_probabilities(self, batch: DyckBatch) -> Float[Tensor, "batch pos d_vocab"]:
        """Exact probability of every next token given the prefix, in float64; zero at padding."""
        # probabilities to open and to end at each position
        probabilities = self._step_probabilities
        step = torch.arange(batch.tokens.shape[1]).expand_as(batch.tokens).clamp_max(len(probabilities.opens) - 1)
        opens = probabilities.opens[step, batch.depth]
        ends = probabilities.ends[step, batch.depth]
        token_probabilities = torch.zeros(*batch.tokens.shape, self.d_vocab, dtype=torch.float64)
        # openers of all types are equally likely; one closer is possible, if a bracket is open
        token_probabilities[..., opener(0) :: 2] = (opens / self.n_types)[..., None]
        closer_due = (closer(0) + 2 * batch.due.clamp_min(0))[..., None]
        closes = (1 - opens - ends) * (batch.due >= 0)
        token_probabilities = token_probabilities.scatter_add(2, closer_due, closes[..., None])
        token_probabilities[..., END] = ends
        if batch.attention_mask is None:
            return token_probabilities
        return token_probabilities * batch.attention_mask[..., None]

    def loss(self, logits: Float[Tensor, "batch pos d_vocab_out"], batch: Batch) -> Float[Tensor, ""]:
        """Cross entropy in nats, mean over the next tokens selected by `loss_on`.

        Source: Eq. 4; the paper's experiments use `closers` (released code). Differs: the theory has squared error.
        """
        check_logits(logits, batch)
        in_loss = is_closer(batch.labels) if self.loss_on == "closers" else batch.labels != PAD
        labels = torch.where(in_loss, batch.labels, -100)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def score(self, target_logits: Float[Tensor, "batch target d_vocab_out"], batch: DyckBatch) -> Score:
        """Correct closers and cross entropy among closers, over `hard` and `all` positions."""
        check_target_logits(target_logits, batch)
        log_probabilities = target_logits[..., closer(0) :: 2].log_softmax(-1)
        log_p_due = log_probabilities.gather(2, batch.due.clamp_min(0)[..., None])[..., 0]
        # two criteria of correctness, two kinds of position
        is_likeliest = likeliest(log_probabilities) == batch.due
        is_certain = log_p_due.exp() > CRITERION
        position = torch.arange(batch.due.shape[1], device=batch.due.device)
        all_positions = (batch.due >= 0) & (position >= self.score_from)
        hard_positions = all_positions & batch.after_closer
        # in the order of `outcomes`
        criteria = torch.stack([is_likeliest, is_likeliest, is_certain, is_certain], 1)
        scored = torch.stack([hard_positions, all_positions, hard_positions, all_positions], 1)
        return Score(
            right=(criteria & scored).sum(2).to(log_p_due.dtype),
            loss=-(log_p_due[:, None] * scored).sum(2),
            total=scored.sum(2).to(log_p_due.dtype),
        )

    def probe_labels(self, batch: DyckBatch) -> dict[str, Int[Tensor, "batch target"]]:
        """Probe labels after each token: `stack_top` (0 if none is open, else type + 1) and `depth`."""
        return {"stack_top": batch.due + 1, "depth": batch.depth}

    def relations(self, batch: Any) -> dict[str, Bool[Tensor, "batch query key"]]:
        """Attention relations: for each query, the keys that are related to it.

        `stack_top`: the innermost open bracket after the query, possibly the query itself. `unmatched_open`: every
        open bracket. `matching_bracket`: the partner. `special`: `[START]`.
        """
        nested = self.nesting(batch)
        return {
            "stack_top": keys_at(nested.top[..., None]),
            "unmatched_open": keys_at(nested.open_positions),
            "matching_bracket": brackets.matching_brackets(nested, batch.tokens),
            "special": for_every_query(batch.tokens == START),
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
        stairs = ""
        for kind in kinds or range(self.n_types):
            opener_name, closer_name = self.pair(kind)
            stairs += opener_name * self.max_depth + closer_name * self.max_depth
        return stairs * repeat

    def pair(self, kind: int) -> tuple[str, str]:
        """Names of the opener and the closer of a type (0-based)."""
        names = bracket_names(self.n_types)
        return names[2 * kind], names[2 * kind + 1]
