"""Template parsing and matching, checked by enumerating all strings."""

import re
from itertools import combinations, permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.tasks.template.language import (
    LabelledTemplate,
    check_disjoint,
    check_templates,
    is_wildcard,
    matches,
    read_template,
    split_tokens,
    structure,
    substitution,
)

FIXED = ("R", "S0")
SYMBOLS = ("u", "v", "w")
"""Letters, so that a symbol that looks like a wildcard is a symbol all the same."""

templates_of = {
    length: st.lists(st.sampled_from(("a", "b", "c", *FIXED)), min_size=length, max_size=length) for length in range(6)
}
templates = st.integers(1, 5).flatmap(lambda length: templates_of[length])
quick = settings(max_examples=40, deadline=None)


def labelled(*tokens):
    return LabelledTemplate(tuple(tokens), 0.0)


def strings_of(template, symbols=SYMBOLS):
    """All its strings, by Definition 3.1: every way to give its wildcards different symbols."""
    names = sorted({token for token in template.tokens if len(token) == 1 and token.islower()})
    strings = set()
    for chosen in permutations(symbols, len(names)):
        to = dict(zip(names, chosen, strict=True))
        strings.add(tuple(to.get(token, token) for token in template.tokens))
    return strings


@quick
@given(templates, st.permutations(["t1", "b", "a", "x", "c"]))
def test_a_substituted_string_matches_and_gives_the_symbols_back(tokens, symbols):
    template = labelled(*tokens)
    given_symbols = dict(zip("abc", symbols, strict=False))
    string = tuple(given_symbols.get(token, token) for token in tokens)
    assert matches(string, template)
    assert matches(" ".join(string), template) == (len(string) > 1 or len(string[0]) == 1)
    used = {name: symbol for name, symbol in given_symbols.items() if name in tokens}
    assert substitution(string, template) == used
    for position, token in enumerate(tokens):
        assert string[position] == (token if token in FIXED else given_symbols[token])


@quick
@given(templates.filter(lambda tokens: len({"a", "b", "c"} & set(tokens)) > 1))
def test_the_same_symbol_for_two_wildcards_never_matches(tokens):
    template = labelled(*tokens)
    first, second = template.wildcards[:2]
    symbols = {**dict(zip("abc", ("x", "y", "z"), strict=True)), second: "q", first: "q"}
    filled = tuple(symbols.get(token, token) for token in tokens)
    assert not matches(filled, template)


@quick
@given(templates_of[3])
def test_matches_are_all_the_strings_there_are_and_no_others(tokens):
    template = labelled(*tokens)
    expected = strings_of(template)
    for length in (2, 3):
        for string in product((*SYMBOLS, *FIXED), repeat=length):
            # neither its own fixed tokens nor those of others are symbols
            assert matches(string, template, fixed=FIXED) == (string in expected), string


def test_a_wildcard_never_matches_a_fixed_token():
    assert not matches("RR", "aR")
    assert matches("uR", "aR")
    assert matches("uS", "ab")
    assert not matches("uS", "ab", fixed=["S"])
    assert not matches("uT", "uR")
    assert not matches("uvu", "ab")


@quick
@given(templates_of[3], templates_of[3])
def test_structures_are_equal_exactly_where_strings_are_shared(tokens, others):
    first, second = labelled(*tokens), labelled(*others)
    shared = strings_of(first) & strings_of(second)
    assert (structure(first) == structure(second)) == bool(shared)
    assert not shared or strings_of(first) == strings_of(second)


@quick
@given(st.lists(templates_of[3], min_size=2, max_size=5))
def test_of_a_checked_set_no_string_matches_two(chosen):
    chosen = [labelled(*tokens) for tokens in chosen]
    clash = any(strings_of(first) & strings_of(second) for first, second in combinations(chosen, 2))
    if not clash:
        check_disjoint(chosen)
        for string in product((*SYMBOLS, *FIXED), repeat=3):
            assert sum(matches(string, template, fixed=FIXED) for template in chosen) <= 1
        return
    with pytest.raises(ValueError, match="overlap"):
        check_disjoint(chosen)


CLASHES = st.lists(st.sampled_from(("a", "b", "A", "A'", "B''", "S0")), min_size=1, max_size=4)


