"""Pages about development, in a browser without a network."""

from types import SimpleNamespace

import numpy as np
import pytest
from browser import faults

import interp
from hooks import make_model
from interp import TrainSettings
from interp.comparison import OverTraining, development_page
from interp.tasks import Lego

LAYERS, HEADS, SNAPSHOTS = 6, 4, 20


@pytest.fixture(scope="module")
def heads():
    """Scores of 24 heads at 20 snapshots."""
    step, layer, head = np.indices((SNAPSHOTS, LAYERS, HEADS)).reshape(3, -1)
    score = step * (layer + 1) * (head + 1) / (SNAPSHOTS * LAYERS * HEADS)
    values = {"step": 2**step - 1, "layer": layer, "head": head, "score": score, "low": score - 0.05,
              "high": score + 0.05}  # fmt: skip
    columns = {"seed": [0] * len(step), **{name: value.tolist() for name, value in values.items()}}
    return OverTraining(verb="heads", seeds=(0,), steps=tuple(sorted(set(columns["step"]))), columns=columns)


@pytest.mark.slow
@pytest.mark.browser
def test_the_slider_changes_the_map_and_needs_no_network(heads, browser, tmp_path):
    path = tmp_path / "film.html"
    heads.filmstrip().save(path)
    assert path.stat().st_size < 5e6
    page = browser.open(path)
    try:
        page.until("!!document.querySelector('input[type=range]') && !!document.querySelector('canvas, svg')")
        slide = "var bar = document.querySelector('input[type=range]'); bar.value = {}; "
        slide += "bar.dispatchEvent(new Event('input'));"
        pictures = []
        for snapshot in (0, SNAPSHOTS - 1, 0, SNAPSHOTS - 1, 0):  # the first one gives the slider the focus
            page.run(slide.format(snapshot))
            page.until("new Promise(done => setTimeout(() => done(true), 300))")
            page.picture(tmp_path / "film.png")
            pictures.append((tmp_path / "film.png").read_bytes())
        assert pictures[1] == pictures[3]
        assert pictures[2] == pictures[4]
        assert pictures[1] != pictures[2]
        assert page.requests == [path.as_uri()]
        assert not page.problems
    finally:
        page.close()


@pytest.fixture(scope="module")
def page(heads, tmp_path_factory):
    """Two runs of five snapshots, results of three verbs, and their page."""
    folder = tmp_path_factory.mktemp("page")
    task = Lego(n_vars=2, sentence_format="compact")
    config = interp.config_for(task, "lego", n_layers=1, d_model=8, n_heads=2, d_head=4, d_mlp=8)
    settings = TrainSettings(steps=20, batch_size=8, eval_every=5, n_eval=50, snapshots=5)
    runs = [
        interp.train(make_model(config, seed=seed), task, settings, seed=seed, folder=folder / str(seed))
        for seed in (0, 1)
    ]
    results = [interp.over_training(runs[0], verb, n=60) for verb in (interp.evaluate, interp.classify_heads)]
    results.append(interp.over_training(runs, interp.attention_variation))
    path = development_page(runs[0], [*results, heads], folder / "page.html")
    return SimpleNamespace(runs=runs, results=results, path=path)


@pytest.mark.shapes
def test_the_page_of_a_run(page, heads):
    text = page.path.read_text()
    assert "First step from which variation stays above 0" in text
    assert "First step from which accuracy stays above 0.5" in text
    assert "training loss" in text
    with pytest.raises(ValueError, match="results is empty"):
        development_page(page.runs[0], [], page.path)
    with pytest.raises(ValueError, match="a result of heads is of seeds 0, not of 1"):
        development_page(page.runs[1], [page.results[-1], heads], page.path)


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_of_a_run_has_no_faults(page, browser):
    assert not faults(browser, page.path)
