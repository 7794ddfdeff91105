"""Whether a model implements an algorithm: known answers, planted faults, untrained models, and results by hand."""

import json
from functools import cache

import numpy as np
import pytest
import torch

import interp
from interp.algorithms import (
    Algorithm,
    ImplementsResult,
    Site,
    Variable,
    bracket_stack,
    chain_loop,
    depth_counter,
    equality,
    first_symbol,
    majority_symbol,
    nearest_clause,
    sign_count,
)
from interp.algorithms.predictions import choose_pairs
from interp.core.verbs import untrained_copy
from interp.known_answers.craft.weights import mlp_of
from interp.known_answers.dyck.balanced import balanced_dyck
from interp.known_answers.dyck.stack import stack_dyck
from interp.known_answers.dyck.uniform import uniform_dyck
from interp.known_answers.lego.loop import larger_loop, lego_loop, loop_registers
from interp.known_answers.lego.shortcut import lego_shortcut
from interp.known_answers.template.copy import template_copy
from interp.known_answers.template.same import template_same
from interp.tasks import S3, Z2, Dyck, Lego, Template
from interp.tasks.base import logits_at_targets

LEGO = Lego(n_vars=3, alphabet="abcdef")
SHORT = Lego(n_vars=2, alphabet="abcd")
DYCK = Dyck(length=12)
SAME = Template(templates=("aba -> +1", "abb -> -1", "abc -> 0"))
COPY = Template(templates=("abc -> b", "abb -> b", "aba -> b"))
KNOWN = {
    "loop": (lego_loop, LEGO, chain_loop, (sign_count, nearest_clause), 160),
    "count": (lego_shortcut, LEGO, sign_count, (chain_loop, nearest_clause), 192),
    "stack": (stack_dyck, DYCK, bracket_stack, (depth_counter,), 256),
    "uniform": (uniform_dyck, DYCK, depth_counter, (bracket_stack,), 512),
    "balanced": (balanced_dyck, DYCK, depth_counter, (bracket_stack,), 512),
    "same": (template_same, SAME, equality, (first_symbol, majority_symbol), 512),
    "copy": (template_copy, COPY, equality, (first_symbol, majority_symbol), 256),
}
"""Model, task, its algorithm, rivals, and a number of pairs whose intervals are narrow enough to decide."""
slow = pytest.mark.slow
ALL_KNOWN = [
    "loop",
    "count",
    "stack",
    "same",
    *(pytest.param(name, marks=slow) for name in ("uniform", "balanced", "copy")),
]


@cache
def result_of(name):
    """The test of a known answer against its algorithm and rivals. Do not change it."""
    build, task, algorithm, rivals, n = KNOWN[name]
    return interp.implements(build(task), task, algorithm(task), rivals=[rival(task) for rival in rivals], n=n)


@pytest.mark.parametrize("name", ALL_KNOWN)
def test_the_algorithm_of_a_known_answer_is_implemented(name):
    result = result_of(name)
    assert result.verdict == "implements"
    assert result.rival is None
    tested = [finding for finding in result.findings if finding.status != "not tested"]
    own = [finding for finding in tested if finding.algorithm == result.algorithm]
    assert own
    for finding in own:
        assert finding.status == "found"
        assert finding.accuracy == 1
        assert finding.stability == 1 or np.isnan(finding.stability)
        assert finding.accuracy.low <= finding.accuracy <= finding.accuracy.high
    # A rival does as well as its agreement with the right algorithm forces, and no better.
    for finding in tested:
        if finding.algorithm != result.algorithm:
            assert finding.accuracy.low <= finding.baseline
            assert finding.status != "found" or finding.baseline >= result.bar


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("count", 0),
        ("stack", 0),
        pytest.param("loop", 1, marks=slow),
        pytest.param("balanced", 0, marks=slow),
        pytest.param("copy", 0, marks=slow),
    ],
)
def test_a_wrong_algorithm_is_refused(name, index):
    build, task, right, rivals, n = KNOWN[name]
    wrong = rivals[index](task)
    both = interp.implements(build(task), task, wrong, rivals=[right(task)], n=n)
    assert both.verdict == "implements a rival"
    assert both.rival == right(task).name
    alone = interp.implements(build(task), task, wrong, n=n)
    assert alone.verdict == "neither"


