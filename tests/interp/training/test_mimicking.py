"""Association biases: the maps that are taught, that heads come to have them, and the copied queries."""

import dataclasses

import pytest
import torch

import interp
from hooks import Transformer
from interp import TrainSettings
from interp.tasks import Dyck, Lego
from interp.training import Mimicking
from interp.training.objectives import copy_query_to_key, mimic_batch, mimic_loss, mimic_targets

SMALL = 1e-3  # what the paper adds to every entry before normalising


@pytest.fixture
def sentence():
    task = Lego(n_vars=2)
    return task, task.from_content(torch.tensor([[[0, 0, 0], [1, 1, 1]]]))  # [BOS]a=+1;b=-a;[EOS]


def normalised(weights):
    weights = torch.tensor(weights) + SMALL
    return (weights / weights.sum()).tolist()


@pytest.mark.parametrize("local_target", ["band", "clause"])
def test_the_rows_of_both_maps_sum_to_one(sentence, local_target):
    task, batch = sentence
    maps = mimic_targets(task, batch, Mimicking(local_target=local_target))
    assert maps.shape == (2, 1, 12, 12)
    assert torch.allclose(maps.sum(-1), torch.ones(()), atol=1e-6)


def test_the_association_map_matches_the_paper(sentence):
    task, batch = sentence
    association = mimic_targets(task, batch, Mimicking())[1, 0]
    row = [0.0] * 12
    row[9] = 1.0
    assert association[1].tolist() == pytest.approx(normalised(row))  # `a` sees the other `a`, not itself
    assert association[3].tolist() == pytest.approx([1 / 12] * 12)  # `+` occurs once
    off = association - association.diagonal().diag()
    assert (off.sum(-1)[[1, 2, 5, 7, 9, 10]] > 0.95).all()


def test_the_local_maps_are_the_kernel_of_the_paper_or_the_clause(sentence):
    task, batch = sentence
    band = mimic_targets(task, batch, Mimicking())[0, 0]
    assert band[5].tolist() == pytest.approx(normalised([0.0, 0, 0, 1, 2, 4, 2, 1, 0, 0, 0, 0]))
    assert band[0].tolist() == pytest.approx(normalised([4.0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]))
    clause = mimic_targets(task, batch, Mimicking(local_target="clause"))[0, 0]
    assert clause[5].tolist() == pytest.approx(normalised([0.0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]))


def test_causal_maps_keep_only_visible_keys(sentence):
    _, batch = sentence
    causal = Lego(n_vars=2)
    object.__setattr__(causal, "attention", "causal")
    maps = mimic_targets(causal, batch, Mimicking())
    assert not maps.triu(1).any()
    assert torch.allclose(maps.sum(-1), torch.ones(()), atol=1e-6)


def test_the_loss_is_the_divergence_of_patterns_from_maps(sentence):
    task, batch = sentence
    model = Transformer(interp.config_for(task, n_layers=2, d_model=16, n_heads=4))
    targets = mimic_targets(task, batch, Mimicking())
    _, cache = model.run_with_cache(batch.tokens)
    byhand = 0.0
    for layer in range(2):
        for head in range(2):
            pattern = cache["pattern", layer][0, head] + SMALL
            pattern = pattern / pattern.sum(-1, keepdim=True)
            for query in range(12):
                for wanted, given in zip(targets[head, 0, query], pattern[query], strict=True):
                    byhand += float(wanted * (wanted / given).log()) / 12
    assert float(mimic_loss(model, batch, targets).detach()) == pytest.approx(byhand, rel=1e-4)


def test_the_loss_leaves_no_hook_behind_and_reaches_only_queries_and_keys_of_the_last_layer(sentence):
    task, batch = sentence
    model = Transformer(interp.config_for(task, n_layers=1, d_model=16, n_heads=2))
    mimic_loss(model, batch, mimic_targets(task, batch, Mimicking())).backward()
    assert model.stored_blocks[0].attention.q.weight.grad.abs().max() > 0
    assert model.unembed.weight.grad is None
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


