"""Evidence over several looks: p values under optional stopping, and the number of sequences that would decide."""

import numpy as np
import pytest
import torch

import interp
from interp.auditing.experiments import Effects, HeadExperiments
from interp.auditing.interventions import CANCELLING, NEEDED_IN, TESTED
from interp.auditing.sets import HeadSets
from interp.auditing.significance import (
    FIRST_LOOK,
    GrowingEvidence,
    PValues,
    corrections,
    planned_looks,
    share_of_look,
    uncorrected_p_values,
)
from interp.auditing.verdicts import decide, facts_about_heads
from interp.known_answers import known_answer

ALPHA, BAR = 0.05, np.array([0.1])
HEADS = [(0, 0), (0, 1), (0, 2)]
FACTORS = corrections(3, 3, 0)


def test_planned_looks():
    assert planned_looks(100, 1024) == [100]
    assert planned_looks("enough", 1024) == [256, 512, 1024]
    assert planned_looks("enough", 700) == [256, 512, 700]
    assert planned_looks("enough", 100) == [100]
    for n, limit, words in ((7, 9, "n is 7; at least 8"), ("all", 9, "n is 'all'; give a number of sequences or"),
                            ("enough", 7, "limit is 7; at least 8")):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            planned_looks(n, limit)


def test_the_shares_of_all_looks_are_the_level():
    assert share_of_look(256, [256]) == 1
    shares = [share_of_look(size, [256, 512, 1024]) for size in (256, 512, 1024)]
    assert shares == pytest.approx([0.05, 0.05, 0.9])


def losses(rate, n, seed):
    """Answers lost by three heads under every intervention, one answer a sequence, and no sets."""
    rng = np.random.default_rng(seed)
    drop = {name: (rng.random((n, 3, 1)) < rate).astype(float) for name in TESTED}
    return drop | {name: np.zeros((n, 0, 1)) for name in (NEEDED_IN, CANCELLING)}


def effects_of(drop):
    return Effects(np.ones((len(drop["mean"]), 1)), drop)


def evidence_of(drop, looks):
    return GrowingEvidence.of(effects_of(drop), BAR, looks=looks, factors=FACTORS)


NO_SETS = HeadSets(needed_in={}, harmless={}, largest_harmless=(), smallest_costly=(), exact=True, n_removals=0)
NOT_DOUBTFUL = {"zero": (), "mean": (), "resample": ()}


def judged(p):
    facts = facts_about_heads(p, HEADS, NO_SETS, labelled=(), doubtful=NOT_DOUBTFUL, at_chance=False, alpha=ALPHA)
    return [decide(head) for head in facts]


def is_decided(p):
    return [decision.verdict != "undecided" for decision in judged(p)]


def test_one_look_gives_the_corrected_p_values():
    drop = losses(0.3, 60, 0)
    found = evidence_of(drop, [60])
    whole = uncorrected_p_values(effects_of(drop), BAR)
    for kind in ("matters", "harmless"):
        assert set(getattr(whole, kind)) == {*TESTED, NEEDED_IN, CANCELLING}
        for name, values in getattr(whole.times(FACTORS), kind).items():
            np.testing.assert_array_equal(getattr(found.p, kind)[name], values)


def test_a_p_value_is_the_smallest_so_far_divided_by_the_share_of_its_look():
    """Every sequence of the first look loses an answer, no sequence of the second does."""
    first, second = losses(1.1, 40, 0), losses(0.0, 400, 1)
    tested = (*TESTED, NEEDED_IN, CANCELLING)
    found = evidence_of(first, [40, 440, 500]).with_look(effects_of(second))
    assert found.effects.n("mean").tolist() == [440] * 3
    both = {name: np.concatenate([first[name], second[name]]) for name in tested}
    looks = [uncorrected_p_values(effects_of(drop), BAR) for drop in (first, both)]
    for kind in ("matters", "harmless"):
        raw = {name: np.minimum(*(getattr(look, kind)[name] / 0.05 for look in looks[:2])) for name in tested}
        looks.append({name: np.minimum(one, 1) for name, one in raw.items()})
    wanted = PValues(matters=looks[2], harmless=looks[3]).times(FACTORS)
    for kind in ("matters", "harmless"):
        for name in tested:
            np.testing.assert_allclose(getattr(found.p, kind)[name], getattr(wanted, kind)[name], rtol=1e-12)
    assert found.p.matters["mean"].max() < 1e-6  # by the first look


def test_heads_that_are_left_out_keep_their_p_values_and_their_numbers():
    found = evidence_of(losses(0.3, 64, 0), [64, 128])
    before = found.p
    more = losses(0.3, 64, 1)
    for name in TESTED:
        more[name][:, 1:] = np.nan
    found = found.with_look(effects_of(more))
    assert found.effects.n("mean").tolist() == [128, 64, 64]
    assert (found.p.matters["mean"][1:] == before.matters["mean"][1:]).all()
    drop, low, high = found.intervals("mean")
    assert drop[0, 0] == pytest.approx(np.concatenate([losses(0.3, 64, s)["mean"][:, 0] for s in (0, 1)]).mean())
    assert drop[1, 0] == pytest.approx(losses(0.3, 64, 0)["mean"][:, 1].mean())
    assert (high - low)[0, 0] < (high - low)[1, 0]


