"""Verbs on a `HookedRootModule` and on wrapped torch modules, against the same weights in a `hooks.Transformer`."""

import dataclasses
from functools import cache

import numpy as np
import pytest
import torch
from own_models import MAPS, OwnModel, own_model, plain_model, torch_encoder, transformer

import hooks
import interp
from interp.core.verbs import needs_of_verbs, prepare_model, supported_verbs
from interp.probing.probe import NEEDS
from interp.tasks import Dyck, Lego
from interp.view.attention import canvas_page

TRANSFORMER_ONLY = {verb: needs.only_transformer for verb, needs in needs_of_verbs().items() if needs.only_transformer}

PADDED = Dyck(n_types=2, max_depth=3, length=6, words="complete")
CHAIN = Lego(n_vars=2, sentence_format="compact")
FUSED = {"qkv": "attn.qkv", "o": "attn.o", "pattern": "attn.pattern"}


class Seeded(OwnModel):
    """Its untrained copy has the weights that a `hooks.Transformer` with the same seed has."""

    def untrained(self, seed):
        return own_model(hooks.make_model(self.cfg.ours, seed=seed), Seeded)


def seeded(convert, cfg):
    return lambda: convert(hooks.make_model(cfg, seed=torch.initial_seed()))


@cache
def ours_for(task):
    return transformer(task, attention="causal" if task is PADDED else "bidirectional")


@cache
def model_for(kind, task):
    """The same weights as another kind of model."""
    ours, sizes = ours_for(task), {"d_vocab": task.d_vocab, "n_ctx": task.n_ctx}
    if kind == "hooked":
        return own_model(ours, Seeded)
    convert = {
        "torch": torch_encoder,
        "linear": plain_model,
        "fused": lambda ours: plain_model(ours, fused=True),
    }[kind]
    names = {
        "torch": {"layers": "encoder.layers", "attention": "self_attn"},
        "linear": {"layers": "layers", "attention": MAPS, "n_heads": 2},
        "fused": {"layers": "layers", "attention": FUSED, "n_heads": 2},
    }[kind]
    return hooks.from_module(convert(ours), **names, **sizes, untrained=seeded(convert, ours.cfg))


def differences(found, wanted, at="result"):
    """Fields of two results that differ by more than 1e-5."""
    if dataclasses.is_dataclass(wanted):
        return [
            text
            for field in dataclasses.fields(wanted)
            for text in differences(getattr(found, field.name), getattr(wanted, field.name), f"{at}.{field.name}")
        ]
    if isinstance(wanted, dict):
        return [text for name in wanted for text in differences(found[name], wanted[name], f"{at}[{name!r}]")]
    if isinstance(wanted, list | tuple) and not all(isinstance(one, float) for one in wanted):
        pairs = enumerate(zip(found, wanted, strict=True))
        return [text for index, (a, b) in pairs for text in differences(a, b, f"{at}[{index}]")]
    if isinstance(wanted, np.ndarray | float | list | tuple):
        same = np.allclose(np.asarray(found, float), np.asarray(wanted, float), rtol=0, atol=1e-5, equal_nan=True)
        return [] if same else [at]
    return [] if found == wanted else [at]


def shown_patterns(model, task, monkeypatch):
    shown = []

    def kept(examples, **settings):
        shown.extend(examples)
        return canvas_page(examples, **settings)

    monkeypatch.setattr("interp.heads.show.canvas_page", kept)
    interp.show_attention(model, task, examples=2, viewer="canvas")
    return [example.patterns for example in shown]


VERBS = {
    "evaluate": lambda model: interp.evaluate(model, PADDED, n=40),
    "classify": lambda model: interp.classify_heads(model, PADDED, n=16, untrained=19),
    "ablate": lambda model: interp.ablate_heads(model, PADDED, heads={"both": [(0, 1), (1, 0)]}, method="mean", n=16),
    "audit": lambda model: interp.audit(model, PADDED, n=16, at_chance=True),
    "probe": lambda model: interp.probe(model, CHAIN, n_train=120, n_test=60, verify=True),
    "diagonals": lambda model: interp.diagonals(model, n_null=3),
}
TASKS = {"probe": CHAIN}


@cache
def wanted(verb):
    return VERBS[verb](ours_for(TASKS.get(verb, PADDED)))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["hooked", "torch", "linear"])
def test_results_equal_those_of_the_same_weights_in_a_transformer(kind, verb):
    found = VERBS[verb](model_for(kind, TASKS.get(verb, PADDED)))
    skip = ("seconds", "architecture", "result.weights", "result.subject")  # names of weights and fields of configs
    assert [text for text in differences(found, wanted(verb)) if not text.endswith(skip)] == []


def test_differences_sees_a_difference():
    found = wanted("ablate")
    rise = dataclasses.replace(found.loss_rise, value=found.loss_rise + 2e-5)
    other = dataclasses.replace(found, loss_rise=rise)
    assert differences(other, found) == ["result.loss_rise.value"]


@pytest.mark.parametrize("kind", ["hooked", "torch", "linear", "fused"])
def test_shown_patterns_and_supported_verbs(kind, monkeypatch):
    model = model_for(kind, PADDED)
    mine, theirs = (shown_patterns(one, PADDED, monkeypatch) for one in (model, ours_for(PADDED)))
    assert len(mine) == 2
    for found, expected in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    obstacles = supported_verbs(model).obstacles
    no_split_inputs = {"edges": obstacles["edges"]}
    assert "the model has no set_use_split_qkv_input" in obstacles["edges"]
    assert {verb: why for verb, why in obstacles.items() if why} == TRANSFORMER_ONLY | no_split_inputs


def test_transformer_only_verbs_name_the_kind_of_model(as_a_user):
    for model in (model_for("hooked", PADDED), model_for("torch", PADDED)):
        with pytest.raises(ValueError, match="train does not accept a HookedRootModule: a run is saved and resumed"):
            interp.train(model, PADDED)


def test_a_verb_names_what_a_hooked_root_module_lacks(as_a_user):
    class NoPattern(OwnModel):
        def setup(self):
            for block in self.blocks:
                block.attn.hook_pattern = torch.nn.Identity()
            super().setup()

    model = own_model(ours_for(PADDED), NoPattern)
    text = "classify_heads does not accept this HookedRootModule NoPattern: it has to read blocks.0.attn.hook_pattern"
    with pytest.raises(ValueError, match=rf"{text}, which is missing \(the model has no such place\)"):
        interp.classify_heads(model, PADDED)
    assert prepare_model(model, NEEDS).label == "HookedRootModule NoPattern"
    assert "probe" not in {verb for verb, why in supported_verbs(model).obstacles.items() if why}
