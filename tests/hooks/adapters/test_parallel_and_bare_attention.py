"""Wrapped models with parallel layers, and with attention whose pattern has no module: edits against plain torch."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from own_models import MAPS, ParallelModel, PlainModel, transformer

import hooks
import interp
from interp.core.randomness import derived_generator
from interp.tasks import Lego
from interp.tasks.base import logits_at_targets
from interp.tasks.splits import sample_split

TASK = Lego(n_vars=3, sentence_format="compact")
SIZES = {"d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx, "n_heads": 2}
HIDDEN = {
    **{"vocab_size": TASK.d_vocab, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 32, "max_position_embeddings": TASK.n_ctx + 2, "initializer_range": 0.4},
}
WITHOUT_PATTERN = {name: path for name, path in MAPS.items() if name != "pattern"}


class Logits(torch.nn.Module):
    """A model of Hugging Face whose output is the logits alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, attention_mask=None):
        return self.model(tokens, attention_mask=attention_mask).logits


def llama(**options):
    return Logits(transformers.LlamaForCausalLM(transformers.LlamaConfig(**HIDDEN, **options)))


def roberta():
    return Logits(transformers.RobertaForMaskedLM(transformers.RobertaConfig(**HIDDEN)))


def neox():
    """Attention and MLP of this model are parallel, with a norm for each."""
    return Logits(transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**HIDDEN)))


def gptj():
    """Parallel, with one norm for both."""
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": TASK.n_ctx, "rotary_dim": 4, "n_inner": 32}
    config = transformers.GPTJConfig(vocab_size=TASK.d_vocab, initializer_range=0.4, **sizes)
    return Logits(transformers.GPTJForCausalLM(config))


PROJECTIONS = {name: f"self_attn.{name}_proj" for name in "qkvo"}
ROBERTA = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value"}
MODULES = {
    "Llama": (llama, "model.model.layers", PROJECTIONS),
    "Llama with shared keys": (lambda: llama(num_key_value_heads=1), "model.model.layers", PROJECTIONS),
    "RoBERTa": (roberta, "model.roberta.encoder.layer", {**ROBERTA, "o": "attention.output.dense"}),
    "GPT-NeoX": (neox, "model.gpt_neox.layers", {"qkv": "attention.query_key_value", "o": "attention.dense"}),
    "GPT-J": (
        gptj,
        "model.transformer.h",
        {"q": "attn.q_proj", "k": "attn.k_proj", "v": "attn.v_proj", "o": "attn.out_proj"},
    ),
    "parallel, one norm": (lambda: ParallelModel(transformer(TASK).cfg), "layers", MAPS),
    "parallel, two norms": (lambda: ParallelModel(transformer(TASK).cfg, "two"), "layers", MAPS),
    "parallel, no norm": (lambda: ParallelModel(transformer(TASK).cfg, "none"), "layers", WITHOUT_PATTERN),
    "sequential": (lambda: PlainModel(transformer(TASK).cfg), "layers", WITHOUT_PATTERN),
}


@pytest.fixture(params=MODULES)
def pair(request):
    """A module, and it wrapped; with the output maps of its attention."""
    make, layers, attention = MODULES[request.param]
    torch.manual_seed(0)
    module = make().eval()
    model = hooks.from_module(module, layers=layers, attention=attention, **SIZES)
    maps = [layer.get_submodule(attention["o"]) for layer in module.get_submodule(layers)]
    return SimpleNamespace(module=module, model=model, maps=maps, attention=attention)


def logits_without(pair, batch, heads, value):
    """Logits with the inputs of the output maps replaced at some heads, by torch's own hooks alone."""
    handles = []
    for layer, output_map in enumerate(pair.maps):
        replaced = [head for head_layer, head in heads if head_layer == layer]

        def edit(module, inputs, layer=layer, replaced=replaced):
            z = inputs[0].unflatten(-1, (2, -1)).clone()
            for head in replaced:
                z[..., head, :] = value(layer)[..., head, :]
            return (z.flatten(-2),)

        handles.append(output_map.register_forward_pre_hook(edit))
    try:
        with torch.no_grad():
            return logits_at_targets(pair.module(batch.tokens), batch)
    finally:
        for handle in handles:
            handle.remove()


