"""The page lists claims first; position and type of a claim do not depend on its verdict."""

import importlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import toys
from browser import faults
from toys import FAILING, PASSING, STUDY

from case_studies.frame.evidence import SIZES
from case_studies.frame.measurement import Measurement
from case_studies.frame.page import _measured
from case_studies.frame.results import ClaimResult
from case_studies.frame.rules import Above, AllOf, AtMost, Number
from case_studies.papers.table import STUDIES
from interp.view.page import Section, write_page

EXAMPLE = Path(__file__).parents[3] / "examples/unmyopic-published"
UNCLEAR = replace(PASSING, id="figure-1.unclear", rule=Above(0.25))
CLAIMS = (*toys.CLAIMS, UNCLEAR)


class Verdicts(HTMLParser):
    """Every verdict with its enclosing elements, and every link inside the page with its target."""

    VOID = ("meta", "br", "img", "link", "input", "path", "rect", "line", "g")

    def __init__(self, html):
        super().__init__()
        self.around, self.found, self.text, self.links, self.ids = [], [], {}, [], []
        self.feed(re.sub(r"<(svg|script|style).*?</\1>", "", html, flags=re.DOTALL))

    def handle_starttag(self, tag, attrs):
        if tag in self.VOID:
            return
        given = dict(attrs)
        self.around.append((tag, given.get("class"), given.get("style")))
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        if "data-verdict" in given:
            self.found.append((given["data-verdict"], tuple(self.around)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.around.pop()[0] == tag

    def handle_data(self, data):
        if self.around and self.around[-1][1] == "verdict":
            self.text.setdefault(self.found[-1][0], set()).add(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    result = replace(STUDY, claims=CLAIMS).run(folder=tmp_path_factory.mktemp("page"), n_jobs=1)
    return result.page.read_text()


def test_undecided_claims_say_what_would_decide_them(page):
    said = {}
    for section in page.split('<section id="claim-')[1:]:
        found = re.findall(r"<dt>What would decide it</dt><dd>(.*?)</dd>", section)
        said |= {section[: section.index('"')]: one for one in found}
    assert said == {
        "table-4.large": "A run at size paper.",
        "figure-1.unclear": "Hardly more draws: the value is at the bar.",
    }


def test_the_table_comes_first_with_every_verdict(page):
    first = page.index("<section")
    table = page[first : page.index("</section>", first)]
    assert '<section id="claims">' in table
    verdicts = re.findall(r'data-verdict="([^"]*)"', table)
    assert verdicts == ["reproduced", "not reproduced", "reproduced", "not measured", "inconclusive"]
    assert "0.25 [0.20, 0.30]" in table
    assert "10 draws" in table
    assert "0.97" in table
    assert (
        "5 claims at size quick. 5 published statements: 2 reproduced, 1 not reproduced, 1 inconclusive, 1 not measured"
        in table
    )
    sections = re.findall(r'<section id="([^"]*)">', page)
    assert sections == ["claims", *(f"claim-{claim.id}" for claim in CLAIMS), "provenance"]


def test_every_verdict_has_the_same_elements_and_style(page):
    parsed = Verdicts(page)
    by_place = [parsed.found[: len(CLAIMS)], parsed.found[len(CLAIMS) :]]
    assert all(len(found) == len(CLAIMS) for found in by_place)
    for found in by_place:
        assert {verdict for verdict, _ in found} == {"reproduced", "not reproduced", "inconclusive", "not measured"}
        assert len({around for _, around in found}) == 1  # the same elements, classes and styles around each
    assert parsed.text == {
        "reproduced": {"✓ reproduced"}, "not reproduced": {"✗ not reproduced"}, "inconclusive": {"○ inconclusive"},
        "not measured": {"– not measured"},
    }  # fmt: skip  # words and marks, not colour alone
    rules = re.findall(r"data-verdict[^{]*\{([^}]*)\}", page[: page.index("</style>")])
    assert rules
    assert all(re.fullmatch(r"\s*color: var\(--\w+\);\s*", rule) for rule in rules)  # colour and nothing else


@pytest.mark.slow
@pytest.mark.browser
def test_nothing_is_wrong_with_a_study_page(browser, page, tmp_path):
    path = tmp_path / "study.html"
    path.write_text(page)
    assert faults(browser, path) == []


LONG_PAGES = ("lego", "dyck", "template")
IN_A_PACKAGE = {"published": "published_readings", "verified": "verified_circuits"}
PAGES = sorted({*STUDIES, *IN_A_PACKAGE, "compiled", "development"})


@pytest.mark.browser
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in LONG_PAGES else pytest.mark.slow) for name in PAGES]
)
def test_nothing_is_wrong_with_the_pages_of_the_papers(browser, tmp_path, monkeypatch, name):
    monkeypatch.syspath_prepend(EXAMPLE)
    package = IN_A_PACKAGE.get(name, f"case_studies.{name}")
    study = importlib.import_module(f"{package}.study").STUDY
    pages = [study.draw(folder=tmp_path / folder).page for folder in ("one", "two")]
    assert pages[0].read_text() == pages[1].read_text()  # the same results give the same page
    assert faults(browser, pages[0]) == []


