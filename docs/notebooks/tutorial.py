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
# # Tutorial: your task in ten minutes
#
# - **What does it do?** You write a task, train a small transformer on it, read its activations with probes, and let
#   the audit decide what each attention head does. What was found: four heads look right, and no single one is needed.
# - **Can I trust it?** Each result has its controls and intervals; one verdict is checked by hand, below.
# - **How do I run it?** `pip install .` in the folder of the package, then in a notebook, or as a file with Python. No
#   GPU is needed.
# - **What next?** Your own task and model, and what to do with verdicts: [next](#next).
# - **What is this word?** [Glossary](../glossary.md).
#
# ## A task, a model, probes and an audit: 25 lines
#
# The input is six digits. At each digit but the first, the model predicts the larger of this digit and the one
# before.

# %%
import torch

import interp
from hooks import Transformer
from interp.tasks import Batch, Task, Vocab


class Larger(Task):
    targets = ("#1", "#2", "#3", "#4", "#5")

    @property
    def vocab(self):
        return Vocab([str(digit) for digit in range(10)])

    def sample(self, n, *, generator, split="train"):
        digits = torch.randint(10, (n, 6), generator=generator)
        low, high = {"train": (2, 10), "validation": (0, 1), "test": (1, 2)}[split]
        part = torch.randint(low, high, (n,), generator=generator)
        digits[:, 5] = (part - digits[:, :5].sum(1)) % 10  # the sum modulo 10 decides the split
        labels, at = torch.maximum(digits[:, 1:], digits[:, :-1]), torch.arange(1, 6).expand(n, 5)
        return Batch(tokens=digits, target_positions=at, labels=labels, supervised=torch.ones(5, dtype=torch.bool))


task = Larger()
model = Transformer(interp.config_for(task, n_layers=1, n_heads=4, d_model=32))
run = interp.train(model, task, interp.TrainSettings(steps=400, batch_size=128, learning_rate=5e-3, n_eval=200))
probes = interp.probe(run.model, task, n_train=1000, n_test=500)
found = interp.audit(run.model, task)
print(found)

# %% [markdown]
# ## What a task is
#
# A task has three parts:
#
# - `vocab`, the names of the tokens;
# - `targets`, a name for each prediction. Here there are five, one at each digit but the first;
# - `sample`, which returns a `Batch` of `n` examples: token ids, where to predict, the correct labels, and which
#   targets count in the loss.
#
# The three splits must have no example in common. Here the sum of the digits decides the split of an example, so no
# test example ever occurs in training. All randomness comes from `generator`. `interp.check_task` finds most
# mistakes:

# %%
interp.check_task(task)
task.sample(2, generator=torch.Generator().manual_seed(0))

# %% [markdown]
# ## Did it learn?
#
# Accuracy on examples of the `test` split, with exact 95 % intervals. The curve was measured on `validation`.

# %%
print(interp.evaluate(run.model, task, n=2000))
run.plot()

# %% [markdown]
# ## Probes: what can be read, and where
#
# `interp.probe` fits one linear classifier for each layer and target. Layer 0 is the embedding's output, layer 1 the
# output of the only layer. A probe can also succeed by memorising, so each result has its controls: a control task
# with random classes, shuffled labels, and the same model before training.

# %%
print(probes)
probes.plot()

# %% [markdown]
# Already at layer 0, which has no information about the digit before, the probe is better than chance: a large digit
# is often the larger one. After the layer, the answer can be read.
#
# ## The audit: what each head does
#
# An attention pattern shows where a head attends, not whether this matters. The audit removes each head, replaces its
# pattern and what it reads, and reports one verdict for each:
#
# | verdict | meaning |
# |---|---|
# | faithful | it looks like a known kind of head, is needed, and acts through its pattern |
# | misleading | it looks like a known kind of head, but is not needed or does not act through its pattern |
# | hidden | it looks like no known kind of head, but is needed |
# | idle | it looks like nothing, and is not needed |
# | redundant | it shares its work with other heads |
# | marginal | it costs about as much as counts, or a little |
# | undecided | there are too few examples to decide |
#
# All four heads have a clear pattern, and no single one is needed: others do the same. A reader of patterns would
# have called them the algorithm. The chart has a point for each head: how clear its pattern is, against what its
# removal costs.

# %%
found.plot()

# %% [markdown]
# ## Check a verdict by hand
#
# Hook points have TransformerLens's names. Here is the pattern of head 0.2, averaged over 200 examples: rows are
# queries, columns are keys. From the second row on, most attention is on the digit before.

# %%
batch = task.sample(200, generator=torch.Generator().manual_seed(1), split="test")
logits, cache = run.model.run_with_cache(batch.tokens)
print(cache["blocks.0.attn.hook_pattern"][:, 2].mean(0).round(decimals=1))

# %% [markdown]
# It looks like what the task needs; but the other heads look the same, and the model does not need this one.
#
# ## Without a backup
#
# A model with a single head has no backup. Its head has the same pattern, and is *faithful*. With a folder, training
# can be resumed, and `report_run` writes one page with everything, which opens without a network.

# %%
single = Transformer(interp.config_for(task, n_layers=1, n_heads=1, d_model=32))
settings = interp.TrainSettings(steps=400, batch_size=128, learning_rate=5e-3, n_eval=200)
run = interp.train(single, task, settings, folder="runs/larger")
found = interp.audit(run.model, task)
print(found)
page = interp.report_run(run, task, "runs/larger/report.html", results=[found])

# %% [markdown]
# ## Next
#
# - [Your own task](own_task.py): relations, kinds of head, loading runs of your task.
# - [Your own model](own_model.py): audit a model that was not made here.
# - [The audit](audit.py) on models whose answer is known.
# - [The contract of a task](../tasks.md), and [what each verdict means](../audit.md).
# - [When something fails](../troubleshooting.md).
