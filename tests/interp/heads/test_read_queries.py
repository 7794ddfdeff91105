"""Labels of heads that matter at the queries that are read only: planted at the answer, and elsewhere."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from planted import Planted, ideal_map, only_tokens

import interp
from hooks import Transformer
from interp.heads.classify import MIN_SCORE, MIN_SCORE_OF_FEW, classify_heads
from interp.heads.kinds import relations_of
from interp.heads.measures import RelationRows
from interp.heads.queries import attended_keys, read_positions, read_queries, scored_positions, writing_heads
from interp.tasks.base import Task
from interp.tasks.vocab import Vocab

POS = 12
GENERAL = ("previous", "current", "first_token", "duplicate", "induction")


@dataclass(frozen=True)
class Lookup(Task):
    """Random letters, of which the last occurs earlier; the answer is due at the last position. No relations."""

    vocab: ClassVar = Vocab(tuple("abcdefgh"))
    targets: ClassVar = ("answer",)
    attention: str = "causal"

    @property
    def n_ctx(self):
        return POS

    def sample(self, n, *, generator, split="train"):
        tokens = torch.randint(len(self.vocab), (n, POS), generator=generator)
        place = torch.randint(1, POS - 2, (n, 1), generator=generator)
        tokens[:, -1:] = tokens.gather(1, place)
        return only_tokens(tokens, scored=POS - 1)


TASK = Lookup()


def config(n_layers=1, **sizes):
    return interp.config_for(TASK, **{"n_layers": n_layers, "n_heads": 4, "d_model": 32, **sizes})


def at_query(kind, query, rest):
    """The ideal map of a kind at one query; the other rows rest on the first token, or are uniform."""

    def make(batch, allowed):
        rows = ideal_map(torch.zeros_like(allowed), allowed)
        if rest == "first token":
            rows = ideal_map(torch.arange(POS) == 0, allowed)
        ideal = ideal_map(relations_of(TASK, batch, [kind])[kind], allowed)
        return torch.where((torch.arange(POS) == query)[:, None], ideal, rows)

    return make


@pytest.mark.parametrize("rest", ["first token", "uniform"])
@pytest.mark.parametrize("kind", GENERAL)
def test_a_head_that_acts_at_the_answer_is_labelled(kind, rest):
    """At one of twelve queries, in the last layer; a head of the same pattern at another query is not."""
    plan = {(1, 0): at_query(kind, POS - 1, rest), (1, 1): at_query(kind, POS - 2, "uniform")}
    result = classify_heads(Planted(config(2), plan), TASK, n=64)
    assert result.label[1][0] == kind
    assert result.score[1, 0, result.kinds.index(kind)] >= 0.99
    assert result.why_not[1][0] == ""
    assert {label for row in result.label for label in row} <= {kind, "unclassified", "uniform"}
    assert result.label[1][1] not in result.kinds
    everywhere = classify_heads(Planted(config(2), plan), TASK, queries="all", n=64)
    assert everywhere.label[1][0] != kind or kind == rest.replace(" ", "_")


@pytest.mark.parametrize("kind", GENERAL)
def test_a_head_of_an_early_layer_that_acts_at_the_answer_is_labelled(kind):
    """The later layers are untrained and read every position: the head fits its kind at the scored position alone."""
    result = classify_heads(Planted(config(3), {(0, 2): at_query(kind, POS - 1, "uniform")}), TASK, n=64)
    assert (result.label[0][2], result.queries[0][2]) == (kind, "scored")
    assert {label for row in result.label for label in row} <= {kind, "unclassified", "uniform"}
    assert "at the scored positions" in str(result)


def with_rows_elsewhere(structure):
    """Induction at the answer; every other row has this share of its attention four tokens before, the rest is even."""

    def make(batch, allowed):
        query = torch.arange(POS)
        even = ideal_map(torch.zeros_like(allowed), allowed)
        earlier = ideal_map(query == (query - 4)[:, None], allowed)
        induction = ideal_map(relations_of(TASK, batch, ["induction"])["induction"], allowed)
        elsewhere = structure * earlier + (1 - structure) * even
        return torch.where((query == POS - 1)[:, None], induction, elsewhere)

    return make


@pytest.mark.parametrize(("structure", "label"), [(0.0, "induction"), (0.4, "induction"), (0.9, "unclassified")])
def test_scored_positions_alone_need_rows_that_say_nothing_elsewhere(structure, label):
    """In an early layer whose rows are all read; the other pattern is of no kind."""
    result = classify_heads(Planted(config(3), {(0, 2): with_rows_elsewhere(structure)}), TASK, n=64)
    assert result.read_share[0] >= 0.8
    assert result.label[0][2] == label
    reason = "induction 1.00 at the scored positions alone: the other queries that are read have another pattern, 0."
    assert result.why_not[0][2].startswith(reason) == (label == "unclassified")


def test_attention_on_the_first_key_says_nothing_whatever_padding_is_before_it():
    allowed = torch.ones(2, 4, 4, dtype=torch.bool).tril()
    real = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1]]).bool()
    rows = RelationRows(allowed[:, None], allowed & real[:, None], real)
    pattern = torch.zeros(2, 1, 4, 4)
    pattern[:, :, :, 1] = 1
    on_first, excess = rows.on_first(pattern), rows.excess(pattern)
    assert on_first[:, 0, 3].tolist() == [0, 1]
    assert rows.structure(excess, on_first, torch.arange(4).expand(2, 4) >= 2)[:, 0].tolist() == [1, 0]
    assert rows.structure(excess, on_first, torch.zeros(2, 4).bool())[:, 0].tolist() == [0, 0]


def by_kind_of_input(share):
    """At the answer, the previous token in inputs of some kinds of first token, and the third token in the others."""

    def make(batch, allowed):
        is_of_kind = batch.tokens[:, 0] < round(share * len(TASK.vocab))
        keys = torch.where(is_of_kind[:, None], torch.arange(POS) == POS - 2, torch.arange(POS) == 2)
        return ideal_map(keys[:, None], allowed)

    return make


@pytest.mark.parametrize(("share", "label"), [(0.5, "unclassified"), (0.75, "previous"), (1.0, "previous")])
def test_where_few_queries_are_read_a_label_describes_most_of_the_attention(share, label):
    """A head that attends to the previous token in half of its inputs is not labelled after it."""
    result = classify_heads(Planted(config(2), {(1, 0): by_kind_of_input(share)}), TASK, n=256)
    assert result.read_share[1] == pytest.approx(1 / POS)
    low = result.score.low[1, 0, result.kinds.index("previous")]
    assert low > MIN_SCORE
    assert (low >= MIN_SCORE_OF_FEW) == (label == "previous")
    assert result.label[1][0] == label
    assert ("at the few queries that are read" in result.why_not[1][0]) == (label == "unclassified")


def test_a_head_that_no_query_relates_says_so():
    model = Transformer(config())
    result = classify_heads(model, TASK, n=16, kinds=["current"])
    (row,) = result.why_not
    assert all(text.startswith("nearest current ") for text in row)
    assert all("at the few queries that are read: below 0.5" in text for text in row)
    assert row[0] in str(result)
    assert row[0] in result.to_dataframe()["why_not"].tolist()


def test_positions_that_are_read_by_hand():
    """Three layers: the answer is at 3, the last layer attends from there to 1, and the middle one from 1 to 0."""
    scored = torch.tensor([[False, False, False, True]])
    keys = torch.zeros(2, 1, 4, 4, dtype=torch.bool)
    keys[1, 0, 3, 1] = True
    keys[0, 0, 1, 0] = True
    keys[0, 0, 2, 2] = True  # nothing reads position 2
    read = read_positions(list(keys), scored)
    assert read[0].int().tolist() == [[1, 1, 0, 1], [0, 1, 0, 1], [0, 0, 0, 1]]


def test_a_key_is_attended_from_its_share_of_uniform_attention():
    pattern = torch.tensor([[[[1.0, 0, 0], [0.5, 0.5, 0], [0.34, 0.3, 0.36]]]])
    keys = attended_keys(pattern, torch.tensor([[1.0, 2, 3]]), torch.tensor([True]))
    assert keys[0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
    assert not attended_keys(pattern, torch.tensor([[1.0, 2, 3]]), torch.tensor([False])).any()


def no_output(attention, heads):
    attention.W_O[heads] = 0


def no_values(attention, heads):
    attention.W_V[heads] = 0


def rounding_only(attention, heads):
    attention.W_O[heads] *= 1e-9


def unread_values(attention, heads):
    """Values in half of the coordinates, an output from the other half."""
    half = attention.W_V.shape[2] // 2
    attention.W_V[heads, :, half:] = 0
    attention.W_O[heads, :half] = 0


@pytest.mark.parametrize("silence", [no_output, no_values, rounding_only, unread_values])
@pytest.mark.parametrize("heads", [[2], [1, 3], [0, 1, 2, 3]], ids=str)
def test_a_head_that_writes_nothing_reads_nothing(silence, heads):
    """Whatever such heads of a later layer attend to, the same queries of earlier layers are read."""
    model = Transformer(config(3, attn_scale=0.3), seed=2).eval()
    batch = TASK.sample(16, generator=torch.Generator().manual_seed(0))
    last = model.blocks[2].attn
    with torch.no_grad():
        silence(last, heads)
    reads, scores = [], []
    for scale in (0.0, 1.0, 5.0):  # from uniform rows to a single key
        with torch.no_grad():
            last.W_Q[heads] = scale * torch.randn(last.W_Q[heads].shape, generator=torch.Generator().manual_seed(1))
        reads.append(read_queries(model, batch))
        scores.append(classify_heads(model, TASK, n=16, untrained=1).score.value[:2])
    assert writing_heads(model)[2].tolist() == [head not in heads for head in range(4)]
    assert writing_heads(model)[:2].all()
    assert torch.equal(reads[0], reads[1])
    assert torch.equal(reads[0], reads[2])
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])


def test_b_i_writes_without_values():
    model = Transformer(config(1, vo_identity=True), seed=0)
    with torch.no_grad():
        model.blocks[0].attn.W_O[:] = 0
        model.block(0).attention.b[:] = torch.tensor([0.0, 1.0, -1.0, 0.0])
    assert writing_heads(model).tolist() == [[False, True, True, False]]


def test_the_queries_that_are_read_equal_a_search_by_hand():
    model = Transformer(config(3, attn_scale=0.3), seed=2).eval()
    batch = TASK.sample(4, generator=torch.Generator().manual_seed(0))
    read = read_queries(model, batch)
    with torch.no_grad():
        _, cache = model.run_with_cache(batch.tokens)
    for row in range(4):
        expected = {POS - 1}
        for layer in (2, 1, 0):
            assert read[row, layer].nonzero().flatten().tolist() == sorted(expected)
            pattern = cache["pattern", layer][row].max(0).values
            expected |= {k for q in expected for k in range(q + 1) if pattern[q, k] * (q + 1) >= 0.999}
    assert scored_positions(batch).sum(1).tolist() == [1] * 4


def test_padding_is_not_read():
    mask = torch.ones(2, POS, dtype=torch.bool)
    mask[:, 5:] = False
    batch = only_tokens(torch.zeros(2, POS, dtype=torch.long), mask)
    assert scored_positions(batch).equal(mask)
