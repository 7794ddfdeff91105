"""Activation patching: planted answers, idle heads, loops by hand for every kind of model, chunks, and error texts."""

import numpy as np
import pytest
import torch
from bridges import bridge_of

import hooks
import interp
from hooks import Encoder, EncoderConfig, Transformer
from interp.core import interchange
from interp.core.randomness import derived_generator
from interp.heads import patch as patching
from interp.known_answers import lego_loop
from interp.known_answers.lego.variants import loop
from interp.tasks import Dyck, Lego, Template
from interp.tasks.base import logits_at_targets

TASK = Lego(n_vars=2, sentence_format="compact")
PADDED = Dyck(n_types=2, max_depth=3, length=8, words="complete")
KINDS = ("z", "resid", "attn_out", "mlp_out")


def pairs_of(task, n, seed=0):
    """The pairs that `patch` draws."""
    generator = derived_generator(seed, "patch")
    base = task.sample(n, generator=generator, split="test")
    return base, task.counterparts(base, generator=generator, split="test")


def point_of(model, kind, layer):
    """The hook point of a site."""
    if kind == "resid":
        last = layer == model.cfg.n_layers
        return f"blocks.{layer - 1}.hook_resid_post" if last else f"blocks.{layer}.hook_resid_pre"
    if kind == "z":
        return f"blocks.{layer}.attn.{'hook_result' if model.cfg.vo_identity else 'hook_z'}"
    return f"blocks.{layer}.hook_{kind}"


@torch.no_grad()
def by_loop(model, task, n, kind, place_of):
    """Effects (site, place, target) and the shares that follow, by a pass with a hook for every site and place.

    Args:
        model: A model with our hook names.
        place_of: Function from a batch to its places.
    """
    base, source = pairs_of(task, n)
    differs = base.present & source.present & (base.labels != source.labels)
    inputs = base.model_inputs()

    def difference(logits):
        of_source, of_base = (logits.gather(2, labels[..., None])[..., 0] for labels in (source.labels, base.labels))
        return (of_source - of_base).double()

    names = [point_of(model, kind, layer) for layer in range(model.cfg.n_layers + (kind == "resid"))]
    _, cache = model.run_with_cache(source.tokens, **source.model_inputs())
    before = difference(logits_at_targets(model(base.tokens, **inputs), base))
    places, source_places = place_of(base), place_of(source)
    effects, follow = [], []
    for name in names:
        for head in range(model.cfg.n_heads) if kind == "z" else [None]:
            for place, positions in places.items():
                exists = ((positions >= 0) & (source_places[place] >= 0)).all(1)

                def edit(activation, hook, head=head, name=name, of_base=positions, place=place, exists=exists):
                    activation = activation.clone()
                    index = slice(None) if head is None else head
                    for row in exists.nonzero()[:, 0]:
                        of_source = source_places[place][row]
                        activation[row, of_base[row], index] = cache[name][row, of_source, index]
                    return activation

                logits = logits_at_targets(model.run_with_hooks(base.tokens, fwd_hooks=[(name, edit)], **inputs), base)
                counted = (differs & exists[:, None]).double()
                total = counted.sum(0)
                effects.append(((difference(logits) - before) * counted).sum(0) / total)
                follow.append(((task.answers(logits) == source.labels) * counted).sum(0) / total)
    shape = (-1, len(places), base.labels.shape[1])
    return torch.stack(effects).view(shape).numpy(), torch.stack(follow).view(shape).numpy()


def positions_of(task):
    return lambda batch: interp.tasks.Task.places(task, batch)


def models():
    """Our models, of every wiring and with both identity terms."""
    sizes = {"n_layers": 2, "d_model": 16, "n_heads": 2}
    settings = [{"block": block} for block in ("pre_ln", "post_ln", "dyck", "minimal", "bare", "no_norm", "extended")]
    settings += [{"tied": True}, {"attention": "causal"}, {"vo_identity": True, "qk_identity": True}]
    for changes in settings:
        model = Transformer(interp.config_for(TASK, **{**sizes, **changes}), seed=3).eval()
        for name, weight in model.named_parameters():
            if name.endswith(("attention.a", "attention.b")):
                torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(2))
        yield pytest.param(model, id=" ".join(map(str, changes.values())))
    cfg = EncoderConfig(d_vocab=TASK.d_vocab, n_ctx=TASK.n_ctx, head="masked_lm", block="post_ln", **sizes)
    if TASK.d_vocab_out == TASK.d_vocab:
        yield pytest.param(Encoder(cfg, seed=3).eval(), id="encoder")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", list(models()))
