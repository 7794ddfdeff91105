"""Readings of a stated circuit: pairs by definition, interchanges by hooks, verdicts on hand-written models."""

import numpy as np
import pytest
import torch
from verified_circuits import readings
from verified_circuits.handwritten import handwritten_circuit
from verified_circuits.interchanges import (
    HOOK_POINTS,
    Site,
    Subject,
    fit_directions,
    pooled_variables,
    position_variables,
    states_at,
    whole,
)
from verified_circuits.measures import false_mechanisms_refused, score_one_kind, score_statement
from verified_circuits.model import PooledConfig, PooledTransformer
from verified_circuits.pairs import BECOMES_BALANCED, KINDS, choose_pairs, groups_by_position
from verified_circuits.probes import separable, squared_correlation
from verified_circuits.readings import FALSE_MECHANISMS, RIVALS, Reading, parts
from verified_circuits.scores import BAR, PAIRS, VALUE, Score, Share, readings_of, score_reading
from verified_circuits.strings import every_string

from case_studies.recipes.judges import Row

N = 6
READINGS = {
    "circuit literal": readings.circuit_literal,
    "circuit charitable": readings.circuit_charitable,
    "flags literal": readings.flags_literal,
    "flags charitable": readings.flags_charitable,
    "total literal": readings.total_literal,
    "total charitable": readings.total_charitable,
    "openers": readings.circuit_openers,
    "closers": readings.circuit_closers,
    "matched pairs": readings.matched_pairs,
    "falls below zero": readings.falls_below_zero,
    "from the right": readings.flags_from_the_right,
}


def subject_of(wiring, n=N):
    return Subject(handwritten_circuit(n, wiring), n)


# Readings


def drawn():
    return np.random.default_rng(0)


@pytest.mark.parametrize("make", [*READINGS.values(), *RIVALS.values()])
@pytest.mark.parametrize("n", [4, 6, 8])
def test_readings_and_rivals_answer_every_string_rightly(make, n):
    assert make(every_string(n)).n_wrong == 0


@pytest.mark.parametrize("name", FALSE_MECHANISMS)
def test_false_mechanisms_are_of_unseen_tokens_or_answer_wrongly(name):
    reading = FALSE_MECHANISMS[name](every_string(N), drawn())
    if reading.n_wrong:
        return
    # Two strings with equal tokens up to a position, and other contributions there
    for position in range(N):
        by_prefix = reading.contributions[:, position].view(2 ** (position + 1), -1, 2)
        if (by_prefix != by_prefix[:, :1]).any():
            return
    pytest.fail("the contributions are those of a causal model")


def test_contributions_of_a_string_worked_by_hand():
    row = int("011001", 2)  # ())(()
    strings = every_string(6)
    depth = [1, 0, -1, 0, 1, 0]
    assert strings.depth[row].tolist() == depth
    literal = readings.circuit_literal(strings)
    assert literal.contributions[row].tolist() == [[0, 0], [0, 0], [0, 1], [0, 0], [0, 0], [0, 0]]
    charitable = readings.circuit_charitable(strings)
    assert charitable.contributions[row, :, 0].tolist() == [1, -1, -1, 1, 1, -1]
    assert readings.opener_flags(strings)[row].tolist() == [0, 0, 0, 1, 0, 0]
    assert readings.opener_flags(strings)[int("110000", 2)].tolist() == [1, 1, 1, 1, 0, 0]
    assert readings.matched_pairs(strings).contributions[row, :, 0].tolist() == [0, 1, 0, 0, 0, 1]
    assert readings.falls_below_zero(strings).contributions[row, :, 1].tolist() == [0, 0, 1, 0, 0, 0]
    run = readings.longest_run(strings)
    assert run.contributions[row, :, 0].tolist() == [0, 0, 0, 0, 0, 2]


