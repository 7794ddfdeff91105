"""Every verb on language models: what is planted is found, what is learned is measured, a run survives its folder."""

import random
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from texts import NAMES, corpus, documents

import interp
from hooks import Encoder, Transformer, make_model
from hooks.model.hardcoded.head_patterns import HeadPattern
from interp.auditing.outcomes import judged_outcomes
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.evaluation.evaluate import score_batch
from interp.evaluation.perplexity import PerplexityResult, perplexity
from interp.sweeps.parallel import train_to_disk
from interp.sweeps.spec import ModelSpec
from interp.tasks import Corpus, Lego, Text, task_from
from interp.tasks.base import Score
from interp.training.run import TrainingRun
from interp.training.settings import recipe_for

NEXT = Text(corpus=corpus(n=120, length=2), n_ctx=24, vocab_size=320)
MASKED = replace(NEXT, objective="masked")
PAIRS = replace(MASKED, next_sentence=True)
TASKS = {"next token": NEXT, "masked": MASKED, "next sentence": PAIRS}
SETTINGS = interp.TrainSettings(
    steps=60, learning_rate=4e-3, warmup_steps=5, tokens_per_step=512, n_eval=32, eval_every=60
)


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    """Nothing is kept in the user's own cache."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("UNMYOPIC_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module", params=TASKS)
def learned(request):
    """A task and a small model that has learned some of it."""
    torch.set_num_threads(1)
    task = TASKS[request.param]
    model = make_model(interp.config_for(task, n_layers=2, n_heads=2, d_model=32))
    return task, interp.train(model, task, SETTINGS)


def test_training_lowers_perplexity(learned):
    task, run = learned
    before = perplexity(make_model(run.model.cfg, seed=1), task, n=64)
    after = perplexity(run.model, task, n=64)
    assert after.targets == task.outcomes
    assert (after.perplexity.high < before.perplexity.low / 2).tolist() == ([True, True] if task is PAIRS else [True])
    assert (after.perplexity.low < after.perplexity.value).all()
    assert (after.perplexity.value < after.perplexity.high).all()
    assert before.perplexity[0] == pytest.approx(320, rel=0.5)
    assert interp.evaluate(run.model, task, n=64).accuracy[0] > 10 * task.chance


def test_perplexity_is_exp_of_the_mean_loss(learned, tmp_path):
    task, run = learned
    result = perplexity(run.model, task, n=40, seed=3)
    again = perplexity(run.model, task, n=40, seed=3)
    assert np.array_equal(result.perplexity, again.perplexity)
    batch = task.sample(40, generator=torch.Generator().manual_seed(0), split="test")
    losses = [task.loss(run.model(batch.tokens, **batch.model_inputs()), batch).item()]
    if task is not PAIRS:
        assert result.loss[0] == pytest.approx(losses[0], rel=0.25)  # other windows of the same text
    assert np.allclose(np.exp(result.loss), result.perplexity)
    result.save(tmp_path / "found.json")
    loaded = PerplexityResult.load(tmp_path / "found.json")
    assert np.array_equal(loaded.perplexity.low, result.perplexity.low)
    assert str(loaded).startswith("perplexity on 40 test windows, chance 320\n")
    assert result.to_dataframe()["target"].tolist() == list(task.outcomes)
    spec = result.plot().to_dict()
    assert spec["title"] == "perplexity, n = 40 windows, chance 320"
    chance, interval, point = (layer["encoding"]["y"] for layer in spec["layer"])
    assert chance["datum"] == 320
    assert interval["scale"] == point["scale"] == chance["scale"] == {"type": "log", "domain": [1.0, 320]}


@pytest.mark.parametrize(
    ("low", "high", "domain"), [(0.9, 1.5, [0.9, 320]), (300.0, 500.0, [1.0, 500.0]), (2.0, 3.0, [1.0, 320])]
)
def test_the_perplexity_axis_contains_one_chance_and_every_interval(low, high, domain):
    middle = np.array([2.5, (low * high) ** 0.5])
    result = PerplexityResult(
        targets=("a", "b"),
        perplexity=Interval(value=middle, low=np.array([2.0, low]), high=np.array([3.0, high]), n=9),
        loss=np.log(middle),
        chance=320,
        n=9,
        split="test",
    )
    point = result.plot().to_dict()["layer"][-1]
    assert point["encoding"]["y"]["scale"]["domain"] == domain


def test_perplexity_of_an_untrained_model():
    model = make_model(interp.config_for(NEXT, n_layers=1, n_heads=1, d_model=8))
    with torch.no_grad():
        model.norm_final.weight.zero_()
    result = perplexity(model, NEXT, n=10)
    assert result.perplexity == pytest.approx([320.0], rel=1e-4)
    assert result.perplexity.low == pytest.approx(result.perplexity.high, rel=1e-4)


def test_invalid_arguments_of_perplexity_are_refused(learned):
    task, run = learned
    with pytest.raises(ValueError, match=r"task is a Lego; perplexity is defined for Text\. Use interp\.evaluate"):
        perplexity(run.model, Lego(n_vars=2))
    with pytest.raises(ValueError, match="n is 1; it must be at least 2"):
        perplexity(run.model, task, n=1)


def only(*names):
    """Some tasks by default, all of them among the slow tests."""
    return [pytest.param(name, marks=[] if name in names else [pytest.mark.slow]) for name in TASKS]


@pytest.mark.parametrize("learned", only("next token", "next sentence"), indirect=True)
def test_every_verb_runs(learned, tmp_path):
    task, run = learned
    model = run.model
    twins = [make_model(model.cfg, seed=seed) for seed in range(3)]
    patterns = interp.classify_heads(model, task, n=32)
    general = {"local", "previous", "current", "first_token", "duplicate", "induction"}
    assert {"association", "broadcast"} | general >= set(patterns.kinds)
    assert {"association", "previous", "current"} <= set(patterns.kinds)
    ablated = interp.ablate_heads(model, task, n=16)
    assert ablated.drop.shape == (4, len(task.outcomes))
    assert (ablated.loss_rise != 0).all()
    interp.ablate_heads(model, task, n=16, method="association")
    probed = interp.probe(model, task, n_train=100, n_test=50)
    assert probed.label == "kind"
    assert probed.targets == task.targets[: probed.accuracy.shape[1]]  # the next sentence is of one kind: left out
    assert ("next sentence" in task.targets) == (len(probed.targets) < len(task.targets))
    if task is NEXT:
        before = interp.probe(model, task, label="previous_kind", n_train=100, n_test=50)
        assert before.accuracy.value[0].mean() > 0.9  # the kind of the token just read is in its embedding
    results = [
        patterns,
        ablated,
        probed,
        interp.attention_variation(twins, task),
        interp.diagonals(model),
        perplexity(model, task, n=16),
        interp.evaluate(model, task, n=16),
        interp.show_attention(model, task, examples=2, patterns=patterns),
    ]
    shown = interp.show_attention(model, task)
    assert shown.viewer == "canvas"
    page = interp.report(results, tmp_path / "page.html", title="text")
    assert page.stat().st_size > 10_000
    page, tested = interp.report_run(run, task, tmp_path / "run.html", n_test=32)
    assert tested["model"].targets == task.outcomes
    assert "\\u00b7return" in interp.show_attention(model, task, examples=8, viewer="canvas").html  # as JSON has it


@pytest.mark.parametrize("learned", only("next sentence"), indirect=True)
def test_audits(learned, tmp_path):
    task, run = learned
    results = [
        interp.audit(run.model, task, n=64, at_chance=True),
        interp.audit_probe(run.model, replace(task, n_ctx=8), n_train=600, n_test=32),
    ]
    page = interp.report(results, tmp_path / "page.html", title="text").read_text()
    assert "<h2>Audit of heads</h2>" in page
    assert "<h2>Probe audit</h2>" in page


def planted(task):
    """One layer whose heads look at the same token, at a special one, at the token before, at themselves, anywhere."""
    mark = task.vocab.ids["<|endoftext|>" if task.attention == "causal" else "[SEP]"]
    rows = (
        HeadPattern(kind="association"),
        HeadPattern(kind="broadcast", token=mark),
        HeadPattern(kind="local", kernel=(1.0, 0.0, 0.0)),
        HeadPattern(kind="local", kernel=(0.0, 1.0, 0.0)),
        HeadPattern(kind="uniform"),
    )
    cfg = interp.config_for(task, n_layers=1, n_heads=5, d_model=40)
    return make_model(replace(cfg, head_patterns=(rows,)))


@pytest.mark.parametrize("task", [NEXT, MASKED], ids=["next token", "masked"])
def test_planted_heads_get_their_labels(task):
    # few words and short documents: most windows have a token again, and the end of a document
    draw = random.Random(0)
    texts = {str(index): " ".join(draw.choices(NAMES[:3], k=8)) for index in range(120)}
    task = replace(task, corpus=Corpus(documents=texts), n_ctx=32)
    patterns = interp.classify_heads(planted(task), task, n=64)
    assert patterns.label == (("association", "broadcast", "previous", "current", "unclassified"),)


def test_an_untrained_model_gets_no_label(learned):
    task, run = learned
    patterns = interp.classify_heads(make_model(run.model.cfg, seed=5), task, n=32)
    assert set(sum(patterns.label, ())) <= {"unclassified", "uniform"}


def test_ablation_matches_forward_hooks(learned):
    task, run = learned
    batch = task.sample(16, generator=derived_generator(0, "ablate"), split="test")

    def remove(z, hook):
        z = z.clone()
        z[:, :, 1] = 0
        return z

    with run.model.hooks([("blocks.0.attn.hook_z", remove)]):
        after = score_batch(run.model, task, batch)
    before = score_batch(run.model, task, batch)
    ablated = interp.ablate_heads(run.model, task, n=16, heads={"one": [(0, 1)]})
    increase = (after.loss - before.loss).sum(0) / before.total.sum(0)
    assert np.allclose(ablated.loss_rise[0], increase.numpy(), atol=1e-4)


def test_runs_in_parallel_and_loaded_from_their_folder(tmp_path):
    path = tmp_path / "texts"
    path.mkdir()
    for name, text in documents(40).items():
        (path / name).write_text(text)
    task = Text(corpus=Corpus.from_folder(path, "*.py"), n_ctx=12, vocab_size=300)
    settings = replace(SETTINGS, steps=3, eval_every=3)
    config = interp.config_for(task, n_layers=1, n_heads=2, d_model=16)
    specs = {
        tmp_path / str(seed): ModelSpec(task=task, config=config, settings=settings, seed=seed) for seed in range(2)
    }
    train_to_disk(specs, n_jobs=1)
    loaded = TrainingRun.load(tmp_path / "1")
    again = task_from(loaded.manifest["task"])
    assert again == task
    evaluation = interp.evaluate(loaded.model, again, n=20)
    assert np.array_equal(evaluation.accuracy, interp.evaluate(loaded.model, task, n=20).accuracy)
    (path / "000.py").write_text("x = 1")
    with pytest.raises(ValueError, match="the text has changed"):
        task_from(loaded.manifest["task"])


@pytest.mark.parametrize("more", [(), ("--objective", "masked"), ("--objective", "masked", "--next-sentence")])
def test_the_command_line_trains_on_text(more, tmp_path, monkeypatch, capsys):
    from interp.cli.main import main

    for name, text in documents(60).items():
        (tmp_path / name.replace(".py", ".txt")).write_text(text)
    small = ("--n-ctx", "16", "--vocab-size", "300", "--layers", "1", "--heads", "2", "--width", "16", "--identity")
    out = tmp_path / "run"
    arguments = ("train", "text", "--out", out, "--corpus", tmp_path, "--steps", "2", *small, *more)
    monkeypatch.setattr(sys, "argv", ["interp", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code, capsys.readouterr().err
    assert "trained 2 steps" in capsys.readouterr().out
    run = TrainingRun.load(out)
    assert run.manifest["task"]["objective"] == ("masked" if more else "next_token")
    assert run.manifest["task"]["next_sentence"] == ("--next-sentence" in more)
    assert run.model.cfg.qk_identity
    assert run.model.cfg.vo_identity
    assert run.manifest["settings"]["tokens_per_step"] == recipe_for(NEXT).tokens_per_step
    assert type(run.model) is (Encoder if "--next-sentence" in more else Transformer)


def test_audit_probe_skips_kinds_without_examples(monkeypatch):
    """Words and spaces only: most kinds have no example at all, and so no mean."""
    every = np.ones((2, 7))
    monkeypatch.setattr("interp.auditing.probes.readable_p_values", lambda n_correct, bar, n, **options: (every, every))
    pages = {f"{n}": " ".join(f"word{(n * i) % 7} other" for i in range(120)) for n in range(30)}
    task = Text(corpus=Corpus(documents=pages), n_ctx=8, vocab_size=300)
    model = make_model(interp.config_for(task, d_model=16, n_heads=2, n_layers=1), seed=0)
    audit = interp.audit_probe(model, task, n_train=300, n_test=32)
    assert len(audit.verdict) == 2


def test_the_next_sentence_is_judged_only_above_one_half():
    task = Text(corpus=corpus(), n_ctx=16, vocab_size=300, objective="masked", next_sentence=True)
    assert task.chances == (1 / task.d_vocab, 0.5)
    right = torch.stack([torch.ones(400), (torch.arange(400) % 2).float()], 1)
    score = Score(right=right, loss=1 - right, total=torch.ones(400, 2))
    options = {"factor": 8.0, "alpha": 0.01, "of_constants": np.zeros(2)}
    judged = judged_outcomes(score, task, None, at_chance=False, **options)
    assert judged.names == ("masked",)
    assert any("next_sentence is left out: 0.50 is not above chance" in warning for warning in judged.warnings)
    few = Score(right=right[:16], loss=1 - right[:16], total=torch.ones(16, 2))
    with pytest.raises(ValueError, match=r"n is 16; .* sequences are needed"):
        judged_outcomes(few, task, None, at_chance=False, **options)
    anyway = judged_outcomes(few, task, None, at_chance=True, **options)
    assert anyway.warnings[0].startswith("With 16 sequences, where ")


def test_the_number_of_logits_per_chunk_is_limited(monkeypatch):
    task = Text(corpus=corpus(), n_ctx=16, vocab_size=300)
    model = make_model(interp.config_for(task, d_model=16, n_heads=2, n_layers=1), seed=0)
    sizes: list[int] = []
    model.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    evaluation = interp.evaluate(model, task, n=50)
    assert sizes == [50]
    monkeypatch.setattr("interp.evaluation.evaluate.MOST_LOGITS", 20 * 16 * task.d_vocab)
    sizes.clear()
    assert interp.evaluate(model, task, n=50) == evaluation
    assert sizes == [20, 20, 10]
