import json
import re
import shlex
import subprocess
import sys

import pytest

from interp.cli.subject import Subject
from interp.heads import read_circuit
from interp.known_answers import lego_loop
from interp.tasks import Lego
from interp.training import TrainingRun

TRAIN = shlex.split("train lego --n-vars 2 --layers 1 --width 16 --association none --curriculum none --steps 3")


def test_train_help_lists_the_fields_of_task_config_and_settings(interp, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    process = interp("train", "lego", "--help")
    assert process.returncode == 0, process.stderr
    words = process.stdout.split()
    for option in ("--out", "--n-vars", "--group", "--layers", "--no-attn-bias", "--weight-decay", "--depth-range"):
        assert option in words
    for option in ("--n-layers", "--d-vocab", "--attention", "--mimicking", "--pattern", "--templates"):
        assert option not in words
    assert "Variables in a chain. Default: 4." in process.stdout
    assert "none|mimic|query_key" in words


def test_any_field_of_config_and_settings_is_an_option(interp, tmp_path):
    options = shlex.split("--no-attn-bias --activation relu --weight-decay 0 --depth-range 1 1 --n-eval 50")
    process = interp(*TRAIN, *options, "--out", "run")
    assert process.returncode == 0, process.stderr
    stored = manifest(tmp_path / "run")
    assert (stored["config"]["attn_bias"], stored["config"]["activation"]) == (False, "relu")
    settings = stored["settings"]
    assert (settings["weight_decay"], settings["depth_range"], settings["n_eval"]) == (0, [1, 1], 50)
    unknown = interp(*TRAIN, "--weight-decy", "0", "--out", "other")
    assert unknown.returncode == 2
    assert "No such option: --weight-decy" in unknown.stderr


def test_train_and_probe(interp, tmp_path):
    trained = interp(*TRAIN, "--out", "run")
    assert trained.returncode == 0, trained.stderr
    assert "trained 3 steps" in trained.stdout
    weights = (tmp_path / "run/model.safetensors").read_bytes()
    again = interp(*TRAIN, "--out", "run")
    assert "trained 3 steps" in again.stdout
    assert (tmp_path / "run/model.safetensors").read_bytes() == weights
    probed = interp("probe", "run", "--out", "probes.json")
    assert re.search(r"2000 held-out examples \(\d+ distinct, which intervals count\) per cell", probed.stdout)
    assert json.loads((tmp_path / "probes.json").read_text())["result"] == "ProbeResult"
    names = {"lens": "LogitLensResult", "attribution": "LogitAttributionResult", "edges": "EdgesResult"}
    names["patch"] = "PatchResult"
    for command, name in names.items():
        process = interp(command, "run", "--n", "64", "--out", "result.json")
        assert process.returncode == 0, process.stderr
        assert json.loads((tmp_path / "result.json").read_text())["result"] == name


@pytest.mark.slow
def test_edges_and_their_circuit(interp, tmp_path, monkeypatch):
    """Of a model at chance there is no circuit; that of a loop is drawn, and saved for other tools."""
    assert interp(*TRAIN, "--out", "run").returncode == 0
    refused = interp("edges", "run", "--n", "16", "--page", "page.html")
    assert refused.returncode == 2
    assert "not above chance on any outcome, so there is no task to keep" in refused.stderr
    assert not (tmp_path / "page.html").exists()
    refused = interp("edges", "run", "--between", "layers", "--circuit", "circuit.json")
    assert refused.returncode == 2
    assert "a circuit of all edges between parts; omit --between and --within" in refused.stderr
    task = Lego(n_vars=2)
    monkeypatch.setattr("interp.cli.edges.subject_of", lambda *_, **__: Subject(model=lego_loop(task), task=task))
    files = ("--page", "page.html", "--circuit", "circuit.json", "--out", "edges.json")
    process = interp("edges", "run", "--n", "16", *files, "--json")
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)["result"]
    assert list(result) == ["edges", "circuit", "page", "circuit_file"]
    assert result["circuit"]["values"]["n"] == 32
    circuit = {
        f"{sender} > {receiver}" for sender, receiver, _, in_circuit in read_circuit("circuit.json") if in_circuit
    }
    assert "0 MLP > read-out" in circuit
    assert json.loads((tmp_path / "edges.json").read_text())["result"] == "EdgesResult"
    page = (tmp_path / "page.html").read_text()
    assert f"A circuit of {len(circuit)} of 100 edges" in page
    assert "bidirectional" in page  # the model, in the heading
    layers = json.loads(interp("edges", "run", "--n", "16", "--between", "layers", "--json").stdout)["result"]
    assert layers["values"]["receivers"][-1] == "read-out"
    within = ("--within", "embedding > layer 1", "--within", "0 MLP > read-out")
    chosen = interp("edges", "run", "--n", "16", *within)
    assert chosen.returncode == 0, chosen.stderr
    assert "0 MLP > read-out" in chosen.stdout
    assert "0.0 > 1.0 q" not in chosen.stdout


