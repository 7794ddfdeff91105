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
# # LEGO: a chain of reasoning
#
# Each clause of a LEGO sentence defines a variable by an operation on another variable; clauses are shuffled. We
# train a small transformer on chains of three, probe its residual stream layer by layer, and verify the probes by
# interventions. [LEGO](../lego.md) describes the task and the study.

# %%
import torch

import interp
from hooks import Transformer, verify
from hooks.interventions import Zero
from interp.tasks import Lego
from interp.tasks.base import logits_at_targets

task = Lego(n_vars=3)
batch = task.read("c=-b; a=+1; b=-a;")
task.chain(batch).edges

# %% [markdown]
# `a` is +1, `b` is minus `a`, `c` is minus `b`. The labels are the values in chain order (0 is +1, 1 is -1):

# %%
batch.labels

# %% [markdown]
# ## Train
#
# Heads 0 and 1 of every layer are first trained towards a local and an association pattern (`association="mimic"`);
# without mimicking, this schedule learns only the first variables. `verify` tests every hook point.

# %%
model = Transformer(interp.config_for(task, n_layers=3, n_heads=2, d_model=48), seed=0)
print(verify(model))
settings = interp.TrainSettings(steps=250, batch_size=64, learning_rate=2e-3, association="mimic", n_eval=200)
run = interp.train(model, task, settings, seed=0)
print(run)
run.plot()

# %%
tested = interp.evaluate(run.model, task, n=4000)
print(tested)

# %% [markdown]
# ## Probe
#
# One linear probe per layer and variable, with its control task and the accuracy on an untrained model.

# %%
probes = interp.probe(run.model, task, n_train=2000, n_test=1000, verify=True)
print(probes)
probes.plot()

# %% [markdown]
# ## Intervene
#
# Hook points have TransformerLens's names. We ablate the association head (head 1) of one layer at a time:

# %%
held_out = task.sample(2000, generator=torch.Generator().manual_seed(1), split="test")
for layer in range(run.model.cfg.n_layers):
    hook = (f"blocks.{layer}.attn.hook_z", Zero().hook(head=1))
    logits = run.model.run_with_hooks(held_out.tokens, fwd_hooks=[hook])
    right = task.score(logits_at_targets(logits, held_out), held_out).right
    print(f"association head of layer {layer} ablated:", [round(float(value), 3) for value in right.mean(0)])

# %% [markdown]
# `interp.audit` makes this for every head, with several ablations, intervals and a verdict:

# %%
print(interp.audit(run.model, task))
