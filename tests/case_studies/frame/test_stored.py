"""Stored results give the page without a run; today's rules judge them."""

import json
import lzma
import re
import shutil
from dataclasses import replace

import pytest
import toys
from toys import CLAIMS, FAILING, PASSING, STUDY

from case_studies.frame import stored as stored_files
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above, Number
from case_studies.frame.stored import DETAILS, environments_once, read_results, write_results
from case_studies.release import plan_release, release
from interp.core.environment import environment


def details_without_figures(folder):
    """The content of `details.json.xz`, with its groups alone."""
    details = json.loads(lzma.decompress((folder / DETAILS).read_bytes()))
    return json.dumps({**details, "figures": {}}).encode()


def edited(folder, claim="figure-1.some", **changes):
    """Change what is stored of a claim."""
    path = folder / "claims.json"
    content = json.loads(path.read_text())
    one = next(one for one in content["claims"] if one["id"] == claim)
    one |= changes
    path.write_text(json.dumps(content))


@pytest.fixture
def shipped(finished, tmp_path):
    """The toy study with the results of a run as the shipped ones, and the page of that run."""
    folder = (tmp_path / "toy/quick").rename(tmp_path / "shipped")
    (folder / "report.html").unlink()
    shutil.rmtree(folder / "claims")
    return replace(STUDY, shipped=folder), finished


def test_the_page_is_drawn_from_the_shipped_results_without_models(shipped, tmp_path, trained):
    study, finished = shipped
    (tmp_path / "models").rename(tmp_path / "elsewhere")
    drawn = study.draw(folder=tmp_path / "out")
    assert drawn.page == tmp_path / "out/toy/quick/report.html"
    assert drawn.page.read_text() == finished.page
    pages = {path.stem: path.read_text() for path in (drawn.page.parent / "claims").iterdir()}
    assert pages == finished.claim_pages
    assert (trained, toys.MEASURED) == ([], [])
    assert not (drawn.page.parent / "claims.json").exists()


@pytest.mark.parametrize(("only", "ids"), [(["figure-1.some"], ["figure-1.some"]), (["figure-1"], None), ((), None)])
def test_chosen_claims_are_drawn_alone(shipped, tmp_path, only, ids):
    study, finished = shipped
    ids = ids or [claim.id for claim in study.claims if claim.id.startswith("figure-1" if only else "")]
    drawn = study.draw(folder=tmp_path / "out", only=only)
    assert [claim.claim.id for claim in drawn.claims] == ids
    page = drawn.page.read_text()
    assert sorted(path.stem for path in (drawn.page.parent / "claims").iterdir()) == sorted(ids)
    for claim in study.claims:
        assert (f"claims/{claim.id}.html" in page) == (claim.id in ids)
    assert (page == finished.page) == (not only)


@pytest.mark.parametrize("name", ["nothing.like", "figure-1.som.", "FIGURE-1", ""])
def test_a_name_of_no_claim_is_no_page(shipped, tmp_path, name):
    with pytest.raises(ValueError, match="the study toy has no claim"):
        shipped[0].draw(folder=tmp_path / "out", only=[name])
    assert not (tmp_path / "out").exists()


def test_own_results_are_drawn_where_there_are_some(shipped, reproduce, tmp_path):
    study, _ = shipped
    reproduce(study, seed=5)
    assert study.draw(folder=tmp_path).manifest["seed"] == 5
    reproduce(study, size="standard", seed=6)
    assert study.draw(folder=tmp_path, size="standard").manifest["seed"] == 6
    assert study.draw(folder=tmp_path / "nowhere").manifest["seed"] == 0


def test_equal_results_are_equal_files(shipped, reproduce, tmp_path):
    study, _ = shipped
    reproduce(study, fresh=True)
    assert (tmp_path / "toy/quick" / DETAILS).read_bytes() == (study.shipped / DETAILS).read_bytes()
    details = json.loads(lzma.decompress((study.shipped / DETAILS).read_bytes()))
    figures = details["figures"]
    assert (len(details["groups"]), list(figures)) == (2, ["figure-1.some", "figure-1.all", "table-3.drawn"])
    assert figures["figure-1.all"]["tables"][0][0] == "Accuracy of <every> seed"
    assert "accuracy" in json.dumps(figures["figure-1.all"]["charts"][0]["encoding"])


