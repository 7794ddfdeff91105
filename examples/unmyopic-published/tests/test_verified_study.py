"""The study of verified circuits on hand-written models, its claims without weights, and its shipped results."""

import json

import pytest
from verified_circuits import measures
from verified_circuits.files import weight_files
from verified_circuits.handwritten import handwritten_circuit
from verified_circuits.study import STUDY, study
from weight_files import write_clone

from case_studies.frame.evidence import Evidence
from case_studies.frame.stored import CLAIMS
from case_studies.recipes.judges import Row

WEIGHTS = {10: "0e2b0ef6cb44093c", 16: "7410aba147fd8154"}
"""Digests of the two weight files of the repository, with their names."""
QUICK = (
    "n10.decisions",
    "n10.margin",
    "n10.read.depth.block-0",
    "n10.read.flags.block-0",
    "n10.read.total",
    "n10.read.violations",
    "n10.prefix-sum",
    "n10.circuit.literal.block-1",
    "n10.circuit.charitable.block-1",
    "n10.circuit.directions.block-1",
    "n10.flags.literal.block-1",
    "n10.flags.charitable.block-1",
    "n10.total.literal.block-1",
    "n10.pooled",
    "n10.openers.states.block-1",
    "n10.closers.directions.block-1",
    "n10.possible.positions",
    "n10.possible.charitable.flags.block-1",
)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    models = {n: handwritten_circuit(n, "charitable") for n in (10, 16)}
    return write_clone(tmp_path_factory.mktemp("clone"), models)


def test_the_statements_are_found_in_a_model_of_which_they_are_true(clone, tmp_path):
    result = study(clone).run(folder=tmp_path, n_jobs=1, only=QUICK)
    verdicts = {
        name.removeprefix("n10."): verdict for name, verdict in result.verdicts.items() if verdict != "not measured"
    }
    refuted = {name for name, verdict in verdicts.items() if verdict != "reproduced"}
    # Its margin is another one, and its final depth is not in the last state
    assert refuted == {
        "margin",
        "circuit.literal.block-1",
        "flags.literal.block-1",
        "total.literal.block-1",
        "openers.states.block-1",
        "closers.directions.block-1",
    }
    assert len(verdicts) == 27
    measured = {claim.claim.id: claim.measurement for claim in result.claims if claim.measurement is not None}
    assert all(measurement.exact for measurement in measured.values())
    assert measured["n10.margin"].value == pytest.approx(6, abs=1e-4)
    (_, (_, *by_answer)), *_ = measured["n10.margin"].tables
    assert [float(row[1]) for row in by_answer] == [6, 6]
    pages = [page.read_text() for page in (result.page.parent / "claims").iterdir()]
    assert any("weights " + weight_files(clone, 10).digest in page for page in pages)


def test_pairs_of_long_strings_are_drawn(clone, monkeypatch):
    evidence = Evidence(size="standard", seed=0, groups={}, folder=clone)
    assert measures.PAIRS_BY_LENGTH[16] == 8192
    monkeypatch.setitem(measures.PAIRS_BY_LENGTH, 10, 500)
    readings = measures.measure_interchange(
        evidence,
        files=weight_files(clone, 10),
        n=10,
        statement="circuit",
        interchanged="charitable",
        site="block 1",
    )
    measurement = Row("value", unit="pairs", units="pairs").measurement(readings, seed=0)
    assert measurement.low < measurement.value == 1
    assert measurement.n <= 4 * 500


def test_claims_are_not_measured_without_weights(tmp_path):
    missing = {claim.missing_input for claim in STUDY.claims if not claim.id.startswith("control")}
    assert missing == {"It reads weights, files from outside, and there are none; give their folder with --weights."}
    assert {claim.id for claim in study(tmp_path).claims} == {claim.id for claim in STUDY.claims}
    (control,) = (claim for claim in STUDY.claims if claim.id.startswith("control"))
    assert control.packs is None


def test_a_wrong_file_is_named_before_anything_is_measured(tmp_path):
    write_clone(tmp_path, {10: handwritten_circuit(10, "literal"), 16: handwritten_circuit(10, "literal")})
    with pytest.raises(ValueError, match=r"dyck16_exact_seed0.weights.json has cfg.n 10; the study expects 16"):
        study(tmp_path)
    other = write_clone(tmp_path / "other", {16: handwritten_circuit(16, "literal")}, cfg={})
    with pytest.raises(
        ValueError, match=r"dyck16_exact_seed0.weights.json is not a weight file .* 'causal' is missing"
    ):
        study(other)


def test_rules_do_not_depend_on_the_weights(clone):
    ours, theirs = study(clone), STUDY
    assert [claim.rule_text for claim in ours.claims] == [claim.rule_text for claim in theirs.claims]


def test_every_claim_has_a_number_that_is_shown(tmp_path):
    assert STUDY.shipped is not None
    entries = {entry["id"]: entry for entry in json.loads((STUDY.shipped / CLAIMS).read_text())["claims"]}
    assert set(entries) == {claim.id for claim in STUDY.claims}
    for name, entry in entries.items():
        if not name.startswith("control"):
            assert entry["made"]["packs"] == WEIGHTS[10 if name.startswith("n10") else 16]
    result = STUDY.draw(folder=tmp_path)
    assert all(claim.measurement is not None for claim in result.claims)
