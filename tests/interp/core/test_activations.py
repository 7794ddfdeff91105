import pytest
import torch
from counting import Counting, Junk

import interp
from hooks import Transformer
from interp.core.activations import patterns_on, residual_names, residuals_at_targets
from interp.tasks import Lego


@pytest.mark.parametrize("n_vars", [2, 3])
@pytest.mark.parametrize("tied", [False, True])
def test_residuals_at_targets_equal_the_full_cache(n_vars, tied, generator):
    task = Lego(n_vars=3)
    model = Transformer(interp.config_for(task, n_layers=3, d_model=16, n_heads=2, tied=tied))
    batch = task.sample(520, generator=generator, n_vars=n_vars)  # more than one chunk
    found = residuals_at_targets(model, batch)
    assert found.shape == (4, n_vars, 520, 16)
    _, cache = model.run_with_cache(batch.tokens, **batch.model_inputs())
    for layer, name in enumerate(residual_names(model)):
        for target in range(n_vars):
            wanted = cache[name][torch.arange(520), batch.target_positions[:, target]]
            assert torch.allclose(found[layer, target], wanted, atol=1e-5)
    assert torch.allclose(found[0, 0], cache["resid_pre", 0][torch.arange(520), batch.target_positions[:, 0]])


def test_a_value_that_is_not_finite_raises(tiny, generator):
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=16, n_heads=2))
    with torch.no_grad():
        model.stored_blocks[1].mlp.w_out.weight[3, 3] = float("nan")
    batch = tiny.sample(5, generator=generator)
    with pytest.raises(
        ValueError, match=r"not finite, first at layer 2, target 0, sample 0.*Check the model's weights"
    ):
        residuals_at_targets(model, batch)


def test_activations_of_a_model_on_a_device_come_to_the_cpu(pretended, tiny, generator):
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=16, n_heads=2)).eval()
    batch = tiny.sample(520, generator=generator)
    here, there = residuals_at_targets(model, batch), residuals_at_targets(model.to(pretended), batch)
    assert there.device.type == "cpu"
    assert torch.equal(here, there)


def test_activations_of_missing_targets_are_zero(generator):
    tasks = Counting(length=5, shortest=2), Junk(length=5, shortest=2)
    model = Transformer(interp.config_for(tasks[0], n_layers=2, d_model=16, n_heads=2)).eval()
    batches = [task.sample(90, generator=torch.Generator().manual_seed(0)) for task in tasks]
    plain, junk = (residuals_at_targets(model, batch) for batch in batches)
    assert torch.equal(plain, junk)
    _, cache = model.run_with_cache(batches[0].tokens, **batches[0].model_inputs())
    present = batches[0].present
    for layer, name in enumerate(residual_names(model)):
        wanted = cache[name].masked_fill(~present[..., None], 0).transpose(0, 1)
        assert torch.allclose(plain[layer], wanted, atol=1e-5)
    assert not present.all()


def test_patterns_of_a_model_on_a_device_come_to_the_cpu(pretended, tiny, generator):
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=16, n_heads=2)).eval()
    batch = tiny.sample(8, generator=generator)
    here = patterns_on([model], batch)
    assert torch.equal(patterns_on([model.to(pretended)], batch), here)
