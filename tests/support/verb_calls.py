"""A short call of every verb, for tests of which model it accepts."""

import copy

import interp
from interp.algorithms import chain_loop
from interp.tasks import Lego

TASK = Lego(n_vars=3, sentence_format="compact")
EXTRAPOLATED = Lego(n_vars=3, sentence_format="compact", n_supervised=2)
BRACKETS = interp.tasks.Dyck(n_types=2, max_depth=2)


def indistinguishable(model):
    """Two equal targets, with few candidates."""
    return interp.indistinguishable(model, copy.deepcopy(model), BRACKETS, candidates=6, rescale=True, n=8)


CALLS = {
    "evaluate": lambda model: interp.evaluate(model, TASK, n=8),
    "probe": lambda model: interp.probe(model, TASK, n_train=64, n_test=32),
    "probe with verify=True": lambda model: interp.probe(model, TASK, n_train=64, n_test=32, verify=True),
    "audit_probe": lambda model: interp.audit_probe(model, TASK, n_train=64, n_test=64),
    "show_attention": lambda model: interp.show_attention(model, TASK),
    "attention_variation": lambda model: interp.attention_variation(
        [model, copy.deepcopy(model)], TASK, n_baseline=2, resamples=10
    ),
    "classify_heads": lambda model: interp.classify_heads(model, TASK, n=16),
    "ablate": lambda model: interp.ablate(model, TASK, n=8),
    "ablate_heads": lambda model: interp.ablate_heads(model, TASK, n=8, method="resample"),
    "ablate_heads with another pattern": lambda model: interp.ablate_heads(model, TASK, n=8, method="uniform"),
    "keep_heads": lambda model: interp.keep_heads(model, TASK, n=16, orders=["ablation"], n_random=0),
    "keep_heads with another pattern": lambda model: interp.keep_heads(
        model, TASK, n=16, orders=["ablation"], n_random=0, method="random_rows"
    ),
    "audit": lambda model: interp.audit(model, TASK, n=32, at_chance=True),
    "audit_parts": lambda model: interp.audit_parts(model, TASK, n=32, at_chance=True),
    "implements": lambda model: interp.implements(model, TASK, chain_loop(TASK), n=32),
    "logit_lens": lambda model: interp.logit_lens(model, TASK, n=16),
    "logit_attribution": lambda model: interp.logit_attribution(model, TASK, n=16),
    "edges": lambda model: interp.edges(model, TASK, n=8),
    "edges between layers": lambda model: interp.edges(model, TASK, between="layers", n=8),
    "explain_attention": lambda model: interp.explain_attention(model, TASK, (0, 0), n=8),
    "patch": lambda model: interp.patch(model, TASK, n=8),
    "patch of attention outputs": lambda model: interp.patch(model, TASK, site="attn_out", n=8),
    "patch of MLPs": lambda model: interp.patch(model, TASK, site="mlp_out", n=8),
    "diagonals": lambda model: interp.diagonals(model, n_null=4),
    "train": lambda model: interp.train(
        copy.deepcopy(model), TASK, interp.TrainSettings(steps=1, n_eval=8, batch_size=4)
    ),
    "balance_violation": lambda model: interp.balance_violation(model, BRACKETS),
    "extrapolate": lambda model: interp.extrapolate(model, EXTRAPOLATED, n=8),
    "indistinguishable": lambda model: indistinguishable(model),
    "pruning_curve": lambda model: interp.pruning_curve(model, TASK, by="magnitude", fractions=[0.5], n=32),
}
