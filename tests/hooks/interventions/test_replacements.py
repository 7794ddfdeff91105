"""Replacements as hooks, against the same edit of a clean run's activations."""

from types import SimpleNamespace

import pytest
import torch

from hooks.interventions.replacements import Mean, Pattern, Resample, Zero, patch

WITH_HEADS = {
    "hook_q": (4, 8, 3, 5),
    "hook_k": (4, 8, 3, 5),
    "hook_v": (4, 8, 3, 5),
    "hook_z": (4, 8, 3, 5),
    "hook_result": (4, 8, 3, 12),
    "hook_attn_scores": (4, 3, 8, 8),
    "hook_pattern": (4, 3, 8, 8),
}
HEAD = pytest.mark.parametrize("head", [None, 0, 2])


@pytest.fixture
def model(make):
    return make()


@pytest.fixture
def reference(model, generator):
    """Cache of six other inputs."""
    return model.run_with_cache(torch.randint(11, (6, 8), generator=generator))[1]


def only(head, new, old):
    """`old` with `new` at one head, or everywhere."""
    if head is None:
        return new
    mixed = old.clone()
    mixed[:, :, head] = new[:, :, head]
    return mixed


def logits_with_z(model, cache, z, layer=1):
    """Logits with z of a layer replaced, by hand."""
    attn = model.blocks[layer].attn
    attn_out = torch.einsum("bphe,hed->bpd", z, attn.W_O) + attn.b_O
    return model.resume(cache["resid_pre", layer], layer, attn_out=attn_out)


def check(model, tokens, hook, z):
    edited = model.run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_z", hook)])
    _, cache = model.run_with_cache(tokens)
    torch.testing.assert_close(edited, logits_with_z(model, cache, z), atol=1e-10, rtol=0)
    assert not torch.allclose(edited, model(tokens), atol=1e-3)


@HEAD
def test_zero(model, tokens, head):
    z = model.run_with_cache(tokens)[1]["z", 1]
    check(model, tokens, Zero().hook(head=head), only(head, torch.zeros_like(z), z))


@HEAD
def test_mean_is_over_the_samples_of_the_reference(model, tokens, reference, head):
    z = model.run_with_cache(tokens)[1]["z", 1]
    average = sum(reference["z", 1][sample] for sample in range(6)) / 6
    check(model, tokens, Mean(reference["z", 1]).hook(head=head), only(head, average.expand_as(z), z))


@HEAD
def test_resample_takes_whole_samples_by_their_rows(model, tokens, reference, head):
    z = model.run_with_cache(tokens)[1]["z", 1]
    drawn = torch.randint(6, (4,), generator=torch.Generator().manual_seed(7))
    hook = Resample(reference["z", 1], drawn).hook(head=head)
    check(model, tokens, hook, only(head, torch.stack([reference["z", 1][sample] for sample in drawn]), z))


@HEAD
def test_patch_takes_the_other_runs_activation(model, tokens, reference, head):
    z = model.run_with_cache(tokens)[1]["z", 1]
    check(model, tokens, patch(reference["z", 1][:4], head=head), only(head, reference["z", 1][:4], z))


@HEAD
def test_patch_at_some_positions(model, tokens, reference, head):
    z = model.run_with_cache(tokens)[1]["z", 1]
    mixed = z.clone()
    for position in (2, 5):
        mixed[:, position] = reference["z", 1][:4, position]
    hook = patch(reference["z", 1][:4], head=head, positions=torch.tensor([2, 5]))
    check(model, tokens, hook, only(head, mixed, z))


@pytest.mark.parametrize("name", ["hook_pattern", "hook_attn_scores"])
def test_positions_of_patterns_are_refused(model, tokens, name):
    at = f"blocks.1.attn.{name}"
    pattern = model.run_with_cache(tokens)[1][at]
    with pytest.raises(ValueError, match=f"positions cannot be patched at {at}"):
        model.run_with_hooks(tokens, fwd_hooks=[(at, patch(pattern, positions=torch.tensor([0])))])


