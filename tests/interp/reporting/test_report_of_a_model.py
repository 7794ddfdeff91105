"""`report_run` of a model without a training run: ours, wrapped, a `HookedRootModule` and a bridge."""

import re

import pytest
import torch
from own_models import own_model, plain_model, transformer
from transformer_lens import TransformerBridge, TransformerBridgeConfig

import hooks
import interp
from interp.auditing.sentences import verdict_summary
from interp.auditing.show import show_heads
from interp.heads.classify import HeadPatterns
from interp.reporting.sections import heads_section
from interp.tasks import Dyck

TASK = Dyck(n_types=2, max_depth=3, length=6)
OURS = transformer(TASK)
SIZES = {"d_model": 16, "d_head": 8, "n_heads": 2, "n_layers": 2, "n_ctx": TASK.n_ctx, "d_vocab": TASK.d_vocab}
TRAINING = ("Learning curves", "Training setup")


def brought(kind):
    """A model, the architecture that the page names, and its number of parameters."""
    if kind == "ours":
        return OURS, "", OURS
    if kind == "wrapped":
        module = plain_model(OURS)
        names = {"layers": "layers", "attention": "attn", "d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx}
        untrained = lambda: plain_model(transformer(TASK, seed=3))  # noqa: E731
        return hooks.from_module(module, **names, untrained=untrained), " (PlainModel)", module
    if kind == "hooked":
        module = own_model(OURS)
        return module, " (OwnModel)", module
    config = TransformerBridgeConfig(**SIZES, act_fn="gelu", normalization_type="LN", seed=0)
    bridge = TransformerBridge.boot_native(config)
    return bridge, " (TransformerLensNative)", bridge


def titles(html):
    return re.findall(r"<h2>(.*?)</h2>", html)


@pytest.fixture(scope="module")
def sections_of_a_run(tmp_path_factory):
    """Titles of a page about a training run."""
    run = interp.train(hooks.Transformer(OURS.cfg), TASK, interp.TrainSettings(steps=1, batch_size=4, n_eval=8))
    path, _ = interp.report_run(run, TASK, tmp_path_factory.mktemp("run") / "page.html", n_test=16)
    return titles(path.read_text())


@pytest.mark.parametrize("kind", ["ours", "wrapped", "hooked", "bridge"])
def test_a_page_about_any_model_is_that_of_a_run_without_its_training(kind, sections_of_a_run, tmp_path):
    model, architecture, module = brought(kind)
    path, accuracies = interp.report_run(model, TASK, tmp_path / "page.html", n_test=16)
    html = path.read_text()
    *first, last = [name for name in sections_of_a_run if name not in TRAINING]
    assert titles(html) == [*first, "Model", last]
    assert set(TRAINING) <= set(sections_of_a_run)
    assert "<h1>Model report</h1>" in html
    assert f"The model is a transformer{architecture} with 2 layers and 2 heads per layer, on " in html
    n_parameters = sum(weight.numel() for weight in module.parameters())
    assert n_parameters > 2000
    assert f"{n_parameters:,} parameters" in html
    expected = interp.evaluate(model, TASK, n=16)
    assert accuracies["model"].accuracy.value.tolist() == expected.accuracy.value.tolist()


def test_pages_of_heads_and_a_control_are_as_for_a_run(tmp_path):
    model, *_ = brought("wrapped")
    audited = interp.audit(model, TASK, n=32, at_chance=True)
    results = [audited, show_heads(model, TASK, audited)]
    path, accuracies = interp.report_run(model, TASK, tmp_path / "page.html", results=results, control=OURS, n_test=16)
    html = path.read_text()
    assert titles(html)[:2] == ["What each head does", "Accuracy per target"]
    assert list(accuracies) == ["model", "control"]
    assert verdict_summary([head.verdict for head in audited.heads]) in html
    # next to a training run as the control, each says how it was trained
    run = interp.train(hooks.Transformer(OURS.cfg), TASK, interp.TrainSettings(steps=1, batch_size=4, n_eval=8))
    path, _ = interp.report_run(model, TASK, tmp_path / "page.html", control=run, n_test=16)
    assert "<td>not trained here</td>" in path.read_text()


def test_objects_that_are_neither_run_nor_model_are_refused(as_a_user, tmp_path):
    with pytest.raises(ValueError, match=r"model is a Linear; accepted are hooks\.Transformer"):
        interp.report_run(torch.nn.Linear(2, 2), TASK, tmp_path / "page.html")
    other = Dyck(n_types=3, max_depth=3, length=6)
    with pytest.raises(ValueError, match="the task has d_vocab 9, the model 7"):
        interp.report_run(OURS, other, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_a_comparison_that_ended_early_names_no_level():
    patterns = interp.classify_heads(transformer(TASK, scale=0.1), TASK, n=16, untrained=19)
    assert isinstance(patterns, HeadPatterns)
    assert patterns.n_untrained == 1
    assert patterns.heads("unclassified") == ((0, 0), (0, 1), (1, 0), (1, 1))
    text = heads_section(patterns).text
    for words in (str(patterns), text):
        assert "1 untrained model was compared, after which no head could pass any more" in words
        assert "5%" not in words
    assert "exploratory" not in str(patterns)
    # with one model that was asked for, the level is what it is
    one = interp.classify_heads(transformer(TASK, scale=0.1), TASK, n=16, untrained=1)
    assert "1 untrained model was compared, and at most 50% of untrained models have a head that passes" in str(one)
