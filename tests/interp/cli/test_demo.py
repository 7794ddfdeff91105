import json
import re
import shlex

import pytest

import interp
from interp.auditing.result import AuditResult
from interp.auditing.sentences import what_heads_do
from interp.cli import demo_run
from interp.cli.demo_run import SHIPPED, TASK, TITLE, TRAINED, demo_spec, run_demo
from interp.cli.main import app
from interp.cli.output import run_command
from interp.core.weight_sums import weight_sums
from interp.sweeps.parallel import train_to_disk
from interp.training.manifest import manifest_differences
from interp.training.run import TrainingRun
from interp.view.cards import census, verdict_chip

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


@pytest.fixture(scope="module")
def hand_written_models():
    """The hand-written model with the verdicts on its heads of the first kind, and with all."""
    return list(demo_run.hand_written_models())


@pytest.fixture(scope="module")
def hand_written(hand_written_models):
    return hand_written_models[-1]


def test_half_of_the_hand_written_heads_are_misleading(hand_written):
    """All heads of a row have one pattern, and the model needs every second one."""
    for row, needed in zip(hand_written.rows, ((1, 3), (0, 2, 4)), strict=True):
        assert len({head.label for head in row}) == 1
        assert min(head.score for head in row) > 0.99
        for head in row:
            is_needed = head.layer in needed
            assert head.verdict == ("faithful" if is_needed else "misleading")
            assert head.costs["mean"].exact
            assert (max(head.costs["mean"].drop) > 0.4) == is_needed
            assert is_needed or set(head.costs["mean"].drop) == {0}


def test_costs_of_the_hand_written_heads_are_those_of_every_input(hand_written):
    model = interp.known_answers.lego_loop(TASK)
    removed = interp.ablate_heads(model, TASK, method="mean", n="all")
    assert hand_written.n == removed.n
    for row in hand_written.rows:
        for head in row:
            index = removed.heads.index((head.place,))
            assert head.costs["mean"].drop == tuple(removed.drop.value[index])


def test_the_page_begins_with_the_contrast_before_every_head_has_a_verdict(hand_written_models):
    first, last = map(demo_run.opening_of, hand_written_models)
    assert first.lead == last.lead
    assert first.sections == last.sections[:1]


def test_the_page_is_written_before_training_and_grows(hand_written, tmp_path, monkeypatch, capsys):
    """Its lead has one number; what a misleading head is and which head is one are at the top."""
    monkeypatch.setattr(demo_run, "hand_written_models", lambda: [hand_written])
    texts = []

    def train(specs, *, fresh):
        texts.append((tmp_path / "report.html").read_text())
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_run, "train_to_disk", train)
    with pytest.raises(KeyboardInterrupt):
        run_demo(tmp_path)
    assert TITLE in capsys.readouterr().out
    (text,) = texts
    lead = re.search(r'class="lead">(.*?)</p>', text)[1]
    assert lead.endswith("so 0.0 is misleading.")
    assert re.findall(r"(?<![.\d])\d+(?![.\d])", lead.replace("0.0", "")) == [
        hand_written.contrast.losses[0].split()[0]
    ]
    first, second = text.index("Two heads that look alike</h2>"), text.index("All 10 heads of this model</h2>")
    assert "its pattern looks meaningful, and the model does not use it" in text[first:second]
    assert text[first:second].count('class="pattern"') == 2
    assert f"{TRAINED}</h2>" in text[second:]


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
def test_the_quick_demo_analyses_the_shipped_model(hand_written, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo_run, "hand_written_models", lambda: [hand_written])
    monkeypatch.setattr(demo_run, "_audit", lambda run: interp.audit(run.model, run.task, n=64, at_chance=True))
    monkeypatch.setattr(demo_run, "_probe_and_classify", lambda run, seed: {"probes": probed(run)})

    def probed(run):
        return interp.probe(run.model, run.task, n_train=300, n_test=100)

    page = demo_run.run_quick_demo(tmp_path / "new")
    audited = AuditResult.load(tmp_path / "new/audit.json")
    text = page.read_text()
    cards = f"<b>without 0.0:</b> {verdict_chip(audited.heads[0].verdict)}"
    of_trained = text.index(f"{TRAINED}</h2>")
    assert census(head.verdict for head in audited.heads) in text
    assert text.index(cards, of_trained) < text.index("What each head does</h2>")
    heads = what_heads_do(audited.heads)
    places = [text.index(part) for part in ("What each head does</h2>", "Accuracy per target</h2>", heads)]
    assert text.count("look alike</h2>") == 1
    assert places == sorted(places)
    printed = capsys.readouterr().out
    assert audited.summary() in printed
    assert "interp train lego" in printed
