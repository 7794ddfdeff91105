"""Settings of other people's configs, one by one: acted on, without effect, or refused by name."""

import dataclasses
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from transformer_lens.config import TransformerBridgeConfig, TransformerLensConfig
from tries import Try

import hooks

VALUES = [0, 1, -1, 2, 3, 7, 16, 0.5, 1e-3, -0.5, True, False, None, "x", "relu", "gelu_new", "LN", "causal", "float16"]
VALUES += [[], [1], {}, {"0": [1]}, 10**30, float("nan"), float("inf"), "\udc80", "y" * 3000]
"""What a setting is set to: right for some of them, of the wrong kind or out of range for most."""
INVENTED = ("whatever", "use_qk_norms", "rope_theta", "scale_attn_by_layer", "logit_scale", "parallel_blocks")
LONGEST = 1000
"""Characters of an error."""
SEEN = 1e-3
"""Difference of two logits that is more than rounding."""


def _refused(what: str, error: Exception, *needed: str) -> Try:
    """A refusal, which must be short and name what is needed."""
    text = str(error)
    missing = [name[:60] for name in needed if name[:60] not in text]
    fault = f"{missing[0]} is not named: {text[:300]}" if missing else f"{len(text)} characters"
    return Try(what, "unclear" if missing or len(text) > LONGEST else None, fault)


# TransformerLens

BASE = {"d_model": 8, "n_heads": 2, "n_layers": 3, "n_ctx": 12, "d_vocab": 11, "act_fn": "gelu", "d_mlp": 16}
ATTENTION_ONLY = {**BASE, "attn_only": True, "normalization_type": None}


def _hooked_weights(seed: int, *, with_mlps: bool) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"embed.W_E": (11, 8), "pos_embed.W_pos": (12, 8), "unembed.W_U": (8, 11), "unembed.b_U": (11,)}
    for layer in range(3):
        attention, mlp = f"blocks.{layer}.attn", f"blocks.{layer}.mlp"
        shapes |= {f"{attention}.W_{kind}": (2, 8, 4) for kind in "QKV"} | {f"{attention}.W_O": (2, 4, 8)}
        shapes |= {f"{attention}.b_{kind}": (2, 4) for kind in "QKV"} | {f"{attention}.b_O": (8,)}
        if with_mlps:
            shapes |= {f"{mlp}.W_in": (8, 16), f"{mlp}.b_in": (16,), f"{mlp}.W_out": (16, 8), f"{mlp}.b_out": (8,)}
            for norm in ("ln1", "ln2"):
                shapes |= {f"blocks.{layer}.{norm}.w": (8,), f"blocks.{layer}.{norm}.b": (8,)}
    if with_mlps:
        shapes |= {"ln_final.w": (8,), "ln_final.b": (8,)}
    return {name: 0.4 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def _hooked_logits(weights: dict[str, torch.Tensor], config: dict[str, Any], tokens: torch.Tensor) -> torch.Tensor:
    """Logits of a HookedTransformer in plain torch, from its definition."""
    activations = {"relu": F.relu, "gelu": F.gelu, "gelu_new": lambda x: F.gelu(x, approximate="tanh")}
    normalised = config.get("normalization_type", "LN") is not None

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        if not normalised:
            return x
        return F.layer_norm(x, (8,), weights.get(f"{name}.w"), weights.get(f"{name}.b"), config.get("eps", 1e-5))

    scale = config.get("attn_scale", -1.0)
    scale = 4**0.5 if scale in (None, -1) else scale
    scale = scale if config.get("use_attn_scale", True) else 1.0
    x = weights["embed.W_E"][tokens] + weights["pos_embed.W_pos"][: tokens.shape[1]]
    hidden = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
    for layer in range(3):
        name = f"blocks.{layer}.attn"
        normed = norm(x, f"blocks.{layer}.ln1")
        q, k, v = (
            torch.einsum("bpd,hde->bhpe", normed, weights[f"{name}.W_{kind}"]) + weights[f"{name}.b_{kind}"][:, None]
            for kind in "QKV"
        )
        scores = q @ k.mT / scale
        if config.get("attention_dir", "causal") == "causal":
            scores = scores.masked_fill(hidden, -torch.inf)
        x = x + torch.einsum("bhpe,hed->bpd", scores.softmax(-1) @ v, weights[f"{name}.W_O"]) + weights[f"{name}.b_O"]
        if not config.get("attn_only", False):
            name = f"blocks.{layer}.mlp"
            hidden_units = norm(x, f"blocks.{layer}.ln2") @ weights[f"{name}.W_in"] + weights[f"{name}.b_in"]
            x = x + activations[config["act_fn"]](hidden_units) @ weights[f"{name}.W_out"] + weights[f"{name}.b_out"]
    return norm(x, "ln_final") @ weights["unembed.W_U"] + weights["unembed.b_U"]


@torch.no_grad()
def hooked_transformers(n: int, folder: Path) -> Iterator[Try]:
    """Each setting of TransformerLens's own classes, and invented ones, set to each value."""
    rng = random.Random(2)
    names = {field.name for of in (TransformerLensConfig, TransformerBridgeConfig) for field in dataclasses.fields(of)}
    cases = [(name, value) for name in sorted({*names, *BASE, *INVENTED}) for value in VALUES]
    rng.shuffle(cases)
    tokens = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(3))
    for index in range(n):
        name, value = cases[index % len(cases)]
        base = ATTENTION_ONLY if index % 2 else BASE
        config = {**base, name: value}
        what = f"{'attention only' if index % 2 else 'with MLPs'}, {name}={value!r:.40}"
        weights = _hooked_weights(index, with_mlps=base is BASE)
        try:
            logits = hooks.from_transformer_lens(weights, config)(tokens)
        except ValueError as error:
            # A width that does not fit is seen at the first weight
            of_shapes = (*BASE, "d_head", "d_vocab_out", "attn_only", "normalization_type")
            named = () if "weights" in str(error) and name in of_shapes else (name,)
            yield _refused(what, error, *named)
            continue
        except Exception as error:
            yield Try(what, "unclear", f"{type(error).__name__}: {error}"[:300])
            continue
        try:
            expected = _hooked_logits(weights, config, tokens)
        except Exception as error:
            yield Try(what, "silently wrong", f"accepted; the definition: {error}"[:300])
            continue
        far = logits.shape != expected.shape or (logits - expected).abs().max() > SEEN
        yield Try(what, "silently wrong" if far else None, "other logits than by the definition")


