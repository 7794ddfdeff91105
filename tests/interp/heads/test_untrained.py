"""Labels against untrained models: the level of the Monte Carlo test, its power, early stopping, and what is kept."""

import copy
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import pytest
import torch
from planted import Padded, Planted, ideal_map, only_tokens
from scipy import stats

import interp
from hooks import Transformer, make_model
from interp.core.verbs import untrained_copy
from interp.heads import untrained
from interp.heads.classify import NEEDS, classify_heads
from interp.heads.kinds import PackedRelations, relations_of, with_kinds
from interp.heads.measures import RelationRows
from interp.heads.untrained import compare_with_untrained, highest_scores, monte_carlo_p, sequences_to_compare
from interp.tasks import Dyck, Lego, Template
from interp.tasks.vocab import Vocab

LEAST = np.full(3, 0.3)


def scores_of_models(rng, n, *, dependent=0.5):
    """Scores (model, head, kind) of untrained models: kinds with other locations and spreads, heads not independent."""
    shared = rng.standard_normal((n, 1, 3)) * dependent
    noise = rng.standard_t(3, (n, 6, 3))
    return np.array([0.1, 0.3, 0.6]) + np.array([0.02, 0.3, 0.1]) * (shared + noise)


def test_the_smallest_p_of_an_untrained_model_is_at_most_a_with_probability_a():
    rng, n = np.random.default_rng(0), 2000
    smallest = []
    for models in scores_of_models(rng, 20 * n).reshape(n, 20, 6, 3):
        smallest.append(monte_carlo_p(models[:1, :, :], models[1:].max(1), np.full(3, -9.0)).min())
    for level in (0.05, 0.1, 0.25, 0.5):  # all scores count, so the test is exact at multiples of 1 / 20
        share = np.mean(np.array(smallest) <= level + 1e-9)
        assert abs(share - level) < 5 * (level * (1 - level) / n) ** 0.5


def test_scores_below_the_least_have_p_one_and_do_not_count():
    others = np.tile([0.29, 0.29, 0.29], (19, 1))
    p = monte_carlo_p(np.array([[[0.29, 0.31, 0.9]]]), others, LEAST)
    assert p.ravel().tolist() == [1, 1 / 20, 1 / 20]
    equal = monte_carlo_p(np.full((1, 1, 3), 0.5), np.full((19, 3), 0.5), LEAST)
    assert (equal == 1).all()  # a tie counts against the label


def test_a_kind_with_high_untrained_scores_leaves_the_others_their_power():
    rng = np.random.default_rng(0)
    others = np.stack([rng.uniform(0.1, 0.95, 99), *rng.uniform(0, 0.2, (2, 99))], 1)
    p = monte_carlo_p(np.array([[[0.96, 0.7, 0.1], [0.5, 0.1, 0.1]]]), others, LEAST)[0]
    assert p[0, 1] == 0.01
    assert p[0, 0] > 0.01 or others[:, 0].max() < 0.96
    assert (p[1] > 0.1).all()


def test_comparison_stops_once_no_candidate_can_get_a_label():
    read = []

    def models(height):
        for index in range(99):
            read.append(index)
            yield np.array([height if index == 4 else 0.0, 0.0, 0.0])

    scores = np.full((1, 2, 3), 0.5)
    compare = partial(compare_with_untrained, scores, least=LEAST, alpha=0.01)
    first = np.zeros(scores.shape, dtype=bool)
    first[0, 0, 0] = True
    for candidates, height, wanted in ((first, 0.6, 5), (first, 0.4, 99), (first & False, 0.6, 1)):
        read.clear()
        found = compare(candidates, highest=models(height), n_models=99)
        assert len(found.highest) == len(read) == wanted
        assert (found.p[0, 0, 0] <= found.level) == (wanted == 99)
    few = compare(first, highest=models(0.4), n_models=9)
    assert few.level == 0.1 == few.p[0, 0, 0]


