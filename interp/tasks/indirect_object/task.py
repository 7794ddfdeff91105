"""The indirect-object task: two names, one of them again, and the other one is the answer."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from hooks.checks import check_choice, check_number
from hooks.typed import check_field_types, checks_types
from interp.tasks.base import AttentionKind, Batch, Split, Task
from interp.tasks.relations import keys_at
from interp.tasks.splits import check_few_inputs, rows_of_split
from interp.tasks.vocab import Vocab, vocab_of

BOS = "[BOS]"
NAMES = (
    "alice", "bob", "carol", "dan", "erin", "frank", "grace", "heidi", "ivan", "judy", "kim", "leo", "mary", "nick",
    "olga", "paul", "quinn", "rosa", "sam", "tina", "uma", "victor", "wendy", "xavier", "yara", "zoe",
)  # fmt: skip
PLACES = ("store", "park", "school", "garden")
OBJECTS = ("ring", "book", "kiss", "drink")
TEMPLATES = (
    "one day when A and B went to the PLACE , S gave a OBJECT to",
    "A met B , then S took a OBJECT from the PLACE and gave it to",
    "A and B had a OBJECT . one day at the PLACE S gave it to",
    "at the PLACE A and B talked . S took a OBJECT and gave it to",
)
"""Sentences of the same kind with the names at other places. A and B are names, S is one of them again."""
SLOTS = ("A", "B", "S", "PLACE", "OBJECT")


@dataclass(frozen=True, kw_only=True)
class IndirectObjectBatch(Batch):
    """Sentences with two names."""

    names: Int[Tensor, "batch 2"]
    """The two names, in the order of the sentence."""
    name_positions: Int[Tensor, "batch 3"]
    """Positions of the first name, the second one, and the repeated one."""
    repeated: Int[Tensor, " batch"]
    """Which of the two names is repeated: 0 or 1."""

    answer_fields: ClassVar[tuple[str, ...]] = ("labels", "repeated")


@dataclass(frozen=True, kw_only=True)
class IndirectObject(Task):
    """Sentences like `one day when alice and bob went to the store , bob gave a ring to`: predict the other name.

    Names are drawn without replacement, and either is repeated with probability one half. A fixed permutation assigns
    each unordered pair of names to one split: three quarters to training, one eighth each to validation and test. So a
    model has met both names of a held-out sentence, but never together.

    Source: indirect object identification (IOI), Wang et al. 2022 (arXiv:2211.00593). Differs: a synthetic vocabulary,
    and models that are trained on these sentences alone.

    Raises:
        ValueError: fewer than 5 names or more than 26; no templates, equal ones, or ones of different lengths; a
            template without A, B and S in this order, or without `to` at its end.

    >>> from interp.tasks import IndirectObject
    >>> task = IndirectObject()
    >>> batch = task.read("one day when alice and bob went to the store , bob gave a ring to")
    >>> task.answer_names[batch.labels[0, 0]]
    'alice'
    """

    n_names: int = 24
    """Number of names."""
    templates: tuple[str, ...] = TEMPLATES
    """Sentences with A and B for the names, S for the repeated one, and PLACE and OBJECT, all of the same length."""

    def __post_init__(self):
        check_field_types(self)
        check_number("n_names", self.n_names, integer=True, low=5, high=len(NAMES))
        if not self.templates or len(set(self.templates)) < len(self.templates):
            raise ValueError("templates is empty or has one of them twice; give at least one, all different.")
        for template in self.templates:
            _check_template(template)
        lengths = [len(template.split()) for template in self.templates]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"templates have {', '.join(map(str, lengths))} words; give them the same length, so that no sentence "
                f"is padded."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names, whose token ids are the first ones."""
        return NAMES[: self.n_names]

    @property
    def vocab(self) -> Vocab:
        """Names, `[BOS]`, the words of the templates, places and objects."""
        words = [word for template in self.templates for word in template.split() if word not in SLOTS]
        return vocab_of(tuple(dict.fromkeys([*self.names, BOS, *words, *PLACES, *OBJECTS])))

    @property
    def d_vocab_out(self) -> int:
        """Number of names."""
        return self.n_names

    @property
    def answer_names(self) -> tuple[str, ...]:
        return self.names

    @property
    def targets(self) -> tuple[str, ...]:
        return ("indirect object",)

    @property
    def n_ctx(self) -> int:
        """`[BOS]` and a sentence."""
        return 1 + len(self.templates[0].split())

    @property
    def attention(self) -> AttentionKind:
        """Causal."""
        return "causal"

    @property
    def title(self) -> str:
        return "indirect objects"

    @property
    def description(self) -> str:
        """Number of names and templates."""
        return f"indirect objects: {self.n_names} names, {len(self.templates)} templates"

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> IndirectObjectBatch:
        """Sample n sentences whose pair of names belongs to a split.

        Raises:
            ValueError: a negative n, or an unknown split.
        """
        check_number("n", n, integer=True, low=0)
        pairs = self._ordered_pairs(split)
        names = pairs[torch.randint(len(pairs), (n,), generator=generator)]
        sizes = (2, len(self.templates), len(PLACES), len(OBJECTS))
        choices = [torch.randint(size, (n,), generator=generator) for size in sizes]
        return self.from_content(torch.cat([names, torch.stack(choices, 1)], 1))

    def every_input(self, split: Split = "test") -> IndirectObjectBatch:
        """Every sentence of a split, each once. `sample` draws them with equal probabilities.

        A template without a place or an object gives the same sentence for each of them, which is listed once.

        Raises:
            ValueError: an unknown split, or more than 131,072 sentences.
        """
        pairs = self._ordered_pairs(split)
        choices = []
        for index, template in enumerate(self.templates):
            places = range(len(PLACES) if "PLACE" in template.split() else 1)
            objects = range(len(OBJECTS) if "OBJECT" in template.split() else 1)
            choices += list(product(range(2), [index], places, objects))
        check_few_inputs(self, len(pairs) * len(choices))
        rows = torch.cartesian_prod(torch.arange(len(pairs)), torch.arange(len(choices)))
        return self.from_content(torch.cat([pairs[rows[:, 0]], torch.tensor(choices)[rows[:, 1]]], 1))

    def _ordered_pairs(self, split: Split) -> Int[Tensor, "pair 2"]:
        """The pairs of different names of a split, in either order."""
        check_choice("split", split, Split)
        pairs = torch.combinations(torch.arange(self.n_names))
        pairs = pairs[rows_of_split(len(pairs), split)]
        return torch.cat([pairs, pairs.flip(1)])

    def from_content(self, content: Int[Tensor, "batch field"]) -> IndirectObjectBatch:
        """Build sentences.

        Args:
            content: For each sentence the first name, the second name, which of them is repeated (0 or 1), the
                template, the place and the object.
        """
        names = content[:, :2]
        repeated, template, place, thing = content[:, 2:].unbind(1)
        subject = names.gather(1, repeated[:, None])
        ids = self.vocab.ids
        # the token of each slot, in the order of SLOTS
        fillers = torch.cat([names, subject, ids[PLACES[0]] + place[:, None], ids[OBJECTS[0]] + thing[:, None]], 1)
        # a table of the templates: negative entries are slots
        entries = self._table[template]
        tokens = torch.where(entries < 0, fillers.gather(1, (-1 - entries).clamp_min(0)), entries)
        n = len(content)
        return IndirectObjectBatch(
            tokens=tokens,
            target_positions=torch.full((n, 1), self.n_ctx - 1),
            labels=names.gather(1, 1 - repeated[:, None]),
            supervised=torch.ones(1, dtype=torch.bool),
            names=names,
            name_positions=self._name_positions[template],
            repeated=repeated,
        )

    @cached_property
    def _table(self) -> Int[Tensor, "template pos"]:
        """The tokens of each template; -1 for the first of SLOTS, -2 for the second, and so on."""
        ids = self.vocab.ids | {slot: -1 - index for index, slot in enumerate(SLOTS)}
        return torch.tensor([[ids[word] for word in (BOS, *template.split())] for template in self.templates])

    @cached_property
    def _name_positions(self) -> Int[Tensor, "template 3"]:
        """Positions of A, B and S in each template."""
        return torch.stack([(self._table == -1 - index).int().argmax(1) for index in range(3)], 1)

    @checks_types
    def read(self, text: str) -> IndirectObjectBatch:
        """Parse one sentence of a template; `[BOS]` is optional.

        Raises:
            ValueError: an unknown token, or a sentence of no template.
        """
        tokens = [token for token in self.vocab.encode(text) if token != self.vocab.ids[BOS]]
        words = self.vocab.words(tokens)
        for index, template in enumerate(self.templates):
            content = _match(words, template.split(), self.names)
            if content is not None:
                names, repeated, place, thing = content
                return self.from_content(torch.tensor([[*names, repeated, index, place, thing]]))
        raise ValueError(
            f"the text {text!r} is a sentence of no template; the first one is {self.templates[0]!r}, with different "
            f"names for A and B, and one of them for S."
        )

    def text(self, tokens: Int[Tensor, " pos"]) -> str:
        """Words with spaces between them."""
        return " ".join(self.vocab.words(tokens))

    def probe_labels(self, batch: IndirectObjectBatch) -> dict[str, Int[Tensor, "batch target"]]:
        """The `indirect_object`, which is the answer, and the `subject`, which is the repeated name."""
        return {"indirect_object": batch.labels, "subject": batch.names.gather(1, batch.repeated[:, None])}

    def control_types(self, batch: IndirectObjectBatch) -> Int[Tensor, "batch target"]:
        """Input type for control tasks: the two names in their order, and which one is repeated, as one number.

        Differs: Hewitt and Liang use the token, which is `to` in every sentence.
        """
        pair = batch.names[:, :1] * self.n_names + batch.names[:, 1:]
        return 2 * pair + batch.repeated[:, None]

    def strata(self, batch: IndirectObjectBatch) -> dict[str, Bool[Tensor, " batch"]]:
        """Sentences by which of the names is repeated."""
        return {"first name repeated": batch.repeated == 0, "second name repeated": batch.repeated == 1}

    def counterparts(
        self, batch: IndirectObjectBatch, *, generator: torch.Generator, split: Split = "test"
    ) -> IndirectObjectBatch:
        """The same sentences with their names in either order, of which either is repeated.

        So which name is repeated and which place is repeated vary apart.
        """
        first = torch.randint(2, (len(batch), 1), generator=generator)
        names = batch.names.gather(1, torch.cat([first, 1 - first], 1))
        repeated = torch.randint(2, batch.repeated.shape, generator=generator)
        again = names.gather(1, repeated[:, None])
        tokens = batch.tokens.scatter(1, batch.name_positions, torch.cat([names, again], 1))
        labels = names.gather(1, 1 - repeated[:, None])
        return replace(batch, tokens=tokens, labels=labels, names=names, repeated=repeated)

    def relations(self, batch: IndirectObjectBatch) -> dict[str, Bool[Tensor, "batch query key"]]:
        """Attention relations: for each query, the keys that are related to it.

        `duplicate`: from the repeated name to its first mention. `subject`: from the last token to both mentions of the
        repeated name. `indirect_object`: from the last token to the name not repeated. `special`: `[BOS]`, for every
        query. The token before the query is related in every task.

        Source: duplicate-token, S-inhibition and name-mover heads of arXiv:2211.00593, Section 3.
        """
        n, pos = batch.tokens.shape
        first, second, repetition = batch.name_positions.unbind(1)
        subject = torch.where(batch.repeated == 0, first, second)
        indirect_object = torch.where(batch.repeated == 0, second, first)
        last = torch.full_like(repetition, pos - 1)
        special = torch.zeros(n, pos, pos, dtype=torch.bool, device=batch.tokens.device)
        special[:, :, 0] = True
        return {
            "duplicate": _relation(pos, repetition, subject),
            "subject": _relation(pos, last, subject) | _relation(pos, last, repetition),
            "indirect_object": _relation(pos, last, indirect_object),
            "special": special,
        }

    @property
    def default_sizes(self) -> dict[str, Any]:
        """Two layers of two attention heads, no MLP."""
        return {"n_layers": 2, "n_heads": 2, "d_mlp": 0}

    def recipe(self) -> dict[str, Any]:
        """A high learning rate, with which it is learned within a thousand steps."""
        return {"steps": 1000, "batch_size": 64, "learning_rate": 3e-3}


