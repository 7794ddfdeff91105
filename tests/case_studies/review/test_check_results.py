"""A check measures again and compares: equal bit for bit, within the stored interval, or different, with the cause."""

import json
from dataclasses import replace
from functools import partial

import pytest
import toys
from toys import CLAIMS, DRAWN, FAILING, PASSING, STUDY, specs

from case_studies.frame.measurement import Measurement
from case_studies.frame.packs import Packs
from case_studies.frame.results import ClaimResult
from case_studies.frame.rules import Above
from case_studies.frame.stored import environments_once, read_results, with_environments
from case_studies.recipes.judges import Row
from case_studies.review.compare import _contradiction, check_claim


def times(readings, factor):
    """The same readings with another number."""
    return replace(readings, frame=readings.frame.assign(value=readings.frame["value"] * factor))


def scaled(evidence, by=1.0):
    """What `toys.drawn` measures, times a factor."""
    return times(toys.drawn(evidence), by)


def biased(evidence):
    """The same with a planted error of 1 %."""
    return scaled(evidence, by=1.01)


CLOCK = {"reading": 0.25}


def timed(evidence):
    return toys.one_row(CLOCK["reading"], CLOCK["reading"] - 0.05, CLOCK["reading"] + 0.05, n=10)


def broken(evidence):
    raise ZeroDivisionError("nothing to divide by")


def edited(folder, name="table-3.drawn", **changes):
    """Change what is stored of a claim; a name with dots is a path."""
    path = folder / "claims.json"
    content = with_environments(json.loads(path.read_text()))
    one = next(one for one in content["claims"] if one["id"] == name)
    for key, value in changes.items():
        *inner, last = key.split("__")
        part = one
        for step in inner:
            part = part[step]
        part[last] = value
    path.write_text(json.dumps(environments_once(content)))


@pytest.fixture
def shipped(finished, tmp_path):
    """The toy study with the results of a run as the shipped ones."""
    return replace(STUDY, shipped=(tmp_path / "toy/quick").rename(tmp_path / "shipped"))


@pytest.fixture
def check(tmp_path, trained):
    """Check a study; returns the comparisons by claim."""

    def run(study, **options):
        result = study.check(folder=tmp_path, n_jobs=1, **options)
        return result, {one.claim: one for one in result.comparisons}

    return run


def with_claim(study, claim):
    """The study with one claim replaced."""
    return replace(study, claims=[claim if one.id == claim.id else one for one in study.claims])


def test_an_unchanged_study_is_the_same_bit_for_bit(shipped, check, tmp_path, trained):
    result, found = check(shipped)
    statuses = {name: one.status for name, one in found.items()}
    assert statuses == {name: "same" for name in statuses if name != "table-4.large"} | {"table-4.large": "not shipped"}
    assert all(not one.causes and not one.reason for one in found.values() if one.status == "same")
    assert (result.passed, result.tally) == (True, "3 same, 0 differs, 1 not shipped")
    assert sorted(toys.MEASURED) == ["accuracy", "constant", "drawn"]
    assert trained == []  # the models of the run
    stored = json.loads((tmp_path / "toy/quick/check/check.json").read_text())
    assert stored == json.loads(json.dumps(result.to_dict()))
    assert not (tmp_path / "toy/quick/claims.json").exists()  # apart from ordinary runs


def test_nothing_measured_before_is_trusted_and_fresh_trains_too(shipped, check, trained):
    check(shipped)
    toys.MEASURED.clear()
    check(shipped)
    assert sorted(toys.MEASURED) == ["accuracy", "constant", "drawn"]
    result, _ = check(shipped, fresh=True)
    assert sorted(trained) == [0, 1, 2]
    assert result.passed  # trained again, to the same weights
    toys.MEASURED.clear()
    _, found = check(shipped, only=["table-3"])
    assert (list(found), toys.MEASURED) == (["table-3.drawn"], ["drawn"])


def test_a_planted_change_of_one_percent_is_flagged(shipped, check):
    result, found = check(with_claim(shipped, replace(DRAWN, measure=biased)))
    one = found["table-3.drawn"]
    assert (one.status, result.passed) == ("differs", False)
    assert one.reason == "another number, which nothing that has changed explains"
    assert one.measured["measured"] == pytest.approx(1.01 * one.stored["measured"])
    assert {other.status for other in result.comparisons if other is not one} == {"same", "not shipped"}
    assert str(result).endswith("2 same, 1 differs, 1 not shipped")


