"""The results that are shipped with the study, of known packs."""

import json

from published_readings.study import STUDY

from case_studies.frame.stored import CLAIMS


def test_every_claim_has_a_number_that_is_shown(tmp_path):
    assert STUDY.shipped is not None
    entries = {entry["id"]: entry for entry in json.loads((STUDY.shipped / CLAIMS).read_text())["claims"]}
    assert set(entries) == {claim.id for claim in STUDY.claims}
    assert {entry["made"]["packs"] for entry in entries.values()} == {"085d4c2d7e8a3d4a"}
    result = STUDY.draw(folder=tmp_path)
    shown = {claim.claim.id: claim.measurement.value for claim in result.claims if claim.measurement is not None}
    assert shown == {name: entry["measured"] for name, entry in entries.items()}
