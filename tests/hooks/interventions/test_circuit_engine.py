"""Sets of replaced edges: single ones as the edge engine has them, all of them, and those out of one part."""

from dataclasses import replace

import pytest
import torch
from families import MODELS, model_of, tokens_of

from hooks.interventions.circuit_engine import CircuitEngine

ADDS = ("pre_ln", "causal", "no_norm", "a I", "a I and b I", "tied", "attention_only")


def setting(family, **options):
    model = model_of(replace(MODELS[family], n_layers=2)).eval()
    tokens = tokens_of(model, 5, n=3)
    engine = CircuitEngine(model, tokens, **options)
    generator = torch.Generator().manual_seed(3)
    outputs = engine.cache
    return engine, {name: torch.randn(values.shape, generator=generator) for name, values in outputs.items()}


@pytest.mark.parametrize("family", ADDS)
def test_single_edges_are_those_of_the_edge_engine(family):
    engine, new_outputs = setting(family, read_at=torch.tensor([[0, 4], [1, 2], [3, 3]]))
    single = torch.eye(len(engine.edges), dtype=torch.bool)
    expected = [rows for _, _, logits in engine.each_receiver(new_outputs) for rows in logits]
    for rows, logits in zip(expected, engine.each_set(single, new_outputs), strict=True):
        torch.testing.assert_close(logits, rows, rtol=1e-5, atol=1e-5 * float(rows.abs().max().clamp_min(1)))


@pytest.mark.parametrize("family", ADDS)
def test_no_edge_is_the_model_and_all_edges_are_the_replacements_alone(family):
    engine, new_outputs = setting(family)
    none = torch.zeros(1, len(engine.edges), dtype=torch.bool)
    (clean,) = engine.each_set(none, new_outputs)
    torch.testing.assert_close(clean, engine.logits, rtol=1e-5, atol=1e-4)
    # The read-out gets the replacement of every part
    (replaced,) = engine.each_set(~none, new_outputs)
    stream = new_outputs["blocks.0.hook_resid_pre"]
    for layer in range(2):
        heads = engine._written(layer, new_outputs[f"blocks.{layer}.{engine._output_point}"])
        stream = stream + heads.sum(-2) + engine.model.block(layer).attention.o.bias_or_zero
        stream = stream + new_outputs.get(f"blocks.{layer}.hook_mlp_out", 0)
    torch.testing.assert_close(replaced, engine.model.read_out(stream), rtol=1e-5, atol=1e-4)


def test_edges_out_of_one_part_are_its_replacement_by_a_hook():
    """All edges of head 0.1 together are the head with another output, everywhere."""
    engine, new_outputs = setting("pre_ln")
    of_head = torch.tensor([[str(sender) == "0.1" for sender, _ in engine.edges]])
    (logits,) = engine.each_set(of_head, new_outputs)

    def edit(z, hook):
        z = z.clone()
        z[:, :, 1] = new_outputs["blocks.0.attn.hook_z"][:, :, 1]
        return z

    expected = engine.model.run_with_hooks(engine.tokens, fwd_hooks=[("blocks.0.attn.hook_z", edit)])
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


def test_padding_and_several_sets_at_a_time():
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]).bool()
    engine, new_outputs = setting("pre_ln", attention_mask=mask)
    generator = torch.Generator().manual_seed(0)
    sets = torch.rand(9, len(engine.edges), generator=generator) < 0.5
    together = list(engine.each_set(sets, new_outputs))
    alone = [next(engine.each_set(edges[None], new_outputs)) for edges in sets]
    for logits, expected in zip(together, alone, strict=True):
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    other_tokens = engine.tokens.clone()
    other_tokens[~mask] = 1
    again = CircuitEngine(engine.model, other_tokens, attention_mask=mask)
    for logits, expected in zip(again.each_set(sets, new_outputs), together, strict=True):
        torch.testing.assert_close(logits[mask], expected[mask], rtol=1e-5, atol=1e-4)
