"""Claims about samples: at the paper's size, a I against b I by areas, and where an LSTM's curve crosses one half."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from toys import measured

from case_studies.recipes.template_models import PLAIN, SCALES, A, B
from case_studies.template import areas, crossing, paper_size
from case_studies.template.measures import Scored, paper_curves
from case_studies.template.models import MANY
from case_studies.template.paper_size import FAST_A, FAST_RATE, GRIDS, of_paper_size
from case_studies.template.study import STUDY
from interp.tasks import Template

CLAIMS = {claim.id: claim for claim in STUDY.claims}
EVIDENCE = SimpleNamespace(size="standard", seed=0)
groups = cache(STUDY.groups)


def scored(loss, *, n, seed=0):
    return Scored(
        n=n, seed=seed, rate=1e-3, config=None, task=Template(), loss=loss, right=50, total=100, validation=1.0,
        model=None,
    )  # fmt: skip


def curve(grid, crossing_n, *, seed=0):
    """A loss that is below one half from one n of the grid on."""
    return [scored(0.2 if n >= crossing_n else 0.9, n=n, seed=seed) for n in grid]


def test_models_of_the_papers_size_have_its_training():
    models = groups("standard")
    for variant, grid in GRIDS.items():
        specs = models[of_paper_size(variant)]
        assert {(spec.settings.n_train, spec.seed) for spec in specs} == {(n, seed) for n in grid for seed in range(5)}
        for spec in specs:
            config, settings, n = spec.config, spec.settings, spec.settings.n_train
            assert (config.n_layers, config.n_heads, config.d_model, config.d_head, config.d_mlp) == (
                2,
                16,
                128,
                64,
                256,
            )
            assert (config.qk_identity, config.vo_identity) == (variant != PLAIN, False)
            assert settings.qk_identity_rate == (FAST_RATE if variant == FAST_A else 1)
            # 1000 epochs, at a constant rate
            assert settings.steps * min(n, settings.batch_size) == 1000 * n
            assert {settings.learning_rate_at(step) for step in (0, settings.steps - 1)} == {1e-3}
    assert all(not models_of_size for name, models_of_size in groups("quick").items() if "paper's size" in name)


def test_seeds_are_paired_at_the_papers_size():
    plain, with_a = (groups("standard")[of_paper_size(variant)] for variant in (PLAIN, A))
    by_n_and_seed = {(spec.settings.n_train, spec.seed): spec for spec in plain}
    for spec in with_a:
        same = by_n_and_seed[spec.settings.n_train, spec.seed]
        assert replace(spec, config=replace(spec.config, qk_identity=False)) == same


def saved(monkeypatch, plain, with_a):
    models = {of_paper_size(PLAIN): plain, of_paper_size(A): with_a}
    monkeypatch.setattr(paper_size, "scores", lambda evidence, group: models[group])
    return CLAIMS["identity.paper-size.half"].measurement(EVIDENCE)


def test_doublings_saved_at_the_papers_size(monkeypatch):
    plain = [row for seed in range(3) for row in curve(GRIDS[PLAIN], 1024, seed=seed)]
    with_a = [row for seed in range(3) for row in curve(GRIDS[A], (32, 32, 64)[seed], seed=seed)]
    measurement = saved(monkeypatch, plain, with_a)
    assert measurement.value == pytest.approx((5 + 5 + 4) / 3)
    assert (measurement.n, measurement.unit) == (3, "seeds")
    assert measurement.high - measurement.value == pytest.approx(4.3027 * 0.5774 / 3**0.5, rel=1e-3)
    assert measurement.numbers["seeds where neither does"] == 0
    equal = saved(monkeypatch, plain, [row for seed in range(3) for row in curve(GRIDS[A], 32, seed=seed)])
    assert equal.high - 5 == pytest.approx(4.3027 / 36**0.5, rel=1e-3)  # the rounding to doublings


def test_models_that_do_not_learn_decide_nothing_at_the_papers_size(monkeypatch):
    plain = [row for seed in range(2) for row in curve(GRIDS[PLAIN], 10**6, seed=seed)]
    with_a = [row for seed in range(2) for row in curve(GRIDS[A], 10**6, seed=seed)]
    measurement = saved(monkeypatch, plain, with_a)
    assert measurement.numbers["seeds where neither does"] == 2
    assert CLAIMS["identity.paper-size.half"].verdict(measurement) == "inconclusive"
    learned = saved(monkeypatch, plain, [row for seed in range(2) for row in curve(GRIDS[A], 32, seed=seed)])
    assert learned.numbers["seeds that never get there"] == {PLAIN: 2, A: 0}
    assert learned.value == 7  # 4096 in place of 32


def test_an_area_is_the_mean_log_loss_over_doublings():
    rows = [scored(loss, n=n, seed=0) for n, loss in ((64, 1.0), (256, np.exp(-1)), (128, 1.0))]
    assert areas.areas(rows) == pytest.approx([-0.25])
    solved = [scored(loss, n=n) for n, loss in ((64, 1e-6), (128, 1e-3))]
    assert areas.areas(solved) == pytest.approx([np.log(areas.LEAST)])


def with_areas(monkeypatch, a, b):
    """The claim about areas, on losses of each seed that are equal at every n."""
    losses = {areas.group_of(A): a, areas.group_of(B): b}
    models = {
        group: [scored(loss, n=n, seed=seed) for seed, loss in enumerate(of_seeds) for n in areas.GRID]
        for group, of_seeds in losses.items()
    }
    monkeypatch.setattr(areas, "scores", lambda evidence, group: models[group])
    return CLAIMS["identity.b-saves-less"].measurement(EVIDENCE)


def test_areas_are_compared_within_seeds(monkeypatch):
    measurement = with_areas(monkeypatch, (0.4, 0.1, 0.02), (0.8, 0.2, 0.04))
    assert measurement.value == pytest.approx(np.log(2))
    assert measurement.high - measurement.low == pytest.approx(0, abs=1e-9)
    assert CLAIMS["identity.b-saves-less"].verdict(measurement) == "reproduced"
    reverse = with_areas(monkeypatch, (0.8, 0.2, 0.04), (0.4, 0.1, 0.02))
    assert CLAIMS["identity.b-saves-less"].verdict(reverse) == "not reproduced"


def test_areas_of_models_that_do_not_learn_decide_nothing(monkeypatch):
    measurement = with_areas(monkeypatch, (0.8, 0.8, 0.8), (0.9, 0.91, 0.92))
    assert measurement.low > 0
    assert CLAIMS["identity.b-saves-less"].verdict(measurement) == "inconclusive"


def test_models_of_areas_are_paired():
    with_a, with_b = (groups("standard")[areas.group_of(variant)] for variant in (A, B))
    assert len(with_a) == areas.SEEDS * len(areas.GRID)
    for spec_a, spec_b in zip(with_a, with_b, strict=True):
        assert replace(spec_b.config, qk_identity=True, vo_identity=False) == spec_a.config
        assert (spec_a.settings, spec_a.seed) == (spec_b.settings, spec_b.seed)


def test_the_crossing_is_interpolated_in_logarithms():
    rows = [scored(loss, n=n) for n, loss in ((4096, 1.0), (8192, 0.5 / 2**0.5), (16384, 0.1))]
    log_n, reached = crossing.crossing(rows, 0.5)
    assert (log_n, reached) == (pytest.approx(12 + 2 / 3), True)
    again = [*rows[:1], scored(0.3, n=8192), scored(0.6, n=16384)]
    assert crossing.crossing(again, 0.5) == (15, False)  # it does not stay below
    below = [replace(row, loss=0.1) for row in rows]
    assert crossing.crossing(below, 0.5) == (12, True)


def test_the_lstms_crossing_is_compared_with_the_papers(monkeypatch):
    rows = [
        scored(loss, n=n, seed=seed)
        for seed, at_8192 in enumerate((0.5, 0.25))
        for n, loss in ((4096, 1.0), (8192, at_8192), (16384, 0.125))
    ]
    monkeypatch.setattr(crossing, "scores", lambda evidence, group: rows)
    claim = CLAIMS["curves.lstm.crossing"]
    measurement = claim.measurement(EVIDENCE)
    assert measurement.value == pytest.approx(-0.25)  # 0 and -1/2 doublings
    assert (measurement.n, measurement.numbers["seeds that never get there"]) == (2, 0)
    printed = paper_curves("aba-abb", x="n", y="loss").set_index(["series", "n"])["loss"]
    assert claim.paper == f"{printed['LSTM', 4096]:.3f} at n = 4096, {printed['LSTM', MANY]:.3f} at n = {MANY}"
    assert {spec.settings.n_train for spec in groups("standard")[crossing.GROUP]} == set(crossing.GRID)
    ordinary = {spec.key for spec in groups("standard")["recurrent LSTM"] if spec.settings.n_train == MANY}
    assert ordinary <= {spec.key for spec in groups("standard")[crossing.GROUP]}
    assert len(ordinary) == SCALES["standard"].network_seeds


@pytest.mark.parametrize(
    ("claim", "measurement", "verdict"),
    [
        ("identity.paper-size.half", measured(5, 4, 6, **{"seeds where neither does": 0}), "reproduced"),
        ("identity.paper-size.half", measured(2, 1, 2.9, **{"seeds where neither does": 0}), "not reproduced"),
        ("identity.paper-size.fast-a.tenth", measured(4, 2, 6, **{"seeds where neither does": 0}), "inconclusive"),
        ("curves.lstm.crossing", measured(0, -0.5, 0.5, **{"seeds that never get there": 0}), "reproduced"),
        ("curves.lstm.crossing", measured(1.5, 1.1, 1.9, **{"seeds that never get there": 0}), "not reproduced"),
        ("curves.lstm.crossing", measured(0, -0.5, 0.5, **{"seeds that never get there": 1}), "inconclusive"),
    ],
)
def test_verdicts_follow_the_rules(claim, measurement, verdict):
    assert CLAIMS[claim].verdict(measurement) == verdict
