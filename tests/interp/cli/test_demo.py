import json
import shlex

import pytest

import interp
from interp.auditing.result import AuditResult
from interp.auditing.sentences import verdict_summary, what_heads_do
from interp.cli import demo_run
from interp.cli.demo_run import SHIPPED, TASK, TITLE, demo_spec, run_demo
from interp.cli.main import app
from interp.cli.output import run_command
from interp.core.weight_sums import weight_sums
from interp.sweeps.parallel import train_to_disk
from interp.training.manifest import manifest_differences
from interp.training.run import TrainingRun

SEEDS = (0, 1, 2)


@pytest.fixture(scope="session")
def demo_runs(tmp_path_factory):
    """The demo's model from each seed: three trainings, two at a time."""
    folder = tmp_path_factory.mktemp("demo")
    train_to_disk({folder / str(seed) / "model": demo_spec(seed) for seed in SEEDS})
    return folder, {seed: TrainingRun.load(folder / str(seed) / "model") for seed in SEEDS}


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_every_variable_is_learned(demo_runs, seed):
    result = interp.evaluate(demo_runs[1][seed].model, TASK, n=10_000)
    assert result.n == 10_000
    assert (result.accuracy >= 0.99).all(), result


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_no_verdict_is_open(demo_runs, seed):
    """The audit has every held-out sentence, so that its losses are exact."""
    audited = interp.audit(demo_runs[1][seed].model, TASK, n="all")
    assert "undecided" not in {head.verdict for head in audited.heads}
    assert audited.heads[0].costs["mean"].exact


@pytest.mark.long
def test_the_page_begins_with_two_heads_that_look_alike(demo_runs, capsys):
    page = run_demo(demo_runs[0] / "0", seed=0)
    text = page.read_text()
    first_screen = text[: text.index("What each head does</h2>")]
    assert f"<h1>{TITLE}</h1>" in first_screen
    assert "W_Q was copied into W_K" in first_screen
    assert "look alike" in first_screen
    printed = capsys.readouterr().out
    assert printed.index(f"{TITLE}. Heads ") < printed.index("12 heads:")
    assert printed.count("\n") < 40  # one screen


@pytest.mark.long
def test_probes_percolate_and_the_output_follows(demo_runs):
    probes = interp.probe(demo_runs[1][0].model, TASK, verify=True)
    assert (probes.accuracy.low[-1] > 0.98).all()  # every value is readable in the end
    assert (probes.accuracy.high[0] < 0.6).all()  # none in the embedding
    first_readable = (probes.accuracy > 0.9).argmax(0)
    assert (first_readable[0] < first_readable[1:]).all()  # the root comes first
    assert (probes.causal["low"][-1] > 0.9).all()
    assert (probes.causal["follows"][0] < 0.3).all()
    # docs/probing.md reports this of the demo model
    assert (probes.causal["weights"][-1] == 0).all()
    assert (probes.causal["follows"][-1] == 1).all()


def test_the_shipped_model_is_seed_0_of_the_demo():
    run, spec = TrainingRun.load(SHIPPED), demo_spec(0)
    assert run.manifest["seed"] == spec.seed
    assert run.task == spec.task
    assert run.model.cfg == spec.config
    assert run.manifest["settings"] == json.loads(json.dumps(spec.settings.to_dict()))


def test_the_shipped_model_is_what_its_manifest_says(tmp_path):
    """The command in the manifest gives its task, config, settings and initial weights; the folder is below 200 kB."""
    run = TrainingRun.load(SHIPPED)
    program, *arguments = shlex.split(run.manifest["command"])
    assert program == "interp"
    calls = {}

    def train(model, task, settings, *, seed, folder, **options):
        calls.update(seed=seed, task=task.describe(), config=model.cfg.to_dict(), settings=settings.to_dict())
        calls["initial_weights"] = weight_sums(model)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interp.training.train.train", train)
        assert run_command(app, [*arguments, "--out", str(tmp_path)]) == 130
    assert not manifest_differences(run.manifest, calls)
    assert run.model.cfg.to_dict() == run.manifest["config"]
    assert run.history[-1]["steps_done"] == run.history[-1]["total"]
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 200_000
    assert {path.name for path in SHIPPED.iterdir()} == {"manifest.json", "metrics.jsonl", "model.safetensors"}


def test_the_shipped_model_is_accurate():
    run = TrainingRun.load(SHIPPED)
    result = interp.evaluate(run.model, run.task, n=4000)
    assert (result.accuracy == 1).all(), result


def test_quick_and_fresh_exclude_each_other(capsys):
    assert run_command(app, ["demo", "--quick", "--fresh"]) == 2
    assert "--quick trains nothing; omit --fresh." in capsys.readouterr().err


@pytest.mark.slow
def test_the_quick_demo_analyses_the_shipped_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo_run, "_audit", lambda folder: {"audit": few(folder)})
    monkeypatch.setattr(demo_run, "_probe_and_classify", lambda folder, seed: {"probes": probed(folder)})

    def few(folder):
        run = TrainingRun.load(folder)
        return interp.audit(run.model, run.task, n=64, at_chance=True)

    def probed(folder):
        run = TrainingRun.load(folder)
        return interp.probe(run.model, run.task, n_train=300, n_test=100)

    page = demo_run.run_quick_demo(tmp_path / "new")
    audited = AuditResult.load(tmp_path / "new/audit.json")
    text = page.read_text()
    counts, heads = verdict_summary([head.verdict for head in audited.heads]), what_heads_do(audited.heads)
    places = [text.index(part) for part in (counts, "What each head does</h2>", "Accuracy per target</h2>", heads)]
    assert places == sorted(places)
    printed = capsys.readouterr().out
    assert audited.summary() in printed
    assert "interp train lego" in printed
