"""`interp reproduce` finds studies through entry points, reports errors in one line, and lists without running."""

import importlib.metadata
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import toys

from case_studies import release
from case_studies.frame.stored import with_environments
from interp.cli import installed_studies
from interp.cli.main import main


def entry(name, value, load):
    return SimpleNamespace(name=name, value=value, load=load)


def absent():
    raise ModuleNotFoundError("No module named 'elsewhere'")


@pytest.fixture
def points(monkeypatch):
    """The installed entry points, for a test to change."""
    found = [
        entry("toy", "toys:STUDY", lambda: toys.STUDY),
        entry("gone", "elsewhere.study:STUDY", absent),
        entry("odd", "odd:STUDY", lambda: {"a": "dict"}),
    ]

    def entry_points(*, group):
        assert group == "interp.studies"
        return found

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return found


@pytest.fixture
def reproduce_command(points, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["interp", "reproduce", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return SimpleNamespace(code=stopped.value.code or 0, out=printed.out, err=printed.err)

    return run


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--plan"], "plan of toy at size quick, with the models and results in runs/reproduce ..."),
        (["--size", "paper"], "run of toy at size paper, with the models and results in runs/reproduce ..."),
        (["--check", "--out", "r"], "check of toy, with the models and results in r ..."),
        (["--page"], "page of toy, with the models and results in runs/reproduce ..."),
        (["--list", "--weights", "."], None),
        (["--plan", "--json"], None),
    ],
)
def test_a_line_is_printed_before_the_study_is_loaded(reproduce_command, points, capsys, arguments, line):
    """Loading a study takes seconds."""
    before = []

    def load():
        before.append(capsys.readouterr().out)
        raise ImportError

    points[0] = entry("toy", "toys:STUDY", load)
    assert reproduce_command("toy", *arguments).code == 2
    assert before == ["" if line is None else f"{line}\n"]


def test_without_arguments_it_lists_the_studies(reproduce_command, points):
    done = reproduce_command()
    assert done.code == 0
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines] == ["gone", "odd", "toy", "next:"]
    assert "Toys & <others>" in lines[2]
    assert "cannot be loaded: No module named 'elsewhere'" in lines[0]
    points.clear()
    assert "no study is installed" in reproduce_command().out


def test_list_prints_claims_and_runs_nothing(reproduce_command, tmp_path, trained):
    done = reproduce_command("toy", "--list")
    assert done.code == 0
    for claim in toys.CLAIMS:
        for words in (claim.id, claim.source, claim.statement, claim.rule_text, f"fixed {claim.preregistration.text}"):
            assert words in " ".join(done.out.split())
    assert "paper: 0.97" in done.out
    assert "sizes: paper (It takes a GPU.)" in done.out
    assert not trained
    assert not list(tmp_path.iterdir())
    some = reproduce_command("toy", "--list", "--only", "table")
    assert "table-3.drawn" in some.out
    assert "figure-1.some" not in some.out


def test_it_runs_and_prints_the_path_of_the_page(reproduce_command, tmp_path):
    done = reproduce_command("toy", "--jobs", 1, "--only", "figure-1.some", "--only", "table-3", "--seed", 3)
    assert done.code == 0, done.err
    assert "figure-1.some  reproduced " in done.out
    assert "training models" not in done.out  # a bar, which only a terminal has
    assert "table-3.drawn: reproduced" in done.out
    assert done.out.splitlines()[-1] == "page: runs/reproduce/toy/quick/report.html"
    content = json.loads((tmp_path / "runs/reproduce/toy/quick/claims.json").read_text())
    assert content["manifest"]["seed"] == 3
    assert [claim["id"] for claim in content["claims"]] == ["figure-1.some", "table-3.drawn"]
    elsewhere = reproduce_command("toy", "--jobs", 1, "--only", "figure-1.some", "--size", "standard", "--out", "here")
    assert elsewhere.code == 0
    assert (tmp_path / "here/toy/standard/report.html").exists()
    again = reproduce_command("toy", "--jobs", 1, "--only", "figure-1.some", "--fresh")
    assert "figure-1.some: reproduced" in again.out
    assert "table-3.drawn" not in again.out
    as_json = reproduce_command("toy", "--jobs", 1, "--only", "figure-1.some", "--fresh", "--json")
    result = json.loads(as_json.out)["result"]
    content = with_environments(json.loads((tmp_path / "runs/reproduce/toy/quick/claims.json").read_text()))
    del content["details"]  # the hash of the other file
    (stored,) = [claim for claim in content["claims"] if claim["id"] == "figure-1.some"]
    (printed,) = result["claims"]
    assert printed["verdict"] == "reproduced"
    assert {name: printed[name] for name in stored} == stored
    others = {name: value for name, value in content.items() if name != "claims"}
    assert {name: value for name, value in result.items() if name != "claims"} == others | {
        "page": "runs/reproduce/toy/quick/report.html"
    }
    assert "figure-1.some: reproduced" in as_json.err