def test_parts_differ_in_one_sum_only():
    strings = every_string(N)
    reading = readings.circuit_charitable(strings)
    total, flags = parts(reading)
    assert torch.equal(total.sums, reading.sums)
    assert torch.equal(flags.sums, reading.sums)
    assert torch.equal(flags.contributions, readings.flags_charitable(strings).contributions)
    assert flags.equal is not None
    assert torch.equal(flags.equal == flags.equal[:1], strings.tokens == strings.tokens[:1])


# Pairs


def kinds_of_all_pairs(reading, position, n, pooled=False):
    """The kind of each pair of strings, in order, by definition."""
    found = {kind: set() for kind in KINDS}
    contributions, sums, goals = reading.contributions.tolist(), reading.sums.tolist(), list(reading.goals)
    equal = None if reading.equal is None else reading.equal.tolist()
    shift = 0 if pooled else n - 1 - position
    sources = range(0, 2**n, 1 if pooled or not reading.causal else 2**shift)
    for base in range(2**n):
        fixable = False
        same = set()
        for source in sources:
            if equal is not None and equal[base][position] != equal[source][position]:
                continue
            ours, new = contributions[base][position], contributions[source][position]
            after = [total - old + added for total, old, added in zip(sums[base], ours, new, strict=True)]
            is_balanced, becomes = sums[base] == goals, after == goals
            differ = base >> shift != source >> shift  # else the interchange does nothing
            if ours == new:
                same |= {(base, source)} if differ else set()
                continue
            if reading.only_possible and after not in sums:
                continue
            fixable |= not is_balanced and becomes
            if differ and is_balanced != becomes:
                found["to balanced" if becomes else "to unbalanced"].add((base, source))
        if sums[base] == goals:
            found["placebo, balanced"] |= same
        elif fixable:
            found["placebo, unbalanced"] |= same
    return found


@pytest.mark.parametrize("name", READINGS)
def test_all_pairs_are_those_of_the_definition(name):
    n = 4
    reading = READINGS[name](every_string(n))
    for groups in groups_by_position(reading, n=n):
        wanted = kinds_of_all_pairs(reading, groups.position, n)
        for kind in KINDS:
            pairs = groups.every_pair(kind)
            listed = list(zip(pairs.base.tolist(), pairs.source.tolist(), strict=True))
            assert len(set(listed)) == len(listed)
            assert set(listed) == wanted[kind]


def test_only_sums_that_occur_count():
    strings = every_string(4)
    reading = readings.pooled_possible(strings, strings.violations, moved=(True, False), name="total")
    (groups,) = groups_by_position(reading, n=4, pooled=True)
    wanted = kinds_of_all_pairs(reading, 0, 4, pooled=True)
    for kind in KINDS:
        pairs = groups.every_pair(kind)
        assert set(zip(pairs.base.tolist(), pairs.source.tolist(), strict=True)) == wanted[kind]
    flips = groups.every_pair("to unbalanced")
    assert (strings.total[flips.source] > 0).all()  # a final depth below zero has violations


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_pairs_are_uniform_within_positions(kind):
    reading = readings.circuit_charitable(every_string(4))
    groups = groups_by_position(reading, n=4)
    pairs = choose_pairs(groups, kind, limit=20_000, seed=0)
    for group in groups:
        every = group.every_pair(kind)
        if not len(every):
            continue
        here = pairs.position == group.position
        keys, counts = torch.stack([pairs.base[here], pairs.source[here]]).unique(dim=1, return_counts=True)
        listed = set(zip(every.base.tolist(), every.source.tolist(), strict=True))
        assert set(map(tuple, keys.T.tolist())) == listed
        expected = counts.sum() / len(listed)
        assert ((counts - expected).abs() < 5 * expected**0.5).all()
    again = choose_pairs(groups, kind, limit=20_000, seed=0)
    assert torch.equal(again.base, pairs.base)
    assert not torch.equal(choose_pairs(groups, kind, limit=20_000, seed=1).base, pairs.base)