def test_a_changed_rule_judges_the_stored_number_again(shipped, tmp_path):
    study, _ = shipped
    stricter = replace(study, claims=[replace(PASSING, rule=Above(0.5)), *CLAIMS[1:]])
    result = stricter.draw(folder=tmp_path)
    assert result.verdicts["figure-1.some"] == "not reproduced"
    assert result.claims[1].note == "Hardly trained."


def changed_claim(study, index, **changes):
    """The study with changes of one of its claims."""
    claims = list(study.claims)
    claims[index] = replace(claims[index], **changes)
    return replace(study, claims=claims)


def with_groups(study, **changes):
    """The study with other models in some groups."""
    return replace(study, groups=lambda size: {**toys.groups(size), **changes})


STALE = {
    "more seeds": (lambda study: with_groups(study, few=toys.specs(3)), "on other models few (models, seeds)"),
    "other seeds": (lambda study: with_groups(study, few=toys.specs(2, first=5)), "on other models few (seeds)"),
    "settings": (lambda study: with_groups(study, few=toys.specs(2, clip_norm=2.0)), "on other models few (settings)"),
    "another order": (lambda study: with_groups(study, few=toys.specs(2)[::-1]), "on other models few (keys)"),
    "another group": (
        lambda study: changed_claim(study, 1, needs=["more"]),
        "without the models more; with further models (few)",
    ),
    "a further group": (lambda study: changed_claim(study, 1, needs=["few", "more"]), "without the models more"),
    "quantity": (lambda study: changed_claim(study, 1, quantity="loss"), "as another quantity ()"),
}


@pytest.mark.parametrize("kind", STALE)
def test_a_number_of_another_rule_is_not_shown(kind, shipped, tmp_path):
    study, _ = shipped
    change, words = STALE[kind]
    result = change(study).draw(folder=tmp_path).claims[1]
    assert (result.label, result.measurement) == ("not measured", None)
    assert re.search(rf"Measured earlier \(0\.\d+, n = 2 seeds\) {re.escape(words)}\.$", result.note)
    assert change(study).listing()["claims"][1]["verdict"] == "not measured"


def test_claims_name_the_models_of_their_own_measurement(shipped, tmp_path):
    """Two claims about a group keep the models that each was measured on, also if these are others."""
    study, _ = shipped
    larger = with_groups(study, few=toys.specs(3))
    again = replace(FAILING, id="figure-1.again")
    result = replace(larger, claims=[again]).run(folder=tmp_path, n_jobs=1)
    new = result.claims[0]
    assert new.settings["few"]["seeds"] == [0, 1, 2]
    both = replace(result, claims=(*study.draw(folder=tmp_path / "other").claims, new))
    write_results(both, tmp_path / "both")
    stored = read_results(tmp_path / "both", "toy")
    entries = {entry["id"]: entry["groups"]["few"] for entry in stored.content["claims"] if "few" in entry["groups"]}
    seeds = {name: stored.details["groups"][digest]["seeds"] for name, digest in entries.items()}
    assert seeds == {"figure-1.all": [0, 1], "figure-1.again": [0, 1, 2]}


def test_what_todays_rules_cannot_judge_is_not_measured(shipped, tmp_path):
    study, _ = shipped
    edited(study.shipped, interval=[0.25, 0.25])
    result = study.draw(folder=tmp_path)
    assert result.verdicts["figure-1.some"] == "not measured"
    assert "cannot judge the stored number (0.25, n = 10 draws): the interval is the point" in result.claims[0].note
    by_number = replace(study, claims=[CLAIMS[0], replace(FAILING, rule=Number("share", Above(0)))])
    assert by_number.draw(folder=tmp_path).verdicts["figure-1.all"] == "not measured"


def test_unbounded_intervals_and_new_claims(shipped, tmp_path):
    study, _ = shipped
    edited(study.shipped, interval=[None, 0.3])
    new = replace(study, claims=[*CLAIMS, replace(PASSING, id="figure-9.new")])
    result = new.draw(folder=tmp_path)
    assert (result.verdicts["figure-1.some"], result.verdicts["figure-9.new"]) == ("inconclusive", "not measured")
    assert "Not in the stored results" in result.claims[-1].note
    removed = replace(study, claims=CLAIMS[1:])
    assert "figure-1.some" not in removed.draw(folder=tmp_path).verdicts


