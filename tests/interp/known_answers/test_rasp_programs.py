"""Our own RASP programs: what they state, the packs that are shipped, and compiling them with tracr (slow)."""

import itertools
import re
import sys

import numpy as np
import pytest
import torch

import hooks.extras
import interp
from hooks.extras import MissingExtra
from interp.known_answers import (
    PROGRAMS,
    SHIPPED,
    RaspProgram,
    compile_program,
    from_tracr,
    read_compiled,
    shipped_program,
    write_compiled,
)
from interp.known_answers.compiled.__main__ import main
from interp.known_answers.compiled.packing import FOLDER, N_SHIPPED, file_name

SPECIAL = ("compiler_bos", "compiler_pad")


def everything(task):
    return task.examples(torch.arange(len(task.program.examples)))


def words_of(program):
    """The inputs of a compiled program as words, without the special tokens."""
    names = [[program.tokens[token] for token in row] for row in program.examples]
    return [tuple(int(name) if name.isdigit() else name for name in row if name not in SPECIAL) for row in names]


def wrong_answers(known, statement):
    """Words of which the model gives another answer than a statement, at some position."""
    program, batch = known.task.program, everything(known.task)
    with torch.no_grad():
        logits = known.model(batch.tokens, **batch.model_inputs())
    wrong = []
    for word, rows in zip(words_of(program), logits, strict=True):
        for answer, scores in zip(statement(word), rows[1:], strict=False):
            if program.numerical:
                is_right = abs(scores.item() - answer) < 1e-3
            else:
                top = program.output_values[scores.argmax()] if scores.max() > 0.5 else None
                is_right = top == (None if answer is None else str(answer))
            if not is_right:
                wrong.append(word)
    return wrong


@pytest.mark.parametrize(
    ("name", "word", "answers"),
    [
        ("histogram", "abcaa", [3, 1, 1, 3, 3]),
        ("parity", "aba", [0, 0, 0]),
        ("majority", "aab", [True, True, False]),
        ("majority", "ab", [False, False]),
        ("comparison", "abb", ["second"] * 3),
        ("distinct so far", "abac", [1, 2, 2, 3]),
        ("record", (1, 0, 2, 2), [True, False, True, False]),
        ("reversal", "abc", ["c", "b", "a"]),
        ("rotation", "abc", ["c", "a", "b"]),
        ("neighbours", "abc", ["b", "a", None]),
        ("second pointer", (1, 2, 0), [0, 1, 2]),
        ("pointer", (3, 0), [None, 3]),
        ("rank", (2, 0, 2, 1), [2, 0, 3, 1]),
        ("place of the minimum", (2, 0, 0), [1, 1, 1]),
        ("rising", (0, 1, 1), [True] * 3),
        ("first occurrence", "aba", [True, True, False]),
        ("sandwich", "abab", [None, None, True, True]),
        ("sandwich", "aaa", [None, None, False]),
        ("runs", "aabb", [1, 1, 2, 2]),
        ("palindrome", "abba", [True] * 4),
        ("failure", "())(", [False, False, True, True]),
        ("followed by a", "abab", [0, 0, 0, 1]),
        ("open fraction", "()-(", [1, 0, 0, 0.25]),
        ("even places", "aab", [0.5, 0.5, 1.0]),
    ],
)
def test_what_programs_state(name, word, answers):
    assert list(PROGRAMS[name].statement(tuple(word))) == answers


def test_programs_are_many_and_each_states_one_answer_for_each_token():
    assert len(PROGRAMS) >= 30
    assert all(name == program.name for name, program in PROGRAMS.items())
    assert sum(program.causal for program in PROGRAMS.values()) >= 5
    assert len({file_name(name) for name in PROGRAMS}) == len(PROGRAMS)
    for program in PROGRAMS.values():
        words = program.inputs(60, np.random.default_rng(0))
        assert {len(program.statement(word)) - len(word) for word in words} == {0}


def test_inputs_are_all_or_different_ones():
    program = PROGRAMS["all different"]
    words = program.inputs(4000, np.random.default_rng(0))
    assert sorted(words) == sorted(
        word for length in (2, 3, 4, 5) for word in itertools.product(range(5), repeat=length)
    )
    assert words != sorted(words)
    drawn = program.inputs(100, np.random.default_rng(0))
    assert len(set(drawn)) == len(drawn) == 100
    assert {len(word) for word in drawn} == {2, 3, 4, 5}
    with pytest.raises(ValueError, match="the program 'none' has no tokens or no lengths; give both"):
        RaspProgram(name="none", description="", write=program.write, statement=program.statement, tokens=())


@pytest.fixture(scope="module", params=SHIPPED)
def shipped(request):
    return shipped_program(request.param)


