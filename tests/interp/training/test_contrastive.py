"""The contrastive regulariser: zero where closed pairs leave no trace, the loop written out, and what training does."""

import dataclasses
import json

import pytest
import torch
from short_runs import Stopped, stop_at

import interp
from hooks import Transformer
from interp import TrainSettings
from interp.known_answers import balanced_dyck, uniform_dyck
from interp.tasks import Dyck, Lego
from interp.tasks.dyck.brackets import PAD, START, first_fault
from interp.training import TrainingRun
from interp.training.objectives import contrastive_loss, insert_after_start, nested_pairs
from interp.training.train import StepInputs, Trainer

TASK = Dyck(length=12)
WORDS = Dyck(length=12, words="complete")
SHORT = TrainSettings(
    steps=12, warmup_steps=3, batch_size=8, eval_every=4, n_eval=20, checkpoint_every=3, contrastive=0.3
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def random_model(task=TASK, family="dyck_minimal", *, seed=0, **sizes):
    cfg = interp.config_for(task, family, **{"init": "fan_in", **sizes})
    return Transformer(cfg, seed=seed).double().eval()


def loss_of(model, task, batch, generator):
    return contrastive_loss(model, task, batch, model(batch.tokens, **batch.model_inputs()), generator)


def draws(task, generator):
    """The r and type of a batch: two draws, in this order."""
    r = int(torch.randint(1, task.max_depth + 1, (1,), generator=generator))
    return r, int(torch.randint(task.n_types, (1,), generator=generator))


@torch.no_grad()
def written_out(model, task, batch, r, kind):
    """Eq. 22, one word and one position at a time; words without padding, so that no mask is needed."""
    found = []
    for row, tokens in enumerate(batch.tokens.tolist()):
        length = len(tokens) if batch.attention_mask is None else int(batch.attention_mask[row].sum())
        word = tokens[:length]
        opener, closer = 3 + 2 * kind, 4 + 2 * kind
        longer = [START] + [opener] * r + [closer] * r + word[1:]
        short, shifted = model(torch.tensor([word]))[0], model(torch.tensor([longer]))[0]
        for position in range(1, length):
            found.append(float(((shifted[position + 2 * r] - short[position]) ** 2).sum()))
    return sum(found) / len(found)


def test_nested_pairs_have_one_type():
    task = Dyck(n_types=3, max_depth=4)
    for r in range(1, 5):
        for kind, (left, right) in enumerate(("()", "[]", "{}")):
            pairs = nested_pairs(task, r, kind)
            assert task.vocab.decode(pairs) == left * r + right * r
            assert first_fault(pairs, 3, 4) is None


def test_pairs_are_inserted_after_the_start():
    tokens = torch.tensor([[START, 3, 4, PAD], [START, 5, 3, 4]])
    longer = insert_after_start(tokens, torch.tensor([7, 8]))
    assert longer.tolist() == [[START, 7, 8, 3, 4, PAD], [START, 7, 8, 5, 3, 4]]
    assert tokens.tolist() == [[START, 3, 4, PAD], [START, 5, 3, 4]]
    assert torch.equal(insert_after_start(tokens, torch.zeros(0, dtype=torch.long)), tokens)


@pytest.mark.parametrize("length", [12, 60])
def test_the_loss_is_zero_for_a_balanced_model(length):
    task = dataclasses.replace(TASK, length=length)
    batch = task.sample(50, generator=seeded())
    for model in (uniform_dyck(task), balanced_dyck(task)):
        for seed in range(8):
            assert loss_of(model, task, batch, seeded(seed)) < 1e-20


def test_the_loss_is_positive_for_a_random_model_and_a_small_imbalance():
    batch = TASK.sample(50, generator=seeded())
    small, large = (loss_of(balanced_dyck(TASK, imbalance=eps), TASK, batch, seeded()) for eps in (0.01, 0.1))
    assert 1e-9 < small < large
    for family in ("dyck_gpt", "dyck_eq6", "dyck_uniform", "dyck_minimal"):
        assert loss_of(random_model(family=family), TASK, batch, seeded()) > 1e-3


@pytest.mark.parametrize("family", ["dyck_minimal", "dyck_gpt"])
@pytest.mark.parametrize(
    "task", [TASK, WORDS, Dyck(n_types=3, max_depth=2, length=9)], ids=["prefixes", "complete", "three"]
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_loss_equals_a_loop_over_words_and_positions(task, family, seed):
    model, batch = random_model(task, family), task.sample(6, generator=seeded(seed))
    if task is WORDS:
        lengths = batch.attention_mask.sum(1)
        assert lengths.min() < lengths.max()
    found = loss_of(model, task, batch, seeded(seed))
    r, kind = draws(task, seeded(seed))
    assert found.shape == ()
    assert found.item() == pytest.approx(written_out(model, task, batch, r, kind), rel=1e-10)


def test_padding_does_not_change_the_contrastive_loss():
    model, batch = random_model(WORDS), WORDS.sample(6, generator=seeded())
    wider = dataclasses.replace(
        batch,
        tokens=torch.nn.functional.pad(batch.tokens, (0, 5), value=PAD),
        attention_mask=torch.nn.functional.pad(batch.attention_mask, (0, 5)),
    )
    one, other = (loss_of(model, WORDS, part, seeded()) for part in (batch, wider))
    torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


def test_both_branches_have_gradients():
    model, batch = random_model(), TASK.sample(5, generator=seeded())
    logits = model(batch.tokens)
    weight = model.unembed.weight

    def gradient(loss):
        return torch.autograd.grad(loss, weight, retain_graph=True)[0]

    def stopped(*args, **kwargs):
        return model(*args, **kwargs).detach()

    both = gradient(contrastive_loss(model, TASK, batch, logits, seeded()))
    of_longer = gradient(contrastive_loss(model, TASK, batch, logits.detach(), seeded()))
    of_shorter = gradient(contrastive_loss(stopped, TASK, batch, logits, seeded()))
    assert min(float(of_longer.abs().max()), float(of_shorter.abs().max())) > 1e-3
    torch.testing.assert_close(of_longer + of_shorter, both)


def test_draws_use_only_the_generator():
    model, batch = random_model(), TASK.sample(5, generator=seeded())
    generator = seeded(3)
    state = generator.get_state()
    torch.manual_seed(0)
    first, after = loss_of(model, TASK, batch, generator), generator.get_state()
    torch.manual_seed(1)
    world = torch.get_rng_state()
    assert torch.equal(loss_of(model, TASK, batch, generator.set_state(state)), first)
    assert torch.equal(torch.get_rng_state(), world)
    assert torch.equal(generator.get_state(), after)
    with torch.no_grad():  # 200 draws miss one of eight with probability 2e-11
        assert len({float(loss_of(model, TASK, batch, generator)) for _ in range(200)}) == 4 * 2


def test_depths_and_types_are_uniform():
    task, seen, n = Dyck(n_types=3, max_depth=4, length=3), {}, 2400
    batch, generator = task.sample(1, generator=seeded()), seeded()

    def watch(tokens, **inputs):
        added = tokens[0, 1 : tokens.shape[1] - 3].tolist()
        opener = added[0]
        assert added == [opener] * (len(added) // 2) + [opener + 1] * (len(added) // 2)
        key = (len(added) // 2, (opener - 3) // 2)
        seen[key] = seen.get(key, 0) + 1
        return torch.zeros(*tokens.shape, task.d_vocab)

    for _ in range(n):
        contrastive_loss(watch, task, batch, torch.zeros(*batch.tokens.shape, task.d_vocab), generator)
    assert set(seen) == {(r, kind) for r in range(1, 5) for kind in range(3)}
    band = 5 * (n / 12 * 11 / 12) ** 0.5
    assert all(abs(count - n / 12) < band for count in seen.values())


def test_the_training_loss_is_the_task_loss_plus_the_weighted_regulariser():
    model, batch = random_model(), TASK.sample(5, generator=seeded())
    for weight in (0.0, 0.3, 2.0):
        trainer = Trainer(model, TASK, dataclasses.replace(SHORT, contrastive=weight), 0, None, None)
        generator = seeded(5)
        found = trainer._loss(StepInputs(batch=batch, learning_rate=0.1, generator=generator))
        plain = TASK.loss(model(batch.tokens), batch)
        torch.testing.assert_close(found, plain + weight * loss_of(model, TASK, batch, seeded(5)))
        untouched = torch.equal(generator.get_state(), seeded(5).get_state())
        assert untouched == (weight == 0)


def test_both_branches_have_the_same_depth(monkeypatch):
    model = Transformer(interp.config_for(TASK, "dyck_gpt", n_layers=3, d_model=8, d_mlp=4))
    depths, forward = [], Transformer.forward
    monkeypatch.setattr(
        Transformer, "forward", lambda self, *a, **k: depths.append(k.get("depth", "all")) or forward(self, *a, **k)
    )
    interp.train(model, TASK, dataclasses.replace(SHORT, steps=30, depth_range=(1, 3), eval_every=1000))
    training = depths[:60]
    assert training[::2] == training[1::2]
    assert set(training) == {1, 2, 3}


def test_training_with_the_contrastive_loss_lowers_it():
    """Paired seeds: the same weights, batches and steps, with and without."""
    task = Dyck(length=16)
    settings = TrainSettings(steps=60, batch_size=24, learning_rate=6e-3, weight_decay=0.0, eval_every=60, n_eval=20)
    held_out, generator = task.sample(200, generator=seeded(9)), seeded(9)
    state = generator.get_state()
    for seed in range(3):
        found = []
        for weight in (0.0, 0.3):
            model = Transformer(interp.config_for(task, "dyck_minimal", init="fan_in"), seed=seed)
            interp.train(model, task, dataclasses.replace(settings, contrastive=weight), seed=seed)
            generator.set_state(state)
            with torch.no_grad():
                found.append(float(sum(loss_of(model, task, held_out, generator) for _ in range(4))))
        assert found[1] < found[0] / 2


@pytest.mark.parametrize("task", [TASK, WORDS], ids=["prefixes", "complete"])
def test_an_interrupted_run_ends_with_the_same_bits(task, tmp_path):
    def new_model():
        return Transformer(interp.config_for(task, "dyck_minimal"))

    whole = interp.train(new_model(), task, SHORT)
    with pytest.raises(Stopped):
        interp.train(new_model(), task, SHORT, folder=tmp_path, on_record=stop_at(8))
    seen = []
    resumed = interp.train(new_model(), task, SHORT, folder=tmp_path, on_record=seen.append)
    assert [record["steps_done"] for record in seen] == [8, 12]  # from the state after step 6
    weights = resumed.model.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in whole.model.state_dict().items())
    without = interp.train(new_model(), task, dataclasses.replace(SHORT, contrastive=0.0)).model.state_dict()
    assert not torch.equal(without["unembed.weight"], weights["unembed.weight"])
    loaded = TrainingRun.load(tmp_path)
    assert TrainSettings.from_dict(json.loads(json.dumps(loaded.manifest["settings"]))) == SHORT
    assert all(torch.equal(weight, weights[name]) for name, weight in loaded.model.state_dict().items())


def test_other_tasks_and_short_models_are_refused():
    lego = Lego(n_vars=2)
    with pytest.raises(
        ValueError, match=r"task is a Lego; contrastive is 0\.3, and only bracket languages have this loss"
    ):
        interp.train(Transformer(interp.config_for(lego, n_layers=1)), lego, SHORT)
    with pytest.raises(ValueError, match=r"contrastive is -0\.1; it must not be negative"):
        dataclasses.replace(SHORT, contrastive=-0.1)
    short = Transformer(interp.config_for(TASK, "dyck_minimal", n_ctx=20))
    with pytest.raises(ValueError, match="n_ctx of the model is 20; the contrastive loss needs 21, 8 more"):
        interp.train(short, TASK, SHORT)
    interp.train(short, TASK, dataclasses.replace(SHORT, steps=1, contrastive=0.0))
    fits = Transformer(interp.config_for(TASK, "dyck_minimal", n_ctx=21))
    interp.train(fits, TASK, dataclasses.replace(SHORT, steps=8))
