"""Template strings against a loop in plain Python, and one-hot inputs against dense one-hot vectors."""

import random
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.timing import BenchmarkResult, compare
from hooks import FullyConnected, FullyConnectedConfig
from interp.tasks import Template
from interp.tasks.template.language import is_wildcard

STRINGS = 2000


def plain_strings(task: Template, n: int, rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """One string at a time: a template, and distinct symbols for its wildcards."""
    symbols = task.alphabet("train")
    ids = task.vocab.ids
    tokens, labels = [], []
    for _ in range(n):
        template = rng.choice(task.labelled)
        symbol_of = dict(zip(template.wildcards, rng.sample(symbols, len(template.wildcards)), strict=True))
        string = [symbol_of[token] if is_wildcard(token) else token for token in template.tokens]
        tokens.append([ids[token] for token in (*string, "[CLS]")])
        labels.append(template.label)
    return torch.tensor(tokens), torch.tensor(labels)


class PlainNetwork(nn.Module):
    """Concatenated one-hot vectors, then linear layers, as in the released code."""

    def __init__(self, cfg: FullyConnectedConfig):
        super().__init__()
        self.d_vocab = cfg.d_vocab
        widths = [cfg.n_ctx * cfg.d_vocab, *[cfg.width] * (cfg.depth - 1), cfg.d_vocab_out]
        layers: list[nn.Module] = []
        for d_in, d_out in pairwise(widths):
            layers += [nn.Linear(d_in, d_out), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Answers."""
        return self.layers(F.one_hot(tokens, self.d_vocab).float().flatten(1))


def comparisons() -> Iterator[BenchmarkResult]:
    for name in ("aba_abb", "programs", "distribution_of_three"):
        task = Template(templates=name, train=1024)
        # Ours includes labels and targets
        unmyopic = partial(task.sample, STRINGS, generator=torch.Generator().manual_seed(0))
        peer = partial(plain_strings, task, STRINGS, random.Random(0))
        yield compare(f"template, {STRINGS} strings of {name}", unmyopic, peer, bar=0.2, rounds=11)
    task = Template(train=1024)
    cfg = FullyConnectedConfig(d_vocab=task.d_vocab, n_ctx=task.n_ctx, width=256)
    network = FullyConnected(cfg)
    plain = PlainNetwork(cfg)
    tokens = task.sample(256, generator=torch.Generator().manual_seed(0)).tokens
    yield compare(
        "one-hot network, forward and backward, 256 strings",
        lambda: network(tokens)[:, 0].square().mean().backward(),
        lambda: plain(tokens).square().mean().backward(),
        bar=0.75,
        rounds=11,
    )