def test_each_figure_names_the_command_that_makes_it(shipped, tmp_path):
    folder = shipped[0].draw(folder=tmp_path).page.parent / "claims"
    for name in ("figure-1.some", "figure-1.all"):
        page = (folder / f"{name}.html").read_text()
        assert f"<dt>command</dt><dd>interp reproduce toy --size quick --only {name}</dd>" in page
        assert "CPU seconds, peak memory" in page
    assert "CPU seconds" not in (folder / "table-4.large.html").read_text()  # nothing is measured


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "claims.json").write_text("{"), r"cannot be read: Expecting property name"),
        (
            lambda folder: (folder / "claims.json").write_text("{}"),
            r"cannot be read: the StoredContent lacks the fields 'study'",
        ),
        (lambda folder: (folder / DETAILS).write_bytes(b"x"), r"cannot be read: LZMAError"),
        (
            lambda folder: (folder / DETAILS).write_bytes(lzma.compress(b"{}")),
            "cannot be read: details.json.xz lacks the fields 'figures', 'groups'",
        ),
        (
            lambda folder: (folder / DETAILS).write_bytes(lzma.compress(details_without_figures(folder))),
            "does not belong to its claims.json; copy",
        ),
        (lambda folder: (folder / DETAILS).unlink(), "has claims.json without details.json.xz; copy both"),
    ],
)
def test_damaged_results_are_named(shipped, tmp_path, spoil, words):
    study, _ = shipped
    spoil(study.shipped)
    with pytest.raises(ValueError, match=words):
        study.draw(folder=tmp_path)


def test_large_figures_are_refused(shipped, tmp_path, monkeypatch):
    monkeypatch.setattr(stored_files, "LARGEST", 10)
    with pytest.raises(ValueError, match="has more than 10 bytes"):
        shipped[0].draw(folder=tmp_path)


def test_missing_results_are_named(shipped, tmp_path):
    study, _ = shipped
    with pytest.raises(
        ValueError, match=r"no results of size paper in .*; those shipped are of size quick. Next: interp"
    ):
        study.draw(folder=tmp_path, size="paper")
    with pytest.raises(
        ValueError, match=r"no results of size quick in .* and none is shipped. Next: interp reproduce toy"
    ):
        STUDY.draw(folder=tmp_path)
    other = replace(study, name="other")
    with pytest.raises(ValueError, match="has results of the study toy, not of other"):
        other.draw(folder=tmp_path)
    with pytest.raises(ValueError, match="size is 'huge'"):
        study.draw(folder=tmp_path, size="huge")


def test_an_environment_is_stored_once_and_read_where_it_is_used(shipped):
    study, _ = shipped
    stored = json.loads((study.shipped / "claims.json").read_text())
    assert len(stored["environments"]) == 2  # of the measurements and of the trainings
    made = [one["made"] for one in stored["claims"]]
    assert all(set(one) == {"environment", "time", "trained"} for one in made)
    read = read_results(study.shipped, "toy")
    assert "environments" not in read.content
    made = next(one["made"] for one in read.content["claims"] if one["made"]["trained"])
    assert made["versions"] == environment()["versions"]
    assert made["trained"]["environments"][0]["hardware"] == made["hardware"]
    assert set(made["source"]) == {"version", "commit", "changed"}
    assert environments_once(read.content) == stored


def test_an_environment_that_is_not_there_cannot_be_read(shipped):
    study, _ = shipped
    edited(study.shipped, made={"environment": 7, "time": "", "trained": None})
    with pytest.raises(ValueError, match="cannot be read: IndexError"):
        read_results(study.shipped, "toy")


def test_numbers_of_charts_are_rounded():
    chart = {"a": [1 / 3, 4 / 3, 12345678, "x", None], "b": 16384.0}
    one = Measurement(value=1 / 3, low=0, high=1, n=3, unit="seeds", numbers={"c": 1 / 3}, charts=[chart])
    assert one.charts == ({"a": [0.333, 1.333, 12345678, "x", None], "b": 16384.0},)
    assert (one.value, one.numbers) == (1 / 3, {"c": 1 / 3})