def test_a_shipped_model_gives_the_answers_of_the_statement(shipped):
    program = shipped.task.program
    assert wrong_answers(shipped, PROGRAMS[program.name].statement) == []
    assert len(wrong_answers(shipped, lambda word: [None if not program.numerical else 9] * len(word))) > 1000
    assert len(program.examples) == min(N_SHIPPED, PROGRAMS[program.name].n_inputs)
    assert (interp.evaluate(shipped.model, shipped.task, n=100).accuracy == 1).all()


def test_variables_of_a_shipped_program_are_sorted_and_have_plain_names(shipped):
    program = shipped.task.program
    assert not any(re.search(r"_\d+$", name) for name in program.variables)
    assert list(program.variables) == sorted(program.variables)
    assert program.tokens[-2:] == SPECIAL
    assert {"indices", "tokens", "one"} <= set(program.variables)


def test_heads_of_shipped_programs():
    truths = {name: {h: t for h, t in shipped_program(name).heads.items() if t.truth != "idle"} for name in SHIPPED}
    assert {name: [truth.truth for truth in heads.values()] for name, heads in truths.items()} == {
        "histogram": ["faithful"],
        "reversal": ["hidden", "faithful"],  # the first counts all tokens, so that it selects every key
        "sort": ["faithful", "faithful"],
        "palindrome": ["hidden", "faithful", "faithful"],
        "depth": ["faithful", "faithful"],
        "difference of fractions": ["faithful", "faithful"],  # the mean over all tokens but the first, special one
    }
    selects = [selector.selects for selector in shipped_program("sort").task.program.selectors]
    assert selects == ["order smaller order", "rank equal indices"]


def test_a_pack_is_read_as_it_was_written(shipped, tmp_path):
    program = shipped.task.program
    write_compiled(program, tmp_path / "copy.json")
    again = read_compiled(tmp_path / "copy").task.program
    for name, value in vars(program).items():
        if name == "weights":
            assert all(np.array_equal(array, again.weights[key]) for key, array in value.items())
        elif isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, getattr(again, name))
        else:
            assert value == getattr(again, name)
    stem = FOLDER / file_name(program.name)
    assert (tmp_path / "copy.json").read_text() == stem.with_suffix(".json").read_text()


def test_names_that_are_unknown_or_not_shipped():
    with pytest.raises(ValueError, match=r"there is no program 'histogramm'\. Did you mean histogram"):
        compile_program("histogramm")
    with pytest.raises(ValueError, match=r"name is 'parity'; shipped are histogram, .*compile_program compiles the"):
        shipped_program("parity")
    with pytest.raises(ValueError, match="n is 10; it must be at least 64"):
        compile_program("histogram", n=10)


def test_without_the_compiler_its_extra_is_named(monkeypatch):
    monkeypatch.setattr(hooks.extras, "find_spec", lambda name: None if name == "tracr" else name)
    with pytest.raises(
        MissingExtra,
        match=re.escape(
            'tracr is not installed, which this needs. Next, in the folder of unmyopic: pip install ".[tracr]"'
        ),
    ):
        compile_program("histogram")
    assert shipped_program("histogram").model.cfg.n_layers == 1


def test_the_command_says_how_it_is_used(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["compiled"])
    with pytest.raises(SystemExit, match=r"usage: python -m interp.known_answers.compiled FOLDER \[NAME ...\]"):
        main()


# With the compiler

FEW = (
    "all different", "first occurrence", "comparison", "failure", "even places", "followed by a", "ignored token",
    "majority of six", "second pointer", "place of the minimum",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_a_program_is_compiled_and_checked(name):
    pytest.importorskip("tracr")
    known = compile_program(name, n=128)
    assert known.task.description == f"the compiled program {name}: {PROGRAMS[name].description}"
    assert (interp.evaluate(known.model, known.task, n=64).accuracy == 1).all()


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in FEW])
def test_every_program_is_compiled_and_checked(name):
    test_a_program_is_compiled_and_checked(name)


@pytest.mark.slow
def test_the_command_makes_the_files_that_are_shipped(tmp_path, monkeypatch):
    """In this process, where other programs have been compiled before, so that tracr's numbers are others."""
    pytest.importorskip("tracr")
    monkeypatch.setattr(sys, "argv", ["compiled", str(tmp_path)])
    main()
    files = sorted(path.name for path in FOLDER.iterdir())
    assert files == sorted(path.name for path in tmp_path.iterdir())
    assert len(files) == 2 * len(SHIPPED)
    assert [name for name in files if (FOLDER / name).read_bytes() != (tmp_path / name).read_bytes()] == []


