"""Models of `transformers` through `from_module`: which verb accepts them, and edits against plain torch."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
import transformers
from verb_calls import CALLS, TASK

import hooks
import interp
from interp.core.randomness import derived_generator
from interp.core.verbs import needs_of_verbs
from interp.tasks.base import logits_at_targets
from interp.tasks.splits import sample_split

HIDDEN = {
    **{"vocab_size": TASK.d_vocab, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 32, "max_position_embeddings": TASK.n_ctx, "initializer_range": 0.4},
    **{"attn_implementation": "eager", "bos_token_id": None, "eos_token_id": None, "pad_token_id": None},
}
GPT2 = {"vocab_size": TASK.d_vocab, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": TASK.n_ctx}
SHARED = {"num_key_value_heads": 1, "head_dim": 8}
PROJECTIONS = {name: f"self_attn.{name}_proj" for name in "qkvo"}
BERT = {name: f"attention.self.{word}" for name, word in (("q", "query"), ("k", "key"), ("v", "value"))}


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**HIDDEN, **GPT2}))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**HIDDEN, **SHARED))


def gemma2():
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**HIDDEN, **SHARED))


def neox():
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**HIDDEN))


def bert():
    return transformers.BertForMaskedLM(transformers.BertConfig(**HIDDEN))


FAMILIES = {
    "GPT-2": (gpt2, "transformer.h", "attn"),
    "Llama": (llama, "model.layers", PROJECTIONS),
    "Gemma-2": (gemma2, "model.layers", PROJECTIONS),
    "GPT-NeoX": (neox, "gpt_neox.layers", {"qkv": "attention.query_key_value", "o": "attention.dense"}),
    "BERT": (bert, "bert.encoder.layer", {**BERT, "o": "attention.output.dense"}),
}
OUTPUT_MAPS = {"GPT-2": "attn.c_proj", "GPT-NeoX": "attention.dense", "BERT": "attention.output.dense"}
"""W_O in each layer; of the others `self_attn.o_proj`."""
ADDED = {
    "GPT-2": ("attn.resid_dropout", "mlp"),
    "Llama": ("self_attn.o_proj", "mlp"),
    "Gemma-2": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "GPT-NeoX": ("attention.dense", "mlp"),
    "BERT": ("attention.output.dense", None),
}
"""What adds to the stream; of BERT the sum with the MLP is normed."""
NOT_A_SUM = "is not the sum of its input and the outputs of its attention"
NORMED = "a norm or a scale is between the heads' z W_O and what is added"
ROTATED = "the pattern is not the softmax of hook_q hook_k / scale: before positions enter"
SEPARATE = "it has to edit separate inputs of queries, keys, values and MLP"
REFUSED = {
    "GPT-2": {"edges": SEPARATE},
    "Llama": {"edges": SEPARATE, "explain_attention": ROTATED},
    "Gemma-2": {"edges": NORMED, "logit_attribution": NORMED, "explain_attention": NORMED},
    "GPT-NeoX": {"edges": SEPARATE, "explain_attention": ROTATED},
    "BERT": {
        "edges": NOT_A_SUM,
        "edges between layers": NOT_A_SUM,
        "logit_attribution": NOT_A_SUM,
        "explain_attention": NOT_A_SUM,
        "patch of MLPs": "hook_mlp_out, which is missing",
        "ablate": "hook_mlp_out, which is missing",
        "audit_parts": "hook_mlp_out, which is missing",
    },
}
"""The reason for each verb that does not accept the family; those for a `hooks.Transformer` alone are not listed."""
DTYPES = (torch.float32, torch.bfloat16)
COMBINATIONS = [pytest.param(family, dtype, id=f"{family} {str(dtype)[6:]}") for family in FAMILIES for dtype in DTYPES]
NEEDS = needs_of_verbs()
VERBS_OF_ALL = [verb for verb in CALLS if not NEEDS[verb].only_transformer]


def answers(module, tokens, **inputs):
    """Logits of the task's two answers."""
    return module(tokens, **inputs).logits[..., : TASK.d_vocab_out]


