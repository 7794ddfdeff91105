"""What a study found, in sentences that are shown while the verdicts that they speak of are those of the results."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from case_studies.frame.parts import fragment
from case_studies.frame.results import LABELS, ClaimResult, StudyResult
from case_studies.frame.rules import ClaimVerdict
from interp.core.page_identity import quantity

MOST_SENTENCES = 3
"""Sentences of a finding that are shown."""
NUMBER = re.compile(r"\{([a-z0-9.-]+)\}")
"""In a sentence, the place of a claim's number."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence of what was found, and the verdicts without which it would not be true."""

    text: str
    """The sentence; `{id}` is replaced by the measured number of that claim with its interval, linked to its page."""
    reproduced: tuple[str, ...] = ()
    """Ids of the claims that must be reproduced."""
    not_reproduced: tuple[str, ...] = ()
    inconclusive: tuple[str, ...] = ()

    @property
    def verdicts(self) -> dict[str, ClaimVerdict]:
        """The verdict that each claim must have, by its id."""
        verdicts: dict[str, ClaimVerdict] = {}
        verdicts |= dict.fromkeys(self.reproduced, "reproduced")
        verdicts |= dict.fromkeys(self.not_reproduced, "not reproduced")
        verdicts |= dict.fromkeys(self.inconclusive, "inconclusive")
        return verdicts

    @property
    def claims(self) -> tuple[str, ...]:
        """Ids of all claims that the sentence speaks of."""
        return (*self.verdicts, *NUMBER.findall(self.text))

    def is_true_of(self, results: Mapping[str, ClaimResult]) -> bool:
        """Whether the claims have these verdicts, and the numbers in the text were measured."""
        has_numbers = all(results[name].measurement for name in NUMBER.findall(self.text))
        return has_numbers and all(results[name].verdict == verdict for name, verdict in self.verdicts.items())


def claim_page(claim_id: str) -> str:
    """Address of a claim's page, from that of its study."""
    return f"claims/{claim_id}.html"


def finding_in_words(result: StudyResult, findings: Sequence[Finding]) -> Markup:
    """The first sentences that are true of the results, and how many statements passed.

    Args:
        result: The results of the study.
        findings: Sentences, the most important ones first.
    """
    results = {claim.claim.id: claim for claim in result.claims}
    true_findings = [finding for finding in findings if finding.is_true_of(results)]
    sentences = [_with_numbers(finding.text, results) for finding in true_findings[:MOST_SENTENCES]]
    counts = _counts(result)
    return fragment("found", sentences, counts)


def _with_numbers(text: str, results: Mapping[str, ClaimResult]) -> Markup:
    """A sentence with the numbers of its claims, each a link to the claim's page."""
    html = Markup("")
    end = 0
    for place in NUMBER.finditer(text):
        link = fragment("number_link", claim_page(place[1]), results[place[1]].number)
        html += Markup("{}{}").format(text[end : place.start()], link)
        end = place.end()
    return html + text[end:]


def _counts(result: StudyResult) -> str:
    """How many statements of papers and of our own have each verdict, in a sentence."""
    published_labels = [claim.label for claim in result.claims if not claim.claim.is_ours]
    own_labels = [claim.label for claim in result.claims if claim.claim.is_ours]
    own_name = f"{len(own_labels)} of our own"
    if not published_labels:
        own_name = f"{quantity(len(own_labels), 'statement')} of our own"
    texts = []
    for name, labels in (
        (quantity(len(published_labels), "published statement"), published_labels),
        (own_name, own_labels),
    ):
        counts = Counter(labels)
        if labels:
            texts.append(f"{name}: {', '.join(f'{counts[label]} {label}' for label in LABELS if counts[label])}")
    return f"{'; '.join(texts)}."
