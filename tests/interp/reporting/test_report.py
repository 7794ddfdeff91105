"""Reports: self-contained, escaped, with charts that render in a browser."""

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

import interp
from hooks import FullyConnected, Recurrent, Transformer
from interp import TrainSettings, report_run
from interp import report as write_report
from interp.reporting.sections import edges_section, lens_section, patch_section
from interp.tasks import Lego, Template
from interp.view import page
from interp.view.chain import chain_svg, sentence_html
from interp.view.page import Section

CHARTS = 6  # curves, accuracies, probes, heads, and two ablations
NASTY = ("<b>", "</script>", '"', "&amp;", "'", "<img/src=x/onerror=alert(1)>")


class Elements(HTMLParser):
    """Start tags with their attributes, scripts left alone as a browser would."""

    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def one_step(task, seed=0):
    model = Transformer(interp.config_for(task, n_layers=1, d_model=8, n_heads=2), seed=seed)
    return interp.train(model, task, TrainSettings(steps=2, batch_size=4, eval_every=1, n_eval=20), seed=seed)


@pytest.fixture(scope="module")
def nasty():
    """A run on a task whose letters are pieces of HTML."""
    torch.set_num_threads(1)
    task = Lego(n_vars=3, alphabet=NASTY)
    return task, one_step(task)


@pytest.fixture(scope="module")
def report(nasty, tmp_path_factory):
    """The file of a report with every section, and the run it is about."""
    task, run = nasty
    probes = interp.probe(run.model, task, n_train=40, n_test=40, verify=True)
    path = tmp_path_factory.mktemp("report") / "report.html"
    patterns = interp.classify_heads(run.model, task, n=8)
    results = [
        probes,
        patterns,
        interp.show_attention(run.model, task, examples=2, patterns=patterns, viewer="canvas"),
        interp.ablate_heads(run.model, task, n=8),
        interp.ablate_heads(run.model, task, heads={"<b>first</b>": [(0, 0)]}, n=8, n_random=1),
    ]
    report_run(run, task, path, results=results, control=one_step(task, seed=1), n_test=50)
    return path


def without_scripts(html):
    return re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


def test_a_report_is_self_contained(report):
    assert [path.name for path in report.parent.iterdir()] == ["report.html"]
    html = report.read_text()
    for tag, attrs in Elements(html).found:
        for name in ("src", "href", "data", "poster", "action", "srcset", "xlink:href"):
            target = attrs.get(name) or ""
            assert target == "" or target.startswith("#"), (tag, name, target)
        assert tag not in ("link", "base", "object", "embed", "img")
        assert tag != "iframe" or "src" not in attrs  # the attention viewer is embedded as srcdoc
        assert "url(http" not in (attrs.get("style") or "")
    assert "@import" not in without_scripts(html)
    assert "url(http" not in without_scripts(html)


def test_a_report_has_its_sections_and_numbers(report, nasty):
    task, run = nasty
    html = report.read_text()
    for title in (
        "Training setup",
        "Learning curves",
        "Accuracy per target",
        "Linear probes by layer and target",
        "Example sentence and its chain",
        "Provenance",
    ):
        assert f">{title}</a>" in html
        assert f"<h2>{title}</h2>" in html
    tested = interp.evaluate(run.model, task, n=50, seed=0)
    for accuracy, low, high in zip(tested.accuracy.value, tested.accuracy.low, tested.accuracy.high, strict=True):
        assert f"<td>{accuracy:.4f} [{low:.4f}, {high:.4f}]</td>" in html
    assert run.manifest["versions"]["torch"] in html


def test_one_layer_is_singular(report):
    html = report.read_text()
    assert "A transformer with 1 layer and 2 heads per layer" in html
    assert "1 layer of 2 heads, width 8" in html


@pytest.mark.parametrize(
    ("family", "network"),
    [("fully_connected", FullyConnected), ("rnn", Recurrent)],
    ids=["fully connected", "recurrent"],
)
def test_a_baseline_is_not_called_a_transformer(family, network, tmp_path):
    task = Template(train=8, validation=4, test=4)
    run = interp.train(network(interp.config_for(task, family)), task, TrainSettings(steps=1, batch_size=4, n_eval=4))
    path, _ = report_run(run, task, tmp_path / "page.html", n_test=4)
    html = path.read_text()
    assert f"A {run.model.cfg.kind} was trained on " in html
    assert "transformer with" not in html