def test_a_reading_without_pairs_has_none():
    strings = every_string(4)
    nothing = Reading(name="nothing", contributions=torch.zeros(16, 4, 2, dtype=torch.long))
    groups = groups_by_position(nothing, n=4)
    for limit in (None, 10):
        assert len(choose_pairs(groups, "to balanced", limit=limit, seed=0)) == 0
    subject = subject_of("literal", 4)
    score = score_reading(subject, nothing, "block 1", whole, states_at(subject, "block 1"), limit=None, seed=0)
    assert score.lowest == (0, 0, 0)  # it answers wrongly
    assert score.n_wrong == 14
    assert len(strings.tokens) == 16


# Interchanges


@pytest.mark.parametrize("site", HOOK_POINTS)
def test_answers_are_those_of_a_whole_pass_with_a_hook(site):
    model = PooledTransformer(PooledConfig(n_ctx=N), seed=5)
    with torch.no_grad():
        balance = model(every_string(N).tokens)[:, 0]
        model.unembed.bias[0] += (balance[:, 1] - balance[:, 0]).median()  # so that both answers occur
    subject = Subject(model.eval(), N)
    reading = readings.circuit_charitable(every_string(N))
    if site == "pooled":
        reading = readings.pooled_both(every_string(N))
    groups = groups_by_position(reading, n=N, pooled=site == "pooled")
    pairs = choose_pairs(groups, "to balanced", limit=300, seed=0)
    states = states_at(subject, site)

    def edit(base, source):
        return 0.5 * base + 2 * source

    answers = subject.answers(pairs, site, states, edit)
    wanted = []
    rows = torch.stack([pairs.base, pairs.source, pairs.position], 1)
    for base, source, position in rows.tolist():
        place = () if site == "pooled" else (position,)

        def replace(value, hook, place=place, base=base, source=source):
            value = value.clone()
            value[(0, *place)] = edit(states[(base, *place)], states[(source, *place)])
            return value

        tokens = subject.strings.tokens[base][None]
        logits = model.run_with_hooks(tokens, fwd_hooks=[(HOOK_POINTS[site], replace)])
        wanted.append(bool(logits[0, 0].argmax() == 1))
    assert answers.tolist() == wanted
    assert 0 < sum(wanted) < len(wanted)


def test_the_source_s_whole_string_gives_the_source_s_answer():
    subject = subject_of("charitable")
    reading = readings.pooled_both(subject.strings)
    score = score_reading(subject, reading, "pooled", whole, states_at(subject, "pooled"), limit=None, seed=0)
    assert score.lowest == (1, 1, 1)


def test_planted_directions_are_found_and_moved_alone():
    draw = torch.Generator().manual_seed(0)
    variables = torch.randint(-3, 4, (400, 5, 2), generator=draw)
    directions = torch.randn(2, 8, generator=draw, dtype=torch.float64)
    noise = 0.5 * torch.randn(400, 5, 8, generator=draw, dtype=torch.float64)
    means = torch.randn(5, 8, generator=draw, dtype=torch.float64)
    states = means + variables.double() @ directions + noise
    fitted = fit_directions(states, variables)
    assert torch.allclose(fitted.encodings, directions, atol=5 * 0.5 / (2000 * 4) ** 0.5)
    assert torch.allclose(fitted.encodings @ fitted.readers, torch.eye(2, dtype=torch.float64), atol=1e-8)
    base, source = states[:50, 2], states[50:100, 2]
    moved = fitted.move([0])(base, source)
    assert torch.allclose(moved @ fitted.readers[:, 0], source @ fitted.readers[:, 0])
    assert torch.allclose(moved @ fitted.readers[:, 1], base @ fitted.readers[:, 1])
    assert torch.linalg.matrix_rank((moved - base).float(), rtol=1e-4) == 1
    # Probes: the smallest change, which is in the span of the probes
    moved = fitted.move_probes([1])(base, source)
    assert torch.allclose(moved @ fitted.probes[:, 1], source @ fitted.probes[:, 1])
    assert torch.allclose(moved @ fitted.probes[:, 0], base @ fitted.probes[:, 0])
    span = torch.linalg.qr(fitted.probes)[0]
    assert torch.allclose((moved - base) @ span @ span.T, moved - base, atol=1e-8)