def test_report(interp, tmp_path):
    assert interp(*TRAIN, "--out", "run").returncode == 0
    reported = interp("report", "run", "--no-verify")
    assert "run/report.html" in reported.stdout
    assert "<h2>Learning curves</h2>" in (tmp_path / "run/report.html").read_text()


def test_audit_heads_and_probes(interp, tmp_path):
    assert interp(*TRAIN, "--out", "run").returncode == 0
    refused = interp("audit", "run", "--page", "audit.html")
    assert refused.returncode == 2
    assert "no intervention can cost accuracy" in refused.stderr
    assert not (tmp_path / "audit.html").exists()
    settings = ("--at-chance", "--n", 128, "--out", "audit.json", "--page", "audit.html", "--probes", "--parts", "mlps")
    process = interp("audit", "run", *settings)
    assert process.returncode == 0, process.stderr
    assert re.search(r"128 \(\d+ distinct\) sequences, level 0.01 \(Bonferroni\)", process.stdout)
    assert "value: " in process.stdout
    assert "page: audit.html" in process.stdout
    saved = json.loads((tmp_path / "audit.json").read_text())
    assert saved["result"] == "AuditResult"
    assert saved["values"]["n"] == 128
    assert json.loads((tmp_path / "audit.parts.json").read_text())["result"] == "PartAuditResult"
    assert json.loads((tmp_path / "audit.probes.json").read_text())["values"]["label"] == "value"
    assert "give it alone" in interp("audit", "run", "--parts", "mlps", "--parts", "embedding").stderr
    page = (tmp_path / "audit.html").read_text()
    assert "<h2>Audit of heads</h2>" in page
    assert "<h2>Probe audit</h2>" in page
    assert "<h2>Part audit</h2>" in page
    assert re.search(r"^\w+ +0 MLP", process.stdout, re.MULTILINE)
    second_process = interp("audit", "run", "--at-chance", "--n", 128, "--seed", 1, "--out", "other.json")
    assert second_process.returncode == 0
    assert "value: " not in second_process.stdout
    # every input, of which the best constant answer gets more right than chance, and a word that is no choice
    refusals = {
        "all": "not above chance (0.50 by a constant answer, 0.54 by a constant answer)",
        "every": "n is 'every'; it must be an integer or 'enough' or 'all'",
    }
    for n, words in refusals.items():
        refused = interp("audit", "run", "--n", n)
        assert (refused.returncode, words in refused.stderr) == (2, True), refused.stderr
    assert json.loads((tmp_path / "other.json").read_text()) != saved
    of_one = interp("audit", "run", "--at-chance", "--n", 128, "--head", "0.1", "--out", "one.json")
    assert "heads were audited" in of_one.stdout
    assert [head["layer"] for head in json.loads((tmp_path / "one.json").read_text())["values"]["heads"]] == [0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["probe", "nowhere"], "no training run in nowhere"),
        (["audit", "nowhere"], "no training run in nowhere"),
        (["train", "lego", "--out", "r", "--group", "Q8"], "group is 'Q8'"),
        (["train", "lego", "--out", "r", "--n-vars", "40"], "n_vars is 40"),
        (["train", "lego", "--out", "r", "--heads", "7"], "does not divide d_model 64"),
        (["train", "lego", "--out", "r", "--curriculum", "2-80"], "curriculum is '2-80'"),
        (["train", "lego", "--out", "r", "--snapshots", "2,1"], "snapshots is (2, 1); give steps from 0 on"),
        (["train", "lego", "--out", "r", "--curriculum", "9:80"], "curriculum has the length 9"),
        (["train", "template", "--out", "r", "--templates", "abab"], "templates is 'abab'; choose one of"),
        (
            ["train", "template", "--out", "r", "--templates", "aba -> +1", "--templates", "xyx -> -1"],
            "the templates 'aba -> +1' and 'xyx -> -1' overlap",
        ),
        (["train", "template", "--out", "r", "--form", "symbolic"], "labelled a real number, but labels of this form"),
        (["train", "template", "--out", "r", "--n", "1"], "the train alphabet has 1 symbols"),
        (["train", "template", "--out", "r", "--family", "gru"], "family is 'gru'; choose one of"),
        (
            ["train", "lego", "--out", "r", "--n-vars", "3", "--steps", "3000"],
            "--steps is 3000, but the recipe of this task has the stages 2:80,3:270, whose 350 steps count. Add --curr",
        ),
        (
            ["train", "lego", "--out", "r", "--curriculum", "2:80,3:9", "--steps", "90"],
            "--steps is 90, but --curriculum has the stages 2:80,3:9, whose 89 steps count",
        ),
        (
            ["train", "template", "--out", "r", "--batch-size", "8", "--tokens-per-step", "80"],
            "--batch-size and --tokens-per-step exclude each other",
        ),
        (
            ["train", "lego", "--out", "r", "--curriculum", "none", "--current-share", "0.5"],
            "--current-share has no effect without a curriculum; omit it",
        ),
        (
            ["train", "lego", "--out", "r", "--vo-identity", "--qk-identity-rate", "2"],
            "--qk-identity-rate has no effect without --qk-identity; omit it",
        ),
        (
            ["train", "lego", "--out", "r", "--identity", "--no-vo-identity"],
            "--identity sets what --no-vo-identity denies; omit one",
        ),
        (["train", "text", "--out", "r", "--pattern", "*.md"], "pattern is '*.md', but no corpus folder is given"),
        (["audit", "nowhere", "--head", "1,0"], "--head is '1,0'; it must be layer.head, such as 1.0"),
        (["audit", "nowhere", "--n", "50", "--seconds", "9"], "--seconds is for --n enough; --n is 50"),
    ],
)
def test_errors_are_one_line(interp, tmp_path, arguments, words):
    process = interp(*arguments)
    assert process.returncode == 2
    assert words in process.stderr
    assert process.stderr.startswith("error: ")
    assert process.stderr.count("\n") == 1
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(("given", "steps"), [("3", (0, 1, 4)), ("0,2", (0, 2)), ("on change", (0, 4))])
def test_snapshots_are_a_number_steps_or_on_change(interp, tmp_path, given, steps):
    process = interp(*TRAIN, "--steps", 4, "--snapshots", given, "--out", "run")
    assert process.returncode == 0, process.stderr
    assert TrainingRun.load(tmp_path / "run").snapshots == steps


