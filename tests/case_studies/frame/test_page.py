"""The page begins with what was found; position and type of a claim do not depend on its verdict."""

import importlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import toys
from browser import faults
from chart_text import FAULTS
from toys import FAILING, PASSING, STUDY, one_row

from case_studies.frame.claim_page import _measured, _when_fixed, commit_text
from case_studies.frame.claims import BEFORE_ANY_MODEL, Preregistration
from case_studies.frame.evidence import SIZES
from case_studies.frame.finding import Finding
from case_studies.frame.measurement import Measurement
from case_studies.frame.picture import line_of
from case_studies.frame.results import ClaimResult
from case_studies.frame.rules import Above, AllOf, AtMost, Between, Equal, Number, Value
from interp.cli.installed_studies import load_study, study_entry_points
from interp.core.plain_words import plain_chart, plain_words
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
def folder(tmp_path_factory):
    """The folder of the pages of a run with claims of every verdict."""
    return replace(STUDY, claims=CLAIMS).run(folder=tmp_path_factory.mktemp("page"), n_jobs=1).page.parent


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "report.html").read_text()


@pytest.fixture(scope="module")
def claim_pages(folder):
    return {path.stem: path.read_text() for path in (folder / "claims").iterdir()}


def section_of(page, name):
    start = page.index(f'<section id="{name}">')
    return page[start : page.index("</section>", start)]


def test_undecided_claims_say_what_would_decide_them(page, claim_pages):
    said = {}
    for name, text in claim_pages.items():
        for words in re.findall(r"<dt>What would decide it</dt><dd>(.*?)</dd>", text):
            said[name] = words
    assert said == {
        "table-4.large": "A run at size paper.",
        "figure-1.unclear": "Hardly more draws: the value is at the threshold.",
    }
    for words in said.values():
        assert f"to decide it: {words[0].lower()}{words[1:-1]}" in section_of(page, "verdicts")


def test_the_page_begins_with_findings_then_the_picture_then_the_table(page):
    assert re.findall(r'<section id="([^"]*)">', page) == ["in-short", "words", "picture", "verdicts", "provenance"]
    table = section_of(page, "verdicts")
    verdicts = re.findall(r'data-verdict="([^"]*)"', table)
    assert verdicts == ["reproduced", "not reproduced", "reproduced", "not measured", "inconclusive"]
    assert re.findall(r"<th scope=\"col\">(.*?)</th>", table)[1] == "verdict"
    for words in ("0.25 [0.20, 0.30]", "10 draws", "0.97"):
        assert words in table
    lead = re.search(r'<p class="lead">(.*?)</p>', page)[1]
    assert "5 published statements: 2 reproduced, 1 not reproduced, 1 inconclusive, 1 not measured." in lead
    first = page[: page.index('<section id="picture">')]
    assert "Rules were fixed" not in first
    assert "commit" not in first[first.index("<h1>") :]


def test_the_reader_is_told_whether_to_trust_it_what_is_next_and_how_to_run_it(page):
    short = section_of(page, "in-short")
    assert "5 of 5 thresholds were set before a result of their statement was known" in short
    assert "1 statement undecided and 1 statement without a number" in short
    assert "<code>interp reproduce toy --size quick</code>" in short
    words = section_of(page, "words")
    for verdict in ("reproduced", "not reproduced", "inconclusive", "not measured"):
        assert f"<dt>{verdict}</dt>" in words
    assert "<dt>by construction</dt>" not in words  # no claim has this verdict


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ([PASSING], "Nothing is open: every statement is reproduced."),
        ([PASSING, FAILING], "Every statement is decided; look first at the 1 statement not reproduced, in the"),
        ([UNCLEAR, PASSING], "1 statement undecided: the"),
    ],
)
def test_what_is_next(reproduce, claims, words):
    assert f"<dt>what next?</dt><dd>{words}" in reproduce(replace(STUDY, claims=claims)).page


def test_what_passes_by_chance_is_said_in_words(reproduce):
    looked_at = Preregistration("after a result", "0.25", looks=3)
    claims = [PASSING, replace(PASSING, id="figure-8.seen", preregistration=looked_at)]
    short = section_of(reproduce(replace(STUDY, claims=claims)).page, "in-short")
    chance = "at most 0.1 of 2 statements would still be reproduced by chance. For 1 of them more was measured"  # 5/40
    assert chance in short
    assert "1 of 2 thresholds were set before a result" in short
    assert "the page of the statement says what was known" in short


