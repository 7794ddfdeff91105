"""Audit of MLPs, neurons and other parts: verdicts against what is removed by hand."""

import copy
from itertools import combinations

import numpy as np
import pytest
import torch
from own_models import own_model

import hooks
import interp
from hooks.model.layers import take
from interp.auditing.part_result import PartAuditResult
from interp.auditing.significance import LITTLE
from interp.core.statistics import SHARE_THAT_COUNTS
from interp.known_answers.lego.loop import larger_loop
from interp.tasks import Lego
from interp.tasks.splits import sample_split

TASK = Lego(n_vars=2, alphabet="abcdef")
"""A task of few inputs."""
BATCH = sample_split(TASK, "all", generator=torch.Generator(), split="test")
PARTS = {
    "embedding": ("blocks.0.hook_resid_pre", None),
    "0.0": ("blocks.0.attn.hook_z", 0),
    "0.1": ("blocks.0.attn.hook_z", 1),
    "1.1": ("blocks.1.attn.hook_z", 1),
    "0 MLP": ("blocks.0.hook_mlp_out", None),
    "2 MLP": ("blocks.2.hook_mlp_out", None),
    "1 MLP 3": ("blocks.1.mlp.hook_post", 3),
    "2 MLP 7": ("blocks.2.mlp.hook_post", 7),
}


@pytest.fixture(scope="module")
def model():
    return larger_loop(TASK, tied=False, units=1).float()


def accuracy(model, names=()):
    """Accuracy of each variable with the means of some parts in their place."""
    _, cache = model.run_with_cache(BATCH.tokens)

    def edit(activation, hook):
        edited = activation.clone()
        for point, index in map(PARTS.__getitem__, names):
            if point == hook.name and index is None:
                edited[:] = cache[point].mean(0)
            elif point == hook.name:
                edited[:, :, index] = cache[point].mean(0)[:, index]
        return edited

    fwd_hooks = [(point, edit) for point in {PARTS[name][0] for name in names}]
    logits = model.run_with_hooks(BATCH.tokens, fwd_hooks=fwd_hooks)
    score = TASK.score(take(logits, BATCH.target_positions), BATCH)
    return (score.right.sum(0) / score.total.sum(0)).numpy()


def test_every_verdict_is_that_of_removals_by_hand(model):
    """On every input, where nothing is estimated; all sets of parts are removed."""
    result = interp.audit_parts(model, TASK, parts=list(PARTS), n="all")
    clean = accuracy(model)
    lost = {name: clean - accuracy(model, [name]) for name in PARTS}
    assert (result.threshold <= SHARE_THAT_COUNTS * (1 - np.array(TASK.chances)) + 1e-9).all()
    for record in result.parts:
        np.testing.assert_allclose(record.costs["mean"].drop, lost[record.name], atol=1e-6)
        share = (lost[record.name] / result.threshold).max()
        expected = {"needed"} if share > 1.1 else {"idle", "redundant"} if share < LITTLE else {"marginal", "redundant"}
        assert record.verdict in expected, record.name
        if record.verdict == "redundant":
            beyond = []
            for size in range(1, len(PARTS)):
                for others in combinations(set(PARTS) - {record.name}, size):
                    beyond.append(accuracy(model, others) - accuracy(model, [*others, record.name]))
            assert (np.stack(beyond) > result.threshold).any(), record.name
    assert set(result.of("needed")) >= {"embedding", "0.1", "2 MLP"}
    assert "0.0" in result.of("idle")
    assert result.exact
    assert result.largest_harmless is not None
    assert (clean - accuracy(model, result.largest_harmless.parts) <= result.threshold + 1e-9).all()


def test_neurons_that_do_the_same_work_share_it(model):
    """A needed neuron is written once more in the place of one that does nothing: each will do, one of them must."""
    needed, twin = "0 MLP 2", "0 MLP 15"
    alone = interp.audit_parts(model, TASK, parts=[needed, twin, "2.1"], n="all")
    assert [record.verdict for record in alone.parts] == ["needed", "idle", "needed"]
    twice = copy.deepcopy(model)
    mlp = twice.block(0).mlp
    mlp.w_in.weight.data[15], mlp.w_in.bias.data[15] = mlp.w_in.weight[2], mlp.w_in.bias[2]
    mlp.w_out.weight.data[:, 15] = mlp.w_out.weight[:, 2]
    result = interp.audit_parts(twice, TASK, parts=[needed, twin, "2.1"], n="all")
    verdicts = [(record.verdict, record.partners) for record in result.parts]
    assert verdicts == [("redundant", (twin,)), ("redundant", (needed,)), ("needed", ())]
    assert {needed, twin} in [set(members.parts) for members in result.sets]
    assert "shares its work with 0 MLP 15" in result.sentences()[0]


