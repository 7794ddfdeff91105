"""Stored results give the page without a run; today's rules judge them, if their measures are today's."""

import json
import lzma
from dataclasses import replace

import pytest
import torch
import toys
from toys import CLAIMS, FAILING, PASSING, STUDY

from case_studies.frame import stored as stored_files
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above, Number
from case_studies.frame.stored import DETAILS, environments_once, read_results


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
    return replace(STUDY, shipped=folder), finished.page


def test_the_page_is_drawn_from_the_shipped_results_without_models(shipped, tmp_path, trained):
    study, page = shipped
    (tmp_path / "models").rename(tmp_path / "elsewhere")
    drawn = study.draw(folder=tmp_path / "out")
    assert drawn.page == tmp_path / "out/toy/quick/report.html"
    assert drawn.page.read_text() == page
    assert (trained, toys.MEASURED) == ([], [])
    assert not (drawn.page.parent / "claims.json").exists()


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
    assert (list(details["groups"]), list(figures)) == (["few", "more"], ["figure-1.all"])
    assert figures["figure-1.all"]["tables"][0][0] == "Accuracy of <every> seed"
    assert "accuracy" in json.dumps(figures["figure-1.all"]["charts"][0]["encoding"])


def test_a_changed_rule_judges_the_stored_number_again(shipped, tmp_path):
    study, _ = shipped
    stricter = replace(study, claims=[replace(PASSING, rule=Above(0.5)), *CLAIMS[1:]])
    result = stricter.draw(folder=tmp_path)
    assert result.verdicts["figure-1.some"] == "not reproduced"
    assert "the rule's words have changed since the measurement (reproduced then)" in result.claims[0].note
    assert result.claims[1].note == "Hardly trained."


def test_a_changed_measure_is_not_measured(shipped, tmp_path):
    study, _ = shipped
    changed = replace(study, claims=[replace(PASSING, measure=toys.drawn), *CLAIMS[1:]])
    result = changed.draw(folder=tmp_path)
    assert result.verdicts["figure-1.some"] == "not measured"
    assert result.claims[0].note == "Its measure has changed since the stored number (0.25, reproduced)."
    assert result.verdicts["figure-1.all"] == "not reproduced"


def test_results_of_an_earlier_version_are_marked(shipped, tmp_path):
    study, _ = shipped
    edited(study.shipped, measure=None)
    edited(study.shipped, claim="figure-1.all", measure=None, quantity="another number")
    result = study.draw(folder=tmp_path)
    assert result.verdicts["figure-1.some"] == "reproduced"
    assert result.claims[0].note == stored_files.EARLIER
    assert result.verdicts["figure-1.all"] == "not measured"
    assert "Its measure has changed" in result.claims[1].note
    edited(study.shipped, measure=None, note=stored_files.EARLIER)  # as written again
    assert study.draw(folder=tmp_path).claims[0].note == stored_files.EARLIER


def test_what_todays_rules_cannot_judge_is_not_measured(shipped, tmp_path):
    study, _ = shipped
    edited(study.shipped, interval=[0.25, 0.25])
    result = study.draw(folder=tmp_path)
    assert result.verdicts["figure-1.some"] == "not measured"
    assert "cannot judge the stored number (0.25, reproduced): the interval is the point" in result.claims[0].note
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
    page = shipped[0].draw(folder=tmp_path).page.read_text()
    for name in ("figure-1.some", "figure-1.all"):
        assert f"Made by <code>interp reproduce toy --size quick --only {name}</code>" in page
    assert "--only table-4.large" not in page  # nothing is measured
    assert "CPU seconds, peak memory" in page


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
            lambda folder: (folder / DETAILS).write_bytes(
                lzma.compress(b'{"figures":{},"groups":{"few":{},"more":{}}}')
            ),
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
    made = [one["made"] for one in stored["claims"] if one["made"]]
    assert all(set(one) == {"environment", "time", "trained"} for one in made)
    read = read_results(study.shipped, "toy")
    assert "environments" not in read.content
    made = next(one["made"] for one in read.content["claims"] if one["made"] and one["made"]["trained"])
    assert made["versions"]["torch"] == torch.__version__
    assert made["trained"]["environments"][0]["hardware"] == made["hardware"]
    assert made["code"]["interp"]
    assert environments_once(read.content) == stored


def test_results_of_an_earlier_version_are_read(shipped):
    study, _ = shipped
    path, read = study.shipped / "claims.json", read_results(study.shipped, "toy")
    path.write_text(json.dumps(read.content))
    assert read_results(study.shipped, "toy").content == read.content


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
