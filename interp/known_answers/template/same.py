"""A transformer that distinguishes same from different through a I: queries attend to the equal symbol elsewhere.

Layer 0: a head with scores a_h x x^T attends to the equal symbol and writes its position; the MLP marks each pair of
equal positions. Layer 1: a head gathers the marks at [CLS], where the MLP identifies the template by its pairs. No
weight depends on a particular symbol, so the model works for unseen ones.
"""

from itertools import permutations
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks import Transformer, presets
from hooks.checks import check_choice
from hooks.randomness import seeded_generator
from hooks.typed import checks_types
from interp.known_answers.craft.weights import (
    LINEAR_EPS,
    SHARP,
    Registers,
    balance,
    bias_of,
    empty_model,
    head_rows,
    mlp_of,
    position_table,
)
from interp.tasks import Template

Gather = Literal["uniform", "previous"]
SYMBOL_WIDTH = 64
"""Width of a symbol's vector."""
SCRAP = 4
"""Number of coordinates that nothing reads."""
GATED = 4.0
"""Effect of a gate, relative to that of attention; marks vanish if it is closed by more than a quarter."""
EQUAL, GATHER = 0, 0
"""Indices of the head that attends to equal symbols, in layer 0, and of the head that gathers marks, in layer 1."""


@checks_types
def template_same(task: Template, *, gather: Gather = "uniform", seed: int = 0) -> Transformer:
    """A two-layer transformer that solves a template task of real labels exactly, for symbols of any alphabet.

    Head 0.0 is the a I head, whose queries and keys depend on positions only. Head 1.0 gathers marks.

    Args:
        task: Task of real labels on strings of wildcards, with any number and length of templates.
        gather: Attention of head 1.0: `uniform`, or to the `previous` token, which is enough if the label is determined
            by the symbols equal to the last one.
        seed: Determines the vectors of the symbols.

    Returns:
        The model, in float64.

    Raises:
        ValueError: labels that are tokens, fixed tokens in strings, `previous` where the last symbol does not determine
            the label, an unknown `gather`, or too many symbols for their width.

    Source: a I as in the template paper (arXiv:2310.09753), on W_Q W_K^T. Differs: weights are hand-written, and norms
    are the identity.
    """
    model = empty_same(task, n_heads=1, seed=seed)
    attend_to_equal(model, task, EQUAL)
    write_position(model, task, EQUAL)
    mark_pairs(model, task)
    return finish_same(model, task, gather=gather)


def same_registers(task: Template) -> Registers:
    """Registers of the stream: symbol, position, position of the equal symbol, marks here, and marks gathered."""
    places = string_length(task)
    pairs = len(_pairs(task))
    sizes = {"symbol": SYMBOL_WIDTH, "position": places + 1, "equal": places, "marks": pairs, "gathered": pairs}
    return Registers({**sizes, "answer": 1, "scrap": SCRAP})


@torch.no_grad()
def empty_same(task: Template, *, n_heads: int, seed: int = 0, registers: int = 0, n_units: int = 0) -> Transformer:
    """A model of `template_same` in float64 that embeds tokens, with zero weights otherwise.

    Args:
        task: As in `template_same`.
        n_heads: Number of heads per layer.
        seed: As in `template_same`.
        registers: Number of additional coordinates of the stream, after all registers, and of each head.
        n_units: Smallest number of units of each MLP.

    Raises:
        ValueError: labels that are tokens, or fixed tokens in strings.
    """
    if task.form != "real":
        raise ValueError(f"task has form={task.form!r}; same and different need real labels.")
    if len(task.fixed) > 1:
        raise ValueError(f"task has the fixed tokens {', '.join(task.fixed[:-1])}; only wildcards can be equal.")
    stream = same_registers(task)
    length = string_length(task)
    pairs = _pairs(task)
    cfg = presets.template(
        d_vocab=task.d_vocab,
        d_vocab_out=1,
        n_ctx=task.n_ctx,
        d_model=stream.d_model + registers,
        d_head=max(len(pairs), length + 2) + registers,
        d_mlp=max(2 * len(pairs), len(task.labelled), n_units),
        n_heads=n_heads,
        activation="relu",
        qk_identity=True,
        attn_bias=True,
        attn_scale=1.0,
        layer_norm_eps=LINEAR_EPS,
    )
    # Symbols have vectors; [CLS] has none, only its position
    model = empty_model(cfg)
    symbols = task.d_vocab - len(task.fixed)
    model.embed.weight[len(task.fixed) :, stream["symbol"]] = symbol_vectors(symbols, seed=seed)
    position_table(model)[:, stream["position"]] = torch.eye(task.n_ctx)
    return model