def test_the_default_curriculum_ends_at_the_chain_length(interp, tmp_path, monkeypatch):
    monkeypatch.setattr("interp.training.train.Trainer.run", lambda self: [])  # only the settings are checked
    for n_vars, last in ((1, None), (4, [4, 350]), (9, [9, 900])):
        out = f"run{n_vars}"
        interp("train", "lego", "--n-vars", n_vars, "--layers", 1, "--width", 16, "--out", out)
        stages = json.loads((tmp_path / out / "manifest.json").read_text())["settings"]["curriculum"]
        assert (stages[-1] if stages else None) == last


def test_options_next_to_those_that_they_replace(interp, tmp_path, monkeypatch):
    monkeypatch.setattr("interp.training.train.Trainer.run", lambda self: [])  # only the settings are checked
    recipe = {"batch_size": 64, "steps": 9}
    monkeypatch.setattr("interp.tasks.template.task.Template.recipe", lambda self: recipe)
    for options, name, value in (
        (["--tokens-per-step", 80], "batch_size", None),  # the recipe's would have priority
        (["--curriculum", "none"], "steps", 9),  # the recipe has none either
        ([], "batch_size", 64),
    ):
        assert interp("train", "template", "--n", 8, *options, "--out", name, "--fresh").returncode == 0
        assert manifest(tmp_path / name)["settings"][name] == value
    # the steps of the stages may be given too
    lego = ["train", "lego", "--n-vars", 2, "--steps", 80, "--layers", 1, "--width", 16]
    assert interp(*lego, "--out", "lego").returncode == 0


def test_an_accuracy_at_chance_is_said(interp):
    process = interp(*TRAIN, "--n-eval", 40, "--out", "run")
    assert re.search(r"\nNOT LEARNED: accuracy is not above chance \(0\.5\) on .*#1; train longer", process.stdout)
    process = interp(*TRAIN, "--n-eval", 40, "--out", "run", "--json")
    assert "#1" in json.loads(process.stdout)["result"]["at_chance"]


def test_another_run_in_the_folder_is_refused(interp):
    assert interp(*TRAIN, "--out", "run").returncode == 0
    process = interp(*TRAIN, "--seed", "1", "--out", "run")
    assert process.returncode == 2
    assert "seed is 0, not 1" in process.stderr
    assert interp(*TRAIN, "--seed", "1", "--out", "run", "--fresh").returncode == 0


