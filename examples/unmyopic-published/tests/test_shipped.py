"""The results that are shipped with the study: today's measures made them, on known packs."""

import json

from published_readings.study import STUDY

from case_studies.frame.code_digest import code_digest
from case_studies.frame.stored import CLAIMS


def test_no_number_is_lost_because_its_measure_has_changed(tmp_path):
    """A change of a measure, or of a constant that it reads, comes with a new measurement of its claims."""
    assert STUDY.shipped is not None
    entries = {entry["id"]: entry for entry in json.loads((STUDY.shipped / CLAIMS).read_text())["claims"]}
    today = {claim.id: code_digest(claim.measure) for claim in STUDY.claims}
    assert {name: entry["measure"] for name, entry in entries.items()} == today
    assert {entry["made"]["packs"] for entry in entries.values()} == {"085d4c2d7e8a3d4a"}
    result = STUDY.draw(folder=tmp_path)
    assert result.verdicts == {name: entry["verdict"] for name, entry in entries.items()}
    shown = {claim.claim.id: claim.measurement.value for claim in result.claims if claim.measurement is not None}
    assert shown == {name: entry["measured"] for name, entry in entries.items()}
