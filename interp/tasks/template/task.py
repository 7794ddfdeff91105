"""Template tasks: strings over abstract symbols, labelled by which symbols are equal. Does a model know unseen ones?"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.tasks.base import AttentionKind, Batch, Score, Split, Vocab, check_split, logits_at_targets
from interp.tasks.template.families import ready_templates
from interp.tasks.template.language import (
    LabelledTemplate,
    check_templates,
    is_wildcard,
    read_template,
    substitution,
)
from interp.tasks.template.symbols import Alphabet, check_alphabets, choose_distinct, names_of, size_of

Form = Literal["real", "symbolic", "next_token"]
CLS = "[CLS]"
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True, kw_only=True)
class TemplateBatch(Batch):
    """Strings of templates. There is one target, the label; in next-token form one for every token read."""

    template: Int[Tensor, " batch"]
    """Which template each string is of."""
    values: Float[Tensor, "batch target"]
    """Real labels; nothing but zeros in the other forms."""


@dataclass(frozen=True, kw_only=True)
class Template:
    """Strings like `t3 t7 t3`, a template whose wildcards were replaced by different symbols; its label is to be told.

    Training, validation and test strings have symbols of disjoint alphabets: what is learned must be about which
    symbols are equal, not about what they are. Templates are drawn by weight, symbols uniformly.

    Three forms. `real`: `[CLS]` follows the string and the answer read there is a number. `symbolic`: the answer is a
    token, read at `[CLS]` or, without it, at the last token. `next_token`: a causal model tells every next token, the
    label being the last. The form is real where labels are numbers and symbolic where they are tokens, unless given.

    Accuracy is told of the label: the nearest of all real labels, or the most likely token.

    Source: template paper (arXiv:2310.09753) Section 2 and released data. Differs: ids of wildcards are not reserved.

    Raises:
        ValueError: no templates, templates of different lengths, two that overlap, real and symbolic labels mixed or
            not those of the form, an alphabet that is too small, overlaps another or holds a fixed token, or weights
            that do not fit.
    """

    templates: Sequence[LabelledTemplate | str] | str = "aba_abb"
    """Written down (`aba -> +1`; single lower-case letters are wildcards), or the name of a ready-made family."""
    form: Form | None = None
    cls: bool | None = None
    """Whether `[CLS]` follows the string; if left out, in the real form only."""
    train: Alphabet = 256
    """The alphabet of training strings: how many symbols, or their names."""
    validation: Alphabet = 100
    test: Alphabet = 100
    weights: tuple[float, ...] = ()
    """Of the templates; all alike when left out."""

    def __post_init__(self):
        given = ready_templates(self.templates) if isinstance(self.templates, str) else self.templates
        templates = tuple(read_template(one) if isinstance(one, str) else one for one in given)
        if not templates:
            raise ValueError("templates is empty; give at least one.")
        form = self.form or ("real" if isinstance(templates[0].label, float) else "symbolic")
        if form not in get_args(Form):
            raise ValueError(f"form is {form!r}; choose one of {', '.join(get_args(Form))}.")
        derived: dict[str, Any] = {
            "templates": templates,
            "form": form,
            "cls": (form == "real") if self.cls is None else bool(self.cls),
            "weights": tuple(float(weight) for weight in self.weights),
            **{name: given if isinstance(given := getattr(self, name), int) else tuple(given) for name in SPLITS},
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        check_templates(self.labelled, real=form == "real", weights=self.weights)
        if self.cls != (form == "real") and form != "symbolic":
            told = "at [CLS]; leave it on" if form == "real" else "after the last token; leave it out"
            raise ValueError(f"cls is {self.cls}, but in form {form!r} the label is told {told}.")
        alphabets: dict[Split, Alphabet] = {split: getattr(self, split) for split in SPLITS}
        check_alphabets(alphabets, fixed=self.fixed, most=self.n_wildcards)

    @property
    def labelled(self) -> tuple[LabelledTemplate, ...]:
        """The templates, read."""
        return self.templates  # type: ignore[return-value]  # made so when the task was made

    def alphabet(self, split: Split) -> Sequence[str]:
        """Names of the symbols of a split."""
        return names_of(getattr(self, split), split)

    @cached_property
    def fixed(self) -> tuple[str, ...]:
        """Fixed tokens, in strings and labels, and `[CLS]`."""
        tokens = [token for one in self.labelled for token in one.tokens]
        tokens += [one.label for one in self.labelled if isinstance(one.label, str)]
        fixed = list(dict.fromkeys(token for token in tokens if not is_wildcard(token)))
        return (*fixed, *([CLS] if self.cls else []))

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The different real labels, in order; empty in the other forms."""
        return tuple(sorted({one.label for one in self.labelled if isinstance(one.label, float)}))

    @property
    def vocab(self) -> Vocab:
        """Fixed tokens, then the symbols of training, validation and test."""
        return _vocab((*self.fixed, *(name for split in SPLITS for name in self.alphabet(split))))

    @property
    def d_vocab(self) -> int:
        """Number of tokens."""
        return len(self.fixed) + sum(size_of(getattr(self, split)) for split in SPLITS)

    @property
    def d_vocab_out(self) -> int:
        """One number in the real form; else as many as there are tokens."""
        return 1 if self.form == "real" else self.d_vocab

    @property
    def n_ctx(self) -> int:
        """Tokens of a string, with `[CLS]`."""
        return len(self.labelled[0].tokens) + bool(self.cls)

    @property
    def attention(self) -> AttentionKind:
        """Causal in the next-token form."""
        return "causal" if self.form == "next_token" else "bidirectional"

    @property
    def targets(self) -> tuple[str, ...]:
        """The label; in next-token form every token after the first, then the label."""
        if self.form != "next_token":
            return ("label",)
        return (*(f"token {index}" for index in range(1, self.n_ctx)), "label")

    @property
    def outcomes(self) -> tuple[str, ...]:
        """What accuracy is told of."""
        return ("label",)

    @property
    def chance(self) -> float:
        """Accuracy of guessing evenly among the different labels: numbers, or all tokens."""
        return 1 / (len(self.values) or self.d_vocab)

    @property
    def n_wildcards(self) -> int:
        """Wildcards of the template that has most."""
        return max(len(one.wildcards) for one in self.labelled)

    def diversity(self, split: Split = "train") -> float:
        """rho: one over the probability of the likeliest symbol to occur in a string, least over templates.

        Source: template paper, data diversity of Theorem 3.4. With m symbols and w wildcards it is m / w.
        """
        return size_of(getattr(self, split)) / max(1, self.n_wildcards)

    def describe(self) -> dict:
        """The settings as plain values, for a manifest."""
        splits = {name: getattr(self, name) for name in SPLITS}
        return {
            "task": "template",
            "templates": [{"tokens": list(one.tokens), "label": one.label} for one in self.labelled],
            "form": self.form,
            "cls": self.cls,
            "weights": list(self.weights),
            **{name: value if isinstance(value, int) else list(value) for name, value in splits.items()},
        }

    @classmethod
    def from_description(cls, values: dict) -> "Template":
        """The task that `describe` described."""
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items() if name != "task"}
        templates = tuple(LabelledTemplate(tuple(one["tokens"]), one["label"]) for one in values["templates"])
        return cls(**{**values, "templates": templates})

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> TemplateBatch:
        """Fresh strings with the symbols of a split.

        Args:
            n: How many.
            generator: Decides them; the only randomness.
            split: Whose alphabet.

        Raises:
            ValueError: an unknown split.
        """
        check_split(split)
        weights = torch.tensor(self.weights or (1.0,) * len(self.labelled))
        template = torch.multinomial(weights, n, replacement=True, generator=generator)
        first = len(self.fixed) + sum(size_of(getattr(self, name)) for name in SPLITS[: SPLITS.index(split)])
        symbols = first + choose_distinct(n, size_of(getattr(self, split)), self.n_wildcards, generator)
        return self.fill(template, symbols)

    def fill(self, template: Int[Tensor, " batch"], symbols: Int[Tensor, "batch wildcard"]) -> TemplateBatch:
        """Strings in which the wildcards of a template, in order of appearance, became these symbols."""
        filled = self._fill(template, symbols)
        string, label = filled[:, :-1], filled[:, -1:]
        values = torch.zeros(len(string), self.n_ctx if self.form == "next_token" else 1)
        if self.form == "real":
            label = self._label_index[template][:, None]
            values = torch.tensor(self.values)[label]
        tokens = F.pad(string, (0, 1), value=self.fixed.index(CLS)) if self.cls else string
        last = tokens.shape[1] - 1
        if self.form == "next_token":
            positions, label = torch.arange(last + 1), torch.cat([tokens[:, 1:], label], 1)
        else:
            positions = torch.tensor([last])
        return TemplateBatch(
            tokens=tokens,
            target_positions=positions.expand(len(tokens), -1),
            labels=label,
            supervised=torch.ones(label.shape[1], dtype=torch.bool),
            template=template,
            values=values,
        )

    def read(self, text: str) -> TemplateBatch:
        """One example from a string written down, such as `t3 t7 t3` or, where it can be told apart, `t3t7t3`.

        Raises:
            ValueError: an unknown symbol, or a string that matches no template.
        """
        tokens = text.split()
        if len(tokens) == 1 and text.strip() not in self.vocab.ids:
            tokens = self.vocab.words(self.vocab.encode(text))
        unknown = [token for token in tokens if token not in self.vocab.ids]
        if unknown:
            shown = " ".join(self.vocab.names[:20])
            raise ValueError(f"the string {text!r} has the unknown symbol {unknown[0]!r}; known are {shown} ...")
        for index, one in enumerate(self.labelled):
            found = substitution(tokens, one, fixed=self.fixed)
            if found is not None:
                ids = [self.vocab.ids[symbol] for symbol in found.values()] + [0] * (self.n_wildcards - len(found))
                return self.fill(torch.tensor([index]), torch.tensor([ids]))
        shown = ", ".join(str(one) for one in self.labelled[:6])
        raise ValueError(f"the string {text!r} matches none of the {len(self.labelled)} templates ({shown}).")

    def disjoint_strings(self, copies: int) -> Int[Tensor, "template copy pos"]:
        """Every template filled in so many times, no symbol used twice; ids go beyond the vocabulary if need be.

        What a kernel or model is on these depends on templates alone.
        """
        n, width = len(self.labelled) * copies, self.n_wildcards
        template = torch.arange(len(self.labelled)).repeat_interleave(copies)
        symbols = len(self.fixed) + torch.arange(n * width).view(n, width)
        return self.fill(template, symbols).tokens.view(len(self.labelled), copies, -1)

    @cached_property
    def _table(self) -> Int[Tensor, "template column"]:
        """Tokens of each template and its label: n for its n-th wildcard, -1 - id for a fixed token, 0 for a number."""
        rows = []
        for one in self.labelled:
            number = {wildcard: index for index, wildcard in enumerate(one.wildcards)}
            columns = [*one.tokens, *([one.label] if isinstance(one.label, str) else [])]
            row = [number[token] if token in number else -1 - self.fixed.index(token) for token in columns]
            rows.append([*row, *([0] if isinstance(one.label, float) else [])])
        return torch.tensor(rows)

    @cached_property
    def _label_index(self) -> Int[Tensor, " template"]:
        return torch.tensor([self.values.index(one.label) for one in self.labelled if isinstance(one.label, float)])

    def _fill(
        self, template: Int[Tensor, " batch"], symbols: Int[Tensor, "batch wildcard"]
    ) -> Int[Tensor, "batch column"]:
        rows = self._table[template]
        symbols = F.pad(symbols, (0, 1))  # templates without wildcards have no symbol, and 0 stands for a number
        return torch.where(rows < 0, -1 - rows, symbols.gather(1, rows.clamp_min(0)))

    def loss(self, logits: Float[Tensor, "batch pos d_vocab_out"], batch: TemplateBatch) -> Float[Tensor, ""]:
        """Mean squared error of real labels, or cross entropy in nats of tokens: every next token, or the label.

        Source: template paper, Section 5. With labels -1 and +1 a constant answer has loss 1.
        """
        at_targets = logits_at_targets(logits, batch)
        if self.form == "real":
            return F.mse_loss(at_targets[..., 0], batch.values.to(logits.dtype))
        return F.cross_entropy(at_targets.flatten(0, 1), batch.labels.flatten())

    def answers(self, at_targets: Float[Tensor, "batch target d_vocab_out"]) -> Int[Tensor, "batch target"]:
        """The nearest real label's place among all, or the most likely token."""
        if self.form != "real":
            return at_targets.argmax(-1)
        values = torch.tensor(self.values, dtype=at_targets.dtype, device=at_targets.device)
        return (at_targets - values).abs().argmin(-1)

    def score(self, at_targets: Float[Tensor, "batch target d_vocab_out"], batch: TemplateBatch) -> Score:
        """Whether the label is right, and the squared error (real) or cross entropy (tokens) of it."""
        answer, label = at_targets[:, -1:], batch.labels[:, -1:]
        if self.form == "real":
            loss = (answer[..., 0] - batch.values.to(answer)).square()
        else:
            loss = F.cross_entropy(answer.transpose(1, 2), label, reduction="none")
        right = (self.answers(answer) == label).to(loss.dtype)
        return Score(right=right, loss=loss, total=torch.ones_like(loss))

    def probe_labels(self, batch: TemplateBatch) -> dict[str, Int[Tensor, "batch target"]]:
        """What there is to read: the real `label`'s place among all, and which `template` the string is of."""
        found = {"label": batch.labels} if self.form == "real" else {}
        return found | {"template": batch.template[:, None].expand_as(batch.labels)}

    def control_types(self, batch: TemplateBatch) -> Int[Tensor, "batch target"]:
        """The first token: the input type of a control task. Memory cannot score on test symbols, which are new."""
        return batch.tokens[:, :1].expand_as(batch.labels)

    def relations(self, batch: Batch) -> dict[str, Bool[Tensor, "batch query key"]]:
        """Which keys stand in which relation to each query.

        `same_symbol`: the same symbol elsewhere; fixed tokens have none. `same_template_position`: tokens that can be
        equal in one template and different in another, whatever they are here: where a reader who has seen the
        templates would look. `special`: `[CLS]`.
        """
        tokens = batch.tokens
        pos = tokens.shape[1]
        symbol = tokens >= len(self.fixed)
        elsewhere = ~torch.eye(pos, dtype=torch.bool, device=tokens.device)
        same = (tokens[:, :, None] == tokens[:, None, :]) & symbol[:, None] & elsewhere
        undecided = self._undecided.to(tokens.device)
        found = {"same_symbol": same, "same_template_position": undecided.expand(len(tokens), -1, -1)}
        if self.cls:
            found["special"] = (tokens == self.fixed.index(CLS))[:, None].expand(-1, pos, -1)
        return found

    @cached_property
    def _undecided(self) -> Bool[Tensor, "query key"]:
        """Pairs of positions that are equal in some template and not in another."""
        rows = self._table[:, :-1]
        equal = rows[:, :, None] == rows[:, None, :]
        undecided = equal.any(0) & ~equal.all(0)
        return F.pad(undecided, (0, 1, 0, 1)) if self.cls else undecided


@lru_cache
def _vocab(names: tuple[str, ...]) -> Vocab:
    return Vocab(names)