def symbol_vectors(count: int, *, seed: int = 0) -> Float[Tensor, "symbol width"]:
    """Random unit vectors of mean zero, one for each symbol.

    Raises:
        ValueError: two vectors with a cosine above 0.9.
    """
    generator = seeded_generator(seed)
    vectors = torch.randn(count, SYMBOL_WIDTH, generator=generator, dtype=torch.float64)
    vectors = vectors - vectors.mean(1, keepdim=True)
    vectors = vectors / vectors.norm(dim=1, keepdim=True)
    if closest(vectors) > 0.9:
        raise ValueError(
            f"task has {count} symbols; {SYMBOL_WIDTH} dimensions are too few for that number of distinct vectors."
        )
    return vectors


def closest(vectors: Float[Tensor, "symbol width"]) -> float:
    """Largest cosine of two different unit vectors."""
    cosines = vectors @ vectors.T
    return float(cosines.fill_diagonal_(-1).max())


@torch.no_grad()
def attend_to_equal(model: Transformer, task: Template, head: int) -> None:
    """Let a head of layer 0 attend to the equal symbol elsewhere, or to [CLS] if there is none.

    The score a_h x x^T of the equal symbol is larger by `SHARP` than that of [CLS], which is larger by `SHARP` than any
    other.
    """
    stream = same_registers(task)
    block = model.block(0)
    near = closest(model.embed.weight[len(task.fixed) :, stream["symbol"]])
    strength = 2 * SHARP / (1 - near)
    cast(Tensor, block.attention.a)[head] = strength
    # Queries and keys depend on positions only: not itself, and rather [CLS] than an unequal symbol
    rows = head_rows(block, head)
    places = slice(0, task.n_ctx)
    query, key = block.attention.q.weight[rows], block.attention.k.weight[rows]
    query[places, stream["position"]] = -4 * strength * torch.eye(task.n_ctx)
    key[places, stream["position"]] = torch.eye(task.n_ctx)
    query[task.n_ctx, stream["position"]] = strength * (1 + near) / 2
    key[task.n_ctx, stream["position"].stop - 1] = 1


@torch.no_grad()
def write_position(
    model: Transformer,
    task: Template,
    head: int,
    *,
    gains: Float[Tensor, " place"] | None = None,
    constant: float = 0.0,
) -> None:
    """Let a head of layer 0 write its attention to each position, times `gains` (default: 1), plus a constant."""
    stream = same_registers(task)
    block = model.block(0)
    length = string_length(task)
    rows = head_rows(block, head)
    start = stream["position"].start
    gains = torch.ones(length) if gains is None else gains
    block.attention.v.weight[rows][:length, start : start + length] = torch.diag(gains).double()
    bias_of(block.attention.v)[rows][:length] = constant
    block.attention.o.weight[:, rows][stream["equal"], :length] = torch.eye(length)


@torch.no_grad()
def mark_pairs(
    model: Transformer, task: Template, *, between: tuple[float, float] | None = None, gate: slice | None = None
) -> None:
    """MLP of layer 0: at position i, a mark for (i, j) if symbol j is equal.

    The mark rises from 0 to 1 `between` two amounts of attention to j. Default: 1 / length, as under uniform attention,
    and 1 / (length - 1), as if all other symbols are equal. With a `gate` there are twice the number of units, and
    marks only where this coordinate is 1 or -1, and not if its magnitude is below 0.7.
    """
    stream = same_registers(task)
    mlp = mlp_of(model.block(0))
    length = string_length(task)
    low, high = between or (1 / length, 1 / max(1, length - 1))
    steep = 1 / (high - low)
    local = steep * (2 + 2 * high)
    # Every pair, once for each sign of the gate
    signs = (0.0,) if gate is None else (1.0, -1.0)
    marks = [(index, pair, sign) for sign in signs for index, pair in enumerate(_pairs(task))]
    # The difference of two units rises from 0 to 1, at the first position of the pair
    for number, (index, (query, key), sign) in enumerate(marks):
        units = slice(2 * number, 2 * number + 2)
        mlp.w_in.weight[units, stream["equal"].start + key] = steep
        mlp.w_in.weight[units, stream["position"].start + query] = local
        bias_of(mlp.w_in)[units] = -steep * low - local - torch.arange(2.0).double()
        if gate is not None:
            mlp.w_in.weight[units, gate] = sign * GATED * steep
            bias_of(mlp.w_in)[units] -= GATED * steep
        mlp.w_out.weight[stream["marks"].start + index, units] = torch.tensor([1.0, -1.0]).double()


