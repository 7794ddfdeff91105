"""What do heads and models take, forward and backward: time, in turn with others, and memory kept in between?"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from case_studies.frame.stopwatch import time_in_turn
from hooks import Encoder, LegoAttention, Pathways, presets, token_maps
from hooks.hardcoded.pathways import ORDER
from interp.core.randomness import derived_generator, derived_seed

BASE, HEAD = 768, 64
"""Widths of the base models' stream and heads."""
VOCAB, CLS, SEP = 512, 0, 1
"""Tokens that sequences here are drawn from, and the ids of the markers."""
SHORT, LONG = 512, 4096
"""Lengths whose times are compared."""
HEAD_BATCH = 8
"""Sequences of `SHORT` tokens that single heads are timed on."""
LINEAR = ("association", "cls")
"""Pathways whose time should be linear in the length: association, and one of two broadcasts that are alike."""
LAYERS = 2
"""Of the models that are timed."""
HUGGINGFACE = {"Hugging Face, eager": "eager", "Hugging Face, sdpa": "sdpa"}
OURS = {"BERT": presets.bert_encoder, "Hardcode": presets.hardcode, "Hybrid": presets.hybrid}
MODELS = (*OURS, *HUGGINGFACE)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Something to run forward and backward, made ready."""

    name: str
    length: int
    """Tokens in a sequence."""
    forward: Callable[[], Any]
    """One forward pass."""
    weights: tuple[Tensor, ...]
    """What the gradient of the output's mean square is taken of; none: there is no backward pass."""
    apart: tuple[Tensor, ...] = ()
    """Parameters: they are there anyway, and do not count as kept."""

    def __call__(self) -> None:
        """Run it once."""
        out = self.forward()
        if self.weights:
            torch.autograd.grad(out.square().mean(), self.weights)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a candidate took."""

    name: str
    length: int
    seconds: tuple[float, ...]
    """Of each round; those of candidates that were timed together are paired."""
    kept: int
    """Bytes that its forward pass keeps for its backward pass, its input with them, parameters left out: exact."""

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Median, lower and upper quartile of its seconds."""
        return quartiles(self.seconds)

    def over(self, other: "Cost") -> tuple[float, float, float]:
        """Median, lower and upper quartile of its time over another's, round by round."""
        return quartiles([ours / theirs for ours, theirs in zip(self.seconds, other.seconds, strict=True)])


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, lower and upper quartile."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    return float(median), float(low), float(high)


def take_turns(candidates: Sequence[Candidate], *, rounds: int) -> dict[tuple[str, int], Cost]:
    """Time candidates in turn, round by round, so that a machine whose speed drifts slows all alike.

    Args:
        candidates: Each is run once before, which also says what it keeps.
        rounds: How often each is timed.

    Returns:
        Costs, by name and length.

    Raises:
        ValueError: no round, or two candidates of the same name and length.
    """
    names = [(candidate.name, candidate.length) for candidate in candidates]
    if len(set(names)) < len(names):
        raise ValueError(f"candidates of the same name and length: {names}; name them apart.")
    kept = [kept_bytes(candidate, apart=candidate.apart) for candidate in candidates]
    seconds = time_in_turn(candidates, rounds=rounds)
    return {
        name: Cost(name=name[0], length=name[1], seconds=taken, kept=held)
        for name, taken, held in zip(names, seconds, kept, strict=True)
    }


def kept_bytes(run: Callable[[], object], *, apart: Iterable[Tensor] = ()) -> int:
    """Bytes that a run's forward passes keep for their backward passes: every storage once, and whole.

    Args:
        run: Anything that computes with gradients.
        apart: Tensors whose storages do not count, such as parameters.
    """
    own = {tensor.untyped_storage().data_ptr() for tensor in apart}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the tensor itself would hold on to its own graph

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(kept.values())


def one_head(pathway: str, *, batch: int, length: int, seed: int, written_out: bool = False) -> Candidate:
    """One head of base width, the token maps that it needs made in every call.

    Args:
        pathway: Name of its pathway.
        batch: Sequences.
        length: Tokens of each.
        seed: Decides tokens, input and weights.
        written_out: A learned head's softmax over a matrix of scores, as in eval mode, in place of the fused kernel
            that it is trained with.

    Raises:
        ValueError: a pathway that does not exist.
    """
    if pathway not in ORDER:
        raise ValueError(f"pathway is {pathway!r}; choose one of {', '.join(ORDER)}.")
    sizes: dict[str, Any] = {pathway: HEAD}
    pathways = Pathways(**sizes, cls_token=CLS, sep_token=SEP)
    tokens = random_tokens(batch, length, seed=seed)
    attention = LegoAttention(BASE, pathways, d_head=HEAD, width=HEAD, seed=derived_seed(seed, "head"))
    attention.train(not written_out)
    x = torch.randn(batch, length, BASE, generator=derived_generator(seed, "input"), requires_grad=True)
    make = functools.partial(token_maps, tokens, pathways=pathways, d_vocab=VOCAB)
    made = make() if pathway == "learned" else None  # of which it needs nothing
    weights = tuple(attention.parameters())
    return Candidate(
        name=f"{pathway}, written out" if written_out else pathway, length=length,
        forward=lambda: attention(x, made or make()), weights=(x, *weights), apart=weights,
    )  # fmt: skip


