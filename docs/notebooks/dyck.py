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
# # Bounded Dyck: brackets, balance, and patterns that differ between seeds
#
# A bounded Dyck word is a correctly nested string of brackets of limited depth. [Dyck](../dyck.md) describes the task
# and the study of *Transformers are uninterpretable with myopic methods*.

# %%
import torch

import interp
from hooks import Transformer
from interp.known_answers import balanced_dyck, stack_dyck, uniform_dyck
from interp.tasks import Dyck

task = Dyck(n_types=2, max_depth=3, length=12)
batch = task.sample(3, generator=torch.Generator().manual_seed(0))
for tokens in batch.tokens:
    print(task.vocab.decode(tokens))

# %% [markdown]
# ## Train
#
# Accuracy has four outcomes. `hard` counts the positions where the answer is not the partner of the bracket just
# read; the outcomes with 0.8 require that much of the closers' probability, as in the paper.

# %%
settings = interp.TrainSettings(
    steps=250, batch_size=64, learning_rate=6e-3, warmup_steps=20, eval_every=50, n_eval=200
)
runs = [
    interp.train(Transformer(interp.config_for(task, "dyck_gpt", d_model=32), seed=seed), task, settings, seed=seed)
    for seed in range(3)
]
print(interp.evaluate(runs[0].model, task, n=500))
runs[0].plot()

# %% [markdown]
# ## The same language, three seeds
#
# The squared distance of two models' patterns on one prefix, per layer, next to random baselines:

# %%
varied = interp.attention_variation([run.model for run in runs], task)
print(varied)
varied.plot()

# %% [markdown]
# ## Two models with known answers
#
# Both have hand-written weights and predict brackets correctly. In the first, one head attends to the innermost open
# bracket, which a reader of patterns hopes for. In the second, attention is uniform and no head can be read.

# %%
readable, uniform = stack_dyck(task), uniform_dyck(task)
print(interp.evaluate(readable, task, n=200))
print(interp.evaluate(uniform, task, n=200))
print(interp.classify_heads(readable, task, n=64))
print(interp.classify_heads(uniform, task, n=64))

# %% [markdown]
# ## Balance
#
# On top of a minimal first layer, what an opener and its closer write must cancel. Here is a balanced layer, and one
# with a planted fault of one per cent:

# %%
for fault in (0.0, 0.01):
    found = interp.balance_violation(balanced_dyck(task, imbalance=fault), task)
    print(f"imbalance {fault}: violation {found.violation:.4f}")