def test_so_is_one_in_code_that_the_measure_calls(reproduce, check, tmp_path, monkeypatch):
    study = with_claim(STUDY, replace(DRAWN, measure=scaled))
    reproduce(study)
    study = replace(study, shipped=(tmp_path / "toy/quick").rename(tmp_path / "shipped"))
    drawn = toys.drawn
    monkeypatch.setattr(toys, "drawn", lambda evidence: times(drawn(evidence), 1.01))
    _, found = check(study)
    assert found["table-3.drawn"].status == "differs"
    assert found["table-3.drawn"].causes == ()  # its source is the same: it was changed in memory
    edited(study.shipped, made__source={"version": "0.1.0", "commit": "0123456789ab", "changed": False})
    one = check(study)[1]["table-3.drawn"]  # another commit may give another number in the interval
    assert one.status == "within"
    assert one.causes[0].startswith("commit: 0123456789 stored, ")


def test_a_changed_option_of_a_measure_is_flagged(reproduce, check, tmp_path):
    study = with_claim(STUDY, replace(DRAWN, measure=partial(scaled, by=1.0)))
    reproduce(study)
    study = replace(study, shipped=(tmp_path / "toy/quick").rename(tmp_path / "shipped"))
    assert check(study)[0].passed
    result, found = check(with_claim(study, replace(DRAWN, measure=partial(scaled, by=1.01))))
    assert (found["table-3.drawn"].status, result.passed) == ("differs", False)


def test_a_planted_seed_is_within(shipped, check):
    result, found = check(shipped, seed=1)
    assert found["table-3.drawn"].status == "within"
    assert found["table-3.drawn"].causes == ("seed: 0 stored, 1 here",)
    assert found["table-3.drawn"].reason == "another number; the number is in the stored interval"
    assert found["figure-1.some"].status == "same"  # it draws nothing
    assert (result.passed, result.tally) == (True, "2 same, 1 within, 0 differs, 1 not shipped")


def test_a_planted_seed_of_a_model_is_named(shipped, check):
    study = replace(shipped, groups=lambda size: {**toys.groups(size), "few": specs(2, first=5)})
    _, found = check(study)
    one = found["figure-1.all"]
    assert one.status in ("differs", "same")
    if one.status == "differs":
        assert one.causes[0].startswith("settings of the models: seeds [0, 1] stored, [5, 6] here")


@pytest.mark.parametrize(
    ("changes", "status", "cause"),
    [
        ({"made__versions__torch": "1.0"}, "within", "versions: torch 1.0 stored, "),
        ({"made__threads": 64}, "within", "threads: 64 stored, 1 here"),
        ({"made__hardware__processor": "abacus"}, "within", "another processor: processor abacus stored, "),
        ({"made__trained__weights": "0"}, "differs", "weights of the models: 0 stored, "),
        ({"made__source__version": "0", "made__source__commit": None}, "within", "commit: version 0 stored, "),
        ({}, "differs", ""),
        ({"interval": [0.12, 0.125], "made__threads": 64}, "differs", "threads: 64 stored, 1 here"),
    ],
)
def test_what_may_change_a_number_and_what_may_not(shipped, check, changes, status, cause):
    edited(shipped.shipped, measured=0.123, **changes)
    result, found = check(shipped, only=["table-3"])
    one = found["table-3.drawn"]
    assert (one.status, result.passed) == (status, status == "within")
    assert one.causes[0].startswith(cause) if cause else one.causes == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"measured": 0.62, "interval": [0.2, 0.3]},
            r"measured is 0.62, outside its interval \[0.2, 0.3\]",
        ),
        ({"cost__cpu_seconds": "NaN"}, r"claims\[2\]\.cost\.cpu_seconds is 'NaN'; it must be a finite number"),
        ({"cost__seconds": None}, r"claims\[2\]\.cost\.seconds is None; it must be a finite number"),
        ({"cost__seconds": -1}, r"claims\[2\]\.cost\.seconds is -1.0; it must be at least 0"),
        ({"made__versions": ""}, r"claims\[2\]\.made\.versions is ''; it must be a mapping"),
        ({"made__threads": 1.5}, r"claims\[2\]\.made\.threads is 1.5; it must be an integer"),
        ({"n": 0}, r"claims\[2\]\.n is 0; it must be at least 1"),
        ({"surplus": 1}, r"claims\[2\] has unknown fields 'surplus'"),
        ({"id": "figure-1.all"}, "claims has 'figure-1.all' twice"),
        ({"verdict": "reproduced"}, r"claims\[2\] has unknown fields 'verdict'"),
        ({"made__versions": {}}, "versions is empty; a number says what measured it"),
        ({"made__time": ""}, "time is empty"),
        ({"made__hardware": {}}, "hardware is empty"),
        ({"interval": [0.1]}, r"claims\[2\]\.interval is \[0.1\]; it must have 2 elements"),
        ({"note": "\ud800"}, r"claims\[2\]\.note has a lone surrogate"),
    ],
)
def test_claims_with_a_wrong_field_are_named(shipped, check, changes, words):
    edited(shipped.shipped, **changes)
    with pytest.raises(ValueError, match=rf"the results in .*shipped cannot be read: .*{words}"):
        check(shipped)
    assert toys.MEASURED == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"seed": ', '"seed": 7, "seed": ', "the key 'seed' is there twice"),
        ('"threads": ', '"threads": "x", "other": ', "threads is 'x'|unknown fields 'other'"),
        ('"study": "toy"', '"study": NaN', "NaN is not a number of JSON"),
        ('"versions": {', '"versions": "", "more": {', "versions is ''|unknown fields 'more'"),
    ],
)
def test_a_manifest_of_claims_with_a_wrong_field_is_named(shipped, check, old, new, words):
    path = shipped.shipped / "claims.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=rf"the results in .*shipped cannot be read: .*({words})"):
        check(shipped)


