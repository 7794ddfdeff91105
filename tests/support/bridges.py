"""Tiny random bridges of six kinds, with weights so large that every edit has an effect."""

import torch
import transformers
from transformer_lens import TransformerBridge, TransformerBridgeConfig
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

D_VOCAB, N_CTX = 13, 40
KINDS = ("gpt2", "llama", "neox", "bert", "roberta", "native")
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_LONG = {"max_position_embeddings": N_CTX}
_MODELS = {
    "gpt2": (
        transformers.GPT2Config,
        transformers.GPT2LMHeadModel,
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": N_CTX},
    ),
    "llama": (
        transformers.LlamaConfig,
        transformers.LlamaForCausalLM,
        {**_SIZES, **_LONG, "num_key_value_heads": 2},
    ),
    "neox": (transformers.GPTNeoXConfig, transformers.GPTNeoXForCausalLM, {**_SIZES, **_LONG}),
    "bert": (transformers.BertConfig, transformers.BertForMaskedLM, {**_SIZES, **_LONG}),
    "roberta": (
        transformers.RobertaConfig,
        transformers.RobertaForMaskedLM,
        {**_SIZES, "max_position_embeddings": N_CTX + 2},
    ),
}


def hugging_face(kind, *, attention="eager", seed=0, d_vocab=D_VOCAB):
    """A random Hugging Face model; gains and biases are random too, so that a missing one has an effect."""
    make_config, make_model, sizes = _MODELS[kind]
    config = make_config(vocab_size=d_vocab, initializer_range=0.35, attn_implementation=attention, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make_model(config).eval()
    return _shaken(model, seed)


def _shaken(model, seed):
    generator = torch.Generator().manual_seed(seed + 1)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


def bridge_of(kind, *, seed=0, attention="eager", d_vocab=D_VOCAB, **native):
    """A bridge around a random model, in evaluation mode."""
    if kind == "native":
        sizes = {"d_model": 32, "d_head": 8, "n_heads": 4, "n_layers": 2, "n_ctx": N_CTX, "d_vocab": d_vocab, **native}
        cfg = TransformerBridgeConfig(**sizes, act_fn="gelu", normalization_type="LN", seed=seed)
        bridge = TransformerBridge.boot_native(cfg).eval()
        generator = torch.Generator().manual_seed(seed + 1)
        for parameter in bridge.parameters():
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
        return bridge
    model = hugging_face(kind, attention=attention, seed=seed, d_vocab=d_vocab)
    return build_bridge_from_module(model, type(model).__name__, hf_config=model.config).eval()
