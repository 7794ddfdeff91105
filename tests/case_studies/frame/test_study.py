"""A study trains and measures only what is missing, and resumes."""

import functools
import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toys
from toys import CLAIMS, FAILING, PASSING, STUDY, specs

from case_studies.frame import measuring
from case_studies.frame.claims import SHARE
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Above, Below, Number
from case_studies.study import Study


def by_id(run):
    return {claim["id"]: claim for claim in run.content["claims"]}


def edited(folder, **changes):
    """Change what is stored of the first claim."""
    path = folder / "claims.json"
    content = json.loads(path.read_text())
    content["claims"][0] |= changes
    path.write_text(json.dumps(content))


def without(content, *names):
    """claims.json without times and provenance."""
    return {"study": content["study"], "size": content["size"]} | {
        claim["id"]: {name: value for name, value in claim.items() if name not in ("cost", "made", *names)}
        for claim in content["claims"]
    }


def broken(evidence):
    raise ZeroDivisionError("nothing to divide by")


def test_a_run_trains_measures_judges_and_writes(reproduce):
    run = reproduce()
    assert run.result.verdicts == {
        "figure-1.some": "reproduced",
        "figure-1.all": "not reproduced",
        "table-3.drawn": "reproduced",
        "table-4.large": "not measured",
    }
    assert run.trained == [0, 1, 2]  # `few` is a part of `more`; `large` is not measured
    assert run.measured == ["accuracy", "constant", "drawn"]
    assert set(run.content) == {"study", "title", "size", "manifest", "claims", "details", "environments"}
    assert (run.content["study"], run.content["size"]) == ("toy", "quick")
    manifest = run.content["manifest"]
    assert {"versions", "hardware", "threads", "time", "seed", "seconds", "wall_seconds"} <= set(manifest)
    assert manifest["models"] | {"oldest": 0, "newest": 0} == {
        "used": 3, "there": 3, "trained_now": 3, "other_versions": 0, "oldest": 0, "newest": 0,
    }  # fmt: skip
    for claim in run.content["claims"]:
        assert list(claim)[:6] == ["id", "quantity", "measured", "interval", "n", "unit"]
        assert not {"verdict", "rule", "statement"} & set(claim)
    some, every, _ = run.content["claims"]  # what is not measured is not stored
    large = run.result.claims[-1]
    assert (some["measured"], some["interval"], some["n"], some["unit"]) == (0.25, [0.2, 0.3], 10, "draws")
    assert (some["groups"], list(every["groups"])) == ({}, ["few"])
    few = run.groups["few"]
    assert (few["models"], few["seeds"], few["settings"]["steps"]) == (2, [0, 1], 2)
    assert (large.measurement, large.note) == (None, "It takes a GPU.")
    shown = str(run.result)
    assert "figure-1.all   not reproduced  " in shown
    assert shown.splitlines()[0].endswith("  paper")
    assert shown.splitlines()[1].endswith(f"  {PASSING.paper}")
    assert shown.endswith(
        "toy at size quick. 4 published statements: 2 reproduced, 1 not reproduced, 0 inconclusive, 1 not measured"
    )
    frame = run.result.to_dataframe()
    assert frame["verdict"].tolist() == list(run.result.verdicts.values())
    assert frame["n"].isna().tolist() == [False, False, False, True]


def test_a_second_run_does_nothing_and_has_the_same_result(finished, reproduce):
    second = reproduce()
    assert (second.trained, second.measured) == ([], [])
    assert without(finished.content) == without(second.content)
    assert second.content["manifest"]["models"]["trained_now"] == 0
    assert second.content["manifest"]["measured_now"] == 0


@pytest.mark.usefixtures("finished")
def test_measured_claims_need_no_models(reproduce, tmp_path):
    (tmp_path / "models").rename(tmp_path / "elsewhere")
    assert reproduce().trained == []


def test_the_same_seed_gives_the_same_numbers_and_fresh_makes_them_again(finished, reproduce, tmp_path):
    def written():
        return {path: path.stat().st_mtime_ns for path in tmp_path.glob("models/*/model.safetensors")}

    before = written()
    assert reproduce().result.verdicts == finished.result.verdicts
    assert written() == before
    again = reproduce(fresh=True)
    assert all(written()[path] > time for path, time in before.items())  # trained again, not loaded
    assert (again.trained, again.measured) == ([0, 1, 2], ["accuracy", "constant", "drawn"])
    assert without(finished.content) == without(again.content)
    other = reproduce(seed=1)
    assert (other.trained, other.measured) == ([], ["accuracy", "constant", "drawn"])
    assert by_id(other)["table-3.drawn"]["measured"] != by_id(finished)["table-3.drawn"]["measured"]