def test_the_foot_is_that_of_the_stored_results(page):
    facts = dict(re.findall(r"<dt>(\w+)</dt><dd>(.*?)</dd>", page[page.index("<footer>") :]))
    assert facts["task"] == "lego"
    assert facts["model"] == "3 trained models in 2 groups"
    assert facts["seed"].startswith("0 ")
    assert facts["command"] == "interp reproduce toy --size quick"
    assert facts["commit"]
    assert facts["date"] in page[page.index('<section id="provenance">') :]


def test_when_with_which_source_and_at_what_cost_a_claim_was_measured():
    made = {"time": "2026-01-02T03:04:05", "source": {"commit": "0123456789abcdef", "stored_in": "fedcba98765432"}}
    cost = {"cpu_seconds": 2.04, "seconds": 9.0, "peak_mb": 300}
    shown = _measured(ClaimResult(claim=PASSING, provenance=made, cost=cost))
    assert shown.startswith("2026-01-02, commit 0123456789")
    assert shown.endswith(", stored in commit fedcba9876, 2.0 CPU seconds, peak memory 300 MB")
    earlier = ClaimResult(claim=PASSING, provenance={"time": "2026-01-02"}, cost={"seconds": 9.0})
    assert _measured(earlier) == "2026-01-02, 9.0 s"


def test_words_are_explained_where_they_first_appear(reproduce):
    def arms(evidence):
        table = ("Arms", [("arm", "#0"), ("few", 1.0)])
        return Measurement(value=0.5, low=0.4, high=0.6, n=2, unit="seeds", tables=[table])

    first, second = (replace(FAILING, id=f"figure-9.{name}", measure=arms) for name in ("a", "b"))
    page = reproduce(replace(STUDY, claims=(PASSING, first, second))).page
    sections = dict(re.findall(r'<section id="([^"]*)">(.*?)</section>', page, re.DOTALL))
    for words in ("An arm is a group of models", "are the variables of a chain in order"):
        assert [name for name, text in sections.items() if words in text] == ["claim-figure-9.a"]


def test_each_claim_shows_verdict_source_and_rule(page):
    for claim in CLAIMS:
        start = page.index(f'<section id="claim-{claim.id}">')
        section = page[start : page.index("</section>", start)]
        place = [section.index(words) for words in ("data-verdict", claim.source, "Rule")]
        assert place == sorted(place)
        assert claim.rule_text in section
        assert (claim.paper or "none printed") in section
    failing = page[page.index(f'<section id="claim-{FAILING.id}">') : page.index('<section id="claim-table-3.drawn">')]
    for words in ("n = 2 seeds", "Hardly trained.", "<h3>Accuracy of &lt;every&gt; seed</h3>", "per seed", "<svg"):
        assert words in failing
    assert "<summary>Settings of its models" in failing
    assert "It takes a GPU." in page


