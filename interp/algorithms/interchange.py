"""Interchange of activations between pairs of inputs, at any hook point and place, from one cached pass each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import BridgeModel
from hooks.checks import check_choice, check_class, check_number
from hooks.interventions.ablation_engine import TOKENS_PER_PASS, Net, head_output_point
from hooks.model.layers import take
from interp.core.activations import chunks
from interp.core.devices import device_of
from interp.tasks.base import Batch, Task

SiteKind = Literal["resid", "attn_out", "mlp_out", "z"]
"""The residual stream before each layer and after the last, what attention or the MLP adds, and one head's output."""
KINDS: tuple[SiteKind, ...] = get_args(SiteKind)
Read = Callable[[Float[Tensor, "batch target d_vocab_out"]], Int[Tensor, "batch target"]]
"""How answers are read from the logits at the targets."""


@dataclass(frozen=True)
class Site:
    """A hook point whose activations are interchanged."""

    kind: SiteKind
    layer: int
    """The layer; for the residual stream the layer that reads it, n_layers for the read-out."""
    head: int | None = None
    """For `z`: the head."""
    coordinates: tuple[int, ...] | None = None
    """Coordinates of the activation that are interchanged; None for all."""

    def __str__(self) -> str:
        head = "" if self.head is None else f".{self.head}"
        return f"{self.kind} {self.layer}{head}{'' if self.coordinates is None else '*'}"


@dataclass(frozen=True)
class Place:
    """Positions of both inputs of each pair."""

    name: str
    base: Int[Tensor, "pair some"]
    source: Int[Tensor, "pair some"]
    """-1 where an input of the pair does not have the place."""

    @property
    def exists(self) -> Tensor:
        """Pairs in which both inputs have it."""
        return ((self.base >= 0) & (self.source >= 0)).all(1)


def sites_of(net: Net, kinds: Sequence[SiteKind]) -> list[Site]:
    """Every site of these kinds, in the order of the computation."""
    n_layers, heads = net.cfg.n_layers, range(net.cfg.n_heads)
    found: list[Site] = []
    for layer in range(n_layers + 1):
        for kind in kinds:
            if kind == "resid":
                found.append(Site(kind, layer))
            elif layer < n_layers:
                found += [Site(kind, layer, head) for head in heads] if kind == "z" else [Site(kind, layer)]
    return found


def check_site(name: str, site: Any, net: Net) -> None:
    """Check that a model has the site of a variable.

    Raises:
        ValueError: another kind, a layer, head or coordinate that the model does not have, or a head of no `z`.
    """
    check_class(f"sites[{name!r}]", site, Site)
    check_choice(f"sites[{name!r}].kind", site.kind, SiteKind)
    check_kind(site.kind, net)
    last = net.cfg.n_layers if site.kind == "resid" else net.cfg.n_layers - 1
    check_number(f"sites[{name!r}].layer", site.layer, whole=True, low=0, high=last)
    if (site.head is not None) != (site.kind == "z"):
        raise ValueError(f"sites[{name!r}] is {site}; give a head for the kind 'z', and for no other.")
    if site.head is not None:
        check_number(f"sites[{name!r}].head", site.head, whole=True, low=0, high=net.cfg.n_heads - 1)
    width = net.cfg.d_head if site.kind == "z" else net.cfg.d_model
    for one in site.coordinates or ():
        check_number(f"sites[{name!r}].coordinates", one, whole=True, low=0, high=width - 1)


def check_kind(kind: SiteKind, net: Net) -> None:
    """Check that a model has hook points of a kind.

    Raises:
        ValueError: it has none.
    """
    if kind != "mlp_out":
        return  # `prepare_model` has checked the others
    if isinstance(net, BridgeModel):
        lacks = bool(net.capabilities.lacks({"hook_mlp_out": ("read", "edit")}))
    else:
        lacks = "blocks.0.hook_mlp_out" not in net.hook_dict
    if lacks:
        raise ValueError("sites has 'mlp_out', but this model has no hook_mlp_out; use resid, attn_out or z.")


