"""Interchange: set activations of base inputs to those of source inputs, and compute what the outputs become.

`probe(verify=True)` and `audit_probe` interchange the residual stream along class directions
(`interp/probing/directions.py`); `implements` interchanges the variables of an algorithm (`interp/algorithms`).

Source: interchange interventions, Geiger et al. 2021 (arXiv:2106.02997).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.interventions.ablation_engine import head_output_point
from hooks.interventions.clean_pass import TOKENS_PER_PASS, CleanPass, Net
from hooks.model.layers import has_hooks, is_hooked
from interp.core.activations import residual_names
from interp.core.devices import device_of
from interp.tasks.base import Batch
from interp.tasks.batch import check_finite_logits

SiteKind = Literal["resid", "attn_out", "mlp_out", "z"]
"""The residual stream before each layer and after the last, what attention or the MLP adds, and one head's output."""
SITE_KINDS: tuple[SiteKind, ...] = get_args(SiteKind)
Edit = Callable[[Float[Tensor, "pair width"], Float[Tensor, "pair width"]], Float[Tensor, "pair width"]]
"""New activations of base inputs, from those of the base and of the source."""
AnswersFromLogits = Callable[[Float[Tensor, "batch target d_vocab_out"]], Int[Tensor, "batch target"]]
"""Answers, from the logits at the targets."""


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
        marker = "" if self.coordinates is None else "*"
        return f"{self.kind} {self.layer}{head}{marker}"

    def hook_point(self, net: Net) -> str:
        """Name of the hook point in a model."""
        if self.kind == "resid":
            return residual_names(net)[self.layer]
        name = head_output_point(net.cfg) if self.kind == "z" else f"hook_{self.kind}"
        return f"blocks.{self.layer}.{name}"


@dataclass(frozen=True)
class Place:
    """Positions of every base and of every source input that have the same role."""

    name: str
    base: Int[Tensor, "base position"]
    source: Int[Tensor, "source position"]
    """-1 where an input does not have the place."""


@dataclass(frozen=True)
class Rows:
    """Pairs of inputs, as rows among the base inputs and among the source inputs."""

    base: Int[Tensor, " pair"]
    source: Int[Tensor, " pair"]

    def __len__(self) -> int:
        return len(self.base)

    def select(self, pairs: slice | Int[Tensor, " some"]) -> "Rows":
        """Some of the pairs."""
        return Rows(self.base[pairs], self.source[pairs])


def sites_of(net: Net, kinds: Sequence[SiteKind]) -> list[Site]:
    """Every site of these kinds, in the order of the computation."""
    sites: list[Site] = []
    for layer in range(net.cfg.n_layers + 1):
        for kind in kinds:
            # After the last layer there is only the residual stream.
            if layer == net.cfg.n_layers and kind != "resid":
                continue
            if kind == "z":
                sites += [Site(kind, layer, head) for head in range(net.cfg.n_heads)]
            else:
                sites.append(Site(kind, layer))
    return sites


def swap_whole(base: Float[Tensor, "pair width"], source: Float[Tensor, "pair width"]) -> Float[Tensor, "pair width"]:
    """The source's activations, with the rounding of an interchange in the subspace of all directions."""
    return base + (source - base)


