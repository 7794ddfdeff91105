"""The audit of every known answer, from seeds that the audit study does not use."""

import pytest
from tool_studies.audit.controls import audited, misjudged

from interp.known_answers import SUITE, known_answer

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", [10, 11])
@pytest.mark.parametrize("name", SUITE)
def test_every_head_gets_its_true_verdict_and_is_needed_under_the_planted_removals(name, seed):
    answer = known_answer(name, seed)
    result = audited(answer, seed=seed)
    assert misjudged(answer, result) == set(), "\n".join([answer.name, *result.sentences()])
    for head in result.heads:
        for removal, needed in (answer.heads[head.place].needed or {}).items():
            assert head.needed[removal] in (needed, None), (answer.name, head.place, removal)
