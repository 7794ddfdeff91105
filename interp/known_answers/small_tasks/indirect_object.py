"""Models that find the indirect object: the name that is not repeated.

`by_name`: one head finds the repeated name, and one moves the other name to the answer. `by_place`: a duplicate-token
head finds where the repeated name was first, an S-inhibition head brings that place to the end, and a name mover avoids
it, as in Wang et al. 2022 (arXiv:2211.00593). Scores are divided as in trained models, so that the patterns of
untrained heads, with which labels are compared, are not sharp. Each function takes a generator, which determines the
number of names, gains and idle heads.
"""

import torch

from hooks import Transformer, TransformerConfig
from hooks.model.blocks import Block
from interp.known_answers.answers import KnownAnswer, all_heads, draw, needed_head, redundant_heads, unneeded_heads
from interp.known_answers.craft.weights import (
    SHARP,
    Registers,
    bias_of,
    empty_model,
    head_rows,
    mlp_of,
    position_table,
    write_idle_head,
    write_map,
)
from interp.known_answers.small_tasks.in_context_lookup import (
    MOST_IDLE,
    SCRAP,
    attend_by_position,
    previous_positions,
    random_gain,
)
from interp.tasks.indirect_object.task import BOS, IndirectObject

RECENCY = 10.0
"""Score of a name for each position that it is later."""
INHIBITION = 220.0
"""Score that a repeated name loses: more than a name can gain by being the latest, but with a uniform pattern of the
head that finds it, less than it gains by being later than the other one."""
LEAST_SHARE = 0.4
"""Attention to the repeated name beyond which its first place is avoided."""


def by_name(generator: torch.Generator, *, decoys: bool = False, copies: int = 1) -> KnownAnswer:
    """A head of layer 0 brings the repeated name, the latest one, to the end; one of layer 1 moves another name.

    Args:
        generator: Determines the number of names, gains and idle heads.
        decoys: One more head of each layer has the same pattern and writes nothing, and so does a head of layer 0 that
            attends to the previous token.
        copies: Number of heads that move the name, of which one is enough.
    """
    task = IndirectObject(n_names=draw(generator, 16, 26))
    stream = name_registers(task)
    model = _empty_names(task, generator, n_layers=2, n_heads=3 if decoys else copies)
    names = torch.eye(task.n_names).double()
    _attend_to_latest_name(model.block(0), task, 0)
    write_map(model.block(0), 0, names, reads=stream["name"], writes=stream["subject"])
    truths = needed_head("subject")
    for head in range(copies):
        _avoid_subject(model.block(1), task, head)
        gain = random_gain(generator)
        write_map(model.block(1), head, gain * names, reads=stream["name"], writes=stream["answer"])
    if copies == 1:
        truths |= needed_head("indirect_object", layer=1)
    else:
        truths |= redundant_heads("indirect_object", range(copies), layer=1)
    if decoys:
        _attend_to_latest_name(model.block(0), task, 1)
        attend_by_position(model.block(0), 2, stream["position"], previous_positions(task.n_ctx))
        _avoid_subject(model.block(1), task, 1)
        truths |= unneeded_heads("subject", [1]) | unneeded_heads("previous", [2])
        truths |= unneeded_heads("indirect_object", [1], layer=1)
    return KnownAnswer(name="indirect object", model=model.eval(), task=task, heads=all_heads(model, truths))


def by_place(generator: torch.Generator) -> KnownAnswer:
    """Three heads in three layers: a duplicate-token head, an S-inhibition head and a name mover.

    The first writes the place of the first mention to the second one, the second brings it to the end, and the third
    attends to the name that is neither there nor repeats an earlier one.
    """
    task = IndirectObject(n_names=draw(generator, 16, 26))
    stream = name_registers(task)
    model = _empty_names(task, generator, n_layers=3, n_heads=1, n_units=task.n_ctx)
    places = torch.eye(task.n_ctx).double()
    _attend_to_first_mention(model.block(0), task, 0)
    write_map(model.block(0), 0, places, reads=stream["position"], writes=stream["first place"])
    _attend_to_latest_name(model.block(1), task, 0)
    write_map(model.block(1), 0, places, reads=stream["first place"], writes=stream["brought place"])
    _write_threshold(model, task, layer=1)
    _avoid_place(model.block(2), task, 0)
    names = random_gain(generator) * torch.eye(task.n_names).double()
    write_map(model.block(2), 0, names, reads=stream["name"], writes=stream["answer"])
    truths = needed_head("duplicate") | needed_head("subject", layer=1) | needed_head("indirect_object", layer=2)
    return KnownAnswer(name="indirect object", model=model.eval(), task=task, heads=all_heads(model, truths))


def name_registers(task: IndirectObject) -> Registers:
    """Registers of the stream: names and other marks of tokens, positions, what heads bring, and the answer."""
    return Registers(
        {
            "name": task.n_names,
            "bos": 1,
            "word": SCRAP,  # random codes of other words
            "position": task.n_ctx,
            "subject": task.n_names,  # the repeated name, at the end
            "first place": task.n_ctx,  # where a repeated name was first, at its second mention
            "brought place": task.n_ctx,  # the same, at the end
            "avoided place": task.n_ctx,  # the same, if enough of it was brought
            "answer": task.n_names,
            "scrap": SCRAP,
        }
    )


