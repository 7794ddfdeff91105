"""The sample of judged claims: drawn by seed from what cites a paper, marked if the claim has changed since."""

from dataclasses import replace

import pytest
from toys import PASSING

from case_studies.frame.rules import Below
from case_studies.papers import sample, table
from case_studies.papers.sample import IN_WORDS, Judged, Sample, digest, draw, load_sample, sample_page
from case_studies.papers.table import Item, Paper, load_paper

TOY = Paper(
    name="toy", title="A toy", arxiv="0", version="1", sources=("Toy et al.",),
    items=(
        Item(item="Figure 1", says="Norms |x|.", read="text", claims=("toy:figure-1.some",)),
        Item(item="Figure 2", says="More.", read="text", claims=("toy:figure-1.some",)),
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def papers():
    return [load_paper(path) for path in table.PAPERS]


def test_what_is_committed_is_what_the_command_writes(papers):
    text = sample_page(load_sample(), papers)
    assert sample.PAGE.read_text(encoding="utf-8") == text, f"run {table.COMMAND} and commit docs/papers"


def test_twenty_claims_of_each_paper_are_judged(papers):
    drawn, text = load_sample(), sample.PAGE.read_text(encoding="utf-8")
    known = table.known_claims()
    assert {one.id for one in drawn.claims} <= set(known)
    assert len(drawn.claims) == 60 == text.count("\n| `")
    for paper in papers:
        listed = {claim for one in paper.items for claim in one.claims}
        assert sum(one.id in listed for one in drawn.claims) == 20 <= drawn.pool[paper.name]


def test_a_departure_is_named_in_the_source():
    known = table.known_claims()
    for one in load_sample().claims:
        named = any(words in known[one.id] for words in ("; here", ", here", "; there", ", on ", " after "))
        assert one.judgement != "departs" or named, one.id


def test_draws_are_decided_by_the_seed_and_the_claims_that_cite_the_paper():
    known = {f"lego:{n:02}": f"Toy et al., Figure {n}" for n in range(30)} | {"lego:x": "ours, after Toy et al."}
    drawn = draw(known, TOY, seed=1)
    assert drawn == sorted(set(drawn)) == draw(dict(reversed(known.items())), TOY, seed=1)
    assert len(drawn) == 20
    assert "lego:x" not in drawn
    assert drawn != draw(known, TOY, seed=2)
    assert draw({"lego:1": "Toy et al., 1", "lego:x": "ours"}, TOY, seed=1) == ["lego:1"]


@pytest.mark.parametrize(
    "change", [{"source": "x"}, {"statement": "x"}, {"paper": "1"}, {"rule": Below(1)}, {"how": "x"}]
)
def test_the_digest_is_of_all_that_is_judged(change):
    assert digest(replace(PASSING, **change)) != digest(PASSING)
    assert digest(replace(PASSING, quantity="x")) == digest(PASSING)


@pytest.mark.parametrize(("judged", "changed"), [(digest(PASSING), False), ("00000000", True)])
def test_a_row(monkeypatch, judged, changed):
    monkeypatch.setattr(sample, "_claim", lambda name: PASSING)
    one = Judged(id="toy:figure-1.some", judgement="departs", comment="the sign|s", judged=judged)
    text = sample_page(Sample(seed=3, pool={"toy": 7}, claims=(one,)), [TOY])
    assert "random.Random(3)" in text
    assert f"1 of 7 claims. {IN_WORDS['departs']}: 1." in text
    mark = "; **changed since it was judged**" if changed else ""
    assert text.splitlines()[-1] == (
        f"| `toy:figure-1.some` (Toy et al., Figure 1) | {PASSING.statement} *Rule:* {PASSING.rule_text} | "
        rf"**Figure 1**: Norms \|x\|. | departs, named in its source; the sign\|s{mark} |"
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('judgement = "perhaps"', "has judgement='perhaps' for lego:one; use fits, direction, departs, unread"),
        ('judgement = "fits"', "has lego:one twice; keep one"),
    ],
)
def test_broken_samples(tmp_path, text, error):
    one = f'[[claims]]\nid = "lego:one"\n{text}\ncomment = ""\njudged = "0"\n'
    path = tmp_path / "sample.toml"
    path.write_text(f"seed = 1\npool = {{}}\n{one}{one}")
    with pytest.raises(ValueError, match=error):
        load_sample(path)
