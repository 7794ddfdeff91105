"""Template tasks: strings are of their templates, labels are right, and no symbol of one split is in another."""

import copy
import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
from hooks import Transformer
from interp.tasks import Template, matches, task_from
from interp.tasks.base import Task
from interp.tasks.template.alphabets import names_of
from interp.tasks.template.families import FAMILIES
from interp.tasks.template.task import CLS, SPLITS

REAL = Template(templates=("aRa -> +1", "aRb -> -2", "abR -> 0.5"), train=5, validation=3, test=4)
SYMBOLIC = Template(templates=("abQb -> a", "bbQa -> R", "abQa -> b"), train=6, validation=("x", "y", "zz"), test=4)
WITH_CLS = replace(SYMBOLIC, cls=True)
NEXT = replace(SYMBOLIC, form="next_token", weights=(1.0, 2.0, 3.0))
WIDE = Template(templates="symbolic_programs", train=4, validation=4, test=6)
TASKS = {"real": REAL, "symbolic": SYMBOLIC, "with cls": WITH_CLS, "next": NEXT, "words": WIDE}


@pytest.fixture(params=TASKS)
def task(request):
    return TASKS[request.param]


def strings_of(task, batch):
    """Names of the tokens, without [CLS]."""
    rows = [task.vocab.words(row) for row in batch.tokens]
    assert all((row[-1] == CLS) == task.cls for row in rows)
    return [row[:-1] if task.cls else row for row in rows]


def only_match(task, string):
    """The number of the one template that the string is of."""
    (template_index,) = [
        index for index, template in enumerate(task.labelled) if matches(string, template, fixed=task.fixed)
    ]
    return template_index


def label_of(template, string):
    """The label computed from the string: a number, or the symbol at the position of the label's wildcard."""
    if template.label in template.tokens:
        return string[template.tokens.index(template.label)]
    return template.label


@pytest.mark.parametrize("split", SPLITS)
def test_strings_are_of_their_template_and_labelled_by_it(task, split, generator):
    batch = task.sample(60, generator=generator, split=split)
    assert batch.tokens.shape == (60, task.n_ctx)
    for row, string in enumerate(strings_of(task, batch)):
        index = only_match(task, string)
        assert int(batch.template[row]) == index
        label = label_of(task.labelled[index], string)
        if task.form == "real":
            assert float(batch.values[row, 0]) == label
            assert task.values[int(batch.labels[row, 0])] == label
        else:
            assert task.vocab.names[int(batch.labels[row, -1])] == label
            assert not batch.values.any()
    assert set(batch.template.tolist()) == set(range(len(task.labelled)))


def test_what_is_asked_where(task, generator):
    batch = task.sample(7, generator=generator)
    last = task.n_ctx - 1
    assert bool(batch.supervised.all())
    assert len(batch.supervised) == len(task.targets) == batch.labels.shape[1]
    if task.form == "next_token":
        assert batch.target_positions.tolist() == [list(range(task.n_ctx))] * 7
        assert torch.equal(batch.labels[:, :-1], batch.tokens[:, 1:])
        assert task.targets == ("token 1", "token 2", "token 3", "label")
        assert task.attention == "causal"
    else:
        assert batch.target_positions.tolist() == [[last]] * 7
        assert task.targets == ("label",)
        assert task.attention == "bidirectional"
    assert task.outcomes == ("label",)
    selected = batch.select(slice(2, 5))
    for name in ("tokens", "labels", "template", "values", "target_positions"):
        assert torch.equal(getattr(selected, name), getattr(batch, name)[2:5]), name


def test_no_symbol_of_one_split_is_in_another(task, generator):
    symbols_of = {}
    for split in SPLITS:
        batch = task.sample(300, generator=generator, split=split)
        tokens = {name for string in strings_of(task, batch) for name in string}
        labels = {task.vocab.names[int(label)] for label in batch.labels[:, -1]} if task.form != "real" else set()
        symbols_of[split] = (tokens | labels) - set(task.fixed)
        assert symbols_of[split] == set(task.alphabet(split))  # and every symbol of the alphabet occurs
    assert not symbols_of["train"] & symbols_of["validation"]
    assert not symbols_of["train"] & symbols_of["test"]
    assert not symbols_of["validation"] & symbols_of["test"]
    assert task.d_vocab == len(task.vocab) == len(task.fixed) + sum(map(len, symbols_of.values()))
    assert task.vocab.names[: len(task.fixed)] == task.fixed