def test_an_interrupted_run_resumes_between_claims(reproduce, tmp_path):
    def stopped(evidence):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(replace(STUDY, claims=[PASSING, replace(FAILING, measure=stopped), CLAIMS[2]]))
    assert toys.MEASURED == ["constant"]
    assert not (tmp_path / "toy/quick/claims.json").exists()
    run = reproduce()
    assert (run.trained, run.measured) == ([], ["accuracy", "drawn"])
    assert run.result.verdicts["figure-1.some"] == "reproduced"


@pytest.mark.usefixtures("finished")
def test_a_truncated_measurement_is_measured_again(reproduce, tmp_path):
    path = tmp_path / "toy/quick/measured/figure-1.some.json"
    path.write_text(path.read_text()[:100])
    assert reproduce().measured == ["constant"]


@pytest.mark.usefixtures("finished")
def test_changed_settings_train_only_what_changed(reproduce):
    changed = replace(
        STUDY, groups=lambda size: {**toys.groups(size), "more": [*specs(2), *specs(1, 2, clip_norm=2.0)]}
    )
    run = reproduce(changed)
    assert (run.trained, run.measured) == ([2], ["drawn"])
    assert run.groups["more"]["settings"]["clip_norm"] == {"varies": [1.0, 2.0]}
    assert reproduce().trained == []  # both are trained now


@pytest.mark.usefixtures("finished")
def test_sizes_share_models_but_no_measurement(reproduce):
    run = reproduce(size="paper")
    assert run.trained == [0]  # of `large` alone
    assert run.measured == ["accuracy", "accuracy", "constant", "drawn"]
    assert run.result.verdicts["table-4.large"] == "not reproduced"


def test_only_chosen_claims_run_and_others_are_kept(reproduce):
    first = reproduce(only=["table-3.drawn"])
    assert (first.trained, first.measured) == ([0, 1, 2], ["drawn"])
    assert first.result.verdicts == {
        "figure-1.some": "not measured",
        "figure-1.all": "not measured",
        "table-3.drawn": "reproduced",
        "table-4.large": "not measured",
    }
    assert list(by_id(first)) == ["table-3.drawn"]
    printed = str(first.result)
    assert "table-3.drawn" in printed
    assert "figure-1" not in printed
    assert printed.endswith("toy at size quick. 1 published statement: 1 reproduced, 0 not reproduced, 0 inconclusive")
    second = reproduce(only=["figure-1"])
    assert (second.trained, second.measured) == ([], ["accuracy", "constant"])
    assert second.result.verdicts["table-3.drawn"] == "reproduced"
    again = reproduce(only=["figure-1.some"], fresh=True)
    assert again.measured == ["constant"]
    assert list(again.result.verdicts.values()).count("not measured") == 1


def test_intervals_end_where_the_number_does(reproduce, tmp_path):
    share = replace(PASSING, measure=wide_share)
    (raw,) = reproduce(replace(STUDY, claims=(share,))).content["claims"]
    assert raw["interval"] == [-0.1, 1.3]
    bounded = replace(STUDY, claims=(replace(share, value_range=SHARE),), shipped=tmp_path / "shipped")
    run = reproduce(bounded)
    assert run.measured == []
    assert run.content["claims"][0]["interval"] == [0.0, 1.0]
    (tmp_path / "toy/quick").rename(tmp_path / "shipped")
    for ends in ([-0.1, 1.3], [None, None]):  # results stored before there were ranges
        edited(tmp_path / "shipped", interval=ends)
        (drawn,) = bounded.draw(folder=tmp_path / "out").claims
        assert drawn.number == "0.2 [0.0, 1.0]"
    with pytest.raises(RuntimeError, match=r"claim figure-1\.some has the value 0\.2; it must be from 0\.5 to 1"):
        reproduce(replace(STUDY, claims=(replace(share, value_range=(0.5, 1.0)),)))


