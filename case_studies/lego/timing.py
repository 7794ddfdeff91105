"""Time of heads and models, forward and backward, and memory stored between the passes."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel

from case_studies.recipes.stopwatch import time_in_turn
from hooks import Encoder, LegoAttention, Pathways, presets, token_maps
from hooks.model.hardcoded.head_patterns import ORDER
from interp.core.randomness import derived_generator, derived_seed

BASE, HEAD = 768, 64
"""Residual stream and head widths of the base models."""
VOCAB, CLS, SEP = 512, 0, 1
"""Vocabulary size, and ids of the marker tokens."""
SHORT, LONG = 512, 4096
"""Sequence lengths that are compared."""
HEAD_BATCH = 8
"""Number of sequences of `SHORT` tokens for timing single heads."""
LINEAR = ("association", "cls")
"""Pathways whose time should be linear in the length: association, and one of the two equivalent broadcasts."""
LAYERS = 2
"""Number of layers of the timed models."""
HUGGINGFACE = {"Hugging Face, eager": "eager", "Hugging Face, sdpa": "sdpa"}
OURS = {"BERT": presets.bert_encoder, "Hardcode": presets.hardcode, "Hybrid": presets.hybrid}
MODELS = (*OURS, *HUGGINGFACE)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A computation to run forward and backward."""

    name: str
    length: int
    """Sequence length."""
    forward: Callable[[], Any]
    """One forward pass."""
    weights: tuple[Tensor, ...]
    """Tensors to differentiate the output's mean square by; if empty, there is no backward pass."""
    parameters: tuple[Tensor, ...] = ()
    """Parameters, which are not counted as stored."""

    def __call__(self) -> None:
        """Run it once."""
        out = self.forward()
        if self.weights:
            torch.autograd.grad(out.square().mean(), self.weights)


@dataclass(frozen=True, kw_only=True)
class TimeAndMemory:
    """Time and memory of a candidate."""

    name: str
    length: int
    seconds: tuple[float, ...]
    """One per round; paired with those of candidates timed together."""
    stored_bytes: int
    """Bytes that the forward pass stores for the backward pass, including the input but not parameters; exact."""

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Median, lower and upper quartile of its seconds."""
        return quartiles(self.seconds)

    def over(self, reference: "TimeAndMemory") -> list[float]:
        """Ratio to another's time in every round."""
        return [
            seconds / reference_seconds
            for seconds, reference_seconds in zip(self.seconds, reference.seconds, strict=True)
        ]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, lower and upper quartile."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    return float(median), float(low), float(high)


def take_turns(candidates: Sequence[Candidate], *, rounds: int) -> dict[tuple[str, int], TimeAndMemory]:
    """Time candidates in turn, so that ratios are paired by round.

    Args:
        candidates: What to time; each is run once before, to measure its stored bytes.
        rounds: Number of times each is timed.

    Returns:
        Costs, by name and length.

    Raises:
        ValueError: rounds below 1, or two candidates with the same name and length.
    """
    names = [(candidate.name, candidate.length) for candidate in candidates]
    if len(set(names)) < len(names):
        raise ValueError(f"candidates of the same name and length: {names}; give each its own name.")
    # The runs that count stored bytes also warm up
    stored_bytes = [bytes_stored_for_backward(candidate, parameters=candidate.parameters) for candidate in candidates]
    seconds = time_in_turn(candidates, rounds=rounds)
    return {
        name: TimeAndMemory(name=name[0], length=name[1], seconds=seconds_of_rounds, stored_bytes=bytes_of_candidate)
        for name, seconds_of_rounds, bytes_of_candidate in zip(names, seconds, stored_bytes, strict=True)
    }


def bytes_stored_for_backward(run: Callable[[], object], *, parameters: Iterable[Tensor] = ()) -> int:
    """Bytes that forward passes store for their backward passes; every storage counts once, in full.

    Args:
        run: A computation with gradients.
        parameters: Tensors whose storages do not count, such as parameters.
    """
    parameter_storages = {tensor.untyped_storage().data_ptr() for tensor in parameters}
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameter_storages:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the tensor itself would keep its graph alive

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(storages.values())


def one_head(pathway: str, *, batch: int, length: int, seed: int, written_out: bool = False) -> Candidate:
    """One head of base width, which computes the token maps that it needs in every call.

    Args:
        pathway: Name of its pathway.
        batch: Number of sequences.
        length: Tokens per sequence.
        seed: Determines tokens, input and weights.
        written_out: Whether a learned head computes its pattern explicitly instead of with the fused kernel.

    Raises:
        ValueError: a pathway that does not exist.
    """
    if pathway not in ORDER:
        raise ValueError(f"pathway is {pathway!r}; choose one of {', '.join(ORDER)}.")
    # A layer with one head, on random tokens and input
    sizes: dict[str, Any] = {pathway: HEAD}
    pathways = Pathways(**sizes, cls_token=CLS, sep_token=SEP)
    tokens = random_tokens(batch, length, seed=seed)
    attention = LegoAttention(BASE, pathways, d_head=HEAD, width=HEAD, seed=derived_seed(seed, "head"))
    attention.train(not written_out)
    x = torch.randn(batch, length, BASE, generator=derived_generator(seed, "input"), requires_grad=True)
    # A hard-coded head computes its maps in every call; a learned one does not read them
    make = functools.partial(token_maps, tokens, heads=pathways, d_vocab=VOCAB)
    maps = make() if pathway == "learned" else None
    weights = tuple(attention.parameters())

    def forward() -> Tensor:
        if not written_out:
            return attention(x, maps or make())
        with sdpa_kernel(SDPBackend.MATH):
            return attention(x, maps or make())

    return Candidate(
        name=f"{pathway}, written out" if written_out else pathway,
        length=length,
        forward=forward,
        weights=(x, *weights),
        parameters=weights,
    )