@HEAD
@pytest.mark.parametrize("batch", [1, 4])
def test_replaced_pattern_mixes_the_values(model, tokens, generator, head, batch):
    pattern = torch.rand(batch, 8, 8, generator=generator, dtype=torch.float64).softmax(-1)
    _, cache = model.run_with_cache(tokens)
    z = torch.einsum("bqk,bkhe->bqhe", pattern.expand(4, 8, 8), cache["v", 1])
    hook = Pattern(pattern).hook(head=head)
    edited = model.run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_pattern", hook)])
    expected = logits_with_z(model, cache, only(head, z, cache["z", 1]))
    torch.testing.assert_close(edited, expected, atol=1e-10, rtol=0)


@HEAD
@pytest.mark.parametrize("edit", ["zero", "mean", "resample", "patch"])
def test_with_b_i_hook_result_replaces_the_whole_output(make, tokens, edit, head, generator):
    model, name = make(vo_identity=True), "blocks.1.attn.hook_result"
    _, cache = model.run_with_cache(tokens)
    _, other = model.run_with_cache(torch.randint(11, (4, 8), generator=generator))
    old, reference = cache[name], other[name]
    drawn = torch.randint(4, (4,), generator=torch.Generator().manual_seed(7))
    hook, new = {
        "zero": (Zero().hook(head=head), torch.zeros_like(old)),
        "mean": (Mean(reference).hook(head=head), reference.mean(0).expand_as(old)),
        "resample": (Resample(reference, drawn).hook(head=head), reference[drawn]),
        "patch": (patch(reference, head=head), reference),
    }[edit]
    attn_out = only(head, new, old).sum(2) + model.blocks[1].attn.b_O
    expected = model.resume(cache["resid_pre", 1], 1, attn_out=attn_out)
    edited = model.run_with_hooks(tokens, fwd_hooks=[(name, hook)])
    torch.testing.assert_close(edited, expected, atol=1e-10, rtol=0)


