"""Models with known answers as the data of a claim: its number belongs to the answers of these names."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from case_studies.frame.packs import OutsideFiles, Packs
from interp.core.content_key import content_key
from interp.known_answers import SUITE

PREFIX = "known-"
"""Beginning of the digest of models with known answers."""


@dataclass(frozen=True)
class KnownAnswers(OutsideFiles):
    """Models that `interp.known_answers` builds, with the packs that a claim reads as well, if any.

    Their digest is that of their names, so that a number is shown for one suite only.
    """

    names: tuple[str, ...] = tuple(SUITE)
    """Names of the answers. Default: all models of the suite."""
    packs: Packs | None = None

    option: ClassVar[str] = "--packs"
    word: ClassVar[str] = "known answers"

    @cached_property
    def digest(self) -> str:
        """Digest of the names, followed by that of the packs; empty if packs are missing."""
        of_models = PREFIX + content_key(list(self.names), length=16)
        if self.packs is None:
            return of_models
        return f"{of_models}-{self.packs.digest}" if self.packs.digest else ""

    @property
    def missing(self) -> str:
        return self.packs.missing if self.packs else ""

    @property
    def missing_input(self) -> str:
        return self.packs.missing_input if self.packs else ""

    def check_extra(self) -> None:
        if self.packs:
            self.packs.check_extra()