def maps_alone(*, batch: int, length: int, seed: int) -> Candidate:
    """The making of all token maps, which the layers of a model share."""
    tokens = random_tokens(batch, length, seed=seed)
    pathways = Pathways(association=HEAD, cls=HEAD, sep=HEAD, cls_token=CLS, sep_token=SEP)
    return Candidate(
        name="token maps", length=length, weights=(),
        forward=functools.partial(token_maps, tokens, pathways=pathways, d_vocab=VOCAB),
    )  # fmt: skip


def heads_of_each_kind(*, seed: int) -> list[Candidate]:
    """One head of every pathway, and the making of token maps alone."""
    heads = [one_head(name, batch=HEAD_BATCH, length=SHORT, seed=seed) for name in ORDER]
    return [*heads, maps_alone(batch=HEAD_BATCH, length=SHORT, seed=seed)]


def heads_at_lengths(lengths: Sequence[int], *, seed: int) -> list[Candidate]:
    """A head of every pathway (of the two broadcasts one), a learned one also written out, on one sequence each."""
    return [
        one_head(name, batch=1, length=length, seed=seed, written_out=written_out)
        for length in lengths
        for name in (*LINEAR, "convolution", "learned")
        for written_out in ((False, True) if name == "learned" else (False,))
    ]


def whole_models(
    names: Sequence[str], *, lengths: Sequence[int], tokens: int, seed: int, sizes: Mapping[str, int] | None = None
) -> list[Candidate]:
    """Models of two layers with logits at every position, each at every length.

    Args:
        names: Which, of `MODELS`.
        lengths: Tokens in a sequence.
        tokens: In a batch, at whatever length.
        seed: Decides tokens and weights.
        sizes: Other sizes than the base ones: `d_model`, `n_heads`, `n_layers`.

    Raises:
        ValueError: a model that does not exist, or a length that does not divide the tokens.
    """
    if unknown := [name for name in names if name not in MODELS]:
        raise ValueError(f"no model is called {unknown[0]!r}; choose among {', '.join(MODELS)}.")
    if wrong := [length for length in lengths if tokens % length]:
        raise ValueError(f"tokens is {tokens}, no multiple of the length {wrong[0]}; give one of every length.")
    batches = {length: random_tokens(tokens // length, length, seed=seed) for length in lengths}
    chosen = {"d_model": BASE, "n_heads": BASE // HEAD, "n_layers": LAYERS, "n_ctx": max(lengths), **(sizes or {})}
    candidates = []
    for name in names:
        run, weights = (_theirs if name in HUGGINGFACE else _ours)(name, chosen, seed)
        candidates += [
            Candidate(name=name, length=length, forward=functools.partial(run, batch), weights=weights, apart=weights)
            for length, batch in batches.items()
        ]
    return candidates


def _ours(name: str, sizes: Mapping[str, int], seed: int) -> tuple[Callable[[Tensor], Tensor], tuple[Tensor, ...]]:
    markers = {} if name == "BERT" else {"cls_token": CLS, "sep_token": SEP}
    config: Any = OURS[name]
    model = Encoder(config(d_vocab=VOCAB, **sizes, **markers), seed=derived_seed(seed, "model")).train()
    return model, tuple(model.parameters())


def _theirs(name: str, sizes: Mapping[str, int], seed: int) -> tuple[Callable[[Tensor], Tensor], tuple[Tensor, ...]]:
    import transformers

    described: Any = transformers.BertConfig
    config = described(
        vocab_size=VOCAB, hidden_size=sizes["d_model"], num_hidden_layers=sizes["n_layers"],
        num_attention_heads=sizes["n_heads"], intermediate_size=4 * sizes["d_model"],
        max_position_embeddings=sizes["n_ctx"], hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        attn_implementation=HUGGINGFACE[name],
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "model"))
        model: Any = transformers.BertForMaskedLM(config)
    model.train()
    return lambda tokens: model(tokens).logits, tuple(model.parameters())


def random_tokens(batch: int, length: int, *, seed: int) -> Tensor:
    """Random tokens, [CLS] before them and [SEP] behind."""
    generator = derived_generator(seed, "tokens", batch, length)
    tokens = torch.randint(SEP + 1, VOCAB, (batch, length), generator=generator)
    tokens[:, 0], tokens[:, -1] = CLS, SEP
    return tokens
