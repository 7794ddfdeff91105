"""State that a public function leaves as it was: of models, of the random generators, and of torch's defaults."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hooks.model.locks import holding

P = ParamSpec("P")
R = TypeVar("R")

AUTOCAST_DEVICES = ("cpu", "cuda", "mps", "xpu")


# Public functions


def restores_state(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a public function: what the caller holds is afterwards as before, also if it raises.

    Models among the arguments, or in lists of them, run in evaluation mode; see `evaluation_mode` for what is restored.
    The random states of Python, NumPy and torch are restored, so that the caller's next draw is the same with and
    without the call. Inside, the default dtype is float32, the default device the CPU, autocast is off and gradients
    are on, whatever the caller has set: equal arguments give equal results.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with default_process_state(), evaluation_mode(*args, *kwargs.values()):
            return function(*args, **kwargs)

    return run


def restores_state_unless_trained(function: Callable[P, R]) -> Callable[P, R]:
    """`restores_state` for a function that trains a model in place: the model is restored only if it raises."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with default_process_state():
            state = ModelState(_roots_of_all([*args, *kwargs.values()]))
            try:
                return function(*args, **kwargs)
            except BaseException:
                state.restore()
                raise

    return run


# Models


@contextmanager
def evaluation_mode(*models: Any) -> Iterator[None]:
    """Put models into evaluation mode; then restore their modes, gradients and buffers.

    Restored are the mode of every module, `requires_grad` and the gradient of every parameter, and every buffer. Other
    threads wait until the block ends.

    Args:
        *models: Modules, wrapped models, training runs, or lists of these. Other objects are ignored.
    """
    nets = _modules_in(models)
    with holding(*nets):
        roots = _roots_of_all(nets)
        state = ModelState(roots)
        try:
            for root in roots:
                root.eval()
            # Weights made in inference mode can be used only there
            with torch.inference_mode() if state.has_inference_weights else nullcontext():
                yield
        finally:
            state.restore()


class ModelState:
    """Modes, gradients and buffers of modules, to be restored.

    Args:
        roots: The modules; their parts belong to them.
    """

    def __init__(self, roots: list[nn.Module]):
        modules = {id(module): module for root in roots for module in root.modules()}.values()
        parameters = {id(weight): weight for root in roots for weight in root.parameters()}.values()
        self._modes = [(module, module.training) for module in modules]
        self._gradients = [(weight, weight.requires_grad, weight.grad) for weight in parameters]
        usable = [weight for weight in parameters if not nn.parameter.is_lazy(weight)]
        self.has_inference_weights = any(weight.is_inference() for weight in usable)
        self._buffers: list[tuple[nn.Module, str, Tensor, Tensor]] = []
        for module in modules:
            for name, buffer in module._buffers.items():
                if buffer is not None and _is_comparable(buffer):
                    self._buffers.append((module, name, buffer, buffer.detach().clone()))

    def restore(self) -> None:
        """Set everything to what it was."""
        for module, training in self._modes:
            _set_mode(module, training)
        for weight, required, gradient in self._gradients:
            if weight.requires_grad != required:
                weight.requires_grad_(required)
            if weight.grad is not gradient:
                weight.grad = gradient
        for module, name, buffer, copy in self._buffers:
            if module._buffers.get(name) is not buffer:
                module._buffers[name] = buffer
            if not torch.equal(buffer, copy):
                with torch.no_grad(), torch.inference_mode(buffer.is_inference()):
                    buffer.copy_(copy)


def _set_mode(module: nn.Module, training: bool) -> None:
    """Set the mode of one module; a method `train` of its class may do more, such as merging weights."""
    if module.training == training:
        return
    if type(module).train is nn.Module.train:
        module.training = training
    else:
        module.train(training)


def _is_comparable(tensor: Tensor) -> bool:
    if nn.parameter.is_lazy(tensor):
        return False
    return tensor.layout == torch.strided and not tensor.is_meta and not tensor.is_quantized


def _modules_in(values: Any) -> list[nn.Module]:
    """The modules among some values: themselves, in lists or tuples, or as the model of a training run."""
    modules: list[nn.Module] = []
    for value in values:
        if isinstance(value, list | tuple):
            modules += _modules_in(value)
        elif isinstance(value, nn.Module):
            modules.append(value)
        else:
            model = getattr(value, "model", None)
            if isinstance(model, nn.Module):
                modules.append(model)
    return modules


def _roots_of_all(values: Any) -> list[nn.Module]:
    """The modules among some values, and those that they wrap without registering them as parts."""
    roots = []
    unvisited = _modules_in(values)
    while unvisited:
        module = unvisited.pop(0)
        if any(module is root for root in roots):
            continue
        roots.append(module)
        # A `BridgeModel` has a bridge, which may have the model of another package
        wrapped = (getattr(module, name, None) for name in ("bridge", "original_model"))
        unvisited += [candidate for candidate in wrapped if isinstance(candidate, nn.Module)]
    return roots


# The process


@contextmanager
def default_process_state() -> Iterator[None]:
    """Torch's defaults within the block, and afterwards the caller's, with all random states as before."""
    with ExitStack() as stack:
        stack.enter_context(_PROCESS)
        # These belong to a thread
        for device in AUTOCAST_DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield


class _Process:
    """Random states and the default dtype, which all threads share: saved by the first call, restored by the last."""

    def __init__(self):
        self._lock = threading.Lock()
        self._n_calls = 0
        self._saved: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._n_calls += 1
            if self._n_calls == 1:
                self._saved = self._current()
                torch.set_default_dtype(torch.float32)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._n_calls -= 1
            if self._n_calls == 0:
                self._set(*self._saved)
                self._saved = None

    def _current(self) -> tuple:
        on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
        numpy_state = np.random.get_state()  # noqa: NPY002
        return torch.get_default_dtype(), random.getstate(), numpy_state, torch.get_rng_state(), on_gpus

    def _set(self, dtype: torch.dtype, python_state: Any, numpy_state: Any, state: Tensor, on_gpus: Any) -> None:
        torch.set_default_dtype(dtype)
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        torch.set_rng_state(state)
        if on_gpus is not None:
            torch.cuda.set_rng_state_all(on_gpus)


_PROCESS = _Process()


def check_differentiable(name: str, model: nn.Module, purpose: str) -> None:
    """Check that torch can compute gradients through a model.

    Args:
        name: Name of the argument.
        model: The model.
        purpose: What needs gradients, for the error text.

    Raises:
        ValueError: weights that were made in `torch.inference_mode`, of which torch keeps no gradients.
    """
    for weight_name, weight in model.named_parameters():
        if weight.is_inference():
            raise ValueError(
                f"{name} has {weight_name}, made within torch.inference_mode, so that torch computes no gradients "
                f"through it; {purpose} needs them. Make or load the model outside of torch.inference_mode."
            )
