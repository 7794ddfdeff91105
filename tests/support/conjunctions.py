"""Tasks with one yes or no for each input, models that answer them, and variables that these have or cannot have."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

import interp
from hooks import Transformer, TransformerConfig
from interp.algorithms import Algorithm, Variable
from interp.known_answers.craft.weights import SHARP, Registers, bias_of, empty_model, head_rows, mlp_of, position_table
from interp.tasks.base import Batch, Task
from interp.tasks.vocab import Vocab

NO, YES = 0, 1


@dataclass(frozen=True)
class Conjunction(Task):
    """Is no pair of tokens a bad one? Half of the sampled inputs are a yes, half of the others have one bad pair."""

    name: str = "palindrome"
    length: int = 8
    symbols: int = 2
    pairs: tuple[tuple[int, int], ...] = ()
    """Positions of each pair."""
    bad: tuple[tuple[int, int], ...] = ()
    """Symbols of a bad pair."""

    disjoint_splits = False

    @property
    def vocab(self):
        return Vocab((*map(str, range(self.symbols)), "?"))

    targets = ("answer",)
    answer_names = ("no", "yes")
    d_vocab_out = 2

    @cached_property
    def strings(self):
        """Every string of symbols."""
        return torch.cartesian_prod(*[torch.arange(self.symbols)] * self.length)

    def flags(self, strings):
        """Whether each pair of each string is a bad one, (string, pair)."""
        is_bad = torch.zeros(self.symbols, self.symbols, dtype=torch.bool)
        is_bad[tuple(zip(*self.bad, strict=True))] = True
        first, second = zip(*self.pairs, strict=True)
        return is_bad[strings[:, list(first)], strings[:, list(second)]]

    @cached_property
    def _numbers(self):
        """Rows of the strings with a yes, with one bad pair, and with a no."""
        n_bad = self.flags(self.strings).sum(1)
        return [rows.nonzero()[:, 0] for rows in (n_bad == 0, n_bad == 1, n_bad > 0)]

    def batch(self, strings):
        end = torch.full((len(strings), 1), self.symbols)
        return Batch(
            tokens=torch.cat([strings, end], 1),
            target_positions=torch.full((len(strings), 1), self.length),
            labels=(~self.flags(strings).any(1, keepdim=True)).long(),
            supervised=torch.ones(1, dtype=torch.bool),
        )

    def sample(self, n, *, generator, split="train"):
        kind = torch.randint(4, (n,), generator=generator)
        rows = torch.zeros(n, dtype=torch.long)
        for number, choices in zip((0, 1, 2), self._numbers, strict=True):
            here = (kind == number) | ((number == 0) & (kind == 3))
            rows[here] = choices[torch.randint(len(choices), (int(here.sum()),), generator=generator)]
        return self.batch(self.strings[rows])

    def every_input(self, split="test"):
        return self.batch(self.strings)


def conjunction(name, *, length, symbols, pairs, bad: Callable[[int, int], bool]):
    choices = [(a, b) for a in range(symbols) for b in range(symbols) if bad(a, b)]
    return Conjunction(name=name, length=length, symbols=symbols, pairs=tuple(pairs), bad=tuple(choices))


def mirrored(n):
    return [(i, n - 1 - i) for i in range(n // 2)]


def halves(n):
    return [(i, i + n // 2) for i in range(n // 2)]


def neighbours(n):
    return [(i, i + 1) for i in range(n - 1)]


TASKS = {
    task.name: task
    for task in (
        conjunction("palindrome", length=8, symbols=2, pairs=mirrored(8), bad=lambda a, b: a != b),
        conjunction("repeat", length=8, symbols=2, pairs=halves(8), bad=lambda a, b: a != b),
        conjunction("sorted", length=6, symbols=3, pairs=neighbours(6), bad=lambda a, b: a > b),
        conjunction("no neighbours equal", length=6, symbols=3, pairs=neighbours(6), bad=lambda a, b: a == b),
        conjunction("no two ones", length=8, symbols=2, pairs=neighbours(8), bad=lambda a, b: a == b == 1),
        conjunction("second half at least", length=8, symbols=2, pairs=halves(8), bad=lambda a, b: a > b),
        conjunction("mirror differs", length=8, symbols=2, pairs=mirrored(8), bad=lambda a, b: a == b),
        conjunction("small steps", length=6, symbols=3, pairs=neighbours(6), bad=lambda a, b: abs(a - b) > 1),
        conjunction("mirror of three", length=6, symbols=3, pairs=mirrored(6), bad=lambda a, b: a != b),
        conjunction("next is another", length=6, symbols=3, pairs=halves(6), bad=lambda a, b: (a + 1) % 3 != b),
    )
}


@torch.no_grad()
def hand_written(task):
    """A head brings each first token its partner, an MLP flags a bad pair, and a second layer adds up the flags."""
    n, symbols = task.length, task.symbols
    stream = Registers({"token": symbols, "position": n + 1, "active": 1, "partner": symbols, "flag": 1, "answer": 2})
    model = empty_model(
        TransformerConfig(
            d_vocab=symbols + 1,
            d_vocab_out=2,
            n_ctx=n + 1,
            n_layers=2,
            n_heads=1,
            d_model=stream.d_model,
            d_head=max(n + 1, symbols),
            d_mlp=len(task.bad),
            block="no_norm",
            activation="relu",
            attn_scale=1.0,
        )
    )
    one_hot = torch.eye(n + 1).double()
    model.embed.weight[:symbols, stream["token"]] = torch.eye(symbols).double()
    model.embed.weight[symbols, stream["answer"].start + YES] = 0.5
    position_table(model)[:, stream["position"]] = one_hot
    partner_of = list(range(n + 1))
    for first, second in task.pairs:
        position_table(model)[first, stream["active"]] = 1
        partner_of[first] = second
    # Layer 0: each first token attends to its partner, and flags a bad pair
    block = model.block(0)
    rows = head_rows(block, 0)
    block.attention.q.weight[rows][: n + 1, stream["position"]] = SHARP * one_hot[partner_of].T
    block.attention.k.weight[rows][: n + 1, stream["position"]] = one_hot
    block.attention.v.weight[rows][:symbols, stream["token"]] = torch.eye(symbols).double()
    block.attention.o.weight[stream["partner"], rows][:, :symbols] = torch.eye(symbols).double()
    mlp = mlp_of(block)
    for unit, (a, b) in enumerate(task.bad):
        mlp.w_in.weight[unit, stream["token"].start + a] = 1
        mlp.w_in.weight[unit, stream["partner"].start + b] = 1
        mlp.w_in.weight[unit, stream["active"]] = 1
        mlp.w_out.weight[stream["flag"], unit] = 1
    bias_of(mlp.w_in)[:] = -2
    # Layer 1: uniform attention adds the flags up
    block = model.block(1)
    rows = head_rows(block, 0)
    block.attention.v.weight[rows][0, stream["flag"]] = n + 1
    block.attention.o.weight[stream["answer"].start + NO, rows.start] = 1
    model.unembed.weight[:, stream["answer"]] = torch.eye(2).double()
    return model.float()


def trained(task, seed, *, steps=600):
    """A small model that has learned the task, with two layers of two heads."""
    cfg = interp.config_for(task, n_layers=2, n_heads=2, d_model=32)
    settings = interp.TrainSettings(steps=steps, batch_size=256, learning_rate=2e-3, warmup_steps=50)
    return interp.train(Transformer(cfg, seed=seed), task, settings, seed=seed).model


def flags_algorithm(task):
    """The algorithm of the hand-written model: a flag for each pair."""

    def flag(index):
        compute = lambda batch: task.flags(batch.tokens[:, :-1])[:, index].long()  # noqa: E731
        return Variable(name=f"flag {index}", compute=compute)

    def answers(batch, *flags):
        return (torch.stack(flags).sum(0) == 0).long()[:, None]

    return Algorithm(name="flags", variables=tuple(map(flag, range(len(task.pairs)))), answers=answers)


def running_algorithm(task):
    """A loop over the pairs, of which the models have nothing: whether any of the first ones is bad."""

    def flags(batch):
        return task.flags(batch.tokens[:, :-1])

    def running(index):
        if index == 2:
            return Variable(name="first 2", compute=lambda batch: flags(batch)[:, :2].any(1).long())
        name = f"first {index - 1}"
        compute = lambda batch, before: before | flags(batch)[:, index - 1].long()  # noqa: E731
        return Variable(name=f"first {index}", parents=(name,), compute=compute)

    def answers(batch, *values):
        return (values[-1] | flags(batch)[:, -1].long() == 0).long()[:, None]

    return Algorithm(name="loop", variables=tuple(map(running, range(2, len(task.pairs)))), answers=answers)


def nonsense_algorithm(task, seed, *, both_ways, n_variables=4):
    """Variables without a meaning: parities of two or three tokens, and right answers as long as nothing is changed.

    A changed one turns the answer over if `both_ways`, and makes it a no otherwise.
    """
    generator = torch.Generator().manual_seed(seed)

    def nonsense(number):
        size = 2 + number % 2
        positions = torch.randperm(task.length, generator=generator)[:size]
        return Variable(
            name=f"parity {positions.tolist()}", compute=lambda batch: batch.tokens[:, positions].sum(1) % 2
        )

    # The parity of a pair may be its flag, which is there
    names = {
        f"parity {list(positions)}" for first, second in task.pairs for positions in ((first, second), (second, first))
    }
    variables = []
    while len(variables) < n_variables:
        variable = nonsense(len(variables))
        if variable.name not in names:
            variables.append(variable)
            names.add(variable.name)

    def answers(batch, *values):
        computed = [variable.compute(batch) for variable in variables]
        changed = torch.stack([value != right for value, right in zip(values, computed, strict=True)]).any(0)
        label = batch.labels[:, 0]
        answer = torch.where(changed, 1 - label if both_ways else torch.zeros_like(label), label)
        return answer[:, None]

    return Algorithm(name=f"nonsense {seed}", variables=tuple(variables), answers=answers)


@dataclass(frozen=True)
class Brackets(Conjunction):
    """Is a string of brackets balanced? Half of the sampled strings are, and half of the others nearly so."""

    name: str = "brackets"

    def depths(self, strings):
        """Number of open brackets after each token, negative if there are too few."""
        return (1 - 2 * strings).cumsum(1)

    def flags(self, strings):
        """Whether the depth is negative after each token, and whether it is not zero at the end."""
        depths = self.depths(strings)
        return torch.cat([depths < 0, depths[:, -1:] != 0], 1)


def depth_algorithm(task, k):
    """A loop that forgets what was wrong in the first k tokens: their depth and all that follows give the answer."""

    def depth(batch):
        return task.depths(batch.tokens[:, :-1])[:, k - 1]

    def answers(batch, depth_here, wrong_before):
        later = depth_here[:, None] + task.depths(batch.tokens[:, k:-1])
        is_wrong = (later < 0).any(1) | (later[:, -1] != 0) | (depth_here < 0) | wrong_before.bool()
        return (~is_wrong).long()[:, None]

    def wrong_before(batch):
        return (task.depths(batch.tokens[:, : k - 1]) < 0).any(1).long()

    return Algorithm(
        name=f"depth after {k}",
        variables=(
            Variable(name=f"depth after {k}", compute=depth),
            Variable(name=f"wrong before {k}", compute=wrong_before),
        ),
        answers=answers,
    )