def test_page_draws_from_stored_results(reproduce_command, tmp_path, trained):
    assert reproduce_command("toy", "--jobs", 1, "--seed", 4).code == 0
    page = tmp_path / "runs/reproduce/toy/quick/report.html"
    before = page.read_text()
    page.unlink()
    trained.clear()
    toys.MEASURED.clear()
    done = reproduce_command("toy", "--page")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "page: runs/reproduce/toy/quick/report.html"
    assert page.read_text() == before
    assert json.loads(reproduce_command("toy", "--page", "--json").out)["result"]["manifest"]["seed"] == 4
    assert (trained, toys.MEASURED) == ([], [])
    other = reproduce_command("toy", "--page", "--size", "paper")
    assert (other.code, other.err.startswith("error: there are no results of size paper in ")) == (2, True)
    assert reproduce_command("toy", "--page", "--list").err.startswith("error: --list and --page exclude each other")


def test_check_compares_with_the_shipped_results(reproduce_command, points, tmp_path):
    assert reproduce_command("toy", "--jobs", 1).code == 0
    shipped = replace(toys.STUDY, shipped=(tmp_path / "runs/reproduce/toy/quick").rename(tmp_path / "shipped"))
    points[:] = [entry("toy", "toys:STUDY", lambda: shipped)]
    same = reproduce_command("toy", "--check", "--jobs", 1)
    assert same.code == 0, same.err
    assert (
        same.out.splitlines()[-1] == f"toy at size quick, against {tmp_path}/shipped: 3 same, 0 differs, 1 not shipped"
    )
    seed = reproduce_command("toy", "--check", "--jobs", 1, "--seed", 1, "--only", "table-3", "--json")
    assert seed.code == 0
    result = json.loads(seed.out)["result"]
    assert [one["status"] for one in result["claims"]] == ["within"]
    path = tmp_path / "shipped/claims.json"
    path.write_text(path.read_text().replace('"measured": 0.25', '"measured": 0.2525'))
    other = reproduce_command("toy", "--check", "--jobs", 1, "--json")
    assert other.code == 3
    assert json.loads(other.out)["result"]["tally"] == "2 same, 1 differs, 1 not shipped"
    assert reproduce_command("toy", "--check", "--page").err.startswith("error: --page and --check exclude each other")
    # Some claims that are drawn
    drawn = [reproduce_command("toy", "--again", 1, "--seed", seed, "--jobs", 1, "--json") for seed in range(4)]
    assert {done.code for done in drawn} == {0, 3}  # that of the edited claim, if it is drawn
    claims = [[one["id"] for one in json.loads(done.out)["result"]["claims"]] for done in drawn]
    assert all(len(ids) == 1 for ids in claims)
    assert all((done.code == 3) == (ids == ["figure-1.some"]) for done, ids in zip(drawn, claims, strict=True))
    for arguments, words in (
        (["--at-most", 3], "--at-most is about the claims that --again draws; add --again N."),
        (["--again", 0], "again is 0; give the number of claims to measure again, at least 1."),
        (
            ["--again", 1, "--at-most", 0],
            "no chosen claim has a number that took at most 0 s that can be measured again.",
        ),
        (
            ["--again", 1, "--size", "standard"],
            "--again compares with the shipped numbers, at their size; omit --size.",
        ),
        (["--again", 1, "--check"], "--check and --again exclude each other"),
        (["--again", 1, "--fresh"], "--again uses models that are there; omit --fresh."),
    ):
        refused = reproduce_command("toy", *arguments)
        assert (refused.code, words in refused.err) == (2, True), refused.err
    points[:] = [entry("toy", "toys:STUDY", lambda: toys.STUDY)]
    nothing = reproduce_command("toy", "--check")
    assert (nothing.code, nothing.err) == (2, "error: the study toy has no shipped results to check against.\n")


