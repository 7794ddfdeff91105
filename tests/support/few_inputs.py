"""A task with 64 inputs and one answer of two kinds, and a small model that solves it."""

from functools import cache

import torch

import interp
from hooks import Transformer
from interp.tasks import Batch, Task, Vocab

LENGTH = 6


class Balanced(Task):
    """Are six brackets balanced? All 64 strings of brackets; the answer is predicted at the sign after them."""

    vocab = Vocab(("(", ")", "="))
    targets = ("balanced",)
    answer_names = ("no", "yes")
    d_vocab_out = 2
    n_ctx = LENGTH + 1
    attention = "causal"
    disjoint_splits = False

    def every_input(self, split="test"):
        bits = torch.cartesian_prod(*[torch.arange(2)] * LENGTH)
        return self._batch(bits)

    def sample(self, n, *, generator, split="train"):
        return self._batch(torch.randint(2, (n, LENGTH), generator=generator))

    def _batch(self, bits):
        n = len(bits)
        depth = (1 - 2 * bits).cumsum(1)
        balanced = (depth >= 0).all(1) & (depth[:, -1] == 0)
        return Batch(
            tokens=torch.cat([bits, torch.full((n, 1), 2)], 1),
            target_positions=torch.full((n, 1), LENGTH),
            labels=balanced.long()[:, None],
            supervised=torch.tensor([True]),
        )

    def relations(self, batch):
        """`closers`: for each query, the closers up to it."""
        is_closer = batch.tokens == 1
        return {"closers": is_closer[:, None].expand(-1, LENGTH + 1, -1) & torch.ones(7, 7).tril().bool()}


@cache
def model_of_balanced():
    """A model with random weights and an unembedding that answers each of the 64 strings: a least-squares fit.

    Sizes, scales and seed are those at which the streams of the strings are far apart (condition 2e5, unembedding below
    200): where they are not (1e8), rounding decides answers.
    """
    task = Balanced()
    sizes = {"n_layers": 1, "n_heads": 3, "d_model": 128, "d_head": 16, "d_mlp": 512}
    model = Transformer(interp.config_for(task, **sizes, init="normal", attn_scale=1.0), seed=3).eval()
    batch = task.every_input()
    with torch.no_grad():
        # Patterns that are far from uniform, and layers that add something
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter *= 10 if name in ("embed.weight", "positions.weight") else 4
        _, cache = model.run_with_cache(batch.tokens)
        stream = cache["ln_final.hook_normalized"][:, -1].double()
        answers = torch.nn.functional.one_hot(batch.labels[:, 0]).double()
        W_U = torch.linalg.lstsq(stream, answers).solution
        model.unembed.weight.copy_(W_U.T.float())
    return model
