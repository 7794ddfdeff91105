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
# # All analyses
#
# Every analysis of the project once, each with its question. Most models here have hand-written weights, so that the
# answer is known and nothing has to be trained; each call takes your model in the same way.

# %%
import interp
from hooks import Transformer
from interp.algorithms import chain_loop, sign_count
from interp.tasks import Dyck, Lego

lego = Lego(n_vars=3)  # a=+1;b=-a;c=+b; with clauses in any order
loop = interp.known_answers.lego_loop(lego)  # follows the chain, one variable a layer
brackets = Dyck(n_types=2, max_depth=3, length=10)  # ([])[] nested at most three deep

# %% [markdown]
# ## What can be read from each layer, and is it used?
#
# A linear probe for each layer and variable. With `verify=True` the direction that a probe found is exchanged between
# two sentences: does the answer follow?

# %%
probes = interp.probe(loop, lego, n_train=400, n_test=200, verify=True)
probes.plot()

# %% [markdown]
# ## After which layer is the answer there, and what writes it?
#
# The [logit lens](../logits.md) reads the stream with the model's own read-out after each layer; direct logit
# attribution divides the logit of the correct answer, less the mean of the others, among embedding, heads and MLPs.

# %%
lens = interp.logit_lens(loop, lego, n=200)
lens.plot()

# %%
added = interp.logit_attribution(loop, lego, n=200)
added.plot()

# %% [markdown]
# ## What does each head look like?
#
# *association* heads attend to other occurrences of a token, *manipulation* heads within a clause, *broadcast* heads to
# special tokens; on brackets there are stack-like kinds, such as *stack_top*: the last bracket that is open.

# %%
kinds = interp.classify_heads(loop, lego, n=64)
kinds.plot()

# %%
stack = interp.known_answers.stack_dyck(brackets)
print(interp.classify_heads(stack, brackets, n=64))

# %% [markdown]
# ## Which heads does the model need?

# %%
ablation = interp.ablate_heads(loop, lego, n=64)
ablation.plot()

# %% [markdown]
# ## Which head carries the answer, and where?
#
# [Activation patching](../patching.md): the output of one head at one place, of a second sentence with other values.

# %%
patched = interp.patch(loop, lego, positions="roles", n=32)
patched.plot()

# %% [markdown]
# ## Which connections between parts does it need?
#
# Every [edge](../edges.md), from a part that writes to an input that reads, is replaced by itself.

# %%
edges = interp.edges(loop, lego, n=32)
edges.plot()

# %% [markdown]
# ## Why does a head attend where it does?
#
# Its scores, taken apart into what wrote into its queries and keys; this is the second head of an induction circuit.

# %%
induction = interp.known_answers.known_answer("recall induction", seed=0)
why = interp.explain_attention(induction.model, induction.task, (1, 2), n=64)
print(why)
why.plot()

# %% [markdown]
# ## Does each head do what it looks like?
#
# The [audit](../audit.md) answers with one word for each head, and a sentence.

# %%
decoys = interp.known_answers.known_answer("template copy, zero decoy", seed=0)
audited = interp.audit(decoys.model, decoys.task, n=128)
print(audited)
audited.plot()

# %% [markdown]
# ## What do the patterns look like?
#
# On our canvas, with the relations of the task to outline; or with circuitsvis.

# %%
patterns = interp.show_attention(loop, lego, examples=2)
patterns

# %%
interp.show_attention(loop, lego, viewer="circuitsvis")

# %% [markdown]
# ## Do models of other seeds attend alike?
#
# The [attention variation](../dyck.md) between models that differ in their seed, beside that of random patterns. These
# four are not trained; give trained ones.

# %%
seeds = [Transformer(interp.config_for(brackets, "dyck_gpt"), seed=seed) for seed in range(4)]
variation = interp.attention_variation(seeds, brackets)
variation.plot()

# %% [markdown]
# ## Do matched brackets cancel?
#
# The balance condition of the Dyck paper: 0 is balanced. This model was written to be out of balance by one hundredth.

# %%
balance = interp.balance_violation(interp.known_answers.balanced_dyck(brackets, imbalance=0.01), brackets)
balance.plot()

# %% [markdown]
# ## How much of the model can be removed?

# %%
curve = interp.pruning_curve(loop, lego, by=["magnitude", "random", "heads"], n=100)
curve.plot()

# %% [markdown]
# ## What do equal weights say?
#
# Two different models, [pruned](../pruning.md) out of one random network, such that a matrix is the same in both: the
# matrix alone tells nothing.

# %%
small = Dyck(n_types=2, max_depth=2, length=4)
config = interp.config_for(small, "dyck_eq6", n_layers=1, d_model=2, d_mlp=2)
two_models = [Transformer(config, seed=seed) for seed in range(2)]
same_matrix = interp.indistinguishable(*two_models, candidates=6, rescale=True, n=16)
print(same_matrix)

# %% [markdown]
# ## Does the model run this algorithm?
#
# [Interchange interventions](../algorithms.md) for each variable of an algorithm, and for a rival that gives the same
# answers.

# %%
tested = interp.implements(loop, lego, chain_loop(lego), rivals=[sign_count(lego)], n=64)
tested.plot()

# %% [markdown]
# ## Do the statements of the papers hold?
#
# On the command line: `interp reproduce` lists the studies, `interp reproduce dyck --list` the claims of one,
# `interp reproduce dyck` trains and measures, and `--check` compares with the shipped numbers
# ([studies](../studies.md)).
