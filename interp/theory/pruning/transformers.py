"""Pruning random transformers to attention, to a trained layer, or to a trained transformer of a quarter of the depth.

Theorem 3 step by step: `layer_maps` writes a trained layer as matrices (`target.py`), `random_network` draws the large
network (`network.py`), `prune_network` prunes each of its layers (`layers.py`) by subset sums (`subset_sum.py`), and
`search.py` looks for the inputs on which the two networks differ most.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import Transformer
from hooks.checks import check_number
from hooks.model.transformer import make_context
from hooks.typed import checks_types
from interp.core.randomness import derived_generator
from interp.tasks.base import Task
from interp.tasks.splits import sample_split
from interp.theory.pruning.layers import (
    Growth,
    LayerErrors,
    attention_masks,
    grow,
    prune_attention_layer,
    prune_identity_layer,
    prune_mlp_layer,
)
from interp.theory.pruning.network import (
    apply_masks,
    check_network,
    copy_embeddings,
    layout_of,
    masks_of,
    random_layers,
    random_network,
    scale_of,
    trimmed,
    widened,
)
from interp.theory.pruning.result import PruningResult, pruning_result, unit_ball_result, within_tolerance
from interp.theory.pruning.search import (
    LargestError,
    norm_1_2,
    stream_distances,
    worst_streams,
    worst_tokens,
)
from interp.theory.pruning.target import (
    check_layer,
    check_target,
    in_float64,
    layer_maps,
    norms_of,
    scale_for,
    spectral_norm,
)

POSITIONS = 8
"""Largest number of positions of the inputs of an attention module."""
N_STREAMS = 64
"""Number of sequences whose streams are compared."""
EXCHANGES = 24
"""Exchanges of one token that are tried on a sequence."""


@checks_types
def prune_to_transformer(
    target: Transformer,
    task: Task | None = None,
    *,
    candidates: int = 28,
    rescale: bool = False,
    tolerance: float | None = None,
    network: Transformer | None = None,
    n: int = 256,
    seed: int = 0,
) -> PruningResult:
    """Prune a random transformer of 4 L layers to a trained one of L layers, and search for the largest difference.

    Random layers 2l and 2l + 1 become layer l: one its attention and norm, the other its MLP. The rest become the
    identity: 2 L layers would be enough here, but the theorem is about 4 L. Embeddings and unembedding are copied from
    the target, as in the theorem.

    Args:
        target: A transformer with layers of Eq. 6 (`block="dyck"`) and ReLU; not changed.
        task: Task to sample half of the sequences from, the others being random tokens; if None, all are random.
        candidates: Random numbers to choose from, for each weight of the target.
        rescale: Accept a target outside the theorem's ball, and scale the random weights that are drawn by its largest
            norm.
        tolerance: Largest error of any logit accepted, over the sampled sequences; if None, any.
        network: Random network to prune, not changed, at its own scale; if None, one is drawn from `seed`.
        n: Number of sequences.
        seed: Seed of the random network and the inputs.

    Raises:
        ValueError: a target that Theorem 3 does not cover or outside its ball, a random network that is too small,
            fewer than two sequences, or too few candidates for the tolerance (with a number that is enough).

    Example:
        >>> from hooks import Transformer, TransformerConfig
        >>> from interp.theory.pruning import prune_to_transformer
        >>> sizes = {"d_vocab": 3, "d_model": 2, "d_mlp": 2, "n_heads": 1, "n_layers": 1, "n_ctx": 4}
        >>> target = Transformer(TransformerConfig(**sizes, block="dyck", activation="relu"))
        >>> prune_to_transformer(target, candidates=8, rescale=True, n=4).layers
        ('attention of layer 0', 'MLP of layer 0', 'identity', 'identity')

    Source: bounded Dyck (arXiv:2312.01429) Theorem 3. Differs: sizes follow from the candidates per weight, subsets are
    the best ones, and the error is the largest found, a lower bound on the true one.
    """
    check_target(target)
    scale = scale_for(norms_of({"the target": target}), rescale=rescale)
    exact = in_float64(target)
    tokens = sequences(target, task, n, seed)
    if network is None:
        network = random_network(target.cfg, candidates=candidates, scale=scale, seed=seed)
        prune_again = partial(prune_to_transformer, target, task, rescale=rescale, n=n, seed=seed)
    else:
        check_network(network, target.cfg, candidates)
        scale = scale_of(network)
        prune_again = None
    pruned = prune_network(network, target, candidates, target_layers=range(target.cfg.n_layers))

    # Search for the sequences with the largest error of a logit
    logit_error = worst_tokens(
        partial(logit_errors, exact, pruned.trimmed),
        tokens,
        d_vocab=target.cfg.d_vocab,
        generator=derived_generator(seed, "worse tokens"),
        steps=EXCHANGES,
    )
    with torch.no_grad():
        same_order = exact(tokens).argsort(-1) == pruned.trimmed(tokens).argsort(-1)
    # Search for the residual streams with the largest error
    stream_errors = _stream_errors(exact, pruned, entering_streams(exact, tokens))
    plural = "s" if target.cfg.n_layers > 1 else ""
    result = pruning_result(
        f"transformer of {target.cfg.n_layers} layer{plural}, width {target.cfg.d_model}",
        replace(logit_error, n=logit_error.n + stream_errors.error.n),
        masks_of(pruned.network),
        pruned.network,
        domain=f"sequences of {tokens.shape[1]} tokens, sampled, then made worse; "
        f"streams of ||X||_1,2 <= {stream_errors.radius:.3g}",
        order_kept=float(same_order.all(-1).double().mean()),
        candidates=candidates,
        scale=scale,
        seed=seed,
        layers=stream_errors.layers,
        growth=stream_errors.growth,
        bound=stream_errors.bound,
        radius=stream_errors.radius,
    )
    return within_tolerance(result, tolerance, prune_again, measured="sampled_error")


@checks_types
def prune_to_layer(
    target: Transformer,
    layer: int = 0,
    *,
    candidates: int = 28,
    rescale: bool = False,
    tolerance: float | None = None,
    n: int = 256,
    seed: int = 0,
) -> PruningResult:
    """Prune two random layers to one trained layer, and search for the largest difference of the residual stream.

    Target and options are as in `prune_to_transformer`. Sequences are random; the streams that enter the layer are the
    first inputs, and the tolerance is for the stream.

    Raises:
        ValueError: as `prune_to_transformer`, or no such layer.
    """
    check_target(target)
    check_layer(target, layer)
    scale = scale_for(norms_of({"the target": target}), rescale=rescale)
    exact = in_float64(target)
    streams = entering_streams(exact, sequences(target, None, n, seed), layer)
    network = random_network(target.cfg, candidates=candidates, n_layers=2, scale=scale, seed=seed)
    pruned = prune_network(network, target, candidates, target_layers=[layer])
    stream_errors = _stream_errors(exact, pruned, streams, layer=layer)
    result = pruning_result(
        f"layer {layer} of width {target.cfg.d_model}",
        stream_errors.error,
        masks_of(pruned.network),
        pruned.network,
        domain=f"streams entering the layer, then any within ||X||_1,2 <= {stream_errors.radius:.3g}",
        candidates=candidates,
        scale=scale,
        seed=seed,
        layers=stream_errors.layers,
        growth=stream_errors.growth,
        bound=stream_errors.bound,
        radius=stream_errors.radius,
    )
    prune_again = partial(prune_to_layer, target, layer, rescale=rescale, n=n, seed=seed)
    return within_tolerance(result, tolerance, prune_again)


@checks_types
@torch.no_grad()
def prune_to_attention(
    target: Transformer,
    layer: int = 0,
    *,
    candidates: int = 28,
    rescale: bool = False,
    tolerance: float | None = None,
    seed: int = 0,
) -> PruningResult:
    """Prune the attention of one random layer to that of a trained layer: scores, softmax and what heads write.

    The target is as in `prune_to_transformer`, the options as in `prune_to_linear`. The weights approximated are the
    entries of W_K^T W_Q and of W_O W_V.

    Raises:
        ValueError: as `prune_to_transformer`, or no such layer.
    """
    check_target(target)
    maps = layer_maps(target, layer)
    exact = in_float64(target)
    attention_norms = {}
    for name, norm in maps.norms().items():
        if name.startswith(("score", "write")):
            attention_norms[f"layer {layer} {name}"] = norm
    scale = scale_for(attention_norms, rescale=rescale)
    network = random_network(target.cfg, candidates=candidates, n_layers=1, scale=scale, seed=seed)
    layout = layout_of(target.cfg, candidates)
    (block,) = random_layers(network)
    masks, score_error, write_error = attention_masks(block, maps.score, maps.write, layout)
    apply_masks(block, masks)
    network.double()

    def difference(stream: Tensor) -> Tensor:
        output = _attention_output(network, 0, widened(network, stream))[..., layout.normed]
        return norm_1_2(output - _attention_output(exact, layer, stream))

    # Upper bound from the errors of the maps, as in Lemma 5 (`grow`). An error of the scores is multiplied by the norm
    # of the input three times: as query, as key, and as the values that the changed pattern weights
    input_norm = 2**0.5  # the coordinate that is 1 adds 1 to the squared norm
    largest_write = max(map(spectral_norm, maps.write))
    result = unit_ball_result(
        f"attention of width {target.cfg.d_model}",
        difference,
        (min(POSITIONS, target.cfg.n_ctx), target.cfg.d_model),
        masks_of(block),
        network,
        bound=write_error * input_norm + largest_write * score_error * input_norm**3,
        candidates=candidates,
        scale=scale,
        seed=seed,
    )
    prune_again = partial(prune_to_attention, target, layer, rescale=rescale, seed=seed)
    return within_tolerance(result, tolerance, prune_again)


def _attention_output(
    model: Transformer, layer: int, stream: Float[Tensor, "batch pos width"]
) -> Float[Tensor, "batch pos width"]:
    """Output of a layer's attention for this input."""
    context = make_context(model.cfg, None, None, stream.shape[1], stream.device)
    return model.block(layer).attention(stream, context, model.blocks[layer].attn)


