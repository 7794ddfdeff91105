"""Shape of the models that start from a published BERT, and of those compared with them, at size `paper`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from hooks.files import user_path
from hooks.model.architectures import Config
from interp.sweeps.spec import ModelSpec
from interp.training.packaged import PACKAGED
from interp.training.pretrained import pretrained_config, source_config

COMPARED = ("start-", "shortcut-", "plain-random", "plain-mimic", "plain-pretrained", "pretrained")
"""First letters of the groups that start from the published BERT, and of those that differ from these in the start."""


def with_shape_of_bert(groups: Mapping[str, Sequence[ModelSpec]]) -> Mapping[str, Sequence[ModelSpec]]:
    """The groups, those of `COMPARED` with the width and depth of the published BERT if its folder is here.

    Only its config is read. Without a published BERT, or with a name on the hub, all groups stay as they are: base
    size.
    """
    source = groups["start-pretrained"][0].pretrained if groups["start-pretrained"] else None
    if not isinstance(source, str) or not (source in PACKAGED or user_path(source).is_dir()):
        return groups
    return {
        name: [_shaped(spec, source) for spec in specs] if name.startswith(COMPARED) else specs
        for name, specs in groups.items()
    }


def _shaped(spec: ModelSpec, source: str) -> ModelSpec:
    return replace(spec, config=pretrained_config(spec.task, _config(source)))


@lru_cache(maxsize=8)
def _config(source: str) -> Config:
    return source_config(source)
