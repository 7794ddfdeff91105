"""Ablation, keeping and classification of heads, and evaluation, on every input of a task."""

from itertools import product

import numpy as np
import pytest
import torch
from few_inputs import Balanced, model_of_balanced

import interp
from interp.core.inputs import inputs_or_sample, number_of_pairings, partners
from interp.heads import AblationResult
from interp.reporting import sections
from interp.tasks import Lego

HEAD = (0, 1)


@pytest.fixture
def model():
    return model_of_balanced()


def every_input():
    return inputs_or_sample(Balanced(), "all", generator=torch.Generator())


def right_with(model, batch, z=None):
    """Whether each answer is right, with other outputs of a head."""

    def edit(activation, hook):
        activation = activation.clone()
        activation[:, :, HEAD[1]] = z
        return activation

    hooks = [] if z is None else [("blocks.0.attn.hook_z", edit)]
    with torch.no_grad():
        logits = model.run_with_hooks(batch.tokens, fwd_hooks=hooks)[:, -1]
    return (logits.argmax(-1) == batch.labels[:, 0]).double()


@pytest.mark.parametrize("method", ["zero", "mean", "resample"])
def test_ablation_by_hooks(model, method):
    batch = every_input()
    z = model.run_with_cache(batch.tokens)[1]["blocks.0.attn.hook_z"][:, :, HEAD[1]]
    # with outputs of other inputs: every pair of the family
    pairings = range(number_of_pairings(64))
    assert len(pairings) == 16
    replaced = {
        "zero": lambda: [torch.zeros_like(z)],
        "mean": lambda: [z.mean(0, keepdim=True)],
        "resample": lambda: [z[partners(slice(None), 64, pairing)] for pairing in pairings],
    }
    rights = [right_with(model, batch, outputs).mean() for outputs in replaced[method]()]
    results = [
        interp.ablate_heads(model, Balanced(), heads={"one": [HEAD]}, method=method, n="all", seed=seed)
        for seed in (0, 1)
    ]
    first, second = results
    assert first.drop.value.item() == pytest.approx(1 - np.mean(rights))
    assert first.to_dict() == second.to_dict()
    for interval in (first.drop, first.loss_rise):
        assert interval.exact
        assert interval.low == interval.value == interval.high
    assert (first.n, first.drop.n) == (64, 64)
    assert str(first).endswith(f"heads set to {method}; all 64 inputs, exact")
    assert "(exact)" in str(first)


def test_ablation_on_a_page_and_in_files(model, tmp_path):
    result = interp.ablate_heads(model, Balanced(), n="all")
    assert "exact" in str(result.plot().to_dict())
    assert "These are all inputs: figures are exact." in (sections.ablation_section(result).text or "")
    result.save(tmp_path / "ablation.json")
    assert AblationResult.load(tmp_path / "ablation.json").drop.exact
    table = result.to_dataframe()
    assert table["low"].equals(table["drop"])
    assert set(table["n"]) == {64}


@pytest.mark.parametrize("method", ["random_rows", "uniform", "closers"])
def test_other_methods_are_the_same_for_every_seed(model, method):
    first, second = (interp.ablate_heads(model, Balanced(), method=method, n="all", seed=seed) for seed in (0, 5))
    assert np.array_equal(first.drop, second.drop)
    # whole numbers of answers, or averages over sixteen draws
    n_draws = 16 if method == "random_rows" else 1
    answers = first.drop.value * 64 * n_draws
    np.testing.assert_allclose(answers, answers.round(), atol=1e-9)
    assert method != "random_rows" or (answers % n_draws != 0).any()


def test_heads_are_chosen_and_measured_on_every_input(model):
    result = interp.keep_heads(model, Balanced(), orders=["exact", "greedy"], method="resample", n="all", n_random=1)
    assert result.performs.exact
    assert result.replicates.exact
    assert (result.n, result.n_measured) == (64, 64)
    assert set(result.to_dataframe()["n"]) == {64}
    assert str(result).endswith("chosen and measured on all 64 inputs, exact")
    # what is kept is best: no other set of its size has a smaller loss; and it is what an ablation of the others leaves
    lost = interp.ablate_heads(
        model,
        Balanced(),
        heads={
            str(kept): [head for head in ((0, 0), (0, 1), (0, 2)) if head not in kept] for kept in result.kept[0][:3]
        },
        method="resample",
        n="all",
    )
    np.testing.assert_allclose(result.performs.value[0, :3], 1 - lost.drop.value)
    assert result.performs.value[0, 3].item() == 1


def test_labels_are_exact(model):
    first, second = (interp.classify_heads(model, Balanced(), n="all", untrained=9, seed=seed) for seed in (0, 3))
    assert first.score.exact
    assert first.score.low.tolist() == first.score.value.tolist() == second.score.value.tolist()
    assert first.n == 64
    assert "all 64 inputs, exact, Holm at 0.01" in str(first)
    assert "exact" in str(first.plot().to_dict())
    assert "its score (all 64 inputs, exact) is at least 0.3" in (sections.heads_section(first).text or "")
    # the score on closers by hand: attention on them, scaled to 0 at chance, mean over queries and then inputs
    batch = every_input()
    pattern = model.run_with_cache(batch.tokens)[1]["blocks.0.attn.hook_pattern"][:, 0, -1].double()
    closers = (batch.tokens == 1).double()
    n_closers = closers.sum(1)
    chance = n_closers / 7
    score = ((pattern * closers).sum(1) - chance) / (1 - chance)
    has_both = n_closers > 0
    expected = score[has_both].mean().item()
    scores = interp.classify_heads(model, Balanced(), kinds=["closers"], n="all", untrained=1).score
    assert scores.value[0, 0, 0] == pytest.approx(expected, abs=1e-4)


def test_evaluation(model):
    result = interp.evaluate(model, Balanced(), n="all")
    assert result.accuracy[0].text() == "1.000 (exact)"
    assert str(result).startswith("accuracy on all 64 inputs, exact, split test")
    section = sections.accuracy_section({"model": result}, Balanced())
    assert "Accuracy on all 64 inputs, exact, of the test split." in (section.text or "")
    task = Lego(n_vars=2, n_supervised=1)
    chain = interp.known_answers.lego_loop(task)
    accuracies = interp.extrapolate(chain, task, n="all", split="validation")
    assert accuracies.accuracy.exact
    assert accuracies.n == len(task.every_input("validation"))
    assert f"all {accuracies.n:,} inputs, exact, split validation" in str(accuracies)


VERBS = {
    "ablate_heads": interp.ablate_heads,
    "keep_heads": interp.keep_heads,
    "classify_heads": interp.classify_heads,
    "evaluate": interp.evaluate,
}


@pytest.mark.parametrize(("verb", "n"), list(product(VERBS, ["every", 0, 2.5])))
def test_other_numbers(model, verb, n):
    words = {
        "every": r"n is 'every'; (choose one of|it must be an integer or).*all",
        0: "n is 0;",
        2.5: r"n is 2\.5; it",
    }
    with pytest.raises(ValueError, match=words[n]):
        VERBS[verb](model, Balanced(), n=n)