def test_mimicking_heads_learn_their_maps(generator):
    task = Lego(n_vars=3, sentence_format="compact")
    model = Transformer(interp.config_for(task, n_layers=2, d_model=36, n_heads=3))
    batch = task.sample(64, generator=generator, split="validation")
    same = task.relations(batch)["same_token"].float()
    has_twin = same.sum(-1) > 0
    near = (torch.arange(9)[:, None] - torch.arange(9)[None]).abs() <= 2

    def measures():
        with torch.no_grad():
            loss = float(mimic_loss(model, batch, mimic_targets(task, batch, Mimicking())))
            _, cache = model.run_with_cache(batch.tokens)
        mass = [
            (
                (cache["pattern", layer][:, 0] * near).sum(-1).mean(),
                (cache["pattern", layer][:, 1] * same).sum(-1)[has_twin].mean(),
            )
            for layer in range(2)
        ]
        return loss, torch.tensor(mass)

    loss_before, mass_before = measures()
    settings = TrainSettings(
        steps=1, learning_rate=1e-9, weight_decay=0.0, n_eval=10, association="mimic", mimicking=Mimicking(steps=150)
    )
    interp.train(model, task, settings)
    loss_after, mass_after = measures()
    assert loss_after < 0.2 * loss_before
    assert mass_before.max() < 0.6
    assert mass_after.min() > 0.75


def test_phases_are_recorded(tiny):
    model = Transformer(interp.config_for(tiny, n_layers=1, d_model=16, n_heads=2))
    settings = TrainSettings(
        steps=4, batch_size=4, eval_every=2, n_eval=10, association="mimic", mimicking=Mimicking(steps=4, batch_size=4)
    )
    modes = []
    history = interp.train(model, tiny, settings, on_record=lambda record: modes.append(model.training)).history
    assert modes == [True] * 4  # measuring in evaluation mode, and back again
    assert [(record["steps_done"], record["phase"]) for record in history] == [
        (2, "mimic"),
        (4, "mimic"),
        (6, "task"),
        (8, "task"),
    ]


def test_query_key_copies_every_block_before_the_first_step(tiny):
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=16, n_heads=2))
    queries = [block.attention.q.weight.detach().clone() for block in model.stored_blocks]
    assert not torch.equal(queries[0], model.stored_blocks[0].attention.k.weight)
    with torch.no_grad():
        model.stored_blocks[0].attention.q.bias.fill_(0.5)
    by_hand = Transformer(model.cfg)
    by_hand.load_state_dict(model.state_dict())
    copy_query_to_key(by_hand)
    for query, block in zip(queries, by_hand.stored_blocks, strict=True):
        assert torch.equal(block.attention.q.weight, query)
        assert torch.equal(block.attention.k.weight, query)
        assert torch.equal(block.attention.k.bias, block.attention.q.bias)
    settings = TrainSettings(steps=3, batch_size=4, n_eval=10, association="query_key")
    trained = interp.train(model, tiny, settings).model
    reference = interp.train(by_hand, tiny, dataclasses.replace(settings, association="none")).model
    for ours, theirs in zip(trained.parameters(), reference.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_random_tokens_keep_only_the_shape(tiny, generator):
    batch = mimic_batch(tiny, Mimicking(batch_size=64, tokens="random"), generator)
    assert batch.tokens.shape == (64, 6)
    # among examples the second token of a clause is always an operation; among random ones seldom
    operations = torch.tensor([tiny.vocab.ids["+"], tiny.vocab.ids["-"]])
    assert torch.isin(batch.tokens[:, 1], operations).float().mean() < 0.5
    examples = mimic_batch(tiny, Mimicking(batch_size=64), generator)
    assert torch.isin(examples.tokens[:, 1], operations).all()


def test_a_task_without_the_relation_is_refused():
    task = Dyck()
    model = Transformer(interp.config_for(task, n_layers=1, d_model=16, n_heads=2))
    text = r"association is 'mimic', which needs the relation same_token; this Dyck.* has .*Use 'none' or 'query_key'"
    with pytest.raises(ValueError, match=text):
        interp.train(model, task, TrainSettings(steps=1, association="mimic"))
    run = interp.train(model, task, TrainSettings(steps=1, association="query_key", n_eval=8))
    assert run.history[-1]["steps_done"] == 1
