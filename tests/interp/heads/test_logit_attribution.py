"""Direct logit attribution: planted parts, TransformerLens's numbers, every kind of model, and its errors."""

import numpy as np
import pytest
import torch
from bridges import bridge_of
from coin_flips import CoinFlips
from foreign_tasks import Echo
from own_models import MAPS, own_model, plain_model, torch_encoder, transformer
from scipy import stats

import hooks
import interp
from hooks import Transformer
from interp.core.inputs import inputs_or_sample
from interp.core.randomness import derived_generator
from interp.heads import LogitAttributionResult
from interp.tasks import Lego, Template

TASK = Lego(n_vars=3, sentence_format="compact")
OURS = transformer(TASK)
PLACES = {"d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx, "n_heads": 2}
N = 24


def sequences(task, n=N):
    return inputs_or_sample(task, n, generator=derived_generator(0, "logit attribution"))


def transformer_lens_attribution(model, task, batch, gain, bias, w_u, b_u):
    """Mean contributions (part, target) from TransformerLens's cache: heads and MLPs at the frozen scale."""
    _logits, cache = model.run_with_cache(batch.tokens)
    answers = torch.arange(task.d_vocab_out)
    n_answers = len(answers)
    chosen = torch.nn.functional.one_hot(batch.labels, n_answers).double()
    contrast = chosen - (1 - chosen) / (n_answers - 1)  # (batch, target, answer)
    directions = torch.einsum("bta,da->btd", contrast, (gain[:, None] * w_u).double()[:, answers])
    places = batch.target_positions[..., None]
    stacks, names = cache.decompose_resid(return_labels=True)
    stacks = dict(zip(names, stacks, strict=True))
    heads, _ = cache.stack_head_results(return_labels=True)
    n_heads = model.cfg.n_heads
    parts = [sum(stacks[name] for name in stacks if "embed" in name)]
    for layer in range(model.cfg.n_layers):
        parts += heads[layer * n_heads : (layer + 1) * n_heads].unbind(0)
        parts.append(stacks[f"{layer}_attn_out"] - heads[layer * n_heads : (layer + 1) * n_heads].sum(0))
        parts.append(stacks[f"{layer}_mlp_out"])
    scaled = cache.apply_ln_to_stack(torch.stack(parts)).double()
    at_targets = scaled.gather(2, places[None].expand(len(parts), -1, -1, scaled.shape[-1]))
    contributions = (at_targets * directions).sum(-1).mean(1)
    constant = torch.einsum("bta,a->bt", contrast, (bias.double() @ w_u.double() + b_u.double())[answers]).mean(0)
    return torch.cat([contributions, constant[None]]).detach().numpy()


@pytest.fixture(scope="module")
def expected():
    return transformer_lens_attribution(
        OURS, TASK, sequences(TASK), OURS.ln_final.w, OURS.ln_final.b, OURS.W_U, OURS.b_U
    )


KINDS = {
    "ours": lambda: OURS,
    "HookedRootModule": lambda: own_model(OURS),
    "plain torch module": lambda: hooks.from_module(plain_model(OURS), layers="layers", attention=MAPS, **PLACES),
    "torch encoder": lambda: hooks.from_module(
        torch_encoder(OURS), layers="encoder.layers", attention="self_attn", **PLACES
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_transformer_lens_on_the_same_weights(kind, expected):
    result = interp.logit_attribution(KINDS[kind](), TASK, n=N)
    np.testing.assert_allclose(result.contribution.value, expected, atol=1e-5)
    assert result.remainder.max() < 1e-5
    np.testing.assert_allclose(result.contribution.value.sum(0), result.logit_difference.value, atol=1e-5)


@pytest.mark.parametrize("kind", ["gpt2", "native", "llama"])
def test_equal_to_transformer_lens_on_bridges(kind):
    bridge = bridge_of(kind, d_vocab=TASK.d_vocab)
    result = interp.logit_attribution(bridge, TASK, n=N)
    gain = bridge.ln_final.weight.detach()
    bias = getattr(bridge.ln_final, "bias", None)
    bias = torch.zeros_like(gain) if bias is None else bias.detach()
    b_u = bridge.b_U.detach() if bridge.b_U is not None else torch.zeros(TASK.d_vocab)
    reference = transformer_lens_attribution(bridge, TASK, sequences(TASK), gain, bias, bridge.W_U.detach(), b_u)
    scale = max(1, np.abs(reference).max())
    np.testing.assert_allclose(result.contribution.value, reference, atol=1e-5 * scale)
    assert result.remainder.max() < 1e-5 * scale


def test_only_the_part_that_writes_the_answer_adds_to_it():
    """Known answer: of all heads and MLPs only the MLP of layer 0 writes the first variable where it is read out."""
    task = Lego(n_vars=2)
    result = interp.logit_attribution(interp.known_answers.lego_loop(task), task, n=32)
    added = dict(zip(result.parts, result.contribution.value, strict=True))
    root = {part: float(values[0]) for part, values in added.items()}
    assert root["0 MLP"] > 0.1
    for part in ("0.0", "0.1", "1.0", "1.1", "2.0", "2.1", "1 MLP", "2 MLP"):
        assert abs(root[part]) < 1e-6, part


def test_heads_that_change_places_keep_their_parts():
    swapped = hooks.make_model(OURS.cfg)
    swapped.load_state_dict(OURS.state_dict())
    attention = swapped.block(1).attention
    with torch.no_grad():
        for linear in (attention.q, attention.k, attention.v):
            linear.weight.copy_(linear.weight.roll(8, 0))
            linear.bias.copy_(linear.bias.roll(8, 0))
        attention.o.weight.copy_(attention.o.weight.roll(8, 1))
    before, after = (interp.logit_attribution(model, TASK, n=N).contribution.value for model in (OURS, swapped))
    order = interp.logit_attribution(OURS, TASK, n=N).parts
    index = [order.index({"1.0": "1.1", "1.1": "1.0"}.get(part, part)) for part in order]
    np.testing.assert_allclose(after, before[index], atol=1e-5)
    assert np.abs(before - before[index]).max() > 0.01


def test_what_is_added_to_all_logits_changes_nothing():
    shifted = hooks.make_model(OURS.cfg)
    shifted.load_state_dict(OURS.state_dict())
    with torch.no_grad():
        shifted.unembed.bias += 5
    before, after = (interp.logit_attribution(model, TASK, n=N) for model in (OURS, shifted))
    np.testing.assert_allclose(after.contribution.value, before.contribution.value, atol=1e-5)


@torch.no_grad()
def written_out(model, task, n, answer_of_all=None):
    """Contributions by dense matrices: every head's whole output, one token at a time; of one answer for all, or of
    each sequence's own."""
    batch = sequences(task, n)
    _logits, cache = model.run_with_cache(batch.tokens)
    totals = []
    for row in range(n):
        for target, place in enumerate(batch.target_positions[row].tolist()):
            if not batch.present[row, target]:
                continue
            answer = int(batch.labels[row, target]) if answer_of_all is None else answer_of_all
            others = [other for other in range(task.d_vocab_out) if other != answer]
            direction = model.W_U[:, answer] - model.W_U[:, others].mean(1)
            stream = cache["resid_post", model.cfg.n_layers - 1][row, place]
            if model.ln_final is not None:
                scale = (stream.var(unbiased=False) + model.cfg.layer_norm_eps).sqrt()
                direction = model.ln_final.w * direction
                direction = (direction - direction.mean()) / scale
            parts = [float(cache["blocks.0.hook_resid_pre"][row, place] @ direction)]
            for layer in range(model.cfg.n_layers):
                sites = model.blocks[layer]
                name = f"blocks.{layer}.attn.hook_result"
                for head in range(model.cfg.n_heads):
                    z = cache[f"blocks.{layer}.attn.hook_z"][row, place, head]
                    output = cache[name][row, place, head] if name in cache else z @ sites.attn.W_O[head]
                    parts.append(float(output @ direction))
                parts.append(float(sites.attn.b_O @ direction))
                if not model.cfg.attn_only:
                    parts.append(float(cache[f"blocks.{layer}.hook_mlp_out"][row, place] @ direction))
            totals.append((target, parts))
    by_target = [[parts for place, parts in totals if place == target] for target in range(len(task.targets))]
    return np.array([np.mean(parts, 0) for parts in by_target])


UNUSUAL = {
    "b I": {"vo_identity": True, "qk_identity": True},
    "no norm, attention only": {"block": "no_norm", "d_mlp": 0},
    "tied": {"tied": True},
    "hard-coded": {"head_patterns": ((hooks.HeadPattern(kind="uniform"), hooks.HeadPattern()),)},
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_equal_to_matrices_written_out(kind):
    model = Transformer(interp.config_for(TASK, n_layers=2, n_heads=2, d_model=16, **UNUSUAL[kind]), seed=3).eval()
    result = interp.logit_attribution(model, TASK, n=12)
    expected = written_out(model, TASK, 12).T
    np.testing.assert_allclose(result.contribution.value[:-1], expected, atol=1e-5)
    assert result.remainder.max() < 1e-5


def test_the_control_is_the_mean_over_the_answers_of_all_sequences():
    result = interp.logit_attribution(OURS, TASK, n=13)
    labels = sequences(TASK, 13).labels
    shares = [(labels == answer).double().mean(0).numpy() for answer in range(TASK.d_vocab_out)]
    expected = sum(share * written_out(OURS, TASK, 13, answer).T for answer, share in enumerate(shares))
    assert np.abs(expected).max() > 0.01  # an odd number of answers of two kinds is not balanced
    np.testing.assert_allclose(result.control[:-1], expected, atol=1e-5)


def test_targets_that_some_sequences_lack():
    task = Echo()
    model = transformer(task)
    result = interp.logit_attribution(model, task, n=16)
    present = sequences(task, 16).present
    assert not present.all()
    assert (result.contribution.n[0] <= present.sum(0).numpy()).all()
    np.testing.assert_allclose(result.contribution.value[:-1], written_out(model, task, 16).T, atol=1e-5)


def test_answers_that_depend_on_nothing_get_nothing():
    task = CoinFlips(n_vars=3, sentence_format="compact", first=0.5)
    result = interp.logit_attribution(OURS, task, n=400)
    excludes_zero = (result.contribution.low > 0) | (result.contribution.high < 0)
    # Parts share their sequences: one independent test for each target is what is certain
    assert excludes_zero.mean(0).sum() <= stats.binom.isf(1e-6, len(task.targets), 0.05) + 1
    assert np.abs(result.control).max() < 0.2


def test_the_control_has_what_is_added_to_a_frequent_answer():
    task = CoinFlips(n_vars=3, sentence_format="compact", first=0.9)
    result = interp.logit_attribution(OURS, task, n=400)
    bias = result.parts.index("read-out bias")
    first, second = OURS.read_out(torch.zeros(1, 1, 16))[0, 0].tolist()[:2]
    frequent = 0.8 * (first - second)
    np.testing.assert_allclose(result.control[bias], frequent, atol=0.15 * abs(frequent))
    # Answers do not depend on the sequence: every part adds what the control says
    inside = (result.contribution.low <= result.control) & (result.control <= result.contribution.high)
    assert inside.mean() > 0.8


def test_every_input_is_exact():
    task = Lego(n_vars=2, alphabet="abcd")
    model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16)).eval()
    result = interp.logit_attribution(model, task, n="all")
    assert result.contribution.exact
    assert result.logit_difference.exact
    assert "exact" in str(result)


def test_repeated_inputs_count_once():
    task = Lego(n_vars=2, alphabet="abc")
    model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16)).eval()
    result = interp.logit_attribution(model, task, n=500)
    batch = sequences(task, 500)
    assert result.contribution.n[0, 0] == len(batch.tokens.unique(dim=0)) < 500
    assert "distinct, which intervals count" in str(result)


