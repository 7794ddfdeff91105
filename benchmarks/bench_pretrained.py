"""A real encoder of 6 x 12 heads, width 384: every use of it, and the same by hand with TransformerLens's bridge.

Times are CPU seconds. Each use runs once in a process of its own, which gives its time and the memory of all. Ratios
are of fewer sequences, the two sides in turn, with the same passes through a model. Seven tenths of a pass are matrix
products, which both sides compute alike: a use that only reads cannot take half of the bridge's time. The weights are
in the extra `pretrained`; without it there is nothing to time.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import transformers
from circuitsvis.attention import attention_patterns
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

import interp
from benchmarks.timing import BenchmarkResult, cpu_time, ratio
from interp.heads.kinds import relations_of
from interp.heads.measures import measure
from interp.tasks import Lego
from interp.tasks.base import Batch, logits_at_targets
from interp.training.packaged import PACKAGED, packaged_folder

NAME = "minilm"
TASK = Lego(n_vars=9, sentence_format="paper")
"""Chains of 47 tokens, read at nine places."""
N = 256
"""Sequences of each use."""
N_READ, N_ABLATED = 64, 16
"""Sequences of a comparison."""
ROUNDS = 3
RATIO = 0.5
"""Bar of every ratio."""
USES: dict[str, tuple[Callable[[Any], object], float]] = {
    "probe": (lambda model: interp.probe(model, TASK, n_train=N, n_test=N), 15.0),
    "classify_heads": (lambda model: interp.classify_heads(model, TASK, n=N), 60.0),
    "ablate_heads": (lambda model: interp.ablate_heads(model, TASK, n=N), 180.0),
    "show_attention": (lambda model: interp.show_attention(model, TASK, examples=1), 5.0),
    "audit": (lambda model: interp.audit(model, TASK, n=N), 900.0),
}
"""Each use, and its bar in CPU seconds."""
MEGABYTES, GIGABYTES = 3.0, 3.0
"""Bars of the attention page's size, and of the memory of all uses together."""


def comparisons() -> Iterator[BenchmarkResult]:
    if find_spec(PACKAGED[NAME].package) is None:
        return
    yield from uses()
    with torch.no_grad():
        yield from ratios()


def uses() -> Iterator[BenchmarkResult]:
    """The time of each use, the size of the page, and the memory of all, from a process of their own."""
    command = [sys.executable, "-m", "benchmarks.bench_pretrained"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(process.stdout)
    size = f"{TASK.n_ctx} tokens x {N} sequences"
    for name, (_, bar) in USES.items():
        taken = figures[name]
        yield BenchmarkResult(
            name=f"{NAME}, {name}, {size}", figures=f"{taken:.1f} s of CPU", bar=bar, passes=taken <= bar
        )
    for name, unit, bar in (("page", "MB", MEGABYTES), ("memory", "GB", GIGABYTES)):
        size_of = figures[name]
        yield BenchmarkResult(name=f"{NAME}, {name}", figures=f"{size_of:.2f} {unit}", bar=bar, passes=size_of <= bar)


def time_of_uses() -> dict[str, float]:
    """CPU seconds of each use, the megabytes of the page, and the gigabytes of the largest resident memory."""
    torch.set_num_threads(1)
    model = interp.pretrained(TASK, NAME, readout="fitted")
    figures: dict[str, float] = {}
    results: dict[str, Any] = {}

    def run(name: str, use: Callable[[Any], object]) -> None:
        results[name] = use(model)

    for name, (use, _) in USES.items():
        figures[name] = cpu_time(partial(run, name, use))
    figures["page"] = len(results["show_attention"].html.encode()) / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures["memory"] = peak / (2**30 if sys.platform == "darwin" else 2**20)
    return figures


def ratios() -> Iterator[BenchmarkResult]:
    """What a user of the bridge can do too, on fewer sequences, both sides in turn."""
    model = interp.pretrained(TASK, NAME, readout="fitted")
    bridge = bridge_of(model)
    untrained_bridge = bridge_around(encoder_like(model))
    batch = TASK.sample(N_READ, generator=torch.Generator().manual_seed(0), split="test")
    kinds = tuple(relations_of(TASK, batch))
    sides: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        f"probe, {2 * N_READ} sequences, and an untrained model": (
            partial(interp.probe, model, TASK, n_train=N_READ, n_test=N_READ),
            lambda: (probe_map(bridge), probe_map(untrained_bridge)),
        ),
        f"scores of every head, {len(kinds)} kinds, {N_READ} sequences": (
            partial(measure, model, TASK, batch, kinds, queries="all"),
            partial(head_scores, bridge, batch, kinds),
        ),
        f"zero every head, {N_ABLATED} sequences": (
            partial(interp.ablate_heads, model, TASK, n=N_ABLATED, method="zero"),
            partial(each_head, bridge, batch.select(slice(0, N_ABLATED))),
        ),
        "page of attention": (
            lambda: interp.show_attention(model, TASK, examples=1).html,
            partial(circuitsvis_page, bridge),
        ),
    }
    for name, (unmyopic, peer) in sides.items():
        for warm_up in (unmyopic, peer):
            warm_up()
        rounds = [(cpu_time(unmyopic), cpu_time(peer)) for _ in range(ROUNDS)]
        yield ratio(f"{NAME}, {name}", *zip(*rounds, strict=True), bar=RATIO)


