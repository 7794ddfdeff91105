"""What analyses ask of every model, in place of its class."""

from collections.abc import Iterator
from typing import Any

from hooks.model.layers import has_hooks


class ModelTraits:
    """The answers of a transformer of this package; wrapped models and networks without attention have others."""

    cfg: Any
    hook_dict: Any
    capabilities: Any = None
    """What can be read and edited, if that had to be tested; None: everything."""
    has_attention = True
    """Whether it has heads and a residual stream."""
    takes_read_at = True
    """Whether `read_at` is an argument of its forward pass: positions to compute the last layer and the read-out at."""
    made_from_cfg = True
    """Whether `make_model(cfg)` makes its untrained copies, in little time."""
    can_be_sent = True
    """Whether it can be pickled and sent to another process."""
    resumes_inside_layers = True
    """Whether a pass can start inside a layer, from the output of attention, and at some positions only."""
    is_hooked_at_the_end = False
    """Whether a hook is attached in the last layer or the read-out; asked only of models that take `read_at`."""
    pattern_before_z = True
    """Whether the pattern of every layer is computed before its z."""

    @property
    def kind(self) -> str:
        """What it is, in a page's description."""
        return "transformer"

    @property
    def owner(self) -> Any:
        """The object that computes its passes: itself, or the model that it wraps."""
        return self

    def can_edit(self, site: str) -> bool:
        """Whether layers have a hook point, such as `hook_mlp_out`, that can be read and edited."""
        return f"blocks.0.{site}" in self.hook_dict

    def hooked_in_layers(self) -> Iterator[tuple[str, str]]:
        """Kind and place of every hook of the caller's inside a layer."""
        for name, point in self.hook_dict.items():
            if name.startswith("blocks.") and has_hooks(point):
                yield "hook", name