def test_models_trained_elsewhere_are_an_expected_cause(shipped, check):
    stored = read_results(shipped.shipped, "toy")
    trained = next(one for one in stored.content["claims"] if one["id"] == "table-3.drawn")["made"]["trained"]
    weights = trained["weights"]
    trained["environments"][0]["threads"] = 48
    edited(shipped.shipped, measured=0.123, made__trained=trained | {"weights": "0"})
    _, found = check(shipped, only=["table-3"])
    assert found["table-3.drawn"].status == "within"
    assert found["table-3.drawn"].causes == (
        "weights of the models: 0 stored, " + weights + " here",
        "training: threads 48 stored, 1 here",
    )


def test_another_verdict_differs_even_in_the_interval(shipped, check):
    edited(shipped.shipped, name="figure-1.some", measured=0.2, interval=[0.05, 0.3], made__threads=9)
    _, found = check(shipped, only=["figure-1.some"])
    assert found["figure-1.some"].status == "differs"
    assert found["figure-1.some"].reason == "the verdict is reproduced, was inconclusive"
    stricter = with_claim(shipped, replace(PASSING, rule=Above(0.01)))  # today's rule judges both
    assert check(stricter, only=["figure-1.some"])[1]["figure-1.some"].status == "within"


def test_numbers_without_an_interval_may_differ_by_rounding_only(shipped, check):
    exact = replace(PASSING, judged=Row("value", unit="draws", exact=True))
    study = with_claim(shipped, exact)
    options = {"name": "figure-1.some", "interval": [0.25, 0.25], "exact": True, "made__threads": 9}
    for stored, status in ((0.25 + 1e-9, "within"), (0.2525, "differs")):
        edited(shipped.shipped, measured=stored, **{**options, "interval": [stored, stored]})
        assert check(study, only=["figure-1.some"])[1]["figure-1.some"].status == status


def test_what_depends_on_the_clock_is_within(reproduce, check, tmp_path, monkeypatch):
    claim = replace(PASSING, measure=timed, repeatable=False)
    study = with_claim(STUDY, claim)
    reproduce(study)
    study = replace(study, shipped=(tmp_path / "toy/quick").rename(tmp_path / "shipped"))
    monkeypatch.setitem(CLOCK, "reading", 0.26)
    assert check(study)[1]["figure-1.some"].status == "within"
    assert check(with_claim(study, replace(claim, repeatable=True)))[1]["figure-1.some"].status == "differs"
    monkeypatch.setitem(CLOCK, "reading", 0.31)
    outside = check(study)[1]["figure-1.some"]
    assert "is not in the stored interval" in outside.reason
    assert outside.causes[-1].startswith("clock: ")


@pytest.mark.parametrize(
    ("before", "bar", "repeatable", "differs"),
    [
        ("inconclusive", 0.22, False, False),  # is reproduced now
        ("reproduced", 0.25, False, False),  # is inconclusive now
        ("not reproduced", 0.22, False, True),
        ("inconclusive", 0.22, True, True),
    ],
)
def test_a_time_near_its_bar_may_have_another_verdict(before, bar, repeatable, differs):
    stored = {"measured": 0.25, "interval": [0.2, 0.3], "exact": False}
    m = Measurement(value=0.26, low=0.23, high=0.29, n=9, unit="rounds")
    claim = replace(PASSING, rule=Above(bar), repeatable=repeatable)
    now = ClaimResult(claim=claim, verdict=claim.verdict(m), measurement=m)
    assert now.label != before
    assert bool(_contradiction(stored, now, before)) == differs