def test_table_chart_and_file(tmp_path):
    result = interp.logit_attribution(OURS, TASK, n=N)
    table = result.to_dataframe()
    assert list(table.columns) == ["part", "target", "control", "contribution", "low", "high", "n"]
    assert len(table) == len(result.parts) * 3
    assert (table["low"] <= table["contribution"]).all()
    result.save(tmp_path / "result.json")
    loaded = LogitAttributionResult.load(tmp_path / "result.json")
    assert str(loaded) == str(result)
    spec = result.plot().to_dict()
    assert len(spec["concat"]) == 3
    assert "n = 24" in " ".join(spec["title"])
    # What is in no cell is in the title of a panel, so that the panel adds up
    values = result.contribution.value[:, 0]
    biases = sum(value for part, value in zip(result.parts, values, strict=True) if part.endswith("bias"))
    title = spec["concat"][0]["title"]
    assert title == f"#0: {values.sum():.2f} = {values[0]:+.2f} embedding {biases:+.2f} biases + cells"


REFUSED = {
    "post_ln": (lambda: Transformer(interp.config_for(TASK, block="post_ln")), "its block is 'post_ln', whose layers"),
    "masked LM": (
        lambda: hooks.Encoder(hooks.EncoderConfig(d_vocab=TASK.d_vocab, d_model=16, n_heads=2, block="pre_ln")),
        "masked-LM head is not linear",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_models_whose_logits_are_no_sum_over_parts(kind):
    make, words = REFUSED[kind]
    with pytest.raises(ValueError, match=words):
        interp.logit_attribution(make(), TASK)


class Capped(type(plain_model(OURS))):
    """A plain model with capped logits."""

    def forward(self, tokens, attention_mask=None):
        return torch.tanh(super().forward(tokens, attention_mask))


def test_a_read_out_that_is_not_linear_is_refused():
    module = Capped(OURS.cfg)
    wrapped = hooks.from_module(module, layers="layers", attention=MAPS, **PLACES)
    with pytest.raises(ValueError, match="read-out is not linear after one LayerNorm or RMSNorm"):
        interp.logit_attribution(wrapped, TASK, n=N)


class LooksBack(type(plain_model(OURS))):
    """A plain model whose read-out also has the stream of the first position."""

    def forward(self, tokens, attention_mask=None):
        x = self.embed(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x, torch.zeros(1, x.shape[1], x.shape[1], dtype=torch.bool))
        return self.unembed(self.norm(x + x[:, :1]))


def test_a_read_out_of_several_positions_is_refused():
    wrapped = hooks.from_module(LooksBack(OURS.cfg), layers="layers", attention=MAPS, **PLACES)
    with pytest.raises(ValueError, match="not a function of the residual stream at a position"):
        interp.logit_attribution(wrapped, TASK, n=N)


def test_wrapped_layers_that_normalise_the_stream_are_refused():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    module = torch.nn.Sequential(torch.nn.Embedding(TASK.d_vocab, 16), encoder, torch.nn.Linear(16, TASK.d_vocab_out))
    wrapped = hooks.from_module(module, layers="1.layers", attention="self_attn", **PLACES)
    with pytest.raises(ValueError, match="output of layer 0 is not the sum of its input and the outputs of its"):
        interp.logit_attribution(wrapped, TASK, n=N)


def test_errors():
    with pytest.raises(ValueError, match="n is 4; at least 8 sequences"):
        interp.logit_attribution(OURS, TASK, n=4)
    real = Template(train=16, validation=8, test=8)
    model = Transformer(interp.config_for(real, n_layers=1, d_model=16, n_heads=2))
    if real.d_vocab_out == 1:
        with pytest.raises(ValueError, match="the task has 1 output per target"):
            interp.logit_attribution(model, real, n=8)