def head_outputs(pair, batch):
    """The inputs of the output maps, (batch, pos, head, d_head) for each layer."""
    outputs = []
    handles = [
        output_map.register_forward_pre_hook(lambda module, inputs: outputs.append(inputs[0].unflatten(-1, (2, -1))))
        for output_map in pair.maps
    ]
    with torch.no_grad():
        pair.module(batch.tokens)
    for handle in handles:
        handle.remove()
    return outputs


N = 16


@pytest.mark.parametrize("method", ["zero", "mean", "resample"])
def test_ablations_equal_those_by_hooks_of_torch(pair, method):
    sets = {"one": [(0, 1)], "two": [(0, 0), (1, 1)], "layer": [(1, 0), (1, 1)]}
    result = interp.ablate_heads(pair.model, TASK, heads=sets, method=method, n=N)
    batch = sample_split(TASK, N, generator=derived_generator(0, "ablate"), split="test")
    reference = sample_split(TASK, 256, generator=derived_generator(0, "reference"), split="validation")
    outputs = head_outputs(pair, reference)
    rows = torch.randint(256, (N,), generator=derived_generator(0, "replacement"))
    value = {
        "zero": lambda layer: torch.zeros_like(outputs[layer][:1]),
        "mean": lambda layer: outputs[layer].mean(0, keepdim=True),
        "resample": lambda layer: outputs[layer][rows],
    }[method]
    before = TASK.score(logits_without(pair, batch, [], value), batch)
    for index, heads in enumerate(sets.values()):
        after = TASK.score(logits_without(pair, batch, heads, value), batch)
        drop = (before.right.double() - after.right.double()).mean(0)
        rise = (after.loss.double() - before.loss.double()).mean(0)
        np.testing.assert_allclose(result.drop.value[index], drop, atol=1e-9)
        np.testing.assert_allclose(result.loss_rise.value[index], rise, atol=1e-4)
    assert np.abs(result.loss_rise.value).max() > 1e-3  # ten times the tolerance


def test_heads_can_be_kept_whether_or_not_the_pattern_is_named(pair):
    result = interp.keep_heads(pair.model, TASK, n=16, orders=["ablation", "exact"], n_random=2)
    assert len(result.sufficient) <= 4
    interp.keep_heads(pair.model, TASK, n=16, method="uniform", n_random=0)


def test_parallel_layers_are_audited():
    torch.manual_seed(0)
    task = Lego(n_vars=2, sentence_format="compact")
    cfg = transformer(task).cfg
    model = hooks.from_module(
        ParallelModel(cfg), layers="layers", attention=MAPS, untrained=lambda: ParallelModel(cfg), n_heads=2,
        d_vocab=task.d_vocab, n_ctx=task.n_ctx,
    )  # fmt: skip
    assert len(interp.audit(model, task, n=32, at_chance=True).heads) == 4


def test_inverse_scaling_is_no_rotation():
    from bridges import bridge_of

    sizes = {"n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 32, "vocab_size": 13}
    config = transformers.GPT2Config(**sizes, scale_attn_by_inverse_layer_idx=True, attn_implementation="eager")
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    bridge = build_bridge_from_module(transformers.GPT2LMHeadModel(config), "GPT2LMHeadModel", hf_config=config)
    capabilities = hooks.from_bridge(bridge).capabilities
    notes = [capabilities.cell(f"blocks.{layer}.attn.hook_q", "read").reason for layer in range(3)]
    assert notes == ["", "scores are q k / 5.657", "scores are q k / 8.485"]
    rotary = hooks.from_bridge(bridge_of("llama")).capabilities
    assert rotary.cell("blocks.0.attn.hook_k", "edit").reason == "before positions enter"
    assert hooks.from_bridge(bridge_of("gpt2")).capabilities.cell("blocks.1.attn.hook_q", "read").reason == ""
