"""Modules without torch's bookkeeping where it costs more than the work: finding a part, passing a hook point by."""

from typing import Any

from torch import Tensor, nn
from transformer_lens import hook_points


class Module(nn.Module):
    """A torch module whose submodules are plain attributes too, so that reading one is no search.

    Put another submodule in place by assignment; torch's `_modules` alone would leave the old one in use.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self._modules:
            self.__dict__[name] = self._modules[name]


class HookPoint(hook_points.HookPoint):
    """TransformerLens's hook point, passed by in one step while nobody hooks it."""

    def __call__(self, x: Tensor) -> Tensor:
        if self._forward_hooks or self._backward_hooks or self._forward_pre_hooks or self._backward_pre_hooks:
            return super().__call__(x)
        return x