@torch.no_grad()
def _empty_names(
    task: IndirectObject, generator: torch.Generator, *, n_layers: int, n_heads: int, n_units: int = 0
) -> Transformer:
    """A model in float64 that embeds tokens and reads out names, with empty heads, idle ones, and an empty MLP."""
    stream = name_registers(task)
    n_idle = draw(generator, 0, MOST_IDLE)
    cfg = TransformerConfig(
        d_vocab=task.d_vocab,
        d_vocab_out=task.d_vocab_out,
        n_ctx=task.n_ctx,
        n_layers=n_layers,
        n_heads=n_heads + n_idle,
        d_model=stream.d_model,
        d_head=task.n_names + 2 * task.n_ctx + 2,
        d_mlp=n_units,
        block="no_norm",
        activation="relu",
        attention="causal",
    )
    model = empty_model(cfg)
    embedding = model.embed.weight
    embedding[: task.n_names, stream["name"]] = torch.eye(task.n_names).double()
    embedding[task.vocab.ids[BOS], stream["bos"]] = 1
    n_words = task.d_vocab - task.n_names - 1
    embedding[-n_words:, stream["word"]] = torch.randn(n_words, SCRAP, generator=generator, dtype=torch.float64)
    position_table(model)[:, stream["position"]] = torch.eye(task.n_ctx).double()
    model.unembed.weight[:, stream["answer"]] = torch.eye(task.n_names).double()
    # idle heads read names only, so that they are uniform at the end; a random row could look like a kind
    for block in model.stored_blocks:
        for head in range(n_heads, n_heads + n_idle):
            write_idle_head(
                block, head, reads=stream["name"], writes=stream["scrap"], generator=generator, strength=0.5
            )
    return model


@torch.no_grad()
def _attend_to_latest_name(block: Block, task: IndirectObject, head: int) -> None:
    """Let every position attend to the latest name, or evenly if there is none yet."""
    _prefer_late_names(block, task, head, step=SHARP)


@torch.no_grad()
def _prefer_late_names(block: Block, task: IndirectObject, head: int, *, step: float) -> None:
    """Let names score `step` more for each position that they are later, and more than all other tokens."""
    stream = name_registers(task)
    rows = head_rows(block, head)
    query, key = block.attention.q, block.attention.k.weight[rows]
    # names by far; of all tokens the later ones
    scale = block.attention.scale
    bias_of(query)[rows][-2] = 2 * step * scale * task.n_ctx
    key[-2, stream["name"]] = 1
    bias_of(query)[rows][-1] = step * scale
    key[-1, stream["position"]] = torch.arange(task.n_ctx).double()


@torch.no_grad()
def _avoid_subject(block: Block, task: IndirectObject, head: int) -> None:
    """Let a head attend to the latest name other than the one in the query's register `subject`."""
    stream = name_registers(task)
    rows = head_rows(block, head)
    _prefer_late_names(block, task, head, step=RECENCY)
    names = torch.eye(task.n_names).double()
    block.attention.q.weight[rows][: task.n_names, stream["subject"]] = -INHIBITION * block.attention.scale * names
    block.attention.k.weight[rows][: task.n_names, stream["name"]] = names


@torch.no_grad()
def _attend_to_first_mention(block: Block, task: IndirectObject, head: int) -> None:
    """Let a head attend to an earlier position of the query's name, or else to `[BOS]`."""
    stream = name_registers(task)
    rows = head_rows(block, head)
    query, key = block.attention.q.weight[rows], block.attention.k.weight[rows]
    names = torch.eye(task.n_names).double()
    sharp = SHARP * block.attention.scale
    query[: task.n_names, stream["name"]] = sharp * names
    key[: task.n_names, stream["name"]] = names
    # the query's own position is no match
    places = slice(task.n_names, task.n_names + task.n_ctx)
    query[places, stream["position"]] = -4 * sharp * torch.eye(task.n_ctx).double()
    key[places, stream["position"]] = torch.eye(task.n_ctx).double()
    # [BOS] scores half as much as a match
    bias_of(block.attention.q)[rows][-1] = sharp / 2
    key[-1, stream["bos"]] = 1


@torch.no_grad()
def _write_threshold(model: Transformer, task: IndirectObject, *, layer: int) -> None:
    """Let the MLP pass on the place that was brought, if more than `LEAST_SHARE` of the attention was on it."""
    stream = name_registers(task)
    mlp = mlp_of(model.block(layer))
    places = torch.eye(task.n_ctx).double()
    mlp.w_in.weight[:, stream["brought place"]] = places
    bias_of(mlp.w_in)[:] = -LEAST_SHARE
    mlp.w_out.weight[stream["avoided place"]] = places / (1 - LEAST_SHARE)


@torch.no_grad()
def _avoid_place(block: Block, task: IndirectObject, head: int) -> None:
    """Let a head attend to names that are not at the query's avoided place, and do not repeat an earlier one."""
    stream = name_registers(task)
    rows = head_rows(block, head)
    query, key = block.attention.q, block.attention.k.weight[rows]
    bias_of(query)[rows][-2] = SHARP * block.attention.scale
    key[-2, stream["name"]] = 1
    # names that have a first place elsewhere; that of all others is [BOS]
    key[-2, stream["first place"]] = -4
    key[-2, stream["first place"].start] = 0
    places = torch.eye(task.n_ctx).double()
    block.attention.q.weight[rows][: task.n_ctx, stream["avoided place"]] = -INHIBITION * block.attention.scale * places
    block.attention.k.weight[rows][: task.n_ctx, stream["position"]] = places
