"""Parts of a model that are replaced: the embedding, heads, MLPs and neurons, by their names."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

from hooks.checks import shown
from hooks.interventions.ablation_engine import every_head, part_points
from hooks.interventions.clean_pass import Net
from hooks.interventions.part_engine import Embedding, Mlp, Part, PartEngine
from interp.core.sample import Sample
from interp.heads.experiment import Experiment
from interp.heads.part_names import NUMBER, named_part

KindOfParts = Literal["mlps", "heads", "each"]
KINDS_OF_PARTS: tuple[KindOfParts, ...] = get_args(KindOfParts)
"""All MLPs, all heads, or each of both."""


def names_of_parts(net: Net, kind: str) -> list[str]:
    """Names of all parts of a kind of a model."""
    heads = [f"{layer}.{head}" for layer, head in every_head(net)]
    mlps = [f"{layer} MLP" for layer in range(net.cfg.n_layers) if f"blocks.{layer}.hook_mlp_out" in net.hook_dict]
    return {"mlps": mlps, "heads": heads, "each": [*heads, *mlps]}[kind]


def has_mlps(parts: str | Iterable[str]) -> bool:
    """Whether parts, or names of parts, are or may be MLPs or neurons."""
    return parts in ("mlps", "each") or any(" MLP" in name for name in parts)


def engine_part(name: str, net: Net) -> Part:
    """The part with a name, in the terms of the engine.

    Raises:
        ValueError: no name of a part that is replaced, or one that the model does not have.
    """
    mlp_name, _, neuron = name.rpartition(" ")
    is_neuron = mlp_name.endswith(" MLP") and re.fullmatch(NUMBER, neuron) is not None
    try:
        named = named_part(mlp_name if is_neuron else name)
    except ValueError:
        named = None
    if named is None or named.kind not in ("embedding", "head", "MLP"):
        raise ValueError(
            f"parts has {shown(name)}; parts that are replaced are heads (0.1), MLPs (0 MLP), neurons (0 MLP 5) and "
            f"the embedding."
        )
    named = named_part(mlp_name if is_neuron else name, (net.cfg.n_layers, net.cfg.n_heads))
    if named.kind == "embedding":
        return Embedding()
    if named.kind == "head":
        return named.layer, named.head  # pyright: ignore[reportReturnType]
    mlp = Mlp(named.layer or 0, (int(neuron),) if is_neuron else None)
    if mlp.hook_point not in net.hook_dict:
        raise ValueError(f"parts has {shown(name)}, but the model has no {mlp.hook_point}.")
    if is_neuron:
        _check_neuron(name, int(neuron), getattr(net, "bridge", net).cfg)
    return mlp


def _check_neuron(name: str, neuron: int, cfg: Any) -> None:
    """Raise ValueError unless the MLPs of a model with this config have a neuron."""
    width = getattr(cfg, "d_mlp", None)
    if not width:
        raise ValueError(f"parts has {shown(name)}; of this model the number of neurons is not known (cfg.d_mlp).")
    if neuron >= width:
        raise ValueError(f"parts has {shown(name)}; the MLPs of this model have {width} neurons, from 0 on.")


def experiment_on_parts(net: Net, sample: Sample, parts: Sequence[Part], **options: Any) -> Experiment:
    """Edits of these parts on a sample; options are those of `Experiment`."""
    points = part_points(net)
    if Embedding() not in parts:
        points = points[1:]
    points += sorted({mlp.hook_point for mlp in parts if isinstance(mlp, Mlp)} - {*points})
    return Experiment(net, sample, engine=PartEngine, points=tuple(points), **options)
