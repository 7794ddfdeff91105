"""Models with known answers as the data of a claim: its number belongs to the code that builds them."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from case_studies.frame.code_digest import modules_digest
from case_studies.frame.packs import OutsideFiles, Packs

PACKAGE = "interp.known_answers"
PREFIX = "known-"
"""Beginning of the digest of models with known answers."""


@dataclass(frozen=True)
class KnownAnswers(OutsideFiles):
    """Models that `interp.known_answers` builds, with the packs that a claim reads as well, if any.

    Their digest is that of the modules which build them, so that a number is shown for one suite only.
    """

    modules: tuple[str, ...] = ("suite",)
    """Modules of `interp.known_answers` that build them; those that they import from it count too. Default: all models
    of the suite."""
    packs: Packs | None = None

    option: ClassVar[str] = "--packs"
    word: ClassVar[str] = "known answers"

    @cached_property
    def digest(self) -> str:
        """Digest of the code that builds the models, followed by that of the packs; empty if packs are missing."""
        of_models = PREFIX + modules_digest([f"{PACKAGE}.{module}" for module in self.modules], within=PACKAGE)
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