@quick
@given(CLASHES)
def test_a_clash_names_both_templates_and_a_string_of_both(tokens):
    first = LabelledTemplate(tuple(tokens), 1.0)
    second = LabelledTemplate(tuple({"a": "x", "b": "a"}.get(token, token) for token in tokens), -1.0)
    with pytest.raises(ValueError, match=re.escape(f"the templates '{first}' and '{second}' overlap: ")) as caught:
        check_disjoint([labelled("a", "a", "a", "a", "a"), first, second])
    message = re.search(r"""the string (['"])(.*)\1 matches both\. Keep one""", str(caught.value))
    string = tuple(message[2].replace("\\'", "'").split(" "))
    assert matches(string, first)
    assert matches(string, second)


def test_reading_by_character_or_by_white_space():
    assert read_template("aba -> +1") == LabelledTemplate(("a", "b", "a"), 1.0)
    assert read_template("  aRb->-0.5") == LabelledTemplate(("a", "R", "b"), -0.5)
    program = read_template("x = 1 ; print ( x ) -> x")
    assert program.tokens == ("x", "=", "1", ";", "print", "(", "x", ")")
    assert (program.label, program.wildcards) == ("x", ("x",))
    assert program.fixed == {"=", "1", ";", "print", "(", ")"}
    assert read_template("ab -> R").label == "R"
    assert split_tokens("print") == ("p", "r", "i", "n", "t")
    assert split_tokens(" t1 t2 ") == ("t1", "t2")


def test_single_lower_case_letters_are_wildcards_and_nothing_else_is():
    assert all(map(is_wildcard, "abcxyz"))
    assert not any(map(is_wildcard, ["A", "1", "ab", "", "é", "=", "`", "{"]))
    assert labelled("c", "a", "R", "c", "b").wildcards == ("c", "a", "b")


@quick
@given(templates.filter(lambda tokens: len(tokens) > 1 or len(tokens[0]) == 1), st.sampled_from([1.0, -0.25, 1e6, "R"]))
def test_what_is_written_is_read_back(tokens, label):
    template = LabelledTemplate(tuple(tokens), label)
    assert read_template(str(template)) == template


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("aba", r"cannot read the template 'aba'; write its tokens, -> and one label: 'aba -> \+1'"),
        ("aba -> ", "cannot read the template 'aba -> '"),
        ("aba -> 1 2", "cannot read the template"),
        (" -> 1", "a template is empty; write at least one token before the arrow"),
        ("aba -> c", r"the label wildcard 'c' does not occur in the template 'aba', which has a b; its symbol"),
        ("RS -> c", "the label wildcard 'c' does not occur in the template 'RS', which has no wildcard"),
        ("aba -> nan", "the label of the template 'aba' is nan; give a finite number"),
        ("aba -> -inf", "the label of the template 'aba' is -inf; give a finite number"),
    ],
)
def test_texts_that_are_no_template_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        read_template(text)


@pytest.mark.parametrize(
    ("texts", "real", "weights", "words"),
    [
        (["ab -> 1", "abb -> 1", "a -> 1"], True, (), r"templates have lengths \[1, 2, 3\]; all must have the same"),
        (["ab -> 1"], False, (), r"template 'ab -> \+1' is labelled a real number, but labels of this form are tokens"),
        (["ab -> 1", "aa -> a"], True, (), "'aa -> a' is labelled the token 'a', but labels of this form are real"),
        (["ab -> 1", "aa -> 2"], True, (1.0,), r"weights is \(1.0,\); give one for each of the 2 templates, none neg"),
        (["ab -> 1", "aa -> 2"], True, (2.0, -1.0), r"weights is \(2.0, -1.0\); give one for each of the 2"),
        (["ab -> 1", "aa -> 2"], True, (0.0, 0.0), r"weights is \(0.0, 0.0\)"),
        (["ab -> 1", "xy -> 2"], True, (), r"the templates 'ab -> \+1' and 'xy -> \+2' overlap: the string 'A B'"),
    ],
)
def test_templates_that_are_no_task_together_are_refused(texts, real, weights, words):
    with pytest.raises(ValueError, match=words):
        check_templates([read_template(text) for text in texts], real=real, weights=weights)


def test_templates_that_are_one_are_let_through():
    check_templates([read_template("ab -> a"), read_template("aa -> R")], real=False, weights=(0.0, 2.0))
