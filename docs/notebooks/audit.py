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
# # The audit, on models whose answer is known
#
# `interp.known_answers` has models with hand-written weights and the true role of every head. They show what each
# verdict means, and whether the audit is right. [The audit](../audit.md) states every rule.

# %%
import interp
from interp.known_answers import SUITE, known_answer

print(len(SUITE), "known answers, for example:", sorted(SUITE)[:6])

# %% [markdown]
# ## Clear patterns that mean nothing
#
# This model resolves LEGO chains step by step. Every layer has one association and one manipulation head, all with
# perfect patterns; the output of half of them is never used.

# %%
chain = interp.tasks.Lego(n_vars=3)
loop = interp.known_answers.lego_loop(chain)
print(interp.classify_heads(loop, chain, n=64))

# %%
found = interp.audit(loop, chain)
print(found)
found.plot()

# %% [markdown]
# A head's record has the evidence for its verdict: what each intervention costs, with intervals.

# %%
head = found.heads[0]
print(head.place, head.label, head.verdict, head.reason)
found.to_dataframe().head()

# %% [markdown]
# ## Heads that replace each other
#
# Removing one of two redundant heads costs nothing, so single ablations would call both useless:

# %%
known = known_answer("dyck stack, redundant", seed=0)
print({head: truth.truth for head, truth in known.heads.items()})
print(interp.audit(known.model, known.task))

# %% [markdown]
# ## Probes
#
# A probe can read what the model does not use. `audit_probe` sets the readable direction to another example's value
# and counts how often the answer follows:

# %%
pair = interp.tasks.Lego(n_vars=2)
probed = interp.audit_probe(interp.known_answers.lego_loop(pair), pair, n_train=400, n_test=200)
print(probed)
probed.plot()