def test_claims_without_models_train_nothing(reproduce):
    assert reproduce(only=["figure-1.some"]).trained == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": "huge"}, "size is 'huge'; choose one of quick, standard, paper"),
        ({"only": ["figure-2"]}, "the study toy has no claim 'figure-2'.*It has figure-1.some, figure-1.all, table-3"),
        ({"only": ["table-3.drawm"]}, "Did you mean table-3.drawn?"),
        ({"only": ["table-4.large"], "size": "enormous"}, "size is 'enormous'"),
    ],
)
def test_unknown_sizes_and_claims_are_refused_before_anything_runs(reproduce, tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        reproduce(**options)
    assert not list(tmp_path.iterdir())


def test_invalid_studies_are_refused():
    for changes, words in (
        ({"claims": [PASSING, PASSING]}, "two claims of the study toy are called 'figure-1.some'"),
        ({"claims": []}, "the study toy has no claims"),
        ({"name": "models"}, "cannot be called 'models'"),
        ({"name": "a/b"}, "cannot be called 'a/b'"),
    ):
        with pytest.raises(ValueError, match=words):
            replace(STUDY, **changes)
    with pytest.raises(ValueError, match="n_jobs is 0"):
        STUDY.run(n_jobs=0)


def test_an_unknown_group_is_named(reproduce):
    study = replace(STUDY, groups=lambda size: {"few": specs(1)})
    with pytest.raises(ValueError, match=r"claim table-3\.drawn needs the group 'more'.*size quick; it has few"):
        reproduce(study)


def test_a_measure_that_raises_does_not_stop_the_others(reproduce, tmp_path):
    study = replace(STUDY, claims=[replace(PASSING, measure=broken), *CLAIMS[1:]])
    with pytest.raises(RuntimeError, match=r"1 of 3 claims could not be measured \(figure-1.some\)") as raised:
        reproduce(study)
    assert "ZeroDivisionError: nothing to divide by" in str(raised.value)
    assert "in broken" in str(raised.value)  # where, too
    content = json.loads((tmp_path / "toy/quick/claims.json").read_text())
    assert content["manifest"]["measured_now"] == 2
    assert [claim["id"] for claim in content["claims"]] == ["figure-1.all", "table-3.drawn"]
    assert reproduce().measured == ["constant"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"measure": lambda evidence: 0.5}, "returned a float; return a frame or Readings"),
        ({"rule": Number("share", Above(0))}, "KeyError: 'share'"),
        ({"measure": lambda evidence: evidence.runs("few")}, r"'few' is not among those that the claim needs \(none\)"),
    ],
)
def test_measures_and_judges_with_wrong_results_are_named(reproduce, changes, words):
    with pytest.raises(RuntimeError, match=words) as raised:
        reproduce(replace(STUDY, claims=[replace(PASSING, **changes)]))
    assert "(figure-1.some)" in str(raised.value)


def test_a_group_with_two_tasks_is_refused():
    longer = replace(toys.TASK, n_vars=3)
    two = (*specs(1), replace(specs(1)[0], task=longer))
    evidence = Evidence(size="quick", seed=0, groups={"one": tuple(specs(2)), "two": two}, folder=Path("nowhere"))
    assert evidence.task("one") == toys.TASK
    with pytest.raises(ValueError, match="'two' have 2 tasks; use the task of each of specs"):
        evidence.task("two")


def test_the_longest_trainings_begin_first(reproduce, monkeypatch):
    order = []

    def train_to_disk(specs, **options):
        order.extend(spec.settings.steps for spec in specs.values())

    monkeypatch.setattr("case_studies.frame.training.train_to_disk", train_to_disk)
    study = Study(
        name="order",
        title="",
        lead="",
        claims=[replace(FAILING, measure=toys.constant, needs=["a", "b"])],
        groups=lambda size: {"a": specs(1, steps=2), "b": [*specs(1, steps=9), *specs(1, steps=4)]},
    )
    reproduce(study)
    assert order == [9, 4, 2]


def test_a_failed_training_names_the_model(reproduce):
    study = replace(STUDY, groups=lambda size: {**toys.groups(size), "few": specs(1, n_train=4, learning_rate=1e30)})
    with pytest.raises(ValueError, match=r"model \w+ \(seed 0\): the loss is nan"):
        reproduce(study, only=["figure-1.all"])


