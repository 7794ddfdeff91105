"""Ready-made templates: the paper's counts, with labels that follow from the strings."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats

from interp.tasks import Template
from interp.tasks.template.alphabets import check_alphabets, names_of, size_of
from interp.tasks.template.families import FAMILIES, majority, random_templates, ready_templates
from interp.tasks.template.language import structure
from interp.tasks.template.sampling import draw_distinct

COUNTS = {
    "same_different": 2,
    "aba_abb": 2,
    "aabb_abab": 2,
    "majority": 16,
    "random": 4,
    "programs": 2,
    "symbolic_programs": 2,
    "print": 1,
    "copy": 1,
    "distribution_of_three": 144,
    "match_to_sample": 40,
    "matrix_reasoning": 37,
}


def test_there_are_as_many_as_the_paper_says():
    assert {name: len(ready_templates(name)) for name in FAMILIES} == COUNTS
    for length in range(1, 8):
        assert len(majority(length)) == 2**length


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_a_task_of_different_templates(name, generator):
    task = Template(templates=name)
    assert len({structure(template) for template in task.labelled}) == COUNTS[name]
    assert len({len(template.tokens) for template in task.labelled}) == 1
    assert task.form == ("symbolic" if isinstance(task.labelled[0].label, str) else "real")
    batch = task.sample(16, generator=generator)
    assert batch.tokens.shape == (16, task.n_ctx)
    # every wildcard of a label occurs before the label
    assert all(template.label in template.tokens for template in task.labelled if isinstance(template.label, str))


def labels_of(name, **options):
    return {template.text: template.label for template in ready_templates(name, **options)}


def test_two_templates_are_distinguished():
    assert labels_of("same_different") == {"aa": 1, "ab": -1}
    assert labels_of("aba_abb") == {"aba": 1, "abb": -1}
    assert labels_of("aabb_abab") == {"aabb": 1, "abab": -1}
    assert labels_of("copy") == {"a": "a"}


@pytest.mark.parametrize("length", [1, 2, 3, 4, 6])
def test_majority_is_counted(length):
    label_of = {template.tokens: template.label for template in majority(length)}
    for string in product("ab", repeat=length):
        counts = Counter(string)
        assert label_of["a", *string] == (1 if counts["a"] >= counts["b"] else -1)
    assert set(label_of.values()) == {1.0, -1.0}


def run(program):
    """What a program of assignments and one print prints, run by Python."""
    printed = []
    statements = "\n".join(statement.strip() for statement in program.split(";"))
    exec(statements, {"print": printed.append})
    return printed[0]


def test_programs_print_their_label():
    for template in ready_templates("programs"):
        assert run(template.text) == template.label
    for name in ("symbolic_programs", "print"):
        for template in ready_templates(name):
            assert run(template.text).strip() == template.label
    assert {template.label for template in ready_templates("symbolic_programs")} == {"c", "d"}


def test_distribution_of_three_is_labelled_by_the_missing_symbol():
    for template in ready_templates("distribution_of_three"):
        first, second, choices = template.tokens[:3], template.tokens[3:5], template.tokens[5:]
        (missing,) = set(first) - set(second)
        assert choices[int(template.label) - 1] == missing
        assert len(set(choices)) == 4
        assert set(first) < set(choices)
    assert set(Counter(template.label for template in ready_templates("distribution_of_three")).values()) == {36}


def test_match_to_sample_is_labelled_by_the_matching_pair():
    templates = ready_templates("match_to_sample")
    for template in templates:
        sample, first, second = (template.tokens[i] == template.tokens[i + 1] for i in (0, 2, 4))
        assert first != second
        assert template.label == (1 if first == sample else -1)
        equals = template.tokens[2] if first else template.tokens[4]
        assert equals not in template.tokens[:2]
    # every string of that kind is of some template: all over six symbols, by their structure
    strings = set()
    for string in product(range(6), repeat=6):
        same = [string[i] == string[i + 1] for i in (0, 2, 4)]
        if same[1] != same[2] and string[2 if same[1] else 4] not in string[:2]:
            strings.add(tuple(list(dict.fromkeys(string)).index(symbol) for symbol in string))
    assert {structure(template) for template in templates} == strings


def test_matrix_reasoning_is_labelled_by_the_symbol_that_completes_the_row():
    templates = ready_templates("matrix_reasoning")
    for template in templates:
        rows = [template.tokens[:3], template.tokens[3:6], (*template.tokens[6:], template.label)]
        constant = all(len(set(row)) == 1 for row in rows) and len(set(sum(rows, ()))) == 3
        assert constant != (set(rows[0]) == set(rows[1]) == set(rows[2]) and len(set(rows[0])) == 3)
    assert sum(template.tokens[0] == template.tokens[1] for template in templates) == 1


@pytest.mark.parametrize(
    "options", [{}, {"count": 9, "length": 3, "n_fixed": 2}, {"count": 2, "length": 1, "n_wildcards": 1, "n_fixed": 3}]
)
def test_random_templates_are_different_and_a_constant_answer_has_loss_one(options):
    for seed in range(8):
        templates = random_templates(**options, seed=seed)
        assert len({structure(template) for template in templates}) == options.get("count", 4)
        assert {len(template.tokens) for template in templates} == {options.get("length", 5)}
        labels = np.array([template.label for template in templates])
        assert labels.mean() == pytest.approx(0, abs=1e-12)
        assert (labels**2).mean() == pytest.approx(1)
        allowed = {*"abcdefg"[: options.get("n_wildcards", 4)], *(f"R{i}" for i in range(options.get("n_fixed", 0)))}
        assert {token for template in templates for token in template.tokens} <= allowed


def test_the_seed_decides_random_templates():
    assert random_templates(seed=1) == random_templates(seed=1)
    assert random_templates(seed=1) != random_templates(seed=2)
    before = torch.get_rng_state()
    assert random_templates() == ready_templates("random") == ready_templates("random", seed=0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("abab", {}, r"templates is 'abab'; choose one of same_different, aba_abb, .*, or give templates as text"),
        ("majority", {"length": 0}, "length is 0; give at least 1"),
        ("random", {"count": 1}, "count, length, n_wildcards, n_fixed are 1, 5, 4, 0; give at least 2, 1, 1"),
        ("random", {"length": 0}, "are 4, 0, 4, 0; give"),
        ("random", {"n_wildcards": 0}, "are 4, 5, 0, 0; give"),
        ("random", {"n_wildcards": 27}, r"are 4, 5, 27, 0; give .*at most 26"),
        ("random", {"n_fixed": -1}, "are 4, 5, 4, -1; give"),
        # aa and ab, and no third
        ("random", {"count": 3, "length": 2}, "count is 3, but there are hardly more than 2 templates of length 2 ov"),
    ],
)
def test_families_that_cannot_be_are_refused(name, options, words):
    with pytest.raises(ValueError, match=words):
        ready_templates(name, **options)


@pytest.mark.parametrize(("out_of", "count"), [(5, 3), (4, 4), (7, 1), (6, 2)])
def test_distinct_numbers_come_up_evenly_in_every_order(out_of, count, generator):
    chosen = draw_distinct(20_000, out_of, count, generator)
    counts = Counter(map(tuple, chosen.tolist()))
    every = [row for row in product(range(out_of), repeat=count) if len(set(row)) == count]
    assert set(counts) <= set(every)
    assert stats.chisquare([counts[row] for row in every]).pvalue > 1e-4


def test_distinct_numbers_of_a_large_alphabet(generator):
    chosen = draw_distinct(500, 300, 40, generator)
    assert all(len(set(row)) == 40 for row in chosen.tolist())
    assert (int(chosen.min()), int(chosen.max())) == (0, 299)
    assert draw_distinct(3, 5, 0, generator).shape == (3, 0)


def test_names_of_alphabets():
    assert [list(names_of(2, split)) for split in ("train", "validation", "test")] == [
        ["t0", "t1"], ["v0", "v1"], ["u0", "u1"]
    ]  # fmt: skip
    assert names_of(("x", "y"), "test") == ("x", "y")
    assert (size_of(7), size_of(("x", "y"))) == (7, 2)


@pytest.mark.parametrize(
    ("alphabets", "words"),
    [
        ({"train": 2}, "the train alphabet has 2 symbols; a template has 3 different wildcards"),
        ({"train": 3, "test": ("x", "y")}, "the test alphabet has 2 symbols; .* give at least 3"),
        ({"train": ("x", "y", "z"), "test": ("p", "q", "x")}, "symbol 'x' of the test alphabet is also in the train"),
        ({"train": ("x", "y", "x")}, "the symbol 'x' of the train alphabet is also in the train alphabet"),
        ({"train": ("x", "y", "v1"), "validation": 3}, "symbol 'v1' of the validation alphabet is also in the train"),
        ({"train": ("x", "R", "y")}, "the symbol 'R' of the train alphabet is also in the fixed tokens; it would not"),
    ],
)
def test_alphabets_on_which_nothing_could_be_tested_are_refused(alphabets, words):
    with pytest.raises(ValueError, match=words):
        check_alphabets(alphabets, fixed=("R", "="), most=3)
