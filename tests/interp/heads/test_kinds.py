"""Registered kinds, their relations and error texts."""

import pytest
import torch
from planted import only_tokens

import interp
from hooks import Transformer
from interp.heads import kinds
from interp.heads.classify import classify_heads
from interp.heads.kinds import kinds_of, known_kinds, last_kinds, register_kind, relations_of, with_kinds
from interp.known_answers import known_answer
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
    # no token occurs twice
    general = {"manipulation", "broadcast", "previous", "current", "first_token"}
    roles = {"clause_operations", "operation_to_operations", "clause_operands", "same_letter_or_self"}
    assert set(found) == general | roles
    assert found["previous"][0].nonzero().tolist() == [[q, q - 1] for q in range(1, 7)]
    assert found["current"][0].equal(torch.eye(7, dtype=torch.bool))
    assert found["manipulation"][0, 1].nonzero().flatten().tolist() == [1, 2, 3, 4, 5]
    assert found["broadcast"][0, 3].nonzero().flatten().tolist() == [0, 6]


def test_a_task_without_clauses_has_a_local_band(tiny, generator):
    batch = tiny.sample(2, generator=generator)

    class NoClauses(Lego):
        def relations(self, batch):
            return {}

    found = relations_of(NoClauses(), batch, ["local"])["local"]
    assert found[0, 3].nonzero().flatten().tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="kind 'manipulation' relates no query to any key in this task"):
        relations_of(NoClauses(), batch, ["manipulation"])
    with pytest.raises(ValueError, match="kind 'local' relates no query to any key in this task"):
        relations_of(tiny, batch, ["local"])


def test_kinds_of_roles_in_a_chain(generator):
    task = Lego(n_vars=2, alphabet="ab")
    batch = task.sample(1, generator=generator)
    words = task.vocab.words(batch.tokens[0])  # [BOS] x = g y ; x = g y ; [EOS]
    relations = relations_of(task, batch)

    def keys_of(kind, query):
        return relations[kind][0, query].nonzero().flatten().tolist()

    assert (words[0], words[-1]) == ("[BOS]", "[EOS]")
    for query in range(1, 11):
        assert keys_of("clause_operations", query) == [3, 8]
        assert keys_of("clause_operands", query) == [4, 9]
        assert keys_of("operation_to_operations", query) == ([3, 8] if query in (3, 8) else [])
        is_letter = words[query] in "ab"
        same = [key for key in (1, 4, 6, 9) if words[key] == words[query]]
        assert keys_of("same_letter_or_self", query) == (same if is_letter else keys_of("same_letter_or_self", query))
        if is_letter:
            assert keys_of("same_letter", query) == [key for key in same if key != query]
    for special in (0, 11):
        kinds_of_roles = ("clause_operations", "clause_operands", "same_letter_or_self")
        assert not any(keys_of(kind, special) for kind in kinds_of_roles)


def test_a_kind_of_roles_is_the_label_of_heads_that_no_other_kind_describes():
    """An association head attends to the same letter too, and is called by the paper's name."""
    answer = known_answer("loop Z2 0", seed=0)
    labels = {label for row in classify_heads(answer.model, answer.task, n=48).label for label in row}
    assert "association" in labels
    assert not labels & set(last_kinds())


def test_a_registered_kind_is_scored(tiny, model):
    register_kind("same_half", lambda task, batch: torch.ones(len(batch), 6, 6).tril().bool())
    assert "same_half" in known_kinds()
    assert classify_heads(model, tiny, n=8).kinds[-1] == "same_half"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"kinds": ["next"]},
            "kind 'next' is not registered; the kinds are association, manipulation, local",
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
    with with_kinds({"all": lambda task, batch: None, "current": lambda task, batch: None}):
        assert known_kinds() == (*before, "all")
    assert known_kinds() == before
    assert "current" in classify_heads(model, tiny, n=8).kinds  # the replaced one is back
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


class Related(Lego):
    """A task with relations that the papers' tasks lack, and one of the name of a kind of ours."""

    names = ("same_half", "previous")

    def relations(self, batch):
        pos = batch.tokens.shape[1]
        half = torch.arange(pos) < pos // 2
        same_half = (half[:, None] == half).expand(len(batch), -1, -1)
        return dict.fromkeys(self.names, same_half) | super().relations(batch)


def test_a_relation_of_a_task_is_a_kind_of_its_own_name(generator):
    task = Related(n_vars=2)
    batch = task.sample(4, generator=generator)
    assert kinds_of(task, batch) == (*kinds_of(Lego(n_vars=2), batch), "same_half")
    assert known_kinds(task) == (*known_kinds(), "same_half")
    found = relations_of(task, batch)
    assert found["same_half"].equal(task.relations(batch)["same_half"])
    assert found["previous"].equal(found["same_half"])  # the task's, not ours
    model = Transformer(interp.config_for(task, n_layers=1, d_model=8, n_heads=2))
    assert interp.ablate_heads(model, task, method="same_half", n=8).n == 8
    with with_kinds({"same_half": lambda task, batch: None}):  # one that the caller registers is the caller's
        assert "same_half" not in relations_of(task, batch)


def test_the_second_of_two_relations_of_a_kind_is_not_dropped(generator, monkeypatch):
    monkeypatch.setattr(Related, "names", ("same_symbol",))
    task = Related(n_vars=2)
    assert kinds_of(task, task.sample(4, generator=generator))[-1] == "same_symbol"


def test_a_kind_may_stand_for_a_relation(generator):
    task = Related(n_vars=2)
    batch = task.sample(4, generator=generator)
    register_kind("halves", lambda task, batch: None, reads=["same_half"])
    assert kinds_of(task, batch)[-1] == "halves"
    assert relations_of(task, batch)["halves"].equal(task.relations(batch)["same_half"])


def test_a_relation_with_a_reserved_name_is_refused(generator, monkeypatch):
    monkeypatch.setattr(Related, "names", ("uniform",))
    task = Related(n_vars=2)
    with pytest.raises(ValueError, match="'uniform', which is reserved"):
        kinds_of(task, task.sample(4, generator=generator))


def test_kinds_of_tokens_by_hand():
    """Ids 0 and 1 are special; the last two positions are padding."""

    class Marked(Lego):
        def relations(self, batch):
            return {"special": (batch.tokens < 2)[:, None].expand(-1, batch.tokens.shape[1], -1)}

    mask = torch.tensor([[True] * 8 + [False] * 2])
    batch = only_tokens(torch.tensor([[0, 5, 6, 1, 5, 5, 1, 6, 5, 6]]), mask)
    found = relations_of(Marked(n_vars=2), batch)
    pairs = {name: found[name][0].nonzero().tolist() for name in ("first_token", "duplicate", "induction")}
    assert pairs["first_token"] == [[query, 0] for query in range(1, 8)]
    assert pairs["duplicate"] == [[4, 1], [5, 1], [5, 4], [7, 2]]
    assert pairs["induction"] == [[4, 2], [5, 2], [5, 5], [7, 3]]
    padded_left = only_tokens(batch.tokens.flip(1), mask.flip(1))
    assert relations_of(Marked(n_vars=2), padded_left)["first_token"][0].nonzero()[:, 1].unique().tolist() == [2]


def test_a_task_without_any_kind_is_refused(tiny, model, monkeypatch):
    monkeypatch.setattr(kinds, "_KINDS", {"broadcast": kinds._KINDS["broadcast"]})
    monkeypatch.setattr(Lego, "relations", lambda self, batch: {})
    with pytest.raises(ValueError, match="this task has none of the registered kinds"):
        classify_heads(model, tiny, n=8)
