"""Lists of studies and of their claims."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from hooks.checks import chosen_by_prefix
from interp.core.plain_words import plain_words

FIELDS = ("id", "source", "statement", "paper", "sizes", "sizes_reason", "rule", "fixed", "verdict")
"""What `--list --json` prints of a claim."""
N_SIZES = 3
WIDTH = 100


def claims_text(listing: Mapping[str, Any], only: Sequence[str]) -> str:
    """The chosen claims as text: id, source, verdict, statement, the paper's number, rule."""
    lines = [f"{listing['study']}: {listing['title']}"]
    for claim in chosen_claims(listing, only):
        lines += ["", f"{claim['id']}  ({claim['source']})", _wrapped("    ", claim["statement"])]
        lines.append(_wrapped("    verdict: ", _verdict(claim, listing["size"])))
        if claim["paper"] is not None:
            lines.append(f"    paper: {claim['paper']}")
        lines += [_wrapped("    rule: ", claim["rule"]), _wrapped("    fixed ", claim["fixed"])]
        if len(claim["sizes"]) < N_SIZES:
            lines.append(_wrapped("    sizes: ", f"{', '.join(claim['sizes']) or 'none'} ({claim['sizes_reason']})"))
    return plain_words("\n".join(lines))


def claims_values(listing: Mapping[str, Any], only: Sequence[str]) -> dict[str, Any]:
    """The chosen claims as plain values."""
    claims = [{name: claim[name] for name in FIELDS} for claim in chosen_claims(listing, only)]
    return {"study": listing["study"], "title": listing["title"], "claims": claims}


def chosen_claims(listing: Mapping[str, Any], only: Sequence[str]) -> list[Mapping[str, Any]]:
    """The claims with these ids or prefixes of ids; all if `only` is empty.

    Raises:
        ValueError: a name that matches no claim.
    """
    ids = [claim["id"] for claim in listing["claims"]]
    chosen = chosen_by_prefix(ids, only, kind="claim", owner=f"the study {listing['study']}")
    return [claim for claim in listing["claims"] if claim["id"] in chosen]


def _verdict(claim: Mapping[str, Any], size: str | None) -> str:
    """The verdict with its number."""
    if claim["measured"] is None:
        return f"{claim['verdict']}. {claim['note']}" if claim["note"] else claim["verdict"]
    low, high = (f"{end:.3g}" if end is not None else "no bound" for end in claim["interval"])
    number = f"{claim['measured']:.3g} [{low}, {high}], n = {claim['n']:,} {claim['unit']}"
    return f"{claim['verdict']} at size {size}: {number}"


def _wrapped(label: str, text: str) -> str:
    """A label and a text in lines, indented by the width of the label."""
    return textwrap.fill(text, WIDTH, initial_indent=label, subsequent_indent=" " * len(label))