def test_the_sequences_of_the_comparison_score_every_kind():
    scored = np.zeros((40, 3), dtype=bool)
    scored[:, 0] = True
    scored[[3, 30, 39], 1] = True
    assert sequences_to_compare(scored).tolist() == [*range(8), 30, 39]
    assert sequences_to_compare(scored[:, 2:]).tolist() == [0]  # no kind is scored: the first one still is compared


@pytest.mark.parametrize("task", [Lego(n_vars=2), Dyck(length=8)], ids=["lego", "dyck"])
@pytest.mark.parametrize("family", [None, "albert", "bert_encoder"])
@pytest.mark.parametrize("init", ["fan_in", "mimetic"])
def test_later_models_have_the_weights_of_new_copies(task, family, init, monkeypatch):
    cfg = interp.config_for(task, family, n_layers=2, n_heads=2, d_model=16, d_head=8, init=init)
    model = make_model(cfg, seed=1)
    seen = []
    monkeypatch.setattr(untrained, "_highest", lambda model, *_: seen.append(
        {name: value.clone() for name, value in model.state_dict().items()}) or np.zeros(1))  # fmt: skip
    untrained._stored_scores.cache_clear()
    batch = task.sample(2, generator=torch.Generator().manual_seed(0))
    found = highest_scores(model, (), batch, PackedRelations.of(task, batch, ["current"]), seed=3)
    for _ in zip(range(3), found, strict=False):
        pass
    for index, weights in enumerate(seen[:3]):
        seed = untrained.derived_seed(3, "untrained twin", *([index] if index else [])) % 2**31
        wanted = untrained_copy(model, seed, learned=True).state_dict()
        assert all(torch.equal(weights[name], value) for name, value in wanted.items())
    assert not torch.equal(seen[0]["embed.weight"], seen[1]["embed.weight"])


def test_untrained_scores_are_kept_for_the_next_model_of_a_config(monkeypatch):
    task = Lego(n_vars=2)
    made = []
    monkeypatch.setattr(untrained, "_stored_scores", lru_cache(maxsize=2)(untrained._stored_scores.__wrapped__))
    highest = untrained._highest
    monkeypatch.setattr(untrained, "_highest", lambda *given: made.append(1) or highest(*given))

    def classify(seed=0, n_heads=2, **options):
        cfg = interp.config_for(task, n_layers=1, n_heads=n_heads, d_model=16)
        plan = {(0, 0): lambda batch, allowed: ideal_map(relations_of(task, batch, ["previous"])["previous"], allowed)}
        made.clear()
        found = classify_heads(Planted(cfg, plan, seed=seed), task, n=8, untrained=19, alpha=0.05, **options)
        assert found.label[0][0] == "previous"
        return len(made), found

    (first, one), (second, two) = classify(0), classify(1)
    assert (first, second) == (19, 0)
    assert (one.untrained == two.untrained).all()
    assert classify(n_heads=4)[0] == classify(0, kinds=["previous"])[0] == 19  # another config, other relations
    assert untrained._stored_scores.cache_info().currsize == 2
    assert classify(1)[0] == 19  # the oldest was forgotten


class Letters(Padded):
    """[BOS], then random letters, without a relation: manipulation is two tokens to each side."""

    vocab = Vocab(["[BOS]", *"abcdefgh"])
    length = 4

    @property
    def targets(self):
        return tuple(map(str, range(self.length)))

    def sample(self, n, *, generator, split="train", n_vars=None):
        tokens = torch.randint(1, 9, (n, self.length), generator=generator)
        tokens[:, 0] = 0
        return only_tokens(tokens)

    def relations(self, batch):
        return {}


def real_keys(batch, allowed):
    """Uniform over all keys but [BOS]."""
    return ideal_map((batch.tokens != 0)[:, None, :].expand_as(allowed), allowed)


