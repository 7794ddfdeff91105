"""Modular addition: sums, splits, the relation to both numbers, reading, other operations."""

from dataclasses import dataclass

import pytest
import torch

import interp
from interp.tasks import ModularAddition
from interp.tasks.splits import SPLITS, rows_of_split


@pytest.mark.parametrize("p", [5, 7, 31])
def test_the_task_is_consistent(p):
    interp.check_task(ModularAddition(p=p))


def test_sums_are_right_and_a_pair_and_its_mirror_image_are_in_one_split():
    task, pairs = ModularAddition(p=7), {}
    for split in SPLITS:
        batch = task.sample(3000, generator=torch.Generator().manual_seed(0), split=split)
        rows = {tuple(row) for row in batch.tokens[:, :2].tolist()}
        assert rows == {(b, a) for a, b in rows}
        assert rows == {tuple(row) for row in task.every_input(split).tokens[:, :2].tolist()}
        assert batch.tokens[:, 2].unique().tolist() == [7]
        assert all(
            label == (a + b) % 7
            for (a, b, _), (label,) in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True)
        )
        pairs[split] = {tuple(sorted(row)) for row in rows}
    assert sum(map(len, pairs.values())) == len(set().union(*pairs.values())) == 28
    assert [len(pairs[split]) for split in SPLITS] == [20, 4, 4]


def test_rows_of_a_table_are_split_by_a_fixed_permutation():
    rows = [rows_of_split(80, split).tolist() for split in SPLITS]
    assert sorted(rows[0] + rows[1] + rows[2]) == list(range(80))
    assert list(map(len, rows)) == [60, 10, 10]
    assert rows[1] != list(range(0, 80, 8))
    assert rows[1] == rows_of_split(80, "validation").tolist()


def test_both_numbers_are_related_to_every_query():
    task = ModularAddition(p=5)
    relation = task.relations(task.read("4 4 ="))["operands"]
    assert relation.tolist() == [[[True, True, False]] * 3]


def test_reading_and_writing():
    task = ModularAddition()
    batch = task.read("3 30 =")
    assert batch.tokens.tolist() == [[3, 30, 31]]
    assert batch.labels.tolist() == [[2]]
    assert task.text(batch.tokens[0]) == "3 30 ="
    assert task.read("3 30").tokens.tolist() == batch.tokens.tolist()
    for text in ("3 =", "1 2 3", "= 1 2"):
        with pytest.raises(ValueError, match="numbers; give two and '='"):
            task.read(text)


def test_a_small_modulus_is_refused():
    with pytest.raises(ValueError, match="p is 4; it must be at least 5"):
        ModularAddition(p=4)
    with pytest.raises(ValueError, match="ModularAddition has 180,005 inputs; at most 131,072 are listed"):
        ModularAddition(p=1200).every_input()


def test_a_subclass_with_another_operation():
    @dataclass(frozen=True, kw_only=True)
    class Largest(ModularAddition):
        def operation(self, a, b):
            return torch.maximum(a, b)

    interp.check_task(Largest(p=5))
    assert Largest.task_name == "largest"
    assert Largest(p=5).read("1 4 =").labels.tolist() == [[4]]