def test_where_the_loop_has_its_values():
    result = result_of("loop")
    finding = result.finding("value #1")
    assert finding.internal
    assert finding.site == "resid 2"  # the value of variable 1 is decided by layer 2, from what layer 1 copied
    assert finding.place.startswith("#1")
    assert not result.finding("operation #1").internal
    assert not result.finding("value #2").internal  # it is the answer
    assert result.finding("value #2").forced == 1
    assert result.alignment["value #1"] == (finding.site, finding.place)
    with pytest.raises(ValueError, match="variable is 'value'"):
        result.finding("value")


def skipping(task, k):
    """A loop that takes over the value before variable k in place of applying its operation."""
    model = larger_loop(task, tied=False)
    value, writes = loop_registers(task)["value"], mlp_of(model.block(2 * k)).w_out.weight
    with torch.no_grad():
        for unit in range(len(task.group.elements) * task.d_vocab_out):
            height = writes[value, unit].max()
            writes[value, unit] = 0
            writes[value.start + unit % task.d_vocab_out, unit] = height
    return model


@pytest.mark.parametrize(
    ("n_vars", "k", "group"),
    [(2, 0, Z2), *(pytest.param(*case, marks=slow) for case in ((2, 1, S3), (3, 0, S3), (3, 1, Z2), (3, 2, S3)))],
)
def test_a_skipped_clause_is_named(n_vars, k, group):
    task = Lego(n_vars=n_vars, group=group, alphabet="abcdef")
    result = interp.implements(skipping(task, k), task, chain_loop(task), n=256)
    assert result.verdict == "neither"
    assert result.failing == (f"operation #{k}",)
    assert f"operation #{k} of chain loop is at no site" in result.reason


@pytest.mark.parametrize(
    ("task", "edge"),
    [
        (SHORT, ("value #1", "value #0", "operation #0")),
        pytest.param(LEGO, ("value #2", "value #1", "value #0"), marks=slow),
    ],
)
def test_a_rewired_edge_is_refused(task, edge):
    wrong = chain_loop(task).without_edge(*edge)
    result = interp.implements(lego_loop(task), task, wrong, rivals=[chain_loop(task)], n=256)
    assert (result.verdict, result.rival) == ("implements a rival", "chain loop")
    if task == SHORT:  # the answers are the same, and the value that is no longer read has an effect
        assert result.contradictions
    else:
        not_found = [finding.variable for finding in result.findings if finding.status == "not found"]
        assert "operation #1" in not_found or result.answers[0].accuracy.high < result.bar


@pytest.mark.parametrize("name", [pytest.param("loop", marks=slow), *ALL_KNOWN[1:]])
def test_untrained_models_implement_nothing(name):
    build, task, right, rivals, _ = KNOWN[name]
    model = untrained_copy(build(task), 3)
    found = interp.implements(model, task, right(task), rivals=[one(task) for one in rivals], n=128)
    assert found.verdict == "neither"


def test_an_algorithm_that_any_right_model_passes_is_undecided():
    """Only inputs and answers: nothing of it could fail."""
    answers = Algorithm(
        name="answers",
        variables=(
            Variable(name="last", compute=lambda batch: batch.labels[:, -1]),
            Variable(name="first operation", compute=lambda batch: batch.operations[:, 0], is_input=True),
        ),
        answers=lambda batch, last, _: torch.cat([torch.full_like(batch.labels[:, 1:], -1), last[:, None]], 1),
    )
    found = interp.implements(lego_loop(SHORT), SHORT, answers, n=128)
    assert found.verdict == "undecided"
    assert "any model that answers rightly has the variables of answers" in found.reason


def test_two_algorithms_that_nothing_tells_apart_are_undecided():
    task = Template(templates="aba_abb")
    found = interp.implements(template_same(task), task, equality(task), rivals=[first_symbol(task)])
    assert found.verdict == "undecided"
    assert "nothing distinguishes them" in found.reason


def test_a_shortcut_of_ones_own():
    """What a user writes: the last variable has the sign of the first clause in the text."""

    def sign_of_first_clause(batch):
        first = (batch.clause_of == 0).long().argmax(1)
        return batch.operations.gather(1, first[:, None])[:, 0]

    shortcut = Algorithm(
        name="first clause",
        variables=(
            Variable(name="sign", compute=sign_of_first_clause, is_input=True),
            Variable(name="answer", compute=lambda batch, sign: sign, parents=("sign",)),
        ),
        answers=lambda batch, sign, answer: torch.cat([torch.full_like(batch.labels[:, 1:], -1), answer[:, None]], 1),
    )
    result = interp.implements(lego_loop(SHORT), SHORT, shortcut, rivals=[chain_loop(SHORT)], n=192)
    assert (result.verdict, result.rival) == ("implements a rival", "chain loop")


