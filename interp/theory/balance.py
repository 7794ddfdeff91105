"""Balance condition of bounded Dyck: how far matched brackets are from cancelling in attention.

In the order of the paper: u of Eq. 12 is `contributions`, S of Eq. 15 is `pair_norms`, P of Eq. 17 is `least_signals`;
`balance_violation` is S / P.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from hooks import Transformer, TransformerStack
from hooks.model.layers import Linear
from hooks.state import restores_state
from hooks.typed import MAY_BE_INFINITE, SHARE, SIZE, checks_types
from interp.core.results import Result
from interp.core.verbs import Needs, prepare_model
from interp.tasks.dyck.brackets import START, closer, opener
from interp.tasks.dyck.task import Dyck

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

Pairing = Literal["mirrored", "released"]
MOST_STRINGS = 1 << 20
"""Largest number of strings of open brackets over which P is the minimum."""
TINY = 1e-300
"""Least denominator, against division by zero."""


@dataclass(frozen=True, kw_only=True)
class BalanceResult(Result):
    """Balance violation for every query and pair of brackets. It is exact: nothing is sampled.

    Axes: `query_depth` brackets around the query's pair, from 1 (with mirrored pairs, those open after the query);
    `query_type` type of the query; `pair_depth` depth of the pair's opener, from 1; `pair_type` type of the pair.
    """

    pairing: str
    """`mirrored`, or `released` for the pairs and queries in the paper's code."""
    ratio: Annotated[Float[np.ndarray, "query_depth query_type pair_depth pair_type"], SIZE, MAY_BE_INFINITE]
    """S / P: contribution of a matched pair over the least signal. 0 is balanced; there is no upper limit."""
    bounded: Annotated[Float[np.ndarray, "query_depth query_type pair_depth pair_type"], SHARE]
    """S over the sum of the norms of its two terms, 0 to 1."""
    decision: Float[np.ndarray, "query_depth query_type pair_depth pair_type"] | None
    """Effect of a pair on the logit difference of two closers, over the effect of the innermost open bracket's type;
    mean over pairs of types. None with an MLP, which makes the effect nonlinear."""
    signal: Annotated[Float[np.ndarray, "query_depth query_type"], SIZE]
    """P, in units of the unnormalised attention output."""
    released: Annotated[float, SIZE]
    """Average of the released code: mean over queries of the largest S over the least norm of any open string. With
    `released` pairs it is the figure that the code prints."""

    @property
    def violation(self) -> float:
        """Mean of S / P over queries and pairs."""
        return float(self.ratio.mean())

    @property
    def n(self) -> int:
        """Number of combinations of query and pair."""
        return self.ratio.size

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per query and pair."""
        depths, types, pair_depths, pair_types = self.ratio.shape
        axes = {
            "query_depth": range(1, depths + 1),
            "query_type": range(types),
            "pair_depth": range(1, pair_depths + 1),
            "pair_type": range(pair_types),
        }
        decision = {} if self.decision is None else {"decision": self.decision}
        return self._table(axes, "ratio", "bounded", **decision)

    def plot(self) -> "alt.TopLevelMixin":
        """Heatmaps of S / P by pair depth and query depth, one per type of pair, mean over types of query."""
        from interp.view.charts import heatmaps

        maps = self.ratio.mean(1).transpose(2, 1, 0)  # (pair_type, pair_depth, query_depth)
        return heatmaps(
            {f"pair type {kind}": values for kind, values in enumerate(maps)},
            x=[str(depth + 1) for depth in range(maps.shape[2])],
            x_title="brackets around the query",
            y_title="depth of the pair",
            title=f"balance violation S / P, {self.pairing}, mean {self.violation:.3f}",
            value="S / P",
            domain=(0.0, max(1.0, float(maps.max()))),
            y=[str(depth + 1) for depth in range(maps.shape[1])],
        )

    def __str__(self) -> str:
        lines = [
            f"balance violation, {self.pairing} pairs, {self.n} combinations of query and pair",
            f"  mean S / P           {self.violation:.4f}  (largest {self.ratio.max():.4f})",
            f"  released average     {self.released:.4f}",
            f"  bounded              {self.bounded.mean():.4f}",
        ]
        if self.decision is not None:
            lines.append(f"  share of a decision  {self.decision.mean():.4f}  (largest {self.decision.max():.4f})")
        return "\n".join(lines)


def _lacks_minimal_layer(model: TransformerStack) -> str:
    """What a model lacks for the balance condition, which is about one layer with one head over bracket and depth."""
    cfg = model.cfg
    advice = "Make one with interp.config_for(task, 'dyck_minimal')."
    if cfg.embedding is None:
        return (
            f"the model's first layer is not minimal: it embeds tokens, not (bracket, depth), and has {cfg.n_layers} "
            f"layers. The balance condition needs one layer over a minimal first layer. {advice}"
        )
    # One layer of one head, whose output is a sum over keys
    faults = {
        f"it has {cfg.n_layers} layers, not one": cfg.n_layers != 1,
        f"it has {cfg.n_heads} heads, not one": cfg.n_heads != 1,
        f"it has positions {cfg.positions!r}, not 'none'": cfg.positions != "none",
        f"its block is {cfg.block!r}, not 'minimal' or 'dyck'": cfg.block not in ("minimal", "dyck"),
        "its output projection has a bias": bool(model.block(0).attention.o.bias_or_zero.any()),
        "it has b I": cfg.vo_identity,
        "its head is hard-coded and not uniform": any(pattern.kind != "uniform" for pattern in cfg.patterns_of(0)),
    }
    for fault, is_faulty in faults.items():
        if is_faulty:
            return f"the balance condition cannot be computed for this model: {fault}. {advice}"
    return ""


NEEDS = Needs(
    "balance_violation",
    only_transformer="it is defined for one layer over frozen vectors of bracket and depth (presets.dyck_minimal)",
    lacks=_lacks_minimal_layer,
)


@checks_types
@restores_state
@torch.no_grad()
def balance_violation(model: Transformer, task: Dyck, *, pairing: Pairing = "mirrored") -> BalanceResult:
    """Balance violation of a one-layer Dyck model: what matched brackets add to attention, relative to the signal.

    The query is a closer of type j after which d brackets are open; the pair has type i and depth d'. S is the norm of
    what the pair's opener and closer together add to the unnormalised attention output. P is the least norm of that
    output over the prefixes that must be distinguished. In a balanced layer S is 0 for all pairs: brackets that were
    opened and closed again have no effect, however long the string.

    Computed in float64, with each query's largest score subtracted: all measures are invariant to factors per query.

    Args:
        model: A model of one layer with one head over embeddings of (bracket, depth) (`presets.dyck_minimal`). Not
            changed.
        task: The language.
        pairing: How openers and closers are paired. `mirrored`, the definition: an opener at depth d' with the closer
            after which d' - 1 brackets are open. `released`, as the paper's code does it: see below.

    Raises:
        ValueError: an unknown pairing, a model of another form, a language other than the model's, or one with a single
            type or depth 1, which has no prefixes to distinguish.

    Example:
        >>> import interp
        >>> from hooks import Transformer
        >>> task = interp.tasks.Dyck(n_types=2, max_depth=2)
        >>> model = Transformer(interp.config_for(task, "dyck_minimal"))
        >>> interp.balance_violation(model, task).ratio.shape  # query_depth, query_type, pair_depth, pair_type
        (1, 2, 2, 2)

    Source: bounded Dyck (arXiv:2312.01429) Eq. 12-17, Theorem 2. Differs: the mean is over all queries and pairs;
    `bounded` and `decision` are ours. `released`: the paper's code (its `balance_variation`), generalised to k types.
    It differs from the definition in three places. (1) In a nest of D openers and D closers it pairs the i-th opener
    with the i-th closer of the text: depth d' with the closer after which D - d' are open, in S, in the pair of type j
    inside P, and in the query, so the query with d brackets around its pair is the closer after which D - 1 - d are
    open. (2) P is the least norm over all open strings, not over those whose last type differs. (3) It averages the
    largest S of each query. `released` in the result does all three; `ratio` and what follows from it only the first.
    """
    _check(model, task)
    # S and P, and their share of a decision
    u = contributions(model, task, pairing)
    s, sum_of_norms = pair_norms(u)
    p, least_norms = least_signals(u, task)
    decision = _decisions(model, task, u)
    return BalanceResult(
        pairing=pairing,
        ratio=(s / p[..., None, None]).numpy(),
        bounded=torch.where(sum_of_norms > 0, s / sum_of_norms.clamp_min(TINY), 0.0).numpy(),
        decision=None if decision is None else decision.numpy(),
        signal=p.numpy(),
        released=float((s.flatten(2).max(-1).values / least_norms).mean()),
    )


@dataclass(frozen=True)
class Contributions:
    """u(query, key) of Eq. 12: what each key adds to the unnormalised attention output of each query."""

    start: Float[Tensor, "query_depth query_type d_model"]
    openers: Float[Tensor, "query_depth query_type depth type d_model"]
    """By depth, 1 to D."""
    closers: Float[Tensor, "query_depth query_type depth type d_model"]
    """By depth of the opener that they are paired with, 1 to D."""


def contributions(model: Transformer, task: Dyck, pairing: Pairing) -> Contributions:
    """u(query, key) of Eq. 12, for the closers as queries and all brackets as keys, up to a factor for each query."""
    n_types, max_depth = task.n_types, task.max_depth
    kind = torch.arange(n_types)
    depth = torch.arange(1, max_depth + 1)[:, None]

    # Embeddings of all brackets: openers by depth, closers by depth of the opener that they are paired with
    row = model.cfg.embedding.row  # pyright: ignore[reportOptionalMemberAccess]  # checked
    table = model.embed.weight.double()  # pyright: ignore[reportAttributeAccessIssue]
    open_after = depth - 1 if pairing == "mirrored" else max_depth - depth
    openers = table[row(opener(0) + 2 * kind, depth)]
    closers = table[row(closer(0) + 2 * kind, open_after)]
    keys = torch.cat([table[row(START, 0)][None], openers.flatten(0, 1), closers.flatten(0, 1)])
    queries = closers[1:].flatten(0, 1)  # at least one bracket around their pairs

    # Attention of the layer, without the division by the sum of weights
    attention = model.block(0).attention
    scores = torch.zeros(len(queries), len(keys), dtype=torch.float64)
    if not model.cfg.patterns_of(0):
        scores = _linear(attention.q, queries) @ _linear(attention.k, keys).T / model.cfg.attn_scale
        if attention.a is not None:
            scores = scores + attention.a.double() * (queries @ keys.T)
    weight = (scores - scores.max(1, keepdim=True).values).exp()
    value = _linear(attention.v, keys) @ attention.o.weight.double().T
    value = value - value.mean(-1, keepdim=True)
    u = (weight[..., None] * value).unflatten(0, (max_depth - 1, n_types))
    return Contributions(
        u[:, :, 0],
        u[:, :, 1 : 1 + max_depth * n_types].unflatten(2, (max_depth, n_types)),
        u[:, :, 1 + max_depth * n_types :].unflatten(2, (max_depth, n_types)),
    )


def _linear(linear: Linear, x: Float[Tensor, "key d_model"]) -> Float[Tensor, "key output"]:
    return x @ linear.weight.double().T + linear.bias_or_zero.double()


def pair_norms(
    u: Contributions,
) -> tuple[
    Float[Tensor, "query_depth query_type pair_depth pair_type"],
    Float[Tensor, "query_depth query_type pair_depth pair_type"],
]:
    """S of Eq. 15, the norm of what a pair's opener and closer add together; and the sum of their separate norms."""
    return (u.openers + u.closers).norm(dim=-1), u.openers.norm(dim=-1) + u.closers.norm(dim=-1)


