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
# # Seeds compared: is it the task or the run?
#
# One trained model is one draw. Before you report what a head does, train other seeds: this notebook trains four
# models with the same settings, compares their patterns, and counts how often the others have the same kind of head.

# %%
import interp
from hooks import Transformer
from interp.tasks import Lego

task = Lego(n_vars=2, sentence_format="compact")
cfg = interp.config_for(task, n_layers=2, n_heads=2, d_model=32)
settings = interp.TrainSettings(
    steps=200, batch_size=64, learning_rate=3e-3, warmup_steps=20, eval_every=200, n_eval=200
)
models = [interp.train(Transformer(cfg, seed=seed), task, settings, seed=seed).model for seed in range(4)]

# %% [markdown]
# ## Have they learned the same?
#
# Exclude models that have not learned before you compare what they do inside, and report how many those were.

# %%
for model in models:
    print(interp.evaluate(model, task, n=1000))

# %% [markdown]
# ## Do they attend to the same tokens?
#
# Attention variation is the mean squared distance of two models' patterns on one sentence. Intervals resample models,
# not pairs, and baselines show what random patterns would give. A ratio near 1 means: as different as random
# attention.

# %%
varied = interp.attention_variation(models, task)
print(varied)
varied.plot()

# %% [markdown]
# ## Do their heads have the same roles?
#
# `with_other_seeds` adds to each head the share of other models that have a head with this label and verdict in this
# layer.

# %%
audits = [interp.audit(model, task) for model in models]
first = audits[0].with_other_seeds(audits[1:])
print(first)

# %%
import pandas as pd

verdicts = [[head.verdict for head in one.heads] for one in audits]
pd.DataFrame(verdicts, columns=[f"head {head.layer}.{head.head}" for head in audits[0].heads])

# %% [markdown]
# Four seeds show a difference; they do not settle a share. The exact interval of 4 of 4 is 0.40 to 1. The
# [studies](../studies.md) use ten or more.
