"""A sentence by hand: text to batch and back, and what is refused."""

import pytest
import torch

from interp.tasks import S3, Z2, Lego, cyclic


@pytest.mark.parametrize("sentence_format", ["paper", "compact"])
@pytest.mark.parametrize("group", [Z2, S3, cyclic(11)], ids=["Z2", "S3", "Z11"])
def test_sampled_sentences_are_read_back(sentence_format, group, generator):
    task = Lego(n_vars=4, group=group, sentence_format=sentence_format)
    batch = task.sample(50, generator=generator)
    for row in range(len(batch)):
        again = task.read(task.vocab.decode(batch.tokens[row]))
        for name in ("tokens", "labels", "letters", "operations", "clause_of", "target_positions"):
            assert torch.equal(getattr(again, name)[0], getattr(batch, name)[row]), name


def test_marks_and_spaces_may_be_left_out():
    task = Lego(n_vars=2)
    with_marks = task.read("[BOS]b=-a;a=+1;[EOS]")
    assert torch.equal(task.read("b = -a; a = +1;").tokens, with_marks.tokens)
    assert with_marks.labels.tolist() == [[0, 1]]


def test_the_chain_of_a_sentence_in_words():
    task = Lego(n_vars=3)
    chain = task.chain(task.read("b=-a;c=-1;a=+c;"))
    assert chain.edges == (("1", "-", "c"), ("c", "+", "a"), ("a", "-", "b"))
    assert chain.values == ("-1", "-1", "+1")
    assert chain.clause_of == (1, 2, 0)
    assert chain.clause_of_word == (None, *[0] * 5, *[1] * 5, *[2] * 5, None)
    assert "".join(chain.words) == "[BOS]b=-a;c=-1;a=+c;[EOS]"


def test_the_chain_of_one_row_of_a_compact_batch(generator):
    task = Lego(n_vars=3, sentence_format="compact")
    batch = task.sample(4, generator=generator)
    chain = task.chain(batch, row=2)
    assert chain.words == tuple(task.vocab.words(batch.tokens[2]))
    assert chain.clause_of_word == (0, 0, 0, 1, 1, 1, 2, 2, 2)
    for variable, position in zip(chain.variables, batch.target_positions[2], strict=True):
        assert chain.words[position] == variable


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a=+1;b=-a;", "the sentence has 10 tokens; 3 clauses of 5 are needed"),
        ("a=+1;b=-1;c=+a;", "'1' is used by two clauses, 0 and 1; a chain does not fork"),
        ("a=+1;b=-a;c=+a;", "'a' is used by two clauses, 1 and 2; a chain does not fork"),
        ("a=+1;b=-d;c=+b;", r"the clauses do not form one chain: \[1, 2\] are not reached"),
        ("a=+1;b=-c;c=+b;", r"the clauses do not form one chain: \[1, 2\] are not reached"),
        ("a=+b;b=-c;c=+a;", r"the clauses do not form one chain: \[0, 1, 2\] are not reached"),
        ("a=+1;b-=a;c=+b;", r"clause 1 is 'b-=a;'; it must look like 'a=\+1'"),
        ("a=+1;1=-a;c=+b;", "clause 1 is '1=-a;'"),
        ("a=+1;b=aa;c=+b;", "clause 1 is 'b=aa;'"),
        ("a=+1;b=-+;c=+b;", "clause 1 is 'b=-[+];'"),
        ("a=+1;b=-a=c=+b;", "clause 1 is 'b=-a='"),
        ("a=+1;B=-a;c=+b;", "unknown token at character 5: 'B=-a;c=[+]b;'"),
    ],
)
def test_sentences_that_are_no_chain_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        Lego(n_vars=3).read(text)


def test_a_variable_that_is_defined_twice_is_refused():
    with pytest.raises(ValueError, match=r"'b' is defined by two clauses, 1 and 2"):
        Lego(n_vars=3).read("a=+1;b=-a;b=+b;")
    with pytest.raises(ValueError, match=r"'a' is defined by two clauses, 0 and 1"):
        Lego(n_vars=3, sentence_format="compact").read("a+1a-cc+a")
