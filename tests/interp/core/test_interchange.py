"""Interchange of activations: against hooks of our own, in subspaces, and with a hook where the pass resumes."""

import pytest
import torch
from transformer_lens.tools.analysis.interchange import SubspaceInterchange

import interp
from hooks import Transformer
from interp.core.interchange import SITE_KINDS, Interchange, Place, Rows, Site, sites_of
from interp.tasks import Lego
from interp.tasks.base import logits_at_targets


@pytest.fixture(scope="module")
def small():
    task = Lego(n_vars=2)
    config = interp.config_for(task, n_layers=2, n_heads=2, d_model=16)
    generator = torch.Generator().manual_seed(0)
    base = task.sample(70, generator=generator, split="test")
    return task, Transformer(config, seed=1).eval(), base, task.counterparts(base, generator=generator)


def each_with_its_own(base):
    """Each base input with the source of the same row."""
    rows = torch.arange(len(base))
    return Rows(rows, rows)


@pytest.mark.parametrize("kind", SITE_KINDS)
def test_interchanges_equal_hooks(small, kind):
    task, model, base, source = small
    engine = Interchange(model, base, [source], [kind])
    place = Place("#1 clause", task.places(base)["#1 clause"], task.places(source)["#1 clause"])
    rows = torch.arange(len(base))[:, None]
    pairs = each_with_its_own(base)
    for site in sites_of(model, [kind]):
        name = site.hook_point(model)
        _, cache = model.run_with_cache(source.tokens)

        def edit(activation, hook, site=site, given=cache[name]):
            activation = activation.clone()
            if site.head is None:
                activation[rows, place.base] = given[rows, place.source]
            else:
                activation[rows, place.base, site.head] = given[rows, place.source, site.head]
            return activation

        with torch.no_grad():
            wanted = logits_at_targets(model.run_with_hooks(base.tokens, fwd_hooks=[(name, edit)]), base)
            found = torch.cat([logits for _, logits in engine.logits_by_chunk(site, place, pairs)])
        torch.testing.assert_close(found, wanted)
        before = logits_at_targets(model(base.tokens), base)
        assert not torch.allclose(found, before) or kind == "resid"


def test_a_subspace_is_interchanged_alone(small):
    task, model, base, source = small
    engine = Interchange(model, base, [source], ["resid"])
    place = Place("#1 variable", task.places(base)["#1 variable"], task.places(source)["#1 variable"])
    site = Site("resid", 1)
    basis = torch.linalg.qr(torch.randn(16, 3, generator=torch.Generator().manual_seed(0)))[0]
    pairs = each_with_its_own(base)
    own, given = engine.activations(site, place, pairs)
    mixed = own + (given - own) @ basis @ basis.T
    rows = torch.arange(len(base))[:, None]

    def set_mixed(activation, hook):
        activation = activation.clone()
        activation[rows, place.base] = mixed[:, None]
        return activation

    with torch.no_grad():
        wanted = model.run_with_hooks(base.tokens, fwd_hooks=[("blocks.1.hook_resid_pre", set_mixed)])
        edit = SubspaceInterchange(basis)
        found = torch.cat([logits for _, logits in engine.logits_by_chunk(site, place, pairs, edit)])
    torch.testing.assert_close(found, logits_at_targets(wanted, base))


def test_a_hook_where_the_pass_resumes_is_refused(small):
    task, _, base, source = small
    model = Transformer(interp.config_for(task, n_layers=1, d_model=16, n_heads=2))
    model.add_hook("blocks.0.hook_resid_pre", lambda value, hook: value * 2)
    with pytest.raises(ValueError, match=r"attached to blocks.0.hook_resid_pre, .* attach it to hook_embed"):
        Interchange(model, base, [source], ["resid"])


def test_a_hook_of_the_caller_acts_once(small):
    """The interchange of a site without an effect leaves the answers of the model with its hook."""
    task, _, base, source = small
    model = Transformer(interp.config_for(task, n_layers=2, d_model=16, n_heads=2), seed=1).eval()
    model.add_hook("blocks.1.hook_resid_pre", lambda value, hook: value * 2)
    engine = Interchange(model, base, [source], ["resid"])
    nowhere = torch.full((len(base), 1), -1)
    place = Place("none", nowhere, nowhere)
    chunks = engine.logits_by_chunk(Site("resid", 1), place, each_with_its_own(base))
    logits = torch.cat([logits for _, logits in chunks])
    torch.testing.assert_close(logits, logits_at_targets(model(base.tokens), base))


def test_sources_of_several_batches_are_counted_on(small):
    """Any base input can get the activations of any source, whatever batch and chunk it is in."""
    task, model, base, source = small
    further = task.counterparts(base, generator=torch.Generator().manual_seed(1)).select(slice(0, 40))
    engine = Interchange(model, base, [source, further], ["resid"])
    positions = [task.places(batch)["#1 clause"] for batch in (base, source, further)]
    place = Place("#1 clause", positions[0], torch.cat(positions[1:]))
    pairs = Rows(torch.tensor([3, 69, 3, 0]), torch.tensor([0, 75, 69, 109]))
    logits = torch.cat([logits for _, logits in engine.logits_by_chunk(Site("resid", 1), place, pairs)])
    for index, (base_row, source_row) in enumerate(zip(pairs.base.tolist(), pairs.source.tolist(), strict=True)):
        of_source = source if source_row < len(source) else further
        row = source_row % len(source)
        alone = Interchange(
            model, base.select(torch.tensor([base_row])), [of_source.select(torch.tensor([row]))], ["resid"]
        )
        alone_place = Place("#1 clause", positions[0][[base_row]], task.places(of_source)["#1 clause"][[row]])
        one_pair = Rows(torch.tensor([0]), torch.tensor([0]))
        ((_, expected),) = alone.logits_by_chunk(Site("resid", 1), alone_place, one_pair)
        torch.testing.assert_close(logits[[index]], expected)


@pytest.mark.parametrize("point", ["blocks.1.hook_resid_post", "blocks.1.attn.hook_z", "ln_final.hook_normalized"])
def test_a_hook_at_one_position_acts_there(small, point):
    """In the last layer and the read-out, of which only the targets are read."""
    task, _, base, source = small
    model = Transformer(interp.config_for(task, n_layers=2, d_model=16, n_heads=2), seed=1).eval()

    def set_first(activation, hook):
        edited = activation.clone()
        edited[:, 0] = 1.0
        return edited

    model.add_hook(point, set_first)
    nowhere = torch.full((len(base), 1), -1)
    place = Place("none", nowhere, nowhere)
    for site in (Site("z", 0, 1), Site("resid", 1), Site("mlp_out", 1)):
        engine = Interchange(model, base, [source], [site.kind])
        logits = torch.cat([logits for _, logits in engine.logits_by_chunk(site, place, each_with_its_own(base))])
        torch.testing.assert_close(logits, logits_at_targets(model(base.tokens), base))
