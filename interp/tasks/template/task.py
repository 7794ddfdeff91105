"""The template task: strings over abstract symbols, labelled by which symbols are equal."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from math import perm
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.checks import check_choice, check_class, check_number
from hooks.typed import check_field_types, checks_types
from interp.tasks.base import SPLITS, AttentionKind, Batch, Score, Split, Task
from interp.tasks.batch import check_target_logits, likeliest
from interp.tasks.fields import json_value
from interp.tasks.relations import for_every_query, same_token
from interp.tasks.splits import check_few_inputs
from interp.tasks.template.alphabets import Alphabet, check_alphabets, names_of, size_of
from interp.tasks.template.families import ready_templates
from interp.tasks.template.language import LabelledTemplate, check_templates, is_wildcard, read_template
from interp.tasks.template.sampling import draw_distinct, reorder_symbols
from interp.tasks.template.strings import TemplateBatch, parse_string, template_table, undecided_pairs
from interp.tasks.vocab import Vocab, vocab_of

Form = Literal["real", "symbolic", "next_token"]
CLS = "[CLS]"


@dataclass(frozen=True, kw_only=True)
class Template(Task):
    """Predict the label of strings like `t3 t7 t3`: a template whose wildcards are replaced by distinct symbols.

    Training, validation and test strings use disjoint alphabets, so a solution must depend on which symbols are equal
    and not on their identity. Templates are drawn by weight, symbols uniformly.

    Three forms. `real`: `[CLS]` follows the string and the output there is a number. `symbolic`: the output is a
    token, read at `[CLS]` or, without it, at the last token. `next_token`: a causal model predicts every next token,
    the label being the last. Default: `real` if labels are numbers, `symbolic` if they are tokens.

    Accuracy is reported for the label: the nearest real label, or the most likely token.

    Source: template paper (arXiv:2310.09753) Section 3 and released data. Differs: ids of wildcards are not reserved.

    Raises:
        ValueError: no templates, templates of different lengths, two that overlap, real and symbolic labels mixed or
            of the wrong type for the form, an alphabet that is too small, overlaps another or contains a fixed token,
            or invalid weights.

    >>> from interp.tasks import Template
    >>> task = Template(templates=("aba -> +1", "abb -> -1"), train=8)
    >>> batch = task.read("t3 t7 t7")
    >>> task.vocab.words(batch.tokens[0]), batch.values.tolist()
    (['t3', 't7', 't7', '[CLS]'], [[-1.0]])
    """

    templates: Sequence[LabelledTemplate | str] | str = "aba_abb"
    """Templates as text (`aba -> +1`; single lower-case letters are wildcards), or the name of a ready-made family."""
    form: Form | None = None
    cls: bool | None = None
    """Whether `[CLS]` follows the string; default: in the real form only."""
    train: Alphabet = 256
    """The alphabet of training strings: number of symbols, or their names."""
    validation: Alphabet = 100
    test: Alphabet = 100
    weights: tuple[float, ...] = ()
    """Sampling weights of the templates; default: equal."""

    text_options: ClassVar = {"templates": (list[str], "A family (aba_abb, copy, ...) or 'aba -> +1'; repeatable.")}
    option_names: ClassVar = {"train": "n"}
    command_line_defaults: ClassVar = {"d_model": 32, "n_heads": 4}

    def __post_init__(self):
        check_field_types(self)
        templates = self._parsed_templates()
        # defaults that follow from the labels
        has_real_label = isinstance(getattr(templates[0], "label", None), float)
        default_form = "real" if has_real_label else "symbolic"
        form = self.form or default_form
        check_choice("form", form, Form)
        is_real = form == "real"
        # fields as values that can be hashed and compared
        values: dict[str, Any] = {
            "templates": templates,
            "form": form,
            "cls": is_real if self.cls is None else bool(self.cls),
            "weights": tuple(float(weight) for weight in self.weights),
        }
        for split in SPLITS:
            alphabet = getattr(self, split)
            values[split] = alphabet if isinstance(alphabet, int) else tuple(alphabet)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        # whether they fit together
        check_templates(self.labelled, real=is_real, weights=self.weights)
        if self.cls != is_real and form != "symbolic":
            place = "at [CLS]; use cls=True" if is_real else "after the last token; use cls=False"
            raise ValueError(f"cls is {self.cls}, but in form {form!r} the label is predicted {place}.")
        alphabets: dict[Split, Alphabet] = {split: self._alphabet(split) for split in SPLITS}
        check_alphabets(alphabets, fixed=self.fixed, most=self.n_wildcards)

    def _parsed_templates(self) -> tuple[LabelledTemplate, ...]:
        """The templates of a family, or those given, of which some may be text."""
        templates = ready_templates(self.templates) if isinstance(self.templates, str) else self.templates
        check_class("templates", templates, Sequence)
        if not templates:
            raise ValueError("templates is empty; give at least one.")
        parsed_templates = []
        for template in templates:
            parsed_templates.append(read_template(template) if isinstance(template, str) else template)
        return tuple(parsed_templates)

    @property
    def labelled(self) -> tuple[LabelledTemplate, ...]:
        """The parsed templates."""
        return self.templates  # type: ignore[return-value]  # parsed in __post_init__

    def alphabet(self, split: Split) -> Sequence[str]:
        """Names of the symbols of a split."""
        return names_of(self._alphabet(split), split)

    def _alphabet(self, split: Split) -> Alphabet:
        return getattr(self, split)

    def _symbol_ids(self, split: Split) -> range:
        """Ids of the symbols of a split: after the fixed tokens and the symbols of earlier splits."""
        sizes = [size_of(self._alphabet(name)) for name in SPLITS[: SPLITS.index(split)]]
        start = len(self.fixed) + sum(sizes)
        return range(start, start + size_of(self._alphabet(split)))

    @cached_property
    def fixed(self) -> tuple[str, ...]:
        """Fixed tokens, in strings and labels, and `[CLS]`."""
        tokens = [token for template in self.labelled for token in template.tokens]
        tokens += [template.label for template in self.labelled if isinstance(template.label, str)]
        fixed = tuple(dict.fromkeys(token for token in tokens if not is_wildcard(token)))
        return (*fixed, CLS) if self.cls else fixed

    @cached_property
    def values(self) -> tuple[float, ...]:
        """Distinct real labels in increasing order; empty in the other forms."""
        return tuple(sorted({template.label for template in self.labelled if isinstance(template.label, float)}))

    @property
    def vocab(self) -> Vocab:
        """Fixed tokens, then the symbols of training, validation and test."""
        return vocab_of((*self.fixed, *(name for split in SPLITS for name in self.alphabet(split))))

    @property
    def d_vocab(self) -> int:
        """Number of tokens: fixed ones, and the symbols of all splits."""
        return self._symbol_ids("test").stop

    @property
    def d_vocab_out(self) -> int:
        """1 in the real form, else the number of tokens."""
        return 1 if self.form == "real" else self.d_vocab

    @property
    def n_ctx(self) -> int:
        """Tokens of a string, including `[CLS]`."""
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
        return ("label",)

    @property
    def chance(self) -> float:
        """Accuracy of uniform guessing among the distinct real labels, or among all tokens."""
        return 1 / (len(self.values) or self.d_vocab)

    @property
    def answer_names(self) -> tuple[str, ...]:
        """The real labels, or the tokens."""
        return tuple(f"{value:+g}" for value in self.values) or tuple(self.vocab.names)

    @property
    def disjoint_splits(self) -> bool:
        """True unless a template has no wildcard, and so is the same in every split."""
        return all(template.wildcards for template in self.labelled)

    @property
    def title(self) -> str:
        return "template strings"

    @property
    def description(self) -> str:
        """Templates, form and number of training symbols."""
        templates = ", ".join(map(str, self.labelled[:4]))
        if len(self.labelled) > 4:
            templates += f" and {len(self.labelled) - 4} more"
        return f"templates: {templates}; {self.form} labels, {size_of(self.train)} training symbols"

    @property
    def default_family(self) -> str:
        return "template"

    def recipe(self) -> dict[str, Any]:
        """One string per training symbol, as in the paper; the best validation loss; a higher rate for b_h."""
        return {
            "steps": 300,
            "batch_size": 128,
            "n_train": size_of(self.train),
            "eval_every": 25,
            "keep": "best",
            "learning_rate": 2e-3,
            "weight_decay": 0.0,
            "vo_identity_rate": 10.0,
        }

    @classmethod
    def from_options(cls, **options: Any) -> "Template":
        """Build the task; `templates` is a list: the name of a family, or templates as text."""
        templates = options.get("templates")
        if templates:
            is_family = len(templates) == 1 and "->" not in templates[0]
            options["templates"] = templates[0] if is_family else tuple(templates)
        return cls(**options)

    @classmethod
    def command_line_sizes(cls, family: str | None, sizes: dict[str, Any]) -> dict[str, Any]:
        """Heads of width 16 and an MLP of twice the width, for the preset of this task."""
        if family not in (None, "template"):
            return sizes
        return {"d_head": 16, "d_mlp": 2 * sizes["d_model"], **sizes}

    @property
    def n_wildcards(self) -> int:
        """Largest number of wildcards of a template."""
        return max(len(template.wildcards) for template in self.labelled)

    def diversity(self, split: Split = "train") -> float:
        """Data diversity rho: 1 / max over symbols of the probability that it occurs in a string, least over templates.

        Source: template paper, Definition 4.2. With m symbols and w wildcards it is m / w.
        """
        return size_of(self._alphabet(split)) / max(1, self.n_wildcards)

    def describe(self) -> dict:
        """Settings as plain values, for a manifest."""
        templates = [{"tokens": list(template.tokens), "label": template.label} for template in self.labelled]
        settings = {name: json_value(getattr(self, name), name, self) for name in ("form", "cls", "weights", *SPLITS)}
        return {"task": self.task_name, "templates": templates, **settings}

    @classmethod
    def from_description(cls, values: dict) -> "Template":
        templates = [LabelledTemplate(tuple(row["tokens"]), row["label"]) for row in values["templates"]]
        return super().from_description({**values, "templates": templates})

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> TemplateBatch:
        """Sample strings with the symbols of a split.

        Args:
            n: Number of strings.
            generator: The only source of randomness.
            split: `train`, `validation` or `test`, which have disjoint alphabets.

        Raises:
            ValueError: an unknown split.
        """
        check_number("n", n, integer=True, low=0)
        check_choice("split", split, Split)
        # a template by weight, and distinct symbols for its wildcards
        weights = torch.tensor(self.weights or (1.0,) * len(self.labelled), dtype=torch.float32)
        template = torch.multinomial(weights, n, replacement=True, generator=generator)
        ids = self._symbol_ids(split)
        symbols = ids.start + draw_distinct(n, len(ids), self.n_wildcards, generator)
        return self.fill(template, symbols)

    def every_input(self, split: Split = "test") -> TemplateBatch:
        """Every string of a split once: each template with each choice of distinct symbols for its wildcards.

        Each counts once: `sample` draws templates with their weights, and the strings of a template equally often.

        Raises:
            ValueError: an unknown split, or more than 131,072 strings (says how many).
        """
        check_choice("split", split, Split)
        ids = self._symbol_ids(split)
        weights = self.weights or (1.0,) * len(self.labelled)
        sizes = [len(template.wildcards) for template in self.labelled]
        drawn = [index for index, weight in enumerate(weights) if weight > 0]
        check_few_inputs(self, sum(perm(len(ids), sizes[index]) for index in drawn))
        # templates with fewer wildcards leave the last columns unused
        templates, symbols = [], []
        for index in drawn:
            choices = torch.tensor(list(permutations(ids, sizes[index])), dtype=torch.long)
            templates.append(torch.full((len(choices),), index))
            symbols.append(F.pad(choices, (0, self.n_wildcards - sizes[index])))
        return self.fill(torch.cat(templates), torch.cat(symbols))

    def fill(self, template: Int[Tensor, " batch"], symbols: Int[Tensor, "batch wildcard"]) -> TemplateBatch:
        """Build strings from templates and the symbols of their wildcards, in order of appearance."""
        # templates without wildcards have no symbol, and an entry of 0 is also a real label
        symbols = F.pad(symbols, (0, 1))
        # fixed tokens are negative entries of the table, wildcards the others; the last column is the label
        entries = self._table[template]
        rows = torch.where(entries < 0, -1 - entries, symbols.gather(1, entries.clamp_min(0)))
        tokens, labels = rows[:, :-1], rows[:, -1:]
        if self.cls:
            tokens = F.pad(tokens, (0, 1), value=self.fixed.index(CLS))
        # the label of each form: a number, one token, or every next token
        n_targets = self.n_ctx if self.form == "next_token" else 1
        values = torch.zeros(len(tokens), n_targets)
        if self.form == "real":
            labels = self._label_index[template][:, None]
            values = torch.tensor(self.values)[labels]
        if self.form == "next_token":
            labels = torch.cat([tokens[:, 1:], labels], 1)
        # the last positions of the string
        target_positions = torch.arange(tokens.shape[1])[-n_targets:].expand(len(tokens), -1)
        return TemplateBatch(
            tokens=tokens,
            target_positions=target_positions,
            labels=labels,
            supervised=torch.ones(n_targets, dtype=torch.bool),
            template=template,
            values=values,
        )

    @checks_types
    def read(self, text: str) -> TemplateBatch:
        """Parse one example, such as `t3 t7 t3` or, if unambiguous, `t3t7t3`.

        Raises:
            ValueError: an unknown symbol, or a string that matches no template.
        """
        index, symbols = parse_string(text, self.labelled, self.vocab, fixed=self.fixed)
        padding = [0] * (self.n_wildcards - len(symbols))
        return self.fill(torch.tensor([index]), torch.tensor([symbols + padding]))

    def disjoint_strings(self, copies: int) -> Int[Tensor, "template copy pos"]:
        """Fill every template `copies` times without repeating a symbol; ids may exceed the vocabulary.

        On these strings a kernel depends on the templates only.
        """
        n_templates = len(self.labelled)
        template = torch.arange(n_templates).repeat_interleave(copies)
        # further symbols for every string
        ids = torch.arange(len(template) * self.n_wildcards)
        symbols = len(self.fixed) + ids.view(len(template), self.n_wildcards)
        return self.fill(template, symbols).tokens.view(n_templates, copies, -1)

    @cached_property
    def _table(self) -> Int[Tensor, "template column"]:
        return template_table(self.labelled, fixed=self.fixed)

    @cached_property
    def _label_index(self) -> Int[Tensor, " template"]:
        """Index of each template's real label among the distinct ones."""
        labels = [template.label for template in self.labelled if isinstance(template.label, float)]
        return torch.tensor([self.values.index(label) for label in labels])

    def loss_at_targets(
        self, target_logits: Float[Tensor, "batch target d_vocab_out"], batch: TemplateBatch
    ) -> Float[Tensor, ""]:
        """Mean squared error of real labels, or cross entropy in nats of tokens: every next token, or the label.

        Source: template paper, Definition 3.3. With labels -1 and +1 a constant prediction has loss 1.
        """
        check_target_logits(target_logits, batch)
        if self.form == "real":
            return F.mse_loss(target_logits[..., 0], batch.values.to(target_logits.dtype))
        return F.cross_entropy(target_logits.flatten(0, 1), batch.labels.flatten())

    def answers(self, target_logits: Float[Tensor, "batch target d_vocab_out"]) -> Int[Tensor, "batch target"]:
        """Index of the nearest real label, or the most likely token."""
        if self.form != "real":
            return likeliest(target_logits)
        values = torch.tensor(self.values, dtype=target_logits.dtype, device=target_logits.device)
        return likeliest(-(target_logits - values).abs())

    def score(self, target_logits: Float[Tensor, "batch target d_vocab_out"], batch: TemplateBatch) -> Score:
        """Correctness of the label, and its squared error (real) or cross entropy (tokens)."""
        check_target_logits(target_logits, batch)
        output, label = target_logits[:, -1:], batch.labels[:, -1:]
        if self.form == "real":
            loss = (output[..., 0] - batch.values.to(output)).square()
        else:
            loss = F.cross_entropy(output.transpose(1, 2), label, reduction="none")
        right = (self.answers(output) == label).to(loss.dtype)
        return Score(right=right, loss=loss, total=torch.ones_like(loss))

    def probe_labels(self, batch: TemplateBatch) -> dict[str, Int[Tensor, "batch target"]]:
        """Probe labels: the index of the real `label`, and the index of the `template`."""
        template = batch.template[:, None].expand_as(batch.labels)
        if self.form == "real":
            return {"label": batch.labels, "template": template}
        return {"template": template}

    def control_types(self, batch: TemplateBatch) -> Int[Tensor, "batch target"]:
        """Input type for control tasks: the first token. Memorising types does not help on unseen test symbols."""
        return batch.tokens[:, :1].expand_as(batch.labels)

    def counterparts(self, batch: TemplateBatch, *, generator: torch.Generator, split: Split = "test") -> TemplateBatch:
        """Random templates with the symbols of each string in another order, and further ones where it has too few."""
        ids = self._symbol_ids(split)
        symbols = reorder_symbols(batch.tokens, len(self.fixed), ids, self.n_wildcards, generator)
        template = self.sample(len(batch), generator=generator, split=split).template
        return self.fill(template, symbols)

    def relations(self, batch: Batch) -> dict[str, Bool[Tensor, "batch query key"]]:
        """Attention relations: for each query, the keys that are related to it.

        `same_symbol`: the same symbol at another position; none for fixed tokens. `same_template_position`: positions
        whose tokens are equal in one template and different in another, whatever they are in this string. `special`:
        `[CLS]`.
        """
        tokens = batch.tokens
        is_symbol = tokens >= len(self.fixed)
        # the table has no column for [CLS], which is in no pair
        n_marks = int(bool(self.cls))
        undecided = F.pad(undecided_pairs(self._table[:, :-1]), (0, n_marks, 0, n_marks)).to(tokens.device)
        relations = {
            "same_symbol": same_token(tokens) & is_symbol[:, None],
            "same_template_position": undecided.expand(len(tokens), -1, -1),
        }
        if self.cls:
            relations["special"] = for_every_query(tokens == self.fixed.index(CLS))
        return relations
