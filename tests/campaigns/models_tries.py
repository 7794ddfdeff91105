"""Edits at every hook point, padded and cut batches, and threads: every family of models, random weights and tokens."""

import random
from collections.abc import Iterator
from pathlib import Path

import torch
from edits_in_threads import EDITS, PASSES, differing
from families import MODELS, each_way, model_of, tokens_of
from tries import Try

from hooks import FullyConnected, Transformer, TransformerConfig

SEEN = 1e-3
"""Smallest change of the logits by an edit that acts."""
LENGTHS = (16, 17, 63, 64, 65, 96)
"""Below and above 64 tokens, from which on patterns are stored only if a hook reads them."""


@torch.no_grad()
def hook_points(n: int, folder: Path) -> Iterator[Try]:
    """An edit of any point acts, in the same way however it is attached, and leaves nothing behind."""
    rng, done = random.Random(0), 0
    while done < n:
        family, training = rng.choice(list(MODELS)), rng.random() < 0.5
        model = model_of(MODELS[family], seed=rng.randrange(10**6)).train(training)
        tokens = tokens_of(model, rng.choice(LENGTHS), seed=rng.randrange(10**6))
        clean = model(tokens)
        for name in rng.sample(list(model.hook_dict), min(8, len(model.hook_dict))):
            what, first = f"{family}, {name}, {tokens.shape[1]} tokens", None
            for way, logits in each_way(model, name, tokens):
                done += 1
                first = logits if first is None else first
                if not (logits - clean).abs().max() > SEEN:
                    yield Try(f"{what}, {way}", "silently wrong", "the edit is ignored")
                elif not torch.equal(logits, first):
                    yield Try(f"{what}, {way}", "silently wrong", "another result than run_with_hooks")
                else:
                    yield Try(f"{what}, {way}")
        if not torch.equal(model(tokens), clean):
            yield Try(family, "silently wrong", "an edit stays attached")


@torch.no_grad()
def batches(n: int, folder: Path) -> Iterator[Try]:
    """Logits of a sequence do not depend on the others of its batch, nor on padding after it."""
    rng = random.Random(1)
    padded = [name for name, cfg in MODELS.items() if "cell" not in cfg.to_dict() and "inputs" not in cfg.to_dict()]
    for index in range(n):
        family = rng.choice(list(MODELS) if index % 2 else padded)
        model = model_of(MODELS[family], seed=rng.randrange(10**6)).double().eval()
        tokens = tokens_of(model, rng.choice(LENGTHS), seed=rng.randrange(10**6), n=5)
        logits = model(tokens)
        if index % 2:
            rows = sorted(rng.sample(range(5), rng.randrange(1, 5)))
            what, found, expected = f"{family}, rows {rows} alone", model(tokens[rows]), logits[rows]
        else:
            kept = rng.randrange(1, tokens.shape[1])
            mask = torch.ones_like(tokens)
            mask[:, kept:] = 0
            other = tokens.clone()
            other[:, kept:] = tokens_of(model, tokens.shape[1], seed=rng.randrange(10**6), n=5)[:, kept:]
            what = f"{family}, padding after {kept} of {tokens.shape[1]} tokens"
            found, expected = model(other, mask), model(tokens, mask)
            if not isinstance(model, FullyConnected) and found.shape[1] == tokens.shape[1]:
                found, expected = found[:, :kept], expected[:, :kept]
        same = torch.allclose(found, expected, rtol=1e-8, atol=1e-8)
        yield Try(what, None if same else "silently wrong", f"{(found - expected).abs().max():.2g}")


def threads(n: int, folder: Path) -> Iterator[Try]:
    """Passes without hooks while another thread edits the same model."""
    pairs = [(name, edit) for name in PASSES for edit in EDITS]
    for name, edit in pairs:
        cfg = TransformerConfig(n_layers=2, d_model=16, n_heads=2, d_vocab=5, n_ctx=8)
        model = Transformer(cfg, seed=1).eval()
        wrong = differing(model, PASSES[name], edit, -(-n // len(pairs)))
        for index in range(-(-n // len(pairs))):
            yield Try(f"{name} during {edit.__name__}", "silently wrong" if index < wrong else None, "another's edit")
