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
# # Template tasks: symbols that the model has never seen
#
# A string is labelled by which of its symbols are equal, and the model is tested on symbols that do not occur in
# training. [Templates](../template.md) describes the task and the study.

# %%
import torch

import interp
from hooks import make_model
from interp.tasks import Template

task = Template(templates=("aba -> +1", "abb -> -1"), train=256)
for split in ("train", "test"):
    batch = task.sample(2, generator=torch.Generator().manual_seed(0), split=split)
    print(split, [task.vocab.decode(tokens) for tokens in batch.tokens], batch.values.tolist())

# %% [markdown]
# ## One scalar per head
#
# `qk_identity=True` adds a trained multiple of the identity to W_Q W_K^T of each head: a head can then attend to
# equal symbols, whichever symbols they are. We train with and without it.

# %%
sizes = {"n_layers": 2, "d_model": 32, "n_heads": 4, "d_head": 16, "d_mlp": 64}
runs = {}
for name, with_a in (("plain", False), ("with a I", True)):
    model = make_model(interp.config_for(task, **sizes, qk_identity=with_a))
    runs[name] = interp.train(model, task, interp.TrainSettings(**(task.recipe() | {"steps": 200})))
    print(name, interp.evaluate(runs[name].model, task, n=1000))

# %% [markdown]
# A network without attention, on one-hot inputs, cannot generalise to unseen symbols:

# %%
network = make_model(interp.config_for(task, "fully_connected", inputs="one_hot"))
print(interp.evaluate(interp.train(network, task, interp.TrainSettings(steps=50)).model, task, n=1000))

# %% [markdown]
# ## Which heads compare symbols?
#
# Few heads look like a comparison, and the scalars have both signs:

# %%
model = runs["with a I"].model
print(interp.classify_heads(model, task))
print(interp.audit(model, task))
print(
    {
        name: values.detach().round(decimals=2).tolist()
        for name, values in model.named_parameters()
        if name.endswith(".a")
    }
)

# %% [markdown]
# `interp.diagonals` compares each head's W_Q W_K^T and W_V W_O with the identity:

# %%
interp.diagonals(model).plot()
