"""Exit codes, and the one JSON document of `--json`."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from interp.cli.installed_studies import STUDY_METHODS
from interp.cli.output import DIFFERS, DONE, FAILED, INTERRUPTED, NOT_READ, UNUSABLE, USAGE

ROOT = Path(__file__).parents[3]
TRAIN = ["train", "lego", "--n-vars", 2, "--layers", 1, "--width", 16, "--association", "none", "--curriculum", "none"]


def errors_in(process):
    """The error document and the last line on stderr."""
    (line,) = process.stdout.splitlines()
    return json.loads(line), process.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["prob"], "No such command 'prob'. Did you mean 'probe'?"),
        (["probe"], "Missing argument"),
        (["probe", "run", "--seed", "x"], "Invalid value for '--seed'"),
        (["train", "lego"], "Missing option '--out'"),
        (["train", "leg", "--out", "r"], "there is no task 'leg'; known tasks: dyck, in_context_lookup, "),
        (["train", "lego", "--out", "r", "--n-var", "2"], "No such option: --n-var"),
        (["probe", "nowhere"], "there is no training run in nowhere"),
        (["heads", "nowhere", "--method", "mean"], "--method is how heads are ablated; add --ablate"),
        ([*TRAIN, "--out", "file"], "File exists: file"),
        ([*TRAIN, "--out", "file/run"], "Not a directory: file/run"),
        (["reproduce", "lego", "--size", "huge", "--list"], "size is 'huge'; choose one of quick, standard, paper."),
        (["reproduce", "leg", "--list"], "Did you mean lego?"),
        (["reproduce", "--plan"], "--plan is about one study; there is approximations, audit, "),
        (["reproduce", "lego", "--lst"], "(Possible options: --list, --out). See interp reproduce --help."),
        (["reproduce", "--only", "solved"], "--only is about the claims of one study; there is approximations, "),
        (["reproduce", "lego", "--only", "solved", "--bundle", "b.zip"], "--only chooses claims, but a bundle has all"),
        (["reproduce", "lego", "--packs", ".", "--list"], "--packs is '.', but the study lego reads no packs"),
        (["reproduce", "compiled", "--packs", "nowhere"], "--packs is 'nowhere', which is not a folder."),
        (["reproduce", "compiled", "--packs", "."], "--packs is '.', which has no packs (NAME.json and NAME.npz)."),
        (["reproduce", "lego", "--weights", ".", "--list"], "--weights is '.', but the study lego reads no weights"),
        (
            ["probe", "model", "--task", "lego --help"],
            "--task is 'lego --help': No such option: --help. See interp train",
        ),
        (
            ["probe", "model", "--task", "lego --n-vars"],
            "--n-vars': Option '--n-vars' requires an argument. See interp",
        ),
        (["probe", "model", "--task", "lego 3"], "--task is 'lego 3': Got unexpected extra argument(s) (3). See"),
        (["probe", "model", "--task", "lego '3"], "which cannot be split into words: No closing quotation."),
        (["reproduce", "lego", "--only", "solved.unteid"], "no claim 'solved.unteid'. Did you mean solved.untied?"),
    ],
)
def test_bad_usage_exits_with_2(interp, tmp_path, arguments, words):
    (tmp_path / "file").touch()
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").touch()
    for flags in ([], ["--json"]):
        process = interp(*arguments, *flags)
        assert process.returncode == 2
        assert words in process.stderr
        assert process.stderr.startswith("error: ")
        assert process.stderr.count("\n") == 1
        if flags and arguments != ["prob"]:
            document, line = errors_in(process)
            assert line == f"error: {document['error']}"
    assert {path.name for path in tmp_path.iterdir()} == {"file", "model"}


def test_usage_errors_name_the_help(interp):
    assert interp("train", "lego").stderr == "error: Missing option '--out'. See interp train lego --help.\n"
    assert interp("train", "leg").stderr.endswith("Did you mean lego? See interp train --help.\n")


def test_a_diverged_training_exits_with_1(interp):
    process = interp(*TRAIN, "--steps", 3, "--learning-rate", 1e30, "--clip-norm", 1e30, "--out", "r", "--json")
    assert process.returncode == 1
    document, line = errors_in(process)
    assert "lower learning_rate or clip_norm" in document["error"]
    assert line == f"error: {document['error']}"
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("error", "code", "words", "traceback"),
    [
        (ValueError("n is 0"), 2, "n is 0", False),
        *((kind(2, "Bad", "there"), 2, "Bad: there", False) for kind in UNUSABLE),
        (IsADirectoryError(21, "Is a directory", ".hidden", None, "there"), 2, "Is a directory: there", False),
        (OSError(28, "No space left on device", "there"), 1, "No space left on device: there", False),
        (TypeError("no\nlen " + 300 * "x"), 1, None, False),
        (RuntimeError("3 of 4 claims\nfailed"), 1, "RuntimeError: 3 of 4 claims\nfailed", True),
        (AttributeError("a bug"), 1, "AttributeError: a bug", True),
        (KeyboardInterrupt(), 130, "interrupted. The same command resumes it.", False),
    ],
)
def test_codes_of_errors(interp, monkeypatch, error, code, words, traceback):
    words = words or f"TypeError: no len {192 * 'x'}… Set INTERP_DEBUG=1 for the traceback."

    def fail(*arguments, **options):
        raise error

    study = SimpleNamespace(**{**dict.fromkeys(STUDY_METHODS), "run": fail})
    monkeypatch.setattr(
        "interp.cli.reproduce.study_entry_points", lambda: {"toy": SimpleNamespace(value="toy", load=lambda: study)}
    )
    for flags in ([], ["--json"]):
        process = interp("reproduce", "toy", *flags)
        assert process.returncode == code
        assert process.stderr.endswith(f"error: {words}\n")
        assert ("Traceback" in process.stderr) == traceback
        first_line = "run of toy at size quick, with the models and results in runs/reproduce ..."
        assert process.stdout == (json.dumps({"error": words}) if flags else first_line) + "\n"


def test_a_type_error_has_a_traceback_on_request(interp, monkeypatch):
    monkeypatch.setenv("INTERP_DEBUG", "1")
    monkeypatch.setattr("interp.cli.demo_run.run_demo", lambda *arguments, **options: len(3))
    assert "Traceback" in interp("demo").stderr


def test_ctrl_c_in_training_exits_with_130(interp, monkeypatch):
    def interrupt(self, loss):
        raise KeyboardInterrupt

    monkeypatch.setattr("interp.training.train.Trainer._evaluate", interrupt)
    process = interp(*TRAIN, "--out", "r")
    assert process.returncode == 130
    (line,) = process.stderr.splitlines()
    assert re.fullmatch(
        r"error: interrupted at step \d+ of \d+; the same command resumes from step 0, which is saved in r\.", line
    )


def test_ctrl_c_in_an_analysis_says_where_it_stopped(interp, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    assert interp(*TRAIN, "--steps", 2, "--out", "r").returncode == 0
    monkeypatch.setattr("interp.heads.classify.measure", interrupt)
    process = interp("heads", "r")
    assert process.returncode == 130
    message = "interrupted at 0 of 2 (classifying heads). Nothing was written; run it again."
    assert process.stderr == f"error: {message}\n"


def test_version(interp):
    process = interp("--version")
    assert (process.returncode, process.stdout) == (0, f"unmyopic {importlib.metadata.version('unmyopic')}\n")


def test_runs_below_a_folder_are_suggested(interp, tmp_path):
    for name in ("model", "control"):
        (tmp_path / "demo" / name).mkdir(parents=True)
        (tmp_path / "demo" / name / "manifest.json").write_text("{}")
    probe = interp("probe", "demo")
    assert probe.returncode == 2
    assert (
        "there is no training run in demo (no manifest.json). Did you mean demo/model or demo/control?" in probe.stderr
    )


def test_what_a_command_prints_goes_to_stderr(interp, monkeypatch):
    def run_demo(folder, *, seed, fresh):
        print("Training ...")
        return folder / "report.html"

    monkeypatch.setattr("interp.cli.demo_run.run_demo", run_demo)
    assert interp("demo").stdout == "Training ...\nreport: runs/demo/report.html\n"
    process = interp("demo", "--json")
    assert process.stderr == "Training ...\n"
    assert json.loads(process.stdout) == {
        "command": "demo",
        "result": {
            "page": "runs/demo/report.html",
            "model": "runs/demo/model",
            "probes": "runs/demo/probes.json",
            "heads": "runs/demo/heads.json",
            "audit": "runs/demo/audit.json",
        },
    }


def test_studies_and_claims_as_json(interp):
    studies = json.loads(interp("reproduce", "--json").stdout)["result"]["studies"]
    assert {
        "study": "lego",
        "title": "Chains of group operations: what transformers learn, and how far they extrapolate",
    } in studies
    listed = json.loads(interp("reproduce", "lego", "--list", "--only", "solved", "--json").stdout)["result"]
    assert listed["study"] == "lego"
    assert {claim["id"].split(".")[0] for claim in listed["claims"]} == {"solved"}
    names = {"id", "source", "statement", "paper", "sizes", "sizes_reason", "rule", "fixed", "verdict"}
    assert set(listed["claims"][0]) == names
    assert "reproduced if " in listed["claims"][0]["rule"]


def test_numbers_that_json_does_not_have_are_null(interp, monkeypatch):
    run = SimpleNamespace(history=(), seconds=1.0, final_accuracy=[float("nan"), 1.0], at_chance=())
    monkeypatch.setattr("interp.training.train.train", lambda *arguments, **options: run)
    trained = json.loads(interp(*TRAIN, "--out", "r", "--json").stdout)["result"]
    assert list(trained["accuracy"].values()) == [None, 1.0]


@pytest.mark.parametrize(
    "command",
    [
        "demo",
        "probe",
        "lens",
        "heads",
        "attribution",
        "edges",
        "patch",
        "audit",
        "report",
        "reproduce",
        "tasks",
        "train lego",
    ],
)
def test_every_command_has_json(interp, command):
    assert "--json" in interp(*command.split(), "--help").stdout


def test_commands_that_need_no_model_load_no_heavy_package():
    code = (
        "import sys\nfrom interp.cli.main import main\n"
        "lists = 'tasks', 'tasks --json', 'reproduce', 'reproduce --json'\n"
        "for arguments in ('--help', 'train --help', 'reproduce --help', 'train leg', '--version', *lists):\n"
        "    sys.argv = ['interp', *arguments.split()]\n    print('== next', flush=True)\n"
        "    try:\n        main()\n    except SystemExit:\n        pass\n"
        "heavy = {'torch', 'transformer_lens', 'pandas', 'altair', 'sklearn', 'scipy', 'interp.tasks.lego.task'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    main_help, train_help, reproduce_help, *_ = process.stdout.split("== next\n")[1:]
    for word, shown in (("demo", main_help), ("template", train_help), ("--only", reproduce_help)):
        assert word in shown


@pytest.mark.parametrize("arguments", ["--help", "tasks", "reproduce lego --list --json", "nothing --json"])
def test_output_that_is_not_read_to_its_end_is_no_error(arguments):
    """As of `interp tasks | head -1`, but whose reader has ended before the first line."""
    code = f"import sys\nfrom interp.cli.main import main\nsys.argv = ['interp', *{arguments.split()}]\nmain()"
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        process = subprocess.run([sys.executable, "-c", code], stdout=write_end, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write_end)
    assert process.returncode == NOT_READ
    is_error = arguments.startswith("nothing")
    assert process.stderr == (b"error: No such command 'nothing'. See interp --help.\n" if is_error else b"")


@pytest.mark.parametrize("arguments", ["tasks", "tasks --json", "--help", "nothing"])
@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_output(interp, monkeypatch, arguments, closed):
    """As of `interp tasks >&-`; a closed error output only loses errors."""
    monkeypatch.setattr(sys, closed, None)
    process = interp(*arguments.split())
    if closed == "stdout":
        words = "error: the output is closed, so nothing was run. Send it to a file or to /dev/null.\n"
        assert (process.returncode, process.stderr) == (FAILED, words)
    else:
        assert process.returncode == (USAGE if arguments == "nothing" else DONE)


@pytest.mark.parametrize("arguments", ["tasks", "tasks --json", "--help", "reproduce lego --list"])
def test_output_that_cannot_be_written_is_one_line(interp, monkeypatch, arguments):
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stdout", full)
        process = interp(*arguments.split())
        monkeypatch.undo()
    assert process.returncode == FAILED
    assert process.stderr == "error: the output cannot be written: No space left on device.\n"


def test_errors_that_cannot_be_written_have_their_exit_code(interp, monkeypatch):
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert interp("nothing").returncode == FAILED
        monkeypatch.undo()


def test_file_names_that_are_no_text_are_printed_with_escapes(tmp_path):
    code = (
        "import sys\nfrom interp.cli import output\nfrom interp.cli.main import main\n"
        "output._call = lambda *_: (0, output.Output(text=sys.argv[1], values={}), '')\nmain()"
    )
    process = subprocess.run([sys.executable, "-c", code, b"p\xff.html"], capture_output=True, check=True)
    assert process.stdout == b"p\\udcff.html\n"


def test_lines_that_are_not_read_end_a_command(tmp_path):
    """Lines of rich, and a broken pipe that is not the output's, which is a failure."""
    code = (
        "import os, sys, types\nfrom interp.cli.main import main\nfrom interp.core.progress import say\n"
        "def run_demo(*arguments, **options):\n    {}\n    raise AssertionError\n"
        "demo_run = types.SimpleNamespace(SHIPPED='', run_demo=run_demo, run_quick_demo=None)\n"
        "sys.modules['interp.cli.demo_run'] = demo_run\nsys.argv = ['interp', 'demo']\nmain()"
    )
    read_end, write_end = os.pipe()
    os.close(read_end)
    options = {"cwd": tmp_path, "stderr": subprocess.PIPE, "check": False}
    run_code = [sys.executable, "-c", code.format("say('a line')")]
    unread = subprocess.run(run_code, stdout=write_end, **options)
    os.close(write_end)
    assert (unread.returncode, unread.stderr) == (NOT_READ, b"")
    run_code = [sys.executable, "-c", code.format("raise BrokenPipeError(32, 'Broken pipe', 'socket')")]
    elsewhere = subprocess.run(run_code, stdout=subprocess.DEVNULL, **options)
    assert elsewhere.returncode == FAILED
    assert elsewhere.stderr.endswith(b"error: RuntimeError: Broken pipe: socket\n")


def test_lines_are_written_at_once_into_a_pipe(interp, monkeypatch):
    monkeypatch.setattr("interp.cli.demo_run.run_demo", lambda folder, **options: folder)
    interp("demo")
    assert sys.stdout.line_buffering


def test_the_page_on_the_command_line_has_every_command_and_code(interp):
    text = (ROOT / "docs/command_line.md").read_text()
    listed = re.findall(r"^│ (\w+) ", interp("--help").stdout, re.MULTILINE)
    assert len(set(listed)) == 16
    for command in listed:
        assert f"| `interp {command}" in text
        assert re.search(rf"^\| `{command}[` ]", text, re.MULTILINE)
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == [
        DONE,
        FAILED,
        USAGE,
        DIFFERS,
        INTERRUPTED,
        NOT_READ,
    ]