def test_patching_equals_a_loop_of_hooks(model, kind):
    result = interp.patch(model, TASK, site=kind, n=24)
    effects, follow = by_loop(model, TASK, 24, kind, positions_of(TASK))
    np.testing.assert_allclose(result.effect, effects, atol=1e-5)
    np.testing.assert_allclose(result.follows, follow, atol=1e-6)
    assert np.nanmax(np.abs(effects)) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_roles_equal_a_loop_of_hooks(kind):
    model = Transformer(interp.config_for(PADDED, n_layers=2, d_model=16, n_heads=2), seed=3).eval()
    result = interp.patch(model, PADDED, site=kind, n=24)
    effects, follow = by_loop(model, PADDED, 24, kind, positions_of(PADDED))
    np.testing.assert_allclose(result.effect, effects, atol=1e-5)
    np.testing.assert_allclose(result.follows, follow, atol=1e-6)
    assert len(np.unique(result.effect.n)) > 1  # later positions are in fewer words
    net = Transformer(interp.config_for(TASK, n_layers=2, d_model=16, n_heads=2), seed=3).eval()
    by_role = interp.patch(net, TASK, site=kind, positions="roles", n=24)
    np.testing.assert_allclose(by_role.effect, by_loop(net, TASK, 24, kind, TASK.places)[0], atol=1e-5)
    assert by_role.places == tuple(TASK.places(pairs_of(TASK, 1)[0]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["gpt2", pytest.param("bert", marks=pytest.mark.slow)])
def test_bridges_equal_a_loop_of_hooks(name, kind):
    bridge = bridge_of(name, d_vocab=PADDED.d_vocab)
    result = interp.patch(bridge, PADDED, site=kind, n=8)
    effects, _ = by_loop(hooks.from_bridge(bridge), PADDED, 8, kind, positions_of(PADDED))
    np.testing.assert_allclose(result.effect, effects, atol=1e-4)


@pytest.mark.parametrize("task", [TASK, PADDED], ids=["whole", "padded"])
def test_all_positions_together(task):
    """Patching the whole stream gives the source's logits where both have the same length; a head, as a loop does."""
    model = Transformer(interp.config_for(task, n_layers=2, d_model=16, n_heads=2), seed=3).eval()
    result = interp.patch(model, task, positions="all", n=24)

    def all_positions(batch):
        """Real positions of both; the first stands for the others."""
        both = torch.stack([p.base[:, 0] >= 0 for p in patching._places(task, *pairs_of(task, 24), "each")], 1)
        both &= torch.stack([p.source[:, 0] >= 0 for p in patching._places(task, *pairs_of(task, 24), "each")], 1)
        return {"all": torch.arange(both.shape[1]).expand_as(both).masked_fill(~both, 0)}

    np.testing.assert_allclose(result.effect, by_loop(model, task, 24, "z", all_positions)[0], atol=1e-5)
    if task is TASK:
        stream = interp.patch(model, task, site="resid", positions="all", n=24)
        np.testing.assert_allclose(stream.share, 1, atol=1e-4)
        base, source = pairs_of(task, 24)
        answers = task.answers(logits_at_targets(model(source.tokens), source))
        differs = base.labels != source.labels
        expected = ((answers == source.labels) & differs).sum(0) / differs.sum(0)
        np.testing.assert_allclose(stream.follows, np.broadcast_to(expected, stream.follows.shape), atol=1e-6)


def test_a_planted_answer_is_found_and_nothing_besides():
    """Two heads of a hand-written loop carry the second variable at its own place; idle heads carry nothing."""
    task = Lego(n_vars=2)
    result = interp.patch(lego_loop(task), task, positions="roles", n=64)
    cells = {(result.sites[site], result.places[place]) for site, place in np.argwhere(result.share[..., 1] > 0.9)}
    assert cells == {("2.1", "#1 variable"), ("2.1", "#1 clause")}  # the clause includes the variable
    planted = result.sites.index("2.1"), result.places.index("#1 variable"), 1
    assert result.effect.low[planted] > 0
    assert result.follows[planted].value == 1
    assert result.control[planted] == 0
    idle = loop(task, torch.Generator().manual_seed(0), idle=2)
    sites = interp.patch(idle.model, idle.task, n=32)
    for index, name in enumerate(sites.sites):
        layer, head = map(int, name.split("."))
        if idle.heads[layer, head].truth in ("idle", "misleading"):
            assert np.nanmax(np.abs(sites.effect.value[index])) < 1e-6


def test_an_answer_at_the_scored_position_alone_does_not_reach_others():
    """In the last layer a patch acts on its own position: null elsewhere, up to the rounding of another batch."""
    model = Transformer(interp.config_for(TASK, n_layers=2, d_model=16, n_heads=2), seed=3).eval()
    base, _ = pairs_of(TASK, 24)
    result = interp.patch(model, TASK, n=24)
    last_layer = result.effect.value[2:]
    for target in range(2):
        scored = base.target_positions[:, target].unique().tolist()
        others = [position for position in range(TASK.n_ctx) if position not in scored]
        np.testing.assert_allclose(last_layer[:, others, target], 0, atol=1e-6)
        assert (np.abs(last_layer[:, scored, target]) > 0).all()


def test_the_size_of_chunks_changes_nothing(monkeypatch):
    model = Transformer(interp.config_for(PADDED, n_layers=2, d_model=16, n_heads=2), seed=3).eval()
    whole = interp.patch(model, PADDED, n=40)
    monkeypatch.setattr(patching, "PAIRS_AT_ONCE", 7 * PADDED.n_ctx)
    monkeypatch.setattr(interchange, "TOKENS_PER_PASS", 3 * PADDED.n_ctx)
    parts = interp.patch(model, PADDED, n=40)
    np.testing.assert_allclose(parts.effect, whole.effect, atol=1e-6)
    np.testing.assert_allclose(parts.gap, whole.gap, atol=1e-6)
    np.testing.assert_array_equal(parts.follows, whole.follows)


@pytest.mark.parametrize("name", ["blocks.0.mlp.hook_post", "blocks.1.hook_mlp_out", "blocks.0.attn.hook_z"])
@pytest.mark.parametrize("kind", KINDS)
def test_hooks_of_the_caller_act_once(kind, name):
    """Also a hook that needs all positions, in the layer that is patched."""
    model = Transformer(interp.config_for(TASK, n_layers=2, d_model=16, n_heads=2), seed=3).eval()

    def reverse(activation, hook):
        return activation * torch.linspace(0, 2, TASK.n_ctx).view(1, -1, *[1] * (activation.ndim - 2))

    model.add_hook(name, reverse)
    result = interp.patch(model, TASK, site=kind, n=16)
    np.testing.assert_allclose(result.effect, by_loop(model, TASK, 16, kind, positions_of(TASK))[0], atol=1e-5)


def test_formats(tmp_path):
    model = lego_loop(Lego(n_vars=2))
    result = interp.patch(model, Lego(n_vars=2), positions="roles", n=32)
    result.save(tmp_path / "result.json")
    again = interp.heads.PatchResult.load(tmp_path / "result.json")
    assert str(again) == str(result)
    np.testing.assert_array_equal(again.share, result.share)
    table = again.to_dataframe()
    assert len(table) == result.effect.size
    assert {"site", "place", "target", "effect", "low", "high", "share", "gap", "follows", "control", "n"} <= set(table)
    best = table[table["site"].eq("2.1") & table["place"].eq("#1 variable") & table["target"].eq("#1")]
    assert best["share"].tolist() == [pytest.approx(1)]
    assert best["n"].tolist() == [int(result.gap.n[1])]
    text = str(result)
    assert "2.1 at #1 variable" in text
    assert "sites and places with smaller effects or none" in text
    assert f"32 pairs, {result.gap.n.min()} to {result.gap.n.max()} of them with different answers" in text
    assert "The source's head 0.1 at #0 variable moves the logit difference of #0 by 40.00" in text
    assert "where both have the same answer, 0.00 of the answers change." in text
    assert "2.1" in result.plot().to_json()
    whole = interp.patch(model, Lego(n_vars=2), positions="all", n=32)
    assert whole.places == ("all",)
    assert [len(chart.to_dict()["concat"]) for chart in (result.plot(), whole.plot())] == [2, 2]
    assert "head" in whole.plot().to_json()
    assert "at all positions" in whole.sentence()


class Constant(Lego):
    """Counterparts that have the same answers."""

    def counterparts(self, batch, *, generator, split="test"):
        return batch


@pytest.mark.parametrize(
    ("task", "settings", "words"),
    [
        (TASK, {"n": 7}, "n is 7; "),
        (TASK, {"site": "q"}, "site is 'q'; choose one of resid, attn_out, mlp_out, z"),
        (TASK, {"positions": "some"}, "positions is 'some'; choose one of each, roles, all"),
        (Constant(n_vars=2, sentence_format="compact"), {}, "the 128 pairs of Constant have the same"),
        (Template(train=16, validation=8, test=8), {}, "the task has 1 output per target, and no other answer"),
    ],
)
def test_error_texts(task, settings, words):
    model = Transformer(interp.config_for(task, n_layers=1, d_model=16, n_heads=2))
    with pytest.raises(ValueError, match=words):
        interp.patch(model, task, **settings)


def test_a_model_without_mlps():
    model = Transformer(interp.config_for(TASK, n_layers=2, d_model=16, n_heads=2, d_mlp=0, block="no_norm")).eval()
    with pytest.raises(ValueError, match="site is 'mlp_out', but this model has no MLPs; choose z, resid or attn_out"):
        interp.patch(model, TASK, site="mlp_out")
    result = interp.patch(model, TASK, n=16)
    np.testing.assert_allclose(result.effect, by_loop(model, TASK, 16, "z", positions_of(TASK))[0], atol=1e-5)


def test_a_model_that_ignores_its_input_is_printed():
    """No site moves anything: a table with the gap alone, and columns below their names."""
    task = Lego(n_vars=2)
    model = Transformer(interp.config_for(task, n_layers=2, d_model=16, n_heads=2)).eval()
    for parameter in model.parameters():
        parameter.data.zero_()
    header, left_out, everything, *_ = str(interp.patch(model, task, n=8)).splitlines()
    assert left_out.endswith("sites and places with smaller effects or none")
    assert len(header) == len(everything)


def test_sentences_name_positions_and_the_read_out():
    task = Lego(n_vars=2)
    result = interp.patch(lego_loop(task), task, site="resid", n=16)
    assert "The source's residual stream before the read-out at position 1 moves" in str(result)
    assert "before layer 3" not in str(result)
    result = interp.patch(lego_loop(task), task, n=16)
    assert " at position " in result.sentence()
