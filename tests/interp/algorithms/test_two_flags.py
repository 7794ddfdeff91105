"""Two flags at one place, in directions at any angle: both are found, and what the model does not have is not."""

import pytest
import torch

import interp
from interp.algorithms import Site
from interp.known_answers.craft.weights import mean_preserving_rotation, rotate
from tests.support.two_flags import (
    ANSWERS,
    TwoFlags,
    crossed_parities,
    first_flag_of,
    flag_and_equality_of,
    flags_of,
    two_flags_model,
)

slow = pytest.mark.slow
COSINES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MODELS = [(question, cosine) for cosine in COSINES for question in ("both", "xor")]
"""Twenty models, of an answer for each value of both flags, and of a yes or no."""


def result_of(question, cosine, algorithm, *, n=256, n_idle=0, **options):
    task = TwoFlags(question=question)
    model = two_flags_model(task, cosine=cosine, seed=int(10 * cosine), n_idle=n_idle)
    return interp.implements(model, task, algorithm(task), n=n, **options)


def at_layer(layer, *names):
    """A stated site of each variable, so that one item of each kind is quick."""
    return {name: Site("resid", layer) for name in names}


def test_both_flags_are_found_at_their_site():
    sites = at_layer(1, "flag 0", "flag 1")
    result = result_of("xor", 0.7, flags_of, n=128, search="oblique", sites=sites)
    assert result.verdict == "implements"
    assert result.alignment == dict.fromkeys(sites, ("resid 1", "4"))
    assert "in the span of its means along all else" in str(result)
    # An orthogonal interchange moves the other flag
    orthogonal = result_of("xor", 0.7, flags_of, n=128, search="means", sites=sites)
    assert {finding.status for finding in orthogonal.findings} == {"not found"}


@pytest.mark.parametrize("layer", [1, 2])
def test_a_flag_that_is_not_there_is_not_found_at_a_site(layer):
    sites = at_layer(layer, "flag 0", "flags differ")
    result = result_of("or", 0.5, flag_and_equality_of, n=128, n_idle=1, search="oblique", sites=sites)
    assert result.verdict == "neither"
    assert {finding.status for finding in result.findings} == {"not found"}
    assert all(finding.why for finding in result.findings)
    assert str(result)


@slow
@pytest.mark.parametrize(("question", "cosine"), MODELS)
def test_an_algorithm_that_is_computed_is_never_refused(question, cosine):
    result = result_of(question, cosine, flags_of)
    assert result.verdict in ("implements", "undecided"), result.reason
    for finding in result.findings:
        assert finding.status in ("found", "undecided"), finding.why
        assert (finding.site, finding.place) == ("resid 1", "4")
    if cosine >= 0.6:
        assert result.verdict == "implements"
        assert {finding.search for finding in result.findings} == {"oblique"}
        assert "in the span of its means along all else" in str(result)


@slow
def test_an_orthogonal_interchange_moves_the_other_flag():
    """That there was something to cure."""
    result = result_of("xor", 0.7, flags_of, search="means")
    assert result.verdict == "neither"
    assert all(finding.accuracy < 0.8 for finding in result.findings)


@slow
@pytest.mark.parametrize("cosine", [0.5, 0.9])
def test_a_flag_beside_one_that_is_not_named(cosine):
    assert result_of("both", cosine, first_flag_of).verdict == "implements"


@slow
@pytest.mark.parametrize("question", ["both", "or", "and"])
@pytest.mark.parametrize("cosine", [0, 0.5, 0.9])
def test_a_flag_that_is_not_there_is_not_found(question, cosine):
    """The flags have nothing to do after layer 1, from where an idle layer carries them on next to the answer."""
    result = result_of(question, cosine, flag_and_equality_of, n_idle=1)
    assert result.verdict == "neither"
    assert {finding.status for finding in result.findings} == {"not found"}


@slow
@pytest.mark.parametrize("cosine", [0, 0.5, 0.9])
def test_parities_of_other_bits_are_not_found(cosine):
    result = result_of("xor", cosine, lambda task: crossed_parities())
    assert result.verdict == "neither"
    assert {finding.status for finding in result.findings} == {"not found"}


@slow
@pytest.mark.parametrize("question", ANSWERS)
def test_all_inputs_are_exact(question):
    result = result_of(question, 0.9, flags_of, n="all")
    assert (result.verdict, result.exact) == ("implements", True)
    if question != "xor":  # of which the equality is the answer
        assert result_of(question, 0.9, flag_and_equality_of, n="all", n_idle=1).verdict == "neither"


@slow
def test_what_is_read_must_be_used(monkeypatch):
    """Without this rule the flags that nothing reads any more would tell the value, and the answer be written."""
    monkeypatch.setattr("interp.algorithms.search.ACTIVE", 0)
    result = result_of("or", 0.5, flag_and_equality_of, n_idle=1)
    assert "found" in {finding.status for finding in result.findings}


@slow
def test_another_basis_of_the_stream_changes_nothing():
    task = TwoFlags(question="xor")
    model = two_flags_model(task, cosine=0.8).double()
    plain = interp.implements(model, task, flags_of(task), n=128, search="oblique", sites="resid")
    generator = torch.Generator().manual_seed(0)
    rotate(model, mean_preserving_rotation(model.cfg.d_model, generator))
    rotated = interp.implements(model, task, flags_of(task), n=128, search="oblique", sites="resid")
    assert [finding.search for finding in rotated.findings] == ["oblique", "oblique"]
    for before, after in zip(plain.findings, rotated.findings, strict=True):
        assert (after.site, after.place, after.status) == (before.site, before.place, before.status)
        assert after.accuracy == before.accuracy


def test_errors():
    sites = {f"flag {index}": Site("resid", 1, coordinates=(0,)) for index in range(2)}
    with pytest.raises(ValueError, match=r"has coordinates and search is 'oblique'; use search='whole'"):
        result_of("xor", 0.5, flags_of, search="oblique", sites=sites)
    with pytest.raises(ValueError, match=r"search is 'slanted'.*oblique"):
        result_of("xor", 0.5, flags_of, search="slanted")
