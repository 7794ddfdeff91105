"""Replacement of one edge by a separate forward pass with hooks, written from the equations of each block."""

import copy

import torch
import torch.nn.functional as F
from einops import einsum

LETTER = {"query": "q", "key": "k", "value": "v"}


def norm(module, x):
    return F.layer_norm(x, (x.shape[-1],), module.weight, module.bias, module.eps)


def after_attention(model, layer, stream, attention):
    """The stream that the MLP reads, by the equation of the block."""
    block, name = model.block(layer), model.cfg.block
    if name in ("pre_ln", "no_norm"):
        return stream + attention
    if name == "post_ln":
        return norm(block.norm_1, stream + attention)
    if name == "dyck":
        return stream + norm(block.norm_1, attention)
    if name == "extended":
        return stream @ block.residual.weight.T + norm(block.norm_1, attention)
    if name == "minimal":
        return norm(block.norm_1, attention)
    assert name == "bare"
    return attention


def after_mlp(model, layer, mid, mlp):
    block, name = model.block(layer), model.cfg.block
    if mlp is None:
        return mid
    if name in ("pre_ln", "no_norm"):
        return mid + mlp
    return norm(block.norm_2, mid + mlp) if name == "post_ln" else mlp


def writes_of(model, cache):
    """What each part writes in a pass: the embedding, each head and bias, each MLP."""
    point = "attn.hook_result" if model.cfg.vo_identity else "attn.hook_z"
    writes = {"embedding": cache["blocks.0.hook_resid_pre"]}
    for layer in range(model.cfg.n_layers):
        heads = cache[f"blocks.{layer}.{point}"]
        writes |= heads_write(model, layer, heads)
        if not model.cfg.attn_only:
            writes[f"{layer} MLP"] = cache[f"blocks.{layer}.hook_mlp_out"]
    return writes


def heads_write(model, layer, heads):
    if not model.cfg.vo_identity:
        heads = einsum(heads, model.blocks[layer].attn.W_O, "b p h e, h e d -> b p h d")
    return {f"{layer}.{head}": heads[:, :, head] for head in range(model.cfg.n_heads)}


def new_writes(model, new_outputs):
    return writes_of(model, new_outputs)


def stream_at(model, writes, layer, *, mid=False):
    """The stream at the input of a layer, or that which its MLP reads, if parts write this."""
    stream = writes["embedding"]
    for index in range(layer + 1):
        if index == layer and not mid:
            return stream
        heads = sum(writes[f"{index}.{head}"] for head in range(model.cfg.n_heads))
        attention = heads + model.blocks[index].attn.b_O
        stream = after_attention(model, index, stream, attention)
        if index == layer:
            return stream
        stream = after_mlp(model, index, stream, writes.get(f"{index} MLP"))
    raise AssertionError


def inject(values, head=None):
    def edit(activation, hook):
        if head is None:
            return values
        edited = activation.clone()
        edited[:, :, head] = values[:, :, head] if values.ndim == activation.ndim else values
        return edited

    return edit


def points_on_demand(model):
    """A copy with separate inputs of queries, keys, values and MLPs, where the model allows it."""
    copied = copy.deepcopy(model)
    if not any(model.cfg.patterns_of(layer) for layer in range(model.cfg.n_layers)):
        copied.set_use_split_qkv_input(True)
    return copied


@torch.no_grad()
def brute_force(model, tokens, new_outputs, edge, **inputs):
    """Logits with one edge replaced: its receiver reads the stream in which the sender writes something else.

    The model has the points of `points_on_demand`.
    """
    sender, receiver = edge
    _, cache = model.run_with_cache(tokens, **inputs)
    name = str(sender)
    writes = writes_of(model, cache) | {name: new_writes(model, new_outputs)[name]}
    layer, block = receiver.layer, model.block(min(receiver.layer, model.cfg.n_layers - 1))
    prefix = f"blocks.{layer}."
    if receiver.kind == "read-out":
        stream = stream_at(model, writes, layer)
        point, edit = f"blocks.{layer - 1}.hook_resid_post", inject(stream)
    elif receiver.kind == "MLP":
        stream = stream_at(model, writes, layer, mid=True)
        read = norm(block.norm_2, stream) if model.cfg.block == "pre_ln" else stream
        point, edit = (
            prefix + "mlp.hook_pre",
            inject(read @ model.blocks[layer].mlp.W_in + model.blocks[layer].mlp.b_in),
        )
    else:
        stream = stream_at(model, writes, layer)
        point = f"{prefix}attn.hook_{LETTER[receiver.kind]}_input"
        edit = inject(stream, receiver.head)
        if point not in model.hook_dict:  # a model with hard-coded heads: at the query, key or value itself
            letter = LETTER[receiver.kind]
            read = norm(block.norm_1, stream) if model.cfg.block == "pre_ln" else stream
            heads = getattr(block.attention, letter)(read).unflatten(-1, (-1, model.cfg.d_head))
            point, edit = f"{prefix}attn.hook_{letter}", inject(heads, receiver.head)
    return model.run_with_hooks(tokens, **inputs, fwd_hooks=[(point, edit)])