class Recording(CleanPass):
    """A clean pass on some inputs, read at the targets, from which passes with other activations resume.

    Args:
        net: Model to intervene on. It is not changed.
        batch: The inputs.
        kinds: Kinds of sites that will be read or set.
        size: Number of inputs that are run at once; if None, all.

    Raises:
        ValueError: a hook of the caller's at the input of layer 0, where it would act twice.
    """

    def __init__(self, net: Net, batch: Batch, kinds: Sequence[SiteKind], *, size: int | None = None):
        if has_hooks(net.hook_dict["blocks.0.hook_resid_pre"]):
            raise ValueError(
                "a hook is attached to blocks.0.hook_resid_pre, from which the pass resumes and where it would act "
                "twice. Remove it, or attach it to hook_embed."
            )
        recorded = list(kinds)
        if "mlp_out" in kinds and net.resumes_inside_layers:
            recorded.append("attn_out")  # passes with another output of the MLP resume from it
        names = residual_names(net) + [site.hook_point(net) for site in sites_of(net, recorded)]
        batch = batch.to(device_of(net))
        inputs: dict[str, Any] = batch.model_inputs()
        super().__init__(net, batch.tokens, names, read_at=batch.target_positions, size=size, **inputs)
        check_finite_logits(self.logits)

    def activations(
        self, site: Site, positions: Int[Tensor, "row position"], rows: Any = slice(None)
    ) -> Float[Tensor, "row position *width"]:
        """Activations at a site and some positions, of all inputs or of the rows that are named; of all heads (head,
        width) where `z` names none."""
        values = self.cache[site.hook_point(self.model)][rows]
        if site.head is not None:
            values = values[:, :, site.head]
        return values[torch.arange(len(values))[:, None], positions.to(values.device)]

    def logits_with(
        self,
        site: Site,
        positions: Int[Tensor, "row position"],
        values: Float[Tensor, "row position width"],
        rows: Any = slice(None),
    ) -> Float[Tensor, "row target d_vocab_out"]:
        """Logits at the targets, with the activations at a site and some positions set to `values`."""
        # Until the next layer only the edited positions differ, and no others are computed.
        if site.kind != "resid" and self._is_unhooked(site.layer):
            values = self._stream_after(site, positions, values, rows)
            site = Site("resid", site.layer + 1)
        # Set the activations at the positions.
        edited = self.cache[site.hook_point(self.model)][rows].clone()
        values = values.to(edited)
        row_index = torch.arange(len(edited))[:, None]
        positions = positions.to(edited.device)
        if site.head is None:
            edited[row_index, positions] = values
        else:
            edited[row_index, positions, site.head] = values
        # Resume from the residual stream, or from the layer's input with a hook at the site.
        if site.kind == "resid":
            return self.resume(edited, site.layer, rows=rows)

        def replace(_: Tensor, hook: Any) -> Tensor:
            return edited

        # The hook replaces all positions, so the last layer must not be reduced to those that are read.
        resid = self.cache[residual_names(self.model)[site.layer]][rows]
        with self.model.hooks([(site.hook_point(self.model), replace)]):
            return self.resume(resid, site.layer, rows=rows, every_position=True)

    def _is_unhooked(self, layer: int) -> bool:
        """Whether a pass can start inside a layer, which has no hook that would see some positions only."""
        net: Any = self.model
        return net.resumes_inside_layers and not is_hooked(net.blocks[layer]) and not is_hooked(net.block(layer))

    def _stream_after(
        self,
        site: Site,
        positions: Int[Tensor, "row position"],
        values: Float[Tensor, "row position width"],
        rows: Any,
    ) -> Float[Tensor, "row position d_model"]:
        """The residual stream after the layer of a site, at the positions where its activations are set to `values`."""
        net: Any = self.model
        resid = self.activations(Site("resid", site.layer), positions, rows)
        values = values.to(resid)
        # The output of attention, with the edit or as it was.
        if site.kind == "z":
            outputs = self.activations(replace(site, head=None), positions, rows)
            outputs[:, :, site.head] = values
            attn_out = net.attention_output(site.layer, outputs)
        elif site.kind == "attn_out":
            attn_out = values
        else:
            attn_out = self.activations(Site("attn_out", site.layer), positions, rows)
        # The rest of the layer.
        edits = [(site.hook_point(net), lambda _, hook: values)] if site.kind == "mlp_out" else []
        with net.hooks(edits) if edits else nullcontext():
            return net.block(site.layer).write(resid, attn_out, net.blocks[site.layer])