def least_signals(
    u: Contributions, task: Dyck
) -> tuple[Float[Tensor, "query_depth query_type"], Float[Tensor, "query_depth query_type"]]:
    """P of Eq. 17, and the least norm over all open strings, by which the released code divides."""
    n_types = task.n_types
    signal = torch.empty(task.max_depth - 1, n_types, dtype=torch.float64)
    least_norm = torch.empty_like(signal)
    for index in range(task.max_depth - 1):
        depth = index + 1  # brackets around the query's pair
        for j in range(n_types):
            # Attention output for every string of types of the open brackets (Eq. 16), the outermost first
            always = u.start[index, j] + u.openers[index, j, depth, j] + u.closers[index, j, depth, j]
            sums = always[None]
            for level in range(depth):
                sums = (sums[:, None] + u.openers[index, j, level]).flatten(0, 1)
            norms = sums.norm(dim=-1).view(-1, n_types)  # the last axis is the type of the innermost open bracket
            least_norm[index, j] = norms.min()
            # The least over the strings whose innermost type differs from that of the least of all
            least_by_innermost = norms.min(0).values
            signal[index, j] = least_by_innermost.sort().values[1]
    return signal, least_norm


def _decisions(
    model: Transformer, task: Dyck, u: Contributions
) -> Float[Tensor, "query_depth query_type pair_depth pair_type"] | None:
    """Effect of a pair on the logit difference of two closers, over that of the innermost open bracket's type."""
    if not model.cfg.attn_only:
        return None
    # Directions of the logit differences between closers of two types
    gain = model.block(0).norm_1.weight.double()
    readouts = model.unembed.weight.double()[[closer(kind) for kind in range(task.n_types)]] * gain
    first, second = torch.combinations(torch.arange(task.n_types)).T
    directions = readouts[first] - readouts[second]
    directions = directions - directions.mean(-1, keepdim=True)
    pair_effect = ((u.openers + u.closers) @ directions.T).abs()
    # The innermost open bracket is an opener at the query's own depth
    index = torch.arange(task.max_depth - 1)
    innermost = u.openers[index, :, index]  # (query_depth, query_type, type, d_model)
    type_effect = ((innermost[:, :, first] - innermost[:, :, second]) * directions).sum(-1).abs()
    return (pair_effect / type_effect[:, :, None, None].clamp_min(TINY)).mean(-1)


def _check(model: Transformer, task: Dyck) -> None:
    """Check that a model has the form of the definition, and a language prefixes to distinguish."""
    Dyck.require(task, "the balance condition is about brackets. Give a Dyck task.")
    prepare_model(model, NEEDS)
    embedding = model.cfg.embedding
    assert embedding is not None  # checked with the model
    if (embedding.n_types, embedding.max_depth) != (task.n_types, task.max_depth):
        raise ValueError(
            f"the model has {embedding.n_types} types up to depth {embedding.max_depth}; the task has "
            f"{task.n_types} up to {task.max_depth}."
        )
    # A language with prefixes to distinguish, and not too many of them
    if task.n_types < 2 or task.max_depth < 2:
        raise ValueError(
            f"the language has {task.n_types} types and depth {task.max_depth}; with fewer than two of either, there "
            f"are no prefixes to distinguish."
        )
    if task.n_types ** (task.max_depth - 1) > MOST_STRINGS:
        raise ValueError(f"{task.n_types} types and depth {task.max_depth} give more than {MOST_STRINGS} open strings.")