class Interchange:
    """Answers to base inputs with activations of source inputs.

    Args:
        net: Model to intervene on. It is not changed.
        task: Source of the batches.
        base: Inputs to answer.
        source: For each, the input whose activations it gets.
        kinds: Kinds of sites that will be interchanged.
    """

    def __init__(self, net: Net, task: Task, base: Batch, source: Batch, kinds: Sequence[SiteKind]):
        self.net, self.base = net, base
        self._z = head_output_point(net.cfg)
        layers = range(net.cfg.n_layers)
        names = [f"blocks.{layer}.hook_resid_pre" for layer in layers]
        names += [f"blocks.{layer}.hook_resid_post" for layer in layers[-1:]]
        names += [self.point(site) for site in sites_of(net, [kind for kind in kinds if kind != "resid"])]
        names = list(dict.fromkeys(names))
        per_pass = max(1, TOKENS_PER_PASS // base.tokens.shape[1])
        with torch.no_grad():
            self._parts = list(self._cached(base, names, per_pass))
            self._sources = list(self._cached(source, names, per_pass))
        self.logits = torch.cat([logits for _, _, logits in self._parts])
        self.source_logits = torch.cat([logits for _, _, logits in self._sources])

    def point(self, site: Site) -> str:
        """Name of the hook point of a site."""
        if site.kind == "resid":
            last = site.layer == self.net.cfg.n_layers
            return f"blocks.{site.layer - last}.hook_resid_{'post' if last else 'pre'}"
        return f"blocks.{site.layer}.{self._z if site.kind == 'z' else 'hook_' + site.kind}"

    def _cached(self, batch: Batch, names: list[str], size: int) -> Iterator[tuple[Batch, dict[str, Tensor], Tensor]]:
        device = device_of(self.net)
        for part in chunks(batch, size):
            part = part.to(device)
            inputs: dict[str, Any] = part.model_inputs()
            logits, cache = self.net.run_with_cache(part.tokens, **inputs, names_filter=names)
            yield part, dict(cache.cache_dict), take(logits, part.target_positions)

    def activations(self, site: Site, place: Place) -> tuple[Float[Tensor, "pair width"], Float[Tensor, "pair width"]]:
        """Activations of base and source at a place, its positions side by side; zero where it is missing."""
        found = []
        for parts, at in ((self._parts, place.base), (self._sources, place.source)):
            rows, start = [], 0
            for part, cache, _ in parts:
                here = at[start : start + len(part)]
                values = _at(self._values(cache, site), here.clamp_min(0))
                rows.append((values * (here >= 0)[..., None]).flatten(1).cpu())
                start += len(part)
            found.append(torch.cat(rows))
        return found[0], found[1]

    def _values(self, cache: dict[str, Tensor], site: Site) -> Float[Tensor, "pair pos width"]:
        values = cache[self.point(site)]
        return values if site.head is None else values[:, :, site.head]

    def parts(
        self,
        site: Site,
        place: Place,
        basis: Callable[[], Float[Tensor, "width rank"] | None],
        first: int | None = None,
    ) -> Iterator[tuple[int, Float[Tensor, "part target d_vocab_out"]]]:
        """Logits at the targets with the source's activations at a site and place, for some pairs after the other.

        Args:
            site: What is interchanged.
            place: Where.
            basis: Gives an orthonormal basis of the subspace that is interchanged, or None for all of it.
            first: Only parts that start before this pair; if None, all.

        Yields:
            Index of the first pair of a part, and its logits.
        """
        start = 0
        for (part, own, _), (_, given, _) in zip(self._parts, self._sources, strict=True):
            if first is not None and start >= first:
                return
            rows = slice(start, start + len(part))
            here = Place(place.name, place.base[rows], place.source[rows])
            yield start, self._one(part, own, given, site, here, basis())
            start += len(part)

    def answers(self, site: Site, place: Place, read: Read, basis: Tensor | None = None) -> Int[Tensor, "pair target"]:
        """Answers at the targets of all pairs, with the source's activations at a site and place."""
        with torch.no_grad():
            return torch.cat([read(logits).cpu() for _, logits in self.parts(site, place, lambda: basis)])

    def _one(self, part: Batch, own: dict, given: dict, site: Site, place: Place, basis: Tensor | None) -> Tensor:
        n_layers, name = self.net.cfg.n_layers, self.point(site)
        new = self._mixed(own[name], given[name], site, place, basis)
        read_at, start = part.target_positions, min(site.layer, n_layers)
        if site.kind == "resid":
            return self._resume(part, new, start, read_at)

        def replace(_: Tensor, hook: Any) -> Tensor:
            return new

        with self.net.hooks([(name, replace)]):
            logits = self._resume(part, own[f"blocks.{site.layer}.hook_resid_pre"], site.layer, None)
        return take(logits, read_at)

    def _mixed(self, own: Tensor, given: Tensor, site: Site, place: Place, basis: Tensor | None) -> Tensor:
        rows, exists = torch.arange(len(own))[:, None], place.exists[:, None, None].to(own.device)
        at, there = place.base.clamp_min(0).to(own.device), place.source.clamp_min(0).to(own.device)
        index = (rows, at) if site.head is None else (rows, at, site.head)
        source = given[(rows, there) if site.head is None else (rows, there, site.head)]
        change = source - own[index]
        if site.coordinates is not None:
            only = torch.zeros(change.shape[-1], dtype=torch.bool, device=change.device)
            only[list(site.coordinates)] = True
            change = change * only
        if basis is not None:
            flat, basis = change.flatten(1), basis.to(change)
            change = (flat @ basis @ basis.T).unflatten(1, change.shape[1:])
        mixed = own.clone()
        mixed[index] = own[index] + change * exists
        return mixed

    def _resume(self, part: Batch, resid: Tensor, layer: int, read_at: Tensor | None) -> Tensor:
        positions: dict[str, Any] = {}
        if isinstance(self.net, BridgeModel) and self.net.capabilities.positions_in_layers:
            positions["position_ids"] = part.position_ids
        return self.net.resume(
            resid, layer, tokens=part.tokens, attention_mask=part.attention_mask, read_at=read_at, **positions
        )


def _at(values: Float[Tensor, "pair pos width"], at: Int[Tensor, "pair some"]) -> Float[Tensor, "pair some width"]:
    return values[torch.arange(len(values))[:, None], at]
