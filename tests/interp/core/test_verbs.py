"""Verbs on TransformerLens bridges, compared with the same results computed from the bridge directly."""

import dataclasses
from functools import cache

import numpy as np
import pytest
import torch
from bridges import KINDS, bridge_of, hugging_face
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

import hooks
import interp
from hooks.interventions.ablation_engine import AblationEngine
from hooks.model.attention import visible_keys
from interp.auditing.audit import NEEDS as NEEDS_OF_AUDIT
from interp.core.activations import residuals_at_targets
from interp.core.randomness import derived_generator, derived_seed
from interp.core.verbs import needs_of_verbs, prepare_model, supported_verbs, untrained_copy
from interp.heads.kinds import relations_of
from interp.tasks import Dyck, Lego
from interp.tasks.base import logits_at_targets
from interp.view.attention import canvas_page

TRANSFORMER_ONLY = {verb: needs.only_transformer for verb, needs in needs_of_verbs().items() if needs.only_transformer}

PADDED = Dyck(n_types=2, max_depth=3, length=8, words="complete")
WHOLE = Dyck(n_types=2, max_depth=3, length=8)
SHORT = Dyck(n_types=2, max_depth=3, length=4)
N = 12


def some_kinds(*names):
    """Some kinds of bridges by default, all of them among the slow tests."""
    return [pytest.param(kind, marks=[] if kind in names else [pytest.mark.slow]) for kind in KINDS]


@cache
def bridge_for(kind, seed=0):
    return bridge_of(kind, d_vocab=PADDED.d_vocab, seed=seed)


def batch_of(task, what, n=N, seed=0):
    return task.sample(n, generator=derived_generator(seed, what), split="test")


def run(bridge, batch, fwd_hooks=()):
    """Logits at the targets, on the bridge itself."""
    inputs = {name: value.long() for name, value in batch.model_inputs().items()}
    with torch.no_grad():
        return logits_at_targets(bridge.run_with_hooks(batch.tokens, fwd_hooks=list(fwd_hooks), **inputs), batch)


def cache_of(bridge, batch):
    inputs = {name: value.long() for name, value in batch.model_inputs().items()}
    with torch.no_grad():
        return bridge.run_with_cache(batch.tokens, **inputs)[1]


def put(layer, heads, value):
    """Replace the outputs of some heads of a layer."""

    def edit(activation, hook):
        activation = activation.clone()
        activation[:, :, heads] = (
            value if isinstance(value, float) else value[:, :, heads].expand_as(activation[:, :, heads])
        )
        return activation

    return f"blocks.{layer}.attn.hook_z", edit


def accuracy_and_loss(task, bridge, batch, fwd_hooks=()):
    score = task.score(run(bridge, batch, fwd_hooks), batch)
    asked = score.total.double().sum(0)
    return (score.right.double().sum(0) / asked).numpy(), (score.loss.double().sum(0) / asked).numpy()


@pytest.mark.parametrize("kind", some_kinds("gpt2", "bert"))
def test_zero_ablation_matches_hooks_on_the_bridge(kind):
    bridge, batch = bridge_for(kind), batch_of(PADDED, "ablate")
    assert batch.attention_mask is not None
    found = interp.ablate_heads(bridge, PADDED, n=N)
    right, loss = accuracy_and_loss(PADDED, bridge, batch)
    for index, ((layer, head),) in enumerate(found.heads):
        after, dearer = accuracy_and_loss(PADDED, bridge, batch, [put(layer, [head], 0.0)])
        np.testing.assert_allclose(found.drop[index], right - after, atol=1e-9, equal_nan=True)
        np.testing.assert_allclose(found.loss_rise[index], dearer - loss, atol=1e-4, equal_nan=True)
    assert np.nanmax(np.abs(found.loss_rise)) > 0.05