def test_templates_are_drawn_by_weight_and_symbols_evenly(generator):
    n = 20_000
    batch = replace(REAL, weights=(1.0, 0.0, 3.0)).sample(n, generator=generator)
    counts = Counter(batch.template.tolist())
    assert set(counts) == {0, 2}
    assert abs(counts[2] / n - 0.75) < 5 * (0.75 * 0.25 / n) ** 0.5
    batch = REAL.sample(n, generator=generator)
    for index in range(3):
        assert abs((batch.template == index).double().mean() - 1 / 3) < 5 * (2 / 9 / n) ** 0.5
    first = Counter(REAL.vocab.words(batch.tokens[:, 0]))
    assert set(first) == {f"t{index}" for index in range(5)}
    assert all(abs(count / n - 0.2) < 5 * (0.16 / n) ** 0.5 for count in first.values())


def test_the_generator_decides(task):
    first, again, third = (task.sample(20, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    for name in ("tokens", "labels", "template", "values"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert not torch.equal(first.tokens, third.tokens)


def test_a_task_is_a_task_and_survives_a_manifest(task):
    assert isinstance(task, Task)
    described = json.loads(json.dumps(task.describe()))
    again = task_from(described)
    assert again == task
    assert again.describe() == task.describe()
    assert (again.fixed, again.vocab.names) == (task.fixed, task.vocab.names)


@pytest.mark.parametrize("name", FAMILIES)
def test_families_survive_a_manifest(name):
    task = Template(templates=name, train=30)
    assert Template.from_description(json.loads(json.dumps(task.describe()))) == task


def test_what_is_sampled_can_be_read(task, generator):
    for split in SPLITS:
        batch = task.sample(6, generator=generator, split=split)
        for row, string in enumerate(strings_of(task, batch)):
            for text in (" ".join(string), task.vocab.decode(task.vocab.encode(" ".join(string)))):
                again = task.read(text)
                for field in ("tokens", "labels", "template", "values", "target_positions"):
                    assert torch.equal(getattr(again, field), getattr(batch, field)[row : row + 1]), field


def test_one_symbol_can_be_read():
    task = Template(templates="copy")
    batch = task.read("t12")
    assert task.vocab.words(batch.tokens[0]) == ["t12"]
    assert batch.labels.tolist() == batch.tokens.tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t1 R t9", r"the string 't1 R t9' has the unknown symbol 't9'; known are R \[CLS\] t0"),
        ("t1?", r"unknown token at character 2: '\?'. Known tokens: R \[CLS\]"),
        ("t1 t2 t3", r"the string 't1 t2 t3' matches none of the 3 templates \(aRa -> \+1, aRb -> -2, abR -> \+0.5\)"),
        ("t1 R", "the string 't1 R' matches none"),
        ("t1 t1 R", "matches none"),
        ("R R t1", "matches none"),
    ],
)
def test_strings_that_are_of_no_template_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        REAL.read(text)


def test_filling_in_by_hand():
    ids = SYMBOLIC.vocab.ids
    batch = SYMBOLIC.fill(torch.tensor([1, 0]), torch.tensor([[ids["x"], ids["t0"]], [ids["t4"], ids["t5"]]]))
    # the wildcards of bbQa in order of appearance are b, a
    assert [SYMBOLIC.vocab.words(row) for row in batch.tokens] == [["x", "x", "Q", "t0"], ["t4", "t5", "Q", "t5"]]
    assert SYMBOLIC.vocab.words(batch.labels[:, 0]) == ["R", "t4"]


def test_templates_without_wildcards_are_strings(generator):
    task = Template(templates=("RS -> 1", "SR -> -1"), train=0, validation=0, test=0)
    batch = task.sample(30, generator=generator)
    assert {tuple(row) for row in strings_of(task, batch)} == {("R", "S"), ("S", "R")}
    assert [1.0 if row[0] == "R" else -1.0 for row in strings_of(task, batch)] == batch.values[:, 0].tolist()
    assert task.disjoint_strings(2).shape == (2, 2, 3)


@pytest.mark.parametrize("copies", [1, 3])
def test_disjoint_strings_share_no_symbol(task, copies):
    strings = task.disjoint_strings(copies)
    assert strings.shape == (len(task.labelled), copies, task.n_ctx)
    counts = Counter()
    for template, rows in zip(task.labelled, strings.tolist(), strict=True):
        for row in rows:
            # ids beyond the vocabulary need names too
            name = [task.fixed[id] if id < len(task.fixed) else f"s{id}" for id in row]
            assert matches(name[:-1] if task.cls else name, template, fixed=task.fixed)
            counts.update({id for id in row if id >= len(task.fixed)})
    assert set(counts.values()) == {1}


def test_diversity_is_one_over_the_chance_of_the_likeliest_symbol(task, generator):
    n = 20_000
    for split in SPLITS:
        m = len(names_of(getattr(task, split), split))
        batch = task.sample(n, generator=generator, split=split)
        likeliest = 0.0
        for index in range(len(task.labelled)):
            rows = batch.tokens[batch.template == index]
            shares = [(rows == id).any(1).double().mean() for id in range(len(task.fixed), task.d_vocab)]
            likeliest = max(likeliest, float(max(shares)))
        p = 1 / task.diversity(split)
        assert 0 < p <= 1
        # the largest of m shares, each of at least n / (number of templates) / 2 strings
        assert abs(likeliest - p) <= 5 * (p * (1 - p) / (n / len(task.labelled) / 3)) ** 0.5, (split, m)
    assert task.diversity() == task.diversity("train")


def naive_cross_entropy(logits, label):
    return math.log(sum(math.exp(float(x)) for x in logits)) - float(logits[label])


def test_loss_and_score_by_loops(task, generator):
    batch = task.sample(9, generator=generator)
    logits = torch.randn(9, task.n_ctx, task.d_vocab_out, generator=generator, dtype=torch.float64)
    losses, right, of_label = [], [], []
    for row in range(9):
        positions = range(task.n_ctx) if task.form == "next_token" else [task.n_ctx - 1]
        for place, position in enumerate(positions):
            answer = logits[row, position]
            if task.form == "real":
                number = task.labelled[int(batch.template[row])].label
                losses.append((float(answer[0]) - number) ** 2)
                nearest = min(task.values, key=lambda value: abs(value - float(answer[0])))
                correct = nearest == number
            else:
                label = int(batch.labels[row, place])
                losses.append(naive_cross_entropy(answer, label))
                correct = max(range(task.d_vocab), key=lambda id: float(answer[id])) == label
        right.append(float(correct))
        of_label.append(losses[-1])
    assert float(task.loss(logits, batch)) == pytest.approx(sum(losses) / len(losses))
    target_logits = logits if task.form == "next_token" else logits[:, -1:]
    score = task.score(target_logits, batch)
    assert score.right[:, 0].tolist() == right
    assert score.loss[:, 0].tolist() == pytest.approx(of_label)
    assert score.total.tolist() == [[1.0]] * 9
    # the right answers have every point
    best = batch.values[..., None] if task.form == "real" else 50.0 * torch.eye(task.d_vocab)[batch.labels]
    assert (task.score(best, batch).right == 1).all()
    assert task.score(best, batch).loss.max() < 1e-6


def test_answers_are_the_nearest_number_or_the_likeliest_token():
    assert REAL.values == (-2.0, 0.5, 1.0)
    numbers = torch.tensor([-9.0, -0.76, -0.74, 0.74, 0.76, 40.0])
    assert REAL.answers(numbers[:, None, None])[:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    logits = torch.zeros(1, 2, SYMBOLIC.d_vocab)
    logits[0, 0, 4] = logits[0, 1, 7] = 1
    assert SYMBOLIC.answers(logits).tolist() == [[4, 7]]


def test_chance_is_guessing_evenly():
    assert REAL.chance == 1 / 3
    assert Template().chance == Template(templates="majority").chance == 0.5
    assert SYMBOLIC.chance == 1 / SYMBOLIC.d_vocab == 1 / 15
    assert (REAL.d_vocab_out, SYMBOLIC.d_vocab_out) == (1, 15)


def test_relations_by_loops(task, generator):
    batch = task.sample(12, generator=generator)
    relations = task.relations(batch)
    assert set(relations) == {"same_symbol", "same_template_position"} | ({"special"} if task.cls else set())
    texts = [list(template.tokens) for template in task.labelled]
    for row, string in enumerate(strings_of(task, batch)):
        names = [*string, CLS] if task.cls else string
        for query, first_name in enumerate(names):
            for key, second_name in enumerate(names):
                same = first_name == second_name and query != key and first_name not in task.fixed
                assert bool(relations["same_symbol"][row, query, key]) == same
                within = max(query, key) < len(string)
                equal = {text[query] == text[key] for text in texts} if within else {False}
                assert bool(relations["same_template_position"][row, query, key]) == (len(equal) == 2)
                if task.cls:
                    assert bool(relations["special"][row, query, key]) == (second_name == CLS)
    assert relations["same_template_position"].any()


def test_what_there_is_to_probe(task, generator):
    batch = task.sample(10, generator=generator)
    labels = task.probe_labels(batch)
    assert set(labels) == ({"label", "template"} if task.form == "real" else {"template"})
    for target in range(len(task.targets)):
        assert torch.equal(labels["template"][:, target], batch.template)
        assert torch.equal(task.control_types(batch)[:, target], batch.tokens[:, 0])
    if task.form == "real":
        numbers = [task.labelled[index].label for index in batch.template.tolist()]
        assert [sorted(set(task.values))[place] for place in labels["label"][:, 0]] == numbers


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.text("abcRS", min_size=3, max_size=3), min_size=1, max_size=4), st.integers(3, 6), st.integers(0, 99)
)
def test_any_templates_make_a_task_whose_strings_have_one_template(texts, symbols, seed):
    texts = list({tuple("abc".index(t) if t in "abc" else t for t in text): text for text in texts}.values())
    try:
        task = Template(templates=[f"{text} -> {index}" for index, text in enumerate(texts)], train=symbols)
    except ValueError as error:
        assert "overlap" in str(error)  # noqa: PT017
        return
    batch = task.sample(5, generator=torch.Generator().manual_seed(seed))
    for string, label in zip(strings_of(task, batch), batch.values[:, 0].tolist(), strict=True):
        assert only_match(task, string) == label