TEMPLATE = shlex.split("train template --n 8 --width 8 --heads 2 --layers 1 --steps 2")


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def test_train_on_a_template_family_or_given_templates(interp, tmp_path):
    process = interp(*TEMPLATE, "--templates", "same_different", "--qk-identity", "--vo-identity", "--out", "named")
    assert process.returncode == 0, process.stderr
    assert "trained 2 steps" in process.stdout
    assert "next: interp probe named --verify, or" in process.stdout
    stored = manifest(tmp_path / "named")
    assert [template["tokens"] for template in stored["task"]["templates"]] == [["a", "a"], ["a", "b"]]
    assert (stored["config"]["d_model"], stored["config"]["n_heads"], stored["config"]["n_layers"]) == (8, 2, 1)
    assert stored["config"]["qk_identity"] is stored["config"]["vo_identity"] is True
    assert (stored["task"]["train"], stored["settings"]["n_train"], stored["settings"]["keep"]) == (8, 8, "best")

    written = interp(*TEMPLATE, "--templates", "abR -> a", "--templates", "aaR -> R", "--out", "written")
    assert written.returncode == 0, written.stderr
    stored = manifest(tmp_path / "written")
    assert [template["label"] for template in stored["task"]["templates"]] == ["a", "R"]
    assert stored["config"]["tied_embedding"] is True
    assert stored["config"]["qk_identity"] is stored["config"]["vo_identity"] is False


@pytest.mark.parametrize(
    ("family", "templates", "sizes"),
    [
        ("fully_connected", "aba_abb", ["--width", "8"]),
        ("lstm", "aba_abb", ["--width", "8"]),
        ("template_copy", "copy", ["--width", "8", "--heads", "2", "--layers", "1"]),
    ],
)
def test_train_other_models_on_templates(interp, tmp_path, family, templates, sizes):
    options = ["--family", family, "--templates", templates, "--learning-rate", "0.5", "--out", "run"]
    process = interp("train", "template", "--n", "8", *sizes, "--steps", "2", *options)
    assert process.returncode == 0, process.stderr
    stored = manifest(tmp_path / "run")
    assert stored["config"].get("width", stored["config"].get("d_model")) == 8
    assert stored["settings"]["learning_rate"] == 0.5
    assert ("next: interp probe" in process.stdout) == (family == "template_copy")  # no analysis reads the others


@pytest.mark.parametrize(
    ("family", "kind"), [("fully_connected", "fully connected"), ("rnn", "recurrent"), ("lstm", "recurrent")]
)
def test_a_network_without_attention_refuses_options_of_transformers(interp, tmp_path, family, kind):
    process = interp(*TEMPLATE, "--family", family, "--identity", "--out", "run")
    assert process.returncode == 2
    refused = f"a {kind} network has no --heads, --layers, --qk-identity, --vo-identity; of the model's options"
    assert refused in process.stderr
    assert not (tmp_path / "run").exists()


def test_sigterm_is_handled_like_ctrl_c(tmp_path):
    code = (
        "import os, signal, sys, types\nfrom interp.cli.main import main\n"
        "def run_demo(*arguments, **options):\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "demo_run = types.SimpleNamespace(SHIPPED='', run_demo=run_demo, run_quick_demo=None)\n"
        "sys.modules['interp.cli.demo_run'] = demo_run\n"
        "sys.argv = ['interp', 'demo']\nmain()"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stderr.splitlines()[-1]) == (130, "error: interrupted. The same command resumes it.")


def test_an_unknown_method_fails_before_work_begins(interp, monkeypatch):
    assert interp(*TRAIN, "--out", "run").returncode == 0
    sample = Lego.sample

    def sample_one(task, n, **options):
        assert n == 1, "sequences were sampled, and not one example that shows the relations"
        return sample(task, n, **options)

    monkeypatch.setattr(Lego, "sample", sample_one)
    process = interp("heads", "run", "--ablate", "--method", "assoc")
    assert process.returncode == 2
    assert process.stderr.startswith("error: method is 'assoc'; choose one of zero, mean, resample, counterpart,")
    assert process.stderr.endswith("Did you mean association?\n")


def test_flags_are_listed_without_a_type_and_other_options_with_one(interp, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    for command in ((), ("audit",), ("reproduce",), ("train", "lego")):
        text = interp(*command, "--help").stdout
        assert "--help" in text
        assert "<bool>" not in text
    assert "<int>" in text


def test_the_completion_of_reproduce_lists_studies(interp, monkeypatch):
    for name, value in {"_COMPLETE": "complete_bash", "_WORDS": "interp reproduce l", "_CWORD": "2"}.items():
        monkeypatch.setenv(f"_INTERP{name}" if name == "_COMPLETE" else f"COMP{name}", value)
    words = interp().stdout.split()
    assert {"lego", "language"} <= set(words)
    assert "dyck" not in words