@pytest.mark.parametrize(
    ("changes", "other"),
    [
        ({"n": 51}, "n"),
        ({"interval": [0.0, 1.5]}, "interval"),
        ({"numbers": {"a": 1}, "n": 4}, "n and further figures"),
    ],
)
def test_all_parts_of_a_measurement_are_compared(shipped, check, changes, other):
    edited(shipped.shipped, **changes)
    one = check(shipped, only=["table-3"])[1]["table-3.drawn"]
    assert (one.status, one.reason) == ("differs", f"another {other}, which nothing that has changed explains")


def test_what_cannot_be_measured_differs(shipped, check):
    result, found = check(with_claim(shipped, replace(PASSING, measure=broken)))
    assert (found["figure-1.some"].status, result.passed) == ("differs", False)
    assert found["figure-1.some"].reason == "Could not be measured: ZeroDivisionError: nothing to divide by"
    assert found["table-3.drawn"].status == "same"


def test_a_claim_whose_packs_are_not_there_is_not_measured(shipped, check, tmp_path):
    without = with_claim(shipped, replace(PASSING, packs=Packs(tmp_path / "nowhere")))
    result, found = check(without)
    assert found["figure-1.some"].status == "not measured"
    assert found["figure-1.some"].reason.endswith("give their folder with --packs.")
    assert result.passed  # the others are the same


def test_another_size(shipped, check):
    _, found = check(shipped, size="standard")
    assert found["table-3.drawn"].status == "same"  # the same models at each size
    edited(shipped.shipped, measured=0.123)
    _, found = check(shipped, size="standard")
    assert found["table-3.drawn"].causes[0] == "size: quick stored, standard here"
    only_here = with_claim(shipped, replace(DRAWN, sizes=["quick"], sizes_reason="It is large."))
    one = check(only_here, size="standard")[1]["table-3.drawn"]
    assert (one.status, one.reason) == ("not measured", "It is large.")


def test_claims_are_drawn_for_another_look(shipped, tmp_path, trained):
    options = {"folder": tmp_path, "n_jobs": 1}
    drawn = {seed: [one.claim for one in shipped.again(2, seed=seed, **options).comparisons] for seed in range(6)}
    assert {len(ids) for ids in drawn.values()} == {2}
    assert set().union(*drawn.values()) == {"figure-1.some", "figure-1.all", "table-3.drawn"}
    assert [one.claim for one in shipped.again(2, seed=3, **options).comparisons] == drawn[3]
    assert len(shipped.again(9, **options).comparisons) == 3  # all that have a number
    (one,) = shipped.again(9, only=["table-3"], **options).comparisons
    assert (one.claim, one.status) == ("table-3.drawn", "same")
    with pytest.raises(ValueError, match="no chosen claim has a number that can be measured again"):
        shipped.again(1, only=["table-4"], **options)


def test_a_check_of_nothing_does_not_pass(shipped, check):
    result, found = check(shipped, only=["table-4"])
    assert found["table-4.large"].status == "not shipped"
    assert not result.passed
    with pytest.raises(ValueError, match="the study toy has no shipped results to check against"):
        check(STUDY)
    with pytest.raises(ValueError, match="no claim 'lemma'"):
        check(shipped, only=["lemma"])


def test_changed_text_is_data(shipped):
    stored = read_results(shipped.shipped, "toy")
    for group in stored.details["groups"].values():
        group["task"]["corpus"] = {"fingerprint": "old"}
    entry = stored.entry(DRAWN)
    entry["measured"] = 0.2
    now = stored.claim(FAILING, toys.groups("quick"))
    groups = json.loads(json.dumps({"more": stored.details["groups"][entry["groups"]["more"]]}))
    groups["more"]["task"]["corpus"]["fingerprint"] = "new"
    measurement = Measurement(value=0.25, low=0.0, high=1.0, n=50, unit="sentences")
    now = replace(now, claim=DRAWN, settings=groups, measurement=measurement)
    now = replace(now, verdict="reproduced", provenance=entry["made"])
    one = check_claim(stored, now, size="quick", seed=0)
    assert (one.status, one.causes) == ("differs", ("settings of the models: fingerprint old stored, new here",))


def test_the_remaining_time_is_printed(shipped, check, capsys):
    check(shipped)
    out = capsys.readouterr().out
    assert "(1 of 3, about " in out
    assert "to go)" in out
    assert [claim.id for claim in CLAIMS[:3]] == [
        name for name in out.replace(":", " ").split() if "." in name and "-" in name
    ]