def test_directions_do_not_depend_on_the_basis():
    subject = subject_of("charitable")
    states = states_at(subject, "block 1")
    rotation = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(1)))[0]
    variables = position_variables(subject.strings)
    plain, rotated = fit_directions(states, variables), fit_directions(states @ rotation, variables)
    assert torch.allclose(plain.encodings @ rotation.double(), rotated.encodings, atol=1e-4)
    pooled = fit_directions(states_at(subject, "pooled"), pooled_variables(subject.strings))
    assert pooled.encodings.shape == (2, 32)


def test_squared_correlation_is_that_of_numpy():
    draw = torch.Generator().manual_seed(0)
    states = torch.randn(300, 4, generator=draw)
    variable = (2 * states[:, 1] + torch.randn(300, generator=draw)).round().long()
    design = np.concatenate([states.numpy(), np.ones((300, 1))], 1)
    fitted = design @ np.linalg.lstsq(design, variable.numpy(), rcond=None)[0]
    wanted = np.corrcoef(fitted, variable.numpy())[0, 1] ** 2
    assert squared_correlation(states, variable) == pytest.approx(wanted, abs=1e-9)


def test_hyperplanes():
    draw = torch.Generator().manual_seed(0)
    points = torch.randn(3000, 5, generator=draw)
    score = points @ torch.tensor([1.0, -2, 0, 0.5, 0]) - 0.3
    points, score = points[score.abs() > 0.01], score[score.abs() > 0.01]
    assert separable(points, score > 0)
    spoiled = score > 0
    spoiled[int(score.argmax())] = False
    assert not separable(points, spoiled)
    corners = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    assert separable(corners, torch.tensor([False, False, False, True]))
    assert not separable(corners, torch.tensor([False, True, True, False]))


# Verdicts


@pytest.mark.parametrize("wiring", ["literal", "charitable"])
@pytest.mark.parametrize("site", ["block 0", "block 1"])
def test_only_the_reading_that_is_true_of_a_handwritten_model_is_found(wiring, site):
    subject = subject_of(wiring, 8)
    values = {
        interchanged: score_statement(subject, "circuit", interchanged, site, limit=None, seed=0)
        for interchanged in ("literal", "charitable", "directions")
    }
    found = {name for name, score in values.items() if score.found}
    assert found == ({"literal"} if wiring == "literal" else {"charitable", "directions"})
    assert all(share.exact for share in values[wiring].shares.values())
    assert values[wiring].lowest == (1, 1, 1)
    drawn_score = score_statement(subject, "circuit", wiring, site, limit=500, seed=0)
    assert drawn_score.found
    assert not any(share.exact for share in drawn_score.shares.values())


def test_each_statement_on_the_charitable_model():
    subject = subject_of("charitable", 8)

    def value(statement, interchanged, site: Site = "block 1"):
        return score_statement(subject, statement, interchanged, site, limit=None, seed=0).lowest[0]

    for statement in ("flags", "total"):
        assert value(statement, "charitable") == value(statement, "directions") == 1
        assert value(statement, "literal") < BAR
    assert value("flags", "charitable", "attention 0") == 1
    for statement in ("pooled total", "pooled violations", "pooled both"):
        assert value(statement, "directions", "pooled") == value(statement, "probes", "pooled") == 1
    assert (
        min(score.lowest[0] for score in score_one_kind(subject, "openers", "states", "block 1", limit=None, seed=0))
        < BAR
    )