def test_the_picture_has_every_number_with_a_link_to_its_page(page, folder):
    picture = section_of(page, "picture")
    links = re.findall(r'<a href="(claims/[^"]*)"', picture)
    assert links == [f"claims/{claim.id}.html" for claim in CLAIMS if claim.id != "table-4.large"]
    assert all((folder / link).is_file() for link in links)
    assert "1 statement without a number is in the table only" in picture
    labels = re.findall(r'<li data-label="([^"]*)"', picture)
    assert labels == ["reproduced", "not reproduced", "reproduced", "inconclusive"]


M = Measurement(value=0.25, low=0.2, high=0.3, n=10, unit="draws")


@pytest.mark.parametrize(
    ("rule", "places"),
    [
        (Above(0.1), (84.5, 73, 96, 100)),  # 0.15, 0.1 and 0.2 above it, of at most 0.2
        (AtMost(0.1), (15.5, 4, 27, 100)),  # the same, on the other side
        (Above(0.25), (50, 4, 96, 100)),
        (Between(0.0, 0.3), (73, 50, 96, 100)),  # the nearer threshold is the upper one
        (Between(0.2, 0.26), (57.6667, 19.3333, 96, 96)),  # of both thresholds the nearer is in the middle
        (Value(AtMost(0.5)), (88.3333, 80.6667, 96, 100)),
        (AllOf(Above(0.1), Number("error", AtMost(0.02))), (84.5, 73, 96, 100)),
    ],
)
def test_places_in_the_picture(rule, places):
    line = line_of(M, rule.passing_range)
    assert (line.value, line.low, line.high, line.end) == pytest.approx(places, abs=0.01)


def test_places_of_numbers_without_threshold_and_of_unbounded_intervals():
    assert line_of(M, Number("error", AtMost(0.02)).passing_range) is None
    unbounded = replace(M, high=float("inf"))
    line = line_of(unbounded, Above(0.1).passing_range)
    assert (line.value, line.low, line.high) == pytest.approx((96, 80.667, 96), abs=0.01)
    exact = Measurement(value=1, low=1, high=1, n=1, unit="proof", exact=True)
    line = line_of(exact, Value(Equal(1)).passing_range)
    assert (line.value, line.low, line.high) == (50, 50, 50)
    line = line_of(replace(exact, value=0.9, low=0.8, high=0.95), Value(Equal(1)).passing_range)
    assert line.value < line.high < 50


FOUND = Finding(text="It is right in {figure-1.some} of <all> draws.", reproduced=("figure-1.some",))


def test_findings_are_shown_while_their_verdicts_are_those_of_the_results(reproduce):
    wrong = Finding(text="It is always right.", reproduced=("figure-1.all",))
    unmeasured = Finding(text="A large one is right: {table-4.large}.")
    study = replace(STUDY, findings=[wrong, unmeasured, FOUND], words={"draw": "a <random> number"})
    run = reproduce(study)
    lead = re.search(r'<p class="lead">(.*?)</p>', run.page)[1]
    number = '<a class="whole" href="claims/figure-1.some.html">0.25 [0.20, 0.30]</a>'
    assert lead.startswith(f'<span class="found">It is right in {number} of &lt;all&gt; draws.</span> ')
    assert "always" not in lead
    assert "large" not in lead
    assert "<dt>draw</dt><dd>a &lt;random&gt; number</dd>" in run.page


def test_at_most_three_findings_are_shown(reproduce):
    many = [replace(FOUND, text=f"Sentence {index}.") for index in range(5)]
    lead = re.search(r'<p class="lead">(.*?)</p>', reproduce(replace(STUDY, findings=many)).page)[1]
    assert re.findall(r"Sentence (\d)", lead) == ["0", "1", "2"]


def test_findings_about_unknown_claims_are_refused():
    with pytest.raises(ValueError, match=r"a finding of the study toy is about the claim 'figure-7', which it lacks"):
        replace(STUDY, findings=[Finding(text="It is {figure-7}.")])


def test_words_of_stored_texts_are_replaced():
    assert plain_words("n = 5 seeds an arm; the bar of both arms") == (
        "n = 5 seeds in each condition; the threshold of both conditions"
    )
    for unchanged in ("a barrier, alarms and charts", "give --packs FOLDER"):
        assert plain_words(unchanged) == unchanged
    assert plain_words("on other packs") == "on other files of models"
    chart = {"mark": {"type": "bar"}, "title": ["above the bar"], "width": 3}
    assert plain_chart(chart) == {"mark": {"type": "bar"}, "title": ["above the threshold"], "width": 3}


