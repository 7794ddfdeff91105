"""The task is consistent and its products are right; the rules judge as they are worded."""

import pytest
import torch
from modmul.study import STUDY
from modmul.task import ModularMultiplication

import interp
from case_studies.frame.measurement import Measurement


@pytest.mark.parametrize("p", [5, 7, 31])
def test_the_task_is_consistent(p):
    interp.check_task(ModularMultiplication(p=p))


def test_every_product_is_in_one_split():
    task, pairs = ModularMultiplication(p=7), set()
    for split in ("train", "validation", "test"):
        batch = task.sample(2000, generator=torch.Generator().manual_seed(0), split=split)
        pairs_of_split = {tuple(sorted(row)) for row in batch.tokens[:, :2].tolist()}
        assert not pairs & pairs_of_split
        pairs |= pairs_of_split
        for (a, b, mark), (label,) in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True):
            assert mark == 7
            assert label == (a * b) % 7
    assert len(pairs) == 28  # all unordered pairs


def test_reading_a_product():
    batch = ModularMultiplication().read("3 30 =")
    assert batch.tokens.tolist() == [[3, 30, 31]]
    assert batch.labels.tolist() == [[28]]


def test_the_rules_compare_with_the_bars_that_they_name():
    assert ["above 0.8" in STUDY.claims[0].rule_text, "above 0.5" in STUDY.claims[1].rule_text] == [True, True]


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.9, 1, "reproduced"), (0, 0.3, "not reproduced"), (0, 1, "inconclusive")]
)
def test_the_rules(low, high, verdict):
    for claim in STUDY.claims:
        assert claim.verdict(Measurement(value=(low + high) / 2, low=low, high=high, n=4, unit="seeds")) == verdict
