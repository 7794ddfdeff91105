"""A transformer that tells same from different through a I: a query looks at the equal symbol, whatever symbol it is.

Layer 0: a head whose scores are a_h x x^T finds the equal symbol elsewhere and writes down where it stands; the MLP
marks each pair of equal positions. Layer 1: a head gathers the marks at [CLS], where the MLP knows each template by the
pairs it has. No weight tells one symbol from another, so unseen ones are as good as seen ones.
"""

from collections.abc import Sequence
from typing import Literal, cast, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks import Transformer, presets
from interp.known_answers.craft.one_hot import clear
from interp.known_answers.craft.wiring import (
    LINEAR_EPS,
    SHARP,
    Registers,
    balance,
    bias_of,
    head_rows,
    mlp_of,
    wire_norms,
)
from interp.tasks import Template

Gather = Literal["uniform", "previous"]
SYMBOL_WIDTH = 64
"""Dimensions of a symbol's vector."""
SCRAP = 4
"""Coordinates that nothing reads."""
EQUAL, BRING = 0, 0
"""Which head finds the equal symbol, in layer 0, and which brings the marks to [CLS], in layer 1."""


def template_same(task: Template, *, gather: Gather = "uniform", seed: int = 0) -> Transformer:
    """A two-layer transformer that solves a template task of real labels exactly, for symbols of any alphabet.

    Head 0.0 is the a I head: queries and keys know positions alone. Head 1.0 gathers.

    Args:
        task: Real labels; strings of wildcards, any number and length of templates.
        gather: Head 1.0 looks at all tokens alike (`uniform`), or at the one before (`previous`), which is enough where
            what the last symbol equals decides.
        seed: Decides the vectors of the symbols.

    Returns:
        The model, in float64.

    Raises:
        ValueError: labels that are tokens, fixed tokens in strings, `previous` where the last symbol does not decide,
            an unknown way to gather, or so many symbols that two are nearly alike.

    Source: a I as in the template paper (arXiv:2310.09753), on W_K W_Q^T. Differs: ours is wired by hand, and its norms
    are linear.
    """
    model = empty_same(task, n_heads=1, seed=seed)
    look_for_equal(model, task, EQUAL)
    tell_where(model, task, EQUAL)
    mark_pairs(model, task)
    return finish_same(model, task, gather=gather)


def same_registers(task: Template) -> Registers:
    """The stream: symbol and place of a token, where its equal stands, marked pairs here, and all at [CLS]."""
    places, pairs = _length(task), len(_pairs(task))
    sizes = {"symbol": SYMBOL_WIDTH, "position": places + 1, "found": places, "marks": pairs, "gathered": pairs}
    return Registers({**sizes, "answer": 1, "scrap": SCRAP})


@torch.no_grad()
def empty_same(task: Template, *, n_heads: int, seed: int = 0) -> Transformer:
    """A model with that stream, in float64, that embeds tokens and does nothing yet.

    Args:
        task: As for `template_same`.
        n_heads: Heads of both layers.
        seed: Decides the vectors of the symbols.

    Raises:
        ValueError: labels that are tokens, or fixed tokens in strings.
    """
    if task.form != "real":
        raise ValueError(f"task has form={task.form!r}; same and different are told by real labels.")
    if len(task.fixed) > 1:
        raise ValueError(f"task has the fixed tokens {', '.join(task.fixed[:-1])}; only wildcards can be equal.")
    at, length, pairs = same_registers(task), _length(task), _pairs(task)
    cfg = presets.template(
        d_vocab=task.d_vocab,
        d_vocab_out=1,
        n_ctx=task.n_ctx,
        d_model=at.d_model,
        d_head=max(len(pairs), length + 2),
        d_mlp=max(2 * len(pairs), len(task.labelled)),
        n_heads=n_heads,
        activation="relu",
        qk_identity=True,
        attn_bias=True,
        attn_scale=1.0,
        layer_norm_eps=LINEAR_EPS,
    )
    model = Transformer(cfg).double()
    clear(model)
    symbols = task.d_vocab - len(task.fixed)
    model.embed.weight[len(task.fixed) :, at["symbol"]] = symbol_vectors(symbols, seed=seed)
    positions_of(model)[:, at["position"]] = torch.eye(task.n_ctx)
    return model


def symbol_vectors(count: int, *, seed: int = 0) -> Float[Tensor, "symbol width"]:
    """A random unit vector for each symbol, of mean zero.

    Raises:
        ValueError: so many that two are nearly alike.
    """
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(count, SYMBOL_WIDTH, generator=generator, dtype=torch.float64)
    vectors = vectors - vectors.mean(1, keepdim=True)
    vectors = vectors / vectors.norm(dim=1, keepdim=True)
    if closest(vectors) > 0.9:
        raise ValueError(f"task has {count} symbols; {SYMBOL_WIDTH} dimensions do not keep so many apart.")
    return vectors


def closest(vectors: Float[Tensor, "symbol width"]) -> float:
    """The largest cosine of two different unit vectors."""
    cosines = vectors @ vectors.T
    return float(cosines.fill_diagonal_(-1).max())


def positions_of(model: Transformer) -> Float[Tensor, "pos d_model"]:
    """The table of learned positions."""
    return cast(Tensor, cast(torch.nn.Module, model.positions).weight)


