"""Hostile names of tokens, answers and results in pages: no script runs, nothing is fetched, no error is logged."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from browser import Browser, chromium
from tries import Try

import interp
from hooks import make_model
from interp.tasks import Batch, Task, Vocab

PIECES = [
    "</script>", "<script>window.hit=1</script>", "<img/src=x/onerror=window.hit=1>", "<svg/onload=window.hit=1>",
    "<!--", "-->", "]]>", "<![CDATA[", "'", '"', "`", "${window.hit=1}", "{{window.hit=1}}", "{%raw%}", "\\", "\\u003c",
    "\0", "\x1b", "javascript:window.hit=1", "&lt;script&gt;", "</textarea>", "</style>", "</title>",
    "<iframe/srcdoc='<script>parent.hit=1</script>'>", "<a/href=javascript:window.hit=1>", "https://example.org/x.js",
    "<link/rel=stylesheet/href=http://127.0.0.1/x>", "constructor", "__proto__", "\u202e", "𝕏",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Hostile(Task):
    """The last token again; the tokens have the given names."""

    names: tuple[str, ...]

    @property
    def vocab(self) -> Vocab:
        return Vocab(self.names)

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.names[0],)

    def sample(self, n: int, *, generator: torch.Generator, split: str = "train") -> Batch:
        tokens = torch.randint(len(self.names), (n, 6), generator=generator)
        return Batch(tokens=tokens, target_positions=torch.full((n, 1), 5), labels=tokens[:, -1:],
                     supervised=torch.tensor([True]))  # fmt: skip

    def relations(self, batch: Batch) -> dict[str, torch.Tensor]:
        tokens = batch.tokens
        return {self.names[1]: tokens[:, :, None] == tokens[:, None]}

    @property
    def n_ctx(self) -> int:
        return 6


def tries(n: int, folder: Path) -> Iterator[Try]:
    if not chromium():
        return
    rng, browser = random.Random(0), Browser(folder / "profile")
    try:
        for index in range(n):
            names = ["".join(rng.choices(PIECES, k=rng.randrange(1, 4))) + str(at) for at in range(5)]
            task = Hostile(names=tuple(names))
            model = make_model(interp.config_for(task, n_layers=1, d_model=8, n_heads=2), seed=index)
            path = folder / f"{index}.html"
            kind = ("canvas", "circuitsvis", "report")[index % 3]
            if kind == "report":
                results = [interp.probe(model, task, n_train=64, n_test=32), interp.evaluate(model, task, n=64),
                           interp.classify_heads(model, task, n=16, untrained=2)]  # fmt: skip
                interp.report(results, path, title=rng.choice(PIECES) * 2, lead=rng.choice(PIECES))
            else:
                interp.show_attention(model, task, viewer=kind, seed=index).save(path)
            yield _opened(browser, path, f"{kind}, tokens {names}")
    finally:
        browser.close()
        shutil.rmtree(folder / "profile", ignore_errors=True)


def _opened(browser: Browser, path: Path, what: str) -> Try:
    page = browser.open(path)
    hit, problems = page.run("window.hit"), page.problems
    fetched = [one for one in page.requests if not one.startswith(("file:", "data:", "blob:", "about:"))]
    page.close()
    if hit is not None:
        return Try(what, "let in", "a script ran")
    if fetched:
        return Try(what, "let in", f"fetched {fetched[:3]}")
    return Try(what, "unclear" if problems else None, str(problems)[:300])