@pytest.mark.parametrize("wiring", ["literal", "charitable"])
def test_false_mechanisms_are_refused(wiring, monkeypatch):
    monkeypatch.setattr("verified_circuits.measures.MECHANISM_PAIRS", 400)
    frame = false_mechanisms_refused(subject_of(wiring, 6), seed=0, n_seeds=2)
    assert frame["refused"].tolist() == [True] * 2 * len(FALSE_MECHANISMS)
    assert list(frame["mechanism"].unique()) == list(FALSE_MECHANISMS)


def test_a_true_mechanism_among_the_false_ones_is_not_refused(monkeypatch):
    planted = {"true": lambda strings, draw: readings.circuit_charitable(strings)}
    monkeypatch.setattr("verified_circuits.measures.FALSE_MECHANISMS", planted)
    monkeypatch.setattr("verified_circuits.measures.MECHANISM_PAIRS", 400)
    for each_sum in (True, False):
        frame = false_mechanisms_refused(subject_of("charitable", 6), seed=0, n_seeds=1, each_sum=each_sum)
        assert frame["refused"].tolist() == [False]


def score_of(*values, n_wrong=0, half=0.0):
    """A score from the shares of the four kinds."""
    shares = [
        Share(value=value, low=value - half, high=value + half, n=10, by_position={0: (value, 10)}) for value in values
    ]
    return Score(reading="", site="", shares=dict(zip(KINDS, shares, strict=False)), n_wrong=n_wrong)


def test_flips_and_placebos_both_count():
    assert score_of(1, 0.5, 1, 1).lowest[0] == 0.75
    assert score_of(1, 1, 0.6, 1).lowest[0] == 0.8
    assert score_of(1, 1, 1, 1, n_wrong=1).lowest == (0, 0, 0)
    assert score_of(1, 1).lowest == (0, 0, 0)  # no placebo
    value, low, high = score_of(0.9, 0.96, 1, 1, half=0.02).lowest
    assert (value, high - value, value - low) == pytest.approx((0.93, 0.02 / 2**0.5, 0.02 / 2**0.5))


def test_the_whole_interval_is_at_the_bar():
    assert score_of(BAR, BAR, 1, 1).found
    assert not score_of(BAR, BAR, 1, 1, half=0.01).found
    assert not score_of(BAR - 0.01, BAR, 1, 1).found


@pytest.mark.parametrize("answer", [0, 1])
def test_a_constant_answer_is_no_success(answer):
    model = handwritten_circuit(N, "charitable")
    with torch.no_grad():
        model.unembed.weight.zero_()
        model.unembed.bias.zero_()
        model.unembed.bias[answer] = 1
    score = score_statement(Subject(model, N), "circuit", "charitable", "block 1", limit=None, seed=0)
    assert score.lowest[0] == 0.5
    assert not score.found


def test_the_measurement_of_a_score():
    subject = subject_of("literal", N)

    def measurement_of(limit):
        score = score_statement(subject, "circuit", "charitable", "block 1", limit=limit, seed=0)
        judge = Row(VALUE, unit="pairs", units=PAIRS, exact=limit is None)
        return judge.measurement(readings_of([score]), seed=0)

    exact = measurement_of(None)
    assert exact.exact
    assert exact.low == exact.high == exact.value < BAR
    flips = (exact.numbers["to balanced"] + exact.numbers["to unbalanced"]) / 2
    placebos = (exact.numbers["placebo, balanced"] + exact.numbers["placebo, unbalanced"]) / 2
    assert exact.value == pytest.approx(min(flips, placebos))
    assert exact.n == sum(exact.numbers[f"{kind}, pairs"] for kind in KINDS)
    assert [title for title, _ in exact.tables] == ["Shares of pairs with the predicted answer", "By position"]
    drawn_pairs = measurement_of(400)
    assert not drawn_pairs.exact
    assert drawn_pairs.low < drawn_pairs.value < drawn_pairs.high
    assert set(BECOMES_BALANCED) == set(KINDS)
