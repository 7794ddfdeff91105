"""Edits in place, compiled parts, and masks of all kinds: every family of models, random weights and tokens."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from families import MODELS, model_of, tokens_of
from models_tries import LENGTHS
from torch import Tensor
from tries import Try

import hooks
from hooks import FullyConnected, Recurrent


def _set_part(activation: Tensor) -> None:
    activation[:, : max(1, activation.shape[1] // 2)] = 0.7


IN_PLACE: dict[str, Callable[[Tensor], Any]] = {
    "a part is set": _set_part,
    "zero_": lambda activation: activation.zero_(),
    "mul_": lambda activation: activation.mul_(-1.5),
    "add_": lambda activation: activation.add_(torch.linspace(1, 2, activation.shape[-1]).to(activation)),
    "copy_": lambda activation: activation.copy_(activation.flip(0)),
    "clamp_": lambda activation: activation.clamp_(-0.1, 0.1),
}


def _same(first: Tensor, second: Tensor) -> bool:
    """Whether all numbers are the same, NaN included: some edits divide by zero."""
    return torch.equal(first.nan_to_num(7.7), second.nan_to_num(7.7))


@torch.no_grad()
def in_place(n: int, folder: Path) -> Iterator[Try]:
    """An edit in place acts like one that is not, and what was stored before it stays as it was."""
    rng, done = random.Random(7), 0
    families = [name for name, cfg in MODELS.items() if "cell" not in cfg.to_dict()]
    while done < n:
        family = rng.choice(families)
        model = model_of(MODELS[family], seed=rng.randrange(10**6)).eval()
        tokens = tokens_of(model, rng.choice(LENGTHS), seed=rng.randrange(10**6))
        clean_logits, clean = model.run_with_cache(tokens)
        order = list(clean)
        for name in rng.sample(order, min(8, len(order))):
            way, returns = rng.choice(list(IN_PLACE)), rng.random() < 0.5
            done += 1
            what = f"{family}, {name}, {way}, {'returned' if returns else 'not returned'}"

            def edit_in_place(activation: Tensor, hook: Any, way: str = way, returns: bool = returns) -> Tensor | None:
                IN_PLACE[way](activation)
                return activation if returns else None

            def edit_copy(activation: Tensor, hook: Any, way: str = way) -> Tensor:
                changed = activation.clone()
                IN_PLACE[way](changed)
                return changed

            with model.hooks([(name, edit_in_place)]):
                logits, stored = model.run_with_cache(tokens)
            # With a cache too: without one, long sequences use fused attention, which rounds otherwise
            with model.hooks([(name, edit_copy)]):
                expected, _ = model.run_with_cache(tokens)
            before = order[: order.index(name)]
            moved = [point for point in before if not torch.equal(stored[point], clean[point])]
            fault = ""
            if returns and not _same(logits, expected):
                fault = "another result than an edit of a copy"
            elif not (_same(logits, expected) or _same(logits, clean_logits)):
                fault = "neither the edit nor none"
            elif moved:
                fault = f"{moved[0]}, which comes before, has changed"
            elif not torch.equal(model.run_with_cache(tokens)[0], clean_logits):
                fault = "the edit stays"
            yield Try(what, "silently wrong" if fault else None, fault)


def _compile_model(model: Any) -> Any:
    model.compile(backend="eager")
    return model


def _wrap_model(model: Any) -> Any:
    return torch.compile(model, backend="eager")


def _compile_some_part(model: Any) -> Any:
    children = [part for part in model.weights.modules() if next(part.parameters(), None) is not None]
    random.Random(str(model.cfg)).choice(children).compile(backend="eager")
    return model


COMPILED = {"model.compile": _compile_model, "torch.compile": _wrap_model, "a part": _compile_some_part}


USES = ("run_with_hooks", "run_with_cache", "verify", "save_checkpoint")


def _tripled(activation: Tensor, hook: Any) -> Tensor:
    return 3 * activation + 1


def _used(model: Any, use: str, name: str, tokens: Tensor, path: Path) -> Any:
    """What one use of a model gives, to be compared with the same use of a model that is not compiled."""
    if use == "run_with_hooks":
        return model.run_with_hooks(tokens, fwd_hooks=[(name, _tripled)]).tolist()
    if use == "run_with_cache":
        return sorted(model.run_with_cache(tokens)[1])
    if use == "verify":
        return str(hooks.verify(model))
    hooks.save_checkpoint(model, path)
    return hooks.load_checkpoint(path)(tokens).tolist()


@torch.no_grad()
def compiled(n: int, folder: Path) -> Iterator[Try]:
    """Hooks, caches, checks and checkpoints of compiled models: they act, or are refused and the word is said."""
    rng = random.Random(8)
    families = [name for name, cfg in MODELS.items() if "n_heads" in cfg.to_dict()]
    path = folder / "model.safetensors"
    for index in range(n):
        family, way, use = rng.choice(families), rng.choice(list(COMPILED)), rng.choice(USES)
        model = model_of(MODELS[family], seed=index).eval()
        tokens = tokens_of(model, 12, seed=index)
        name = rng.choice(list(model.hook_dict))
        what = f"{family}, {way}, {use}, {name}"
        expected = _used(model, use, name, tokens, path)
        try:
            result = _used(COMPILED[way](model), use, name, tokens, path)
        except ValueError as error:
            yield Try(what, None if "compile" in str(error) else "unclear", str(error)[:300])
        except Exception as error:
            yield Try(what, "unclear", f"{type(error).__name__}: {error}"[:300])
        else:
            yield Try(what, None if result == expected else "silently wrong", "it has no effect")


MASKS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "int": (lambda mask: mask.long(), True),
    "int32": (lambda mask: mask.int(), True),
    "uint8": (lambda mask: mask.to(torch.uint8), True),
    "bool": (lambda mask: mask.bool(), True),
    "float of 0 and 1": (lambda mask: mask.float(), True),
    "float64 of 0 and 1": (lambda mask: mask.double(), True),
    "bfloat16 of 0 and 1": (lambda mask: mask.bfloat16(), True),
    "additive": (lambda mask: (1 - mask.float()) * -1e9, False),
    "additive, -inf": (
        lambda mask: torch.zeros_like(mask, dtype=torch.float).masked_fill(mask == 0, -torch.inf),
        False,
    ),
    "additive, smallest number": (lambda mask: (1 - mask.float()) * torch.finfo(torch.float32).min, False),
    "halves": (lambda mask: mask * 0.5, False),
    "twos": (lambda mask: mask * 2, False),
    "minus ones": (lambda mask: -mask, False),
    "NaN": (lambda mask: mask.float().masked_fill(mask == 0, torch.nan), False),
    "255": (lambda mask: (mask * 255).to(torch.uint8), False),
}
"""Masks made of one of 0 and 1, and whether they are valid."""


@torch.no_grad()
def masks(n: int, folder: Path) -> Iterator[Try]:
    """A mask of 0 and 1 of any dtype gives the same logits; any other is refused."""
    rng = random.Random(9)
    families = [name for name, cfg in MODELS.items() if "cell" not in cfg.to_dict() and "inputs" not in cfg.to_dict()]
    for index in range(n):
        family, kind = rng.choice(families), rng.choice(list(MASKS))
        model = model_of(MODELS[family], seed=index).eval()
        assert not isinstance(model, FullyConnected | Recurrent)
        tokens = tokens_of(model, rng.choice(LENGTHS), seed=index)
        mask = torch.ones_like(tokens)
        mask[:, rng.randrange(1, tokens.shape[1]) :] = 0
        make, is_valid = MASKS[kind]
        what = f"{family}, {kind}"
        try:
            logits = model(tokens, make(mask))
        except ValueError as error:
            is_clear = not is_valid and "mask" in str(error)
            yield Try(what, None if is_clear else "unclear", str(error)[:300])
            continue
        except Exception as error:
            yield Try(what, "unclear", f"{type(error).__name__}: {error}"[:300])
            continue
        right = is_valid and torch.equal(logits, model(tokens, mask))
        yield Try(what, None if right else "silently wrong", "accepted" if not is_valid else "other logits")