def test_text_is_escaped_and_links_have_targets(page):
    assert "<title>Toys &amp; &lt;others&gt;</title>" in page
    assert "It is sometimes &lt;right&gt;." in page
    parsed = Verdicts(page)
    assert parsed.around == []  # every element that opens closes
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {link.removeprefix("#") for link in parsed.links} <= set(parsed.ids)
    assert all(link.startswith("#") for link in parsed.links)  # nothing to fetch


def test_provenance_lists_versions_and_models(page):
    part = page[page.index('<section id="provenance">') :]
    for words in (
        "toy, quick, 0",
        "torch",
        "transformer-lens",
        "threads",
        "3, of which 3 are trained",
        "duration of the last run",
    ):
        assert words in part


def test_claims_without_a_measurement_keep_their_place(reproduce):
    page = reproduce(only=["figure-1.all"]).page
    assert [verdict for verdict, _ in Verdicts(page).found[: len(toys.CLAIMS)]] == [
        "not measured", "not reproduced", "not measured", "not measured",
    ]  # fmt: skip
    assert "Not measured yet at this size, seed and code." in page


@pytest.mark.parametrize("size", SIZES)
def test_the_page_shows_its_size(reproduce, size):
    study = toys.Study(name="one", title="One", lead="Nothing.", claims=[PASSING])
    assert f"1 claim at size {size}. 1 published statement: 1 reproduced" in reproduce(study, size=size).page


def test_no_script_without_charts(reproduce, page):
    bare = reproduce(toys.Study(name="one", title="One", lead="Nothing.", claims=[PASSING])).page
    assert "<script" not in bare
    assert "<details" not in bare  # no models, no settings
    assert "<svg" in page


def test_a_section_takes_several_charts_and_tables(tmp_path):
    chart = {"mark": "bar", "data": {"values": [{"a": 1}]}, "encoding": {"x": {"field": "a", "type": "quantitative"}}}
    sections = [
        Section(title="first", chart=None, charts=[chart, chart], tables=[("<one>", [("a",), ("1",)])], foot="the end"),
        Section(
            title="second", charts=[{**chart, "title": "another"}], anchor="here", short="2nd", table=[("b",), ("2",)]
        ),
    ]
    text = write_page(tmp_path / "x.html", title="t", lead="l", sections=sections).read_text()
    assert len(re.findall(r'<figure class="chart"', text)) == 3
    assert re.findall(r'<section id="([^"]*)"', text) == ["section-1", "here"]
    assert '<a href="#here">2nd</a>' in text
    assert "<h3>&lt;one&gt;</h3>" in text
    assert text.count("<h3>") == 1
    assert text.index("&lt;one&gt;") < text.index("the end") < text.index('id="here"')


def test_a_failing_condition_is_named_next_to_the_verdict(reproduce):
    rule = AllOf(Above(0.1), Number("error", AtMost(0.02)))
    hidden = replace(PASSING, id="figure-1.hidden", rule=rule, measure=with_an_error)
    made = reproduce(replace(STUDY, claims=(PASSING, hidden)))
    words = "fails: “error” is at or below 0.02 (it is 0.0249)"
    table, section = made.page.split('<section id="claim-figure-1.some">')
    assert (words in table, words in section) == (True, True)
    assert made.page.count(words) == 2
    lines = str(made.result).splitlines()
    (row,) = [index for index, line in enumerate(lines) if line.startswith("figure-1.hidden")]
    assert lines[row + 1] == f"    {words}"


def with_an_error(evidence):
    return Measurement(value=0.25, low=0.2, high=0.3, n=10, unit="draws", numbers={"error": 0.0249})


def test_a_chart_of_two_claims_is_drawn_once(reproduce):
    study = replace(STUDY, claims=[FAILING, replace(FAILING, id="figure-1.again")])
    page = reproduce(study).page
    assert page.count("<svg ") == 1
    assert 'The chart of <a href="#claim-figure-1.all">claim-figure-1.all</a>.' in page