def test_a_bundle_is_written_and_checked(reproduce_command, tmp_path):
    assert reproduce_command("toy", "--jobs", 1, "--only", "figure-1").code == 0
    done = reproduce_command("toy", "--bundle", "toy.zip", "--with-models", "--half", "--json")
    assert (done.code, json.loads(done.out)["result"]["bundle"]) == (0, "toy.zip")
    done = reproduce_command("toy", "--bundle", "toy.zip")
    next_one = "interp reproduce toy --check --against toy.zip"
    first_line = "bundle of toy, with the models and results in runs/reproduce ..."
    assert (done.code, done.out) == (0, f"{first_line}\nbundle: toy.zip\nnext: {next_one}\n")
    checked = reproduce_command(*next_one.split()[2:], "--jobs", 1, "--out", "elsewhere")
    assert checked.code == 0, checked.err
    assert checked.out.splitlines()[-1] == "toy at size quick, against toy.zip: 2 same, 0 differs, 2 not shipped"
    (tmp_path / "toy.zip").write_text("no archive")
    damaged = reproduce_command(*next_one.split()[2:])
    assert damaged.code == 2
    assert damaged.err.startswith("error: toy.zip is damaged or not a bundle: ")
    assert damaged.err.count("\n") == 1
    for options, words in (
        (["--check", "--against", "nowhere.zip"], "there is no archive nowhere.zip."),
        (["--against", "toy.zip"], "--against is what --check compares with; add --check."),
        (["--with-models"], "--with-models is about a bundle; add --bundle FILE."),
        (["--half"], "--half is about the models of a bundle; add --bundle FILE --with-models."),
        (["--bundle", "x.zip", "--check"], "--check and --bundle exclude each other; give one of them."),
    ):
        wrong = reproduce_command("toy", *options)
        assert (wrong.code, wrong.err) == (2, f"error: {words}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dick"], "there is no study 'dick'; there is gone, odd, toy."),
        (["gone"], "the study gone (elsewhere.study:STUDY) cannot be loaded: No module named 'elsewhere'."),
        (["odd"], "the study odd (odd:STUDY) lacks title"),
        (["toy", "--size", "large"], "size is 'large'; choose one of quick, standard, paper"),
        (["toy", "--only", "lemma"], "the study toy has no claim 'lemma'."),
        (["toy", "--list", "--only", "lemma"], "the study toy has no claim 'lemma'."),
        (["toy", "--jobs", "0"], "n_jobs is 0"),
    ],
)
def test_errors_are_one_line(reproduce_command, tmp_path, arguments, words):
    done = reproduce_command(*arguments)
    assert done.code == 2
    assert words in done.err
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_study_that_is_not_installed_is_in_a_package(reproduce_command, tmp_path, monkeypatch):
    there = "there is no study 'audit'; there is gone, odd, toy. "
    missing = reproduce_command("audit", "--page")
    assert (missing.code, missing.err) == (
        2,
        f"error: {there}It is in a package of its own. Next, in the folder of unmyopic: "
        "pip install examples/unmyopic-studies\n",
    )
    monkeypatch.setattr(installed_studies, "EXAMPLES", tmp_path)  # as without a checkout
    missing = reproduce_command("audit", "--page")
    assert missing.err == f"error: {there}More studies are packages in examples/ of unmyopic's repository.\n"


def test_two_studies_of_one_name_are_refused(reproduce_command, points):
    points.append(entry("toy", "toys:STUDY", lambda: toys.STUDY))  # found twice, but the same
    assert reproduce_command("toy", "--list").code == 0
    points.append(entry("toy", "others:STUDY", lambda: toys.STUDY))
    assert "two studies are called toy: toys:STUDY and others:STUDY" in reproduce_command("toy", "--list").err


def test_this_package_registers_its_studies():
    found = importlib.metadata.entry_points(group="interp.studies")
    assert {point.name: point.value for point in found}["dyck"] == "case_studies.dyck.study:STUDY"


@pytest.mark.parametrize(
    ("name", "words"), [("toy", "the study toy ships no results"), ("dick", "there is no study 'dick'; there is gone")]
)
def test_a_release_finds_studies_by_their_entry_points(points, tmp_path, name, words):
    with pytest.raises(ValueError, match=words):
        release.main([name], folder=tmp_path, plan=True)