TASKS = {"padded": PADDED, "whole": WHOLE}
PAIRS = {"padded": ("llama", "bert", "native"), "whole": ("gpt2", "neox", "roberta")}
"""Pairs of task and bridge that are tried by default."""


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        pytest.param(TASKS[name], kind, marks=[] if kind in PAIRS[name] else [pytest.mark.slow], id=f"{name}-{kind}")
        for name in TASKS
        for kind in KINDS
    ],
)
def test_ablation_of_sets_matches_hooks_on_the_bridge(task, kind):
    bridge, batch = bridge_for(kind), batch_of(task, "ablate")
    sets = {"far": [(0, 1), (1, 2)], "near": [(1, 0), (1, 3)], "many": [(0, 0), (0, 3), (1, 1)]}
    _, before = accuracy_and_loss(task, bridge, batch)
    reference = task.sample(256, generator=derived_generator(0, "reference"), split="validation")
    seen = cache_of(bridge, reference)
    real = torch.ones_like(reference.tokens) if reference.attention_mask is None else reference.attention_mask
    share = (real.double() / real.sum(0).clamp_min(1))[..., None, None]
    mean = [(seen[f"blocks.{i}.attn.hook_z"] * share).sum(0, keepdim=True).float() for i in (0, 1)]
    for method, values in (("zero", [0.0, 0.0]), ("mean", mean)):
        found = interp.ablate_heads(bridge, task, heads=sets, method=method, n=N)
        for index, chosen in enumerate(sets.values()):
            edits = [
                put(i, [h for layer, h in chosen if layer == i], values[i]) for i in {layer for layer, _ in chosen}
            ]
            _, after = accuracy_and_loss(task, bridge, batch, edits)
            np.testing.assert_allclose(found.loss_rise[index], after - before, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_replacement_sees_the_effects_of_earlier_edits(kind):
    """Patterns are reversed in both layers; values and pattern of the second layer are those under the first edit."""
    bridge, batch = bridge_for(kind), batch_of(PADDED, "engine")
    model, mask = hooks.from_bridge(bridge), batch.attention_mask

    def turned(layer, clean):
        return (clean.pattern.flip(1) @ clean.v.transpose(1, 2)).transpose(1, 2)

    engine = AblationEngine(model, batch.tokens, attention_mask=mask)
    found = engine.head_set([(0, 1), (1, 2)], turned)

    def by_hand(layer, seen):
        v = seen[f"blocks.{layer}.attn.hook_v"]
        v = v.repeat_interleave(4 // v.shape[2], 2)
        return (seen[f"blocks.{layer}.attn.hook_pattern"].flip(1) @ v.transpose(1, 2)).transpose(1, 2)

    first = put(0, [1], by_hand(0, cache_of(bridge, batch)))
    inputs = {"attention_mask": mask.long()}
    seen = {}
    names = ("blocks.1.attn.hook_v", "blocks.1.attn.hook_pattern")
    keep = [(name, lambda activation, hook, name=name: seen.__setitem__(name, activation)) for name in names]
    bridge.run_with_hooks(batch.tokens, fwd_hooks=[first, *keep], **inputs)
    wanted = bridge.run_with_hooks(batch.tokens, fwd_hooks=[first, put(1, [2], by_hand(1, seen))], **inputs)
    assert torch.allclose(found[mask], wanted[mask], atol=1e-4)
    assert not torch.allclose(found[mask], bridge(batch.tokens, **inputs)[mask], atol=1e-2)


@pytest.mark.parametrize("kind", some_kinds("neox", "roberta"))
@torch.no_grad()
def test_every_subset_of_heads_equals_the_sets_one_by_one(kind):
    batch = batch_of(PADDED, "engine")
    positions = torch.zeros(len(batch), 1, dtype=torch.long)

    def turned(layer, clean):
        return (clean.pattern.flip(1) @ clean.v.transpose(1, 2)).transpose(1, 2)

    engine = AblationEngine(
        hooks.from_bridge(bridge_for(kind)), batch.tokens, read_at=positions, attention_mask=batch.attention_mask
    )
    found = dict(engine.every_subset([(1, 2), (0, 1), (0, 3), (1, 0)], turned))
    assert len(found) == 16
    for heads, logits in found.items():
        torch.testing.assert_close(logits, engine.head_set(heads, turned), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "roberta"])
@torch.no_grad()
def test_position_ids_are_passed_to_every_forward_pass(kind):
    model, batch = hooks.from_bridge(bridge_for(kind)), batch_of(WHOLE, "engine")
    positions = torch.arange(9).expand(N, -1) * 3
    engine = AblationEngine(model, batch.tokens, position_ids=positions)
    offset = 2 if kind == "roberta" else 0
    for (layer, head), logits in engine.each_head(lambda layer, clean: torch.zeros_like(clean.z)):
        edit = [put(layer, [head], 0.0)]
        wanted = model.bridge.run_with_hooks(batch.tokens, fwd_hooks=edit, position_ids=positions + offset)
        assert torch.allclose(logits, wanted, atol=1e-4)


@pytest.mark.parametrize("kind", some_kinds("llama", "bert"))
def test_head_scores_match_the_cached_patterns(kind):
    bridge = bridge_for(kind)
    found = interp.classify_heads(bridge, PADDED, n=N)
    batch = batch_of(PADDED, "classify")
    patterns = torch.stack([cache_of(bridge, batch)[f"blocks.{layer}.attn.hook_pattern"] for layer in (0, 1)], 1)
    pos = batch.tokens.shape[1]
    allowed = batch.attention_mask[:, None, :].expand(-1, pos, -1)
    if kind not in ("bert", "roberta"):
        allowed = allowed & torch.ones(pos, pos, dtype=torch.bool).tril()
    for index, name in enumerate(found.kinds):
        related = relations_of(PADDED, batch, [name])[name] & allowed
        scores = []
        for row in range(N):
            mass = room = 0.0
            for query in range(pos):
                n_related, n_keys = int(related[row, query].sum()), int(allowed[row, query].sum())
                if batch.attention_mask[row, query] and 0 < n_related < n_keys:
                    mass = mass + patterns[row, :, :, query][..., related[row, query]].sum(-1) - n_related / n_keys
                    room += 1 - n_related / n_keys
            if room:
                scores.append((mass / room).numpy())
        np.testing.assert_allclose(found.score[:, :, index], np.mean(scores, 0), atol=1e-4)


@pytest.mark.parametrize("kind", some_kinds("llama", "bert", "native"))
def test_probes_match_residual_streams_of_the_bridge_and_of_an_untrained_copy(kind):
    bridge, task = bridge_for(kind), SHORT
    batch = batch_of(task, "probe")
    seen = cache_of(bridge, batch)
    streams = torch.stack(
        [seen["blocks.0.hook_resid_pre"], seen["blocks.0.hook_resid_post"], seen["blocks.1.hook_resid_post"]]
    )
    found = residuals_at_targets(hooks.from_bridge(bridge), batch)
    where = batch.target_positions[..., None].expand(-1, -1, 32)
    wanted = torch.stack([stream.gather(1, where).transpose(0, 1) for stream in streams])
    assert torch.equal(found, wanted)
    sizes = {"label": "depth", "n_train": 120, "n_test": 100}
    result = interp.probe(bridge, task, **sizes)
    assert result.accuracy.shape[0] == 3
    assert np.nanmax(result.accuracy - result.shuffled) > 0.1  # depth can be read off random features
    if kind in ("llama", "bert", "native"):
        twin = untrained_copy(hooks.from_bridge(bridge), derived_seed(0, "untrained twin") % 2**31)
        same = interp.probe(twin, task, **sizes)
        np.testing.assert_array_equal(result.untrained, same.accuracy)


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_accuracy_matches_the_logits_of_the_bridge(kind):
    bridge = bridge_for(kind)
    found = interp.evaluate(bridge, PADDED, n=N)
    batch = PADDED.sample(N, generator=derived_generator(0, "evaluate", "test"), split="test")
    np.testing.assert_allclose(found.accuracy, accuracy_and_loss(PADDED, bridge, batch)[0], equal_nan=True)


@pytest.mark.parametrize("kind", some_kinds("neox", "roberta"))
def test_variation_matches_the_patterns_of_the_bridge(kind):
    first, second = bridge_for(kind), bridge_for(kind, 1)
    text = WHOLE.staircase()
    found = interp.attention_variation([first, second], WHOLE, prefixes=text, n_baseline=10, resamples=10)
    batch = WHOLE.read(text)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in (0, 1)]
    a, b = ([cache_of(bridge, batch)[name] for name in names] for bridge in (first, second))
    wanted = [float((x - y).double().square().sum((-1, -2)).mean()) for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(found.variation, wanted, rtol=1e-4)


def test_variation_refuses_a_repeated_or_different_bridge_and_a_single_model(as_a_user):
    first, second = bridge_for("gpt2"), bridge_for("bert")
    with pytest.raises(ValueError, match=r"models\[1\] is models\[0\] again"):
        interp.attention_variation([first, hooks.from_bridge(first)], WHOLE)
    with pytest.raises(ValueError, match=r"bidirectional attention, models.0. has .* causal attention"):
        interp.attention_variation([first, second], WHOLE)
    with pytest.raises(ValueError, match=r"^models is .*; it must be a list"):
        interp.attention_variation(first, WHOLE)


@pytest.mark.parametrize("kind", KINDS)
def test_an_attention_page_shows_the_patterns_of_the_bridge(kind, monkeypatch):
    bridge, shown = bridge_for(kind), []

    def kept(examples, **settings):
        shown.extend(examples)
        return canvas_page(examples, **settings)

    monkeypatch.setattr("interp.heads.show.canvas_page", kept)
    interp.show_attention(bridge, PADDED, examples=2, viewer="canvas")
    seen = cache_of(bridge, batch_of(PADDED, "show", 2))
    assert len(shown) == 2
    for row, example in enumerate(shown):
        wanted = torch.cat([seen[f"blocks.{layer}.attn.hook_pattern"][row] for layer in (0, 1)])
        np.testing.assert_array_equal(example.patterns, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_diagonals_match_the_matrices_of_the_bridge(kind):
    bridge = bridge_for(kind)
    found = interp.diagonals(bridge, n_null=5)
    attn = bridge.blocks[1].attn
    each = 4 // len(attn.W_V)
    for head in range(4):
        write = (attn.W_V[head // each] @ attn.W_O[head]).detach().double()
        look = (attn.W_Q[head] @ attn.W_K[head // each].T).detach().double()
        for index, matrix in enumerate((look, write)):
            cosine = float(matrix.trace() / matrix.norm() / 32**0.5)
            assert found.cosine[1, head, index] == pytest.approx(cosine, abs=1e-6)


@cache
def audit_of(kind, seed=0):
    return interp.audit(bridge_for(kind, seed), PADDED, n=16, at_chance=True)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow) for kind in ("llama", "neox")] + ["bert"])
def test_audit_accepts_a_bridge(kind):
    found = audit_of(kind)
    assert len(found.heads) == 8
    assert found.interventions[0] == "zero"
    batch = batch_of(PADDED, "audit", 16)
    right, _ = accuracy_and_loss(PADDED, bridge_for(kind), batch)
    places = [PADDED.outcomes.index(name) for name in found.outcomes]
    for head in found.heads:
        after, _ = accuracy_and_loss(PADDED, bridge_for(kind), batch, [put(head.layer, [head.head], 0.0)])
        np.testing.assert_allclose(head.costs["zero"].drop, (right - after)[places], atol=1e-9)


@pytest.mark.parametrize("kind", ["gpt2", "roberta", "native"])
def test_audit_probe_accepts_a_bridge(kind):
    found = interp.audit_probe(bridge_for(kind), SHORT, n_train=60, n_test=32)
    assert len(found.verdict) == 3


def test_probe_with_verify_accepts_a_bridge():
    task = Lego(n_vars=2, sentence_format="compact")
    bridge = bridge_of("bert", d_vocab=task.d_vocab)
    found = interp.probe(bridge, task, n_train=200, n_test=60, verify=True)
    assert found.causal is not None
    assert found.causal["n"].max() > 0


def test_visible_keys_match_the_patterns_of_the_bridge():
    for kind in KINDS:
        model, batch = hooks.from_bridge(bridge_for(kind)), batch_of(PADDED, "keys")
        allowed = visible_keys(model.cfg, batch.tokens, batch.attention_mask)
        patterns = cache_of(model.bridge, batch)["blocks.0.attn.hook_pattern"]
        real = batch.attention_mask[:, None, :, None].expand_as(patterns)
        seen = (patterns > 0)[real]
        assert torch.equal(seen, allowed[:, None].expand_as(patterns)[real])


WORKING = ("evaluate", "perplexity", "probe", "probe with verify=True", "audit_probe", "show_attention")
WORKING += (
    "attention_variation",
    "classify_heads",
    "ablate_heads",
    "ablate_heads with another pattern",
    "ablate",
    "keep_heads",
)
WORKING += (
    "keep_heads with another pattern",
    "audit",
    "audit_parts",
    "patch",
    "patch of attention outputs",
    "patch of MLPs",
    "implements",
    "logit_lens",
    "logit_attribution",
    "edges",
    "edges between layers",
    "explain_attention",
    "diagonals",
)


@pytest.mark.parametrize("kind", KINDS)
def test_all_verbs_but_transformer_only_ones_accept_every_bridge(kind):
    found = supported_verbs(bridge_for(kind)).obstacles
    refused = dict(TRANSFORMER_ONLY)
    if kind in ("bert", "roberta"):  # layers that normalise the stream
        for verb in ("logit_attribution", "edges between layers", "explain_attention"):
            refused[verb] = found[verb]
            assert "output of layer 0 is not the sum" in found[verb]
    if kind not in ("gpt2", "neox"):
        refused["edges"] = found["edges"]
    if kind in ("llama", "neox"):  # positions in attention
        refused["explain_attention"] = found["explain_attention"]
        assert found["explain_attention"].endswith("hook_q hook_k / scale: before positions enter")
    assert [verb for verb, why in found.items() if not why] == [verb for verb in WORKING if verb not in refused]
    assert {verb: why for verb, why in found.items() if why} == refused


def test_a_bridge_without_patterns_supports_the_other_verbs():
    bridge = bridge_of("bert", attention="sdpa", d_vocab=PADDED.d_vocab)
    found = supported_verbs(bridge).obstacles
    sums = {"logit_attribution", "edges", "edges between layers"}
    lacking = {verb for verb, why in found.items() if why} - {*TRANSFORMER_ONLY, *sums}
    lacks = {"show_attention", "attention_variation", "classify_heads", "audit", "explain_attention"}
    assert lacking == lacks | {"ablate_heads with another pattern", "keep_heads with another pattern"}
    text = "this bridge of BertForMaskedLM: it has to read blocks.0.attn.hook_pattern, which is missing .*eager"
    for verb in (interp.show_attention, interp.classify_heads, interp.audit):
        with pytest.raises(ValueError, match=f"{verb.__name__} does not accept {text}"):
            verb(bridge, PADDED)
    for verb in (interp.ablate_heads, interp.keep_heads):
        with pytest.raises(ValueError, match=f"{verb.__name__} with another pattern does not accept {text}"):
            verb(bridge, PADDED, method="uniform")
        assert verb(bridge, PADDED, method="mean", n=16).method == "mean"
    with pytest.raises(ValueError, match="attention_variation does not accept this bridge"):
        interp.attention_variation([bridge, bridge], PADDED)
    assert interp.probe(bridge, WHOLE, n_train=100, n_test=50).accuracy.shape[0] == 3


def test_transformer_only_verbs_refuse_a_bridge(as_a_user):
    bridge = bridge_for("gpt2")
    for model in (bridge, hooks.from_bridge(bridge)):
        with pytest.raises(
            ValueError, match="balance_violation does not accept a TransformerLens bridge: it is defined"
        ):
            interp.balance_violation(model, PADDED)
        with pytest.raises(ValueError, match="indistinguishable does not accept a TransformerLens bridge: Theorem 3"):
            interp.indistinguishable(model, model)
        with pytest.raises(ValueError, match="pruning_curve does not accept a TransformerLens bridge: it prunes"):
            interp.pruning_curve(model, PADDED)
        with pytest.raises(ValueError, match="train does not accept a TransformerLens bridge: a run is saved"):
            interp.train(model, WHOLE)


def test_objects_that_are_no_model_are_refused(as_a_user):
    linear = torch.nn.Linear(2, 2)
    analyses = (interp.probe, interp.classify_heads, interp.ablate_heads, interp.audit, interp.audit_probe)
    words = r"model is a Linear; accepted are hooks\.Transformer and transformer_lens"
    for verb in (*analyses, interp.evaluate, interp.show_attention):
        with pytest.raises(ValueError, match=words):
            verb(linear, PADDED)
    with pytest.raises(ValueError, match=r"Use hooks\.from_huggingface, or build a bridge"):
        interp.probe(hugging_face("bert"), PADDED)


def test_a_transformer_is_returned_unchanged():
    model = hooks.Transformer(hooks.TransformerConfig(d_vocab=5, d_model=8, n_heads=2))
    assert prepare_model(model, NEEDS_OF_AUDIT) is model
    obstacles = supported_verbs(model).obstacles
    assert {verb for verb, why in obstacles.items() if why} == {"balance_violation", "indistinguishable"}
    cfg = dataclasses.replace(model.cfg, head_patterns=((hooks.HeadPattern(kind="uniform"),) * 2,))
    hard = hooks.Transformer(cfg)
    assert untrained_copy(hard, 3).cfg == cfg
    assert untrained_copy(hard, 3, learned=True).cfg == model.cfg
    weights = hooks.Transformer(model.cfg, seed=3).state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in untrained_copy(model, 3).state_dict().items())


def test_twins_and_untrained_models_of_an_audit_may_be_bridges():
    assert audit_of("bert").with_other_seeds([audit_of("bert", 1)]).n_seeds == 1
    read = interp.classify_heads(bridge_for("native"), PADDED, n=8, untrained=bridge_for("native", 1))
    wanted = interp.classify_heads(bridge_for("native", 1), PADDED, n=8, untrained=1)
    np.testing.assert_allclose(read.untrained, wanted.score.value.max((0, 1)), atol=1e-6)


def test_a_bridge_and_a_transformer_with_the_same_weights_agree():
    theirs = hugging_face("gpt2", d_vocab=PADDED.d_vocab)
    ours = hooks.from_huggingface(theirs, with_tokenizer=False)
    bridge = build_bridge_from_module(theirs, "GPT2LMHeadModel", hf_config=theirs.config)
    for method in ("mean", "uniform"):
        one, two = (interp.ablate_heads(model, PADDED, n=N, method=method) for model in (ours, bridge))
        np.testing.assert_allclose(one.loss_rise, two.loss_rise, atol=1e-4, equal_nan=True)
    one, two = (interp.classify_heads(model, PADDED, n=N) for model in (ours, bridge))
    np.testing.assert_allclose(one.score, two.score, atol=1e-4)
    np.testing.assert_allclose(one.value_weighted, two.value_weighted, atol=1e-4)


@pytest.mark.parametrize("name", ["embed.weight", "weights.0.attention.k.weight", "weights.1.mlp.w_out.bias"])
@pytest.mark.parametrize("verb", [interp.evaluate, interp.ablate_heads, interp.probe, interp.classify_heads])
def test_a_model_with_nan_is_refused(verb, name):
    task = Lego(n_vars=2, sentence_format="compact")
    model = hooks.Transformer(interp.config_for(task, n_layers=2, d_model=8, n_heads=2))
    dict(model.named_parameters())[name].data.view(-1)[-1] = torch.nan
    with pytest.raises(ValueError, match=rf"model has the weight {name}, with NaN"):
        verb(model, task)