def program_of(write, statement, **options):
    fields = {"tokens": ("a", "b", "c"), "lengths": (1, 2, 3, 4), **options}
    return RaspProgram(name="mine", description="Mine.", write=write, statement=statement, **fields)


@pytest.mark.slow
def test_a_statement_that_the_program_does_not_compute_is_refused():
    pytest.importorskip("tracr")
    write = PROGRAMS["histogram"].write
    with pytest.raises(ValueError, match=r"the compiled model of 'mine' is wrong at position \d of \("):
        compile_program(program_of(write, lambda word: [min(word.count(token), 2) for token in word]))
    with pytest.raises(ValueError, match="the program 'mine' states '17', which its compiled model cannot answer"):
        compile_program(program_of(write, lambda word: [17] * len(word)))


@pytest.mark.slow
def test_what_tracr_does_not_compile_rightly_is_found():
    """The mean of flags is mapped by steps that do not know 2/3; and selectors cannot be combined."""
    pytest.importorskip("tracr")

    def two_thirds(rasp):
        is_a = rasp.numerical(rasp.Map(lambda token: int(token == "a"), rasp.tokens))
        select = rasp.Select(rasp.tokens, rasp.tokens, rasp.Comparison.TRUE)
        share = rasp.numerical(rasp.Aggregate(select, is_a, default=0))
        return rasp.Map(lambda value: value > 0.6, share)

    with pytest.raises(ValueError, match="tracr does not support what it uses"):
        compile_program(program_of(two_thirds, lambda word: [word.count("a") / len(word) > 0.6] * len(word)))

    def equal_and_earlier(rasp):
        equal = rasp.Select(rasp.tokens, rasp.tokens, rasp.Comparison.EQ)
        return rasp.SelectorWidth(equal & rasp.Select(rasp.indices, rasp.indices, rasp.Comparison.LT))

    with pytest.raises((AttributeError, NotImplementedError, TypeError)):
        compile_program(program_of(equal_and_earlier, lambda word: [0] * len(word)))


@pytest.fixture(scope="module")
def library():
    """Programs of tracr's library with their tokens; those with norms are not among them."""
    lib = pytest.importorskip("tracr.compiler.lib")
    from tracr.rasp import rasp

    letters, digits = ("a", "b", "c"), (1, 2, 3)
    three = rasp.tokens, lib.shift_by(1, rasp.tokens), rasp.indices
    return {
        "length": (lib.make_length(), letters),
        "reverse": (lib.make_reverse(rasp.tokens), letters),
        "pair balance": (lib.make_pair_balance(rasp.tokens, "(", ")"), ("(", ")", "a")),
        "shuffle dyck": (lib.make_shuffle_dyck(["()"]), ("(", ")")),
        "shuffle dyck 2": (lib.make_shuffle_dyck2(), ("(", ")", "{", "}")),
        "hist": (lib.make_hist(), letters),
        "sort": (lib.make_sort(rasp.tokens, rasp.tokens, max_seq_len=5, min_key=1), digits),
        "sort by frequency": (lib.make_sort_freq(5), letters),
        "fraction of previous": (lib.make_frac_prevs(rasp.tokens == "a"), letters),
        "shift": (lib.shift_by(1, rasp.tokens), letters),
        "pattern": (lib.detect_pattern(rasp.tokens, "ab"), letters),
        "rare tokens": (lib.make_count_less_freq(2), letters),
        "count": (lib.make_count(rasp.tokens, "a"), letters),
        "three variables": (lib.make_nary_sequencemap(lambda *values: len(set(values)), *three), letters),
    }


@pytest.mark.slow
def test_every_program_of_the_library_is_read_without_naming_its_output(library):
    from tracr.compiler.compiling import compile_rasp_to_model

    wrong = {}
    for name, (program, tokens) in library.items():
        assembled = compile_rasp_to_model(program, vocab=set(tokens), max_seq_len=5)
        known = from_tracr(assembled, n=200)
        wrong[name] = wrong_answers(known, program)
        by_label = from_tracr(assembled, n=64, output=program.label)
        assert np.array_equal(by_label.task.program.weights["W_U"], known.task.program.weights["W_U"])
    assert {name: words for name, words in wrong.items() if words} == {}


@pytest.mark.slow
def test_a_head_that_writes_little_is_not_needed_because_of_padding():
    """Read from padding, another example's output would cost .25; from its tokens, .13 of .15 that count."""
    pytest.importorskip("tracr")
    known = compile_program("rotation")
    assert known.heads[0, 0].needed == {"zero": False, "mean": False, "resample": False}
    audit = interp.audit(known.model, known.task, n="all")
    assert audit.heads[0].needed == {"zero": False, "mean": False, "resample": False}
