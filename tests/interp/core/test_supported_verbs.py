"""`supported_verbs` is true: each verb is called on each kind of model, and works or is refused as listed."""

from functools import cache
from inspect import isfunction
from pathlib import Path

import pytest
import torch
import transformers
from bridges import bridge_of
from own_models import MAPS, ParallelModel, PlainModel, TorchEncoder, transformer
from torch import nn
from torch.nn.utils import prune
from verb_calls import BRACKETS, CALLS, TASK

import hooks
import interp
from interp.core.verbs import needs_of_verbs

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


@cache
def model_of(kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODELS[kind]()


NO_VERBS = {
    "check_task",
    "config_for",
    "load",
    "over_training",
    "pretrained",
    "report",
    "report_run",
    "supported_verbs",
}
NO_VERBS |= {"sweep"}
"""Public functions that take no model, or give it to a verb."""


def test_every_public_verb_says_what_it_needs():
    functions = {name for name in interp.__all__ if isfunction(getattr(interp, name))}
    assert functions - {verb.split()[0] for verb in needs_of_verbs()} == NO_VERBS


def test_needs_are_found_by_the_public_name_in_its_order(tmp_path, monkeypatch):
    (tmp_path / "extra.py").write_text(
        "from interp.core.verbs import Needs\nMORE = Needs('second again')\nOF_NONE = Needs('third')"
    )
    lines = ["from . import tasks", "from .extra import second as second", "from .probing.probe import probe as probe"]
    (tmp_path / "__init__.pyi").write_text("\n".join(lines))
    monkeypatch.setattr(interp, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(interp, "__path__", [*interp.__path__, str(tmp_path)])
    assert list(needs_of_verbs()) == ["second again", "probe", "probe with verify=True"]


def test_every_verb_is_called():
    assert set(CALLS) == set(needs_of_verbs()) - {"perplexity"}  # it is evaluate on text


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


IN_THE_GUIDE = {
    "ours": "transformer",
    "bridge of GPT-2": "bridge of GPT2",
    "bridge of Llama": "bridge of Llama",
    "bridge of BERT": "bridge of BERT",
    "module": "plain",
    "parallel module": "parallel",
    "RNN": "recurrent",
}
"""Kinds of models in the table of `docs/guides/bring_a_model.md`, by their names there."""


def table_of_the_guide():
    obstacles = {name: interp.supported_verbs(model_of(kind)).obstacles for name, kind in IN_THE_GUIDE.items()}
    lines = ["| verb | " + " | ".join(IN_THE_GUIDE) + " |", "|---" * (1 + len(IN_THE_GUIDE)) + "|"]
    for verb in needs_of_verbs():
        cells = ["–" if obstacles[name][verb] else "yes" for name in IN_THE_GUIDE]
        lines.append(f"| `{verb.split()[0]}`{verb.removeprefix(verb.split()[0])} | {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_table_of_the_guide_is_what_the_verbs_say():
    text = (Path(__file__).parents[3] / "docs/guides/bring_a_model.md").read_text()
    assert table_of_the_guide() in text, f"docs/guides/bring_a_model.md needs this table:\n{table_of_the_guide()}"
