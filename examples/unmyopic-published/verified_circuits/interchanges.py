"""Interchanges between strings: whole states, or their components along fitted directions, at one site of the model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from case_studies.frame.packs import WeightFiles
from verified_circuits.files import read_model
from verified_circuits.model import PooledTransformer
from verified_circuits.pairs import Pairs
from verified_circuits.strings import BALANCED, Strings, every_string

Site = Literal["attention 0", "block 0", "block 1", "pooled"]
"""The output of attention in block 0, the residual stream after a block, and the sum over positions."""
SITES: tuple[Site, ...] = get_args(Site)
HOOK_POINTS: dict[Site, str] = {
    "attention 0": "blocks.0.hook_attn_out",
    "block 0": "blocks.0.hook_resid_post",
    "block 1": "blocks.1.hook_resid_post",
    "pooled": "hook_pooled",
}
STRINGS_PER_PASS = 4096
PAIRS_PER_PASS = 8192
RIDGE = 1e-6
"""Added to the residual covariance, as a share of its mean variance, so that it can be inverted."""
Edit = Callable[[Float[Tensor, "pair d_model"], Float[Tensor, "pair d_model"]], Float[Tensor, "pair d_model"]]
"""The new state of the base, from the states of base and source."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with every string that it reads."""

    model: PooledTransformer
    n: int
    """Number of tokens."""

    @property
    def strings(self) -> Strings:
        """All strings of its length."""
        return every_string(self.n)

    @torch.no_grad()
    def logits(self) -> Float[Tensor, "string output"]:
        """Logits of all strings, in double precision."""
        double = PooledTransformer(self.model.cfg)  # pyright: ignore[reportArgumentType]
        double.load_state_dict(self.model.state_dict())
        double.double().eval()
        passes = self.strings.tokens.split(STRINGS_PER_PASS)
        return torch.cat([double(tokens)[:, 0] for tokens in passes])

    @torch.no_grad()
    def answers(
        self, pairs: Pairs, site: Site, states: Float[Tensor, "string *pos d_model"], edit: Edit
    ) -> Bool[Tensor, " pair"]:
        """Whether the model takes the base of each pair for balanced, with its state at the site edited.

        Args:
            pairs: Bases, sources and positions.
            site: Where to edit.
            states: Activations of all strings at the site.
            edit: The new state.
        """
        answers = torch.empty(len(pairs), dtype=torch.bool)
        for position in pairs.position.unique().tolist():
            rows_here = (pairs.position == position).nonzero()[:, 0]
            for rows in rows_here.split(PAIRS_PER_PASS):
                base, source = pairs.base[rows], pairs.source[rows]
                at_position = () if site == "pooled" else (position,)
                new_states = edit(states[(base, *at_position)], states[(source, *at_position)]).to(states)
                pooled = self._pooled_with(site, base, position, new_states)
                answers[rows] = self.model.read_out(pooled).argmax(-1) == BALANCED
        return answers

    def _pooled_with(
        self, site: Site, base: Int[Tensor, " pair"], position: int, new_states: Float[Tensor, "pair d_model"]
    ) -> Float[Tensor, "pair d_model"]:
        """The pooled vector of strings with their state at a site and position set to another.

        Only what depends on that state is computed again: the positions from it on.
        """
        if site == "pooled":
            return new_states
        blocks: Any = self.model.blocks
        last_states = states_at(self, "block 1")[base, position:]
        unchanged = states_at(self, "pooled")[base] - last_states.sum(1)
        if site == "block 1":
            return unchanged + last_states[:, 1:].sum(1) + new_states
        if site == "attention 0":
            embedded = self.model.embed_tokens(self.strings.tokens[base])[:, position]
            new_states = blocks[0].add_mlp(embedded + new_states)
        stream = states_at(self, "block 0")[base]
        stream[:, position] = new_states
        return unchanged + blocks[1](stream, first_query=position).sum(1)


@cache
def read_subject(files: WeightFiles, n: int) -> Subject:
    """The model of a weight file, on all its strings.

    Raises:
        ValueError: the file is wrong, or its model reads strings of another length.
    """
    model = read_model(files)
    n_ctx = model.cfg.n_ctx  # pyright: ignore[reportAttributeAccessIssue]
    if n_ctx != n:
        raise ValueError(f"{files.paths[0]} has cfg.n {n_ctx}; the study expects {n}.")
    return Subject(model, n)


