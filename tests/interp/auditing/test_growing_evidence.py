"""Evidence over several looks: p values under optional stopping, and the number of sequences that would decide."""

import numpy as np
import pytest
import torch

import interp
from interp.auditing.experiments import Effects, HeadExperiments
from interp.auditing.interventions import (
    CANCELLING,
    LABEL_TESTS,
    MOSTLY_SHARED,
    NEEDED_IN,
    ON_UNDECIDED_HEADS,
    TESTED,
)
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
from interp.auditing.strata import strata_of
from interp.auditing.verdicts import decide, facts_about_heads
from interp.known_answers import known_answer

ALPHA, BAR = 0.05, np.array([0.1])
HEADS = [(0, 0), (0, 1), (0, 2)]
FACTORS = corrections(3, 3, 0)
OF_SETS = (NEEDED_IN, MOSTLY_SHARED, CANCELLING)
QUESTIONS = ("matters", "harmless", "more_than_little", "limited")


def test_planned_looks():
    assert planned_looks(100, 1024) == [100]
    assert planned_looks("enough", 1024) == [128, 256, 512, 1024]
    assert planned_looks("enough", 700) == [128, 256, 512, 700]
    assert planned_looks("enough", 100) == [100]
    assert planned_looks("all", 100, 64) == [64]
    for n, limit, words in ((7, 9, "n is 7; at least 8"), ("every", 9, "n is 'every'; give a number of sequences, 'en"),
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
    return drop | {name: np.zeros((n, 0, 1)) for name in OF_SETS}


def effects_of(drop):
    return Effects(np.ones((len(drop["mean"]), 1)), drop)


def evidence_of(drop, looks):
    return GrowingEvidence.of(effects_of(drop), BAR, looks=looks, factors=FACTORS)


NO_SETS = HeadSets(
    needed_in={}, harmless={}, largest_harmless=(), smallest_costly=(), exact=True, n_removals=0, n_pairs=0
)
NOT_DOUBTFUL = {"zero": (), "mean": (), "resample": ()}


def judged(p):
    facts = facts_about_heads(
        p,
        dict.fromkeys(HEADS, "none"),
        NO_SETS,
        losses=np.zeros((len(HEADS), 1)),
        doubtful=NOT_DOUBTFUL,
        strata={},
        at_chance=False,
        alpha=ALPHA,
    )
    return [decide(head) for head in facts]


def is_decided(p):
    return [decision.verdict != "undecided" for decision in judged(p)]


def test_one_look_gives_the_corrected_p_values():
    drop = losses(0.3, 60, 0)
    found = evidence_of(drop, [60])
    whole = uncorrected_p_values(effects_of(drop), BAR)
    for kind in QUESTIONS:
        assert set(getattr(whole, kind)) == {*TESTED, *OF_SETS}
        for name, values in getattr(whole.times(FACTORS), kind).items():
            np.testing.assert_array_equal(getattr(found.p, kind)[name], values)


def test_a_p_value_is_the_smallest_so_far_divided_by_the_share_of_its_look():
    """Every sequence of the first look loses an answer, no sequence of the second does."""
    first, second = losses(1.1, 40, 0), losses(0.0, 400, 1)
    tested = (*TESTED, *OF_SETS)
    found = evidence_of(first, [40, 440, 500]).with_look(effects_of(second))
    assert found.effects.n("mean").tolist() == [440] * 3
    both = {name: np.concatenate([first[name], second[name]]) for name in tested}
    looks = [uncorrected_p_values(effects_of(drop), BAR) for drop in (first, both)]
    smallest = {}
    for kind in QUESTIONS:
        raw = {name: np.minimum(*(getattr(look, kind)[name] / 0.05 for look in looks)) for name in tested}
        smallest[kind] = {name: np.minimum(one, 1) for name, one in raw.items()}
    wanted = PValues(**smallest).times(FACTORS)
    for kind in QUESTIONS:
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


@pytest.mark.parametrize(
    ("rate", "questions"), [(0.1, ("matters", "harmless")), (0.025, ("more_than_little",)), (0.2, ("limited",))]
)
def test_the_level_holds_if_one_stops_at_the_first_significant_look(rate, questions):
    """At a loss of exactly the threshold, a quarter of it, or twice it, these hypotheses are true."""
    alarms, tries, names = dict.fromkeys(questions, 0), 60, ("mean", "uniform", "ideal")
    for seed in range(tries):
        found = None
        for look, n in enumerate((64, 64, 128)):
            drop = {name: values for name, values in losses(rate, n, 1000 * seed + look).items() if name in names}
            found = evidence_of(drop, [64, 128, 256]) if found is None else found.with_look(effects_of(drop))
        for question in questions:  # the smallest p value so far
            alarms[question] += any((getattr(found.p, question)[name] <= ALPHA).any() for name in names)
    assert max(alarms.values()) <= tries * ALPHA + 3 * np.sqrt(tries * ALPHA * (1 - ALPHA))


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


@pytest.mark.parametrize("lost", [0, 10, 20, 40, 60, 80, 120, 400])
def test_every_loss_is_decided_by_some_number(lost):
    """Also one of exactly the threshold, 40 of 400, a quarter of it, or twice it."""
    drop = losses(0.0, 400, 0)
    drop["mean"][:lost, 0] = 1
    found = evidence_of(drop, [400])
    if not is_decided(found.p)[0]:
        number = found.n_to_decide(is_decided)[0]
        assert number is not None
        (decision, *_) = judged(found.p_after(1.02 * number / 400))
        assert decision.verdict == ("idle" if lost < 10 else "marginal" if lost <= 80 else "hidden")


def test_a_loss_at_the_threshold_is_about_as_much_as_counts():
    drop = losses(0.0, 400, 0)
    drop["mean"][:40, 0] = 1
    (decision, *_) = judged(evidence_of(drop, [400]).p)
    assert (decision.verdict, decision.reason) == ("marginal", "about as much as counts")


def test_no_number_decides_below_the_error_of_the_test():
    """Without a single loss p is at most 1e-12."""
    found = evidence_of(losses(0.0, 60, 0), [60])
    harmless = lambda p: [(values <= 1e-13).all() for values in p.harmless["mean"]]  # noqa: E731
    assert found.n_to_decide(harmless) == [None] * 3


# audits


@pytest.mark.parametrize(("alpha", "sizes"), [(1e-12, (256, 1000)), (1e-18, (512, 1000))])
def test_an_audit_continues_with_the_undecided_heads_until_the_limit(alpha, sizes):
    """At levels so strict that one head needs more sequences than the other, or that no number is enough."""
    known = known_answer("template same", 0)
    found = interp.audit(known.model, known.task, n="enough", limit=1000, alpha=alpha)
    assert found.n_looks == 4
    assert tuple(sorted(head.n for head in found.heads)) == sizes
    for head in found.heads:
        assert head.verdict == (known.heads[head.place].truth if head.n < 1000 else "undecided")
        still_tried = (*ON_UNDECIDED_HEADS, *LABEL_TESTS)
        assert all(cost.n == head.n for name, cost in head.costs.items() if name in still_tried)
    assert found.n == max(sizes)
    assert f"{sizes[0]} to 1000 ({found.n_distinct} distinct) sequences, level {alpha:g} (Bonferroni, 4 looks)" in str(
        found
    )
    assert found.to_dataframe()["n"].tolist() == [head.n for head in found.heads]
    (warning,) = found.warnings
    assert warning.startswith("1 head undecided after 1,000 sequences, where limit=1000 ended the audit")


STRICT = {"n": "enough", "limit": 1000, "alpha": 1e-12}
"""An audit that is not decided within its limit; its first look has 256 sequences."""


def test_without_time_for_a_second_look_there_is_none():
    known = known_answer("template same", 0)
    found = interp.audit(known.model, known.task, seconds=0.001, **STRICT)
    assert {head.n for head in found.heads} == {found.n} == {256}
    (warning,) = found.warnings
    assert warning.startswith("1 head undecided after 256 sequences, where the time (seconds) ended the audit")


@pytest.mark.parametrize(("seconds", "n"), [(60.0, 256), (1e9, 1000), (None, 1000)])
def test_a_look_that_would_end_too_late_is_not_begun(seconds, n, monkeypatch):
    """By a clock on which each look takes more than a minute; without a number of seconds it does not matter."""
    clock = iter(range(0, 10**9, 100))
    for module in ("audit", "steps"):
        monkeypatch.setattr(f"interp.auditing.{module}.perf_counter", lambda: float(next(clock)))
    known = known_answer("template same", 0)
    assert interp.audit(known.model, known.task, seconds=seconds, **STRICT).n == n


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_time_must_be_above_nothing(seconds):
    known = known_answer("template copy, zero decoy", 0)
    with pytest.raises(ValueError, match=f"seconds is {seconds}; "):
        interp.audit(known.model, known.task, seconds=seconds)


def test_by_default_an_audit_grows_until_it_decides():
    known = known_answer("template copy, zero decoy", 0)
    default = interp.audit(known.model, known.task)
    assert default.n == FIRST_LOOK
    assert default.n_looks == len(planned_looks("enough", 4096)) == 6
    assert default.warnings == ()
    assert "undecided" not in {head.verdict for head in default.heads}


def test_every_look_has_sequences_of_its_own(monkeypatch):
    known = known_answer("template same", 0)
    looks, run = [], HeadExperiments.effects

    def effects(experiments, *arguments, **options):
        # Sequences of the search for a kind are of another split
        is_search = len(experiments.batch) < FIRST_LOOK
        if not is_search and (not looks or looks[-1] is not experiments.batch.tokens):
            looks.append(experiments.batch.tokens)
        return run(experiments, *arguments, **options)

    monkeypatch.setattr(HeadExperiments, "effects", effects)
    found = interp.audit(known.model, known.task, n="enough", limit=1000, alpha=1e-12)
    assert len(looks) == 3
    assert not torch.equal(looks[0][:50], looks[1][:50])
    assert found.n_distinct == len(torch.cat(looks).unique(dim=0)) > 256


def test_the_accuracy_is_that_of_all_looks(monkeypatch):
    """Of a model that is wrong now and then: it is not that of the first look, which costs on more would contradict."""
    known = known_answer("template same", 0)
    embedding = next(known.model.embed.parameters())
    with torch.no_grad():
        embedding += 0.02 * torch.randn(embedding.shape, generator=torch.Generator().manual_seed(0))
    runs = []

    def recorded_strata(task, all_runs, indices):
        runs.extend(all_runs)
        return strata_of(task, all_runs, indices)

    monkeypatch.setattr("interp.auditing.audit.strata_of", recorded_strata)
    result = interp.audit(known.model, known.task, **STRICT)
    right, total = (torch.cat([getattr(run.score, name) for run in runs]).sum(0) for name in ("right", "total"))
    assert len(runs) == 3
    assert result.clean == pytest.approx(right / total)
    assert runs[0].score.right.mean() != runs[1].score.right.mean()


def test_an_audit_that_needs_one_look_has_the_numbers_of_that_look():
    known = known_answer("template copy, zero decoy", 0)
    one, enough = (interp.audit(known.model, known.task, n=n) for n in (FIRST_LOOK, "enough"))
    assert enough.n == one.n == FIRST_LOOK
    for first, second in zip(one.heads, enough.heads, strict=True):
        assert first.verdict == second.verdict
        assert {name: cost.drop for name, cost in first.costs.items()} == {
            name: cost.drop for name, cost in second.costs.items()
        }
