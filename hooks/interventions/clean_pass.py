"""One pass on a batch whose activations are kept, and passes that resume inside it with something replaced.

Every intervention of this project starts here: on heads and parts (`ablation_engine`, `part_engine`), on edges and
circuits (`edge_engine` and those after it), and on activations of other inputs (`interp.core.interchange`).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.adapters.bridge import BridgeModel
from hooks.model.layers import take
from hooks.model.transformer import TransformerStack

TOKENS_PER_PASS = 1024
"""Several edits are computed per pass, in copies of the batch, up to this number of tokens: more is slower on CPU."""

Net = TransformerStack | BridgeModel
"""A model in which activations can be replaced."""


class CleanPass:
    """One pass on a batch, and passes that resume inside it.

    Args:
        model: The model. It is not changed.
        tokens: Token ids.
        names: Hook points whose activations are kept, or a function that says which.
        read_at: Positions to return logits for; if None, all. Fewer positions cost less.
        size: Number of sequences that are run at once; if None, all.
        inputs: Further arguments of the model's forward pass: `attention_mask`, `position_ids`.
    """

    def __init__(
        self,
        model: Net,
        tokens: Int[Tensor, "batch pos"],
        names: Collection[str] | Callable[[str], bool],
        *,
        read_at: Int[Tensor, "batch read"] | None = None,
        size: int | None = None,
        **inputs: Tensor | None,
    ):
        self.model = model
        self.tokens = tokens
        self.read_at = read_at
        self.inputs = {name: value for name, value in inputs.items() if value is not None}
        passes = [self._run(rows, names) for rows in torch.arange(len(tokens)).split(size or len(tokens))]
        all_logits, caches = zip(*passes, strict=True)
        self.logits: Float[Tensor, "batch read d_vocab_out"] = _joined(all_logits)
        """Logits of the clean pass at the positions that are read."""
        self.cache: dict[str, Tensor] = {name: _joined([cache[name] for cache in caches]) for name in caches[0]}
        """Activations of the clean pass at each hook point that is kept."""
        # A hook of the caller's in the last layer or the read-out must see all positions
        self.narrows = read_at is not None and model.takes_read_at and not model.is_hooked_at_the_end
        """Whether of the last layer and the read-out only the positions that are read are computed."""

    @property
    def copies_per_pass(self) -> int:
        """Copies of the batch that are computed together."""
        return max(1, TOKENS_PER_PASS // self.tokens.numel())

    def resume(
        self,
        resid: Float[Tensor, "copies pos d_model"],
        layer: int,
        *,
        z: Float[Tensor, "copies query head width"] | None = None,
        rows: Any = None,
        every_position: bool = False,
    ) -> Float[Tensor, "copies read d_vocab_out"]:
        """Logits from the input of a layer, for one or several copies of the batch, or for some of its rows.

        Args:
            resid: Input of the layer.
            layer: First layer to apply; with `layer == n_layers`, the read-out.
            z: Outputs of the heads of the layer; if None, they are computed. In the last layer, if the pass narrows,
                only those at positions that are read.
            rows: Rows of the batch, in any order; if None, all of them, once for each copy.
            every_position: Whether the last layer is computed at all positions, as an edit there needs.
        """
        n_copies = len(resid) // len(self.tokens)

        def of_copies(values: Tensor) -> Tensor:
            return values.repeat(n_copies, 1) if rows is None else values[rows]

        tokens, read_at, inputs = self._inputs_of(of_copies)
        narrows = self.narrows and not every_position
        # Further inputs are those of the embedding, which is not computed again
        inputs = {name: values for name, values in inputs.items() if name in ("attention_mask", "position_ids")}
        logits = self.model.resume(resid, layer, z=z, tokens=tokens, read_at=read_at if narrows else None, **inputs)
        return logits if read_at is None or narrows else take(logits, read_at)

    @torch.no_grad()
    def _run(
        self, rows: Int[Tensor, " rows"], names: Collection[str] | Callable[[str], bool]
    ) -> tuple[Float[Tensor, "rows read d_vocab_out"], dict[str, Tensor]]:
        """Logits of a clean pass on some rows of the batch, and its activations."""
        tokens, read_at, inputs = self._inputs_of(lambda values: values[rows])
        logits, cache = self.model.run_with_cache(tokens, **inputs, names_filter=names)
        return logits if read_at is None else take(logits, read_at), dict(cache.cache_dict)

    def _inputs_of(self, select: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor | None, dict[str, Any]]:
        """Tokens, positions that are read, and further inputs of some rows of the batch."""
        inputs = {name: select(values.expand(len(self.tokens), -1)) for name, values in self.inputs.items()}
        return select(self.tokens), None if self.read_at is None else select(self.read_at), inputs


def _joined(blocks: Sequence[Tensor]) -> Tensor:
    """The rows of all blocks; without a copy if there is one."""
    return blocks[0] if len(blocks) == 1 else torch.cat(list(blocks))
