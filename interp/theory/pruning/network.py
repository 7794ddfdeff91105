"""Random networks to prune: four times the depth of the target, all weights uniform."""

import copy
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils import prune

from hooks import Transformer, TransformerConfig
from hooks.checks import check_number
from hooks.model.blocks import ExtendedBlock
from hooks.model.layers import Linear
from hooks.typed import checks_types
from interp.theory.pruning.subset_sum import rows_needed

LAYERS_PER_LAYER = 4
"""Theorem 3: of 4 L random layers, two make up each layer of the target; the others become the identity."""
COPIES_OF_THE_STREAM = 4
"""Width of the random stream, in units of the target's width plus one. Three copies are used; the rest leaves a choice
of rows for the residual."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Position of the target's stream in the random network's, and the number of candidates per weight."""

    width: int
    """d_model of the target."""
    hidden: int
    """Hidden units of the projections that the random MLPs are pruned to."""
    n_heads: int
    candidates: int

    @property
    def stream(self) -> slice:
        """The target's stream, then the coordinate that is 1."""
        return slice(0, self.width + 1)

    @property
    def normed(self) -> slice:
        """Output of the norm."""
        return slice(self.width + 1, 2 * self.width + 1)

    @property
    def written(self) -> slice:
        """Rows that attention writes to: those of `normed`, then minus the same, so that the norm's input has mean zero
        at any width."""
        return slice(self.width + 1, 3 * self.width + 1)

    @property
    def d_model(self) -> int:
        return COPIES_OF_THE_STREAM * (self.width + 1)

    @property
    def d_head(self) -> int:
        return (self.width + 1) * self.candidates

    @property
    def d_mlp(self) -> int:
        """Rows for the stream and the normed part, both signs each, or for the hidden units, which have one sign."""
        return rows_needed(max(2 * (2 * self.width + 1), self.hidden), self.candidates)


def layout_of(cfg: TransformerConfig, candidates: int) -> Layout:
    """The layout for a target of this config."""
    hidden = max(cfg.d_mlp or 0, 2 * cfg.d_model) + 2
    return Layout(width=cfg.d_model, hidden=hidden, n_heads=cfg.n_heads, candidates=candidates)


@checks_types
def random_network(
    cfg: TransformerConfig, *, candidates: int = 28, n_layers: int | None = None, scale: float = 1.0, seed: int = 0
) -> Transformer:
    """A random transformer large enough to be pruned to any target of this config.

    Args:
        cfg: Config of the target.
        candidates: Random numbers to choose from, for each weight of the target.
        n_layers: Number of layers; if None, four times the target's.
        scale: Bound on products of two weights, which are drawn from U(-sqrt(scale), sqrt(scale)).
        seed: Seed of the weights.

    Raises:
        ValueError: fewer than one candidate or layer, or a scale that is not positive.

    Source: bounded Dyck (arXiv:2312.01429) Theorem 3. Differs: widths follow from the number of candidates per
    weight, which is logarithmic in the error.
    """
    check_number("scale", scale, above=0)
    # Weights from U(-1, 1), scaled below
    layout = layout_of(cfg, candidates)
    model = Transformer(
        TransformerConfig(
            d_vocab=cfg.d_vocab,
            d_vocab_out=cfg.d_vocab_out,
            d_model=layout.d_model,
            n_heads=cfg.n_heads,
            d_head=layout.d_head,
            d_mlp=layout.d_mlp,
            n_layers=LAYERS_PER_LAYER * cfg.n_layers if n_layers is None else n_layers,
            n_ctx=cfg.n_ctx,
            block="extended",
            attention=cfg.attention,
            positions="none" if cfg.positions == "none" else "learned",
            attn_scale=1.0,
            attn_bias=False,
            layer_norm_eps=_norm_eps(cfg, layout.d_model),
            init="uniform",
        ),
        seed=seed,
    )
    with torch.no_grad():
        for weight in model.weights.parameters():
            if weight.ndim == 2:
                weight.mul_(scale**0.5)
    return model.eval().requires_grad_(False)


def scale_of(network: Transformer) -> float:
    """The largest product of two weights of a random network, in absolute value."""
    return max(float(module.weight.abs().max()) for module in linears(network).values()) ** 2