def test_settings_are_what_was_given():
    assert (REAL.form, REAL.cls, REAL.n_ctx) == ("real", True, 4)
    assert (SYMBOLIC.form, SYMBOLIC.cls, SYMBOLIC.n_ctx) == ("symbolic", False, 4)
    assert (WITH_CLS.cls, WITH_CLS.n_ctx) == (True, 5)
    assert (NEXT.cls, NEXT.weights) == (False, (1.0, 2.0, 3.0))
    assert (Template().train, Template().validation, Template().test) == (256, 100, 100)
    assert WIDE.fixed == ("=", '"', ";", "print", "(", ")")
    assert SYMBOLIC.fixed == ("Q", "R")  # a label is a fixed token too
    assert REAL.alphabet("validation") == ["v0", "v1", "v2"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"templates": ()}, "templates is empty; give at least one"),
        ({"templates": [None]}, r"templates\[0\] is None; it must be a LabelledTemplate or a string"),
        ({"templates": "abba"}, "templates is 'abba'; choose one of same_different, aba_abb"),
        ({"templates": ("aba",)}, "cannot read the template 'aba'; write its tokens, -> and one label"),
        ({"templates": ("aba -> c",)}, "the label wildcard 'c' does not occur in the template 'aba', which has a b"),
        ({"templates": ("aba -> 1", "xyx -> 2")}, r"the templates 'aba -> \+1' and 'xyx -> \+2' overlap: .*'A B A'"),
        ({"templates": ("aba -> 1", "ab -> 2")}, r"templates have lengths \[2, 3\]; all must have the same"),
        ({"templates": ("aba -> 1", "abb -> a")}, "'abb -> a' is labelled the token 'a', but labels of this form are"),
        ({"templates": ("aba -> a", "abb -> 1")}, r"'abb -> \+1' is labelled a real number, but labels of this form"),
        ({"form": "symbolic"}, r"'aba -> \+1' is labelled a real number, but labels of this form are tokens"),
        ({"form": "next_token"}, r"'aba -> \+1' is labelled a real number, but labels of this form are tokens"),
        ({"form": "real", "templates": "copy"}, "'a -> a' is labelled the token 'a', but labels of this form are real"),
        ({"form": "causal"}, "form is 'causal'; choose one of real, symbolic, next_token"),
        ({"cls": False}, r"cls is False, but in form 'real' the label is predicted at \[CLS\]; use cls=True"),
        (
            {"cls": True, "form": "next_token", "templates": "copy"},
            "cls is True, but in form 'next_token' the label is predicted after the last token; use cls=False",
        ),
        ({"train": 1}, "the train alphabet has 1 symbols; a template has 2 different wildcards: give at least 2"),
        ({"test": ("x",)}, "the test alphabet has 1 symbols"),
        (
            {"train": ("x", "y"), "test": ("y", "z")},
            "the symbol 'y' of the test alphabet is also in the train alphabet",
        ),
        ({"train": ("x", CLS)}, r"the symbol '\[CLS\]' of the train alphabet is also in the fixed tokens"),
        ({"templates": ("aR -> a", "aS -> a"), "train": ("x", "R")}, "'R' of the train alphabet is also in the fixed"),
        ({"templates": ("aa -> S", "ab -> a"), "test": ("S", "R")}, "'S' of the test alphabet is also in the fixed"),
        ({"weights": (1.0,)}, r"weights is \(1.0,\); give one for each of the 2 templates, none negative"),
        ({"weights": (1.0, -0.5)}, r"weights is \(1.0, -0.5\)"),
    ],
)
@pytest.mark.usefixtures("as_a_user")
def test_bad_settings_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        Template(**change)


