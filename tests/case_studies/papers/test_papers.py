"""The tables of the papers list every claim that cites them, and what is committed is what the command writes."""

import importlib
import math
from dataclasses import replace
from pathlib import Path

import pytest
from toys import PASSING, measured

from case_studies.frame.paper_statements import PAPERS, paper_statements
from case_studies.frame.results import ClaimResult, StudyResult
from case_studies.frame.rules import Above
from case_studies.frame.to_decide import to_decide
from case_studies.papers import table
from case_studies.papers.table import (
    check_paper,
    check_sources,
    known_claims,
    load_paper,
    page,
    pages,
)

TOY = """
title = "A toy"
arxiv = "0000.00000"
version = "Version 1."
sources = ["Toy et al."]

[[items]]
item = "Figure 1"
says = "Norms |x|."
read = "text"
claims = ["lego:one", "dyck:two"]
missing = "the rest: a minute."

[[items]]
item = "Theorem 2"
says = "A bound."
read = "no"
missing = "an hour."

[[items]]
item = "Equation 1"
says = "A name."
read = "code"
nothing_to_test = "a definition."
"""
KNOWN = {"lego:one": "Toy et al., Figure 1", "dyck:two": "ours: a control", "language:three": "Others, Table 1"}


def toy_results(measurement, **changes):
    """Results of the study lego with the claim `lego:one` alone."""
    claim = replace(PASSING, id="one", **changes)
    result = ClaimResult(claim=claim) if measurement is None else ClaimResult.judged(claim, measurement)
    return {"lego": StudyResult(study="lego", title="", size="quick", claims=(result,), manifest={}, page=Path())}


@pytest.fixture(scope="module")
def papers():
    return {path.stem: load_paper(path) for path in PAPERS}


@pytest.fixture(scope="module")
def results():
    """The committed results of every study."""
    return table.shipped_results()


def claims_of(paper):
    return {claim for one in paper.items for claim in one.claims}


@pytest.fixture
def toy(tmp_path):
    def load(*changes):
        text = TOY
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        path = tmp_path / "toy.toml"
        path.write_text(text)
        return load_paper(path)

    return load


@pytest.mark.parametrize("study", table.STUDIES)
def test_every_claim_of_a_study_is_ours_or_in_the_table_of_a_paper(study, papers):
    known = known_claims([study])
    check_sources(list(papers.values()), known)
    listed = {claim for paper in papers.values() for claim in claims_of(paper)}
    assert {claim for claim, source in known.items() if not source.startswith("ours")} <= listed
    assert {claim for claim in listed if claim.startswith(f"{study}:")} <= set(known)


@pytest.mark.slow  # reads the results of every study
@pytest.mark.parametrize("name", ["dyck", "lego", "template"])
def test_what_is_committed_is_what_the_command_writes(name, papers, results):
    known = known_claims({claim.split(":")[0] for claim in claims_of(papers[name])})
    check_paper(papers[name], known)
    text = page(papers[name], known, results)
    assert (table.DOCS / f"{name}.md").read_text(encoding="utf-8") == text, (
        f"run {table.COMMAND} and commit docs/papers"
    )


@pytest.mark.slow  # reads the results of every study
@pytest.mark.parametrize("path", table.FRONT_PAGES, ids=lambda path: path.name)
def test_front_pages_count_the_papers_statements(path, papers, results):
    known = known_claims()
    folder = table.DOCS.relative_to(path.parent)
    loaded = [papers[name] for name in sorted(papers)]
    counts = table.counts_table(loaded, known, results, folder=folder)
    text = path.read_text(encoding="utf-8")
    assert table.with_counts(text, counts) == text, f"run {table.COMMAND} and commit the front pages"


def test_statements_of_ours_are_not_counted(toy):
    counts = table.counts_table([toy()], KNOWN, toy_results(measured(0.25, 0.2, 0.3)), folder=Path("papers"))
    header, _, row = counts.splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:] == ["1", "1", "0", "0", "0", "0"]
    assert header.startswith("| paper | statements | reproduced |")
    with pytest.raises(ValueError, match="a front page lacks <!-- counts"):
        table.with_counts("# A page", counts)


def test_there_is_a_page_for_every_paper(papers):
    assert set(papers) == {"dyck", "lego", "template"}
    assert {path.stem for path in table.DOCS.glob("*.md")} == set(papers)
    assert all(len(claims_of(paper)) > 30 for paper in papers.values())


def test_rows_of_a_page(toy):
    measurement = measured(0.25, 0.1234, math.inf, n=1)
    results = toy_results(measurement, rule=Above(0.5))
    text = page(toy(), KNOWN, results)
    assert "3 items: 1 with a claim, 1 missing here, 1 with nothing to test" in text
    assert "1 could not be checked" in text
    assert text.splitlines()[-5:] == [
        r"| **Figure 1**: Norms \|x\|. | inconclusive | 0.25 [0.123, ∞] | `lego:one` | "
        "<details><summary>more than one of its …</summary>"
        "more than one of its seeds, for an interval at all</details> |",
        "| | not measured yet | | `dyck:two` (ours) |  |",
        "| | also missing | | | the rest: a minute. |",
        "| **Theorem 2**: A bound. (**not checked against the paper**) | missing | | | an hour. |",
        "| **Equation 1**: A name. (read in the authors' code only) | nothing to test | | | a definition. |",
    ]