def test_pages_of_claims_that_are_gone_are_removed(reproduce, tmp_path):
    assert set(reproduce().claim_pages) == {claim.id for claim in toys.CLAIMS}
    assert set(reproduce(replace(STUDY, claims=[PASSING])).claim_pages) == {PASSING.id}


def test_every_verdict_has_the_same_elements_and_style(page, claim_pages):
    parsed = Verdicts(page)
    n_measured = len(CLAIMS) - 1
    places = [parsed.found[:n_measured], parsed.found[n_measured:]]  # the picture, and the table
    places.append([Verdicts(text).found[0] for text in claim_pages.values()])
    assert list(map(len, places)) == [n_measured, len(CLAIMS), len(CLAIMS)]
    for found in places:
        assert {verdict for verdict, _ in found} >= {"reproduced", "not reproduced", "inconclusive"}
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
INSTALLED = study_entry_points()
PAGES = sorted([*INSTALLED, *IN_A_PACKAGE])


@pytest.mark.browser
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in LONG_PAGES else pytest.mark.slow) for name in PAGES]
)
def test_nothing_is_wrong_with_the_pages_of_the_papers(browser, tmp_path, monkeypatch, name):
    monkeypatch.syspath_prepend(EXAMPLE)
    if name in INSTALLED:
        study = load_study(name, INSTALLED)
    else:
        study = importlib.import_module(f"{IN_A_PACKAGE[name]}.study").STUDY
    pages = [study.draw(folder=tmp_path / folder).page for folder in ("one", "two")]
    assert pages[0].read_text() == pages[1].read_text()  # the same results give the same page
    assert faults(browser, pages[0]) == []
    assert pages[0].stat().st_size < 3e6
    assert long_or_cut(browser, pages[0], n_claims=len(study.claims)) == []
    wrong = {path.stem: faults_of_claim(browser, path) for path in (pages[0].parent / "claims").iterdir()}
    assert {name: what for name, what in wrong.items() if what} == {}


def long_or_cut(browser, path, *, n_claims):
    """Whether the page of a study is longer than ten screens, or its verdicts are out of sight on a telephone."""
    most = max(10, n_claims / 7)  # a study of more than 70 claims has more rows
    found = []
    page = browser.open(path, width=1280, height=900)
    screens = page.run("document.documentElement.scrollHeight / 900")
    found += [f"{screens:.1f} screens"] if screens > most else []
    page.close()
    page = browser.open(path, width=400)
    verdicts = "[...document.querySelectorAll('td .verdict')]"
    right = page.run(f"Math.max(...{verdicts}.map((verdict) => verdict.getBoundingClientRect().right))")
    found += [f"verdicts end at {right}"] if right > 400 else []
    page.close()
    return found


def faults_of_claim(browser, path):
    """Text of charts that is cut or overlaps, and what is wider than the page of a claim, on a telephone too."""
    found = []
    for width in (1280, 400):
        page = browser.open(path, width=width, height=900)
        found += page.overflow() + page.problems
        found += page.run(FAULTS) if width == 1280 else []
        page.close()
    return found


def test_the_foot_is_that_of_the_stored_results(page):
    facts = dict(re.findall(r"<dt>(\w+)</dt><dd>(.*?)</dd>", page[page.index("<footer>") :]))
    assert facts["task"] == "lego"
    assert facts["model"] == "3 trained models in 2 groups"
    assert facts["seed"].startswith("0 ")
    assert facts["command"] == "interp reproduce toy --size quick"
    assert facts["commit"]
    assert facts["date"] in section_of(page, "provenance")


def test_when_with_which_source_and_at_what_cost_a_claim_was_measured():
    made = {"time": "2026-01-02T03:04:05", "source": {"commit": "0123456789abcdef", "stored_in": "fedcba98765432"}}
    cost = {"cpu_seconds": 2.04, "seconds": 9.0, "peak_mb": 300}
    shown = _measured(ClaimResult(claim=PASSING, provenance=made, cost=cost))
    assert shown == "2026-01-02, 2.0 CPU seconds, peak memory 300 MB"
    assert commit_text(made["source"]) == "0123456789, stored in commit fedcba9876"
    earlier = ClaimResult(claim=PASSING, provenance={"time": "2026-01-02"}, cost={"seconds": 9.0})
    assert _measured(earlier) == "2026-01-02, 9.0 s"