def test_a_target_without_answers_is_not_the_lowest(nasty, monkeypatch, tmp_path):
    task, run = nasty

    def first_without_answers(model, task, **options):
        result = interp.evaluate(model, task, **options)
        accuracy = result.accuracy.value.copy()
        accuracy[:] = np.nan, 0.75, 0.5
        return replace(
            result, accuracy=replace(result.accuracy, value=accuracy, low=accuracy - 0.1, high=accuracy + 0.1)
        )

    monkeypatch.setattr("interp.reporting.report.evaluate", first_without_answers)
    path, _ = report_run(run, task, tmp_path / "page.html", n_test=20)
    assert f"lowest accuracy on any target is 50.00% ({task.outcomes[2]})" in path.read_text()


def test_charts_are_images_with_a_text_alternative(report):
    charts = re.findall(r'<figure class="chart[^>]*>(.*?)</figure>', report.read_text(), re.DOTALL)
    assert len(charts) == CHARTS
    for chart in charts:
        ((tag, svg),) = [element for element in Elements(chart).found if element[0] == "svg"]
        assert svg["role"] == "img"
        assert re.fullmatch(r"Chart\. .*axis titled .*\d+ marks", svg["aria-label"], re.DOTALL), (tag, svg)
        assert "data-tip=" in chart


def test_the_foot_says_what_the_report_is_about(report, nasty):
    task, _ = nasty
    html = report.read_text()
    facts = dict(re.findall(r"<dt>(\w+)</dt><dd>(.*?)</dd>", html[html.index("<footer>") :]))
    assert set(facts) >= {"task", "model", "seed", "commit", "date"}
    assert unescape(facts["task"]) == task.description
    assert "1 layer of 2 heads, width 8" in facts["model"]
    assert facts["seed"] == "0 (training)"
    assert re.match(r"20\d\d-\d\d-\d\dT", facts["date"])


def test_names_of_targets_are_explained_where_they_first_appear(report):
    html = without_scripts(report.read_text())
    assert html.count("are the variables of a chain in order") == 1
    assert html.index("are the variables of a chain in order") < html.index(">#1<")


def test_tokens_are_escaped_in_reports(report):
    html = report.read_text()
    tags = {tag for tag, _ in Elements(html).found}
    assert "b" not in tags
    assert "img" not in tags
    assert not any(name.startswith("on") for _, attrs in Elements(html).found for name in attrs)
    # the viewer's data and script, and that of charts: no token opened or closed a script
    assert len([tag for tag, _ in Elements(html).found if tag == "script"]) == 3


@pytest.mark.parametrize("token", NASTY)
def test_tokens_are_escaped_in_pictures(token):
    picture = chain_svg(root=token, variables=[token], operations=[token], values=[token], answers=[token])
    sentence = sentence_html([token], [0], [0])
    for html, shown in ((picture, 6), (sentence, 1)):
        text = []
        parser = HTMLParser()
        parser.handle_data = text.append
        parser.feed(html)
        assert "".join(text).count(token) == shown
        if "<" in token:
            assert token not in html


def test_a_section_escapes_its_text_and_its_table(tmp_path):
    section = Section(title="<b>", text="</p><img>\n\nsecond", table=[("<i>",), ("<u>",)])
    write_report([section], tmp_path / "x.html", title="</title><s>", lead="<em>")
    tags = {tag for tag, _ in Elements((tmp_path / "x.html").read_text()).found}
    assert not tags & {"b", "img", "i", "u", "s", "em", "script"}


def test_colours_of_answers():
    picture = str(chain_svg(root="1", variables="ab", operations="+-", values=["+1", "-1"], answers=["+1", "+1"]))
    circles = re.findall(r'<circle[^>]*fill="(#\w+)"', picture)
    assert circles[1:] == ["#66a182", "#d1495b"]
    assert "model: +1" in picture
    plain = str(chain_svg(root="1", variables="ab", operations="+-", values=["+1", "-1"], answers=[]))
    assert "model:" not in plain


