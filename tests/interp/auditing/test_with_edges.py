"""Edges in an audit: those of planted heads, in its sentences, table and page; edges of other models are refused."""

from dataclasses import replace

import numpy as np
import pytest

import interp
from interp.auditing import AuditResult
from interp.auditing.show import show_heads
from interp.core.weight_sums import weight_sums
from interp.known_answers import known_answer

N = 128


@pytest.fixture(scope="module")
def copying():
    return known_answer("template copy, zero decoy", seed=0)


@pytest.fixture(scope="module")
def edges(copying):
    return interp.edges(copying.model, copying.task, n=N)


@pytest.fixture(scope="module")
def audited(copying):
    return interp.audit(copying.model, copying.task, n=N)


@pytest.fixture(scope="module")
def linked(audited, edges):
    return audited.with_edges(edges)


def test_a_faithful_head_says_through_which_edge_its_effect_leaves(audited, linked):
    by_verdict = {head.verdict: head for head in linked.heads}
    assert by_verdict["faithful"].edges_out == ("0.2 > read-out",)
    assert by_verdict["faithful"].edges_in == ("embedding > 0.2 v",)
    for verdict in ("misleading", "idle"):
        assert by_verdict[verdict].edges_in == by_verdict[verdict].edges_out == ()
    assert audited.heads[0].edges_in is None
    # Without needed edges nothing is added; all else is as before
    for before, after, head in zip(audited.sentences(), linked.sentences(), linked.heads, strict=True):
        added = " Its effect leaves through the edge to the read-out. It needs embedding in its values."
        assert after == before + (added if head.verdict == "faithful" else "")
    assert replace(linked, heads=audited.heads).summary() == audited.summary()


@pytest.mark.slow
def test_edges_between_heads():
    """Induction: the first head writes the previous token, which the second one reads in its keys."""
    known = known_answer("recall induction", seed=0)
    linked = interp.audit(known.model, known.task, n=N).with_edges(interp.edges(known.model, known.task, n=N))
    first, second = (head for head in linked.heads if head.verdict == "faithful")
    assert first.edges_out == (f"{first.layer}.{first.head} > {second.layer}.{second.head} k",)
    assert first.edges_out[0] in second.edges_in
    assert second.edges_out == (f"{second.layer}.{second.head} > read-out",)
    text = str(linked)
    assert f"Its effect leaves through the edge to the keys of {second.layer}.{second.head}." in text
    assert f"{first.layer}.{first.head} in its keys" in text


def test_several_edges_in_words(linked):
    """Parts are listed by input; a head that is needed without a single needed edge out of it says so."""
    places = {head.verdict: index for index, head in enumerate(linked.heads)}

    def sentence(verdict, edges_in, edges_out):
        head = replace(linked.heads[places[verdict]], layer=1, head=2, edges_in=edges_in, edges_out=edges_out)
        no_sets = {"sets": (), "strata": (), "largest_harmless": (), "largest_harmless_cost": None}
        no_sets |= {"smallest_costly": ()}
        return replace(linked, heads=(head,), **no_sets).sentences()[0]

    edges_in = ("0 MLP > 1.2 k", "embedding > 1.2 q", "0.1 > 1.2 k")
    text = sentence("faithful", edges_in, ("1.2 > 1 MLP", "1.2 > 2.0 v"))
    assert text.endswith(
        " Its effect leaves through the edges to 1 MLP and the values of 2.0. It needs 0 MLP and 0.1 in its keys; "
        "embedding in its queries."
    )
    assert sentence("faithful", (), ()).endswith(" No edge out of it is needed alone.")
    assert "edge" not in sentence("idle", (), ())


def test_saved_and_in_the_table_and_on_the_page(copying, audited, linked, tmp_path):
    linked.save(tmp_path / "audit.json")
    assert str(AuditResult.load(tmp_path / "audit.json")) == str(linked)
    table = linked.to_dataframe().set_index("verdict")
    assert table.loc["faithful", ["edges_in", "edges_out"]].tolist() == ["embedding > 0.2 v", "0.2 > read-out"]
    assert "edges_in" not in audited.to_dataframe()
    page = show_heads(copying.model, copying.task, linked, examples=1)
    assert "Its effect leaves through the edge to the read-out." in page.html


def test_results_say_which_weights_they_are_of(copying, audited, edges):
    assert audited.weights == edges.weights == weight_sums(copying.model)


def test_other_models_are_refused(audited, edges, as_a_user):
    other = tuple(2 * weight for weight in edges.weights)
    with pytest.raises(ValueError, match="edges is of a model with other weights than the audited one; measure"):
        audited.with_edges(replace(edges, weights=other))
    with pytest.raises(ValueError, match="edges is of a model with another config, or of another task, than the audit"):
        audited.with_edges(replace(edges, subject="0" * 20))
    with pytest.raises(ValueError, match="edges is about other, without label of the audit; use the same task"):
        audited.with_edges(replace(edges, outcomes=("other",)))
    with pytest.raises(ValueError, match="edges is an AuditResult; it must be an EdgesResult"):
        audited.with_edges(audited)


def test_missing_edges_are_refused(copying, audited, edges):
    some = interp.edges(copying.model, copying.task, within=["embedding > 0.2 v"], n=N)
    assert edges.every_edge
    assert not some.every_edge
    with pytest.raises(ValueError, match="edges has edges between layers, or only some edges, so edges"):
        audited.with_edges(some)


def test_edges_without_an_audit_are_those_of_the_table(edges):
    for head in [(1, 0), (0, 3), (0, -1)]:
        with pytest.raises(ValueError, match=r"these are edges of a model with layers 0 to 0 with heads 0 to 2"):
            edges.needed_of(head)
    into, out_of = edges.needed_of((0, 2))
    assert set(into) | set(out_of) == {name for name in edges.needed if "0.2" in name}
    assert np.all([name.startswith("0.2 > ") for name in out_of])