def test_a_sample_decides_as_every_input(model):
    exact = interp.audit_parts(model, TASK, n="all")
    sampled = interp.audit_parts(model, TASK, seconds=None)
    assert [record.verdict for record in sampled.parts] == [record.verdict for record in exact.parts]
    assert "looks" in str(sampled)
    assert "every set of parts was tried" not in str(sampled) or sampled.largest_harmless is not None


def test_a_wrapped_model_has_the_same_verdicts():
    task = Lego(n_vars=2, sentence_format="compact")
    ours = hooks.Transformer(interp.config_for(task, n_layers=2, n_heads=2, d_model=16), seed=1).eval()
    results = []
    for model in (ours, hooks.from_bridge(own_model(ours))):
        results.append(interp.audit_parts(model, task, parts="each", n=64, at_chance=True))
    np.testing.assert_allclose(results[0].parts[4].costs["mean"].drop, results[1].parts[4].costs["mean"].drop)
    assert [record.verdict for record in results[0].parts] == [record.verdict for record in results[1].parts]


def test_tables_charts_and_files(model, tmp_path):
    result = interp.audit_parts(model, TASK, n="all")
    table = result.to_dataframe()
    assert list(table["part"]) == ["0 MLP", "1 MLP", "2 MLP"]
    assert (table["needed_mean"] == (table["verdict"] == "needed")).all()
    assert "accuracy lost" in result.plot().to_json()
    result.save(tmp_path / "parts.json")
    assert PartAuditResult.load(tmp_path / "parts.json") == result
    with pytest.raises(ValueError, match="choose one of needed, redundant"):
        result.of("faithful")
    wrong = result.parts[0].__class__(**{**vars(result.parts[0]), "name": "1 MLP"})
    with pytest.raises(ValueError, match="parts"):
        result.replaced(parts=(wrong, *result.parts[1:]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"parts": "neurons"}, "parts is 'neurons'"),
        ({"parts": []}, "parts is .*; give 'mlps'"),
        ({"parts": ["0 MLP", "0 MLP"]}, "parts has '0 MLP' twice|0 MLP"),
        ({"parts": ["7 MLP"]}, "'7 MLP' is in no model with 3 layers"),
        ({"parts": ["2 MLP 99"]}, "neurons, from 0 on"),
        ({"parts": ["read-out"]}, "parts that are replaced are heads"),
        ({"parts": ["0 mlp"]}, "parts that are replaced are heads"),
        ({"parts": ["2 MLP 03"]}, "parts that are replaced are heads"),
        ({"parts": ["2 MLP \u00b2"]}, "parts that are replaced are heads"),
        ({"n": 4}, "n is 4; at least 8 sequences"),
        ({"n": 16}, "sequences are needed"),
        ({"alpha": 2.0}, "alpha"),
        ({"seconds": 0}, "seconds"),
        ({"outcomes": ["nothing"]}, "nothing"),
    ],
)
def test_errors(model, options, words):
    with pytest.raises(ValueError, match=words):
        interp.audit_parts(model, TASK, **options)


def test_a_model_without_mlps_is_sent_to_the_audit():
    task = Lego(n_vars=2, sentence_format="compact")
    without = hooks.Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16, d_mlp=0))
    with pytest.raises(ValueError, match="this model has no MLPs; use audit"):
        interp.audit_parts(without, task, n=64)


def test_parts_other_than_mlps_need_none():
    task = Lego(n_vars=2, sentence_format="compact")
    without = hooks.Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16, d_mlp=0))
    result = interp.audit_parts(without, task, parts=["embedding", "0.1"], n=64, at_chance=True)
    assert [record.name for record in result.parts] == ["embedding", "0.1"]
    assert result.largest_harmless is None  # at chance nothing is
    assert interp.ablate(without, task, parts={"all": ["embedding"]}, n=16).names == ("all",)


def test_another_removal_is_named_with_its_own_largest_cost(model):
    """A neuron that writes the same for every input is needed with zeros in its place."""
    result = interp.audit_parts(model, TASK, parts=["1 MLP 14"], n="all")
    cost = result.parts[0].costs["zero"]
    worst = cost.worst(result.threshold)
    assert cost.drop[worst] > 0.5
    assert f"needed with zeros in its place ({cost.drop[worst]:.2f} on {result.outcomes[worst]})" in str(result)
