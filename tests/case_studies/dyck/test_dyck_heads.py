"""Stack-like heads judged against their own rows with keys shuffled, on hand-written and random models."""

import pytest
import torch
from planted_models import planted

from case_studies.dyck import heads, measures
from case_studies.dyck.heads import shuffle_keys, stack_scores
from case_studies.dyck.study import STUDY
from hooks import Transformer
from interp import config_for
from interp.heads.classify import classify_heads
from interp.known_answers import stack_dyck, uniform_dyck
from interp.tasks import Dyck

TASK = Dyck(n_types=2, max_depth=3, length=16)
CLAIMS = {claim.id: claim for claim in STUDY.claims}


@pytest.fixture(autouse=True)
def everybody_learned(monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setattr(measures, "has_learned", lambda evidence, spec: True)
    monkeypatch.setattr(heads, "excluded_models", lambda evidence, groups: [])
    monkeypatch.setattr(heads, "N_CLASSIFY", {"quick": 16})
    monkeypatch.setattr(heads, "N_ABLATE", {"quick": 16})


def random_model(seed):
    return Transformer(config_for(TASK, "dyck_gpt", d_model=16, d_mlp=16), seed=seed)


def test_shuffled_rows_keep_their_weights_and_see_the_same_keys():
    allowed = torch.ones(6, 6, dtype=torch.bool).tril()[None].repeat(2, 1, 1)
    allowed[1, :, 2] = False  # a key that no query sees
    pattern = torch.rand(2, 1, 6, 6).masked_fill(~allowed[:, None], 0)
    shuffled = shuffle_keys(pattern, allowed, generator=torch.Generator().manual_seed(0))
    assert torch.equal(shuffled.sort(-1).values, pattern.sort(-1).values)
    assert not shuffled.masked_select(~allowed[:, None]).any()
    assert not torch.equal(shuffled, pattern)


def test_every_order_of_a_row_is_equally_likely():
    pattern = torch.tensor([0.0, 1.0, 2.0]).expand(3000, 1, 3, 3).contiguous()
    shuffled = shuffle_keys(
        pattern, torch.ones(3000, 3, 3, dtype=torch.bool), generator=torch.Generator().manual_seed(1)
    )
    counts = torch.stack([(shuffled == value).float().mean((0, 1, 2)) for value in range(3)])
    assert torch.allclose(counts, torch.full((3, 3), 1 / 3), atol=0.03)  # 6 standard deviations


def test_scores_are_those_of_classify_heads_and_shuffled_ones_are_near_chance():
    for model in (stack_dyck(TASK), random_model(0)):
        own, shuffled = stack_scores(model, TASK, n=16, seed=0)
        found = classify_heads(model, TASK, n=16, seed=0, untrained=1)
        columns = [found.kinds.index(kind) for kind in heads.STACK_LIKE]
        assert own == pytest.approx(found.score.value[-1, 0, columns].max(), abs=1e-5)
        assert abs(shuffled) < 0.2
    assert stack_scores(stack_dyck(TASK), TASK, n=16, seed=0)[0] > 0.95


def judged(claim, given):
    measured = CLAIMS[claim].measurement(planted(TASK, given))
    return measured, CLAIMS[claim].verdict(measured)


def test_stack_like_heads_are_found_and_others_are_not():
    stack, other = [stack_dyck(TASK) for _ in range(6)], [random_model(seed) for seed in range(6)]
    first, second = heads.MINIMAL
    measured, verdict = judged("heads.not-stack-like.minimal", {first: stack, second: stack})
    assert (verdict, measured.value, measured.n) == ("not reproduced", 0.0, 12)
    assert measured.numbers["median position"] > 0.9
    measured, verdict = judged("heads.not-stack-like.minimal", {first: other, second: other})
    assert (verdict, measured.value) == ("reproduced", 1.0)
    assert measured.numbers["least threshold with most models below"] < 0.5
    measured, verdict = judged("heads.not-stack-like.minimal", {first: stack, second: other})
    assert (verdict, measured.value) == ("inconclusive", 0.5)


def test_positions_are_relative_to_the_shuffled_rows(monkeypatch):
    monkeypatch.setattr(heads, "stack_scores", lambda model, task, *, n, seed: (0.55, 0.2))
    models = [uniform_dyck(TASK)] * 4
    measured, verdict = judged("heads.not-stack-like.minimal", dict.fromkeys(heads.MINIMAL, models))
    assert measured.numbers["median position"] == pytest.approx(0.35 / 0.8)
    assert (verdict, measured.value) == ("reproduced", 1.0)


def test_unlearned_models_make_it_inconclusive(monkeypatch):
    monkeypatch.setattr(measures, "has_learned", lambda evidence, spec: spec.seed < 3)
    models = [random_model(seed) for seed in range(5)]
    measured, verdict = judged("heads.not-stack-like.minimal", dict.fromkeys(heads.MINIMAL, models))
    assert verdict == "inconclusive"
    assert (measured.numbers["models that learned"], measured.n) == (3, 10)


def test_patterns_that_do_not_matter_cost_nothing():
    models = [uniform_dyck(TASK) for _ in range(4)]
    measured, verdict = judged("heads.stack-like-matters-no-more", dict.fromkeys(heads.GROUPS, models))
    assert (verdict, measured.value) == ("reproduced", 0.0)
    assert measured.low < 0 < measured.high


def test_stack_like_patterns_that_matter_more_are_not_reproduced():
    given = {"gpt": [stack_dyck(TASK) for _ in range(4)], "gpt-linear": [random_model(seed) for seed in range(4)]}
    measured, verdict = judged("heads.stack-like-matters-no-more", given)
    assert verdict == "not reproduced"
    assert measured.value > 0.2


def test_the_distribution_is_shown_without_a_verdict():
    given = {"gpt": [stack_dyck(TASK) for _ in range(4)], "gpt-linear": [random_model(seed) for seed in range(4)]}
    measured, _ = judged("heads.stack-like-matters-no-more", given)
    assert measured.numbers["share of models below halfway"] == 0.5
    lower, upper = measured.numbers["lower and upper quartile"]
    assert lower < 0.5 < upper
    titles = [title for title, _ in measured.tables]
    assert "Share of models below each threshold" in titles
    assert not any(claim.needs == heads.GROUPS and "not-stack-like" in claim.id for claim in STUDY.claims)
