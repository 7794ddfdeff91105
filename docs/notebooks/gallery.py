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
# # Gallery
#
# One chart for each kind of result, with the code under it. Models with hand-written weights are used where possible,
# so every cell runs in a second or two.

# %% tags=["remove-cell"]
import interp
from hooks import Transformer
from interp.tasks import Dyck, Lego, Template

lego, pair = Lego(n_vars=3), Lego(n_vars=2)
loop, loop_of_pair = interp.known_answers.lego_loop(lego), interp.known_answers.lego_loop(pair)
dyck = Dyck(n_types=2, max_depth=3, length=10)

# %% [markdown]
# In all cells: `lego = Lego(n_vars=3)`, `pair = Lego(n_vars=2)`, `dyck = Dyck(n_types=2, max_depth=3, length=10)`;
# `loop = interp.known_answers.lego_loop(lego)`, and `loop_of_pair` the same for `pair`.
#
# ## Learning curve

# %% tags=["code-under"]
settings = interp.TrainSettings(
    steps=120, batch_size=64, learning_rate=6e-3, warmup_steps=10, eval_every=20, n_eval=200
)
run = interp.train(Transformer(interp.config_for(dyck, "dyck_gpt", d_model=32)), dyck, settings)
run.plot()

# %% [markdown]
# ## Probes
#
# [Probing](../probing.md)

# %% tags=["code-under"]
interp.probe(loop, lego, n_train=400, n_test=200, verify=True).plot()

# %% [markdown]
# ## Is a probe's direction used?

# %% tags=["code-under"]
interp.audit_probe(loop, lego, n_train=400, n_test=200).plot()

# %% [markdown]
# ## Logit lens
#
# [Logits](../logits.md)

# %% tags=["code-under"]
interp.logit_lens(loop, lego, n=200).plot()

# %% [markdown]
# ## Direct logit attribution

# %% tags=["code-under"]
interp.logit_attribution(loop, lego, n=200).plot()

# %% [markdown]
# ## Kinds of head
#
# [Heads](../heads.md)

# %% tags=["code-under"]
interp.classify_heads(loop, lego, n=64).plot()

# %% [markdown]
# ## Ablation

# %% tags=["code-under"]
interp.ablate_heads(loop, lego, n=64).plot()

# %% [markdown]
# ## Audit
#
# [The audit](../audit.md)

# %% tags=["code-under"]
interp.audit(loop_of_pair, pair).plot()

# %% [markdown]
# ## More layers than in training
#
# [Extrapolation](../extrapolation.md)

# %% tags=["code-under"]
four = Lego(n_vars=4, n_supervised=2)
interp.extrapolate(interp.known_answers.lego_loop(four, n_layers=3), four, n=200).plot()

# %% [markdown]
# ## Following the chain or counting signs

# %% tags=["code-under"]
interp.theory.sign_counting(loop, lego, n=200).plot()

# %% [markdown]
# ## Variation between models
#
# [Bounded Dyck](../dyck.md)

# %% tags=["code-under"]
models = [Transformer(interp.config_for(dyck, "dyck_gpt"), seed=seed) for seed in range(4)]
interp.attention_variation(models, dyck).plot()

# %% [markdown]
# ## Balance

# %% tags=["code-under"]
interp.balance_violation(interp.known_answers.balanced_dyck(dyck, imbalance=0.01), dyck).plot()

# %% [markdown]
# ## Diagonals of weight products
#
# [Templates](../template.md)

# %% tags=["code-under"]
template = Template(templates="aba_abb", train=64)
mimetic = Transformer(interp.config_for(template, d_model=64, n_heads=4, init="mimetic"))
interp.diagonals(mimetic).plot()

# %% [markdown]
# ## Attention page
#
# Hover over a map for query, key and weight; click a head to enlarge it. Point at a token of the large map, or move
# with the arrow keys, to see where it attends.

# %% tags=["code-under"]
interp.show_attention(loop, lego, examples=1, viewer="canvas")
