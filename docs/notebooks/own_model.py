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
# # Your own model: probe and audit a torch module
#
# The analyses accept models that were not made here. This notebook trains a plain `torch.nn` encoder with a plain
# loop, gives it hook points by the names of its parts, and audits it. [Bring a model](../guides/bring_a_model.md) has
# the other ways: Hugging Face models, bridges and `HookedRootModule`s.

# %%
import torch
from torch import nn

import hooks
import interp
from interp.tasks import Dyck

task = Dyck(n_types=2, max_depth=3, length=10)


class Encoder(nn.Module):
    """Two causal layers of torch's own transformer."""

    def __init__(self):
        super().__init__()
        self.embed, self.positions = nn.Embedding(task.d_vocab, 32), nn.Embedding(task.n_ctx, 32)
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.unembed = nn.Linear(32, task.d_vocab)

    def forward(self, tokens):
        pos = tokens.shape[1]
        later = torch.ones(pos, pos, dtype=torch.bool).triu(1)
        return self.unembed(self.encoder(self.embed(tokens) + self.positions(torch.arange(pos)), mask=later))


# %% [markdown]
# ## Train it in your way
#
# `task.sample` gives batches and `task.loss` the loss of the logits at every position; the rest is an ordinary loop.

# %%
torch.manual_seed(0)
network = Encoder()
optimiser = torch.optim.AdamW(network.parameters(), lr=5e-3)
generator = torch.Generator().manual_seed(0)
for _ in range(250):
    batch = task.sample(64, generator=generator)
    loss = task.loss(network(batch.tokens), batch)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
print(f"loss {loss.item():.3f}")

# %% [markdown]
# ## Name its parts
#
# `from_module` needs the name of the list of layers, and of the attention in each layer. Every hook point is tested: an
# edit of it must change the output, and a wrong name is an error that lists the right ones. Printed are one line, and
# the reason for each analysis that does not accept the model.

# %%
sizes = {"d_vocab": task.d_vocab, "n_ctx": task.n_ctx}
network.eval()
model = hooks.from_module(network, layers="encoder.layers", attention="self_attn", **sizes, untrained=Encoder)
print(model.capabilities)

# %% [markdown]
# ## Analyse it
#
# From here on it is a model as any other.

# %%
print(interp.evaluate(model, task, n=500))
probes = interp.probe(model, task, label="depth", n_train=400, n_test=200)
probes.plot()

# %%
audited = interp.audit(model, task, seconds=None)  # looks at more sequences until every head is decided
print(audited)
audited.plot()

# %% [markdown]
# One page with everything, which opens without a network:

# %%
page, accuracies = interp.report_run(model, task, "runs/own_model.html", results=[audited, probes])
print(page)
