"""Hook methods of a model that check names and edits before anything runs."""

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from typing import Any

from torch import Tensor
from torch._C._dynamo import eval_frame
from transformer_lens import ActivationCache
from transformer_lens.HookedRootModule import HookedRootModule

from hooks.model.hook_names import SETTERS
from hooks.model.layers import HookPoint, check_not_compiled, check_unhooked
from hooks.model.locks import ModelLock, one_thread

TRANSFORMS = {"device", "incl_bwd", "pos_slice", "reset_hooks_end", "clear_contexts"}
"""Options of TransformerLens's `run_with_cache` for which its own hooks store activations."""
Name = str | Callable[[str], bool]
"""A hook name, or a condition on hook names."""


class CheckedHooks(HookedRootModule):
    """TransformerLens's `hooks`, `add_hook` and `run_with_cache`; unknown names and ignored edits raise ValueError.

    One thread at a time runs a model: others wait while it computes, and while hooks are attached by `hooks`.
    """

    cfg: Any
    records = False
    """Whether hook points store activations themselves (`HookPoint.record`), without hooks."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._lock = ModelLock()

    @property
    def lock(self) -> ModelLock:
        """The lock that forward passes and verbs hold; re-entrant."""
        return self._lock

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the forward pass, when no other thread uses the model.

        Raises:
            ValueError: hooks are attached, and the pass is compiled.
        """
        # torch.compile does not trace a function with a lock, so that this is asked in every pass. It calls back for
        # every function below it; is_compiling() is False in those that it does not trace
        with self.lock:
            if self._compiled_call_impl is not None or eval_frame.get_eval_frame_callback() is not None:
                check_unhooked(self)
            return super().__call__(*args, **kwargs)

    @contextmanager
    def hooks(self, fwd_hooks: Iterable = (), bwd_hooks: Iterable = (), *args: Any, **kwargs: Any):
        """TransformerLens's `hooks`; no other thread runs the model within the block.

        Raises:
            ValueError: an unknown hook name (with the nearest ones), an edit this model would ignore, or a part that is
                compiled.
            RuntimeError: another thread has used the model for ten minutes.
        """
        check_not_compiled(*self.modules())
        fwd_hooks, bwd_hooks = list(fwd_hooks), list(bwd_hooks)
        for name, hook in fwd_hooks + bwd_hooks:
            self._check_hook(name, hook)
        with self.lock, super().hooks(fwd_hooks, bwd_hooks, *args, **kwargs) as model:
            yield model

    def add_hook(self, name: Name, hook: Callable, *args: Any, **kwargs: Any) -> None:
        """TransformerLens's `add_hook`, with the checks of `hooks`."""
        check_not_compiled(*self.modules())
        self._check_hook(name, hook)
        super().add_hook(name, hook, *args, **kwargs)

    @one_thread
    def run_with_cache(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *args: Any, names_filter: Any = None, remove_batch_dim: bool = False, **kwargs: Any
    ):
        """Logits and an `ActivationCache` of the hook points selected by `names_filter`; by default of all.

        Raises:
            ValueError: an unknown name, a condition that no name meets, or a compiled part.
        """
        check_not_compiled(*self.modules())
        filters = names_filter if isinstance(names_filter, list | tuple) else [names_filter]
        names = [hook_name for name in filters if name is not None for hook_name in self._names(name)]
        if self.records and not kwargs.keys() & TRANSFORMS and not remove_batch_dim:
            recorded = list(self.hook_dict) if names_filter is None else names
            return self._run_and_record(recorded, *args, **kwargs)
        logits, cache = super().run_with_cache(
            *args, names_filter=names_filter, remove_batch_dim=remove_batch_dim, **kwargs
        )
        return logits, ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)

    def _run_and_record(self, names: Iterable[str], *args: Any, **kwargs: Any) -> tuple[Any, ActivationCache]:
        """Logits and activations, stored as they are: one tensor may be that of several points."""
        record: dict[str, Tensor] = {}
        points: list[Any] = [self.hook_dict[name] for name in names]
        outer_records = [point.record for point in points]  # of a pass whose hook runs this one
        try:
            for point in points:
                point.__dict__["record"] = record  # without torch's checks of attributes
            logits = self(*args, **kwargs)
        finally:
            for point, outer in zip(points, outer_records, strict=True):
                point.__dict__["record"] = outer
        return logits, ActivationCache(record, self)

    def hook_point(self, name: str) -> HookPoint:
        """The hook point of that name.

        Raises:
            ValueError: an unknown name (with the nearest ones).
        """
        self._check_name(name)
        return self.hook_dict[name]  # pyright: ignore[reportReturnType]

    def _check_name(self, name: str) -> None:
        if name not in self.hook_dict:
            nearest = get_close_matches(name, self.hook_dict, n=3, cutoff=0.4)
            hint = f" Nearest: {', '.join(nearest)}." if nearest else " See model.hook_dict for all of them."
            # Some points exist only after a call of a method
            setter = SETTERS.get(name.rsplit(".", 1)[-1], "")
            if hasattr(self, setter):
                hint = f" model.{setter}(True) adds this kind of hook point."
            raise ValueError(f"hook name {name!r} does not exist in this model.{hint}")

    def _names(self, name: Name) -> list[str]:
        """The hook points that a name or a condition selects, at least one."""
        if isinstance(name, str):
            self._check_name(name)
            return [name]
        names = [hook_name for hook_name in self.hook_dict if name(hook_name)]
        if not names:
            raise ValueError("no hook name of this model meets the condition given; see model.hook_dict for them.")
        return names

    def _check_hook(self, name: Name, hook: Callable) -> None:
        """Check the name, and that the edited head has queries and keys if these are edited."""
        # Hooks of `hooks.interventions` say which head they edit
        head = getattr(hook, "head", None)
        for hook_name in self._names(name):
            if head is not None and hook_name.endswith(("attn.hook_q", "attn.hook_k")):
                patterns = self.cfg.patterns_of(int(hook_name.split(".")[1]))
                if head in range(len(patterns)) and not patterns[head].learned:
                    raise ValueError(
                        f"an edit of {hook_name} for head {head} would do nothing: that head's pattern is hard-coded "
                        f"({patterns[head].kind}). Edit hook_pattern, hook_v or hook_z instead."
                    )


def storing_hooks(
    names: Iterable[str], activations: dict[str, Tensor], *, transform: Callable[[Tensor], Tensor] | None = None
) -> list[tuple[str, Callable]]:
    """Hooks for `run_with_hooks` that store the activation of each hook point when it is computed, not detached.

    Args:
        names: Hook points.
        activations: Where to store, by name; a later pass overwrites it.
        transform: What to store of an activation; if None, the activation itself.
    """

    def store(name: str, activation: Tensor, hook: Any) -> None:
        activations[name] = activation if transform is None else transform(activation)

    return [(name, partial(store, name)) for name in names]