@pytest.mark.parametrize(("rate", "kind"), [(0.1, "matters"), (0.1, "harmless")])
def test_the_level_holds_if_one_stops_at_the_first_significant_look(rate, kind):
    """At a loss of exactly the threshold, both hypotheses are true."""
    alarms, tries = 0, 60
    for seed in range(tries):
        found = None
        for look, n in enumerate((64, 64, 128)):
            drop = losses(rate, n, 1000 * seed + look)
            found = evidence_of(drop, [64, 128, 256]) if found is None else found.with_look(effects_of(drop))
            if any((getattr(found.p, kind)[name] <= ALPHA).any() for name in TESTED):
                alarms += 1
                break
    assert alarms <= tries * ALPHA + 3 * np.sqrt(tries * ALPHA * (1 - ALPHA))


def test_the_number_that_would_decide_a_head_does():
    """If further sequences are like those so far: the sample repeated that often decides, half of it does not."""
    n, drop = 64, losses(0.0, 64, 0)
    for name in TESTED:
        drop[name][:8, 0], drop[name][:5, 1], drop[name][:60, 2] = 1, 1, 1  # 12.5 %, 8 %, 94 %
    found = evidence_of(drop, [n])
    few, more, none = found.n_to_decide(is_decided)
    assert [one.verdict for one in judged(found.p)] == ["undecided", "undecided", "hidden"]
    assert none is None
    for at, enough in ((0, few), (1, more)):
        for times, decided in ((enough / n * 1.02, True), (enough / n / 1.3, False)):
            assert (judged(found.p_after(times))[at].verdict != "undecided") == decided
    whole = 200
    repeated = evidence_of({name: np.repeat(values, whole, 0) for name, values in drop.items()}, [n * whole])
    assert judged(repeated.p) == judged(found.p_after(float(whole)))


def test_no_number_decides_a_loss_at_the_threshold():
    drop = losses(0.0, 60, 0)
    drop["mean"][:6, 0] = 1
    found = evidence_of(drop, [60])
    assert found.n_to_decide(is_decided)[0] is None


# audits


@pytest.fixture
def few_untrained(monkeypatch):
    """At such levels labels would need many untrained models."""
    monkeypatch.setattr("interp.heads.untrained.MOST_MODELS", 19)


@pytest.mark.parametrize(("alpha", "sizes"), [(1e-12, (256, 1000)), (1e-18, (512, 1000))])
@pytest.mark.usefixtures("few_untrained")
def test_an_audit_continues_with_the_undecided_heads_until_the_limit(alpha, sizes):
    """At levels so strict that one head needs more sequences than the other, or that no number is enough."""
    known = known_answer("template same", 0)
    found = interp.audit(known.model, known.task, n="enough", limit=1000, alpha=alpha)
    assert found.n_looks == 3
    assert tuple(sorted(head.n for head in found.heads)) == sizes
    for head in found.heads:
        assert head.verdict == (known.heads[head.place].truth if head.n < 1000 else "undecided")
        assert all(cost.n == head.n for name, cost in head.costs.items() if name in TESTED)
    assert found.n == max(sizes)
    assert f"{sizes[0]} to 1000 ({found.n_distinct} distinct) sequences, level {alpha:g} (Bonferroni, 3 looks)" in str(
        found
    )
    assert found.to_dataframe()["n"].tolist() == [head.n for head in found.heads]


@pytest.mark.usefixtures("few_untrained")
def test_every_look_has_sequences_of_its_own(monkeypatch):
    known = known_answer("template same", 0)
    looks, run = [], HeadExperiments.effects

    def effects(experiments, *arguments, **options):
        if not looks or looks[-1] is not experiments.batch.tokens:
            looks.append(experiments.batch.tokens)
        return run(experiments, *arguments, **options)

    monkeypatch.setattr(HeadExperiments, "effects", effects)
    found = interp.audit(known.model, known.task, n="enough", limit=1000, alpha=1e-12)
    assert len(looks) == 3
    assert not torch.equal(looks[0][:50], looks[1][:50])
    assert found.n_distinct == len(torch.cat(looks).unique(dim=0)) > 256


def test_an_audit_that_needs_one_look_has_the_numbers_of_that_look():
    known = known_answer("template copy, zero decoy", 0)
    one, enough = (interp.audit(known.model, known.task, n=n) for n in (FIRST_LOOK, "enough"))
    assert enough.n == one.n == FIRST_LOOK
    for first, second in zip(one.heads, enough.heads, strict=True):
        assert first.verdict == second.verdict
        assert {name: cost.drop for name, cost in first.costs.items()} == {
            name: cost.drop for name, cost in second.costs.items()
        }
