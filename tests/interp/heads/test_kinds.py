"""Registered kinds, their relations and error texts."""

import pytest
import torch

import interp
from hooks import Transformer
from interp.heads import kinds
from interp.heads.classify import classify_heads
from interp.heads.kinds import known_kinds, register_kind, relations_of, with_kinds
from interp.tasks import Lego


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setattr(kinds, "_KINDS", dict(kinds._KINDS))


@pytest.fixture
def model(tiny):
    return Transformer(interp.config_for(tiny, n_layers=1, d_model=8, n_heads=2))


def test_relations_of_a_worked_example(generator):
    task = Lego(n_vars=1, alphabet="a")
    batch = task.sample(1, generator=generator)  # [BOS] a = g 1 ; [EOS]
    found = relations_of(task, batch)
    assert set(found) == {"manipulation", "broadcast", "previous", "self"}  # no token occurs twice
    assert found["previous"][0].nonzero().tolist() == [[q, q - 1] for q in range(1, 7)]
    assert found["self"][0].equal(torch.eye(7, dtype=torch.bool))
    assert found["manipulation"][0, 1].nonzero().flatten().tolist() == [1, 2, 3, 4, 5]
    assert found["broadcast"][0, 3].nonzero().flatten().tolist() == [0, 6]


def test_a_task_without_clauses_has_a_local_band(tiny, generator):
    batch = tiny.sample(2, generator=generator)

    class NoClauses(Lego):
        def relations(self, batch):
            return {}

    found = relations_of(NoClauses(), batch, ["manipulation"])["manipulation"]
    assert found[0, 3].nonzero().flatten().tolist() == [1, 2, 3, 4, 5]


def test_a_registered_kind_is_scored(tiny, model):
    register_kind("same_half", lambda task, batch: torch.ones(len(batch), 6, 6).tril().bool())
    assert "same_half" in known_kinds()
    assert classify_heads(model, tiny, n=8).kinds[-1] == "same_half"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"kinds": ["induction"]},
            "kind 'induction' is not registered; the kinds are association, manipulation, broadcast",
        ),
        ({"kinds": ["broadcast"]}, "kind 'broadcast' relates no query to any key in this task"),
        ({"kinds": ["stack_top"]}, "kind 'stack_top' relates no query to any key in this task"),
        ({"n": 4}, "n is 4; at least 8 sequences"),
        ({"alpha": 0.0}, "alpha is 0.0; it must be strictly between 0 and 1"),
        ({"alpha": 1.0}, "alpha is 1.0"),
    ],
)
def test_errors(tiny, model, as_a_user, settings, words):
    with pytest.raises(ValueError, match=words):
        classify_heads(model, tiny, **settings)


def test_a_relation_of_the_wrong_shape_is_refused(tiny, model):
    register_kind("flat", lambda task, batch: torch.ones(len(batch), 6, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"relation of kind 'flat' is \(8, 6\); it must be \(batch, query, key\)"):
        classify_heads(model, tiny, kinds=["flat"], n=8)


def test_kinds_that_are_registered_for_a_while(tiny, model):
    before = known_kinds()
    with with_kinds({"all": lambda task, batch: None, "self": lambda task, batch: None}):
        assert known_kinds() == (*before, "all")
    assert known_kinds() == before
    assert "self" in classify_heads(model, tiny, n=8).kinds  # the replaced one is back
    with (
        pytest.raises(ValueError, match="which is reserved"),
        with_kinds({"all": lambda *_: None, "uniform": lambda *_: None}),
    ):
        pass
    assert known_kinds() == before


def test_reserved_names_are_refused():
    for name in ("", "uniform", "unclassified"):
        with pytest.raises(ValueError, match="which is reserved; choose another name"):
            register_kind(name, lambda task, batch: None)


def test_a_task_without_any_kind_is_refused(tiny, model, monkeypatch):
    monkeypatch.setattr(kinds, "_KINDS", {"broadcast": kinds._KINDS["broadcast"]})
    with pytest.raises(ValueError, match="this task has none of the registered kinds"):
        classify_heads(model, tiny, n=8)