def test_with_b_i_zero_at_z_keeps_b_a_x_and_a_pattern_mixes_both(make, tokens, generator):
    model = make(vo_identity=True)
    _, cache = model.run_with_cache(tokens)
    attn, b, x = model.blocks[1].attn, model.block(1).attention.b, cache["blocks.1.ln1.hook_normalized"]

    def attn_out(edit):
        with model.hooks(fwd_hooks=[edit]):
            return model.run_with_cache(tokens)[1]["attn_out", 1]

    rest = torch.einsum("h,bhqk,bkd->bqd", b, cache["pattern", 1], x)
    left = attn_out(("blocks.1.attn.hook_z", Zero().hook()))
    torch.testing.assert_close(left, rest + attn.b_O, atol=1e-10, rtol=0)
    pattern = torch.rand(1, 8, 8, generator=generator, dtype=torch.float64).softmax(-1)
    z = torch.einsum("qk,bkhe->bqhe", pattern[0], cache["v", 1])
    both = torch.einsum("bphe,hed->bpd", z, attn.W_O) + b.sum() * pattern @ x
    mixed = attn_out(("blocks.1.attn.hook_pattern", Pattern(pattern).hook()))
    torch.testing.assert_close(mixed, both + attn.b_O, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", WITH_HEADS)
def test_head_axis_of_every_hook_point(name, generator):
    old, new = (torch.randn(WITH_HEADS[name], generator=generator) for _ in range(2))
    for hook, expected in [(patch(new, head=1), new), (Zero().hook(head=1), torch.zeros_like(new))]:
        edited = hook(old, SimpleNamespace(name=f"blocks.0.attn.{name}"))
        axis = 1 if name in ("hook_attn_scores", "hook_pattern") else 2
        for head in range(3):
            assert torch.equal(edited.select(axis, head), (expected if head == 1 else old).select(axis, head))


def test_reference_with_one_position_is_broadcast():
    old, single = torch.zeros(4, 8, 12), torch.ones(6, 1, 12)
    at = SimpleNamespace(name="hook_resid_pre")
    for hook in (Mean(single).hook(), Resample(single, torch.tensor([0, 5, 3, 3])).hook()):
        assert torch.equal(hook(old, at), torch.ones(4, 8, 12))


def test_nothing_is_modified_in_place(model, tokens, reference):
    logits, cache = model.run_with_cache(tokens)
    clean = {name: activation.clone() for name, activation in cache.items()}
    source = {name: activation.clone() for name, activation in reference.items()}
    z = "blocks.1.attn.hook_z"
    pattern = reference["pattern", 1][:4, 0]
    for name, hook in [
        (z, Zero().hook(head=1)),
        (z, Mean(reference[z]).hook(head=1)),
        (z, Resample(reference[z], torch.tensor([5, 0, 0, 2])).hook(head=1)),
        (z, patch(reference[z][:4], positions=torch.tensor([1]))),
        ("blocks.1.attn.hook_pattern", Pattern(pattern).hook(head=1)),
        ("blocks.1.hook_resid_pre", Zero().hook()),
    ]:
        given = clean[name].clone()
        hook(given, SimpleNamespace(name=name))
        assert torch.equal(given, clean[name])
        with model.hooks(fwd_hooks=[(name, hook)]):
            model.run_with_cache(tokens)
        assert all(torch.equal(cache[name], clean[name]) for name in clean)
        assert all(torch.equal(reference[name], source[name]) for name in source)
    assert torch.equal(model(tokens), logits)


def test_gradients_pass_through_an_edit(model, tokens):
    model.run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_z", Zero().hook(head=1))]).sum().backward()
    gradient = model.weights[1].attention.o.weight.grad.abs().sum(0).view(3, 4).sum(1)
    assert (gradient > 0).tolist() == [True, False, True]


@pytest.mark.parametrize("head", [-1, 3])
@pytest.mark.parametrize("name", WITH_HEADS)
def test_head_index_out_of_range(name, head):
    with pytest.raises(ValueError, match=rf"head is {head}; blocks.0.attn.{name} has heads 0 to 2"):
        Zero().hook(head=head)(torch.zeros(WITH_HEADS[name]), SimpleNamespace(name=f"blocks.0.attn.{name}"))


@pytest.mark.parametrize("name", ["hook_resid_pre", "hook_attn_out", "mlp.hook_post", "ln1.hook_scale"])
def test_head_at_a_hook_point_without_heads(model, tokens, name):
    with pytest.raises(ValueError, match=rf"head is 1, but blocks.0.{name} has no heads; leave head out or choose"):
        model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.0.{name}", Zero().hook(head=1))])


def test_replacements_of_another_shape_are_refused(model, tokens, reference):
    z, name = reference["z", 1], "blocks.1.attn.hook_z"
    words = r"the replacement is \(\d, 7, 3, 4\); the activation it replaces is \(4, 8, 3, 4\).*inputs of the same"
    for hook in (Mean(z[:, :7]).hook(), Resample(z[:, :7], torch.arange(4)).hook()):
        with pytest.raises(ValueError, match=words):
            model.run_with_hooks(tokens, fwd_hooks=[(name, hook)])
    with pytest.raises(ValueError, match=r"source is \(6, 8, 3, 4\); the activation it replaces is \(4, 8, 3, 4\)"):
        model.run_with_hooks(tokens, fwd_hooks=[(name, patch(z))])
    pattern = torch.full((1, 7, 7), 1 / 7)
    with pytest.raises(ValueError, match=r"the replacement is \(1, 1, 7, 7\); .* \(4, 3, 8, 8\)"):
        model.run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_pattern", Pattern(pattern).hook())])


@pytest.mark.parametrize("row", [[0.5, 0.4], [1.5, -0.5]])
def test_pattern_rows_must_be_distributions(row):
    with pytest.raises(ValueError, match="negative somewhere or does not sum to one; normalise its rows"):
        Pattern(torch.tensor([[row, [0.5, 0.5]]]))
