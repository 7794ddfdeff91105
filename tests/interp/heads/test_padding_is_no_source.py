"""Padding is no source: of means, of resampled outputs, of partners on every input, whatever the widths of batches."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp.core.sample import Sample
from interp.heads.interventions import References, _next_real
from interp.known_answers import shipped_program
from interp.tasks import Lego


@pytest.mark.parametrize("seed", range(5))
def test_the_next_real_sample(seed):
    generator = torch.Generator().manual_seed(seed)
    real = torch.rand(6, 5, generator=generator) < 0.4
    real[:, 0] = True
    source = _next_real(real)
    for sample in range(6):
        for position in range(5):
            in_order = [(sample + step) % 6 for step in range(6)]
            candidates = [index for index in in_order if real[index, position]]
            assert source[sample, position] == (candidates[0] if candidates else sample)


@pytest.fixture(scope="module", params=["reversal", "histogram"])
def programs(request):
    """A program of words of several lengths, and its twin that has another embedding of the padding token."""
    answer = shipped_program(request.param)
    model, task = answer.model, answer.task
    batch = task.sample(64, generator=torch.Generator().manual_seed(0), split="test")
    assert not batch.attention_mask.all()
    padding = batch.tokens[~batch.attention_mask.bool()].unique()
    assert len(padding) == 1
    twin = deepcopy(model)
    with torch.no_grad():
        twin.embed.weight[padding] += 3 * torch.randn(twin.embed.weight.shape[1], generator=torch.Generator())
    return task, model, twin


@pytest.mark.parametrize("method", ["mean", "resample"])
@pytest.mark.parametrize(
    "effects",
    [
        lambda model, task, method: interp.ablate_heads(model, task, method=method, n=64).loss_rise.value,
        lambda model, task, method: interp.edges(model, task, method=method, n=64).loss_rise.value,
        lambda model, task, method: interp.keep_heads(model, task, method=method, n=64).performs.value,
    ],
    ids=["ablate_heads", "edges", "keep_heads"],
)
def test_no_effect_depends_on_the_embedding_of_padding(programs, effects, method):
    task, model, twin = programs
    before, after = (effects(each, task, method) for each in (model, twin))
    np.testing.assert_allclose(after, before, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mean", "resample"])
def test_nor_on_every_input(programs, method):
    task, model, twin = programs
    results = [interp.ablate_heads(each, task, method=method, n="all") for each in (model, twin)]
    np.testing.assert_allclose(results[0].loss_rise.value, results[1].loss_rise.value, atol=1e-5)


@pytest.mark.parametrize("references_are_longer", [False, True])
def test_references_of_another_width(references_are_longer, generator):
    task = Lego(n_vars=3)
    model = Transformer(interp.config_for(task, n_layers=2, n_heads=2, d_model=16), seed=0).eval()
    batch = task.sample(8, generator=generator)
    width = batch.tokens.shape[1]
    wanted = width - 4 if references_are_longer else width + 3
    other = task.sample(8, generator=generator)
    tokens = torch.nn.functional.pad(other.tokens, (0, wanted - width))
    plain, fitted = (
        References(model, Sample(task, replace(other, tokens=rows), exact=True, every=batch))
        for rows in (batch.tokens, tokens)
    )
    for name in plain.names:
        for of_plain, output in ((plain.means, fitted.means), (plain.samples, fitted.samples)):
            assert output[name].shape[1] == wanted
            same = min(width, wanted)
            assert torch.equal(output[name][:, :same], of_plain[name][:, :same])
            # beyond the references, their last position
            beyond = of_plain[name][:, [width - 1]].expand(-1, wanted - same, -1, -1)
            assert torch.equal(output[name][:, same:], beyond)


def test_a_task_that_pads_to_the_longest_of_each_batch(generator):
    """References of another width than the batch, as where each batch is padded to its own longest sequence."""

    class LongestOfBatch(Lego):
        n_ctx = 20

        def sample(self, n, *, generator, split="train", **options):
            batch = super().sample(n, generator=generator, split=split, **options)
            n_padding = 3 if split == "test" else 1
            tokens = torch.nn.functional.pad(batch.tokens, (0, n_padding))
            mask = torch.nn.functional.pad(torch.ones_like(batch.tokens), (0, n_padding)).bool()
            return type(batch)(**{**vars(batch), "tokens": tokens, "attention_mask": mask})

    task = LongestOfBatch(n_vars=2)
    model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16), seed=0).eval()
    for method in ("mean", "resample"):
        assert interp.ablate_heads(model, task, method=method, n=16).drop.value.shape == (2, 2)
        assert interp.edges(model, task, method=method, n=16).drop.value.shape[1] == 2
    interp.keep_heads(model, task, n=16)
