"""Hugging Face models: our forward pass and GPT-2 training step, against Hugging Face's."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor

from benchmarks.timing import BenchmarkResult, compare
from hooks import Transformer, from_huggingface, presets
from interp.core.randomness import derived_generator
from interp.tasks import Text
from interp.tasks.base import Batch

SIZES = ((4, 128, 8, 8, 64), (6, 256, 8, 8, 128))
"""Layers, width, heads, batch, positions."""
VOCAB = 2048
TRAINED = {"d_model": 128, "n_heads": 4, "n_layers": 4}
BATCH = 16


def comparisons() -> Iterator[BenchmarkResult]:
    # Forward passes
    for name in ("GPT-2", "BERT", "ALBERT"):
        for layers, width, heads, batch, pos in SIZES:
            peer = huggingface(name, layers, width, heads, attn_implementation="eager").eval()
            unmyopic = from_huggingface(peer)
            tokens = torch.randint(VOCAB, (batch, pos), generator=torch.Generator().manual_seed(0))
            yield compare(
                f"forward, {name} {layers} x {width}, {batch} x {pos} tokens, against eager",
                partial(forward, unmyopic, tokens),
                partial(forward, peer, tokens),
                bar=1.0,
            )
    # Training steps; ours has no dropout
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    for name, bar, settings in (("with default settings", 1 / 1.2, {}), ("without dropout", 1.0, no_dropout)):
        peer = huggingface("GPT-2", TRAINED["n_layers"], TRAINED["d_model"], TRAINED["n_heads"], **settings)
        yield compare(
            f"training step, GPT-2, 2048 tokens, against theirs {name}",
            unmyopic_step(),
            peer_step(peer),
            bar=bar,
            rounds=15,
        )


def huggingface(name: str, layers: int, width: int, heads: int, **settings: Any) -> Any:
    """A Hugging Face model with random weights."""
    if name == "GPT-2":
        config = transformers.GPT2Config(
            vocab_size=VOCAB,
            n_embd=width,
            n_layer=layers,
            n_head=heads,
            n_positions=128,
            bos_token_id=None,
            eos_token_id=None,
            **settings,
        )
        return transformers.GPT2LMHeadModel(config)
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    sizes |= {"intermediate_size": 4 * width, "max_position_embeddings": 128, **settings}
    if name == "BERT":
        return transformers.BertForMaskedLM(transformers.BertConfig(**sizes))
    return transformers.AlbertForMaskedLM(transformers.AlbertConfig(embedding_size=64, **sizes))


@torch.no_grad()
def forward(model: Any, tokens: Tensor) -> Any:
    return model(tokens)


def training_step(model: Any, task: Text, loss_of: Callable[[Batch], Tensor]) -> Callable[[], None]:
    """A training step of a model with this loss, including sampling of text."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        loss = loss_of(task.sample(BATCH, generator=derived_generator(0, "bench")))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def unmyopic_step() -> Callable[[], None]:
    """The training step of `interp.train`."""
    task = Text(n_ctx=128, vocab_size=VOCAB)
    sizes: dict[str, Any] = {"d_vocab": task.d_vocab, "n_ctx": task.n_ctx, **TRAINED}
    model = Transformer(presets.gpt(tied_embedding=True, **sizes))
    return training_step(model, task, lambda batch: task.loss(model(batch.tokens, **batch.model_inputs()), batch))


def peer_step(model: Any) -> Callable[[], None]:
    """The same step on their model, with their loss."""
    task = Text(n_ctx=128, vocab_size=VOCAB)
    return training_step(model, task, lambda batch: model(input_ids=batch.tokens, labels=batch.tokens).loss)