@dataclass(frozen=True, kw_only=True)
class PrunedLayer:
    """A pruned random layer."""

    name: str
    """What it was pruned to."""
    target_point: str
    """The target's hook point that its output approximates."""
    errors: LayerErrors


@dataclass(frozen=True, kw_only=True)
class PrunedNetwork:
    """A pruned random network."""

    network: Transformer
    trimmed: Transformer
    """A copy in float64 without dead units, on which errors are measured."""
    pruned_layers: tuple[PrunedLayer, ...]


@torch.no_grad()
def prune_network(
    network: Transformer,
    target: Transformer,
    candidates: int,
    *,
    target_layers: Sequence[int],
    n_identities_before: int = 0,
    idle_heads: bool = False,
) -> PrunedNetwork:
    """A copy of a random network, pruned to some of the target's layers.

    Args:
        network: The random network, large enough (see `check_network`).
        target: The trained transformer.
        candidates: Random numbers to choose from, for each weight of the target.
        target_layers: Layers of the target, one after the other. Each takes two random layers: attention and MLP.
        n_identities_before: Number of random layers before those of the target; they, and those after the target's,
            become identities.
        idle_heads: Keep heads in identity layers; see `prune_identity_layer`.
    """
    network = copy.deepcopy(network)
    copy_embeddings(network, target)
    layout = layout_of(target.cfg, candidates)
    blocks = random_layers(network)
    after_attention = "hook_resid_post" if target.cfg.attn_only else "hook_resid_mid"
    pruned_layers: list[PrunedLayer] = []

    def add(name: str, layer: int, point: str, errors: LayerErrors) -> None:
        pruned_layers.append(PrunedLayer(name=name, target_point=f"blocks.{layer}.{point}", errors=errors))

    # Identities, then two random layers for each layer of the target, then identities
    for block in blocks[:n_identities_before]:
        add("identity", target_layers[0], "hook_resid_pre", prune_identity_layer(block, layout, idle_heads=idle_heads))
    for index, layer in enumerate(target_layers):
        maps = layer_maps(target, layer)
        start = n_identities_before + 2 * index
        attention_block, mlp_block = blocks[start : start + 2]
        attention_errors = prune_attention_layer(attention_block, maps, layout)
        add(f"attention of layer {layer}", layer, after_attention, attention_errors)
        add(f"MLP of layer {layer}", layer, "hook_resid_post", prune_mlp_layer(mlp_block, maps, layout))
    last_layer = target_layers[-1]
    for block in blocks[n_identities_before + 2 * len(target_layers) :]:
        add("identity", last_layer, "hook_resid_post", prune_identity_layer(block, layout, idle_heads=idle_heads))
    return PrunedNetwork(network=network, trimmed=trimmed(network), pruned_layers=tuple(pruned_layers))


