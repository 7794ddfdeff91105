"""A sample of the claims sourced to each paper, judged against our notes of what the paper says."""

import hashlib
import random
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from case_studies.frame.claims import Claim
from case_studies.papers.table import COMMAND, DOCS, OURS, Paper, study_of

SAMPLE = Path(__file__).parent / "sample.toml"
PAGE = DOCS / "sample.md"
PER_PAPER = 20
Judgement = Literal["fits", "direction", "departs", "unread"]
IN_WORDS: dict[Judgement, str] = {
    "fits": "fits",
    "direction": "fits in direction",
    "departs": "departs, named in its source",
    "unread": "cannot be judged",
}
HEAD = (
    "How we checked that rules judge what the papers say: {n} claims sourced to each paper, drawn with "
    "`random.Random({seed})`, each next to the paper's item. **They were judged against our notes of the papers** (the "
    "items of the tables, in our words), because the full texts were not available: *fits* means that rule and note "
    "agree, *fits in direction* that the paper's effect is larger than the rule's bar. In a draw before (seed 22) 13 "
    "of 60 rules judged something else than the sentence or more, and 12 were about another setting or place; in the "
    "next (seed 23) 4 of 60 became ours, 17 sources now name a departure and 7 statements say what the rule judges. "
    "This draw was made after that. `{command}` writes this page from `case_studies/papers/sample.toml`."
)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim of the sample with its judgement."""

    id: str
    """As study:id."""
    judgement: Judgement
    comment: str
    judged: str
    """`digest` of the claim when it was judged."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Drawn claims by paper."""

    seed: int
    pool: Mapping[str, int]
    """Number of claims sourced to each paper when the sample was drawn."""
    claims: tuple[Judged, ...]


def draw(known: Mapping[str, str], paper: Paper, *, seed: int) -> list[str]:
    """Draw claims sourced to a paper.

    Args:
        known: Sources of all claims, by study:id.
        paper: The paper.
        seed: Seed of the draw.

    Returns:
        `PER_PAPER` claims as study:id, sorted, or all if there are fewer.
    """
    pool = sorted(claim for claim, source in known.items() if source.startswith(paper.sources))
    return sorted(random.Random(seed).sample(pool, min(PER_PAPER, len(pool))))


def digest(claim: Claim) -> str:
    """Digest of what is judged of a claim: source, statement, the paper's number and rule."""
    text = "\n".join([claim.source, claim.statement, claim.paper or "", claim.rule_text])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def load_sample(path: Path = SAMPLE) -> Sample:
    """Read the sample.

    Raises:
        ValueError: an unknown judgement, or a claim twice.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    claims = tuple(Judged(**one) for one in content.pop("claims"))
    for one in claims:
        if one.judgement not in get_args(Judgement):
            known = ", ".join(get_args(Judgement))
            raise ValueError(f"{path.name} has judgement={one.judgement!r} for {one.id}; use {known}.")
    twice = [name for name, count in Counter(one.id for one in claims).items() if count > 1]
    if twice:
        raise ValueError(f"{path.name} has {twice[0]} twice; keep one.")
    return Sample(claims=claims, **content)


def sample_page(sample: Sample, papers: Sequence[Paper]) -> str:
    """The sample in Markdown: a tally and a table for each paper."""
    lines = [
        "# Claims next to what the papers say: a sample",
        "",
        HEAD.format(n=PER_PAPER, seed=sample.seed, command=COMMAND),
    ]
    for paper in papers:
        items = {claim: f"**{one.item}**: {one.says}" for one in reversed(paper.items) for claim in one.claims}
        drawn = [one for one in sample.claims if one.id in items and _cites(one.id, paper)]
        counts = Counter(one.judgement for one in drawn)
        tally = "; ".join(f"{words}: {counts[name]}" for name, words in IN_WORDS.items() if counts[name])
        lines += ["", f"## {paper.title}", "", f"{len(drawn)} of {sample.pool[paper.name]} claims. {tally}.", ""]
        lines += ["| claim | statement and rule | the paper's item, in our words | judgement |", "|---|---|---|---|"]
        lines += [_row(one, items[one.id]) for one in drawn]
    return "\n".join([*lines, ""])


def _claim(name: str) -> Claim:
    study, _, claim = name.partition(":")
    return study_of(study).choose([claim])[0]


def _cites(name: str, paper: Paper) -> bool:
    source = _claim(name).source
    return source.startswith((OURS, *paper.sources))


def _row(one: Judged, item: str) -> str:
    claim = _claim(one.id)
    changed = "" if digest(claim) == one.judged else "; **changed since it was judged**"
    comment = f"; {one.comment}" if one.comment else ""
    cells = (
        f"`{one.id}` ({claim.source})",
        f"{claim.statement} *Rule:* {claim.rule_text}",
        item,
        f"{IN_WORDS[one.judgement]}{comment}{changed}",
    )
    return "| " + " | ".join(" ".join(cell.split()).replace("|", r"\|") for cell in cells) + " |"
