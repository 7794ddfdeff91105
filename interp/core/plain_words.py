"""Plain words in place of those of stored results of studies.

Titles, units and notes of measurements are stored with them, and are part of the code that a stored number depends on:
their words are replaced where they are shown, until a claim is measured again.
"""

import re
from collections.abc import Mapping
from typing import Any

WORDS = (
    (r"\bseeds an arm\b", "seeds in each condition"),
    (r"\bmodels an arm\b", "models in each condition"),
    (r"\barm(s?)\b", r"condition\1"),
    (r"\bArm(s?)\b", r"Condition\1"),
    (r"\bbar(s?)\b", r"threshold\1"),
    (r"\bBar(s?)\b", r"Threshold\1"),
    (r"(?<![-.])\bpack(s?)\b", r"file\1 of models"),  # not the option --packs
)
"""Patterns of words, and what is shown in their place."""


def plain_words(text: str) -> str:
    """A text with the words of `WORDS` replaced."""
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    return text


def plain_chart(spec: Any) -> Any:
    """A Vega-Lite dict with the words of its titles and labels replaced; single words are names, such as a bar mark."""
    if isinstance(spec, str):
        return plain_words(spec) if " " in spec else spec
    if isinstance(spec, Mapping):
        return {name: plain_chart(value) for name, value in spec.items()}
    return [plain_chart(entry) for entry in spec] if isinstance(spec, list | tuple) else spec
