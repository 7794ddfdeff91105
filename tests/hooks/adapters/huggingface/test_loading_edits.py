"""Edits of every head, against the same edits inside Hugging Face's modules."""

import pytest
import torch
from sampled import sampled
from test_loading import distance, run_ours, texts, theirs

from hooks import from_huggingface
from hooks.interventions.ablation_engine import AblationEngine
from hooks.interventions.replacements import Mean, Pattern, Zero

LAYERS, HEADS, WIDTH = 3, 4, 4
EVERY = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
NAMES = ["GPT2LMHeadModel", "BertForMaskedLM", "AlbertForMaskedLM"]


class ByHand:
    """Hugging Face's model with access to its head outputs; one call of a module is one applied layer."""

    def __init__(self, name):
        self.model = theirs(name, dtype=torch.float64)
        base = self.model.base_model
        self.tied = name.startswith("Albert")
        if name.startswith("GPT2"):
            self.outputs = [block.attn.c_proj for block in base.h]
            self.values = [block.attn.c_attn for block in base.h]
        elif self.tied:
            attention = base.encoder.albert_layer_groups[0].albert_layers[0].attention
            self.outputs, self.values = [attention.dense], [attention.value]
        else:
            self.outputs = [layer.attention.output.dense for layer in base.encoder.layer]
            self.values = [layer.attention.self.value for layer in base.encoder.layer]

    def run(self, inputs, layer=None, head=None, new=None):
        """Logits and z of each layer, with z of one head of one layer replaced by new(z, v)."""
        seen, values, handles = [], [], []

        def value(module, args, output):
            values.append(output[..., -HEADS * WIDTH :].unflatten(-1, (HEADS, WIDTH)))

        def edit(module, args):
            z = args[0].unflatten(-1, (HEADS, WIDTH)).clone()
            if len(seen) == layer:
                z[:, :, head] = new(z[:, :, head], values[layer][:, :, head])
            seen.append(z)
            return (z.flatten(2),)

        handles += [module.register_forward_hook(value) for module in self.values]
        handles += [module.register_forward_pre_hook(edit) for module in self.outputs]
        try:
            with torch.no_grad():
                logits = self.model(**inputs).logits
        finally:
            for handle in handles:
                handle.remove()
        assert len(seen) == len(values) == LAYERS
        return logits, seen


@pytest.fixture(scope="module", params=NAMES)
def pair(request):
    by_hand = ByHand(request.param)
    inputs = texts(request.param)
    model = from_huggingface(by_hand.model)
    return by_hand, model, inputs, by_hand.run(inputs)[0]


def edited(model, inputs, name, hook):
    with torch.no_grad(), model.hooks([(name, hook)]):
        return run_ours(model, inputs)


def same_and_not_as_before(ours, by_hand, before):
    assert distance(ours, by_hand) < 1e-10
    assert distance(by_hand, before) > 1e-2


@pytest.mark.parametrize(("layer", "head"), sampled(EVERY, EVERY[::3]))
def test_zero(pair, layer, head):
    by_hand, model, inputs, before = pair
    expected, _ = by_hand.run(inputs, layer, head, lambda z, v: torch.zeros_like(z))
    ours = edited(model, inputs, f"blocks.{layer}.attn.hook_z", Zero().hook(head=head))
    same_and_not_as_before(ours, expected, before)


@pytest.mark.parametrize(("layer", "head"), sampled(EVERY, EVERY[1::3]))
def test_mean_over_other_texts(pair, layer, head):
    by_hand, model, inputs, before = pair
    others = {**texts("Bert" if "token_type_ids" in inputs else "GPT2", seed=5)}
    _, reference = by_hand.run(others)
    expected, _ = by_hand.run(inputs, layer, head, lambda z, v: reference[layer][:, :, head].mean(0).expand_as(z))
    rest = {key: value for key, value in others.items() if key != "input_ids"}
    _, cache = model.run_with_cache(others["input_ids"], **rest)
    name = f"blocks.{layer}.attn.hook_z"
    assert distance(cache[name], reference[layer]) < 1e-10
    same_and_not_as_before(edited(model, inputs, name, Mean(cache[name]).hook(head=head)), expected, before)


@pytest.mark.parametrize(("layer", "head"), sampled(EVERY, EVERY[2::3]))
def test_pattern_replaced(pair, layer, head):
    by_hand, model, inputs, before = pair
    generator = torch.Generator().manual_seed(layer * HEADS + head)
    pattern = torch.rand(4, 9, 9, generator=generator).double() ** 4
    pattern = pattern / pattern.sum(-1, keepdim=True)
    expected, _ = by_hand.run(inputs, layer, head, lambda z, v: pattern @ v)
    ours = edited(model, inputs, f"blocks.{layer}.attn.hook_pattern", Pattern(pattern).hook(head=head))
    same_and_not_as_before(ours, expected, before)


def test_engine_ablates_every_head(pair):
    by_hand, model, inputs, before = pair
    rest = {key: value for key, value in inputs.items() if key != "input_ids"}
    engine = AblationEngine(model, inputs["input_ids"], **rest)
    found = dict(engine.each_head(lambda layer, clean: torch.zeros_like(clean.z)))
    assert list(found) == EVERY
    for (layer, head), logits in found.items():
        expected, _ = by_hand.run(inputs, layer, head, lambda z, v: torch.zeros_like(z))
        same_and_not_as_before(logits, expected, before)


def test_layers_that_share_a_block_are_edited_separately():
    by_hand = ByHand("AlbertForMaskedLM")
    model = from_huggingface(by_hand.model)
    inputs = texts("Albert")
    changed = [edited(model, inputs, f"blocks.{layer}.attn.hook_z", Zero().hook(head=1)) for layer in range(LAYERS)]
    assert all(distance(changed[a], changed[b]) > 1e-2 for a in range(LAYERS) for b in range(a))


@pytest.mark.parametrize("name", NAMES)
def test_patterns_equal_theirs(name):
    reference = theirs(name)
    reference.set_attn_implementation("eager")
    model = from_huggingface(reference)
    inputs = texts(name)
    rest = {key: value for key, value in inputs.items() if key != "input_ids"}
    _, cache = model.run_with_cache(inputs["input_ids"], **rest)
    for layer, expected in enumerate(reference(**inputs, output_attentions=True).attentions):
        assert distance(cache["pattern", layer], expected) < 1e-5
        assert float(expected.detach().amax(-1).mean()) > 0.4  # far from uniform, so that edits have an effect