@torch.no_grad()
def finish_same(
    model: Transformer, task: Template, *, gather: Gather = "uniform", otherwise: float = 0.0
) -> Transformer:
    """Write layer 1 and the read-out, and balance the stream; `otherwise` is the answer if no template is recognised.

    Raises:
        ValueError: an unknown `gather`, or `previous` where the last symbol does not determine the label.
    """
    check_choice("gather", gather, Gather)
    stream = same_registers(task)
    block = model.block(1)
    rows = head_rows(block, GATHER)
    pairs = _pairs(task)
    # Gather the marks at [CLS], all of them or those of the last symbol; the mean over tokens becomes a sum
    if gather == "previous":
        for place in range(1, task.n_ctx):
            block.attention.q.weight[rows][place, stream["position"].start + place] = SHARP
            block.attention.k.weight[rows][place, stream["position"].start + place - 1] = 1
    identity = torch.eye(len(pairs)).double()
    n_tokens = task.n_ctx if gather == "uniform" else 1
    block.attention.v.weight[rows][: len(pairs), stream["marks"]] = identity
    block.attention.o.weight[:, rows][stream["gathered"], : len(pairs)] = n_tokens * identity
    # The MLP looks up the label
    _identify_templates(model, task, gather, otherwise)
    model.unembed.weight[0, stream["answer"]] = 1
    balance(model)
    return model.eval()


def _identify_templates(model: Transformer, task: Template, gather: Gather, otherwise: float) -> None:
    """MLP of layer 1: the hidden unit of each template is 1 if exactly its pairs are marked, else 0.

    Marks below one half, such as those averaged over several tokens, do not activate it.
    """
    stream = same_registers(task)
    mlp = mlp_of(model.block(1))
    last = string_length(task) - 1
    gathered = torch.tensor([gather == "uniform" or query == last for query, _ in _pairs(task)])
    # Templates with the same pairs must have the same label
    label_of_pairs: dict[tuple[bool, ...], float] = {}
    for template, equal in zip(task.labelled, _equal(task), strict=True):
        label = label_of_pairs.setdefault(tuple((equal & gathered).tolist()), float(template.label))
        if label != template.label:
            raise ValueError(
                f"gather is 'previous', but the symbols equal to the last one of '{template}' do not determine its "
                f"label."
            )
    # A unit for each set of pairs
    for unit, (pairs, label) in enumerate(label_of_pairs.items()):
        equal = torch.tensor(pairs)
        mlp.w_in.weight[unit, stream["gathered"]] = torch.where(equal, 2.0, -2.0).double() * gathered
        bias_of(mlp.w_in)[unit] = 1 - 2 * equal.sum()
        mlp.w_out.weight[stream["answer"], unit] = label - otherwise
    bias_of(mlp.w_out)[stream["answer"]] = otherwise


def _equal(task: Template) -> Bool[Tensor, "template pair"]:
    """Whether each pair is equal in each template."""
    equal = []
    for template in task.labelled:
        tokens = template.tokens
        equal.append([tokens[first] == tokens[second] for first, second in _pairs(task)])
    return torch.tensor(equal)


def _pairs(task: Template) -> list[tuple[int, int]]:
    """Ordered pairs of different positions in a string."""
    return list(permutations(range(string_length(task)), 2))


def string_length(task: Template) -> int:
    """Number of symbols of a string."""
    return len(task.labelled[0].tokens)
