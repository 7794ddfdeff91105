"""Exact replacement of attention heads from one cached pass.

Replacing head h of layer l changes nothing before that layer's attention output. So one clean pass caches the input and
z of each layer; every intervention starts there: the model computes the attention output from the z of all heads, then
the rest of that layer and the layers after it. To add (z'_h - z_h) W_O,h to the clean attention output would be
cheaper, but leaves a rounding error where the terms cancel, which points at the clean answer where the logits without
the head are equal; and a wrapped model may norm or scale z W_O before it is added.

With b I on (`vo_identity`) a head's output is z_h W_O,h + b_h A_h x, of which z is only a part. In that case the whole
output takes the place of z, and v W_O + b x, a head's output for each key alone, takes the place of v.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import combinations
from typing import Any, cast

import torch
from einops import einsum, repeat
from jaxtyping import Float, Int
from torch import Tensor

from hooks.interventions.clean_pass import CleanPass, Net
from hooks.interventions.replacements import HeadInputs, Replacement
from hooks.interventions.set_tree import SetTree
from hooks.model.checked_hooks import storing_hooks
from hooks.model.layers import has_activation_hooks, has_hooks, take
from hooks.model.transformer import TransformerStack

EMBEDDING_POINT = "blocks.0.hook_resid_pre"
"""Where the output of the embedding is, position embeddings included."""
Head = tuple[int, int]
"""(layer, head)."""

NewOutput = Callable[[str, Float[Tensor, "batch pos *width"]], Float[Tensor, "#batch pos *width"]]
"""What is written instead, from the name of a hook point and what is written there."""


def every_head(model: Net) -> list[Head]:
    """(layer, head) of every head of a model."""
    return [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]


def head_output_point(cfg: Any) -> str:
    """The hook point of a layer that has each head's whole output: `hook_result` with b I on, else `hook_z`."""
    return "attn.hook_result" if cfg.vo_identity else "attn.hook_z"


def part_points(model: Net) -> list[str]:
    """Hook points of what all parts write: the embedding, and the heads and MLP of each layer."""
    points = [EMBEDDING_POINT]
    for layer in range(model.cfg.n_layers):
        points += [f"blocks.{layer}.{head_output_point(model.cfg)}"]
        points += [name for name in [f"blocks.{layer}.hook_mlp_out"] if name in model.hook_dict]
    return points


def projected_values(
    model: Net, layer: int, v: Float[Tensor, "batch pos head d_head"], resid: Float[Tensor, "batch pos d_model"]
) -> Float[Tensor, "batch pos head d_model"]:
    """Output of each head for each key alone: v W_O, plus b x with b I on.

    Args:
        model: Model with the heads.
        layer: Index of the layer.
        v: Values of the layer.
        resid: Input of the layer (`hook_resid_pre`).
    """
    sites: Any = model.blocks[layer]
    outputs = einsum(v, sites.attn.W_O, "b p h e, h e d -> b p h d")
    if not model.cfg.vo_identity:
        return outputs
    block = cast(TransformerStack, model).block(layer)
    b: Any = block.attention.b
    return outputs + b[:, None] * block.read(resid, sites)[:, :, None]


