import json
from collections import Counter
from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy import stats

import interp
from hooks import Transformer
from interp import evaluate
from interp.core.randomness import derived_generator, derived_seed
from interp.evaluation import EvaluationResult
from interp.evaluation.evaluate import held_out, score_batch
from interp.tasks import S3, Lego
from interp.tasks.base import logits_at_targets


@pytest.mark.parametrize("split", ["train", "test"])
def test_accuracy_is_the_share_of_right_answers(trained, tiny, split):
    result = evaluate(trained.model.at_depth(1), tiny, n=700, split=split, seed=3)  # more than one chunk
    batch = tiny.sample(700, generator=derived_generator(3, "evaluate", split), split=split)
    logits = trained.model.at_depth(1)(batch.tokens)
    counts = Counter(tuple(row) for row in batch.tokens.tolist())
    assert result.accuracy.n == len(counts) < 700
    for target in range(2):
        right = Counter()
        for row in range(700):
            answer = logits[row, batch.target_positions[row, target]].argmax()
            right[tuple(batch.tokens[row].tolist())] += int(answer == batch.labels[row, target])
        share = right.total() / 700
        assert result.accuracy.value[target] == pytest.approx(share)
        variance = sum((right[tokens] - share * times) ** 2 for tokens, times in counts.items()) / 700**2
        trials = share * (1 - share) / variance if variance else len(counts)
        low = stats.beta.ppf(0.025, share * trials, (1 - share) * trials + 1)
        high = stats.beta.ppf(0.975, share * trials + 1, (1 - share) * trials) if share < 1 else 1.0
        assert (result.accuracy.low[target], result.accuracy.high[target]) == pytest.approx((low, high), abs=1e-8)
    assert result.accuracy.value.min() < 1  # one layer is not enough, so that there was something to count
    assert (result.n, result.split, result.targets) == (700, split, ("#0", "#1"))


def test_chance_is_uniform_guessing(tiny):
    task = Lego(n_vars=2, group=S3)
    model = Transformer(interp.config_for(task, n_layers=1, d_model=8, n_heads=1))
    assert evaluate(model, task, n=5).chance == 1 / 6
    with torch.no_grad():  # always the same answer
        model.unembed.weight.zero_()
        model.unembed.bias[:] = torch.tensor([0.0, 0, 0, 1, 0, 0])
    result = evaluate(model, task, n=3000)
    band = 5 * (1 / 6 * 5 / 6 / 3000) ** 0.5
    assert np.abs(result.accuracy.value - 1 / 6).max() < band


def test_evaluation_uses_no_gradients_and_leaves_the_model_in_evaluation_mode(tiny, generator):
    model = Transformer(interp.config_for(tiny, n_layers=1, d_model=8, n_heads=1)).train()
    held_out(model, tiny, tiny.sample(10, generator=generator))
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_invalid_arguments_of_evaluate_are_refused(trained, tiny, as_a_user):
    with pytest.raises(ValueError, match="n is 0; it must be at least 1"):
        evaluate(trained.model, tiny, n=0)
    with pytest.raises(ValueError, match="split is 'dev'; choose one of train, validation, test"):
        evaluate(trained.model, tiny, n=5, split="dev")
    with pytest.raises(ValueError, match="family is 'gpt9'; choose one of lego, bert, albert, template"):
        interp.config_for(tiny, "gpt9")


def test_text_table_chart_and_file_of_a_result(trained, tiny, tmp_path):
    result = evaluate(trained.model, tiny, n=100)
    assert str(result).startswith(
        f"accuracy on 100 test examples ({result.accuracy.n} distinct, which intervals count), chance 0.50\n    #0  "
    )
    table = result.to_dataframe()
    assert list(table.columns) == ["target", "accuracy", "low", "high", "n"]
    assert table["accuracy"].tolist() == result.accuracy.value.tolist()
    spec = result.plot().to_dict()
    (rows,) = spec["datasets"].values()
    assert [row["low"] for row in rows] == result.accuracy.low.tolist()
    assert '"datum": 0.5' in json.dumps(spec)  # the line of chance
    assert "<svg" in result._repr_html_()
    result.save(tmp_path / "result.json")
    again = EvaluationResult.load(tmp_path / "result.json")
    assert again.targets == result.targets
    assert np.array_equal(again.accuracy.high, result.accuracy.high)


def test_derived_seeds_are_fixed_and_distinct():
    # constants: a run resumed on another machine or under a later version must draw the same examples
    assert derived_seed(0, "step", 3) == 8082029764619972999
    assert derived_seed(7, "x") == 7149076045963795434
    seeds = {derived_seed(seed, name, step) for seed in range(5) for name in ("a", "b") for step in range(5)}
    assert len(seeds) == 50
    first, second = (torch.rand(4, generator=derived_generator(0, name)) for name in ("a", "b"))
    assert not torch.equal(first, second)
    assert torch.equal(first, torch.rand(4, generator=derived_generator(0, "a")))


def test_only_targets_are_read_unless_a_hook_sees_more(trained, tiny, generator):
    """A hook of the caller's at one position acts there, and gives what a full pass gives."""
    batch = tiny.sample(20, generator=generator)
    model = deepcopy(trained.model)
    lengths = []

    def set_first(activation, hook):
        lengths.append(activation.shape[1])
        edited = activation.clone()
        edited[:, 0] = 1.0
        return edited

    model.add_hook("ln_final.hook_normalized", set_first)
    score = score_batch(model, tiny, batch)
    expected = tiny.score(logits_at_targets(model(batch.tokens), batch), batch)
    torch.testing.assert_close(score.loss, expected.loss)
    assert set(lengths) == {batch.tokens.shape[1]}
    model.reset_hooks()
    positions = []
    model.forward = lambda tokens, **inputs: positions.append(inputs.get("read_at")) or trained.model(tokens, **inputs)
    torch.testing.assert_close(score_batch(model, tiny, batch).loss, score_batch(trained.model, tiny, batch).loss)
    assert torch.equal(positions[0], batch.target_positions)
