"""The logit lens: TransformerLens's logits, a known answer, every kind of model, and its errors."""

import numpy as np
import pytest
import torch
from bridges import bridge_of
from coin_flips import CoinFlips
from foreign_tasks import Echo
from own_models import MAPS, own_model, plain_model, torch_encoder, transformer
from scipy import stats
from transformer_lens.tools.analysis.logit_lens import logit_lens as transformer_lens_logit_lens

import hooks
import interp
from hooks import Transformer
from interp.core.inputs import inputs_or_sample
from interp.core.randomness import derived_generator
from interp.probing import LogitLensResult
from interp.tasks import Lego

TASK = Lego(n_vars=3, sentence_format="compact")
OURS = transformer(TASK)
PLACES = {"d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx, "n_heads": 2}
N = 24


def sequences(task, n=N):
    return inputs_or_sample(task, n, generator=derived_generator(0, "logit lens"))


def transformer_lens_reading(model, task, batch):
    """Accuracy and mean logit difference (layer, target) from the logits of TransformerLens's lens."""
    logits = transformer_lens_logit_lens(model, batch.tokens, positions=None).values.detach().double()
    places = batch.target_positions[None, ..., None].expand(len(logits), -1, -1, logits.shape[-1])
    at_targets = logits.gather(2, places)
    right = (at_targets.argmax(-1) == batch.labels).double().mean(1)
    correct = at_targets.gather(-1, batch.labels[None, ..., None].expand(len(logits), -1, -1, 1))[..., 0]
    others = (at_targets[..., : task.d_vocab_out].sum(-1) - correct) / (task.d_vocab_out - 1)
    return right.numpy(), (correct - others).mean(1).numpy()


KINDS = {
    "ours": lambda: OURS,
    "HookedRootModule": lambda: own_model(OURS),
    "plain torch module": lambda: hooks.from_module(plain_model(OURS), layers="layers", attention=MAPS, **PLACES),
    "torch encoder": lambda: hooks.from_module(
        torch_encoder(OURS), layers="encoder.layers", attention="self_attn", **PLACES
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_transformer_lens_on_the_same_weights(kind):
    lens = interp.logit_lens(KINDS[kind](), TASK, n=N)
    accuracy, difference = transformer_lens_reading(OURS, TASK, sequences(TASK))
    np.testing.assert_allclose(lens.accuracy.value, accuracy, atol=1e-12)
    np.testing.assert_allclose(lens.logit_difference.value, difference, atol=1e-5)


@pytest.mark.parametrize("kind", ["gpt2", pytest.param("llama", marks=pytest.mark.slow)])
def test_equal_to_transformer_lens_on_bridges(kind):
    bridge = bridge_of(kind, d_vocab=TASK.d_vocab)
    lens = interp.logit_lens(bridge, TASK, n=N)
    accuracy, difference = transformer_lens_reading(bridge, TASK, sequences(TASK))
    np.testing.assert_allclose(lens.accuracy.value, accuracy, atol=1e-12)
    np.testing.assert_allclose(lens.logit_difference.value, difference, atol=1e-5 * max(1, np.abs(difference).max()))


def test_the_loop_answers_one_variable_more_every_second_layer():
    task = Lego(n_vars=3)
    lens = interp.logit_lens(interp.known_answers.lego_loop(task), task, n=200)
    first = [int(np.argmax(lens.accuracy[:, target].value == 1)) for target in range(3)]
    assert first == [1, 3, 5]
    for target, layer in enumerate(first):
        assert (lens.accuracy[layer:, target] == 1).all()
        low, high = lens.accuracy.low[:layer, target], lens.accuracy.high[:layer, target]
        assert ((low <= 0.5) & (high >= 0.5)).all()


def test_the_last_layer_has_the_accuracy_of_the_model():
    lens = interp.logit_lens(OURS, TASK, n=N)
    batch = sequences(TASK)
    logits = OURS(batch.tokens).gather(1, batch.target_positions[..., None].expand(-1, -1, TASK.d_vocab_out))
    np.testing.assert_allclose(lens.accuracy[-1].value, (logits.argmax(-1) == batch.labels).double().mean(0))


def test_answers_that_depend_on_nothing_score_as_the_control():
    task = CoinFlips(n_vars=3, sentence_format="compact", first=0.8)
    lens = interp.logit_lens(OURS, task, n=400)
    inside = (lens.accuracy.low <= lens.control) & (lens.control <= lens.accuracy.high)
    # Layers share their sequences: one independent test for each target is what is certain
    assert (~inside).mean(0).sum() <= stats.binom.isf(1e-6, len(task.targets), 0.05) + 1


def test_the_control_is_the_accuracy_on_every_pair():
    task = CoinFlips(n_vars=2, sentence_format="compact", first=0.8)
    model = transformer(task)
    lens = interp.logit_lens(model, task, n=40)
    batch = sequences(task, 40)
    logits = model(batch.tokens).gather(1, batch.target_positions[..., None].expand(-1, -1, task.d_vocab_out))
    answers = logits.argmax(-1)
    pairs = (answers[:, None] == batch.labels[None]).double().mean((0, 1))
    np.testing.assert_allclose(lens.control[-1], pairs)


def test_targets_that_some_sequences_lack():
    task = Echo()
    model = transformer(task)
    lens = interp.logit_lens(model, task, n=40)
    batch = sequences(task, 40)
    assert not batch.present.all()
    logits = model(batch.tokens, **batch.model_inputs())
    logits = logits.gather(1, batch.target_positions[..., None].expand(-1, -1, logits.shape[-1]))
    for target in range(len(task.targets)):
        rows = batch.present[:, target]
        right = logits[rows, target].argmax(-1) == batch.labels[rows, target]
        assert lens.accuracy[-1, target] == pytest.approx(float(right.double().mean()))


def test_every_input_is_exact():
    task = Lego(n_vars=2, alphabet="abcd")
    model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16)).eval()
    lens = interp.logit_lens(model, task, n="all")
    assert lens.accuracy.exact
    assert "exact" in str(lens)


def test_layers_that_do_not_add_to_the_stream_have_a_lens():
    model = Transformer(interp.config_for(TASK, block="post_ln", n_layers=2, d_model=16, n_heads=2))
    assert interp.logit_lens(model, TASK, n=N).accuracy.shape == (3, 3)


def test_table_chart_and_file(tmp_path):
    lens = interp.logit_lens(OURS, TASK, n=N)
    table = lens.to_dataframe()
    names = [
        "layer",
        "target",
        "control",
        "accuracy",
        "low",
        "high",
        "logit_difference",
        "logit_low",
        "logit_high",
        "n",
    ]
    assert list(table.columns) == names
    assert len(table) == 9
    lens.save(tmp_path / "lens.json")
    assert str(LogitLensResult.load(tmp_path / "lens.json")) == str(lens)
    spec = str(lens.plot().to_dict())
    assert "n = 24" in spec
    assert "#0, other labels" in spec


def test_errors():
    with pytest.raises(ValueError, match="n is 4; at least 8 sequences"):
        interp.logit_lens(OURS, TASK, n=4)


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
        interp.logit_lens(wrapped, TASK, n=N)
