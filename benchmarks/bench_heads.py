"""Scores of every head for all kinds in one pass, against TransformerLens's head detector, prompt by prompt."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformer_lens.head_detector import detect_head

import interp
from benchmarks.timing import BenchmarkResult, compare
from hooks import Transformer
from hooks.model.attention import visible_keys
from interp.heads.kinds import relations_of
from interp.heads.measures import measure
from interp.tasks import Lego
from interp.tasks.base import AttentionKind

PROMPTS = 32
PEER_NAMES = {"previous": "previous_token_head", "association": "duplicate_token_head"}


@dataclass(frozen=True, kw_only=True)
class CausalLego(Lego):
    """LEGO with causal attention, which the detector requires."""

    def __post_init__(self):
        super().__post_init__()
        attention: AttentionKind = "causal"
        object.__setattr__(self, "attention", attention)


@torch.no_grad()
def comparisons() -> Iterator[BenchmarkResult]:
    task = CausalLego(n_vars=8)
    n_ctx = task.n_ctx + 1  # the detector needs one more position
    cfg = interp.config_for(task, n_layers=4, n_heads=4, d_model=64, n_ctx=n_ctx)
    model = Transformer(cfg).eval()
    batch = task.sample(PROMPTS, generator=torch.Generator().manual_seed(0))
    kinds = tuple(relations_of(task, batch))

    def unmyopic() -> np.ndarray:
        return measure(model, task, batch, kinds, queries="all").score  # as the detector does

    def peer() -> dict[str, Tensor]:
        scores = {}
        for kind, name in PEER_NAMES.items():
            by_prompt = [detect_head(model, prompt[None], name) for prompt in batch.tokens]  # pyright: ignore
            scores[kind] = torch.stack(by_prompt)
        return scores

    # Both must give the same scores
    scores = unmyopic()
    detected = peer()
    for kind, peer_scores in detected.items():
        allowed = visible_keys(cfg, batch.tokens)
        related = relations_of(task, batch, [kind])[kind] & allowed
        mass = mass_of(scores[..., kinds.index(kind)], related.double().numpy(), allowed.double().numpy())
        np.testing.assert_allclose(mass, peer_scores.numpy(), atol=1e-6, rtol=0)
    name = f"head scores, {PROMPTS} prompts, {len(kinds)} kinds against {len(PEER_NAMES)} of TransformerLens"
    yield compare(name, unmyopic, peer, bar=0.10, rounds=11)


def mass_of(score: np.ndarray, related: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Mean attention mass on related keys over all queries, the detector's score: ours before subtracting chance."""
    n_related = related.sum(-1)
    chance = related.sum(-1) / allowed.sum(-1)
    counts = (n_related > 0) & (chance < 1)
    room = (counts * (1 - chance)).sum(-1)
    at_chance = (counts * chance).sum(-1)
    certain = (chance == 1).sum(-1)  # every visible key is related
    above = np.nan_to_num(score) * room[:, None, None]
    return (above + (at_chance + certain)[:, None, None]) / related.shape[1]