@pytest.mark.parametrize(
    ("measurement", "expected"),
    [
        (
            None,
            "not measured |  | `lego:one` | <details><summary>a run at size quick or …</summary>a run at size quick or",
        ),
        (measured(0.5), "reproduced | 0.5 | `lego:one` |  |"),
        (measured(1234.5), "reproduced | 1.23e+03 | `lego:one` |  |"),
        (measured(0.0, -math.inf, 1.0), "inconclusive | 0 [-∞, 1] | `lego:one` | "),
        (measured(0.0, -math.inf, math.inf), "inconclusive | 0 [-∞, ∞] | `lego:one` | "),
        (measured(1.0, 0.5, math.inf), "reproduced | 1 [0.5, ∞] | `lego:one` |  |"),
    ],
)
def test_numbers(toy, measurement, expected):
    assert f"| {expected}" in page(toy(), KNOWN, toy_results(measurement))


def test_committed_results_are_judged_by_todays_rules(results):
    assert set(results) == set(table.STUDIES)
    assert all(result.size == "standard" for result in results.values())
    claims = [claim for result in results.values() for claim in result.claims]
    assert any(claim.measurement and claim.cost and claim.cost["seconds"] for claim in claims)
    for name in table.STUDIES:
        study = importlib.import_module(f"case_studies.{name}.study").STUDY
        drawn = study.stored(folder="nowhere")[0].result(study, Path())
        assert drawn.verdicts == results[name].verdicts
        decided = {claim.claim.id for claim in drawn.claims if claim.verdict and claim.verdict != "inconclusive"}
        assert {claim.claim.id for claim in drawn.claims if not to_decide(claim)} == decided


BROKEN = {
    "no claims": ('missing = "an hour."', "", r"toy.toml, item 2: Theorem 2 has neither claims nor missing; list"),
    "no text": ('says = "A bound."', 'says = ""', r"toy.toml, item 2 has an empty says\."),
    "no title": ('title = "A toy"', "", r"toy.toml: .* missing 1 required keyword-only argument: 'title'"),
    "unknown field": (
        'says = "A bound."',
        'says = "A bound."\ncost = 3',
        r"item 2 has the unknown field 'cost'\.",
    ),
    "unknown read": ('read = "no"', 'read = "maybe"', r"item 2: read is 'maybe'; choose one of text, code, no\."),
    "twice": ('"Theorem 2"', '"Figure 1"', r"toy.toml has the item 'Figure 1' twice"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_data(toy, name):
    before, after, error = BROKEN[name]
    with pytest.raises(ValueError, match=error):
        toy((before, after))


@pytest.mark.parametrize(
    ("claim", "error"),
    [
        ("leg:one", r"toy.toml, Figure 1: the claim 'leg:one' is of no study; write study:id, with lego, dyck"),
        ("lego", "the claim 'lego' is of no study"),
        ("lego:onne", r"the study lego has no claim 'onne'\. Did you mean lego:one\?"),
        ("dyck:one", r"the study dyck has no claim 'one'\.$|Did you mean dyck:two"),
    ],
)
def test_unknown_claims(toy, claim, error):
    with pytest.raises(ValueError, match=error):
        check_paper(toy(('"lego:one"', f'"{claim}"')), KNOWN)


def test_a_claim_in_no_row(toy):
    check_paper(toy(), KNOWN)
    with pytest.raises(ValueError, match=r"toy.toml has no row with lego:more; .* is 'Toy et al., Figure 9'"):
        check_paper(toy(), KNOWN | {"lego:more": "Toy et al., Figure 9"})


def test_a_source_of_no_paper():
    with pytest.raises(ValueError, match="the source of lego:more is 'Figure 9'; begin it with 'ours' or "):
        pages(PAPERS, KNOWN | {"lego:one": "ours", "language:three": "ours", "lego:more": "Figure 9"})


STATEMENT = """
[[items.statements]]
id = "one"
statement = "Norms are positive."
"""


def listed(tmp_path, statement, *, name="toy"):
    """The statements of a list whose first item has this one."""
    path = tmp_path / f"{name}.toml"
    first, rest = TOY.split('missing = "the rest: a minute."')
    path.write_text(first + statement + rest, encoding="utf-8")
    return path


def test_a_statement_is_read_by_the_id_of_its_claim(tmp_path):
    statements = paper_statements((listed(tmp_path, STATEMENT),))
    assert statements["one"].statement == "Norms are positive."
    assert (statements["one"].source, statements["one"].paper) == ("Toy et al., Figure 1", None)
    given = STATEMENT + 'source = "Toy et al., page 3"\npaper = "1.5"\n'
    statements = paper_statements((listed(tmp_path, given, name="given"),))
    assert (statements["one"].source, statements["one"].paper) == ("Toy et al., page 3", "1.5")
    assert load_paper(tmp_path / "given.toml").items[0].statements == (statements["one"],)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (STATEMENT.replace("one", "three"), "has the statement of three; list this claim among the item's claims"),
        (STATEMENT.replace("Norms are positive.", ""), "the statement of a statement is empty"),
        (STATEMENT + 'number = "1"\n', "unknown field 'number'"),
        (STATEMENT + STATEMENT, "one has two statements; keep one"),
    ],
    ids=["not listed", "empty", "unknown field", "twice"],
)
def test_statements_that_are_refused(tmp_path, statement, words):
    with pytest.raises(ValueError, match=words):
        paper_statements((listed(tmp_path, statement),))


def test_every_statement_is_that_of_a_claim_of_the_study_that_its_item_names(papers):
    for paper in papers.values():
        for item in paper.items:
            for statement in item.statements:
                (name,) = (claim for claim in item.claims if claim.partition(":")[2] == statement.id)
                claims = {claim.id: claim for claim in table.study_of(name.partition(":")[0]).claims}
                assert claims[statement.id].statement == statement.statement


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"statement": ""}, "has no statement or no source; give both, or, for a claim of a paper, neither"),
        ({"id": "networks.one-hot"}, "has a statement here and in the list of a paper; keep that of the list"),
    ],
    ids=["none", "both"],
)
def test_a_statement_stands_in_one_place(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(PASSING, **changes)