def alignment(task):
    """Where the loop has the variables of a task."""
    operations = {f"operation #{k}": Site("resid", 0) for k in range(task.n_vars)}
    return operations | {f"value #{k}": Site("resid", 2 * k + 1) for k in range(task.n_vars)}


@pytest.mark.parametrize(
    ("task", "search", "sites"),
    [
        (SHORT, "means", alignment(SHORT)),
        pytest.param(LEGO, "means", "resid", marks=slow),
        pytest.param(LEGO, "learned", "resid", marks=pytest.mark.long),
    ],
    ids=["means, stated", "means", "learned"],
)
def test_a_subspace_suffices(task, search, sites):
    result = interp.implements(lego_loop(task), task, chain_loop(task), sites=sites, search=search, n=160)
    assert result.search == search
    assert result.verdict == "implements"
    last_but_one = task.n_vars - 2
    finding = result.finding(f"value #{last_but_one}")
    assert finding.accuracy >= 0.95
    assert finding.random <= 0.8
    # One layer later the value is there; before, only what it is computed from, in which it is not linear.
    assert (finding.site, finding.place) == (f"resid {2 * last_but_one + 1}", f"#{last_but_one} variable")


def test_one_head_is_the_site():
    """What the stack's head writes is the top of the stack, at the read-out of the same position."""
    found = interp.implements(stack_dyck(DYCK), DYCK, bracket_stack(DYCK), sites=["z", "attn_out"], n=128)
    assert found.sites == ("z 0.0", "attn_out 0")
    index = [one.variable for one in found.findings].index("top")
    assert found.map[index, :, 0].tolist() == [1, 1]


def test_a_wrong_alignment():
    """The operation is read before layer 4."""
    too_late = alignment(LEGO) | {"operation #0": Site("resid", 4)}
    result = interp.implements(lego_loop(LEGO), LEGO, chain_loop(LEGO), sites=too_late, n=160)
    assert result.failing == ("operation #0",)
    assert result.verdict == "neither"


@pytest.mark.parametrize(("register", "verdict"), [("value", "found"), ("arrived", "not found")])
def test_coordinates_are_interchanged_alone(register, verdict):
    model = lego_loop(LEGO)
    coordinates = tuple(range(model.cfg.d_model))[loop_registers(LEGO)[register]]
    sites = {variable.name: Site("resid", 0) for variable in chain_loop(LEGO).variables}
    sites["value #1"] = Site("resid", 3, coordinates=coordinates)
    finding = interp.implements(model, LEGO, chain_loop(LEGO), sites=sites, n=160).finding("value #1")
    assert finding.status == verdict
    assert finding.site == "resid 3*"
    assert finding.random < 0.5


def test_pairs_are_drawn_until_a_rare_variable_changes_answers():
    """Of 256 pairs about 4 would do, which is too few to choose 32 from."""
    task = Lego(n_vars=7)
    rare = Variable(name="all plus", compute=lambda batch: (batch.operations == 0).all(1).long())

    def answers(batch, rare):
        return torch.cat([torch.zeros_like(batch.labels[:, 1:]), rare[:, None]], 1)

    pairs = choose_pairs(task, [Algorithm(name="rare", variables=(rare,), answers=answers)], 32, 0)
    changed = rare.compute(pairs.base) != rare.compute(pairs.source)
    assert changed.all()
    assert len({tuple(one) for one in pairs.base.tokens.tolist()}) == 32


