"""Ablation of every head of a GPT-2: the ablation engine, against loops over heads in nnsight and in pyvene.

The peers run Hugging Face's model, and the engine runs the same weights. A peer that is not installed is named and left
out; the project does not depend on them. `pip install --no-deps --target FOLDER nnsight pyvene`, with what they import,
and FOLDER in PYTHONPATH leaves the environment as it is.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import transformers
from torch import Tensor

from benchmarks.bench_ablation import each_head, metric
from benchmarks.timing import BenchmarkResult, compare
from hooks import from_huggingface

LAYERS, WIDTH, HEADS = 4, 64, 4
BATCH, POSITIONS = 32, 24
D_VOCAB = 50
BAR = 0.33

Logits = Callable[[Tensor, int, int], Tensor]
"""Logits of tokens with one head (layer, head) set to zero."""


@torch.no_grad()
def comparisons() -> Iterator[BenchmarkResult]:
    config = transformers.GPT2Config(
        vocab_size=D_VOCAB,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        n_positions=POSITIONS,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    gpt2 = transformers.GPT2LMHeadModel(config).eval()
    model = from_huggingface(gpt2)
    tokens = torch.randint(D_VOCAB, (BATCH, POSITIONS), generator=torch.Generator().manual_seed(0))
    check = partial(torch.testing.assert_close, atol=1e-5, rtol=0)
    for peer_name, without_head in {"nnsight": with_nnsight, "pyvene": with_pyvene}.items():
        name = f"zero {LAYERS} x {HEADS} heads of GPT-2, {BATCH} x {POSITIONS} tokens, {peer_name}"
        if find_spec(peer_name) is None:
            yield BenchmarkResult(name=name, figures=f"{peer_name} is not installed", bar=None)
            continue
        logits_without = without_head(gpt2)
        places = {"at every fifth position": torch.arange(1, POSITIONS, 5), "everywhere": None}
        for place, read_at in places.items():
            unmyopic = partial(each_head, model, tokens, read_at)
            peer = partial(loop, logits_without, tokens, read_at)
            yield compare(f"{name}, read {place}", unmyopic, peer, bar=BAR, check=check)


def loop(logits_without: Logits, tokens: Tensor, read_at: Tensor | None) -> Tensor:
    """A forward pass for each head."""
    scores = torch.empty(LAYERS, HEADS)
    for layer in range(LAYERS):
        for head in range(HEADS):
            logits = logits_without(tokens, layer, head)
            scores[layer, head] = metric(logits if read_at is None else logits[:, read_at])
    return scores


def with_nnsight(gpt2: Any) -> Logits:
    """The recipe of nnsight's documentation: zeros in the input of the output projection."""
    traced = import_module("nnsight").NNsight(gpt2)
    width = WIDTH // HEADS

    def logits_without(tokens: Tensor, layer: int, head: int) -> Tensor:
        with traced.trace(tokens):
            z = traced.transformer.h[layer].attn.c_proj.input
            z[:, :, head * width : (head + 1) * width] = 0
            logits = traced.output.logits.save()
        return logits

    return logits_without


def with_pyvene(gpt2: Any) -> Logits:
    """A model with a `ZeroIntervention` for each layer, made once."""
    pyvene = import_module("pyvene")
    settings = {"component": "head_attention_value_output", "unit": "h", "intervention_type": pyvene.ZeroIntervention}
    models = [pyvene.IntervenableModel({"layer": layer, **settings}, gpt2) for layer in range(LAYERS)]

    def logits_without(tokens: Tensor, layer: int, head: int) -> Tensor:
        _, output = models[layer]({"input_ids": tokens}, unit_locations={"base": head})
        return output.logits

    return logits_without