@lru_cache(maxsize=4)
@torch.no_grad()
def states_at(subject: Subject, site: Site) -> Float[Tensor, "string *pos d_model"]:
    """Activations of all strings at a site; (string, d_model) for the pooled vector."""
    name = HOOK_POINTS[site]
    activations = []
    for tokens in subject.strings.tokens.split(STRINGS_PER_PASS):
        _, activation_cache = subject.model.run_with_cache(tokens, names_filter=name)
        activations.append(activation_cache[name])
    return torch.cat(activations)


def whole(base: Tensor, source: Tensor) -> Tensor:
    """The source's state."""
    return source


@dataclass(frozen=True, eq=False)
class Directions:
    """Directions along which variables are encoded, and how each variable is read.

    A state is its mean at the position, plus each variable times its direction, plus a residual, by least squares over
    all strings and positions. Variables are read with the least noise that the residuals leave, such that a step of one
    along a variable's direction is read as a step of one of this variable and of none other (generalised least
    squares).
    """

    encodings: Float[Tensor, "variable d_model"]
    readers: Float[Tensor, "d_model variable"]
    probes: Float[Tensor, "d_model variable"]
    """Weights of linear probes: each variable by least squares from the states."""

    def move(self, moved: Sequence[int]) -> Edit:
        """Set what is read of some variables to what is read in the source, along their directions."""
        columns = list(moved)

        def edit(base: Tensor, source: Tensor) -> Tensor:
            difference = (source - base).double()
            return base.double() + difference @ self.readers[:, columns] @ self.encodings[columns]

        return edit

    def move_probes(self, moved: Sequence[int]) -> Edit:
        """Set what probes read of some variables to the source's, and keep the others, by the smallest change."""
        columns = list(moved)
        smallest = torch.linalg.pinv(self.probes)

        def edit(base: Tensor, source: Tensor) -> Tensor:
            difference = (source - base).double()
            return base.double() + difference @ self.probes[:, columns] @ smallest[columns]

        return edit


def fit_directions(
    states: Float[Tensor, "string *pos d_model"], variables: Int[Tensor, "string *pos variable"]
) -> Directions:
    """Fit directions to states, each position about its own mean."""
    if states.ndim == 2:
        states, variables = states[:, None], variables[:, None]
    n_variables, width = variables.shape[2], states.shape[2]
    # Moments of variables and states about their means at each position
    state_means = torch.stack([states[:, index].double().mean(0) for index in range(states.shape[1])])
    variable_means = variables.double().mean(0)
    size = n_variables + width
    moments = torch.zeros(size, size, dtype=torch.float64)
    for rows in torch.arange(len(states)).split(STRINGS_PER_PASS):
        centred_states = states[rows].double() - state_means
        centred_variables = variables[rows].double() - variable_means
        joint = torch.cat([centred_variables, centred_states], 2).flatten(0, 1)
        moments += joint.T @ joint
    moments /= states.shape[0] * states.shape[1]
    of_variables, of_states = moments[:n_variables, :n_variables], moments[n_variables:, n_variables:]
    shared = moments[:n_variables, n_variables:]
    # Directions by least squares, and the covariance of what they leave
    encodings = torch.linalg.pinv(of_variables, hermitian=True) @ shared
    residual = of_states - encodings.T @ of_variables @ encodings
    residual = residual + RIDGE * of_states.diagonal().mean() * torch.eye(width, dtype=torch.float64)
    weighted = torch.linalg.solve(residual, encodings.T)
    readers = weighted @ torch.linalg.pinv(encodings @ weighted)
    probes = torch.linalg.pinv(of_states, hermitian=True) @ shared.T
    return Directions(encodings, readers, probes)


def position_variables(strings: Strings) -> Int[Tensor, "string pos 3"]:
    """Flag, bracket (1 or -1) and running depth of each position: what the stated circuit has there."""
    return torch.stack([strings.flags, strings.signs, strings.depth], 2)


def pooled_variables(strings: Strings) -> Int[Tensor, "string 2"]:
    """Final depth and number of violations."""
    return torch.stack([strings.total, strings.violations], 1)


FLAG, BRACKET, DEPTH = 0, 1, 2
"""Columns of `position_variables`."""
TOTAL, VIOLATIONS = 0, 1
"""Columns of `pooled_variables`."""