def test_accuracy_by_hand():
    """An independent computation for one variable, site and place, over the pairs that select."""
    task, model = LEGO, lego_loop(LEGO)
    found = interp.implements(model, task, chain_loop(task), n=64, seed=5)
    pairs = choose_pairs(task, [chain_loop(task)], 64, 5)
    base, source = pairs.base.select(pairs.selecting), pairs.source.select(pairs.selecting)
    assert torch.equal(base.letters, source.letters)
    assert torch.equal(base.clause_of, source.clause_of)
    _, cache = model.run_with_cache(source.tokens)
    at = base.target_positions[:, 1]
    rows = torch.arange(len(base))

    def edit(activation, hook):
        activation = activation.clone()
        activation[rows, at] = cache["blocks.2.hook_resid_pre"][rows, at]
        return activation

    with torch.no_grad():
        logits = model.run_with_hooks(base.tokens, fwd_hooks=[("blocks.2.hook_resid_pre", edit)])
    answers = logits_at_targets(logits, base).argmax(-1)
    changed = wanted = 0
    for row in range(len(base)):
        if base.labels[row, 1] != source.labels[row, 1]:
            first = int(source.labels[row, 1])
            second = task.group.act[int(base.operations[row, 2])][first]
            changed += int(answers[row, 1] == first) + int(answers[row, 2] == second)
            wanted += 2
    index = [one.variable for one in found.findings].index("value #1")
    shown = found.map[index, found.sites.index("resid 2"), found.places.index("#1 variable")]
    assert wanted > 10
    assert shown == pytest.approx(changed / wanted)


def test_the_same_seed_gives_the_same_result_and_the_model_is_unchanged():
    model = lego_loop(SHORT).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, again = (interp.implements(model, SHORT, chain_loop(SHORT), n=64, seed=2) for _ in range(2))
    assert first.findings == again.findings or str(first) == str(again)
    np.testing.assert_array_equal(first.map, again.map)
    assert str(interp.implements(model, SHORT, chain_loop(SHORT), n=64, seed=3)) != str(first)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_output_formats(tmp_path):
    found = result_of("loop")
    found.save(tmp_path / "found.json")
    json.loads((tmp_path / "found.json").read_text())
    loaded = ImplementsResult.load(tmp_path / "found.json")
    assert str(loaded) == str(found)
    assert loaded.finding("value #1").accuracy.n == found.finding("value #1").accuracy.n
    table = found.to_dataframe()
    assert len(table) == len(found.findings)
    assert set(table.algorithm) == {"chain loop", "sign count", "nearest clause"}
    assert "value #1" in json.dumps(found.plot().to_dict())
    assert "chain loop: implements" in str(found)
    assert "own" in json.dumps(result_of("stack").plot().to_dict())


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"n": 8}, "n is 8"),
        ({"sites": "head"}, "sites is 'head'"),
        ({"sites": ()}, "sites is empty; give one or several of resid"),
        ({"search": "best"}, "search is 'best'"),
        ({"rivals": [chain_loop(LEGO)]}, "two algorithms are called 'chain loop'"),
        ({"sites": {"value #0": Site("resid", 0)}}, "sites has no site of 'operation #0' of 'chain loop'"),
        ({"sites": {"value #0": Site("resid", 9)}}, r"sites\['value #0'\].layer is 9"),
        ({"sites": {"value #0": Site("z", 0)}}, r"sites\['value #0'\] is z 0; give a head for the kind 'z'"),
        ({"sites": {"value #0": Site("z", 0, head=7)}}, r"sites\['value #0'\].head is 7"),
        ({"sites": {"value #0": "resid 0"}}, r"sites\['value #0'\] is 'resid 0'; it must be a Site"),
        (
            {"sites": {"value #0": Site("resid", 0, coordinates=(10**6,))}},
            r"sites\['value #0'\].coordinates is 1000000",
        ),
        (
            {"sites": {"value #0": Site("resid", 0, coordinates=(1,))}, "search": "means"},
            r"has coordinates and search is 'means'; use search='whole'",
        ),
    ],
)
def test_bad_input(as_a_user, more, text):
    with pytest.raises(ValueError, match=text):
        interp.implements(lego_loop(LEGO), LEGO, chain_loop(LEGO), **more)


def test_what_cannot_be_learned_or_read():
    with pytest.raises(ValueError, match="sites has 'mlp_out', but this model has no hook_mlp_out"):
        interp.implements(stack_dyck(DYCK), DYCK, bracket_stack(DYCK), sites="mlp_out")
    with pytest.raises(ValueError, match="has a value at each position; use 'whole' or 'means'"):
        interp.implements(stack_dyck(DYCK), DYCK, bracket_stack(DYCK), search="learned")
    with pytest.raises(ValueError, match="d_vocab"):
        interp.implements(lego_loop(LEGO), DYCK, bracket_stack(DYCK))