@torch.no_grad()
def look_for_equal(model: Transformer, task: Template, head: int) -> None:
    """Let a head of layer 0 look at the equal symbol elsewhere, at [CLS] where there is none.

    a_h x x^T gives the equal symbol `SHARP` over [CLS], and [CLS] `SHARP` over any other.
    """
    at, block = same_registers(task), model.block(0)
    near = closest(model.embed.weight[len(task.fixed) :, at["symbol"]])
    strength = 2 * SHARP / (1 - near)
    cast(Tensor, block.attention.a)[head] = strength
    rows, places = head_rows(block, head), slice(0, task.n_ctx)
    query, key = block.attention.q.weight[rows], block.attention.k.weight[rows]
    query[places, at["position"]] = -4 * strength * torch.eye(task.n_ctx)  # not itself
    key[places, at["position"]] = torch.eye(task.n_ctx)
    query[task.n_ctx, at["position"]] = strength * (1 + near) / 2
    key[task.n_ctx, at["position"].stop - 1] = 1


@torch.no_grad()
def tell_where(
    model: Transformer,
    task: Template,
    head: int,
    *,
    gains: Sequence[float] | Float[Tensor, " place"] | None = None,
    constant: float = 0.0,
) -> None:
    """Let a head of layer 0 write where it looks: the share of each place of the string.

    Args:
        model: From `empty_same`; changed in place.
        task: Its task.
        head: Which one.
        gains: What each place's share is multiplied by; 1 when left out.
        constant: Added to all, whatever the head looks at.
    """
    at, block, length = same_registers(task), model.block(0), _length(task)
    rows, start = head_rows(block, head), at["position"].start
    gains = torch.ones(length) if gains is None else torch.as_tensor(gains)
    block.attention.v.weight[rows][:length, start : start + length] = torch.diag(gains).double()
    bias_of(block.attention.v)[rows][:length] = constant
    block.attention.o.weight[:, rows][at["found"], :length] = torch.eye(length)


@torch.no_grad()
def mark_pairs(model: Transformer, task: Template, *, between: tuple[float, float] | None = None) -> None:
    """MLP of layer 0: at place i, a mark for (i, j) where j is equal.

    Args:
        model: From `empty_same`; changed in place.
        task: Its task.
        between: The mark rises from 0 to 1 between these shares of j. Left out: between the share that an equal symbol
            has where all others are equal, and what it has if the head looks at everything alike.
    """
    at, mlp, length = same_registers(task), mlp_of(model.block(0)), _length(task)
    low, high = between or (1 / length, 1 / max(1, length - 1))
    steep = 1 / (high - low)
    gate = steep * (2 + 2 * high)
    for index, (here, there) in enumerate(_pairs(task)):
        units = slice(2 * index, 2 * index + 2)
        mlp.w_in.weight[units, at["found"].start + there] = steep
        mlp.w_in.weight[units, at["position"].start + here] = gate
        bias_of(mlp.w_in)[units] = -steep * low - gate - torch.arange(2.0).double()
        mlp.w_out.weight[at["marks"].start + index, units] = torch.tensor([1.0, -1.0]).double()


@torch.no_grad()
def finish_same(model: Transformer, task: Template, *, gather: Gather = "uniform") -> Transformer:
    """Layer 1 and the read-out; then the stream is balanced, and the model is ready.

    Raises:
        ValueError: an unknown way to gather, or `previous` where what the last symbol equals does not decide.
    """
    if gather not in get_args(Gather):
        raise ValueError(f"gather is {gather!r}; choose one of {', '.join(get_args(Gather))}.")
    at, block = same_registers(task), model.block(1)
    rows, pairs = head_rows(block, BRING), _pairs(task)
    if gather == "previous":
        for place in range(1, task.n_ctx):
            block.attention.q.weight[rows][place, at["position"].start + place] = SHARP
            block.attention.k.weight[rows][place, at["position"].start + place - 1] = 1
    block.attention.v.weight[rows][: len(pairs), at["marks"]] = torch.eye(len(pairs)).double()
    times = task.n_ctx if gather == "uniform" else 1
    block.attention.o.weight[:, rows][at["gathered"], : len(pairs)] = times * torch.eye(len(pairs)).double()
    _know_templates(model, task, gather)
    model.unembed.weight[0, at["answer"]] = 1
    wire_norms(model)
    balance(model)
    return model.eval()


def _know_templates(model: Transformer, task: Template, gather: Gather) -> None:
    """MLP of layer 1: a hidden unit for each template is 1 where the pairs are those that it has, else 0.

    Half of what is wanted is nothing: marks that are spread over several tokens are not read.
    """
    at, mlp = same_registers(task), mlp_of(model.block(1))
    seen = torch.tensor([gather == "uniform" or here == _length(task) - 1 for here, _ in _pairs(task)])
    labels: dict[tuple[bool, ...], float] = {}
    for one, equal in zip(task.labelled, _equal(task), strict=True):
        label = labels.setdefault(tuple((equal & seen).tolist()), float(one.label))
        if label != one.label:
            raise ValueError(f"gather is 'previous', but what the last symbol of '{one}' equals does not decide.")
    for unit, (pairs, label) in enumerate(labels.items()):
        equal = torch.tensor(pairs)
        mlp.w_in.weight[unit, at["gathered"]] = torch.where(equal, 2.0, -2.0).double() * seen
        bias_of(mlp.w_in)[unit] = 1 - 2 * equal.sum()
        mlp.w_out.weight[at["answer"], unit] = label


def _equal(task: Template) -> Bool[Tensor, "template pair"]:
    """Which pairs are equal in each template."""
    return torch.tensor([[one.tokens[i] == one.tokens[j] for i, j in _pairs(task)] for one in task.labelled])


def _pairs(task: Template) -> list[tuple[int, int]]:
    """Pairs of different places in a string, both ways."""
    places = range(_length(task))
    return [(here, there) for here in places for there in places if here != there]


def _length(task: Template) -> int:
    """Symbols of a string."""
    return len(task.labelled[0].tokens)
