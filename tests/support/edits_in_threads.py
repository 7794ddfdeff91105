"""Passes of a model in one thread while another one edits it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch

TOKENS = torch.arange(12).reshape(2, 6) % 5


def slow_zero(activation, hook):
    time.sleep(0.0002)
    return torch.zeros_like(activation)


def run_with_hooks(model):
    model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.hook_attn_out", slow_zero)])


def in_a_block(model):
    with model.hooks([("blocks.0.hook_attn_out", slow_zero)]):
        model(TOKENS)
        time.sleep(0.0002)
        model(TOKENS)


def with_cache(model):
    with model.hooks([("blocks.0.hook_attn_out", slow_zero)]):
        model.run_with_cache(TOKENS)


EDITS = [run_with_hooks, in_a_block, with_cache]
PASSES = {
    "call": lambda model: model(TOKENS),
    "cache": lambda model: model.run_with_cache(TOKENS)[0],
    "resume": lambda model: model.resume(model.embed(TOKENS) + model.positions(torch.arange(6)[None]), 0),
}


@torch.no_grad()
def differing(model, passes, edit, n):
    """How many of `n` passes without hooks differ from a pass with no other thread."""
    clean, done = passes(model), threading.Event()

    def keep_editing():
        with torch.no_grad():
            while not done.is_set():
                edit(model)

    with ThreadPoolExecutor(2) as pool:
        editing = pool.submit(keep_editing)
        wrong = sum(not torch.equal(passes(model), clean) for _ in range(n))
        done.set()
        editing.result(timeout=60)
    return wrong
