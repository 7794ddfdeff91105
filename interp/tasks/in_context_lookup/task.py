"""The in-context lookup task: pairs of a key and a value, then the keys again, each answered by its value."""

from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from math import factorial, perm
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from hooks.checks import check_choice, check_number
from hooks.typed import check_field_types, checks_types
from interp.tasks.base import SPLITS, AttentionKind, Batch, Split, Task
from interp.tasks.contents import contents_of_split, draw_distinct, split_of
from interp.tasks.relations import earlier, same_token
from interp.tasks.splits import check_few_inputs
from interp.tasks.vocab import Vocab, vocab_of

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, kw_only=True)
class InContextLookup(Task):
    """Sequences like `d4 a2 f4 c0 f a d c`: pairs of a key and a value, then every key again; predict its value.

    Keys of a sequence are distinct letters, values independent numbers. The keys are asked for in a random order, so
    that no position says where the answer is: a model has to find the earlier occurrence of the key and read what
    follows it, as induction heads do (*associative recall*).

    A hash of its content assigns each sequence to one split: three quarters to training, one eighth each to validation
    and test.

    Source: associative retrieval of Ba et al. 2016 (arXiv:1610.06258) Section 4.1; induction heads, Olsson et al. 2022
    (arXiv:2209.11895). Differs: every key is asked for, not one.

    Raises:
        ValueError: fewer than two pairs, more pairs than keys, more than 26 keys, or fewer than two values.

    >>> from interp.tasks import InContextLookup
    >>> task = InContextLookup(n_pairs=3)
    >>> batch = task.read("a3 f1 c7 c f a")
    >>> batch.labels.tolist(), batch.target_positions.tolist()
    ([[7, 1, 3]], [[6, 7, 8]])
    """

    n_pairs: int = 6
    """Pairs of a sequence, and keys that are asked for."""
    n_keys: int = 16
    """Size of the alphabet of keys."""
    n_values: int = 16
    """Values are the numbers from 0 to one less."""

    target_names: ClassVar[str] = "query 1, query 2, ... are the values of the keys after the pairs, in their order."

    def __post_init__(self):
        check_field_types(self)
        check_number("n_keys", self.n_keys, integer=True, low=2, high=len(LETTERS))
        check_number("n_values", self.n_values, integer=True, low=2)
        check_number("n_pairs", self.n_pairs, integer=True, low=2)
        if self.n_pairs > self.n_keys:
            raise ValueError(
                f"n_pairs is {self.n_pairs}, more than the {self.n_keys} keys; the keys of a sequence are distinct."
            )

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Names of the keys, in the order of their token ids, which are those after the values."""
        return tuple(LETTERS[: self.n_keys])

    @property
    def vocab(self) -> Vocab:
        """Values, then keys."""
        return vocab_of((*map(str, range(self.n_values)), *self.keys))

    @property
    def d_vocab_out(self) -> int:
        """Number of values."""
        return self.n_values

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(f"query {index + 1}" for index in range(self.n_pairs))

    @property
    def n_ctx(self) -> int:
        """Two tokens for each pair, and one for each query."""
        return 3 * self.n_pairs

    @property
    def attention(self) -> AttentionKind:
        """Causal."""
        return "causal"

    @property
    def title(self) -> str:
        return "in-context lookup"

    def sample(self, n: int, *, generator: torch.Generator, split: Split = "train") -> Batch:
        """Sample n sequences of a split.

        Raises:
            ValueError: a negative n, an unknown split, or a split with too few sequences.
        """
        check_number("n", n, integer=True, low=0)
        check_choice("split", split, Split)

        def draw(count: int) -> Int[Tensor, "count pair field"]:
            keys = draw_distinct(count, self.n_keys, self.n_pairs, generator)
            values = torch.randint(self.n_values, keys.shape, generator=generator)
            asked = draw_distinct(count, self.n_pairs, self.n_pairs, generator)
            return torch.stack([keys, values, asked], -1)

        return self.from_content(contents_of_split(n, split, draw))

    def every_input(self, split: Split = "test") -> Batch:
        """Every sequence of a split, each once. `sample` draws them with equal probabilities.

        Raises:
            ValueError: an unknown split, or more than 131,072 sequences in all splits together.
        """
        check_choice("split", split, Split)
        n_sequences = perm(self.n_keys, self.n_pairs) * self.n_values**self.n_pairs * factorial(self.n_pairs)
        check_few_inputs(self, n_sequences, where="in all splits together")
        keys = list(permutations(range(self.n_keys), self.n_pairs))
        values = list(product(range(self.n_values), repeat=self.n_pairs))
        orders = list(permutations(range(self.n_pairs)))
        content = torch.tensor(list(product(keys, values, orders))).transpose(1, 2)
        return self.from_content(content[split_of(content) == SPLITS.index(split)])

    def from_content(self, content: Int[Tensor, "batch pair field"]) -> Batch:
        """Build sequences.

        Args:
            content: Three fields for each pair: its key, its value, and which pair the query at this place asks for.
        """
        keys, values, asked = content.unbind(-1)
        n = len(keys)
        key_tokens = self.n_values + keys
        pairs = torch.stack([key_tokens, values], -1).flatten(1)
        queries = key_tokens.gather(1, asked)
        positions = torch.arange(2 * self.n_pairs, self.n_ctx)
        return Batch(
            tokens=torch.cat([pairs, queries], 1),
            target_positions=positions.expand(n, -1).clone(),
            labels=values.gather(1, asked),
            supervised=torch.ones(self.n_pairs, dtype=torch.bool),
        )

    @checks_types
    def read(self, text: str) -> Batch:
        """Parse one sequence, such as `a3 f1 c7 c f a` for three pairs.

        Raises:
            ValueError: an unknown token, another number of tokens than the task has, tokens that are not pairs of a key
                and a value followed by keys, or queries that are not the keys of the pairs.
        """
        tokens = torch.tensor(self.vocab.encode(text))
        n_pairs = self.n_pairs
        form = f"give {n_pairs} pairs of a letter and a number, then the same letters in any order"
        if len(tokens) != self.n_ctx:
            raise ValueError(f"the text {text!r} has {len(tokens)} tokens, not {self.n_ctx}; {form}.")
        pairs = tokens[: 2 * n_pairs].view(n_pairs, 2)
        keys, values = pairs.unbind(1)
        queries = tokens[2 * n_pairs :]
        are_keys = bool((keys >= self.n_values).all()) and bool((queries >= self.n_values).all())
        if not are_keys or not bool((values < self.n_values).all()):
            raise ValueError(f"the text {text!r} has letters and numbers in another order; {form}.")
        matches = queries[:, None] == keys
        if not bool((matches.sum(0) == 1).all() and (matches.sum(1) == 1).all()):
            raise ValueError(f"the text {text!r} does not ask for every key once; {form}.")
        content = torch.stack([keys - self.n_values, values, matches.int().argmax(1)], -1)
        return self.from_content(content[None])

    def relations(self, batch: Batch) -> dict[str, Bool[Tensor, "batch query key"]]:
        """Attention relations: for each query, the keys that are related to it.

        `same_token`: the earlier occurrences of the query's token. `induction`: the token after each of them, up to the
        query. The token before the query, which a model needs too, is related in every task.
        """
        same = earlier(same_token(batch.tokens))
        return {"same_token": same, "induction": same.roll(1, 2).tril()}

    @property
    def default_sizes(self) -> dict[str, Any]:
        """Two layers of one attention head, no MLP: one head to see what came before, and one to look it up."""
        return {"n_layers": 2, "n_heads": 1, "d_mlp": 0}

    def recipe(self) -> dict[str, Any]:
        """A high learning rate, with which induction forms within a few hundred steps."""
        return {"steps": 1000, "batch_size": 64, "learning_rate": 3e-3}