@pytest.mark.usefixtures("as_a_user")
def test_an_unknown_split_is_refused(generator):
    with pytest.raises(ValueError, match="split is 'dev'; choose one of train, validation, test"):
        REAL.sample(2, generator=generator, split="dev")


TINY = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 8}


@pytest.fixture(scope="module")
def model():
    return Transformer(interp.config_for(REAL, **TINY), seed=2)


def test_kinds_of_head(model):
    labels = interp.classify_heads(model, REAL, n=16)
    assert {"association", "template_position", "broadcast"} <= set(labels.kinds)
    batch = REAL.sample(8, generator=torch.Generator().manual_seed(0))
    relations = interp.heads.kinds.relations_of(REAL, batch, ["association", "template_position"])
    expected = REAL.relations(batch)
    assert torch.equal(relations["association"], expected["same_symbol"])
    assert torch.equal(relations["template_position"], expected["same_template_position"])


def test_a_probe_is_checked_against_causes_where_answers_are_numbers(model):
    """A model that says one number whatever it reads follows in exactly the pairs where that is wanted."""
    task, constant = replace(REAL, weights=(8.0, 1.0, 1.0)), copy.deepcopy(model)
    constant.unembed.weight.data.zero_()
    follows = []
    for value in task.values:
        constant.unembed.bias.data.fill_(value)
        result = interp.probe(constant, task, n_train=60, n_test=80, verify=True)
        assert (result.causal["n"] > 5).all()
        follows.append(np.stack([result.causal[key] for key in ("follows", "weights", "placebo")]))
    assert result.label == "label"
    np.testing.assert_allclose(np.sum(follows, 0), 1)  # each pair wants one of the numbers
    assert (follows[2] > follows[0]).all()  # and mostly the one that most templates have


def test_verbs_work_on_templates(model):
    result = interp.evaluate(model, REAL, n=50)
    assert (result.targets, result.chance) == (("label",), pytest.approx(1 / 3))
    assert interp.ablate_heads(model, REAL, n=16).names == ("0.0", "0.1")
    assert interp.show_attention(model, REAL, examples=1)
