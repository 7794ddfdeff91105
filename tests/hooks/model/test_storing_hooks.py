"""Hooks that store activations: names, what is read of them, gradients, and later passes."""

import torch

from hooks.model.checked_hooks import storing_hooks

NAMES = ("hook_embed", "blocks.1.attn.hook_z")


def test_the_named_activations_are_stored_and_keep_their_gradient(make, generator):
    model, seen = make(), {}
    tokens = torch.randint(11, (2, 5), generator=generator)
    _, cache = model.run_with_cache(tokens)
    model.run_with_hooks(tokens, fwd_hooks=storing_hooks(NAMES, seen))
    assert tuple(seen) == NAMES
    assert all(torch.equal(seen[name], cache[name]) for name in NAMES)
    (slope,) = torch.autograd.grad(seen[NAMES[1]].sum(), model.embed.weight)
    assert slope.abs().sum() > 0


def test_a_part_is_stored_and_a_later_pass_overwrites_it(make, generator):
    model, seen = make(), {}
    hooks = storing_hooks(NAMES, seen, transform=lambda activation: activation[:, 0])
    for n in (2, 3):
        tokens = torch.randint(11, (n, 5), generator=generator)
        model.run_with_hooks(tokens, fwd_hooks=hooks)
        assert torch.equal(seen["hook_embed"], model.embed.weight[tokens[:, 0]])
        assert len(seen[NAMES[1]]) == n


def test_a_hook_stores_before_the_pass_goes_on(make, generator):
    model, seen, early = make(), {}, []
    tokens = torch.randint(11, (2, 5), generator=generator)
    later = ("blocks.0.hook_resid_post", lambda activation, hook: early.extend(seen))
    model.run_with_hooks(tokens, fwd_hooks=[*storing_hooks(NAMES, seen), later])
    assert early == ["hook_embed"]
