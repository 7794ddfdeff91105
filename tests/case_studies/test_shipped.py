"""Every installed study: the results that it ships belong to its claims of today."""

import re

import pytest

from case_studies.frame.evidence import keys_digest
from case_studies.frame.stored import read_results
from interp.cli.installed_studies import load_study, study_entry_points

ENTRY_POINTS = study_entry_points()


@pytest.fixture(params=ENTRY_POINTS)
def shipped(request):
    """A study, its shipped results, and its models by group."""
    study = load_study(request.param, ENTRY_POINTS)
    stored = read_results(study.shipped, study.name)
    return study, stored, study.groups(stored.size)


def test_every_number_belongs_to_its_rule(shipped):
    """Groups, models and quantity of every shipped number are those that its claim names today.

    After a change of any of these, measure it again: `python -m case_studies.release STUDY --only CLAIM`.
    """
    study, stored, groups = shipped
    claims = {claim.id: claim for claim in study.claims}
    results = {name: stored.claim(claim, groups) for name, claim in claims.items()}
    numbers = [entry["id"] for entry in stored.content["claims"] if entry["measured"] is not None]
    assert {name: results[name].note for name in numbers if results[name].measurement is None} == {}
    # The comparison itself, without the code that shows them
    for name in numbers:
        entry, claim = stored.entry(claims[name]), claims[name]
        keys = {group: keys_digest([spec.key for spec in groups[group]]) for group in claim.needs}
        assert (entry["groups"], entry["quantity"]) == (keys, claim.quantity), name


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_statements_do_not_refer_to_other_claims(name):
    claims = load_study(name, ENTRY_POINTS).claims
    refers = re.compile(r"(It|This|These|They|That|The (failure|result|same))\b|.*\b(also holds|either\.|too\.)")
    assert not [claim.id for claim in claims if refers.match(claim.statement)]
