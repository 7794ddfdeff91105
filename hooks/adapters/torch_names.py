"""Parts of torch modules by name: layers, attention, and the `Linear` maps of attention."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

KEYS = ({"q", "k", "v", "o"}, {"qkv", "o"})
"""The maps that attention is described by; `pattern` is optional."""
USUAL_NAMES = {
    "qkv": "qkv qkvproj toqkv wqkv cattn inproj attproj qkvlinear linearqkv querykeyvalue",
    "q": "q qproj toq wq qlinear linearq qlin query queries queryproj toquery toqueries wquery querylinear",
    "k": "k kproj tok wk klinear lineark klin key keys keyproj tokey tokeys wkey keylinear",
    "v": "v vproj tov wv vlinear linearv vlin value values valueproj tovalue tovalues wvalue valuelinear",
    "o": "o oproj too wo olinear out outproj toout outlinear linearout outlin output proj projout cproj resproj dense",
}
"""Usual names of each map, in small letters and without underscores: `to_out` is `toout`."""
HEAD_COUNTS = ("n_heads", "n_head", "num_heads", "num_attention_heads", "nhead", "heads")
"""Usual attributes of an attention with the number of its heads."""


def layers_of(module: nn.Module, name: str) -> list[nn.Module]:
    """The layers of a module.

    Raises:
        ValueError: a name that is not there or of something else, or layers that have no forward pass of their own.
    """
    modules = dict(module.named_modules())
    layer_list = modules.get(name)
    if not isinstance(layer_list, nn.ModuleList | nn.Sequential) or not len(layer_list):
        fault = "is not there"
        if layer_list is not None:
            fault = f"is a {type(layer_list).__name__} of {len(list(layer_list.children()))} parts"
        lists = [path for path, child in modules.items() if path and isinstance(child, nn.ModuleList | nn.Sequential)]
        raise ValueError(
            f"layers is {name!r}, which {fault} in the {type(module).__name__}; it must name a ModuleList of layers. "
            f"Found: {', '.join(lists) or 'none'}."
        )
    layers = list(layer_list)
    if len(set(map(id, layers))) < len(layers):
        raise ValueError(
            f"layers is {name!r}, in which several layers are one module: hook points would not know which one runs. "
            f"Use a copy for each layer, or hooks.Transformer with tied=True."
        )
    for index, layer in enumerate(layers):
        if isinstance(layer, nn.ModuleList | nn.ModuleDict):
            raise ValueError(
                f"layers is {name!r}, whose part {index} is a {type(layer).__name__}, which is never called: the model "
                f"calls what is in it. Make a layer a module whose forward gets the residual stream and returns it."
            )
    return layers


def is_linear_map(module: nn.Module) -> bool:
    """Whether a module is a `Linear`, or a `Conv1D` as in GPT-2 of `transformers`, whose weight is (in, out)."""
    if "Conv1D" not in {cls.__name__ for cls in type(module).__mro__}:
        return isinstance(module, nn.Linear)
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim == 2 and weight.shape[1] == getattr(module, "nf", None)


def weight_of(linear_map: Any) -> Float[Tensor, "d_out d_in"]:
    """The weight of a linear map, with the axes of a `Linear`."""
    return linear_map.weight if isinstance(linear_map, nn.Linear) else linear_map.weight.T


def attention_part(layer: nn.Module, name: str, layer_name: str) -> nn.Module:
    """A part of a layer.

    Raises:
        ValueError: a name that is not there.
    """
    modules = dict(layer.named_modules())
    if name in modules and name:
        return modules[name]
    paths = [path for path in modules if path]
    # A name that begins outside the layer, or inside the attention
    similar = [path for path in paths if f".{name}".endswith(f".{path}") or f".{path}".endswith(f".{name}")]
    advice = f" Give {similar[-1]!r}." if similar and name else ""
    raise ValueError(
        f"attention names {name!r}, which {layer_name} (a {type(layer).__name__}) does not have; names are relative to "
        f"the layer, which has {', '.join(paths) or 'no parts'}.{advice}"
    )


def named_maps(layer: nn.Module, names: str | Mapping[str, str], layer_name: str) -> dict[str, Any]:
    """The `Linear` maps of a layer's attention, by `q`, `k`, `v` or `qkv`, and `o`; and perhaps `pattern`.

    Args:
        layer: The layer.
        names: Name of the attention, whose maps have usual names; or the name of each map.
        layer_name: The layer's name, for error texts.

    Raises:
        ValueError: names that are not there, of something else, or not enough.
    """
    if isinstance(names, str):
        return _maps_with_usual_names(attention_part(layer, names, layer_name), names, layer_name)
    if set(names) - {"pattern"} not in KEYS:
        raise ValueError(
            f"attention names {', '.join(map(repr, names)) or 'nothing'}; needed are 'q', 'k', 'v', 'o', or 'qkv', "
            f"'o'; and 'pattern', if a module has to be named that the pattern passes through. "
            f"{_linear_maps_text(layer, layer_name)}"
        )
    modules = {name: attention_part(layer, path, layer_name) for name, path in names.items()}
    for name, module in modules.items():
        if name != "pattern" and not is_linear_map(module):
            kind = f"{type(module).__module__}.{type(module).__name__}"
            raise ValueError(
                f"{name} of attention is {names[name]!r}, in {layer_name} a {kind}, not a torch.nn.Linear. "
                f"{_linear_maps_text(layer, layer_name)}"
            )
    return modules


def _maps_with_usual_names(attention: nn.Module, name: str, layer_name: str) -> dict[str, Any]:
    """The maps of an attention by their usual names.

    Raises:
        ValueError: maps with other names.
    """
    paths = [path for path, module in attention.named_modules() if is_linear_map(module)]
    maps: dict[str, Any] = {}
    for key, usual_names in USUAL_NAMES.items():
        matches = [path for path in paths if _last_word(path) in usual_names.split()]
        if len(matches) == 1:
            maps[key] = attention.get_submodule(matches[0])
    if set(maps) not in KEYS:
        raise ValueError(
            f"attention is {name!r}, in {layer_name} a {type(attention).__name__} without a usual name for each map. "
            f"Name them: attention={{'q': ..., 'k': ..., 'v': ..., 'o': ...}}, or 'qkv' for one map to all three. "
            f"{_linear_maps_text(attention, f'{layer_name}.{name}', f'{name}.')}"
        )
    return maps


def _last_word(path: str) -> str:
    """The last name in a path that is no number, in small letters and without underscores."""
    names = [name for name in path.split(".") if not name.isdigit()]
    return names[-1].lower().replace("_", "") if names else ""


def _linear_maps_text(module: nn.Module, module_name: str, prefix: str = "") -> str:
    """The `Linear` maps of a module with their widths, in a sentence."""
    maps = []
    for path, child in module.named_modules():
        if is_linear_map(child):
            d_out, d_in = weight_of(child).shape
            maps.append(f"{prefix}{path} ({d_in} to {d_out})")
    return f"Linear maps of {module_name}, relative to the layer: {', '.join(maps) or 'none'}."


def n_heads_of(layer: nn.Module, maps: Mapping[str, nn.Module], n_heads: int | None, layer_name: str) -> int:
    """The number of heads, given or an attribute of the attention.

    Raises:
        ValueError: no number, or one that contradicts the attribute.
    """
    counts = _head_counts(layer, maps)
    if n_heads is None and counts:
        return next(iter(counts.values()))
    if n_heads is None or n_heads < 1:
        raise ValueError(f"n_heads is {n_heads}; with an attention made of Linear maps, give the number of heads.")
    if counts and n_heads not in counts.values():
        name, count = next(iter(counts.items()))
        raise ValueError(
            f"n_heads is {n_heads}, but the attention of {layer_name} has {name} = {count}: it must be {count}, not "
            f"{n_heads}. Leave n_heads out."
        )
    return n_heads


def _head_counts(layer: nn.Module, maps: Mapping[str, nn.Module]) -> dict[str, int]:
    """Usual attributes with the number of heads, of the smallest module that has all maps and such an attribute."""
    for module in reversed(list(layer.modules())):
        if not set(maps.values()) <= set(module.modules()):
            continue
        values = {name: getattr(module, name, None) for name in HEAD_COUNTS}
        counts = {name: value for name, value in values.items() if type(value) is int and value > 0}
        if counts:
            return counts
    return {}