def check_network(network: Transformer, cfg: TransformerConfig, candidates: int) -> None:
    """Raise ValueError if a random network is too small for a target of this config, or of another shape."""
    layout = layout_of(cfg, candidates)
    # Sizes that must not be smaller
    least_sizes = {
        "n_layers": LAYERS_PER_LAYER * cfg.n_layers,
        "d_model": 3 * cfg.d_model + 1,
        "d_head": layout.d_head,
        "d_mlp": layout.d_mlp,
        "n_ctx": cfg.n_ctx if cfg.positions != "none" else 1,
    }
    for name, least in least_sizes.items():
        size = getattr(network.cfg, name)
        if size < least:
            raise ValueError(
                f"the random network has {name} {size}; with {candidates} candidates per weight this target needs "
                f"{least}. Make a larger one with random_network(target.cfg, candidates={candidates})."
            )
    # Settings that must be the target's
    equal_settings = {name: getattr(cfg, name) for name in ("d_vocab", "d_vocab_out", "n_heads", "attention")}
    equal_settings["block"] = "extended"
    equal_settings["positions"] = "none" if cfg.positions == "none" else "learned"
    equal_settings["layer_norm_eps"] = _norm_eps(cfg, network.cfg.d_model)
    for name, value in equal_settings.items():
        if getattr(network.cfg, name) != value:
            raise ValueError(
                f"the random network has {name}={getattr(network.cfg, name)!r}; this target needs {value!r}."
            )


def _norm_eps(cfg: TransformerConfig, d_model: int) -> float:
    """The wide stream has the target's values twice, once mirrored, and zeros elsewhere: its variance is smaller."""
    return cfg.layer_norm_eps * 2 * cfg.d_model / d_model


@torch.no_grad()
def copy_embeddings(network: Transformer, target: Transformer) -> None:
    """Copy the target's embeddings and unembedding into a pruned network, as the theorem does."""
    width = target.cfg.d_model
    embed, positions, unembed = cast(Any, (network.embed, network.positions, network.unembed))
    # The stream, then the coordinate that is 1, then zeros
    embed.weight.zero_()
    embed.weight[:, :width] = target.W_E
    embed.weight[:, width] = 1
    if positions is not None and target.positions is not None:
        n_ctx = target.cfg.n_ctx
        positions.weight.zero_()
        positions.weight[:n_ctx, :width] = target.positions(torch.arange(n_ctx)[None])[0]
    unembed.weight.zero_()
    unembed.weight[:, :width] = target.W_U.T
    unembed.bias.copy_(target.b_U)


def widened(network: Transformer, stream: Float[Tensor, "batch pos width"]) -> Float[Tensor, "batch pos d_model"]:
    """The target's stream in the random network: the stream, a 1, then zeros."""
    n_zeros = network.cfg.d_model - stream.shape[-1] - 1
    return torch.cat([stream, torch.ones_like(stream[..., :1]), stream.new_zeros(*stream.shape[:-1], n_zeros)], -1)


def random_layers(network: Transformer) -> list[ExtendedBlock]:
    """The layers of a random network."""
    return [cast(ExtendedBlock, block) for block in network.stored_blocks]


def linears(network: nn.Module) -> dict[str, Linear]:
    """The random matrices of a network, by module name."""
    return {
        name: module for name, module in network.named_modules() if isinstance(module, Linear) and name != "unembed"
    }


def apply_masks(network: nn.Module, masks: dict[str, Tensor]) -> None:
    """Prune with `torch.nn.utils.prune`: `weight_orig` is unchanged, `weight_mask` marks what is kept."""
    for name, mask in masks.items():
        prune.custom_from_mask(network.get_submodule(name), "weight", mask)


def masks_of(network: nn.Module) -> dict[str, Tensor]:
    """The masks of a pruned network, by name of the matrix's module."""
    return {
        name: module.get_buffer("weight_mask")
        for name, module in network.named_modules()
        if hasattr(module, "weight_mask")
    }


@torch.no_grad()
def trimmed(network: Transformer) -> Transformer:
    """The same function in float64 without dead hidden units; errors are measured on this copy."""
    small = copy.deepcopy(network)
    # Make the masks permanent
    for module in linears(small).values():
        if prune.is_pruned(module):
            prune.remove(module, "weight")
        module.weight.requires_grad_(False)
    # A hidden unit is dead if no weight enters or none leaves it
    for block in random_layers(small):
        mlp = block.mlp
        assert mlp is not None
        _keep_units(mlp.w_2, mlp.w_3, mlp.w_2.weight.any(1))
        for first, second in ((mlp.w_in, mlp.w_2), (mlp.w_3, mlp.w_out)):
            _keep_units(first, second, first.weight.any(1) & second.weight.any(0))
    return small.double()


def _keep_units(first: Linear, second: Linear, live: Bool[Tensor, " unit"]) -> None:
    first.weight = nn.Parameter(first.weight[live], requires_grad=False)
    second.weight = nn.Parameter(second.weight[:, live], requires_grad=False)