def test_clause_numbers():
    html = str(sentence_html(["[BOS]", "b", "a", "[EOS]"], [None, 0, 1, None], [1, 0]))
    assert html == (
        '<p class="sentence"><code>[BOS]</code>'
        '<span class="clause"><sup>#1</sup><code>b</code></span>'
        '<span class="clause"><sup>#0</sup><code>a</code></span>'
        "<code>[EOS]</code></p>"
    )


def test_reports_are_written_atomically(nasty, tmp_path, monkeypatch):
    task, run = nasty
    path = tmp_path / "report.html"
    path.write_text("the old one")

    def broken(chart):
        raise RuntimeError("no drawing today")

    monkeypatch.setattr(page, "chart_figure", broken)
    with pytest.raises(RuntimeError, match="no drawing today"):
        report_run(run, task, path, n_test=20)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("report.html", "the old one")]


def test_a_page_without_sections_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"results is \[\]; give a list of results, one at least"):
        write_report([], tmp_path / "x.html", title="nothing")
    assert not list(tmp_path.iterdir())


def test_too_few_test_examples_are_refused(nasty, tmp_path):
    task, run = nasty
    with pytest.raises(ValueError, match="n is 0; it must be at least 1"):
        report_run(run, task, tmp_path / "x.html", n_test=0)


def test_unknown_objects_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"results has a dict, which has no section; pass BalanceResult, ProbeResult"):
        write_report([{}], tmp_path / "page.html", title="page")
    assert not list(tmp_path.iterdir())


def test_the_attention_viewer_is_part_of_the_page(report):
    elements = Elements(report.read_text()).found
    assert {"class": "attention"} in [attrs for _, attrs in elements]
    assert "select" in {tag for tag, _ in elements}
    assert "iframe" not in {tag for tag, _ in elements}
    assert not [attrs for tag, attrs in elements if tag == "img" or "onerror" in attrs or "src" in attrs]


def test_other_results_show_their_chart_and_text(tmp_path):
    result = interp.theory.pruning.prune_to_linear(torch.eye(2), candidates=4)
    write_report([result], tmp_path / "page.html", title="page")
    text = (tmp_path / "page.html").read_text()
    assert "<h2>Pruning</h2>" in text
    assert "<pre>linear map 2 x 2, out of random weights" in text
    assert "upper bound" in text


@pytest.fixture(scope="module")
def loop():
    """A hand-written model that knows one more variable of the chain after every second layer."""
    task = Lego(n_vars=2)
    return interp.known_answers.lego_loop(task), task


def test_the_lens_says_from_which_layer_a_target_is_answered(loop):
    result = interp.logit_lens(*loop, n=50)
    section = lens_section(result)
    last = len(result.accuracy) - 1
    first = [next(i for i in range(last + 1) if (result.accuracy.value[i:, j] > 0.95).all()) for j in range(2)]
    assert section.text.startswith(f"Answered: #0 from layer {first[0]} on; #1 from layer {first[1]} on.")


def test_a_patch_names_the_site_that_carries_the_answer(loop):
    result = interp.patch(*loop, n=24)
    section = patch_section(result)
    assert [row[0] for row in section.table[1:]] == list(result.targets)
    for index, (_, patched, place, share, _) in enumerate(section.table[1:]):
        site = result.sites.index(patched.removeprefix("head "))
        assert place.startswith("position ")
        value = result.share[site, result.places.index(place.removeprefix("position ")), index]
        assert value == np.nanmax(result.share[:, :, index])
        assert share == f"{value:.2f}"


def test_edges_begin_with_the_needed_ones(loop):
    result = interp.edges(*loop, n=200)
    section = edges_section(result)
    assert [row[0] for row in section.table[1:]] == list(result.needed[: len(section.table) - 1])
    assert section.text.startswith(f"{len(result.needed)} of {len(result.names)} edges are needed alone: without ")
