"""Templates: parsing, substitution of wildcards, matching, and validation."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite

from hooks.typed import checks_types

ARROW = "->"


def is_wildcard(token: str) -> bool:
    """Return whether a token is a wildcard: a single letter a to z. Every other token is fixed."""
    return len(token) == 1 and "a" <= token <= "z"


def split_tokens(text: str) -> tuple[str, ...]:
    """Split a text at white space or, if there is none, into characters."""
    return tuple(text.split()) if len(text.split()) > 1 else tuple(text.strip())


@dataclass(frozen=True)
class LabelledTemplate:
    """A string over wildcards and fixed tokens, with a label.

    A single lower-case letter is a wildcard: the same symbol at every occurrence, and a different symbol for each
    wildcard. Any other token is fixed.

    Source: template paper (arXiv:2310.09753) Definition 3.1.

    Raises:
        ValueError: no tokens, a label that is not finite, or a label wildcard that does not occur in the template.
    """

    tokens: tuple[str, ...]
    label: float | str
    """A real number, or a token: a wildcard of the template (its symbol is the label) or a fixed token."""

    def __post_init__(self):
        object.__setattr__(self, "tokens", tuple(self.tokens))
        # real labels are finite; a wildcard as a label has a symbol
        if not self.tokens:
            raise ValueError("a template is empty; write at least one token before the arrow.")
        if isinstance(self.label, int | float):
            object.__setattr__(self, "label", float(self.label))
            if not isfinite(self.label):
                raise ValueError(f"the label of the template {self.text!r} is {self.label}; give a finite number.")
        elif is_wildcard(self.label) and self.label not in self.tokens:
            wildcards = " ".join(self.wildcards) or "no wildcard"
            raise ValueError(
                f"the label wildcard {self.label!r} does not occur in the template {self.text!r}, which has "
                f"{wildcards}; its symbol is undefined."
            )

    @property
    def wildcards(self) -> tuple[str, ...]:
        """Wildcards, in order of appearance."""
        return tuple(dict.fromkeys(token for token in self.tokens if is_wildcard(token)))

    @property
    def fixed(self) -> frozenset[str]:
        return frozenset(token for token in self.tokens if not is_wildcard(token))

    @property
    def text(self) -> str:
        """The tokens as text for `read_template`."""
        return "".join(self.tokens) if all(len(token) == 1 for token in self.tokens) else " ".join(self.tokens)

    def __str__(self) -> str:
        label = f"{self.label:+g}" if isinstance(self.label, float) else self.label
        return f"{self.text} {ARROW} {label}"


def read_template(text: str) -> LabelledTemplate:
    """Parse a template such as `aba -> +1`, or with white space between tokens: `x = 1 ; print ( x ) -> x`.

    A label that parses as a number is real.

    Raises:
        ValueError: no arrow, a label of zero or several tokens, or an invalid template.
    """
    string, arrow, end = text.partition(ARROW)
    labels = end.split()
    if not arrow or len(labels) != 1:
        raise ValueError(
            f"cannot read the template {text!r}; write its tokens, {ARROW} and one label: 'aba {ARROW} +1'."
        )
    # a number if it parses as one, else a token
    label: float | str = labels[0]
    with suppress(ValueError):
        label = float(label)
    return LabelledTemplate(split_tokens(string), label)


def substitution(
    string: str | Sequence[str], template: LabelledTemplate | str, *, fixed: Collection[str] = ()
) -> dict[str, str] | None:
    """Return the symbol of each wildcard if the string matches the template; else None.

    Args:
        string: Tokens, or their text.
        template: A template, or its text with or without a label.
        fixed: Further tokens that no wildcard may be replaced by, such as those of the other templates of a task.
    """
    # texts to values; the label is irrelevant
    if isinstance(template, str):
        text = template if ARROW in template else f"{template} {ARROW} 0"
        template = read_template(text)
    string = split_tokens(string) if isinstance(string, str) else tuple(string)
    if len(string) != len(template.tokens):
        return None
    # fixed tokens are equal, and a wildcard has one symbol at all of its positions, which is no fixed token
    fixed_tokens = template.fixed | frozenset(fixed)
    symbol_of: dict[str, str] = {}
    for token, symbol in zip(template.tokens, string, strict=True):
        if not is_wildcard(token):
            if token != symbol:
                return None
        elif symbol in fixed_tokens or symbol_of.setdefault(token, symbol) != symbol:
            return None
    # different wildcards have different symbols
    is_injective = len(set(symbol_of.values())) == len(symbol_of)
    return symbol_of if is_injective else None


@checks_types
def matches(string: str | Sequence[str], template: LabelledTemplate | str, *, fixed: Collection[str] = ()) -> bool:
    """Return whether a string matches a template under some injective choice of symbols for its wildcards.

    Symbols are never fixed tokens. Arguments as in `substitution`.

    Source: template paper (arXiv:2310.09753) Definition 3.1, with symbols drawn outside the fixed tokens.
    """
    return substitution(string, template, fixed=fixed) is not None


def structure(template: LabelledTemplate) -> tuple[str | int, ...]:
    """Tokens with wildcards numbered in order of appearance: equal for templates that differ only in wildcard names."""
    number = {wildcard: index for index, wildcard in enumerate(template.wildcards)}
    return tuple(number.get(token, token) for token in template.tokens)


def check_templates(templates: Sequence[LabelledTemplate], *, real: bool, weights: Sequence[float] = ()) -> None:
    """Check that templates form a task.

    Args:
        templates: At least one.
        real: Whether labels must be real numbers.
        weights: Sampling weights, or none.

    Raises:
        ValueError: an object that is not a template, different lengths, a label of the wrong type, two templates that
            overlap (with a string that matches both), or invalid weights.
    """
    for template in templates:
        if not isinstance(template, LabelledTemplate):
            raise ValueError(
                f"templates has a {type(template).__name__}; give LabelledTemplate or text such as 'aba -> +1'."
            )
    # one length
    lengths = sorted({len(template.tokens) for template in templates})
    if len(lengths) > 1:
        raise ValueError(f"templates have lengths {lengths}; all must have the same.")
    # labels of one type
    expected = "real numbers" if real else "tokens: a wildcard of the template or a fixed token"
    for template in templates:
        is_real = isinstance(template.label, float)
        if is_real != real:
            label = "a real number" if is_real else f"the token {template.label!r}"
            raise ValueError(f"the template '{template}' is labelled {label}, but labels of this form are {expected}.")
    if weights and (len(weights) != len(templates) or min(weights) < 0 or sum(weights) <= 0):
        raise ValueError(
            f"weights is {tuple(weights)}; give one for each of the {len(templates)} templates, none negative."
        )
    check_disjoint(templates)


def check_disjoint(templates: Sequence[LabelledTemplate]) -> None:
    """Check that no string matches two templates.

    Wildcards are never replaced by fixed tokens, so two templates of one length overlap exactly if they differ only in
    the names of wildcards.

    Raises:
        ValueError: with the two templates and a string that matches both.
    """
    template_of: dict[tuple[str | int, ...], LabelledTemplate] = {}
    for template in templates:
        rival = template_of.get(structure(template))
        if rival is not None:
            raise ValueError(
                f"the templates '{rival}' and '{template}' overlap: the string {_matching_string(rival)!r} matches "
                f"both. Keep one, or let them differ in which tokens are equal."
            )
        template_of[structure(template)] = template


def _matching_string(template: LabelledTemplate) -> str:
    """A string that matches a template, with symbols such as A, or A' if A is a fixed token."""
    # more primes than the longest fixed token has letters
    longest_fixed = max((len(token) for token in template.fixed if token[:1].isupper()), default=0)
    symbols = {wildcard: wildcard.upper() + "'" * longest_fixed for wildcard in template.wildcards}
    return " ".join(symbols.get(token, token) for token in template.tokens)