# Hugging Face

ARCHITECTURES = ("GPT2LMHeadModel", "BertForMaskedLM", "AlbertModel", "BertForTokenClassification")


def _hf_model(name: str) -> Any:
    """A small model with random weights, the same in every call."""
    if name.startswith("GPT2"):
        sizes = {"n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 16, "bos_token_id": 0, "eos_token_id": 0}
    else:
        sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 16}
        sizes |= {"max_position_embeddings": 16, "pad_token_id": 0}
    if name.startswith("Albert"):
        sizes["embedding_size"] = 4
    model_class = getattr(transformers, name)
    model = model_class(model_class.config_class(**sizes, vocab_size=20)).eval()
    generator = torch.Generator().manual_seed(4)
    for parameter in model.parameters():
        parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    return model


def _hf_output(outputs: Any) -> torch.Tensor:
    return outputs["logits"] if "logits" in outputs else outputs["last_hidden_state"]


@torch.no_grad()
def hugging_face(n: int, folder: Path) -> Iterator[Try]:
    """Each setting of the classes of `transformers`, and invented ones, set to each value in a saved folder."""
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    rng = random.Random(5)
    tokens = torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(6))
    paths, configs, cases = {}, {}, []
    for name in ARCHITECTURES:
        model = _hf_model(name)
        paths[name] = folder / f"a saved {name}"
        model.save_pretrained(paths[name])
        configs[name] = json.loads((paths[name] / "config.json").read_text())
        for setting in sorted({*model.config.to_dict(), *INVENTED}):
            cases += [(name, setting, value) for value in VALUES]
    rng.shuffle(cases)
    for index in range(n):
        name, setting, value = cases[index % len(cases)]
        path, what = paths[name], f"{name}, {setting}={value!r:.40}"
        (path / "config.json").write_text(json.dumps({**configs[name], setting: value}))
        try:
            logits = hooks.from_huggingface(path, with_tokenizer=False)(tokens)
        except (ValueError, FileNotFoundError) as error:
            yield _refused(what, error, str(path))
            continue
        except Exception as error:
            yield Try(what, "unclear", f"{type(error).__name__}: {error}"[:300])
            continue
        try:
            options = {"attn_implementation": "eager", "dtype": torch.float32}
            expected = _hf_output(getattr(transformers, name).from_pretrained(path, **options).eval()(tokens))
        except Exception:  # transformers refuses values that have no effect on the logits
            yield Try(what)
            continue
        far = logits.shape != expected.shape or (logits - expected).abs().max() > SEEN
        yield Try(what, "silently wrong" if far else None, "other logits than those of transformers")