def test_pages_of_claims_link_to_those_before_and_after(claim_pages):
    ids = [claim.id for claim in CLAIMS]
    for index, name in enumerate(ids):
        links = re.findall(r'<li>(\w+): <a href="(.*?).html">', claim_pages[name])
        before = [("previous", ids[index - 1])] if index else []
        assert links == before + [("next", after) for after in ids[index + 1 : index + 2]]


def test_when_a_rule_was_fixed_and_how_often_more_was_measured():
    assert _when_fixed(BEFORE_ANY_MODEL) == "before any model"
    assert _when_fixed(Preregistration("after first models", "two models.")) == "after first models: two models."
    seen = Preregistration("after a result", "0.5 over six.", looks=2)
    assert _when_fixed(seen) == (
        "after a result: 0.5 over six. Models, seeds or inputs were added 2 times after the number had been seen."
    )


def test_words_are_explained_on_the_pages_that_use_them(reproduce):
    def arms(evidence):
        table = ("Arms", [("arm", "#0"), ("few", 1.0)])
        return one_row(0.5, 0.4, 0.6, n=2, tables=[table])

    study = replace(STUDY, claims=(PASSING, replace(FAILING, id="figure-9.a", measure=arms)))
    pages = reproduce(study).claim_pages
    for words in ("A condition is a group of models", "are the variables of a chain in order"):
        assert [name for name, text in pages.items() if words in text] == ["figure-9.a"]


def test_each_claim_shows_verdict_source_and_rule(claim_pages):
    assert set(claim_pages) == {claim.id for claim in CLAIMS}
    for claim in CLAIMS:
        page = claim_pages[claim.id]
        place = [page.index(words) for words in ("data-verdict", claim.source, "How it is judged")]
        assert place == sorted(place)
        assert claim.rule_text in page
        assert (claim.paper or "none printed") in page
        assert '<a href="../report.html">' in page
    for words in ("n = 2 seeds", "Hardly trained.", "<h3>Accuracy of &lt;every&gt; seed</h3>", "per seed", "<svg"):
        assert words in claim_pages[FAILING.id]
    assert "<summary>Settings of its models" in claim_pages[FAILING.id]
    assert "It takes a GPU." in claim_pages["table-4.large"]


def test_text_is_escaped_and_links_have_targets(folder, page):
    assert "<title>Toys &amp; &lt;others&gt;</title>" in page
    assert "It is sometimes &lt;right&gt;." in page
    for path in (folder / "report.html", *(folder / "claims").iterdir()):
        parsed = Verdicts(path.read_text())
        assert parsed.around == []  # every element that opens closes
        assert len(parsed.ids) == len(set(parsed.ids))
        for link in parsed.links:  # nothing to fetch
            if link.startswith("#"):
                assert link[1:] in parsed.ids
            else:
                assert (path.parent / link).resolve().is_relative_to(folder)
                assert (path.parent / link).is_file()


def test_provenance_lists_versions_and_models(page):
    part = section_of(page, "provenance")
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
    run = reproduce(only=["figure-1.all"])
    assert [verdict for verdict, _ in Verdicts(run.page).found[1:]] == [
        "not measured", "not reproduced", "not measured", "not measured",
    ]  # fmt: skip
    assert "Not measured yet at this size, seed and code." in run.claim_pages["figure-1.some"]


@pytest.mark.parametrize("size", SIZES)
def test_the_page_shows_its_size(reproduce, size):
    study = toys.Study(name="one", title="One", lead="Nothing.", claims=[PASSING])
    page = reproduce(study, size=size).page
    assert "1 published statement: 1 reproduced." in page
    assert f"interp reproduce one --size {size}</code>" in page


def test_no_script_without_charts(reproduce, page):
    bare = reproduce(toys.Study(name="one", title="One", lead="Nothing.", claims=[PASSING]))
    assert "<script" not in bare.page + bare.claim_pages[PASSING.id]
    assert "<details" not in bare.claim_pages[PASSING.id]  # no models, no settings
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
    assert made.page.count(words) == 1
    assert made.claim_pages["figure-1.hidden"].count(words) == 1
    lines = str(made.result).splitlines()
    (row,) = [index for index, line in enumerate(lines) if line.startswith("figure-1.hidden")]
    assert lines[row + 1] == f"    {words}"


def with_an_error(evidence):
    return one_row(0.25, 0.2, 0.3, n=10, numbers={"error": 0.0249})
