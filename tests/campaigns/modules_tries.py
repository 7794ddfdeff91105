"""Modules as others write them: what layers return and add, in any precision; as torch's own hooks, or refused."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from own_models import MAPS, PlainLayer, PlainModel, hidden_keys, transformer
from torch import Tensor, nn
from tries import Try

import hooks
from interp.tasks import Lego

sys.path.append(str(Path(__file__).parents[1] / "hooks/adapters"))
from test_half_precision_of_modules import Halved, Upcast
from test_layers_of_others import CONTAINERS, LAYERS

DTYPES = {torch.float32: 1e-4, torch.float64: 1e-9, torch.bfloat16: 0.15, torch.float16: 0.03}
"""Difference of logits of size 1 that rounding explains."""
REASONS = ("layer", "hook", "attention", "logits", "weight")
"""Words of which an error has one, with the place."""


class ScaledStream(PlainLayer):
    """A layer whose whole output is scaled."""

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        return 0.7 * super().forward(x, hidden)


class Doubled(PlainLayer):
    """Attention that is added twice."""

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        x = x + 2 * self.attn(self.norm_1(x), hidden)
        return x + self.w_out(nn.functional.gelu(self.w_in(self.norm_2(x))))


KINDS = {
    "plain": PlainLayer, "scaled stream": ScaledStream, "attention twice": Doubled, "attention halved": Halved,
    **{name: layer for name, (layer, _) in LAYERS.items()},
}  # fmt: skip


def _module(cfg: Any, kind: str, container: str, rng: random.Random) -> tuple[Any, str]:
    """A module with layers of a kind that return a container."""
    pack, unpack = CONTAINERS[container]
    cls = KINDS[kind]

    class Layer(cls):
        def forward(self, x: Tensor, hidden: Tensor) -> Any:
            return pack(super().forward(x, hidden))

    class Module(PlainModel):
        def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            x = self.embed(tokens) + self.positions(torch.arange(tokens.shape[1]))
            for layer in self.layers:
                x = unpack(layer(x, hidden_keys(cfg.attention, attention_mask, tokens.shape[1])))
            return self.unembed(self.norm(x))

    module = Module(cfg)
    module.layers = nn.ModuleList(Layer(cfg, fused=False) for _ in range(cfg.n_layers))
    upcast = rng.random() < 0.3
    for layer in module.layers:
        if upcast:
            layer.attn.__class__, layer.attn.kind = Upcast, rng.choice(["softmax", "scores", "values too"])
    generator = torch.Generator().manual_seed(rng.randrange(10**6))
    for parameter in module.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return module.eval(), "upcast pattern" if upcast else "own pattern"


@torch.no_grad()
def tries(n: int, folder: Path) -> Iterator[Try]:
    """Logits as the module's own; heads without z as by torch's hooks; or refused for a reason that is named."""
    rng = random.Random(13)
    for _ in range(n):
        kind, container, dtype = rng.choice(list(KINDS)), rng.choice(list(CONTAINERS)), rng.choice(list(DTYPES))
        task = Lego(n_vars=rng.choice([2, 3]), sentence_format="compact")
        cfg = transformer(task, attention=rng.choice(["causal", "bidirectional"])).cfg
        module, pattern = _module(cfg, kind, container, rng)
        module = module.to(dtype)
        maps = MAPS if pattern == "own pattern" else {name: path for name, path in MAPS.items() if name != "pattern"}
        what = f"{kind}, {container}, {dtype}, {pattern}, {cfg.attention}"
        names = {"layers": "layers", "attention": maps, "n_heads": 2, "d_vocab": task.d_vocab, "n_ctx": task.n_ctx}
        try:
            model = hooks.from_module(module, **names)
        except ValueError as error:
            text = str(error)
            is_clear = any(word in text for word in REASONS) and len(text) < 800
            expected = container in ("object", "nothing of its shape")
            yield Try(what, None if is_clear and expected else "unclear", text[:300])
            continue
        except Exception as error:
            yield Try(what, "unclear", f"{type(error).__name__}: {error}"[:300])
            continue
        tokens = torch.randint(
            task.d_vocab,
            (3, rng.randrange(3, task.n_ctx + 1)),
            generator=torch.Generator().manual_seed(rng.randrange(99)),
        )
        fault = _fault(model, module, tokens, rng, DTYPES[dtype])
        yield Try(what, "silently wrong" if fault else None, fault)


def _fault(model: Any, module: Any, tokens: Tensor, rng: random.Random, tolerance: float) -> str:
    """How the wrapped model differs from torch's own hooks; empty if it does not."""
    if not torch.equal(model(tokens), module(tokens)):
        return "other logits"
    logits, cache = model.run_with_cache(tokens)
    if not torch.equal(logits, module(tokens)):
        return "other logits with a cache"
    layer, head = rng.randrange(2), rng.randrange(2)
    edited = model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", _without(head))])
    expected = _by_torch(module, tokens, layer, head)
    if not torch.allclose(edited, expected, atol=tolerance * float(expected.abs().max()), rtol=0):
        return f"without z of head {layer}.{head} logits differ by {(edited - expected).abs().max():.2g}"
    if torch.equal(edited, logits):
        return f"z of head {layer}.{head} is not edited"
    # What can be read and edited as the output of attention is what is added
    cell = model.capabilities.cell
    site = f"blocks.{layer}.hook_attn_out"
    if cell(site, "read").ok and f"blocks.{layer}.hook_mlp_out" in cache and cell(site, "edit").ok:
        parts = [f"blocks.{layer}.hook_{one}" for one in ("resid_pre", "attn_out", "mlp_out", "resid_post")]
        if all(cell(part, "read").ok for part in parts if not part.endswith("resid_pre")):
            *terms, total = (cache[part].double() for part in parts)
            if (sum(terms) - total).abs().max() > tolerance * float(total.abs().max()):
                return f"what layer {layer} adds does not add up"
    return "" if torch.equal(model(tokens), logits) else "an edit stays"


def _without(head: int) -> Any:
    def zero(z: Tensor, hook: Any) -> Tensor:
        z = z.clone()
        z[:, :, head] = 0
        return z

    return zero


def _by_torch(module: Any, tokens: Tensor, layer: int, head: int) -> Tensor:
    """Logits with the inputs of W_O at a head set to zero by a hook of torch."""

    def zero(part: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        z = inputs[0].unflatten(-1, (2, -1)).clone()
        z[:, :, head] = 0
        return (z.flatten(-2),)

    handle = module.layers[layer].attn.o.register_forward_pre_hook(zero)
    try:
        return module(tokens)
    finally:
        handle.remove()