@pytest.mark.parametrize("length", [3, 4, 5])
@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
def test_a_single_special_row_decides_no_label(length, attention):
    """A uniform pattern over real keys is not manipulation because the row of [BOS] has an unrelated key."""
    task = Letters(n_vars=4, causal=attention == "causal")
    object.__setattr__(task, "length", length)
    cfg = interp.config_for(task, n_layers=1, n_heads=2, d_model=24)
    plain = Planted(cfg, {(0, head): lambda batch, allowed: ideal_map(allowed, allowed) for head in range(2)}, seed=1)
    found = classify_heads(Planted(cfg, {(0, 0): real_keys}), task, n=64, untrained=plain)
    assert found.label[0][0] not in found.kinds, str(found)


@pytest.mark.parametrize(("length", "scored"), [(4, False), (5, False), (6, True)])
def test_a_relation_is_scored_if_half_of_its_rows_have_unrelated_keys(length, scored):
    """Two tokens to each side, causal: every row has related keys, and all from the fourth have unrelated ones."""
    allowed = torch.ones(1, length, length, dtype=torch.bool).tril()
    near = (torch.arange(length)[:, None] - torch.arange(length)).abs() <= 2
    real = torch.ones(1, length, dtype=torch.bool)
    rows = RelationRows((allowed & near)[:, None], allowed, real)
    assert rows.counted(real[:, None]).counts.flatten().tolist() == [
        float(scored and query >= 3) for query in range(length)
    ]
    score = rows.score(ideal_map(near, allowed)[:, None].float())
    assert bool(score.isnan().all()) != scored


def test_a_label_needs_more_than_its_best_position(registered_rows):
    """Two rows are described: a head that follows one of them has no label, nor is one read-out row too few."""
    task = Letters(n_vars=4)
    object.__setattr__(task, "length", 8)
    cfg = interp.config_for(task, n_layers=1, n_heads=3, d_model=24)
    follow = lambda *rows: lambda batch, allowed: ideal_map(registered_rows(batch, rows), allowed)  # noqa: E731
    plan = {(0, 0): follow(6, 7), (0, 1): follow(7)}
    one = classify_heads(Planted(cfg, plan), task, kinds=["one row"], n=64)
    assert one.label[0] == ("one row", "one row", "unclassified")
    two = classify_heads(Planted(cfg, plan), task, kinds=["two rows"], n=64)
    assert two.score.low[0, 1, 0] >= 0.3  # high enough by its mean
    assert two.label[0] == ("two rows", "unclassified", "unclassified")


@pytest.fixture
def registered_rows():
    """Kinds whose last row, or last two rows, attend to position 1."""

    def rows_of(batch, rows):
        related = torch.zeros(len(batch), *2 * batch.tokens.shape[1:], dtype=torch.bool)
        related[:, rows, 1] = True
        return related

    more = {"one row": lambda task, batch: rows_of(batch, (7,)), "two rows": lambda task, batch: rows_of(batch, (6, 7))}
    with with_kinds(more):
        yield rows_of


STRINGS = Template(templates=["abc -> +1", "aba -> -1"])


@pytest.mark.parametrize("init", ["fan_in", "template", "mimetic", "uniform"])
def test_untrained_models_on_short_strings_are_unlabelled(init):
    """Every level is exact, so that two labelled models of twelve have a probability of 0.006."""
    labelled = 0
    for seed in range(12):
        cfg = interp.config_for(STRINGS, n_layers=2, n_heads=4, d_model=32, d_head=8, init=init)
        found = classify_heads(Transformer(cfg, seed=100 + seed), STRINGS, n=16, seed=seed)
        labelled += any(label in found.kinds for row in found.label for label in row)
    assert labelled <= stats.binom.isf(1e-3, 12, 0.01)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (0, "untrained is 0; give a number of untrained models of at least 1, or the models."),
        ((), "untrained is an empty sequence; give at least one untrained model, their number, or None."),
    ],
)
def test_no_untrained_models(given, message):
    task = Lego(n_vars=2)
    model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=16))
    with pytest.raises(ValueError, match="^" + message):
        classify_heads(model, task, n=8, untrained=given)


