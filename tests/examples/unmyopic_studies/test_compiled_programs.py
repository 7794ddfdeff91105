"""The study of compiled programs, on two small packs: claims that hold, and what they find where something is wrong."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from packs import write_pack
from tool_studies.compiled import graphs, heads, programs, values
from tool_studies.compiled.study import STUDY, study

import hooks.extras
from case_studies.frame.evidence import Evidence
from case_studies.frame.measuring import measurement_file
from case_studies.frame.packs import Packs
from case_studies.study import Study
from hooks.extras import MissingExtra
from interp.algorithms import compiled_program
from interp.known_answers.compiled.network import written_at

EVIDENCE = Evidence(size="quick", seed=0, groups={}, folder=Path("nowhere"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("packs")
    write_pack(found)
    write_pack(found, numerical=True)
    return found


@pytest.fixture(autouse=True)
def few_pairs(monkeypatch):
    monkeypatch.setattr(graphs, "N", 256)


def judged(folder, claim):
    """The judged measurement of a claim on the packs of a folder."""
    (chosen,) = (one for one in study(folder).claims if one.id == claim)
    return chosen.measurement(EVIDENCE)


def program(folder, name):
    return next(known for known in programs.programs(Packs(folder)) if known.task.program.name == name)


def test_every_claim_holds_on_the_small_programs(folder, tmp_path):
    result = study(folder).run(size="standard", folder=tmp_path, n_jobs=1)
    found = {one.claim.id: one for one in result.claims}
    assert {one.verdict for one in result.claims} == {"reproduced"}
    measured = {name: (one.measurement.value, one.measurement.n) for name, one in found.items()}
    n = sum(known.task.program.scored.sum() for known in programs.programs(Packs(folder)))
    assert measured["agreement"] == (1, n)
    assert measured["heads.faithful"] == (0, 2)
    assert measured["heads.idle"] == (0, 4)
    assert measured["heads.found"] == (1, 2)
    assert measured["selectors.found"] == (1, 4)
    assert measured["selectors.idle"] == (0, 4)
    assert all(measured[f"needed.{name}"] == (0, 8) for name in heads.REMOVALS)
    assert measured["values.read"][0] == measured["values.used"][0] == 1
    assert measured["graphs.own"] == measured["graphs.rewired"] == (1, 2)
    _, (_, *rows) = found["graphs.own"].measurement.tables[0]
    assert all(0 < float(row[3]) <= 1 for row in rows)  # answers that differ
    assert "letters" in (result.page.parent / "claims/graphs.own.html").read_text()


def test_wrong_verdicts_are_counted_and_listed(folder, monkeypatch):
    found = programs.audited_programs(Packs(folder), 0)

    def changed(place, **truth):
        return [
            (replace(known, heads={**known.heads, place: replace(known.heads[place], **truth)}), result)
            for known, result in found
        ]

    monkeypatch.setattr(heads, "audited_programs", lambda *given: changed((0, 1), truth="hidden"))
    wrong = judged(folder, "heads.faithful")
    assert (wrong.value, wrong.n) == (0.5, 2)
    _, rows = wrong.tables[0]
    assert [row[1:3] for row in rows[1:]] == [["0.1", "hidden"], ["0.1", "hidden"]]
    assert (wrong.numbers["heads"], wrong.numbers["heads with their true verdict"]) == (8, 6)
    monkeypatch.setattr(heads, "audited_programs", lambda *given: changed((0, 0), truth="redundant"))
    assert judged(folder, "heads.idle").value == 0.5
    # Two heads that the audit does not call faithful would be: only the true ones count
    monkeypatch.setattr(heads, "audited_programs", lambda *given: changed((0, 0), truth="faithful"))
    share = judged(folder, "heads.found")
    assert (share.value, share.n) == (0.5, 4)
    assert (share.numbers["found"], share.numbers["faithful by construction"]) == (2, 4)
    ((_, missed),) = share.tables
    assert [row[1] for row in missed[1:]] == ["0.0", "0.0"]
    needed = {"zero": True, "mean": False, "resample": False}
    monkeypatch.setattr(heads, "audited_programs", lambda *given: changed((0, 0), needed=needed))
    found = {name: judged(folder, f"needed.{name}") for name in heads.REMOVALS}
    assert {name: one.value for name, one in found.items()} == {"zero": 0.25, "mean": 0, "resample": 0}
    assert found["zero"].numbers == {"needed by brute force": 4, "undecided": 0}


def test_answers_that_differ_are_counted(folder, monkeypatch):
    known = program(folder, "letters")
    task = known.task
    targets = task.program.targets.copy()
    row, at = np.argwhere(targets >= 0)[0]
    targets[row, at] = (targets[row, at] + 1) % 3
    other = replace(known, task=type(task)(replace(task.program, targets=targets)))
    monkeypatch.setattr(heads, "programs", lambda given: [other])
    measurement = judged(folder, "agreement")
    assert measurement.value == pytest.approx(1 - 1 / measurement.n)


def test_where_values_are_read(folder):
    known = program(folder, "letters")
    seen, written = values.program_activations(known), written_at(known.task.program)
    assert {name: values.layers_read(seen, name) for name in seen.labels} == {
        "indices": [0, 1, 2], "previous": [1, 2], "same_attn_output": [2], "tokens": [0, 1, 2],
    }  # fmt: skip
    assert set(seen.numbers) == {"same_attn_output"}
    written = {name: layer for name, layer in written.items() if name in seen.labels}
    assert values.follows_from(seen, "previous", written) == {}
    double = replace(seen, labels={**seen.labels, "vowel": (seen.labels["tokens"] == 0).astype(int)})
    assert values.follows_from(double, "vowel", written) == {"tokens": 0}
    both = seen.labels["tokens"] * 100 + seen.labels["indices"]  # each class is one token at one position
    pairs = replace(seen, labels={**seen.labels, "both": np.unique(both, return_inverse=True)[1]})
    assert values.follows_from(pairs, "both", written) == {"indices with tokens": 0}
    assert values.layers_read(pairs, "both") == [0, 1, 2]
    last = replace(seen, labels={**seen.labels, "parity": (seen.labels["tokens"] + seen.labels["indices"]) % 2})
    assert values.follows_from(last, "parity", written) == {}
    noise = np.random.default_rng(0).integers(3, size=len(seen.training))
    assert values.layers_read(replace(seen, labels={"noise": noise}), "noise") == []
    unseen = np.where(seen.training, 0, 2) + (seen.labels["tokens"] == 0)  # no class is in both halves
    assert values.layers_read(replace(seen, labels={"unseen": unseen}), "unseen") == []


def test_what_reads_a_value_and_whether_answers_change(folder):
    letters, numbers = (program(folder, name) for name in ("letters", "numbers"))
    assert values.readers(letters, "previous") == ["output"]
    assert values.readers(letters, "same_attn_output") == []
    assert values.readers(numbers, "same_attn_output") == ["output"]
    assert values.readers(letters, "tokens") == ["0 K", "0 V", "1 Q", "1 K", "1 V"]
    assert values.site(letters, "previous") == "blocks.0.hook_resid_mid"
    assert values.site(letters, "tokens") == "blocks.0.hook_resid_pre"
    changed = {name: values.changed_by(letters, name, 0) for name in ("previous", "same_attn_output", "tokens")}
    assert changed["same_attn_output"][0] == 0 < changed["same_attn_output"][1]
    assert min(changed["previous"][0], changed["tokens"][0]) > 100
    assert values.changed_by(letters, "indices", 0) == (0, 0)  # sequences of one length have the same


@pytest.mark.slow
def test_graphs_that_are_not_accepted_or_not_refused(folder, monkeypatch):
    def wrong(task):
        graph = compiled_program(task)
        read = "same_attn_output" if task.program.numerical else "previous"
        return graph.without_edge(read, "tokens", "indices")

    monkeypatch.setattr(graphs, "compiled_program", wrong)
    assert judged(folder, "graphs.own").value == 0
    monkeypatch.setattr(graphs, "compiled_program", compiled_program)
    monkeypatch.setattr(graphs, "most_wrong", lambda known, graph: (replace(graph, name="same, as it is"), 0.0))
    assert judged(folder, "graphs.rewired").value == 0


def test_packs_are_the_same_wherever_they_are(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)

    def key(folder):
        return measurement_file(tmp_path, "compiled", study(folder).claims[0], EVIDENCE).key

    before = key(folder)
    assert key(copy) == before
    write_pack(copy, n=300)
    assert key(copy) != before
    assert [claim.id for claim in study(copy).claims] == [claim.id for claim in STUDY.claims]


def test_no_packs(tmp_path):
    with pytest.raises(ValueError, match=r"has no packs \(NAME.json and NAME.npz\); give a folder with --packs"):
        programs.programs(Packs(tmp_path))
    assert Packs(tmp_path / "nothing").digest == ""
    found = study(tmp_path / "nothing").run(size="standard", folder=tmp_path, n_jobs=1)
    assert {one.note for one in found.claims} == {found.claims[0].claim.missing_input} != {""}
    assert {one.label for one in found.claims} == {"not measured"}


def test_values_that_are_not_read_where_they_are_written(folder, monkeypatch):
    readings = [replace(reading, layers=reading.layers[1:]) for reading in values.value_readings(Packs(folder))]
    monkeypatch.setattr(values, "value_readings", lambda packs: readings)
    measurement = judged(folder, "values.written")
    assert (measurement.value, measurement.n) == (0, len(readings))
    assert len(measurement.tables[0][1]) == len(readings) + 1


def test_without_packs_it_is_about_our_own_programs(monkeypatch, tmp_path):
    """Compiling them needs an extra: without it nothing can be measured, and stored results are still drawn."""
    assert isinstance(STUDY, Study)
    assert all(claim.packs.digest.startswith("own-") for claim in STUDY.claims)
    monkeypatch.setattr(hooks.extras, "find_spec", lambda name: None if name == "tracr" else name)
    with pytest.raises(MissingExtra, match=r'Next, in the folder of unmyopic: pip install "\.\[tracr\]"'):
        STUDY.run(folder=tmp_path, n_jobs=1)
    assert "unmyopic: pip install" in STUDY.claims[0].missing_input
    assert STUDY.draw(folder=tmp_path).page.is_file()


@pytest.mark.slow
def test_jax_is_not_imported_before_something_is_compiled():
    code = """import sys, interp, tool_studies.compiled.study
from interp.known_answers import shipped_program
shipped_program("depth")
assert not {"jax", "haiku", "tracr"} & set(sys.modules)"""
    subprocess.run([sys.executable, "-c", code], check=True)