class AblationEngine(CleanPass):
    """One clean pass on a batch, from which any number of head replacements are computed.

    Args:
        model: Model with the heads. It is not changed.
        tokens: Token ids.
        read_at: Positions to return logits for; if None, all. Fewer positions cost less.
        patterns: Whether replacements may read patterns and values (`HeadInputs.mixed`). Without them, long sequences
            cost much less.
        inputs: Further arguments of the model's forward pass: `attention_mask`, `position_ids`.

    Raises:
        ValueError: a hook of the caller's at a point that the engine resumes from, where it would act twice or not at
            all.
    """

    further_points: tuple[str, ...] = ()
    """Further hook points of layers whose activations a subclass needs."""

    def __init__(
        self,
        model: Net,
        tokens: Int[Tensor, "batch pos"],
        *,
        read_at: Int[Tensor, "batch read"] | None = None,
        patterns: bool = True,
        **inputs: Any,
    ):
        _check_hooks(model)
        self._output_point = head_output_point(model.cfg)
        self._input_points = [*self.further_points]
        if patterns:
            self._input_points += ["attn.hook_v", "attn.hook_pattern"]
        # Where they cannot be read, replacements may use z only
        self._input_points = [point for point in self._input_points if _has_point(model, point)]
        if model.cfg.vo_identity and patterns:
            self._input_points.append("hook_resid_pre")
        # One clean pass, whose activations all interventions start from
        cached = (*self._input_points, self._output_point, "hook_resid_pre")

        def is_cached(name: str) -> bool:
            return name.startswith("blocks.") and name.endswith(cached)

        super().__init__(model, tokens, is_cached, read_at=read_at, **inputs)

    def heads(self, layer: int) -> HeadInputs:
        """Clean activations of one layer's heads."""
        return self._head_inputs(layer, self.cache)

    @torch.no_grad()
    def _head_inputs(self, layer: int, activations: Mapping[str, Tensor]) -> HeadInputs:
        prefix = f"blocks.{layer}."
        v = activations.get(prefix + "attn.hook_v")
        if v is not None and self.model.cfg.vo_identity:
            v = projected_values(self.model, layer, v, activations[prefix + "hook_resid_pre"])
        z = activations[prefix + self._output_point]
        return HeadInputs(z=z, v=v, pattern=activations.get(prefix + "attn.hook_pattern"))

    def each_head(
        self, replace: Replacement, chosen: Collection[Head] | None = None
    ) -> Iterator[tuple[Head, Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits with one head replaced, for each head in turn.

        Args:
            replace: New outputs of all heads of a layer.
            chosen: Heads to replace; if None, all.
        """
        for layer in range(self.model.cfg.n_layers):
            heads = [head for head in range(self.model.cfg.n_heads) if chosen is None or (layer, head) in chosen]
            if not heads:
                continue
            # The heads of a layer are replaced in copies of the batch, several per pass
            outputs_under = self._outputs_under(layer, replace, self.cache)
            for start in range(0, len(heads), self.copies_per_pass):
                heads_of_pass = heads[start : start + self.copies_per_pass]
                edits = [(head,) for head in heads_of_pass]
                logits_by_head, _ = self._run_copies(layer, outputs_under(edits), self.cache, ())
                for head, logits in zip(heads_of_pass, logits_by_head, strict=True):
                    yield (layer, head), logits

    def head_set(self, heads: Sequence[Head], replace: Replacement) -> Float[Tensor, "batch read d_vocab_out"]:
        """Logits with several heads replaced together, in any layers.

        The replacement in a layer is computed from activations under the edits of earlier layers.
        """
        return next(logits for _, logits in self.each_set([heads], replace))

    def every_subset(
        self, heads: Sequence[Head], replace: Replacement
    ) -> Iterator[tuple[tuple[Head, ...], Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits with each subset of these heads replaced, the empty one included; as `each_set`."""
        subsets = (subset for size in range(len(heads) + 1) for subset in combinations(heads, size))
        return self.each_set(subsets, replace)

    def each_set(
        self, sets: Iterable[Sequence[Head]], replace: Replacement
    ) -> Iterator[tuple[tuple[Head, ...], Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits with the heads of each set replaced together, as `head_set`, for many sets.

        Sets that agree in their first layers share the computation of these: each layer's activations are kept while
        sets that continue from them are computed, and no longer. So memory is bounded by the number of layers, whatever
        the number of sets.

        Args:
            sets: Sets of heads. Each distinct one is yielded once, as a sorted tuple, in another order.
            replace: New outputs of all heads of a layer.
        """
        # Arrange the sets by the layers in which they agree
        root = SetTree()
        for heads in sets:
            root.add(heads)
        if root.is_set:
            yield (), self.logits
        yield from self._sets_of_branch(root, (), self.cache, replace)

    def each_edit(
        self, sets: Sequence[Sequence[Head]], replace: Replacement
    ) -> Iterator[tuple[int, Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits with the heads of each set replaced together, with the index of the set; as `each_set`."""
        indices_of_set: dict[tuple[Head, ...], list[int]] = {}
        for index, heads in enumerate(sets):
            indices_of_set.setdefault(tuple(sorted(set(heads))), []).append(index)
        for heads, logits in self.each_set(sets, replace):
            for index in indices_of_set[heads]:
                yield index, logits

    def _sets_of_branch(
        self, branch: SetTree, earlier: tuple[Head, ...], activations: Mapping[str, Tensor], replace: Replacement
    ) -> Iterator[tuple[tuple[Head, ...], Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits of the sets of a branch, from the activations under the edits of earlier layers."""
        one_pass = self.model.pattern_before_z
        for layer, edits in branch.layers.items():
            outputs_under = self._outputs_under(layer, replace, activations)
            # Edits from which a single set continues, and those that several sets share or that are sets themselves
            single: dict[tuple[int, ...], dict[int, tuple[int, ...]]] = {}
            shared: list[tuple[int, ...]] = []
            for heads, next_branch in edits.items():
                later_edits = next_branch.only() if one_pass else None
                if later_edits is None:
                    shared.append(heads)
                else:
                    single[heads] = later_edits
            # A single set takes one pass
            for heads, later_edits in single.items():
                logits = self._edit_in_one_pass(layer, outputs_under([heads])[0], activations, later_edits, replace)
                later = [head for index, members in later_edits.items() for head in _with_layer(index, members)]
                yield (*earlier, *_with_layer(layer, heads), *later), logits
            # The others are edited in copies of the batch, and their later layers are stored for the sets after them
            for start in range(0, len(shared), self.copies_per_pass):
                edits_of_pass = shared[start : start + self.copies_per_pass]
                later_layers = {index for heads in edits_of_pass for index in edits[heads].all_layers()}
                logits, stored = self._run_copies(layer, outputs_under(edits_of_pass), activations, later_layers)
                for index, heads in enumerate(edits_of_pass):
                    edited = (*earlier, *_with_layer(layer, heads))
                    if edits[heads].is_set:
                        yield edited, logits[index]
                    if later_layers:
                        edited_activations = {name: values[index] for name, values in stored.items()}
                        yield from self._sets_of_branch(edits[heads], edited, edited_activations, replace)

    @torch.no_grad()
    def _outputs_under(
        self, layer: int, replace: Replacement, activations: Mapping[str, Tensor]
    ) -> Callable[[Sequence[tuple[int, ...]]], Float[Tensor, "edit batch query head width"]]:
        """A function from edits, the heads of each, to the outputs of all heads of a layer under them."""
        clean = self._head_inputs(layer, activations)
        outputs, new_outputs = clean.z, replace(layer, clean)
        # Of the last layer, only the positions that are read are computed
        is_last = layer == self.model.cfg.n_layers - 1
        if is_last and self.narrows:
            assert self.read_at is not None
            outputs, new_outputs = _take_rows(outputs, self.read_at), _take_rows(new_outputs, self.read_at)
        return partial(_edited, outputs, new_outputs)

    @torch.no_grad()
    def _run_copies(
        self,
        layer: int,
        outputs: Float[Tensor, "edit batch query head width"],
        activations: Mapping[str, Tensor],
        later_layers: Collection[int],
    ) -> tuple[Float[Tensor, "edit batch read d_vocab_out"], dict[str, Tensor]]:
        """Logits for several outputs of the heads of a layer, computed in copies of the batch; and the activations of
        later layers."""
        # Copies of the layer's input, one for each edit
        n_edits = len(outputs)
        resid = repeat(activations[f"blocks.{layer}.hook_resid_pre"], "b p d -> (e b) p d", e=n_edits)
        # What the sets after these start from is stored
        prefixes = tuple(f"blocks.{later}." for later in later_layers)
        names = [name for name in self.cache if name.startswith(prefixes)]
        stored: dict[str, Tensor] = {}
        # A later replacement needs all positions, of which the last layer has only those that are read
        in_last = self.model.cfg.n_layers - 1 in later_layers
        with self.model.hooks(storing_hooks(names, stored)) if names else nullcontext():
            logits = self.resume(resid, layer, z=outputs.flatten(0, 1), every_position=in_last)
        logits = logits.unflatten(0, (n_edits, -1))
        return logits, {name: values.unflatten(0, (n_edits, -1)) for name, values in stored.items()}

    @torch.no_grad()
    def _edit_in_one_pass(
        self,
        layer: int,
        outputs: Float[Tensor, "batch query head width"],
        activations: Mapping[str, Tensor],
        heads_by_layer: Mapping[int, tuple[int, ...]],
        replace: Replacement,
    ) -> Float[Tensor, "batch read d_vocab_out"]:
        """Logits of one set, in a single pass: the outputs of a layer's heads, and edits of later layers by hooks."""
        resid = activations[f"blocks.{layer}.hook_resid_pre"]
        with self.model.hooks(list(self._edit_hooks(heads_by_layer, replace))):
            # A replacement in the last layer needs all positions
            in_last = self.model.cfg.n_layers - 1 in heads_by_layer
            return self.resume(resid, layer, z=outputs, every_position=in_last)

    def _edit_hooks(
        self, heads_by_layer: Mapping[int, tuple[int, ...]], replace: Replacement
    ) -> Iterator[tuple[str, Callable]]:
        """Hooks that replace heads of later layers, from their activations under the earlier edits."""
        activations: dict[str, Tensor] = {}

        def edit(activation: Tensor, hook: Any) -> Tensor:
            activations[hook.name] = activation
            layer = hook.layer()
            heads = heads_by_layer[layer]
            outputs = replace(layer, self._head_inputs(layer, activations))
            edited = activation.clone()
            edited[:, :, heads] = outputs[:, :, heads]
            return edited

        for layer in heads_by_layer:
            yield from storing_hooks([f"blocks.{layer}.{name}" for name in self._input_points], activations)
            yield f"blocks.{layer}.{self._output_point}", edit


def _has_point(model: Net, point: str) -> bool:
    """Whether every layer has a hook point."""
    return all(f"blocks.{layer}.{point}" in model.hook_dict for layer in range(model.cfg.n_layers))


def _edited(
    outputs: Float[Tensor, "batch query head width"],
    new_outputs: Float[Tensor, "batch query head width"],
    edits: Sequence[tuple[int, ...]],
) -> Float[Tensor, "edit batch query head width"]:
    """Outputs of all heads, with those of the heads of each edit replaced."""
    edited = outputs.repeat(len(edits), 1, 1, 1, 1)
    for index, heads in enumerate(edits):
        edited[index, :, :, heads] = new_outputs[:, :, heads]
    return edited


def _take_rows(
    outputs: Float[Tensor, "batch pos head width"], positions: Int[Tensor, "batch row"]
) -> Float[Tensor, "batch row head width"]:
    """Outputs of heads at these positions."""
    return take(outputs.flatten(2), positions).unflatten(2, outputs.shape[2:])


def _with_layer(layer: int, heads: tuple[int, ...]) -> tuple[Head, ...]:
    return tuple((layer, head) for head in heads)


def _check_hooks(model: Any) -> None:
    """Refuse hooks where passes resume: the input of a layer would be edited twice, the output of attention not."""
    for layer in range(model.cfg.n_layers):
        # The points from which passes resume, and where to attach the same hook instead
        previous = f"blocks.{layer - 1}.hook_resid_post" if layer else "hook_embed"
        prefix = f"blocks.{layer}."
        substitutes = {prefix + "hook_resid_pre": previous}
        if model.resumes_inside_layers:
            _check_hooks_of_attention(layer, model.block(layer).attention)
            substitutes[prefix + "hook_attn_out"] = prefix + "attn.hook_z"
            if not model.cfg.vo_identity:  # with b I it is where heads are replaced
                substitutes[prefix + "attn.hook_result"] = prefix + "attn.hook_z"
        for name, substitute in substitutes.items():
            if name in model.hook_dict and has_hooks(model.hook_dict[name]):
                raise ValueError(
                    f"a hook is attached to {name}, from which ablation resumes. Remove it, or attach it to "
                    f"{substitute}."
                )


def _check_hooks_of_attention(layer: int, attention: Any) -> None:
    """Refuse torch hooks on the attention of a layer, whose output is computed without it."""
    if has_activation_hooks(attention) or has_activation_hooks(attention.o):
        raise ValueError(
            f"a torch hook is attached to the attention of layer {layer}, which replaced heads do not pass. Remove "
            f"it, or attach it to blocks.{layer}.attn.hook_z."
        )
