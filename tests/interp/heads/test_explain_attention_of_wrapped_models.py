"""Scores of wrapped models as sums over pairs: against the same weights in a transformer of this package, and plain
hooks; and what is refused."""

import numpy as np
import pytest
import torch
from bridges import bridge_of, hugging_face

import hooks
import interp
from hooks.interventions.head_reading import HeadReading
from interp.core.inputs import inputs_or_sample
from interp.core.randomness import derived_generator
from interp.heads.explain_attention import ScoreParts
from interp.tasks import Lego
from interp.tasks.base import logits_at_targets

TASK = Lego(n_vars=2, sentence_format="compact")
N = 24


def assert_equal_results(first, second):
    assert (first.parts, first.pairs, first.removals) == (second.parts, second.pairs, second.removals)
    for name in ("share", "control", "explained", "pattern_change", "clean", "drop"):
        values = [
            np.asarray(getattr(getattr(result, name), "value", getattr(result, name))) for result in (first, second)
        ]
        np.testing.assert_allclose(*values, atol=5e-5, err_msg=name)
    assert max(first.remainder, second.remainder) < 1e-5


@pytest.mark.parametrize("head", [(0, 1), (1, 2)])
def test_a_bridge_of_gpt2_has_the_explanation_of_the_same_weights(head):
    bridge = bridge_of("gpt2", d_vocab=TASK.d_vocab)
    ours = hooks.from_huggingface(hugging_face("gpt2", d_vocab=TASK.d_vocab))
    assert_equal_results(*(interp.explain_attention(model, TASK, head, n=N) for model in (bridge, ours)))


def test_every_input_is_exact_in_a_bridge():
    task = Lego(n_vars=2, alphabet="ab")
    bridge = bridge_of("gpt2", d_vocab=task.d_vocab)
    ours = hooks.from_huggingface(hugging_face("gpt2", d_vocab=task.d_vocab))
    of_bridge, of_ours = (interp.explain_attention(model, task, (1, 0), n="all") for model in (bridge, ours))
    assert of_bridge.share.exact
    assert_equal_results(of_bridge, of_ours)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt2", "native"])
def test_a_pair_that_is_removed_by_hooks_of_the_bridge(kind):
    """The pattern of the scores without it, set by a hook on the bridge itself."""
    bridge = bridge_of(kind, d_vocab=TASK.d_vocab)
    result = interp.explain_attention(bridge, TASK, (1, 2), n=N, n_pairs=1)
    batch = inputs_or_sample(TASK, N, generator=derived_generator(0, "explain attention"))
    parts = ScoreParts.of(HeadReading.of(hooks.from_bridge(bridge), (1, 2)), batch)
    pair = parts.pair(*result.pairs[0])
    moved = []

    def without_pair(pattern, hook):
        logs = pattern[:, 2].double().log() - pair
        edited = pattern.clone()
        edited[:, 2] = logs.softmax(-1).to(pattern)
        moved.append((edited - pattern)[:, 2].abs().sum(-1).mean() / 2)
        return edited

    clean = TASK.score(logits_at_targets(bridge(batch.tokens), batch), batch)
    with bridge.hooks(fwd_hooks=[("blocks.1.attn.hook_pattern", without_pair)]):
        score = TASK.score(logits_at_targets(bridge(batch.tokens), batch), batch)
    assert result.pattern_change.value[0] == pytest.approx(float(moved[0]), abs=5e-5)
    np.testing.assert_allclose(result.drop.value[0], (clean.right - score.right).mean(0), atol=1e-6)


@torch.no_grad()
def test_queries_of_each_part_by_the_weights():
    """Of a transformer of this package, whose norm and matrices are read here."""
    ours = hooks.from_huggingface(hugging_face("gpt2", d_vocab=TASK.d_vocab))
    batch = inputs_or_sample(TASK, N, generator=derived_generator(0, "explain attention"))
    parts = ScoreParts.of(HeadReading.of(ours, (1, 2)), batch)
    _, cache = ours.run_with_cache(batch.tokens)
    attn, norm = ours.blocks[1].attn, ours.block(1).norm_1
    scale = cache["blocks.1.ln1.hook_scale"]
    written = {
        "tokens": cache["blocks.0.hook_resid_pre"] - cache["hook_pos_embed"],
        "0.3": cache["blocks.0.attn.hook_z"][:, :, 3] @ ours.blocks[0].attn.W_O[3],
        "0 MLP": cache["blocks.0.hook_mlp_out"],
        "biases": ours.blocks[0].attn.b_O.expand_as(cache["hook_embed"]),
    }
    for name, stream in written.items():
        normed = (stream - stream.mean(-1, keepdim=True)) / scale * norm.weight
        for letter, values in (("Q", parts.queries * ours.cfg.attn_scale), ("K", parts.keys)):
            bias = (norm.bias @ getattr(attn, f"W_{letter}")[2] + getattr(attn, f"b_{letter}")[2]) * (name == "biases")
            expected = normed @ getattr(attn, f"W_{letter}")[2] + bias
            torch.testing.assert_close(values[parts.names.index(name)].float(), expected, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("neox", "in layer 0 the pattern is not the softmax of hook_q hook_k / scale: before positions enter"),
        ("bert", "the output of layer 0 is not the sum of its input and the outputs of its attention and MLP"),
    ],
)
def test_what_a_wrapped_model_lacks(kind, reason):
    bridge = bridge_of(kind, d_vocab=TASK.d_vocab)
    assert interp.supported_verbs(bridge).obstacles["explain_attention"] == reason
    with pytest.raises(ValueError, match=f"explain_attention does not accept this bridge of .*: {reason}. Use "):
        interp.explain_attention(bridge, TASK, (0, 0))


def test_queries_that_are_no_sums_over_the_stream():
    """Attention that reads the cube of the stream, by a hook in every pass: the pattern is still that of hook_q."""
    bridge = bridge_of("native")
    bridge.hook_dict["blocks.1.ln1.hook_out"].add_hook(lambda x, hook: x**3)
    assert interp.supported_verbs(bridge).obstacles["explain_attention"] == (
        "in layer 1 queries and keys are no sums over the stream with the scale of a norm held"
    )