@dataclass(frozen=True, kw_only=True)
class StreamErrors:
    """Errors of the residual stream, layer by layer; fields as in `PruningResult`."""

    error: LargestError
    growth: Float[np.ndarray, " layer"]
    bound: Float[np.ndarray, " layer"]
    radius: float
    layers: tuple[str, ...]


def _stream_errors(
    target: Transformer, pruned: PrunedNetwork, streams: Float[Tensor, "batch pos d_model"], *, layer: int = 0
) -> StreamErrors:
    """The largest error of the stream found, and its growth and upper bound, layer by layer."""
    radius = float(streams.norm(dim=-1).max())
    points = [pruned_layer.target_point for pruned_layer in pruned.pruned_layers]
    distances = stream_distances(target, pruned.trimmed, points, layer=layer)
    # Start the search from evenly spaced sequences, so that both the task's and the random half are in it
    indices = torch.linspace(0, len(streams) - 1, min(N_STREAMS, len(streams)), dtype=torch.float32).long()
    error, growth = worst_streams(distances, streams[indices], radius=radius)
    # The upper bound, from the first layer on; the coordinate that is 1 adds 1 to the squared norm
    cfg = pruned.trimmed.cfg
    growth_bound = Growth(radius=(radius**2 + 1) ** 0.5, error=0.0)
    bound = []
    for pruned_layer in pruned.pruned_layers:
        growth_bound = grow(growth_bound, pruned_layer.errors, d_model=cfg.d_model, eps=cfg.layer_norm_eps)
        bound.append(growth_bound.error)
    layer_names = tuple(pruned_layer.name for pruned_layer in pruned.pruned_layers)
    return StreamErrors(
        error=error, growth=growth.numpy(), bound=torch.tensor(bound).numpy(), radius=radius, layers=layer_names
    )


@torch.no_grad()
def logit_errors(
    target: Transformer, network: Transformer, tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, " batch"]:
    """Largest difference of any logit, for each sequence."""
    return (target(tokens) - network(tokens)).abs().flatten(1).amax(1)


def sequences(target: Transformer, task: Task | None, n: int, seed: int) -> Int[Tensor, "n pos"]:
    """Sequences of which half are the task's and half random tokens; all random without a task.

    Raises:
        ValueError: fewer than two sequences.
    """
    check_number("n", n, integer=True, low=2)
    generator = derived_generator(seed, "random tokens")
    if task is None:
        return target.embed.example(n, min(target.cfg.n_ctx, 32), generator)
    sampled = sample_split(task, n // 2, generator=derived_generator(seed, "sequences"), split="test").tokens
    return torch.cat([sampled, target.embed.example(n - len(sampled), sampled.shape[1], generator)])


@torch.no_grad()
def entering_streams(
    target: Transformer, tokens: Int[Tensor, "batch pos"], layer: int = 0
) -> Float[Tensor, "batch pos d_model"]:
    """The residual streams that enter a layer."""
    name = f"blocks.{layer}.hook_resid_pre"
    _, cache = target.run_with_cache(tokens, names_filter=name)
    return cache[name]
