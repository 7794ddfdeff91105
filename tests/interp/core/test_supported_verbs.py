"""`supported_verbs` is true: each verb is called on each kind of model, and works or is refused as listed."""

import copy
from functools import cache

import pytest
import torch
import transformers
from bridges import bridge_of
from own_models import MAPS, ParallelModel, PlainModel, TorchEncoder, transformer
from torch import nn
from torch.nn.utils import prune

import hooks
import interp
from interp.algorithms import chain_loop
from interp.core.verbs import VERBS
from interp.tasks import Lego

TASK = Lego(n_vars=3, sentence_format="compact")
EXTRAPOLATED = Lego(n_vars=3, sentence_format="compact", n_supervised=2)
BRACKETS = interp.tasks.Dyck(n_types=2, max_depth=2)
SIZES = {"n_layers": 2, "n_heads": 2, "d_model": 16}
HIDDEN = {
    **{"vocab_size": TASK.d_vocab, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 32, "max_position_embeddings": TASK.n_ctx + 2, "attn_implementation": "eager"},
}
GPT2 = {"vocab_size": TASK.d_vocab, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": TASK.n_ctx}
PLACES = {"d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx, "n_heads": 2}
LLAMA_MAPS = {name: f"self_attn.{name}_proj" for name in "qkvo"}
ROBERTA_MAPS = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value"}
ROBERTA_MAPS["o"] = "attention.output.dense"


class Logits(nn.Module):
    """A model of Hugging Face whose output is the logits alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, attention_mask=None):
        return self.model(tokens, attention_mask=attention_mask).logits


def with_hooks_of(module, **names):
    return hooks.from_module(module, **PLACES, **names)


def indistinguishable(model):
    """Two equal targets, with few candidates."""
    return interp.indistinguishable(model, copy.deepcopy(model), BRACKETS, candidates=6, rescale=True, n=8)


def pruned():
    model = hooks.Transformer(interp.config_for(TASK, **SIZES))
    prune.l1_unstructured(model.weights[0].mlp.w_in, "weight", 0.3)
    return model


MODELS = {
    "transformer": lambda: hooks.Transformer(interp.config_for(TASK, **SIZES)),
    "tied": lambda: hooks.Transformer(interp.config_for(TASK, **SIZES, tied=True)),
    "attention only": lambda: hooks.Transformer(interp.config_for(TASK, **SIZES, d_mlp=0, block="no_norm")),
    "dyck_minimal": lambda: hooks.Transformer(interp.config_for(BRACKETS, "dyck_minimal")),
    "dyck_eq6": lambda: hooks.Transformer(interp.config_for(BRACKETS, "dyck_eq6", **SIZES)),
    "pruned": pruned,
    "fully connected": lambda: hooks.make_model(interp.config_for(TASK, "fully_connected")),
    "recurrent": lambda: hooks.make_model(interp.config_for(TASK, "rnn")),
    "bare BertModel": lambda: hooks.from_huggingface(transformers.BertModel(transformers.BertConfig(**HIDDEN))),
    "bare AlbertModel": lambda: hooks.from_huggingface(
        transformers.AlbertModel(transformers.AlbertConfig(**HIDDEN, embedding_size=16))
    ),
    "GPT2Model": lambda: hooks.from_huggingface(transformers.GPT2Model(transformers.GPT2Config(**GPT2))),
    "bridge of GPT2": lambda: bridge_of("gpt2", d_vocab=TASK.d_vocab),
    "bridge of Llama": lambda: bridge_of("llama", d_vocab=TASK.d_vocab),
    "bridge of BERT": lambda: bridge_of("bert", d_vocab=TASK.d_vocab),
    "Llama wrapped": lambda: with_hooks_of(
        Logits(transformers.LlamaForCausalLM(transformers.LlamaConfig(**HIDDEN))),
        layers="model.model.layers",
        attention=LLAMA_MAPS,
    ),
    "RoBERTa wrapped": lambda: with_hooks_of(
        Logits(transformers.RobertaForMaskedLM(transformers.RobertaConfig(**HIDDEN))),
        layers="model.roberta.encoder.layer",
        attention=ROBERTA_MAPS,
    ),
    "plain": lambda: hooks.from_module(
        PlainModel(transformer(TASK).cfg),
        layers="layers", attention=MAPS, **PLACES, untrained=lambda: PlainModel(transformer(TASK).cfg),
    ),
    "torch encoder": lambda: with_hooks_of(
        TorchEncoder(transformer(TASK).cfg), layers="encoder.layers", attention="self_attn"
    ),
    "parallel": lambda: with_hooks_of(ParallelModel(transformer(TASK).cfg), layers="layers", attention=MAPS),
}  # fmt: skip
SLOW = {"tied", "attention only", "bridge of Llama", "bridge of BERT", "bare AlbertModel", "RoBERTa wrapped"}
SLOW |= {"pruned", "GPT2Model", "Llama wrapped"}
"""Models like another one in the default tests."""
CALLS = {
    "evaluate": lambda model: interp.evaluate(model, TASK, n=8),
    "probe": lambda model: interp.probe(model, TASK, n_train=64, n_test=32),
    "probe with verify=True": lambda model: interp.probe(model, TASK, n_train=64, n_test=32, verify=True),
    "audit_probe": lambda model: interp.audit_probe(model, TASK, n_train=64, n_test=64),
    "show_attention": lambda model: interp.show_attention(model, TASK),
    "attention_variation": lambda model: interp.attention_variation(
        [model, copy.deepcopy(model)], TASK, n_baseline=2, resamples=10
    ),
    "classify_heads": lambda model: interp.classify_heads(model, TASK, n=16),
    "ablate_heads": lambda model: interp.ablate_heads(model, TASK, n=8, method="resample"),
    "ablate_heads with another pattern": lambda model: interp.ablate_heads(model, TASK, n=8, method="uniform"),
    "keep_heads": lambda model: interp.keep_heads(model, TASK, n=16, orders=["ablation"], n_random=0),
    "keep_heads with another pattern": lambda model: interp.keep_heads(
        model, TASK, n=16, orders=["ablation"], n_random=0, method="random_rows"
    ),
    "audit": lambda model: interp.audit(model, TASK, n=32, at_chance=True),
    "implements": lambda model: interp.implements(model, TASK, chain_loop(TASK), n=32),
    "logit_lens": lambda model: interp.logit_lens(model, TASK, n=16),
    "logit_attribution": lambda model: interp.logit_attribution(model, TASK, n=16),
    "edges": lambda model: interp.edges(model, TASK, n=8),
    "explain_attention": lambda model: interp.explain_attention(model, TASK, (0, 0), n=8),
    "patch": lambda model: interp.patch(model, TASK, n=8),
    "patch of attention outputs": lambda model: interp.patch(model, TASK, site="attn_out", n=8),
    "patch of MLPs": lambda model: interp.patch(model, TASK, site="mlp_out", n=8),
    "diagonals": lambda model: interp.diagonals(model, n_null=4),
    "train": lambda model: interp.train(
        copy.deepcopy(model), TASK, interp.TrainSettings(steps=1, n_eval=8, batch_size=4)
    ),
    "balance_violation": lambda model: interp.balance_violation(model, BRACKETS),
    "extrapolate": lambda model: interp.extrapolate(model, EXTRAPOLATED, n=8),
    "indistinguishable": lambda model: indistinguishable(model),
    "pruning_curve": lambda model: interp.pruning_curve(model, TASK, by="magnitude", fractions=[0.5], n=32),
}


@cache
def model_of(kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODELS[kind]()


def test_every_verb_is_called():
    assert set(CALLS) == set(VERBS) - {"perplexity"}  # it is evaluate on text


def quick_and_slow(kinds):
    return [pytest.param(kind, marks=pytest.mark.slow if kind in SLOW else ()) for kind in kinds]


@pytest.mark.parametrize("kind", quick_and_slow(MODELS))
def test_each_verb_works_or_is_refused_as_listed(kind, as_a_user):
    model = model_of(kind)
    is_for_brackets = kind.startswith("dyck")
    listed = interp.supported_verbs(model, BRACKETS if is_for_brackets else TASK).obstacles
    wrong = {}
    for verb, call in CALLS.items():
        if is_for_brackets and verb not in ("balance_violation", "indistinguishable", "diagonals"):
            continue
        try:
            call(model)
            refusal = ""
        except ValueError as error:
            refusal = str(error)
        if bool(refusal) != bool(listed[verb]):
            wrong[verb] = listed[verb], refusal
    assert not wrong
