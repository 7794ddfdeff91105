"""The page of all heads: verdicts, costs and probes are those of the results, and the chosen head is in view."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from browser import faults
from few_inputs import Balanced, model_of_balanced

import interp
from hooks import Transformer
from interp.auditing.records import HeadVerdict
from interp.auditing.sentences import verdict_summary, what_heads_do
from interp.auditing.show import INTERVENTIONS_IN_WORDS
from interp.reporting.sections import audit_section
from interp.view.attention import Finding, canvas_page
from interp.view.cards import verdict_chip


@pytest.fixture(scope="module")
def found(trained, tiny):
    audited = interp.audit(trained.model, tiny, n=128)
    probes = interp.probe(trained.model, tiny, n_train=400, n_test=200)
    return audited, probes, interp.auditing.show_heads(trained.model, tiny, audited, probes=probes)


def test_findings_are_those_of_the_audit_and_the_probes(found):
    audited, probes, page = found
    assert page.heads == ("0.0", "0.1", "1.0", "1.1")
    assert [one.verdict for one in page.findings] == [head.verdict for head in audited.heads]
    for index, (one, head) in enumerate(zip(page.findings, audited.heads, strict=True)):
        assert one.sentence == audited.sentences()[index]
        costs = {name: numbers for name, *numbers in one.costs}
        np.testing.assert_allclose(costs["output: its mean"], audited.cost("mean")[0][index])
        around = [(name, *probes.accuracy[head.layer : head.layer + 2, at]) for at, name in enumerate(probes.targets)]
        assert one.probes == around
        assert len(costs) == sum(np.isfinite(audited.cost(name)[0][index, 0]) for name in INTERVENTIONS_IN_WORDS)


def test_without_probes_there_are_none(found, trained, tiny):
    assert interp.auditing.show_heads(trained.model, tiny, found[0]).findings[0].probes == []


def test_results_of_another_model_are_refused(found, trained, tiny):
    audited, _probes, _ = found
    no_sets = {"sets": (), "largest_harmless": (), "smallest_costly": (), "largest_harmless_cost": None, "strata": ()}
    fewer = replace(audited, heads=audited.heads[:-1], **no_sets)
    with pytest.raises(
        ValueError, match=r"audit has 3 heads, the last of these 1\.0; the model has 2 layers of 2 heads"
    ):
        interp.auditing.show_heads(trained.model, tiny, fewer)
    small = Transformer(interp.config_for(tiny, n_layers=1, d_model=16, n_heads=2))
    shallow = interp.probe(small, tiny, n_train=200, n_test=100)
    with pytest.raises(ValueError, match="probes has 2 layers with the embedding; the model has 3"):
        interp.auditing.show_heads(trained.model, tiny, audited, probes=shallow)
    one = found[2]
    with pytest.raises(ValueError, match="findings has 1 entries for 4 heads"):
        canvas_page(one.examples, heads=one.heads, labels=[""] * 4, columns=2, title="t", findings=one.findings[:1])


def test_the_verdicts_in_one_sentence(found):
    assert verdict_summary(["faithful", "idle", "idle", "misleading"]) == (
        "4 heads: 1 does what it looks like, 1 looks meaningful but does not act as it looks, 2 do nothing that counts."
    )
    assert found[0].summary().startswith("4 heads: ")
    assert found[0].summary().endswith(what_heads_do(found[0].heads))


def record(layer, head, verdict, label="association", partners=()):
    """The record of a head, without costs."""
    kind = "association" if label in ("unclassified", "uniform") else label
    scores = {"score": 1.0, "score_low": 1.0, "score_high": 1.0, "value_weighted": 1.0, "moved": 1.0, "p_label": 0.0}
    return HeadVerdict(
        layer=layer, head=head, verdict=verdict, reason="", partners=partners, label=label, kind=kind,
        needed={}, costs={}, **scores,
    )  # fmt: skip


def test_the_whole_model_in_a_sentence():
    heads = [
        record(0, 0, "faithful", "previous"),
        record(0, 1, "misleading", "previous"),
        record(1, 0, "redundant", "induction", ((1, 1),)),
        record(1, 1, "redundant", "induction", ((1, 0),)),
        record(1, 2, "hidden", "unclassified"),
        record(1, 3, "idle", "uniform"),
    ]
    assert what_heads_do(heads) == (
        "0.0 works through attention to the previous token (previous); 1.2 is needed but looks like no known kind; 1.0 "
        "and 1.1, which look like induction, share work; 0.1 looks like previous but does not act as it looks; 1.3 "
        "does nothing that counts."
    )


def test_work_that_a_head_shares_with_one_of_another_verdict():
    heads = [record(0, 0, "redundant", "previous", ((0, 2),)), record(0, 1, "idle"), record(0, 2, "undecided")]
    text = what_heads_do(heads)
    assert (
        text
        == "0.0, which looks like previous, shares its work with 0.2; 0.2 is undecided; 0.1 does nothing that counts."
    )


def test_many_heads_stay_one_short_sentence():
    kinds = ("association", "previous", "next letter")
    heads = [record(layer, head, "faithful", kinds[head % 3]) for layer in range(12) for head in range(12)]
    assert what_heads_do(heads) == (
        "48 heads work through attention to the same token elsewhere (association); 48 heads work through attention to "
        "the previous token (previous); 48 heads work through patterns next letter."
    )
    many = [record(layer, layer, "faithful", f"kind {layer}") for layer in range(12)]
    assert what_heads_do([*many, *(record(12, head, "idle") for head in range(9))]).endswith(
        "5.5 works through its pattern kind 5; 9 heads of layer 12 do nothing that counts; 6 further groups of heads "
        "can be found in the table."
    )


def test_idle_heads_are_one_row_of_the_table(found):
    audited, _, _ = found
    needed, not_needed = (dict.fromkeys(("zero", "mean", "resample"), value) for value in (True, False))
    idle = {"verdict": "idle", "reason": "not needed", "label": "unclassified", "needed": not_needed, "outcome": ""}

    def untested(head):
        return {name: replace(cost, p_matters=None, p_harmless=None) for name, cost in head.costs.items()}

    def idle_head(head, drops, **changes):
        mean = replace(
            head.costs["mean"], drop=drops, low=(-0.02,) * len(drops), high=(0.08,) * len(drops), exact=False
        )
        return replace(head, **{**idle, **changes}, costs=untested(replace(head, costs={**head.costs, "mean": mean})))

    n = len(audited.outcomes)
    first, second, third, fourth = audited.heads[:4]
    heads = (
        idle_head(first, (0.01,) * n),
        idle_head(second, (0.01,) * (n - 1) + (0.04,), label="uniform"),
        # needed under another replacement: a row of its own
        idle_head(third, (0.05,) * n, needed={**not_needed, "zero": True}),
        replace(fourth, verdict="hidden", reason="needed", needed=needed, costs=untested(fourth)),
    )
    result = replace(audited, heads=heads, threshold=np.full(n, 0.1))
    rows = audit_section(result).table[1:]
    idle_chip, hidden_chip = verdict_chip("idle"), verdict_chip("hidden")
    assert [row[:2] for row in rows] == [("1.0", idle_chip), ("1.1", hidden_chip), ("0.0 and 0.1", idle_chip)]
    assert rows[2][2] == (
        "look like no known kind or attend evenly and are not needed; 0.1 costs most: without it accuracy falls by "
        f"0.04 [-0.02, 0.08] on {audited.outcomes[-1]}, less than 0.10."
    )
    # one idle head has its own sentence
    alone = replace(result, heads=(heads[0], *audited.heads[1:]))
    assert audit_section(alone).table[1][2].startswith("looks like no known kind (nearest")


@pytest.mark.slow
@pytest.mark.browser
def test_a_page_of_every_input_has_no_intervals(browser, tmp_path):
    audited = interp.audit(model_of_balanced(), Balanced(), n="all")
    page = interp.auditing.show_heads(model_of_balanced(), Balanced(), audited)
    opened = browser.open(page.save(tmp_path / "page.html"), width=1280)
    opened.until("document.querySelector('.attention').dataset.drawn")
    assert opened.run("document.querySelector('.costs p').textContent").startswith("Every input, exact; the red line")
    assert "[" not in opened.run("document.querySelector('.costs table').textContent")
    assert "(all 64 inputs, exact)" in opened.run("document.querySelector('.summary').textContent")
    opened.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, pytest.param(1280, marks=pytest.mark.slow)])
def test_a_click_shows_the_finding(browser, tmp_path, found, width):
    audited, _, page = found
    path = page.save(tmp_path / "page.html")
    assert faults(browser, path, ready="document.querySelector('.attention').dataset.drawn") == []
    opened = browser.open(path, width=width)
    opened.until("document.querySelector('.attention').dataset.drawn")
    opened.run("document.querySelectorAll('.grid button')[2].click()")
    assert opened.run("document.querySelector('.summary').textContent") == audited.sentences()[2]
    assert opened.run("document.querySelector('.name').textContent") == f"head 1.0 · {audited.heads[2].verdict}"
    rows = opened.run("document.querySelectorAll('.costs table')[0].rows.length - 1")
    assert rows == len(page.findings[2].costs)
    assert opened.run("document.querySelector('.costs p').textContent").startswith("95 % intervals; the red line")
    rows = opened.run("document.querySelectorAll('.probes table')[0].rows.length - 1")
    assert rows == len(page.findings[2].probes)
    box = "document.querySelector('.name').getBoundingClientRect()"
    assert opened.run(f"{box}.top >= 0 && {box}.bottom <= innerHeight")  # not below the visible part
    opened.close()


def test_the_report_begins_with_the_heads(found, trained, tiny, tmp_path):
    audited, probes, page = found
    path, _ = interp.report_run(trained, tiny, tmp_path / "r.html", results=[probes, audited, page], n_test=200)
    html = path.read_text()
    titles = re.findall(r"<h2[^>]*>([^<]+)</h2>", re.sub(r'srcdoc="[^"]*"', "", html))
    assert titles[0] == "What each head does"
    assert titles.count("What each head does") == 1
    lead = re.search(r'<p class="lead">(.*?)</p>', html, re.DOTALL)[1]
    assert lead.endswith(verdict_summary([head.verdict for head in audited.heads]))
    assert f"<p>{what_heads_do(audited.heads)}</p>" in html


def test_verdicts_are_text_on_the_page(found):
    one = found[2]
    bad = Finding(verdict="</script><b>", colour="red", sentence="<img src=x onerror=boom()>")
    page = canvas_page(one.examples, heads=one.heads, labels=[""] * 4, columns=2, title="t", findings=[bad] * 4)
    assert "<img src=x" not in page.html
    meta = json.loads(re.search(r'json">(.*?)</script>', page.html)[1])
    assert meta["findings"][0]["sentence"] == bad.sentence