class Interchange:
    """Outputs of base inputs with activations of source inputs, from one clean pass on each input.

    Args:
        net: Model to intervene on. It is not changed.
        base: Inputs to answer.
        sources: Inputs whose activations they get. The rows of several batches are counted on from one to the next.
        kinds: Kinds of sites that will be interchanged.
    """

    def __init__(self, net: Net, base: Batch, sources: Sequence[Batch], kinds: Sequence[SiteKind]):
        self._size = sequences_per_pass(base)
        self._base = Recording(net, base, kinds, size=self._size)
        self._sources = [Recording(net, source, kinds, size=sequences_per_pass(source)) for source in sources]
        self._first_rows = np.cumsum([0] + [len(recording.tokens) for recording in self._sources])
        self.logits = self._base.logits
        """Logits at the targets of the base inputs."""

    @property
    def source_logits(self) -> Float[Tensor, "source target d_vocab_out"]:
        """Logits at the targets of the source inputs."""
        return torch.cat([recording.logits for recording in self._sources])

    def activations(
        self, site: Site, place: Place, rows: Rows
    ) -> tuple[Float[Tensor, "pair width"], Float[Tensor, "pair width"]]:
        """Activations of base and source at a place, its positions side by side; zero where it is missing."""
        base = self._base.activations(site, place.base[rows.base].clamp_min(0), rows.base)
        source = self._source_activations(site, place.source[rows.source], rows.source)
        base = base * (place.base[rows.base] >= 0)[..., None].to(base.device)
        source = source * (place.source[rows.source] >= 0)[..., None].to(source.device)
        return base.flatten(1).cpu(), source.flatten(1).cpu()

    def _source_activations(
        self, site: Site, positions: Int[Tensor, "pair position"], rows: Int[Tensor, " pair"]
    ) -> Float[Tensor, "pair position width"]:
        """Activations of source inputs at some positions, each from the recording that it is in."""
        positions = positions.clamp_min(0)
        recording_of_row = np.searchsorted(self._first_rows, rows.numpy(), side="right") - 1
        groups, values = [], []
        for index in np.unique(recording_of_row).tolist():
            group = torch.from_numpy(np.flatnonzero(recording_of_row == index))
            row_in_recording = rows[group] - int(self._first_rows[index])
            groups.append(group)
            values.append(self._sources[index].activations(site, positions[group], row_in_recording))
        if not groups:
            return self.logits.new_empty(0, positions.shape[1], 0)
        # Back to the order of the pairs.
        return torch.cat(values)[torch.cat(groups).argsort().to(values[0].device)]

    def logits_by_chunk(
        self, site: Site, place: Place, rows: Rows, edit: Edit = swap_whole
    ) -> Iterator[tuple[slice, Float[Tensor, "chunk target d_vocab_out"]]]:
        """Logits at the targets with the source's activations at a site and place, for one chunk of pairs at a time.

        Args:
            site: What is interchanged.
            place: Where.
            rows: The pairs.
            edit: New activations from those of base and source, the positions of the place side by side; default: the
                source's. It is called for each chunk.

        Yields:
            The pairs of a chunk, and their logits.
        """
        return self._logits(site, rows, place.base[rows.base], place.source[rows.source], edit)

    def logits_at_places(
        self, site: Site, places: Sequence[Place], rows: Rows
    ) -> Iterator[tuple[int, slice, Float[Tensor, "chunk target d_vocab_out"]]]:
        """Logits at the targets with the source's activations at a site and each of several places in turn.

        Pairs and places are stacked along the batch. All places must have the same number of positions.

        Yields:
            The index of a place, some of the pairs, and their logits.
        """
        stacked = Rows(rows.base.repeat(len(places)), rows.source.repeat(len(places)))
        base = torch.cat([place.base[rows.base] for place in places])
        source = torch.cat([place.source[rows.source] for place in places])
        for chunk, logits in self._logits(site, stacked, base, source, lambda before, new: new):
            # A chunk may have pairs of several places.
            start = chunk.start
            while start < chunk.stop:
                index = start // len(rows)
                stop = min(chunk.stop, (index + 1) * len(rows))
                pairs = slice(start - index * len(rows), stop - index * len(rows))
                yield index, pairs, logits[start - chunk.start : stop - chunk.start]
                start = stop

    def _logits(
        self,
        site: Site,
        rows: Rows,
        base_positions: Int[Tensor, "pair position"],
        source_positions: Int[Tensor, "pair position"],
        edit: Edit,
    ) -> Iterator[tuple[slice, Float[Tensor, "chunk target d_vocab_out"]]]:
        """As `logits_by_chunk`, with the positions of each pair."""
        for start in range(0, len(rows), self._size):
            pairs = slice(start, min(start + self._size, len(rows)))
            chunk = rows.select(pairs)
            # Edited activations of the base inputs.
            positions = base_positions[pairs].clamp_min(0)
            before = self._base.activations(site, positions, chunk.base)
            source_values = self._source_activations(site, source_positions[pairs], chunk.source)
            new = edit(before.flatten(1), source_values.flatten(1)).view_as(before)
            # Use them only in pairs that have the place, and only at the coordinates of the site.
            exists = ((base_positions[pairs] >= 0) & (source_positions[pairs] >= 0)).all(1)
            replaced = exists[:, None, None].expand_as(before).to(before.device)
            if site.coordinates is not None:
                coordinates = torch.tensor(site.coordinates, device=before.device)
                replaced = replaced & torch.isin(torch.arange(before.shape[-1], device=before.device), coordinates)
            values = torch.where(replaced, new, before)
            yield pairs, self._base.logits_with(site, positions, values, chunk.base)

    def answers(
        self, site: Site, place: Place, rows: Rows, read_answers: AnswersFromLogits, edit: Edit = swap_whole
    ) -> Int[Tensor, "pair target"]:
        """Answers at the targets of pairs, with the source's activations at a site and place."""
        with torch.no_grad():
            answers = [read_answers(logits).cpu() for _, logits in self.logits_by_chunk(site, place, rows, edit)]
        n_targets = self.logits.shape[1]
        return torch.cat(answers) if answers else torch.zeros(0, n_targets, dtype=torch.long)


def sequences_per_pass(batch: Batch) -> int:
    """Number of sequences of a batch that are run at once in a pass that is resumed."""
    return max(1, TOKENS_PER_PASS // batch.tokens.shape[1])