# keys of measurements


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two files, imported: its folder and the module with the measure."""
    folder = tmp_path / "a_study_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "other.py").write_text("FACTOR = 1\n")
    (folder / "measures.py").write_text(
        "from a_study_package import other\ndef measure(evidence): ...\ndef made(x): return lambda evidence: x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("a_study_package.measures", "a_study_package.other", "a_study_package"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder, importlib.import_module("a_study_package.measures")


def key_of(measure, **changes):
    given = {"size": "quick", "seed": 0, "groups": {"few": tuple(specs(2))}, "folder": Path("x")} | changes
    claim = replace(PASSING, measure=measure)
    return measuring.measurement_file(Path("x"), "toy", claim, Evidence(**given)).key


def test_changed_code_is_measured_again(package, monkeypatch):
    folder, module = package
    before = key_of(module.measure)
    assert key_of(module.measure) == before
    (folder / "other.py").write_text("FACTOR = 2\n")  # in the package of the measure
    measuring.source_digest.cache_clear()  # as in another process
    after = key_of(module.measure)
    assert after != before
    digest = measuring.source_digest
    for name in ("hooks", "interp"):
        monkeypatch.setattr(measuring, "source_digest", lambda n, c=name: "changed" if n == c else digest(n))
        assert key_of(module.measure) != after
    monkeypatch.undo()


def test_the_key_covers_everything_that_determines_a_number(package):
    measure = package[1].measure
    keys = [
        key_of(measure),
        key_of(measure, seed=1),
        key_of(measure, size="paper"),
        key_of(measure, groups={"few": tuple(specs(3))}),
        key_of(measure, groups={"few": tuple(specs(2, clip_norm=3.0))}),
    ]
    assert len(set(keys)) == len(keys)
    assert key_of(functools.partial(measure, x=1)) == keys[0]  # what binds it is in the same package


def test_a_measure_of_a_notebook_is_always_measured_again():
    namespace = {"__name__": "some_notebook"}
    exec("def measure(evidence): ...", namespace)
    sys.modules["some_notebook"] = types.ModuleType("some_notebook")
    try:
        assert key_of(namespace["measure"]) != key_of(namespace["measure"])
    finally:
        del sys.modules["some_notebook"]


@pytest.mark.usefixtures("finished")
def test_a_changed_rule_needs_no_new_measurement(reproduce):
    stricter = replace(STUDY, claims=[replace(PASSING, rule=Below(0.15)), *CLAIMS[1:]])
    run = reproduce(stricter)
    assert (run.measured, run.result.verdicts["figure-1.some"]) == ([], "not reproduced")


# several processes


def test_measures_and_evidence_can_be_pickled():
    cloudpickle = pytest.importorskip("cloudpickle")  # what joblib packs with
    evidence = Evidence(size="quick", seed=0, groups={"few": tuple(specs(2))}, folder=Path("x"))
    for measure in (toys.accuracy, lambda evidence: toys.one_row(1.0, 0.0, 1.0, n=evidence.seed + 1)):
        back, seen = pickle.loads(cloudpickle.dumps((measure, evidence)))
        assert seen == evidence
        assert [spec.key for spec in seen.specs("few")] == [spec.key for spec in evidence.specs("few")]
    assert back(seen).frame["n"].tolist() == [1]


@pytest.mark.slow
def test_two_processes_have_the_result_of_one(reproduce, tmp_path, capsys):
    one = reproduce()
    threads = torch.get_num_threads()
    result = STUDY.run(folder=tmp_path / "two", n_jobs=2)
    two = json.loads((tmp_path / "two/toy/quick/claims.json").read_text())
    assert without(two) == without(one.content)
    assert toys.MEASURED == ["constant", "accuracy", "drawn"]  # of the one process alone
    assert torch.get_num_threads() == threads
    printed = capsys.readouterr().out
    assert "figure-1.all: not reproduced" in printed
    assert result.manifest["models"]["trained_now"] == 3


KILLED = """
import os, signal, sys
sys.path[:0] = [{tests!r}]
import toys
from dataclasses import replace
def killed(evidence):
    os.kill(os.getpid(), signal.SIGKILL)
claims = [toys.PASSING, replace(toys.FAILING, measure=killed), toys.DRAWN]
replace(toys.STUDY, claims=claims).run(folder={folder!r}, n_jobs=1)
"""


@pytest.mark.slow
def test_a_killed_run_keeps_its_measurements(reproduce, tmp_path):
    script = KILLED.format(tests=str(Path(toys.__file__).parent), folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], check=False, cwd=Path(__file__).parents[3], env=os.environ)
    assert done.returncode == -signal.SIGKILL
    run = reproduce()
    assert (run.trained, run.measured) == ([], ["accuracy", "drawn"])


def test_results_contain_the_measurements(finished):
    found = finished.result.claims[1]
    assert isinstance(found.measurement, Measurement)
    assert found.measurement.charts[0]["mark"]["type"] == "bar"
    assert found.number.endswith("]")
    assert found.sample == "2 seeds"
    exact = replace(found.measurement, value=1e-15, low=1e-15, high=1e-15, exact=True)
    assert replace(found, measurement=exact).number == "1e-15"  # nothing was sampled: no interval to show


def wide_share(evidence):
    return toys.one_row(0.2, -0.1, 1.3, n=3)