def _relation(pos: int, query: Int[Tensor, " batch"], key: Int[Tensor, " batch"]) -> Bool[Tensor, "batch query key"]:
    """One key for one query of each sequence."""
    positions = torch.full((len(query), pos, 1), -1, device=query.device)
    positions[torch.arange(len(query)), query, 0] = key
    return keys_at(positions)


def _check_template(template: str) -> None:
    """Check that a template has the names in their order.

    Raises:
        ValueError: names that are missing, repeated or in another order, or a last word other than `to`.
    """
    words = template.split()
    counts = [words.count(slot) for slot in ("A", "B", "S")]
    if counts != [1, 1, 1] or not words.index("A") < words.index("B") < words.index("S"):
        raise ValueError(f"the template {template!r} must have A, B and S once each, in this order.")
    if words[-1] != "to":
        raise ValueError(
            f"the template {template!r} ends with {words[-1]!r}; it must end with 'to', where the answer is due."
        )
    taken = [word for word in words if word in (*NAMES, *PLACES, *OBJECTS, BOS)]
    if taken:
        raise ValueError(f"the template {template!r} has {taken[0]!r}; write A, B, S, PLACE or OBJECT in its place.")


def _match(words: list[str], template: list[str], names: tuple[str, ...]) -> tuple[list[int], int, int, int] | None:
    """The names, which of them is repeated, the place and the object of a sentence; None if it is not of a template."""
    if len(words) != len(template):
        return None
    fillers = {slot: word for word, slot in zip(words, template, strict=True) if slot in SLOTS}
    if any(word != slot for word, slot in zip(words, template, strict=True) if slot not in SLOTS):
        return None
    pair = [fillers["A"], fillers["B"]]
    place = fillers.get("PLACE", PLACES[0])
    thing = fillers.get("OBJECT", OBJECTS[0])
    known = set(pair) <= set(names) and place in PLACES and thing in OBJECTS
    if not known or pair[0] == pair[1] or fillers["S"] not in pair:
        return None
    return [names.index(name) for name in pair], pair.index(fillers["S"]), PLACES.index(place), OBJECTS.index(thing)