def bridge_of(model: Any) -> Any:
    """TransformerLens's bridge with the same weights, and the embedding of the task's tokens."""
    encoder = encoder_like(model)
    weights = dict(transformers.BertModel.from_pretrained(packaged_folder(NAME)).state_dict())
    weights["embeddings.word_embeddings.weight"] = model.W_E
    encoder.bert.load_state_dict(weights, strict=False)
    bridge = bridge_around(encoder)
    # The last residual stream must be ours
    tokens = TASK.sample(4, generator=torch.Generator().manual_seed(0)).tokens
    last = f"blocks.{model.cfg.n_layers - 1}"
    _, cache = model.run_with_cache(tokens)
    _, cache_of_bridge = bridge.run_with_cache(tokens)
    stream, stream_of_bridge = cache[f"{last}.hook_resid_post"], cache_of_bridge[f"{last}.hook_out"]
    torch.testing.assert_close(stream, stream_of_bridge, atol=1e-4, rtol=0)
    return bridge


def encoder_like(model: Any) -> Any:
    """Hugging Face's encoder of the same shape, with as many tokens as the task, and new weights."""
    config = transformers.BertConfig.from_pretrained(packaged_folder(NAME))
    config.vocab_size, config.pad_token_id = model.cfg.d_vocab, None
    config._attn_implementation = "eager"
    return transformers.BertForMaskedLM(config).eval()


def bridge_around(encoder: Any) -> Any:
    return build_bridge_from_module(encoder, "BertForMaskedLM", hf_config=encoder.config)


def probe_map(bridge: Any) -> Float[np.ndarray, "layer target"]:
    """Accuracy of a classifier per layer and target, on activations of the bridge."""
    generator = torch.Generator().manual_seed(0)
    names = ["embed.ln.hook_out", *(f"blocks.{layer}.hook_out" for layer in range(bridge.cfg.n_layers))]
    streams, labels = [], []
    for split in ("validation", "test"):
        batch = TASK.sample(N_READ, generator=generator, split=split)
        _, cache = bridge.run_with_cache(batch.tokens, names_filter=lambda name: name in names)
        streams.append([logits_at_targets(cache[name], batch).numpy() for name in names if name in cache])
        labels.append(batch.labels.numpy())
    accuracy = np.empty((len(streams[0]), labels[0].shape[1]))
    for layer, target in np.ndindex(accuracy.shape):
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        classifier.fit(streams[0][layer][:, target], labels[0][:, target])
        accuracy[layer, target] = classifier.score(streams[1][layer][:, target], labels[1][:, target])
    return accuracy


def head_scores(bridge: Any, batch: Batch, kinds: tuple[str, ...]) -> Float[Tensor, "kind layer head"]:
    """Attention on the related keys of each kind, of every head."""
    _, cache = bridge.run_with_cache(batch.tokens, names_filter=lambda name: name.endswith("hook_pattern"))
    layers = range(bridge.cfg.n_layers)
    patterns = torch.stack([cache[f"blocks.{layer}.attn.hook_pattern"] for layer in layers], 1)
    related = relations_of(TASK, batch, kinds)
    return torch.stack([(patterns * related[kind][:, None, None]).sum(-1).mean((0, -1)) for kind in kinds])


def each_head(bridge: Any, batch: Batch) -> Float[np.ndarray, "layer head target"]:
    """Accuracy at every target with each head's output set to zero: a pass for each head."""
    accuracy = np.empty((bridge.cfg.n_layers, bridge.cfg.n_heads, batch.labels.shape[1]))
    for layer, head in np.ndindex(accuracy.shape[:2]):

        def zero(z: Tensor, hook: object, head: int = head) -> Tensor:
            z = z.clone()
            z[:, :, head] = 0
            return z

        logits = bridge.run_with_hooks(batch.tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", zero)])
        answers = logits_at_targets(logits, batch).argmax(-1)
        accuracy[layer, head] = (answers == batch.labels).double().mean(0).numpy()
    return accuracy


def circuitsvis_page(bridge: Any) -> str:
    """The attention of every head on one sequence as circuitsvis's page."""
    batch = TASK.sample(1, generator=torch.Generator().manual_seed(0), split="test")
    _, cache = bridge.run_with_cache(batch.tokens, names_filter=lambda name: name.endswith("hook_pattern"))
    patterns = torch.cat([cache[f"blocks.{layer}.attn.hook_pattern"][0] for layer in range(bridge.cfg.n_layers)])
    return str(attention_patterns(TASK.vocab.words(batch.tokens[0]), patterns))


if __name__ == "__main__":
    print(json.dumps(time_of_uses()))
