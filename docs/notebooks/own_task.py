# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own task: from a hidden head to a faithful one
#
# The [tutorial](tutorial.py) shows the smallest task. This notebook adds what makes analyses more informative: a name
# for the task, labels for probes, relations, and a kind of head. [Add a task](../guides/add_a_task.md) has every
# option.
#
# The task: seven digits; at each digit from the fourth, the model predicts the larger of this digit and the one three
# before.

# %%
from dataclasses import dataclass

import torch

import interp
from hooks import Transformer
from interp.tasks import Batch, Task, Vocab


@interp.tasks.register
@dataclass(frozen=True, kw_only=True)
class LargerOfThreeBack(Task):
    """The larger of this digit and the digit `back` positions before."""

    base: int = 10
    back: int = 3
    length: int = 7
    attention = "causal"

    @property
    def targets(self):
        return tuple(f"#{at}" for at in range(self.back, self.length))

    @property
    def vocab(self):
        return Vocab([str(digit) for digit in range(self.base)])

    def sample(self, n, *, generator, split="train"):
        digits = torch.randint(self.base, (n, self.length), generator=generator)
        low, high = {"train": (2, self.base), "validation": (0, 1), "test": (1, 2)}[split]
        part = torch.randint(low, high, (n,), generator=generator)
        digits[:, -1] = (part - digits[:, :-1].sum(1)) % self.base  # the sum decides the split
        at = torch.arange(self.back, self.length)
        return Batch(
            tokens=digits,
            target_positions=at.expand(n, -1),
            labels=torch.maximum(digits[:, self.back :], digits[:, : -self.back]),
            supervised=torch.ones(len(at), dtype=torch.bool),
        )

    def recipe(self):
        return {"steps": 500, "batch_size": 128, "learning_rate": 5e-3, "n_eval": 200}


task = LargerOfThreeBack()
interp.check_task(task)

# %% [markdown]
# ## Train and audit
#
# With a recipe, `interp.train(model, task)` needs no settings. A folder makes the run resumable.

# %%
model = Transformer(interp.config_for(task, n_layers=1, n_heads=1, d_model=32))
run = interp.train(model, task, folder="runs/three_back")
print(interp.evaluate(run.model, task, n=2000))
print(interp.audit(run.model, task))

# %% [markdown]
# The head is needed and looks like no known kind of head: it is *hidden*. The audit knows only kinds that are
# registered.
#
# ## Name the kind
#
# A kind of head is a boolean relation between queries and keys. This one is true for the key three positions before:


# %%
def three_back(task, batch):
    """Related: the key three positions before the query. Shape (batch, query, key)."""
    pos = batch.tokens.shape[1]
    return torch.eye(pos).roll(-3, 1).tril().bool().expand(len(batch), pos, pos)


interp.heads.register_kind("three_back", three_back)
print(interp.classify_heads(run.model, task))
found = interp.audit(run.model, task)
print(found)
found.plot()

# %% [markdown]
# The head now looks like what it is, and the audit finds that it acts through this pattern: it is *faithful*.
#
# ## Load the run later
#
# The run's folder stores the name of the task and its settings. Since the class is registered, the run can be loaded:

# %%
again = interp.training.TrainingRun.load("runs/three_back")
print(again.task == task)

# %% [markdown]
# To use the task with `interp train` on the command line, [make it a package](../guides/add_a_task.md).
