"""Suite of known answers: names, seeds, and true verdicts on every head."""

import pytest
import torch
from joblib import Parallel, delayed

import interp
from interp.known_answers import SUITE, known_answer, suite

N = 512
MORE = 1024
"""Sequences where the default number leaves a head undecided."""
JOBS = 2


def test_names_of_the_suite():
    assert len(SUITE) > 175
    assert {name.split()[0] for name in SUITE} == {"loop", "shortcut", "dyck", "template", "lookup", "recall"}


def test_an_unknown_name_raises():
    with pytest.raises(ValueError, match=r"name is 'lego'\. The suite has loop Z2 0, .* and 162 more"):
        known_answer("lego", 0)


@pytest.mark.parametrize("name", ["loop Z3 2", "shortcut 1", "dyck uneven, cancelled decoy", "template same"])
def test_the_seed_determines_an_answer(name):
    first, again, another = (known_answer(name, seed) for seed in (4, 4, 5))
    weights, same, other_weights = (answer.model.state_dict() for answer in (first, again, another))
    assert first.heads == again.heads
    assert (first.name, first.task, first.model.cfg) == (again.name, again.task, again.model.cfg)
    assert all(torch.equal(value, same[key]) for key, value in weights.items())
    assert weights.keys() != other_weights.keys() or any(
        value.shape != other_weights[key].shape or not torch.equal(value, other_weights[key])
        for key, value in weights.items()
    )


def test_the_suite_is_in_order():
    answers = suite(1)
    for name in list(SUITE)[:2]:
        answer, expected = next(answers), known_answer(name, 1)
        assert answer.name == expected.name
        assert all(
            torch.equal(value, answer.model.state_dict()[key]) for key, value in expected.model.state_dict().items()
        )


SHORT = [name for name in SUITE if not name.startswith("loop") or name.endswith(" Z2")]
"""Without the longer chains."""


@pytest.mark.parametrize("family", ["loop", "shortcut", "dyck", "template", "lookup", "recall"])
def test_every_head_has_a_truth_and_existing_partners(family):
    names = [name for name in SHORT if name.split()[0] == family]
    assert names
    for name in names:
        answer = known_answer(name, 0)
        shape = answer.model.cfg
        heads = {(layer, head) for layer in range(shape.n_layers) for head in range(shape.n_heads)}
        assert set(answer.heads) == heads, name
        for head, truth in answer.heads.items():
            for partner in truth.partners:
                backed_up = truth.truth == "redundant" and answer.heads[partner].truth in ("faithful", "hidden")
                assert backed_up or answer.heads[partner].truth == truth.truth, name
                assert backed_up or head in answer.heads[partner].partners, name
        assert set(answer.readable) <= set(answer.task.targets), name
        if "cancel" in name:
            _check_that_all_cancel(answer, name)


def _check_that_all_cancel(answer, name):
    cancelling = [truth for truth in answer.heads.values() if truth.partners]
    assert len(cancelling) == (3 if "three" in name else 2), name
    assert {truth.truth for truth in cancelling} == {"idle" if "unreadabl" in name else "misleading"}, name


# the whole suite


def _alone(work, name, seed):
    torch.set_num_threads(1)
    return work(name, seed)


def side_by_side(work, seed, names=tuple(SUITE)):
    """What is wrong with each answer, all in one list."""
    faults_by_name = Parallel(n_jobs=JOBS)(delayed(_alone)(work, name, seed) for name in names)
    return [fault for faults in faults_by_name for fault in faults]


def wrong_verdicts(name, seed):
    answer = known_answer(name, seed)
    result = interp.audit(answer.model, answer.task, seed=seed)
    if result.of("undecided"):
        result = interp.audit(answer.model, answer.task, n=MORE, seed=seed)
    wrong = [] if {head.place for head in result.heads} == set(answer.heads) else [f"{name}: other heads"]
    for head, sentence in zip(result.heads, result.sentences(), strict=True):
        truth = answer.heads[head.place]
        other_partners = truth.truth == "redundant" and set(head.partners) != set(truth.partners)
        if head.verdict != truth.truth or other_partners:
            wrong.append(f"{name}, seed {seed}: {truth} is called {head.verdict}. {sentence} {result.warnings}")
    return wrong


def wrong_probes(name, seed):
    answer = known_answer(name, seed)
    if not answer.readable:
        return []
    result = interp.audit_probe(answer.model, answer.task, n_train=1000, n_test=N, seed=seed)
    first_layer = {target: result.readable_from(target) for target in result.targets}
    return [
        f"{name}, seed {seed}: {target} is readable from {layer}, found {first_layer.get(target)}\n{result}"
        for target, layer in answer.readable.items()
        if first_layer.get(target) != layer
    ]


@pytest.mark.parametrize(
    ("seed", "step"),
    [pytest.param(0, 8, marks=pytest.mark.slow), *(pytest.param(seed, 1, marks=pytest.mark.long) for seed in range(3))],
)
def test_every_head_of_every_answer_gets_the_true_verdict(seed, step):
    """One answer of `step`; chains, which take longest, from one seed, and one of seven of those."""
    chains = [name for name in SUITE if name.startswith(("loop", "shortcut"))]
    single_layers = [name for name in SUITE if name.startswith(("dyck", "template"))]
    names = single_layers[::step] + (chains[:: 7 * step] if seed == 0 else [])
    wrong = side_by_side(wrong_verdicts, seed, tuple(names))
    assert not wrong, "\n".join([f"{len(wrong)} heads:", *wrong])


@pytest.mark.parametrize("step", [pytest.param(8, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)])
def test_every_variable_is_readable_from_the_layer_where_it_was_planted(step):
    """One answer of `step`."""
    families = ("loop", "shortcut", "template")
    names = [name for name in SUITE if name.startswith(families) and not name.endswith((" Z2 3", " Z3", " Z4"))]
    assert sum(bool(known_answer(name, 0).readable) for name in names) > len(names) // 2
    wrong = side_by_side(wrong_probes, 0, tuple(names[::step]))
    assert not wrong, "\n".join([f"{len(wrong)} variables:", *wrong])