def maps_alone(*, batch: int, length: int, seed: int) -> Candidate:
    """Computation of all token maps, which the layers of a model share."""
    tokens = random_tokens(batch, length, seed=seed)
    pathways = Pathways(association=HEAD, cls=HEAD, sep=HEAD, cls_token=CLS, sep_token=SEP)
    return Candidate(
        name="token maps",
        length=length,
        weights=(),
        forward=functools.partial(token_maps, tokens, heads=pathways, d_vocab=VOCAB),
    )


def heads_of_each_kind(*, seed: int) -> list[Candidate]:
    """One head of every pathway, and the token maps separately."""
    heads = [one_head(name, batch=HEAD_BATCH, length=SHORT, seed=seed) for name in ORDER]
    return [*heads, maps_alone(batch=HEAD_BATCH, length=SHORT, seed=seed)]


def heads_at_lengths(lengths: Sequence[int], *, seed: int) -> list[Candidate]:
    """A head of every pathway (only one of the two broadcasts) on one sequence; a learned head also unfused."""
    candidates = []
    for length in lengths:
        candidates += [
            one_head(name, batch=1, length=length, seed=seed) for name in (*LINEAR, "convolution", "learned")
        ]
        candidates.append(one_head("learned", batch=1, length=length, seed=seed, written_out=True))
    return candidates


def whole_models(
    names: Sequence[str], *, lengths: Sequence[int], tokens: int, seed: int, sizes: Mapping[str, int] | None = None
) -> list[Candidate]:
    """Models of two layers with logits at every position, each at every length.

    Args:
        names: Names of models, from `MODELS`.
        lengths: Sequence lengths.
        tokens: Number of tokens in a batch, at every length.
        seed: Determines tokens and weights.
        sizes: `d_model`, `n_heads`, `n_layers`; default: the base sizes.

    Raises:
        ValueError: a model that does not exist, or a length that does not divide the tokens.
    """
    if unknown := [name for name in names if name not in MODELS]:
        raise ValueError(f"no model is called {unknown[0]!r}; choose among {', '.join(MODELS)}.")
    if wrong := [length for length in lengths if tokens % length]:
        raise ValueError(f"tokens is {tokens}, not a multiple of the length {wrong[0]}; give one of all lengths.")
    batches = {length: random_tokens(tokens // length, length, seed=seed) for length in lengths}
    chosen = {"d_model": BASE, "n_heads": BASE // HEAD, "n_layers": LAYERS, "n_ctx": max(lengths), **(sizes or {})}
    candidates = []
    for name in names:
        make = _peer_model if name in HUGGINGFACE else _our_model
        run, weights = make(name, chosen, seed)
        for length, batch in batches.items():
            forward = functools.partial(run, batch)
            candidates.append(Candidate(name=name, length=length, forward=forward, weights=weights, parameters=weights))
    return candidates


def _our_model(name: str, sizes: Mapping[str, int], seed: int) -> tuple[Callable[[Tensor], Tensor], tuple[Tensor, ...]]:
    markers = {} if name == "BERT" else {"cls_token": CLS, "sep_token": SEP}
    config: Any = OURS[name]
    model = Encoder(config(d_vocab=VOCAB, **sizes, **markers), seed=derived_seed(seed, "model")).train()
    return model, tuple(model.parameters())


def _peer_model(
    name: str, sizes: Mapping[str, int], seed: int
) -> tuple[Callable[[Tensor], Tensor], tuple[Tensor, ...]]:
    import transformers

    config_class: Any = transformers.BertConfig
    config = config_class(
        vocab_size=VOCAB,
        hidden_size=sizes["d_model"],
        num_hidden_layers=sizes["n_layers"],
        num_attention_heads=sizes["n_heads"],
        intermediate_size=4 * sizes["d_model"],
        max_position_embeddings=sizes["n_ctx"],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation=HUGGINGFACE[name],
    )
    # Hugging Face initialises from the global random state, which is left as it was
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "model"))
        model: Any = transformers.BertForMaskedLM(config)
    model.train()
    return lambda tokens: model(tokens).logits, tuple(model.parameters())


def random_tokens(batch: int, length: int, *, seed: int) -> Tensor:
    """Random tokens between [CLS] and [SEP]."""
    generator = derived_generator(seed, "tokens", batch, length)
    tokens = torch.randint(SEP + 1, VOCAB, (batch, length), generator=generator)
    tokens[:, 0], tokens[:, -1] = CLS, SEP
    return tokens