def module_and_model(family, dtype):
    make, layers, attention = FAMILIES[family]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make().to(dtype).eval()
        for name, parameter in module.named_parameters():
            if "norm" in name.lower() or "ln_" in name:  # gains that a norm would otherwise not show
                parameter.data += 0.3 * torch.randn(parameter.shape, dtype=torch.float32).to(dtype)
    sizes = {"d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx, "n_heads": 2}
    names = {"layers": layers, "attention": attention, "untrained": make, "forward": answers}
    return module, hooks.from_module(module, **names, **sizes)


def part(module, family, layer, name):
    return module.get_submodule(f"{FAMILIES[family][1]}.{layer}.{name}")


@contextmanager
def replaced(module, make_value, *, is_input):
    """A module whose input or output is replaced, by a hook of torch."""
    if is_input:
        handle = module.register_forward_pre_hook(lambda module, inputs: (make_value(inputs[0]), *inputs[1:]))
    else:
        handle = module.register_forward_hook(lambda module, inputs, output: make_value(output))
    yield
    handle.remove()


@pytest.mark.parametrize(("family", "dtype"), COMBINATIONS)
@torch.no_grad()
def test_logits_patterns_and_stream_are_theirs(family, dtype):
    module, model = module_and_model(family, dtype)
    tokens = torch.randint(TASK.d_vocab, (3, 7), generator=torch.Generator().manual_seed(1))
    output = module(tokens, output_hidden_states=True, output_attentions=True)
    logits, cache = model.run_with_cache(tokens)
    assert torch.equal(model(tokens), output.logits[..., :2])
    assert torch.equal(logits, output.logits[..., :2])
    assert torch.equal(cache["blocks.0.hook_resid_pre"], output.hidden_states[0])
    assert torch.equal(cache["blocks.0.hook_resid_post"], output.hidden_states[1])
    assert torch.equal(cache["blocks.1.hook_resid_pre"], output.hidden_states[1])
    for layer, pattern in enumerate(output.attentions):
        assert torch.equal(cache[f"blocks.{layer}.attn.hook_pattern"], pattern.to(dtype))


@pytest.mark.parametrize(("family", "dtype"), COMBINATIONS)
@torch.no_grad()
def test_edits_equal_those_by_hooks_of_torch(family, dtype):
    module, model = module_and_model(family, dtype)
    tokens = torch.randint(TASK.d_vocab, (3, 7), generator=torch.Generator().manual_seed(1))
    attn_out, mlp_out = ADDED[family]
    output_map = OUTPUT_MAPS.get(family, "self_attn.o_proj")
    layer = module.get_submodule(f"{FAMILIES[family][1]}.1")
    edits = {
        "hook_resid_pre": (layer, True),
        "attn.hook_z": (layer.get_submodule(output_map), True),
        "hook_attn_out": (layer.get_submodule(attn_out), False),
    }
    if mlp_out is not None:
        edits["hook_mlp_out"] = (layer.get_submodule(mlp_out), False)
    clean = answers(module, tokens)
    for site, (place, is_input) in edits.items():
        with replaced(place, lambda x: x.roll(1, 0), is_input=is_input):
            expected = answers(module, tokens)
        edited = model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.1.{site}", lambda x, hook: x.roll(1, 0))])
        assert torch.equal(edited, expected), site
        assert not torch.equal(edited, clean), site


@pytest.mark.parametrize("method", ["zero", "mean", "resample"])
@pytest.mark.parametrize(("family", "dtype"), COMBINATIONS)
@torch.no_grad()
def test_ablations_equal_those_by_hooks_of_torch(family, dtype, method):
    module, model = module_and_model(family, dtype)
    sets = {"one": [(0, 1)], "two": [(0, 0), (1, 1)], "layer": [(1, 0), (1, 1)]}
    n = 16
    result = interp.ablate_heads(model, TASK, heads=sets, method=method, n=n)
    batch = sample_split(TASK, n, generator=derived_generator(0, "ablate"), split="test")
    reference = sample_split(TASK, 256, generator=derived_generator(0, "reference"), split="validation")
    rows = torch.randint(256, (n,), generator=derived_generator(0, "replacement"))
    output_maps = [part(module, family, layer, OUTPUT_MAPS.get(family, "self_attn.o_proj")) for layer in range(2)]
    # Outputs of heads on other sequences, from torch's own hooks
    outputs = []
    handles = [one.register_forward_pre_hook(lambda module, inputs: outputs.append(inputs[0])) for one in output_maps]
    answers(module, reference.tokens)
    for handle in handles:
        handle.remove()
    replacements = {
        "zero": lambda z: torch.zeros_like(z[:1]),
        "mean": lambda z: z.mean(0, keepdim=True),
        "resample": lambda z: z[rows],
    }

    def losses(heads):
        contexts = []
        for layer, head in heads:
            new_z = replacements[method](outputs[layer]).unflatten(-1, (2, -1))[:, :, head]

            def edit(z, new_z=new_z, head=head):
                edited = z.unflatten(-1, (2, -1)).clone()
                edited[:, :, head] = new_z
                return edited.flatten(-2)

            contexts.append(replaced(output_maps[layer], edit, is_input=True))
        for context in contexts:
            context.__enter__()
        logits = logits_at_targets(answers(module, batch.tokens), batch)
        for context in contexts:
            context.__exit__(None, None, None)
        return TASK.score(logits, batch).loss.double()

    before = losses([])
    for index, heads in enumerate(sets.values()):
        rise = (losses(heads) - before).mean(0)
        np.testing.assert_allclose(result.loss_rise.value[index], rise, atol=1e-5 if dtype == torch.float32 else 1e-2)
    assert np.abs(result.loss_rise.value).max() > 0.1


@pytest.mark.parametrize(("family", "dtype"), COMBINATIONS)
def test_each_verb_works_or_is_refused(family, dtype, as_a_user):
    _, model = module_and_model(family, dtype)
    listed = interp.supported_verbs(model, TASK).obstacles
    refused = REFUSED[family]
    assert {verb for verb in VERBS_OF_ALL if listed[verb]} == set(refused)
    for verb in VERBS_OF_ALL:
        if verb not in refused:
            CALLS[verb](model)
            continue
        with pytest.raises(ValueError, match=refused[verb]):
            CALLS[verb](model)


@pytest.mark.parametrize("family", ["GPT-NeoX", "GPT-2"])
@torch.no_grad()
def test_heads_of_one_map_are_found_in_untrained_copies_too(family):
    _, model = module_and_model(family, torch.float32)
    tokens = torch.randint(TASK.d_vocab, (3, 7), generator=torch.Generator().manual_seed(1))
    for wrapped in (model, model.untrained(0)):
        _, cache = wrapped.run_with_cache(tokens)
        for layer in range(2):
            pattern, v, z = (cache[f"blocks.{layer}.attn.hook_{name}"] for name in ("pattern", "v", "z"))
            torch.testing.assert_close(torch.einsum("bhqk,bkhe->bqhe", pattern, v), z)
    # The matrices of a head are those of its scores, where positions do not rotate them
    resid = cache["blocks.0.hook_resid_pre"]
    if family == "GPT-2":
        resid = wrapped.bridge.module.transformer.h[0].ln_1(resid)
    else:
        resid = wrapped.bridge.module.gpt_neox.layers[0].input_layernorm(resid)
    for name in "QKV":
        expected = wrapped.blocks[0].attn.project(name, resid)
        torch.testing.assert_close(cache[f"blocks.0.attn.hook_{name.lower()}"], expected)