SMALL = interp.config_for(Lego(n_vars=2), n_layers=1, n_heads=2, d_model=16)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_heads": 4}, "untrained has n_heads 4, the model 2; give models of the same architecture"),
        ({"d_model": 32, "d_head": 8}, "untrained has d_model 32, the model 16"),
        ({"n_layers": 2}, "untrained has n_layers 2, the model 1"),
        ({"d_mlp": 8}, "untrained has d_mlp 8, the model 64"),
        ({"attention": "causal"}, "untrained has attention causal, the model bidirectional"),
        ({"block": "post_ln"}, "untrained has block post_ln, the model"),
        ({"d_vocab": 50}, "the task has d_vocab .*, the model 50: its vocabulary is another one"),
    ],
)
@pytest.mark.usefixtures("as_a_user")
def test_untrained_models_of_another_architecture_are_refused(changes, words):
    model, start = Transformer(SMALL, seed=0), Transformer(replace(SMALL, **changes), seed=1)
    with pytest.raises(ValueError, match=words):
        classify_heads(model, Lego(n_vars=2), n=8, untrained=start)


def test_untrained_models_have_weights_of_their_own():
    task, model, start = Lego(n_vars=2), Transformer(SMALL, seed=0), Transformer(SMALL, seed=1)
    own = "has the weights of the model that is classified"
    for untrained_model in (model, copy.deepcopy(model), Transformer(replace(SMALL, init="normal"), seed=0)):
        untrained_model.load_state_dict(model.state_dict())
        with pytest.raises(ValueError, match=f"untrained {own}"):
            classify_heads(model, task, n=8, untrained=untrained_model)
    with pytest.raises(ValueError, match=rf"untrained\[1\] {own}"):
        classify_heads(model, task, n=8, untrained=[start, model])
    with pytest.raises(ValueError, match=r"untrained\[1\] has the weights of untrained\[0\]"):
        classify_heads(model, task, n=8, untrained=[start, copy.deepcopy(start)])
    other_start = Transformer(replace(SMALL, init="normal", embedding_std=0.3), seed=2)
    assert classify_heads(model, task, n=8, untrained=[start, other_start]).n_untrained <= 2


def test_the_number_of_untrained_models_follows_level_and_size(monkeypatch):
    model = Transformer(interp.config_for(Lego(n_vars=2), n_layers=1, n_heads=2, d_model=16))

    def number(alpha=0.01):
        return untrained.untrained_models(None, model, Lego(n_vars=2), NEEDS, alpha=alpha)[0]

    assert (number(), number(alpha=0.05), number(alpha=0.03), number(alpha=1e-9)) == (99, 19, 33, 999)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    monkeypatch.setattr(untrained, "PARAMETERS", 5 * parameters)
    assert number() == 5
    monkeypatch.setattr(untrained, "PARAMETERS", 5)
    assert number() == 1


def test_a_common_kind_hides_no_head_of_another_kind_once_the_model_passes():
    """Of 99 untrained models one has a rare high score on the second kind, above every standardised score of head 1."""
    highest = np.zeros((99, 3))
    highest[:50, 0] = 0.5  # the first kind is common, so that its spread is wide
    highest[0, 1] = 0.9
    scores = np.array([[[0.7, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    least = np.array([0.3, 0.3, 0.9])
    settings = {"highest": iter(highest), "n_models": 99, "alpha": 0.01}
    found = compare_with_untrained(scores, scores > 0, least, **settings)
    assert monte_carlo_p(scores[..., :-1], highest[:, :-1], least[:-1])[0, 0, 0] > 0.01
    assert found.p[0, 0, 0] == found.p[0, 1, 1] == 0.01
    # Without the second head no candidate passes, and the first has no label
    alone = scores * np.array([1.0, 0.0])[:, None]
    found = compare_with_untrained(alone, alone > 0, least, **settings | {"highest": iter(highest)})
    assert found.p[0, 0, 0] > 0.01