def test_verdicts_and_texts_are_not_stored(shipped):
    study, _ = shipped
    entries = json.loads((study.shipped / "claims.json").read_text())["claims"]
    assert [entry["id"] for entry in entries] == ["figure-1.some", "figure-1.all", "table-3.drawn"]
    assert not {"verdict", "rule", "statement", "source"} & set().union(*entries)
    edited(study.shipped, verdict="reproduced")
    with pytest.raises(ValueError, match=r"claims\[0\] has unknown fields 'verdict'"):
        read_results(study.shipped, "toy")


@pytest.fixture
def committed(monkeypatch):
    """Sets the commit of the code that runs."""

    def commit(name, *, changed=False):
        here = {"version": "0.1.0", "commit": name, "changed": changed}
        for module in ("case_studies.release", "case_studies.frame.provenance"):
            monkeypatch.setattr(f"{module}.source_version", lambda: here)

    return commit


def names(claims):
    return [claim.id for claim in claims]


def test_a_release_measures_what_an_earlier_commit_measured(shipped, tmp_path, committed):
    study, _ = shipped
    before = {entry["id"]: entry for entry in read_results(study.shipped, "toy").content["claims"]}
    committed("abc")
    plan = plan_release(study, folder=tmp_path, n_jobs=1)
    assert names(plan.left_out) == []
    costs = [before[name]["cost"]["seconds"] for name in names(plan.to_measure)]
    assert (len(costs), costs) == (3, sorted(costs))
    assert "3 to measure" in str(plan)
    toys.MEASURED.clear()
    assert release(plan) == {}
    assert sorted(toys.MEASURED) == ["accuracy", "constant", "drawn"]
    after = read_results(study.shipped, "toy")
    entries = {entry["id"]: entry for entry in after.content["claims"]}
    assert list(entries) == list(before)
    assert {entry["made"]["source"]["commit"] for entry in entries.values()} == {"abc"}
    assert {name: entry["measured"] for name, entry in entries.items()} == {
        name: entry["measured"] for name, entry in before.items()
    }
    assert set(after.details["figures"]) == set(entries)
    assert plan_release(study, folder=tmp_path).to_measure == ()
    # Numbers of changed files are of no commit
    committed("abc", changed=True)
    assert len(plan_release(study, folder=tmp_path).to_measure) == 3


def test_an_interrupted_release_goes_on(shipped, tmp_path, committed, monkeypatch):
    study, _ = shipped
    committed("abc")
    plan = plan_release(study, folder=tmp_path, n_jobs=1)
    first, *others = names(plan.to_measure)
    measure = plan.run.measure

    def stop_at_second(claims, costs):
        if names(claims) != [first]:
            raise KeyboardInterrupt
        return measure(claims, costs)

    monkeypatch.setattr(plan.run, "measure", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        release(plan)
    assert names(plan_release(study, folder=tmp_path).to_measure) == others


def test_a_release_says_what_it_does_not_measure(shipped, tmp_path, committed):
    study, _ = shipped
    committed("abc")
    plan = plan_release(study, folder=tmp_path / "no models", only=["figure-1"])
    assert (names(plan.to_measure), names(plan.without_models)) == (["figure-1.some"], ["figure-1.all"])
    assert names(plan.left_out) == []  # what is not chosen is not left out
    assert "without their models: figure-1.all" in str(plan)
    assert names(plan_release(study, folder=tmp_path, at_most=-1).to_measure) == []
    with pytest.raises(ValueError, match="ships no results"):
        plan_release(STUDY, folder=tmp_path)


def test_a_number_that_cannot_be_measured_again_stays(shipped, tmp_path, committed, monkeypatch):
    study, _ = shipped
    before = read_results(study.shipped, "toy").entry(FAILING)

    def broken(evidence):
        raise ZeroDivisionError("nothing")

    committed("abc")
    study = changed_claim(study, 1, measure=broken)
    errors = release(plan_release(study, folder=tmp_path, n_jobs=1))
    assert list(errors) == ["figure-1.all"]
    assert read_results(study.shipped, "toy").entry(FAILING) == before
